//! Two guests: a DPDK program in the one scales its vCPU through a real virtio-serial port; the other is its host, whose
//! P-state register shows what became of it. This test is the wire between them.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use serde_json::Value;
use vmlab::harness::{Alone, ok};
use vmlab::{Guest, PSTATES, Vm};

pub(crate) const ALONE: [Alone; 1] = [("guests::dpdk_in_a_guest_sets_real_p_states_of_its_host", dpdk)];

const DPDK: &str = "virtio.serial.port.poweragent.1";
const OWN: &str = "apus.power";
const CALLS: [&str; 9] = ["min", "up", "up", "down", "max", "enable-turbo", "min", "freq-list", "max"];

/// The DPDK program, built for this test; `None` if there is no DPDK here.
fn program(folder: &Path) -> Option<PathBuf> {
    let flags = Command::new("pkg-config").args(["--cflags", "--libs", "libdpdk"]).output().ok()?;
    if !flags.status.success() {
        return None;
    }
    let flags = String::from_utf8(flags.stdout).unwrap();
    let out = folder.join("dpdk_guest");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vm/dpdk_guest.c");
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-DALLOW_EXPERIMENTAL_API", "-o"]).arg(&out).arg(&source).args(flags.split_whitespace());
    let built = cc.output().expect("a C compiler, which Rust needs for linking");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Some(out)
}

/// Carries bytes from one end to the other until one of them is closed.
fn carry(from: &Guest, to: &Guest, port: &str) {
    let (mut from, mut to): (UnixStream, UnixStream) = (ok(from.port(port)), ok(to.port(port)));
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            if to.write_all(&buffer[..length]).is_err() {
                break;
            }
        }
    });
}

fn dpdk() {
    let folder = std::env::temp_dir().join(format!("apus-test-guests-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let Some(program) = program(&folder) else {
        testkit::skip("VM lab: pkg-config finds no libdpdk; apt-get install dpdk-dev");
        return;
    };
    let apus = env!("CARGO_BIN_EXE_apus");
    let host = ok(Vm::new()).cpus(2).pstates(&PSTATES).firmware().port(DPDK).port(OWN).program(apus);
    let host = ok(host.boot());
    let guest = ok(ok(Vm::new()).cpus(2).port(DPDK).port(OWN).program(apus).program(&program).boot());
    for port in [DPDK, OWN] {
        carry(&guest, &host, port);
        carry(&host, &guest, port);
    }
    ok(host.run(&format!(
        "mkdir -p /etc/apus/guests /var/log && printf '%s\\n' \
         'connect = [\"/dev/virtio-ports/{DPDK}\", \"/dev/virtio-ports/{OWN}\"]' 'pinning = \"manifest\"' \
         'max_frequency = \"2.6GHz\"' '[vcpus]' '1 = 1' >/etc/apus/guests/vm1.toml
         for p in /sys/devices/system/cpu/cpufreq/policy*; do echo performance >$p/scaling_governor; done
         apus power serve --json --log /root/log >/root/result 2>/root/said &
         echo $! >/root/pid"
    )));
    let served = "apus power serve status 2>/dev/null | grep -q '2 of 2 channels connected'";
    if let Err(error) = host.wait_until(served, 1_200) {
        panic!("{error}\n{}", ok(host.run("cat /root/said; apus power serve status")));
    }
    ok(host.pstate_writes());
    // The program's calls, through librte_power, and the answers that it read.
    let eal = "--no-huge --no-pci --no-shconf --no-telemetry -m 32 --lcores 0,1";
    let script = format!("dpdk_guest {eal} -- 1 {} 2>/root/err || {{ cat /root/err; exit 1; }}", CALLS.join(" "));
    let said = ok(guest.run(&script));
    let expected = CALLS.map(|call| match call {
        "enable-turbo" => "enable-turbo NACK".to_owned(),
        "freq-list" => "freq-list 2: 0 800000".to_owned(),
        call => format!("{call} ACK"),
    });
    assert_eq!(said.lines().collect::<Vec<_>>(), expected);
    let writes = |host: &Guest| -> Vec<(usize, u64)> {
        let writes = ok(host.pstate_writes());
        writes.iter().map(|write| (write.cpu, write.frequency.as_hertz() / 1_000_000)).collect()
    };
    let seen = writes(&host);
    assert_eq!(seen, [(1, 800), (1, 1200), (1, 1800), (1, 1200), (1, 2600), (1, 800), (1, 2600)], "{CALLS:?}");
    // Apus's own protocol, round trip.
    let asked = ok(guest.output("apus power request 1.5GHz --vcpu 1 --timeout 60s --json"));
    assert_eq!(asked.status, 0, "{asked:?}");
    let answer: Value = serde_json::from_str(&asked.stdout).unwrap();
    assert_eq!((&answer["verdict"], &answer["fixed_khz"]), (&"granted".into(), &1_800_000.into()), "{answer}");
    assert_eq!(writes(&host), [(1, 1800)]);
    let refused = ok(guest.output("apus power request min --vcpu 0 --timeout 60s"));
    assert!(refused.status == 1 && refused.stdout.contains("the manifest has no vCPU 0"), "{refused:?}");
    // The control loop in the guest, whose hand is the host.
    let steered =
        ok(guest.output("apus power steer --through-host --cpus 1 --policy fixed:1.2GHz --duration 8s --json"));
    assert_eq!(steered.status, 0, "{steered:?}");
    let document: Value = serde_json::from_str(&steered.stdout).unwrap();
    assert_eq!((&document["restored"], &document["domains"][0]["via"]), (&true.into(), &"host".into()), "{document}");
    assert_eq!(writes(&host), [(1, 1200), (1, 3000)], "requested, and left to the host's governor");
    let limit = PSTATES[2].frequency;
    ok(host.set_firmware_limit(1, limit));
    ok(host.wait_until("[ $(cat /sys/devices/system/cpu/cpufreq/policy1/bios_limit) = 2200000 ]", 600));
    let limited = ok(guest.output("apus power request max --vcpu 1 --timeout 60s"));
    assert!(limited.status == 0 && limited.stdout.contains("the firmware limits the frequency"), "{limited:?}");
    assert_eq!(writes(&host).last(), Some(&(1, 2200)));
    // The log has the program's calls, in order, and no others before ours.
    let log = ok(host.run("cat /root/log"));
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let asked: Vec<&str> =
        lines.iter().filter(|line| line["event"] == "request").filter_map(|l| l["asked"].as_str()).collect();
    let calls: Vec<&str> = std::iter::once("connect").chain(CALLS).collect();
    assert_eq!(asked[..calls.len()], calls, "{log}");
    let ours: Vec<&&str> = asked[calls.len()..].iter().filter(|ask| **ask != "state").collect();
    assert_eq!(ours, [&"1500000000Hz", &"min", &"1200000000Hz", &"release", &"max"], "{log}");
    println!("the program's calls: {CALLS:?}\nthe host's log: {asked:?}\nP-state writes: {seen:?}");
    ok(host.run("kill -TERM $(cat /root/pid)"));
    ok(host.wait_until("! [ -d /proc/$(cat /root/pid) ]", 600));
    let limits = ok(host.run("cd /sys/devices/system/cpu/cpufreq/policy1 && cat scaling_min_freq"));
    assert_eq!(limits, "800000", "as before");
    drop((guest, host));
    let _ = std::fs::remove_dir_all(&folder);
}
