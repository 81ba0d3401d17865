//! Prints cases as text: first those that `adaptive` loses, then the number of cases per verdict.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use sim::goals::Because;
use tester::document::Name;
use tester::layout::aligned;
use units::Nanos;

use super::super::say::{micros, watts};
use crate::documents::goals::{Case, Document, Quartiles, Way};

/// Formats the results as text. `all` lists every case, not only the lost ones. `ways` adds the result of each mode in
/// each case.
pub fn text(document: &Document, all: bool, ways: bool) -> String {
    let cases: Vec<&Case> = document.cases.iter().collect();
    let (beaten, others): (Vec<&Case>, Vec<&Case>) = cases.iter().partition(|case| is_beaten(case));
    let places = Places::of(&cases);
    let mut text = String::new();
    if !cases.is_empty() {
        let _ = writeln!(text, "{}", places.said(document));
    }
    if ways {
        text.push_str(&by_way(&places, &cases));
    } else {
        let listed: Vec<&Case> = if all { [beaten, others].concat() } else { beaten };
        if !listed.is_empty() {
            text.push_str(&listing(&places, &listed));
        }
    }
    text.push_str(&summary(document));
    text
}

fn is_beaten(case: &Case) -> bool {
    matches!(case.verdict.as_str(), "missed" | "lost" | "lost_to_tuned")
}

/// The settings in which the cases differ. Settings that all cases share are printed once, above the list.
struct Places {
    varies: Vec<bool>,
    common: String,
    detail: Detail,
}

/// What distinguishes cases that would otherwise look alike.
#[derive(Clone, Copy)]
struct Detail {
    /// Whether some machine has several NICs: then each NIC is shown.
    nics: bool,
    /// Whether `adaptive` was told several peak rates of the same traffic: then each rate is shown.
    peaks: bool,
}

impl Detail {
    fn of(cases: &[&Case]) -> Self {
        let (mut nics, mut peaks) = (BTreeMap::new(), BTreeMap::new());
        let mut detail = Self { nics: false, peaks: false };
        for case in cases {
            detail.nics |= *nics.entry(&case.machine).or_insert(&case.nic) != &case.nic;
            if let Some(peak) = case.peak_pps {
                let traffic = (&case.machine, &case.nic, &case.traffic, case.rate_pps);
                detail.peaks |= *peaks.entry(traffic).or_insert(peak) != peak;
            }
        }
        detail
    }
}

const PLACE: [&str; 6] = ["MACHINE", "TRAFFIC", "LOAD", "IDLE", "PEAK", "GOAL"];

fn place(case: &Case, detail: Detail) -> [String; 6] {
    let told = |pps| if detail.peaks { format!("{pps}pps") } else { "told".to_owned() };
    [
        if detail.nics { format!("{}+{}", case.machine, case.nic) } else { case.machine.clone() },
        case.traffic.clone(),
        case.load_percent.map_or_else(|| "-".to_owned(), |load| format!("{load} %")),
        case.deepest.clone(),
        case.peak_pps.map_or_else(|| "untold".to_owned(), told),
        case.goal.clone(),
    ]
}

impl Places {
    fn of(cases: &[&Case]) -> Self {
        let detail = Detail::of(cases);
        let all: Vec<[String; 6]> = cases.iter().map(|case| place(case, detail)).collect();
        let varies: Vec<bool> = (0..PLACE.len()).map(|at| all.windows(2).any(|two| two[0][at] != two[1][at])).collect();
        let same = PLACE.iter().zip(&varies).enumerate().filter(|(_, (_, varies))| !**varies);
        let same = same.filter_map(|(at, (name, _))| {
            let value = all.first()?[at].clone();
            Some(match *name {
                "LOAD" if value != "-" => format!("load {value}"),
                "LOAD" => return None,
                "IDLE" => format!("idle states up to {value}"),
                "PEAK" => format!("peak {value}"),
                _ => value,
            })
        });
        Self { common: same.collect::<Vec<_>>().join(", "), varies, detail }
    }

    fn said(&self, document: &Document) -> String {
        let Document { seed, seeds, .. } = document;
        let seeds = if *seeds == 1 { format!("seed {seed}") } else { format!("seeds {seed}-{}", seed + (seeds - 1)) };
        let window = |of: fn(&[u64]) -> Option<u64>| {
            let all: Vec<u64> = document.cases.iter().map(|case| case.duration_ns).collect();
            Nanos::from_nanos(of(&all).unwrap_or(0))
        };
        let (least, most) = (window(|all| all.iter().copied().min()), window(|all| all.iter().copied().max()));
        let window = if least == most { least.to_string() } else { format!("{least} to {most}") };
        let common = if self.common.is_empty() { String::new() } else { format!("{}; ", self.common) };
        let holds_off = if document.hold_off { ", with hold-off" } else { "" };
        let idles = if document.idle_limit { "" } else { ", without limits of idle states" };
        let warm_up = Nanos::from_nanos(document.warm_up_ns);
        format!("simulated: {common}{seeds}, {window} after {warm_up} of warm-up{holds_off}{idles}")
    }

