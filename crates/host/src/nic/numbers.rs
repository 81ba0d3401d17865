//! Groups of numbers that the kernel reads and sets together. Each field is declared once: its type in netlink
//! messages, its attribute, its name, and the attribute that holds its maximum.

use super::message::{Attributes, Message};

/// A field of a group that can be set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Field {
    /// The kernel's name of the field, as in Documentation/netlink/specs, such as `rx-usecs`.
    pub name: &'static str,
    /// The number of the field's netlink attribute.
    pub(crate) attribute: u16,
    /// The number of the attribute that holds the maximum value that the driver accepts. `None` if there is no such
    /// attribute.
    pub(crate) most: Option<u16>,
    /// Size of the number in a netlink attribute, in bytes.
    octets: usize,
}

/// Numbers that are read and set together. After a read, a field is `None` if the kernel or the driver does not report
/// it. A write changes only the fields that have a value.
pub trait Numbers: Copy + Default {
    /// The fields that can be set, in the order of their attributes.
    const FIELDS: &'static [Field];

    /// The value of a field. A switch is 0 or 1.
    fn get(&self, field: &Field) -> Option<u64> {
        self.at(field.attribute)
    }

    /// The value of an attribute.
    #[doc(hidden)]
    fn at(&self, attribute: u16) -> Option<u64>;

    /// Sets the value of an attribute. Returns false if there is no such attribute, or the number is too large for it.
    #[doc(hidden)]
    fn put(&mut self, attribute: u16, number: u64) -> bool;

    /// Sets a field. Returns false if the number is out of range for the field; a switch must be 0 or 1.
    fn fill(&mut self, field: &Field, number: u64) -> bool {
        self.put(field.attribute, number) && self.get(field) == Some(number)
    }

    /// The maximum value that the driver accepts for a field. `None` if the driver does not report it.
    fn most(&self, field: &Field) -> Option<u64> {
        self.at(field.most?)
    }

    /// Whether no field has a value.
    fn is_empty(&self) -> bool {
        Self::FIELDS.iter().all(|field| self.get(field).is_none())
    }
}

/// Reads a group from netlink attributes.
pub(super) fn read<G: Numbers>(attributes: Attributes<'_>) -> G {
    let mut group = G::default();
    for (attribute, octets) in attributes.iter() {
        if let Some(number) = super::message::number(octets) {
            group.put(attribute, number);
        }
    }
    group
}

/// Reads a group from a structure of the ioctl, given as 32-bit words. The attributes of ethtool-netlink have the same
/// order as the words of the older structures: attribute N is word N - 1.
pub(super) fn of_words<G: Numbers>(words: &[u32]) -> G {
    let mut group = G::default();
    // If the maximum is 0, the device has no such ring or channel. A word of all ones means that a queue lacks the
    // field.
    let bounded = |most: u16| G::FIELDS.iter().find(|field| field.most == Some(most));
    for (attribute, word) in (2..).zip(words.iter().skip(1)) {
        let field = G::FIELDS.iter().find(|field| field.attribute == attribute);
        let most = field.and_then(|field| field.most).and_then(|most| words.get(usize::from(most) - 1));
        let none = most == Some(&0) || (bounded(attribute).is_some() && *word == 0) || *word == u32::MAX;
        if !none {
            group.put(attribute, (*word).into());
        }
    }
    group
}

/// Overwrites the words of a structure with the fields that have a value. On error, returns the first field that does
/// not fit into the structure.
pub(super) fn to_words<G: Numbers>(group: &G, words: &mut [u32]) -> Result<(), &'static Field> {
    for field in G::FIELDS {
        let Some(number) = group.get(field) else { continue };
        let word = words.get_mut(usize::from(field.attribute) - 1).ok_or(field)?;
        *word = u32::try_from(number).map_err(|_| field)?;
    }
    Ok(())
}

/// Adds the fields that have a value to a netlink message.
pub(super) fn push<G: Numbers>(group: &G, message: &mut Message) {
    for field in G::FIELDS {
        if let Some(number) = group.get(field) {
            // The casts lose nothing: shorter types were checked by `put` or cannot hold larger values.
            match field.octets {
                1 => message.attribute(field.attribute, &[number as u8]),
                4 => message.attribute(field.attribute, &(number as u32).to_ne_bytes()),
                _ => message.attribute(field.attribute, &number.to_ne_bytes()),
            }
        }
    }
}

/// A type that a field can have.
trait Number: Copy {
    const OCTETS: usize;
    fn of(number: u64) -> Option<Self>;
    fn number(self) -> u64;
}

macro_rules! number {
    ($($type:ty: $octets:literal),*) => {
        $(impl Number for $type {
            const OCTETS: usize = $octets;
            fn of(number: u64) -> Option<Self> {
                number.try_into().ok()
            }
            fn number(self) -> u64 {
                self.into()
            }
        })*
    };
}

number! { u8: 1, u32: 4, u64: 8 }

