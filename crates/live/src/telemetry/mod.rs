//! What others can see of a worker while it runs.

/// Why a frame that a worker received was not sent. With these, received = sent + all drops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum DropReason {
    /// The application drops all frames: its purpose.
    Discard,
    /// Truncated, or its headers contradict themselves.
    Malformed,
    /// Well formed, but nothing that this application answers or forwards.
    NotHandled,
    /// No route to the destination.
    NoRoute,
    /// Time to live, or hop limit, used up.
    TtlExpired,
    /// Does not fit the outgoing port.
    TooLong,
    /// The transmit ring was full.
    TxFull,
    /// The outgoing port's link is down.
    LinkDown,
    /// Injected by a fault wrapper.
    Injected,
}

impl DropReason {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 9] = [
        Self::Discard,
        Self::Malformed,
        Self::NotHandled,
        Self::NoRoute,
        Self::TtlExpired,
        Self::TooLong,
        Self::TxFull,
        Self::LinkDown,
        Self::Injected,
    ];

    /// The name in telemetry, in snake case.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Discard => "discard",
            Self::Malformed => "malformed",
            Self::NotHandled => "not_handled",
            Self::NoRoute => "no_route",
            Self::TtlExpired => "ttl_expired",
            Self::TooLong => "too_long",
            Self::TxFull => "tx_full",
            Self::LinkDown => "link_down",
            Self::Injected => "injected",
        }
    }
}
