//! Rules on the text of the command line: unknown, repeated, contradictory and missing parameters, and the command line
//! of the next boot.

use host::Facts;
use host::facts::{CommandLine, CpuSet};

use crate::cmdline::{Kind, Remark, UNLESS_PARTITION, intended, judge_on, table};
use crate::rules::common::{
    enumerated, is_operated, line, messages, offloads_by_default, partitions_known, without_balancing,
};
use crate::{Applies, Cause, Context, Evidence, Fix, Judged, Judgement, Magnitude, Rule, Skip, Subject, Verdict};

const PARAMETERS: &str = "Linux Documentation/admin-guide/kernel-parameters.txt";

const SILENT: Magnitude = Magnitude::untimed(
    "as much as the parameter would save",
    "a finding about that parameter, if there is one, says how much",
);
/// The magnitude of findings about names that the kernel does not know.
const UNKNOWN: Magnitude = Magnitude {
    source: "Linux Documentation/admin-guide/kernel-parameters.rst: what the kernel does not know goes to init",
    ..SILENT
};

/// The rules of this module, in the order of docs/rules.md.
pub const RULES: &[Rule] = &[
    Rule {
        id: "cmd.unknown-value",
        cause: Cause::CommandLine,
        title: "Each parameter has a value that the kernel knows",
        applies: Applies::LINUX,
        judge: unknown_values,
        why: "The kernel ignores a value that it does not know, usually without a message: the host then runs as if \
              the parameter were not there.",
        magnitude: SILENT,
        fix: Fix::boot("correct the value").decided(),
        cost: "None beyond the reboot.",
        references: &[
            PARAMETERS,
            "FlexRAN real-time platform slides (2018): its guest's line holds tsc=perfect, which arch/x86/kernel/tsc.c does not know",
        ],
    },
    Rule {
        id: "cmd.unknown-name",
        cause: Cause::CommandLine,
        title: "Each parameter is one that something reads",
        applies: Applies::LINUX,
        judge: unknown_names,
        why: "The kernel hands parameters that it does not know to init; since 5.14 one line of its messages lists \
              them. A misspelt parameter does nothing.",
        magnitude: UNKNOWN,
        fix: Fix::boot("correct or remove the parameter").decided(),
        cost: "None beyond the reboot.",
        references: &[PARAMETERS, "Linux commit 86d1919a4fb0 (init: print out unknown kernel parameters)"],
    },
    Rule {
        id: "cmd.duplicate",
        cause: Cause::CommandLine,
        title: "No parameter is given twice",
        applies: Applies::LINUX,
        judge: duplicates,
        why: "If a parameter is given twice, usually the last one counts. This happens when two tools write to the \
              command line. If one of them later changes its value, the other's value can still win.",
        magnitude: SILENT,
        fix: Fix::boot("remove all but one").decided(),
        cost: "None beyond the reboot.",
        references: &[PARAMETERS],
    },
    Rule {
        id: "cmd.contradiction",
        cause: Cause::CommandLine,
        title: "No two parameters contradict each other",
        applies: Applies::LINUX,
        judge: contradictions,
        why: "One of two contradictory parameters has no effect, and it is hard to see which.",
        magnitude: SILENT,
        fix: Fix::boot("remove the one that you do not want").decided(),
        cost: "None beyond the reboot.",
        references: &[PARAMETERS, "Linux Documentation/admin-guide/pm/cpuidle.rst"],
    },
    Rule {
        id: "cmd.companions",
        cause: Cause::CommandLine,
        title: "No parameter lacks others that it needs",
        applies: Applies::LINUX,
        judge: companions,
        why: "Isolation, huge pages and a limit on idle states each take several kernel parameters. Each parameter \
              prevents a part of the delay: if it is missing, that part remains.",
        magnitude: SILENT,
        fix: Fix::boot("add what is missing"),
        cost: "None beyond the reboot and what the parameter itself costs: see the finding about that parameter, if there is one.",
        references: &[PARAMETERS, "Linux Documentation/admin-guide/cpu-isolation.rst"],
    },
    Rule {
        id: "cmd.pending-reboot",
        cause: Cause::CommandLine,
        title: "The next boot uses the same parameters",
        applies: Applies::LINUX,
        judge: pending,
        why: "Parameters that were written for the next boot have no effect yet. Parameters that are in effect now but \
              written nowhere are gone after it. Both happen when a tool could not change the boot loader.",
        magnitude: SILENT,
        fix: Fix::boot("write the intended parameters into the boot loader's configuration, then reboot"),
        cost: "None beyond the reboot.",
        references: &[
            "redhat-performance/tuned issue 528",
            "rhboot/grubby issue 55",
            "The Boot Loader Specification, type 1 entries",
        ],
    },
];

