//! The functions of `apus.h`. Each function checks its pointers, and returns errors as codes.

use std::ffi::{CStr, c_char, c_int};

use units::Instant;

use crate::config::Settings;
use crate::decide::{Decider, kind_of};
use crate::error::{Code, fail, last};
use crate::handle::{Place, Table, guarded};
use crate::sys::{Memory, Uncancelled};
use crate::types::{APUS_ABI, APUS_MAX_QUEUES, Config, DecisionOut, Done, EndedIn, QueueIn, Wakes};
use crate::waiter::Waiter;

static POLICIES: Table<Decider> = Table::new();
static WAITERS: Table<Waiter> = Table::new();

/// Handle of a policy.
pub type PolicyHandle = *mut Place<Decider>;
/// Handle of a waiter.
pub type WaiterHandle = *mut Place<Waiter>;

fn returned(result: Result<c_int, Code>) -> c_int {
    result.unwrap_or_else(Code::returned)
}

fn null(what: &str) -> Code {
    fail(Code::Null, format_args!("{what} is NULL"))
}

/// # Safety
/// `queues` is NULL or points to `count` queues.
unsafe fn listed<'a>(queues: *const QueueIn, count: u32) -> Result<&'a [QueueIn], Code> {
    let count = count as usize;
    if count == 0 || count > APUS_MAX_QUEUES {
        return Err(fail(Code::Limit, format_args!("{count} queues: expected 1 to {APUS_MAX_QUEUES}")));
    }
    if queues.is_null() {
        return Err(null("queues"));
    }
    if !queues.is_aligned() {
        return Err(fail(Code::Observation, "queues is not aligned as an apus_queue"));
    }
    // SAFETY: as the caller promises; not NULL and aligned, as checked.
    Ok(unsafe { std::slice::from_raw_parts(queues, count) })
}

/// # Safety
/// `to` is NULL or points to a `T` that can be written.
unsafe fn write<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: as the caller promises. Its alignment is unknown.
        unsafe { to.write_unaligned(value) };
    }
}

/// The version of the library.
#[unsafe(no_mangle)]
pub extern "C" fn apus_version() -> *const c_char {
    const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => panic!("the version holds a zero"),
    };
    VERSION.as_ptr()
}

/// The ABI version: the number in the library's soname.
#[unsafe(no_mangle)]
pub extern "C" fn apus_abi() -> u32 {
    APUS_ABI
}

/// Returns a sentence that describes an error code.
#[unsafe(no_mangle)]
pub extern "C" fn apus_strerror(code: c_int) -> *const c_char {
    let text = match code {
        0.. => c"no error",
        _ => Code::of(code).map_or(c"not an error code of libapus", Code::text),
    };
    text.as_ptr()
}

/// Returns the message of the calling thread's last failed call.
#[unsafe(no_mangle)]
pub extern "C" fn apus_error() -> *const c_char {
    last()
}

macro_rules! c_names {
    ($of:ident: $($name:literal),* $(,)?) => {
        // The names are repeated here because C strings end in a zero; a test compares them with the originals.
        const $of: &[&CStr] = &[$($name),*];
    };
}
c_names!(KINDS: c"poll", c"pause", c"sleep", c"block");
c_names!(REASONS: c"fixed", c"traffic", c"periodic", c"budget", c"interrupt", c"idle", c"goal_too_tight", c"late", c"loss_bound");

/// Returns the name of a kind of wait, or NULL if the number is unknown.
#[unsafe(no_mangle)]
pub extern "C" fn apus_kind_name(kind: u32) -> *const c_char {
    KINDS.get(kind as usize).map_or(std::ptr::null(), |name| name.as_ptr())
}

/// Returns the name of a reason for a decision, or NULL if the number is unknown.
#[unsafe(no_mangle)]
pub extern "C" fn apus_reason_name(reason: u32) -> *const c_char {
    REASONS.get(reason as usize).map_or(std::ptr::null(), |name| name.as_ptr())
}

/// Reads the clock that waiters use: CLOCK_MONOTONIC in ns.
#[unsafe(no_mangle)]
pub extern "C" fn apus_now() -> u64 {
    live::os::monotonic().as_nanos()
}

