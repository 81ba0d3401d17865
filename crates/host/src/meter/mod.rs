//! The energy meters of this machine. For each meter: the interface through which it is read, and the parts of the
//! machine that it includes.
//!
//! ```text
//!  powercap ─┐
//!  perf     ─┤ find: one Meter per part of the machine          read ──► Tally: wrap-around, units,
//!  MSR      ─┼─► (the first interface that can be read counts) ──►       differences, doubts
//!  ACPI     ─┤    Lack: why the others give nothing                       │
//!  hwmon    ─┘                                                            └─► Account: a run's energy
//! ```
//! Several interfaces may show the same counter (RAPL: powercap, perf and registers), and some counters include others:
//! a package includes its cores, and the platform includes its packages. [`Meters::counted`] is the largest set of
//! meters whose sum counts no energy twice.
//!
//! A missing meter never counts as zero: [`Meters::lacks`] gives the reason for each interface.
//!
//! The caller passes the time to [`Meters::poll`]. [`Meters::poll_within`] returns the time within which the next poll
//! is needed, because a counter may wrap around.
//!
//! Sources: Linux, Documentation/power/powercap/powercap.rst, Documentation/ABI/testing/sysfs-class-hwmon,
//! Documentation/hwmon/acpi_power_meter.rst; Intel 64 and IA-32 Software Developer's Manual, volume 3, 16.10 (RAPL).

mod account;
mod choose;
pub mod cores;
mod hwmon;
mod msr;
mod perf;
mod powercap;
pub(crate) mod sys;
mod tally;
#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;

use units::{Nanojoules, Nanos};

pub use account::{Account, Share};
pub use tally::{Quantity, Tally, Unit};

use crate::facts::{Kind, Root, Why};

units::named! {
    /// Interfaces through which meters are read, the preferred ones first.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    pub enum Interface {
        /// RAPL through `/sys/class/powercap`. It counts whole microjoules, and wraps around.
        Powercap = "powercap",
        /// RAPL through perf's PMU `power`. It counts in units of 2^-32 J; the kernel extends the counter to 64 bits.
        Perf = "perf",
        /// RAPL's registers through `/dev/cpu/N/msr`. They have 32 bits, and each reading interrupts one CPU of the
        /// package.
        Msr = "msr",
        /// ACPI's power meter (device ACPI000D). It shows the average power of the machine or of a part of it.
        Acpi = "acpi",
        /// A sensor of the class hwmon.
        Hwmon = "hwmon",
    }
}

/// The part of the machine whose energy a meter counts.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Part {
    /// A processor package, or one die of it: cores, caches, uncore, integrated graphics.
    Package(Place),
    /// All cores of a package (RAPL PP0); included in the package.
    Cores(Place),
    /// One core; included in the package. Only AMD's processors count single cores.
    Core(Place),
    /// The graphics in the uncore of a package (RAPL PP1); included in the package.
    Uncore(Place),
    /// The memory of a package; not included in the package.
    Dram(Place),
    /// The platform (RAPL psys): the packages, and other parts that the board vendor chose.
    Platform,
    /// The whole machine, or the part of it that an ACPI power meter measures. The string names the device.
    Machine(String),
    /// Something else, such as a power rail, an accelerator, or a zone with an unknown name. It never counts in a sum.
    Other(String),
}

/// A package, or one of its dies if the package has several.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Place {
    /// Number of the socket.
    pub package: u32,
    /// Number of the die in its package. `None` if the package has only one die.
    pub die: Option<u32>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.die {
            Some(die) => write!(f, "package-{}-die-{die}", self.package),
            None => write!(f, "package-{}", self.package),
        }
    }
}

impl Part {
    /// A short name: `package-0`, `package-1 dram`, `platform`.
    pub fn name(&self) -> String {
        match self {
            Self::Package(place) => place.to_string(),
            Self::Cores(place) => format!("{place} cores"),
            Self::Core(place) => format!("{place} one core"),
            Self::Uncore(place) => format!("{place} uncore"),
            Self::Dram(place) => format!("{place} dram"),
            Self::Platform => "platform".to_owned(),
            Self::Machine(device) | Self::Other(device) => device.clone(),
        }
    }

    /// Describes what the meter's count includes and excludes.
    pub fn includes(&self) -> &'static str {
        match self {
            Self::Package(_) => "cores, caches, uncore and integrated graphics of the package; not its memory",
            Self::Cores(_) => "all cores of the package, without uncore",
            Self::Core(_) => "one core of the package",
            Self::Uncore(_) => "integrated graphics of the package",
            Self::Dram(_) => "memory of the package's channels",
            Self::Platform => "the platform: packages and what the board's designer connected, often all of the board",
            Self::Machine(_) => "what the firmware measures, usually the whole machine",
            Self::Other(_) => "what its driver measures; never added to other meters",
        }
    }
}

