//! Determines which settings a profile changes on one machine.

mod cpu;
mod network;
mod pattern;

use toml::Spanned;

use super::file::{Layer, Scalar};
use super::{Error, Profile};
use crate::facts::CpuSet;
use crate::knob::{
    Access, AnySetting, BootFragment, CgroupFile, CgroupFolder, CpuMask, DmaLatency, Error as KnobError, File,
    HugePages, IrqAffinity, IrqDefaultAffinity, IrqbalanceBans, Sysctl, ThreadAffinity, ThreadClass, Turbo, Value,
    cpuset_mount, irqs, memory, online, threads,
};
use crate::transaction::{Item, OnRefusal, Plan};

/// The CPUs and interfaces to which a profile applies on this machine. The profile itself does not name them.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Purpose {
    /// The CPUs for the application. `None` means the CPUs that the kernel has isolated.
    pub isolated: Option<CpuSet>,
    /// The interfaces for which `*` stands in the profile. If empty, `*` stands for all interfaces with a device.
    pub interfaces: Vec<String>,
}

/// A profile applied to a machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Resolved {
    /// The settings to change.
    pub plan: Plan,
    /// The arguments for the kernel's command line, in order.
    pub arguments: Vec<String>,
    /// The CPUs for the application.
    pub isolated: CpuSet,
    /// All other online CPUs.
    pub housekeeping: CpuSet,
    /// Parts of the profile that do not apply to this machine, with the reason.
    pub notes: Vec<String>,
}

impl Profile {
    /// Determines the settings that the profile changes on the machine. Changes nothing.
    ///
    /// If the profile names a single setting that the machine does not have, the plan contains it anyway. If the
    /// profile refers to all settings of a kind (CPU policies, interrupts, uncore domains), the plan contains only
    /// existing ones.
    pub fn resolve(&self, access: &Access, purpose: &Purpose) -> Result<Resolved, Error> {
        let of_machine = |e: KnobError| Error { place: self.name.clone(), why: e.to_string() };
        let all = online(access).map_err(of_machine)?;
        let mut notes = self.notes.clone();
        let isolated = match &purpose.isolated {
            Some(cpus) => cpus.clone(),
            None => {
                // The kernel's list has offline CPUs too.
                let isolated = isolated(access).map_err(of_machine)?;
                let offline = isolated.difference(&all);
                if !offline.is_empty() {
                    notes.push(format!("the isolated CPUs {offline} are offline, so nothing is set for them"));
                }
                isolated.intersection(&all)
            }
        };
        let housekeeping = all.difference(&isolated);
        let resolved = Resolved { plan: Plan::new(&self.name), arguments: Vec::new(), isolated, housekeeping, notes };
        let mut work = Work { access, purpose, all, resolved };
        work.sound(&self.name)?;
        for layer in &self.layers {
            work.layer(layer)?;
        }
        work.arguments();
        Ok(work.resolved)
    }
}

/// The CPUs that the kernel has isolated.
pub(super) fn isolated(access: &Access) -> Result<CpuSet, KnobError> {
    const PATH: &str = "/sys/devices/system/cpu/isolated";
    let list = access.line(PATH)?.unwrap_or_default();
    list.parse().map_err(|_| KnobError::unreadable(PATH, &list, "a list of CPUs"))
}

const NONE_ISOLATED: &str = "no CPU is isolated: choose some with --isolated";

/// The plan that is being made, and the data from which it is made.
struct Work<'a> {
    access: &'a Access,
    purpose: &'a Purpose,
    all: CpuSet,
    resolved: Resolved,
}

