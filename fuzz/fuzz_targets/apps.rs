//! Every application against any frame: `cargo fuzz run -s none apps` (in the root folder, stable Rust).
//!
//! The first octet chooses the port, the second whether the IPv4 header checksum is put right first, so
//! that the fuzzer need not find it; the rest is the frame.
#![no_main]

use libfuzzer_sys::fuzz_target;
use live::app::headers::{ETHERTYPE_IPV4, Ethernet, Mac, Sum};
use live::app::l3fwd::L3Fwd;
use live::app::routes::Table;
use live::app::{AnyApp, App, AppConfig, PortInfo, Verdict};
use std::cell::RefCell;

const ROUTES: &str = r#"
    finish_checksums = true
    [[port]]
    name = "p0"
    addresses = ["10.0.0.1/24", "fd00::1/64"]
    [[route]]
    prefix = "10.0.0.0/8"
    port = "p1"
    mac = "02:00:00:00:00:21"
    [[route]]
    prefix = "fd00::/8"
    port = "p1"
    mac = "02:00:00:00:00:21"
"#;

fn apps() -> Vec<AnyApp> {
    let ports: Vec<PortInfo> =
        (0..2).map(|n| PortInfo { name: format!("p{n}"), mac: Mac::new([2, 0, 0, 0, 0, n]) }).collect();
    let echo = |verify_checksum| AppConfig::UdpEcho {
        addresses: vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
        ports: "any".parse().unwrap(),
        verify_checksum,
    };
    let wire = |yes| AppConfig::L2Fwd { rewrite: yes, finish_checksums: yes };
    let mut apps: Vec<AnyApp> = [AppConfig::Drop, AppConfig::MacSwap, wire(false), wire(true), echo(false), echo(true)]
        .iter()
        .map(|config| config.build(&ports).unwrap())
        .collect();
    apps.push(AnyApp::L3Fwd(L3Fwd::new(Table::parse(ROUTES, "routes", &ports).unwrap())));
    apps
}

thread_local! {
    static APPS: RefCell<Vec<AnyApp>> = RefCell::new(apps());
}

/// Puts the IPv4 header checksum right, if there is such a header.
fn mend(frame: &mut [u8]) {
    let Ok(ethernet) = Ethernet::parse(frame) else { return };
    let packet = &mut frame[ethernet.len..];
    if ethernet.ethertype != ETHERTYPE_IPV4 || packet.len() < 20 {
        return;
    }
    let len = usize::from(packet[0] & 15) * 4;
    let Some(header) = packet.get_mut(..len).filter(|header| header.len() >= 20) else { return };
    header[10..12].fill(0);
    let checksum = Sum::of(header).checksum();
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
}

fuzz_target!(|data: &[u8]| {
    let [port, flags, frame @ ..] = data else { return };
    let port = usize::from(port & 1);
    APPS.with_borrow_mut(|apps| {
        for app in apps {
            let mut frame = frame.to_vec();
            if flags & 1 != 0 {
                mend(&mut frame);
            }
            let before = frame.len();
            if let Verdict::Send(out) = app.handle(port, &mut frame) {
                assert!(out < 2 && frame.len() == before, "{app:?} sent to port {out}");
            }
        }
    });
});
