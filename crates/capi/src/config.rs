//! Reads and checks `apus_config`.

use std::ffi::{CStr, c_char};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::ptr;

use live::platform;
use policy::LossBound;
use policy::wait::{Mode, Policy, WakeCosts};
use units::{Nanos, PacketRate};

use crate::error::{Code, fail};
use crate::types::{APUS_KEEP_TIMER_SLACK, Config, Wakes};

/// Default maximum length of a blocking wait. `apus run` uses the same.
const LONGEST_BLOCK: Nanos = live::worker::HEALTH_INTERVAL;
/// Upper limit on [`Settings::longest_block`]. Longer waits would not save more CPU time.
const LONGEST_BLOCK_MOST: Nanos = Nanos::from_secs(3600);

/// An `apus_config` that has been checked.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The wait policy, with its latency goal and loss bound.
    pub mode: Mode,
    /// What can end a blocking wait early.
    pub wakes: Wakes,
    /// What waiting costs on this host, from the platform profile. `None` if the configuration has no profile.
    pub costs: Option<WakeCosts>,
    /// Maximum length of a blocking wait.
    pub longest_block: Nanos,
    /// Maximum number of packets that the loop takes in one poll. 0 means no limit: a poll takes all waiting packets.
    pub burst: u32,
    /// Whether to leave the thread's timer slack unchanged.
    pub keep_slack: bool,
    /// How the loop appears in telemetry. `None` if it publishes no telemetry.
    pub shown: Option<Shown>,
}

/// The names under which a loop appears in telemetry, and the folder of the telemetry.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // as in `apus_config`
pub struct Shown {
    pub name: String,
    pub app: String,
    pub port: Option<String>,
    pub worker: u32,
    pub root: PathBuf,
}

impl Settings {
    /// Creates a policy. At the start, the policy knows only the wait costs from the platform profile, if there is one.
    /// `interrupts` says whether an arriving packet can end a blocking wait.
    pub fn policy<C>(&self, interrupts: bool) -> Policy<C> {
        let mode = match self.mode {
            Mode::Adaptive(config) => Mode::Adaptive(policy::wait::AdaptiveConfig { interrupts, ..config }),
            other => other,
        };
        let mut policy = mode.policy();
        self.costs.iter().for_each(|costs| policy.know(costs));
        policy
    }

    /// Reads and checks a configuration.
    ///
    /// # Safety
    /// `config` is NULL, or points to at least as many readable bytes as its `size` field says. Each string in it is
    /// NULL or NUL-terminated.
    pub unsafe fn read(config: *const Config) -> Result<Self, Code> {
        // SAFETY: as the caller promises.
        let config = unsafe { copied(config)? };
        // SAFETY: as the caller promises.
        let text = |at: *const c_char, field: &str| unsafe { text(at, field) };
        let wrong =
            |field: &str, why: &dyn std::fmt::Display| fail(Code::Config, format_args!("config.{field}: {why}"));
        let mode = mode(text(config.mode, "mode")?, text(config.goal, "goal")?)?;
        let loss = match (config.ring_descriptors, config.peak_pps) {
            (0, 0) => None,
            (descriptors @ 1.., pps @ 1..) => Some(LossBound { descriptors, peak: PacketRate::new(pps) }),
            _ => return Err(wrong("peak_pps", &"set it together with ring_descriptors, or set both to 0")),
        };
        let mode = match mode {
            Mode::Adaptive(config) => Mode::Adaptive(policy::wait::AdaptiveConfig { loss, ..config }),
            mode if loss.is_some() => {
                return Err(wrong("peak_pps", &format_args!("the mode {mode} does not limit its waits by the ring")));
            }
            mode => mode,
        };
        let wakes = Wakes::ALL.into_iter().find(|wakes| *wakes as u32 == config.wakes);
        let wakes = wakes
            .ok_or_else(|| wrong("wakes", &format_args!("{} is not one of the APUS_WAKES_ constants", config.wakes)))?;
        if config.flags & !APUS_KEEP_TIMER_SLACK != 0 || config.reserved != 0 {
            return Err(wrong(
                "flags",
                &format_args!("{:#x} and reserved {} hold unknown bits", config.flags, config.reserved),
            ));
        }
        let longest_block = match Nanos::from_nanos(config.longest_block_ns) {
            Nanos::ZERO => LONGEST_BLOCK,
            longest if longest <= LONGEST_BLOCK_MOST => longest,
            longest => {
                return Err(wrong("longest_block_ns", &format_args!("{longest} is more than {LONGEST_BLOCK_MOST}")));
            }
        };
        let costs = costs(text(config.profile, "profile")?, text(config.profile_path, "profile_path")?)?;
        let name = text(config.name, "name")?;
        let [app, port, root] = [(config.app, "app"), (config.port, "port"), (config.telemetry_root, "telemetry_root")]
            .map(|(at, field)| text(at, field));
        let (app, port, root) = (app?, port?, root?);
        if root == Some("") {
            return Err(wrong("telemetry_root", &"it is empty: set it to a folder, or to NULL for the default"));
        }
        if name.is_none() && (app.is_some() || port.is_some() || root.is_some() || config.worker != 0) {
            return Err(wrong(
                "name",
                &"app, port, telemetry_root and worker need a name, because a name is what turns telemetry on",
            ));
        }
        let shown = name.map(|name| Shown {
            name: name.to_owned(),
            app: app.unwrap_or("libapus").to_owned(),
            port: port.map(str::to_owned),
            worker: config.worker,
            root: root.unwrap_or(live::telemetry::ROOT).into(),
        });
        let keep_slack = config.flags & APUS_KEEP_TIMER_SLACK != 0;
        Ok(Self { mode, wakes, costs, longest_block, burst: config.burst, keep_slack, shown })
    }
}

