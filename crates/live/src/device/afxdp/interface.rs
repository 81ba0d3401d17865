//! The XDP program on an interface. It is attached once and shared by all workers that serve the interface's queues.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aya::maps::{MapData, PerCpuArray, XskMap};
use aya::programs::links::FdLink;
use aya::programs::{Xdp, XdpMode as AyaMode};
use aya::{Ebpf, EbpfLoader};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, netdevice};

use crate::Error;
use crate::device::Health;
use crate::device::link::Link;

use super::config::{Filter, InterfaceConfig, XdpMode};
use super::explain::{self, errno_of};
use super::sys::{self, Queues, Reception};

static OBJECT: &[u8] = aya::include_bytes_aligned!("bpf/xdp.bpf.o");

/// An interface to which Apus's XDP program is attached. Clones share the attachment, and each device holds a clone.
/// The program is detached when the last clone is dropped.
///
/// The attachment belongs to the network namespace of the thread that attached the program.
#[derive(Clone)]
pub struct Interface {
    shared: Arc<Shared>,
}

/// The XDP program's counters, summed over all CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProgramCounts {
    /// Frames redirected to a socket. Some of them may still be lost because the socket had no room: see the device's
    /// statistics.
    pub redirected: u64,
    /// Frames passed to the kernel's network stack.
    pub passed: u64,
    /// Frames redirected without an arrival timestamp, because the driver left no room for it.
    pub unstamped: u64,
}

struct Shared {
    name: String,
    ifindex: u32,
    namespace: String,
    queues: Vec<u32>,
    reported: Option<Queues>,
    mode: XdpMode,
    native_failure: Option<String>,
    link: Link,
    sockets: Mutex<XskMap<MapData>>,
    counts: PerCpuArray<MapData, u64>,
    // The kernel detaches the program when the last descriptor of this link is closed, so also when the process dies.
    _link: FdLink,
    // The kernel ends the promiscuous mode and the reception of all multicast groups when these sockets are closed.
    _receptions: Vec<OwnedFd>,
    _program: Mutex<Ebpf>,
}

impl std::fmt::Debug for Interface {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Shared { name, ifindex, mode, .. } = &*self.shared;
        f.debug_struct("Interface").field("name", name).field("ifindex", ifindex).field("mode", mode).finish()
    }
}

