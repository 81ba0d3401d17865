//! DPDK's guest channel packets, byte for byte, so that guests that use librte_power (`PM_ENV_KVM_VM`) need no change.
//!
//! ```text
//!   0 resource_id u64 │ 8 unit u32 │ 12 command u32 │ 16 vm_name [u8; 32] │ 48 … policy …             request, 464 bytes
//!   0 resource_id u64 │ 8 unit u32 │ 12 command u32 │ 16 vm_name [u8; 32] │ 48 freq_list [u32; 8]    answer, 88 bytes
//!   0 resource_id u64 │ 8 unit u32 │ 12 command u32 │ 16 vm_name [u8; 32] │ 48 turbo, priority       answer, 184 bytes
//! ```
//! Source: DPDK 22.11, lib/power/rte_power_guest_channel.h, with the offsets that GCC gives these structures on x86-64
//! (`tests/dpdk.rs` compares them where the header is installed). Numbers have the byte order of the machine, which
//! guest and host share.
//!
//! A packet names a virtual machine (`vm_name`). Apus ignores the name, because the packet's channel shows which guest
//! sent it.

/// Length in bytes of a request, and of the answers ACK and NACK.
pub const LENGTH: usize = 464;
/// Length of an answer with frequencies, in bytes.
pub const FREQ_LIST_LENGTH: usize = 88;
/// Length of an answer with capabilities, in bytes.
pub const CAPS_LIST_LENGTH: usize = 184;
/// Maximum number of vCPUs in a packet (`RTE_POWER_MAX_VCPU_PER_VM`).
pub const MOST_VCPUS: usize = 8;

const UNIT: usize = 8;
const COMMAND: usize = 12;
const HEAD: usize = 48;
const VCPU_TO_CONTROL: usize = 144;
const NUM_VCPU: usize = 152;
const CORE_TYPE: usize = 444;
const WORKLOAD: usize = 448;
const POLICY_TO_USE: usize = 452;
const FREQ_NUM_VCPU: usize = 80;
const CAPS_PRIORITY: usize = 112;
const CAPS_NUM_VCPU: usize = 176;

const ACK: u32 = 1;
const NACK: u32 = 2;
const FREQ_LIST: u32 = 3;
const CAPS_LIST: u32 = 4;

/// The core that a request is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Core {
    /// A vCPU of the guest.
    Virtual(u64),
    /// A CPU of the host. A guest knows this number only if it was configured in the guest.
    Physical(u64),
}

units::named! {
    /// How a guest wants to change a core's frequency.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Scale {
        /// Raises the frequency by one step.
        Up = "up",
        /// Lowers the frequency by one step.
        Down = "down",
        /// Sets the highest frequency.
        Max = "max",
        /// Sets the lowest frequency.
        Min = "min",
        /// Allows the turbo frequency.
        EnableTurbo = "enable-turbo",
        /// Forbids the turbo frequency.
        DisableTurbo = "disable-turbo",
    }
}

units::named! {
    /// What a guest asks about its vCPUs.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Query {
        /// Asks for the frequencies of all vCPUs.
        FreqList = "freq-list",
        /// Asks for the frequency of one vCPU.
        Freq = "freq",
        /// Asks for the capabilities of all vCPUs.
        CapsList = "caps-list",
        /// Asks for the capabilities of one vCPU.
        Caps = "caps",
    }
}

impl Query {
    /// Whether the answer lists frequencies. If false, it lists capabilities.
    pub const fn is_of_frequencies(self) -> bool {
        matches!(self, Self::FreqList | Self::Freq)
    }

    /// Whether the request asks for the values of all vCPUs.
    pub const fn is_of_all(self) -> bool {
        matches!(self, Self::FreqList | Self::CapsList)
    }
}

units::named! {
    /// The workload that a guest states for its vCPUs (`RTE_POWER_POLICY_WORKLOAD`). It determines the frequency.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Workload {
        /// Requests the highest frequency.
        High = "high",
        /// Requests the frequency in the middle of the list.
        Medium = "medium",
        /// Requests the lowest frequency.
        Low = "low",
    }
}

/// A power policy that a guest sends for its vCPUs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Policy {
    /// The guest states the workload of these vCPUs.
    Workload(Workload, Vec<u8>),
    /// A kind of policy that Apus does not carry out. The string is the kind's name.
    Unsupported(&'static str),
    /// An invalid policy: unknown policy, unknown workload or too many vCPUs. The string says what is wrong.
    Invalid(String),
}

/// A parsed request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Packet {
    /// A program in the guest has opened the channel. Only the packet's command is set, and no answer is expected.
    Connect,
    /// Scales the frequency of a core.
    Scale(Core, Scale),
    /// Sets a power policy.
    Policy(Policy),
    /// Removes the policy. DPDK's host program does not answer, so neither does Apus.
    RemovePolicy,
    /// A query about a core; the number is the packet's `resource_id`.
    Query(Query, u64),
    /// A command, or a unit of a scaling command, that DPDK 22.11 does not define.
    Unknown {
        /// Number of the command.
        command: u32,
        /// Number of the unit in the scaling command.
        unit: u32,
    },
}

