//! `apus power`: one file per subcommand. Only `set` is elsewhere, because it is a transaction like `apus tune apply`.

mod branches;
mod channel;
mod learn;
mod request;
pub(super) mod serve;
pub(super) mod steer;
mod sweep;
mod watch;

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use crate::Status;
use crate::args::power::Power;

/// Runs `apus power`.
pub fn run(typed: Power) -> anyhow::Result<Status> {
    match typed {
        Power::Set(typed) => super::tune::set_power(&typed),
        Power::Sweep(typed) => sweep::run(&typed),
        Power::Steer(typed) => steer::run(&typed),
        Power::Learn(typed) => learn::run(&typed),
        Power::Watch(typed) => watch::run(&typed),
        Power::Serve(typed) => serve::run(&typed),
        Power::Request(typed) => request::run(&typed),
    }
}

/// Opens a regular file for reading. Anything else, such as a FIFO, could block or never end.
fn regular_file(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A FIFO among the manifests once stopped `apus power serve` for ever.
    #[test]
    fn only_regular_files_are_read() {
        let fifo = std::env::temp_dir().join(format!("apus-fifo-{}", std::process::id()));
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        for path in [&fifo, Path::new("/dev/zero"), Path::new("/")] {
            assert!(regular_file(path).unwrap_err().to_string().contains("regular"), "{}", path.display());
        }
        std::fs::remove_file(&fifo).unwrap();
        assert!(regular_file(Path::new("/proc/version")).is_ok());
    }
}
