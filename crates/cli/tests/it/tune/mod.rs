//! `apus tune` and `apus power`.

/// Exports, taken by the engines that they are for.
mod exports;
/// What `apus audit --fix` writes for recorded hosts, planned on them.
mod fixes;
/// Transactions that end by themselves.
mod guard;
/// Every profile in a network namespace on the running kernel, as root.
mod lab;
/// On folders: recorded hosts and generated ones.
mod recorded;
/// What is said of what was done, and what not.
mod said;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::schemas::validate;
use crate::support::{BIND, bare, text};

/// A machine as a folder, removed on drop.
pub struct Machine(pub PathBuf);

impl Machine {
    /// One with these files.
    pub fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let machine = Self(Path::new(env!("CARGO_TARGET_TMPDIR")).join(Self::unique(name)));
        std::fs::create_dir_all(&machine.0).unwrap();
        for (path, text) in files {
            machine.put(path, text);
        }
        machine
    }

    /// An empty one for the ten thousand small files of a recorded host: in memory where there is such a folder, which takes
    /// them in a fraction of a second instead of several.
    pub fn for_a_recording(name: &str) -> Self {
        let folder = Path::new("/dev/shm").join(Self::unique(name));
        match std::fs::create_dir(&folder) {
            Ok(()) => Self(folder),
            Err(_) => Self::new(name, &[]),
        }
    }

    fn unique(name: &str) -> String {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        format!("tune-{name}-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed))
    }

    /// A small one, with settings that the profiles know.
    pub fn small(name: &str) -> Self {
        Self::new(
            name,
            &[
                ("sys/devices/system/cpu/online", "0-3\n"),
                ("proc/sys/kernel/nmi_watchdog", "1\n"),
                ("proc/sys/kernel/random/boot_id", "boot-1\n"),
                ("proc/sys/vm/stat_interval", "1\n"),
                ("proc/irq/24/smp_affinity_list", "0-3\n"),
                ("proc/irq/default_smp_affinity", "f\n"),
                ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
            ],
        )
    }

    pub fn put(&self, path: &str, text: &str) {
        testkit::put(&self.0.join(path), text);
    }

    pub fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.0.join(path)).unwrap()
    }

    /// Rewrites the lease of transaction 1 as one of the process `pid`; the checksums follow.
    pub fn lease(&self, pid: u32, started: &str) {
        let path = "var/lib/apus/tune/000001.journal";
        let (mut whole, mut chain) = (String::new(), 0);
        for line in self.read(path).lines() {
            let body = line.split_once(' ').unwrap().1;
            let lease = format!("\"lease\":{{\"process\":{{\"pid\":{pid},\"started\":{started}}}}}");
            let body = body.replace("\"lease\":\"open\"", &lease);
            let mut hasher = crc32fast::Hasher::new_with_initial(chain);
            hasher.update(body.as_bytes());
            chain = hasher.finalize();
            whole.push_str(&format!("{chain:08x} {body}\n"));
        }
        self.put(path, &whole);
    }

    /// `apus WORDS --root MACHINE`.
    pub fn apus(&self, words: &[&str]) -> Output {
        let root = self.0.to_str().unwrap();
        bare(&[words, &["--root", root]].concat())
    }

    /// The same with `--json`: exit status and document, which is what its schema says.
    pub fn json(&self, words: &[&str]) -> (Option<i32>, Value) {
        let output = self.apus(&[words, &["--json"]].concat());
        let document: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(&output.stderr)));
        validate(&document);
        (output.status.code(), document)
    }

    /// All of its files but our own.
    pub fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut found = Vec::new();
        let mut folders = vec![self.0.clone()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.starts_with(self.0.join("var")) {
                } else if path.is_dir() {
                    folders.push(path);
                } else {
                    found.push((path.clone(), std::fs::read(path).unwrap()));
                }
            }
        }
        found.sort();
        found
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Panics with what was said if the exit status is another.
pub fn expect(output: &Output, code: i32) -> String {
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{said}");
    said
}

