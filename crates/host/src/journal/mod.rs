//! The journal: the previous values, stored on disk before a setting is changed.
//!
//! Each transaction has one file in `/var/lib/apus/tune`, owned by root, with mode 0600 and one record per line
//! ([`mod@line`]). A record is written and synced before the change that it announces; if the file is new, its folder
//! is synced too. So after a crash, every change that was begun has a record, but a record may announce a change that
//! was not begun.
//!
//! The folder also keeps the journals of transactions whose changes a reboot has undone. The boot ID in the first
//! record shows that a transaction is from an earlier boot, so Apus can tell the user which settings are gone.
//!
//! When a transaction has been rolled back, its file is removed.

mod line;
mod lock;
pub(crate) mod moves;
mod processes;
mod record;

use std::fs::File;
use std::io::{self, Read as _, Write as _};

use rustix::fs::OFlags;

use crate::knob::Error;
use crate::vault::Vault;

pub use line::Rest;
pub use lock::{Lock, Owner};
pub use processes::Processes;
pub use record::{Begin, FORMAT, Intent, Lease, Record};

/// A transaction's journal, open for appending.
#[derive(Debug)]
pub struct Journal {
    file: File,
    id: u32,
    sequence: u64,
    chain: u32,
    length: u64,
}

/// A transaction's journal, read from its file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// The number of the transaction.
    pub id: u32,
    /// The intact records.
    pub records: Vec<Record>,
    /// What follows the intact records.
    pub rest: Rest,
}

/// When a record must be stored on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durable {
    /// Immediately: the record is synced before the function returns.
    Now,
    /// Later: when the next record with [`Durable::Now`] is synced.
    Soon,
}

const SUFFIX: &str = ".journal";

fn name(id: u32) -> String {
    format!("{id:06}{SUFFIX}")
}

/// The numbers of the transactions that have a journal, oldest first.
pub fn ids(vault: &Vault) -> Result<Vec<u32>, Error> {
    let names = vault.names()?;
    let id = |found: &String| found.strip_suffix(SUFFIX)?.parse().ok().filter(|id| name(*id) == *found);
    let mut ids: Vec<u32> = names.iter().filter_map(id).collect();
    // Sorts by number: by name, 1000000 would come before 999999.
    ids.sort_unstable();
    Ok(ids)
}

/// Reads the journal of transaction `id`. `None` if there is no such journal.
pub fn find(vault: &Vault, id: u32) -> Result<Option<Found>, Error> {
    let mut file = match vault.file(&name(id), OFlags::RDONLY) {
        Ok(Some(file)) => file,
        Ok(None) => return Ok(None),
        // Another user's journal is reported but not trusted.
        Err(Error::NotPermitted { why, .. }) => {
            return Ok(Some(Found { id, records: Vec::new(), rest: Rest::Untrusted { why } }));
        }
        Err(error) => return Err(error),
    };
    let read = read(vault, id, &mut file)?;
    Ok(Some(Found { id, records: read.records, rest: read.rest }))
}

/// Removes the journal of transaction `id`. Call it when there is nothing left to roll back.
pub fn close(vault: &Vault, id: u32) -> Result<(), Error> {
    moves::remove(vault, id)?;
    vault.remove(&name(id))?;
    vault.sync()
}

/// Path of the journal of transaction `id`.
pub fn path(vault: &Vault, id: u32) -> String {
    vault.show(&name(id))
}

fn read(vault: &Vault, id: u32, file: &mut File) -> Result<line::Read, Error> {
    let failed = |e| Error::of(format!("read {}", path(vault, id)), &e);
    let nothing = |rest| line::Read { records: Vec::new(), length: 0, chain: 0, rest };
    if let Some(why) = distrust(file).map_err(failed)? {
        return Ok(nothing(Rest::Untrusted { why }));
    }
    let mut octets = Vec::new();
    file.read_to_end(&mut octets).map_err(failed)?;
    let read = line::read(&octets);
    Ok(match read.records.first() {
        Some(Record::Begin(begin)) if begin.format > FORMAT => {
            let why = format!("a later version of Apus ({}) wrote it: use that version", begin.apus);
            nothing(Rest::Untrusted { why })
        }
        _ => read,
    })
}