/// Creates a policy.
///
/// # Safety
/// As `apus.h` says: `config` points to a configuration, `policy` to a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn apus_policy_new(config: *const Config, policy: *mut PolicyHandle) -> c_int {
    returned(guarded(|| {
        if policy.is_null() {
            return Err(null("policy"));
        }
        let _uncancelled = Uncancelled::new();
        // SAFETY: as the caller promises.
        unsafe { write(policy, std::ptr::null_mut()) };
        // SAFETY: as the caller promises.
        let settings = unsafe { Settings::read(config)? };
        if settings.shown.is_some() {
            let why = "config.name: a policy has no telemetry; use apus_waiter_new, or set it to NULL";
            return Err(fail(Code::Config, why));
        }
        let handle = POLICIES.insert(Decider::new(&settings))?;
        // SAFETY: as the caller promises.
        unsafe { write(policy, handle) };
        Ok(0)
    }))
}

/// Frees a policy.
#[unsafe(no_mangle)]
pub extern "C" fn apus_policy_free(policy: PolicyHandle) -> c_int {
    returned(guarded(|| POLICIES.remove(policy).map(|_| 0)))
}

/// Decides how to wait until the next poll.
///
/// # Safety
/// As `apus.h` says: `queues` points to `count` queues, `ended` to a wait or is NULL, `decision` to a decision.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn apus_decide(
    policy: PolicyHandle,
    now_ns: u64,
    queues: *const QueueIn,
    count: u32,
    ended: *const EndedIn,
    decision: *mut DecisionOut,
) -> c_int {
    returned(POLICIES.with(policy, |policy| {
        // SAFETY: as the caller promises.
        let queues = unsafe { listed(queues, count)? };
        if decision.is_null() {
            return Err(null("decision"));
        }
        // SAFETY: as the caller promises. Its alignment is unknown.
        let ended = (!ended.is_null()).then(|| unsafe { ended.read_unaligned() });
        let decided = policy.decide(now_ns, queues, ended.as_ref())?;
        // SAFETY: as the caller promises.
        unsafe { write(decision, decided) };
        Ok(0)
    }))
}

/// Creates a waiter.
///
/// # Safety
/// As `apus.h` says: `config` points to a configuration, `waiter` to a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn apus_waiter_new(config: *const Config, waiter: *mut WaiterHandle) -> c_int {
    returned(guarded(|| {
        if waiter.is_null() {
            return Err(null("waiter"));
        }
        let _uncancelled = Uncancelled::new();
        // SAFETY: as the caller promises.
        unsafe { write(waiter, std::ptr::null_mut()) };
        // SAFETY: as the caller promises.
        let settings = unsafe { Settings::read(config)? };
        let handle = WAITERS.insert(Waiter::new(settings)?)?;
        // SAFETY: as the caller promises.
        unsafe { write(waiter, handle) };
        Ok(0)
    }))
}

/// Frees a waiter.
#[unsafe(no_mangle)]
pub extern "C" fn apus_waiter_free(waiter: WaiterHandle) -> c_int {
    returned(guarded(|| {
        let _uncancelled = Uncancelled::new();
        WAITERS.remove(waiter).map(|_| 0)
    }))
}

/// Adds a file descriptor. A blocking wait ends when the descriptor becomes readable.
#[unsafe(no_mangle)]
pub extern "C" fn apus_watch(waiter: WaiterHandle, fd: c_int) -> c_int {
    returned(WAITERS.with(waiter, |waiter| waiter.watch(fd).map(|()| 0)))
}

/// Removes a watched file descriptor.
#[unsafe(no_mangle)]
pub extern "C" fn apus_unwatch(waiter: WaiterHandle, fd: c_int) -> c_int {
    returned(WAITERS.with(waiter, |waiter| waiter.unwatch(fd).map(|()| 0)))
}

/// Sets what can end a blocking wait.
#[unsafe(no_mangle)]
pub extern "C" fn apus_set_wakes(waiter: WaiterHandle, wakes: u32) -> c_int {
    returned(WAITERS.with(waiter, |waiter| {
        let known = Wakes::ALL.into_iter().find(|known| *known as u32 == wakes);
        let wakes = known.ok_or_else(|| fail(Code::Config, format_args!("{wakes} is none of APUS_WAKES_")))?;
        waiter.set_wakes(wakes).map(|()| 0)
    }))
}

