//! What `apus run` may still do while it moves frames, and what it needs to begin with.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use live::telemetry::State;
use rustix::process::Signal;
use serde_json::Value;

use super::faults::{DEFERRAL, PLACE, deferred, pair};
use super::run::{Apus, napis, public_copy};
use super::{Bed, wait_for};
use crate::support::{Running, turn};

/// CAP_NET_ADMIN is number 12 (include/uapi/linux/capability.h).
const NET_ADMIN: u64 = 1 << 12;
/// CAP_IPC_LOCK is number 14.
const IPC_LOCK: u64 = 1 << 14;
const ECHO: [&str; 3] = ["udp-echo", "dut0", "--address"];
/// `nobody`.
const USER: u32 = 65_534;

/// The capabilities in force, those permitted, and no_new_privs, of each thread, the process's first one first.
fn threads(pid: u32) -> Vec<(u64, u64, u64)> {
    let folder = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let mut ids: Vec<u32> = folder.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect();
    ids.sort_by_key(|id| *id != pid);
    let field = |text: &str, name: &str, radix| {
        let value = text.lines().find_map(|line| line.strip_prefix(name)).expect(text);
        u64::from_str_radix(value.trim(), radix).unwrap()
    };
    let thread = |id: u32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/task/{id}/status")).unwrap();
        (field(&text, "CapEff:", 16), field(&text, "CapPrm:", 16), field(&text, "NoNewPrivs:", 10))
    };
    ids.into_iter().map(thread).collect()
}

/// Before, each thread had all of root's capabilities until the end.
#[test]
fn with_open_ports_it_has_no_capability_in_force() {
    let Some(bed) = Bed::new(&["ping"], pair) else { return };
    let before = napis(&bed, "dut", "dut0");
    let file = bed.root.0.join("least.pcap").display().to_string();
    // The thread that writes a capture once kept all of root's capabilities.
    let capture = ["--capture", &file];
    for (words, kept) in [(&[][..], 0), (DEFERRAL, NET_ADMIN), (&capture[..], 0)] {
        let apus = Apus::start(&bed, "dut", "least", &[&ECHO[..], &["10.78.0.2"], words, &PLACE[..]].concat());
        // A worker that runs has given them up; the first thread does so next.
        let pid = apus.pid();
        // Where root may not raise the limit on locked memory (a container), CAP_IPC_LOCK stays: allocations need it.
        let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        let locked = limits.lines().find(|line| line.starts_with("Max locked memory")).unwrap();
        let lasting = if locked.contains("unlimited") { 0 } else { IPC_LOCK };
        let workers = threads(pid).split_off(1);
        // The worker and, with a capture, its writer; a machine with energy meters may have one more thread.
        assert!(workers.len() > usize::from(words == capture), "{workers:x?}");
        let all = workers.iter().all(|thread| *thread == (lasting, lasting, 1));
        assert!(!workers.is_empty() && all, "{workers:x?}");
        wait_for("no capability in force", Duration::from_secs(20), || (threads(pid)[0].0 == lasting).then_some(()));
        assert_eq!(threads(pid)[0], (lasting, lasting | kept, 1));
        bed.pings("tx", "10.78.0.2");
        // It can be ended, and takes back what it deferred.
        apus.stop();
        assert_eq!(napis(&bed, "dut", "dut0"), before);
    }
}

/// Words that run a program as `nobody` with capabilities.
fn as_nobody(capabilities: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    command.arg(format!("--inh-caps={capabilities}")).arg(format!("--ambient-caps={capabilities}"));
    command
}

/// A folder of `nobody`'s, below which no other user's is.
fn home(directory: &Path) -> std::path::PathBuf {
    let home = directory.join("home");
    std::fs::create_dir(&home).unwrap();
    std::os::unix::fs::chown(&home, Some(USER), Some(USER)).unwrap();
    home
}

