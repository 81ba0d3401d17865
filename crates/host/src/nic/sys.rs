//! The ioctl `SIOCETHTOOL` (ioctl_netdevice(2), include/uapi/linux/ethtool.h). It is used for requests that netlink
//! does not offer (settings of one queue), does not offer before Linux 5.6, or answers with replies of unlimited size
//! (names). Also sets options of netlink sockets.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, OwnedFd};

use super::{Client, Driver, Error, Feature, Interface};

const SIOCETHTOOL: libc::c_ulong = 0x8946;
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSTATS: u32 = 0x1d;
const ETHTOOL_GPFLAGS: u32 = 0x27;
const ETHTOOL_GRXCLSRLCNT: u32 = 0x2e;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GRXFHINDIR: u32 = 0x38;
const ETHTOOL_GFEATURES: u32 = 0x3a;
const ETHTOOL_PERQUEUE: u32 = 0x4b;
pub(super) const ETHTOOL_GCOALESCE: u32 = 0x0e;
pub(super) const ETHTOOL_SCOALESCE: u32 = 0x0f;
pub(super) const ETHTOOL_GRINGPARAM: u32 = 0x10;
pub(super) const ETHTOOL_GPAUSEPARAM: u32 = 0x12;
pub(super) const ETHTOOL_GCHANNELS: u32 = 0x3c;

/// Number of the set of names that belongs to the driver's counters (`enum ethtool_stringset`).
const ETH_SS_STATS: u32 = 1;
const ETH_SS_PRIV_FLAGS: u32 = 2;
const ETH_SS_FEATURES: u32 = 4;
/// Size of a name in bytes (`ETH_GSTRING_LEN`).
const NAME: usize = 32;
/// Maximum number of names in a set. Drivers of the largest NICs have tens of thousands of counters.
const MAX_NAMES: usize = 1 << 16;
/// Size in bytes of the buffer for names and counters. It is twice what [`MAX_NAMES`] names need, so that it also has
/// room for counters that appear after their number was queried.
const ROOM: usize = 8 + 2 * MAX_NAMES * NAME;
/// Maximum number of queues in one request (`MAX_NUM_QUEUE`).
pub(super) const MAX_QUEUES: u32 = 4096;
/// Number of 32-bit fields of `struct ethtool_coalesce`, including the command.
pub(super) const COALESCE: usize = 23;

/// Makes the kernel explain errors, and not repeat the request in the answer (`NETLINK_EXT_ACK`, `NETLINK_CAP_ACK`;
/// netlink(7)).
pub(super) fn acknowledge_at_length(socket: &OwnedFd) -> io::Result<()> {
    for option in [libc::NETLINK_EXT_ACK, libc::NETLINK_CAP_ACK] {
        let on: libc::c_int = 1;
        let length = size_of_val(&on) as libc::socklen_t;
        // SAFETY: `on` has `length` bytes and lives through the call, which only reads it.
        let set =
            unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_NETLINK, option, (&raw const on).cast(), length) };
        if set != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