/// The remarks of these kinds on the command line.
fn remarks(facts: &Facts, context: &Context, kinds: &[Kind]) -> Result<Vec<Remark>, Skip> {
    let present = facts.cpus.all();
    let all = judge_on(line(facts)?, context, Some(&present).filter(|present| !present.is_empty()));
    Ok(all.into_iter().filter(|remark| kinds.contains(&remark.kind)).collect())
}

/// Makes one judgement per remark. If there are no remarks, makes a pass with the text `well`.
fn each(facts: &Facts, remarks: Vec<Remark>, well: &str, judgement: fn(Subject, String) -> Judgement) -> Judged {
    let source = facts.cmdline.source();
    if remarks.is_empty() {
        let count = facts.cmdline.value().map_or(0, |line| line.parameters.len());
        return Judgement::pass(well).see_as(format!("{count} parameters"), source).alone();
    }
    let one = |remark: Remark| {
        let seen = match remark.kind {
            Kind::Missing => format!("no {}", remark.parameter),
            _ => remark.parameter.clone(),
        };
        let judgement = judgement(Subject::Parameter(remark.parameter), remark.text).see_as(seen, source);
        match remark.instead {
            Some(instead) => judgement.for_good(instead),
            None => judgement,
        }
    };
    Ok(remarks.into_iter().map(one).collect())
}

fn unknown_values(facts: &Facts, context: &Context) -> Judged {
    let found = remarks(facts, context, &[Kind::UnknownValue])?;
    each(facts, found, "every known parameter has a known value", Judgement::fail_for)
}

fn unknown_names(facts: &Facts, context: &Context) -> Judged {
    let line = line(facts)?;
    // If the boot messages are still there, they contain the kernel's own list of unknown parameters.
    let marked = ["unknown kernel command line parameters"];
    if let Ok((found, _)) = messages(facts, &marked)
        && let Some(message) = found.first()
    {
        let names = message.split_once('"').map_or("", |(_, rest)| rest.split('"').next().unwrap_or_default());
        // The kernel's list also contains the boot loader's own word, which belongs on the line.
        let names: Vec<&str> = names.split_whitespace().filter(|name| !name.starts_with("BOOT_IMAGE")).collect();
        if !names.is_empty() {
            let text = format!("the kernel does not know {}", names.join(" "));
            return Judgement::warn_for(Subject::Parameter(names.join(" ")), text)
                .see_as(*message, facts.kernel.messages.source())
                .alone();
        }
    }
    // Without the boot messages, only a word that resembles another parameter gets a warning: init and modules have
    // parameters of their own.
    let found = remarks(facts, context, &[Kind::UnknownName, Kind::NotMainline])?;
    let likely: Vec<Remark> = found.into_iter().filter(|remark| remark.instead.is_some()).collect();
    let well = format!("none of {} parameters looks misspelt", line.parameters.len());
    each(facts, likely, &well, Judgement::warn_for)
}

fn duplicates(facts: &Facts, context: &Context) -> Judged {
    let mut found = remarks(facts, context, &[Kind::Duplicate, Kind::Overridden])?;
    if is_operated(facts) {
        // Both tuned's network-latency and the operator's own profile have skew_tick= and tsc=.
        for same in found.iter_mut().filter(|remark| remark.kind == Kind::Duplicate) {
            same.instead =
                Some("# nothing, if both come from the operator's profiles: no setting removes one of them".into());
        }
    }
    // A repetition that is allowed or harmless is not a remark.
    let line = line(facts)?;
    let mut names: Vec<String> = Vec::new();
    for (at, parameter) in line.parameters.iter().enumerate() {
        let is_same = |name: &str| host::facts::same_name(name, &parameter.name);
        if line.parameters[..at].iter().any(|other| is_same(&other.name)) && !names.iter().any(|name| is_same(name)) {
            names.push(parameter.name.clone());
        }
    }
    let well = match names.as_slice() {
        [] => "no parameter is given twice".to_owned(),
        [one] => {
            format!("{one} is given more than once, which does no known harm; every other parameter is given once")
        }
        many => format!(
            "{} are given more than once, which does no known harm; every other parameter is given once",
            enumerated(many)
        ),
    };
    each(facts, found, &well, Judgement::warn_for)
}

