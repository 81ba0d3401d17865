//! Any octets as what ethtool says.
#![no_main]

use host::facts::{Facts, Root};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let facts = Facts::read(&Root::given([
        ("commands/ethtool_-i_eth0", data),
        ("commands/ethtool_-c_eth0", data),
        ("commands/ethtool_-g_eth0", data),
        ("commands/ethtool_-l_eth0", data),
        ("commands/ethtool_-k_eth0", data),
        ("commands/ethtool_-a_eth0", data),
        ("commands/ethtool_-T_eth0", data),
        ("commands/ethtool_-S_eth0", data),
        ("commands/ethtool_-x_eth0", data),
        ("commands/ethtool_-n_eth0", data),
        ("commands/ethtool_--show-priv-flags_eth0", data),
        ("commands/ethtool_--show-fec_eth0", data),
        ("commands/ethtool_--show-eee_eth0", data),
        ("commands/ethtool_eth0", data),
        ("commands/ethtool_--per-queue_eth0_--show-coalesce", data),
        ("commands/netdev_eth0", data),
    ]));
    drop(facts);
});
