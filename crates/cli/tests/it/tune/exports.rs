//! Exports, taken by the engines that they are for: systemd's own checker and its sysctl program, Ansible, tuned. On the
//! running kernel, in a network namespace and a mount namespace of the test's own, as root; what they changed of the
//! machine is put back.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::lab::{Bed, Profile, State, differences, steady};
use super::{PutBack, expect};
use crate::support::{Running, text};

/// Everything that an engine may trip over: a choice, masks, a file and an interface that are not there, a value with signs
/// that mean something to a shell, to systemd, to tuned and to Jinja, and such a summary.
const KEYS: &str = r##"
[sysctl]
"vm.stat_interval" = 7
"net.core.somaxconn" = 333
"kernel.core_pattern" = 'core.%e $p {{ 7*7 }} # "x" `id`'
"kernel.apus_is_not_here" = 1
[sysfs]
"/sys/kernel/mm/ksm/sleep_millisecs" = 33
"/sys/kernel/apus_is_not_here" = 1
[memory]
transparent_huge_pages = "never"
defrag = "never"
[interrupts]
default = "housekeeping"
all = "housekeeping"
[workqueues]
cpus = "housekeeping"
[network.dut0]
features = { rx-gro = "off", tx-tcp-segmentation = "off" }
rps_cpus = "0"
[network.gone0]
features = { rx-gro = "off" }
"##;

const SUMMARY: &str =
    r#"a "summary" 'of' %n %% {{ lookup('pipe', 'touch /tmp/apus-pwned') }} ${f:exec:id} $(id) # [sysctl] \"#;

/// An export in a folder, and what puts the machine back.
struct Exported {
    // Before the bed, which lets others change the machine.
    _put_back: PutBack,
    bed: Bed,
    profile: Profile,
    folder: PathBuf,
    left_out: String,
    before: State,
}

impl Exported {
    fn new(name: &str, format: &str) -> Option<Self> {
        let bed = Bed::new(name)?;
        let before = steady(&bed);
        let files = before.iter().filter(|(path, _)| path.is_absolute());
        let put_back = PutBack::new(files.map(|(path, octets)| (path.clone(), octets.clone())).collect());
        let profile = Profile::with(name, SUMMARY, KEYS);
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("export-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let words = ["tune", "export", profile.path(), "--isolated", "1", "--format", format, "-o"];
        let output = bed.apus(&[&words[..], &[folder.to_str().unwrap()]].concat());
        expect(&output, 0);
        let left_out = text(&output.stderr).to_owned();
        Some(Self { _put_back: put_back, bed, profile, folder, left_out, before })
    }

    /// The only file whose name ends so.
    fn file(&self, end: &str) -> PathBuf {
        let mut folders = vec![self.folder.clone()];
        while let Some(folder) = folders.pop() {
            for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                match path.is_dir() {
                    true => folders.push(path),
                    false if path.to_str().unwrap().ends_with(end) => return path,
                    false => {}
                }
            }
        }
        panic!("no {end} in {}", self.folder.display());
    }

    /// Every setting is as the profile wants it, is not there, or was named as left out.
    fn judge(&self) {
        let (_, verified) = self.bed.json(&["tune", "verify", self.profile.path(), "--isolated", "1"]);
        let items = verified["items"].as_array().unwrap();
        let named = |word: &str| items.iter().filter(|item| item["meets"] == word).collect::<Vec<_>>();
        assert!(named("as_wanted").len() >= 8, "{verified:#}");
        for item in [named("change"), named("refused")].concat() {
            let label = item["setting"].as_str().unwrap();
            assert!(self.left_out.contains(label), "{label} was not set: {item:#}\n{}", self.left_out);
        }
        assert!(!Path::new("/tmp/apus-pwned").exists(), "a summary was carried out");
    }
}

impl Drop for Exported {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The words of a command line as systemd.service(5), "Command lines", makes them.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut inside) = (Vec::new(), None::<String>, false);
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => {
                inside = !inside;
                word.get_or_insert_default();
            }
            ' ' if !inside => words.extend(word.take()),
            '\\' => word.get_or_insert_default().push(match chars.next().unwrap() {
                c @ ('\\' | '"') => c,
                other => panic!("\\{other} is not expected"),
            }),
            '%' | '$' => {
                assert_eq!(chars.next(), Some(c), "a specifier or a variable in {line}");
                word.get_or_insert_default().push(c);
            }
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// Runs each line of the unit, one after the other, as the service manager does with `Type=oneshot`: the exit status of
/// the first that fails, and all that was said.
fn start(bed: &Bed, unit: &Path) -> (Option<i32>, String) {
    let unit = fs::read_to_string(unit).unwrap();
    let mut said = String::new();
    for line in unit.lines().filter_map(|line| line.strip_prefix("ExecStart=")) {
        let words = words(line);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let output = bed.within(words[0], &words[1..]);
        said += &format!("{}{}", text(&output.stdout), text(&output.stderr));
        if !output.status.success() {
            return (output.status.code(), said);
        }
    }
    (Some(0), said)
}

