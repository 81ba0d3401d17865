use super::*;
use crate::knob::{BootFragment, File, Limits};
use crate::testing::Folder;
use crate::transaction::{Outcome, State, transactions};

const MOVES: &str = "var/lib/apus/tune/000001.moves";
const LIMITS: &str = "sys/devices/system/cpu/cpufreq/policy0";

fn folder() -> Folder {
    Folder::new(&[
        ("sys/a", "1\n"),
        ("sys/b", "2\n"),
        (&format!("{LIMITS}/scaling_min_freq"), "800000\n"),
        (&format!("{LIMITS}/scaling_max_freq"), "3500000\n"),
        ("proc/sys/kernel/random/boot_id", "boot-1\n"),
    ])
}

fn steered(folder: &Folder, targets: &[Target]) -> Steered {
    Steered::new(&folder.access(), "steering", targets, "a test", "0").unwrap()
}

fn limits(fields: [&str; 1]) -> Target {
    Target::fields(Limits::new(0), fields)
}

fn two(folder: &Folder) -> Steered {
    steered(folder, &[File::new("/sys/a").into(), File::new("/sys/b").into()])
}

#[test]
fn moved_often_and_restored() {
    let folder = folder();
    let mut it = two(&folder);
    let journal = folder.read("var/lib/apus/tune/000001.journal");
    assert_eq!(it.original(1), Some(&Value::text("2")));
    for n in 10..200 {
        assert!(it.steer(0, &Value::text(n)).unwrap().is_good());
        assert_eq!(folder.read("sys/a"), format!("{n}\n"));
    }
    assert_eq!(folder.read("var/lib/apus/tune/000001.journal"), journal, "the journal does not grow");
    assert_eq!(folder.path(MOVES).metadata().unwrap().len(), 2 * 4096);
    let back = it.release().unwrap().unwrap();
    assert!(back.closed);
    assert_eq!((folder.read("sys/a"), folder.read("sys/b")), ("1\n".into(), "2\n".into()));
    assert!(!folder.path(MOVES).exists() && transactions(&folder.access()).unwrap().is_empty());
    drop(two(&folder));
    assert!(transactions(&folder.access()).unwrap().is_empty());
}

/// A queue that was not there when its interface was let go of is there again.
#[test]
fn what_could_not_be_restored_does_not_bar_the_way_back() {
    let folder = folder();
    let mut it = two(&folder);
    it.steer(0, &Value::text(10)).unwrap();
    it.steer(1, &Value::text(20)).unwrap();
    std::fs::remove_file(folder.path("sys/b")).unwrap();
    assert!(!it.release().unwrap().unwrap().closed);
    assert!(folder.read("var/lib/apus/tune/000001.journal").contains("released"), "for other processes");
    assert!(transactions(&folder.access()).unwrap()[0].is_abandoned());
    folder.put("sys/b", "20\n");
    let it = two(&folder);
    assert_eq!((it.original(0), it.original(1)), (Some(&Value::text("1")), Some(&Value::text("2"))));
    assert!(it.release().unwrap().unwrap().closed);
    assert!(transactions(&folder.access()).unwrap().is_empty());
}

/// Regression test: a queue that had its original timer, and then was no longer in use, counted as not restored.
#[test]
fn what_has_its_original_value_needs_no_restoring_where_it_is_gone() {
    let folder = folder();
    let mut it = two(&folder);
    it.steer(0, &Value::text(10)).unwrap();
    it.steer(1, &Value::text(20)).unwrap();
    it.steer(1, &Value::text(2)).unwrap();
    std::fs::remove_file(folder.path("sys/b")).unwrap();
    assert!(it.release().unwrap().unwrap().closed);
    assert_eq!(folder.read("sys/a"), "1\n");
    assert!(transactions(&folder.access()).unwrap().is_empty());
}

#[test]
fn what_had_no_time_to_be_restored_is_restored_at_the_next_beginning() {
    let folder = folder();
    let access = folder.access();
    let mut it = two(&folder);
    it.steer(0, &Value::text(10)).unwrap();
    let lock = crate::journal::Lock::take(&Vault::create(&access).unwrap(), "another", Duration::ZERO).unwrap();
    it.release_within(Duration::ZERO).unwrap_err();
    assert_eq!(folder.read("sys/a"), "10\n");
    drop(lock);
    let mut it = two(&folder);
    assert_eq!((it.original(0), folder.read("sys/a").as_str()), (Some(&Value::text("1")), "1\n"));
    // The new transaction has the number of the old one, and is not given up.
    assert_eq!(it.id(), Some(1));
    it.steer(0, &Value::text(30)).unwrap();
    assert!(!transactions(&access).unwrap()[0].is_abandoned());
    let error = Steered::new(&access, "x", &[File::new("/sys/a").into()], "a test", "0").unwrap_err();
    assert!(error.to_string().contains("holds it"), "{error}");
    assert!(it.release().unwrap().unwrap().closed);
}

