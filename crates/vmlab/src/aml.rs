//! Encodes the terms of ACPI's byte code (AML) that the guest's power table needs.
//!
//! Source: ACPI Specification 6.5, chapter 20 (AML), 6.4.3.7 (generic register descriptor), 5.2.6 (table header). Each
//! function returns the bytes of one term; a list of terms is the concatenation of their bytes.

/// The address of a register.
#[derive(Clone, Copy)]
pub(super) struct Register {
    /// Address space: 1 is system I/O, 0x7f functional fixed hardware (ACPI 6.5, table 5.1).
    pub(super) space: u8,
    /// Width in bits.
    pub(super) bits: u8,
    /// Offset in bits.
    pub(super) offset: u8,
    /// Access size; 1 means a byte.
    pub(super) access: u8,
    /// Address within the space.
    pub(super) address: u64,
}

/// Builds a secondary table with its header (5.2.6): signature, length, revision, checksum, creator.
pub(super) fn table(terms: &[Vec<u8>]) -> Vec<u8> {
    const HEADER: usize = 36;
    let body = terms.concat();
    let mut out = Vec::with_capacity(HEADER + body.len());
    out.extend_from_slice(b"SSDT");
    out.extend_from_slice(&((HEADER + body.len()) as u32).to_le_bytes());
    out.extend_from_slice(&[2, 0]); // revision 2: integers have 64 bits; the checksum comes last
    out.extend_from_slice(b"APUS  VMPOWER ");
    out.extend_from_slice(&1_u32.to_le_bytes());
    out.extend_from_slice(b"APUS");
    out.extend_from_slice(&1_u32.to_le_bytes());
    out.extend_from_slice(&body);
    out[9] = out.iter().fold(0_u8, |sum, octet| sum.wrapping_sub(*octet));
    out
}

/// Encodes a constant in its shortest form (20.2.3).
pub(super) fn integer(value: u64) -> Vec<u8> {
    let octets = value.to_le_bytes();
    match value {
        0 | 1 => vec![octets[0]],
        2..=0xff => vec![0x0a, octets[0]],
        0x100..=0xffff => [&[0x0b], &octets[..2]].concat(),
        0x1_0000..=0xffff_ffff => [&[0x0c], &octets[..4]].concat(),
        _ => [&[0x0e], &octets[..]].concat(),
    }
}

/// Encodes a string (20.2.3), which must be ASCII.
pub(super) fn text(value: &str) -> Vec<u8> {
    [&[0x0d], value.as_bytes(), &[0]].concat()
}

/// Encodes a name such as `_PSS` or `\_SB.CPUS.C000` (20.2.2); short segments are padded with `_`.
pub(super) fn name(path: &str) -> Vec<u8> {
    let (root, rest) = path.strip_prefix('\\').map_or((&[][..], path), |rest| (&b"\\"[..], rest));
    let segments: Vec<_> = rest.split('.').filter(|segment| !segment.is_empty()).collect();
    let prefix = match segments.len() {
        0 => vec![0],
        1 => Vec::new(),
        2 => vec![0x2e],
        n => vec![0x2f, n as u8],
    };
    let padded: String = segments.iter().map(|segment| format!("{segment:_<4}")).collect();
    [root, &prefix, padded.as_bytes()].concat()
}

/// Encodes `Scope (path) { terms }`.
pub(super) fn scope(path: &str, terms: &[Vec<u8>]) -> Vec<u8> {
    package_of(&[0x10], &[name(path), terms.concat()].concat())
}

/// Encodes `Device (path) { terms }`.
pub(super) fn device(path: &str, terms: &[Vec<u8>]) -> Vec<u8> {
    package_of(&[0x5b, 0x82], &[name(path), terms.concat()].concat())
}

/// Encodes `ThermalZone (path) { terms }`.
pub(super) fn thermal_zone(path: &str, terms: &[Vec<u8>]) -> Vec<u8> {
    package_of(&[0x5b, 0x85], &[name(path), terms.concat()].concat())
}

/// Encodes `Name (path, value)`.
pub(super) fn named(path: &str, value: &[u8]) -> Vec<u8> {
    [&[0x08], name(path).as_slice(), value].concat()
}

/// Encodes `Package () { elements }`.
pub(super) fn package(elements: &[Vec<u8>]) -> Vec<u8> {
    package_of(&[0x12], &[&[elements.len() as u8], elements.concat().as_slice()].concat())
}

/// Encodes `Method (path, 0) { terms }`.
pub(super) fn method(path: &str, terms: &[Vec<u8>]) -> Vec<u8> {
    package_of(&[0x14], &[name(path), vec![0], terms.concat()].concat())
}

/// Encodes `Return (value)`.
pub(super) fn returns(value: &[u8]) -> Vec<u8> {
    [&[0xa4], value].concat()
}

/// Encodes `If (a != b) { terms }` as LNot (LEqual (a, b)).
pub(super) fn if_differ(a: &[u8], b: &[u8], terms: &[Vec<u8>]) -> Vec<u8> {
    package_of(&[0xa0], &[&[0x92, 0x93], a, b, &terms.concat()].concat())
}

/// Encodes `Store (value, into)`.
pub(super) fn store(value: &[u8], into: &str) -> Vec<u8> {
    [&[0x70], value, &name(into)].concat()
}