    fn cells(&self, place: [String; 6]) -> Vec<String> {
        place.into_iter().zip(&self.varies).filter(|(_, varies)| **varies).map(|(cell, _)| cell).collect()
    }

    fn of_case(&self, case: &Case) -> Vec<String> {
        self.cells(place(case, self.detail))
    }
}

/// Renders one line per case.
fn listing(places: &Places, cases: &[&Case]) -> String {
    let bounds = cases.iter().any(|case| case.bound_multiple.is_some());
    let mut head = places.cells(PLACE.map(str::to_owned));
    let texts = head.len() + 1;
    head.extend(["VERDICT", "CORE W", "LATE x", "RIVAL", "CORE W", "LATE x", "POWER x"].map(str::to_owned));
    if bounds {
        head.push("BOUND x".to_owned());
    }
    let reasons = cases.iter().any(|case| case.because.is_some());
    if reasons {
        head.push("BECAUSE".to_owned());
    }
    let because = reasons.then(|| head.len() - 1);
    head.push("ADAPTIVE".to_owned());
    let last = head.len() - 1;
    let mut lines = vec![head];
    for case in cases {
        let rival = case.ways.iter().find(|way| Some(&way.way) == case.rival.as_ref());
        let ours = case.ways.last();
        let multiple = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}"));
        let late = |way: Option<&Way>| multiple(way.map(|way| of_allowed(case, way)));
        let power = |way: Option<&Way>| way.map_or_else(|| "-".to_owned(), |way| watts(way.power_uw));
        let verdict = case.verdict.replace('_', " ");
        let mut line = places.of_case(case);
        line.extend([
            if is_beaten(case) { verdict.to_uppercase() } else { verdict },
            power(ours),
            late(ours),
            case.rival.clone().unwrap_or_else(|| "-".to_owned()),
            power(rival),
            late(rival),
            multiple(case.power_multiple),
        ]);
        if bounds {
            line.push(multiple(case.bound_multiple));
        }
        if reasons {
            line.push(why(case));
        }
        line.push(ours.map_or_else(String::new, |ours| doings(case, ours)));
        lines.push(line);
    }
    let left = move |column| column < texts || column == texts + 2 || Some(column) == because || column == last;
    let note = "LATE x: share of late packets, divided by the share that the goal allows. POWER x: power of adaptive, divided by the rival's.\n";
    format!("{}\n{note}", aligned(&lines, left).join("\n"))
}

/// The share of late packets of a mode, as a multiple of what the goal of the case allows.
pub fn of_allowed(case: &Case, way: &Way) -> f64 {
    let goal: Option<policy::Goal> = case.goal.parse().ok();
    way.late_ppm / goal.map_or(1.0, |goal| f64::from(goal.quantile.above_ppm()))
}

/// Says why the rival needs less power than `adaptive`.
pub fn why(case: &Case) -> String {
    let ring = Nanos::from_nanos(case.ring_ns).as_micros_floor();
    match Because::ALL.into_iter().find(|because| case.because == Some(Name::of(because))) {
        None => "-".to_owned(),
        Some(Because::Ring) => format!("the rival sleeps longer than the ring lasts at the peak rate ({ring} us)"),
        Some(Because::Lateness) => "the rival makes more packets late than adaptive aims at".to_owned(),
        Some(Because::Polling) => "adaptive spends more on polling".to_owned(),
        Some(Because::Awake) => "adaptive is awake longer".to_owned(),
        Some(Because::Frequency) => "adaptive runs at a higher frequency".to_owned(),
        Some(Because::Idle) => "adaptive draws more power while idle".to_owned(),
    }
}

/// Summarizes what `adaptive` did: where its time went, how often it woke, and its most frequent reasons.
fn doings(case: &Case, ours: &Way) -> String {
    let time = (case.duration_ns * ours.seeds) as f64;
    let mut parts: Vec<String> = Vec::new();
    let waits = ours.waits.iter().map(|(kind, waits)| (kind, waits.time_ns as f64 * 100.0 / time));
    parts.extend(waits.filter(|(_, percent)| *percent >= 0.5).map(|(kind, percent)| format!("{kind} {percent:.0} %")));
    parts.push(format!("{:.0} wake-ups/s", ours.wakeups as f64 * 1e9 / time));
    if ours.lost > 0 {
        parts.push(format!("{} lost", ours.lost));
    }
    let all: u64 = ours.reasons.values().sum();
    let mut reasons: Vec<_> = ours.reasons.iter().filter(|(_, count)| **count * 100 >= all).collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    parts.extend(reasons.iter().take(3).map(|(name, count)| format!("{name} {}", *count * 100 / all.max(1))));
    parts.join(", ")
}

