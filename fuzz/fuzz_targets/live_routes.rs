//! Any text as the routing table of `l3fwd`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use live::app::PortInfo;
use live::app::headers::Mac;
use live::app::routes::Table;

fuzz_target!(|text: &str| {
    let ports = [0, 1].map(|n| PortInfo { name: format!("p{n}"), mac: Mac::new([2, 0, 0, 0, 0, n]) });
    let _ = Table::parse(text, "fuzz", &ports);
});
