//! Notes on disk of what was changed, for the next start if this one is killed.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use units::Nanos;

use crate::Error;

use super::config::NapiDeferral;
use super::interface::namespace;

/// Where the notes lie.
const FOLDER: &str = "/run/apus/napi";

/// What one NAPI's settings were, before this process changed them.
#[derive(Debug)]
pub(super) struct Note {
    path: PathBuf,
    content: Content,
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content {
    /// Interface numbers and NAPI ids mean something only in one boot and one namespace.
    boot: String,
    namespace: String,
    ifindex: u32,
    napi: u32,
    defer_hard_irqs: u32,
    gro_flush_timeout_ns: u64,
    /// Who changed it: a pid, and as pids come again, when that process started (clock ticks after
    /// the boot; proc(5), /proc/pid/stat field 22).
    owner: u32,
    owner_started: u64,
}

impl Note {
    /// Writes a note, and makes sure that it is on disk.
    pub(super) fn write(ifindex: u32, napi: u32, was: NapiDeferral) -> Result<Self, Error> {
        let owner = std::process::id();
        let content = Content {
            boot: boot()?,
            namespace: namespace()?,
            ifindex,
            napi,
            defer_hard_irqs: was.defer_hard_irqs,
            gro_flush_timeout_ns: was.gro_flush_timeout.as_nanos(),
            owner,
            owner_started: started(owner)
                .ok_or_else(|| Error::system("read /proc/self/stat", io::Error::other("no start time in it")))?,
        };
        Self::write_in(Path::new(FOLDER), content)
    }

    fn write_in(folder: &Path, content: Content) -> Result<Self, Error> {
        let number: String = content.namespace.chars().filter(char::is_ascii_digit).collect();
        let path = folder.join(format!("{number}-{}-{}.json", content.ifindex, content.napi));
        let write = || {
            fs::create_dir_all(folder)?;
            let text = serde_json::to_string(&content).map_err(io::Error::other)?;
            let draft = path.with_extension(format!("draft-{}", content.owner));
            let mut file = File::create(&draft)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&draft, &path)?;
            File::open(folder)?.sync_all()
        };
        write().map_err(|e| Error::system(format!("note the NAPI settings in {}", path.display()), e))?;
        Ok(Self { path, content })
    }

    pub(super) fn napi(&self) -> u32 {
        self.content.napi
    }

    /// What was.
    pub(super) fn settings(&self) -> NapiDeferral {
        NapiDeferral {
            defer_hard_irqs: self.content.defer_hard_irqs,
            gro_flush_timeout: Nanos::from_nanos(self.content.gro_flush_timeout_ns),
        }
    }

    pub(super) fn remove(self) -> Result<(), Error> {
        fs::remove_file(&self.path).map_err(|e| Error::system(format!("remove {}", self.path.display()), e))
    }
}

/// The notes of all instances.
pub(super) struct Notes;

impl Notes {
    /// Those about `ifindex` in this namespace whose owner is dead. Removes those of earlier boots,
    /// which are about nothing any more.
    pub(super) fn left_behind(ifindex: u32) -> Result<Vec<Note>, Error> {
        Self::left_behind_in(Path::new(FOLDER), &boot()?, &namespace()?, ifindex)
    }

    fn left_behind_in(folder: &Path, boot: &str, namespace: &str, ifindex: u32) -> Result<Vec<Note>, Error> {
        let failed = |e| Error::system(format!("read the notes in {}", folder.display()), e);
        let entries = match fs::read_dir(folder) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed)?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let path = entry.map_err(failed)?.path();
            if path.extension().is_none_or(|e| e != "json") {
                continue; // a draft, whose writer changed nothing yet
            }
            let text = match fs::read_to_string(&path) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue, // its owner was faster
                text => text.map_err(failed)?,
            };
            let content: Content = serde_json::from_str(&text).map_err(|e| Error::Invalid {
                what: format!("the note {}", path.display()),
                why: format!("{e}; remove it, and see to the NAPI settings by hand"),
            })?;
            let note = Note { path, content };
            if note.content.boot != boot {
                note.remove()?;
            } else if note.content.namespace == namespace
                && note.content.ifindex == ifindex
                && started(note.content.owner) != Some(note.content.owner_started)
            {
                found.push(note);
            }
        }
        Ok(found)
    }
}

fn boot() -> Result<String, Error> {
    const PATH: &str = "/proc/sys/kernel/random/boot_id";
    let id = fs::read_to_string(PATH).map_err(|e| Error::system(format!("read {PATH}"), e))?;
    Ok(id.trim().to_owned())
}

/// When the process started; `None` if there is none.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, field 2, is in parentheses and may hold anything; field 22 is the 20th after it.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_notes_of_the_dead_only() {
        let folder = std::env::temp_dir().join(format!("apus-notes-{}", std::process::id()));
        let me = std::process::id();
        let living = Content {
            boot: "b1".into(),
            namespace: "net:[7]".into(),
            ifindex: 3,
            napi: 100,
            defer_hard_irqs: 1,
            gro_flush_timeout_ns: 20_000,
            owner: me,
            owner_started: started(me).unwrap(),
        };
        // The same pid, but another process: dead.
        let dead = Content { napi: 101, owner_started: living.owner_started + 1, ..living.clone() };
        let elsewhere = Content { namespace: "net:[8]".into(), ..dead.clone() };
        let other_port = Content { ifindex: 4, ..dead.clone() };
        let other_boot = Content { boot: "b0".into(), napi: 102, ..dead.clone() };
        for content in [&living, &dead, &elsewhere, &other_port, &other_boot] {
            Note::write_in(&folder, content.clone()).unwrap();
        }
        let found = Notes::left_behind_in(&folder, "b1", "net:[7]", 3).unwrap();
        assert_eq!(found.iter().map(Note::napi).collect::<Vec<_>>(), [101]);
        assert_eq!(found[0].settings().gro_flush_timeout, Nanos::from_micros(20));
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 4, "that of the other boot is removed");
        fs::write(folder.join("bad.json"), "{}").unwrap();
        assert!(Notes::left_behind_in(&folder, "b1", "net:[7]", 3).is_err());
        fs::remove_dir_all(folder).unwrap();
    }
}
