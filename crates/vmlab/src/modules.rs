//! The kernel modules that a guest gets: the requested ones, and those on which they depend.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::Error;
use super::cpio::Archive;
use super::packages::Base;

/// All modules of a kernel, by name (with `_` for `-`, as `lsmod` shows them).
pub(super) struct Modules {
    root: PathBuf,
    files: BTreeMap<String, PathBuf>,
    builtin: BTreeSet<String>,
}

impl Modules {
    /// Reads the modules of `base`.
    pub(super) fn read(base: &Base) -> Result<Self, Error> {
        let list = base.modules.join("modules.builtin");
        let builtin = fs::read_to_string(&list).map_err(|e| Error::system(format!("read {}", list.display()), e))?;
        let mut files = BTreeMap::new();
        collect(&base.modules.join("kernel"), &mut files)
            .map_err(|e| Error::system(format!("read {}", base.modules.display()), e))?;
        let builtin = builtin.lines().filter_map(|line| name_of(Path::new(line))).collect();
        Ok(Self { root: base.modules.clone(), files, builtin })
    }

    /// Adds `wanted`, and all modules that they need, to `archive`, with the `modules.dep` that modprobe(8) reads.
    /// Modules that are built into the kernel need no file.
    pub(super) fn add(&self, wanted: &[String], release: &str, archive: &mut Archive) -> Result<(), Error> {
        let mut chosen = BTreeMap::new();
        for name in wanted {
            self.choose(&canonical(name), &mut chosen)?;
        }
        let folder = format!("lib/modules/{release}");
        let mut table = String::new();
        for (path, module) in &chosen {
            let inside = path.strip_prefix(&self.root).unwrap_or(path).display().to_string();
            let needs = module.needs.iter().filter_map(|need| self.files.get(need));
            let needs: String =
                needs.map(|need| format!(" {}", need.strip_prefix(&self.root).unwrap_or(need).display())).collect();
            table += &format!("{inside}:{needs}\n");
            archive.file(&format!("{folder}/{inside}"), 0o644, module.data.clone());
        }
        archive.file(&format!("{folder}/modules.dep"), 0o644, table.into_bytes());
        for empty in ["modules.alias", "modules.symbols"] {
            archive.file(&format!("{folder}/{empty}"), 0o644, Vec::new());
        }
        Ok(())
    }

    fn choose(&self, name: &str, chosen: &mut BTreeMap<PathBuf, Module>) -> Result<(), Error> {
        if self.builtin.contains(name) {
            return Ok(());
        }
        let path = self.files.get(name).ok_or_else(|| {
            Error::invalid(
                format!("kernel module {name}"),
                "the guest's kernel has none of this name; see lsmod(8) for names",
            )
        })?;
        if chosen.contains_key(path) {
            return Ok(());
        }
        let data = fs::read(path).map_err(|e| Error::system(format!("read {}", path.display()), e))?;
        let direct = depends(&data)
            .ok_or_else(|| Error::invalid(path.display().to_string(), "it says nothing of what it depends on"))?;
        // All dependencies, the nearest first: busybox's modprobe loads the list from its end.
        let mut needs = direct.clone();
        chosen.insert(path.clone(), Module { data, needs: Vec::new() });
        for need in &direct {
            self.choose(need, chosen)?;
            if let Some(further) = self.files.get(need).and_then(|path| chosen.get(path)) {
                needs.extend(further.needs.iter().cloned());
            }
        }
        let mut seen = BTreeSet::new();
        needs.reverse();
        needs.retain(|need| seen.insert(need.clone()));
        needs.reverse();
        if let Some(module) = chosen.get_mut(path) {
            module.needs = needs;
        }
        Ok(())
    }
}

struct Module {
    data: Vec<u8>,
    needs: Vec<String>,
}

fn collect(folder: &Path, files: &mut BTreeMap<String, PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if let Some(name) = name_of(&path) {
            files.insert(name, path);
        }
    }
    Ok(())
}

/// The module name of a file: `acpi_cpufreq` for `…/acpi-cpufreq.ko`.
fn name_of(path: &Path) -> Option<String> {
    Some(canonical(path.file_name()?.to_str()?.strip_suffix(".ko")?))
}

fn canonical(name: &str) -> String {
    name.replace('-', "_")
}

/// Reads the entry `depends=` of the section `.modinfo`, whose entries end with a NUL; include/linux/moduleparam.h.
fn depends(module: &[u8]) -> Option<Vec<String>> {
    const KEY: &[u8] = b"\0depends=";
    let at = module.windows(KEY.len()).position(|window| window == KEY)? + KEY.len();
    let end = at + module[at..].iter().position(|&octet| octet == 0)?;
    let names = std::str::from_utf8(&module[at..end]).ok()?;
    Some(names.split(',').filter(|name| !name.is_empty()).map(canonical).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_read_from_the_module() {
        assert_eq!(depends(b"\x7fELF\0name=a\0depends=ptp,b-c\0x"), Some(vec!["ptp".into(), "b_c".into()]));
        assert_eq!(depends(b"\0depends=\0"), Some(Vec::new()));
        assert_eq!(depends(b"\0depend=a\0"), None);
        assert_eq!(depends(b"\0depends=a"), None);
    }

    fn tree() -> (PathBuf, Base) {
        let root = std::env::temp_dir().join(format!("apus-test-modules-{}", std::process::id()));
        let modules = root.join("lib/modules/6.1");
        fs::create_dir_all(modules.join("kernel/net")).unwrap();
        let module = |name: &str, needs: &str| {
            fs::write(modules.join("kernel").join(name), format!("\0depends={needs}\0")).unwrap();
        };
        module("net/a-b.ko", "c,d");
        module("c.ko", "d");
        module("d.ko", "");
        module("lost.ko", "nowhere");
        fs::write(modules.join("modules.builtin"), "kernel/hwmon.ko\n").unwrap();
        let base = Base { kernel: root.clone(), modules, release: "6.1".into(), busybox: root.clone() };
        (root, base)
    }

    #[test]
    fn what_a_module_needs_comes_with_it() {
        let (root, base) = tree();
        let modules = Modules::read(&base).unwrap();
        let mut archive = Archive::default();
        modules.add(&["a-b".into(), "hwmon".into()], "6.1", &mut archive).unwrap();
        let error = modules.add(&["lost".into()], "6.1", &mut Archive::default()).unwrap_err();
        fs::remove_dir_all(&root).unwrap();
        assert!(error.to_string().contains("kernel module nowhere"), "{error}");
        for path in ["net/a-b.ko", "c.ko", "d.ko"] {
            assert!(archive.contains(&format!("lib/modules/6.1/kernel/{path}")));
        }
        assert!(!archive.contains("lib/modules/6.1/kernel/lost.ko"));
        let text = String::from_utf8_lossy(&archive.bytes()).into_owned();
        assert!(text.contains("kernel/net/a-b.ko: kernel/c.ko kernel/d.ko\n"), "{text}");
    }
}
