//! Mechanisms by which one thread wakes another: one side wakes, the other one waits. A wake that comes before the wait
//! is not lost.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, read, write};
use rustix::thread::futex;

use super::Via;
use crate::Error;

/// A mechanism by which one thread wakes another, in one direction.
#[derive(Debug)]
pub(crate) enum Way {
    /// The futex word. It holds the number of wakes not yet waited for.
    Futex(AtomicU32),
    Pipe {
        reader: OwnedFd,
        writer: OwnedFd,
    },
    Eventfd(OwnedFd),
}

impl Way {
    pub(crate) fn new(via: Via) -> Result<Self, Error> {
        Ok(match via {
            Via::Futex => Self::Futex(AtomicU32::new(0)),
            Via::Pipe => {
                let (reader, writer) = std::io::pipe().map_err(|e| Error::system("make a pipe", e))?;
                Self::Pipe { reader: reader.into(), writer: writer.into() }
            }
            Via::Eventfd => {
                Self::Eventfd(eventfd(0, EventfdFlags::CLOEXEC).map_err(|e| Error::system("make an eventfd", e))?)
            }
        })
    }

    /// Wakes the waiting thread, or the next thread that waits.
    #[inline]
    pub(crate) fn wake(&self) -> Result<(), Error> {
        let done = match self {
            Self::Futex(word) => {
                word.fetch_add(1, Ordering::Release);
                futex::wake(word, futex::Flags::PRIVATE, 1).map(|_| ())
            }
            Self::Pipe { writer, .. } => write(writer, &[1]).map(|_| ()),
            Self::Eventfd(fd) => write(fd, &1u64.to_ne_bytes()).map(|_| ()),
        };
        done.map_err(|e| Error::system("wake a thread", e))
    }

    /// Waits until there is a wake, and consumes it.
    #[inline]
    pub(crate) fn wait(&self) -> Result<(), Error> {
        loop {
            let done = match self {
                Self::Futex(word) => {
                    let taken = word.fetch_update(Ordering::Acquire, Ordering::Relaxed, |n| n.checked_sub(1));
                    match taken {
                        Ok(_) => return Ok(()),
                        // EAGAIN: the word changed before the kernel checked it.
                        Err(_) => match futex::wait(word, futex::Flags::PRIVATE, 0, None) {
                            Ok(()) | Err(Errno::AGAIN) => continue,
                            Err(error) => Err(error),
                        },
                    }
                }
                Self::Pipe { reader, .. } => read(reader, &mut [0; 1]).map(|_| ()),
                Self::Eventfd(fd) => read(fd, &mut [0; 8]).map(|_| ()),
            };
            match done {
                Err(Errno::INTR) => {}
                other => return other.map_err(|e| Error::system("wait for a thread", e)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_before_the_wait_is_not_lost() {
        for via in Via::ALL {
            let way = Way::new(via).unwrap();
            way.wake().unwrap();
            way.wait().unwrap();
        }
    }

    #[test]
    fn threads_take_turns() {
        for via in Via::ALL {
            let (there, back) = (Way::new(via).unwrap(), Way::new(via).unwrap());
            let turn = AtomicU32::new(0);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for n in 0..200 {
                        there.wait().unwrap();
                        assert_eq!(turn.swap(2 * n + 2, Ordering::SeqCst), 2 * n + 1, "{via}");
                        back.wake().unwrap();
                    }
                });
                for n in 0..200 {
                    assert_eq!(turn.swap(2 * n + 1, Ordering::SeqCst), 2 * n, "{via}");
                    there.wake().unwrap();
                    back.wait().unwrap();
                }
            });
        }
    }
}