/// An energy meter of this machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Meter {
    /// The part whose energy the meter counts.
    pub part: Part,
    /// The interface through which the meter is read.
    pub by: Interface,
    /// Source of the values: a path, or the name of an event or a register.
    pub place: String,
    /// Whether the meter counts energy or shows power.
    pub quantity: Quantity,
    /// Time between two updates of the value by the hardware or the firmware. `None` if unknown.
    pub update: Option<Nanos>,
    /// The accuracy that the firmware states, in ppm of the value; `None` if it states none.
    pub accuracy_ppm: Option<u32>,
}

impl Meter {
    /// The minimum difference between two different readings. `None` for a meter that shows power.
    pub fn resolution(&self) -> Option<Nanojoules> {
        match &self.quantity {
            Quantity::Energy { step, .. } => Some(*step),
            Quantity::Average { .. } | Quantity::Power => None,
        }
    }
}

/// Why an interface, or one of its meters, cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lack {
    /// The interface that cannot be read.
    pub by: Interface,
    /// Where the reader looked.
    pub place: String,
    /// Why nothing can be read at `place`.
    pub why: Why,
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { by, place, why } = self;
        write!(f, "{by}: {place}: {why}")
    }
}

/// The source from which a meter's value is read.
#[derive(Debug)]
enum From {
    /// An open file with one number, which can be read repeatedly.
    File(File),
    /// A perf event.
    Event(OwnedFd),
    /// The open file `/dev/cpu/N/msr`, and the address of a register in it, whose low 32 bits are the value.
    Register(File, u32),
    /// The file of a recorded register, and the CPU whose line is read.
    Recorded(File, u32),
}

impl From {
    fn read(&self) -> Result<u64, Why> {
        let number = |file: &File| -> Result<String, Why> {
            let mut text = [0; 4096];
            let read = file.read_at(&mut text, 0).map_err(|error| why(&error))?;
            Ok(String::from_utf8_lossy(&text[..read]).trim().to_owned())
        };
        match self {
            Self::File(file) => {
                let text = number(file)?;
                text.parse()
                    .map_err(|_| Why::Malformed(format!("{text:?} is no number of microjoules or microwatts").into()))
            }
            Self::Event(event) => sys::count(event).map_err(|error| why(&error)),
            Self::Register(file, address) => {
                let mut octets = [0; 8];
                file.read_exact_at(&mut octets, u64::from(*address)).map_err(|error| why(&error))?;
                Ok(u64::from_le_bytes(octets) & u64::from(u32::MAX))
            }
            Self::Recorded(file, cpu) => {
                let text = number(file)?;
                msr::line(&text, *cpu).map(|value| value & u64::from(u32::MAX))
            }
        }
    }
}

/// For how long the machine has been suspended since its boot: the difference of two clocks, of which only one runs on
/// during a suspend (clock_gettime(2)).
fn slept() -> Nanos {
    use rustix::time::{ClockId, clock_gettime};
    let read = |clock| {
        let time = clock_gettime(clock);
        Nanos::from_secs(time.tv_sec.unsigned_abs()) + Nanos::from_nanos(time.tv_nsec.unsigned_abs())
    };
    // Other threads may run between two readings. The smallest of several differences has the smallest error.
    let difference = |_| {
        let awake = read(ClockId::Monotonic);
        read(ClockId::Boottime).saturating_sub(awake)
    };
    (0..5).map(difference).min().unwrap_or(Nanos::ZERO)
}

/// Converts a system error into a reason.
fn why(error: &std::io::Error) -> Why {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => Why::NotPermitted,
        std::io::ErrorKind::NotFound => Why::Absent,
        _ => Why::Unsupported(error.to_string().into()),
    }
}

/// A meter that was found and read successfully.
#[derive(Debug)]
struct Found {
    meter: Meter,
    from: From,
}

/// The meters of a machine, open for reading, with the energy that each has counted since [`Meters::find`].
#[derive(Debug)]
pub struct Meters {
    found: Vec<Found>,
    tallies: Vec<Tally>,
    counted: Vec<usize>,
    lacks: Vec<Lack>,
    /// Whether the machine is the running one, which may be suspended.
    is_live: bool,
    /// For how long the machine has been suspended since its boot, at the last poll.
    slept: Nanos,
}

/// Suspends that are shorter are not noticed: the two clocks that show them are not read at the same time.
const SHORTEST_SUSPEND: Nanos = Nanos::from_millis(10);

/// Maximum time between two readings of a meter that shows power. Changes of power between two readings are missed.
const POWER_POLL: Nanos = Nanos::from_secs(1);

impl Meters {
    /// Finds the meters of the machine below `root`, and opens each. Changes nothing.
    ///
    /// perf events exist only on the running machine. Registers are read only if neither powercap nor perf has a meter
    /// for a package, because reading a register interrupts a CPU.
    pub fn find(root: &Root) -> Self {
        let mut found = Vec::new();
        let mut lacks = Vec::new();
        powercap::find(root, &mut found, &mut lacks);
        perf::find(root, &mut found, &mut lacks);
        msr::find(root, &mut found, &mut lacks);
        hwmon::acpi(root, &mut found, &mut lacks);
        hwmon::find(root, &mut found, &mut lacks);
        Self::of(found, lacks, root.kind() == Kind::Live)
    }

