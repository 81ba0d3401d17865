//! The latency budget: the terms that add up to a packet's delay.

units::named! {
    /// A term of the latency budget. The terms of a packet add up exactly to its delay.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    #[repr(usize)]
    pub enum Term {
        /// Waiting in the NIC for its interrupt, or for its descriptor to be written back.
        Moderation = "moderation",
        /// From the wire into memory, and then from the interrupt or the timer to the waiting thread.
        Delivery = "delivery",
        /// The core's return from an idle state, and the refilling of its caches.
        CStateExit = "c_state_exit",
        /// Waiting for the core: for another task to end, for the context switch, or because of a timer's slack.
        Scheduling = "scheduling",
        /// The core executes nothing, because its frequency changes.
        FrequencyStall = "frequency_stall",
        /// Waiting in a ring while the core rests by choice or works on other packets, and waiting until the packet's
        /// batch ends.
        Queueing = "queueing",
        /// Processing of the packet itself: receiving, handling and sending it.
        Work = "work",
        /// From the doorbell to the packet's last bit on the wire, including the time for packets ahead of it.
        Transmit = "transmit",
    }
}

impl Term {
    /// The number of terms.
    pub const COUNT: usize = 8;
}

units::named! {
    /// Why the simulated host dropped a frame.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    #[repr(usize)]
    pub enum Drop {
        /// The receive ring had no free descriptor.
        RxFull = "rx_full",
        /// The transmit ring had no free descriptor.
        TxFull = "tx_full",
        /// The socket was full, because the application did not read it in time.
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
