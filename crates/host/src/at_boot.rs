//! A systemd unit that applies a profile at each boot, because the kernel forgets settings.
//!
//! Source: systemd.service(5), systemd.unit(5), systemd-escape(1). The unit and its link are like those that `systemctl
//! enable` expects and creates, but can also be created below another root folder. They are not part of a transaction:
//! a rollback of settings leaves them in place, and [`disable`] removes them.

use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{AtFlags, Mode, OFlags};

use crate::knob::{Access, Error, config};
use crate::profile::systemd;

/// The command that runs at boot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AtBoot {
    /// The absolute path of the program.
    pub program: PathBuf,
    /// Arguments of the command, in order.
    pub arguments: Vec<String>,
    /// The interfaces that must exist before the command runs.
    pub interfaces: Vec<String>,
    /// The purpose of the unit, in one line.
    pub summary: String,
}

/// The result of enabling or disabling the unit.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Changed {
    /// Paths of the files and links that were written or removed, including the root folder.
    pub paths: Vec<String>,
    /// Why systemd failed to reload its units. `None` if it reloaded them, if nothing changed, or if systemd is not
    /// running.
    pub not_reloaded: Option<String>,
}

const FOLDER: &str = "/etc/systemd/system";
const NAME: &str = "apus-tune.service";
const UNIT: &str = "/etc/systemd/system/apus-tune.service";
const WANTS: &str = "/etc/systemd/system/multi-user.target.wants";
const TARGET: &str = "../apus-tune.service";
const HEAD: &str = "# Written by apus tune enable; apus tune disable removes it.\n";

impl AtBoot {
    /// The text of the unit file.
    pub fn unit(&self) -> String {
        let mut after =
            "systemd-modules-load.service systemd-sysctl.service network.target irqbalance.service".to_owned();
        let mut wants = String::new();
        for interface in &self.interfaces {
            let device = format!("sys-subsystem-net-devices-{}.device", escaped(interface));
            after.push_str(&format!(" {device}"));
            wants.push_str(&format!("Wants={device}\n"));
        }
        let program = self.program.display().to_string();
        let words: Vec<String> = std::iter::once(&program).chain(&self.arguments).map(|text| word(text)).collect();
        let summary = systemd::value(&self.summary);
        format!(
            "{HEAD}[Unit]\nDescription=Apus: {summary}\nDocumentation=man:systemd.service(5)\nAfter={after}\n{wants}\n\
             [Service]\nType=oneshot\nRemainAfterExit=yes\n\
             # 1: some settings were refused, or are not there; apus tune verify says which.\n\
             SuccessExitStatus=1\nExecStart={}\n\n[Install]\nWantedBy=multi-user.target\n",
            words.join(" ")
        )
    }

    /// Writes the unit file and the symbolic link that enables it, unless both already exist with the right content.
    pub fn enable(&self, access: &Access) -> Result<Changed, Error> {
        if !access.exists(FOLDER) {
            let why = format!("{} does not exist: this host has no systemd", access.show(FOLDER));
            return Err(Error::NotThere { what: "apply a profile at boot".into(), why });
        }
        let now = ours(access)?;
        let mut changed = Changed::default();
        let unit = self.unit();
        if now.as_deref() != Some(&unit) {
            config::replace(access, UNIT, Some(&unit))?;
            changed.paths.push(access.show(UNIT));
        }
        if link(access)?.as_deref() != Some(TARGET) {
            let what = || format!("link {}", access.show(&format!("{WANTS}/{NAME}")));
            let failed = |e: rustix::io::Errno| Error::of(what(), &e.into());
            unlink(access)?;
            if !access.exists(WANTS) {
                let parent = access.open(FOLDER, OFlags::PATH | OFlags::DIRECTORY, Mode::empty());
                let parent = parent.map_err(|e| Error::of(what(), &e))?;
                let name = WANTS.rsplit('/').next().unwrap_or(WANTS);
                let mkdir = || rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o755));
                access.act("mkdir", access.show(WANTS), mkdir).map_err(failed)?;
            }
            let folder = access.open(WANTS, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty());
            let folder = folder.map_err(|e| Error::of(what(), &e))?;
            access.act("symlink", what(), || rustix::fs::symlinkat(TARGET, &folder, NAME)).map_err(failed)?;
            access.act("fsync", what(), || rustix::fs::fsync(&folder)).map_err(failed)?;
            changed.paths.push(access.show(&format!("{WANTS}/{NAME}")));
        }
        Ok(reloaded(access, changed))
    }
}

/// Removes the systemd unit and the link that enables it.
pub fn disable(access: &Access) -> Result<Changed, Error> {
    let mut changed = Changed::default();
    let unit = ours(access)?;
    if link(access)?.is_some() {
        unlink(access)?;
        changed.paths.push(access.show(&format!("{WANTS}/{NAME}")));
    }
    if unit.is_some() {
        config::replace(access, UNIT, None)?;
        changed.paths.push(access.show(UNIT));
    }
    Ok(reloaded(access, changed))
}

