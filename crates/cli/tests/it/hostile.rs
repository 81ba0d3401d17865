use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::Signal;

use crate::support::{Root, Running, apus, bare, text};

/// Clears the screen, names the window, starts a colour with a lone C1 control, turns the text round, and rubs out.
const EVIL: &str = "\u{1b}[2J\u{1b}]0;x\u{7}\u{9b}31m\u{202e}\u{7f}";
/// As it may be shown.
const SHOWN: &str = "\\u001b[2J";

/// A host on which every text that somebody could choose is hostile.
fn host(root: &Root) -> PathBuf {
    let host = root.0.join(format!("host{EVIL}"));
    let net = format!("sys/class/net/e{EVIL}");
    let net = net.as_str();
    let uncore = format!("sys/devices/system/cpu/intel_uncore_frequency/package_00{EVIL}");
    let files = [
        ("proc/cmdline".to_owned(), format!("isolcpus=managed_irq,2-3 {EVIL}=1 isolated{EVIL} nohz_full=1-3\n")),
        ("proc/version".to_owned(), format!("Linux version 6.1.0{EVIL} (gcc{EVIL}) #1 SMP\n")),
        ("proc/sys/kernel/osrelease".to_owned(), format!("6.1.0{EVIL}\n")),
        (
            "proc/cpuinfo".to_owned(),
            format!(
                "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Xeon{EVIL}\nflags\t\t: fpu tsc{EVIL}\n\n"
            ),
        ),
        (
            "proc/interrupts".to_owned(),
            format!(
                "      CPU0 CPU1 CPU2 CPU3\n 55:  1 0 900 0  PCI-MSIX-0000:04:00.0 3-edge e{EVIL}-TxRx-3\nLOC: 7 8 9 9 Local\n"
            ),
        ),
        ("proc/irq/55/effective_affinity_list".to_owned(), "3\n".to_owned()),
        ("sys/devices/system/cpu/present".to_owned(), "0-3\n".to_owned()),
        ("sys/devices/system/cpu/online".to_owned(), "0-3\n".to_owned()),
        ("sys/devices/system/cpu/cpu2/cpuidle/state0/name".to_owned(), format!("C9{EVIL}\n")),
        ("sys/devices/system/cpu/cpu2/cpuidle/state0/latency".to_owned(), "900\n".to_owned()),
        ("sys/devices/system/cpu/cpu2/cpuidle/state0/disable".to_owned(), "0\n".to_owned()),
        ("sys/devices/system/cpu/cpufreq/policy0/scaling_governor".to_owned(), format!("save{EVIL}\n")),
        ("sys/devices/system/cpu/cpufreq/policy0/affected_cpus".to_owned(), "0\n".to_owned()),
        ("sys/devices/system/clocksource/clocksource0/current_clocksource".to_owned(), format!("hpet{EVIL}\n")),
        ("sys/devices/virtual/workqueue/cpumask".to_owned(), "ff\n".to_owned()),
        (format!("{net}/operstate"), "up\n".to_owned()),
        (format!("{net}/carrier"), "1\n".to_owned()),
        (format!("{net}/mtu"), "1500\n".to_owned()),
        (format!("{net}/type"), "1\n".to_owned()),
        (format!("{net}/device/vendor"), "0x8086\n".to_owned()),
        (format!("{net}/statistics/rx_packets"), "1000\n".to_owned()),
        (format!("{uncore}/min_freq_khz"), "800000\n".to_owned()),
        (format!("{uncore}/max_freq_khz"), "2400000\n".to_owned()),
        (format!("{uncore}/initial_max_freq_khz"), "2400000\n".to_owned()),
    ];
    for (path, contents) in files {
        let path = host.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    }
    host
}

