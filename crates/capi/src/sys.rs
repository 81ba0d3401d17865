//! Ways to wait that neither the crate `live` nor rustix offers: poll(2) on descriptors that the caller may already
//! have closed, and `umwait`. Also defers the cancellation of threads.

use std::ffi::c_int;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use live::cpu::Cpu;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
use units::{Instant, Monotonic, Nanos};

use crate::error::{Code, fail};
use crate::types::{APUS_MAX_QUEUES, QueueIn, Stamped, Woken};

/// A number that identifies the calling process; after fork(2), the child process gets another number. Unlike
/// getpid(2), this needs no system call: the number is in a memory page that the kernel clears in the child
/// (madvise(2), `MADV_WIPEONFORK`).
#[inline]
pub fn process() -> u32 {
    static PAGE: OnceLock<Option<Shared>> = OnceLock::new();
    let Some(page) = PAGE.get_or_init(Shared::wiped_on_fork) else { return std::process::id() };
    // SAFETY: `wiped_on_fork` mapped the page and never unmaps it; the access is atomic.
    let number = unsafe { page.0.as_ref() };
    match number.load(Ordering::Relaxed) {
        0 => {
            let id = std::process::id();
            number.store(id, Ordering::Relaxed);
            id
        }
        id => id,
    }
}

unsafe extern "C" {
    // The crate libc does not declare it for Linux.
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

/// Defers cancellation of the calling thread (pthread_cancel(3)) as long as this value exists. Functions of libc that
/// are cancellation points (pthreads(7)) are called only under it: otherwise the cancellation would unwind through Rust
/// code that catches panics, and glibc would then terminate the process.
#[derive(Debug)]
pub struct Uncancelled {
    before: c_int,
    /// The state belongs to the thread.
    this_thread: PhantomData<*const ()>,
}

impl Uncancelled {
    /// Defers cancellation from now on.
    pub fn new() -> Self {
        /// `PTHREAD_CANCEL_DISABLE` of glibc and musl.
        const DISABLE: c_int = 1;
        let mut before = 0;
        // SAFETY: `before` is valid during the call.
        unsafe { pthread_setcancelstate(DISABLE, &mut before) };
        Self { before, this_thread: PhantomData }
    }
}

impl Default for Uncancelled {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        // SAFETY: NULL is allowed: the previous state is not needed.
        unsafe { pthread_setcancelstate(self.before, std::ptr::null_mut()) };
    }
}

/// Reads the clock and waits only through libc. Unlike the functions of the crate `live`, this works under valgrind
/// (see `live::telemetry`).
#[derive(Clone, Copy, Debug, Default)]
pub struct LibcCpu;

impl LibcCpu {
    fn clock(id: libc::clockid_t) -> Option<u64> {
        let mut time = timespec(0);
        // SAFETY: `time` is valid during the call.
        let read = unsafe { libc::clock_gettime(id, &mut time) };
        (read == 0).then_some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }

    /// Converts the queue's time stamps from `CLOCK_REALTIME` to `CLOCK_MONOTONIC`, preserving the age of each packet.
    /// If the real-time clock was set after a packet was stamped, the converted stamp is wrong by the amount of the
    /// change.
    pub fn monotonic_stamps(mut queue: QueueIn) -> QueueIn {
        if queue.stamped == Stamped::Realtime as u32
            && let Some(real) = Self::clock(libc::CLOCK_REALTIME)
        {
            let now = live::os::monotonic().as_nanos();
            let converted = |stamp: u64| now.saturating_sub(real.saturating_sub(stamp));
            (queue.first_ns, queue.last_ns) = (converted(queue.first_ns), converted(queue.last_ns));
            queue.stamped = Stamped::Monotonic as u32;
        }
        queue
    }
}

impl Cpu for LibcCpu {
    #[inline]
    fn now(&self) -> Instant<Monotonic> {
        live::os::monotonic()
    }

    #[inline]
    fn thread_time(&self) -> Option<Nanos> {
        Self::clock(libc::CLOCK_THREAD_CPUTIME_ID).map(Nanos::from_nanos)
    }

    #[inline]
    fn pause_until(&mut self, until: Instant<Monotonic>) -> Instant<Monotonic> {
        loop {
            let now = self.now();
            if now >= until {
                return now;
            }
            // Read the clock only after several pauses, because reading it costs more than a pause.
            (0..4).for_each(|_| std::hint::spin_loop());
        }
    }

    #[inline]
    fn sleep_until(&mut self, until: Instant<Monotonic>) {
        let time = timespec(until.as_nanos());
        let _uncancelled = Uncancelled::new();
        // SAFETY: `time` is valid during the call, and the remaining time is not requested. If a signal ends the sleep
        // early, the loop polls and decides again.
        unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &time, std::ptr::null_mut()) };
    }

    fn block_until(&mut self, _: &[std::os::fd::BorrowedFd<'_>], until: Instant<Monotonic>) -> live::cpu::Woken {
        // Waiters block in `Watched::block`.
        self.sleep_until(until);
        live::cpu::Woken::ByTime
    }
}

