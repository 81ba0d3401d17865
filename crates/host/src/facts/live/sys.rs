//! `SIOCETHTOOL` for what netlink does not offer, or not in replies of bounded size (ioctl_netdevice(2),
//! include/uapi/linux/ethtool.h).
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketType, socket};

use crate::facts::{Channels, Coalescing, Feature, Pause, Rings};

const SIOCETHTOOL: libc::c_ulong = 0x8946;
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GCOALESCE: u32 = 0x0e;
const ETHTOOL_GRINGPARAM: u32 = 0x10;
const ETHTOOL_GPAUSEPARAM: u32 = 0x12;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSTATS: u32 = 0x1d;
const ETHTOOL_GPFLAGS: u32 = 0x27;
const ETHTOOL_GRXCLSRLCNT: u32 = 0x2e;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GRXFHINDIR: u32 = 0x38;
const ETHTOOL_GFEATURES: u32 = 0x3a;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETHTOOL_PERQUEUE: u32 = 0x4b;

/// Sets of names (`enum ethtool_stringset`).
const ETH_SS_STATS: u32 = 1;
const ETH_SS_PRIV_FLAGS: u32 = 2;
const ETH_SS_FEATURES: u32 = 4;
/// Bytes of a name (`ETH_GSTRING_LEN`).
const NAME: usize = 32;
/// More names than this are refused. Drivers of the largest cards have some ten thousand counters.
const MAX_NAMES: usize = 1 << 16;
/// What is lent to the kernel for names and counters: twice what [`MAX_NAMES`] take, so that counters
/// that appear between the question for their number and the one for themselves have room.
const ROOM: usize = 8 + 2 * MAX_NAMES * NAME;
/// Queues that one request can name (`MAX_NUM_QUEUE`).
const MAX_QUEUES: u32 = 4096;
/// 32-bit fields of `struct ethtool_coalesce`.
const COALESCE: usize = 23;

/// An interface of the calling thread's network namespace, to be asked.
#[derive(Debug)]
pub(super) struct Ethtool {
    socket: OwnedFd,
    name: [libc::c_char; libc::IFNAMSIZ],
}

/// `struct ethtool_drvinfo`.
#[derive(Debug)]
pub(super) struct Driver {
    pub name: String,
    pub version: String,
    pub firmware: String,
    pub bus: String,
}

impl Ethtool {
    pub(super) fn open(interface: &str) -> io::Result<Self> {
        let mut name = [0; libc::IFNAMSIZ];
        if interface.is_empty() || interface.len() >= name.len() {
            return Err(io::Error::other("an interface name has 1 to 15 bytes"));
        }
        for (to, from) in name.iter_mut().zip(interface.bytes()) {
            *to = from as libc::c_char;
        }
        Ok(Self { socket: socket(AddressFamily::INET, SocketType::DGRAM, None)?, name })
    }