#[test]
fn systemd_takes_its_unit() {
    const SYSCTL: &str = "/lib/systemd/systemd-sysctl";
    if !Path::new(SYSCTL).exists() || Command::new("systemd-analyze").arg("--version").output().is_err() {
        return testkit::skip("systemd-analyze and systemd-sysctl are missing: apt-get install systemd");
    }
    let Some(exported) = Exported::new("sysd", "systemd") else { return };
    let unit = exported.file(".service");
    let output = Command::new("systemd-analyze").arg("verify").arg(&unit).output().unwrap();
    assert_eq!(expect(&output, 0), "", "{}", fs::read_to_string(&unit).unwrap());
    expect(&exported.bed.within(SYSCTL, &[exported.file(".conf").to_str().unwrap()]), 0);
    let (code, said) = start(&exported.bed, &unit);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("not here: /sys/kernel/apus_is_not_here"), "{said}");
    assert!(said.contains("not here: /sys/class/net/gone0"), "{said}");
    exported.judge();
    // What is refused stops nothing, and fails the unit with its name.
    let keys = "[sysfs]\n\"/sys/kernel/mm/ksm/run\" = 9\n\"/sys/kernel/mm/ksm/sleep_millisecs\" = 34\n";
    let refused = Profile::new("refused", keys);
    let words = ["tune", "export", refused.path(), "--format", "systemd"];
    let folder = exported.folder.join("refused");
    expect(&exported.bed.apus(&[&words[..], &["-o", folder.to_str().unwrap()]].concat()), 0);
    let unit = fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
    let (code, said) = start(&exported.bed, &unit);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.ends_with("refused:\n/sys/kernel/mm/ksm/run\n"), "{said}");
    assert_eq!(fs::read_to_string("/sys/kernel/mm/ksm/sleep_millisecs").unwrap(), "34\n");
}

#[test]
fn ansible_changes_nothing_the_second_time() {
    let own = std::env::home_dir().unwrap_or_default().join(".cache/apus/ansible/bin/ansible-playbook");
    let program = ["ansible-playbook".into(), own].into_iter().find(|program: &PathBuf| {
        Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
    });
    let Some(program) = program else {
        return testkit::skip("ansible-playbook is missing: tools/setup.sh ci");
    };
    let Some(exported) = Exported::new("ansi", "ansible") else { return };
    let playbook = exported.file(".yml");
    // Twice in one mount namespace, whose /etc/sysctl.d is its own.
    const TWICE: &str = "mount -t tmpfs apus /etc/sysctl.d && mount -t tmpfs apus /etc/default && \
                         for run in 1 2; do \"$0\" -i localhost, -c local -e ansible_python_interpreter=/usr/bin/python3 \"$1\" || exit; done; cat /etc/sysctl.d/*";
    let words = ["-c", TWICE, program.to_str().unwrap(), playbook.to_str().unwrap()];
    let said = expect(&exported.bed.within("sh", &words), 0);
    let runs: Vec<&str> = said.lines().filter(|line| line.contains("changed=")).collect();
    let count = |line: &str, key: &str| {
        let found = line.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
        found.unwrap().parse::<u32>().unwrap()
    };
    assert_eq!(runs.len(), 2, "{said}");
    assert!(count(runs[0], "changed") >= 5 && count(runs[0], "failed") == 0, "{said}");
    assert_eq!((count(runs[1], "changed"), count(runs[1], "failed")), (0, 0), "{said}");
    assert!(said.contains("\nkernel.core_pattern = core.%e $p {{ 7*7 }} # \"x\" `id`\n"), "{said}");
    exported.judge();
}

#[test]
fn tuned_applies_and_rolls_back() {
    if !Path::new("/usr/sbin/tuned").exists() {
        return testkit::skip("tuned is missing: tools/setup.sh ci");
    }
    let Some(exported) = Exported::new("tuned", "tuned") else { return };
    let conf = exported.file("tuned.conf");
    let (profile, log) = (conf.parent().unwrap(), exported.folder.join("log"));
    let name = profile.file_name().unwrap().to_str().unwrap();
    // tuned without D-Bus, on its own configuration; it stays in the foreground.
    const START: &str = "mount -t tmpfs apus /etc/tuned && cp -r \"$1\" /etc/tuned/ && \
                         printf 'enable_dbus = 0\\nenable_unix_socket = 0\\ndynamic_tuning = 0\\n' >/etc/tuned/tuned-main.conf && \
                         mkdir -p /run/tuned && mount -t tmpfs apus /run/tuned && \
                         exec /usr/sbin/tuned --profile \"$2\" --log \"$3\" --pid /run/tuned/tuned.pid";
    let words = ["-c", START, "sh", profile.to_str().unwrap(), name, log.to_str().unwrap()];
    let mut tuned = Running(exported.bed.command("sh", &words).stderr(Stdio::piped()).spawn().unwrap());
    let told = || fs::read_to_string(&log).unwrap_or_default();
    let deadline = Instant::now() + Duration::from_secs(120);
    while !told().contains(&format!("'{name}' applied")) {
        let ended = tuned.0.try_wait().unwrap();
        if ended.is_some() || Instant::now() > deadline {
            let mut said = String::new();
            let _ = tuned.0.kill();
            tuned.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            panic!("{ended:?}: {said}\n{}", told());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    exported.judge();
    tuned.signal(rustix::process::Signal::TERM);
    tuned.0.wait().unwrap();
    // It rolls back what it set: also what its script did.
    assert_eq!(differences(&exported.before, &exported.bed), Vec::<String>::new(), "{}", told());
    // It complains of the one sysctl that is not there, as it should, and of nothing else.
    let errors: Vec<String> = told().lines().filter(|line| line.contains("ERROR")).map(str::to_owned).collect();
    assert!(errors.iter().all(|line| line.contains("kernel.apus_is_not_here")), "{errors:#?}");
}
