//! ethtool, `netdev` and link settings over netlink (Documentation/networking/ethtool-netlink.rst,
//! Documentation/netlink/specs/{ethtool,netdev,rt-link}.yaml), in the calling thread's network namespace.

use std::collections::BTreeMap;
use std::io;

use netlink_bindings::traits::{NetlinkRequest, Protocol};
use netlink_bindings::{ethtool, netdev, rt_link};
use netlink_socket2::NetlinkSocket;

use super::{attempt, sys};
use crate::facts::read::{Ethtool, Queues};
use crate::facts::{Channels, Coalescing, DimLevel, Fact, Napi, Pause, QueueIrq, Rings, Source, TimeStamping, Why};

/// Bitsets as words, not as lists of names (`ETHTOOL_FLAG_COMPACT_BITSETS`): long lists would not fit a reply.
const COMPACT: u32 = 1;
/// Bits of `SOF_TIMESTAMPING_*` (include/uapi/linux/net_tstamp.h).
const TX_HARDWARE: u32 = 1 << 0;
const RX_HARDWARE: u32 = 1 << 2;
/// Numbers of link modes that stand for error correction (include/uapi/linux/ethtool.h,
/// `ETHTOOL_LINK_MODE_FEC_*_BIT`).
const FEC_MODES: [(u32, &str); 4] = [(49, "Off"), (50, "RS"), (51, "BaseR"), (74, "LLRS")];
/// No interface has more queues that are asked for one by one than this.
const MAX_QUEUES: u32 = 4096;

/// Sockets to ask with.
pub(crate) struct Netlink {
    socket: NetlinkSocket,
}

/// Commands that ask (include/uapi/linux/ethtool_netlink.h, `ETHTOOL_MSG_*_GET`).
mod command {
    pub(super) const LINKMODES_GET: u8 = 4;
    pub(super) const RINGS_GET: u8 = 15;
    pub(super) const CHANNELS_GET: u8 = 17;
    pub(super) const COALESCE_GET: u8 = 19;
    pub(super) const PAUSE_GET: u8 = 21;
    pub(super) const EEE_GET: u8 = 23;
    pub(super) const TSINFO_GET: u8 = 25;
    pub(super) const FEC_GET: u8 = 29;
}

/// A question with the right command. The generated bindings of netlink-bindings 0.3.5 number this family's requests as
/// if notifications counted: their question for coalescing is number 27, which starts a cable test.
struct Question<R> {
    request: R,
    payload: Vec<u8>,
}

impl<R: NetlinkRequest> Question<R> {
    /// The command is the first byte (`struct genlmsghdr`).
    fn new(request: R, command: u8) -> Self {
        let mut payload = request.payload().to_vec();
        if let Some(first) = payload.first_mut() {
            *first = command;
        }
        Self { request, payload }
    }
}

impl<R: NetlinkRequest> NetlinkRequest for Question<R> {
    fn protocol(&self) -> Protocol {
        self.request.protocol()
    }
    fn flags(&self) -> u16 {
        self.request.flags()
    }
    fn payload(&self) -> &[u8] {
        &self.payload
    }
    type ReplyType<'buf> = R::ReplyType<'buf>;
    fn decode_reply(buf: &[u8]) -> R::ReplyType<'_> {
        R::decode_reply(buf)
    }
}

/// Makes a question about an interface.
macro_rules! ask {
    ($op:ident, $command:ident, $index:expr) => {{
        let mut request = ethtool::Request::new().$op();
        request.encode().nested_header().push_dev_index($index).push_flags(COMPACT).end_nested();
        Question::new(request, command::$command)
    }};
}

impl Netlink {
    pub(crate) fn open() -> Self {
        Self { socket: NetlinkSocket::new() }
    }

