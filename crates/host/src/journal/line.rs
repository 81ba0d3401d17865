//! Journal records as lines of text. Each line begins with its checksum, which also depends on all lines before it, and
//! its number.
//!
//! ```text
//! 5f2c9a10 0 {"record":"begin",…}
//! 8e01b7d3 1 {"record":"intent",…}
//! ```
//!
//! The checksum is the CRC-32 of IEEE 802.3 over the line's number and text. It starts from the checksum of the
//! previous line, so a line that is damaged, missing, duplicated or out of place does not match.

use crate::journal::Record;

/// The contents of a journal file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Read {
    /// The records that are intact.
    pub records: Vec<Record>,
    /// Length in bytes of the intact records at the start of the file.
    pub length: u64,
    /// The checksum of the last intact record at the start of the file. The checksum of the next record starts from it.
    pub chain: u32,
    /// What follows the intact records at the start of the file.
    pub rest: Rest,
}

/// What follows the intact records at the start of a journal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Rest {
    /// Nothing: the journal is complete.
    Nothing,
    /// An incomplete record. The process that wrote the record was killed, so the change that the record announces was
    /// not begun.
    Torn,
    /// A line is not a record, or its checksum does not match. Later lines with a matching checksum still count as
    /// intact records.
    Damaged {
        /// Number of the first damaged line, counted from 1.
        line: usize,
        /// What is wrong with the line.
        why: &'static str,
        /// Number of lines that are lost.
        lost: usize,
    },
    /// Another user could have written the journal, or a newer version of Apus wrote it. Nothing in it is used.
    Untrusted {
        /// Why another user could have written the journal, such as its owner or mode.
        why: String,
    },
}

/// Formats a record as the line that follows a line with the checksum `chain`. Also returns the new line's checksum.
pub fn write(record: &Record, sequence: u64, chain: u32) -> Result<(String, u32), serde_json::Error> {
    let body = format!("{sequence} {}", serde_json::to_string(record)?);
    let sum = checksum(chain, body.as_bytes());
    Ok((format!("{sum:08x} {body}\n"), sum))
}

/// Reads a journal.
///
/// A line's checksum continues the checksum of the previous line. After a bad line, the next line may continue either
/// of two checksums: the one in the bad line (if the line's text was damaged), or the one computed from the bad line's
/// text (if its checksum was damaged). After a missing line, the next line does not match, but the following lines do.
pub fn read(octets: &[u8]) -> Read {
    let mut read = Read { records: Vec::new(), length: 0, chain: 0, rest: Rest::Nothing };
    let mut chains = vec![0];
    let (mut sequence, mut intact) = (0..=0, true);
    let mut lines = octets.split_inclusive(|octet| *octet == b'\n').enumerate().peekable();
    while let Some((place, line)) = lines.next() {
        match record(line, &sequence, &chains) {
            Ok((record, number, sum)) => {
                read.records.push(record);
                if intact {
                    read.length += line.len() as u64;
                    read.chain = sum;
                }
                chains = vec![sum];
                let next = number.saturating_add(1);
                sequence = next..=if intact { next } else { u64::MAX };
            }
            Err(why) => {
                // A record is written in one piece, and nothing follows it until it is on disk. So only the last record
                // can be torn: it is incomplete, or has holes that the disk did not write.
                let torn = lines.peek().is_none() && (!line.ends_with(b"\n") || line.contains(&0));
                match &mut read.rest {
                    Rest::Damaged { .. } if torn => {}
                    Rest::Damaged { lost, .. } => *lost += 1,
                    _ if torn => read.rest = Rest::Torn,
                    _ => read.rest = Rest::Damaged { line: place + 1, why, lost: 1 },
                }
                intact = false;
                chains = claims(line, &chains);
                sequence = *sequence.start()..=u64::MAX;
            }
        }
    }
    read
}

/// The checksums that the line after a bad line may continue.
fn claims(line: &[u8], chains: &[u32]) -> Vec<u32> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let (claimed, body) = line.split_at(line.len().min(8));
    let claimed = std::str::from_utf8(claimed).ok().and_then(|sum| u32::from_str_radix(sum, 16).ok());
    let body = body.get(1..).unwrap_or_default();
    claimed.into_iter().chain(chains.iter().map(|chain| checksum(*chain, body))).collect()
}

