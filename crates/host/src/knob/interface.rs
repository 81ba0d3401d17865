//! Finds the network interface to which a setting belongs, even if the interface was renamed or another interface now
//! has its old name.

use super::ethtool::index;
use super::{Access, AnySetting, CpuMask, Error, File, Setting as _, Sysctl};

const FOLDER: &str = "/sys/class/net";

/// The names of the interfaces in `/sys/class/net`. `None` if the folder does not exist.
pub fn interfaces(access: &Access) -> Result<Option<Vec<String>>, Error> {
    access.list(FOLDER)
}

/// The interface's index (`ifindex`), which stays the same when the interface is renamed. `None` if there is no such
/// interface.
pub fn interface_index(access: &Access, name: &str) -> Option<u32> {
    index(access, name)
}

/// The name of the interface with this index (`ifindex`). `None` if there is no such interface.
pub fn interface_name(access: &Access, index: u32) -> Option<String> {
    access.nic(|client| client.interface_numbered(index)).ok().map(|interface| interface.name().to_owned())
}

/// Where a setting is found now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// The setting, with the interface's current name. Reading the setting shows whether the interface still exists.
    Here(AnySetting),
    /// The interface to which the setting belonged is gone, and another interface now has its name.
    Another,
}

/// Finds a setting that belonged to the device `identity`. A renamed interface is found by its index.
pub(crate) fn find(access: &Access, setting: &AnySetting, identity: Option<&str>) -> Result<Place, Error> {
    let Some(identity) = identity else { return Ok(Place::Here(setting.clone())) };
    let now = setting.identity(access)?;
    if now.as_deref() == Some(identity) {
        return Ok(Place::Here(setting.clone()));
    }
    if let Some(name) = interface_of(setting)
        && let Some(index) = identity.strip_prefix("ifindex ").and_then(|index| index.parse().ok())
        && let Some(other) = called(access, setting, index)?.filter(|other| *other != name)
    {
        return Ok(Place::Here(of_interface(setting, &name, &other)));
    }
    Ok(if now.is_some() { Place::Another } else { Place::Here(setting.clone()) })
}

