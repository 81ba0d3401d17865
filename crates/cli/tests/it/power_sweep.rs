//! `apus power sweep`: real traffic in a lab, and frequency limits in a generated tree, as most virtual machines have none.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::schemas::validate;
use crate::support::{bare, text, turn};

/// A host with one frequency policy of two CPUs, below a folder that is removed at the end.
struct Host(PathBuf);

const POLICY: &str = "sys/devices/system/cpu/cpufreq/policy0";

impl Host {
    fn new(name: &str, policy: bool) -> Self {
        let host = Self(std::env::temp_dir().join(format!("apus-sweep-{name}-{}", std::process::id())));
        let _ = fs::remove_dir_all(&host.0);
        fs::create_dir_all(host.0.join("proc")).unwrap();
        fs::create_dir_all(host.0.join("var/lib")).unwrap();
        if policy {
            let files = [
                ("related_cpus", "0 1 2 3\n"),
                ("scaling_min_freq", "1000000\n"),
                ("scaling_max_freq", "2100000\n"),
                ("cpuinfo_min_freq", "800000\n"),
                ("cpuinfo_max_freq", "2200000\n"),
            ];
            fs::create_dir_all(host.0.join(POLICY)).unwrap();
            for (file, text) in files {
                fs::write(host.0.join(POLICY).join(file), text).unwrap();
            }
        }
        host
    }

    fn limit(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(POLICY).join(name)).unwrap().trim().to_owned()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn without_frequencies_it_says_so_and_makes_no_lab() {
    let host = Host::new("none", false);
    let output = bare(&["power", "sweep", "--root", host.0.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
    let said = text(&output.stderr);
    assert!(said.contains("has no policy") && said.contains("no cpufreq driver"), "{said}");
    let host = Host::new("wrong", true);
    let output = bare(&["power", "sweep", "--level", "1GHz", "--level", "9GHz", "--root", host.0.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("0.800 GHz to 2.200 GHz"), "{}", text(&output.stderr));
    assert_eq!(bare(&["power", "sweep", "--period", "1ms"]).status.code(), Some(2), "faster than a change takes");
}

#[test]
fn each_second_is_a_dot_each_frequency_a_row_and_the_limits_are_restored() {
    let _turn = turn();
    if !rustix::process::geteuid().is_root() {
        testkit::skip("making network namespaces needs root");
        return;
    }
    let host = Host::new("whole", true);
    let report = host.0.join("report.html");
    let name = format!("swp{}", std::process::id());
    let words = ["power", "sweep", "--duration", "2200ms", "--at-each", "300ms", "--schedule", "constant:2kpps"];
    let place = ["--root", host.0.to_str().unwrap(), "--name", &name, "--json", "-o", report.to_str().unwrap()];
    let output = bare(&[&words[..], &place].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    validate(&document);
    assert_eq!(document["levels_hz"], serde_json::json!([800_000_000_u64, 2_200_000_000_u64]));
    let blocks = document["blocks"].as_array().unwrap();
    let changing: Vec<bool> = blocks.iter().map(|block| block["changing"].as_bool().unwrap()).collect();
    assert_eq!(changing, [false, true, true, false]);
    for block in blocks {
        let asked = block["asked"].as_u64().unwrap();
        assert_eq!(asked > 0, block["changing"] == true, "{block:#}");
        // Not more often than asked for, however busy the machine is.
        assert!(asked <= 12 && block["as_asked"] == asked, "{block:#}");
        assert!(block["seconds"].as_array().unwrap().len() >= 2, "a dot each second: {block:#}");
    }
    let seconds =
        |place: usize| blocks[place]["seconds"].as_array().unwrap().iter().map(|of| of["second"].as_u64().unwrap());
    assert!(seconds(2).min() > seconds(1).max(), "the second block goes on where the first ended");
    for level in document["levels"].as_array().unwrap() {
        assert_eq!(level["as_asked"], true);
        assert!(level["cpu_percent"]["value"].as_f64().unwrap() > 0.0, "{level:#}");
        assert!(
            level["energy"]["measured"]["value"].is_object()
                || level["energy"]["measured"]["unknown_because"].is_string()
        );
    }
    assert_eq!(document["restored"], true);
    assert_eq!((host.limit("scaling_min_freq"), host.limit("scaling_max_freq")), ("1000000".into(), "2100000".into()));
    assert!(document["notes"][0].as_str().unwrap().contains("copy of a host"), "{document:#}");
    assert!(fs::read_to_string(report).unwrap().contains("Longest latency of each second"));
}
