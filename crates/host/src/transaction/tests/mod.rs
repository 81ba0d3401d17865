use std::sync::Arc;
use std::time::Duration;

use units::Nanos;

use super::*;
use crate::journal::{Lease, Rest};
use crate::knob::{AnySetting, File, NapiDeferral, Theirs, Value};

/// Side effects of a change, and their rollback.
mod along;
/// Which settings a journal may change, whatever its origin.
mod strict;
use crate::testing::Folder;

const JOURNAL: &str = "var/lib/apus/tune/000001.journal";

fn folder() -> Folder {
    Folder::new(&[
        ("sys/a", "1\n"),
        ("sys/b", "2\n"),
        ("sys/c", "[x] y\n"),
        ("proc/sys/kernel/random/boot_id", "boot-1\n"),
    ])
}

fn plan() -> Plan {
    Plan::new("p")
        .with(File::new("/sys/a"), Value::text("10"))
        .with(File::new("/sys/b"), Value::text("20"))
        .with(File::new("/sys/c"), Value::text("y"))
}

fn options() -> ApplyOptions {
    ApplyOptions {
        command: "a test".into(),
        version: "0".into(),
        patience: Duration::ZERO,
        lease: Lease::Open,
        keep_going: false,
    }
}

fn take_back(folder: &Folder, which: Which, theirs: Theirs) -> Result<Vec<RolledBack>, Error> {
    let mut options = RollbackOptions {
        command: "a test".into(),
        patience: Duration::ZERO,
        damaged: false,
        forget: false,
        theirs,
        ask: None,
    };
    rollback(&folder.access(), which, &mut options)
}

fn state(folder: &Folder) -> [String; 3] {
    ["sys/a", "sys/b", "sys/c"].map(|path| folder.read(path))
}

fn outcomes(rolled_back: &RolledBack) -> Vec<&Outcome> {
    rolled_back.entries.iter().map(|(_, outcome)| outcome).collect()
}

#[test]
fn applied_verified_and_taken_back() {
    let folder = folder();
    let before = state(&folder);
    let applied = apply(&folder.access(), &plan(), &options()).unwrap();
    assert_eq!(applied.id, Some(1));
    assert!(applied.items.iter().all(|(_, became)| became.is_good()));
    assert_eq!(state(&folder), ["10\n", "20\n", "x [y]\n"]);
    let all = transactions(&folder.access()).unwrap();
    assert!(all[0].kept && !all[0].is_abandoned());
    let stands = |entry: &Entry| entry.stands(&folder.access(), false, &Whereabouts::Here);
    assert!(all[0].open_entries().all(|entry| matches!(stands(entry), Stands::Ours { .. })));
    let rolled_back = take_back(&folder, Which::All, Theirs::Keep).unwrap();
    assert_eq!(outcomes(&rolled_back[0]), [&Outcome::Restored; 3]);
    assert!(rolled_back[0].closed);
    assert_eq!(state(&folder), before);
    assert!(transactions(&folder.access()).unwrap().is_empty());
}

#[test]
fn a_refusal_takes_all_back() {
    let folder = folder();
    let before = state(&folder);
    let wrong = plan().with(File::new("/sys/c"), Value::text("z"));
    let error = apply(&folder.access(), &wrong, &options()).unwrap_err();
    assert!(matches!(&error, Error::RolledBack { left: None, .. }), "{error}");
    assert_eq!(state(&folder), before);
    assert!(transactions(&folder.access()).unwrap().is_empty());
}

#[test]
fn what_may_be_refused_is_reported() {
    let folder = folder();
    let mut wrong = plan().with(File::new("/sys/c"), Value::text("z"));
    wrong.items[2].on_refusal = OnRefusal::Report;
    let applied = apply(&folder.access(), &wrong, &options()).unwrap();
    assert!(matches!(applied.items[2].1, Became::Refused(_)));
    assert_eq!(state(&folder), ["10\n", "20\n", "[x] y\n"]);
    let missing = Plan::new("q").with(File::new("/sys/d"), Value::text("1"));
    let applied = apply(&folder.access(), &missing, &options()).unwrap();
    assert_eq!((applied.id, &applied.items[0].1), (None, &Became::NotThere), "nothing to take back");
}