/// Waits until `is`, at most as long as a busy machine may need.
pub fn wait(what: &str, mut is: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !is() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A place for the journal of a test on the running machine: it lies over /var/lib for what runs in it, so that the test
/// neither sees nor disturbs the machine's own transactions.
///
/// Its path is always the same: what a killed run left changed is taken back by the next. One test on this machine has one
/// at a time, also among several checkouts, since they change the same kernel.
pub struct OwnJournal {
    folder: PathBuf,
    _turn: std::fs::File,
}

impl OwnJournal {
    /// The place of the test `name`; as root.
    pub fn new(name: &str) -> Self {
        let turn = testkit::settings_change();
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("journal-{name}"));
        let own = Self { folder, _turn: turn };
        PutBack::settle();
        if own.folder.exists() {
            let output = own.outside(&["tune", "rollback", "--forget"]);
            println!("{name}: a killed run is taken back: {}{}", text(&output.stdout), text(&output.stderr));
            std::fs::remove_dir_all(&own.folder).unwrap();
        }
        std::fs::create_dir_all(&own.folder).unwrap();
        own
    }

    /// Runs a program with this journal in the network namespace `namespace`.
    pub fn within(&self, namespace: &str, program: &str, words: &[&str]) -> Output {
        self.command(namespace, program, words).output().unwrap()
    }

    /// The same, to be started.
    pub fn command(&self, namespace: &str, program: &str, words: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", namespace, "sh", "-c", BIND]).arg(&self.folder).arg(program).args(words);
        command.stdin(Stdio::null());
        command
    }

    /// Runs `apus` with this journal where the test itself is.
    pub fn outside(&self, words: &[&str]) -> Output {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-c", BIND]).arg(&self.folder);
        command.arg(env!("CARGO_BIN_EXE_apus")).args(words).stdin(Stdio::null()).output().unwrap()
    }

    /// The text of the journal of transaction `id`.
    pub fn journal(&self, id: u64) -> PathBuf {
        self.folder.join(format!("apus/tune/{id:06}.journal"))
    }
}

/// Files of the running machine that a test changes past `apus`: put back when dropped; and where the test was killed, by
/// the next one that may change the machine.
pub struct PutBack {
    before: Vec<(PathBuf, Vec<u8>)>,
}

impl PutBack {
    /// What is to be put back. The test holds an [`OwnJournal`] as long as this lives.
    pub fn new(before: Vec<(PathBuf, Vec<u8>)>) -> Self {
        let draft = Self::kept().with_extension("new");
        std::fs::write(&draft, serde_json::to_vec(&before).unwrap()).unwrap();
        std::fs::rename(draft, Self::kept()).unwrap();
        Self { before }
    }

    /// The same of these files as they are.
    pub fn files(paths: &[&str]) -> Self {
        Self::new(paths.iter().map(|path| (PathBuf::from(path), std::fs::read(path).unwrap())).collect())
    }

    /// Where it is kept, for those who come after a kill.
    fn kept() -> PathBuf {
        Path::new(env!("CARGO_TARGET_TMPDIR")).join("put-back.json")
    }

    /// Puts back what a killed test left changed.
    fn settle() {
        if let Ok(kept) = std::fs::read(Self::kept()) {
            drop(Self { before: serde_json::from_slice(&kept).unwrap() });
        }
    }
}

impl Drop for PutBack {
    fn drop(&mut self) {
        for (path, before) in &self.before {
            if std::fs::read(path).is_ok_and(|now| now != *before) {
                let shown = String::from_utf8_lossy(before).into_owned();
                // Of a choice, the word in brackets.
                let chosen = shown.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
                let _ = std::fs::write(path, chosen.unwrap_or(shown.trim_end()));
            }
        }
        let _ = std::fs::remove_file(Self::kept());
    }
}

/// A test that was killed before it could put anything back.
#[test]
fn what_a_killed_test_left_is_put_back() {
    if !rustix::process::geteuid().is_root() {
        return testkit::skip("needs root");
    }
    const FILE: &str = "/proc/sys/vm/stat_interval";
    let own = OwnJournal::new("killed");
    let before = std::fs::read_to_string(FILE).unwrap();
    std::mem::forget(PutBack::files(&[FILE]));
    std::fs::write(FILE, (before.trim().parse::<u32>().unwrap() + 1).to_string()).unwrap();
    drop(own);
    let _own = OwnJournal::new("killed");
    assert_eq!(std::fs::read_to_string(FILE).unwrap(), before);
    assert!(!PutBack::kept().exists());
}

impl Drop for OwnJournal {
    fn drop(&mut self) {
        // A test that panicked may have left something changed, and the machine is not the test's alone. What this cannot
        // roll back (the network namespace may be gone), the next run does.
        if std::thread::panicking() {
            let output = self.outside(&["tune", "rollback"]);
            println!("rolled back: {}{}", text(&output.stdout), text(&output.stderr));
            return;
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