fn contradictions(facts: &Facts, context: &Context) -> Judged {
    let found = remarks(facts, context, &[Kind::Contradiction])?;
    each(facts, found, "no two parameters contradict each other", Judgement::warn_for)
}

fn companions(facts: &Facts, context: &Context) -> Judged {
    let mut found = remarks(facts, context, &[Kind::Missing])?;
    // The mask of the running host, if it was recorded, decides.
    let mask = &facts.irqs.default_affinity;
    let wanted = intended(line(facts)?, context);
    let balanced = without_balancing(facts);
    let is_partitioned = partitions_known(facts) && balanced.is(|set| wanted.is_subset(set)) == Some(true);
    let stray = mask.value().map(|mask| mask.intersection(&wanted));
    for remark in &mut found {
        if let Some(stray) = stray.as_ref().filter(|_| remark.parameter.starts_with("irqaffinity=")) {
            remark.text = format!("new interrupts may go to CPUs {stray}, which are the application's");
        }
        if partitions_known(facts) {
            remark.text = remark.text.replace(UNLESS_PARTITION, "");
        }
    }
    // A kernel without full dynamic ticks does not accept these parameters.
    let no_ticks = crate::rules::no_full_ticks(facts);
    let wanted = |remark: &Remark| {
        let is = |name: &str| remark.parameter.starts_with(name);
        // The rule cmd.hugepages judges these for the same uses, and a kernel that offloads by default does not need
        // rcu_nocbs=.
        let elsewhere = is("default_hugepagesz=") || is("rcu_nocbs=") && offloads_by_default(facts) == Some(true);
        let is_off = is("nmi_watchdog=") && facts.sysctl_number("kernel.nmi_watchdog").get() == Some(0)
            || is("irqaffinity=") && stray.as_ref().is_some_and(CpuSet::is_empty)
            || is("isolcpus=") && is_partitioned;
        !(elsewhere || is_off || no_ticks && is("nohz_full="))
    };
    let found = found.into_iter().filter(wanted).collect();
    let mut judgements = each(facts, found, "no companion parameter is missing", |subject, text| {
        let name = CommandLine::parse(&subject.to_string()).parameters.first().map(|word| word.name.clone());
        let found = format!("{subject} is missing: {text}");
        let judgement = Judgement::warn_for(subject, found);
        match name.as_deref().and_then(cause_of) {
            Some(cause) => judgement.because(cause),
            None => judgement,
        }
    })?;
    let of_interrupts = |judgement: &&mut Judgement| matches!(&judgement.subject, Subject::Parameter(words) if words.starts_with("irqaffinity="));
    for judgement in judgements.iter_mut().filter(of_interrupts) {
        if let Some(now) = mask.value() {
            judgement.evidence.push(Evidence { value: now.to_string(), source: mask.source().to_string() });
        }
    }
    let is_detector = |judgement: &&mut Judgement| {
        judgement.verdict == Verdict::Warn && judgement.subject == Subject::Parameter("nmi_watchdog=0".into())
    };
    if let Some(judgement) = judgements.iter_mut().find(is_detector)
        && let Some((count, seen)) = counter_interrupts(facts)
    {
        let cpus = if count == 1 { "the CPU".to_owned() } else { format!("all {count} CPUs") };
        judgement.found = format!(
            "{} is missing, and performance counters raised non-maskable interrupts on {cpus}, as the hard-lockup \
             detector does",
            judgement.subject
        );
        judgement.evidence.push(Evidence { value: seen, source: facts.counters.interrupts.source().to_string() });
    }
    Ok(judgements)
}

