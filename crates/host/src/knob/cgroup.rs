//! Control groups: version 2 with isolated partitions, and version 1 cpusets.
//!
//! Source: kernel documentation, admin-guide/cgroup-v2, "Cpuset", and admin-guide/cgroup-v1/cpusets.

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::thread::CapabilitySet;
use serde::{Deserialize, Serialize};

use super::file::text;
use super::irq::same_list;
use super::{Access, Error, Setting, Value};

/// Whether a control group exists: `present` or `absent`. A group can be removed only if it has no tasks and no
/// children.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct CgroupFolder {
    /// The group's folder, below a mounted hierarchy: `/sys/fs/cgroup/apus`.
    pub path: String,
}

/// Whether a controller is enabled for the children of a control group (version 2): `on` or `off`.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct CgroupController {
    /// Path of the control group's folder.
    pub path: String,
    /// Name of the controller, for example `cpuset`.
    pub controller: String,
}

/// A file of a control group: `cpuset.cpus`, `cpuset.mems`, `cpuset.cpus.partition` or `cpuset.sched_load_balance`.
///
/// If the kernel cannot make a partition, `cpuset.cpus.partition` shows `isolated invalid (reason)` instead of the
/// wanted value.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct CgroupFile {
    /// The file's path.
    pub path: String,
}

/// A mounted control group hierarchy with the controller cpuset.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CpusetMount {
    /// The hierarchy's mount point.
    pub path: String,
    /// Whether this is a version 2 hierarchy.
    pub v2: bool,
}

/// Finds the mounted hierarchy that has the controller cpuset. `None` if there is none.
pub fn cpuset_mount(access: &Access) -> Result<Option<CpusetMount>, Error> {
    let mounts = access.read("/proc/mounts")?.unwrap_or_default();
    let mut v2 = None;
    for line in mounts.lines() {
        let mut words = line.split(' ').skip(1);
        let (Some(path), Some(kind), Some(options)) = (words.next(), words.next(), words.next()) else { continue };
        if kind == "cgroup" && options.split(',').any(|option| option == "cpuset") {
            return Ok(Some(CpusetMount { path: path.to_owned(), v2: false }));
        }
        if kind == "cgroup2" {
            v2 = Some(path.to_owned());
        }
    }
    let Some(path) = v2 else { return Ok(None) };
    let controllers = access.line(&format!("{path}/cgroup.controllers"))?.unwrap_or_default();
    let has = controllers.split_whitespace().any(|controller| controller == "cpuset");
    Ok(has.then_some(CpusetMount { path, v2: true }))
}

fn check_path(path: &str) -> Result<(), Error> {
    if path.starts_with("/sys/fs/cgroup/") && super::is_plain(path) {
        return Ok(());
    }
    Err(Error::invalid(path, "a control group is a folder below /sys/fs/cgroup"))
}

impl Setting for CgroupFolder {
    fn label(&self) -> String {
        format!("control group {}", self.path)
    }

    /// `present` or `absent`. `None` if the group's parent does not exist either.
    fn read(&self, access: &Access) -> Result<Option<Value>, Error> {
        let parent = self.path.rsplit_once('/').map_or("/", |(parent, _)| parent);
        if access.exists(&self.path) {
            return Ok(Some(Value::text("present")));
        }
        Ok(access.exists(parent).then(|| Value::text("absent")))
    }

    fn write(&self, access: &Access, value: &Value) -> Result<(), Error> {
        let what = format!("make {} {value}", self.label());
        let (parent, name) = self.path.rsplit_once('/').unwrap_or(("/", &self.path));
        let folder =
            access.open(parent, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).map_err(|e| Error::of(&what, &e))?;
        let done = if value.as_text() == Some("present") {
            access.act("mkdir", &what, || rustix::fs::mkdirat(&folder, name, Mode::from_raw_mode(0o755)))
        } else {
            access.act("rmdir", &what, || rustix::fs::unlinkat(&folder, name, AtFlags::REMOVEDIR))
        };
        match done {
            Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
            Err(e) => Err(match Error::of(&what, &e.into()) {
                Error::Refused { what, why, .. } => Error::Refused {
                    what,
                    why,
                    fix: "move its tasks out (write their PIDs to cgroup.procs of the parent) and remove its children"
                        .into(),
                },
                other => other,
            }),
        }
    }

    fn capability(&self) -> CapabilitySet {
        // Nobody has write permission for the hierarchy's top folder (kernel/cgroup/cgroup.c: its mode is 0555).
        CapabilitySet::DAC_OVERRIDE
    }

    fn admit(&self) -> Result<(), Error> {
        check_path(&self.path)
    }

    fn check(&self, _: &Access, value: &Value) -> Result<(), Error> {
        self.admit()?;
        match text(&self.path, value)? {
            "present" | "absent" => Ok(()),
            other => Err(Error::invalid(self.label(), format!("{other:?}: expected present or absent"))),
        }
    }
}

impl Setting for CgroupController {
    fn label(&self) -> String {
        format!("controller {} for the children of {}", self.controller, self.path)
    }

    fn read(&self, access: &Access) -> Result<Option<Value>, Error> {
        let names = |file: &str| access.line(&format!("{}/{file}", self.path));
        let Some(able) = names("cgroup.controllers")? else { return Ok(None) };
        let has = |list: &str| list.split_whitespace().any(|name| name == self.controller);
        if !has(&able) {
            return Ok(None);
        }
        let on = names("cgroup.subtree_control")?.is_some_and(|list| has(&list));
        Ok(Some(Value::text(if on { "on" } else { "off" })))
    }

