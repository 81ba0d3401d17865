use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use steer::guests::dpdk::{self, Scale};

use crate::moderate_service::Manager;
use crate::schemas::validate;
use crate::support::{Running, bare, text};
use crate::tune::{Machine, expect, wait};

/// A machine of four CPUs with a clock each, and `apus power serve` for it.
pub struct Host {
    pub machine: Machine,
    log: PathBuf,
}

const CPUFREQ: &str = "sys/devices/system/cpu/cpufreq";

impl Host {
    pub fn new(name: &str) -> Self {
        let machine = Machine::new(name, &[("proc/sys/kernel/random/boot_id", "boot-1\n")]);
        for cpu in 0..4 {
            let policy = format!("{CPUFREQ}/policy{cpu}");
            for (file, content) in [
                ("related_cpus", cpu.to_string().as_str()),
                ("cpuinfo_min_freq", "800000"),
                ("cpuinfo_max_freq", "3000000"),
                ("scaling_available_frequencies", "3000000 2600000 1800000 800000 "),
                ("scaling_min_freq", "800000"),
                ("scaling_max_freq", "3000000"),
                ("scaling_cur_freq", "2600000"),
                ("scaling_governor", "schedutil"),
            ] {
                machine.put(&format!("{policy}/{file}"), &format!("{content}\n"));
            }
            machine.put(&format!("sys/devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us"), "0\n");
        }
        let log = machine.0.join("log");
        Self { machine, log }
    }

    pub fn path(&self, name: &str) -> String {
        self.machine.0.join(name).to_str().unwrap().to_owned()
    }

    /// A manifest with the channel `NAME.0`, at which Apus listens.
    pub fn manifest(&self, name: &str, more: &str, vcpus: &str) {
        let text = format!("listen = [\"{}\"]\n{more}\n[vcpus]\n{vcpus}\n", self.path(&format!("{name}.0")));
        self.machine.put(&format!("guests/{name}.toml"), &text);
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_apus"));
        command.args(["power", "serve", "--json", "--root"]).arg(&self.machine.0);
        command.arg("--guests").arg(self.path("guests")).arg("--log").arg(&self.log);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn serve(&self) -> Running {
        Running(self.command().spawn().unwrap())
    }

    pub fn connect(&self, name: &str) -> UnixStream {
        let path = self.path(name);
        wait("the channel", || UnixStream::connect(&path).is_ok_and(|_| true));
        // That one is taken and closed; the next one is ours.
        let stream = UnixStream::connect(&path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    /// The limits of a CPU.
    fn limits(&self, cpu: u32) -> (String, String) {
        let read = |name: &str| self.machine.read(&format!("{CPUFREQ}/policy{cpu}/{name}")).trim().to_owned();
        (read("scaling_min_freq"), read("scaling_max_freq"))
    }

    pub fn is_fixed(&self, cpu: u32, khz: &str) -> bool {
        self.limits(cpu) == (khz.to_owned(), khz.to_owned())
    }

    pub fn is_free(&self, cpu: u32) -> bool {
        self.limits(cpu) == ("800000".to_owned(), "3000000".to_owned())
    }

    /// `apus power request WORDS` through a channel: exit status and document.
    fn request(&self, channel: &str, words: &str) -> (Option<i32>, Value) {
        let port = self.path(channel);
        let words: Vec<&str> = ["power", "request"].into_iter().chain(words.split(' ')).collect();
        let output = bare(&[&words[..], &["--port", &port, "--timeout", "60s", "--json"]].concat());
        let document =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(&output.stderr)));
        validate(&document);
        (output.status.code(), document)
    }

    /// The lines of the log.
    fn logged(&self) -> Vec<Value> {
        let lines = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        lines.iter().for_each(validate);
        lines
    }

    fn status(&self) -> (Option<i32>, Value) {
        let folder = self.path("run/apus/serve");
        let output = bare(&["power", "serve", "status", "--json", "--folder", &folder]);
        let document =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(&output.stderr)));
        validate(&document);
        (output.status.code(), document)
    }

    /// Ends it and returns the document that it prints.
    pub fn end(&self, mut running: Running) -> Value {
        assert_eq!(running.end(Signal::TERM), Some(0));
        let mut said = String::new();
        running.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        let document = serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said}"));
        validate(&document);
        document
    }
}

