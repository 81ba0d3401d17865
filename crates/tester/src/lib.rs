//! tester
