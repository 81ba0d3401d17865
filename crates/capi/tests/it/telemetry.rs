//! What other programs see of a loop that uses libapus.

use std::ffi::CString;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use capi::error::Code;
use capi::ffi::*;
use capi::types::*;
use live::telemetry::{State, instances};
use policy::wait::WaitKind;
use units::Nanos;

use super::calls::{error, wait, waiter};

#[test]
fn stamps_of_the_real_time_are_compared_with_that_clock() {
    let root = super::scratch("realtime");
    let text = CString::new(root.to_str().unwrap()).unwrap();
    let config = Config { name: c"stamped".as_ptr(), telemetry_root: text.as_ptr(), ..Config::default() };
    let made = waiter(&config).unwrap();
    let ago = Duration::from_millis(500);
    let stamp = (SystemTime::now() - ago).duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let stamped = Stamped::Realtime as u32;
    let queue = QueueIn { first_ns: stamp, last_ns: stamp, received: 1, stamped, ..QueueIn::default() };
    // SAFETY: one queue, which lives through the call.
    let wait = |queue: QueueIn| unsafe { apus_wait_queues(made, &queue, 1, std::ptr::null_mut()) };
    assert!(wait(queue) >= 0, "{}", error());
    let (living, _) = instances(&root).unwrap();
    let lateness = living[0].snapshot().counts.lateness.max().unwrap();
    assert!((500..5_000).contains(&(lateness.as_nanos() / 1_000_000)), "{lateness}");
    assert_eq!(wait(QueueIn { last_ns: stamp - 1, ..queue }), Code::Observation.returned());
    assert_eq!(wait(QueueIn { stamped: 3, ..queue }), Code::Observation.returned());
    assert_eq!(apus_waiter_free(made), 0);
}

#[test]
fn a_loop_is_an_instance_like_any_other() {
    let root = super::scratch("telemetry");
    let text = CString::new(root.to_str().unwrap()).unwrap();
    let config = Config {
        goal: c"p99.9=70us".as_ptr(),
        name: c"their-loop".as_ptr(),
        app: c"udp-server".as_ptr(),
        port: c"eth7".as_ptr(),
        telemetry_root: text.as_ptr(),
        worker: 2,
        wakes: Wakes::Nothing as u32,
        ..Config::default()
    };
    let made = waiter(&config).unwrap();
    for i in 0..100 {
        wait(made, if i % 2 == 0 { 3 } else { 0 }).unwrap();
    }
    assert_eq!(apus_count(made, 1_000, 140, 900, 10), 0);
    let (living, _) = instances(&root).unwrap();
    let seen = living[0].snapshot();
    let id = &seen.identity;
    assert_eq!((id.instance.as_str(), id.worker, id.app.as_str()), ("their-loop", 2, "udp-server"));
    assert_eq!(
        (id.mode.as_str(), id.goal.as_deref(), &id.ports[..]),
        ("adaptive", Some("p99.9=70us"), &["eth7".to_owned()][..])
    );
    assert_eq!(seen.state, Some(State::Running));
    let counts = &seen.counts;
    assert_eq!(
        (counts.polls, counts.empty_polls, counts.received_frames, counts.received_bytes),
        (100, 50, 150, 1_000)
    );
    assert_eq!((counts.sent_frames, counts.sent_bytes), (140, 900));
    assert_eq!(counts.reasons.iter().sum::<u64>(), 100, "one reason each");
    assert_eq!(counts.lateness.count(), 150, "no packet ended a block, so each has a bound");
    assert!(counts.lateness.max() > Some(Nanos::ZERO));
    let waits: u64 = WaitKind::ALL.iter().map(|kind| counts.waits[*kind as usize].count).sum();
    assert!(waits > 0 && waits <= 100);
    assert!(waiter(&config).is_err() && error().contains("another config.worker, or free the first"), "{}", error());
    assert_eq!(apus_waiter_free(made), 0);
    assert!(instances(&root).unwrap().0.is_empty());
}