impl Packet {
    /// Parses a request. A packet without a known meaning is [`Packet::Unknown`].
    pub fn read(bytes: &[u8; LENGTH]) -> Self {
        let (command, unit, resource) = (word(bytes, COMMAND), word(bytes, UNIT), long(bytes, 0));
        match command {
            1 => {
                let core = match bytes[CORE_TYPE] {
                    0 => Core::Virtual(resource),
                    _ => Core::Physical(resource),
                };
                match unit {
                    1 => Self::Scale(core, Scale::Up),
                    2 => Self::Scale(core, Scale::Down),
                    3 => Self::Scale(core, Scale::Max),
                    4 => Self::Scale(core, Scale::Min),
                    5 => Self::Scale(core, Scale::EnableTurbo),
                    6 => Self::Scale(core, Scale::DisableTurbo),
                    _ => Self::Unknown { command, unit },
                }
            }
            2 => Self::Connect,
            3 => Self::Policy(policy(bytes)),
            4 => Self::RemovePolicy,
            7 => Self::Query(Query::FreqList, resource),
            8 => Self::Query(Query::Freq, resource),
            9 => Self::Query(Query::CapsList, resource),
            10 => Self::Query(Query::Caps, resource),
            _ => Self::Unknown { command, unit },
        }
    }
}

fn policy(bytes: &[u8; LENGTH]) -> Policy {
    match word(bytes, POLICY_TO_USE) {
        0 => Policy::Unsupported("traffic"),
        1 => Policy::Unsupported("time"),
        2 => {
            let many = usize::from(bytes[NUM_VCPU]);
            let workload = match word(bytes, WORKLOAD) {
                0 => Workload::High,
                1 => Workload::Medium,
                2 => Workload::Low,
                other => return Policy::Invalid(format!("there is no workload {other}")),
            };
            match bytes[VCPU_TO_CONTROL..].get(..many).filter(|_| (1..=MOST_VCPUS).contains(&many)) {
                Some(vcpus) => Policy::Workload(workload, vcpus.to_vec()),
                None => Policy::Invalid(format!("it names {many} vCPUs, and a packet has room for {MOST_VCPUS}")),
            }
        }
        3 => Policy::Unsupported("branch-ratio"),
        other => Policy::Invalid(format!("there is no policy {other}")),
    }
}

/// A request to scale a vCPU's frequency, as librte_power sends it. For tests, and for guests without DPDK.
pub fn scale(vcpu: u64, scale: Scale) -> [u8; LENGTH] {
    let unit = match scale {
        Scale::Up => 1,
        Scale::Down => 2,
        Scale::Max => 3,
        Scale::Min => 4,
        Scale::EnableTurbo => 5,
        Scale::DisableTurbo => 6,
    };
    request(1, unit, vcpu)
}

/// Builds any request that carries no policy.
pub fn request(command: u32, unit: u32, resource: u64) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    put(&mut bytes, 0, &resource.to_ne_bytes());
    put(&mut bytes, UNIT, &unit.to_ne_bytes());
    put(&mut bytes, COMMAND, &command.to_ne_bytes());
    bytes
}

/// The answer to a request: the request itself with the command ACK if it was carried out, otherwise NACK.
pub fn acknowledged(request: &[u8; LENGTH], is_good: bool) -> [u8; LENGTH] {
    let mut bytes = *request;
    let command = if is_good { ACK } else { NACK };
    put(&mut bytes, COMMAND, &command.to_ne_bytes());
    bytes
}

/// The answer to a frequency query: kHz per vCPU, 0 where unknown. If `known` is `None`, the query is refused: the
/// answer then has the command NACK and the length that the guest expects.
pub fn frequencies(request: &[u8; LENGTH], known: Option<&[u32]>) -> [u8; FREQ_LIST_LENGTH] {
    let mut bytes = [0; FREQ_LIST_LENGTH];
    bytes[..HEAD].copy_from_slice(&request[..HEAD]);
    let command = if known.is_some() { FREQ_LIST } else { NACK };
    put(&mut bytes, COMMAND, &command.to_ne_bytes());
    let known = known.unwrap_or_default();
    for (place, khz) in known.iter().take(MOST_VCPUS).enumerate() {
        put(&mut bytes, HEAD + 4 * place, &khz.to_ne_bytes());
    }
    bytes[FREQ_NUM_VCPU] = known.len().min(MOST_VCPUS) as u8;
    bytes
}