/// Number of CPUs, and a description of their interrupts, if performance counters raised all non-maskable interrupts
/// and every CPU received some. If so, the hard-lockup detector is on, or every CPU was profiled.
fn counter_interrupts(facts: &Facts) -> Option<(usize, String)> {
    let table = facts.counters.interrupts.value()?;
    let (all, counters) = (table.row("NMI")?, table.row("PMI")?);
    let each = all.counts == counters.counts && all.counts.len() == table.cpus.len();
    let came = each && !all.counts.is_empty() && all.counts.iter().all(|count| *count > 0);
    let (least, most) = (all.counts.iter().min()?, all.counts.iter().max()?);
    came.then(|| (table.cpus.len(), format!("NMI = PMI, {least} to {most} on each CPU")))
}

/// The root cause of a missing parameter. `None` if the rule's root cause applies.
fn cause_of(name: &str) -> Option<Cause> {
    Some(match name {
        "isolcpus" => Cause::SchedulerIsolation,
        "irqaffinity" => Cause::DeviceInterrupts,
        "nohz_full" => Cause::TimerTick,
        "rcu_nocbs" => Cause::Rcu,
        "intel_idle.max_cstate" | "processor.max_cstate" => Cause::IdleStates,
        _ => return None,
    })
}

/// The parameters on the line that affect latency: those in the table, except those that every host has.
fn matters(line: &CommandLine) -> Vec<String> {
    const EVERY: [&str; 24] = [
        "BOOT_IMAGE",
        "root",
        "ro",
        "rw",
        "quiet",
        "splash",
        "debug",
        "loglevel",
        "console",
        "resume",
        "vga",
        "initrd",
        "init",
        "rootflags",
        "rootfstype",
        "rootwait",
        "rootdelay",
        "ip",
        "LANG",
        "crashkernel",
        "earlyprintk",
        "ostree",
        "boot",
        "nomodeset",
    ];
    let known = line.parameters.iter().filter(|parameter| {
        table::find(&parameter.name).is_some_and(|known| !EVERY.contains(&known.name))
            && !parameter.to_string().contains('$')
    });
    let mut words: Vec<String> = known.map(ToString::to_string).collect();
    words.sort_unstable();
    words.dedup();
    words
}

fn pending(facts: &Facts, _: &Context) -> Judged {
    let now = matters(line(facts)?);
    let Some(first) = facts.kernel.next_boot.first() else {
        return Err(Skip::unknown("/boot/loader/entries, /etc/default/grub: nothing was read"));
    };
    let lines: Vec<&CommandLine> = facts.kernel.next_boot.iter().filter_map(|fact| fact.value()).collect();
    if lines.is_empty() {
        return Err(Skip::of(first));
    }
    // The boot entries and grub's settings complement each other: a parameter in none of them will be missing, one in
    // all of them will come.
    let next: Vec<Vec<String>> = lines.iter().map(|line| matters(line)).collect();
    let gone: Vec<&str> =
        now.iter().filter(|word| !next.iter().any(|line| line.contains(word))).map(String::as_str).collect();
    let coming =
        next.iter().flatten().filter(|word| !now.contains(word) && next.iter().all(|line| line.contains(word)));
    let mut coming: Vec<&str> = coming.map(String::as_str).collect();
    coming.sort_unstable();
    coming.dedup();
    let judgement = match (gone.as_slice(), coming.as_slice()) {
        ([], []) => Judgement::pass("the next boot uses the same parameters as this one"),
        (gone, coming) => {
            let part = |verb: &str, words: &[&str]| {
                (!words.is_empty()).then(|| format!("the next boot {verb} {}", words.join(" ")))
            };
            let parts: Vec<String> = [part("loses", gone), part("adds", coming)].into_iter().flatten().collect();
            Judgement::warn(parts.join("; "))
        }
    };
    let see = |judgement: Judgement, fact: &host::Fact<CommandLine>| match fact.value() {
        Some(line) => judgement.see_as(line.raw.as_str(), fact.source()),
        None => judgement,
    };
    let words = if now.is_empty() { "none that matters".to_owned() } else { now.join(" ") };
    facts.kernel.next_boot.iter().fold(judgement.see_as(words, facts.cmdline.source()), see).alone()
}

