//! DPDK's main thread. It starts the EAL (DPDK's environment abstraction layer), and opens and closes ports.
//!
//! Workers drop their privileges before the first frame, but closing a port can need privileges (`net_af_xdp` detaches
//! its XDP program from the interface). This thread keeps its privileges. It runs until the process ends, because the
//! EAL cannot be started a second time.

use std::any::Any;
use std::ffi::CString;
use std::fs::File;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Sender, channel, sync_channel};
use std::sync::{Mutex, OnceLock, PoisonError};

use live::Error;
use rustix::thread::{CpuSet, LinkNameSpaceType, move_into_link_name_space, sched_getaffinity};

use crate::sys;

type Job = Box<dyn FnOnce() + Send>;

/// Handle of DPDK's running main thread.
#[derive(Debug)]
pub(crate) struct Eal {
    arguments: Vec<String>,
    jobs: Mutex<Sender<Job>>,
}

/// Arguments of the failed attempt to start the EAL, and why it failed. A process cannot start the EAL a second time.
type Failed = (Vec<String>, String);

static EAL: OnceLock<Result<Eal, Failed>> = OnceLock::new();

/// Whether `device` names one of DPDK's virtual devices (`net_af_xdp0,iface=eth0`), which need no huge pages. Names of
/// hardware devices contain a bus address (`0000:03:00.0`, `auxiliary:mlx5_core.sf.2`).
pub fn is_virtual(device: &str) -> bool {
    !device.split(',').next().unwrap_or_default().contains(':')
}

impl Eal {
    /// Starts DPDK unless it is already running. `user` contains the user's EAL arguments. `huge` says whether DPDK's
    /// own memory uses huge pages.
    pub(crate) fn start(user: &[String], huge: bool) -> Result<&'static Self, Error> {
        let arguments = arguments(user, huge, &allowed_cpus());
        let lacking = |why: String| {
            Error::Lacking {
            what: format!("start {} with {}", sys::version(), arguments.join(" ")),
            why,
            fix: "see DPDK's messages above; hardware needs huge pages (sysctl vm.nr_hugepages=64) and a device that is bound to vfio-pci; --eal sets DPDK's arguments (docs/dpdk.md)"
                .into(),
        }
        };
        let started = EAL.get_or_init(|| Self::launch(&arguments).map_err(|why| (arguments.clone(), why)));
        match started {
            Ok(eal) if eal.arguments == arguments => Ok(eal),
            Ok(eal) => Err(Error::Invalid {
                what: format!("DPDK with {}", arguments.join(" ")),
                why: format!(
                    "it was started with {} in this process, and cannot be started again",
                    eal.arguments.join(" ")
                ),
            }),
            Err((_, why)) => Err(lacking(why.clone())),
        }
    }

    fn launch(arguments: &[String]) -> Result<Self, String> {
        let words = arguments.iter().map(|word| CString::new(word.as_str()));
        let words: Vec<CString> = words.collect::<Result<_, _>>().map_err(|e| e.to_string())?;
        let (jobs, queue) = channel::<Job>();
        let (ready, started) = sync_channel(1);
        let body = move || {
            let result = sys::eal_init(&words);
            let failed = result.is_err();
            let _ = ready.send(result);
            if !failed {
                queue.into_iter().for_each(|job| job());
            }
        };
        let thread = std::thread::Builder::new().name("dpdk-main".into()).spawn(body);
        thread.map_err(|e| format!("its thread did not start: {e}"))?;
        match started.recv() {
            Ok(Ok(())) => Ok(Self { arguments: arguments.to_vec(), jobs: Mutex::new(jobs) }),
            Ok(Err(e)) => Err(e.to_string()),
            Err(_) => Err("its thread ended".into()),
        }
    }

    /// Runs `work` in DPDK's main thread, in the network namespace of the calling thread, and waits for the result.
    pub(crate) fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
        let system = |what: &str, source| Error::System { what: what.into(), source };
        let namespace = File::open("/proc/thread-self/ns/net")
            .map_err(|e| system("open the network namespace of this thread", e))?;
        self.run_in(namespace, work)
    }

    /// Like [`run`](Self::run), but in the given network namespace.
    pub(crate) fn run_in<T: Send + 'static>(
        &self,
        namespace: File,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Error> {
        type Done<T> = Result<std::io::Result<T>, Box<dyn Any + Send>>;
        let (send, receive) = sync_channel::<Done<T>>(1);
        let job = move || {
            let done = catch_unwind(AssertUnwindSafe(|| {
                enter(&namespace)?;
                Ok(work())
            }));
            let _ = send.send(done);
        };
        let gone =
            || Error::System { what: "ask DPDK's main thread".into(), source: std::io::Error::other("it has ended") };
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).send(Box::new(job)).map_err(|_| gone())?;
        match receive.recv().map_err(|_| gone())? {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(source)) => Err(Error::System { what: "enter the port's network namespace".into(), source }),
            Err(panic) => resume_unwind(panic),
        }
    }
}

