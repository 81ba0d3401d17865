//! `apus power request`.

use std::path::PathBuf;

use clap::Args;
use units::Nanos;

use crate::args::values::span_with_hours;

/// Arguments of `apus power request`.
#[derive(Args, Debug)]
pub struct Request {
    /// What to ask for: max, min, up or down (the highest, the lowest, the next higher or the next lower frequency); a
    /// frequency, such as 1.8GHz; `goal p99=50us` (a latency goal); `idle 20us` (only idle states that wake up within
    /// 20 us); `release` (withdraw all requests); or `state` (show the requests in force). `goal none` and `idle none`
    /// withdraw a goal or an idle-state limit.
    #[arg(required = true, num_args = 1..=2, value_name = "ASK")]
    pub ask: Vec<String>,
    /// Number of the vCPU that the request is for: its CPU number in this virtual machine.
    #[arg(long, value_name = "N")]
    pub vcpu: u16,
    /// Port to the host: a virtio-serial port or a UNIX socket [default: /dev/virtio-ports/apus.power if it exists,
    /// else /dev/virtio-ports/virtio.serial.port.poweragent.N, where N is the vCPU].
    #[arg(long, value_name = "PATH")]
    pub port: Option<PathBuf>,
    /// Maximum time to wait for the answer, from 10ms to 1h.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = patience)]
    pub timeout: Nanos,
    /// Print one JSON document (schema apus.power-request/1).
    #[arg(long)]
    pub json: bool,
}

fn patience(text: &str) -> Result<Nanos, String> {
    const SHORTEST: Nanos = Nanos::from_millis(10);
    const LONGEST: Nanos = Nanos::from_secs(3_600);
    let span = span_with_hours(text)?;
    if (SHORTEST..=LONGEST).contains(&span) { Ok(span) } else { Err("expected 10ms to 1h".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_has_a_unit_and_a_range() {
        assert_eq!(patience("2s"), Ok(Nanos::from_secs(2)));
        assert_eq!(patience("1h"), Ok(Nanos::from_secs(3_600)));
        for wrong in ["2", "1ms", "2h", ""] {
            assert!(patience(wrong).is_err(), "{wrong}");
        }
    }
}