/// Why another user could have written the contents of a journal. `None` if only this user can.
///
/// A checksum detects damage, not forgery. When root restores values from a journal, only root may have written the
/// journal.
fn distrust(file: &File) -> io::Result<Option<String>> {
    let stat = rustix::fs::fstat(file)?;
    let me = rustix::process::geteuid().as_raw();
    Ok(match () {
        () if stat.st_uid != me => {
            Some(format!("it belongs to user {}, but this process runs as user {me}", stat.st_uid))
        }
        () if stat.st_mode & 0o077 != 0 => Some(format!("its mode is {:o} instead of 600", stat.st_mode & 0o7777)),
        () if stat.st_nlink != 1 => Some(format!("it has {} hard links instead of 1", stat.st_nlink)),
        () => None,
    })
}

impl Journal {
    /// Starts the journal of a new transaction.
    pub fn create(vault: &Vault, begin: Begin) -> Result<Self, Error> {
        let id = match ids(vault)?.last() {
            None => 1,
            Some(last) => last.checked_add(1).ok_or_else(|| Error::System {
                what: format!("begin a transaction after {}", path(vault, *last)),
                why:
                    "there is no higher number: roll that transaction back, or remove the file if Apus did not write it"
                        .into(),
            })?,
        };
        let mut journal = Self { file: vault.make(&name(id))?, id, sequence: 0, chain: 0, length: 0 };
        let begun = journal.append(vault, &Record::Begin(begin), Durable::Now).and_then(|()| vault.sync());
        match begun {
            Ok(()) => Ok(journal),
            Err(error) => {
                // No setting has been changed yet, so the file can go.
                let _ = vault.remove(&name(id));
                Err(error)
            }
        }
    }

    /// Opens the journal of transaction `id` for appending, and removes an incomplete record at its end. Returns an
    /// error if the journal is damaged.
    pub fn open(vault: &Vault, id: u32) -> Result<(Self, Vec<Record>), Error> {
        let what = || format!("open {}", path(vault, id));
        let gone =
            || Error::NotThere { what: what(), why: "there is no such transaction; see apus tune status".into() };
        let mut file = vault.file(&name(id), OFlags::RDWR | OFlags::APPEND)?.ok_or_else(gone)?;
        let read = read(vault, id, &mut file)?;
        match read.rest {
            Rest::Nothing => {}
            Rest::Torn => vault
                .access()
                .act("truncate", path(vault, id), || file.set_len(read.length))
                .map_err(|e| Error::of(what(), &e))?,
            bad => return Err(unreadable(vault, id, &bad)),
        }
        let sequence = read.records.len() as u64;
        Ok((Self { file, id, sequence, chain: read.chain, length: read.length }, read.records))
    }

    /// The number of the transaction.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Appends a record. If that fails (for example on a full disk), the journal is restored to its previous length.
    pub fn append(&mut self, vault: &Vault, record: &Record, durable: Durable) -> Result<(), Error> {
        let access = vault.access();
        let path = path(vault, self.id);
        let mut append = || -> io::Result<u32> {
            let (line, sum) = line::write(record, self.sequence, self.chain).map_err(io::Error::other)?;
            access.act("write", &path, || self.file.write_all(line.as_bytes()))?;
            if durable == Durable::Now {
                access.act("fsync", &path, || self.file.sync_all())?;
            }
            self.length += line.len() as u64;
            Ok(sum)
        };
        match append() {
            Ok(sum) => {
                self.sequence += 1;
                self.chain = sum;
                Ok(())
            }
            Err(error) => {
                // If this fails too, the incomplete record is detected as torn.
                let _ = access.act("truncate", &path, || self.file.set_len(self.length));
                Err(Error::System {
                    what: format!("write the journal {path}"),
                    why: format!("{error}; without the journal nothing is changed: free some disk space"),
                })
            }
        }
    }
}