/// The answer to a query of capabilities: for each vCPU, whether its core has a turbo frequency. If `turbo` is `None`,
/// the query is refused.
///
/// No core is reported as a priority core, because Apus does not read which cores have a higher base frequency
/// (SST-BF).
pub fn capabilities(request: &[u8; LENGTH], turbo: Option<&[bool]>) -> [u8; CAPS_LIST_LENGTH] {
    let mut bytes = [0; CAPS_LIST_LENGTH];
    bytes[..HEAD].copy_from_slice(&request[..HEAD]);
    let command = if turbo.is_some() { CAPS_LIST } else { NACK };
    put(&mut bytes, COMMAND, &command.to_ne_bytes());
    let turbo = turbo.unwrap_or_default();
    for (place, has) in turbo.iter().take(MOST_VCPUS).enumerate() {
        put(&mut bytes, HEAD + 8 * place, &u64::from(*has).to_ne_bytes());
    }
    debug_assert_eq!(CAPS_PRIORITY, HEAD + 8 * MOST_VCPUS);
    bytes[CAPS_NUM_VCPU] = turbo.len().min(MOST_VCPUS) as u8;
    bytes
}

fn put(bytes: &mut [u8], at: usize, what: &[u8]) {
    bytes[at..at + what.len()].copy_from_slice(what);
}

fn word(bytes: &[u8; LENGTH], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn long(bytes: &[u8; LENGTH], at: usize) -> u64 {
    let mut eight = [0; 8];
    eight.copy_from_slice(&bytes[at..at + 8]);
    u64::from_ne_bytes(eight)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(mut bytes: [u8; LENGTH], at: usize, what: &[u8]) -> [u8; LENGTH] {
        put(&mut bytes, at, what);
        bytes
    }

    #[test]
    fn every_command_of_dpdk_has_its_meaning() {
        for one in Scale::ALL {
            assert_eq!(Packet::read(&scale(3, one)), Packet::Scale(Core::Virtual(3), one));
        }
        let physical = with(scale(9, Scale::Max), CORE_TYPE, &[1]);
        assert_eq!(Packet::read(&physical), Packet::Scale(Core::Physical(9), Scale::Max));
        assert_eq!(Packet::read(&request(2, 77, u64::MAX)), Packet::Connect);
        assert_eq!(Packet::read(&request(4, 0, 0)), Packet::RemovePolicy);
        for (command, query) in (7..=10).zip(Query::ALL) {
            assert_eq!(Packet::read(&request(command, 0, 5)), Packet::Query(query, 5));
        }
        for (command, unit) in [(0, 1), (1, 0), (1, 7), (5, 1), (6, 1), (11, 1), (u32::MAX, u32::MAX)] {
            assert_eq!(Packet::read(&request(command, unit, 0)), Packet::Unknown { command, unit });
        }
    }

    #[test]
    fn policies_name_what_they_can() {
        let policy = |kind: u32, workload: u32, many: u8| {
            let bytes = with(request(3, 0, 0), POLICY_TO_USE, &kind.to_ne_bytes());
            let bytes = with(bytes, WORKLOAD, &workload.to_ne_bytes());
            let bytes = with(bytes, VCPU_TO_CONTROL, &[4, 5, 6, 7, 8, 9, 10, 11]);
            match Packet::read(&with(bytes, NUM_VCPU, &[many])) {
                Packet::Policy(policy) => policy,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(policy(2, 1, 2), Policy::Workload(Workload::Medium, vec![4, 5]));
        assert_eq!(policy(2, 0, 8), Policy::Workload(Workload::High, vec![4, 5, 6, 7, 8, 9, 10, 11]));
        for (kind, workload, many) in [(2, 3, 1), (2, 0, 0), (2, 0, 9), (2, 0, 255), (4, 0, 1), (u32::MAX, 0, 1)] {
            assert!(matches!(policy(kind, workload, many), Policy::Invalid(_)), "{kind} {workload} {many}");
        }
        for kind in [0, 1, 3] {
            assert!(matches!(policy(kind, 0, 1), Policy::Unsupported(_)), "{kind}");
        }
    }

    #[test]
    fn answers_are_where_dpdk_looks_for_them() {
        let asked = with(request(7, 0, 1), 16, b"vm1\0");
        let ack = acknowledged(&asked, true);
        assert_eq!((word(&ack, COMMAND), &ack[16..20]), (1, &b"vm1\0"[..]));
        assert_eq!(word(&acknowledged(&asked, false), COMMAND), 2);
        let list = frequencies(&asked, Some(&[2_600_000, 0, 800_000]));
        assert_eq!((list[COMMAND], list[FREQ_NUM_VCPU]), (3, 3));
        assert_eq!(list[HEAD..HEAD + 4], 2_600_000_u32.to_ne_bytes());
        assert_eq!(list[HEAD + 8..HEAD + 12], 800_000_u32.to_ne_bytes());
        let refused = frequencies(&asked, None);
        assert_eq!((refused[COMMAND], refused[FREQ_NUM_VCPU]), (2, 0));
        let caps = capabilities(&asked, Some(&[false, true]));
        assert_eq!((caps[COMMAND], caps[HEAD], caps[HEAD + 8], caps[CAPS_NUM_VCPU]), (4, 0, 1, 2));
        assert_eq!(frequencies(&asked, Some(&[7; 300]))[FREQ_NUM_VCPU], 8, "no more than there is room for");
    }
}
