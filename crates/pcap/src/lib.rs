//! Reads and writes capture files.
//!
//! The files have the classic pcap format for Ethernet, in either byte order and with either resolution of time. Source
//! for every field: draft-ietf-opsawg-pcap (file header in section 4, packet record in section 5).
//!
//! **Law:** this crate handles bytes, times and lengths only. It depends on nothing that is specific to live or
//! simulated runs, because `sim`, `live` and `tester` all read captures through it.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

use units::Nanos;

/// First field of a file with times in microseconds (section 4, "Magic Number").
const MAGIC_MICROS: u32 = 0xa1b2_c3d4;
/// First field of a file with times in nanoseconds (section 4, "Magic Number").
const MAGIC_NANOS: u32 = 0xa1b2_3c4d;
/// Block type of a section header, the first block of a pcapng file (draft-ietf-opsawg-pcapng, section 4.1).
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
/// Length of the file header in bytes (section 4, figure 1).
const FILE_HEADER: usize = 24;
/// Length of the header of each record in bytes (section 5, figure 2).
pub const RECORD_HEADER: usize = 16;
/// `LINKTYPE_ETHERNET` (www.tcpdump.org/linktypes.html).
const ETHERNET: u32 = 1;
/// Maximum number of captured bytes in a valid record: `MAXIMUM_SNAPLEN` of libpcap (pcap-int.h) and
/// `WTAP_MAX_PACKET_SIZE_STANDARD` of Wireshark (wiretap/wtap.h).
pub const LONGEST_RECORD: usize = 262_144;

/// A capture that cannot be read or written. The message says where, and what to do next.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be opened for reading or is not a valid capture, or a frame to be written does not
    /// fit the format.
    #[error("{what}: {why}")]
    Invalid {
        /// The file, with the record and the offset of the error.
        what: String,
        /// What is wrong in the file, and what would be right.
        why: String,
    },
    /// The operating system could not open, read or write the file.
    #[error("{what}: {source}")]
    System {
        /// The operation that failed, worded to follow "cannot": "open trace.pcap".
        what: String,
        /// The error of the operating system.
        source: io::Error,
    },
}

impl Error {
    fn system(what: impl Into<String>, source: io::Error) -> Self {
        Self::System { what: what.into(), source }
    }
}

/// Whether a file that begins with these bytes is a capture: pcap or pcapng. The reader refuses pcapng with an error
/// that names the command to convert it.
pub fn is_capture(octets: &[u8]) -> bool {
    let Some(magic) = octets.first_chunk::<4>() else { return false };
    let known = |magic| matches!(magic, MAGIC_MICROS | MAGIC_NANOS);
    known(u32::from_le_bytes(*magic)) || known(u32::from_be_bytes(*magic)) || *magic == PCAPNG
}

/// The unit of the times in a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Resolution {
    /// Times are in microseconds: the older format, which every tool reads.
    Micros,
    /// Times are in nanoseconds: the newer format.
    Nanos,
}

impl Resolution {
    fn per_second(self) -> u64 {
        match self {
            Self::Micros => 1_000_000,
            Self::Nanos => 1_000_000_000,
        }
    }
}

/// One frame of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// Time of the record, since 1970 if the writer followed the format.
    pub at: Nanos,
    /// Time since the first record; never less than the offset of the record before.
    pub offset: Nanos,
    /// Length of the frame on the wire in bytes. Larger than the length of `bytes` if the capture cut the frame.
    pub original_len: u32,
    /// The captured bytes of the frame.
    pub bytes: &'a [u8],
}

/// Reads a file record by record, in constant memory.
///
/// As an iterator it returns each frame's offset since the first frame, and a copy of the frame.
/// [`next_record`](Self::next_record) returns the whole record without a copy. After an error there are no more
/// records.
#[derive(Debug)]
pub struct PcapReader<R> {
    name: String,
    input: R,
    big_endian: bool,
    resolution: Resolution,
    /// Number of bytes in the file header and the records read so far.
    position: u64,
    /// Number of records read completely.
    records: u64,
    first: Option<Nanos>,
    last: Nanos,
    backwards: u64,
    ended: bool,
    /// The last record read: its time, its length on the wire and its length in `buffer`.
    current: (Nanos, u32, usize),
    buffer: Box<[u8]>,
}

