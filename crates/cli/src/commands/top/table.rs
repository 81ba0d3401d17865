//! Prints `apus top --once`. The live view uses the same formatting functions.

use std::fmt::Write as _;

use tester::document::Distribution;
use tester::layout::aligned;

use super::super::moderate::table as moderation;
use super::super::power::steer::table as steering;
use super::super::shown::{self, UNKNOWN, per_second, pps, span};
use crate::documents::top::{Choice, Document, Rate, TimeShares, Worker};
use crate::terminal::line;

/// The kinds of time in display order: name, share, and a mark that is distinct without colors.
pub fn parts(time: &TimeShares) -> [(&'static str, f64, char); 6] {
    [
        ("busy", time.busy_ratio, '█'),
        ("poll", time.poll_ratio, '▓'),
        ("pause", time.pause_ratio, '▒'),
        ("sleep", time.sleep_ratio, 'z'),
        ("block", time.block_ratio, '_'),
        ("rest", time.rest_ratio, '·'),
    ]
}

/// Formats one table row per worker, longer texts below the table, the queues that `apus moderate` controls, and the CPUs
/// that `apus power steer` controls.
pub fn render(document: &Document) -> String {
    let mut rows = vec![
        ["WORKER", "APP", "MODE", "STATE", "RX", "TX", "DROPS", "P50", "P99", "P99.9", "MAX", "CPU", "WAKE-UPS"]
            .map(str::to_owned)
            .to_vec(),
    ];
    let mut notes = String::new();
    for instance in &document.instances {
        for worker in &instance.workers {
            let name = line(&format!("{}/{}", instance.instance, worker.worker));
            rows.push(row(&name, worker));
            if let Some(rate) = &worker.rate {
                let _ = writeln!(
                    notes,
                    "{name}: occupancy {:.0} %; time {}; why {}; drops {}",
                    100.0 * rate.occupancy_ratio,
                    time(rate),
                    why(rate),
                    drops(rate)
                );
            }
            if let Some(chosen) = &worker.choice {
                let (chose, by) = choice(chosen);
                let _ = writeln!(notes, "{name}: {chose}: {by}");
            }
        }
    }
    let mut tables = Vec::new();
    if rows.len() > 1 {
        // The first four columns are text.
        tables.push(aligned(&rows, |column| column < 4).join("\n") + "\n" + &notes);
    }
    tables.extend(controlled(document).into_iter().map(|table| table.lines.join("\n") + "\n"));
    let mut text = match tables.is_empty() {
        true => "no instance of Apus is running\n".to_owned(),
        false => tables.join("\n"),
    };
    for leftover in &document.leftovers {
        let _ = writeln!(text, "{}", shown::leftover(leftover));
    }
    text
}

/// A table of what a command controls.
pub struct Controlled {
    /// The command. `COMMAND status` shows the whole table.
    pub command: &'static str,
    /// The lines of the table.
    pub lines: Vec<String>,
}

/// The tables of the commands that control something now.
pub fn controlled(document: &Document) -> Vec<Controlled> {
    let mut tables = Vec::new();
    if !document.moderation.is_empty() {
        tables.push(Controlled { command: "apus moderate", lines: moderation::lines(&document.moderation) });
    }
    if !document.steering.is_empty() {
        tables.push(Controlled { command: "apus power steer", lines: steering::lines(&document.steering) });
    }
    tables
}

fn row(name: &str, worker: &Worker) -> Vec<String> {
    let mut row = vec![name.to_owned(), line(&worker.app), line(&mode(worker)), line(state(worker))];
    match &worker.rate {
        None => row.extend(std::iter::repeat_n(UNKNOWN.to_owned(), 9)),
        Some(rate) => {
            let late = &rate.pickup_lateness;
            row.extend([pps(rate.received_pps), pps(rate.sent_pps), pps(rate.dropped_pps.values().sum())]);
            row.extend([late.p50_ns, late.p99_ns, late.p99_9_ns, late.max_ns].map(span));
            row.extend([percent(rate.cpu_ratio), per_second(rate.wakeups_per_second)]);
        }
    }
    row
}

/// Mode and goal: `adaptive p99.9=50us`.
pub fn mode(worker: &Worker) -> String {
    worker.goal.as_ref().map_or_else(|| worker.mode.clone(), |goal| format!("{} {goal}", worker.mode))
}

pub fn state(worker: &Worker) -> &str {
    worker.state.as_deref().unwrap_or("unknown")
}

/// Where the time went: `busy 12 %, sleep 80 %, rest 8 %`.
pub fn time(rate: &Rate) -> String {
    listed(parts(&rate.time).into_iter().filter(|part| part.1 >= 0.0005).map(|part| (part.0, percent(Some(part.1)))))
}

/// The wait policy's reasons for its decisions, the most frequent first.
pub fn why(rate: &Rate) -> String {
    let mut reasons: Vec<_> = rate.decision_ratios.iter().collect();
    reasons.sort_by(|a, b| b.1.total_cmp(a.1));
    listed(reasons.into_iter().map(|(name, share)| (name.as_str(), percent(Some(*share)))))
}

/// A choice older than this, in ns, is shown with its age.
const OLD: u64 = 100_000_000;

/// The last choice of the mode `adaptive`, such as `chose block`, and what it expected: `4.2us per packet (21.0 % CPU),
/// expected late 0.3 %, owed 1.2 packets`.
pub fn choice(choice: &Choice) -> (String, String) {
    let length = || span(Some(choice.wait_ns));
    let what = match (choice.kind.as_str(), choice.reason.as_str()) {
        (_, "periodic") => format!("to wake in {}, before the next expected frame", length()),
        ("sleep", _) => format!("sleep {}", length()),
        (kind, _) => kind.to_owned(),
    };
    let ago = if choice.age_ns > OLD { format!(" {} ago", span(Some(choice.age_ns))) } else { String::new() };
    let chose = format!("chose {what}{ago}");
    let owed = format!("owed {:.1} packets", choice.owed_packets);
    let Some(late) = choice.expected_late_ratio else {
        return (chose, format!("idle (cost and lateness not compared), {owed}"));
    };
    let price = match choice.price_ns_per_packet {
        None => "price not measured yet".to_owned(),
        price => format!("{} per packet ({} CPU)", span(price), percent(choice.core_ratio)),
    };
    (chose, format!("{price}, expected late {}, {owed}", small_percent(late)))
}

/// Lost frames, by the workers' drop reasons and by the devices' counters.
pub fn drops(rate: &Rate) -> String {
    let own = rate.dropped_pps.iter().map(|(name, n)| (name.as_str(), *n));
    let device = Some(("lost by the device", rate.device_lost_pps)).filter(|(_, n)| *n > 0.0);
    listed(own.chain(device).map(|(name, n)| (name, pps(n))))
}

fn listed<'a>(items: impl Iterator<Item = (&'a str, String)>) -> String {
    let items: Vec<String> = items.map(|(name, value)| format!("{name} {value}")).collect();
    if items.is_empty() { "none".to_owned() } else { items.join(", ") }
}

