//! The latency budget: what a packet's delay is made of.

/// A term of the budget. A packet's delay is their sum, exactly.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(usize)]
pub enum Term {
    /// Waits in the NIC for its interrupt, or for its descriptor to be written back.
    Moderation,
    /// From the wire into memory, and the interrupt's way to the thread that waits for it, or a timer's.
    Delivery,
    /// The core comes back from an idle state, and fills its caches again.
    CStateExit,
    /// Waits for the core to be given to the thread: someone else has it, the switch itself, a timer's
    /// slack.
    Scheduling,
    /// The core executes nothing, because its frequency changes.
    FrequencyStall,
    /// Waits in a ring while the core rests by choice, or works on others; and for the end of its batch.
    Queueing,
    /// Its own work: to receive it, to handle it, to send it.
    Work,
    /// From the doorbell to its last bit on the wire, behind those before it.
    Transmit,
}

impl Term {
    /// How many there are.
    pub const COUNT: usize = 8;
    /// All, in the order in which a packet meets them.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Moderation,
        Self::Delivery,
        Self::CStateExit,
        Self::Scheduling,
        Self::FrequencyStall,
        Self::Queueing,
        Self::Work,
        Self::Transmit,
    ];

    /// The name in documents, in snake case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Moderation => "moderation",
            Self::Delivery => "delivery",
            Self::CStateExit => "c_state_exit",
            Self::Scheduling => "scheduling",
            Self::FrequencyStall => "frequency_stall",
            Self::Queueing => "queueing",
            Self::Work => "work",
            Self::Transmit => "transmit",
        }
    }
}

/// Why a frame was dropped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(usize)]
pub enum Drop {
    /// The receive ring had no free descriptor.
    RxFull,
    /// The transmit ring had none.
    TxFull,
    /// The socket was full: the application did not come to take them.
    SocketFull,
}

impl Drop {
    /// How many there are.
    pub const COUNT: usize = 3;
    /// All.
    pub const ALL: [Self; Self::COUNT] = [Self::RxFull, Self::TxFull, Self::SocketFull];

    /// The name in documents, in snake case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::RxFull => "rx_full",
            Self::TxFull => "tx_full",
            Self::SocketFull => "socket_full",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_and_drops_stand_at_their_numbers() {
        assert!(Term::ALL.into_iter().enumerate().all(|(number, term)| term as usize == number));
        assert!(Drop::ALL.into_iter().enumerate().all(|(number, drop)| drop as usize == number));
    }
}
