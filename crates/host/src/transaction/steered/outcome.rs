//! What became of a move, and of a setting between two moves.

use crate::knob::Value;

/// The result of a move.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Moved {
    /// The setting has the wanted value.
    AsWanted {
        /// The value that was read back.
        now: Value,
    },
    /// The setting has a different value: the driver rounded or limited the wanted one.
    Otherwise {
        /// The value that was read back.
        now: Value,
        /// The reason. `None` if the machine does not report it.
        why: Option<String>,
    },
    /// The write was accepted but changed nothing.
    Unmoved {
        /// The value that was read back.
        now: Value,
        /// The reason. `None` if the machine does not report it.
        why: Option<String>,
    },
    /// Somebody else has changed the setting since the last move, or during the present one. Apus no longer controls
    /// the setting.
    LetGo {
        /// The value that somebody else set.
        now: Value,
    },
    /// The setting does not exist now, although its device does: the interface is down. It can be moved again when the
    /// interface is up.
    Away,
    /// The device to which the setting belonged is gone.
    Gone,
}

/// The state of a setting that a controller owns, between two moves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Look {
    /// The setting still has the value that the controller set last.
    Ours,
    /// The setting disappeared and came back with the kernel's own value, because the interface went down and up. The
    /// controller still owns it, and must set it again.
    Fresh,
    /// The setting does not exist now, because the interface is down.
    Away,
    /// Somebody else has set the setting. The controller gives it up.
    LetGo {
        /// The value that somebody else set.
        now: Value,
    },
    /// The device to which the setting belonged is gone. The controller gives the setting up.
    Gone,
}

impl Moved {
    /// Whether the setting has the wanted value.
    pub fn is_good(&self) -> bool {
        matches!(self, Self::AsWanted { .. })
    }

    /// Whether the controller still controls the setting and can move it again.
    pub fn is_held(&self) -> bool {
        !matches!(self, Self::LetGo { .. } | Self::Gone)
    }
}