/// Encodes `Notify (object, value)`.
pub(super) fn notify(object: &str, value: u64) -> Vec<u8> {
    [vec![0x86], name(object), integer(value)].concat()
}

/// Encodes `ResourceTemplate () { Register (…) }`: a buffer with one generic register descriptor and the end tag.
pub(super) fn register(r: Register) -> Vec<u8> {
    let mut data = vec![0x82, 12, 0, r.space, r.bits, r.offset, r.access];
    data.extend_from_slice(&r.address.to_le_bytes());
    data.extend_from_slice(&[0x79, 0]);
    package_of(&[0x11], &[integer(data.len() as u64), data].concat())
}

/// Encodes `OperationRegion (path, SystemMemory, address, size)`, and a field of consecutive 32-bit words in it.
pub(super) fn memory_words(path: &str, address: u64, words: &[String]) -> Vec<u8> {
    let region = [&[0x5b, 0x80], name(path).as_slice(), &[0]].concat();
    let region = [region, integer(address), integer(words.len() as u64 * 4)].concat();
    // Field flags 3: access by double words, no lock, preserve other bits (20.2.5.2).
    let mut list = [name(path), vec![3]].concat();
    for word in words {
        list.extend_from_slice(&name(word));
        list.extend_from_slice(&length(32));
    }
    [region, package_of(&[0x5b, 0x81], &list)].concat()
}

/// Encodes `operator`, a length, and `content`. The length counts its own bytes and those of `content` (20.2.4).
fn package_of(operator: &[u8], content: &[u8]) -> Vec<u8> {
    let own = (1..=4).find(|own| content.len() + own <= limit(*own)).unwrap_or(4);
    [operator, &encoded(content.len() + own, own), content].concat()
}

/// Encodes a length that does not count its own bytes.
fn length(value: usize) -> Vec<u8> {
    let own = (1..=4).find(|own| value <= limit(*own)).unwrap_or(4);
    encoded(value, own)
}

/// The largest length that an encoding of `octets` bytes can hold: 6 bits in a single byte; otherwise 4 bits in the
/// first byte and 8 in each further byte.
fn limit(octets: usize) -> usize {
    if octets == 1 { 63 } else { (1 << (4 + 8 * (octets - 1))) - 1 }
}

fn encoded(value: usize, octets: usize) -> Vec<u8> {
    if octets == 1 {
        return vec![value as u8];
    }
    let mut out = vec![((octets - 1) << 6 | (value & 0xf)) as u8];
    out.extend_from_slice(&(value >> 4).to_le_bytes()[..octets - 1]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes are those that iasl 20200925 generates from the same source.
    #[test]
    fn terms_are_those_of_the_reference_compiler() {
        assert_eq!(integer(1), [1]);
        assert_eq!(integer(0x41), [0x0a, 0x41]);
        assert_eq!(integer(95_000), [0x0c, 0x18, 0x73, 0x01, 0x00]);
        assert_eq!(name("\\_SB.CPUS.C000"), *b"\\\x2f\x03_SB_CPUSC000");
        assert_eq!(name("\\_TZ"), *b"\\_TZ_");
        assert_eq!(named("_PSV", &integer(3531)), *b"\x08_PSV\x0b\xcb\x0d");
        assert_eq!(package(&[integer(5), integer(0)]), [0x12, 0x05, 0x02, 0x0a, 0x05, 0x00]);
        let io = Register { space: 1, bits: 8, offset: 0, access: 0, address: 0x4e0 };
        let expected = [0x11, 0x14, 0x0a, 0x11, 0x82, 0x0c, 0, 1, 8, 0, 0, 0xe0, 4, 0, 0, 0, 0, 0, 0, 0x79, 0];
        assert_eq!(register(io), expected);
        assert_eq!(method("_PPC", &[returns(&integer(0))]), *b"\x14\x08_PPC\x00\xa4\x00");
        let words = memory_words("HOST", 0x3f00_0000, &["POWR".into(), "L000".into(), "L001".into()]);
        assert_eq!(words, *b"\x5b\x80HOST\x00\x0c\x00\x00\x00\x3f\x0a\x0c\x5b\x81\x15HOST\x03POWR L000 L001 ");
        assert_eq!(notify("\\_SB.CPUS.C000", 0x80), *b"\x86\\\x2f\x03_SB_CPUSC000\x0a\x80");
    }

    #[test]
    fn lengths_grow_with_what_they_count() {
        assert_eq!(package_of(&[], &[0; 62])[..1], [63]);
        assert_eq!(package_of(&[], &[0; 63])[..2], [0x41, 0x04]);
        assert_eq!(package_of(&[], &[0; 4093])[..2], [0x4f, 0xff]);
        assert_eq!(package_of(&[], &[0; 4094])[..3], [0x81, 0x00, 0x01]);
        assert_eq!(length(32), [32]);
    }

    #[test]
    fn a_table_sums_up_to_zero() {
        let table = table(&[named("ABCD", &integer(7))]);
        assert_eq!(table.iter().fold(0_u8, |sum, octet| sum.wrapping_add(*octet)), 0);
        assert_eq!(u32::from_le_bytes([table[4], table[5], table[6], table[7]]) as usize, table.len());
    }
}
