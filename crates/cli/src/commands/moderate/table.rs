//! A table of the queues that running instances control, for `apus moderate status` and `apus top`.

use tester::layout::aligned;

use super::super::published::SILENT;
use super::super::shown::{UNKNOWN, per_second, pps, span};
use crate::documents::moderate::NotControlled;
use crate::documents::moderation::{Instance, Queue};
use crate::terminal::line;

/// Renders one row per queue. Lines below the table show peculiarities of queues and instances.
pub(in crate::commands) fn lines(instances: &[Instance]) -> Vec<String> {
    let head =
        ["INTERFACE", "QUEUE", "GOAL", "TIMER", "RX", "POLLS", "TO READ", "AT MOST", "LATE", "VERDICT", "REASON"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let mut notes = Vec::new();
    for instance in instances {
        rows.extend(instance.queues.iter().map(|queue| row(queue).to_vec()));
        notes.extend(special(instance));
    }
    let mut lines = aligned(&rows, |column| matches!(column, 0 | 2 | 9 | 10));
    lines.extend(notes);
    lines
}

fn row(queue: &Queue) -> [String; 11] {
    let goal = match queue.policy.as_str() {
        "goal" => queue.goal.clone(),
        other => format!("{} ({other})", queue.goal),
    };
    [
        line(&queue.interface),
        queue.queue.to_string(),
        line(&goal),
        if queue.timer_ns == 0 { "off".to_owned() } else { span(Some(queue.timer_ns)) },
        queue.packets_pps.map_or_else(|| UNKNOWN.to_owned(), pps),
        per_second(queue.polls_per_second),
        span(queue.reception_to_read_ns),
        span(queue.at_most_ns),
        queue.late_ratio.map_or_else(|| UNKNOWN.to_owned(), |share| format!("{:.2} %", share * 100.0)),
        queue.verdict.to_string(),
        line(&queue.reason),
    ]
}

/// Peculiarities of an instance or a queue that the table has no column for.
fn special(instance: &Instance) -> Vec<String> {
    let mut notes = Vec::new();
    let of = |text: String| format!("process {}: {text}", instance.pid);
    if instance.dry_run {
        notes.push(of("changes nothing (--dry-run)".into()));
    }
    if let Some(namespace) = instance.network_namespace {
        notes.push(of(format!("its interfaces are in another network namespace (net:[{namespace}])")));
    }
    if instance.silent_ns >= SILENT {
        notes.push(of(format!("has not updated its state for {}", span(Some(instance.silent_ns)))));
    }
    for queue in &instance.queues {
        let name = format!("{} queue {}", line(&queue.interface), queue.queue);
        let troubles = [queue.trouble.as_ref().map(|text| line(text)), queue.lost.as_ref().map(|why| lost(why))];
        notes.extend(troubles.into_iter().flatten().map(|text| format!("{name}: {text}")));
    }
    let left_out = |one: &NotControlled| of(format!("{} is not controlled: {}", line(&one.interface), line(&one.why)));
    notes.extend(instance.not_controlled.iter().map(left_out));
    notes
}

fn lost(why: &str) -> String {
    format!("no longer controlled: {}", line(why))
}

#[cfg(test)]
mod tests {
    use super::super::published::queue;
    use super::*;
    use crate::documents::moderate::Verdict;

    fn instance(queues: Vec<Queue>) -> Instance {
        Instance {
            pid: 4_242,
            network_namespace: None,
            dry_run: false,
            steering_ns: 60_000_000_000,
            silent_ns: 300_000_000,
            queues,
            not_controlled: Vec::new(),
        }
    }

    #[test]
    fn a_row_a_queue() {
        let mut idle = Queue::of(&queue("eth0", 12));
        (idle.policy, idle.timer_ns, idle.verdict) = ("net-dim".into(), 0, Verdict::Unmeasured.into());
        (idle.packets_pps, idle.polls_per_second, idle.reception_to_read_ns, idle.at_most_ns) =
            (None, None, None, None);
        idle.late_ratio = None;
        let shown = lines(&[instance(vec![Queue::of(&queue("eth0", 3)), idle])]);
        let expected = [
            "INTERFACE  QUEUE  GOAL                 TIMER        RX    POLLS  TO READ  AT MOST    LATE  VERDICT     REASON",
            "eth0           3  p99=100us             80us  90.0kpps  11000/s   12.3us   92.3us  0.25 %  held        the goal allows a longer time",
            "eth0          12  p99=100us (net-dim)    off         –        –        –        –       –  unmeasured  the goal allows a longer time",
        ];
        assert_eq!(shown, expected, "\n{}", shown.join("\n"));
    }

    #[test]
    fn what_is_special_is_said_below() {
        let mut troubled = Queue::of(&queue("e\n\u{1b}[2J", 0));
        troubled.trouble = Some("the timer is 96us instead".into());
        troubled.lost = Some("somebody else set it to 77us".into());
        let mut one = instance(vec![troubled]);
        (one.dry_run, one.network_namespace, one.silent_ns) = (true, Some(4_026_531_992), 7_200_000_000);
        one.not_controlled.push(NotControlled { interface: "tun\n0".into(), why: "it is down".into() });
        let shown = lines(&[one]);
        assert_eq!(
            shown[2..],
            [
                "process 4242: changes nothing (--dry-run)",
                "process 4242: its interfaces are in another network namespace (net:[4026531992])",
                "process 4242: has not updated its state for 7.2s",
                "e\\u000a\\u001b[2J queue 0: the timer is 96us instead",
                "e\\u000a\\u001b[2J queue 0: no longer controlled: somebody else set it to 77us",
                "process 4242: tun\\u000a0 is not controlled: it is down",
            ]
        );
    }
}
