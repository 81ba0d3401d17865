//! What each misuse returns, and that nothing is allocated where the header says so.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::ptr;

use capi::error::Code;
use capi::ffi::*;
use capi::types::*;
use policy::wait::WaitKind;

/// Counts the allocations of each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|n| n.set(n.get() + 1));
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

pub fn waiter(config: &Config) -> Result<WaiterHandle, Code> {
    let mut waiter = ptr::null_mut();
    // SAFETY: both point to what they should.
    match unsafe { apus_waiter_new(config, &mut waiter) } {
        0 => Ok(waiter),
        code => Err(Code::of(code).unwrap()),
    }
}

fn policy(config: &Config) -> Result<PolicyHandle, Code> {
    let mut policy = ptr::null_mut();
    // SAFETY: both point to what they should.
    match unsafe { apus_policy_new(config, &mut policy) } {
        0 => Ok(policy),
        code => Err(Code::of(code).unwrap()),
    }
}

pub fn wait(waiter: WaiterHandle, received: u32) -> Result<Done, Code> {
    let mut done = Done::default();
    // SAFETY: `done` is one.
    match unsafe { apus_wait(waiter, received, &mut done) } {
        kind @ 0.. => {
            assert_eq!(kind as u32, done.kind);
            Ok(done)
        }
        code => Err(Code::of(code).unwrap()),
    }
}

fn decide(policy: PolicyHandle, now: u64, queue: &QueueIn, ended: Option<&EndedIn>) -> Result<DecisionOut, Code> {
    let mut out = DecisionOut::default();
    // SAFETY: one queue; a wait or none.
    match unsafe { apus_decide(policy, now, queue, 1, ended.map_or(ptr::null(), ptr::from_ref), &mut out) } {
        0 => Ok(out),
        code => Err(Code::of(code).unwrap()),
    }
}

pub fn error() -> String {
    // SAFETY: a text that ends with a zero.
    unsafe { CStr::from_ptr(apus_error()) }.to_str().unwrap().to_owned()
}

