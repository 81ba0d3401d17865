//! Any octets as the firmware's tables, as a PCI configuration space, and as a packed configuration.
#![no_main]

use host::facts::{Facts, Root};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let facts = Facts::read(&Root::given([
        ("sys/firmware/dmi/tables/DMI", data),
        ("sys/bus/pci/devices/0000:01:00.0/config", data),
        ("proc/config.gz", data),
        ("commands/dmidecode_-t_17", data),
        ("commands/lspci_-nnvv", data),
    ]));
    drop(facts);
});