/// Copies the configuration. If the caller was built with a newer header, the configuration may have fields that this
/// library lacks; fails unless these fields are 0.
///
/// # Safety
/// `config` is NULL, or points to at least as many readable bytes as its first field says.
unsafe fn copied(config: *const Config) -> Result<Config, Code> {
    const OURS: usize = size_of::<Config>();
    /// Largest accepted `size` in bytes. No version of the header will have a larger structure.
    const MOST: usize = 4096;
    if config.is_null() {
        return Err(fail(Code::Null, "config is NULL"));
    }
    // SAFETY: not NULL, so it points to at least its first field. Its alignment is unknown.
    let size = unsafe { ptr::read_unaligned(config.cast::<usize>()) };
    if !(OURS..=MOST).contains(&size) {
        return Err(fail(
            Code::Size,
            format_args!(
                "config.size is {size}, but apus_config has {OURS} bytes in this library: set it to sizeof(apus_config)"
            ),
        ));
    }
    // SAFETY: `size` bytes can be read, as the caller promises.
    let more = unsafe { std::slice::from_raw_parts(config.cast::<u8>().add(OURS), size - OURS) };
    if more.iter().any(|byte| *byte != 0) {
        let why = "config has fields that this older library lacks: update libapus, or set them to 0";
        return Err(fail(Code::Size, why));
    }
    // SAFETY: `OURS` bytes can be read, and any bytes are a valid `Config`.
    Ok(unsafe { ptr::read_unaligned(config) })
}

/// # Safety
/// `at` is NULL or a NUL-terminated string.
unsafe fn text<'a>(at: *const c_char, field: &str) -> Result<Option<&'a str>, Code> {
    if at.is_null() {
        return Ok(None);
    }
    // SAFETY: as the caller promises.
    let text = unsafe { CStr::from_ptr(at) };
    let wrong = |_| fail(Code::Config, format_args!("config.{field} is not UTF-8"));
    text.to_str().map(Some).map_err(wrong)
}

fn mode(mode: Option<&str>, goal: Option<&str>) -> Result<Mode, Code> {
    let text = mode.unwrap_or("adaptive");
    let mode: Mode = text.parse().map_err(|why| fail(Code::Config, format_args!("config.mode {text:?}: {why}")))?;
    let Some(goal) = goal else { return Ok(mode) };
    let wrong = |why: &dyn std::fmt::Display| fail(Code::Config, format_args!("config.goal {goal:?}: {why}"));
    match mode {
        Mode::Adaptive(config) if config.goal.is_none() => {
            goal.parse().map(Mode::holding).map_err(|why: policy::goal::GoalError| wrong(&why))
        }
        Mode::Adaptive(_) => Err(wrong(&"config.mode already contains a goal: set only one of the two")),
        other => Err(wrong(&format_args!("the mode {other} has no goal, only adaptive has"))),
    }
}

fn costs(text: Option<&str>, path: Option<&str>) -> Result<Option<WakeCosts>, Code> {
    let (name, text) = match (text, path) {
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => {
            return Err(fail(
                Code::Config,
                "config.profile and config.profile_path are both set: set only one of them",
            ));
        }
        (Some(text), None) => ("config.profile", text.to_owned()),
        (None, Some(path)) => {
            let read = profile(path);
            (path, read.map_err(|why| fail(Code::Profile, format_args!("cannot read the profile {path}: {why}")))?)
        }
    };
    let why =
        |why| fail(Code::Profile, format_args!("cannot use {name}: {why}; create one as root: apus probe all -o FILE"));
    platform::costs(&text).map(Some).map_err(why)
}

/// Reads a platform profile. Refuses everything but a regular file, because reading a FIFO or device might never end.
fn profile(path: &str) -> io::Result<String> {
    /// Largest accepted profile, in bytes. `apus probe all` writes about 10 kB.
    const MOST: u64 = 16 << 20;
    let refused = |why: String| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    // Without `O_NONBLOCK`, opening a FIFO waits for a writer.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    if !file.metadata()?.is_file() {
        return refused("it is not a regular file".to_owned());
    }
    let mut text = String::new();
    match file.take(MOST + 1).read_to_string(&mut text)? as u64 {
        0..=MOST => Ok(text),
        _ => refused(format!("it has more than {MOST} bytes")),
    }
}