    /// What ethtool says of an interface.
    pub(crate) fn ethtool(&mut self, name: &str, index: u32) -> Ethtool {
        let named = |option: &str| Source::new(format!("ethtool {option} {name}"));
        let ioctl = sys::Ethtool::open(name);
        let by_ioctl = |option: &str| (ioctl.as_ref().map_err(repeated), named(option));
        let (device, source) = by_ioctl("-i");
        let info = attempt(device.and_then(sys::Ethtool::driver), source.clone());
        let part = |get: fn(&sys::Driver) -> &str| {
            info.as_ref().and_then(|info| match get(info) {
                "" | "N/A" => Fact::absent(source.clone()),
                text => Fact::known(text.to_owned(), source.clone()),
            })
        };
        let channels = attempt(or_ioctl(self.channels(index), &ioctl, sys::Ethtool::channels), named("-l"));
        let (device, source) = by_ioctl("--per-queue");
        let queue_coalesce = match (&device, queues_of(&channels)) {
            (Ok(device), Some(queues)) => per_queue(device, queues, &source),
            _ => BTreeMap::new(),
        };
        let ask = |option: &str| by_ioctl(option);
        let features = {
            let (device, source) = ask("-k");
            attempt(device.and_then(sys::Ethtool::features), source)
        };
        let private_flags = {
            let (device, source) = ask("--show-priv-flags");
            attempt(device.and_then(sys::Ethtool::private_flags), source)
        };
        let rss_table = {
            let (device, source) = ask("-x");
            attempt(device.and_then(sys::Ethtool::indirection), source)
        };
        let flow_rules = {
            let (device, source) = ask("-n");
            attempt(device.and_then(sys::Ethtool::flow_rules), source)
        };
        Ethtool {
            driver: part(|info| &info.name),
            driver_version: part(|info| &info.version),
            firmware: part(|info| &info.firmware),
            bus: part(|info| &info.bus),
            speed: Fact::not_recorded(named("")),
            duplex: Fact::not_recorded(named("")),
            autoneg: attempt(self.autoneg(index), named("")),
            coalesce: attempt(or_ioctl(self.coalesce(index), &ioctl, sys::Ethtool::coalesce), named("-c")),
            rx_profile: match self.rx_profile(index) {
                Ok(levels) if levels.is_empty() => {
                    Fact::missing(Why::Unsupported("not supported: no levels are told".into()), named("-c"))
                }
                levels => attempt(levels, named("-c")),
            },
            queue_coalesce,
            rings: attempt(or_ioctl(self.rings(index), &ioctl, sys::Ethtool::rings), named("-g")),
            channels,
            features,
            pause: attempt(or_ioctl(self.pause(index), &ioctl, sys::Ethtool::pause), named("-a")),
            private_flags,
            time_stamping: attempt(self.time_stamping(index), named("-T")),
            fec: attempt(self.fec(index), named("--show-fec")).and_then(|mode| match mode {
                Some(mode) => Fact::known(mode, named("--show-fec")),
                None => Fact::absent(named("--show-fec")),
            }),
            eee: attempt(self.eee(index), named("--show-eee")),
            rss_table,
            flow_rules,
            qdisc: attempt(self.qdisc(index), Source::new(format!("ip link show {name}"))),
        }
    }

    /// The queues of an interface, with their NAPI instances and interrupts.
    pub(crate) fn queues(&mut self, index: u32) -> Queues {
        let source = Source::new("netlink netdev napi-get");
        let napi = attempt(self.napi(index), source.clone());
        let of_queues = self.queue_napi(index).unwrap_or_default();
        let irq = |id: u32| napi.value()?.iter().find(|napi| napi.id == id)?.irq;
        let mut irqs: BTreeMap<(u32, u32), QueueIrq> = BTreeMap::new();
        for (queue, is_rx, id) in of_queues {
            let Some(irq) = irq(id) else { continue };
            let entry = irqs.entry((queue, irq)).or_insert(QueueIrq { queue, irq, rx: false, tx: false });
            if is_rx {
                entry.rx = true;
            } else {
                entry.tx = true;
            }
        }
        Queues { irqs: irqs.into_values().collect(), napi }
    }

