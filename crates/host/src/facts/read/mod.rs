//! Reads facts. Each module reads one group of facts from a [`Root`].

mod boot;
mod cgroups;
mod context;
mod counters;
mod cpuinfo;
mod cpus;
mod ethtool;
mod ethtool_text;
mod firmware;
mod freebsd;
mod frequency;
mod idle;
mod irqs;
mod kernel;
mod links;
mod lspci;
mod memory;
mod messages;
mod msrs;
mod pci;
mod pci_config;
mod queue_irqs;
mod resctrl;
mod services;
mod smbios;
mod sysctls;
mod tables;
mod tasks;
mod uncore;
mod virtualisation;
mod workqueues;

use std::convert::Infallible;
use std::thread;
use std::time::Duration;

use units::Nanos;

use super::live::Housekeeping;
use super::{CommandLine, Fact, Facts, Kind, Origin, Reading, Root};

pub(crate) use context::{Context, isolated};
pub(crate) use cpuinfo::is_quiet as cpuinfo_is_quiet;
pub(crate) use ethtool::Ethtool;
pub(crate) use ethtool_text::{printed, printed_size};
#[cfg(test)]
pub(crate) use kernel::PARAMETERS;
pub(crate) use kernel::release;
pub(crate) use memory::modules as memory_modules;
pub(crate) use messages::matters;
pub(crate) use msrs::read as registers;
pub(crate) use queue_irqs::{Queues, write};
#[cfg(test)]
pub(crate) use sysctls::SYSCTLS;

/// Reads the observations from a snapshot that was taken with `--watch`.
fn observed(root: &Root) -> Fact<super::Observed> {
    match root.kind() {
        Kind::Live => Fact::not_recorded("apus snapshot --watch"),
        _ => root.text(OBSERVED).parse(|text| serde_json::from_str(&text)),
    }
}

/// Path of the observations in a snapshot that was taken with `--watch`.
pub(crate) const OBSERVED: &str = "commands/apus_observed";

/// Whether the host of `root` is a guest, without reading its other facts.
pub(crate) fn guest(root: &Root) -> Fact<bool> {
    let context = Context::new(root, Reading::default());
    virtualisation::is_guest(root, &cpuinfo::flags(&cpuinfo::read(&context)), &firmware::read(&context))
}

impl Facts {
    /// Reads the facts of the host to which `root` belongs. Does not read model-specific registers, and reads the
    /// counters once; [`Self::read_with`] has options for both.
    pub fn read(root: &Root) -> Self {
        Self::read_with(root, Reading::default())
    }

    /// Reads the facts of the host to which `root` belongs, with the options in `reading`.
    ///
    /// On a live host, the calling thread stays on housekeeping CPUs while it reads, and no isolated CPU is interrupted
    /// unless `reading` requests registers.
    pub fn read_with(root: &Root, reading: Reading) -> Self {
        let Ok(facts) = Self::try_read_with(root, reading, |length| {
            thread::sleep(Duration::from_nanos(length.as_nanos()));
            Ok::<(), Infallible>(())
        });
        facts
    }

    /// Like [`Self::read_with`], but `wait` lets the time between the two readings of a live host's counters pass. If
    /// it returns an error, for example because a signal has arrived, the reading ends with that error.
    pub fn try_read_with<E>(
        root: &Root,
        reading: Reading,
        wait: impl FnOnce(Nanos) -> Result<(), E>,
    ) -> Result<Self, E> {
        let is_live = root.kind() == Kind::Live;
        let housekeeping = is_live.then(|| Housekeeping::enter(&context::isolated(root).union(&reading.isolated)));
        let interval = reading.interval;
        let context = Context::new(root, reading);
        let cpus = cpus::read(&context);
        let online = cpus.all();
        let first = counters::read(&context, &online, "");
        let second = match interval {
            Some(length) if is_live => {
                wait(length)?;
                counters::read(&context, &online, "")
            }
            _ => counters::read(&context, &online, "again/"),
        };
        let interval = match is_live && interval.is_none() {
            true => Fact::not_recorded("a second reading of the counters"),
            false => counters::interval(&first, &second),
        };
        let os = freebsd::operating_system(root);
        let cmdline = root.text("proc/cmdline").map(|text| CommandLine::parse(&text));
        let kernel = kernel::read(&context, &cmdline, &cpus);
        let irqs = irqs::read(root, &first.counters.interrupts);
        let memory = memory::read(&context);
        let cgroups = cgroups::read(&context);
        let dmi = firmware::read(&context);
        let tasks = first.tasks;
        let facts = Self {
            idle: idle::read(&context),
            scaling: frequency::scaling(root),
            uncore: uncore::domains(&context, &cpus),
            power_zones: uncore::power_zones(&context, &cpus),
            msrs: msrs::read(&context, &online),
            workqueues: workqueues::read(&context),
            pci: pci::read(&context),
            links: links::read(&context, &irqs),
            services: services::read(&context, &cgroups),
            virtualisation: virtualisation::read(&context, &cpus, &dmi, &kernel, &tasks),
            resctrl: resctrl::read(&context, &memory),
            freebsd: freebsd::read(&context, os),
            counters: first.counters,
            origin: Origin {
                kind: root.kind(),
                name: root.name().into(),
                os,
                taken: root.taken().map(str::to_owned),
                notes: root.notes().to_vec(),
            },
            cmdline,
            kernel,
            cpus,
            irqs,
            tasks,
            cgroups,
            memory,
            dmi,
            interval,
            observed: observed(root),
        };
        Ok(facts.noted(housekeeping))
    }

    /// Adds the note of `housekeeping`, if any: the calling thread could not be moved to the housekeeping CPUs.
    fn noted(mut self, housekeeping: Option<Housekeeping>) -> Self {
        self.origin.notes.extend(housekeeping.and_then(|mut place| place.note.take()));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `apus irqs --watch` holds the signals: only the wait can tell that one has come.
    #[test]
    fn a_reading_ends_when_its_wait_does() {
        let reading = Reading { interval: Some(Nanos::from_secs(600)), ..Reading::default() };
        let mut asked = None;
        let ended = Facts::try_read_with(&Root::live(), reading, |length| {
            asked = Some(length);
            Err("a signal")
        });
        assert_eq!((ended.err(), asked), (Some("a signal"), Some(Nanos::from_secs(600))));
    }
}