#[test]
fn somebody_elses_change_is_left_alone() {
    let folder = folder();
    let mut it = two(&folder);
    assert_eq!(it.look(0).unwrap(), Look::Ours);
    it.steer(0, &Value::text(10)).unwrap();
    folder.put("sys/a", "77\n");
    let theirs = Moved::LetGo { now: Value::text("77") };
    assert_eq!(it.look(0).unwrap(), Look::LetGo { now: Value::text("77") });
    assert_eq!(it.steer(0, &Value::text(11)).unwrap(), theirs);
    // The setting stays given up even if they set it to the value that Apus set last.
    folder.put("sys/a", "10\n");
    assert_eq!(it.steer(0, &Value::text(11)).unwrap(), theirs);
    assert!(it.steer(1, &Value::text(20)).unwrap().is_good(), "the others are steered on");
    folder.put("sys/a", "77\n");
    let back = it.release().unwrap().unwrap();
    let outcomes: Vec<&Outcome> = back.entries.iter().map(|(_, outcome)| outcome).collect();
    assert_eq!((back.closed, outcomes), (true, vec![&Outcome::Restored]));
    assert_eq!((folder.read("sys/a"), folder.read("sys/b")), ("77\n".into(), "2\n".into()));
}

#[test]
fn only_the_fields_that_are_moved_are_ours() {
    let folder = folder();
    let mut it = steered(&folder, &[limits(["max"])]);
    it.steer(0, &Value::fields([("max", 2_000_000)])).unwrap();
    folder.put(&format!("{LIMITS}/scaling_min_freq"), "1000000\n");
    assert!(it.steer(0, &Value::fields([("max", 1_500_000)])).unwrap().is_good());
    let other = it.steer(0, &Value::fields([("min", 900_000)])).unwrap_err().to_string();
    assert!(other.contains("not steered"), "{other}");
    assert!(it.release().unwrap().unwrap().closed, "what is nobody's concern leaves nothing open");
    assert_eq!(folder.read(&format!("{LIMITS}/scaling_max_freq")), "3500000\n");
    assert_eq!(folder.read(&format!("{LIMITS}/scaling_min_freq")), "1000000\n", "theirs");
}

#[test]
fn the_journal_knows_what_is_ours_after_a_kill() {
    let folder = folder();
    let mut it = two(&folder);
    it.steer(0, &Value::text(10)).unwrap();
    it.steer(1, &Value::text(20)).unwrap();
    let states = || -> Vec<State> {
        let all = transactions(&folder.access()).unwrap();
        all[0].entries.iter().map(|entry| entry.state.clone()).collect()
    };
    assert_eq!(states(), [State::Ours(Value::text("10")), State::Ours(Value::text("20"))]);
    // After a kill in the middle of a move, any value counts as set by Apus.
    let number = it.slots[0].number;
    it.moves.begin(&it.vault, 0, number).unwrap();
    assert_eq!(states(), [State::InDoubt, State::Ours(Value::text("20"))]);
    folder.put("sys/a", "11\n");
    folder.put("sys/b", "99\n");
    drop(it);
    assert_eq!((folder.read("sys/a"), folder.read("sys/b")), ("1\n".into(), "99\n".into()));
}

#[test]
fn what_is_lent_is_written_by_another_and_restored() {
    use std::os::unix::fs::FileExt as _;
    let folder = folder();
    let states = || -> Vec<State> {
        let all = transactions(&folder.access()).unwrap();
        all[0].entries.iter().map(|entry| entry.state.clone()).collect()
    };
    // After a kill during the loan, any value counts as set by Apus.
    let mut it = two(&folder);
    let file = it.lend(0).unwrap();
    file.write_all_at(b"7\n", 0).unwrap();
    assert_eq!(states(), [State::InDoubt, State::Ours(Value::text("2"))]);
    assert_eq!(it.look(0).unwrap(), Look::Ours);
    drop(it);
    assert_eq!(folder.read("sys/a"), "1\n");
    // The last value is the one that was lent out, and nobody else set the setting.
    for last in ["8", "1"] {
        let mut it = two(&folder);
        it.lend(0).unwrap().write_all_at(format!("{last}\n").as_bytes(), 0).unwrap();
        assert_eq!(it.end_loan(0, &Value::text(last)).unwrap(), Look::Ours);
        assert!(it.release().unwrap().unwrap().closed);
        assert_eq!(folder.read("sys/a"), "1\n");
    }
    // Somebody else set it.
    let mut it = two(&folder);
    it.lend(0).unwrap().write_all_at(b"7\n", 0).unwrap();
    assert_eq!(it.end_loan(0, &Value::text("8")).unwrap(), Look::LetGo { now: Value::text("7") });
    drop(it);
    assert_eq!(folder.read("sys/a"), "7\n");
    assert!(transactions(&folder.access()).unwrap().is_empty());
}

