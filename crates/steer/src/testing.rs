//! A host for tests: the files of one CPU with frequencies from 800 MHz to 3 GHz, in a folder.
#![expect(clippy::disallowed_methods, reason = "the tests play the kernel")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use host::knob::{Access, Act, Gate};

const POLICY: &str = "sys/devices/system/cpu/cpufreq/policy0";

/// The root folder of the host, removed on drop.
pub(crate) struct Host(PathBuf);

impl Host {
    /// Makes a host. `files` are names and contents of files of its policy, besides the usual ones or in their place.
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("apus-steer-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let host = Self(std::env::temp_dir().join(name));
        let usual = [
            ("related_cpus", "0"),
            ("scaling_driver", "intel_cpufreq"),
            ("scaling_available_governors", "performance powersave userspace"),
            ("scaling_governor", "performance"),
            ("scaling_setspeed", "<unsupported>"),
            ("scaling_min_freq", "800000"),
            ("scaling_max_freq", "3000000"),
            ("cpuinfo_min_freq", "800000"),
            ("cpuinfo_max_freq", "3000000"),
            ("scaling_cur_freq", "800000"),
        ];
        for (name, text) in usual.iter().chain(files) {
            host.put(name, text);
        }
        testkit::put(&host.0.join("proc/sys/kernel/random/boot_id"), "boot\n");
        host
    }

    pub(crate) fn access(&self) -> Access {
        Access::below(&self.0).unwrap()
    }

    /// Access to the host while a cooling device limits the frequency to 2.4 GHz: the kernel shows lower limits than
    /// those that are written.
    pub(crate) fn hot(&self) -> Access {
        self.access().with_gate(Arc::new(Hot(self.0.join(".apus-new"))))
    }

    pub(crate) fn put(&self, name: &str, text: &str) {
        testkit::put(&self.0.join(POLICY).join(name), &format!("{text}\n"));
    }

    /// Shows these limits in kHz.
    pub(crate) fn put_limits(&self, min: u64, max: u64) {
        self.put("scaling_min_freq", &min.to_string());
        self.put("scaling_max_freq", &max.to_string());
    }

    pub(crate) fn read(&self, name: &str) -> String {
        read(&self.0.join(POLICY).join(name))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap().trim().to_owned()
}

/// Lowers what is written to the limits, before the file takes its place.
struct Hot(PathBuf);

impl Gate for Hot {
    fn before(&self, act: &Act) {
        if act.operation == "rename" && act.object.ends_with("_freq") {
            let khz: u64 = read(&self.0).parse().unwrap();
            std::fs::write(&self.0, format!("{}\n", khz.min(2_400_000))).unwrap();
        }
    }
}
