//! Carries out waits.
use units::Nanos;
/// How long a worker that has to block sleeps if none of its devices can wake it.
pub const UNWAKEABLE: Nanos = Nanos::from_millis(1);