#[test]
fn what_is_not_one_file_is_not_lent() {
    let folder = folder();
    let mut it = steered(&folder, &[limits(["max"]), File::new("/sys/b").into()]);
    assert!(it.lend(0).unwrap_err().to_string().contains("a file of its own"));
    std::fs::remove_file(folder.path("sys/b")).unwrap();
    assert!(it.lend(1).unwrap_err().is_absent() && it.lend(2).is_err());
}

#[test]
fn what_was_let_go_of_is_not_restored_after_a_kill() {
    let folder = folder();
    let mut it = two(&folder);
    it.steer(0, &Value::text(10)).unwrap();
    it.steer(1, &Value::text(20)).unwrap();
    folder.put("sys/a", "77\n");
    assert_eq!(it.look(0).unwrap(), Look::LetGo { now: Value::text("77") });
    // A setting that was given up stays unchanged, even with the value that Apus set last.
    folder.put("sys/a", "10\n");
    let states = || -> Vec<State> {
        let all = transactions(&folder.access()).unwrap();
        all[0].entries.iter().map(|entry| entry.state.clone()).collect()
    };
    assert_eq!(states(), [State::Undone, State::Ours(Value::text("20"))]);
    // Another controller may control the setting now.
    drop(steered(&folder, &[File::new("/sys/a").into()]));
    drop(it);
    assert_eq!((folder.read("sys/a"), folder.read("sys/b")), ("10\n".into(), "2\n".into()));
    assert!(transactions(&folder.access()).unwrap().is_empty());
}

#[test]
fn only_what_was_moved_is_looked_at() {
    let folder = folder();
    let mut it = steered(&folder, &[limits(["max"]), File::new("/sys/a").into()]);
    folder.put("sys/a", "5\n");
    folder.put(&format!("{LIMITS}/scaling_min_freq"), "1000000\n");
    assert_eq!([it.look(0).unwrap(), it.look(1).unwrap()], [Look::Ours, Look::Ours]);
    it.steer(0, &Value::fields([("max", 2_000_000)])).unwrap();
    folder.put(&format!("{LIMITS}/scaling_min_freq"), "900000\n");
    assert_eq!(it.look(0).unwrap(), Look::Ours);
    folder.put(&format!("{LIMITS}/scaling_max_freq"), "2100000\n");
    assert!(matches!(it.look(0).unwrap(), Look::LetGo { .. }));
}

#[test]
fn a_plan_does_not_set_what_is_steered() {
    use crate::transaction::{ApplyOptions, Plan, apply};
    let folder = folder();
    let it = two(&folder);
    let options = ApplyOptions {
        command: "a test".into(),
        version: "0".into(),
        patience: std::time::Duration::ZERO,
        lease: crate::journal::Lease::Open,
        keep_going: true,
    };
    let plan = |file: &str| Plan::new("a plan").with(File::new(file), Value::text("9"));
    let error = apply(&folder.access(), &plan("/sys/b"), &options).unwrap_err().to_string();
    assert!(error.contains(&format!("process {} holds it", std::process::id())), "{error}");
    assert_eq!(folder.read("sys/b"), "2\n");
    drop(it);
    apply(&folder.access(), &plan("/sys/b"), &options).unwrap();
}

#[test]
fn what_cannot_go_back_is_not_steered() {
    let folder = folder();
    let new = |targets: &[Target]| Steered::new(&folder.access(), "x", targets, "a test", "0").unwrap_err();
    let a = || Target::from(File::new("/sys/a"));
    for (settings, why) in [
        (vec![BootFragment {}.into()], "a reboot resets"),
        (vec![a(), a()], "twice"),
        (vec![a(), File::new("/sys/none").into()], "no such setting"),
        (vec![], "names no setting"),
    ] {
        let error = new(&settings).to_string();
        assert!(error.contains(why), "{error}");
        assert!(transactions(&folder.access()).unwrap().is_empty(), "{error}");
    }
}