impl PcapReader<BufReader<File>> {
    /// Opens the file at `path`. Refuses pipes and devices: opening or reading them could wait without end.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let name = path.display().to_string();
        let invalid = |why: String| Error::Invalid { what: format!("cannot open {name}"), why };
        let is_file = path.metadata().map_err(|e| invalid(e.to_string()))?.is_file();
        if !is_file {
            return Err(invalid("it is not a regular file; write the capture to a file first".into()));
        }
        let file = File::open(path).map_err(|e| invalid(e.to_string()))?;
        Self::new(name, BufReader::with_capacity(1 << 20, file))
    }
}

impl<R: Read> PcapReader<R> {
    /// Reads the file header from `input`; `name` is for error messages.
    pub fn new(name: impl Into<String>, input: R) -> Result<Self, Error> {
        let mut reader = Self {
            name: name.into(),
            input,
            big_endian: false,
            resolution: Resolution::Micros,
            position: 0,
            records: 0,
            first: None,
            last: Nanos::ZERO,
            backwards: 0,
            ended: false,
            current: (Nanos::ZERO, 0, 0),
            buffer: vec![0; LONGEST_RECORD].into(),
        };
        reader.read_file_header()?;
        Ok(reader)
    }

    /// The unit of the file's times.
    pub fn resolution(&self) -> Resolution {
        self.resolution
    }

    /// Number of records so far whose time is earlier than that of a previous record. Such a record gets the same
    /// offset as the one before it.
    pub fn backwards(&self) -> u64 {
        self.backwards
    }

