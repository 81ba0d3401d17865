//! Rules on tracing, static keys and modules.

use host::Facts;
use units::Nanos;

use crate::{Applies, Cause, Context, Fix, HitKind, Judged, Judgement, Magnitude, Rule, Skip, hits, known};

const ISOLATION: &str = "Linux Documentation/admin-guide/cpu-isolation.rst";
/// Labels of interrupts that other CPUs send because a memory map or code was changed.
const FROM_OTHERS: [&str; 2] = ["CAL", "TLB"];
/// More `FROM_OTHERS` interrupts per second than this, summed over all isolated CPUs, are no coincidence. This is an
/// estimate: loading one module interrupts all CPUs about ten times.
const MANY_A_SECOND: u64 = 10;

/// The rules of this module, in the order of docs/rules.md.
pub const RULES: &[Rule] = &[
    Rule {
        id: "trace.active",
        cause: Cause::Tracing,
        title: "Nothing is traced",
        applies: Applies::LINUX,
        judge: tracing,
        why: "Each trace event and probe costs time whenever the code passes it, above all in the scheduler and in \
              interrupts. Switching one on or off changes code, and every CPU is stopped for that.",
        magnitude: Magnitude::late(
            Nanos::from_micros(1),
            "about 100 ns per event, about 1 us per kernel probe with a breakpoint; with a function tracer, work \
                   takes several times as long",
            "Linux Documentation/trace/kprobes.rst, sections Probe Overhead (0.5 to 1 us) and Optimized Probe Overhead (0.06 us); the function tracer's share is general knowledge",
        ),
        fix: Fix::runtime(
            "echo nop > /sys/kernel/tracing/current_tracer\necho > /sys/kernel/tracing/set_event\necho > /sys/kernel/tracing/kprobe_events",
        ),
        cost: "Whoever uses the trace gets no more data.",
        references: &[ISOLATION, "Linux Documentation/trace/ftrace.rst"],
    },
    Rule {
        id: "trace.static-key-ipi",
        cause: Cause::Tracing,
        title: "A process keeps network time stamps switched on",
        applies: Applies::LINUX.isolated(),
        judge: static_key,
        why: "The kernel stamps packets only while a socket asks for it, and a static key switches the code. When the \
              first such socket opens and when the last one closes, the kernel patches code and interrupts every CPU. \
              chrony opens and closes such sockets with every poll; a process that keeps one open prevents this.",
        magnitude: Magnitude::late(
            Nanos::from_micros(10),
            "three interrupts per CPU each time, a few us each",
            "Linux arch/x86/kernel/alternative.c, smp_text_poke_batch_finish, before 6.16 text_poke_bp_batch (three synchronisations); tuned plugin rtentsk",
        ),
        fix: Fix::both("tuned-adm profile realtime # its plugin rtentsk holds a socket", "tuned profile: [rtentsk]"),
        cost: "Each packet gets a timestamp, which takes about 20 ns.",
        references: &["tuned plugin rtentsk", "clrkwllms/realtime-setup"],
    },
    Rule {
        id: "sys.module-unload-tlb",
        cause: Cause::Tracing,
        title: "Other CPUs do not interrupt the isolated ones",
        applies: Applies::LINUX.isolated(),
        judge: from_others,
        why: "When a module is loaded or removed, memory of a process is unmapped or a static key changes, all CPUs \
              that may be affected get an interrupt (CAL, TLB), and the sender waits for their answers.",
        magnitude: Magnitude::late(
            Nanos::from_micros(5),
            "1 to 5 us each",
            "Linux Documentation/timers/no_hz.rst names the mechanism; the figure is general knowledge",
        ),
        fix: Fix::for_good(
            "load modules before the application starts; prevent its processes from unmapping memory (mallopt, huge \
             pages)",
        ),
        cost: "Processes keep memory that they no longer use.",
        references: &["Linux Documentation/timers/no_hz.rst", ISOLATION],
    },
];

fn tracing(facts: &Facts, _: &Context) -> Judged {
    let kernel = &facts.kernel;
    let tracer = known(&kernel.tracer)?;
    let on = kernel.tracing_on.get().unwrap_or(true);
    let events = kernel.trace_events.get();
    let probes = kernel.kprobes.get();
    let mut active = Vec::new();
    if tracer != "nop" && on {
        active.push(format!("the tracer {tracer} is on"));
    }
    if let Some(n) = events.filter(|n| *n > 0 && on) {
        active.push(format!("{n} trace events are on"));
    }
    if let Some(n) = probes.filter(|n| *n > 0) {
        active.push(format!("{n} kernel probes are set"));
    }
    // Only if everything is known can the result be that nothing is traced.
    if active.is_empty() {
        known(&kernel.trace_events)?;
        known(&kernel.kprobes)?;
    }
    match active.is_empty() {
        true => Judgement::pass("no tracer, event or kernel probe is on"),
        false => Judgement::warn(active.join(", ")),
    }
    .see(&kernel.tracer)
    .see_whether(&kernel.tracing_on, "tracing is on", "tracing is off")
    .see(&kernel.trace_events)
    .see(&kernel.kprobes)
    .alone()
}