/// A firmware limit reduces our speed to a value that is wanted next. The value must be written all the same;
/// otherwise the old speed returns when the limit ends.
#[test]
fn what_a_limit_holds_back_is_written() {
    #[derive(Default)]
    struct Speeds(std::sync::atomic::AtomicU32);
    impl crate::knob::Gate for Speeds {
        fn before(&self, act: &crate::knob::Act) {
            let is_speed = act.operation == "rename" && act.object.ends_with("scaling_setspeed");
            self.0.fetch_add(u32::from(is_speed), std::sync::atomic::Ordering::Relaxed);
        }
    }
    let folder = folder();
    let file = |name: &str| format!("{LIMITS}/{name}");
    folder.put(&file("scaling_governor"), "performance\n");
    folder.put(&file("scaling_setspeed"), "<unsupported>\n");
    let speeds = std::sync::Arc::new(Speeds::default());
    let access = folder.access().with_gate(speeds.clone());
    let governor = crate::knob::Governor::new(0);
    let mut steered = Steered::new(&access, "steering", &[governor.into()], "a test", "0").unwrap();
    let speed = |mhz: u64| crate::knob::Governor::set_speed(units::Hertz::new(mhz * 1_000_000));
    assert!(steered.steer(0, &speed(3_000)).unwrap().is_good());
    folder.put(&file("scaling_setspeed"), "2200000\n");
    folder.put(&file("bios_limit"), "2200000\n");
    assert_eq!(steered.look(0).unwrap(), Look::Ours);
    let written = || speeds.0.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(written(), 1);
    assert!(steered.steer(0, &speed(2_200)).unwrap().is_good());
    assert_eq!(written(), 2);
    assert!(steered.steer(0, &speed(2_200)).unwrap().is_good());
    assert_eq!(written(), 2, "it is ours now");
    assert!(steered.release().unwrap().unwrap().closed);
    assert_eq!(folder.read(&file("scaling_governor")), "performance\n");
}

/// A cooling device lowers the kernel's limits below the fixed frequency, and later no longer does.
#[test]
fn limits_that_the_kernel_lowers_and_raises_again_are_kept_and_restored() {
    let folder = folder();
    let mut it = steered(&folder, &[Limits::new(0).into()]);
    assert!(it.steer(0, &fixed(3_000_000)).unwrap().is_good());
    for khz in ["2400000\n", "1200000\n", "3000000\n", "2400000\n"] {
        put_limits(&folder, khz, khz);
        assert_eq!(it.look(0).unwrap(), Look::Ours, "{khz}");
    }
    assert!(it.release().unwrap().unwrap().closed);
    assert_eq!(limits_now(&folder), ["800000\n", "3500000\n"]);
}

/// The cooling device is already active when Apus fixes the frequency: the kernel shows the limit, and the fixed
/// frequency only when the limit ends.
#[test]
fn what_the_kernel_limits_at_once_is_ours_when_the_limit_ends() {
    let folder = folder();
    let (mut it, _) = clamped(&folder);
    assert_eq!(
        it.steer_within(0, &fixed(3_000_000), &mut Duration::default()).unwrap(),
        None,
        "the kernel may still carry it out"
    );
    assert_eq!(it.look(0).unwrap(), Look::Ours);
    assert_eq!(it.settle(0, false).unwrap(), None);
    let Some(Moved::Otherwise { why: Some(why), .. }) = it.settle(0, true).unwrap() else { panic!("no limit told") };
    assert!(why.contains("at most 2400000 kHz"), "{why}");
    assert_eq!(it.settle(0, true).unwrap(), None, "nothing is pending");
    put_limits(&folder, "3000000\n", "3000000\n");
    assert_eq!(it.look(0).unwrap(), Look::Ours);
    put_limits(&folder, "3100000\n", "3100000\n");
    assert!(matches!(it.look(0).unwrap(), Look::LetGo { .. }));
}

#[test]
fn a_pending_move_is_settled_when_the_machine_shows_it_and_rolled_back_before_that() {
    let folder = folder();
    let (mut it, hot) = clamped(&folder);
    assert_eq!(it.steer_within(0, &fixed(3_000_000), &mut Duration::default()).unwrap(), None);
    put_limits(&folder, "3000000\n", "3000000\n");
    assert!(it.settle(0, false).unwrap().unwrap().is_good());
    assert_eq!(it.steer_within(0, &fixed(2_900_000), &mut Duration::default()).unwrap(), None);
    let states = transactions(&folder.access()).unwrap()[0].entries[0].state.clone();
    assert_eq!(states, State::InDoubt);
    // Even if the kernel shows the original limits now, it may carry out the move later.
    put_limits(&folder, "800000\n", "3500000\n");
    hot.is_active.store(false, std::sync::atomic::Ordering::Relaxed);
    let back = it.release().unwrap().unwrap();
    assert_eq!((back.closed, &back.entries[0].1), (true, &Outcome::Restored));
}