/// Sets or removes the word in memory that ends a blocking wait when it changes.
///
/// # Safety
/// As `apus.h` says: `address` stays readable until it is replaced or the waiter is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn apus_watch_memory(waiter: WaiterHandle, address: *const u64, mask: u64, value: u64) -> c_int {
    returned(WAITERS.with(waiter, |waiter| {
        let memory = match address.is_null() {
            true => None,
            // SAFETY: as the caller promises.
            false => Some(unsafe { Memory::new(address, mask, value)? }),
        };
        waiter.watch_memory(memory).map(|()| 0)
    }))
}

/// Waits after a poll that returned `received` packets.
///
/// # Safety
/// As `apus.h` says: `done` is NULL or points to an `apus_done`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn apus_wait(waiter: WaiterHandle, received: u32, done: *mut Done) -> c_int {
    let queue = QueueIn { received, ..QueueIn::default() };
    // SAFETY: one queue, on the stack; `done` as the caller promises.
    unsafe { apus_wait_queues(waiter, &queue, 1, done) }
}

/// Waits after a poll of several queues.
///
/// # Safety
/// As `apus.h` says: `queues` points to `count` queues; `done` is NULL or points to an `apus_done`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn apus_wait_queues(
    waiter: WaiterHandle,
    queues: *const QueueIn,
    count: u32,
    done: *mut Done,
) -> c_int {
    returned(WAITERS.with(waiter, |waiter| {
        // SAFETY: as the caller promises.
        let queues = unsafe { listed(queues, count)? };
        let did = waiter.wait(queues)?;
        // SAFETY: as the caller promises.
        unsafe { write(done, did) };
        Ok(did.kind as c_int)
    }))
}

/// The first half of a wait: decides how to wait. The caller must then wait as decided, and call `apus_wait_end`.
///
/// # Safety
/// As `apus.h` says: `queues` points to `count` queues, `decision` to a decision.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn apus_wait_begin(
    waiter: WaiterHandle,
    queues: *const QueueIn,
    count: u32,
    decision: *mut DecisionOut,
) -> c_int {
    returned(WAITERS.with(waiter, |waiter| {
        // SAFETY: as the caller promises.
        let queues = unsafe { listed(queues, count)? };
        if decision.is_null() {
            return Err(null("decision"));
        }
        let decided = waiter.begin(queues)?;
        // SAFETY: as the caller promises.
        unsafe { write(decision, decided) };
        Ok(0)
    }))
}

/// The second half of a wait: records how the caller waited.
///
/// # Safety
/// As `apus.h` says: `done` is NULL or points to an `apus_done`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn apus_wait_end(waiter: WaiterHandle, kind: u32, until_ns: u64, done: *mut Done) -> c_int {
    returned(WAITERS.with(waiter, |waiter| {
        let kind = kind_of(kind).ok_or_else(|| {
            fail(Code::Observation, format_args!("kind {kind} is not APUS_POLL, APUS_PAUSE, APUS_SLEEP or APUS_BLOCK"))
        })?;
        let until = (until_ns != 0).then(|| Instant::from_nanos(until_ns));
        let did = waiter.end(kind, until, None)?;
        // SAFETY: as the caller promises.
        unsafe { write(done, did) };
        Ok(did.kind as c_int)
    }))
}

/// Increases the loop's counters in telemetry.
#[unsafe(no_mangle)]
pub extern "C" fn apus_count(
    waiter: WaiterHandle,
    rx_bytes: u64,
    tx_packets: u64,
    tx_bytes: u64,
    dropped: u64,
) -> c_int {
    returned(WAITERS.with(waiter, |waiter| waiter.add(rx_bytes, tx_packets, tx_bytes, dropped).map(|()| 0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::wait::{Reason, WaitKind};

    #[test]
    fn names_are_those_of_the_policy() {
        let names = |of: &[&CStr]| of.iter().map(|name| name.to_str().unwrap().to_owned()).collect::<Vec<_>>();
        assert_eq!(names(KINDS), WaitKind::ALL.map(|kind| kind.name()));
        assert_eq!(names(REASONS), Reason::ALL.map(|reason| reason.name()));
        assert!(apus_kind_name(4).is_null() && apus_reason_name(u32::MAX).is_null());
    }
}
