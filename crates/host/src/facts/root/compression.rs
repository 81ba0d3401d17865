//! Decompresses a stream. Its first bytes show the format.

use std::io::{self, BufRead, BufReader, Read};

/// First bytes of gzip (RFC 1952, 2.3.1), zstd (RFC 8878, 3.1.1) and xz (the .xz file format 1.2.0, 2.1.1.1) streams.
const GZIP: &[u8] = &[0x1f, 0x8b];
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
const XZ: &[u8] = &[0xfd, b'7', b'z', b'X', b'Z', 0];

/// Decompresses the stream. A stream in an unknown format passes unchanged.
pub(super) fn unpacked<R: Read + 'static>(file: R) -> io::Result<Box<dyn Read>> {
    let mut file = BufReader::with_capacity(1 << 16, file);
    let start = file.fill_buf()?;
    Ok(if start.starts_with(GZIP) {
        Box::new(flate2::bufread::MultiGzDecoder::new(file))
    } else if start.starts_with(ZSTD) {
        Box::new(ruzstd::decoding::StreamingDecoder::new(file).map_err(io::Error::other)?)
    } else if start.starts_with(XZ) {
        Box::new(lzma_rust2::XzReader::new(file, true))
    } else {
        Box::new(file)
    })
}