/// Sends a packet, and whether it is acknowledged.
fn send(stream: &mut UnixStream, vcpu: u64, scale: Scale) -> bool {
    stream.write_all(&dpdk::scale(vcpu, scale)).unwrap();
    let mut answer = [0; dpdk::LENGTH];
    stream.read_exact(&mut answer).unwrap();
    answer[12] == 1
}

#[test]
fn two_guests_scale_their_cores_and_everything_goes_back() {
    let host = Host::new("guests");
    host.manifest("vm1", "pinning = \"manifest\"\nmax_frequency = \"2.6GHz\"", "0 = 0\n1 = 1");
    host.manifest("vm2", "pinning = \"manifest\"", "0 = 2");
    let before = host.machine.files();
    let running = host.serve();
    let mut one = host.connect("vm1.0");
    for (scale, khz) in [(Scale::Min, "800000"), (Scale::Up, "1800000"), (Scale::Max, "2600000")] {
        assert!(send(&mut one, 1, scale));
        assert!(host.is_fixed(1, khz), "{scale}: {:?}", host.limits(1));
    }
    assert!(!send(&mut one, 2, Scale::Min) && host.is_free(2), "vCPU 2 is not in the manifest");
    let (code, granted) = host.request("vm2.0", "1.7GHz --vcpu 0");
    assert_eq!((code, &granted["verdict"], &granted["fixed_khz"]), (Some(0), &"granted".into(), &1_800_000.into()));
    let (code, goal) = host.request("vm2.0", "goal p99=50us --vcpu 0");
    assert_eq!((code, &goal["idle_limit_us"]), (Some(0), &25.into()), "{goal}");
    assert_eq!(host.machine.read("sys/devices/system/cpu/cpu2/power/pm_qos_resume_latency_us"), "25\n");
    let (code, refused) = host.request("vm2.0", "min --vcpu 9");
    assert_eq!((code, &refused["verdict"]), (Some(1), &"refused".into()));
    assert!(host.is_fixed(2, "1800000") && host.is_free(0) && host.is_free(3));
    wait("the state", || host.status().1["instances"][0]["document"]["guests"][1]["messages"] == 3);
    let guests = host.status().1["instances"][0]["document"]["guests"].clone();
    assert_eq!(
        (&guests[0]["vcpus"][1]["fixed_khz"], &guests[0]["refused"]),
        (&2_600_000.into(), &1.into()),
        "{guests}"
    );
    let asked: Vec<String> = host
        .logged()
        .iter()
        .filter(|line| line["event"] == "request")
        .map(|line| format!("{} {} {}", line["guest"], line["asked"], line["verdict"]).replace('"', ""))
        .collect();
    assert_eq!(
        asked,
        [
            "vm1 min granted",
            "vm1 up granted",
            "vm1 max granted",
            "vm1 min refused",
            "vm2 1700000000Hz granted",
            "vm2 goal=p99=50us granted",
            "vm2 min refused",
        ]
    );
    let document = host.end(running);
    assert_eq!(document["restored"], true, "{document}");
    fs::remove_file(&host.log).unwrap();
    fs::remove_dir_all(host.machine.0.join("run")).unwrap();
    assert_eq!(host.machine.files(), before);
}

#[test]
fn a_killed_server_leaves_nothing_that_a_rollback_does_not_mend() {
    let host = Host::new("guests-kill");
    host.manifest("vm1", "pinning = \"manifest\"", "0 = 0");
    let mut running = host.serve();
    let mut one = host.connect("vm1.0");
    assert!(send(&mut one, 0, Scale::Min) && host.is_fixed(0, "800000"));
    running.0.kill().unwrap();
    running.0.wait().unwrap();
    let (code, status) = host.status();
    assert_eq!((code, &status["instances"]), (Some(0), &Value::Array(Vec::new())), "{status}");
    assert!(status["leftovers"][0]["why"].as_str().unwrap().ends_with("has ended"), "{status}");
    assert!(host.is_fixed(0, "800000"));
    expect(&host.machine.apus(&["tune", "rollback"]), 0);
    assert!(host.is_free(0));
    // The socket that it left behind is in nobody's way.
    let running = host.serve();
    assert!(send(&mut host.connect("vm1.0"), 0, Scale::Min));
    host.end(running);
}

