//! Replays recorded traffic: a capture, or a table of times and sizes. The caller reads the file and passes its
//! contents.

use std::sync::Arc;

use pcap::PcapReader;
use units::Nanos;

use super::{Frame, LONGEST_FRAME, SHORTEST_FRAME};
use crate::At;

/// Parameters of a replay.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replay {
    /// The file as the scenario names it.
    pub file: String,
    /// Whether the record starts again, one mean gap after its last frame.
    pub repeat: bool,
}

/// One frame of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// Time from the first frame to this one. Never less than the previous frame's offset.
    pub offset: Nanos,
    /// Size of the frame in bytes, with check sequence.
    pub octets: u32,
    /// The receive queue. `None` if the record does not state it.
    pub queue: Option<u32>,
}

/// A whole record, shared by all simulations that replay it.
pub type Records = Arc<[Record]>;

/// The longest record. A jump of the clock during the capture looks like a longer one.
const LONGEST: Nanos = Nanos::from_secs(24 * 60 * 60);
/// Size of the check sequence in bytes. Captures do not include it. IEEE 802.3-2018, 3.2.9.
const CHECK_SEQUENCE: u32 = 4;

const TOO_LATE: &str = "is more than a day after the first frame; cut the record there";

/// Reads a record: a classic pcap file, or CSV. The first line of a CSV file has the column names `time_ns`, `octets`
/// and optionally `queue`. The error says what is wrong, and where.
pub fn parse(octets: &[u8]) -> Result<Records, String> {
    let records = match pcap::is_capture(octets) {
        true => capture(octets)?,
        false => csv(octets)?,
    };
    if records.is_empty() { Err("holds no frame".into()) } else { Ok(records.into()) }
}

/// Reads a pcap file. In captures of several queues, a frame may have an earlier time stamp than the one before it; it
/// then gets the time stamp of the one before.
fn capture(octets: &[u8]) -> Result<Vec<Record>, String> {
    let wrong = |error: pcap::Error| error.to_string();
    let mut reader = PcapReader::new("capture", octets).map_err(wrong)?;
    let mut records = Vec::new();
    while let Some(record) = reader.next_record().map_err(wrong)? {
        if record.offset > LONGEST {
            return Err(format!("record {} {TOO_LATE}", records.len() + 1));
        }
        // Shorter frames were captured before the port padded them; longer ones after the NIC had merged several.
        let octets = record.original_len.saturating_add(CHECK_SEQUENCE).clamp(SHORTEST_FRAME, LONGEST_FRAME);
        records.push(Record { offset: record.offset, octets, queue: None });
    }
    Ok(records)
}

/// Reads a table with column names. Times ascend, but need not begin at 0.
fn csv(octets: &[u8]) -> Result<Vec<Record>, String> {
    const HEAD: &str = "expected pcap, or CSV whose first line names the columns time_ns, octets and perhaps queue";
    let text = std::str::from_utf8(octets).map_err(|_| HEAD)?;
    let mut lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    let (_, head) = lines.next().ok_or(HEAD)?;
    let names: Vec<&str> = head.split(',').map(str::trim).collect();
    if let Some(unknown) = names.iter().find(|name| !["time_ns", "octets", "queue"].contains(name)) {
        return Err(format!("unknown column `{unknown}`; {HEAD}"));
    }
    let column = |name: &str| names.iter().position(|n| *n == name);
    let (time, size, queue) = (column("time_ns").ok_or(HEAD)?, column("octets").ok_or(HEAD)?, column("queue"));
    let mut records: Vec<Record> = Vec::new();
    let mut first = None;
    for (number, line) in lines {
        let wrong = |what: &str| format!("line {}: {what}", number + 1);
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        if cells.len() != names.len() {
            return Err(wrong(&format!("{} columns; the head has {}", cells.len(), names.len())));
        }
        let at: u64 = cells[time].parse().map_err(|_| wrong("time_ns is no whole number of nanoseconds"))?;
        let range = SHORTEST_FRAME..=LONGEST_FRAME;
        let octets = cells[size].parse().ok().filter(|octets| range.contains(octets));
        let octets = octets.ok_or_else(|| wrong("octets is no frame size, 64 to 9216 with check sequence"))?;
        let queue = queue.map(|at| cells[at].parse().map_err(|_| wrong("queue is no number"))).transpose()?;
        let offset = at.checked_sub(*first.get_or_insert(at)).map(Nanos::from_nanos);
        let offset = offset.filter(|offset| records.last().is_none_or(|last| last.offset <= *offset));
        let offset = offset.ok_or_else(|| wrong("time_ns is less than in the line before"))?;
        if offset > LONGEST {
            return Err(format!("line {} {TOO_LATE}", number + 1));
        }
        records.push(Record { offset, octets, queue });
    }
    Ok(records)
}