/// Formats the quantiles of lateness: `p50 2.1us  p99 8.4us  p99.9 –  max 21us  of 2000 frames`.
pub fn lateness(late: &Distribution) -> String {
    let [p50, p99, p99_9, max] = [late.p50_ns, late.p99_ns, late.p99_9_ns, late.max_ns].map(span);
    format!("p50 {p50:<8} p99 {p99:<8} p99.9 {p99_9:<8} max {max:<8} of {} frames", late.count)
}

pub fn megabits(bits_per_second: f64) -> String {
    format!("{:.1} Mbit/s", bits_per_second / 1e6)
}

pub fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| UNKNOWN.to_owned(), |share| format!("{:.1} %", share * 100.0))
}

/// Formats a percentage with the digits that a goal of p99.99 needs.
fn small_percent(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0 %".to_owned(),
        percent if percent < 0.000_5 => "< 0.001 %".to_owned(),
        percent if percent < 0.1 => format!("{percent:.3} %"),
        percent => format!("{percent:.1} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::power::steer::table::instance;
    use super::super::sample::tests::{document, moderated};
    use super::*;
    use tester::document::Name;

    #[test]
    fn the_table() {
        let expected = "\
WORKER  APP    MODE                 STATE          RX        TX   DROPS     P50     P99  P99.9     MAX     CPU  WAKE-UPS
edge/0  l2fwd  adaptive p99.9=50us  running  2.00kpps  1.80kpps  200pps  2.51us  2.99us      –  2.99us  12.0 %    2000/s
edge/0: occupancy 12 %; time busy 10.0 %, sleep 50.0 %, rest 40.0 %; why periodic 80.0 %, traffic 20.0 %; drops no_route 200pps
edge/0: chose sleep 38us: 50us per packet (10.0 % CPU), expected late 0.3 %, owed 1.2 packets
";
        assert_eq!(render(&document()), expected);
    }

    #[test]
    fn queues_have_a_table_of_their_own() {
        let mut document = document();
        let workers = render(&document);
        document.moderation = vec![moderated()];
        let both = render(&document);
        let queues = both.strip_prefix(&(workers + "\n")).expect(&both).to_owned();
        assert!(queues.starts_with("INTERFACE  QUEUE") && queues.contains("\neth0           3  p99=100us"), "{queues}");
        document.instances.clear();
        assert_eq!(render(&document), queues, "and it stands alone if no worker runs");
        document.steering = vec![instance()];
        let all = render(&document);
        let cpus = all.strip_prefix(&(queues + "\n")).expect(&all).to_owned();
        assert!(cpus.starts_with("CPU  WATCHED") && cpus.contains("\n  3  edge/3   goal p99=50us"), "{cpus}");
        document.moderation.clear();
        assert_eq!(render(&document), cpus, "and so do CPUs");
    }

    /// Regression test: each of these names began a new line, which looked like a worker's line.
    #[test]
    fn a_name_with_a_line_end_stays_in_its_line() {
        let mut document = document();
        let lines = render(&document).lines().count();
        document.instances[0].instance = "edge\nfake/0".to_owned();
        document.instances[0].workers[0].app = "l2fwd\n\tx".to_owned();
        let text = render(&document);
        assert!(text.lines().count() == lines && text.contains("edge\\u000afake/0/0"), "{text}");
    }

    #[test]
    fn none_runs_and_none_has_a_rate() {
        let mut document = document();
        document.instances[0].workers[0].rate = None;
        document.instances[0].workers[0].choice = None;
        assert!(render(&document).lines().nth(1).unwrap().ends_with('–'));
        document.instances.clear();
        assert_eq!(render(&document), "no instance of Apus is running\n");
    }

    #[test]
    fn a_choice_in_one_line_and_what_is_unknown_of_it() {
        let one = document().instances[0].workers[0].choice.clone().unwrap();
        let said = |kind: &str, reason: &str, price_ns_per_packet, expected_late_ratio| {
            let (kind, reason) = (Name::read(kind).unwrap(), Name::read(reason).unwrap());
            let (chose, by) = choice(&Choice { kind, reason, price_ns_per_packet, expected_late_ratio, ..one.clone() });
            // Each must fit into a line of a terminal of 80 columns, inside the frame.
            assert!(chose.len() <= 78 && by.len() <= 73, "{chose}: {by}");
            format!("{chose}: {by}")
        };
        for (line, expected) in [
            (
                said("block", "interrupt", Some(4_200), Some(0.003)),
                "chose block: 4.2us per packet (10.0 % CPU), expected late 0.3 %, owed 1.2 packets",
            ),
            (
                said("block", "periodic", Some(4_200), Some(0.000_05)),
                "chose to wake in 38us, before the next expected frame: 4.2us per packet (10.0 % CPU), expected late \
                 0.005 %, owed 1.2 packets",
            ),
            (
                said("sleep", "loss_bound", None, Some(0.0)),
                "chose sleep 38us: price not measured yet, expected late 0 %, owed 1.2 packets",
            ),
            (said("block", "idle", None, None), "chose block: idle (cost and lateness not compared), owed 1.2 packets"),
            (
                said("poll", "late", Some(10_000), Some(0.000_001)),
                "chose poll: 10us per packet (10.0 % CPU), expected late < 0.001 %, owed 1.2 packets",
            ),
        ] {
            assert_eq!(line, expected);
        }
    }
}
