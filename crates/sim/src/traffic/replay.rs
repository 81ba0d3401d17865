//! Replays recorded traffic: a capture, or a table of times and sizes. The caller reads the file and passes its
//! contents.

use std::sync::Arc;

use units::Nanos;

use super::{Frame, LONGEST_FRAME, SHORTEST_FRAME};
use crate::At;

/// Parameters of a replay.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replay {
    /// The file as the scenario names it.
    pub file: String,
    /// Whether to start again at the end, one mean gap after the last frame.
    pub repeat: bool,
}

/// One frame of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// Time from the first frame to this one. Never less than that of the frame before.
    pub offset: Nanos,
    /// Its size in bytes, with check sequence.
    pub octets: u32,
    /// The receive queue. `None` if the record does not state it.
    pub queue: Option<u32>,
}

/// A whole record, shared by all worlds that replay it.
pub type Records = Arc<[Record]>;

/// Size of the check sequence in bytes. Captures do not include it. IEEE 802.3-2018, 3.2.9.
const CHECK_SEQUENCE: u32 = 4;
const GLOBAL_HEADER: usize = 24;
const RECORD_HEADER: usize = 16;
const LINKTYPE_ETHERNET: u32 = 1;

/// Reads a record: a classic pcap file, or CSV. CSV needs a first line with the column names `time_ns`, `octets` and
/// optionally `queue`. The error says what is wrong, and where.
pub fn parse(octets: &[u8]) -> Result<Records, String> {
    match octets {
        [0xd4, 0xc3, 0xb2, 0xa1, ..] => pcap(octets, true, 1_000),
        [0xa1, 0xb2, 0xc3, 0xd4, ..] => pcap(octets, false, 1_000),
        [0x4d, 0x3c, 0xb2, 0xa1, ..] => pcap(octets, true, 1),
        [0xa1, 0xb2, 0x3c, 0x4d, ..] => pcap(octets, false, 1),
        [0x0a, 0x0d, 0x0d, 0x0a, ..] => Err("is pcapng; convert it: editcap -F pcap FILE OUT.pcap".into()),
        _ => csv(octets),
    }
}

/// Reads classic pcap, in microseconds or nanoseconds and in either byte order. Source: draft-ietf-opsawg-pcap,
/// sections 4 and 5. If a frame's timestamp is earlier than that of the previous frame (captures of several queues),
/// both arrive together.
fn pcap(octets: &[u8], little: bool, unit: u64) -> Result<Records, String> {
    if octets.len() < GLOBAL_HEADER {
        return Err("shorter than a pcap header (24 octets)".into());
    }
    let word = |at: usize| {
        let bytes: [u8; 4] = octets[at..at + 4].try_into().unwrap_or_default();
        if little { u32::from_le_bytes(bytes) } else { u32::from_be_bytes(bytes) }
    };
    let link = word(20) & 0xffff; // the upper bits carry FCS information
    if link != LINKTYPE_ETHERNET {
        return Err(format!("link type {link}; expected Ethernet (1)"));
    }
    let mut records = Vec::new();
    let (mut at, mut first, mut latest) = (GLOBAL_HEADER, None, 0);
    while at < octets.len() {
        let number = records.len() + 1;
        if octets.len() - at < RECORD_HEADER {
            return Err(format!("frame {number}, octet {at}: the file ends within its header"));
        }
        let time = u64::from(word(at)) * 1_000_000_000 + u64::from(word(at + 4)) * unit;
        let (captured, original) = (word(at + 8) as usize, word(at + 12));
        let rest = octets.len() - at - RECORD_HEADER;
        if captured > rest {
            return Err(format!("frame {number}, octet {at}: {captured} octets captured, but {rest} are left"));
        }
        latest = time.saturating_sub(*first.get_or_insert(time)).max(latest);
        // Shorter ones were captured before the port padded them; longer ones by a NIC that had joined some.
        let size = original.saturating_add(CHECK_SEQUENCE).clamp(SHORTEST_FRAME, LONGEST_FRAME);
        records.push(Record { offset: Nanos::from_nanos(latest), octets: size, queue: None });
        at += RECORD_HEADER + captured;
    }
    finished(records)
}

/// Reads a table with column names. Times ascend, but need not begin at 0.
fn csv(octets: &[u8]) -> Result<Records, String> {
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
        records.push(Record { offset, octets, queue });
    }
    finished(records)
}

fn finished(records: Vec<Record>) -> Result<Records, String> {
    if records.is_empty() { Err("holds no frame".into()) } else { Ok(records.into()) }
}

/// Plays a record.
#[derive(Debug)]
pub struct Source {
    records: Records,
    repeat: bool,
    /// When the current pass began.
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
        // A pass that takes no time would never end.
        let pass = (length + gap).max(Nanos::from_nanos(records.len() as u64));
        Self { records, repeat: what.repeat, began: start, next: 0, pass }
    }

    /// The next frame. `None` after the last one.
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

    fn capture(magic: u32, records: &[(u32, u32, u32)]) -> Vec<u8> {
        let mut out = Vec::new();
        for word in [magic, 0x0004_0002, 0, 0, 65535, 1] {
            out.extend(u32::to_le_bytes(word));
        }
        for (seconds, fraction, length) in records {
            for word in [*seconds, *fraction, 2, *length] {
                out.extend(u32::to_le_bytes(word));
            }
            out.extend([0, 0]);
        }
        out
    }

    #[test]
    fn a_capture_gives_offsets_and_sizes_with_check_sequence() {
        let read = parse(&capture(0xa1b2_c3d4, &[(10, 999_999, 60), (11, 1, 1514), (11, 0, 20)])).unwrap();
        let seen: Vec<_> = read.iter().map(|r| (r.offset.as_nanos(), r.octets)).collect();
        assert_eq!(seen, [(0, 64), (2_000, 1518), (2_000, 64)]);
        assert_eq!(parse(&capture(0xa1b2_3c4d, &[(1, 5, 60), (1, 9, 60)])).unwrap()[1].offset, Nanos::from_nanos(4));
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
        let good = capture(0xa1b2_c3d4, &[(1, 0, 60)]);
        assert!(parse(&good[..good.len() - 1]).unwrap_err().contains("frame 1, octet 24"));
        assert!(parse(&good[..30]).unwrap_err().contains("ends within"));
        assert!(parse(&good[..24]).unwrap_err().contains("no frame"));
        assert!(parse(&[0x0a, 0x0d, 0x0d, 0x0a]).unwrap_err().contains("editcap"));
        for (text, part) in [
            ("", "first line"),
            ("time_ns,size", "unknown column `size`"),
            ("time_ns,octets\n1", "line 2: 1 columns"),
            ("time_ns,octets\n1,60", "line 2: octets"),
            ("time_ns,octets\n5,64\n4,64", "line 3: time_ns is less"),
            ("time_ns,octets\nx,64", "line 2: time_ns"),
            ("time_ns,octets\n", "no frame"),
        ] {
            assert!(parse(text.as_bytes()).unwrap_err().contains(part), "{text:?}: {:?}", parse(text.as_bytes()));
        }
    }

    proptest! {
        #[test]
        fn any_octets_are_read_or_refused(rest in prop::collection::vec(any::<u8>(), 0..200), with_head: bool) {
            let mut octets = if with_head { capture(0xa1b2_c3d4, &[]) } else { b"time_ns,octets\n".to_vec() };
            octets.extend(rest);
            let _ = parse(&octets);
        }
    }
}