#[cfg(test)]
pub(crate) mod tests {
    use crate::testing::{Case, Host, host};

    fn with(line: &str) -> Host {
        host().cmdline(line)
    }

    fn booted(now: &str, next: &str) -> Host {
        with(now).file("/etc/default/grub", &format!("GRUB_CMDLINE_LINUX=\"{next}\"\n"))
    }

    pub(crate) const CASES: &[Case] = &[
        Case::pass("cmd.unknown-value", || with("tsc=reliable quiet")),
        Case::fail("cmd.unknown-value", || with("tsc=perfect quiet")),
        Case::unknown("cmd.unknown-value", host),
        Case::pass("cmd.unknown-name", || with("tsc=reliable quiet my_own_word=3")),
        Case::warn("cmd.unknown-name", || with("isolcpu=2-3 quiet")),
        Case::warn("cmd.unknown-name", || {
            with("my_own_word=3").command(
                "dmesg",
                "[0.1] Unknown kernel command line parameters \"BOOT_IMAGE=/vm my_own_word=3\", will be passed",
            )
        }),
        Case::unknown("cmd.unknown-name", host),
        Case::pass("cmd.duplicate", || with("console=tty0 console=ttyS0")),
        Case::warn("cmd.duplicate", || with("tsc=reliable skew_tick=1 tsc=reliable")),
        Case::unknown("cmd.duplicate", host),
        Case::pass("cmd.contradiction", || with("idle=poll")),
        Case::warn("cmd.contradiction", || with("idle=poll processor.max_cstate=1")),
        Case::unknown("cmd.contradiction", host),
        Case::pass("cmd.companions", || with("quiet")),
        Case::warn("cmd.companions", || with("intel_idle.max_cstate=0")),
        Case::unknown("cmd.companions", host),
        Case::pass("cmd.pending-reboot", || booted("quiet tsc=reliable root=/dev/sda1", "tsc=reliable")),
        Case::warn("cmd.pending-reboot", || booted("quiet", "tsc=reliable")),
        Case::warn("cmd.pending-reboot", || booted("tsc=reliable", "quiet")),
        Case::unknown("cmd.pending-reboot", || with("quiet")),
    ];

    /// telco-worker1: `skew_tick=1` comes from two profiles of the operator.
    #[test]
    fn nobody_is_told_to_take_away_what_an_operator_writes_twice() {
        let fix = |line: &str| with(line).judge("cmd.duplicate").remove(0).for_good;
        assert_eq!(fix("skew_tick=1 skew_tick=1"), ["remove one"]);
        let operated = "ostree=/ostree/boot.1/rhcos/1/0 tuned.non_isolcpus=3 skew_tick=1 skew_tick=1";
        assert!(fix(operated)[0].starts_with("# nothing, if both come"), "{:?}", fix(operated));
        // What changes nothing reboots nothing and costs nothing.
        let of = |line: &str| {
            let report = crate::audit(&with(line).facts(), &crate::Intent::default());
            let finding = report.findings.iter().find(|finding| finding.rule.id == "cmd.duplicate").unwrap();
            (finding.fix.reboot, finding.fix.risks().is_empty(), finding.cost().is_empty())
        };
        assert_eq!(of(operated), (false, true, true));
        assert_eq!(of("skew_tick=1 skew_tick=1"), (true, false, false));
    }

    /// kvm-guest-sno, telco-master: the command line has `rw` twice.
    #[test]
    fn what_is_given_twice_without_harm_is_named() {
        let found = |line: &str| with(line).judge("cmd.duplicate").remove(0).found;
        assert_eq!(found("ro quiet"), "no parameter is given twice");
        assert_eq!(
            found("rw quiet rw"),
            "rw is given more than once, which does no known harm; every other parameter is given once"
        );
        assert!(found("rw console=tty0 rw console=ttyS0").starts_with("rw and console are given more than once"));
    }