/// The name of the interface with this index, read from the same source as the setting: sysfs or netlink.
fn called(access: &Access, setting: &AnySetting, index: u32) -> Result<Option<String>, Error> {
    if access.is_live() && !matches!(setting, AnySetting::File(_) | AnySetting::CpuMask(_)) {
        return Ok(access.nic(|client| client.interface_numbered(index)).ok().map(|other| other.name().to_owned()));
    }
    for name in interfaces(access)?.unwrap_or_default() {
        if access.number(&format!("{FOLDER}/{name}/ifindex"))? == Some(index.into()) {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

/// Identifies the device to which a file belongs, if another device can get the same name: an interface by its index, a
/// disk by its sequence number (Documentation/ABI/testing/sysfs-block, `diskseq`).
pub(super) fn identity_of_path(access: &Access, path: &str) -> Result<Option<String>, Error> {
    if let Some(name) = interface_in(path) {
        if access.is_live() && path.starts_with("/proc/") {
            return Ok(index(access, name).map(|index| format!("ifindex {index}")));
        }
        return Ok(access.line(&format!("{FOLDER}/{name}/ifindex"))?.map(|index| format!("ifindex {index}")));
    }
    match path.split('/').skip(1).collect::<Vec<_>>()[..] {
        ["sys", "block", disk, ..] | ["sys", "class", "block", disk, ..] => {
            Ok(access.line(&format!("/sys/class/block/{disk}/diskseq"))?.map(|number| format!("diskseq {number}")))
        }
        _ => Ok(None),
    }
}

/// The name of the interface to which the file at `path` belongs.
fn interface_in(path: &str) -> Option<&str> {
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let name = match parts[..] {
        ["sys", "class", "net", name, _, ..] => name,
        ["proc", "sys", "net", "ipv4" | "ipv6" | "mpls", "conf" | "neigh", name, _, ..] => name,
        ["sys", "devices", ..] => {
            let place = parts.iter().position(|part| *part == "net")?;
            parts.get(place + 2).and(parts.get(place + 1)).copied()?
        }
        _ => return None,
    };
    (!matches!(name, "all" | "default")).then_some(name)
}

/// Makes the same setting for an interface with another name, for each kind of setting that has an interface name.
macro_rules! by_name {
    ($setting:expr, $it:ident => $of_kind:expr, $path:ident => $of_path:expr) => {
        match $setting {
            AnySetting::Coalesce($it) => $of_kind,
            AnySetting::CoalesceQueue($it) => $of_kind,
            AnySetting::Rings($it) => $of_kind,
            AnySetting::Channels($it) => $of_kind,
            AnySetting::Features($it) => $of_kind,
            AnySetting::PrivateFlags($it) => $of_kind,
            AnySetting::Pause($it) => $of_kind,
            AnySetting::Napi($it) => $of_kind,
            AnySetting::File(File { path: $path }) | AnySetting::CpuMask(CpuMask { path: $path }) => $of_path,
            _ => {}
        }
    };
}

fn interface_of(setting: &AnySetting) -> Option<String> {
    if let AnySetting::Sysctl(it) = setting {
        return interface_in(&it.path()).map(str::to_owned);
    }
    let mut name = None;
    by_name!(setting, it => name = Some(it.interface.clone()), path => name = interface_in(path).map(str::to_owned));
    name
}

/// Makes the same setting for the interface `to` instead of the interface `from`.
fn of_interface(setting: &AnySetting, from: &str, to: &str) -> AnySetting {
    let moved = |path: &str| path.replacen(&format!("/{from}/"), &format!("/{to}/"), 1);
    if let AnySetting::Sysctl(it) = setting {
        let path = moved(&it.path());
        return Sysctl::at(path.trim_start_matches("/proc/sys/")).into();
    }
    let mut setting = setting.clone();
    by_name!(&mut setting, it => it.interface = to.to_owned(), path => *path = moved(path));
    setting
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Folder;

    #[test]
    fn a_renamed_port_is_found_and_another_of_its_name_is_not_taken_for_it() {
        let folder = Folder::new(&[("sys/class/net/eth0/ifindex", "4\n"), ("sys/class/net/lan/ifindex", "2\n")]);
        let access = folder.access();
        let place = |setting: AnySetting, identity| find(&access, &setting, Some(identity)).unwrap();
        for (of, to) in [
            (
                CpuMask::new("/sys/class/net/eth0/queues/rx-0/rps_cpus").into(),
                "/sys/class/net/lan/queues/rx-0/rps_cpus",
            ),
            (File::new("/sys/class/net/eth0/threaded").into(), "/sys/class/net/lan/threaded"),
            (Sysctl::new("net.ipv4.conf.eth0.rp_filter").into(), "sysctl net.ipv4.conf.lan.rp_filter"),
        ] {
            let Place::Here(now) = place(of, "ifindex 2") else { panic!("not found: {to}") };
            assert_eq!(now.label(), to);
        }
        let own: AnySetting = File::new("/sys/class/net/eth0/threaded").into();
        assert_eq!(place(own.clone(), "ifindex 4"), Place::Here(own.clone()));
        assert_eq!(place(own.clone(), "ifindex 3"), Place::Another);
        std::fs::remove_dir_all(folder.path("sys/class/net/eth0")).unwrap();
        assert_eq!(place(own.clone(), "ifindex 3"), Place::Here(own), "nobody has its name: it reads as gone");
    }

    #[test]
    fn paths_name_their_interface() {
        for (path, name) in [
            ("/sys/class/net/eth0/queues/rx-0/rps_cpus", Some("eth0")),
            ("/sys/devices/pci0000:00/0000:00:03.0/net/ens3/threaded", Some("ens3")),
            ("/proc/sys/net/ipv6/conf/eth0.100/forwarding", Some("eth0.100")),
            ("/proc/sys/net/ipv4/conf/all/forwarding", None),
            ("/proc/sys/net/core/busy_poll", None),
            ("/sys/class/net/eth0", None),
        ] {
            assert_eq!(interface_in(path), name, "{path}");
        }
    }
}
