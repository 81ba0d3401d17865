//! The latency budget: the parts of a packet's delay.

/// A part of the budget. The parts add up exactly to a packet's delay.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(usize)]
pub enum Term {
    /// Waiting in the NIC for its interrupt, or for its descriptor to be written back.
    Moderation,
    /// The way from the wire into memory, and that of the interrupt or the timer to the waiting thread.
    Delivery,
    /// The core's return from an idle state, and the refilling of its caches.
    CStateExit,
    /// Waiting until the thread gets the core: another task has it, the context switch itself, a timer's slack.
    Scheduling,
    /// The core executes nothing, because its frequency changes.
    FrequencyStall,
    /// Waiting in a ring while the core rests by choice or works on other packets, and waiting for the end of its
    /// batch.
    Queueing,
    /// The packet's own processing: to receive it, handle it and send it.
    Work,
    /// From the doorbell to its last bit on the wire, including the packets before it.
    Transmit,
}

impl Term {
    /// The number of terms.
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
    /// The transmit ring had no free descriptor.
    TxFull,
    /// The socket was full, because the application did not read it in time.
    SocketFull,
}

impl Drop {
    /// The number of reasons.
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
