use std::time::{Duration, Instant};

use vmlab::Vm;

use vmlab::harness::{Alone, ok};

pub(crate) const TESTS: [Alone; 1] = [("virtual_time::figures_are_exact", exact)];

/// The tracer timerlat (Documentation/trace/timerlat-tracer.rst) wakes a thread each millisecond and
/// says how late the interrupt and the thread were, in nanoseconds.
fn exact() {
    let guest = ok(ok(Vm::new()).virtual_time().boot());
    let began = Instant::now();
    let uptime = "read -r up _ </proc/uptime; echo $up";
    let slept = ok(guest.run(&format!("{uptime}; sleep 300; {uptime}")));
    let times: Vec<f64> = slept.lines().map(|line| line.parse().unwrap()).collect();
    let took = times[1] - times[0];
    assert!((300.0..300.1).contains(&took), "{slept}");
    assert!(began.elapsed() < Duration::from_secs(100), "idle time takes none of ours: {:?}", began.elapsed());
    let rows = ok(guest.run(
        "cd /sys/kernel/tracing; echo timerlat >current_tracer; sleep 1; echo >trace; sleep 2; echo 0 >tracing_on; cat trace; echo nop >current_tracer",
    ));
    let late = |context: &str| {
        let wanted = format!("context {context:>6} timer_latency");
        let late = rows.lines().filter(|row| row.contains(&wanted));
        let late: Vec<u64> = late.filter_map(|row| row.split_whitespace().rev().nth(1)?.parse().ok()).collect();
        assert!(late.len() > 1_000, "{} rows of {context}, of {}", late.len(), rows.lines().count());
        (*late.iter().min().unwrap(), *late.iter().max().unwrap())
    };
    let (irq, thread) = (late("irq"), late("thread"));
    assert!(irq.1 - irq.0 < 10_000 && thread.1 < 100_000, "{irq:?} {thread:?}");
}
