//! Tests every application with malformed and hostile frames. No application may panic, and each verdict must name a
//! port that exists. The fuzz target `fuzz/fuzz_targets/apps.rs` runs the same test without a time limit.

use super::testing::{apps, structured};
use super::{App, Verdict};
use proptest::prelude::*;

fn feed(port: usize, frame: &[u8]) {
    for mut app in apps() {
        let mut copy = frame.to_vec();
        if let Verdict::Send(out) = app.handle(port, &mut copy) {
            assert!(out < 2 || out == port, "{app:?} sent to port {out}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_octets(port in 0usize..3, frame in proptest::collection::vec(any::<u8>(), 0..2000)) {
        feed(port, &frame);
    }

    /// Valid frames with up to three bytes changed, mostly in their headers, and some of them truncated.
    #[test]
    fn mutated_frames(
        port in 0usize..2,
        frame in structured(),
        changes in proptest::collection::vec((0usize..120, any::<u8>()), 0..4),
        cut in prop_oneof![3 => Just(usize::MAX), 1 => 0usize..200],
    ) {
        let mut frame = frame;
        let len = frame.len();
        for (at, octet) in changes {
            frame[at % len] = octet;
        }
        // Mostly repairs the IPv4 header checksum: otherwise the frame is dropped at once, and later checks are not
        // reached.
        if frame[12..14] == [8, 0] && frame[14] & 15 >= 5 && len >= 14 + 60 {
            super::testing::fix_ipv4(&mut frame);
        }
        feed(port, &frame[..cut.min(len)]);
    }
}

/// Cuts every kind of frame at every length, so that each length check is reached.
#[test]
fn every_truncation() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for _ in 0..60 {
        let frame = structured().new_tree(&mut runner).expect("a frame").current();
        for len in 0..=frame.len() {
            feed(0, &frame[..len]);
        }
    }
}
