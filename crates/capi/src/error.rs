//! Error codes, and the text of each thread's last error.

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_int};
use std::fmt::{self, Write as _};

units::named! {
    /// Why a call failed.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[repr(i32)]
    pub enum Code {
        /// A pointer that must not be NULL is NULL.
        Null = "null",
        /// The argument is not a valid handle, or the handle was freed.
        Handle = "handle",
        /// Another call is using the handle right now.
        Busy = "busy",
        /// The waiter belongs to another thread or process.
        Thread = "thread",
        /// The configuration's `size` is wrong, or fields that this library lacks are set.
        Size = "size",
        /// A value in the configuration is wrong.
        Config = "config",
        /// The platform profile cannot be read or used.
        Profile = "profile",
        /// The reported observations contradict each other, or a value is out of range.
        Observation = "observation",
        /// Time went backwards, or is out of range.
        Time = "time",
        /// `apus_wait_begin` and `apus_wait_end` were not called in turn.
        Order = "order",
        /// The maximum number of handles, descriptors or queues is reached.
        Limit = "limit",
        /// This CPU or kernel does not support the requested feature.
        Unsupported = "unsupported",
        /// A system call failed.
        System = "system",
        /// A bug in libapus.
        Internal = "internal",
    }
}

impl Code {
    /// The negative number that functions return for this error.
    pub const fn returned(self) -> c_int {
        -1 - (self as c_int)
    }

    /// A sentence that describes the error, for `apus_strerror`.
    pub const fn text(self) -> &'static CStr {
        match self {
            Self::Null => c"a pointer that must not be NULL is NULL",
            Self::Handle => c"the handle was freed, or is not a handle of this library",
            Self::Busy => c"another call is using the handle: use one handle per thread",
            Self::Thread => c"the waiter belongs to another thread or process: create one in each",
            Self::Size => {
                c"config.size does not fit this library: set it to sizeof(apus_config), and the other fields to 0"
            }
            Self::Config => c"a value in the configuration is invalid: apus_error() says which",
            Self::Profile => c"the platform profile cannot be used: apus_error() says why",
            Self::Observation => c"the observation contradicts itself or is out of range: apus_error() says where",
            Self::Time => c"a time went backwards or is out of range: use nanoseconds of one monotonic clock",
            Self::Order => c"apus_wait_begin and apus_wait_end must be called in turn",
            Self::Limit => c"the maximum number of handles, descriptors or queues is reached",
            Self::Unsupported => c"this CPU or kernel does not support the request",
            Self::System => c"a system call failed: apus_error() says which",
            Self::Internal => c"a bug in libapus: free the handle, and report the bug",
        }
    }

    /// The error code for a function's return value. `None` if the value does not stand for an error.
    pub fn of(returned: c_int) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.returned() == returned)
    }
}

/// Maximum size of an error message in bytes, including the terminating zero.
const ROOM: usize = 512;

/// A message in fixed memory, so that a failing call allocates nothing. Longer messages are truncated.
struct Text {
    bytes: [u8; ROOM],
    len: usize,
}

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // A zero byte would end the text, and a message has one line.
        for byte in text.bytes().map(|byte| if byte < b' ' { b' ' } else { byte }) {
            if self.len == ROOM - 1 {
                return Err(fmt::Error);
            }
            self.bytes[self.len] = byte;
            self.len += 1;
        }
        Ok(())
    }
}

thread_local! {
    static LAST: RefCell<Text> = const { RefCell::new(Text { bytes: [0; ROOM], len: 0 }) };
}

/// Stores the message of a failed call for the calling thread, and returns the code.
pub fn fail(code: Code, text: impl fmt::Display) -> Code {
    LAST.with(|last| {
        // The message is already borrowed if `Display` itself failed with an error. The first message is kept.
        let Ok(mut last) = last.try_borrow_mut() else { return };
        last.len = 0;
        let _ = write!(last, "{text}");
        while last.len > 0 && std::str::from_utf8(&last.bytes[..last.len]).is_err() {
            last.len -= 1;
        }
        let end = last.len;
        last.bytes[end] = 0;
    });
    code
}

/// The message of the calling thread's last failed call. Empty if no call has failed yet.
pub fn last() -> *const c_char {
    LAST.with(|last| last.try_borrow().map_or(c"".as_ptr(), |last| last.bytes.as_ptr().cast()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown() -> String {
        LAST.with(|last| {
            let last = last.borrow();
            CStr::from_bytes_until_nul(&last.bytes).unwrap().to_str().unwrap().to_owned()
        })
    }

    #[test]
    fn every_code_has_its_number_and_a_text() {
        for code in Code::ALL {
            assert!(code.returned() < 0 && !code.text().is_empty());
            assert_eq!(Code::of(code.returned()), Some(code));
        }
        assert_eq!((Code::of(0), Code::of(1), Code::of(-1_000)), (None, None, None));
    }

    #[test]
    fn a_long_text_is_cut_at_a_character_and_a_zero_ends_nothing() {
        fail(Code::Config, "ä".repeat(1_000));
        assert_eq!(shown(), "ä".repeat((ROOM - 1) / 2));
        fail(Code::Config, "a\0b\nc");
        assert_eq!(shown(), "a b c");
    }
}
