use vmlab::Guest;

use crate::profiles::SNAPSHOT;
use crate::tune::{apply, roll_back};
use vmlab::harness::{OnShared, ok};

pub(crate) const TESTS: [OnShared; 3] = [
    ("fixes::by_the_words_of_ethtool", words),
    ("fixes::of_this_guest_as_it_is", |guest| applied(guest, "--workload interrupt --nic eth0,eth1")),
    ("fixes::with_an_isolated_cpu", |guest| {
        applied(guest, "--isolated 1 --workload poll --nic eth0,eth1 --goal p99.9=50us")
    }),
];

/// The bootloader's folder, as on an installed host; moderation, pause frames and checksums that want mending, as far as the
/// cards (e1000e and virtio) have them.
const UNTUNED: &str = "mkdir -p /etc/default/grub.d; ip link set eth0 up; ip link set eth1 up; sleep 1; \
     ethtool -C eth0 rx-usecs 200; ethtool -A eth0 autoneg off rx on tx on; ethtool -K eth0 rx off tx off; \
     ethtool -K eth1 tx off; cd /sys/devices/system/cpu; for p in cpufreq/policy*; do echo powersave >$p/scaling_governor; done; \
     for c in cpu[01]; do echo 0 >$c/power/pm_qos_resume_latency_us; done; echo 1 >/proc/sys/vm/stat_interval; true";

/// As the drivers have it.
const TUNED: &str = "ethtool -A eth0 autoneg on; ethtool -K eth0 rx on tx on tso on; ethtool -C eth0 rx-usecs 3; true";

/// Everything that `--fix` writes is applied, nothing is refused or missing, and rolling back leaves no trace.
fn applied(guest: &Guest, intent: &str) {
    ok(guest.run(UNTUNED));
    let before = ok(guest.run(SNAPSHOT));
    let audit = ok(guest.output(&format!("apus audit {intent} --fix /share/found.toml --min-level fail")));
    assert!(matches!(audit.status, 0 | 1), "{audit:?}");
    let profile = std::fs::read_to_string(guest.share().join("found.toml")).unwrap();
    let output = ok(guest.output("apus tune apply /share/found.toml --yes --json"));
    assert_eq!(output.status, 0, "{output:?}\n{profile}");
    let document: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
    let items = document["items"].as_array().unwrap();
    let became = |word: &str| items.iter().filter(|item| item["became"] == word).count();
    assert!(became("changed") > 5, "{items:#?}\n{profile}");
    assert_eq!(became("changed") + became("already"), items.len(), "{items:#?}\n{profile}");
    // What e1000e can do is in it; what virtio has no switch for is not.
    assert!(
        profile.contains("[network.\"eth0\".coalesce]") && profile.contains("[network.\"eth0\".features]"),
        "{profile}"
    );
    assert!(!profile.contains("[network.\"eth1\".coalesce]"), "{profile}");
    roll_back(guest);
    let after = ok(guest.run(SNAPSHOT));
    for (before, after) in before.lines().zip(after.lines()) {
        assert_eq!(before, after);
    }
    assert_eq!(before.len(), after.len());
    ok(guest.run(&format!("rmdir /etc/default/grub.d; {TUNED}")));
}

/// Short names of features, and switches that are on or off, on both cards.
fn words(guest: &Guest) {
    ok(guest.run(&format!("ip link set eth0 up; ip link set eth1 up; sleep 1; {TUNED}")));
    let before = ok(guest.run(SNAPSHOT));
    let keys = "[network.eth0]\nfeatures = { rx = \"off\", tso = \"off\" }\n\
                pause = { autoneg = \"off\", rx = \"off\", tx = \"off\" }\n\
                [network.eth1]\nfeatures = { gro = \"off\" }\n";
    apply(guest, keys).assert_changed();
    let shown = ok(guest.run("ethtool -k eth0; ethtool -a eth0; ethtool -k eth1"));
    for line in
        ["rx-checksumming: off", "tx-tcp-segmentation: off", "Autonegotiate:\toff", "generic-receive-offload: off"]
    {
        assert!(shown.contains(line), "{line:?} is not in\n{shown}");
    }
    roll_back(guest);
    assert_eq!(ok(guest.run(SNAPSHOT)), before);
}