#[test]
fn without_root_it_defers_and_restores_by_a_journal_of_the_users_own() {
    let Some(bed) = Bed::new(&["setpriv", "ping"], pair) else { return };
    let directory = std::env::temp_dir().join(format!("apus-it-defer-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let (copy, home) = (public_copy(&directory), home(&directory));
    let before = napis(&bed, "dut", "dut0");
    let start = |words: &[&str]| {
        let mut command = as_nobody("+net_admin,+net_raw,+bpf,+perfmon,+ipc_lock");
        command.arg(&copy).arg("run").args(ECHO).args(["10.78.0.2", "--no-lock-memory", "--json", "--name", "mine"]);
        command.args(words).arg("--telemetry").arg(home.join("telemetry"));
        command.env("HOME", &home).env_remove("XDG_STATE_HOME");
        let mut apus = Apus::adopt(bed.start("dut", &mut command), home.join("telemetry/mine/worker-0"));
        apus.until(State::Running);
        apus
    };
    let journals = || {
        let names = std::fs::read_dir(home.join(".local/state/apus/tune")).unwrap();
        names.filter(|name| name.as_ref().unwrap().path().extension().is_some_and(|end| end == "journal")).count()
    };
    let apus = start(DEFERRAL);
    wait_for("deferred interrupts", Duration::from_secs(20), || {
        (napis(&bed, "dut", "dut0") == deferred(&before)).then_some(())
    });
    assert_eq!(journals(), 1);
    bed.pings("tx", "10.78.0.2");
    apus.kill();
    assert_eq!(napis(&bed, "dut", "dut0"), deferred(&before), "killed, it restores nothing");
    // The same user's next start restores it, and a good end leaves nothing.
    let apus = start(&[]);
    assert_eq!((napis(&bed, "dut", "dut0"), journals()), (before.clone(), 0));
    apus.stop();
    start(DEFERRAL).stop();
    assert_eq!((napis(&bed, "dut", "dut0"), journals()), (before, 0));
    std::fs::remove_dir_all(&directory).unwrap();
}

/// One folder that may not be read once made `apus top` end with 3, and each scrape with 500.
#[test]
fn a_folder_that_may_not_be_read_is_told_and_hides_no_other() {
    if !rustix::process::geteuid().is_root() {
        testkit::skip("root: to run as another user");
        return;
    }
    let directory = std::env::temp_dir().join(format!("apus-it-hidden-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let copy = public_copy(&directory);
    let hidden = directory.join("hidden");
    std::fs::create_dir(&hidden).unwrap();
    std::fs::set_permissions(&hidden, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let apus = |words: &[&str]| {
        let mut command = as_nobody("-all");
        command.arg(&copy).args(words).arg("--telemetry").arg(directory.join("none"));
        command.arg("--moderation").arg(&hidden).arg("--steering").arg(&hidden);
        command
    };
    let output = apus(&["top", "--json"]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let leftovers = document["leftovers"].as_array().unwrap();
    let whys = leftovers.iter().map(|one| one["why"].as_str().unwrap());
    assert!(leftovers.len() == 2 && whys.clone().all(|why| why.contains("may not be read")), "{leftovers:?}");
    let mut metrics = apus(&["metrics", "--listen", "127.0.0.1:0"]);
    let child = metrics.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut running = Running(child);
    let mut line = String::new();
    BufReader::new(running.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.strip_prefix("serving http://").and_then(|l| l.split('/').next()).expect(&line);
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(running.end(Signal::INT), Some(0));
    let mut said = String::new();
    running.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("hidden: it may not be read"), "{said}");
    std::fs::remove_dir_all(&directory).unwrap();
}

/// The default folder, in a /dev/shm of the test's own, in which another user prepared root's place.
#[test]
fn root_and_users_run_side_by_side() {
    if !rustix::process::geteuid().is_root() {
        testkit::skip("root: to run as two users");
        return;
    }
    let _turn = turn();
    let directory = std::env::temp_dir().join(format!("apus-it-users-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let copy = public_copy(&directory);
    let script = r#"
        mount -t tmpfs -o mode=1777 tmpfs /dev/shm || exit 9
        user="setpriv --reuid 65534 --regid 65534 --clear-groups"
        mkdir "$1/elsewhere"; echo precious > "$1/elsewhere/worker-0"
        $user mkdir -m 777 /dev/shm/apus
        $user ln -s "$1/elsewhere" /dev/shm/apus/edge
        $user mkfifo /dev/shm/apus-65534x /dev/shm/apus-1
        $user flock /dev/shm/apus sleep 60 & locker=$!
        $0 run macswap memory:64 --mode interrupt --name edge > "$1/root.out" 2>&1 & root=$!
        for n in $(seq 500); do [ -e /dev/shm/apus/edge/worker-0 ] && [ ! -h /dev/shm/apus/edge ] && break; sleep 0.02; done
        $user "$0" run macswap memory:64 --mode interrupt --name edge > "$1/user.out" 2>&1 & user_run=$!
        for n in $(seq 500); do [ -e /dev/shm/apus-65534/edge/worker-0 ] && break; sleep 0.02; done
        "$0" top --json --interval 100ms > "$1/top.json" || echo "top: $?"
        $user "$0" top --json --interval 100ms > "$1/user-top.json" || echo "user's top: $?"
        kill $root $user_run
        wait $root; echo "root's: $?"; wait $user_run; echo "user's: $?"
        kill $locker
        cat "$1/elsewhere/worker-0"; ls /dev/shm/apus/edge /dev/shm/apus-65534/edge 2>/dev/null
    "#;
    let mut command = Command::new("timeout");
    command
        .args(["120", "unshare", "--mount", "--propagation", "private", "sh", "-c", script])
        .arg(&copy)
        .arg(&directory);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut running = Running(child);
    let read = |pipe: &mut dyn std::io::Read| {
        let mut text = String::new();
        pipe.read_to_string(&mut text).unwrap();
        text
    };
    let said = read(running.0.stdout.as_mut().unwrap());
    let errors = read(running.0.stderr.as_mut().unwrap());
    let file = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap_or_default();
    let more = || format!("{said}\n{errors}\nroot's: {}\nuser's: {}", file("root.out"), file("user.out"));
    assert!(said.contains("root's: 0\nuser's: 0\nprecious\n") && !said.contains("top:"), "{}", more());
    let instances = |name: &str| {
        let document: Value = serde_json::from_str(&file(name)).unwrap_or_else(|e| panic!("{e}: {}", more()));
        let all = document["instances"].as_array().unwrap().iter();
        all.map(|one| one["instance"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(instances("top.json"), ["65534/edge", "edge"]);
    assert_eq!(instances("user-top.json"), ["65534/edge", "edge"]);
    std::fs::remove_dir_all(&directory).unwrap();
}
