//! Checks a kernel command line without further facts about the host.

use host::facts::{CommandLine, CpuSet, Parameter, same_name};

use super::cautions::CAUTIONS;
use super::pairs::{COMPANIONS, CONTRADICTIONS, intended};
use super::table::{self, Values};
use crate::Context;

/// One remark on a command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Remark {
    /// What the remark is about.
    pub kind: Kind,
    /// The parameter or parameters as written on the command line. For [`Kind::Missing`], the parameter to add.
    pub parameter: String,
    /// The remark, in one sentence without a full stop.
    pub text: String,
    /// The parameter to write instead, or to add. `None` if there is nothing to write.
    pub instead: Option<String>,
    /// Title of the document that supports the remark.
    pub source: &'static str,
}

units::named! {
    /// Kinds of remarks, the most serious first.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub enum Kind {
        /// The kernel does not know the parameter's value. It ignores the value or the whole parameter.
        UnknownValue = "unknown-value",
        /// Two parameters on the line exclude each other.
        Contradiction = "contradiction",
        /// The parameter does not do what users usually expect, or costs more than it gains.
        Caution = "caution",
        /// Several parameters that should name the same CPUs name different CPUs.
        SetsDiffer = "sets-differ",
        /// Kernels from kernel.org do not have the parameter. It works only on kernels with a certain patch.
        NotMainline = "not-mainline",
        /// Other parameters on the line need a parameter that is missing.
        Missing = "missing",
        /// A parameter is given several times with different values. The last one takes effect.
        Overridden = "overridden",
        /// A parameter is given several times with the same value.
        Duplicate = "duplicate",
        /// The table of known parameters does not contain the parameter. It may belong to a module or to user space, or
        /// be misspelt.
        UnknownName = "unknown-name",
    }
}

const PARAMETERS: &str = "Linux Documentation/admin-guide/kernel-parameters.txt";

/// Checks a kernel command line against `intent`, the purpose of the host. The remarks are ordered by kind, most
/// serious first.
pub fn judge(line: &CommandLine, intent: &Context) -> Vec<Remark> {
    judge_on(line, intent, None)
}

/// Like [`judge`], but also checks that the CPUs named on the line exist. `present` are the host's CPUs; `None` if they
/// are not known.
pub fn judge_on(line: &CommandLine, intent: &Context, present: Option<&CpuSet>) -> Vec<Remark> {
    let mut remarks: Vec<Remark> = Vec::new();
    remarks.extend(line.parameters.iter().enumerate().filter_map(|(at, parameter)| known(line, at, parameter)));
    remarks.extend(repeated(line));
    remarks.extend(contradictions(line));
    remarks.extend(cautions(line));
    remarks.extend(sets(line, intent));
    remarks.extend(absent(line, present));
    remarks.extend(none_left(line, present));
    remarks.extend(companions(line, intent, present));
    let mut kept: Vec<Remark> = Vec::new();
    for remark in remarks {
        if !kept.contains(&remark) {
            kept.push(remark);
        }
    }
    kept.sort_by_key(|remark| remark.kind);
    kept
}

/// Checks whether the parameter is known, and whether it accepts the value that it has on the line.
fn known(line: &CommandLine, at: usize, parameter: &Parameter) -> Option<Remark> {
    let remark = |kind, text: String, instead| Remark {
        kind,
        parameter: parameter.to_string(),
        text,
        instead,
        source: PARAMETERS,
    };
    if same_name(&parameter.name, "kthread_cpus") {
        let text = "kernels from kernel.org do not support it; those of Wind River and StarlingX do".to_owned();
        return Some(Remark {
            source: "FlexRAN real-time platform slides (2018), kernel command line; absent from kernel-parameters.txt",
            ..remark(Kind::NotMainline, text, Some("nohz_full= and isolcpus=domain keep kernel threads away".into()))
        });
    }
    if let Some(known) = table::find(&parameter.name) {
        let reason = known.refuses(parameter)?;
        return Some(remark(Kind::UnknownValue, reason, None));
    }
    if table::is_foreign(&parameter.name) || table::is_documented(&parameter.name) {
        return None;
    }
    // "nohz full=1-55": an underscore was lost when the line was copied from slides or mails.
    let beside = |other: Option<&Parameter>, before: bool| {
        let other = other?;
        let name = if before {
            format!("{}_{}", other.name, parameter.name)
        } else {
            format!("{}_{}", parameter.name, other.name)
        };
        table::find(&name)
    };
    let joined = beside(line.parameters.get(at + 1), false)
        .or_else(|| beside(at.checked_sub(1).and_then(|at| line.parameters.get(at)), true));
    Some(match joined {
        Some(joined) => remark(
            Kind::UnknownName,
            format!("there is no such parameter; together with the next word it looks like {}", joined.name),
            Some(joined.name.into()),
        ),
        None => match similar(&parameter.name) {
            Some(name) => remark(
                Kind::UnknownName,
                format!("no such parameter is known; did you mean {name}?"),
                Some(name.into()),
            ),
            None => remark(Kind::UnknownName, "Apus does not know it: it may be misspelt".into(), None),
        },
    })
}

