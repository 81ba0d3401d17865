//! The values to which a controller has moved the settings of a transaction, in one file of fixed size next to the
//! journal.
//!
//! A controller may change ("move") a setting several times per second, for days. If each move were a record of the
//! journal, the journal would grow without limit. So each setting of a controller has one slot, which every move
//! overwrites:
//!
//! ```text
//! slot 0:  5f2c9a10 {"number":0,"at":{"rx-usecs":"50",…}}   the setting has this value, and it is ours
//! slot 1:  8e01b7d3 {"number":1}                            a move was begun: its value is ours, whatever it is
//! slot 2:  77a0c41e {"number":2,"over":true}                the setting is somebody else's now, or gone
//! ```
//!
//! Before the setting is written, its slot is marked as moving. Afterwards, the slot gets the value that was read back.
//! The file is not synced: it survives the end of the process, and a reboot resets the settings anyway. If a slot
//! cannot be read, its setting counts as moving.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use super::line::checksum;
use crate::knob::{Error, Value};
use crate::vault::Vault;

/// Size of a slot in bytes. The longest value of a moved setting, all 25 coalescing fields of a device, takes about
/// 700.
const SLOT: usize = 4096;

/// The contents of a slot.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct Slot {
    /// The number of the intent whose setting is moved.
    number: u32,
    /// The value that Apus's last move left. `None` while a move is being made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at: Option<Value>,
    /// Whether the controller has given up the setting, because someone else changed it or it is gone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    over: bool,
}

/// The state of a setting when its controller last recorded it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Left {
    /// The value that the controller set last. The controller still controls the setting.
    At(Value),
    /// The controller stopped controlling the setting, because someone else changed it or because it is gone.
    LetGo,
}

/// The file of moves, open for writing.
#[derive(Debug)]
pub struct Moves {
    file: File,
    path: String,
}

fn name(id: u32) -> String {
    format!("{id:06}.moves")
}

impl Moves {
    /// Creates the file of transaction `id`. A file that an earlier transaction with the same number left behind is
    /// replaced.
    pub fn create(vault: &Vault, id: u32) -> Result<Self, Error> {
        vault.remove(&name(id))?;
        Ok(Self { file: vault.make(&name(id))?, path: vault.show(&name(id)) })
    }

    /// Records that the controller is about to write the setting of slot `slot`, whose intent has the number `number`
    /// in the journal.
    pub fn begin(&mut self, vault: &Vault, slot: usize, number: u32) -> Result<(), Error> {
        self.write(vault, slot, &Slot { number, at: None, over: false })
    }

    /// Records the value that the setting has after the write.
    pub fn end(&mut self, vault: &Vault, slot: usize, number: u32, at: &Value) -> Result<(), Error> {
        self.write(vault, slot, &Slot { number, at: Some(at.clone()), over: false })
    }

    /// Records that Apus no longer controls the setting.
    pub fn let_go(&mut self, vault: &Vault, slot: usize, number: u32) -> Result<(), Error> {
        self.write(vault, slot, &Slot { number, at: None, over: true })
    }

    fn write(&mut self, vault: &Vault, place: usize, slot: &Slot) -> Result<(), Error> {
        let what = || format!("write {}", self.path);
        let json = serde_json::to_string(slot).map_err(|e| Error::System { what: what(), why: e.to_string() })?;
        let line = format!("{:08x} {json}\n", checksum(0, json.as_bytes()));
        if line.len() > SLOT {
            let why = format!("the value takes {} bytes, and a slot has {SLOT}", line.len());
            return Err(Error::System { what: what(), why });
        }
        let octets = format!("{line:<SLOT$}");
        let offset = (place * SLOT) as u64;
        vault
            .access()
            .act("write", &self.path, || self.file.write_all_at(octets.as_bytes(), offset))
            .map_err(|e| Error::of(what(), &e))
    }
}

