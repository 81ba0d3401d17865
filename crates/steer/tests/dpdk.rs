//! The guest channel's packets against DPDK's own header, compiled here.
#![expect(clippy::disallowed_methods, reason = "the test runs a compiler")]

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use steer::guests::dpdk::{self, Core, Packet, Policy, Query, Scale, Workload};

#[test]
fn packets_are_those_of_the_installed_header() {
    let flags = Command::new("pkg-config").args(["--cflags", "libdpdk"]).output().ok().filter(|o| o.status.success());
    let Some(flags) = flags else {
        testkit::skip("pkg-config finds no libdpdk; apt-get install dpdk-dev");
        return;
    };
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("layout-{}", std::process::id()));
    let mut cc = Command::new("cc");
    cc.arg("-o").arg(&program).arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/layout.c"));
    let built = cc.args(String::from_utf8(flags.stdout).unwrap().split_whitespace()).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let written = Command::new(&program).output().unwrap().stdout;
    let packets: Vec<&[u8; dpdk::LENGTH]> =
        written.chunks(dpdk::LENGTH).map(|chunk| chunk.try_into().expect("whole packets")).collect();
    let meaning: Vec<Packet> = packets.iter().map(|packet| Packet::read(packet)).collect();
    let number = 0x0102_0304_0506_0708;
    assert_eq!(
        meaning,
        [
            Packet::Scale(Core::Virtual(number), Scale::Min),
            Packet::Scale(Core::Physical(number), Scale::DisableTurbo),
            Packet::Policy(Policy::Workload(Workload::Low, vec![7, 1, 200])),
            Packet::Query(Query::Caps, number),
        ]
    );
    let mut reader =
        Command::new(&program).arg("read").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it ran before");
    let mut answers = dpdk::acknowledged(packets[0], false).to_vec();
    answers.extend(dpdk::frequencies(packets[0], Some(&[800_000, 0, 0, 0, 0, 0, 0, 3_000_000])));
    answers.extend(dpdk::capabilities(packets[0], Some(&[false, true])));
    reader.stdin.take().unwrap().write_all(&answers).unwrap();
    let said = String::from_utf8(reader.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(said, format!("2 {number} vm1\n3 8 800000 3000000\n4 2 0 1 0\n"));
    std::fs::remove_file(&program).unwrap();
}