fn record(
    line: &[u8],
    sequence: &std::ops::RangeInclusive<u64>,
    chains: &[u32],
) -> Result<(Record, u64, u32), &'static str> {
    let line = line.strip_suffix(b"\n").ok_or("it is incomplete")?;
    let line = std::str::from_utf8(line).map_err(|_| "it is not valid UTF-8")?;
    let (sum, body) = line.split_once(' ').ok_or("it has no checksum")?;
    let mut right = chains.iter().map(|chain| checksum(*chain, body.as_bytes()));
    let right = right.find(|right| sum == format!("{right:08x}")).ok_or("its checksum is wrong")?;
    let (number, json) = body.split_once(' ').ok_or("it has no number")?;
    let number =
        number.parse().ok().filter(|number| sequence.contains(number)).ok_or("its number is out of sequence")?;
    let record = serde_json::from_str(json).map_err(|_| "this version of Apus does not know this kind of record")?;
    Ok((record, number, right))
}

pub(super) fn checksum(chain: u32, body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(chain);
    hasher.update(body);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knob::Value;

    fn journal(records: &[Record]) -> String {
        let (mut text, mut chain) = (String::new(), 0);
        for (sequence, record) in (0..).zip(records) {
            let (line, sum) = write(record, sequence, chain).unwrap();
            text.push_str(&line);
            chain = sum;
        }
        text
    }

    fn some() -> Vec<Record> {
        vec![Record::Done { number: 0, now: Value::text("a") }, Record::Undone { number: 0 }, Record::Kept]
    }

    #[test]
    fn what_is_written_is_read() {
        let text = journal(&some());
        let read = read(text.as_bytes());
        assert_eq!((read.records, read.rest, read.length), (some(), Rest::Nothing, text.len() as u64));
    }

    #[test]
    fn a_journal_cut_anywhere_is_torn_there() {
        let text = journal(&some());
        for end in 0..text.len() {
            let read = read(&text.as_bytes()[..end]);
            let whole = text[..end].matches('\n').count();
            assert_eq!(read.records, some()[..whole], "cut at {end}");
            let at_a_line = end == 0 || text[..end].ends_with('\n');
            assert_eq!(read.rest, if at_a_line { Rest::Nothing } else { Rest::Torn }, "cut at {end}");
        }
        let mut holes = text.clone().into_bytes();
        let last = text.trim_end().rfind('\n').unwrap() + 5;
        holes[last..].fill(0);
        assert_eq!(read(&holes).rest, Rest::Torn, "zeroes where the disk did not get it");
    }

    #[test]
    fn every_flipped_bit_is_noticed_and_costs_one_line() {
        let text = journal(&some());
        for place in 0..text.len() {
            for bit in 0..8 {
                let mut octets = text.clone().into_bytes();
                octets[place] ^= 1 << bit;
                let read = read(&octets);
                assert_ne!(read.rest, Rest::Nothing, "bit {bit} of octet {place}");
                let whole = text[..place].matches('\n').count();
                let mut left = some();
                // Removing a newline joins two lines, and adding one splits a line.
                if text.as_bytes()[place] == b'\n' || octets[place] == b'\n' {
                    assert_eq!(read.records[..whole], left[..whole], "bit {bit} of octet {place}");
                    continue;
                }
                left.remove(whole);
                assert_eq!(read.records, left, "bit {bit} of octet {place}");
            }
        }
    }

    #[test]
    fn a_missing_line_costs_the_next_one_too_and_no_more() {
        let records: Vec<Record> = (0..5).map(|number| Record::Undone { number }).collect();
        let text = journal(&records);
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        let read = read([lines[0], lines[2], lines[3], lines[4]].concat().as_bytes());
        assert_eq!(read.records, [records[0].clone(), records[3].clone(), records[4].clone()]);
        assert!(matches!(read.rest, Rest::Damaged { line: 2, lost: 1, .. }), "{:?}", read.rest);
    }

    #[test]
    fn lines_out_of_place_are_noticed() {
        let text = journal(&some());
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        for wrong in
            [[lines[0], lines[2]].concat(), [lines[0], lines[0], lines[1]].concat(), [lines[1], lines[0]].concat()]
        {
            assert!(matches!(read(wrong.as_bytes()).rest, Rest::Damaged { .. }), "{wrong}");
        }
    }
}