fn timespec(nanos: u64) -> libc::timespec {
    libc::timespec { tv_sec: (nanos / 1_000_000_000) as libc::time_t, tv_nsec: (nanos % 1_000_000_000) as libc::c_long }
}

#[derive(Debug)]
struct Shared(NonNull<AtomicU32>);

// SAFETY: an atomic that is never unmapped.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// Maps a memory page that the kernel clears in child processes. `None` if the kernel does not support this (before
    /// 4.14).
    fn wiped_on_fork() -> Option<Self> {
        const SIZE: usize = 4096;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing.
        let page = unsafe { mmap_anonymous(std::ptr::null_mut(), SIZE, access, MapFlags::PRIVATE).ok()? };
        // SAFETY: this is exactly the mapping made above, which holds no data yet.
        unsafe { madvise(page, SIZE, Advice::LinuxWipeOnFork).ok()? };
        NonNull::new(page.cast()).map(Self)
    }
}

/// The file descriptors that a waiter watches.
#[derive(Debug)]
pub struct Watched {
    set: [libc::pollfd; APUS_MAX_QUEUES],
    count: usize,
}

impl Watched {
    /// Creates an empty set.
    pub const fn none() -> Self {
        Self { set: [libc::pollfd { fd: -1, events: libc::POLLIN, revents: 0 }; APUS_MAX_QUEUES], count: 0 }
    }

    /// Number of watched descriptors.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether no descriptor is watched.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds an open file descriptor.
    pub fn add(&mut self, fd: i32) -> Result<(), Code> {
        // SAFETY: F_GETFD takes a number and reads no memory.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
            return Err(fail(Code::System, format_args!("descriptor {fd} is not open")));
        }
        if self.set[..self.count].iter().any(|at| at.fd == fd) {
            return Err(fail(Code::Config, format_args!("descriptor {fd} is already watched")));
        }
        if self.count == APUS_MAX_QUEUES {
            return Err(fail(Code::Limit, format_args!("a waiter watches at most {APUS_MAX_QUEUES} descriptors")));
        }
        self.set[self.count].fd = fd;
        self.count += 1;
        Ok(())
    }

    /// Removes a file descriptor from the set.
    pub fn remove(&mut self, fd: i32) -> Result<(), Code> {
        let at = self.set[..self.count].iter().position(|at| at.fd == fd);
        let at = at.ok_or_else(|| fail(Code::Config, format_args!("descriptor {fd} is not watched")))?;
        self.count -= 1;
        self.set[at] = self.set[self.count];
        Ok(())
    }

    /// Blocks the thread until a descriptor is readable, a signal arrives, or `span` has passed.
    pub fn block(&mut self, span: Nanos) -> Woken {
        let time = timespec(span.as_nanos());
        let set = &mut self.set[..self.count];
        let uncancelled = Uncancelled::new();
        // SAFETY: `set` and `time` are valid during the call, and no signal mask is passed. The kernel reports a closed
        // descriptor and does not use it.
        let ready = unsafe { libc::ppoll(set.as_mut_ptr(), set.len() as libc::nfds_t, &time, std::ptr::null()) };
        drop(uncancelled);
        let failed = libc::POLLERR | libc::POLLHUP | libc::POLLNVAL;
        match ready {
            0 => Woken::ByTime,
            1.. if set.iter().any(|at| at.revents & failed != 0) => Woken::ByError,
            1.. => Woken::ByDevice,
            _ if std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted => Woken::ByTime,
            _ => Woken::ByError,
        }
    }
}

/// A word in memory that a device or another thread writes. A change to this word ends a wait.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    address: *const AtomicU64,
    mask: u64,
    value: u64,
}

// SAFETY: the word is only read, atomically, and the caller who passed its address keeps it valid for all threads.
unsafe impl Send for Memory {}

impl Memory {
    /// Watches the word at `address`. A wait ends when `(*address & mask) != value`.
    ///
    /// # Safety
    /// `address` must stay readable while the waiter uses it.
    pub unsafe fn new(address: *const u64, mask: u64, value: u64) -> Result<Self, Code> {
        if !address.is_aligned() {
            return Err(fail(Code::Config, "the watched memory is not aligned to 8 bytes"));
        }
        Ok(Self { address: address.cast(), mask, value })
    }

    fn changed(&self) -> bool {
        // SAFETY: the address is readable, as the caller of `new` promised, and aligned, as `new` checked. A device may
        // write it.
        let word = unsafe { &*self.address }.load(Ordering::Acquire);
        word & self.mask != self.value
    }
}

/// The instructions umonitor, umwait and tpause (Intel SDM volume 2, "WAITPKG"), on CPUs that support them and report
/// the frequency of their time stamp counter. None of the project's test machines supports them, so this code has only
/// been reviewed, never run.
#[derive(Clone, Copy, Debug)]
pub struct Waitpkg {
    /// Frequency of the time stamp counter, in Hz.
    hertz: u64,
}