/// Plays a record.
#[derive(Debug)]
pub struct Source {
    records: Records,
    repeat: bool,
    /// When the current pass through the record began.
    began: At,
    next: usize,
    /// Duration of a pass, including the gap after it.
    pass: Nanos,
}

impl Source {
    /// Makes a source whose first frame arrives at `start`.
    pub fn new(what: &Replay, records: Records, start: At) -> Self {
        let length = records.last().map_or(Nanos::ZERO, |last| last.offset);
        let gaps = (records.len() as u64).saturating_sub(1);
        let gap = if gaps > 0 { length / gaps } else { Nanos::from_secs(1) };
        // If a pass took no time, a repeated replay would never advance.
        let pass = (length + gap).max(Nanos::from_nanos(records.len() as u64));
        Self { records, repeat: what.repeat, began: start, next: 0, pass }
    }

    /// Draws the next frame. `None` after the last one.
    pub fn draw(&mut self) -> Option<Frame> {
        if self.next == self.records.len() {
            if !self.repeat || self.records.is_empty() {
                return None;
            }
            self.began = self.began + self.pass;
            self.next = 0;
        }
        let Record { offset, octets, queue } = self.records[self.next];
        self.next += 1;
        Some(Frame { at: self.began + offset, octets, tag: 0, queue })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(frames: &[(u64, usize)]) -> Vec<u8> {
        let mut writer = pcap::PcapWriter::new("test", Vec::new(), pcap::Resolution::Nanos).unwrap();
        for (at, len) in frames {
            writer.write(Nanos::from_nanos(*at), &vec![0; *len]).unwrap();
        }
        writer.finish().unwrap()
    }

    #[test]
    fn a_capture_gives_offsets_and_sizes_with_check_sequence() {
        let read = parse(&written(&[(5, 60), (2_005, 1514), (2_004, 20), (2_006, 9_300)])).unwrap();
        let seen: Vec<_> = read.iter().map(|r| (r.offset.as_nanos(), r.octets)).collect();
        assert_eq!(seen, [(0, 64), (2_000, 1518), (2_000, 64), (2_001, LONGEST_FRAME)]);
    }

    #[test]
    fn a_table_is_read_and_repeated() {
        let records = parse(b"# made by hand\ntime_ns, octets, queue\n100,64,0\n\n400,1518,1\n").unwrap();
        let what = Replay { file: String::new(), repeat: true };
        let mut source = Source::new(&what, records.clone(), At::ORIGIN);
        let times: Vec<_> = (0..4).map(|_| source.draw().map(|f| (f.at.as_nanos(), f.queue))).collect();
        assert_eq!(times, [Some((0, Some(0))), Some((300, Some(1))), Some((600, Some(0))), Some((900, Some(1)))]);
        let mut once = Source::new(&Replay { repeat: false, ..what }, records, At::ORIGIN);
        assert_eq!((0..3).filter_map(|_| once.draw()).count(), 2);
    }

    #[test]
    fn says_where_a_record_is_wrong() {
        let good = written(&[(1, 60)]);
        assert!(parse(&good[..good.len() - 1]).unwrap_err().contains("record 1, offset 24"));
        assert!(parse(&good[..30]).unwrap_err().contains("header ends after 6 of 16 bytes"));
        assert!(parse(&good[..24]).unwrap_err().contains("no frame"));
        assert!(parse(&[0x0a, 0x0d, 0x0d, 0x0a]).unwrap_err().contains("editcap"));
        let jump = written(&[(5, 60), (86_400_000_000_005, 60), (86_400_000_000_006, 60)]);
        assert!(parse(&jump).unwrap_err().contains("record 3 is more than a day after"));
        for (text, part) in [
            ("", "first line"),
            ("time_ns,size", "unknown column `size`"),
            ("time_ns,octets\n1", "line 2: 1 columns"),
            ("time_ns,octets\n1,60", "line 2: octets"),
            ("time_ns,octets\n5,64\n4,64", "line 3: time_ns is less"),
            ("time_ns,octets\nx,64", "line 2: time_ns"),
            ("time_ns,octets\n5,64\n86400000000006,64", "line 3 is more than a day after"),
            ("time_ns,octets\n0,64\n18446744073709551615,64", "line 3 is more than a day after"),
            ("time_ns,octets\n", "no frame"),
        ] {
            assert!(parse(text.as_bytes()).unwrap_err().contains(part), "{text:?}: {:?}", parse(text.as_bytes()));
        }
    }

    proptest! {
        #[test]
        fn any_octets_are_read_or_refused(rest in prop::collection::vec(any::<u8>(), 0..200), with_head: bool) {
            let mut octets = if with_head { written(&[]) } else { b"time_ns,octets\n".to_vec() };
            octets.extend(rest);
            let _ = parse(&octets);
        }
    }
}
