//! The built-in profiles: the files in `profiles/`.

/// The names of the built-in profiles.
pub(super) const NAMES: [&str; 5] = ["base", "poll", "interrupt", "kvm-host", "powersave"];

pub(super) fn text(name: &str) -> Option<&'static str> {
    Some(match name {
        "base" => include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../profiles/base.toml")),
        "poll" => include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../profiles/poll.toml")),
        "interrupt" => include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../profiles/interrupt.toml")),
        "kvm-host" => include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../profiles/kvm-host.toml")),
        "powersave" => include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../profiles/powersave.toml")),
        _ => return None,
    })
}