#[test]
fn pinning_is_looked_up_again_and_a_wish_follows_within_the_manifest() {
    let host = Host::new("guests-pinning");
    let status = |cpus: &str| format!("Name:\tCPU 0/KVM\nCpus_allowed_list:\t{cpus}\n");
    host.machine.put("run/vm1.pid", "77\n");
    host.machine.put("proc/77/task/78/comm", "CPU 0/KVM\n");
    host.machine.put("proc/77/task/78/status", &status("0-3"));
    host.manifest("vm1", "pinning = \"pid-file:/run/vm1.pid\"", "0 = \"0-1\"");
    let running = host.serve();
    let mut one = host.connect("vm1.0");
    assert!(!send(&mut one, 0, Scale::Min), "it is not pinned");
    assert!((0..4).all(|cpu| host.is_free(cpu)));
    host.machine.put("proc/77/task/78/status", &status("0"));
    wait("the wish on CPU 0", || host.is_fixed(0, "800000"));
    assert!(send(&mut one, 0, Scale::Up) && host.is_fixed(0, "1800000"));
    host.machine.put("proc/77/task/78/status", &status("1"));
    wait("the wish on CPU 1", || host.is_fixed(1, "1800000"));
    assert!(host.is_free(0));
    host.machine.put("proc/77/task/78/status", &status("3"));
    wait("CPU 1 as before", || host.is_free(1));
    assert!(!send(&mut one, 0, Scale::Min) && host.is_free(3), "CPU 3 is not in the manifest");
    let (code, held) = host.status();
    let guest = &held["instances"][0]["document"]["guests"][0];
    assert_eq!(code, Some(1), "{held}");
    assert_eq!((&guest["vcpus"][0]["cpus"], &guest["vcpus"][0]["fixed_khz"]), (&"3".into(), &Value::Null));
    assert!(host.logged().iter().filter(|line| line["event"] == "placed").count() >= 4);
    host.end(running);
}

/// QEMU's monitor, which tells where the vCPUs run, and that the guest was reset.
#[test]
fn a_guest_that_is_reset_has_no_wishes() {
    let host = Host::new("guests-qmp");
    let monitor = UnixListener::bind(host.path("qmp")).unwrap();
    let pid = std::process::id();
    host.machine.put(&format!("proc/{pid}/task/78/status"), "Cpus_allowed_list:\t2\n");
    host.manifest("vm1", &format!("pinning = \"qmp:{}\"", host.path("qmp")), "0 = 2");
    let running = host.serve();
    let (mut qemu, _) = monitor.accept().unwrap();
    qemu.write_all(b"{\"QMP\": {}}\n").unwrap();
    let mut said = [0; 200];
    assert!(qemu.read(&mut said).unwrap() > 0);
    qemu.write_all(b"{\"return\": {}}\n").unwrap();
    assert!(qemu.read(&mut said).unwrap() > 0);
    qemu.write_all(b"{\"return\": [{\"cpu-index\": 0, \"thread-id\": 78}]}\n").unwrap();
    let mut one = host.connect("vm1.0");
    wait("the place", || host.logged().iter().any(|line| line["event"] == "placed" && line["cpu"] == 2));
    assert!(send(&mut one, 0, Scale::Min) && host.is_fixed(2, "800000"));
    qemu.write_all(b"{\"event\": \"RESET\"}\n").unwrap();
    wait("the end of the wish", || host.is_free(2));
    assert!(host.logged().iter().any(|line| line["event"] == "forgotten" && line["why"] == "the guest was reset"));
    assert!(send(&mut one, 0, Scale::Min) && host.is_fixed(2, "800000"), "it may ask again");
    drop((qemu, monitor));
    wait("an unknown place", || host.is_free(2));
    host.end(running);
}

