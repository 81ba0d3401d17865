//! tester

pub mod lab;
pub mod report;