    /// Reads the next record and returns it. `None` at the end of the file.
    pub fn next_record(&mut self) -> Result<Option<Record<'_>>, Error> {
        Ok(if self.advance()? { Some(self.record()) } else { None })
    }

    /// Reads the next record, which [`record`](Self::record) then returns. Returns false at the end of the file.
    pub fn advance(&mut self) -> Result<bool, Error> {
        if self.ended {
            return Ok(false);
        }
        let read = self.read_record();
        self.ended = !matches!(read, Ok(true));
        read
    }

    /// The last record read.
    pub fn record(&self) -> Record<'_> {
        let (at, original_len, len) = self.current;
        let offset = self.last.saturating_sub(self.first.unwrap_or(self.last));
        Record { at, offset, original_len, bytes: &self.buffer[..len] }
    }

    fn read_file_header(&mut self) -> Result<(), Error> {
        let mut header = [0; FILE_HEADER];
        let got = self.fill(&mut header)?;
        let magic = [header[0], header[1], header[2], header[3]];
        let known = |magic: u32| match magic {
            MAGIC_MICROS => Some(Resolution::Micros),
            MAGIC_NANOS => Some(Resolution::Nanos),
            _ => None,
        };
        let little = known(u32::from_le_bytes(magic));
        let Some(resolution) = little.or(known(u32::from_be_bytes(magic))) else {
            return Err(self.invalid(
                0,
                match magic {
                    PCAPNG if got >= 4 => "this is a pcapng file; convert it with: editcap -F pcap IN OUT".into(),
                    // RFC 1952, section 2.3.1.
                    [0x1f, 0x8b, ..] if got >= 4 => "this is compressed with gzip; unpack it with: gunzip".into(),
                    _ if got < 4 => {
                        format!("the file has only {got} bytes, a pcap file at least {FILE_HEADER}; capture it again")
                    }
                    _ => format!(
                        "{:#010x} is not how a pcap file begins; convert it with: editcap -F pcap IN OUT",
                        u32::from_be_bytes(magic)
                    ),
                },
            ));
        };
        self.resolution = resolution;
        self.big_endian = little.is_none();
        if got < FILE_HEADER {
            return Err(
                self.invalid(0, format!("the file header ends after {got} of {FILE_HEADER} bytes; capture it again"))
            );
        }
        let (version, network) = (self.u32(&header, 4), self.u32(&header, 20));
        // Two 16-bit fields, read as one 32-bit field: which is first depends on the byte order.
        let (major, minor) =
            if self.big_endian { (version >> 16, version & 0xffff) } else { (version & 0xffff, version >> 16) };
        if (major, minor) != (2, 4) {
            return Err(
                self.invalid(4, format!("version {major}.{minor}, not 2.4; convert it with: editcap -F pcap IN OUT"))
            );
        }
        if network != ETHERNET {
            return Err(self.invalid(20, format!("link type {network:#x} (with its flags), not Ethernet (1) without frame check sequences; capture on one Ethernet interface, not on \"any\"")));
        }
        self.position = FILE_HEADER as u64;
        Ok(())
    }

    fn read_record(&mut self) -> Result<bool, Error> {
        let mut header = [0; RECORD_HEADER];
        match self.fill(&mut header)? {
            0 => return Ok(false),
            RECORD_HEADER => {}
            got => {
                return Err(self.truncated(format!("the record's header ends after {got} of {RECORD_HEADER} bytes")));
            }
        }
        let [seconds, fraction, len, original_len] = [0, 4, 8, 12].map(|at| self.u32(&header, at));
        let per_second = self.resolution.per_second();
        if u64::from(fraction) >= per_second {
            return Err(self.corrupt(4, format!("{fraction} of {per_second} parts of a second")));
        }
        if len as usize > LONGEST_RECORD {
            return Err(self.corrupt(8, format!("{len} bytes captured, more than any capture has ({LONGEST_RECORD})")));
        }
        if len > original_len {
            return Err(self.corrupt(8, format!("{len} bytes captured of a frame of {original_len}")));
        }
        let len = len as usize;
        // The buffer is taken out of `self`, because `fill` also borrows `self`. An empty box costs nothing.
        let mut buffer = std::mem::take(&mut self.buffer);
        let got = self.fill(&mut buffer[..len]);
        self.buffer = buffer;
        let got = got?;
        if got < len {
            return Err(self.truncated(format!("the record ends after {got} of {len} bytes of data")));
        }
        let at =
            Nanos::from_secs(seconds.into()) + Nanos::from_nanos(u64::from(fraction) * (1_000_000_000 / per_second));
        self.first.get_or_insert(at);
        self.backwards += u64::from(at < self.last);
        self.last = self.last.max(at);
        self.current = (at, original_len, len);
        self.position += (RECORD_HEADER + len) as u64;
        self.records += 1;
        Ok(true)
    }

    /// Reads until `buffer` is full or the input ends; returns how much it read.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, Error> {
        let mut got = 0;
        while got < buffer.len() {
            match self.input.read(&mut buffer[got..]) {
                Ok(0) => break,
                Ok(n) => got += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Error::system(format!("read {}", self.name), e)),
            }
        }
        Ok(got)
    }

    fn u32(&self, header: &[u8], at: usize) -> u32 {
        let octets = [header[at], header[at + 1], header[at + 2], header[at + 3]];
        if self.big_endian { u32::from_be_bytes(octets) } else { u32::from_le_bytes(octets) }
    }

    fn truncated(&self, why: String) -> Error {
        self.invalid(0, format!("{why}; {}", self.remedy()))
    }

    fn corrupt(&self, field: u64, why: String) -> Error {
        self.invalid(field, format!("{why}: the file is damaged; {}", self.remedy()))
    }

    fn remedy(&self) -> String {
        match self.records {
            0 => "no record before it is whole, so capture it again".into(),
            n => format!("keep the {n} complete records before it with: editcap -F pcap -r IN OUT 1-{n}"),
        }
    }

    /// Makes an error located `field` bytes after the last complete record.
    fn invalid(&self, field: u64, why: impl Into<String>) -> Error {
        let offset = self.position + field;
        let place = if self.position == 0 { "file header".into() } else { format!("record {}", self.records + 1) };
        Error::Invalid { what: format!("{}, {place}, offset {offset}", self.name), why: why.into() }
    }
}

impl<R: Read + Seek> PcapReader<R> {
    /// Goes back to the first record and resets the counts.
    pub fn rewind(&mut self) -> Result<(), Error> {
        let start = SeekFrom::Start(FILE_HEADER as u64);
        self.input.seek(start).map_err(|e| Error::system(format!("rewind {}", self.name), e))?;
        (self.position, self.records, self.backwards) = (FILE_HEADER as u64, 0, 0);
        (self.first, self.last, self.ended) = (None, Nanos::ZERO, false);
        Ok(())
    }
}