/// A known name that differs from `name` by one letter, or only by its separators. `None` if there is none.
fn similar(name: &str) -> Option<&'static str> {
    let plain =
        |text: &str| text.chars().filter(|c| c.is_ascii_alphanumeric()).collect::<String>().to_ascii_lowercase();
    let wanted = plain(name);
    let near = |known: &&table::Known| wanted.len() > 4 && near(&wanted, &plain(known.name));
    table::KNOWN.iter().find(near).map(|known| known.name)
}

/// Whether two names are equal except for one letter that is missing, added or different.
fn near(a: &str, b: &str) -> bool {
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    if long.len() - short.len() > 1 {
        return false;
    }
    let same = short.bytes().zip(long.bytes()).take_while(|(a, b)| a == b).count();
    let rest = if short.len() == long.len() { short.get(same + 1..) } else { short.get(same..) };
    short == long || rest.is_some_and(|rest| long.get(same + 1..) == Some(rest))
}

fn repeated(line: &CommandLine) -> Vec<Remark> {
    let mut remarks = Vec::new();
    for (at, parameter) in line.parameters.iter().enumerate() {
        let repeats = table::find(&parameter.name).is_none_or(|known| known.repeats);
        let is_first = !line.parameters[..at].iter().any(|other| same_name(&other.name, &parameter.name));
        let all: Vec<&Parameter> = line.all(&parameter.name).collect();
        // Repeating these words has no effect, and boot loaders do so.
        let harmless = matches!(parameter.name.as_str(), "ro" | "rw" | "quiet" | "splash") && parameter.value.is_none();
        if !is_first || all.len() < 2 || harmless {
            continue;
        }
        let same = all.iter().all(|other| other.value == parameter.value);
        // If a parameter may be given several times, it is a duplicate only with the same value. hugepages is an
        // exception, because its order matters.
        if repeats && (!same || parameter.name.starts_with("hugepage")) {
            continue;
        }
        let last = all[all.len() - 1].to_string();
        let times = if all.len() == 2 { "twice".to_owned() } else { format!("{} times", all.len()) };
        let (kind, parameter, text, instead) = match same {
            true => {
                let surplus = if all.len() == 2 { "one".to_owned() } else { format!("{} of them", all.len() - 1) };
                (Kind::Duplicate, last, format!("given {times} with the same value"), format!("remove {surplus}"))
            }
            false => {
                let parameter = all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
                let text = format!("given {times} with different values; {last} takes effect");
                (Kind::Overridden, parameter, text, "remove all but the one that you want".to_owned())
            }
        };
        remarks.push(Remark { kind, parameter, text, instead: Some(instead), source: PARAMETERS });
    }
    remarks
}

fn contradictions(line: &CommandLine) -> Vec<Remark> {
    let remark = |entry: &super::pairs::Contradiction| {
        let (first, second) = (entry.first.on(line)?, entry.second.on(line)?);
        Some(Remark {
            kind: Kind::Contradiction,
            parameter: format!("{first} {second}"),
            text: entry.why.into(),
            instead: Some(entry.fix.into()),
            source: entry.source,
        })
    };
    CONTRADICTIONS.iter().filter_map(remark).collect()
}

