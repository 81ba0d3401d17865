//! The clock of the live world.
