//! Any octets as a FreeBSD snapshot.
#![no_main]

use host::facts::{Facts, Root};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let facts = Facts::read(&Root::given([
        ("apus-snapshot", b"os: FreeBSD".as_slice()),
        ("commands/sysctl_-a", data),
        ("boot/loader.conf", data),
        ("etc/rc.conf", data),
        ("commands/ifconfig_-a", data),
        ("commands/vmstat_-i", data),
        ("commands/top_-bSH", data),
        ("commands/pciconf_-l", data),
        ("commands/cpuset_-g_-x", data),
    ]));
    drop(facts);
});