fn cautions(line: &CommandLine) -> Vec<Remark> {
    let remark = |entry: &super::cautions::Caution| {
        let parameter = line.all(entry.name).rfind(|parameter| (entry.of)(parameter, line))?;
        Some(Remark {
            kind: Kind::Caution,
            parameter: parameter.to_string(),
            text: entry.why.into(),
            instead: entry.instead.map(str::to_owned),
            source: entry.source,
        })
    };
    CAUTIONS.iter().filter_map(remark).collect()
}

/// Finds parameters that isolate all CPUs of the host, so that none is left for housekeeping.
fn none_left(line: &CommandLine, present: Option<&CpuSet>) -> Vec<Remark> {
    let present = present.filter(|present| !present.is_empty());
    let one = |name: &str| {
        let parameter = line.last(name)?;
        let takes_all = match present {
            Some(present) => present.is_subset(&parameter.cpu_set(present).ok()?),
            // These take all CPUs, however many the host has (lib/bitmap-str.c, bitmap_parselist).
            None => parameter.parts().any(|part| matches!(part, "all" | "0-N")),
        };
        let host = present.map(|present| format!(" ({present})")).unwrap_or_default();
        takes_all.then(|| Remark {
            kind: Kind::SetsDiffer,
            parameter: parameter.to_string(),
            text: format!("it contains all CPUs of the host{host} and leaves none for housekeeping"),
            instead: None,
            source: "Linux Documentation/admin-guide/cpu-isolation.rst",
        })
    };
    ["isolcpus", "nohz_full"].into_iter().filter_map(one).collect()
}

/// Checks that `isolcpus`, `nohz_full` and `rcu_nocbs` name the same CPUs, and that `irqaffinity` names none of them.
fn sets(line: &CommandLine, intent: &Context) -> Vec<Remark> {
    let wanted = intended(line, intent);
    if wanted.is_empty() {
        return Vec::new();
    }
    let mut remarks = Vec::new();
    let mut say = |parameter: &Parameter, text: String, instead: Option<String>| {
        remarks.push(Remark {
            kind: Kind::SetsDiffer,
            parameter: parameter.to_string(),
            text,
            instead,
            source: "Linux Documentation/admin-guide/cpu-isolation.rst",
        });
    };
    for name in ["isolcpus", "nohz_full", "rcu_nocbs"] {
        let Some((parameter, set)) = set_of(line, name) else { continue };
        let (missing, stray) = (wanted.difference(&set), set.difference(&wanted));
        if name != "rcu_nocbs" && set.contains(0) {
            let text = match name {
                // kernel/time/tick-sched.c, tick_nohz_init: "NO_HZ: Clearing 0 from nohz_full range for timekeeping".
                "nohz_full" => {
                    "it names CPU 0, which boots the host and keeps the time: the kernel removes it from the list"
                }
                _ => "it names CPU 0, which boots the host and keeps the time: leave that CPU to housekeeping",
            };
            say(parameter, text.into(), None);
        }
        if !missing.is_empty() {
            say(parameter, format!("it leaves out CPUs {missing}"), Some(format!("{name}={wanted}")));
        }
        // It does no harm to offload RCU callbacks from more CPUs than needed.
        if !stray.is_empty() && name != "rcu_nocbs" {
            say(parameter, format!("it names CPUs {stray} too"), Some(format!("{name}={wanted}")));
        }
    }
    for name in ["irqaffinity", "kthread_cpus"] {
        let Some((parameter, set)) = set_of(line, name) else { continue };
        let both = set.intersection(&wanted);
        if !both.is_empty() {
            say(
                parameter,
                format!("it names the isolated CPUs {both}"),
                Some(set.difference(&wanted)).filter(|rest| !rest.is_empty()).map(|rest| format!("{name}={rest}")),
            );
        }
    }
    remarks
}

fn set_of<'a>(line: &'a CommandLine, name: &str) -> Option<(&'a Parameter, CpuSet)> {
    let parameter = line.last(name)?;
    let set = parameter.cpu_set(&CpuSet::new()).ok().filter(|set| !set.is_empty())?;
    Some((parameter, set))
}

