//! The firmware's description of the machine: `/sys/class/dmi/id`. Serial numbers and UUIDs are not read.

use crate::facts::{Context, Dmi};

pub(super) fn read(context: &Context) -> Dmi {
    let root = context.root;
    // Tries the link's target too, in case the recording lacks the link.
    let file = |name: &str| {
        let other = || root.text(&format!("sys/devices/virtual/dmi/id/{name}"));
        root.text(&format!("sys/class/dmi/id/{name}")).or_else(other)
    };
    Dmi {
        system_vendor: file("sys_vendor"),
        product_name: file("product_name"),
        product_family: file("product_family"),
        board_name: file("board_name"),
        bios_vendor: file("bios_vendor"),
        bios_version: file("bios_version"),
        bios_date: file("bios_date"),
        chassis_type: file("chassis_type"),
    }
}
