use crate::tune::{apply, roll_back};
use vmlab::harness::{Alone, ok};

pub(crate) const TESTS: [Alone; 2] = [
    ("reboot::a_command_line_is_applied_and_verified_and_taken_back", command_line),
    ("reboot::what_lasts_stays_and_a_unit_applies_the_rest_again", lasting),
];

const ARGUMENTS: &str = "isolcpus=managed_irq,domain,1 nohz_full=1 rcu_nocbs=1";

/// What lies on a disk of a real machine lies in the shared folder here: the bootloader's fragments and the journal.
const DISK: &str = "mkdir -p /share/default/grub.d /share/apus /share/systemd /etc/default /var/lib/apus /etc/systemd/system; \
                    mount --bind /share/default /etc/default; mount --bind /share/apus /var/lib/apus; \
                    mount --bind /share/systemd /etc/systemd/system";

/// What GRUB makes of its fragments: they are shell (GRUB manual, "Simple configuration handling").
const GRUB: &str = "for f in /etc/default/grub.d/*.cfg; do [ ! -e $f ] || . $f; done; echo $GRUB_CMDLINE_LINUX_DEFAULT";

fn command_line() {
    let disk = std::env::temp_dir().join(format!("apus-test-disk-{}", std::process::id()));
    std::fs::create_dir_all(&disk).unwrap();
    let vm = ok(vmlab::Vm::new()).cpus(2).program(env!("CARGO_BIN_EXE_apus")).share(&disk);

    let guest = ok(vm.boot());
    ok(guest.run(DISK));
    let words: Vec<_> = ARGUMENTS.split(' ').collect();
    apply(&guest, &format!("[kernel]\narguments = {words:?}")).assert_changed();
    let status = || ok(guest.output("apus tune status")).stdout;
    assert!(status().contains("reboot"), "not in force before the reboot: {}", status());
    let line = ok(guest.run(GRUB));
    assert_eq!(line, ARGUMENTS);
    drop(guest);

    let guest = ok(vm.clone().kernel_argument(&line).boot());
    ok(guest.run(DISK));
    ok(guest.run("apus tune verify"));
    let in_force = "cd /sys/devices/system/cpu; cat isolated nohz_full";
    assert_eq!(ok(guest.run(in_force)), "1\n1", "and it has the effect");
    roll_back(&guest);
    let line = ok(guest.run(GRUB));
    assert_eq!(line, "");
    drop(guest);

    let guest = ok(vm.boot());
    assert_eq!(ok(guest.run(in_force)), "\n(null)");
    drop(guest);
    std::fs::remove_dir_all(&disk).unwrap();
}

/// The files that last, and what a reboot undoes.
const FILES: &str = "cat /etc/default/grub.d/*.cfg /etc/default/irqbalance; ls /etc/systemd/system/*";
const RUNTIME: &str = "cat /proc/sys/vm/swappiness /proc/sys/vm/dirty_bytes";

fn lasting() {
    let disk = std::env::temp_dir().join(format!("apus-test-lasting-{}", std::process::id()));
    std::fs::create_dir_all(&disk).unwrap();
    let vm = ok(vmlab::Vm::new()).cpus(2).nic(vmlab::Nic::Virtio).program(env!("CARGO_BIN_EXE_apus")).share(&disk);

    let guest = ok(vm.boot());
    ok(guest.run(&format!("{DISK}; echo X=1 >/etc/default/irqbalance")));
    let untouched = ok(guest.run(RUNTIME));
    let keys = "[kernel]\narguments = [\"nohz_full=1\"]\n[interrupts]\nbanned = \"1\"\n\
                [sysctl]\n\"vm.swappiness\" = 7\n\"vm.dirty_bytes\" = 1000000";
    apply(&guest, keys).assert_changed();
    let wrote = ok(guest.run("apus tune enable /share/test.toml"));
    assert!(wrote.contains("/etc/systemd/system/apus-tune.service"), "{wrote}");
    assert!(ok(guest.run("apus tune enable /share/test.toml")).contains("nothing was written"), "it is idempotent");
    let files = ok(guest.run(FILES));
    assert!(
        files.contains("nohz_full=1")
            && files.contains("BANNED_CPULIST=1")
            && files.contains("multi-user.target.wants"),
        "{files}"
    );
    let runtime = ok(guest.run(RUNTIME));
    assert_eq!(runtime, "7\n1000000");
    drop(guest);

    // A reboot; and then a command that has nothing to do with it.
    let guest = ok(vm.clone().kernel_argument("nohz_full=1").boot());
    ok(guest.run(DISK));
    assert_eq!(ok(guest.run(RUNTIME)), untouched);
    ok(guest.run("ip link set eth0 up"));
    let run = ok(guest.output("apus run drop eth0 --xdp generic --duration 100ms"));
    assert!(run.stderr.contains("a reboot reset 2 settings; 2 survive reboots"), "{run:?}");
    assert_eq!(ok(guest.run(FILES)), files, "apus run takes nothing of it back");
    ok(guest.run("apus tune verify"));
    // What systemd would do at this boot.
    let start = ok(guest.run("sed -n s/^ExecStart=//p /etc/systemd/system/apus-tune.service"));
    ok(guest.run(&start));
    assert_eq!(ok(guest.run(RUNTIME)), runtime);
    ok(guest.run("apus tune verify"));
    assert_eq!(ok(guest.run(FILES)), files);
    drop(guest);

    // Another reboot; only an explicit rollback takes the arguments away, only `disable` the unit.
    let guest = ok(vm.clone().kernel_argument("nohz_full=1").boot());
    ok(guest.run(DISK));
    apply(&guest, "[sysctl]\n\"vm.stat_interval\" = 9").assert_changed();
    assert_eq!(ok(guest.run(FILES)), files, "nor does apply");
    roll_back(&guest);
    assert_eq!(ok(guest.run(RUNTIME)), untouched);
    assert_eq!(ok(guest.run("ls /etc/default/grub.d; cat /etc/default/irqbalance")), "X=1");
    let removed = ok(guest.run("apus tune disable"));
    assert!(removed.contains("removed /etc/systemd/system/apus-tune.service"), "{removed}");
    assert_eq!(ok(guest.run("find /etc/systemd/system ! -type d")), "");
    drop(guest);
    std::fs::remove_dir_all(&disk).unwrap();
}
