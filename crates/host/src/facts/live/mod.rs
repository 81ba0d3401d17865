//! Facts that need system calls on the live host: registers, device files, interfaces.

mod links;
mod observe;
mod place;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use units::Nanos;

use super::{CpuSet, Fact, Source, Why, msr as register};

pub(crate) use links::{ethtool, queues, statistics};
pub(crate) use observe::observe;
pub use place::Housekeeping;

/// The device file for CPU latency requests (Documentation/power/pm_qos_interface.rst).
pub(crate) const DMA_LATENCY: &str = "/dev/cpu_dma_latency";
/// Name of the source for the processes that hold `/dev/cpu_dma_latency` open.
pub(crate) const HOLDERS: &str = "/proc/*/fd: /dev/cpu_dma_latency";
/// Maximum number of messages that are read from the kernel's buffer. The buffer holds a few megabytes at most.
const MAX_MESSAGES: usize = 200_000;
/// Maximum number of open files that are searched for `/dev/cpu_dma_latency`.
const MAX_FILES: usize = 200_000;
/// Number of bytes of `stat` text after which no further process is read. It is enough for about a hundred thousand
/// threads.
const MAX_THREAD_TEXT: usize = 32 << 20;

/// Turns the result of a system call into a fact.
pub(crate) fn attempt<T>(result: io::Result<T>, source: impl Into<Source>) -> Fact<T> {
    match result {
        Ok(value) => Fact::known(value, source),
        Err(error) => Fact::missing(why(&error), source),
    }
}

fn why(error: &io::Error) -> Why {
    match error.kind() {
        io::ErrorKind::NotFound => Why::Absent,
        io::ErrorKind::PermissionDenied => Why::NotPermitted,
        _ => Why::Unsupported(error.to_string().into()),
    }
}

/// Reads one register on each CPU in `cpus`. Each read interrupts the CPU on which it is made.
pub(crate) fn msr(address: u32, cpus: &CpuSet) -> Fact<BTreeMap<u32, u64>> {
    let source = register::source(address);
    let mut values = BTreeMap::new();
    for cpu in cpus.iter() {
        let mut octets = [0; 8];
        let read =
            File::open(format!("/dev/cpu/{cpu}/msr")).and_then(|file| file.read_exact_at(&mut octets, address.into()));
        match read {
            Ok(()) => values.insert(cpu, u64::from_le_bytes(octets)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let module = "there is no /dev/cpu/*/msr: modprobe msr";
                return Fact::missing(Why::Unsupported(module.into()), source.as_str());
            }
            Err(error) => return Fact::missing(why(&error), source.as_str()),
        };
    }
    Fact::known(values, source.as_str())
}

/// The wake-up latency that the kernel currently allows: the strictest request of all processes. Opening the file adds
/// a request with the default value, which changes nothing and wakes no CPU (kernel/power/qos.c,
/// `cpu_latency_qos_open`).
pub(crate) fn dma_latency() -> Fact<Nanos> {
    let read = File::open(DMA_LATENCY).and_then(|mut file| {
        let mut octets = [0; 4];
        file.read_exact(&mut octets).map(|()| i32::from_ne_bytes(octets))
    });
    attempt(read, DMA_LATENCY).parse(|us| u64::try_from(us).map(Nanos::from_micros))
}

