//! The hardware-managed P-states (HWP) request of a CPU.
//!
//! Source: Intel SDM volume 3, "Hardware-Controlled Performance States": IA32_PM_ENABLE (0x770), IA32_HWP_CAPABILITIES
//! (0x771), IA32_HWP_REQUEST (0x774); and the Intel P-state guide (637284-001US), which requests 800 MHz on core 21
//! with `wrmsr -p 21 0x774 0x0808`.

use rustix::thread::CapabilitySet;
use serde::{Deserialize, Serialize};
use units::Hertz;

use super::{Access, Error, Setting, Value, msr};

const PM_ENABLE: u32 = 0x770;
const CAPABILITIES: u32 = 0x771;
const REQUEST: u32 = 0x774;

/// Frequency of one performance level (see [`ratio`]).
const STEP: Hertz = Hertz::new(100_000_000);

/// Fields of IA32_HWP_REQUEST, with their lowest and highest bit.
const FIELDS: [(&str, u32, u32); 4] = [("min", 0, 7), ("max", 8, 15), ("desired", 16, 23), ("epp", 24, 31)];

/// The HWP request of one CPU. Fields: `min`, `max` and `desired`, which are performance levels (see [`ratio`];
/// `desired` 0 means that the hardware chooses), and `epp`, from 0 (performance) to 255 (power saving). A change keeps
/// all other bits of the register.
///
/// In active mode, the intel_pstate driver writes the same register whenever a policy changes.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct HwpRequest {
    /// The number of the CPU.
    pub cpu: u32,
}

/// The performance level of a frequency. On Xeon processors, the level is the frequency divided by 100 MHz (Intel
/// P-state guide; client processors with two kinds of cores differ). `None` if the frequency is not a multiple of 100
/// MHz, or if the level would be above 255.
pub fn ratio(frequency: Hertz) -> Option<u8> {
    let (hertz, step) = (frequency.as_hertz(), STEP.as_hertz());
    (hertz.is_multiple_of(step) && hertz > 0).then(|| u8::try_from(hertz / step).ok()).flatten()
}

impl HwpRequest {
    /// Makes the setting for CPU `cpu`.
    pub const fn new(cpu: u32) -> Self {
        Self { cpu }
    }

    /// Returns an error if a performance level of this CPU is not 100 MHz, as on the fast cores of processors with two
    /// kinds of cores: then [`ratio`] does not apply. The kernel computes `base_frequency` from the guaranteed level, and
    /// `cpuinfo_max_freq` from the highest one (drivers/cpufreq/intel_pstate.c, `show_base_frequency`).
    pub fn check_levels(&self, access: &Access) -> Result<(), Error> {
        let file = |name: &str| access.number(&format!("/sys/devices/system/cpu/cpu{}/cpufreq/{name}", self.cpu));
        let (Some(base), Some(capabilities)) = (file("base_frequency")?, msr::read(access, self.cpu, CAPABILITIES)?)
        else {
            return Ok(());
        };
        let (highest, guaranteed) = (msr::bits(capabilities, 0, 7), msr::bits(capabilities, 8, 15));
        let of = |level: u64| level * STEP.as_hertz() / 1_000;
        if base == of(guaranteed) || file("cpuinfo_max_freq")? == Some(of(highest)) {
            return Ok(());
        }
        Err(Error::Refused {
            what: self.label(),
            why: format!("level {guaranteed} is {base} kHz, so that a performance level is not 100 MHz on this CPU"),
            fix: "set the frequency through cpufreq (power steer: --via limits; power set: --via cpufreq)".into(),
        })
    }

    /// The value that fixes one performance level: `min` (bits 7:0) and `max` (bits 15:8) both equal `level`.
    pub fn fixed(level: u8) -> Value {
        Value::fields([("min", level), ("max", level)])
    }
}

impl Setting for HwpRequest {
    fn label(&self) -> String {
        format!("HWP request of CPU {} (MSR {REQUEST:#x})", self.cpu)
    }

    fn read(&self, access: &Access) -> Result<Option<Value>, Error> {
        let register = msr::read(access, self.cpu, REQUEST)?;
        Ok(register.map(|r| Value::fields(FIELDS.map(|(name, first, last)| (name, msr::bits(r, first, last))))))
    }

    fn write(&self, access: &Access, value: &Value) -> Result<(), Error> {
        let absent =
            || Error::NotThere { what: self.label(), why: "no such register; is the module msr loaded?".into() };
        let mut register = msr::read(access, self.cpu, REQUEST)?.ok_or_else(absent)?;
        for (name, first, last) in FIELDS {
            if let Some(level) = value.field(name).and_then(|text| text.parse::<u8>().ok()) {
                register = msr::with_bits(register, first, last, level.into());
            }
        }
        msr::write(access, &[self.cpu].into_iter().collect(), REQUEST, register)
    }

