use crate::harness::{Alone, ok};
use crate::tune::{apply, roll_back};

pub(crate) const TESTS: [Alone; 1] = [("reboot::a_command_line_is_applied_and_verified_and_taken_back", command_line)];

const ARGUMENTS: &str = "isolcpus=managed_irq,domain,1 nohz_full=1 rcu_nocbs=1";

/// What lies on a disk of a real machine lies in the shared folder here: the bootloader's fragments and the journal.
const DISK: &str = "mkdir -p /share/grub.d /share/apus /etc/default/grub.d /var/lib/apus; \
                    mount --bind /share/grub.d /etc/default/grub.d; mount --bind /share/apus /var/lib/apus";

/// What GRUB makes of its fragments: they are shell (GRUB manual, "Simple configuration handling").
const GRUB: &str = "for f in /etc/default/grub.d/*.cfg; do [ ! -e $f ] || . $f; done; echo $GRUB_CMDLINE_LINUX_DEFAULT";

fn command_line() {
    let disk = std::env::temp_dir().join(format!("apus-test-disk-{}", std::process::id()));
    std::fs::create_dir_all(&disk).unwrap();
    let vm = ok(tester::lab::vm::Vm::new()).cpus(2).program(env!("CARGO_BIN_EXE_apus")).share(&disk);

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
