//! The manifests of guests: one TOML file per guest, named after the guest.
//!
//! ```toml
//! connect = ["/run/vm1/poweragent.0", "/run/vm1/poweragent.1"]   # sockets at which QEMU listens
//! listen = ["/run/apus/guests/vm1"]                              # sockets at which Apus listens
//! listen_mode = "0660"               # permissions of these sockets, optional like their group
//! listen_group = "libvirt-qemu"
//! pinning = "qmp:/run/vm1/qmp"       # or libvirt:DOMAIN, pid-file:PATH, or manifest (trusts [vcpus])
//! min_frequency = "800MHz"           # optional, like the five keys below
//! max_frequency = "2.6GHz"
//! requests_per_second = 50
//! limit_idle = true
//! query = true
//! forget_after = "10s"
//!
//! [vcpus]
//! 0 = "2"                            # the CPUs to which vCPU 0 may be pinned
//! 1 = "3-5"
//! ```
//! Unknown keys are errors.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use host::CpuSet;
use serde::{Deserialize, Deserializer};
use steer::guests::Manifest;
use units::{Hertz, Nanos};

use super::super::regular_file;
use crate::Failure;

/// Maximum size of a manifest in bytes.
const LARGEST: u64 = 1 << 20;
/// Maximum number of channels per guest: DPDK has one for each lcore (`RTE_MAX_LCORE` is 128).
const MOST_CHANNELS: usize = 128;
/// Maximum number of requests per second. Higher rates make no sense, because one frequency change takes about 500 us
/// (figure S0.4 in docs/models.md).
const MOST_REQUESTS: u32 = 10_000;
const REQUESTS: u32 = 50;
const FORGET_AFTER: Nanos = Nanos::from_secs(10);

/// A guest as its manifest describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct GuestFile {
    /// What the guest may request.
    pub(super) manifest: Manifest,
    /// The guest's channels.
    pub(super) channels: Vec<Way>,
    /// How to find out where the guest's vCPUs run.
    pub(super) pinning: Pinning,
    /// Time without a connected channel after which the guest's requests are dropped.
    pub(super) forget_after: Nanos,
}

/// How to reach a channel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// QEMU listens at this socket, and Apus connects to it.
    Connect(PathBuf),
    /// Apus listens at this socket.
    Listen(PathBuf, Share),
}

/// Who may connect to a socket at which Apus listens.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Share {
    /// The permissions of the socket. `None` if they follow from the umask.
    pub(super) mode: Option<u32>,
    /// The number of the socket's group. `None` if it is the group of the process or of the folder.
    pub(super) group: Option<u32>,
}

impl Share {
    fn of(keys: &Keys) -> Result<Self, String> {
        let mode = |text: &String| {
            let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777 && text.len() >= 3);
            mode.ok_or_else(|| format!("listen_mode = {text:?}: expected octal permissions such as \"0660\""))
        };
        let group = |name: &String| match name.parse() {
            Ok(number) => Ok(number),
            Err(_) => group_number(name).map_err(|why| format!("listen_group = {name:?}: {why}")),
        };
        if keys.listen.is_empty() && (keys.listen_mode.is_some() || keys.listen_group.is_some()) {
            return Err("listen_mode and listen_group apply to the sockets in listen, but it lists none".into());
        }
        Ok(Self {
            mode: keys.listen_mode.as_ref().map(mode).transpose()?,
            group: keys.listen_group.as_ref().map(group).transpose()?,
        })
    }
}

/// The number of a group in `/etc/group` (group(5): name, password, number and members, separated by colons).
fn group_number(name: &str) -> Result<u32, String> {
    const FILE: &str = "/etc/group";
    let text = std::fs::read_to_string(FILE).map_err(|error| format!("cannot read {FILE}: {error}"))?;
    let number = text.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok()).flatten()
    });
    number.ok_or_else(|| format!("{FILE} has no such group; give its number for a group that is defined elsewhere"))
}

impl Way {
    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Connect(path) | Self::Listen(path, _) => path,
        }
    }
}

/// How to find out on which CPUs the vCPUs run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Pinning {
    /// Ask QEMU's monitor at this socket.
    Qmp(PathBuf),
    /// Read libvirt's state of the domain with this name.
    Libvirt(String),
    /// Read the threads of the process whose PID is in this file.
    PidFile(String),
    /// Trust the manifest, which lists the CPU of each vCPU.
    Manifest,
}