    fn check(&self, access: &Access, value: &Value) -> Result<(), Error> {
        let wrong = |why: String| Error::invalid(self.label(), why);
        let fields = value.as_fields().ok_or_else(|| wrong("expected fields min, max, desired, epp".into()))?;
        for (name, text) in fields {
            if !FIELDS.iter().any(|(field, ..)| field == name) || text.parse::<u8>().is_err() {
                return Err(wrong(format!("{name}={text}: expected min, max, desired or epp with 0 to 255")));
            }
        }
        let refused = |why: String, fix: &str| Err(Error::Refused { what: self.label(), why, fix: fix.into() });
        if msr::read(access, self.cpu, PM_ENABLE)?.is_some_and(|enable| enable & 1 == 0) {
            return refused(
                "HWP is not enabled (MSR 0x770 bit 0)".into(),
                "use --via cpufreq, or boot with intel_pstate=active",
            );
        }
        if let Some(capabilities) = msr::read(access, self.cpu, CAPABILITIES)? {
            let (lowest, highest) = (msr::bits(capabilities, 24, 31), msr::bits(capabilities, 0, 7));
            for name in ["min", "max"] {
                let level = fields.get(name).and_then(|text| text.parse::<u64>().ok());
                if level.is_some_and(|level| !(lowest..=highest).contains(&level)) {
                    return refused(
                        format!("{name}={} is not within {lowest} to {highest} (MSR 0x771)", fields[name]),
                        "choose a frequency that the processor supports",
                    );
                }
            }
        }
        let has_levels = ["min", "max", "desired"].iter().any(|name| fields.contains_key(*name));
        if has_levels { self.check_levels(access) } else { Ok(()) }
    }

    fn capability(&self) -> CapabilitySet {
        CapabilitySet::SYS_RAWIO
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knob::{Knob, Restored, Theirs};
    use crate::testing::Folder;

    fn recorded() -> Folder {
        Folder::new(&[
            ("msr/0x770", "20 0x1\n21 0x1\n22 0x0\n"),
            ("msr/0x771", "20 0x8081523\n21 0x8081523\n22 0x8081523\n"),
            ("msr/0x774", "20 0x80002308\n21 0x3ff80002308\n22 0x80002308\n"),
        ])
    }

    #[test]
    fn the_guides_example() {
        let folder = recorded();
        let level = ratio("800MHz".parse().unwrap()).unwrap();
        let knob = Knob(HwpRequest::new(21));
        let change = knob.set(&folder.access(), &HwpRequest::fixed(level)).unwrap();
        assert!(change.verdict.is_good());
        assert_eq!(
            folder.read("msr/0x774"),
            "20 0x80002308\n21 0x3ff80000808\n22 0x80002308\n",
            "bits 15:0, and no others"
        );
        let restored = knob.restore(&folder.access(), &change.before, change.verdict.now(), Theirs::Keep).unwrap();
        assert_eq!(restored, Restored::Restored);
        assert_eq!(folder.read("msr/0x774"), recorded().read("msr/0x774"));
    }

    #[test]
    fn what_the_processor_cannot_do_is_refused() {
        let folder = recorded();
        let error = Knob(HwpRequest::new(21)).set(&folder.access(), &HwpRequest::fixed(0x24)).unwrap_err();
        assert!(error.to_string().contains("8 to 35"), "{error}");
        let error = Knob(HwpRequest::new(22)).set(&folder.access(), &HwpRequest::fixed(8)).unwrap_err();
        assert!(error.to_string().contains("0x770"), "{error}");
        assert!(Knob(HwpRequest::new(23)).set(&folder.access(), &HwpRequest::fixed(8)).unwrap_err().is_absent());
        assert_eq!(folder.read("msr/0x774"), recorded().read("msr/0x774"));
    }

    /// Alder Lake: a level of a fast core is 78.7 MHz, and the kernel rounds the base frequency down to 100 MHz.
    #[test]
    fn cores_whose_levels_are_not_100_mhz_are_refused() {
        let folder = recorded();
        let file = |cpu: u32, name: &str, text: &str| {
            folder.put(&format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/{name}"), text);
        };
        let set = |cpu| Knob(HwpRequest::new(cpu)).set(&folder.access(), &HwpRequest::fixed(8));
        file(20, "base_frequency", "2100000\n");
        file(20, "cpuinfo_max_freq", "2100000\n");
        assert!(set(20).unwrap().verdict.is_good(), "turbo is off, and level 21 is 2.1 GHz");
        file(21, "base_frequency", "1600000\n");
        file(21, "cpuinfo_max_freq", "2700000\n");
        let error = set(21).unwrap_err().to_string();
        assert!(error.contains("level 21 is 1600000 kHz") && error.contains("--via limits"), "{error}");
        assert_eq!(folder.read("msr/0x774").lines().nth(1), Some("21 0x3ff80002308"));
        file(21, "cpuinfo_max_freq", "3500000\n");
        assert!(set(21).is_ok(), "level 35 is 3.5 GHz");
    }

    #[test]
    fn levels_are_multiples_of_100_mhz() {
        assert_eq!(ratio(Hertz::new(2_100_000_000)), Some(0x15));
        for hertz in [0, 850_000_000, 25_600_000_000] {
            assert_eq!(ratio(Hertz::new(hertz)), None);
        }
    }
}
