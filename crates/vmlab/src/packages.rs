//! The files from which a guest boots: Debian's real-time kernel, its modules and a static busybox. They are fetched as
//! packages into a folder and unpacked there. Nothing is installed.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::FlockOperation;

use super::{Error, tools};

/// Package that depends on the newest real-time kernel of the distribution.
const KERNEL: &str = "linux-image-rt-amd64";

/// Package with a single static program that provides a whole user space.
const BUSYBOX: &str = "busybox-static";

/// Files of the kernel package to leave out: documentation, and the modules for hardware that no guest has, which are
/// half of the package.
const WITHOUT: [&str; 6] = [
    "*/drivers/gpu/*",
    "*/drivers/media/*",
    "*/drivers/infiniband/*",
    "*/drivers/net/wireless/*",
    "*/sound/*",
    "*/share/*",
];

/// The unpacked packages.
#[derive(Clone, Debug)]
pub(super) struct Base {
    /// The kernel as an ELF file, which QEMU starts directly, through its PVH note. This is one to two seconds faster
    /// than decompressing it in the emulation.
    pub(super) kernel: PathBuf,
    /// The folder with `kernel/` and `modules.builtin`.
    pub(super) modules: PathBuf,
    /// Release of the guest's kernel, as `uname -r` shows it.
    pub(super) release: String,
    /// The static busybox.
    pub(super) busybox: PathBuf,
}

impl Base {
    /// The packages in `cache`, downloaded if missing. The download of 73 MB takes half a minute; the unpacked packages
    /// take about 250 MB of disk. Delete the folder to get newer packages.
    pub(super) fn get(cache: &Path) -> Result<Self, Error> {
        let made = fs::create_dir_all(cache).and_then(|()| File::create(cache.join("lock")));
        let lock = made.map_err(|e| Error::Lacking {
            what: format!("keep the guest's packages in {}", cache.display()),
            why: e.to_string(),
            fix: "set APUS_VM_CACHE to a folder that can be written to".into(),
        })?;
        // If two tests start at once, the second one waits and uses the packages that the first one fetched. Closing
        // the file unlocks it.
        rustix::fs::flock(&lock, FlockOperation::LockExclusive)
            .map_err(|e| Error::system(format!("lock {}", cache.display()), e))?;
        let base = cache.join("base");
        if !base.is_dir() {
            fetch(cache, &base)?;
        }
        Self::at(&base)
    }

    fn at(base: &Path) -> Result<Self, Error> {
        // Debian 13 moved /lib and /bin under /usr in the packages themselves.
        let modules = [base.join("lib/modules"), base.join("usr/lib/modules")];
        let releases = modules.iter().find_map(|folder| fs::read_dir(folder).ok());
        let modules = releases.and_then(|mut entries| entries.find_map(Result::ok)).map(|entry| entry.path());
        let busybox = [base.join("bin/busybox"), base.join("usr/bin/busybox")].into_iter().find(|p| p.is_file());
        match (modules, busybox) {
            (Some(modules), Some(busybox)) => Ok(Self {
                kernel: base.join("vmlinux"),
                release: modules.file_name().unwrap_or_default().to_string_lossy().into_owned(),
                modules,
                busybox,
            }),
            _ => Err(Error::invalid(
                base.display().to_string(),
                format!(
                    "there is no kernel or no busybox in it; delete it, and {KERNEL} and {BUSYBOX} are fetched anew"
                ),
            )),
        }
    }
}

/// Downloads and unpacks into a folder that becomes `base` only if everything succeeds.
fn fetch(cache: &Path, base: &Path) -> Result<(), Error> {
    let apt_get = tools::find("apt-get", "apt, on Debian or a descendant")?;
    let dpkg_deb = tools::find("dpkg-deb", "dpkg")?;
    let new = cache.join("new");
    let failed = |e| Error::system(format!("prepare {}", new.display()), e);
    if new.exists() {
        fs::remove_dir_all(&new).map_err(failed)?;
    }
    fs::create_dir_all(&new).map_err(failed)?;
    let kernel = newest_kernel()?;
    // Without a sandbox user, because `_apt` may not be able to read the folder.
    let words = ["-q", "-o", "APT::Sandbox::User=root", "download", &kernel, BUSYBOX];
    tools::output(Command::new(apt_get).args(words).current_dir(&new))?;
    for package in files_in(&new)? {
        let exclude: String = WITHOUT.iter().map(|pattern| format!(" --exclude='{pattern}'")).collect();
        let unpack = format!("\"$1\" --fsys-tarfile \"$2\" | tar -x{exclude}");
        let mut shell = Command::new("sh");
        shell.args(["-c", &unpack, "sh"]).arg(&dpkg_deb).arg(&package).current_dir(&new);
        tools::output(&mut shell)?;
        fs::remove_file(&package).map_err(failed)?;
    }
    let image = files_in(&new.join("boot"))?.into_iter().find(|path| name(path).starts_with("vmlinuz"));
    let image = image.ok_or_else(|| Error::invalid(&kernel, "the package has no boot/vmlinuz"))?;
    unpack_kernel(&image, &new.join("vmlinux"))?;
    Base::at(&new)?;
    fs::rename(&new, base).map_err(failed)
}