impl Waitpkg {
    /// Checks whether this CPU has the instructions. `None` if it lacks them, or if it does not report the frequency of
    /// its time stamp counter (CPUID leaf 15h).
    #[cfg(target_arch = "x86_64")]
    pub fn here() -> Option<Self> {
        use std::arch::x86_64::{__cpuid, __cpuid_count};
        let most = __cpuid(0).eax;
        // Intel SDM volume 2, CPUID: leaf 07h, ECX bit 5.
        if most < 0x15 || __cpuid_count(7, 0).ecx & (1 << 5) == 0 {
            return None;
        }
        // TSC = crystal (ECX) * numerator (EBX) / denominator (EAX).
        let leaf = __cpuid(0x15);
        let hertz = (u64::from(leaf.ecx) * u64::from(leaf.ebx)).checked_div(u64::from(leaf.eax))?;
        (hertz > 0).then_some(Self { hertz })
    }

    /// Always `None`: only x86-64 CPUs have these instructions.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn here() -> Option<Self> {
        None
    }

    /// Keeps the core in the light sleep state C0.2 until `until`, or until `memory` changes. Returns what ended the
    /// wait, and when.
    #[cfg(target_arch = "x86_64")]
    pub fn rest(
        self,
        memory: Option<&Memory>,
        until: Instant<Monotonic>,
        now: impl Fn() -> Instant<Monotonic>,
    ) -> (Woken, Instant<Monotonic>) {
        use std::arch::asm;
        /// State C0.2, which uses less power than C0.1 but takes longer to leave.
        const C0_2: u32 = 0;
        loop {
            let at = now();
            let Some(left) = until.since(at).filter(|left| *left > Nanos::ZERO) else { return (Woken::ByTime, at) };
            let ticks = (u128::from(left.as_nanos()) * u128::from(self.hertz) / 1_000_000_000) as u64;
            // SAFETY: rdtsc reads a counter.
            let end = unsafe { std::arch::x86_64::_rdtsc() }.saturating_add(ticks);
            let (low, high) = (end as u32, (end >> 32) as u32);
            match memory {
                None => {
                    // SAFETY: `here` found the instruction. It changes only flags, and ends at `end` at the latest.
                    unsafe { asm!("tpause {0:e}", in(reg) C0_2, in("eax") low, in("edx") high, options(nostack)) };
                }
                Some(memory) => {
                    // SAFETY: `here` found the instruction; the address is readable.
                    unsafe { asm!("umonitor {0}", in(reg) memory.address, options(nostack, readonly)) };
                    // A write before the monitor was armed does not end the wait, so check the word again.
                    if memory.changed() {
                        return (Woken::ByDevice, now());
                    }
                    // SAFETY: as for tpause.
                    unsafe { asm!("umwait {0:e}", in(reg) C0_2, in("eax") low, in("edx") high, options(nostack)) };
                    if memory.changed() {
                        return (Woken::ByDevice, now());
                    }
                }
            }
        }
    }

    /// Never called, because no value of this type exists on CPUs other than x86-64.
    #[cfg(not(target_arch = "x86_64"))]
    pub fn rest(
        self,
        memory: Option<&Memory>,
        until: Instant<Monotonic>,
        now: impl Fn() -> Instant<Monotonic>,
    ) -> (Woken, Instant<Monotonic>) {
        loop {
            let at = now();
            if at >= until {
                return (Woken::ByTime, at);
            }
            if memory.is_some_and(Memory::changed) {
                return (Woken::ByDevice, at);
            }
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::os::fd::AsRawFd as _;
    use std::os::unix::net::UnixStream;

    #[test]
    fn descriptors_are_checked_and_end_a_block() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let mut watched = Watched::none();
        assert_eq!(watched.add(-1), Err(Code::System));
        assert_eq!(watched.add(near.as_raw_fd()), Ok(()));
        assert_eq!(watched.add(near.as_raw_fd()), Err(Code::Config));
        assert_eq!(watched.remove(far.as_raw_fd()), Err(Code::Config));
        assert_eq!(watched.block(Nanos::from_micros(50)), Woken::ByTime);
        far.write_all(b"x").unwrap();
        assert_eq!(watched.block(Nanos::from_secs(60)), Woken::ByDevice);
        drop(far);
        assert_eq!(watched.block(Nanos::from_secs(60)), Woken::ByError, "hung up");
        assert_eq!(watched.remove(near.as_raw_fd()), Ok(()));
        assert!(watched.is_empty());
    }

    #[test]
    fn the_cpus_answer_is_that_of_the_kernel() {
        let flags = std::fs::read_to_string("/proc/cpuinfo").unwrap();
        let has = flags.split_ascii_whitespace().any(|flag| flag == "waitpkg");
        // A CPU may have the instructions but not report the frequency of its time stamp counter.
        assert!(has || Waitpkg::here().is_none());
    }
}
