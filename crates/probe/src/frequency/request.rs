//! Requests a frequency, through cpufreq or through the HWP request register, and always through the crate `host`.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use host::knob::{Access, Governor, HwpRequest, Knob, Limits, Value, policies, policy_cpus, ratio};
use host::transaction::{Moved, Steered, Target};
use units::Hertz;

use crate::Error;

/// Numbers of the MSRs `IA32_MPERF` and (in `APERF`) `IA32_APERF`. Intel SDM volume 4, table 2-2; AMD64 APM volume 2,
/// "Effective frequency".
const MPERF: u32 = 0xe7;
const APERF: u32 = 0xe8;

units::named! {
    /// Interface through which to request a frequency.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Via {
        /// The first supported one of: the speed of the userspace governor, the limits of the frequency policy, the HWP
        /// request register.
        Auto = "auto",
        /// The speed of cpufreq's userspace governor (`scaling_setspeed`).
        Governor = "governor",
        /// Both limits of the cpufreq policy (`scaling_min_freq` and `scaling_max_freq`).
        Limits = "limits",
        /// The HWP request register (IA32_HWP_REQUEST, MSR 0x774).
        Hwp = "hwp",
    }
}

/// A supported interface for requesting the frequency of one CPU.
#[derive(Clone, Debug)]
pub(super) enum Way {
    Governor(Governor),
    Limits(Limits),
    Hwp(HwpRequest),
}

impl Way {
    /// Finds the requested interface, or returns an error that says what is missing.
    pub(super) fn find(access: &Access, cpu: u32, via: Via) -> Result<Self, Error> {
        let policy = policy_of(access, cpu)?;
        let governor = || {
            let policy = policy?;
            let file = format!("/sys/devices/system/cpu/cpufreq/policy{policy}/scaling_available_governors");
            let known = access.line(&file).ok()??;
            known.split_whitespace().any(|word| word == "userspace").then(|| Self::Governor(Governor::new(policy)))
        };
        let limits = || policy.map(|policy| Self::Limits(Limits::new(policy)));
        let hwp = || Knob(HwpRequest::new(cpu)).read(access).ok().flatten().map(|_| Self::Hwp(HwpRequest::new(cpu)));
        let found = match via {
            Via::Auto => governor().or_else(limits).or_else(hwp),
            Via::Governor => governor(),
            Via::Limits => limits(),
            Via::Hwp => hwp(),
        };
        found.ok_or_else(|| missing(access, cpu, via, policy))
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Governor(_) => "userspace governor",
            Self::Limits(_) => "limits of the policy",
            Self::Hwp(_) => "HWP request (MSR 0x774)",
        }
    }

    pub(super) fn value(&self, level: Hertz) -> Result<Value, Error> {
        Ok(match self {
            Self::Governor(_) => Governor::set_speed(level),
            Self::Limits(_) => Limits::value(level, level),
            Self::Hwp(_) => HwpRequest::fixed(ratio(level).ok_or_else(|| {
                let why = "HWP levels are multiples of 100 MHz (Intel P-state guide), up to 25.5 GHz";
                Error::invalid(format!("a level of {} Hz", level.as_hertz()), why)
            })?),
        })
    }

    /// Lowest and highest frequency of the hardware; `None` if not reported.
    pub(super) fn extremes(&self, access: &Access, cpu: u32) -> Result<Option<[Hertz; 2]>, Error> {
        let Some(policy) = policy_of(access, cpu)? else { return Ok(None) };
        let limits = Limits::new(policy).hardware(access).map_err(of_host)?;
        Ok(limits.map(|(min, max)| [Hertz::new(min * 1_000), Hertz::new(max * 1_000)]))
    }

    /// Takes over the frequency setting through the journal, until the returned value is released, and requests `level`.
    pub(super) fn hold(&self, access: &Access, level: Hertz) -> Result<Steered, Error> {
        let value = self.value(level)?;
        let target = match self {
            Self::Governor(setting) => setting.clone().into(),
            Self::Limits(setting) => setting.clone().into(),
            // The driver sets the other fields of the register.
            Self::Hwp(setting) => Target::fields(setting.clone(), ["min", "max"]),
        };
        let lacking = |why: String| {
            Error::lacking(format!("request a frequency through the {}", self.name()), why, "see apus tune status")
        };
        let name = "probe frequency";
        let mut held = Steered::new(access, name, &[target], "apus probe frequency", env!("CARGO_PKG_VERSION"))
            .map_err(|error| lacking(error.to_string()))?;
        match held.steer(0, &value).map_err(of_host)? {
            Moved::AsWanted { .. } | Moved::Otherwise { .. } => Ok(held),
            Moved::Unmoved { now, why } => {
                let why = why.map_or(String::new(), |why| format!(": {why}"));
                Err(lacking(format!("the kernel accepted {value} and kept {now}{why}")))
            }
            Moved::LetGo { now } => Err(lacking(format!("something else set it to {now}"))),
            Moved::Away | Moved::Gone => Err(lacking("the setting disappeared".into())),
        }
    }
}

/// The frequency policy of a CPU.
fn policy_of(access: &Access, cpu: u32) -> Result<Option<u32>, Error> {
    for policy in policies(access).map_err(of_host)? {
        if policy == cpu || policy_cpus(access, policy).map_err(of_host)?.contains(cpu) {
            return Ok(Some(policy));
        }
    }
    Ok(None)
}

fn missing(access: &Access, cpu: u32, via: Via, policy: Option<u32>) -> Error {
    let mut why = match policy {
        None => format!("{} has no policy of this CPU", access.show("/sys/devices/system/cpu/cpufreq")),
        Some(policy) if via == Via::Hwp => format!("policy {policy} exists, and --via {} would use it", Via::Limits),
        Some(policy) => format!("policy {policy} has no userspace governor"),
    };
    if via == Via::Hwp || via == Via::Auto {
        why += &format!("; {} is not readable", access.show(&format!("/dev/cpu/{cpu}/msr")));
    }
    Error::lacking(
        format!("request a frequency for CPU {cpu} ({via})"),
        why,
        "a guest usually has no frequency control: measure on its host; on bare metal load acpi_cpufreq, intel_pstate or amd_pstate, and for --via hwp the module msr",
    )
}

pub(super) fn of_host(error: host::knob::Error) -> Error {
    if error.lacks() {
        Error::lacking("request a frequency", error, "run as root")
    } else {
        Error::invalid("a frequency", error.to_string())
    }
}

/// APERF and MPERF of a CPU; `None` where they are not readable.
pub(super) fn performance_counters(root: &Path, cpu: usize) -> Option<(u64, u64)> {
    Some((register(root, cpu, APERF)?, register(root, cpu, MPERF)?))
}

fn register(root: &Path, cpu: usize, address: u32) -> Option<u64> {
    if let Ok(file) = fs::File::open(root.join(format!("dev/cpu/{cpu}/msr"))) {
        let mut octets = [0; 8];
        return file.read_exact_at(&mut octets, address.into()).ok().map(|()| u64::from_le_bytes(octets));
    }
    // A recorded host has a line `CPU 0xVALUE` for each CPU.
    let text = fs::read_to_string(root.join(format!("msr/{address:#x}"))).ok()?;
    let value = text.lines().find_map(|line| line.split_once(' ').filter(|(of, _)| of.parse() == Ok(cpu)))?.1;
    u64::from_str_radix(value.trim().strip_prefix("0x")?, 16).ok()
}