    /// kvm-guest-sno: the mask is recorded, and so nothing is left open; where it keeps the CPUs out, nothing is missing.
    #[test]
    fn what_is_recorded_beside_the_line_decides() {
        let host = || with("isolcpus=managed_irq,domain,2-7 nohz_full=2-7 nmi_watchdog=0").isolated("2-7");
        let found = |host: Host| host.judge("cmd.companions").remove(0);
        let masked = |mask: &str| found(host().file("/proc/irq/default_smp_affinity", mask));
        let open = masked("ff\n");
        assert_eq!(
            open.found,
            "irqaffinity=0-1 is missing: new interrupts may go to CPUs 2-7, which are the application's"
        );
        assert!(open.evidence.iter().any(|seen| seen.source.ends_with("default_smp_affinity") && seen.value == "0-7"));
        assert_eq!(masked("03\n").verdict, crate::Verdict::Pass);
        assert!(found(host()).found.contains("unless a service has changed"));
        // The same of partitions.
        let line = || with("nohz_full=2-7 irqaffinity=0-1 nmi_watchdog=0").isolated("2-7");
        assert!(found(line()).found.ends_with("; whether a cpuset partition prevents this is not recorded"));
        let counted = |isolated: &str| {
            let host = line().file("/proc/sys/kernel/osrelease", "6.12.0\n");
            found(host.file("/sys/devices/system/cpu/isolated", isolated))
        };
        assert!(counted("\n").found.ends_with("balances other work onto the application's CPUs"));
        assert_eq!(counted("2-7\n").verdict, crate::Verdict::Pass);
    }

    #[test]
    fn no_ticks_are_asked_of_a_kernel_that_is_built_without() {
        let missing = |config: &str| {
            let host =
                with("isolcpus=managed_irq,domain,2-7 rcu_nocbs=2-7 irqaffinity=0-1 nmi_watchdog=0").isolated("2-7");
            let host = host.file("/proc/sys/kernel/osrelease", "6.12.0\n").file("/boot/config-6.12.0", config);
            let judgements = host.judge("cmd.companions");
            judgements.into_iter().flat_map(|judgement| judgement.for_good).collect::<Vec<_>>()
        };
        assert_eq!(missing("CONFIG_NO_HZ_FULL=y\n"), ["nohz_full=2-7"]);
        assert_eq!(missing("# CONFIG_NO_HZ_FULL is not set\n"), [""; 0]);
    }

    #[test]
    fn the_housekeeping_cpus_are_named_in_what_is_missing() {
        let judgements = with("isolcpus=managed_irq,domain,2-7 nohz_full=2-7 nmi_watchdog=0")
            .isolated("2-7")
            .judge("cmd.companions");
        assert_eq!(judgements.len(), 1);
        assert_eq!(judgements[0].for_good, ["irqaffinity=0-1"]);
        let all = with("isolcpus=managed_irq,domain,0-7 nohz_full=0-7 nmi_watchdog=0").isolated("0-7");
        assert!(all.judge("cmd.companions").iter().any(|j| j.for_good[0].starts_with("isolate fewer CPUs")));
    }

    /// telco-master: no sysctl is recorded, but the counters' interrupts are.
    #[test]
    fn the_detector_is_named_as_far_as_it_shows() {
        let found = |host: Host| {
            let host = host.isolated("2-3").workload(crate::Workload::Interrupt);
            let judgements = host.cmdline("isolcpus=managed_irq,domain,2-3").judge("cmd.companions");
            let one = judgements.into_iter().find(|one| one.subject.to_string() == "nmi_watchdog=0");
            one.map(|one| one.found).unwrap_or_default()
        };
        let counted = |pmi: u32| {
            let rows = format!(
                "     CPU0 CPU1\nNMI: 3 4 Non-maskable interrupts\nPMI: 3 {pmi} Performance monitoring interrupts\n"
            );
            host().file("/proc/interrupts", &rows)
        };
        assert!(found(counted(4)).contains("on all 2 CPUs, as the hard-lockup detector does"));
        assert!(found(counted(5)).starts_with("nmi_watchdog=0 is missing: unless kernel.nmi_watchdog is 0"));
        assert!(found(host()).starts_with("nmi_watchdog=0 is missing: unless kernel.nmi_watchdog is 0"));
        assert_eq!(found(host().file("/proc/sys/kernel/nmi_watchdog", "0\n")), "");
    }
}