impl<R: Read> Iterator for PcapReader<R> {
    type Item = Result<(Nanos, Vec<u8>), Error>;
    fn next(&mut self) -> Option<Self::Item> {
        match self.next_record() {
            Ok(record) => record.map(|r| Ok((r.offset, r.bytes.to_vec()))),
            Err(e) => Some(Err(e)),
        }
    }
}

/// Writes a capture file of Ethernet frames, in little-endian byte order.
#[derive(Debug)]
pub struct PcapWriter<W> {
    name: String,
    output: W,
    resolution: Resolution,
}

impl PcapWriter<BufWriter<File>> {
    /// Creates the file at `path`, or empties it if it exists.
    pub fn create(path: &Path, resolution: Resolution) -> Result<Self, Error> {
        let name = path.display().to_string();
        let file = File::create(path).map_err(|e| Error::system(format!("create {name}"), e))?;
        Self::new(name, BufWriter::with_capacity(1 << 20, file), resolution)
    }
}

impl<W: Write> PcapWriter<W> {
    /// Writes the file header to `output`; `name` is for error messages.
    pub fn new(name: impl Into<String>, output: W, resolution: Resolution) -> Result<Self, Error> {
        let mut header = [0; FILE_HEADER];
        let magic = if resolution == Resolution::Micros { MAGIC_MICROS } else { MAGIC_NANOS };
        header[..4].copy_from_slice(&magic.to_le_bytes());
        header[4..6].copy_from_slice(&2_u16.to_le_bytes());
        header[6..8].copy_from_slice(&4_u16.to_le_bytes());
        header[16..20].copy_from_slice(&(LONGEST_RECORD as u32).to_le_bytes());
        header[20..].copy_from_slice(&ETHERNET.to_le_bytes());
        let mut writer = Self { name: name.into(), output, resolution };
        writer.write_raw(&header)?;
        Ok(writer)
    }

    /// Writes one frame with its time since 1970, which must be before 2106-02-07 (32-bit seconds).
    pub fn write(&mut self, at: Nanos, frame: &[u8]) -> Result<(), Error> {
        let header = record_header(self.resolution, at, frame.len(), frame.len());
        let header = header.ok_or_else(|| Error::Invalid {
            what: self.name.clone(),
            why: format!("a frame of {} bytes at {at} does not fit: at most {LONGEST_RECORD} bytes, and a time before 2106-02-07", frame.len()),
        })?;
        self.write_raw(&header)?;
        self.write_raw(frame)
    }

    /// Writes buffered data to the output.
    pub fn flush(&mut self) -> Result<(), Error> {
        self.output.flush().map_err(|e| Error::system(format!("write {}", self.name), e))
    }

    /// Flushes the data and returns the output.
    pub fn finish(mut self) -> Result<W, Error> {
        self.flush()?;
        Ok(self.output)
    }

    /// Writes `octets` unchanged. They must be whole records.
    pub fn write_raw(&mut self, octets: &[u8]) -> Result<(), Error> {
        self.output.write_all(octets).map_err(|e| Error::system(format!("write {}", self.name), e))
    }
}

/// Makes a record's header, in little-endian byte order. `len` bytes of a frame of `original` bytes were captured.
/// `None` if the time or a length does not fit the format.
pub fn record_header(resolution: Resolution, at: Nanos, len: usize, original: usize) -> Option<[u8; RECORD_HEADER]> {
    if len > LONGEST_RECORD || len > original {
        return None;
    }
    let seconds = u32::try_from(at.as_nanos() / 1_000_000_000).ok()?;
    let fraction = at.as_nanos() % 1_000_000_000 / (1_000_000_000 / resolution.per_second());
    let mut header = [0; RECORD_HEADER];
    let fields = [seconds, u32::try_from(fraction).ok()?, u32::try_from(len).ok()?, u32::try_from(original).ok()?];
    for (place, field) in header.chunks_exact_mut(4).zip(fields) {
        place.copy_from_slice(&field.to_le_bytes());
    }
    Some(header)
}

#[cfg(test)]
mod tests;