impl FromStr for Pinning {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let absolute = |path: &str| match path.starts_with('/') {
            true => Ok(path.to_owned()),
            false => Err(format!("the path {path:?} must begin with /")),
        };
        match text.split_once(':') {
            None if text == "manifest" => Ok(Self::Manifest),
            Some(("qmp", path)) => Ok(Self::Qmp(absolute(path)?.into())),
            Some(("libvirt", name)) if !name.is_empty() && !name.contains('/') && !name.starts_with('.') => {
                Ok(Self::Libvirt(name.to_owned()))
            }
            Some(("pid-file", path)) => Ok(Self::PidFile(absolute(path)?)),
            _ => Err(format!("{text:?}: expected qmp:PATH, libvirt:DOMAIN, pid-file:PATH or manifest")),
        }
    }
}

impl fmt::Display for Pinning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Qmp(path) => write!(f, "qmp:{}", path.display()),
            Self::Libvirt(name) => write!(f, "libvirt:{name}"),
            Self::PidFile(path) => write!(f, "pid-file:{path}"),
            Self::Manifest => f.write_str("manifest"),
        }
    }
}

/// The keys of a manifest file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    #[serde(default)]
    connect: Vec<PathBuf>,
    #[serde(default)]
    listen: Vec<PathBuf>,
    listen_mode: Option<String>,
    listen_group: Option<String>,
    #[serde(deserialize_with = "text")]
    pinning: Pinning,
    #[serde(default, deserialize_with = "some_text")]
    min_frequency: Option<Hertz>,
    #[serde(default, deserialize_with = "some_text")]
    max_frequency: Option<Hertz>,
    requests_per_second: Option<u32>,
    limit_idle: Option<bool>,
    query: Option<bool>,
    #[serde(default, deserialize_with = "some_text")]
    forget_after: Option<Nanos>,
    vcpus: BTreeMap<String, Cpus>,
}

/// A list of CPUs in quotes, or a single CPU as a number.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a CPU such as 2, or a list of CPUs such as \"2-5\"")]
enum Cpus {
    One(u32),
    List(String),
}

fn text<'de, D: Deserializer<'de>, T: FromStr<Err: fmt::Display>>(from: D) -> Result<T, D::Error> {
    String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
}

fn some_text<'de, D: Deserializer<'de>, T: FromStr<Err: fmt::Display>>(from: D) -> Result<Option<T>, D::Error> {
    text(from).map(Some)
}

impl GuestFile {
    /// Reads a manifest file.
    pub(super) fn read(path: &Path) -> Result<Self, Failure> {
        let what = format!("cannot use the manifest {}", path.display());
        let fix =
            "correct it; apus power serve check checks manifests and changes nothing; docs/guests.md has examples";
        let mut text = String::new();
        let read = regular_file(path).and_then(|file| file.take(LARGEST + 1).read_to_string(&mut text));
        read.map_err(|e| Failure::wrong(&what, e, fix))?;
        if text.len() as u64 > LARGEST {
            return Err(Failure::wrong(&what, "it is larger than 1 MiB", fix));
        }
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        Self::parse(name, &text).map_err(|why| Failure::wrong(&what, why, fix))
    }

