//! Which tracepoints are used, and how their records are read.
//!
//! Names, numbers and fields come from `events/GROUP/NAME/{id,format}` of the tracing file system (kernel
//! documentation, trace/events, "Event formats"). They are read at run time because the position of a field differs
//! between kernels, while its name stays the same.

use std::collections::HashMap;
use std::fs;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use units::{Instant, Monotonic, Nanos};

use super::charge::{Event, Source, Task, What};

/// Directories where the tracing file system may be mounted.
const MOUNTS: [&str; 2] = ["sys/kernel/tracing", "sys/kernel/debug/tracing"];

/// The meaning of a record.
#[derive(Clone, Debug)]
enum Meaning {
    InterruptEntry { irq: Field, name: Field },
    InterruptExit { irq: Field },
    VectorEntry(Arc<str>),
    VectorExit(Arc<str>),
    SoftirqEntry { vec: Field },
    SoftirqExit { vec: Field },
    Switch { prev: [Field; 3], prev_state: Field, next: [Field; 3] },
    Nmi { delta_ns: Field },
}

/// Position of a field in a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Field {
    offset: usize,
    size: usize,
}

/// The relevant tracepoints of this kernel, by number.
#[derive(Clone, Debug)]
pub(super) struct Tracepoints {
    points: HashMap<u64, Meaning>,
}

impl Tracepoints {
    /// Reads the tracepoints below `root`, or returns why there are none.
    pub(super) fn read(root: &Path) -> Result<Self, String> {
        let mounted = MOUNTS.iter().map(|mount| root.join(mount).join("events")).find(|events| events.is_dir());
        if let Some(folder) = mounted {
            return Self::in_folder(&folder);
        }
        let why = |error: String| {
            format!("the tracing file system is not mounted (mount -t tracefs nodev /sys/kernel/tracing){error}")
        };
        if root != Path::new("/") {
            return Err(why(String::new()));
        }
        // The file system is not mounted in the tree. Only the holder of the descriptor sees it, and it disappears when
        // the descriptor is closed.
        let detached =
            detached_tracefs().map_err(|error| why(format!(", and reading it without mounting failed: {error}")))?;
        Self::in_folder(&Path::new("/proc/self/fd").join(detached.as_raw_fd().to_string()).join("events"))
    }

    fn in_folder(folder: &Path) -> Result<Self, String> {
        let mut points = HashMap::new();
        let mut add = |path: PathBuf, meaning: &dyn Fn(&Format) -> Option<Meaning>| -> Result<(), String> {
            let id = read(&path.join("id"))?;
            let id = id.trim().parse().map_err(|_| format!("{}: {id:?} is not a number", path.join("id").display()))?;
            let format = Format::parse(&read(&path.join("format"))?);
            let meaning = meaning(&format).ok_or_else(|| format!("{} lacks a field", path.join("format").display()))?;
            points.insert(id, meaning);
            Ok(())
        };
        // This tracepoint is required, because no other one shows threads. The others depend on the kernel's
        // configuration.
        add(folder.join("sched/sched_switch"), &|f| {
            Some(Meaning::Switch {
                prev: [f.get("prev_comm")?, f.get("prev_pid")?, f.get("prev_prio")?],
                prev_state: f.get("prev_state")?,
                next: [f.get("next_comm")?, f.get("next_pid")?, f.get("next_prio")?],
            })
        })?;
        let optional = |result: Result<(), String>| drop(result);
        optional(add(folder.join("irq/irq_handler_entry"), &|f| {
            Some(Meaning::InterruptEntry { irq: f.get("irq")?, name: f.get("name")? })
        }));
        optional(add(folder.join("irq/irq_handler_exit"), &|f| Some(Meaning::InterruptExit { irq: f.get("irq")? })));
        optional(add(folder.join("irq/softirq_entry"), &|f| Some(Meaning::SoftirqEntry { vec: f.get("vec")? })));
        optional(add(folder.join("irq/softirq_exit"), &|f| Some(Meaning::SoftirqExit { vec: f.get("vec")? })));
        optional(add(folder.join("nmi/nmi_handler"), &|f| Some(Meaning::Nmi { delta_ns: f.get("delta_ns")? })));
        for entry in fs::read_dir(folder.join("irq_vectors")).into_iter().flatten().flatten() {
            let Ok(name) = entry.file_name().into_string() else { continue };
            // These tracepoints cannot be sampled: sampling needs the interrupt that they report, so the kernel refuses
            // it (arch/x86/include/asm/trace/irq_vectors.h, TRACE_EVENT_PERF_PERM(irq_work_exit)).
            if name.starts_with("irq_work_") {
                continue;
            }
            if let Some(vector) = name.strip_suffix("_entry") {
                optional(add(entry.path(), &|_| Some(Meaning::VectorEntry(vector.into()))));
            } else if let Some(vector) = name.strip_suffix("_exit") {
                optional(add(entry.path(), &|_| Some(Meaning::VectorExit(vector.into()))));
            }
        }
        Ok(Self { points })
    }

