//! The VM lab: guests that run under QEMU's emulation. The host observes the power and network hardware of each guest.
//!
//! A [`Vm`] is the configuration of a guest. [`Vm::boot`] boots it as a [`Guest`], and [`Guest::run`] runs a script in
//! it. The other methods of [`Guest`] report what the emulated hardware recorded, independently of the guest's own
//! reports.
//!
//! ```no_run
//! use vmlab::{PSTATES, Vm};
//!
//! let guest = Vm::new()?.cpus(2).pstates(&PSTATES).boot()?;
//! guest.run("echo powersave >/sys/devices/system/cpu/cpufreq/policy1/scaling_governor")?;
//! let writes = guest.pstate_writes()?;
//! assert_eq!(writes.last().unwrap().frequency, PSTATES.last().unwrap().frequency);
//! # Ok::<(), vmlab::Error>(())
//! ```
//!
//! The guest runs Debian's real-time kernel with a file system in memory. Nothing is installed on the host. A guest
//! leaves no files behind, except those in [`Guest::share`] if the test supplied that folder. No privilege is needed.
//!
//! docs/vmlab.md says what the lab shows and what it cannot show.
//!
//! **Law:** this crate is only a dev-dependency, because no product code boots a machine (`laws.rs` checks the edges
//! between crates).
#![forbid(unsafe_code)]

mod aml;
mod cpio;
mod error;
mod folder;
mod guest;
pub mod harness;
mod image;
mod modules;
mod packages;
mod power;
mod process;
mod tools;
mod wire;

use std::path::{Path, PathBuf};
use std::time::Duration;

pub use error::Error;
pub use guest::{Guest, Output};
pub use power::{CSTATES, Cstate, PSTATES, Pstate, PstateWrite};
pub use wire::{Interrupts, Moderation, Nic, Wire};

use folder::Folder;
use packages::Base;
use power::Power;

/// Kernel arguments of every guest. `quiet`: an emulated serial port is slow, and the kernel prints a panic anyway.
/// `panic=-1`: the machine resets at once, and QEMU then ends. `tsc=reliable`: otherwise the kernel's clock watchdog
/// would find the emulated clock too slow.
const KERNEL_ARGUMENTS: &str = "console=ttyS0 quiet panic=-1 tsc=reliable mitigations=off net.ifnames=0";

/// Modules that the agent needs; see `init.sh`.
const MODULES: [&str; 4] = ["virtio_pci", "virtio_console", "9pnet_virtio", "9p"];

/// Modules for P-states: the driver, and the governors that are not built in.
const CPUFREQ_MODULES: [&str; 5] =
    ["cpufreq_powersave", "cpufreq_userspace", "cpufreq_ondemand", "cpufreq_conservative", "acpi_cpufreq"];

/// Memory of a guest: enough for a few huge pages and a debug build in the file system.
const MEMORY: u64 = 1 << 30;

/// Distance in bytes from the end of the guest's memory to the words that the host writes to set the power and the
/// firmware limits.
const FIRMWARE_BELOW_END: u64 = 16 << 20;

/// Time limit for booting and for each script. Booting takes about 7 s on an idle host, and several times that under
/// load.
const PATIENCE: Duration = Duration::from_secs(180);

/// The configuration of a guest. To test a reboot, clone it and boot it again.
#[derive(Clone, Debug)]
pub struct Vm {
    qemu: PathBuf,
    base: Base,
    cpus: usize,
    virtual_time: bool,
    iommu: bool,
    power: Power,
    /// Each network card, with the tap interface at the host's end of its cable; `None` if a [`Wire`] is at that end.
    nics: Vec<(Nic, Option<String>)>,
    ports: Vec<String>,
    modules: Vec<String>,
    traces: Vec<String>,
    programs: Vec<PathBuf>,
    arguments: Vec<String>,
    share: Option<PathBuf>,
    patience: Duration,
}