/// The command that runs at boot. `None` if no profile is enabled.
pub fn enabled(access: &Access) -> Result<Option<String>, Error> {
    let linked = link(access)?.is_some();
    let unit = access.read(UNIT)?.filter(|_| linked);
    Ok(unit.and_then(|unit| unit.lines().find_map(|line| line.strip_prefix("ExecStart=").map(str::to_owned))))
}

/// Returns how users other than root could change or replace `file`, the program that root runs at each boot. `None` if
/// only root can change it.
pub fn changeable_by_others(file: &Path) -> std::io::Result<Option<String>> {
    use std::os::unix::fs::MetadataExt as _;
    // Both paths matter, the real one and the one given: a symbolic link on the way can be replaced too.
    let real = file.canonicalize()?;
    let sought = std::path::absolute(file)?.parent().map(Path::canonicalize).transpose()?;
    for path in real.ancestors().chain(sought.iter().flat_map(|folder| folder.ancestors())) {
        let found = path.metadata()?;
        if found.uid() != 0 {
            return Ok(Some(format!("{} belongs to user {}", path.display(), found.uid())));
        }
        let mode = found.mode();
        // In a folder with the sticky bit, users cannot rename or remove files of other users (unlink(2), EPERM).
        let keeps = found.is_dir() && mode & 0o1000 != 0;
        if !keeps && (mode & 0o002 != 0 || mode & 0o020 != 0 && found.gid() != 0) {
            return Ok(Some(format!("other users can write to {} (mode {:o})", path.display(), mode & 0o7777)));
        }
    }
    Ok(None)
}

/// Text of the unit file. `None` if it does not exist. Returns an error if Apus did not write it.
fn ours(access: &Access) -> Result<Option<String>, Error> {
    config::settle(access, UNIT)?;
    match access.read(UNIT)? {
        Some(text) if !text.starts_with(HEAD) => Err(Error::Refused {
            what: format!("write {}", access.show(UNIT)),
            why: "a unit of that name exists that Apus did not write".into(),
            fix: "move that unit away".into(),
        }),
        unit => Ok(unit),
    }
}

/// The target of the link. `None` if there is no link.
fn link(access: &Access) -> Result<Option<String>, Error> {
    let what = || format!("read the link {}", access.show(&format!("{WANTS}/{NAME}")));
    let folder = match access.open(WANTS, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()) {
        Ok(folder) => folder,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::of(what(), &e)),
    };
    match rustix::fs::readlinkat(&folder, NAME, Vec::new()) {
        Ok(to) => Ok(Some(to.to_string_lossy().into_owned())),
        Err(rustix::io::Errno::NOENT) => Ok(None),
        // Not a symbolic link: reported as a link with an empty target.
        Err(rustix::io::Errno::INVAL) => Ok(Some(String::new())),
        Err(e) => Err(Error::of(what(), &e.into())),
    }
}

fn unlink(access: &Access) -> Result<(), Error> {
    let what = || format!("remove {}", access.show(&format!("{WANTS}/{NAME}")));
    let Ok(folder) = access.open(WANTS, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()) else { return Ok(()) };
    match access.act("unlink", what(), || rustix::fs::unlinkat(&folder, NAME, AtFlags::empty())) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => Ok(()),
        Err(e) => Err(Error::of(what(), &e.into())),
    }
}