/// The error for a journal that is damaged or not trusted.
pub fn unreadable(vault: &Vault, id: u32, rest: &Rest) -> Error {
    let why = match rest {
        Rest::Untrusted { why } => format!(
            "{why}; nothing was changed. If the content is what Apus wrote, chown root and chmod 600; otherwise remove the file"
        ),
        Rest::Damaged { line, why, lost } => format!(
            "line {line} is damaged ({why}; {lost} lines in total); nothing was changed. `apus tune rollback {id} --damaged` rolls \
             back what the other lines record; check the rest by hand"
        ),
        Rest::Nothing | Rest::Torn => "it is intact".into(),
    };
    Error::System { what: format!("read the journal {}", path(vault, id)), why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Folder, begin};

    #[test]
    fn journals_are_numbered_and_reopened() {
        let folder = Folder::new(&[]);
        let vault = Vault::create(&folder.access()).unwrap();
        let mut first = Journal::create(&vault, begin("a")).unwrap();
        let second = Journal::create(&vault, begin("b")).unwrap();
        assert_eq!((first.id(), second.id(), ids(&vault).unwrap()), (1, 2, vec![1, 2]));
        first.append(&vault, &Record::Kept, Durable::Now).unwrap();
        let path = "var/lib/apus/tune/000001.journal";
        let torn = format!("{}0000", folder.read(path));
        folder.put(path, &torn);
        assert_eq!(find(&vault, 1).unwrap().unwrap().rest, Rest::Torn);
        let (mut again, records) = Journal::open(&vault, 1).unwrap();
        assert_eq!(records.len(), 2);
        again.append(&vault, &Record::Undone { number: 0 }, Durable::Now).unwrap();
        assert_eq!(find(&vault, 1).unwrap().unwrap().records.len(), 3, "the torn piece is gone");
        close(&vault, 1).unwrap();
        assert_eq!(find(&vault, 1).unwrap(), None);
    }

    #[test]
    fn numbers_go_on_beyond_six_digits_and_end() {
        let folder = Folder::new(&[]);
        let vault = Vault::create(&folder.access()).unwrap();
        for other in ["+5.journal", "7.journal", "999999.journal", "1000000.journal"] {
            vault.make(other).unwrap();
        }
        assert_eq!(ids(&vault).unwrap(), [999_999, 1_000_000]);
        assert_eq!(Journal::create(&vault, begin("a")).unwrap().id(), 1_000_001);
        vault.make(&name(u32::MAX)).unwrap();
        let error = Journal::create(&vault, begin("a")).unwrap_err();
        assert!(error.to_string().contains("no higher number"), "{error}");
    }

    #[test]
    fn a_damaged_journal_is_not_opened() {
        let folder = Folder::new(&[]);
        let vault = Vault::create(&folder.access()).unwrap();
        let mut journal = Journal::create(&vault, begin("a")).unwrap();
        journal.append(&vault, &Record::Kept, Durable::Now).unwrap();
        let path = "var/lib/apus/tune/000001.journal";
        folder.put(path, &folder.read(path).replace("\"a\"", "\"b\""));
        let error = Journal::open(&vault, 1).unwrap_err();
        assert!(error.to_string().contains("line 1 is damaged"), "{error}");
    }

    #[test]
    fn a_journal_that_others_could_have_written_is_not_believed() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = Folder::new(&[]);
        let vault = Vault::create(&folder.access()).unwrap();
        drop(Journal::create(&vault, begin("a")).unwrap());
        let path = folder.path("var/lib/apus/tune/000001.journal");
        let rest = || find(&vault, 1).unwrap().unwrap().rest;
        let set = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        for mode in [0o666, 0o620, 0o602, 0o644] {
            set(mode);
            assert!(matches!(rest(), Rest::Untrusted { .. }), "{mode:o}: {:?}", rest());
            assert!(Journal::open(&vault, 1).unwrap_err().to_string().contains("mode"), "{mode:o}");
        }
        set(0o600);
        assert_eq!(rest(), Rest::Nothing);
        std::fs::hard_link(&path, folder.path("elsewhere")).unwrap();
        assert!(matches!(rest(), Rest::Untrusted { .. }));
        std::fs::remove_file(folder.path("elsewhere")).unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
            assert!(matches!(rest(), Rest::Untrusted { .. }), "{:?}", rest());
        }
    }

    #[test]
    fn a_later_versions_journal_is_not_touched() {
        let folder = Folder::new(&[]);
        let vault = Vault::create(&folder.access()).unwrap();
        drop(Journal::create(&vault, Begin { format: FORMAT + 1, ..begin("a") }).unwrap());
        assert!(matches!(find(&vault, 1).unwrap().unwrap().rest, Rest::Untrusted { .. }));
    }

    /// A read-only descriptor fails at the same point as a full disk, which tests/transaction.rs tests.
    #[test]
    fn a_write_that_fails_leaves_the_journal_as_it_was() {
        let folder = Folder::new(&[]);
        let vault = Vault::create(&folder.access()).unwrap();
        let mut journal = Journal::create(&vault, begin("a")).unwrap();
        let before = folder.read("var/lib/apus/tune/000001.journal");
        journal.file = File::open(folder.path("var/lib/apus/tune/000001.journal")).unwrap();
        let error = journal.append(&vault, &Record::Kept, Durable::Now).unwrap_err();
        assert!(error.to_string().contains("without the journal nothing is changed"), "{error}");
        assert_eq!(folder.read("var/lib/apus/tune/000001.journal"), before);
        assert_eq!(journal.sequence, 1);
    }
}