impl Vm {
    /// Creates the configuration of a guest with one CPU and no further hardware. The first call on a host downloads
    /// the guest's packages to `$APUS_VM_CACHE`, or to `~/.cache/apus/vm` if that is not set. Returns
    /// [`Error::Lacking`] if QEMU or the packages are not available.
    pub fn new() -> Result<Self, Error> {
        Self::with_cache(&cache()?)
    }

    /// Like [`Vm::new`], with the guest's packages in the folder `cache`. The packages are downloaded if missing.
    pub fn with_cache(cache: &Path) -> Result<Self, Error> {
        Ok(Self {
            qemu: tools::find("qemu-system-x86_64", "qemu-system-x86")?,
            base: Base::get(cache)?,
            cpus: 1,
            virtual_time: false,
            iommu: false,
            power: Power::default(),
            nics: Vec::new(),
            ports: Vec::new(),
            modules: Vec::new(),
            traces: Vec::new(),
            programs: Vec::new(),
            arguments: Vec::new(),
            share: None,
            patience: PATIENCE,
        })
    }

    /// Sets the number of CPUs.
    pub fn cpus(mut self, cpus: usize) -> Self {
        self.cpus = cpus;
        self
    }

    /// Adds P-states for each CPU, the fastest first, driven by acpi-cpufreq; at most 16, for at most 16 CPUs.
    pub fn pstates(mut self, states: &[Pstate]) -> Self {
        self.power.pstates = states.to_vec();
        self
    }

    /// Adds C-states for each CPU, the shallowest first, driven by the ACPI idle driver; at most nine.
    pub fn cstates(mut self, states: &[Cstate]) -> Self {
        self.power.cstates = states.to_vec();
        self
    }

    /// Adds firmware that limits P-states by [`Guest::set_firmware_limit`], and a power meter whose value
    /// [`Guest::set_power`] sets.
    pub fn firmware(mut self) -> Self {
        self.power.firmware = Some(MEMORY - FIRMWARE_BELOW_END);
        self
    }

    /// Adds a network card. Cards of one kind are `eth0`, `eth1` and so on in the guest, in the order of the calls.
    /// [`Guest::wire`] returns the other end of the card's cable.
    pub fn nic(mut self, nic: Nic) -> Self {
        self.nics.push((nic, None));
        self
    }

    /// Adds a network card like [`Vm::nic`], but connects it to the tap interface `tap` instead of a [`Wire`]. The
    /// interface must be in the network namespace of the thread that boots the guest, and that thread must be allowed
    /// to open it.
    pub fn nic_on_tap(mut self, nic: Nic, tap: &str) -> Self {
        self.nics.push((nic, Some(tap.into())));
        self
    }

    /// Adds an IOMMU (Intel VT-d), which vfio-pci needs. Load the modules with [`Vm::module`]: `vfio_pci` and
    /// `vfio_iommu_type1`; the latter needs the kernel argument `vfio_iommu_type1.allow_unsafe_interrupts=1`, because
    /// the emulation does not remap interrupts.
    pub fn iommu(mut self) -> Self {
        self.iommu = true;
        self
    }

    /// Adds a channel between guest and host (virtio-serial): `/dev/virtio-ports/NAME` in the guest, [`Guest::port`]
    /// on the host.
    pub fn port(mut self, name: &str) -> Self {
        self.ports.push(name.into());
        self
    }

    /// Adds a kernel module, which is loaded at boot. For example, `msr` provides `/dev/cpu/*/msr`.
    pub fn module(mut self, name: &str) -> Self {
        self.modules.push(name.into());
        self
    }

    /// Makes QEMU trace one of its events, such as `virtio_notify`. [`Guest::traced`] returns the number of
    /// occurrences.
    pub fn trace(mut self, event: &str) -> Self {
        self.traces.push(event.into());
        self
    }

