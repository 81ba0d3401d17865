//! Every command with `--json` prints a document that its schema takes. The commands are those of the command line's
//! definition: a new one without a line here fails.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use apus::args::Args;
use clap::CommandFactory as _;
use serde_json::Value;

use crate::schemas::validate;
use crate::support::{Root, apus, bare, text, turn};
use crate::tune::Machine;

/// How a command's document comes to be validated.
enum Checked {
    /// Run here with these words, which need no privilege. `{}` is a folder of the test's own, see [`folder`].
    Here(&'static str),
    /// The same, with the telemetry of a worker that pretends.
    Telemetry(&'static str),
    /// The same, on a machine in a folder (`--root`), one after the other in the order of the table.
    Machine(&'static str),
    /// By a test of another file, as it needs root: `file::test`.
    By(&'static str),
}
use Checked::{By, Here, Telemetry};

/// In the order in which they are run: what comes later may need what came before.
const CHECKED: &[(&str, Checked)] = &[
    ("run drop", Telemetry("memory:64,frames=1000")),
    ("run macswap", Telemetry("memory:64,frames=1000 --record {}/record")),
    ("run l2fwd", Telemetry("memory:64,frames=1000 memory:64,frames=1000")),
    ("run udp-echo", Telemetry("memory:64,frames=1000 --address 10.0.0.1")),
    ("run l3fwd", Telemetry("memory:64,frames=1000 --routes {}/routes.toml")),
    ("replay", Here("{}/record")),
    ("top", Telemetry("--interval 20ms")),
    ("bench latency", By("lab::latency_is_measured_judged_and_reported")),
    ("bench load", By("lab::load_is_searched_and_flooded")),
    ("bench rfc2544", By("rfc2544::a_device_is_measured_in_both_directions")),
    ("bench mlr", By("rfc2544::a_device_is_measured_in_both_directions")),
    ("bench soak", By("rfc2544::a_device_is_measured_in_both_directions")),
    ("bench compare", By("rfc2544::a_device_is_measured_in_both_directions")),
    ("probe timer", Here("--duration 50ms -o {}/timer.json")),
    ("probe jitter", Here("--duration 50ms")),
    ("probe switch", Here("--via pipe --cpu 0 --peer 0 --duration 50ms")),
    ("probe clock", Here("--duration 50ms")),
    ("probe interrupt", By("probe::a_profile_has_every_probe_or_says_why_not")),
    ("probe idle", By("probe::a_profile_has_every_probe_or_says_why_not")),
    ("probe frequency", By("probe::a_profile_has_every_probe_or_says_why_not")),
    ("probe all", By("probe::a_profile_has_every_probe_or_says_why_not")),
    ("probe import", Here("{}/cyclictest.json")),
    ("probe compare", Here("{}/timer.json {}/timer.json")),
    ("lab list", Here("")),
    ("snapshot", Here("--from {}/host -o {}/host.tar")),
    ("audit", Here("--from {}/host")),
    ("audit diff", Here("{}/host {}/host")),
    ("audit cmdline", Here("nohz_full=2-7")),
    ("diagnose", By("diagnose::one_cause_and_none_are_told_apart_in_the_lab")),
    ("irqs", Here("--from {}/host")),
    ("dim replay", Here("{}/calls.csv")),
    ("sim run", Here("{}/scenario.toml")),
    ("sim compare", Here("{}/scenario.toml {}/scenario.toml")),
    ("sim sweep", Here("{}/scenario.toml --seeds 2")),
    ("sim figures", Here("s0.4")),
    ("sim machines", Here("")),
    ("sim goals", By("sim_goals::goals_as_a_document_a_table_a_report_and_scenarios")),
    ("tune plan", Checked::Machine("base")),
    ("tune apply", Checked::Machine("base --yes")),
    ("tune status", Checked::Machine("")),
    ("tune verify", Checked::Machine("")),
    ("tune diff", Checked::Machine("")),
    ("tune rollback", Checked::Machine("")),
    ("tune recommend", Checked::Machine("")),
    ("power set", By("tune/recorded::frequencies_by_the_kernels_limits")),
    ("power learn", By("power_steer::a_program_is_learned_or_the_lack_of_counters_is_said")),
    ("power sweep", By("power_sweep::each_second_is_a_dot_each_frequency_a_row_and_the_limits_are_restored")),
    ("power steer", By("power_steer::in_band_work_sets_the_frequency_and_everything_is_restored")),
    ("power steer status", Here("--steering {}/steer")),
    ("power watch", Here("--interval 20ms")),
    ("power serve", By("guests::two_guests_scale_their_cores_and_everything_goes_back")),
    ("power serve status", Here("--folder {}/serve")),
    ("power request", By("guests::two_guests_scale_their_cores_and_everything_goes_back")),
    ("moderate", By("moderate::a_goal_is_steered_for_and_everything_is_as_before")),
    ("moderate status", Here("--moderation {}/moderate")),
    ("demo", By("demo::a_short_demo_measures_everything_and_leaves_nothing")),
    ("experiment", By("experiment::what_is_known_is_ranked_rightly_in_the_lab")),
];

/// The commands that take `--json`, with what their help says of it.
fn commands(command: &clap::Command, path: &str, found: &mut BTreeMap<String, String>) {
    if let Some(json) = command.get_arguments().find(|argument| argument.get_long() == Some("json")) {
        found.insert(path.to_owned(), json.get_help().map(ToString::to_string).unwrap_or_default());
    }
    for below in command.get_subcommands() {
        commands(below, format!("{path} {}", below.get_name()).trim_start(), found);
    }
}

/// What the commands read.
fn folder(root: &Root) {
    let put = |name: &str, text: &str| {
        let path = root.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    put("routes.toml", "[[route]]\nprefix = \"0.0.0.0/0\"\nport = \"memory-0\"\nmac = \"02:00:00:00:00:01\"\n");
    put("cyclictest.json", crate::probe::CYCLICTEST);
    put("calls.csv", "apply,time_ns,events,packets,bytes\nreset,0,0,0,0\n0,1000,1,64,4096\n0,2000000,65,128,8192\n");
    put("scenario.toml", &fs::read_to_string(scenario()).unwrap());
    put("host/proc/cmdline", "isolcpus=managed_irq,2-7 nohz_full=2-7\n");
    put("host/proc/interrupts", "      CPU0 CPU1\n 55:  1 900  PCI-MSIX-0000:04:00.0 3-edge eth0-TxRx-3\n");
    put("host/sys/devices/system/cpu/present", "0-7\n");
    put("host/sys/devices/system/cpu/online", "0-7\n");
    put("host/sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n");
}

fn scenario() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/adaptive.toml")
}

#[test]
fn every_document_is_as_its_schema_says() {
    let mut defined = BTreeMap::new();
    commands(&Args::command(), "", &mut defined);
    let listed: BTreeSet<&str> = CHECKED.iter().map(|(command, _)| *command).collect();
    let defined_names: BTreeSet<&str> = defined.keys().map(String::as_str).collect();
    assert_eq!(defined_names, listed, "the commands with --json, and those whose documents are validated");

    let _turn = turn();
    let root = Root::new();
    folder(&root);
    let machine = Machine::small("json");
    machine.put("sys/class/net/eth0/operstate", "up\n");
    let worker = root.worker("edge", 0);
    for folder in ["moderate", "steer", "serve"] {
        std::fs::create_dir(root.0.join(folder)).unwrap();
    }
    for (command, checked) in CHECKED {
        let words = |more: &str| -> Vec<String> {
            let more = more.replace("{}", root.0.to_str().unwrap());
            command.split(' ').chain(more.split_whitespace()).chain(["--json"]).map(str::to_owned).collect()
        };
        let output = match checked {
            By(test) => {
                is_there(test);
                continue;
            }
            Here(more) => bare(&words(more).iter().map(String::as_str).collect::<Vec<_>>()),
            Telemetry(more) => {
                apus(&root, &words(more).iter().map(String::as_str).collect::<Vec<_>>()).output().unwrap()
            }
            Checked::Machine(more) => machine.apus(&words(more).iter().map(String::as_str).collect::<Vec<_>>()),
        };
        // 3: a probe that got no CPU has no samples, and its document says so.
        let expected: &[i32] = if command.starts_with("probe ") { &[0, 1, 3] } else { &[0, 1] };
        let code = output.status.code();
        assert!(code.is_some_and(|code| expected.contains(&code)), "{command}: {code:?}: {}", text(&output.stderr));
        let document: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{command}: {error}: {}", text(&output.stderr)));
        validate(&document);
        let (schema, help) = (document["schema"].as_str().unwrap(), &defined[*command]);
        assert!(help.contains(schema), "apus {command} printed {schema}, and its help says of --json: {help}");
    }
    drop(worker);
}

/// Panics if there is no such test, or if its file validates nothing.
fn is_there(test: &str) {
    let (file, name) = test.split_once("::").unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it").join(format!("{file}.rs"));
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(&format!("fn {name}(")), "no test {name} in {}", path.display());
    assert!(text.contains("validate(") || text.contains(".json("), "{} validates nothing", path.display());
}
