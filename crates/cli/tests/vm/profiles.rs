use serde_json::Value as Json;
use vmlab::Guest;

use crate::tune::roll_back;
use vmlab::harness::{OnShared, ok};

pub(crate) const TESTS: [OnShared; 4] = [
    ("profiles::poll", |guest| leaves_no_trace(guest, "poll")),
    ("profiles::interrupt", |guest| leaves_no_trace(guest, "interrupt")),
    ("profiles::kvm_host", |guest| leaves_no_trace(guest, "kvm-host")),
    ("profiles::powersave", |guest| leaves_no_trace(guest, "powersave")),
];

/// Every file that a profile may touch, with what is in it; and the interfaces' settings.
pub(crate) const SNAPSHOT: &str = "cd /sys/devices/system/cpu; grep -sH '' \
     $(find /proc/sys/kernel /proc/sys/vm /proc/sys/net -type f ! -path '*/random/*' ! -name ns_last_pid ! -path '*/pty/*') \
     cpu*/cpufreq/scaling_[gms]* cpu*/cpuidle/*/disable cpu*/power/pm_qos* /proc/irq/*/smp_affinity_list \
     /proc/irq/default_smp_affinity /sys/devices/virtual/workqueue/cpumask /sys/bus/workqueue/devices/writeback/cpumask \
     /sys/kernel/mm/transparent_hugepage/* /sys/kernel/mm/ksm/run /sys/fs/cgroup/cgroup.subtree_control; \
     ls /sys/fs/cgroup /etc/default; od -An -td4 /dev/cpu_dma_latency; \
     for w in '-c eth0' '-c eth1' '-a eth0' '-g eth0' '-k eth0'; do ethtool $w; done; true";

fn leaves_no_trace(guest: &Guest, profile: &str) {
    // Whatever earlier tests left: what the profile sets is something else to begin with.
    let governor = if profile == "powersave" { "performance" } else { "powersave" };
    ok(guest.run(&format!(
        "ip link set eth0 up; ip link set eth1 up; sleep 1; cd /sys/devices/system/cpu; \
         for p in cpufreq/policy*; do echo {governor} >$p/scaling_governor; done; \
         for c in cpu[01]; do echo 1000 >$c/power/pm_qos_resume_latency_us; done"
    )));
    let before = ok(guest.run(SNAPSHOT));
    // What this machine does not have is told, in the plan as after it; nothing is refused.
    let planned = words(guest, &format!("apus tune plan {profile} --isolated 1 --json"), "meets");
    assert!(!planned.iter().any(|(_, meets)| meets == "refused"), "{profile}: {planned:#?}");
    let applied = words(guest, &format!("apus tune apply {profile} --isolated 1 --yes --json"), "became");
    for ((setting, meets), (_, became)) in planned.iter().zip(&applied) {
        let kept = matches!(
            (&meets[..], &became[..]),
            ("change", "changed") | ("as_wanted", "already") | ("not_there", "not_there")
        );
        assert!(kept, "{profile}, {setting}: the plan says {meets}, and it {became}");
    }
    assert_eq!(planned.len(), applied.len());
    ok(guest.run("apus tune verify"));
    // So says the profile itself, to anyone. The kernel's arguments wait for a reboot, and interrupts that only a write
    // shows to be fixed are as they were.
    let output = ok(guest.output(&format!("apus tune verify {profile} --isolated 1 --json")));
    let document: Json = serde_json::from_str(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    for item in document["items"].as_array().unwrap() {
        let waits = item["setting"].as_str().unwrap().starts_with("kernel arguments");
        assert!(waits || matches!(item["meets"].as_str(), Some("as_wanted" | "not_there")), "{profile}: {item:#}");
    }
    let during = ok(guest.run(SNAPSHOT));
    let differ = before.lines().zip(during.lines()).filter(|(before, during)| before != during).count();
    assert!(differ > 5, "{profile} changes more than {differ} settings: {applied:#?}");
    roll_back(guest);
    let after = ok(guest.run(SNAPSHOT));
    for (before, after) in before.lines().zip(after.lines()) {
        assert_eq!(before, after);
    }
    assert_eq!(before.len(), after.len());
}

/// What a command says of each setting under `key`; it must end with 0.
fn words(guest: &Guest, command: &str, key: &str) -> Vec<(String, String)> {
    let output = ok(guest.output(command));
    assert_eq!(output.status, 0, "{output:?}");
    let document: Json = serde_json::from_str(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    let text = |item: &Json, key: &str| item[key].as_str().unwrap().to_owned();
    document["items"].as_array().unwrap().iter().map(|item| (text(item, "setting"), text(item, key))).collect()
}