    /// Adds a program of this host, with the shared objects that it needs, to `/usr/bin` of the guest. `program` is a
    /// path, or a name to search for. To add a plug-in, give the path of its shared object.
    pub fn program(mut self, program: impl AsRef<Path>) -> Self {
        self.programs.push(program.as_ref().to_owned());
        self
    }

    /// Adds words to the guest's kernel command line, such as `isolcpus=1 nohz_full=1`.
    pub fn kernel_argument(mut self, words: &str) -> Self {
        self.arguments.push(words.into());
        self
    }

    /// Shares a folder of this host with the guest as `/share`. Its files remain when the guest ends.
    pub fn share(mut self, folder: &Path) -> Self {
        self.share = Some(folder.to_owned());
        self
    }

    /// Runs one CPU in virtual time: every instruction takes 4 ns, and idle time takes no real time, so the guest's
    /// clock shows exactly what the guest did (QEMU's `-icount shift=2,sleep=off`).
    pub fn virtual_time(mut self) -> Self {
        self.virtual_time = true;
        self
    }

    /// Sets the time limit, on this host's clock, for booting and for each script; the default is three minutes.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Boots the guest. Run one guest at a time, because each emulated CPU takes a whole core of the host.
    pub fn boot(&self) -> Result<Guest, Error> {
        self.check()?;
        let folder = Folder::new(if self.power.firmware.is_some() { MEMORY } else { 0 })?;
        let programs: Result<Vec<_>, _> = self.programs.iter().map(|program| located(program)).collect();
        let image = image::build(&self.base, &self.all_modules(), &programs?, folder.path())?;
        folder.write("initrd", &image)?;
        folder.write("power.aml", &self.power.table(self.cpus))?;
        Guest::start(self, folder)
    }

    fn check(&self) -> Result<(), Error> {
        if self.cpus == 0 || self.cpus > 64 {
            return Err(Error::invalid(format!("{} CPUs", self.cpus), "use 1 to 64"));
        }
        if self.virtual_time && self.cpus > 1 {
            let why = "QEMU counts the instructions of one CPU only; use cpus(1)";
            return Err(Error::invalid(format!("virtual time with {} CPUs", self.cpus), why));
        }
        if let Some(name) = self.ports.iter().find(|name| name.is_empty() || name.contains([',', '/', '='])) {
            return Err(Error::invalid(format!("port {name:?}"), "use letters, digits, dots and hyphens"));
        }
        let taps = self.nics.iter().filter_map(|(_, tap)| tap.as_ref());
        if let Some(name) = taps.into_iter().find(|name| name.is_empty() || name.contains([',', '/', '='])) {
            return Err(Error::invalid(format!("tap {name:?}"), "give the name of an interface"));
        }
        if let Some(folder) = self.share.as_ref().filter(|folder| !folder.is_dir()) {
            return Err(Error::invalid(format!("shared folder {}", folder.display()), "there is no such folder"));
        }
        self.power.check(self.cpus)
    }

    fn all_modules(&self) -> Vec<String> {
        let mut modules: Vec<String> = MODULES.map(str::to_owned).to_vec();
        if !self.power.pstates.is_empty() {
            modules.extend(CPUFREQ_MODULES.map(str::to_owned));
        }
        if self.power.firmware.is_some() {
            modules.push("acpi_power_meter".into());
        }
        modules.extend(self.nics.iter().map(|(nic, _)| nic.module().to_owned()));
        modules.extend(self.modules.iter().cloned());
        modules
    }