    /// Asks with a buffer of words, of which the first is the command, and which the answer overwrites.
    ///
    /// The buffer must have room for all that the command writes: each caller says why it has.
    fn ask(&self, buffer: &mut [u32]) -> io::Result<()> {
        // SAFETY: ifreq is plain data, for which all zeroes is a value.
        let mut request: libc::ifreq = unsafe { zeroed() };
        request.ifr_name = self.name;
        request.ifr_ifru.ifru_data = buffer.as_mut_ptr().cast();
        // SAFETY: `request` lives through the call and has a terminated name; `buffer` is exclusively ours
        // and, as each caller argues, as long as what the command writes.
        match unsafe { libc::ioctl(self.socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    pub(super) fn driver(&self) -> io::Result<Driver> {
        // The structure has 196 bytes: command, five texts of 32, twelve reserved, five numbers.
        let mut buffer = [0; 49];
        buffer[0] = ETHTOOL_GDRVINFO;
        self.ask(&mut buffer)?;
        let octets = octets(&buffer);
        let field = |n: usize| text(&octets[4 + n * NAME..4 + (n + 1) * NAME]);
        Ok(Driver { name: field(0), version: field(1), firmware: field(2), bus: field(3) })
    }

    /// How many names a set has.
    fn count(&self, set: u32) -> io::Result<usize> {
        // Command, reserved, a mask of 64 bits, and one number for the one bit set.
        let mut buffer = [ETHTOOL_GSSET_INFO, 0, 1 << set, 0, 0];
        self.ask(&mut buffer)?;
        let count = if buffer[2] & 1 << set == 0 { 0 } else { buffer[4] as usize };
        if count > MAX_NAMES { Err(io::Error::other(format!("the driver has {count} names"))) } else { Ok(count) }
    }

    fn names(&self, set: u32) -> io::Result<Vec<String>> {
        let count = self.count(set)?;
        if count == 0 {
            return Ok(Vec::new());
        }
        // Command, set, number, names; room for twice as many as can be counted.
        let mut buffer = vec![0; ROOM / 4 + 3];
        buffer[..3].copy_from_slice(&[ETHTOOL_GSTRINGS, set, count as u32]);
        self.ask(&mut buffer)?;
        let said = (buffer[2] as usize).min(MAX_NAMES);
        let octets = octets(&buffer[3..3 + said * NAME / 4]);
        Ok(octets.chunks_exact(NAME).map(text).collect())
    }

    pub(super) fn statistics(&self) -> io::Result<BTreeMap<String, u64>> {
        let names = self.names(ETH_SS_STATS)?;
        if names.is_empty() {
            return Ok(BTreeMap::new());
        }
        // Command, number, counters of 64 bits: a quarter of what their names take.
        let mut buffer = vec![0; ROOM / 4];
        buffer[..2].copy_from_slice(&[ETHTOOL_GSTATS, names.len() as u32]);
        self.ask(&mut buffer)?;
        let said = (buffer[1] as usize).min(names.len());
        let counts = octets(&buffer[2..2 + said * 2]);
        let counts = counts.chunks_exact(8).map(|octets| octets.try_into().map_or(0, u64::from_ne_bytes));
        Ok(names.into_iter().zip(counts).collect())
    }

    pub(super) fn private_flags(&self) -> io::Result<BTreeMap<String, bool>> {
        let names = self.names(ETH_SS_PRIV_FLAGS)?;
        if names.is_empty() {
            return Err(rustix::io::Errno::OPNOTSUPP.into());
        }
        let mut buffer = [ETHTOOL_GPFLAGS, 0];
        self.ask(&mut buffer)?;
        let flag = |(bit, name): (usize, String)| (name, buffer[1] >> bit & 1 == 1);
        Ok(names.into_iter().take(32).enumerate().map(flag).collect())
    }

    pub(super) fn features(&self) -> io::Result<BTreeMap<String, Feature>> {
        let names = self.names(ETH_SS_FEATURES)?;
        // Command, number of blocks, and of each 32 features: available, requested, active, never changed. The
        // kernel writes no more blocks than the number says.
        let blocks = names.len().div_ceil(32);
        let mut buffer = vec![0; 2 + blocks * 4];
        buffer[..2].copy_from_slice(&[ETHTOOL_GFEATURES, blocks as u32]);
        self.ask(&mut buffer)?;
        let feature = |(n, name): (usize, String)| {
            let bit = |word: usize| buffer[2 + n / 32 * 4 + word] >> (n % 32) & 1 == 1;
            // Like ethtool(8): fixed is what is not available for change, or never changes.
            (name, Feature { on: bit(2), fixed: bit(3) || !bit(0) })
        };
        Ok(names.into_iter().enumerate().filter(|(_, name)| !name.is_empty()).map(feature).collect())
    }

    pub(super) fn indirection(&self) -> io::Result<Vec<u32>> {
        // Command and size: with the size 0 the kernel tells the size and writes no table.
        let mut buffer = vec![ETHTOOL_GRXFHINDIR, 0];
        self.ask(&mut buffer)?;
        let size = buffer[1] as usize;
        if size == 0 || size > MAX_NAMES {
            return Err(rustix::io::Errno::OPNOTSUPP.into());
        }
        // The kernel refuses a size that is not the table's, so that it never writes more than there is room for.
        buffer = vec![0; 2 + size];
        buffer[..2].copy_from_slice(&[ETHTOOL_GRXFHINDIR, size as u32]);
        self.ask(&mut buffer)?;
        Ok(buffer.split_off(2))
    }

    pub(super) fn flow_rules(&self) -> io::Result<u32> {
        // `struct ethtool_rxnfc` has 192 bytes; the number of rules is at 184.
        let mut buffer = [0; 48];
        buffer[0] = ETHTOOL_GRXCLSRLCNT;
        self.ask(&mut buffer)?;
        Ok(buffer[46])
    }

    /// Moderation, as kernels before 5.6 tell it: a field that the driver does not have is 0.
    pub(super) fn coalesce(&self) -> io::Result<Coalescing> {
        let mut buffer = [0; COALESCE];
        buffer[0] = ETHTOOL_GCOALESCE;
        self.ask(&mut buffer)?;
        Ok(coalesce(&buffer))
    }

    /// Rings, as kernels before 5.6 tell them (`struct ethtool_ringparam`, nine words).
    pub(super) fn rings(&self) -> io::Result<Rings> {
        let mut buffer = [ETHTOOL_GRINGPARAM, 0, 0, 0, 0, 0, 0, 0, 0];
        self.ask(&mut buffer)?;
        let kind = |max: usize, now: usize| {
            (Some(buffer[max]).filter(|n| *n > 0), Some(buffer[now]).filter(|_| buffer[max] > 0))
        };
        let ((rx_max, rx), (tx_max, tx)) = (kind(1, 5), kind(4, 8));
        let ((_, rx_mini), (_, rx_jumbo)) = (kind(2, 6), kind(3, 7));
        Ok(Rings { rx, rx_max, tx, tx_max, rx_mini, rx_jumbo, ..Rings::default() })
    }

    /// Channels, as kernels before 5.6 tell them (`struct ethtool_channels`, nine words).
    pub(super) fn channels(&self) -> io::Result<Channels> {
        let mut buffer = [ETHTOOL_GCHANNELS, 0, 0, 0, 0, 0, 0, 0, 0];
        self.ask(&mut buffer)?;
        let kind = |max: usize, now: usize| {
            (Some(buffer[max]).filter(|n| *n > 0), Some(buffer[now]).filter(|_| buffer[max] > 0))
        };
        let ((rx_max, rx), (tx_max, tx)) = (kind(1, 5), kind(2, 6));
        let ((other_max, other), (combined_max, combined)) = (kind(3, 7), kind(4, 8));
        Ok(Channels { rx, rx_max, tx, tx_max, combined, combined_max, other, other_max })
    }

    /// Flow control, as kernels before 5.6 tell it (`struct ethtool_pauseparam`, four words).
    pub(super) fn pause(&self) -> io::Result<Pause> {
        let mut buffer = [ETHTOOL_GPAUSEPARAM, 0, 0, 0];
        self.ask(&mut buffer)?;
        Ok(Pause { autoneg: buffer[1] != 0, rx: buffer[2] != 0, tx: buffer[3] != 0 })
    }

    /// Moderation of the first queues, one by one.
    pub(super) fn queue_coalesce(&self, queues: u32) -> io::Result<BTreeMap<u32, Coalescing>> {
        let queues = queues.min(MAX_QUEUES);
        // Command, subcommand, a mask of 4096 bits, and a structure for each bit set.
        let mask = (MAX_QUEUES / 32) as usize;
        let mut buffer = vec![0; 2 + mask + queues as usize * COALESCE];
        buffer[..2].copy_from_slice(&[ETHTOOL_PERQUEUE, ETHTOOL_GCOALESCE]);
        (0..queues).for_each(|queue| buffer[2 + (queue / 32) as usize] |= 1 << (queue % 32));
        self.ask(&mut buffer)?;
        let structures = buffer[2 + mask..].chunks_exact(COALESCE);
        Ok((0..queues).zip(structures.map(coalesce)).collect())
    }
}

/// `struct ethtool_coalesce`, where a field of all ones is one that the driver does not have by queue.
fn coalesce(fields: &[u32]) -> Coalescing {
    let field = |n: usize| Some(fields[n]).filter(|value| *value != u32::MAX);
    let bit = |n: usize| field(n).map(|value| value != 0);
    Coalescing {
        rx_usecs: field(1),
        rx_frames: field(2),
        rx_usecs_irq: field(3),
        rx_frames_irq: field(4),
        tx_usecs: field(5),
        tx_frames: field(6),
        tx_usecs_irq: field(7),
        tx_frames_irq: field(8),
        stats_block_usecs: field(9),
        adaptive_rx: bit(10),
        adaptive_tx: bit(11),
        pkt_rate_low: field(12),
        rx_usecs_low: field(13),
        rx_frames_low: field(14),
        tx_usecs_low: field(15),
        tx_frames_low: field(16),
        pkt_rate_high: field(17),
        rx_usecs_high: field(18),
        rx_frames_high: field(19),
        tx_usecs_high: field(20),
        tx_frames_high: field(21),
        sample_interval: field(22),
        cqe_mode_rx: None,
        cqe_mode_tx: None,
    }
}

fn octets(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// A text up to its end or the field's.
fn text(octets: &[u8]) -> String {
    let end = octets.iter().position(|octet| *octet == 0).unwrap_or(octets.len());
    String::from_utf8_lossy(&octets[..end]).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_has_features_and_no_driver_flags() {
        let loopback = Ethtool::open("lo").unwrap();
        let features = loopback.features().unwrap();
        assert!(features.len() > 30, "{features:?}");
        assert!(features["loopback"].on && features["loopback"].fixed);
        assert!(loopback.private_flags().is_err());
        assert!(loopback.indirection().is_err() && loopback.flow_rules().is_err());
        assert!(Ethtool::open("").is_err() && Ethtool::open("a_name_that_is_too_long").is_err());
        assert!(Ethtool::open("nosuchlink").unwrap().driver().is_err());
    }

    #[test]
    fn a_field_of_all_ones_is_none() {
        let mut fields = [0; COALESCE];
        (fields[1], fields[5], fields[10]) = (50, u32::MAX, 1);
        let coalesce = coalesce(&fields);
        assert_eq!((coalesce.rx_usecs, coalesce.tx_usecs, coalesce.adaptive_rx), (Some(50), None, Some(true)));
    }
}