    /// Numbers of the tracepoints, in ascending order.
    pub(super) fn ids(&self) -> Vec<u64> {
        let mut ids: Vec<u64> = self.points.keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    /// The meaning of the record `raw`; `None` if it is too short, or belongs to another tracepoint.
    pub(super) fn event(&self, at: Instant<Monotonic>, raw: &[u8]) -> Option<Event> {
        // Each record begins with its tracepoint's number, 16 bits (include/linux/trace_events.h, struct trace_entry).
        let id = u16::from_ne_bytes(raw.get(..2)?.try_into().ok()?);
        let what = match self.points.get(&u64::from(id))? {
            Meaning::InterruptEntry { irq, name } => {
                What::Enter(Source::Interrupt { irq: irq.unsigned(raw)? as u32, name: name.located(raw)? })
            }
            Meaning::InterruptExit { irq } => {
                What::Leave(Source::Interrupt { irq: irq.unsigned(raw)? as u32, name: String::new() })
            }
            Meaning::VectorEntry(name) => What::Enter(Source::Vector(Arc::clone(name))),
            Meaning::VectorExit(name) => What::Leave(Source::Vector(Arc::clone(name))),
            Meaning::SoftirqEntry { vec } => What::Enter(Source::Softirq(vec.unsigned(raw)? as u32)),
            Meaning::SoftirqExit { vec } => What::Leave(Source::Softirq(vec.unsigned(raw)? as u32)),
            Meaning::Switch { prev, prev_state, next } => What::Switch {
                from: task(prev, raw)?,
                from_runnable: is_runnable(prev_state.unsigned(raw)?),
                to: task(next, raw)?,
            },
            Meaning::Nmi { delta_ns } => What::Nmi(Nanos::from_nanos(delta_ns.unsigned(raw)?)),
        };
        Some(Event { at, what })
    }
}

/// Opens the tracing file system without mounting it in the tree (fsopen(2), fsmount(2)).
fn detached_tracefs() -> rustix::io::Result<OwnedFd> {
    let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let read_only = MountAttrFlags::MOUNT_ATTR_RDONLY | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, read_only)
}

fn task([name, pid, prio]: &[Field; 3], raw: &[u8]) -> Option<Task> {
    Some(Task { name: name.text(raw)?, pid: pid.unsigned(raw)? as u32 as i32, prio: prio.unsigned(raw)? as u32 as i32 })
}

/// Whether a switched-out thread could have continued. Only the low bits denote a waiting state; a higher bit denotes
/// preemption (include/linux/sched.h, `TASK_REPORT` = 0x7f).
fn is_runnable(state: u64) -> bool {
    state & 0x7f == 0
}

impl Field {
    fn bytes(self, raw: &[u8]) -> Option<&[u8]> {
        raw.get(self.offset..self.offset.checked_add(self.size)?)
    }

    fn unsigned(self, raw: &[u8]) -> Option<u64> {
        let bytes = self.bytes(raw)?;
        Some(match *bytes {
            [a] => a.into(),
            [a, b] => u16::from_ne_bytes([a, b]).into(),
            [a, b, c, d] => u32::from_ne_bytes([a, b, c, d]).into(),
            _ => u64::from_ne_bytes(bytes.try_into().ok()?),
        })
    }

    /// Reads a string of fixed size, terminated by a zero byte.
    fn text(self, raw: &[u8]) -> Option<String> {
        self.bytes(raw).map(until_zero)
    }

    /// Reads a `__data_loc` string: the low half of a word contains the offset of the string, the high half its length.
    fn located(self, raw: &[u8]) -> Option<String> {
        let word = self.unsigned(raw)?;
        let (offset, length) = ((word & 0xffff) as usize, (word >> 16 & 0xffff) as usize);
        raw.get(offset..offset + length).map(until_zero)
    }
}