    fn coalesce(&mut self, index: u32) -> io::Result<Coalescing> {
        let request = ask!(op_coalesce_get_do, COALESCE_GET, index);
        let mut reply = self.socket.request(&request)?;
        let said = reply.recv_one()?;
        let bit = |value: Result<u8, _>| value.ok().map(|on: u8| on != 0);
        Ok(Coalescing {
            adaptive_rx: bit(said.get_use_adaptive_rx().map_err(drop)),
            adaptive_tx: bit(said.get_use_adaptive_tx().map_err(drop)),
            rx_usecs: said.get_rx_usecs().ok(),
            rx_frames: said.get_rx_max_frames().ok(),
            rx_usecs_irq: said.get_rx_usecs_irq().ok(),
            rx_frames_irq: said.get_rx_max_frames_irq().ok(),
            tx_usecs: said.get_tx_usecs().ok(),
            tx_frames: said.get_tx_max_frames().ok(),
            tx_usecs_irq: said.get_tx_usecs_irq().ok(),
            tx_frames_irq: said.get_tx_max_frames_irq().ok(),
            stats_block_usecs: said.get_stats_block_usecs().ok(),
            pkt_rate_low: said.get_pkt_rate_low().ok(),
            rx_usecs_low: said.get_rx_usecs_low().ok(),
            rx_frames_low: said.get_rx_max_frames_low().ok(),
            tx_usecs_low: said.get_tx_usecs_low().ok(),
            tx_frames_low: said.get_tx_max_frames_low().ok(),
            pkt_rate_high: said.get_pkt_rate_high().ok(),
            rx_usecs_high: said.get_rx_usecs_high().ok(),
            rx_frames_high: said.get_rx_max_frames_high().ok(),
            tx_usecs_high: said.get_tx_usecs_high().ok(),
            tx_frames_high: said.get_tx_max_frames_high().ok(),
            sample_interval: said.get_rate_sample_interval().ok(),
            cqe_mode_rx: bit(said.get_use_cqe_mode_rx().map_err(drop)),
            cqe_mode_tx: bit(said.get_use_cqe_mode_tx().map_err(drop)),
        })
    }