impl Work<'_> {
    /// Checks that the isolated CPUs are online, and that at least one CPU remains for housekeeping.
    fn sound(&self, name: &str) -> Result<(), Error> {
        let Resolved { isolated, housekeeping, .. } = &self.resolved;
        let wrong = |why: String| Err(Error { place: name.to_owned(), why });
        if !isolated.is_subset(&self.all) {
            return wrong(format!("CPUs {} are not online; CPUs {} are", isolated.difference(&self.all), self.all));
        }
        if housekeeping.is_empty() {
            return wrong(format!("all CPUs ({}) would be isolated: leave at least one for housekeeping", self.all));
        }
        Ok(())
    }

    fn layer(&mut self, layer: &Layer) -> Result<(), Error> {
        let file = &layer.file;
        for (name, value) in &file.sysctl {
            if let Some(text) = self.fill(layer, value) {
                self.add(layer, value, Sysctl::new(name), Value::text(text))?;
            }
        }
        for (path, value) in &file.sysfs {
            if let Some(text) = self.fill(layer, value) {
                self.add(layer, value, File::new(path), Value::text(text))?;
            }
        }
        // What is said of few CPUs or of one interface counts more than what is said of many.
        let mut cpus: Vec<_> = file.cpus.iter().collect();
        cpus.sort_by_key(|(selector, _)| match selector.as_str() {
            "all" => 0,
            "housekeeping" | "isolated" => 1,
            _ => 2,
        });
        for (selector, section) in cpus {
            self.cpus_section(layer, selector, section)?;
        }
        self.power(layer)?;
        self.interrupts(layer)?;
        self.memory(layer)?;
        for (prefix, section) in &file.threads {
            self.threads(layer, prefix, section)?;
        }
        let mut network: Vec<_> = file.network.iter().collect();
        network.sort_by_key(|(name, _)| match name.as_str() {
            "*" => 0,
            name if name.starts_with("driver:") => 1,
            name if name.contains(['*', '?', '[']) => 2,
            _ => 3,
        });
        for (name, section) in network {
            self.network_section(layer, name, section)?;
        }
        self.cpuset(layer)?;
        let mut earlier = std::mem::take(&mut self.resolved.arguments);
        for argument in &file.kernel.arguments {
            self.argument(layer, argument)?;
        }
        // An argument replaces those of earlier layers, but not others of its own file: hugepagesz= may be repeated.
        fn key(argument: &str) -> &str {
            argument.split('=').next().unwrap_or_default()
        }
        earlier.retain(|earlier| self.resolved.arguments.iter().all(|later| key(earlier) != key(later)));
        self.resolved.arguments.splice(0..0, earlier);
        Ok(())
    }

    /// Adds a setting with its wanted value. If no machine accepts the value, returns an error about the profile.
    fn add<T>(
        &mut self,
        layer: &Layer,
        place: &Spanned<T>,
        setting: impl Into<AnySetting>,
        wanted: Value,
    ) -> Result<(), Error> {
        self.add_as(layer, place, setting, wanted, OnRefusal::RollBack)
    }

    fn add_as<T>(
        &mut self,
        layer: &Layer,
        place: &Spanned<T>,
        setting: impl Into<AnySetting>,
        wanted: Value,
        on_refusal: OnRefusal,
    ) -> Result<(), Error> {
        use crate::knob::Setting as _;
        let setting = setting.into();
        let texts =
            wanted.as_text().into_iter().chain(wanted.as_fields().into_iter().flatten().map(|(_, text)| text.as_str()));
        if let Some(variable) = texts.into_iter().find_map(unfilled) {
            return Err(layer.wrong(place, format!("there is no variable {variable}; define it under [variables]")));
        }
        let wanted = match &setting {
            AnySetting::Features(features) => {
                features.meant(self.access, wanted).map_err(|error| layer.wrong(place, error))?
            }
            _ => wanted,
        };
        // A value that only this machine refuses stays in the plan, which shows the refusal.
        if let Err(error @ KnobError::Invalid { .. }) = setting.check(self.access, &wanted) {
            return Err(layer.wrong(place, error));
        }
        self.resolved.plan.push(Item { setting, wanted, on_refusal, from: Some(layer.place(place)) });
        Ok(())
    }

    /// The value as text, in which `{isolated}` and `{housekeeping}` are replaced by the machine's CPU lists. If the
    /// text needs the isolated CPUs and there are none, adds a note and returns `None`: an empty list is not what
    /// the profile means.
    fn fill(&mut self, layer: &Layer, value: &Spanned<impl std::fmt::Display>) -> Option<String> {
        let text = value.get_ref().to_string();
        if text.contains("{isolated}") && self.resolved.isolated.is_empty() {
            self.note(layer, value, NONE_ISOLATED);
            return None;
        }
        let Resolved { isolated, housekeeping, .. } = &self.resolved;
        let text = text.replace("{isolated}", &isolated.to_list());
        Some(text.replace("{housekeeping}", &housekeeping.to_list()))
    }

    fn note(&mut self, layer: &Layer, place: &Spanned<impl Sized>, why: &str) {
        self.resolved.notes.push(format!("{}: {why}", layer.place(place)));
    }

    /// Parses `all`, `isolated`, `housekeeping` or a list of CPUs.
    fn select(&self, text: &str) -> Result<CpuSet, String> {
        match text {
            "all" => Ok(self.all.clone()),
            "isolated" => Ok(self.resolved.isolated.clone()),
            "housekeeping" => Ok(self.resolved.housekeeping.clone()),
            list => match list.parse::<CpuSet>() {
                Ok(cpus) if !cpus.is_empty() => Ok(cpus),
                _ => Err(format!("{list:?}: expected all, isolated, housekeeping or a list of CPUs such as 2-5")),
            },
        }
    }

    /// The CPUs to which a value refers. If there are none, adds a note and returns `None`.
    fn cpus(&mut self, layer: &Layer, text: &Spanned<String>) -> Result<Option<CpuSet>, Error> {
        let cpus = self.select(text.get_ref()).map_err(|why| layer.wrong(text, why))?;
        if cpus.is_empty() {
            self.note(layer, text, NONE_ISOLATED);
            return Ok(None);
        }
        Ok(Some(cpus))
    }

    fn power(&mut self, layer: &Layer) -> Result<(), Error> {
        let section = &layer.file.power;
        if let Some(turbo) = &section.turbo {
            self.add(layer, turbo, Turbo {}, Turbo::value(*turbo.get_ref()))?;
        }
        if let Some(latency) = &section.latency {
            let wanted = match latency.get_ref().as_str() {
                "none" => Value::text("none"),
                text => DmaLatency::at_most(text.parse().map_err(|e| layer.wrong(latency, e))?),
            };
            self.add(layer, latency, DmaLatency {}, wanted)?;
        }
        self.uncore(layer)
    }

    fn interrupts(&mut self, layer: &Layer) -> Result<(), Error> {
        let (section, queues) = (&layer.file.interrupts, &layer.file.workqueues);
        if let Some(text) = &section.default
            && let Some(cpus) = self.cpus(layer, text)?
        {
            self.add(layer, text, IrqDefaultAffinity {}, CpuMask::value(&cpus))?;
        }
        if let Some(text) = &section.all
            && let Some(cpus) = self.cpus(layer, text)?
        {
            let irqs = irqs(self.access).map_err(|e| layer.wrong(text, e))?;
            if irqs.is_empty() {
                self.note(layer, text, "the host lists no interrupt in /proc/irq");
            }
            for irq in irqs {
                let irq = IrqAffinity::new(irq);
                let fixed = irq.fixed(self.access).map_err(|e| layer.wrong(text, e))?.is_some();
                // Skips an interrupt that cannot be moved if it already is on the wanted CPUs.
                if fixed && irq.is_within(self.access, &cpus).map_err(|e| layer.wrong(text, e))? {
                    continue;
                }
                self.add_as(layer, text, irq, Value::text(&cpus), OnRefusal::Report)?;
            }
        }
        if let Some(text) = &section.banned {
            if text.get_ref() == "unset" {
                self.add(layer, text, IrqbalanceBans {}, Value::text("unset"))?;
            } else if let Some(cpus) = self.cpus(layer, text)? {
                self.add(layer, text, IrqbalanceBans {}, Value::text(cpus))?;
            }
        }
        if let Some(text) = &queues.cpus
            && let Some(cpus) = self.cpus(layer, text)?
        {
            self.add(layer, text, CpuMask::workqueues(), CpuMask::value(&cpus))?;
        }
        if let Some(text) = &queues.writeback
            && let Some(cpus) = self.cpus(layer, text)?
        {
            self.add(layer, text, CpuMask::workqueue("writeback"), CpuMask::value(&cpus))?;
        }
        Ok(())
    }

    fn memory(&mut self, layer: &Layer) -> Result<(), Error> {
        let section = &layer.file.memory;
        for (file, text) in [("enabled", &section.transparent_huge_pages), ("defrag", &section.defrag)] {
            if let Some(text) = text {
                self.add(layer, text, memory::transparent_huge_pages(file), Value::text(text.get_ref()))?;
            }
        }
        if let Some(run) = &section.same_page_merging {
            self.add(layer, run, memory::kernel_same_page_merging(), Value::text(run.get_ref()))?;
        }
        for pages in &section.huge_pages {
            let section = pages.get_ref();
            let size_kb = match section.size.as_str() {
                "2MB" => 2_048,
                "1GB" => 1_048_576,
                other => return Err(layer.wrong(pages, format!("size {other:?}: expected 2MB or 1GB"))),
            };
            self.add(layer, pages, HugePages::new(size_kb, section.node), Value::text(section.count))?;
        }
        Ok(())
    }

    fn threads(&mut self, layer: &Layer, prefix: &str, section: &super::file::ThreadSection) -> Result<(), Error> {
        let Some(any) = section.cpus.as_ref().or(section.class.as_ref()) else { return Ok(()) };
        // A pattern is searched by the text before its first star.
        let is_pattern = pattern::is_pattern(prefix);
        let start = if is_pattern { prefix.split(['*', '?']).next().unwrap_or_default() } else { prefix };
        if prefix.trim_matches(['*', '?']).is_empty() {
            return Err(
                layer.wrong(any, "expected the beginning of a name, such as ksoftirqd/, or a pattern, such as *-mlx5*")
            );
        }
        let found = if self.access.is_live() { threads(self.access, start) } else { Ok(Vec::new()) };
        let mut found = found.map_err(|e| layer.wrong(any, e))?;
        found.retain(|thread| !is_pattern || pattern::matches(prefix, &thread.name));
        if found.is_empty() {
            self.note(layer, any, &format!("no thread has a name that starts with {prefix}"));
        }
        for thread in found {
            if let Some(text) = &section.cpus
                && let Some(cpus) = self.cpus(layer, text)?
            {
                let setting = ThreadAffinity { thread: thread.clone() };
                // Threads that are bound to their CPU refuse a change of the CPUs.
                self.add_as(layer, text, setting, Value::text(cpus), OnRefusal::Report)?;
            }
            if let Some(class) = &section.class {
                let setting = ThreadClass { thread: thread.clone() };
                self.add_as(layer, class, setting, Value::text(class.get_ref()), OnRefusal::Report)?;
            }
        }
        Ok(())
    }

    /// Plans a CPU partition for the application: with `cpuset.cpus.partition` in control groups of version 2, or
    /// without load balancing in version 1.
    fn cpuset(&mut self, layer: &Layer) -> Result<(), Error> {
        let Some(section) = &layer.file.cpuset else { return Ok(()) };
        let name = section.name.get_ref();
        if name.is_empty() || name.contains('/') || name.starts_with('.') {
            return Err(layer.wrong(&section.name, format!("{name:?} is not the name of a control group")));
        }
        let Some(cpus) = self.cpus(layer, &section.cpus)? else { return Ok(()) };
        let Some(mount) = cpuset_mount(self.access).map_err(|e| layer.wrong(&section.name, e))? else {
            self.note(layer, &section.name, "the host has no cpuset controller mounted");
            return Ok(());
        };
        let folder = format!("{}/{name}", mount.path);
        let place = &section.cpus;
        if mount.v2 {
            let children = crate::knob::CgroupController { path: mount.path.clone(), controller: "cpuset".into() };
            self.add(layer, place, children, Value::text("on"))?;
        }
        self.add(layer, place, CgroupFolder { path: folder.clone() }, Value::text("present"))?;
        // The kernel creates the files together with the folder.
        self.add(layer, place, CgroupFile::new(&folder, "cpuset.cpus"), Value::text(&cpus))?;
        if mount.v2 {
            self.add(layer, place, CgroupFile::new(&folder, "cpuset.cpus.partition"), Value::text("isolated"))
        } else {
            let mems = self.access.line("/sys/devices/system/node/online").ok().flatten().unwrap_or_else(|| "0".into());
            self.add(layer, place, CgroupFile::new(&folder, "cpuset.mems"), Value::text(mems))?;
            self.add(layer, place, CgroupFile::new(&folder, "cpuset.sched_load_balance"), Value::text(0))
        }
    }

    fn argument(&mut self, layer: &Layer, argument: &Spanned<String>) -> Result<(), Error> {
        let Some(text) = self.fill(layer, argument) else { return Ok(()) };
        if text.split_whitespace().count() != 1 || text.contains(['{', '}']) {
            return Err(layer.wrong(
                argument,
                format!("{text:?}: expected one argument, in which {{isolated}} and {{housekeeping}} are replaced by CPU lists"),
            ));
        }
        self.resolved.arguments.push(text);
        Ok(())
    }

    /// Adds all kernel arguments to the plan, as one setting.
    fn arguments(&mut self) {
        if self.resolved.arguments.is_empty() {
            return;
        }
        let wanted = Value::text(self.resolved.arguments.join(" "));
        let from = Some("kernel.arguments".to_owned());
        let setting = AnySetting::from(BootFragment {});
        self.resolved.plan.push(Item { setting, wanted, on_refusal: OnRefusal::RollBack, from });
    }
}

/// The first `{NAME}` in a string, if the string contains one.
fn unfilled(text: &str) -> Option<&str> {
    let (start, _) = text.match_indices('{').next()?;
    let end = start + text[start..].find('}')?;
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (end > start + 1 && text[start + 1..end].chars().all(plain)).then(|| &text[start..=end])
}

/// Converts a scalar to a string. A time becomes a number of nanoseconds: `200us` becomes `200000`.
fn nanos_or_plain(scalar: &Scalar) -> String {
    let text = scalar.to_string();
    text.parse::<units::Nanos>().map_or(text, |time| time.as_nanos().to_string())
}