impl Interface {
    /// Loads the XDP program and attaches it to the interface.
    pub fn attach(config: &InterfaceConfig) -> Result<Self, Error> {
        config.check()?;
        let name = &config.name;
        let control = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)
            .map_err(|e| Error::system("open a socket to query interfaces", e))?;
        let ifindex = netdevice::name_to_index(&control, name).map_err(|e| explain::unknown_interface(name, e))?;
        let reported = sys::queues(control.as_fd(), name);
        let available = reported.map(|queues| queues.rx);
        if let (Some(available), Some(queue)) = (available, config.queues.iter().max())
            && *queue >= available
        {
            let last = available.saturating_sub(1);
            let why = format!("{name} has {available} receive queue(s), 0 to {last} (see ethtool -l {name})");
            return Err(Error::Invalid { what: format!("queue {queue} of {name}"), why });
        }
        let entries = available.unwrap_or(0).max(config.queues.iter().max().map_or(1, |q| q.saturating_add(1)));
        let wanted = [(config.promiscuous, Reception::Promiscuous), (config.all_multicast, Reception::AllMulticast)];
        let wanted = wanted.into_iter().filter(|(wanted, _)| *wanted);
        let receptions = wanted.map(|(_, what)| receive(name, ifindex, what)).collect::<Result<_, Error>>()?;
        let mut program = load(&config.filter, entries).map_err(|e| explain::load(&*e))?;
        let (link, mode, native_failure) = attach(&mut program, name, ifindex, config.mode)?;
        let map = |name: &str, found: Option<aya::maps::Map>| {
            found.ok_or_else(|| {
                Error::system("open the XDP program that is part of Apus", std::io::Error::other(name.to_owned()))
            })
        };
        let sockets = map("xsks", program.take_map("xsks"))?;
        let counts = map("counts", program.take_map("counts"))?;
        let own = |e| Error::system("open the XDP program that is part of Apus", std::io::Error::other(e));
        let sockets = XskMap::try_from(sockets).map_err(own)?;
        let counts = PerCpuArray::try_from(counts).map_err(own)?;
        let namespace = namespace()?;
        let shared = Shared {
            name: name.clone(),
            ifindex,
            namespace,
            queues: config.queues.clone(),
            reported,
            mode,
            native_failure,
            link: Link::new(name, ifindex)?,
            sockets: Mutex::new(sockets),
            counts,
            _link: link,
            _receptions: receptions,
            _program: Mutex::new(program),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The interface's name when the program was attached.
    pub fn name(&self) -> &str {
        &self.shared.name
    }
    /// The queues that this instance serves.
    pub fn queues(&self) -> &[u32] {
        &self.shared.queues
    }
    /// Number of receive queues that the interface had when the program was attached. `None` if its driver does not
    /// report it. The kernel gets the frames of queues that this instance does not serve.
    pub fn available_queues(&self) -> Option<u32> {
        self.shared.reported.map(|queues| queues.rx)
    }
    /// Number of transmit queues that the interface had when the program was attached. `None` if its driver does not
    /// report it. Nothing can be sent on a queue with this number or above.
    pub(crate) fn sending_queues(&self) -> Option<u32> {
        self.shared.reported.map(|queues| queues.tx)
    }
    /// `Native` or `Generic`: the requested mode, or the mode that `Auto` selected.
    pub fn mode(&self) -> XdpMode {
        self.shared.mode
    }
    /// Why native XDP failed, if the mode `Auto` selected generic XDP. `None` otherwise.
    pub fn native_failure(&self) -> Option<&str> {
        self.shared.native_failure.as_deref()
    }
    /// The counters of the program.
    pub fn counts(&self) -> Result<ProgramCounts, Error> {
        let read = |i: u32| {
            let values = self.shared.counts.get(&i, 0);
            let values = values.map_err(|e| Error::system("read the XDP program's counters", std::io::Error::other(e)));
            values.map(|v| v.iter().sum())
        };
        Ok(ProgramCounts { redirected: read(0)?, passed: read(1)?, unstamped: read(2)? })
    }

    /// Whether the interface exists and is up. Queries the namespace in which the program was attached.
    pub(super) fn health(&self) -> Result<Health, Error> {
        self.shared.link.health()
    }

    /// Whether the interface has the queue `queue` now, for receiving or for sending. `None` if it is not known.
    pub(super) fn has_queue(&self, queue: u32) -> Option<bool> {
        self.shared.link.queues().map(|queues| queue < queues.rx.max(queues.tx))
    }

    pub(super) fn ifindex(&self) -> u32 {
        self.shared.ifindex
    }

    /// Returns an error if the calling thread is in another network namespace. An AF_XDP socket belongs to the
    /// namespace of the thread that opens it, and cannot be bound from another one.
    pub(super) fn check_namespace(&self) -> Result<(), Error> {
        if namespace()? == self.shared.namespace {
            return Ok(());
        }
        Err(Error::Invalid {
            what: format!("open queues of {}", self.name()),
            why: "this thread is in another network namespace than the thread that attached the interface; open the device before changing the namespace, and move it here"
                .into(),
        })
    }

    fn sockets(&self) -> MutexGuard<'_, XskMap<MapData>> {
        self.shared.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn insert(&self, queue: u32, socket: &OwnedFd) -> Result<(), Error> {
        let what = || format!("direct frames of queue {queue} of {} to its socket", self.name());
        self.sockets().set(queue, socket.as_raw_fd(), 0).map_err(|e| Error::system(what(), std::io::Error::other(e)))
    }

    pub(super) fn remove(&self, queue: u32) {
        // The kernel would remove a closed socket by itself, only later.
        let _ = self.sockets().unset(queue);
    }
}

/// The network namespace of the calling thread, as in its link in /proc, such as `net:[4026531840]`.
pub(super) fn namespace() -> Result<String, Error> {
    let link = std::fs::read_link("/proc/thread-self/ns/net")
        .map_err(|e| Error::system("read /proc/thread-self/ns/net", e))?;
    Ok(link.to_string_lossy().into_owned())
}

fn load(filter: &Filter, entries: u32) -> Result<Ebpf, Box<dyn std::error::Error>> {
    let (mut kind, mut types, mut type_count, mut ports) = (0u32, [0u16; 4], 0u32, (0u16, 0u16));
    match filter {
        Filter::All => {}
        Filter::EtherTypes(list) => {
            kind = 1;
            type_count = list.len() as u32;
            types[..list.len()].copy_from_slice(list); // at most 4: InterfaceConfig::check
        }
        Filter::UdpPorts { first, last } => {
            kind = 2;
            ports = (*first, *last);
        }
    }
    let mut program = EbpfLoader::new()
        .override_global("filter_kind", &kind, true)
        .override_global("ethertype_count", &type_count, true)
        .override_global("ethertypes", &types, true)
        .override_global("udp_first", &ports.0, true)
        .override_global("udp_last", &ports.1, true)
        .map_max_entries("xsks", entries)
        .load(OBJECT)?;
    redirect(&mut program)?.load()?;
    Ok(program)
}

fn redirect(program: &mut Ebpf) -> Result<&mut Xdp, Box<dyn std::error::Error>> {
    Ok(program.program_mut("apus_redirect").ok_or("no program apus_redirect")?.try_into()?)
}

/// Attaches the program. Also returns why native XDP failed, if generic XDP took its place.
fn attach(
    program: &mut Ebpf,
    name: &str,
    ifindex: u32,
    mode: XdpMode,
) -> Result<(FdLink, XdpMode, Option<String>), Error> {
    let modes: &[XdpMode] = match mode {
        XdpMode::Auto => &[XdpMode::Native, XdpMode::Generic],
        XdpMode::Native => &[XdpMode::Native],
        XdpMode::Generic => &[XdpMode::Generic],
    };
    let mut first_failure = None;
    for mode in modes {
        match attach_as(program, ifindex, *mode) {
            Ok(link) => return Ok((link, *mode, first_failure.map(|(_, why)| why))),
            Err(e) => {
                // If another program is attached or permission is missing, generic mode would fail too.
                let final_word =
                    matches!(errno_of(&*e), Some(Errno::BUSY | Errno::EXIST | Errno::PERM | Errno::ACCESS));
                let (e, why) = (explain::attach(name, ifindex, *mode, &*e), explain::whole(&*e));
                if final_word {
                    return Err(e);
                }
                first_failure.get_or_insert((e, why));
            }
        }
    }
    Err(first_failure.map(|(e, _)| e).unwrap_or_else(|| Error::system("attach XDP", Errno::INVAL)))
}

/// Makes an interface in this thread's namespace receive more frames as long as the returned socket is open. The socket
/// has no protocol, so it receives no frames.
fn receive(name: &str, ifindex: u32, what: Reception) -> Result<OwnedFd, Error> {
    let failed = |e: std::io::Error| match what {
        Reception::Promiscuous => Error::system(format!("make {name} promiscuous"), e),
        Reception::AllMulticast => Error::system(format!("make {name} receive all multicast groups"), e),
    };
    let socket = rustix::net::socket(AddressFamily::PACKET, SocketType::DGRAM, None).map_err(|e| failed(e.into()))?;
    sys::receive(socket.as_fd(), ifindex, what).map_err(failed)?;
    Ok(socket)
}

fn attach_as(program: &mut Ebpf, ifindex: u32, mode: XdpMode) -> Result<FdLink, Box<dyn std::error::Error>> {
    let xdp = redirect(program)?;
    let flags = if mode == XdpMode::Generic { AyaMode::Skb } else { AyaMode::Driver };
    let link = xdp.attach_to_if_index(ifindex, flags)?;
    let link = xdp.take_link(link)?;
    // If the kernel refuses BPF links, aya attaches over netlink; such an attachment would outlive a killed process.
    FdLink::try_from(link).map_err(|_| "the kernel refused a BPF link (it needs Linux 5.9)".into())
}
