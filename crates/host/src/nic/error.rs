//! Reasons why the kernel or a driver did not carry out a request.

use std::fmt;
use std::io;

/// A failed request. Each variant calls for a different remedy.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// There is no such interface, queue or NAPI instance in the calling thread's network namespace (`ENODEV`, `ENXIO`,
    /// `ENOENT`).
    #[error("{0}")]
    NoDevice(Said),
    /// The process lacks a capability (`EPERM`, `EACCES`). Every change needs CAP_NET_ADMIN.
    #[error("{0}")]
    NotPermitted(Said),
    /// The driver does not support the request or one of its fields (`EOPNOTSUPP`; for a coalescing field, `EINVAL`).
    #[error("{0}")]
    Unsupported(Said),
    /// The kernel does not know the netlink family, the command or the attribute. A newer kernel may know it.
    #[error("this kernel does not know {what}: {said}")]
    UnknownToKernel {
        /// What is unknown, such as `command 19 of the netlink family ethtool`.
        what: String,
        /// The kernel's answer.
        said: Said,
    },
    /// The kernel or the driver rejects this value, or cannot apply it now (`EINVAL`, `ERANGE`, `EBUSY`, …).
    #[error("{0}")]
    Refused(Said),
    /// The system cannot carry out any request: it has no memory or file descriptors left, or a reply was truncated.
    #[error("{0}")]
    System(Said),
}

/// The kernel's answer: the error number, and the details of an extended acknowledgement (include/uapi/linux/netlink.h,
/// `enum nlmsgerr_attrs`).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Said {
    /// The error number.
    pub number: i32,
    /// The kernel's or the driver's explanation (`NLMSGERR_ATTR_MSG`).
    pub message: Option<String>,
    /// The field that the kernel rejects (`NLMSGERR_ATTR_OFFS`), named as in [`super::Field`].
    pub field: Option<String>,
    /// The required field that is missing (`NLMSGERR_ATTR_MISS_TYPE`).
    pub missing: Option<String>,
    /// The minimum and maximum value that the kernel accepts for the field (`NLMSGERR_ATTR_POLICY`).
    pub range: Option<(i128, i128)>,
}

/// Formats the answer, for example as `Numerical result out of range (os error 34): integer out of range: threaded, 0
/// to 1`.
impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        io::Error::from_raw_os_error(self.number).fmt(f)?;
        if let Some(message) = &self.message {
            write!(f, ": {message}")?;
        }
        if let Some(field) = &self.field {
            write!(f, ": {field}")?;
        }
        if let Some((least, most)) = self.range {
            write!(f, ", {least} to {most}")?;
        }
        if let Some(missing) = &self.missing {
            write!(f, ": {missing} is missing")?;
        }
        Ok(())
    }
}

impl Said {
    fn of(number: i32) -> Self {
        Self { number, ..Self::default() }
    }
}

/// The kernel's explanation if it does not know an attribute (lib/nlattr.c, `__nla_validate_parse`).
const UNKNOWN_ATTRIBUTE: &str = "Unknown attribute type";
/// The kernel's explanation if the driver does not support a coalescing field (net/ethtool/coalesce.c,
/// `ethnl_set_coalesce_validate`).
const UNSUPPORTED_FIELD: &str = "cannot modify an unsupported parameter";

impl Error {
    /// Chooses the variant that fits the kernel's answer.
    pub(super) fn of(said: Said) -> Self {
        match said.number {
            libc::ENODEV | libc::ENXIO | libc::ENOENT => Self::NoDevice(said),
            libc::EPERM | libc::EACCES => Self::NotPermitted(said),
            libc::EOPNOTSUPP => Self::Unsupported(said),
            libc::EINVAL if said.message.as_deref() == Some(UNSUPPORTED_FIELD) => Self::Unsupported(said),
            libc::EINVAL if said.message.as_deref() == Some(UNKNOWN_ATTRIBUTE) => {
                let what = said.field.clone().unwrap_or_else(|| "an attribute".into());
                Self::UnknownToKernel { what, said }
            }
            libc::EINVAL | libc::ERANGE | libc::EBUSY | libc::EIO | libc::ENOSPC | libc::EDOM | libc::E2BIG => {
                Self::Refused(said)
            }
            _ => Self::System(said),
        }
    }

    /// The error for a reply that contradicts the kernel's documentation.
    pub(super) fn torn(message: impl Into<String>) -> Self {
        Self::System(Said { message: Some(message.into()), ..Said::of(libc::EBADMSG) })
    }

    /// The error for a property that the driver does not report because it does not support it.
    pub(super) fn unsaid() -> Self {
        Self::Unsupported(Said::of(libc::EOPNOTSUPP))
    }

    pub(super) fn no_family(name: &str) -> Self {
        Self::UnknownToKernel { what: format!("the netlink family {name}"), said: Said::of(libc::ENOENT) }
    }

    pub(super) fn no_command(command: u8, family: &str) -> Self {
        let what = format!("command {command} of the netlink family {family}");
        Self::UnknownToKernel { what, said: Said::of(libc::EOPNOTSUPP) }
    }

    /// The error for a name or a number that no interface or queue can have, or for a field that does not fit into the
    /// request.
    pub(super) fn refused(message: impl Into<String>) -> Self {
        Self::Refused(Said { message: Some(message.into()), ..Said::of(libc::EINVAL) })
    }

    /// The kernel's answer.
    pub fn said(&self) -> &Said {
        match self {
            Self::NoDevice(said)
            | Self::NotPermitted(said)
            | Self::Unsupported(said)
            | Self::UnknownToKernel { said, .. }
            | Self::Refused(said)
            | Self::System(said) => said,
        }
    }

    /// Converts the error to an `io::Error` whose kind corresponds to the error number.
    pub(crate) fn as_io(&self) -> io::Error {
        let plain = io::Error::from_raw_os_error(self.said().number);
        if self.to_string() == plain.to_string() { plain } else { io::Error::new(plain.kind(), self.to_string()) }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(number) => Self::of(Said::of(number)),
            None => Self::torn(error.to_string()),
        }
    }
}

impl From<rustix::io::Errno> for Error {
    fn from(error: rustix::io::Errno) -> Self {
        Self::of(Said::of(error.raw_os_error()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_has_its_meaning() {
        let of = |number| Error::from(io::Error::from_raw_os_error(number));
        assert!(matches!(of(libc::ENODEV), Error::NoDevice(_)));
        assert!(matches!(of(libc::EPERM), Error::NotPermitted(_)));
        assert!(matches!(of(libc::EOPNOTSUPP), Error::Unsupported(_)));
        assert!(matches!(of(libc::ERANGE), Error::Refused(_)));
        assert!(matches!(of(libc::ENOMEM), Error::System(_)));
        let said = Said {
            message: Some(UNKNOWN_ATTRIBUTE.into()),
            field: Some("hds-thresh".into()),
            ..Said::of(libc::EINVAL)
        };
        let error = Error::of(said);
        assert!(error.to_string().starts_with("this kernel does not know hds-thresh: "), "{error}");
        assert_eq!(Error::no_family("netdev").as_io().kind(), io::ErrorKind::NotFound);
        assert_eq!(of(libc::EOPNOTSUPP).as_io().raw_os_error(), Some(libc::EOPNOTSUPP));
    }
}
