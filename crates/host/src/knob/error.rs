//! Errors when reading or changing a setting. Each message says what to do next.

use std::io;

use crate::nic;

/// A setting could not be read or changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// The process does not have permission.
    #[error("{what}: not permitted ({why})\nfix: {fix}")]
    NotPermitted {
        /// The operation that failed, with its value: "write 0 to /proc/sys/kernel/nmi_watchdog".
        what: String,
        /// The kernel's answer.
        why: String,
        /// What the user can do about it.
        fix: String,
    },
    /// The machine, the kernel or the driver has no such setting.
    #[error("{what}: not available here ({why})")]
    NotThere {
        /// The operation that failed.
        what: String,
        /// The evidence that the setting does not exist.
        why: String,
    },
    /// The setting is on a file system that is mounted read-only, or is a read-only file.
    #[error(
        "{what}: read-only\nfix: mount it writable (a container needs the host's /proc/sys and /sys), or apply on the host"
    )]
    ReadOnly {
        /// The operation that failed.
        what: String,
    },
    /// The kernel, the driver or the device rejects this value.
    #[error("{what}: refused ({why})\nfix: {fix}")]
    Refused {
        /// The operation that failed.
        what: String,
        /// The kernel's answer.
        why: String,
        /// What the user can do about it.
        fix: String,
    },
    /// The value is not allowed for the setting.
    #[error("{what}: {why}")]
    Invalid {
        /// The name of the setting.
        what: String,
        /// What is wrong with the value, and which values are allowed.
        why: String,
    },
    /// The value that was read does not have the format that the kernel documents.
    #[error("{what}: cannot parse {text:?}; expected {expected}")]
    Unreadable {
        /// The file or setting that was read.
        what: String,
        /// The string that was read, shortened.
        text: String,
        /// The documented format.
        expected: String,
    },
    /// A system operation failed, and no specific remedy is known.
    #[error("{what}: {why}")]
    System {
        /// The operation that failed.
        what: String,
        /// The system's error.
        why: String,
    },
}

impl Error {
    /// Converts a system error into an error of this type.
    pub(crate) fn of(what: impl Into<String>, error: &io::Error) -> Self {
        let what = what.into();
        let why = error.to_string();
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::NotPermitted { what, why, fix: permission().into() },
            Some(libc::EROFS) => Self::ReadOnly { what },
            Some(libc::ENOENT | libc::ENODEV | libc::ENXIO | libc::ENOTDIR | libc::ESRCH) => {
                Self::NotThere { what, why }
            }
            Some(libc::EOPNOTSUPP | libc::ENOSYS) => Self::Refused {
                what,
                why,
                fix: "remove this setting: the driver or the kernel does not support it".into(),
            },
            Some(libc::EINVAL | libc::ERANGE | libc::EDOM | libc::E2BIG) => Self::Refused {
                what,
                why,
                fix: "choose a value that the kernel documentation allows for this setting".into(),
            },
            Some(libc::EBUSY) => {
                Self::Refused { what, why, fix: "another setting or program holds it; see apus tune status".into() }
            }
            Some(libc::EIO | libc::ENOSPC | libc::EAGAIN) => Self::Refused {
                what,
                why,
                fix: "the device or the kernel cannot do this now; remove this setting".into(),
            },
            _ => Self::System { what, why },
        }
    }

    /// Converts the kernel's answer to a request about an interface into an error of this type. Keeps the kernel's
    /// explanation.
    pub(crate) fn nic(what: impl Into<String>, error: &nic::Error) -> Self {
        let number = if matches!(error, nic::Error::Unsupported(_)) { libc::EOPNOTSUPP } else { error.said().number };
        let mut meant = match (error, Self::of(what, &io::Error::from_raw_os_error(number))) {
            // A kernel that does not know the request cannot carry it out, whatever its settings.
            (nic::Error::UnknownToKernel { .. }, Self::NotThere { what, why } | Self::Refused { what, why, .. }) => {
                Self::Refused { what, why, fix: "use a newer kernel, or remove this setting".into() }
            }
            (_, meant) => meant,
        };
        if let Self::NotPermitted { why, .. }
        | Self::NotThere { why, .. }
        | Self::Refused { why, .. }
        | Self::System { why, .. } = &mut meant
        {
            *why = error.to_string();
        }
        meant
    }

    pub(crate) fn unreadable(what: impl Into<String>, text: &str, expected: impl Into<String>) -> Self {
        let mut short: String = text.chars().take(60).collect();
        if short.len() < text.len() {
            short.push('…');
        }
        Self::Unreadable { what: what.into(), text: short, expected: expected.into() }
    }

    pub(crate) fn invalid(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self::Invalid { what: what.into(), why: why.into() }
    }

    /// Whether the operation failed because this machine or process lacks something (exit status 3), rather than
    /// because the value is not allowed (exit status 2).
    pub fn lacks(&self) -> bool {
        !matches!(self, Self::Invalid { .. })
    }

    /// Whether the error means that the setting does not exist on this machine.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::NotThere { .. })
    }
}

/// What to do about a missing permission. The advice depends on whether the process already runs as root.
fn permission() -> &'static str {
    if rustix::process::geteuid().is_root() {
        "even root may not: the firmware, kernel lockdown, a security module or a missing capability forbids it; \
         remove this setting"
    } else {
        "run as root"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_numbers_get_their_meaning() {
        let of = |number| Error::of("write 1 to /x", &io::Error::from_raw_os_error(number));
        assert!(matches!(of(libc::EACCES), Error::NotPermitted { .. }));
        assert!(matches!(of(libc::EROFS), Error::ReadOnly { .. }));
        assert!(of(libc::ENODEV).is_absent());
        for number in [libc::EINVAL, libc::EOPNOTSUPP, libc::EBUSY, libc::EIO] {
            assert!(matches!(of(number), Error::Refused { .. }), "{number}");
        }
        assert!(matches!(of(libc::EMFILE), Error::System { .. }));
        assert!(of(libc::EROFS).to_string().contains("fix:"));
    }
}
