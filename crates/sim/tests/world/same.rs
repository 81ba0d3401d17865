use std::fs;
use std::path::Path;

use crate::support::{folder_scenario, run, scenario, summary};
use sim::world;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// One scenario for each kind of traffic, each with another way of being served.
const KINDS: [(&str, &str); 7] = [
    ("constant", "kind = \"constant\"\nrate = \"14.2Mpps\"\n[worker]\ndriver = \"user\"\nwait = \"poll\""),
    (
        "poisson",
        "kind = \"poisson\"\nrate = \"100kpps\"\n[worker]\ndriver = \"user\"\nwait = \"adaptive\"\n[goal]\nlatency = \
         \"p99=100us\"\n[moderation]\npolicy = \"off\"",
    ),
    (
        "on-off",
        "kind = \"on-off\"\nrate = \"1Mpps\"\non = \"100us\"\noff = \"400us\"\nlengths = \"exponential\"\n[worker]\ndriver = \
         \"user\"\nwait = \"backoff\"\n[frequency]\npolicy = \"two-level\"",
    ),
    (
        "slots",
        "kind = \"slots\"\nperiod = \"500us\"\nburst = 4\nspacing = \"3us\"\njitter = \"2us\"\n[worker]\ndriver = \
         \"user\"\nwait = \"hybrid300\"\n[vm]\n[moderation]\npolicy = \"off\"",
    ),
    (
        "request",
        "kind = \"request\"\nconnections = 3\ndistance = \"15us\"\n[worker]\ndriver = \"kernel\"\n[moderation]\npolicy = \
         \"static\"\ndelay = \"8us\"",
    ),
    (
        "self-similar",
        "kind = \"self-similar\"\nrate = \"200kpps\"\npeak = \"50kpps\"\nsources = 16\nburst = \"500us\"\n[worker]\ndriver = \
         \"kernel\"\nforward = true\n[moderation]\npolicy = \"dim\"",
    ),
    (
        "replay",
        "kind = \"replay\"\nfile = \"four.csv\"\nrepeat = true\n[worker]\ndriver = \"user\"\nwait = \
         \"interrupt\"\n[interrupt]\nhandling = \"threaded\"\naffinity = \"wrong\"",
    ),
];

fn text_of(traffic: &str) -> String {
    format!("machine = \"machine.toml\"\nseed = 7\nwarm_up = \"5ms\"\nduration = \"45ms\"\n[[traffic]]\n{traffic}\n")
}

/// A change here is a change of the model, or of a policy: look at the difference, and take it over with
/// `APUS_UPDATE_SNAPSHOTS=1 cargo test -p sim --test world`.
#[test]
#[allow(clippy::disallowed_methods)] // the only setting of these tests
fn each_kind_of_traffic_gives_what_it_gave() {
    let update = std::env::var_os("APUS_UPDATE_SNAPSHOTS").is_some();
    let mut changed = Vec::new();
    for (name, traffic) in KINDS {
        let now = summary(&run(&text_of(traffic)));
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/world/snapshots").join(format!("{name}.txt"));
        if update {
            fs::write(&path, &now).unwrap();
        }
        let before = fs::read_to_string(&path).unwrap_or_default();
        if before != now {
            changed.push(format!("{name} was\n{before}\nand is\n{now}"));
        }
    }
    assert!(changed.is_empty(), "{}", changed.join("\n"));
}

#[test]
fn threads_change_nothing() {
    let alone: Vec<String> = KINDS.iter().map(|(_, traffic)| summary(&run(&text_of(traffic)))).collect();
    let together: Vec<String> = std::thread::scope(|scope| {
        let started: Vec<_> =
            KINDS.iter().map(|(_, traffic)| scope.spawn(|| summary(&run(&text_of(traffic))))).collect();
        started.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(alone, together);
}

#[test]
fn another_seed_is_another_world() {
    let scenario = scenario(&text_of(KINDS[1].1));
    let of = |seed| summary(&world::run(&scenario, Some(seed)).unwrap());
    assert_ne!(of(1), of(2));
    assert_eq!(of(7), summary(&world::run(&scenario, None).unwrap()));
}

#[test]
fn the_examples_run_and_hold_their_goals() {
    let mut found = 0;
    for entry in fs::read_dir(Path::new(ROOT).join("scenarios")).unwrap() {
        let path = entry.unwrap().path();
        let mut scenario = folder_scenario(&path);
        // A tenth of the time shows as much.
        scenario.duration = scenario.duration / 10;
        let outcome = world::run(&scenario, None).unwrap();
        let name = path.display();
        assert!(outcome.departed() > 300 && outcome.lost() == 0, "{name}: {}", summary(&outcome));
        let held = outcome.goal.is_none_or(|goal| goal.verdict == sim::outcome::Verdict::Held);
        assert!(held || outcome.latency.count() < 3_688, "{name}: {}", summary(&outcome));
        found += 1;
    }
    assert!(found >= 5, "only {found} examples: are these the sources?");
}