#[test]
fn a_flood_stops_no_neighbour_and_takes_no_memory() {
    let host = Host::new("guests-flood");
    host.manifest("vm1", "pinning = \"manifest\"", "0 = 0");
    host.manifest("vm2", "pinning = \"manifest\"", "0 = 2");
    let running = host.serve();
    let mut flood = host.connect("vm1.0");
    flood.set_nonblocking(true).unwrap();
    let resident = || {
        let status = fs::read_to_string(format!("/proc/{}/statm", running.0.id())).unwrap();
        status.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4
    };
    assert_eq!(host.request("vm2.0", "max --vcpu 0").0, Some(0));
    let (before, until) = (resident(), Instant::now() + Duration::from_secs(3));
    let (mut asked, mut round) = (0, 0_u64);
    while Instant::now() < until || asked < 5 {
        // It never reads, and sends whole messages, halves of them and noise.
        for _ in 0..200 {
            round += 1;
            let message = dpdk::scale(round % 3, [Scale::Min, Scale::Max, Scale::Down][(round % 3) as usize]);
            let _ = flood.write(&message[..if round.is_multiple_of(7) { 100 } else { message.len() }]);
        }
        let (code, granted) = host.request("vm2.0", if asked % 2 == 0 { "min --vcpu 0" } else { "max --vcpu 0" });
        assert_eq!((code, &granted["verdict"]), (Some(0), &"granted".into()), "{granted}");
        asked += 1;
        // At most 40 requests a second: the manifest allows 50.
        std::thread::sleep(Duration::from_millis(25));
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < 2_048, "{grown} KiB more after {asked} requests of the neighbour");
    let document = host.end(running);
    let guest = &document["guests"][0];
    assert!(guest["over_rate"].as_u64() > Some(100), "{document}");
    // What was logged of the flood is bounded by its rate, and the rest is told as a number.
    let told = host.logged();
    let of_flood = told.iter().filter(|line| line["guest"] == "vm1" && line["event"] == "request").count() as u64;
    assert!(of_flood <= 50 * (document["duration_ns"].as_u64().unwrap() / 1_000_000_000 + 2), "{of_flood} lines");
    assert!(told.iter().any(|line| line["event"] == "over-rate"));
    assert!(host.is_free(0) && host.is_free(2));
}

#[test]
fn manifests_are_checked_and_read_again() {
    let host = Host::new("guests-check");
    host.manifest("vm1", "pinning = \"manifest\"", "0 = 0");
    let check = || bare(&["power", "serve", "check", &host.path("guests")]);
    // The folder can also be named as for the server.
    let as_served = bare(&["power", "serve", "check", "--guests", &host.path("guests")]);
    assert_eq!(expect(&as_served, 0), expect(&check(), 0));
    expect(&bare(&["power", "serve", "check", "--guests", &host.path("guests"), &host.path("guests/vm1.toml")]), 2);
    assert!(expect(&check(), 0).starts_with("vm1: 1 channel; vCPU 0 on CPU 0 (pinning: manifest)"));
    let mut manager = Manager::new(&host.machine.0);
    let mut command = host.command();
    command.env("NOTIFY_SOCKET", &manager.path);
    let running = Running(command.spawn().unwrap());
    manager.until("READY=1");
    let mut one = host.connect("vm1.0");
    assert!(send(&mut one, 0, Scale::Min) && host.is_fixed(0, "800000"));
    host.manifest("vm2", "pinning = \"manifest\"\ncolour = \"red\"", "0 = 2");
    let said = expect(&check(), 2);
    assert!(said.contains("vm2.toml") && said.contains("colour") && said.contains("vm1: 1 channel;"), "{said}");
    running.signal(Signal::HUP);
    manager.until("RELOADING=1");
    manager.until("READY=1");
    assert!(host.is_fixed(0, "800000"), "a wrong manifest changes nothing");
    host.manifest("vm2", "pinning = \"manifest\"", "0 = 2");
    running.signal(Signal::HUP);
    manager.until("RELOADING=1");
    manager.until("READY=1");
    wait("the wish again", || host.is_fixed(0, "800000"));
    assert!(send(&mut one, 0, Scale::Up) && host.is_fixed(0, "1800000"), "the connection stays");
    assert_eq!(host.request("vm2.0", "min --vcpu 0").0, Some(0));
    assert!(host.is_fixed(2, "800000"));
    let port = host.path("vm2.0");
    let said = bare(&["power", "request", "min", "--vcpu", "0", "--port", &port, "--timeout", "60s"]);
    assert!(expect(&said, 0).contains("vCPU 0 is fixed at 800MHz"), "{said:?}");
    fs::remove_file(host.path("guests/vm1.toml")).unwrap();
    running.signal(Signal::HUP);
    wait("CPU 0 as before", || host.is_free(0));
    wait("the other guest's wish", || host.is_fixed(2, "800000"));
    host.end(running);
    assert!(host.is_free(2));
    let wrong = bare(&["power", "serve", "--guests", &host.path("nowhere")]);
    assert!(expect(&wrong, 2).contains("nowhere"));
}

/// The unit, as it is installed, without its comments.
fn unit() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../systemd/apus-serve.service.in");
    let unit = fs::read_to_string(path).unwrap();
    unit.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_unit_runs_commands_that_there_are() {
    use clap::CommandFactory as _;
    let unit = unit();
    let commands = unit.lines().filter_map(|line| line.split_once("=@bindir@/"));
    let commands: Vec<&str> = commands.map(|(_, command)| command).collect();
    assert_eq!(commands.len(), 2, "{commands:?}");
    for command in commands {
        let parsed = ::apus::args::Args::command().try_get_matches_from(command.split(' '));
        assert!(parsed.is_ok(), "{command}: {parsed:?}");
    }
}