    /// The levels of adaptive moderation; none where kernel or driver does not tell them.
    fn rx_profile(&mut self, index: u32) -> io::Result<Vec<DimLevel>> {
        let request = ask!(op_coalesce_get_do, COALESCE_GET, index);
        let mut reply = self.socket.request(&request)?;
        let said = reply.recv_one()?;
        let Ok(profile) = said.get_rx_profile() else { return Ok(Vec::new()) };
        let level = |level: ethtool::IterableIrqModeration<'_>| {
            Some(DimLevel { usecs: level.get_usec().ok()?, frames: level.get_pkts().ok() })
        };
        Ok(profile.get_irq_moderation().filter_map(level).collect())
    }

    fn rings(&mut self, index: u32) -> io::Result<Rings> {
        let request = ask!(op_rings_get_do, RINGS_GET, index);
        let mut reply = self.socket.request(&request)?;
        let said = reply.recv_one()?;
        Ok(Rings {
            rx: said.get_rx().ok(),
            rx_max: said.get_rx_max().ok(),
            tx: said.get_tx().ok(),
            tx_max: said.get_tx_max().ok(),
            rx_mini: said.get_rx_mini().ok(),
            rx_jumbo: said.get_rx_jumbo().ok(),
            rx_buf_len: said.get_rx_buf_len().ok().filter(|len| *len > 0),
            cqe_size: said.get_cqe_size().ok().filter(|size| *size > 0),
            tx_push: said.get_tx_push().ok().map(|on| on != 0),
        })
    }

    fn channels(&mut self, index: u32) -> io::Result<Channels> {
        let request = ask!(op_channels_get_do, CHANNELS_GET, index);
        let mut reply = self.socket.request(&request)?;
        let said = reply.recv_one()?;
        Ok(Channels {
            rx: said.get_rx_count().ok(),
            rx_max: said.get_rx_max().ok(),
            tx: said.get_tx_count().ok(),
            tx_max: said.get_tx_max().ok(),
            combined: said.get_combined_count().ok(),
            combined_max: said.get_combined_max().ok(),
            other: said.get_other_count().ok(),
            other_max: said.get_other_max().ok(),
        })
    }

    fn pause(&mut self, index: u32) -> io::Result<Pause> {
        let request = ask!(op_pause_get_do, PAUSE_GET, index);
        let mut reply = self.socket.request(&request)?;
        let said = reply.recv_one()?;
        Ok(Pause {
            autoneg: said.get_autoneg().is_ok_and(|on| on != 0),
            rx: said.get_rx().map_err(unsaid)? != 0,
            tx: said.get_tx().map_err(unsaid)? != 0,
        })
    }

    fn time_stamping(&mut self, index: u32) -> io::Result<TimeStamping> {
        let request = ask!(op_tsinfo_get_do, TSINFO_GET, index);
        let mut reply = self.socket.request(&request)?;
        let said = reply.recv_one()?;
        let words = said.get_timestamping().and_then(|set| set.get_value()).unwrap_or_default();
        let bits = words.first_chunk().map_or(0, |octets| u32::from_ne_bytes(*octets));
        Ok(TimeStamping {
            hardware_tx: bits & TX_HARDWARE != 0,
            hardware_rx: bits & RX_HARDWARE != 0,
            phc: said.get_phc_index().ok(),
        })
    }

    fn fec(&mut self, index: u32) -> io::Result<Option<String>> {
        let request = ask!(op_fec_get_do, FEC_GET, index);
        let mut reply = self.socket.request(&request)?;
        let mode = reply.recv_one()?.get_active().ok();
        Ok(mode.map(|mode| {
            let known = FEC_MODES.iter().find(|(number, _)| *number == mode);
            known.map_or_else(|| format!("link mode {mode}"), |(_, name)| (*name).to_owned())
        }))
    }

    fn eee(&mut self, index: u32) -> io::Result<bool> {
        let request = ask!(op_eee_get_do, EEE_GET, index);
        let mut reply = self.socket.request(&request)?;
        Ok(reply.recv_one()?.get_enabled().map_err(unsaid)? != 0)
    }

    fn autoneg(&mut self, index: u32) -> io::Result<bool> {
        let request = ask!(op_linkmodes_get_do, LINKMODES_GET, index);
        let mut reply = self.socket.request(&request)?;
        Ok(reply.recv_one()?.get_autoneg().map_err(unsaid)? != 0)
    }

    fn qdisc(&mut self, index: u32) -> io::Result<String> {
        let mut header = rt_link::Ifinfomsg::new();
        header.ifi_index = index.try_into().map_err(io::Error::other)?;
        let request = rt_link::Request::new().op_getlink_do(&header);
        let mut reply = self.socket.request(&request)?;
        let (_, said) = reply.recv_one()?;
        Ok(said.get_qdisc().map_err(unsaid)?.to_string_lossy().into_owned())
    }

    fn napi(&mut self, index: u32) -> io::Result<Vec<Napi>> {
        let mut request = netdev::Request::new().op_napi_get_dump();
        request.encode().push_ifindex(index);
        let mut reply = self.socket.request(&request)?;
        let mut all = Vec::new();
        while let Some(said) = reply.recv() {
            let said = said?;
            all.push(Napi {
                id: said.get_id().map_err(unsaid)?,
                irq: said.get_irq().ok(),
                pid: said.get_pid().ok(),
                defer_hard_irqs: said.get_defer_hard_irqs().ok(),
                gro_flush_timeout_ns: said.get_gro_flush_timeout().ok().map(u64::from),
                irq_suspend_timeout_ns: said.get_irq_suspend_timeout().ok().map(u64::from),
                threaded: said.get_threaded().ok().map(|threaded| threaded != 0),
            });
        }
        all.sort_unstable_by_key(|napi| napi.id);
        Ok(all)
    }

    /// Each queue that has one, with its NAPI instance: number, whether it receives, instance.
    fn queue_napi(&mut self, index: u32) -> io::Result<Vec<(u32, bool, u32)>> {
        let mut request = netdev::Request::new().op_queue_get_dump();
        request.encode().push_ifindex(index);
        let mut reply = self.socket.request(&request)?;
        let mut all = Vec::new();
        while let Some(said) = reply.recv() {
            let said = said?;
            let is_rx = said.get_type().map_err(unsaid)? == netdev::QueueType::Rx as u32;
            if let (Ok(id), Ok(napi)) = (said.get_id(), said.get_napi_id()) {
                all.push((id, is_rx, napi));
            }
        }
        Ok(all)
    }
}