#[test]
fn a_wrong_configuration_is_refused_with_the_field() {
    type Change<'a> = &'a dyn Fn(&mut Config);
    let cases: &[(Code, &str, Change<'_>)] = &[
        (Code::Size, "config.size is 8", &|c| c.size = 8),
        (Code::Size, "config.size", &|c| c.size = usize::MAX),
        (Code::Config, "config.mode \"pol\": expected poll", &|c| c.mode = c"pol".as_ptr()),
        (Code::Config, "config.goal \"50us\": expected a goal", &|c| c.goal = c"50us".as_ptr()),
        (Code::Config, "has no goal", &|c| (c.mode, c.goal) = (c"poll".as_ptr(), c"p99=50us".as_ptr())),
        (Code::Config, "one of the two", &|c| (c.mode, c.goal) = (c"adaptive=p99=9us".as_ptr(), c"p99=50us".as_ptr())),
        (Code::Config, "config.peak_pps", &|c| c.ring_descriptors = 512),
        (Code::Config, "config.wakes", &|c| c.wakes = 3),
        (Code::Config, "config.flags", &|c| c.flags = 2),
        (Code::Config, "config.longest_block_ns", &|c| c.longest_block_ns = u64::MAX),
        (Code::Config, "config.mode is not UTF-8", &|c| c.mode = c"\xff".as_ptr()),
        (Code::Config, "config.name", &|c| c.port = c"eth0".as_ptr()),
        (Code::Config, "config.name \"a/b\"", &|c| c.name = c"a/b".as_ptr()),
        (Code::Config, "config.telemetry_root: it is empty", &|c| {
            (c.name, c.telemetry_root) = (c"a".as_ptr(), c"".as_ptr());
        }),
        (Code::System, "cannot create telemetry /dev/null/a/worker-0", &|c| {
            (c.name, c.telemetry_root) = (c"a".as_ptr(), c"/dev/null".as_ptr());
        }),
        (Code::Profile, "it is no profile", &|c| c.profile = c"[]".as_ptr()),
        (Code::Profile, "/nowhere", &|c| c.profile_path = c"/nowhere".as_ptr()),
        (Code::Profile, "not a regular file", &|c| c.profile_path = c"/dev/zero".as_ptr()),
        (Code::Config, "only one of them", &|c| (c.profile, c.profile_path) = (c"{}".as_ptr(), c"/x".as_ptr())),
    ];
    for (code, why, change) in cases {
        let mut config = Config::default();
        change(&mut config);
        assert_eq!(waiter(&config), Err(*code), "{why}");
        assert!(error().contains(why), "{}", error());
        // The words of the command line.
        assert!(
            !error().contains("--telemetry") && !error().contains('\n') && !error().contains("fix:"),
            "{}",
            error()
        );
    }
    // SAFETY: NULL is refused.
    unsafe {
        assert_eq!(apus_waiter_new(ptr::null(), &mut ptr::null_mut()), Code::Null.returned());
        assert_eq!(apus_waiter_new(&Config::default(), ptr::null_mut()), Code::Null.returned());
    }
    assert_eq!(policy(&Config { name: c"a".as_ptr(), ..Config::default() }), Err(Code::Config));
}

/// Regression test: creating a waiter once waited for ever for somebody to write to the FIFO.
#[test]
fn a_profile_that_is_no_file_or_too_long_is_refused() {
    let to = super::scratch("profiles");
    let (fifo, long) = (to.join("fifo"), to.join("long"));
    super::run(std::process::Command::new("mkfifo").arg(&fifo));
    std::fs::File::create(&long).unwrap().set_len((16 << 20) + 1).unwrap();
    for (path, why) in [(fifo, "not a regular file"), (long, "more than 16777216 bytes")] {
        let path = CString::new(path.to_str().unwrap()).unwrap();
        assert_eq!(waiter(&Config { profile_path: path.as_ptr(), ..Config::default() }), Err(Code::Profile));
        assert!(error().contains(why), "{}", error());
    }
}

#[test]
fn a_newer_callers_configuration_is_taken_unless_it_says_more() {
    #[repr(C)]
    struct Newer(Config, u64);
    let mut newer = Newer(Config { size: size_of::<Newer>(), ..Config::default() }, 0);
    let mut made = ptr::null_mut();
    // SAFETY: `size` bytes can be read.
    assert_eq!(unsafe { apus_waiter_new(ptr::from_ref(&newer).cast(), &mut made) }, 0);
    assert_eq!(apus_waiter_free(made), 0);
    newer.1 = 1;
    // SAFETY: as above.
    assert_eq!(unsafe { apus_waiter_new(ptr::from_ref(&newer).cast(), &mut made) }, Code::Size.returned());
    assert!(made.is_null() && error().contains("older library"), "{}", error());
}

#[test]
fn handles_are_checked() {
    let made = waiter(&Config::default()).unwrap();
    assert_eq!(wait(ptr::null_mut(), 0), Err(Code::Null));
    assert_eq!(wait(made.wrapping_byte_add(1), 0), Err(Code::Handle));
    let low = policy(&Config::default()).unwrap();
    assert_eq!(wait(low.cast(), 0), Err(Code::Handle), "a policy is no waiter");
    assert_eq!((apus_policy_free(low), apus_policy_free(low)), (0, Code::Handle.returned()));
    assert_eq!((apus_waiter_free(made), apus_waiter_free(made)), (0, Code::Handle.returned()));
    assert_eq!(wait(made, 0), Err(Code::Handle));
    assert!(error().contains("freed"));
}

#[test]
fn another_thread_is_refused_and_may_free() {
    let made = waiter(&Config::default()).unwrap().expose_provenance();
    let at = move || ptr::with_exposed_provenance_mut(made);
    let first = std::thread::spawn(move || wait(at(), 0).map(|_| ())).join().unwrap();
    assert_eq!(first, Ok(()), "made in one thread, used in another");
    assert_eq!(wait(at(), 0), Err(Code::Thread));
    assert_eq!(apus_watch(at(), 0), Code::Thread.returned());
    assert_eq!(apus_waiter_free(at()), 0);
}

#[test]
fn a_child_is_refused_and_leaves_the_parents_telemetry() {
    let root = super::scratch("fork");
    let root_c = CString::new(root.to_str().unwrap()).unwrap();
    let config = Config { name: c"forks".as_ptr(), telemetry_root: root_c.as_ptr(), ..Config::default() };
    let made = waiter(&config).unwrap();
    wait(made, 0).unwrap();
    // SAFETY: the child calls nothing that another thread of the parent could have locked, and ends at once.
    match unsafe { libc::fork() } {
        0 => {
            let refused = wait(made, 0) == Err(Code::Thread);
            let freed = apus_waiter_free(made) == 0;
            // SAFETY: ends the child without the parent's handlers.
            unsafe { libc::_exit(i32::from(!(refused && freed))) };
        }
        child => {
            let mut status = -1;
            // SAFETY: `status` is one.
            unsafe { libc::waitpid(child, &mut status, 0) };
            assert_eq!(status, 0);
        }
    }
    assert!(root.join("forks/worker-0").exists());
    wait(made, 0).unwrap();
    assert_eq!(apus_waiter_free(made), 0);
    assert!(!root.join("forks").exists());
}

#[test]
fn time_that_goes_backwards_changes_nothing() {
    let low = policy(&Config { goal: c"p99=50us".as_ptr(), ..Config::default() }).unwrap();
    let came = |first_ns, picked_up_ns| QueueIn {
        first_ns,
        last_ns: first_ns,
        picked_up_ns,
        received: 1,
        ..QueueIn::default()
    };
    assert!(decide(low, 1_000_000, &came(990_000, 999_000), None).is_ok());
    let before = decide(low, 1_000_100, &QueueIn::default(), None).unwrap();
    let stamped = QueueIn { stamped: 1, ..came(1_000_050, 1_000_060) };
    let ended = EndedIn {
        began_ns: 1_000_100,
        ended_ns: 1_000_100,
        until_ns: 1_000_100,
        spent_ns: APUS_UNKNOWN,
        idle_ns: 0,
        kind: 2,
        reserved: 0,
    };
    for (code, now, queue, ended) in [
        (Code::Time, 999_999, QueueIn::default(), None),
        (Code::Time, u64::MAX, QueueIn::default(), None),
        (Code::Time, 1_000_100, came(1_000_050, 1_000_101), None),
        (Code::Time, 1_000_100, came(1_000_090, 1_000_080), None),
        (Code::Observation, 1_000_100, QueueIn { last_ns: 7, ..stamped }, None),
        (Code::Observation, 1_000_100, QueueIn { stamped: 2, ..stamped }, None),
        (Code::Observation, 1_000_100, QueueIn { received: 5, fill: 4, ..stamped }, None),
        (Code::Time, 1_000_100, QueueIn::default(), Some(EndedIn { ended_ns: 1_000_101, ..ended })),
        (Code::Time, 1_000_100, QueueIn::default(), Some(EndedIn { began_ns: 1_000_101, ..ended })),
        (Code::Observation, 1_000_100, QueueIn::default(), Some(EndedIn { kind: 0, ..ended })),
        (Code::Observation, 1_000_100, QueueIn::default(), Some(EndedIn { until_ns: APUS_NEVER, ..ended })),
        (Code::Observation, 1_000_100, QueueIn::default(), Some(EndedIn { spent_ns: 1, idle_ns: 2, ..ended })),
    ] {
        assert_eq!(decide(low, now, &queue, ended.as_ref()), Err(code), "{queue:?} {ended:?}");
        assert!(!error().is_empty());
    }
    assert_eq!(decide(low, 1_000_100, &QueueIn::default(), None), Ok(before));
    assert_eq!(apus_policy_free(low), 0);
}

#[test]
fn the_low_level_allocates_nothing_even_in_errors() {
    let low = policy(&Config { goal: c"p99=50us".as_ptr(), ..Config::default() }).unwrap();
    let before = ALLOCATIONS.with(Cell::get);
    let mut ended = None;
    for i in 0..10_000u64 {
        let now = 1_000_000 + i * 60_000;
        let queue = match i % 3 {
            0 => QueueIn { first_ns: now - 60_000, picked_up_ns: now, received: 2, ..QueueIn::default() },
            _ => QueueIn::default(),
        };
        let decision = decide(low, now, &queue, ended.as_ref()).unwrap();
        ended = (decision.kind != 0).then_some(EndedIn {
            began_ns: now,
            ended_ns: now + 60_000,
            until_ns: decision.until_ns,
            spent_ns: 5_000,
            idle_ns: 0,
            kind: decision.kind,
            reserved: 0,
        });
        assert_eq!(decide(low, 7, &queue, None), Err(Code::Time));
    }
    assert_eq!(ALLOCATIONS.with(Cell::get) - before, 0);
    apus_policy_free(low);
}

#[test]
fn waits_allocate_nothing_and_halves_come_in_turn() {
    let config = Config { goal: c"p99=30us".as_ptr(), longest_block_ns: 50_000, ..Config::default() };
    let made = waiter(&config).unwrap();
    let (near, _far) = UnixStream::pair().unwrap();
    assert_eq!(apus_watch(made, near.as_raw_fd()), 0);
    wait(made, 0).unwrap();
    let before = ALLOCATIONS.with(Cell::get);
    for i in 0..500 {
        wait(made, u32::from(i % 3 == 0)).unwrap();
    }
    assert_eq!(ALLOCATIONS.with(Cell::get) - before, 0);
    let (queue, mut decision, mut done) = (QueueIn::default(), DecisionOut::default(), Done::default());
    // SAFETY: one queue, and places for the results.
    unsafe {
        assert_eq!(apus_wait_end(made, 0, 0, &mut done), Code::Order.returned());
        assert_eq!(apus_wait_begin(made, &queue, 1, &mut decision), 0);
        assert_eq!(apus_wait_begin(made, &queue, 1, &mut decision), Code::Order.returned());
        assert_eq!(wait(made, 0), Err(Code::Order));
        assert!(error().contains("a wait is open: call apus_wait_end first"), "{}", error());
        // What ends a wait does not change during it.
        assert_eq!(apus_unwatch(made, near.as_raw_fd()), Code::Order.returned());
        assert_eq!(apus_watch(made, 0), Code::Order.returned());
        assert_eq!(apus_watch_memory(made, ptr::null(), 0, 0), Code::Order.returned());
        // Another thread is told that it is another thread, not that the order is wrong.
        let at = made.expose_provenance();
        let other = move || wait(ptr::with_exposed_provenance_mut(at), 0);
        assert_eq!(std::thread::spawn(other).join().unwrap(), Err(Code::Thread));
        assert_eq!(apus_wait_end(made, 4, 0, &mut done), Code::Observation.returned());
        assert_eq!(apus_wait_end(made, 2, apus_now(), &mut done), 2);
        assert_eq!(apus_wait_queues(made, &queue, 33, &mut done), Code::Limit.returned());
        assert_eq!(apus_wait_queues(made, &queue, 0, &mut done), Code::Limit.returned());
        assert_eq!(apus_wait_queues(made, ptr::null(), 1, &mut done), Code::Null.returned());
    }
    apus_waiter_free(made);
}

#[test]
fn a_readable_descriptor_ends_a_block_and_is_never_missed() {
    let config = Config { mode: c"interrupt".as_ptr(), longest_block_ns: 60_000_000_000, ..Config::default() };
    let made = waiter(&config).unwrap();
    let (near, mut far) = UnixStream::pair().unwrap();
    assert_eq!(apus_watch(made, near.as_raw_fd()), 0);
    far.write_all(b"x").unwrap();
    // It became readable before the wait: no block of a minute.
    let done = wait(made, 0).unwrap();
    assert_eq!((done.kind, done.woken), (3, Woken::ByDevice as u32));
    drop(near);
    let done = wait(made, 0).unwrap();
    assert_eq!(done.woken, Woken::ByError as u32, "closed under its hands");
    apus_waiter_free(made);
}

/// Some callers learn only after making a waiter whether their device has interrupts.
#[test]
fn what_ends_a_block_can_be_set_later() {
    let made = waiter(&Config { wakes: Wakes::Nothing as u32, ..Config::default() }).unwrap();
    let (queue, mut decision) = (QueueIn::default(), DecisionOut::default());
    let mut kind = || {
        // SAFETY: one queue, a place for the decision, and no place for what was done.
        unsafe {
            assert_eq!(apus_wait_begin(made, &queue, 1, &mut decision), 0);
            assert_eq!(apus_set_wakes(made, Wakes::Caller as u32), Code::Order.returned());
            assert_eq!(apus_wait_end(made, 0, 0, ptr::null_mut()), 0);
        }
        WaitKind::ALL[decision.kind as usize]
    };
    assert_ne!(kind(), WaitKind::Block);
    assert_eq!(apus_set_wakes(made, Wakes::Caller as u32), 0);
    assert_eq!(kind(), WaitKind::Block, "idle, and a packet can end it");
    assert_eq!(apus_set_wakes(made, Wakes::Nothing as u32), 0);
    assert_ne!(kind(), WaitKind::Block);
    assert_eq!(apus_set_wakes(made, 3), Code::Config.returned());
    assert_eq!(
        std::thread::spawn({
            let at = made as usize;
            move || apus_set_wakes(at as WaiterHandle, 0)
        })
        .join()
        .unwrap(),
        Code::Thread.returned()
    );
    apus_waiter_free(made);
}

/// Regression test: packets that the caller took before the last poll were once refused as APUS_E_TIME.
#[test]
fn packets_may_have_been_taken_before_the_last_poll() {
    let made = waiter(&Config { wakes: Wakes::Nothing as u32, ..Config::default() }).unwrap();
    let picked_up_ns = apus_now();
    (0..3).for_each(|_| _ = wait(made, 0).unwrap());
    let queue = QueueIn { received: 1, picked_up_ns, ..QueueIn::default() };
    // SAFETY: one queue, which lives through the call.
    assert!(unsafe { apus_wait_queues(made, &queue, 1, ptr::null_mut()) } >= 0, "{}", error());
    apus_waiter_free(made);
}

#[test]
fn memory_is_watched_where_the_cpu_can() {
    let made = waiter(&Config { mode: c"interrupt".as_ptr(), ..Config::default() }).unwrap();
    let word = 5u64;
    // SAFETY: the word outlives the waiter.
    let said = unsafe { apus_watch_memory(made, &word, u64::MAX, 5) };
    match capi::sys::Waitpkg::here() {
        None => {
            assert_eq!(said, Code::Unsupported.returned());
            assert!(error().contains("waitpkg"));
        }
        Some(_) => assert_eq!(wait(made, 0).unwrap().woken, Woken::ByTime as u32),
    }
    apus_waiter_free(made);
}

#[test]
fn a_profile_that_a_probe_wrote_is_taken_as_text_and_as_a_file() {
    let path = super::folder().join("../cli/tests/it/data/apus.probe.1.json");
    let text = CString::new(std::fs::read(&path).unwrap()).unwrap();
    let path = CString::new(path.to_str().unwrap()).unwrap();
    let none = Config::default();
    for config in [Config { profile: text.as_ptr(), ..none }, Config { profile_path: path.as_ptr(), ..none }] {
        let made = waiter(&config).unwrap_or_else(|code| panic!("{code}: {}", error()));
        assert_eq!(apus_waiter_free(made), 0);
    }
}