impl Client {
    /// Sends a request in a buffer of words. The first word is the command; the answer overwrites the buffer.
    ///
    /// The buffer must have room for everything that the command writes. Each caller explains why its buffer is large
    /// enough.
    fn ioctl(&mut self, interface: &Interface, buffer: &mut [u32]) -> Result<(), Error> {
        // SAFETY: ifreq is plain data, for which all zeroes is a value.
        let mut request: libc::ifreq = unsafe { zeroed() };
        if interface.name.is_empty() || interface.name.len() >= request.ifr_name.len() {
            return Err(Error::refused("an interface name must have 1 to 15 bytes"));
        }
        for (to, from) in request.ifr_name.iter_mut().zip(interface.name.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_data = buffer.as_mut_ptr().cast();
        // SAFETY: `request` lives through the call and has a terminated name; `buffer` is borrowed exclusively and, as
        // each caller explains, long enough for what the command writes.
        match unsafe { libc::ioctl(self.control()?.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error().into()),
        }
    }

    /// The driver of an interface, with its name, version, firmware version and bus address.
    pub fn driver(&mut self, interface: &Interface) -> Result<Driver, Error> {
        // The structure has 196 bytes: command, five texts of 32, twelve reserved, five numbers.
        let mut buffer = [0; 49];
        buffer[0] = ETHTOOL_GDRVINFO;
        self.ioctl(interface, &mut buffer)?;
        let octets = octets(&buffer);
        let field = |n: usize| text(&octets[4 + n * NAME..4 + (n + 1) * NAME]);
        Ok(Driver { name: field(0), version: field(1), firmware: field(2), bus: field(3) })
    }

    /// Number of names in the set `set`.
    fn count(&mut self, interface: &Interface, set: u32) -> Result<usize, Error> {
        // Layout: command, reserved, a mask of 64 bits, and one number for the one bit set.
        let mut buffer = [ETHTOOL_GSSET_INFO, 0, 1 << set, 0, 0];
        self.ioctl(interface, &mut buffer)?;
        let count = if buffer[2] & 1 << set == 0 { 0 } else { buffer[4] as usize };
        if count > MAX_NAMES { Err(Error::torn(format!("the driver has {count} names"))) } else { Ok(count) }
    }

    fn names(&mut self, interface: &Interface, set: u32) -> Result<Vec<String>, Error> {
        let count = self.count(interface, set)?;
        if count == 0 {
            return Ok(Vec::new());
        }
        // Layout: command, set, number, names. Twice as many names fit as `MAX_NAMES` allows.
        let mut buffer = vec![0; ROOM / 4 + 3];
        buffer[..3].copy_from_slice(&[ETHTOOL_GSTRINGS, set, count as u32]);
        self.ioctl(interface, &mut buffer)?;
        let said = (buffer[2] as usize).min(MAX_NAMES);
        let octets = octets(&buffer[3..3 + said * NAME / 4]);
        Ok(octets.chunks_exact(NAME).map(text).collect())
    }

    /// The driver's own counters by name (`ethtool -S`). Empty if the driver has none. Their meaning depends on the
    /// driver, and so does whether they exist per queue. The kernel's own counters are in [`Client::queue_statistics`].
    pub fn driver_statistics(&mut self, interface: &Interface) -> Result<BTreeMap<String, u64>, Error> {
        let names = self.names(interface, ETH_SS_STATS)?;
        if names.is_empty() {
            return Ok(BTreeMap::new());
        }
        // Layout: command, number, counters of 64 bits. They take a quarter of the room of their names.
        let mut buffer = vec![0; ROOM / 4];
        buffer[..2].copy_from_slice(&[ETHTOOL_GSTATS, names.len() as u32]);
        self.ioctl(interface, &mut buffer)?;
        let said = (buffer[1] as usize).min(names.len());
        let counts = octets(&buffer[2..2 + said * 2]);
        let counts = counts.chunks_exact(8).map(|octets| octets.try_into().map_or(0, u64::from_ne_bytes));
        Ok(names.into_iter().zip(counts).collect())
    }

    /// The driver's private flags (at most 32), by the driver's names.
    pub fn private_flags(&mut self, interface: &Interface) -> Result<BTreeMap<String, bool>, Error> {
        let names = self.names(interface, ETH_SS_PRIV_FLAGS)?;
        if names.is_empty() {
            return Err(Error::unsaid());
        }
        let mut buffer = [ETHTOOL_GPFLAGS, 0];
        self.ioctl(interface, &mut buffer)?;
        let flag = |(bit, name): (usize, String)| (name, buffer[1] >> bit & 1 == 1);
        Ok(names.into_iter().take(32).enumerate().map(flag).collect())
    }

    /// Offloads and other features, by the kernel's names (`rx-gro`).
    pub fn features(&mut self, interface: &Interface) -> Result<BTreeMap<String, Feature>, Error> {
        let names = self.names(interface, ETH_SS_FEATURES)?;
        // Layout: command, number of blocks, and four words for each 32 features: available, requested, active, never
        // changed. The kernel writes no more blocks than the number says.
        let blocks = names.len().div_ceil(32);
        let mut buffer = vec![0; 2 + blocks * 4];
        buffer[..2].copy_from_slice(&[ETHTOOL_GFEATURES, blocks as u32]);
        self.ioctl(interface, &mut buffer)?;
        let feature = |(n, name): (usize, String)| {
            let bit = |word: usize| buffer[2 + n / 32 * 4 + word] >> (n % 32) & 1 == 1;
            // As in ethtool(8), a feature is fixed if it is not available for change or never changes.
            let (on, fixed) = (bit(2), bit(3) || !bit(0));
            (name, Feature { on, wanted: if fixed { on } else { bit(1) }, fixed })
        };
        Ok(names.into_iter().enumerate().filter(|(_, name)| !name.is_empty()).map(feature).collect())
    }

    /// The receive queue in each entry of the indirection table of receive side scaling.
    pub fn rss_table(&mut self, interface: &Interface) -> Result<Vec<u32>, Error> {
        // Layout: command and size. For size 0, the kernel returns the size and writes no table.
        let mut buffer = vec![ETHTOOL_GRXFHINDIR, 0];
        self.ioctl(interface, &mut buffer)?;
        let size = buffer[1] as usize;
        if size == 0 || size > MAX_NAMES {
            return Err(Error::unsaid());
        }
        // The kernel rejects a size other than the table's, so it never writes beyond the buffer.
        buffer = vec![0; 2 + size];
        buffer[..2].copy_from_slice(&[ETHTOOL_GRXFHINDIR, size as u32]);
        self.ioctl(interface, &mut buffer)?;
        Ok(buffer.split_off(2))
    }

    /// Number of receive classification (n-tuple) rules.
    pub fn flow_rules(&mut self, interface: &Interface) -> Result<u32, Error> {
        // `struct ethtool_rxnfc` has 192 bytes; the number of rules is at 184.
        let mut buffer = [0; 48];
        buffer[0] = ETHTOOL_GRXCLSRLCNT;
        self.ioctl(interface, &mut buffer)?;
        Ok(buffer[46])
    }

    /// Reads a structure of the ioctl as 32-bit words. The first word is the command. The longest such structure is
    /// `struct ethtool_coalesce`.
    pub(super) fn words(&mut self, interface: &Interface, command: u32) -> Result<[u32; COALESCE], Error> {
        let mut buffer = [0; COALESCE];
        buffer[0] = command;
        self.ioctl(interface, &mut buffer)?;
        Ok(buffer)
    }

    /// Reads or writes the interrupt moderation of the queues `queues`, with one structure per queue.
    pub(super) fn queue_structures(
        &mut self,
        interface: &Interface,
        command: u32,
        queues: std::ops::Range<u32>,
        structures: &mut [[u32; COALESCE]],
    ) -> Result<(), Error> {
        if queues.end > MAX_QUEUES || structures.len() != queues.len() {
            return Err(Error::refused(format!("a queue number must be below {MAX_QUEUES}")));
        }
        // Layout: command, subcommand, a mask of 4096 bits, and a structure for each bit set.
        let mask = (MAX_QUEUES / 32) as usize;
        let mut buffer = vec![0; 2 + mask];
        buffer[..2].copy_from_slice(&[ETHTOOL_PERQUEUE, command]);
        queues.for_each(|queue| buffer[2 + (queue / 32) as usize] |= 1 << (queue % 32));
        structures.iter_mut().for_each(|structure| structure[0] = command);
        buffer.extend(structures.as_flattened());
        self.ioctl(interface, &mut buffer)?;
        structures.as_flattened_mut().copy_from_slice(&buffer[2 + mask..]);
        Ok(())
    }
}

fn octets(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Parses a string that ends at a zero byte or at the end of the field.
fn text(octets: &[u8]) -> String {
    let end = octets.iter().position(|octet| *octet == 0).unwrap_or(octets.len());
    String::from_utf8_lossy(&octets[..end]).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_has_features_and_no_driver_flags() {
        let (mut client, lo) = (Client::new(), Interface::new("lo", 1));
        let features = client.features(&lo).unwrap();
        assert!(features.len() > 30, "{features:?}");
        assert!(features["loopback"].on && features["loopback"].fixed);
        assert!(client.private_flags(&lo).is_err());
        assert!(client.rss_table(&lo).is_err() && client.flow_rules(&lo).is_err());
        for wrong in ["", "a_name_that_is_too_long"] {
            assert!(matches!(client.driver(&Interface::new(wrong, 1)), Err(Error::Refused(_))));
        }
        assert!(matches!(client.driver(&Interface::new("nosuchlink", 1)), Err(Error::NoDevice(_))));
        let many = client.queue_structures(&lo, ETHTOOL_GCOALESCE, 4096..4097, &mut [[0; COALESCE]]);
        assert!(matches!(many, Err(Error::Refused(_))));
    }
}