    fn write(&self, access: &Access, value: &Value) -> Result<(), Error> {
        let sign = if value.as_text() == Some("on") { '+' } else { '-' };
        access.write(&format!("{}/cgroup.subtree_control", self.path), &format!("{sign}{}", self.controller))
    }

    fn admit(&self) -> Result<(), Error> {
        check_path(&format!("{}/x", self.path))?;
        if self.controller == "cpuset" {
            return Ok(());
        }
        Err(Error::invalid(self.label(), "only the controller cpuset can be set"))
    }

    fn check(&self, _: &Access, value: &Value) -> Result<(), Error> {
        self.admit()?;
        match text(&self.path, value)? {
            "on" | "off" => Ok(()),
            other => Err(Error::invalid(self.label(), format!("{other:?}: expected on or off"))),
        }
    }

    fn files(&self, _: &Access, wanted: &Value) -> Result<Vec<(String, String)>, Error> {
        let sign = if wanted.as_text() == Some("on") { '+' } else { '-' };
        Ok(vec![(format!("{}/cgroup.subtree_control", self.path), format!("{sign}{}", self.controller))])
    }
}

impl CgroupFile {
    /// Makes the setting for the file `name` of the group at `folder`.
    pub fn new(folder: &str, name: &str) -> Self {
        Self { path: format!("{folder}/{name}") }
    }
}

impl Setting for CgroupFile {
    fn label(&self) -> String {
        self.path.clone()
    }

    fn line_file(&self) -> Option<String> {
        Some(self.path.clone())
    }

    fn admit(&self) -> Result<(), Error> {
        check_path(&self.path)?;
        if self.path.rsplit('/').next().is_some_and(|name| name.starts_with("cpuset.")) {
            return Ok(());
        }
        Err(Error::invalid(self.label(), "only the files cpuset.* of a control group can be set"))
    }

    fn check(&self, _: &Access, value: &Value) -> Result<(), Error> {
        self.admit()?;
        text(&self.path, value).map(|_| ())
    }

    fn same(&self, _: Option<&str>, a: &str, b: &str) -> bool {
        let lists = ["cpuset.cpus", "cpuset.mems", "cpuset.cpus.exclusive"];
        let is_list = self.path.rsplit('/').next().is_some_and(|name| lists.contains(&name));
        if is_list { same_list(a, b) } else { a == b }
    }

    fn explain(&self, _: &Access, _: &Value, now: &Value) -> Option<String> {
        let (_, reason) = now.as_text()?.split_once(" invalid")?;
        Some(format!("the kernel reports invalid{reason}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knob::{Knob, Restored, Theirs, Verdict};
    use crate::testing::Folder;

    #[test]
    fn finds_either_version() {
        let v1 = "cgroup /sys/fs/cgroup/cpuset cgroup rw,relatime,cpuset 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        let folder = Folder::new(&[("proc/mounts", v1)]);
        let mount = cpuset_mount(&folder.access()).unwrap().unwrap();
        assert_eq!((mount.path.as_str(), mount.v2), ("/sys/fs/cgroup/cpuset", false));
        let v2 = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n";
        let folder = Folder::new(&[("proc/mounts", v2), ("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io\n")]);
        assert!(cpuset_mount(&folder.access()).unwrap().unwrap().v2);
        let folder = Folder::new(&[("proc/mounts", v2), ("sys/fs/cgroup/cgroup.controllers", "\n")]);
        assert_eq!(cpuset_mount(&folder.access()).unwrap(), None, "version 1 has taken cpuset away");
    }

    #[test]
    fn groups_come_and_go() {
        let folder = Folder::new(&[("sys/fs/cgroup/x", "")]);
        let access = folder.access();
        let knob = Knob(CgroupFolder { path: "/sys/fs/cgroup/apus".into() });
        let change = knob.set(&access, &Value::text("present")).unwrap();
        assert!(change.verdict.is_good() && folder.path("sys/fs/cgroup/apus").is_dir());
        let restored = knob.restore(&access, &change.before, change.verdict.now(), Theirs::Keep).unwrap();
        assert_eq!(restored, Restored::Restored);
        assert!(!folder.path("sys/fs/cgroup/apus").exists());
        let nowhere = Knob(CgroupFolder { path: "/sys/fs/cgroup/a/b".into() });
        assert_eq!(nowhere.read(&access).unwrap(), None);
        assert!(Knob(CgroupFolder { path: "/sys/../etc".into() }).set(&access, &Value::text("present")).is_err());
    }

    #[test]
    fn an_invalid_partition_is_no_partition() {
        let file = CgroupFile::new("/sys/fs/cgroup/apus", "cpuset.cpus.partition");
        let shown = "isolated invalid (Cpu list in cpuset.cpus not exclusive)\n";
        let folder = Folder::new(&[(&file.path, shown)]);
        let verdict =
            Knob(file).verify(&folder.access(), &Value::text("isolated"), Some(&Value::text("member"))).unwrap();
        let Verdict::Otherwise { why: Some(why), .. } = verdict else { panic!("{verdict:?}") };
        assert!(why.contains("not exclusive"), "{why}");
    }
}