#[test]
fn someone_elses_change_is_kept_and_reported() {
    let folder = folder();
    apply(&folder.access(), &plan(), &options()).unwrap();
    folder.put("sys/b", "99\n");
    let rolled_back = take_back(&folder, Which::One(1), Theirs::Keep).unwrap();
    let theirs = Outcome::Theirs { now: Value::text("99") };
    assert_eq!(outcomes(&rolled_back[0]), [&Outcome::Restored, &theirs, &Outcome::Restored]);
    assert!(!rolled_back[0].closed, "it can still be decided otherwise");
    assert_eq!(state(&folder), ["1\n", "99\n", "[x] y\n"]);
    let rolled_back = take_back(&folder, Which::All, Theirs::Overwrite).unwrap();
    assert_eq!(outcomes(&rolled_back[0]), [&Outcome::Restored]);
    assert_eq!(folder.read("sys/b"), "2\n");
    assert!(rolled_back[0].closed);
}

/// Rolls everything back; `ask` answers for what someone else has changed.
fn asked(folder: &Folder, forget: bool, ask: &mut Ask<'_>) -> Vec<RolledBack> {
    let mut options = RollbackOptions {
        command: "a test".into(),
        patience: Duration::ZERO,
        damaged: false,
        forget,
        theirs: Theirs::Keep,
        ask: Some(ask),
    };
    rollback(&folder.access(), Which::All, &mut options).unwrap()
}

/// Regression test: the lock was held while the user was asked, and everything else waited for the answer.
#[test]
fn others_go_on_while_the_user_is_asked() {
    for answer in [Theirs::Overwrite, Theirs::Keep] {
        let folder = folder();
        folder.put("sys/d", "4\n");
        apply(&folder.access(), &plan(), &options()).unwrap();
        folder.put("sys/b", "99\n");
        let mut asked_for = Vec::new();
        let rolled_back = asked(&folder, false, &mut |setting, now, before| {
            asked_for.push(format!("{}: {now} for {before}", setting.label()));
            assert_eq!(state(&folder), ["1\n", "99\n", "[x] y\n"], "everything else is rolled back");
            let other = Plan::new("q").with(File::new("/sys/d"), Value::text("40"));
            assert_eq!(apply(&folder.access(), &other, &options()).unwrap().id, Some(2));
            answer
        });
        assert_eq!(asked_for, ["/sys/b: 99 for 2"]);
        let restores = answer == Theirs::Overwrite;
        assert_eq!(rolled_back[0].closed, restores);
        assert_eq!(folder.read("sys/b"), if restores { "2\n" } else { "99\n" });
        assert_eq!(folder.read("sys/d"), "40\n", "the other transaction stays");
    }
}