/// Makes the running systemd (sd_booted(3)) reload its units if something changed.
fn reloaded(access: &Access, changed: Changed) -> Changed {
    if !access.is_live() || changed.paths.is_empty() || !access.exists("/run/systemd/system") {
        return changed;
    }
    let not_reloaded =
        match access.act("systemctl", "daemon-reload", || Command::new("systemctl").arg("daemon-reload").output()) {
            Ok(output) if output.status.success() => None,
            Ok(output) => Some(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
            Err(e) => Some(format!("systemctl: {e}")),
        };
    Changed { not_reloaded, ..changed }
}

/// Quotes a word of a command line if necessary.
fn word(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+".contains(c);
    if !text.is_empty() && text.chars().all(plain) { text.to_owned() } else { systemd::word(text) }
}

/// Escapes a name for use in a device unit's name (systemd-escape(1)).
fn escaped(name: &str) -> String {
    let mut text = String::new();
    for (place, octet) in name.bytes().enumerate() {
        match octet {
            b'/' => text.push('-'),
            b'.' if place == 0 => text.push_str("\\x2e"),
            b if b.is_ascii_alphanumeric() || b":_.".contains(&b) => text.push(b.into()),
            b => text.push_str(&format!("\\x{b:02x}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Folder;

    fn at_boot(profile: &str) -> AtBoot {
        let arguments = ["tune", "apply", profile, "--yes"].map(str::to_owned).to_vec();
        let interfaces = vec!["ens1f0-a".to_owned()];
        let program = std::env::current_exe().unwrap();
        AtBoot { program, arguments, interfaces, summary: "100 % of it".into() }
    }

    #[test]
    fn it_comes_once_and_goes_without_a_trace() {
        let folder = Folder::new(&[("etc/systemd/system/other.service", "")]);
        let access = folder.access();
        let poll = at_boot("poll");
        assert_eq!((enabled(&access).unwrap(), disable(&access).unwrap()), (None, Changed::default()));
        assert_eq!(poll.enable(&access).unwrap().paths.len(), 2);
        assert_eq!(poll.enable(&access).unwrap(), Changed::default(), "nothing is left to do");
        assert!(enabled(&access).unwrap().unwrap().ends_with("tune apply poll --yes"));
        let link = folder.path(&format!("{WANTS}/{NAME}"));
        assert_eq!(std::fs::read_to_string(&link).unwrap(), poll.unit(), "the link leads to the unit");
        assert_eq!(at_boot("powersave").enable(&access).unwrap().paths, [access.show(UNIT)], "another takes its place");
        assert_eq!(disable(&access).unwrap().paths.len(), 2);
        assert!(!folder.path(UNIT).exists() && std::fs::symlink_metadata(link).is_err());
        assert!(folder.path("etc/systemd/system/other.service").exists());
        folder.put(UNIT, "[Unit]\n");
        assert!(poll.enable(&access).is_err() && disable(&access).is_err(), "someone else's");
        assert_eq!(folder.read(UNIT), "[Unit]\n");
        assert!(poll.enable(&Folder::new(&[]).access()).unwrap_err().is_absent());
    }

    #[test]
    fn who_may_change_a_file_is_said() {
        use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
        if !rustix::process::geteuid().is_root() {
            testkit::skip("root, whose files these have to be");
            return;
        }
        let folder = Folder::new(&[("etc/p.toml", ""), ("home/q.toml", "")]);
        let set = |path: &str, mode| {
            std::fs::set_permissions(folder.path(path), std::fs::Permissions::from_mode(mode)).unwrap();
        };
        let why = |path: &str| changeable_by_others(&folder.path(path)).unwrap();
        assert_eq!(why("etc/p.toml"), None);
        set("etc/p.toml", 0o664);
        assert_eq!(why("etc/p.toml"), None, "root's group");
        chown(folder.path("etc/p.toml"), None, Some(65_534)).unwrap();
        assert!(why("etc/p.toml").unwrap().contains("mode 664"));
        set("etc/p.toml", 0o644);
        set("etc", 0o777);
        assert!(why("etc/p.toml").unwrap().contains("etc (mode 777)"));
        set("etc", 0o1777);
        assert_eq!(why("etc/p.toml"), None, "of the sticky folder");
        chown(folder.path("home"), Some(65_534), None).unwrap();
        assert!(why("home/q.toml").unwrap().contains("belongs to user 65534"));
        symlink(folder.path("home/q.toml"), folder.path("etc/link.toml")).unwrap();
        symlink(folder.path("etc/p.toml"), folder.path("home/link.toml")).unwrap();
        assert!(why("etc/link.toml").is_some() && why("home/link.toml").is_some());
        assert!(changeable_by_others(&folder.path("nothing")).is_err());
    }

    #[test]
    fn words_mean_what_they_say() {
        for (text, word_of) in [
            ("poll", "poll"),
            ("/srv/a b.toml", "\"/srv/a b.toml\""),
            ("5%$X", "\"5%%$$X\""),
            ("a\"\\", "\"a\\\"\\\\\""),
            ("", "\"\""),
            ("a\rb\nc", "\"a\\x0db\\x0ac\""),
        ] {
            assert_eq!(word(text), word_of);
        }
        assert_eq!(escaped("ens1f0-a.5"), "ens1f0\\x2da.5");
    }

    /// A carriage return in the summary once added a line to the unit file: systemd ends a line there too, and ran
    /// `/bin/evil` at each boot.
    #[test]
    fn a_summary_adds_no_line() {
        let unit = AtBoot { summary: "x\rExecStart=/bin/evil\n[Service]\u{2028}y \\".into(), ..at_boot("a\rb") }.unit();
        let lines: Vec<&str> = unit.split(['\r', '\n']).filter(|line| line.starts_with("ExecStart=")).collect();
        assert_eq!(lines.len(), 1, "{unit}");
        assert!(lines[0].ends_with("apply \"a\\x0db\" --yes"), "{unit}");
        assert!(unit.contains("\nDescription=Apus: x ExecStart=/bin/evil [Service] y\nDocumentation="), "{unit}");
    }

    #[test]
    fn systemd_takes_it() {
        let folder = Folder::new(&[("etc/systemd/system/x", "")]);
        for profile in ["poll", "/srv/my profile, 5% \"$x\".toml"] {
            at_boot(profile).enable(&folder.access()).unwrap();
            let verify = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(folder.path(UNIT)).output();
            let Ok(output) = verify else {
                testkit::skip("systemd-analyze (apt-get install systemd)");
                return;
            };
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success() && !said.contains(NAME), "{said}");
        }
    }
}