/// A tar archive (POSIX ustar) with these members.
fn archive(path: &Path, members: &[(String, &str)]) {
    let mut tar = Vec::new();
    for (name, contents) in members {
        let mut header = [0_u8; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[100..107].copy_from_slice(b"0000644");
        header[124..135].copy_from_slice(format!("{:011o}", contents.len()).as_bytes());
        header[136..147].copy_from_slice(b"00000000000");
        header[148..156].copy_from_slice(b"        ");
        header[156] = b'0';
        header[257..263].copy_from_slice(b"ustar\0");
        header[265..265 + EVIL.len()].copy_from_slice(EVIL.as_bytes());
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        tar.extend_from_slice(&header);
        tar.extend_from_slice(contents.as_bytes());
        tar.resize(tar.len().next_multiple_of(512), 0);
    }
    tar.extend_from_slice(&[0; 1024]);
    fs::write(path, tar).unwrap();
}

fn harmless(what: &str, bytes: &[u8]) -> String {
    let text = std::str::from_utf8(bytes).unwrap_or_else(|error| panic!("{what}: {error}"));
    let found: Vec<_> = text.char_indices().filter(|(_, c)| units::acts(*c)).take(3).collect();
    assert!(found.is_empty(), "{what}: {found:?} in {:?}", text.chars().take(3000).collect::<String>());
    text.to_owned()
}

/// Runs the binary and looks at all that it says; returns it.
fn said(words: &[&str]) -> String {
    let output = bare(words);
    let what = format!("apus {}", words.join(" ").escape_debug());
    harmless(&what, &output.stdout) + &harmless(&what, &output.stderr)
}

/// The same, of an output that is known to hold hostile text.
fn shows(words: &[&str]) -> String {
    let all = said(words);
    assert!(all.contains(SHOWN), "apus {}: the text did not arrive\n{all}", words.join(" ").escape_debug());
    all
}

#[test]
fn an_audit_of_a_hostile_host() {
    let root = Root::new();
    let host = host(&root);
    let from = host.to_str().unwrap();
    let file = |name: &str| root.0.join(name).to_str().unwrap().to_owned();
    for more in [
        &["--min-level", "all"][..],
        &["--json"],
        &["--sarif", "-"],
        &["--goal", "p99=5us"],
        &["--nic", EVIL],
        &["--explain", EVIL],
        &["--baseline", EVIL],
    ] {
        shows(&[&["audit", "--from", from][..], more].concat());
    }
    said(&["audit", "--from", from, "--explain", "cmd.unknown-name"]);
    // A profile's comments hold spaces in their place.
    said(&["audit", "--from", from, "--fix", "-"]);
    let outputs = ["page.html", "sarif.json", "fix.toml", "baseline"].map(file);
    let [page, sarif, fix, baseline] = outputs.each_ref().map(String::as_str);
    let into = ["-o", page, "--sarif", sarif, "--fix", fix, "--write-baseline", baseline];
    said(&[&["audit", "--from", from][..], &into].concat());
    for output in &outputs {
        let text = harmless(output, &fs::read(output).unwrap());
        let shows = [page, sarif].contains(&output.as_str());
        assert!(!shows || text.contains(SHOWN), "{output}: the text did not arrive");
    }
    said(&["tune", "plan", fix, "--root", from]);
    shows(&["audit", "diff", from, from]);
    shows(&["audit", "diff", from, from, "--json"]);
    shows(&["audit", "cmdline", &format!("quiet {EVIL}=3")]);
    shows(&["audit", "cmdline", &format!("quiet {EVIL}=3"), "--json"]);
    shows(&["irqs", "--from", from]);
    shows(&["irqs", "--from", from, "--json"]);
}

#[test]
fn archives_and_names_of_files() {
    let root = Root::new();
    let path = root.0.join(format!("a{EVIL}.tar"));
    let place = path.to_str().unwrap();
    let long = format!("{EVIL}/../../etc/passwd");
    archive(
        &path,
        &[
            ("proc/cmdline".to_owned(), "isolcpus=1 \u{1b}[2J=1\n"),
            (format!("proc/{EVIL}"), "x"),
            (long, "x"),
            ("sys/devices/system/cpu/online".to_owned(), "0-3\n"),
        ],
    );
    shows(&["audit", "--from", place]);
    shows(&["audit", "--from", place, "--json"]);
    let snapshot = root.0.join(format!("s{EVIL}.tar.zst"));
    shows(&["snapshot", "--from", place, "-o", snapshot.to_str().unwrap()]);
    shows(&["snapshot", "--from", place, "-o", snapshot.to_str().unwrap(), "--json"]);
    shows(&["audit", "--from", snapshot.to_str().unwrap()]);
    // What is no archive, and what is not there.
    fs::write(&path, EVIL.repeat(100)).unwrap();
    shows(&["audit", "--from", place]);
    let missing = format!("/nowhere/{EVIL}");
    for words in [
        &["audit", "--from", &missing][..],
        &["report", &missing],
        &["replay", &missing],
        &["dim", "replay", &missing],
        &["sim", "run", &missing],
        &["sim", "compare", &missing, &missing],
        &["probe", "compare", &missing, &missing],
        &["probe", "import", &missing],
        &["experiment", &missing],
        &["tune", "plan", &missing],
        &["tune", "apply", &missing, "--yes"],
        &["tune", "export", &missing, "--format", "tuned"],
        &["tune", "status", "--root", &missing],
        &["snapshot", "--from", &missing],
        &["run", &missing],
        &["run", "--port", &format!("pcap:{missing}")],
        &["bench", "latency", "--port", &missing, "--duration", "1s"],
        &["top", &missing, "--once"],
        &["lab", "up", EVIL],
        &["lab", "exec", EVIL, "tx", "--", "true"],
        &["power", "set", EVIL],
        &["power", "serve", "check", &missing],
        &["power", "serve", "--guests", &missing],
        &["power", "request", EVIL, "--vcpu", "0"],
        &["power", "request", "max", "--vcpu", "0", "--port", &missing],
        &["metrics", "--listen", EVIL],
        &["audit", "--no-such-option-\u{1b}[2J"],
        &[EVIL],
    ] {
        said(words);
    }
}

#[test]
fn hostile_inputs_of_every_command() {
    let root = Root::new();
    let host = host(&root);
    let write = |name: &str, contents: &str| {
        let path = root.0.join(name);
        fs::write(&path, contents).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let toml = EVIL.chars().map(|c| if units::acts(c) { format!("\\u{:04X}", u32::from(c)) } else { c.into() });
    let toml: String = toml.collect();
    let json = serde_json::to_string(EVIL).unwrap();
    let profile = write(
        "p.toml",
        &format!(
            "summary = \"S{toml}\"\n[sysctl]\n\"kernel.{toml}\" = \"{toml}\"\n[kernel]\narguments = [\"quiet\"]\n"
        ),
    );
    let from = host.to_str().unwrap();
    said(&["tune", "plan", &profile, "--root", from]);
    said(&["tune", "plan", &profile, "--root", from, "--json"]);
    let summary = write(
        "s.toml",
        &format!("summary = \"S{toml}\"\n[sysctl]\n\"kernel.x\" = 1\n[kernel]\narguments = [\"quiet\"]\n"),
    );
    for format in ["tuned", "systemd", "cmdline", "openshift", "ansible"] {
        said(&["tune", "export", &summary, "--root", from, "--format", format]);
        let folder = root.0.join(format);
        said(&["tune", "export", &summary, "--root", from, "--format", format, "-o", folder.to_str().unwrap()]);
        let mut files: Vec<PathBuf> = vec![folder];
        while let Some(path) = files.pop() {
            match fs::read_dir(&path) {
                Ok(entries) => files.extend(entries.map(|entry| entry.unwrap().path())),
                Err(_) if path.is_file() => drop(harmless(&path.display().to_string(), &fs::read(&path).unwrap())),
                Err(_) => {}
            }
        }
    }
    let scenario = write("scenario.toml", &format!("\"{toml}\" = 1\nmachine = \"{toml}\"\n"));
    let results = write("r.json", &format!("{{\"apus\": {json}, \"schema\": {json}, {json}: 1}}"));
    let broken = write("b.json", &format!("{{{EVIL}"));
    let lines = write("l.csv", &format!("{EVIL}\n"));
    let bad =
        format!("description = \"{toml}\"\nmachine = \"xeon-gold-6338n\"\nnic = \"82599\"\nduration = \"{toml}\"\n");
    let bad = write("bad.toml", &bad);
    let mut arrived = 0;
    for words in [
        &["sim", "run", &scenario][..],
        &["sim", "run", &bad],
        &["sim", "run", &bad, "--set", &format!("{EVIL}=1")],
        &["report", &results, "-o", &root.0.join("r.html").display().to_string()],
        &["report", &broken, "-o", &root.0.join("r.html").display().to_string()],
        &["probe", "compare", &results, &broken],
        &["probe", "compare", &broken, &results],
        &["probe", "import", &results, &broken],
        &["probe", "import", &lines],
        &["dim", "replay", &lines],
        &["replay", &results],
        &["replay", &broken],
        &["experiment", &scenario, "--dry-run"],
        &["audit", "--from", from, "--baseline", &lines],
    ] {
        arrived += u32::from(said(words).contains(SHOWN));
    }
    // Some say only where the input is wrong.
    assert!(arrived >= 3, "the hostile text arrived in {arrived} outputs");
    // A scenario that runs, with a description that does not stay where it is put.
    let good = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/adaptive.toml")).unwrap();
    let good = good.lines().map(|line| match line.split_once(" = ") {
        Some(("description", _)) => format!("description = \"{toml}\"\n"),
        Some(("duration", _)) => "duration = \"20ms\"\n".to_owned(),
        _ => format!("{line}\n"),
    });
    let good = write("good.toml", &good.collect::<String>());
    said(&["sim", "run", &good]);
    said(&["sim", "run", &good, "--json"]);
    let csv = root.0.join("sweep.csv");
    said(&["sim", "sweep", &good, "--vary", "traffic.0.rate=1kpps,2kpps", "-o", csv.to_str().unwrap()]);
}

#[test]
fn telemetry_of_others() {
    let root = Root::new();
    let _worker = root.worker("edge", 0);
    let folder = root.0.join(EVIL);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join(format!("worker-{EVIL}")), EVIL.repeat(1000)).unwrap();
    fs::write(folder.join("worker-1"), EVIL.repeat(1000)).unwrap();
    let place = root.0.to_str().unwrap();
    shows(&["top", "--once", "--interval", "10ms", "--telemetry", place]);
    shows(&["top", "--json", "--interval", "10ms", "--telemetry", place]);
    let mut child = apus(&root, &["metrics", "--listen", "127.0.0.1:0"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let mut server = Running(child);
    let address = line.strip_prefix("serving http://").and_then(|l| l.split('/').next()).expect(&line);
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(format!("GET /metrics{EVIL} HTTP/1.1\r\nConnection: close\r\n\r\n").as_bytes()).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    harmless("metrics", text(&answer).replace("\r\n", "\n").as_bytes());
    server.end(Signal::INT);
}