fn static_key(facts: &Facts, _: &Context) -> Judged {
    known(&facts.tasks)?;
    let runs = |names: &[&str]| -> Vec<String> {
        facts
            .tasks()
            .filter(|task| !task.kernel && names.iter().any(|name| task.process == *name || task.comm == *name))
            .map(|task| task.process.clone())
            .collect()
    };
    let flapping = runs(&["chronyd", "ntpd", "ntpdate"]);
    if flapping.is_empty() {
        return Err(Skip::not_applicable("no time daemon runs that opens and closes such sockets"));
    }
    // ptp4l and phc2sys keep their sockets open. So does tuned if its plugin is on, which only its profile shows.
    let holders = runs(&["ptp4l", "rtentsk", "timemaster"]);
    let by_tuned = facts.services.tuned_profile.is(|profile| profile.contains("realtime")) == Some(true);
    let source = facts.tasks.source();
    match (holders.first(), by_tuned) {
        (Some(holder), _) => Judgement::pass(format!("{holder} keeps a socket with timestamps open")),
        (None, true) => Judgement::pass("tuned's real-time profile keeps a socket with timestamps open"),
        (None, false) => {
            Judgement::warn(format!("{} runs, and no process is known to keep such a socket open", flapping[0]))
        }
    }
    .see_as(flapping[0].clone(), source)
    .see(&facts.services.tuned_profile)
    .alone()
}

fn from_others(facts: &Facts, context: &Context) -> Judged {
    known(&facts.counters.interrupts)?;
    known(&facts.interval)?;
    let isolated = &context.isolated.value;
    let hits = hits(facts, isolated).ok_or_else(|| Skip::unknown("the interrupts' counters are not known"))?;
    let Some(during) = hits.during else {
        return Err(Skip::unknown("the counters were read once only: rates are not known (--interval 5s)"));
    };
    let ones: Vec<_> =
        hits.list.iter().filter(|hit| hit.kind == HitKind::Cpu && FROM_OTHERS.contains(&hit.label.as_str())).collect();
    let total: u64 = ones.iter().map(|hit| hit.total).sum();
    let allowed = u128::from(MANY_A_SECOND) * u128::from(during.as_nanos()) / 1_000_000_000;
    let seen: Vec<String> = ones.iter().map(|hit| format!("{} {}", hit.label, hit.total)).collect();
    let found = format!("{total} interrupts from other CPUs came in {during}");
    match u128::from(total) <= allowed {
        true => Judgement::pass_for(isolated, found),
        false => Judgement::warn_for(isolated, found),
    }
    .see_as(if seen.is_empty() { "no CAL, no TLB".into() } else { seen.join(", ") }, "/proc/interrupts")
    .alone()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::samples::{put, task};
    use crate::testing::{Case, Host, host};

    fn iso() -> Host {
        host().isolated("2-7")
    }

    fn traced(tracer: &str, events: &str) -> Host {
        let place = "/sys/kernel/tracing";
        host()
            .file(&format!("{place}/current_tracer"), tracer)
            .file(&format!("{place}/tracing_on"), "1\n")
            .file(&format!("{place}/set_event"), events)
            .file(&format!("{place}/kprobe_events"), "")
    }

    fn calls(then: u64, now: u64) -> Host {
        let table =
            |n| format!("           CPU0 CPU3\nCAL: 900 {n} Function call interrupts\nTLB: 5 0 TLB shootdowns\n");
        iso()
            .file("/proc/interrupts", &table(then))
            .file("/again/proc/interrupts", &table(now))
            .file("/proc/uptime", "100.00 1")
            .file("/again/proc/uptime", "101.00 1")
    }

    pub(crate) const CASES: &[Case] = &[
        Case::pass("trace.active", || traced("nop\n", "")),
        Case::warn("trace.active", || traced("function\n", "")),
        Case::warn("trace.active", || traced("nop\n", "sched:sched_switch\n")),
        Case::unknown("trace.active", host),
        Case::unknown("trace.active", || host().file("/sys/kernel/tracing/current_tracer", "nop\n")),
        Case::pass("trace.static-key-ipi", || {
            iso().edit(|f| put(f, vec![task(9, "chronyd", "0-1"), task(10, "ptp4l", "0-1")]))
        }),
        Case::warn("trace.static-key-ipi", || iso().edit(|f| put(f, vec![task(9, "chronyd", "0-1")]))),
        Case::unknown("trace.static-key-ipi", iso),
        Case::pass("sys.module-unload-tlb", || calls(10, 12)),
        Case::warn("sys.module-unload-tlb", || calls(10, 5_000)),
        Case::unknown("sys.module-unload-tlb", iso),
    ];
}