/// Processes that hold `/dev/cpu_dma_latency` open, as `comm (pid)`, except this process.
pub(crate) fn holders() -> Fact<Vec<String>> {
    let source = Source::new(HOLDERS);
    let me = std::process::id();
    let mut holders = Vec::new();
    let (mut looked, mut refused) = (0, false);
    for pid in processes() {
        let entries = match fs::read_dir(format!("/proc/{pid}/fd")) {
            Ok(entries) => entries,
            Err(error) => {
                refused |= error.kind() == io::ErrorKind::PermissionDenied;
                continue;
            }
        };
        for entry in entries.flatten() {
            looked += 1;
            if looked > MAX_FILES {
                let reason = format!("more than {MAX_FILES} files are open");
                return Fact::missing(Why::Unsupported(reason.into()), source);
            }
            if pid != me && fs::read_link(entry.path()).is_ok_and(|target| target.as_os_str() == DMA_LATENCY) {
                let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
                holders.push(format!("{} ({pid})", comm.trim()));
                break;
            }
        }
    }
    // An empty list proves nothing if some processes could not be inspected.
    if holders.is_empty() && refused { Fact::missing(Why::NotPermitted, source) } else { Fact::known(holders, source) }
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The kernel's own messages, one per line, with their times. Messages that programs wrote to `/dev/kmsg` are left out.
/// Each read of `/dev/kmsg` gives one record: `priority,sequence,microseconds,flags;text`
/// (Documentation/ABI/testing/dev-kmsg).
pub(crate) fn messages() -> Fact<String> {
    let file = OpenOptions::new().read(true).custom_flags(nonblocking()).open("/dev/kmsg");
    let read = file.and_then(|mut file| {
        let mut text = String::new();
        let mut record = [0; 8192];
        for _ in 0..MAX_MESSAGES {
            match file.read(&mut record) {
                Ok(0) => break,
                Ok(n) => text.push_str(&message(&String::from_utf8_lossy(&record[..n])).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // EPIPE: the record was overwritten. The next read returns the oldest record that is left.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
                Err(error) => return Err(error),
            }
        }
        Ok(text)
    });
    attempt(read, "/dev/kmsg")
}

fn nonblocking() -> i32 {
    rustix::fs::OFlags::NONBLOCK.bits().cast_signed()
}

fn message(record: &str) -> Option<String> {
    let (head, rest) = record.split_once(';')?;
    let mut fields = head.split(',');
    // The bits above the three bits of the level contain the facility. Facility 0 is the kernel; programs cannot use
    // it.
    let is_kernels = fields.next()?.parse::<u64>().ok()? >> 3 == 0;
    let micros: u64 = fields.nth(1)?.parse().ok().filter(|_| is_kernels)?;
    let text = rest.lines().next()?;
    Some(format!("[{:5}.{:06}] {text}\n", micros / 1_000_000, micros % 1_000_000))
}

/// The fields of a thread's `status` that readers use.
pub(crate) const THREAD_STATUS: [&str; 8] = [
    "Name",
    "Tgid",
    "Pid",
    "VmLck",
    "HugetlbPages",
    "Cpus_allowed_list",
    "voluntary_ctxt_switches",
    "nonvoluntary_ctxt_switches",
];

/// Reads `stat`, `status` (only the fields that readers use) and `cgroup` of all threads. Returns each as one string
/// with the threads one after the other.
pub(crate) fn thread_files() -> Vec<(&'static str, String)> {
    let [mut stats, mut statuses, mut groups] = [const { String::new() }; 3];
    let mut pids: Vec<u32> = processes().collect();
    pids.sort_unstable();
    for pid in pids {
        let cgroup = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        cgroup.lines().for_each(|line| groups.push_str(&format!("/proc/{pid}/cgroup:{line}\n")));
        for thread in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            // The file is missing if the thread has ended. Thread names need not be UTF-8.
            let text =
                |name: &str| fs::read(thread.path().join(name)).map(|o| String::from_utf8_lossy(&o).into_owned());
            let (Ok(stat), Ok(status)) = (text("stat"), text("status")) else { continue };
            // A thread name can contain a newline. `status` escapes it, `stat` does not.
            stats.push_str(&stat.trim_end().replace('\n', " "));
            stats.push('\n');
            let kept =
                status.lines().filter(|line| line.split_once(':').is_some_and(|(key, _)| THREAD_STATUS.contains(&key)));
            kept.for_each(|line| statuses.push_str(&format!("{line}\n")));
        }
        if stats.len() > MAX_THREAD_TEXT {
            break;
        }
    }
    vec![("stat", stats), ("status", statuses), ("cgroup", groups)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_the_kernels_messages() {
        let record = "6,339,5140900,-;NO_HZ: Full dynticks CPUs: 2-3.\n SUBSYSTEM=x\n";
        assert_eq!(message(record).as_deref(), Some("[    5.140900] NO_HZ: Full dynticks CPUs: 2-3.\n"));
        assert_eq!(message("torn"), None);
        assert_eq!(message("14,339,5140900,-;systemd[1]: nohz_full"), None, "a program's");
    }

    #[test]
    fn what_is_not_there_is_absent() {
        assert!(attempt(File::open("/nowhere").map(|_| ()), "/nowhere").is_absent());
    }
}
