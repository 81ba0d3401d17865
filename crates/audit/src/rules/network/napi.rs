//! Rules on NAPI, which decides when the kernel polls the rings of a network card.

use host::Facts;
use host::facts::{Link, Napi, Task};
use units::Nanos;

use crate::rules::interfaces::by_link;
use crate::{Applies, Cause, Context, Fix, Judged, Judgement, Magnitude, Rule, Skip, Workload, known};

const NAPI: &str = "Linux Documentation/networking/napi.rst";

/// The rules of this module, in the order of docs/rules.md.
pub const RULES: &[Rule] = &[
    Rule {
        id: "net.busy-poll",
        cause: Cause::NetworkStack,
        title: "A thread that waits for a packet polls the card first",
        applies: Applies::LINUX.to(&[Workload::Interrupt]),
        judge: busy_poll,
        why: "A socket call that would block can poll the card's queue for a few microseconds. A packet that arrives in \
         that time needs no interrupt, no softirq and no wake-up.",
        magnitude: Magnitude::late(
            Nanos::from_micros(10),
            "an interrupt, a softirq and a wake-up: a few microseconds, plus the exit latency of the CPU's idle state",
            "Linux Documentation/networking/napi.rst, Busy polling; the figure is an estimate",
        ),
        fix: Fix::runtime("sysctl -w net.core.busy_read=50 net.core.busy_poll=50")
            .against(&["OpenShift cluster-node-tuning-operator leaves it out: real-time kernels do not have it"]),
        cost: "Waiting threads use CPU time for up to 50 us each. A socket can request busy polling for \
               itself instead (SO_BUSY_POLL).",
        references: &[
            NAPI,
            "Linux Documentation/admin-guide/sysctl/net.rst, busy_poll",
            "tuned profile network-latency",
        ],
    },
    Rule {
        id: "net.defer-hard-irqs",
        cause: Cause::Moderation,
        title: "Interrupts are not deferred longer than the budget",
        applies: Applies::LINUX.with_nic(),
        judge: deferred,
        why: "napi_defer_hard_irqs leaves the card's interrupt off after a poll, and a timer (gro_flush_timeout) polls \
              again. It was made for applications that poll the card themselves; if none runs, packets wait for the \
              timer. Setting only one of the two is a mistake: the first alone does nothing, the second alone holds \
              back merged segments.",
        magnitude: Magnitude::late(
            Nanos::from_micros(20),
            "up to gro_flush_timeout per packet; 20 us to 2 ms are usual",
            "Linux Documentation/networking/napi.rst, Software IRQ coalescing",
        ),
        fix: Fix::runtime(
            "echo 0 > /sys/class/net/{nic}/napi_defer_hard_irqs\necho 0 > /sys/class/net/{nic}/gro_flush_timeout",
        ),
        cost: "There are more interrupts.",
        references: &[NAPI, "GitHub Linutronix/RTC-Testbench#62"],
    },
    Rule {
        id: "net.threaded-napi",
        cause: Cause::Queues,
        title: "NAPI threads have a priority and a place",
        applies: Applies::LINUX.with_nic(),
        judge: threaded,
        why: "With threaded NAPI a kernel thread polls the card instead of a softirq. The scheduler then decides when \
         and where the thread runs: at normal priority it competes with all other threads, on any CPU that its mask \
         allows.",
        magnitude: Magnitude::late(
            Nanos::from_millis(1),
            "a scheduling delay: up to a time slice of milliseconds at normal priority",
            "Linux Documentation/networking/napi.rst, Threaded NAPI; the figure is an estimate",
        ),
        fix: Fix::runtime(
            "for p in $(pgrep napi/{nic}); do chrt -f -p 50 $p; taskset -pc {housekeeping} $p; done # or echo 0 > /sys/class/net/{nic}/threaded",
        ),
        cost: "A real-time thread can starve others on its CPU.",
        references: &[NAPI],
    },
];

fn busy_poll(facts: &Facts, _: &Context) -> Judged {
    let (read, poll) = (facts.sysctl_number("net.core.busy_read"), facts.sysctl_number("net.core.busy_poll"));
    let judgement = match (*known(&read)?, poll.get().unwrap_or(0)) {
        (0, 0) => {
            Judgement::warn("busy polling is off: a thread that waits for a packet sleeps until an interrupt wakes it")
        }
        (0, n) => {
            Judgement::warn(format!("poll() and select() poll the card for {n} us, but a blocking read sleeps at once"))
        }
        (n, _) => Judgement::pass(format!("a blocking read polls the card for {n} us before it sleeps")),
    };
    judgement.see(&read).see(&poll).alone()
}

/// The deferral settings of the interface, or those of its NAPI instances if they have their own.
fn settings(link: &Link) -> Result<(u32, u64), Skip> {
    let instances = link.napi.value().into_iter().flatten();
    let own = |get: fn(&Napi) -> Option<u64>| instances.clone().filter_map(get).max();
    let defer = own(|napi| napi.settings.defer_hard_irqs.map(u64::from));
    let flush = own(|napi| napi.settings.gro_flush_timeout_ns);
    match (defer, flush) {
        (Some(defer), Some(flush)) => Ok((defer.min(u32::MAX.into()) as u32, flush)),
        _ => Ok((*known(&link.defer_hard_irqs)?, *known(&link.gro_flush_timeout_ns)?)),
    }
}