    /// Arguments of QEMU. Paths are relative to the guest's folder, in which QEMU runs.
    fn words(&self, share: &Path) -> Vec<String> {
        let mut words: Vec<String> = Vec::new();
        let mut add = |text: &str| words.extend(text.split(' ').map(str::to_owned));
        add("-nodefaults -no-user-config -display none -no-reboot -serial file:console.log");
        add("-cpu Skylake-Server -machine q35");
        if self.iommu {
            // The IOMMU must come before the devices that use it.
            add("-device intel-iommu,caching-mode=on");
        }
        add(if self.virtual_time {
            "-accel tcg,thread=single -icount shift=2,sleep=off"
        } else {
            "-accel tcg,thread=multi"
        });
        add(&format!("-smp {} -m {}M", self.cpus, MEMORY >> 20));
        if self.power.firmware.is_some() {
            add(&format!("-object memory-backend-file,id=ram,size={}M,mem-path=memory,share=on", MEMORY >> 20));
            add("-machine memory-backend=ram");
        }
        if !self.power.is_empty() {
            add("-acpitable file=power.aml");
        }
        if !self.power.pstates.is_empty() {
            add("-chardev file,id=pstates,path=pstates.log");
            add(&format!("-device isa-debugcon,chardev=pstates,iobase={:#x}", power::PSTATE_PORT));
        }
        add("-fsdev local,id=agent,path=agent,security_model=none -device virtio-9p-pci,fsdev=agent,mount_tag=agent");
        add("-device virtio-serial-pci");
        let ports = std::iter::once(guest::AGENT).chain(self.ports.iter().map(String::as_str));
        for (at, name) in ports.enumerate() {
            add(&format!("-chardev socket,id=port{at},path={}", guest::port_socket(at)));
            add(&format!("-device virtserialport,chardev=port{at},name={name}"));
        }
        for (at, (nic, tap)) in self.nics.iter().enumerate() {
            let (here, there) = (wire::guest_end(at), wire::host_end(at));
            add(&match tap {
                Some(tap) => format!("-netdev tap,id=wire{at},ifname={tap},script=no,downscript=no"),
                None => format!(
                    "-netdev dgram,id=wire{at},local.type=unix,local.path={here},remote.type=unix,remote.path={there}"
                ),
            });
            let mac = wire::mac(at).map(|octet| format!("{octet:02x}")).join(":");
            add(&format!("-device {},netdev=wire{at},mac={mac}", nic.device()));
        }
        if self.nics.iter().any(|(nic, tap)| *nic == Nic::E1000e && tap.is_none()) {
            for event in wire::TRACED {
                add(&format!("-trace enable={event},file=trace.log"));
            }
        }
        for event in &self.traces {
            add(&format!("-trace enable={event},file=trace.log"));
        }
        // These arguments may contain spaces.
        words.push("-fsdev".into());
        words.push(format!(
            "local,id=share,path={},security_model=none",
            share.display().to_string().replace(',', ",,")
        ));
        words.extend(["-device", "virtio-9p-pci,fsdev=share,mount_tag=share"].map(str::to_owned));
        words.extend(["-kernel".into(), self.base.kernel.display().to_string()]);
        words.extend(["-initrd", "initrd", "-append"].map(str::to_owned));
        words.push(self.command_line());
        words
    }

    fn command_line(&self) -> String {
        let mut line = KERNEL_ARGUMENTS.to_owned();
        if let Some(address) = self.power.firmware {
            line += &format!(" memmap=64K${address:#x}");
        }
        if self.iommu {
            line += " intel_iommu=on";
        }
        for words in &self.arguments {
            line += " ";
            line += words;
        }
        line
    }
}

fn cache() -> Result<PathBuf, Error> {
    let folder = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let general = || folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")));
    folder("APUS_VM_CACHE").or_else(|| Some(general()?.join("apus/vm"))).ok_or_else(|| Error::Lacking {
        what: "find a folder for the guest's packages".into(),
        why: "neither APUS_VM_CACHE nor HOME is set".into(),
        fix: "set APUS_VM_CACHE to a folder that can be written to".into(),
    })
}

/// Returns a path as it is; searches for a program that is given only by name.
fn located(program: &Path) -> Result<PathBuf, Error> {
    match program.to_str().filter(|name| !name.contains('/')) {
        Some(name) => tools::find(name, name),
        None if program.is_file() => Ok(program.to_owned()),
        None => Err(Error::invalid(format!("program {}", program.display()), "there is no such file; build it first")),
    }
}