/// With no more capabilities than the unit grants, it reaches a socket of QEMU's user; with none, its own.
#[test]
fn the_service_needs_no_more_than_its_unit_grants() {
    if !rustix::process::geteuid().is_root() {
        testkit::skip("giving up capabilities needs root");
        return;
    }
    if Command::new("setpriv").arg("--version").stdout(Stdio::null()).status().is_err() {
        testkit::skip("no setpriv here; apt-get install util-linux");
        return;
    }
    let unit = unit();
    let granted = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).unwrap();
    let granted = granted.replace("CAP_", "+").replace(' ', ",").to_lowercase();
    let host = Host::new("guests-service");
    let serve = |capabilities: &str| {
        let plain = host.command();
        let mut command = Command::new("setpriv");
        command.args(["--no-new-privs", "--bounding-set", &format!("-all{capabilities}")]);
        command.arg(plain.get_program()).args(plain.get_args());
        Running(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    };
    let path = host.path("qemu");
    let listener = UnixListener::bind(&path).unwrap();
    std::os::unix::fs::chown(&path, Some(65_534), Some(65_534)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    host.manifest("vm1", &format!("connect = [\"{path}\"]\npinning = \"manifest\""), "0 = 0");
    let shared = "listen_mode = \"0660\"\nlisten_group = \"65534\"\npinning = \"manifest\"";
    host.manifest("vm2", shared, "0 = 2");
    let running = serve(&format!(",{granted}"));
    let (mut qemu, _) = listener.accept().unwrap();
    wait("the socket of the group", || {
        let own = fs::symlink_metadata(host.path("vm2.0"));
        own.is_ok_and(|own| (own.gid(), own.mode() & 0o777) == (65_534, 0o660))
    });
    assert!(send(&mut qemu, 0, Scale::Min) && host.is_fixed(0, "800000"));
    assert_eq!(host.end(running)["restored"], true);
    assert!(host.is_free(0));
    fs::remove_file(host.path("guests/vm2.toml")).unwrap();
    let running = serve("");
    assert!(send(&mut host.connect("vm1.0"), 0, Scale::Min) && host.is_fixed(0, "800000"));
    let refused =
        |status: &Value| status["instances"][0]["document"]["guests"][0]["channels"][0]["trouble"].is_string();
    wait("the refusal", || refused(&host.status().1));
    assert_eq!(host.end(running)["restored"], true);
}

#[test]
fn a_guest_without_a_host_is_told_what_is_missing() {
    let host = Host::new("guests-request");
    let request = |words: &[&str]| bare(&[&["power", "request"], words].concat());
    assert!(expect(&request(&["fast", "--vcpu", "0"]), 2).contains("expected max"));
    assert!(expect(&request(&["goal", "50us", "--vcpu", "0"]), 2).contains("expected a goal"));
    assert!(expect(&request(&["max"]), 2).contains("--vcpu"));
    let port = host.path("port");
    assert!(expect(&request(&["max", "--vcpu", "0", "--port", &port]), 3).contains("cannot open the port"));
    let listener = UnixListener::bind(&port).unwrap();
    let said = expect(&request(&["max", "--vcpu", "0", "--port", &port, "--timeout", "50ms"]), 3);
    assert!(said.contains("no answer") && said.contains("apus power serve"), "{said}");
    // Answers to others come first.
    let host_side = std::thread::spawn(move || {
        // The connection of the request before is still in the queue.
        let (stale, _) = listener.accept().unwrap();
        drop(stale);
        let (mut stream, _) = listener.accept().unwrap();
        let mut line = [0; 300];
        let length = stream.read(&mut line).unwrap();
        let line = text(&line[..length]).to_owned();
        let id = line.split(' ').nth(1).unwrap();
        stream.write_all(&[7; 464]).unwrap();
        stream.write_all(b"apus/1 other granted vcpu=0 khz=1 idle_us=- because no\n").unwrap();
        writeln!(stream, "apus/1 {id} held vcpu=0 khz=- idle_us=- because \u{1b}[2Jshared").unwrap();
    });
    let output = request(&["max", "--vcpu", "0", "--port", &port]);
    host_side.join().unwrap();
    let said = expect(&output, 1);
    assert!(said.starts_with("held: vCPU 0 is not fixed (") && !said.contains('\u{1b}'), "{said:?}");
}

/// Options that would have no effect, and files that would never end, are refused.
#[test]
fn wrong_options_of_power_are_refused() {
    let host = Host::new("options");
    host.manifest("vm1", "pinning = \"manifest\"", "0 = 1");
    let root = host.path("");
    let fifo = host.path("f.toml");
    let archive = host.path("host.tar.gz");
    std::fs::write(&archive, "").unwrap();
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    for (words, status, said) in [
        (&["set", "--cpu", "", "--frequency", "1GHz"] as &[&str], 2, "at least one CPU"),
        (&["set", "--cpu", "1", "--uncore", "1GHz"], 2, "--frequency"),
        (&["set", "--root", &root, "--cpu", "1", "--frequency", "9GHz"], 2, "800000 to 3000000 kHz"),
        // A snapshot's archive is to be unpacked first.
        (&["set", "--root", &archive, "--cpu", "1", "--frequency", "1GHz"], 2, "unpack it: mkdir HOST && tar -xzf"),
        (&["steer", "--cpus", "", "--watch", "lo"], 2, "at least one CPU"),
        (&["steer", "--cpus", "0", "--watch", "lo", "--stall", "10s"], 2, "at most 1s"),
        (&["steer", "--cpus", "0", "--watch", "lo", "--counts", "x"], 2, "--counts"),
        (&["steer", "--root", &root, "--cpus", "0", "--watch", "lo", "--policy", "fixed:2.6GHz"], 2, "--watch"),
        (
            &["steer", "--root", &root, "--cpus", "0", "--watch", "lo", "--policy", "two-level", "--goal", "busy=50%"],
            2,
            "--goal",
        ),
        (&["sweep", "--root", &root, "--level", "1GHz"], 2, "at least twice"),
        (&["sweep", "--root", &root, "--level", "1GHz", "--level", "1GHz"], 2, "given twice"),
        (&["sweep", "--root", &root, "--period", "2s", "--duration", "2s"], 2, "--period"),
        (&["sweep", "--root", &root, "-o", "/nowhere/x"], 3, "cannot write /nowhere/x"),
        (&["serve", "check", &fifo], 2, "not a regular file"),
        (&["learn", "idle", "x", "--cpu", "0", "--counts", "/dev/zero"], 2, "not a regular file"),
        (&["request", "max", "--vcpu", "0", "--port", "/dev/zero", "--timeout", "100ms"], 3, "within 100ms"),
    ] {
        let words = [&["power"], words].concat();
        let output = bare(&words);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{words:?}: {errors}");
        assert!(errors.contains(said), "{words:?}: {errors}");
    }
}

#[test]
fn a_frequency_that_is_rounded_up_is_told() {
    let host = Host::new("rounded");
    let (root, duration) = (host.path(""), ["--duration", "200ms", "--dry-run"]);
    let steer = |policy: &str| {
        let words = ["power", "steer", "--root", &root, "--cpus", "0", "--policy", policy];
        let output = bare(&[&words[..], &duration].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stderr).to_owned()
    };
    let said = steer("fixed:2.1GHz");
    assert!(said.contains("no frequency 2.1GHz") && said.contains("next higher one, 2.6GHz"), "{said}");
    assert!(!steer("fixed:2.6GHz").contains("next higher"));
}

/// A server that cannot listen, because another one does, says so; it once ran on without a word.
#[test]
fn a_server_that_hears_nobody_says_so() {
    let host = Host::new("deaf");
    host.manifest("vm1", "pinning = \"manifest\"", "0 = 1");
    let mut first = host.serve();
    drop(host.connect("vm1.0"));
    let other = Host::new("deaf2");
    let listen = format!("listen = [\"{}\"]\npinning = \"manifest\"\n[vcpus]\n0 = 1\n", host.path("vm1.0"));
    other.machine.put("guests/vm2.toml", &listen);
    let output = other.command().args(["--duration", "300ms"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("vm2: cannot listen on"), "{}", text(&output.stderr));
    assert_eq!(first.end(Signal::INT), Some(0));
    // Neither is a log that cannot be written.
    let output = bare(&[
        "power",
        "serve",
        "--root",
        &host.path(""),
        "--guests",
        &host.path("guests"),
        "--duration",
        "300ms",
        "--log",
        "/dev/full",
    ]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
}