/// Turbo was switched off meanwhile, so the hardware accepts less; the original limits are restored all the same.
#[test]
fn the_original_limits_are_set_although_the_hardware_has_less_now() {
    let folder = folder();
    let range = |most: &str| {
        folder.put(&format!("{LIMITS}/cpuinfo_min_freq"), "800000\n");
        folder.put(&format!("{LIMITS}/cpuinfo_max_freq"), most);
    };
    range("3500000\n");
    let mut it = steered(&folder, &[Limits::new(0).into()]);
    it.steer(0, &fixed(800_000)).unwrap();
    range("2100000\n");
    assert!(it.steer(0, &fixed(3_000_000)).unwrap_err().to_string().contains("800000 to 2100000"));
    let original = it.original(0).unwrap().clone();
    assert!(it.steer(0, &original).unwrap().is_good());
    assert_eq!(limits_now(&folder), ["800000\n", "3500000\n"]);
}

fn fixed(khz: u64) -> Value {
    Value::fields([("min", khz), ("max", khz)])
}

fn put_limits(folder: &Folder, min: &str, max: &str) {
    folder.put(&format!("{LIMITS}/scaling_min_freq"), min);
    folder.put(&format!("{LIMITS}/scaling_max_freq"), max);
}

fn limits_now(folder: &Folder) -> [String; 2] {
    ["min", "max"].map(|end| folder.read(&format!("{LIMITS}/scaling_{end}_freq")))
}

fn clamped(folder: &Folder) -> (Steered, std::sync::Arc<crate::testing::Hot>) {
    let (access, hot) = folder.hot();
    (Steered::new(&access, "steering", &[Limits::new(0).into()], "a test", "0").unwrap(), hot)
}

/// Somebody else sets another governor between our write and our reading. It counts as theirs, not as the result of
/// our write.
#[test]
fn a_governor_that_is_set_during_a_move_is_somebody_elses() {
    struct Interferes(std::path::PathBuf);
    impl crate::knob::Gate for Interferes {
        fn before(&self, act: &crate::knob::Act) {
            if act.operation == "rename" && act.object.ends_with("scaling_setspeed") {
                std::fs::write(&self.0, "powersave\n").unwrap();
            }
        }
    }
    let folder = folder();
    let file = |name: &str| format!("{LIMITS}/{name}");
    folder.put(&file("scaling_governor"), "performance\n");
    folder.put(&file("scaling_setspeed"), "<unsupported>\n");
    let interferes = std::sync::Arc::new(Interferes(folder.path(&file("scaling_governor"))));
    let access = folder.access().with_gate(interferes);
    let governor = crate::knob::Governor::new(0);
    let mut steered = Steered::new(&access, "steering", &[governor.into()], "a test", "0").unwrap();
    let speed = crate::knob::Governor::set_speed(units::Hertz::new(1_200_000_000));
    assert_eq!(steered.steer(0, &speed).unwrap(), Moved::LetGo { now: Value::text("powersave") });
    assert_eq!(steered.look(0).unwrap(), Look::LetGo { now: Value::text("powersave") });
    steered.release().unwrap();
    assert_eq!(folder.read(&file("scaling_governor")), "powersave\n");
}

#[test]
fn nobody_steers_what_another_process_holds() {
    let folder = folder();
    let it = two(&folder);
    let error = Steered::new(&folder.access(), "x", &[File::new("/sys/b").into()], "a test", "0").unwrap_err();
    assert!(error.to_string().contains(&format!("process {} holds it", std::process::id())), "{error}");
    drop(it);
    drop(steered(&folder, &[File::new("/sys/b").into()]));
}

#[test]
fn a_setting_that_is_gone_is_let_go_of() {
    let folder = folder();
    let mut it = two(&folder);
    it.steer(0, &Value::text(10)).unwrap();
    std::fs::remove_file(folder.path("sys/a")).unwrap();
    assert_eq!(it.steer(0, &Value::text(11)).unwrap(), Moved::Gone);
    folder.put("sys/a", "5\n");
    assert_eq!(it.steer(0, &Value::text(11)).unwrap(), Moved::Gone, "another one of the same name");
    assert!(it.steer(2, &Value::text(1)).unwrap_err().to_string().contains("2 settings are steered"));
}