fn until_zero(bytes: &[u8]) -> String {
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

/// The fields of a record, from a `format` file.
struct Format(HashMap<String, Field>);

impl Format {
    /// Parses lines such as `field:char prev_comm[16]; offset:8; size:16; signed:0;` (separated by tabs).
    fn parse(text: &str) -> Self {
        let field = |line: &str| {
            let mut parts = line.trim().strip_prefix("field:")?.split(';').map(str::trim);
            let declaration = parts.next()?;
            let mut numbers = parts.filter_map(|part| part.split_once(':'));
            let mut number = |name: &str| numbers.find(|(key, _)| *key == name)?.1.parse().ok();
            let field = Field { offset: number("offset")?, size: number("size")? };
            let name = declaration.rsplit(' ').next()?.split('[').next()?;
            Some((name.to_owned(), field))
        };
        Self(text.lines().filter_map(field).collect())
    }

    fn get(&self, name: &str) -> Option<Field> {
        self.0.get(name).copied()
    }
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWITCH: &str = "name: sched_switch\nID: 372\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
        \tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
        \tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;\n\
        \tfield:int prev_prio;\toffset:28;\tsize:4;\tsigned:1;\n\
        \tfield:long prev_state;\toffset:32;\tsize:8;\tsigned:1;\n\
        \tfield:char next_comm[16];\toffset:40;\tsize:16;\tsigned:0;\n\
        \tfield:pid_t next_pid;\toffset:56;\tsize:4;\tsigned:1;\n\
        \tfield:int next_prio;\toffset:60;\tsize:4;\tsigned:1;\n\n\
        print fmt: \"…\"\n";
    const HANDLER: &str = "format:\n\tfield:int irq;\toffset:8;\tsize:4;\tsigned:1;\n\
        \tfield:__data_loc char[] name;\toffset:12;\tsize:4;\tsigned:0;\n";

    struct Root(PathBuf);
    impl Drop for Root {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn root(name: &str) -> Root {
        let root = std::env::temp_dir().join(format!("apus-trace-{name}-{}", std::process::id()));
        for (path, id, format) in [
            ("sched/sched_switch", 372, SWITCH),
            ("irq/irq_handler_entry", 225, HANDLER),
            ("irq_vectors/local_timer_entry", 165, ""),
            ("irq_vectors/local_timer_exit", 166, ""),
            ("irq_vectors/vector_alloc", 167, ""),
            ("irq_vectors/irq_work_entry", 168, ""),
        ] {
            let folder = root.join(MOUNTS[0]).join("events").join(path);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("id"), format!("{id}\n")).unwrap();
            fs::write(folder.join("format"), format).unwrap();
        }
        Root(root)
    }

    #[test]
    fn reads_records_by_the_kernels_own_description() {
        let root = root("records");
        let points = Tracepoints::read(&root.0).unwrap();
        assert_eq!(points.ids(), [165, 166, 225, 372]);
        let at = Instant::from_nanos(5);
        let mut raw = vec![0; 64];
        raw[..2].copy_from_slice(&372u16.to_ne_bytes());
        raw[8..12].copy_from_slice(b"spin");
        raw[24..28].copy_from_slice(&7i32.to_ne_bytes());
        raw[28..32].copy_from_slice(&4i32.to_ne_bytes());
        raw[32..40].copy_from_slice(&0x100i64.to_ne_bytes()); // preempted
        raw[40..45].copy_from_slice(b"thief");
        raw[56..60].copy_from_slice(&9i32.to_ne_bytes());
        raw[60..64].copy_from_slice(&(-1i32).to_ne_bytes());
        let (from, to) =
            (Task { name: "spin".into(), pid: 7, prio: 4 }, Task { name: "thief".into(), pid: 9, prio: -1 });
        assert_eq!(points.event(at, &raw), Some(Event { at, what: What::Switch { from, from_runnable: true, to } }));
        let mut raw = vec![0; 24];
        raw[..2].copy_from_slice(&225u16.to_ne_bytes());
        raw[8..12].copy_from_slice(&36i32.to_ne_bytes());
        raw[12..16].copy_from_slice(&(16u32 | 5 << 16).to_ne_bytes());
        raw[16..21].copy_from_slice(b"vda0\0");
        let entry = What::Enter(Source::Interrupt { irq: 36, name: "vda0".into() });
        assert_eq!(points.event(at, &raw), Some(Event { at, what: entry }));
        let tick = points.event(at, &165u16.to_ne_bytes()).unwrap();
        assert_eq!(tick.what, What::Enter(Source::Vector("local_timer".into())));
    }

    #[test]
    fn a_short_or_foreign_record_says_nothing() {
        let root = root("short");
        let points = Tracepoints::read(&root.0).unwrap();
        let at = Instant::from_nanos(5);
        for raw in [&b""[..], b"\x01", &999u16.to_ne_bytes(), &372u16.to_ne_bytes(), &225u16.to_ne_bytes()] {
            assert_eq!(points.event(at, raw), None);
        }
    }

    #[test]
    fn without_the_file_system_it_says_how_to_have_it() {
        let why = Tracepoints::read(Path::new("/nonexistent")).unwrap_err();
        assert!(why.contains("mount -t tracefs"), "{why}");
    }
}