/// The state of each intent's setting after the last completed move, by the intent's number. An intent is missing if
/// its setting was just being moved when the process ended.
pub fn last(vault: &Vault, id: u32) -> Result<Vec<(u32, Left)>, Error> {
    let file = match vault.file(&name(id), OFlags::RDONLY) {
        Ok(Some(file)) => file,
        Ok(None) => return Ok(Vec::new()),
        // A file of another user is not trusted.
        Err(Error::NotPermitted { .. }) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let failed = |e| Error::of(format!("read {}", vault.show(&name(id))), &e);
    let slots = file.metadata().map_err(failed)?.len() as usize / SLOT;
    let mut values = Vec::new();
    let mut octets = vec![0; SLOT];
    for place in 0..slots {
        file.read_exact_at(&mut octets, (place * SLOT) as u64).map_err(failed)?;
        values.extend(read(&octets).and_then(|slot| {
            let left = if slot.over { Left::LetGo } else { Left::At(slot.at?) };
            Some((slot.number, left))
        }));
    }
    Ok(values)
}

/// Removes the file of transaction `id`, if it has one.
pub fn remove(vault: &Vault, id: u32) -> Result<(), Error> {
    vault.remove(&name(id))
}

fn read(octets: &[u8]) -> Option<Slot> {
    let text = std::str::from_utf8(octets).ok()?;
    let (sum, json) = text.lines().next()?.split_once(' ')?;
    (sum == format!("{:08x}", checksum(0, json.as_bytes()))).then(|| serde_json::from_str(json).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Folder;

    fn at(text: &str) -> Left {
        Left::At(Value::text(text))
    }

    #[test]
    fn a_slot_says_where_its_setting_was_left() {
        let folder = Folder::new(&[]);
        let vault = Vault::create(&folder.access()).unwrap();
        assert_eq!(last(&vault, 1).unwrap(), []);
        let mut moves = Moves::create(&vault, 1).unwrap();
        let long = Value::fields((0..25).map(|n| (format!("a-field-of-some-length-{n}"), u32::MAX)));
        moves.end(&vault, 0, 7, &long).unwrap();
        moves.end(&vault, 1, 9, &Value::text("5")).unwrap();
        assert_eq!(last(&vault, 1).unwrap(), [(7, Left::At(long)), (9, at("5"))]);
        let length = folder.path("var/lib/apus/tune/000001.moves").metadata().unwrap().len();
        for _ in 0..100 {
            moves.begin(&vault, 0, 7).unwrap();
            assert_eq!(last(&vault, 1).unwrap(), [(9, at("5"))], "its value is in doubt");
            moves.end(&vault, 0, 7, &Value::text("6")).unwrap();
        }
        assert_eq!(last(&vault, 1).unwrap(), [(7, at("6")), (9, at("5"))]);
        assert_eq!(folder.path("var/lib/apus/tune/000001.moves").metadata().unwrap().len(), length, "it does not grow");
        moves.let_go(&vault, 0, 7).unwrap();
        assert_eq!(last(&vault, 1).unwrap(), [(7, Left::LetGo), (9, at("5"))]);
        let enormous = Value::text("x".repeat(SLOT));
        assert!(moves.end(&vault, 0, 7, &enormous).unwrap_err().to_string().contains("a slot has 4096"));
        remove(&vault, 1).unwrap();
        remove(&vault, 1).unwrap();
        assert_eq!(last(&vault, 1).unwrap(), []);
    }

    #[test]
    fn a_damaged_slot_is_in_doubt() {
        let folder = Folder::new(&[]);
        let vault = Vault::create(&folder.access()).unwrap();
        let mut moves = Moves::create(&vault, 1).unwrap();
        moves.end(&vault, 0, 0, &Value::text("5")).unwrap();
        moves.end(&vault, 1, 1, &Value::text("6")).unwrap();
        let path = folder.path("var/lib/apus/tune/000001.moves");
        let octets = std::fs::read(&path).unwrap();
        for place in [0, 8, 9, 30] {
            let mut damaged = octets.clone();
            damaged[place] ^= 1;
            std::fs::write(&path, &damaged).unwrap();
            assert_eq!(last(&vault, 1).unwrap(), [(1, at("6"))], "byte {place}");
        }
        // Tests a file that was cut off in the middle of a slot.
        std::fs::write(&path, &octets[..SLOT + 5]).unwrap();
        assert_eq!(last(&vault, 1).unwrap(), [(0, at("5"))]);
    }
}