fn deferred(facts: &Facts, context: &Context) -> Judged {
    by_link(facts, context, |link| {
        let (defer, flush) = settings(link)?;
        let timeout = Nanos::from_nanos(flush);
        let judgement = match (defer, flush) {
            (0, 0) => Judgement::pass("the kernel does not defer interrupts"),
            (_, 0) => Judgement::warn("interrupts should be deferred, but no timer is set, so nothing is deferred"),
            (0, _) => Judgement::warn(format!("merged segments wait up to {timeout}, but interrupts are not deferred"))
                .takes(timeout),
            _ if timeout <= context.budget() => {
                Judgement::pass(format!("the kernel polls the card at least every {timeout}"))
            }
            _ => Judgement::warn(format!("packets wait up to {timeout} if no application polls")).takes(timeout),
        };
        let text = format!("napi_defer_hard_irqs {defer}, gro_flush_timeout {flush} ns");
        Ok(judgement.see_as(text, link.defer_hard_irqs.source()))
    })
}

/// The threads that poll an interface: those that the kernel reports, or those with a name such as `napi/eth0-8193`.
fn threads<'a>(facts: &'a Facts, link: &'a Link) -> impl Iterator<Item = &'a Task> {
    let named: Vec<u32> = link.napi.value().into_iter().flatten().filter_map(|napi| napi.pid).collect();
    let prefix = format!("napi/{}-", link.name);
    facts.tasks().filter(move |task| named.contains(&task.tid) || (task.kernel && task.comm.starts_with(&prefix)))
}

fn threaded(facts: &Facts, context: &Context) -> Judged {
    by_link(facts, context, |link| {
        if !*known(&link.threaded)? {
            return Ok(Judgement::pass("softirqs poll the card").see_as("0", link.threaded.source()));
        }
        known(&facts.tasks)?;
        let threads: Vec<&Task> = threads(facts, link).collect();
        if threads.is_empty() {
            return Err(Skip::unknown("its threads were not found"));
        }
        let all = facts.cpus.all();
        let loose = threads
            .iter()
            .filter(|task| task.affinity.is(|cpus| cpus.len() > 1 && all.difference(cpus).is_empty()).unwrap_or(true));
        let loose = loose.count();
        let normal = threads.iter().filter(|task| !task.class.is_realtime()).count();
        let judgement = match (loose, normal) {
            (0, 0) => Judgement::pass(format!("{} threads are pinned and have a real-time priority", threads.len())),
            (loose, normal) => {
                let found =
                    format!("of {} threads, {loose} may run anywhere and {normal} have normal priority", threads.len());
                Judgement::warn(found)
            }
        };
        Ok(judgement
            .see_as("1", link.threaded.source())
            .see_as(format!("{} threads", threads.len()), facts.tasks.source()))
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use host::Fact;
    use host::facts::{SchedClass, Task};
    use units::Nanos;

    use crate::Workload;
    use crate::testing::{Case, Host, host};

    fn busy(read: &str) -> Host {
        host()
            .workload(Workload::Interrupt)
            .file("/proc/sys/net/core/busy_read", read)
            .file("/proc/sys/net/core/busy_poll", read)
    }

    fn bare() -> Host {
        host().nic("eth0").file("/sys/class/net/eth0/mtu", "1500\n")
    }

    fn deferred(defer: &str, flush: &str) -> Host {
        bare()
            .file("/sys/class/net/eth0/napi_defer_hard_irqs", defer)
            .file("/sys/class/net/eth0/gro_flush_timeout", flush)
    }

    fn threads(class: SchedClass, cpus: &str) -> Host {
        let host = bare().file("/sys/class/net/eth0/threaded", "1\n");
        match (class, cpus) {
            (SchedClass::Fifo, "1") => host.edit(|facts| thread(facts, SchedClass::Fifo, "1")),
            _ => host.edit(|facts| thread(facts, SchedClass::Normal, "0-7")),
        }
    }

    fn thread(facts: &mut host::Facts, class: SchedClass, cpus: &str) {
        let task = Task {
            comm: "napi/eth0-8193".into(),
            kernel: true,
            affinity: Fact::known(cpus.parse().unwrap(), "status"),
            class,
            ..Task::default()
        };
        facts.tasks = Fact::known(vec![task], "/proc/*/task");
    }

    pub(crate) const CASES: &[Case] = &[
        Case::pass("net.busy-poll", || busy("50\n")),
        Case::warn("net.busy-poll", || busy("0\n")),
        Case::unknown("net.busy-poll", || host().workload(Workload::Interrupt)),
        Case::pass("net.defer-hard-irqs", || deferred("0\n", "0\n")),
        Case::pass("net.defer-hard-irqs", || deferred("2\n", "5000\n")),
        Case::warn("net.defer-hard-irqs", || deferred("2\n", "0\n")),
        Case::warn("net.defer-hard-irqs", || deferred("0\n", "20000\n")),
        Case::warn("net.defer-hard-irqs", || deferred("2\n", "200000\n")),
        Case::unknown("net.defer-hard-irqs", bare),
        Case::pass("net.threaded-napi", || bare().file("/sys/class/net/eth0/threaded", "0\n")),
        Case::pass("net.threaded-napi", || threads(SchedClass::Fifo, "1")),
        Case::warn("net.threaded-napi", || threads(SchedClass::Normal, "0-7")),
        Case::unknown("net.threaded-napi", bare),
    ];

    #[test]
    fn the_timer_is_the_effect() {
        assert_eq!(
            deferred("2\n", "200000\n").judge("net.defer-hard-irqs")[0].effect,
            Some(crate::Effect::Late(Nanos::from_micros(200)))
        );
    }
}