    /// Parses a manifest. `name` is the name of the guest.
    pub(super) fn parse(name: &str, text: &str) -> Result<Self, String> {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if name.is_empty() || name.len() > 64 || !name.bytes().all(is_name) {
            return Err(format!("{name:?} is not a valid guest name: use 1 to 64 letters, digits, dots, - and _"));
        }
        let keys: Keys = toml::from_str(text).map_err(|error| error.to_string().trim().to_owned())?;
        let share = Share::of(&keys)?;
        let listens = keys.listen.into_iter().map(|path| Way::Listen(path, share));
        let ways = keys.connect.into_iter().map(Way::Connect).chain(listens);
        let channels: Vec<Way> = ways.collect();
        if channels.is_empty() || channels.len() > MOST_CHANNELS {
            return Err(format!(
                "it lists {} channels in connect and listen; expected 1 to {MOST_CHANNELS}",
                channels.len()
            ));
        }
        if let Some(way) = channels.iter().find(|way| !way.path().is_absolute()) {
            return Err(format!("the path {:?} of a channel must begin with /", way.path()));
        }
        if let Some(pair) =
            channels.iter().enumerate().find(|(at, way)| channels[..*at].iter().any(|one| one.path() == way.path()))
        {
            return Err(format!("the channel {:?} is listed twice", pair.1.path()));
        }
        let mut vcpus = BTreeMap::new();
        for (number, cpus) in keys.vcpus {
            let vcpu = number.parse().ok().filter(|vcpu: &u16| vcpu.to_string() == number);
            let vcpu = vcpu.ok_or_else(|| format!("{number:?} in [vcpus] is not a vCPU number"))?;
            let cpus = match cpus {
                Cpus::One(cpu) => CpuSet::parse_list(&cpu.to_string()),
                Cpus::List(list) => CpuSet::parse_list(&list),
            };
            let cpus = cpus.map_err(|why| format!("the CPUs of vCPU {vcpu}: {why}"))?;
            if cpus.is_empty() {
                return Err(format!("vCPU {vcpu} lists no CPU"));
            }
            if keys.pinning == Pinning::Manifest && cpus.len() > 1 {
                return Err(format!("with pinning = \"manifest\", vCPU {vcpu} must list exactly one CPU, not {cpus}"));
            }
            vcpus.insert(vcpu, cpus);
        }
        if vcpus.is_empty() {
            return Err("[vcpus] lists no vCPU".into());
        }
        let (least, most) = (keys.min_frequency, keys.max_frequency);
        if least.zip(most).is_some_and(|(least, most)| least > most) {
            return Err("min_frequency is above max_frequency".into());
        }
        let rate = keys.requests_per_second.unwrap_or(REQUESTS);
        if !(1..=MOST_REQUESTS).contains(&rate) {
            return Err(format!("requests_per_second = {rate}: expected 1 to {MOST_REQUESTS}"));
        }
        let manifest = Manifest {
            name: name.to_owned(),
            vcpus,
            min_frequency: least,
            max_frequency: most,
            may_limit_idle: keys.limit_idle.unwrap_or(true),
            may_query: keys.query.unwrap_or(true),
            requests_per_second: rate,
            channels: channels.len(),
        };
        let forget_after = keys.forget_after.unwrap_or(FORGET_AFTER);
        Ok(Self { manifest, channels, pinning: keys.pinning, forget_after })
    }

    /// Where the vCPUs run according to the manifest, for `pinning = "manifest"`.
    pub(super) fn written(&self) -> BTreeMap<u16, steer::guests::Place> {
        self.manifest.vcpus.iter().map(|(vcpu, cpus)| (*vcpu, steer::guests::Place::of(cpus.clone()))).collect()
    }
}

/// Describes the guest in one line.
impl fmt::Display for GuestFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Manifest { name, vcpus, min_frequency, max_frequency, requests_per_second, .. } = &self.manifest;
        let mhz = |frequency: &Option<Hertz>, otherwise: &str| {
            frequency.map_or_else(|| otherwise.to_owned(), |hertz| format!("{} MHz", hertz.as_hertz() / 1_000_000))
        };
        let vcpus: Vec<String> = vcpus.iter().map(|(vcpu, cpus)| format!("{vcpu} on CPU {cpus}")).collect();
        let channels = match self.channels.len() {
            1 => "1 channel".to_owned(),
            n => format!("{n} channels"),
        };
        let idle = if self.manifest.may_limit_idle { "may" } else { "may not" };
        write!(
            f,
            "{name}: {channels}; vCPU {} (pinning: {}); frequency from {} to {}; up to {requests_per_second} requests/s; \
             {idle} limit idle states",
            vcpus.join(", "),
            self.pinning,
            mhz(min_frequency, "the hardware's lowest"),
            mhz(max_frequency, "the hardware's highest"),
        )
    }
}