/// Moves the calling thread into the namespace, unless it is already there (moving needs a privilege).
fn enter(namespace: &File) -> std::io::Result<()> {
    use std::os::unix::fs::MetadataExt as _;
    let (here, there) = (std::fs::metadata("/proc/thread-self/ns/net")?, namespace.metadata()?);
    if (here.dev(), here.ino()) != (there.dev(), there.ino()) {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
    }
    Ok(())
}

/// The CPUs on which this process may run.
fn allowed_cpus() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
}

/// The EAL's arguments: first those of Apus that the user did not replace, then the user's.
fn arguments(user: &[String], huge: bool, cpus: &[usize]) -> Vec<String> {
    let given = |options: &[&str]| {
        user.iter().any(|word| {
            let name = word.split('=').next().unwrap_or_default();
            // A short option may be joined with its value: -l1.
            options.iter().any(|option| name == *option || (option.len() == 2 && word.starts_with(option)))
        })
    };
    let mut all = vec!["apus".to_owned()];
    let mut add = |unless: &[&str], words: &[String]| {
        if !given(unless) {
            all.extend_from_slice(words);
        }
    };
    let word = |text: &str| text.to_owned();
    // Create no files that other DPDK processes could find or lock. (The EAL rejects --in-memory with --no-huge.)
    let huge = huge || given(&["--huge-dir", "--in-memory"]);
    let private = if huge && !given(&["--no-huge"]) { "--in-memory" } else { "--no-shconf" };
    add(&["--in-memory", "--file-prefix", "--proc-type", "--huge-dir", "--no-shconf"], &[word(private)]);
    add(&["--no-telemetry", "--telemetry"], &[word("--no-telemetry")]);
    add(&["--log-level"], &[word("--log-level=*:warning")]);
    // One thread, which may run on any CPU, because the workers are Apus's own threads. By default DPDK would start and
    // pin one thread per CPU.
    let list: Vec<String> = cpus.iter().map(ToString::to_string).collect();
    add(&["-l", "-c", "--lcores", "-s", "-S"], &[format!("--lcores=0@({})", list.join(","))]);
    // Use only devices that are named. By default DPDK would take all devices for which it has drivers. (The address
    // 0000:00:00.0 is that of the host bridge, so no NIC has it.)
    add(&["-a", "-b", "--allow", "--block", "--no-pci"], &[word("--allow=0000:00:00.0")]);
    if !huge {
        // Frames are in the workers' pools; DPDK's own memory only holds queues and tables.
        add(&["--no-huge"], &[word("--no-huge")]);
        add(&["-m", "--socket-mem"], &[word("-m"), word("64")]);
    }
    all.extend_from_slice(user);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(user: &str, huge: bool) -> String {
        arguments(&user.split_whitespace().map(str::to_owned).collect::<Vec<_>>(), huge, &[0, 2]).join(" ")
    }

    #[test]
    fn the_users_arguments_replace_ours() {
        assert_eq!(
            of("", false),
            "apus --no-shconf --no-telemetry --log-level=*:warning --lcores=0@(0,2) --allow=0000:00:00.0 --no-huge -m 64"
        );
        assert!(!of("", true).contains("huge"));
        assert!(!of("-l1", false).contains("lcores"));
        assert!(!of("--allow 0000:03:00.0", false).contains("00:00.0 "));
        assert!(of("-m 128", false).ends_with("0000:00:00.0 --no-huge -m 128"));
        assert!(of("--in-memory", false).ends_with("0000:00:00.0 --in-memory"));
        assert!(of("", true).starts_with("apus --in-memory "));
        assert!(of("--log-level=pmd:debug", true).ends_with("--allow=0000:00:00.0 --log-level=pmd:debug"));
    }

    #[test]
    fn hardware_is_told_from_virtual_devices() {
        for (device, expected) in [
            ("net_af_xdp0,iface=a:b", true),
            ("net_null0", true),
            ("0000:03:00.0", false),
            ("03:00.0,arg=1", false),
            ("auxiliary:mlx5_core.sf.2", false),
        ] {
            assert_eq!(is_virtual(device), expected, "{device}");
        }
    }
}