/// A switch has 8 bits in netlink messages, and one word in the ioctl's structures.
impl Number for bool {
    const OCTETS: usize = 1;
    fn of(number: u64) -> Option<Self> {
        Some(number != 0)
    }
    fn number(self) -> u64 {
        self.into()
    }
}

const fn first(all: &[u16]) -> Option<u16> {
    if all.is_empty() { None } else { Some(all[0]) }
}

macro_rules! numbers {
    ($(#[$meta:meta])* pub struct $group:ident {
        $($(#[$doc:meta])* $field:ident: $type:ty = $attribute:literal $($name:literal $(up to $most:literal)?)?,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub struct $group {
            $($(#[$doc])* pub $field: Option<$type>,)*
        }

        impl Numbers for $group {
            const FIELDS: &'static [Field] = &[
                $($(Field {
                    name: $name,
                    attribute: $attribute,
                    most: first(&[$($most)?]),
                    octets: <$type as Number>::OCTETS,
                },)?)*
            ];
            fn at(&self, attribute: u16) -> Option<u64> {
                match attribute {
                    $($attribute => self.$field.map(Number::number),)*
                    _ => None,
                }
            }
            fn put(&mut self, attribute: u16, number: u64) -> bool {
                match attribute {
                    $($attribute => {
                        let value = Number::of(number);
                        self.$field = value.or(self.$field);
                        value.is_some()
                    })*
                    _ => false,
                }
            }
        }
    };
}

numbers! {
    /// Interrupt moderation of a device, or of one of its queues (Documentation/netlink/specs/ethtool.yaml, `coalesce`;
    /// Documentation/networking/ethtool-netlink.rst, COALESCE_GET; `struct ethtool_coalesce` of
    /// include/uapi/linux/ethtool.h). `*_usecs` are microseconds from a packet to its interrupt, as reported by the
    /// driver; with some drivers (`ixgbe`, `igb`), 1 and 3 are modes, not times. `*_frames` are numbers of packets
    /// after which an interrupt is raised earlier. `*_irq` apply while an interrupt is being handled. `*_low` and
    /// `*_high` apply below and above a rate in packets per second. For a single queue, only the fields up to
    /// `sample_interval` exist.
    #[allow(missing_docs)]
    pub struct Coalescing {
        rx_usecs: u32 = 2 "rx-usecs",
        rx_frames: u32 = 3 "rx-max-frames",
        rx_usecs_irq: u32 = 4 "rx-usecs-irq",
        rx_frames_irq: u32 = 5 "rx-max-frames-irq",
        tx_usecs: u32 = 6 "tx-usecs",
        tx_frames: u32 = 7 "tx-max-frames",
        tx_usecs_irq: u32 = 8 "tx-usecs-irq",
        tx_frames_irq: u32 = 9 "tx-max-frames-irq",
        stats_block_usecs: u32 = 10 "stats-block-usecs",
        /// Whether the driver or the kernel's dynamic interrupt moderation (DIM) chooses the receive moderation.
        adaptive_rx: bool = 11 "adaptive-rx",
        adaptive_tx: bool = 12 "adaptive-tx",
        pkt_rate_low: u32 = 13 "pkt-rate-low",
        rx_usecs_low: u32 = 14 "rx-usecs-low",
        rx_frames_low: u32 = 15 "rx-max-frames-low",
        tx_usecs_low: u32 = 16 "tx-usecs-low",
        tx_frames_low: u32 = 17 "tx-max-frames-low",
        pkt_rate_high: u32 = 18 "pkt-rate-high",
        rx_usecs_high: u32 = 19 "rx-usecs-high",
        rx_frames_high: u32 = 20 "rx-max-frames-high",
        tx_usecs_high: u32 = 21 "tx-usecs-high",
        tx_frames_high: u32 = 22 "tx-max-frames-high",
        /// Time between two adaptations by the driver, in seconds.
        sample_interval: u32 = 23 "rate-sample-interval",
        /// Whether each completion queue entry restarts the timer.
        cqe_mode_tx: bool = 24 "cqe-mode-tx",
        cqe_mode_rx: bool = 25 "cqe-mode-rx",
        tx_aggr_max_bytes: u32 = 26 "tx-aggr-max-bytes",
        tx_aggr_max_frames: u32 = 27 "tx-aggr-max-frames",
        tx_aggr_time_usecs: u32 = 28 "tx-aggr-time-usecs",
    }
}

impl Coalescing {
    /// The fields that a single queue has, which are those of `struct ethtool_coalesce`.
    pub fn of_queues() -> &'static [Field] {
        &Self::FIELDS[..22]
    }
}

numbers! {
    /// Descriptor rings (ethtool.yaml, `rings`). Sizes are numbers of descriptors unless stated otherwise. A field is
    /// `None` if the driver does not have such a ring or setting.
    #[allow(missing_docs)]
    pub struct Rings {
        rx_max: u32 = 2,
        rx_mini_max: u32 = 3,
        rx_jumbo_max: u32 = 4,
        tx_max: u32 = 5,
        rx: u32 = 6 "rx" up to 2,
        rx_mini: u32 = 7 "rx-mini" up to 3,
        rx_jumbo: u32 = 8 "rx-jumbo" up to 4,
        tx: u32 = 9 "tx" up to 5,
        /// Size of a receive buffer, in bytes.
        rx_buf_len: u32 = 10 "rx-buf-len",
        /// Whether received packets are split into header and data: 0 means that the driver does not report it, 1 off,
        /// 2 on.
        tcp_data_split: u8 = 11 "tcp-data-split",
        /// Size of a completion queue entry, in bytes.
        cqe_size: u32 = 12 "cqe-size",
        tx_push: bool = 13 "tx-push",
        rx_push: bool = 14 "rx-push",
        /// Number of bytes of a packet that can be pushed to the device with its descriptor.
        tx_push_buf_len: u32 = 15 "tx-push-buf-len" up to 16,
        tx_push_buf_len_max: u32 = 16,
        /// Packet size in bytes above which packets are split into header and data.
        hds_thresh: u32 = 17 "hds-thresh" up to 18,
        hds_thresh_max: u32 = 18,
    }
}

numbers! {
    /// Numbers of channels (ethtool.yaml, `channels`). A field is `None` if the driver does not have channels of this
    /// kind.
    #[allow(missing_docs)]
    pub struct Channels {
        rx_max: u32 = 2,
        tx_max: u32 = 3,
        other_max: u32 = 4,
        combined_max: u32 = 5,
        rx: u32 = 6 "rx" up to 2,
        tx: u32 = 7 "tx" up to 3,
        other: u32 = 8 "other" up to 4,
        combined: u32 = 9 "combined" up to 5,
    }
}

numbers! {
    /// Flow control by pause frames (ethtool.yaml, `pause`; IEEE 802.3, Annex 31B).
    #[allow(missing_docs)]
    pub struct Pause {
        autoneg: bool = 2 "autoneg",
        rx: bool = 3 "rx",
        tx: bool = 4 "tx",
    }
}

numbers! {
    /// The settings of a NAPI instance (Documentation/netlink/specs/netdev.yaml, `napi`;
    /// Documentation/networking/napi.rst). A field is `None` if the kernel is too old for it: the first three fields
    /// need Linux 6.13, `threaded` needs 6.17.
    pub struct NapiSettings {
        /// Number of empty polls before the interrupt is enabled again, below 2^31. It has an effect only together with
        /// `gro_flush_timeout_ns`.
        defer_hard_irqs: u32 = 5 "defer-hard-irqs",
        /// Time after which a timer polls the instance while the interrupt is disabled, in ns.
        gro_flush_timeout_ns: u64 = 6 "gro-flush-timeout",
        /// Time for which interrupts stay disabled after an application that busy-polls with epoll has found events, in
        /// ns.
        irq_suspend_timeout_ns: u64 = 7 "irq-suspend-timeout",
        /// What polls the NAPI instance: 0 softirqs, 1 a kernel thread, 2 a kernel thread that busy-polls (from Linux
        /// 6.19 on).
        threaded: u32 = 8 "threaded",
    }
}

numbers! {
    /// Counters of a queue since the interface was created (netdev.yaml, `qstats`). A field is `None` if the driver
    /// does not count it.
    #[allow(missing_docs)]
    pub struct QueueCounts {
        rx_packets: u64 = 8,
        rx_bytes: u64 = 9,
        tx_packets: u64 = 10,
        tx_bytes: u64 = 11,
        /// Number of packets lost because no buffer could be allocated.
        rx_alloc_fail: u64 = 12,
        /// Number of packets that reached the device but not the kernel's network stack, for any reason.
        rx_hw_drops: u64 = 13,
        /// Number of packets among [`Self::rx_hw_drops`] that were dropped because no descriptor was free.
        rx_hw_drop_overruns: u64 = 14,
        rx_csum_complete: u64 = 15,
        rx_csum_unnecessary: u64 = 16,
        rx_csum_none: u64 = 17,
        rx_csum_bad: u64 = 18,
        rx_hw_gro_packets: u64 = 19,
        rx_hw_gro_bytes: u64 = 20,
        rx_hw_gro_wire_packets: u64 = 21,
        rx_hw_gro_wire_bytes: u64 = 22,
        rx_hw_drop_ratelimits: u64 = 23,
        tx_hw_drops: u64 = 24,
        tx_hw_drop_errors: u64 = 25,
        tx_csum_none: u64 = 26,
        tx_needs_csum: u64 = 27,
        tx_hw_gso_packets: u64 = 28,
        tx_hw_gso_bytes: u64 = 29,
        tx_hw_gso_wire_packets: u64 = 30,
        tx_hw_gso_wire_bytes: u64 = 31,
        tx_hw_drop_ratelimits: u64 = 32,
        /// Number of times that the queue was stopped because it was full. [`Self::tx_wake`] counts how often it was
        /// woken again.
        tx_stop: u64 = 33,
        tx_wake: u64 = 34,
    }
}
