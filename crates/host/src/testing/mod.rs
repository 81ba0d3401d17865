//! Code that the tests of this crate share.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The root folder of one test, removed on drop.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Makes a folder with `files`: pairs of a path and its text.
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("apus-host-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let folder = Self(std::env::temp_dir().join(name));
        std::fs::create_dir_all(&folder.0).unwrap();
        for (path, text) in files {
            folder.put(path, text);
        }
        folder
    }

    pub(crate) fn put(&self, path: &str, text: &str) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }

    pub(crate) fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.path(path)).unwrap()
    }

    pub(crate) fn access(&self) -> crate::knob::Access {
        crate::knob::Access::below(&self.0).unwrap()
    }

    /// Access while a cooling device limits frequencies, until the test ends that.
    pub(crate) fn hot(&self) -> (crate::knob::Access, Arc<Hot>) {
        let hot = Arc::new(Hot { draft: self.path(".apus-new"), is_active: true.into() });
        (self.access().with_gate(hot.clone()), hot)
    }
}

/// Lowers the frequency limits that are written to 2.4 GHz, as the kernel shows them while a cooling device is active.
pub(crate) struct Hot {
    /// The file that takes the place of the limit's file.
    draft: PathBuf,
    pub(crate) is_active: AtomicBool,
}

impl crate::knob::Gate for Hot {
    fn before(&self, act: &crate::knob::Act) {
        let is_limit = act.operation == "rename" && act.object.ends_with("_freq");
        if is_limit && self.is_active.load(Ordering::Relaxed) {
            let khz: u64 = std::fs::read_to_string(&self.draft).unwrap().trim().parse().unwrap();
            std::fs::write(&self.draft, format!("{}\n", khz.min(2_400_000))).unwrap();
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs `test` in a new network namespace with the veth pair v0 and v1, both up. Only root can do this. The namespace
/// ends with the thread.
pub(crate) fn in_own_namespace(test: impl FnOnce() + Send) {
    if !rustix::process::geteuid().is_root() {
        testkit::skip("a network namespace needs root");
        return;
    }
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            sys::own_namespace().unwrap();
            ip(&["link", "add", "v0", "numrxqueues", "4", "numtxqueues", "4", "type", "veth", "peer", "v1"]);
            ip(&["link", "set", "v0", "up"]);
            ip(&["link", "set", "v1", "up"]);
            test();
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// Makes the tap device t0 in the calling thread's network namespace. Its driver has interrupt moderation
/// (`rx-max-frames`, at most 64). Prints a message and returns false if there is no /dev/net/tun.
pub(crate) fn tap() -> bool {
    let there = std::path::Path::new("/dev/net/tun").exists();
    if there {
        ip(&["tuntap", "add", "dev", "t0", "mode", "tap"]);
    } else {
        testkit::skip("a tap device needs /dev/net/tun (modprobe tun)");
    }
    there
}

/// Runs ip(8) in the calling thread's network namespace.
pub(crate) fn ip(words: &[&str]) {
    let output = std::process::Command::new("ip").args(words).output().unwrap();
    assert!(output.status.success(), "ip {words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

mod sys;

/// Makes the first record of a transaction called `name`.
pub(crate) fn begin(name: &str) -> crate::journal::Begin {
    crate::journal::Begin {
        format: crate::journal::FORMAT,
        apus: "0".into(),
        name: name.into(),
        command: "a test".into(),
        at_unix_s: 0,
        boot: None,
        network: None,
        network_cookie: None,
        network_handle: None,
        seen_from: None,
        lease: crate::journal::Lease::Open,
    }
}