/// Renders one line per mode.
fn by_way(places: &Places, cases: &[&Case]) -> String {
    let mut head = places.cells(PLACE.map(str::to_owned));
    let texts = head.len() + 1;
    head.extend(["WAY", "DELAY us", "LATE %", "LOSS %", "CORE W", "WOKEN/s", ""].map(str::to_owned));
    let mut lines = vec![head];
    for case in cases {
        for (number, way) in case.ways.iter().enumerate() {
            let mut line = if number == 0 { places.of_case(case) } else { places.cells(Default::default()) };
            let time = (case.duration_ns * way.seeds.max(1)) as f64;
            let ours = number + 1 == case.ways.len();
            let held = match way.held.as_str() {
                "yes" => "held".to_owned(),
                "within_interval" => "met within the interval".to_owned(),
                "too_few_packets" => "too few packets".to_owned(),
                _ => String::new(),
            };
            let verdict = case.verdict.replace('_', " ");
            let said = if !ours {
                held
            } else if is_beaten(case) {
                verdict.to_uppercase()
            } else {
                verdict
            };
            line.extend([
                way.way.clone(),
                micros(way.latency_ns),
                if way.offered == 0 { "-".to_owned() } else { format!("{:.3}", way.late_ppm / 1e4) },
                percent(way.lost, way.offered),
                watts(way.power_uw),
                format!("{:.0}", way.wakeups as f64 * 1e9 / time),
                said,
            ]);
            lines.push(line);
        }
    }
    let last = texts + 4;
    aligned(&lines, move |column| column < texts || column > last).join("\n")
        + "\nDELAY: latency at the quantile of the goal; with several seeds, the median seed.\n"
}

fn percent(part: u64, all: u64) -> String {
    if all == 0 { "-".to_owned() } else { format!("{:.3}", part as f64 * 100.0 / all as f64) }
}

const MEANINGS: [(&str, &str); 7] = [
    ("won", "adaptive meets the goal with over 1 % less power than every rival that meets it, or no rival meets it"),
    (
        "tied",
        "adaptive needs at most 1 % more power than the best rival at its own settings, and at most 5 % more than tuned ones",
    ),
    ("lost", "a rival at its own settings meets the goal with over 1 % less power"),
    ("lost_to_tuned", "a rival at a fixed frequency chosen in hindsight meets the goal with over 5 % less power"),
    ("missed", "adaptive misses the goal, but a rival meets it"),
    ("nobody_holds", "neither adaptive nor a rival meets the goal"),
    ("too_few_packets", "too few packets to judge"),
];

fn summary(document: &Document) -> String {
    let summary = &document.summary;
    let mut text = String::from("\n");
    let count = |verdict: &str| summary.verdicts.get(verdict).copied().unwrap_or(0);
    for (verdict, meaning) in MEANINGS.iter().filter(|(verdict, _)| count(verdict) > 0) {
        let _ = writeln!(text, "{:>5} {:<15}  {meaning}", count(verdict), verdict.replace('_', " "));
    }
    if summary.marginal > 0 {
        let _ = writeln!(
            text,
            "{:>5} met only within the 95 % interval over the seeds: the mean share of late packets exceeds the allowed one",
            summary.marginal
        );
    }
    let mut spread = |what: &str, values: &Option<Quartiles>| {
        if let Some(Quartiles { min, q1, median, q3, max, .. }) = values {
            let _ = writeln!(text, "{what}: {min:.2} / {q1:.2} / {median:.2} / {q3:.2} / {max:.2}");
        }
    };
    spread("power relative to the best rival (minimum, quartiles, maximum)", &summary.power_multiple);
    spread("power relative to the least possible", &summary.bound_multiple);
    spread("late share in the first second relative to the allowed one", &summary.first_second_multiple);
    let good = count("won") + count("tied") + count("nobody_holds");
    let _ = writeln!(
        text,
        "{good} of {} goals: adaptive meets the goal if any rival does, with no more power (within 1 %; 5 % for rivals at a \
         fixed lower frequency)",
        // Cases with too few packets are not judged.
        document.cases.len() as u64 - count("too_few_packets")
    );
    text
}