/// Finds CPUs that parameters name but the host does not have.
fn absent(line: &CommandLine, present: Option<&CpuSet>) -> Vec<Remark> {
    let Some(present) = present.filter(|present| !present.is_empty()) else { return Vec::new() };
    let of_cpus = |parameter: &&Parameter| {
        table::find(&parameter.name)
            .is_some_and(|known| matches!(known.values, Values::Cpus | Values::FlagsAndCpus(_) | Values::CpusOrNothing))
    };
    let one = |parameter: &Parameter| {
        let stray = parameter.cpu_set(present).ok()?.difference(present);
        (!stray.is_empty()).then(|| Remark {
            kind: Kind::SetsDiffer,
            parameter: parameter.to_string(),
            text: format!("it names CPUs {stray}, but the host only has CPUs {present}"),
            instead: None,
            source: PARAMETERS,
        })
    };
    line.parameters.iter().filter(of_cpus).filter_map(one).collect()
}

/// The housekeeping CPUs that the command line does not isolate. If the line isolates them all, returns all of them.
pub(crate) fn free(line: &CommandLine, present: &CpuSet, housekeeping: CpuSet) -> CpuSet {
    let lists = ["isolcpus", "nohz_full"].into_iter().filter_map(|name| line.last(name)?.cpu_set(present).ok());
    let free = lists.fold(housekeeping.clone(), |free, cpus| free.difference(&cpus));
    if free.is_empty() { housekeeping } else { free }
}