/// The package that [`KERNEL`] currently depends on, such as `linux-image-6.1.0-56-rt-amd64`.
fn newest_kernel() -> Result<String, Error> {
    let said = tools::output(Command::new(tools::find("apt-cache", "apt")?).args(["depends", KERNEL]))?;
    dependency(&said).ok_or_else(|| Error::Lacking {
        what: format!("find the package that {KERNEL} depends on"),
        why: "apt's lists do not have it".into(),
        fix: "apt-get update; on a distribution other than Debian there may be no such package".into(),
    })
}

fn dependency(said: &str) -> Option<String> {
    let words = said.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    words.map(str::trim).find(|word| word.starts_with("linux-image-")).map(str::to_owned)
}

/// Extracts the ELF kernel from a bzImage, whose header says where the compressed kernel is.
///
/// Source: Linux, Documentation/arch/x86/boot.rst: `setup_sects` at 0x1f1 (0 means 4), `payload_offset` at 0x248 from
/// the start of the protected-mode code, `payload_length` at 0x24c.
fn unpack_kernel(image: &Path, to: &Path) -> Result<(), Error> {
    let bad = |why: &str| Error::invalid(image.display().to_string(), why);
    let bytes = fs::read(image).map_err(|e| Error::system(format!("read {}", image.display()), e))?;
    let word = |at: usize| bytes.get(at..at + 4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as usize);
    let header = (bytes.get(0x1f1), word(0x248), word(0x24c));
    let (Some(&sectors), Some(offset), Some(length)) = header else { return Err(bad("it is too short for a kernel")) };
    let sectors = if sectors == 0 { 4 } else { usize::from(sectors) };
    let start = (sectors + 1) * 512 + offset;
    let payload = bytes.get(start..start + length).ok_or_else(|| bad("its header points behind its end"))?;
    // The last four bytes are the unpacked size, which does not belong to any of the formats.
    let (program, package, options) = match payload {
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => ("xz", "xz-utils", ["-dc", "--single-stream"]),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => ("zstd", "zstd", ["-dc", "-q"]),
        _ => return Err(bad("it is compressed neither with xz nor with zstd")),
    };
    let payload = if program == "zstd" { &payload[..payload.len() - 4] } else { payload };
    let packed = to.with_extension("packed");
    let failed = |e| Error::system(format!("unpack {}", image.display()), e);
    fs::write(&packed, payload).map_err(failed)?;
    let status = Command::new(tools::find(program, package)?)
        .args(options)
        .stdin(Stdio::from(File::open(&packed).map_err(failed)?))
        .stdout(Stdio::from(File::create(to).map_err(failed)?))
        .status()
        .map_err(failed)?;
    fs::remove_file(&packed).map_err(failed)?;
    let mut magic = [0; 4];
    std::io::Read::read_exact(&mut File::open(to).map_err(failed)?, &mut magic).map_err(failed)?;
    if !status.success() || magic != *b"\x7fELF" {
        return Err(bad("what came out of it is no ELF file"));
    }
    Ok(())
}

fn files_in(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = fs::read_dir(folder).map_err(|e| Error::system(format!("read {}", folder.display()), e))?;
    Ok(entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_file()).collect())
}

fn name(path: &Path) -> std::borrow::Cow<'_, str> {
    path.file_name().unwrap_or_default().to_string_lossy()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_behind_the_meta_package_is_found() {
        let said = "linux-image-rt-amd64\n  Depends: linux-image-6.1.0-56-rt-amd64\n  Conflicts: x\n";
        assert_eq!(dependency(said).as_deref(), Some("linux-image-6.1.0-56-rt-amd64"));
        assert_eq!(dependency("linux-image-rt-amd64\n"), None);
    }

    /// A kernel image is read according to its header; a damaged one gives an error.
    #[test]
    fn a_kernel_image_is_unpacked_or_refused() {
        let folder = std::env::temp_dir().join(format!("apus-test-image-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (image, out) = (folder.join("vmlinuz"), folder.join("vmlinux"));
        let elf = folder.join("elf");
        fs::write(&elf, b"\x7fELF and the rest").unwrap();
        let packed = Command::new("xz").args(["-c", "--check=crc32"]).arg(&elf).output();
        let mut file = vec![0_u8; 5 * 512];
        file[0x1f1] = 4;
        let refused = |file: &[u8], why: &str| {
            fs::write(&image, file).unwrap();
            let error = unpack_kernel(&image, &out).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        };
        refused(&file[..100], "too short");
        file[0x24c] = 8;
        refused(&file, "behind its end");
        file.extend_from_slice(&[9; 8]);
        refused(&file, "neither with xz nor with zstd");
        if let Ok(packed) = packed {
            file.truncate(5 * 512);
            let payload = [packed.stdout.as_slice(), &[1, 2, 3, 4]].concat();
            file[0x24c..0x250].copy_from_slice(&(payload.len() as u32).to_le_bytes());
            file.extend_from_slice(&payload);
            fs::write(&image, &file).unwrap();
            unpack_kernel(&image, &out).unwrap();
            assert_eq!(fs::read(&out).unwrap(), fs::read(&elf).unwrap());
        } else {
            testkit::skip("there is no xz to pack a kernel with");
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_cache_that_cannot_be_is_lacking() {
        let error = Base::get(Path::new("/proc/nowhere")).unwrap_err();
        assert!(error.lacks() && error.to_string().contains("APUS_VM_CACHE"), "{error}");
    }
}