/// While the user is asked, the answer can become outdated.
#[test]
fn an_answer_is_for_the_value_that_was_shown() {
    /// What others do while the user is asked.
    type Meanwhile<'a> = &'a dyn Fn(&Folder);
    let third = || Plan::new("q").with(File::new("/sys/b"), Value::text("77"));
    let scenarios: [(Meanwhile<'_>, &str); 3] = [
        (&|folder| folder.put("sys/b", "98\n"), "98\n"),
        // Another transaction wants the setting now.
        (&|folder| drop(apply(&folder.access(), &third(), &options()).unwrap()), "77\n"),
        // The transaction was rolled back by somebody else, and another one has its number.
        (
            &|folder| {
                take_back(folder, Which::All, Theirs::Overwrite).unwrap();
                assert_eq!(apply(&folder.access(), &third(), &options()).unwrap().id, Some(1));
            },
            "77\n",
        ),
    ];
    for (meanwhile, stays) in scenarios {
        let folder = folder();
        apply(&folder.access(), &plan(), &options()).unwrap();
        folder.put("sys/b", "99\n");
        let rolled_back = asked(&folder, false, &mut |_, _, _| {
            meanwhile(&folder);
            Theirs::Overwrite
        });
        assert!(!rolled_back[0].closed, "{rolled_back:?}");
        assert_eq!(folder.read("sys/b"), stays, "{rolled_back:?}");
    }
}

#[test]
fn what_is_kept_is_forgotten_only_after_the_question() {
    let folder = folder();
    apply(&folder.access(), &plan(), &options()).unwrap();
    folder.put("sys/b", "99\n");
    let rolled_back = asked(&folder, true, &mut |_, _, _| {
        assert_eq!(transactions(&folder.access()).unwrap().len(), 1);
        Theirs::Keep
    });
    assert!(rolled_back[0].closed && transactions(&folder.access()).unwrap().is_empty());
    assert_eq!(folder.read("sys/b"), "99\n");
}

/// A cooling device limits the frequency while the limits are set, and later no longer does.
#[test]
fn limits_that_were_lowered_when_they_were_set_are_ours_when_that_ends() {
    let folder = folder();
    let file = |end: &str| format!("sys/devices/system/cpu/cpufreq/policy0/scaling_{end}_freq");
    let put = |min: &str, max: &str| [("min", min), ("max", max)].map(|(end, khz)| folder.put(&file(end), khz));
    put("800000\n", "3500000\n");
    let (access, _hot) = folder.hot();
    let wanted = Value::fields([("min", 3_000_000), ("max", 3_000_000)]);
    let plan = Plan::new("limits").with(crate::knob::Limits::new(0), wanted);
    let applied = apply(&access, &plan, &ApplyOptions { keep_going: true, ..options() }).unwrap();
    assert!(matches!(applied.items[0].1, Became::Otherwise { .. }), "{:?}", applied.items[0].1);
    put("3000000\n", "3000000\n");
    let rolled_back = take_back(&folder, Which::All, Theirs::Keep).unwrap();
    assert_eq!(outcomes(&rolled_back[0]), [&Outcome::Restored]);
    assert_eq!((folder.read(&file("min")), folder.read(&file("max"))), ("800000\n".into(), "3500000\n".into()));
}

#[test]
fn a_lost_device_does_not_stop_the_rest() {
    let folder = folder();
    apply(&folder.access(), &plan(), &options()).unwrap();
    std::fs::remove_file(folder.path("sys/b")).unwrap();
    let rolled_back = take_back(&folder, Which::All, Theirs::Keep).unwrap();
    assert_eq!(outcomes(&rolled_back[0]), [&Outcome::Restored, &Outcome::Gone, &Outcome::Restored]);
    assert_eq!(folder.read("sys/a"), "1\n");
    folder.put("sys/b", "20\n");
    let rolled_back = take_back(&folder, Which::All, Theirs::Keep).unwrap();
    assert_eq!(outcomes(&rolled_back[0]), [&Outcome::Restored], "it came back as we had made it");
    assert_eq!(folder.read("sys/b"), "2\n");
}

#[test]
fn a_reboot_ends_it() {
    let folder = folder();
    apply(&folder.access(), &plan(), &options()).unwrap();
    folder.put("proc/sys/kernel/random/boot_id", "boot-2\n");
    folder.put("sys/a", "10\n");
    let all = transactions(&folder.access()).unwrap();
    assert!(all[0].is_past);
    assert_eq!(all[0].entries[0].stands(&folder.access(), true, &Whereabouts::Here), Stands::Past);
    let rolled_back = take_back(&folder, Which::All, Theirs::Keep).unwrap();
    assert_eq!(outcomes(&rolled_back[0]), [&Outcome::Past; 3]);
    assert_eq!(folder.read("sys/a"), "10\n", "a value of this boot is none of ours");
}

/// A change that lasts across reboots is meant to last. Later transactions do not roll it back.
#[test]
fn a_reboot_leaves_what_lasts_across_it() {
    use crate::knob::{BootFragment, IrqbalanceBans};
    let folder = folder();
    folder.put("etc/default/grub.d/50-x.cfg", "");
    folder.put("etc/default/irqbalance", "X=1\n");
    let lasting = [
        plan().with(BootFragment {}, Value::text("nohz_full=2-3")).with(IrqbalanceBans {}, Value::text("2-3")),
        plan(),
    ];
    apply(&folder.access(), &lasting[0], &options()).unwrap();
    let fragment = "etc/default/grub.d/60-apus.cfg";
    let kept = |folder: &Folder| (folder.read(fragment), folder.read("etc/default/irqbalance"));
    let before = kept(&folder);
    for boot in 2..5 {
        folder.put("proc/sys/kernel/random/boot_id", &format!("boot-{boot}\n"));
        ["sys/a", "sys/b"].iter().for_each(|path| folder.put(path, "7\n"));
        folder.put("sys/c", "[x] y\n");
        // `apus run` and every `apply` call this first.
        let recovered = take_back_abandoned(&folder.access(), "apus run").unwrap();
        match boot {
            2 => assert_eq!(recovered, [Recovered::Past { id: 1, undone: 3, stays: 2 }]),
            3 => assert_eq!(recovered, [], "it was dropped already"),
            _ => assert_eq!(recovered, [Recovered::Past { id: 2, undone: 3, stays: 0 }]),
        }
        assert_eq!(kept(&folder), before, "boot {boot}");
        let open = transactions(&folder.access()).unwrap();
        assert_eq!((open.len(), open[0].open_entries().count(), open[0].is_abandoned()), (1, 2, false));
        if boot == 3 {
            apply(&folder.access(), &lasting[1], &options()).unwrap();
        }
    }
    assert_eq!(state(&folder), ["7\n", "7\n", "[x] y\n"], "this boot's values are none of ours");
    let rolled_back = take_back(&folder, Which::All, Theirs::Keep).unwrap();
    assert!(rolled_back.iter().all(|one| one.closed));
    assert!(!folder.path(fragment).exists());
    assert_eq!(folder.read("etc/default/irqbalance"), "X=1\n", "an explicit rollback takes it back");
}

/// A transaction that was killed before the reboot, or that belonged to a process, was not meant to stay.
#[test]
fn a_reboot_keeps_nothing_of_an_unfinished_one() {
    use crate::knob::BootFragment;
    for lease in [None, Some(Lease::Process { pid: std::process::id(), started: 0 })] {
        let folder = folder();
        folder.put("etc/default/grub.d/50-x.cfg", "");
        let (_, own) = crate::journal::Processes::of(&folder.access()).unwrap().own().unwrap().unwrap();
        let lease_then =
            lease.clone().map_or(Lease::Open, |_| Lease::Process { pid: std::process::id(), started: own });
        let wanted = plan().with(BootFragment {}, Value::text("nohz_full=2-3"));
        apply(&folder.access(), &wanted, &ApplyOptions { lease: lease_then, ..options() }).unwrap();
        if lease.is_none() {
            let lines = folder.read(JOURNAL);
            folder.put(JOURNAL, &lines[..=lines.trim_end().rfind('\n').unwrap()]);
        }
        folder.put("proc/sys/kernel/random/boot_id", "boot-2\n");
        // The named process exists, but it belongs to the present boot.
        assert_eq!(take_back_abandoned(&folder.access(), "x").unwrap(), [Recovered::TakenBack { id: 1 }]);
        assert!(!folder.path("etc/default/grub.d/60-apus.cfg").exists());
        assert_eq!(folder.read("sys/a"), "10\n", "what the reboot undid is not written");
    }
}

#[test]
fn later_transactions_come_off_first() {
    let folder = folder();
    let before = state(&folder);
    apply(&folder.access(), &plan(), &options()).unwrap();
    let second = Plan::new("q").with(File::new("/sys/a"), Value::text("100"));
    apply(&folder.access(), &second, &options()).unwrap();
    let error = take_back(&folder, Which::One(1), Theirs::Keep).unwrap_err();
    assert!(error.to_string().contains("the later transaction 2 also wants /sys/a"), "{error}");
    assert_eq!(take_back(&folder, Which::All, Theirs::Keep).unwrap().len(), 2);
    assert_eq!(state(&folder), before);
    assert!(take_back(&folder, Which::One(1), Theirs::Keep).is_err(), "there is none any more");
}

/// The guardian of the first one would have undone what the second is meant to keep.
#[test]
fn a_setting_that_a_later_transaction_found_in_force_stays() {
    let folder = folder();
    apply(&folder.access(), &plan(), &options()).unwrap();
    let same = Plan::new("q").with(File::new("/sys/a"), Value::text("10"));
    apply(&folder.access(), &same, &options()).unwrap();
    let error = take_back(&folder, Which::One(1), Theirs::Keep).unwrap_err();
    assert!(error.to_string().contains("the later transaction 2 also wants /sys/a"), "{error}");
    assert_eq!(folder.read("sys/a"), "10\n");
    take_back(&folder, Which::One(2), Theirs::Keep).unwrap();
    take_back(&folder, Which::One(1), Theirs::Keep).unwrap();
    assert_eq!(folder.read("sys/a"), "1\n");
}

/// After a rollback by somebody else, the next transaction gets the number of the old one.
#[test]
fn the_end_of_a_process_takes_back_its_own_transaction_only() {
    let folder = folder();
    let access = folder.access();
    let held = Held::new(&access, &plan(), "a test", "0").unwrap();
    take_back(&folder, Which::One(1), Theirs::Keep).unwrap();
    let second = Plan::new("q").with(File::new("/sys/a"), Value::text("100"));
    assert_eq!(apply(&access, &second, &options()).unwrap().id, Some(1));
    assert!(held.release().unwrap().is_none());
    assert_eq!(folder.read("sys/a"), "100\n");
    assert!(rollback_own(&access, 1, "a test", Duration::ZERO).unwrap().is_empty());
}

#[test]
fn a_damaged_journal_is_refused_until_told_otherwise() {
    let folder = folder();
    apply(&folder.access(), &plan(), &options()).unwrap();
    let damaged = folder.read(JOURNAL).replace("/sys/b", "/sys/x");
    folder.put(JOURNAL, &damaged);
    let error = take_back(&folder, Which::All, Theirs::Keep).unwrap_err();
    assert!(error.to_string().contains("damaged") && error.to_string().contains("nothing was changed"), "{error}");
    assert_eq!(state(&folder), ["10\n", "20\n", "x [y]\n"]);
    assert!(matches!(transactions(&folder.access()).unwrap()[0].rest, Rest::Damaged { .. }));
    let mut options = RollbackOptions {
        command: "".into(),
        patience: Duration::ZERO,
        damaged: true,
        forget: false,
        theirs: Theirs::Keep,
        ask: None,
    };
    let rolled_back = rollback(&folder.access(), Which::All, &mut options).unwrap();
    assert_eq!(outcomes(&rolled_back[0]), [&Outcome::Restored; 2], "what the good lines say, before and after");
    assert_eq!(state(&folder), ["1\n", "20\n", "[x] y\n"]);
}

#[test]
fn an_unfinished_one_is_taken_back_by_the_next() {
    let folder = folder();
    apply(&folder.access(), &plan(), &options()).unwrap();
    // The process was killed before the last two records, so the change of sys/c is in doubt.
    let lines: Vec<String> = folder.read(JOURNAL).split_inclusive('\n').map(str::to_owned).collect();
    folder.put(JOURNAL, &lines[..lines.len() - 2].concat());
    assert!(transactions(&folder.access()).unwrap()[0].is_abandoned());
    let second = Plan::new("q").with(File::new("/sys/a"), Value::text("100"));
    let applied = apply(&folder.access(), &second, &options()).unwrap();
    assert_eq!(applied.recovered, [Recovered::TakenBack { id: 1 }]);
    assert_eq!(state(&folder), ["100\n", "2\n", "[x] y\n"]);
    take_back(&folder, Which::All, Theirs::Keep).unwrap();
    assert_eq!(folder.read("sys/a"), "1\n", "not what the unfinished one had left");
}

#[test]
fn held_for_a_measurement() {
    let folder = folder();
    let before = state(&folder);
    let held = Held::new(&folder.access(), &plan(), "a test", "0").unwrap();
    assert_eq!(state(&folder), ["10\n", "20\n", "x [y]\n"]);
    assert!(!transactions(&folder.access()).unwrap()[0].is_abandoned());
    assert!(held.release().unwrap().unwrap().closed);
    assert_eq!(state(&folder), before);
    drop(Held::new(&folder.access(), &plan(), "a test", "0").unwrap());
    assert_eq!(state(&folder), before);
}

#[test]
fn an_old_kernel_defers_the_interrupts_of_the_whole_device() {
    let folder = Folder::new(&[
        ("sys/class/net/eth0/napi_defer_hard_irqs", "0\n"),
        ("sys/class/net/eth0/gro_flush_timeout", "20000\n"),
        ("proc/sys/kernel/random/boot_id", "boot-1\n"),
    ]);
    let state =
        || ["napi_defer_hard_irqs", "gro_flush_timeout"].map(|file| folder.read(&format!("sys/class/net/eth0/{file}")));
    let wanted = NapiDeferral { defer_hard_irqs: 2, gro_flush_timeout: Nanos::from_millis(5) };
    let defer = |interface| Deferred::new(&folder.access(), interface, &[0], wanted, "a test", "0");
    let deferred = defer("eth0").unwrap();
    assert_eq!(*deferred.queues(), DeferredQueues::Device);
    assert_eq!(state(), ["2\n", "5000000\n"]);
    assert!(deferred.release().unwrap().unwrap().closed);
    assert_eq!(state(), ["0\n", "20000\n"]);
    let error = defer("eth1").unwrap_err().to_string();
    assert!(error.contains("/sys/class/net/eth1/napi_defer_hard_irqs"), "{error}");
}

#[test]
fn every_change_is_announced_on_disk_first() {
    use crate::knob::{Act, Gate};
    struct Order(std::sync::Mutex<Vec<String>>);
    impl Gate for Order {
        fn before(&self, act: &Act) {
            let object = act.object.rsplit('/').next().unwrap_or_default();
            self.0.lock().unwrap().push(format!("{} {object}", act.operation));
        }
    }
    let folder = folder();
    let order = Arc::new(Order(std::sync::Mutex::new(Vec::new())));
    apply(&folder.access().with_gate(order.clone()), &plan(), &options()).unwrap();
    let order = order.0.lock().unwrap();
    for setting in ["rename a", "rename b", "rename c"] {
        let done = order.iter().position(|act| act == setting).unwrap();
        let at = order[..done].iter().rposition(|act| act == "create .apus-new").unwrap();
        assert_eq!(order[at - 2..at], ["write 000001.journal", "fsync 000001.journal"], "{order:?}");
    }
    let create = order.iter().position(|act| act == "create 000001.journal").unwrap();
    assert_eq!(order[create + 1..create + 4], ["write 000001.journal", "fsync 000001.journal", "fsync tune"]);
}