fn companions(line: &CommandLine, intent: &Context, present: Option<&CpuSet>) -> Vec<Remark> {
    let isolated = intended(line, intent);
    let mut remarks: Vec<Remark> = Vec::new();
    // If it is not known which CPUs are isolated, advice that names them is impossible.
    let can_be_said = |add: &str| !isolated.is_empty() || !add.contains("{isolated}");
    for entry in COMPANIONS.iter().filter(|entry| can_be_said(entry.add) && (entry.missing)(line, intent)) {
        let add = entry.add.replace("{isolated}", &isolated.to_string());
        let housekeeping = present.map(|present| free(line, present, present.difference(&isolated)));
        let add = match housekeeping {
            // If all CPUs are isolated already, no more can be.
            Some(none) if none.is_empty() && entry.add.contains('{') => {
                "isolate fewer CPUs: leave at least one CPU of each node to housekeeping".to_owned()
            }
            Some(housekeeping) => add.replace("{housekeeping}", &housekeeping.to_string()),
            None => add.replace("irqaffinity={housekeeping}", "irqaffinity= with the CPUs that do housekeeping"),
        };
        remarks.push(Remark {
            kind: Kind::Missing,
            parameter: add.clone(),
            text: entry.why.into(),
            instead: Some(add),
            source: entry.source,
        });
    }
    remarks
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Intended, Workload};

    /// The host's line of the FlexRAN real-time platform slides (2018), as written there but with its underscores.
    const HOST: &str = "crashkernel=auto biosdevname=0 iommu=pt usbcore.autosuspend=-1 selinux=0 enforcing=0 nmi_watchdog=0 \
        softlockup_panic=0 intel_iommu=on audit=0 cgroup_disable=memory hugepagesz=1G hugepages=21 hugepagesz=2M hugepages=0 \
        default_hugepagesz=1G isolcpus=1-55 rcu_nocbs=1-55 kthread_cpus=0 irqaffinity=0 idle=poll nohz_full=1-55";
    /// The guest's line of the same slides.
    const GUEST: &str = "console=tty0 console=ttyS0 biosdevname=0 net.ifnames=0 no_timer_check isolcpus=1-14 irqaffinity=0 \
        default_hugepagesz=1G hugepagesz=1G hugepages=5 clocksource=tsc tsc=perfect intel_idle.max_cstate=0 \
        processor.max_cstate=1 initrd=initramfs.img BOOT_IMAGE=vmlinuz nohz_full=1-14";

    fn of(text: &str, intent: &Context) -> Vec<(Kind, String)> {
        judge(&CommandLine::parse(text), intent).into_iter().map(|r| (r.kind, r.parameter)).collect()
    }

    fn alone(text: &str) -> Vec<(Kind, String)> {
        of(text, &Context::default())
    }

    fn isolated(list: &str) -> Context {
        Context { isolated: Intended::given(list.parse().unwrap()), ..Context::default() }
    }

    #[test]
    fn single_attack_vectors_are_known() {
        let line = CommandLine::parse("mitigations=auto,no_guest_host,no_guest_guest");
        assert_eq!(judge(&line, &Context::default()), []);
    }

    #[test]
    fn of_the_hosts_line_one_parameter_is_not_mainline_and_one_flag_is_missing() {
        let remarks = alone(HOST);
        let kinds: Vec<Kind> = remarks.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [Kind::Caution, Kind::Caution, Kind::NotMainline, Kind::Missing], "{remarks:?}");
        assert_eq!((remarks[0].1.as_str(), remarks[1].1.as_str()), ("idle=poll", "crashkernel=auto"));
        assert_eq!(remarks[2].1, "kthread_cpus=0");
        assert_eq!(remarks[3].1, "isolcpus=managed_irq,domain,1-55");
    }

    #[test]
    fn of_the_guests_line_one_value_is_unknown() {
        let guest = Context { workloads: Intended::given(vec![Workload::Guest]), ..Context::default() };
        let unknown: Vec<_> = of(GUEST, &guest).into_iter().filter(|(kind, _)| *kind == Kind::UnknownValue).collect();
        assert_eq!(unknown, [(Kind::UnknownValue, "tsc=perfect".to_owned())]);
        let text = &judge(&CommandLine::parse(GUEST), &guest)[0].text;
        assert!(text.contains("reliable") && text.contains("nowatchdog"), "{text}");
        assert!(of(GUEST, &guest).iter().any(|(_, parameter)| parameter == "no-kvmapf"));
    }

    #[test]
    fn lost_underscores_and_misspellings_are_recognised() {
        let remarks =
            judge(&CommandLine::parse("nohz full=1-55 isolcpu=2-3 kthread cpus=0 quiet"), &Context::default());
        let instead: Vec<_> =
            remarks.iter().filter(|r| r.kind == Kind::UnknownName).filter_map(|r| r.instead.as_deref()).collect();
        assert!(
            instead.contains(&"nohz_full") && instead.contains(&"isolcpus") && instead.contains(&"kthread_cpus"),
            "{remarks:?}"
        );
        assert!(near("isolcpu", "isolcpus") && near("mce", "mca") && !near("isolcpu", "isol"));
    }

    #[test]
    fn duplicates_differ_from_overridden_ones() {
        let remarks = alone("tsc=reliable quiet tsc=reliable skew_tick=0 skew_tick=1 console=tty0 console=ttyS0");
        assert_eq!(
            remarks,
            [(Kind::Overridden, "skew_tick=0 skew_tick=1".to_owned()), (Kind::Duplicate, "tsc=reliable".to_owned())]
        );
    }

    #[test]
    fn sets_that_differ_are_named() {
        let remarks = judge(
            &CommandLine::parse(
                "isolcpus=managed_irq,domain,2-7 nohz_full=2-6 rcu_nocbs=0-7 irqaffinity=0-2 nmi_watchdog=0",
            ),
            &Context::default(),
        );
        let texts: Vec<&str> = remarks.iter().map(|remark| remark.text.as_str()).collect();
        assert_eq!(texts, ["it leaves out CPUs 7", "it names the isolated CPUs 2"]);
    }

    #[test]
    fn cpus_that_the_host_has_not_are_named() {
        let on = |text: &str, cpus: u32| {
            let remarks = judge_on(&CommandLine::parse(text), &Context::default(), Some(&CpuSet::below(cpus)));
            remarks.into_iter().map(|remark| (remark.kind, remark.parameter, remark.text)).collect::<Vec<_>>()
        };
        let line = "isolcpus=managed_irq,domain,2-7 nohz_full=2-7 rcu_nocbs=all nmi_watchdog=0";
        let small = on(line, 4);
        let stray: Vec<_> = small.iter().filter(|(kind, ..)| *kind == Kind::SetsDiffer).collect();
        assert_eq!(stray.len(), 2, "{small:?}");
        assert!(stray.iter().all(|(.., text)| text.contains("CPUs 4-7, but the host only has CPUs 0-3")), "{small:?}");
        let fits: Vec<_> = on(line, 8).into_iter().map(|(kind, parameter, _)| (kind, parameter)).collect();
        assert_eq!(fits, [(Kind::Missing, "irqaffinity=0-1".to_owned())]);
    }

    #[test]
    fn an_empty_set_is_no_advice() {
        let line = CommandLine::parse("isolcpus=managed_irq,domain,0-3 irqaffinity=2 nohz_full=0-3 nmi_watchdog=0");
        let remarks = judge_on(&line, &Context::default(), Some(&CpuSet::below(4)));
        assert!(remarks.iter().all(|r| r.instead.as_ref().is_none_or(|text| !text.contains("none"))), "{remarks:?}");
    }

    #[test]
    fn names_of_the_kernels_document_are_known_and_wrong_numbers_are_not() {
        assert_eq!(alone("nomodule swiotlb=65536 rdinit=/bin/sh hugepagesz=2M hugepages=0:512,1:512 hugepages=4"), []);
        let wrong = alone("hugepagesz=3G hugepages=-1 foo=bar");
        let kinds: Vec<Kind> = wrong.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [Kind::UnknownValue, Kind::UnknownValue, Kind::UnknownName], "{wrong:?}");
    }

    #[test]
    fn contradictions_and_companions() {
        assert!(
            alone("nohz=off nohz_full=2-3 rcu_nocbs=2-3")
                .contains(&(Kind::Contradiction, "nohz=off nohz_full=2-3".into()))
        );
        let contradicts = |line: &str| alone(line).iter().any(|(kind, _)| *kind == Kind::Contradiction);
        assert!(contradicts("mitigations=off spectre_v2=on") && !contradicts("mitigations=off spectre_v2=off"));
        // isolcpus=nohz has the same effect as nohz_full=, and implies that RCU callbacks are offloaded.
        for name in ["nohz_full", "rcu_nocbs"] {
            let asks = |line: &str| alone(line).iter().any(|(_, what)| what.starts_with(name));
            assert!(asks("isolcpus=domain,managed_irq,2-7") && !asks("isolcpus=nohz,domain,managed_irq,2-7"));
        }
        let all = alone("isolcpus=domain,managed_irq,all nohz_full=all");
        assert_eq!(all.iter().filter(|(kind, _)| *kind == Kind::SetsDiffer).count(), 2, "{all:?}");
        assert!(alone("intel_idle.max_cstate=0").contains(&(Kind::Missing, "processor.max_cstate=1".into())));
        assert!(alone("isolcpus=managed_irq,2-3").iter().any(|(kind, _)| *kind == Kind::Missing));
        assert_eq!(alone("quiet ro root=/dev/sda1 rhgb default_hugepagesz=1GB"), []);
        for line in ["clocksource=hpet", "pci=noaer,nomsi", "ftrace=function_graph", "mce=off mce=ignore_ce"] {
            assert!(alone(line).iter().any(|(kind, _)| *kind == Kind::Caution), "{line}");
        }
        let wants = of("quiet", &isolated("2-7"));
        assert!(wants.contains(&(Kind::Missing, "nohz_full=2-7".into())), "{wants:?}");
    }

    #[test]
    fn what_is_suggested_is_accepted() {
        for workloads in [
            vec![],
            vec![Workload::Poll],
            vec![Workload::Rt],
            vec![Workload::Guest, Workload::Poll],
            vec![Workload::KvmHost],
        ] {
            let intent = Context { workloads: Intended::given(workloads), ..isolated("2-7") };
            let line = super::super::suggest(&intent, &CpuSet::below(8)).line();
            let remarks = of(&line, &intent);
            assert!(remarks.is_empty(), "{line}: {remarks:?}");
        }
    }

    #[test]
    fn parameters_of_the_kernels_documents_are_real() {
        for line in [
            "retbleed=off",
            "spec_rstack_overflow=off",
            "init_on_alloc=0",
            "ima_policy=tcb",
            "slub_debug=-",
            "gather_data_sampling=off mmio_stale_data=off srbds=off l1d_flush=on vmscape=off tsa=off",
            "page_owner=on kfence.sample_interval=0 hugetlb_free_vmemmap=on init_on_free=0 randomize_kstack_offset=0",
            "intel_iommu=on,sm_on iommu=pt tsc=reliable tsc=nowatchdog",
        ] {
            assert_eq!(judge(&CommandLine::parse(line), &Context::default()), [], "{line}");
        }
        assert!(alone("retblead=off").iter().any(|(kind, _)| *kind == Kind::UnknownName));
    }

    #[test]
    fn values_that_do_not_do_what_is_hoped_are_said() {
        for (line, kind, instead) in [
            ("amd_iommu=on", Kind::UnknownValue, None),
            ("mce=off", Kind::Caution, Some("mce=ignore_ce")),
            ("nomce", Kind::Caution, Some("mce=ignore_ce")),
            ("idle=poll", Kind::Caution, None),
            ("pcie_aspm=off", Kind::Caution, Some("pcie_aspm.policy=performance")),
            ("crashkernel=auto", Kind::Caution, Some("crashkernel=1G-4G:192M,4G-64G:256M,64G-:512M")),
            ("cpuidle.off=1", Kind::Caution, None),
            ("acpi=off", Kind::Caution, None),
            ("noapic", Kind::Caution, None),
            // It compares the whole value.
            ("intel_pstate=active,no_hwp", Kind::UnknownValue, None),
            (
                "intel_pstate=active intel_pstate=passive",
                Kind::Contradiction,
                Some("remove the first of the two, which has no effect"),
            ),
            ("console=ttyS0,115200", Kind::Caution, Some("quiet loglevel=4")),
        ] {
            let remarks = judge(&CommandLine::parse(line), &Context::default());
            let said: Vec<_> = remarks.iter().map(|remark| (remark.kind, remark.instead.as_deref())).collect();
            assert_eq!(said, [(kind, instead)], "{line}: {remarks:?}");
        }
        for fine in [
            "intel_pstate=active intel_pstate=no_hwp intel_pstate=per_cpu_perf_limits",
            "acpi=force",
            "amd_iommu=off",
            "mce=ignore_ce",
            "idle=nomwait",
            "crashkernel=512M",
            "console=ttyS0 loglevel=3",
            "console=tty0",
        ] {
            assert_eq!(alone(fine), [], "{fine}");
        }
    }

    #[test]
    fn a_list_that_cannot_be_read_leaves_no_template() {
        let remarks = judge(&CommandLine::parse("isolcpus=2-3-4 nohz_full=2-3-4"), &Context::default());
        assert!(remarks.iter().any(|remark| remark.kind == Kind::UnknownValue), "{remarks:?}");
        let texts =
            remarks.iter().flat_map(|remark| [Some(&remark.parameter), Some(&remark.text), remark.instead.as_ref()]);
        for text in texts.flatten() {
            assert!(!text.contains('{'), "{text}");
        }
    }

    #[test]
    fn the_watchdog_leaves_the_cpus_of_nohz_full_alone() {
        let asks = |line: &str| alone(line).iter().any(|(_, parameter)| parameter == "nmi_watchdog=0");
        assert!(!asks("isolcpus=managed_irq,domain,2-7 nohz_full=2-7 rcu_nocbs=2-7 irqaffinity=0-1"));
        assert!(asks("isolcpus=managed_irq,domain,2-7 nohz_full=2-6 irqaffinity=0-1"));
        // If nohz_full= itself is required, the watchdog leaves those CPUs alone too; if nohz_full= is not wanted, it
        // does not.
        assert!(!asks("isolcpus=managed_irq,domain,2-7 irqaffinity=0-1"));
        let interrupt = Context { workloads: Intended::given(vec![Workload::Interrupt]), ..Context::default() };
        let remarks = of("isolcpus=managed_irq,domain,2-7 irqaffinity=0-1", &interrupt);
        assert!(remarks.iter().any(|(_, parameter)| parameter == "nmi_watchdog=0"), "{remarks:?}");
    }

    #[test]
    fn a_host_needs_a_cpu_for_housekeeping_and_the_boot_cpu_for_its_time() {
        let on = |text: &str| {
            let remarks = judge_on(&CommandLine::parse(text), &Context::default(), Some(&CpuSet::below(8)));
            remarks.into_iter().map(|remark| remark.text).collect::<Vec<_>>().join("\n")
        };
        assert!(on("isolcpus=managed_irq,domain,0-7").contains("leaves none for housekeeping"));
        assert!(on("nohz_full=all").contains("leaves none for housekeeping"));
        assert!(!on("isolcpus=managed_irq,domain,1-7").contains("leaves none"));
        assert!(on("nohz_full=0-3").contains("the kernel removes it from the list"));
    }

    proptest! {
        #[test]
        fn any_line_is_judged(text in "([a-z_.]{1,12}=?[a-z0-9,-]{0,9} ){0,12}") {
            judge(&CommandLine::parse(&text), &Context::default());
        }
    }
}
