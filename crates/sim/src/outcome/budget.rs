//! The latency budget: the parts of a packet's delay.

units::named! {
    /// A part of the budget. The parts add up exactly to a packet's delay.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    #[repr(usize)]
    pub enum Term {
        /// Waits in the NIC for its interrupt, or for its descriptor to be written back.
        Moderation = "moderation",
        /// From the wire into memory, and the interrupt's way to the thread that waits for it, or a timer's.
        Delivery = "delivery",
        /// The core comes back from an idle state, and fills its caches again.
        CStateExit = "c_state_exit",
        /// Waits for the core to be given to the thread: someone else has it, the switch itself, a timer's
        /// slack.
        Scheduling = "scheduling",
        /// The core executes nothing, because its frequency changes.
        FrequencyStall = "frequency_stall",
        /// Waits in a ring while the core rests by choice, or works on others; and for the end of its batch.
        Queueing = "queueing",
        /// Its own work: to receive it, to handle it, to send it.
        Work = "work",
        /// From the doorbell to its last bit on the wire, behind those before it.
        Transmit = "transmit",
    }
}

impl Term {
    /// The number of terms.
    pub const COUNT: usize = 8;
}

units::named! {
    /// Why a frame was dropped.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    #[repr(usize)]
    pub enum Drop {
        /// The receive ring had no free descriptor.
        RxFull = "rx_full",
        /// The transmit ring had none.
        TxFull = "tx_full",
        /// The socket was full: the application did not come to take them.
        SocketFull = "socket_full",
    }
}

impl Drop {
    /// The number of reasons.
    pub const COUNT: usize = 3;
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
