//! The first root file system of a guest: busybox, modules, programs of the host, and the init script.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::cpio::Archive;
use super::modules::Modules;
use super::packages::Base;
use super::{Error, tools};

const INIT: &str = include_str!("init.sh");

/// Mount points, and folders in which programs expect their files.
const FOLDERS: [&str; 13] =
    ["proc", "sys", "dev", "tmp", "run", "root", "etc", "agent", "share", "usr/bin", "usr/sbin", "var/lib", "lib64"];

/// Size above which programs are stripped of their debug information.
const STRIP_ABOVE: u64 = 4 << 20;

/// Builds the root file system with the programs `programs` and the modules `modules`, which the guest loads in this
/// order.
pub(super) fn build(base: &Base, modules: &[String], programs: &[PathBuf], folder: &Path) -> Result<Vec<u8>, Error> {
    let mut archive = Archive::default();
    for path in FOLDERS {
        archive.folder(path);
    }
    // Before /dev is mounted, init's own output needs the first device, and shells need the second one.
    archive.device("dev/console", 0o600, 5, 1);
    archive.device("dev/null", 0o666, 1, 3);
    archive.file("bin/busybox", 0o755, read(&base.busybox)?);
    for applet in tools::output(Command::new(&base.busybox).arg("--list"))?.lines() {
        if applet != "busybox" {
            archive.link(&format!("bin/{applet}"), "busybox");
        }
    }
    Modules::read(base)?.add(modules, &base.release, &mut archive)?;
    let list: String = modules.iter().map(|name| format!("{name}\n")).collect();
    archive.file("etc/modules", 0o644, list.into_bytes());
    archive.file("etc/passwd", 0o644, b"root:x:0:0:root:/root:/bin/sh\n".to_vec());
    archive.file("etc/group", 0o644, b"root:x:0:\n".to_vec());
    for program in programs {
        add_program(program, folder, &mut archive)?;
    }
    archive.file("init", 0o755, INIT.as_bytes().to_vec());
    Ok(archive.bytes())
}

/// Adds a program to /usr/bin with the shared objects that it needs. The guest uses the C library of this host,
/// whatever the host's distribution.
fn add_program(program: &Path, folder: &Path, archive: &mut Archive) -> Result<(), Error> {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    archive.file(&format!("usr/bin/{name}"), 0o755, without_symbols(program, folder)?);
    for (inside, file) in tools::libraries(program)? {
        if !archive.contains(&inside) {
            archive.file(&inside, 0o755, read(&file)?);
        }
    }
    Ok(())
}

/// Strips a program: a debug build is mostly debug information, which the emulated machine would have to unpack.
fn without_symbols(program: &Path, folder: &Path) -> Result<Vec<u8>, Error> {
    let size = fs::metadata(program).map_err(|e| Error::system(format!("read {}", program.display()), e))?.len();
    if size <= STRIP_ABOVE {
        return read(program);
    }
    let small = folder.join("stripped");
    let mut strip = Command::new(tools::find("strip", "binutils")?);
    tools::output(strip.arg("--strip-debug").arg("-o").arg(&small).arg(program))?;
    let bytes = read(&small)?;
    fs::remove_file(&small).map_err(|e| Error::system(format!("remove {}", small.display()), e))?;
    Ok(bytes)
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|e| Error::system(format!("read {}", path.display()), e))
}