/// How many queues a driver can be asked about one by one.
fn queues_of(channels: &Fact<Channels>) -> Option<u32> {
    let channels = channels.get()?;
    let count = |n: Option<u32>| n.unwrap_or(0);
    let queues = count(channels.combined).saturating_add(count(channels.rx).max(count(channels.tx)));
    (1..=MAX_QUEUES).contains(&queues).then_some(queues)
}

/// Moderation by queue; empty where the driver does not have it by queue.
fn per_queue(device: &sys::Ethtool, queues: u32, source: &Source) -> BTreeMap<u32, Fact<Coalescing>> {
    let known = device.queue_coalesce(queues).unwrap_or_default();
    known.into_iter().map(|(queue, coalesce)| (queue, Fact::known(coalesce, source.clone()))).collect()
}

/// What netlink says, or, on kernels without that family (before 5.6), what the ioctl says.
fn or_ioctl<T>(
    said: io::Result<T>,
    device: &io::Result<sys::Ethtool>,
    ask: impl FnOnce(&sys::Ethtool) -> io::Result<T>,
) -> io::Result<T> {
    match (said, device) {
        (Err(error), Ok(device)) if error.kind() == io::ErrorKind::NotFound => ask(device),
        (said, _) => said,
    }
}

/// A reply without what was asked for: the driver does not have it.
fn unsaid<E>(_: E) -> io::Error {
    rustix::io::Errno::OPNOTSUPP.into()
}

/// The same error once more: the cause of several facts.
fn repeated(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(|| io::Error::from(error.kind()), io::Error::from_raw_os_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A command that does not ask may change something: 20 sets coalescing, 27 starts a cable test.
    #[test]
    fn what_is_sent_asks() {
        let questions: [(&str, Vec<u8>, u8); 8] = [
            ("linkmodes", ask!(op_linkmodes_get_do, LINKMODES_GET, 1).payload, 4),
            ("rings", ask!(op_rings_get_do, RINGS_GET, 1).payload, 15),
            ("channels", ask!(op_channels_get_do, CHANNELS_GET, 1).payload, 17),
            ("coalesce", ask!(op_coalesce_get_do, COALESCE_GET, 1).payload, 19),
            ("pause", ask!(op_pause_get_do, PAUSE_GET, 1).payload, 21),
            ("eee", ask!(op_eee_get_do, EEE_GET, 1).payload, 23),
            ("tsinfo", ask!(op_tsinfo_get_do, TSINFO_GET, 1).payload, 25),
            ("fec", ask!(op_fec_get_do, FEC_GET, 1).payload, 29),
        ];
        for (name, payload, command) in questions {
            assert_eq!(payload[0], command, "{name}");
            assert!(payload.len() > 4, "{name} names no interface");
        }
    }

    /// The loopback stamps in software; the answer is understood only if the question was the right one.
    #[test]
    fn the_loopback_says_how_it_stamps() {
        let said = Netlink::open().ethtool("lo", 1);
        let stamps = said.time_stamping.value().unwrap_or_else(|| panic!("{:?}", said.time_stamping));
        assert!(!stamps.hardware_tx && !stamps.hardware_rx && stamps.phc.is_none());
    }
}