/// Reads the manifests in a folder, sorted by name. Returns them together with the errors of those that cannot be used.
/// Fails if the folder cannot be read.
pub(super) fn all(folder: &Path) -> Result<(Vec<GuestFile>, Vec<Failure>), Failure> {
    let failed = |e: std::io::Error| {
        let fix = "create the folder with a file NAME.toml for each guest (docs/guests.md), or choose another folder";
        Failure::wrong(format!("cannot read the manifests in {}", folder.display()), e, fix)
    };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            paths.push(path);
        }
    }
    paths.sort();
    let (mut guests, mut failures): (Vec<GuestFile>, Vec<Failure>) = (Vec::new(), Vec::new());
    for path in paths {
        match GuestFile::read(&path) {
            Ok(guest) => guests.push(guest),
            Err(failure) => failures.push(failure),
        }
    }
    for (at, guest) in guests.iter().enumerate() {
        let taken =
            |way: &Way| guests[..at].iter().find(|other| other.channels.iter().any(|one| one.path() == way.path()));
        if let Some((way, other)) = guest.channels.iter().find_map(|way| taken(way).map(|other| (way, other))) {
            let why = format!("{:?} is also a channel of {}", way.path(), other.manifest.name);
            let what = format!("cannot use the manifest of {}", guest.manifest.name);
            failures.push(Failure::wrong(what, why, "give each guest channels of its own"));
        }
    }
    Ok((guests, failures))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "connect = [\"/run/vm1.0\"]\nlisten = [\"/run/vm1.1\"]\npinning = \"libvirt:vm1\"\n\
        max_frequency = \"2.6GHz\"\nforget_after = \"1s\"\n[vcpus]\n0 = 2\n1 = \"3-5\"\n";

    #[test]
    fn a_manifest_says_what_a_guest_may() {
        let guest = GuestFile::parse("vm1", GOOD).unwrap();
        assert_eq!(guest.manifest.vcpus[&1], CpuSet::from([3, 4, 5]));
        assert_eq!((guest.manifest.requests_per_second, guest.manifest.channels), (50, 2));
        assert_eq!(guest.pinning, Pinning::Libvirt("vm1".into()));
        assert_eq!(
            guest.to_string(),
            "vm1: 2 channels; vCPU 0 on CPU 2, 1 on CPU 3-5 (pinning: libvirt:vm1); frequency from the hardware's \
             lowest to 2600 MHz; up to 50 requests/s; may limit idle states"
        );
    }

    #[test]
    fn mistakes_are_errors_with_their_place() {
        for (from, to, why) in [
            ("max_frequency", "max_frequenzy", "max_frequenzy"),
            ("\"2.6GHz\"", "\"2.6\"", "line 4"),
            ("\"2.6GHz\"", "2600", "line 4"),
            ("libvirt:vm1", "libvirt:../vm1", "expected qmp:PATH"),
            ("libvirt:vm1", "qmp:vm1", "must begin with /"),
            ("libvirt:vm1", "manifest", "vCPU 1 must list exactly one CPU"),
            ("/run/vm1.0", "run/vm1.0", "must begin with /"),
            ("/run/vm1.0", "/run/vm1.1", "listed twice"),
            ("0 = 2", "00 = 2", "not a vCPU number"),
            ("0 = 2", "65536 = 2", "not a vCPU number"),
            ("0 = 2", "0 = \"\"", "lists no CPU"),
            ("0 = 2", "0 = \"3-1\"", "vCPU 0"),
            ("0 = 2", "0 = -1", "line 7"),
            ("0 = 2\n1 = \"3-5\"\n", "", "lists no vCPU"),
            ("forget_after", "min_frequency = \"3GHz\"\nforget_after", "above max_frequency"),
            ("forget_after", "requests_per_second = 0\nforget_after", "expected 1 to"),
            ("forget_after", "requests_per_second = 10001\nforget_after", "expected 1 to"),
            ("connect = [\"/run/vm1.0\"]\nlisten = [\"/run/vm1.1\"]\n", "", "0 channels"),
        ] {
            assert!(GOOD.contains(from), "{from}");
            let said = GuestFile::parse("vm1", &GOOD.replacen(from, to, 1)).unwrap_err();
            assert!(said.contains(why), "{from} -> {to}: {said}");
        }
        let share = |keys: &str| GuestFile::parse("vm1", &format!("{keys}\n{GOOD}"));
        let guest = share("listen_mode = \"0660\"\nlisten_group = \"root\"").unwrap();
        let Way::Listen(_, said) = &guest.channels[1] else { panic!("{:?}", guest.channels) };
        assert_eq!(*said, Share { mode: Some(0o660), group: Some(0) });
        for (keys, why) in [
            ("listen_mode = \"660a\"", "expected octal permissions"),
            ("listen_mode = \"4755\"", "expected octal permissions"),
            ("listen_group = \"no such group\"", "/etc/group has no such group"),
        ] {
            let said = share(keys).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
        let none = GOOD.replacen("listen = [\"/run/vm1.1\"]", "listen_mode = \"0660\"", 1);
        assert!(GuestFile::parse("vm1", &none).unwrap_err().contains("lists none"));
        assert!(GuestFile::parse("../vm1", GOOD).is_err() && GuestFile::parse("", GOOD).is_err());
    }
}