    fn of(found: Vec<Found>, lacks: Vec<Lack>, is_live: bool) -> Self {
        let parts: Vec<&Part> = found.iter().map(|found| &found.meter.part).collect();
        let counted = choose::counted(&parts);
        let tallies = found.iter().map(|found| Tally::new(found.meter.quantity.clone())).collect();
        let slept = if is_live { slept() } else { Nanos::ZERO };
        Self { found, tallies, counted, lacks, is_live, slept }
    }

    /// The meters, in the same order as [`Account::shares`].
    pub fn list(&self) -> impl ExactSizeIterator<Item = &Meter> {
        self.found.iter().map(|found| &found.meter)
    }

    /// Indexes in [`Meters::list`] of the meters to add up. Their sum counts no energy twice. Empty if no meter of the
    /// processors, the platform or the machine can be used.
    pub fn counted(&self) -> &[usize] {
        &self.counted
    }

    /// The interfaces and meters that cannot be read, with the reasons.
    pub fn lacks(&self) -> &[Lack] {
        &self.lacks
    }

    /// Why no energy can be measured, in one sentence. `None` if it can be measured.
    pub fn reason(&self) -> Option<String> {
        if !self.counted.is_empty() {
            return None;
        }
        let others: Vec<String> = self.list().map(|meter| meter.part.name()).collect();
        if !others.is_empty() {
            return Some(format!(
                "no meter of the processors, the platform or the machine that can be taken alone, only: {}",
                others.join(", ")
            ));
        }
        let mut text = String::from("no energy meter here: ");
        for (place, lack) in self.lacks.iter().enumerate() {
            text.push_str(if place == 0 { "" } else { "; " });
            text.push_str(&lack.to_string());
        }
        Some(text)
    }

    /// Reads every meter. `now` is the current time, measured from an arbitrary fixed moment without the time for which
    /// the machine was suspended.
    pub fn poll(&mut self, now: Nanos) {
        let slept = if self.is_live { slept() } else { Nanos::ZERO };
        self.poll_after(now, slept);
    }

    fn poll_after(&mut self, now: Nanos, slept: Nanos) {
        if slept.saturating_sub(self.slept) >= SHORTEST_SUSPEND {
            self.tallies.iter_mut().for_each(Tally::suspended);
        }
        self.slept = slept;
        for (found, tally) in self.found.iter().zip(&mut self.tallies) {
            match found.from.read() {
                Ok(value) => tally.feed(now, value),
                Err(why) => tally.fail(format!("{}: {why}", found.meter.place)),
            }
        }
    }

    /// Opens the files of the meters again whose last reading failed: a driver that was loaded again has new files. Errors
    /// are reported by the next [`Meters::poll`].
    pub fn reopen(&mut self, root: &Root) {
        for (found, _) in self.found.iter_mut().zip(&self.tallies).filter(|(_, tally)| !tally.is_read()) {
            if let (From::File(file), Ok(new)) = (&mut found.from, root.reopened(&found.meter.place)) {
                *file = new;
            }
        }
    }

    /// For each meter in [`Meters::list`]: the energy since the first [`Meters::poll`] without that in gaps, and the
    /// number of gaps. A gap lasts from a reading that failed or is in doubt until the next reading.
    pub fn known(&self) -> impl ExactSizeIterator<Item = (Nanojoules, u64)> {
        self.tallies.iter().map(Tally::known)
    }

    /// Maximum time until the next [`Meters::poll`], so that no counter wraps around unnoticed, and power is sampled
    /// often enough. `None` if there is no limit.
    pub fn poll_within(&self) -> Option<Nanos> {
        self.found.iter().filter_map(|found| found.meter.quantity.poll_within(POWER_POLL)).min()
    }

    /// The state of all meters at the last [`Meters::poll`], from which [`Meters::since`] starts.
    pub fn account(&self) -> Account {
        Account::new(self.tallies.clone())
    }

    /// The energy of each meter since `account` was taken, up to the last [`Meters::poll`].
    pub fn since(&self, account: &Account) -> Account {
        account.until(&self.tallies)
    }

    /// The sum of the energies in `account`, which [`Meters::since`] returned, over the meters in [`Meters::counted`].
    /// The error says why there is no sum.
    pub fn sum(&self, account: &Account) -> Result<Share, String> {
        if let Some(reason) = self.reason() {
            return Err(reason);
        }
        account.sum(&self.counted)
    }

    /// The names of the meters that are added up: `package-0 + package-0 dram`.
    pub fn counted_name(&self) -> String {
        let names: Vec<String> = self.counted.iter().map(|place| self.found[*place].meter.part.name()).collect();
        names.join(" + ")
    }
}
