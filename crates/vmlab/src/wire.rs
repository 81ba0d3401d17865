//! The host's end of a guest's network cable, and the interrupt settings of the emulated network card.

use std::fs;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use units::{Nanos, PacketRate};

use super::Error;

/// A kind of network card.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Nic {
    /// Intel 82574: one queue, MSI-X, working interrupt moderation (QEMU's minimum interval is 128 us).
    E1000e,
    /// virtio-net: does not support interrupt moderation by time.
    Virtio,
    /// VMware's vmxnet3 in its first revision, which does not support interrupt moderation.
    Vmxnet3,
}

impl Nic {
    pub(super) fn device(self) -> &'static str {
        match self {
            Self::E1000e => "e1000e",
            Self::Virtio => "virtio-net-pci",
            Self::Vmxnet3 => "vmxnet3",
        }
    }

    pub(super) fn module(self) -> &'static str {
        match self {
            Self::E1000e => "e1000e",
            Self::Virtio => "virtio_net",
            Self::Vmxnet3 => "vmxnet3",
        }
    }
}

/// QEMU's trace events for the interrupts of an 82574: writes of the moderation interval, and interrupts raised at once
/// or after the interval (hw/net/trace-events).
pub(super) const TRACED: [&str; 5] = [
    "e1000e_irq_eitr_set",
    "e1000e_irq_msix_notify_vec",
    "e1000e_irq_msix_notify_postponed_vec",
    "e1000e_irq_msi_notify",
    "e1000e_irq_legacy_notify",
];

/// An interrupt moderation interval that the guest set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moderation {
    /// MSI-X vector. Linux's e1000e uses 0 for receiving, 1 for transmitting and 2 for other events.
    pub vector: usize,
    /// Minimum time between two interrupts; 0 for no limit.
    pub interval: Nanos,
}

/// The unit of the register EITR: Intel 82574 GbE Controller Family Datasheet, chapter "Interrupt
/// Throttling".
const EITR_UNIT: Nanos = Nanos::from_nanos(256);

/// The host's end of a cable to a guest's network card. Frames sent here arrive at the card, and frames that the card
/// sends arrive here. A clone is a handle to the same end.
#[derive(Clone, Debug)]
pub struct Wire {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    socket: UnixDatagram,
    peer: PathBuf,
    mac: [u8; 6],
    trace: Trace,
}

impl Wire {
    /// Creates the host's end of the cable of card `index` in `folder`. Call it before QEMU starts.
    pub(super) fn new(folder: &Path, index: usize) -> Result<Self, Error> {
        let path = folder.join(host_end(index));
        let socket = UnixDatagram::bind(&path).map_err(|e| Error::system(format!("make {}", path.display()), e))?;
        let trace = Trace { path: folder.join("trace.log"), read: Mutex::new(0) };
        let (peer, mac) = (folder.join(guest_end(index)), mac(index));
        Ok(Self { shared: Arc::new(Shared { socket, peer, mac, trace }) })
    }

    /// MAC address of the card.
    pub fn mac(&self) -> [u8; 6] {
        self.shared.mac
    }

    /// Sends one Ethernet frame, without its frame check sequence. Waits while the card's queue is full.
    pub fn send(&self, frame: &[u8]) -> Result<(), Error> {
        let sent = self.shared.socket.send_to(frame, &self.shared.peer);
        sent.map(|_| ()).map_err(|e| Error::system("send a frame to the guest", e))
    }

    /// Receives the next frame from the guest; `None` if none arrives within `within`.
    pub fn receive(&self, within: Duration) -> Result<Option<Vec<u8>>, Error> {
        let failed = |e| Error::system("receive a frame from the guest", e);
        let (began, mut frame) = (Instant::now(), vec![0; 65_536]);
        loop {
            // A timeout of 0 would mean no timeout.
            let left = within.saturating_sub(began.elapsed()).max(Duration::from_micros(1));
            self.shared.socket.set_read_timeout(Some(left)).map_err(failed)?;
            match self.shared.socket.recv(&mut frame) {
                Ok(length) => {
                    frame.truncate(length);
                    return Ok(Some(frame));
                }
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => return Ok(None),
                // Unlike a receive without a timeout, this one is not restarted after a signal (signal(7)).
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(failed(e)),
            }
        }
    }

    /// Sends `frame` repeatedly, evenly spaced, while `work` runs. Returns the result of `work` and the number of
    /// frames sent. If the host is busy, the rate may be lower than `rate`.
    pub fn while_sending<T>(
        &self,
        frame: &[u8],
        rate: PacketRate,
        work: impl FnOnce() -> T,
    ) -> Result<(T, u64), Error> {
        let stop = AtomicBool::new(false);
        let gap = Duration::from_nanos(rate.time_for(1).as_nanos());
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                let (mut due, mut sent) = (Instant::now(), 0);
                while !stop.load(Ordering::Relaxed) {
                    self.send(frame)?;
                    sent += 1;
                    due += gap;
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                }
                Ok(sent)
            });
            let guard = SetOnDrop(&stop);
            let result = work();
            drop(guard);
            let sent = sender.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            Ok((result, sent))
        })
    }

    /// Returns a frame of minimum size, addressed to this card, that no protocol answers: its EtherType is the one for
    /// local experiments (IEEE 802-2014, 9.2.4).
    pub fn silent_frame(&self) -> Vec<u8> {
        let mut frame = [&self.mac()[..], &[0x02, 0, 0, 0, 0, 1], &[0x88, 0xb5]].concat();
        frame.resize(60, 0);
        frame
    }

    /// Returns the moderation intervals that the guest set in an [`Nic::E1000e`], and the number of interrupts of each
    /// vector, since the last call. Both come from QEMU's trace, not from the guest.
    pub fn interrupts(&self) -> Result<Interrupts, Error> {
        self.shared.trace.next()
    }
}

/// Interrupts of an emulated 82574 network card, as QEMU traced them between two calls of [`Wire::interrupts`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Interrupts {
    /// Each write of a moderation interval, in order.
    pub moderation: Vec<Moderation>,
    /// Number of interrupts by MSI-X vector.
    pub raised: [u64; 5],
    /// Number of MSI interrupts.
    pub msi: u64,
    /// Number of times that the legacy interrupt line (INTx) was raised.
    pub line: u64,
}

/// Sets the flag when dropped, even if `work` panics; otherwise the thread that sends would never end.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub(super) fn host_end(index: usize) -> String {
    format!("wire{index}.host")
}

pub(super) fn guest_end(index: usize) -> String {
    format!("wire{index}.guest")
}

/// MAC address of card `index`: locally administered (IEEE 802-2014, 8.2), the same in every run.
pub(super) fn mac(index: usize) -> [u8; 6] {
    [0x02, b'a', b'p', b'v', b'm', index as u8]
}

/// QEMU's trace file. Each read continues where the previous one ended.
#[derive(Debug)]
struct Trace {
    path: PathBuf,
    read: Mutex<usize>,
}

impl Trace {
    fn next(&self) -> Result<Interrupts, Error> {
        let text = match fs::read(&self.path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Vec::new(),
            result => result.map_err(|e| Error::system("read QEMU's trace", e))?,
        };
        let mut read = self.read.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // The last line may be incomplete.
        let end = text.iter().rposition(|&octet| octet == b'\n').map_or(*read, |at| at + 1);
        let new = String::from_utf8_lossy(text.get(*read..end).unwrap_or_default()).into_owned();
        *read = end;
        parse(&new)
    }
}

/// Parses lines such as `e1000e_irq_eitr_set EITR[0] = 488`, preceded by the process and the time if QEMU was built to
/// print them. Other lines are QEMU's own messages.
fn parse(trace: &str) -> Result<Interrupts, Error> {
    let mut seen = Interrupts::default();
    let mut high = false;
    for line in trace.lines() {
        let Some((event, text)) = line.split_once("e1000e_irq_").and_then(|(_, event)| event.split_once(' ')) else {
            continue;
        };
        understand(event, text, &mut seen, &mut high)
            .ok_or_else(|| Error::invalid("QEMU's trace", format!("this line is not understood: {line}")))?;
    }
    Ok(seen)
}

fn understand(event: &str, text: &str, seen: &mut Interrupts, high: &mut bool) -> Option<()> {
    match event {
        "eitr_set" => {
            let (vector, value) = text.strip_prefix("EITR[")?.split_once("] = ")?;
            let interval = EITR_UNIT * value.parse::<u32>().ok()?.into();
            seen.moderation.push(Moderation { vector: vector.parse().ok()?, interval });
        }
        "msix_notify_vec" => {
            let vector = text.strip_prefix("MSI-X notify vector 0x")?;
            *seen.raised.get_mut(usize::from_str_radix(vector, 16).ok()?)? += 1;
        }
        "msix_notify_postponed_vec" => {
            let vector = text.strip_prefix("Sending MSI-X postponed by EITR[")?.strip_suffix(']')?;
            *seen.raised.get_mut(vector.parse::<usize>().ok()?)? += 1;
        }
        "msi_notify" => seen.msi += 1,
        "legacy_notify" => {
            // The event also occurs when the line is set to its current state.
            let now = text.strip_prefix("IRQ line state: ")?.parse::<u8>().ok()? != 0;
            seen.line += u64::from(now && !*high);
            *high = now;
        }
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trace_is_counted_and_bad_lines_are_errors() {
        let seen = parse(
            "e1000e_irq_eitr_set EITR[0] = 488\n12@1.6:e1000e_irq_msix_notify_vec MSI-X notify vector 0x0\n\
             12@1.7:e1000e_irq_msix_notify_vec MSI-X notify vector 0x2\n\
             12@1.8:e1000e_irq_msix_notify_postponed_vec Sending MSI-X postponed by EITR[0]\nqemu: something else\n\
             12@1.9:e1000e_irq_msi_notify MSI notify 0x80\n\
             12@2.1:e1000e_irq_legacy_notify IRQ line state: 1\n\
             12@2.1:e1000e_irq_legacy_notify IRQ line state: 1\n12@2.2:e1000e_irq_legacy_notify IRQ line state: 0\n",
        )
        .unwrap();
        assert_eq!(seen.moderation, [Moderation { vector: 0, interval: Nanos::from_nanos(124_928) }]);
        assert_eq!((seen.raised, seen.msi, seen.line), ([2, 0, 1, 0, 0], 1, 1));
        for bad in ["eitr_set EITR[0] = many", "eitr_set EITR[", "msix_notify_vec MSI-X notify vector 0x9", "else x"] {
            assert!(parse(&format!("1@2:e1000e_irq_{bad}\n")).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_wire_carries_frames_and_paces_them() {
        let folder = std::env::temp_dir().join(format!("apus-test-wire-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let wire = Wire::new(&folder, 0).unwrap();
        let card = UnixDatagram::bind(folder.join(guest_end(0))).unwrap();
        let frame = wire.silent_frame();
        let work = || (0..20).map(|_| card.recv(&mut [0; 100]).unwrap()).sum::<usize>();
        let start = Instant::now();
        let (octets, sent) = wire.while_sending(&frame, PacketRate::new(1000), work).unwrap();
        assert!(start.elapsed() >= Duration::from_millis(19), "{:?}", start.elapsed());
        assert_eq!((octets, frame.len()), (20 * 60, 60));
        assert!(sent >= 20);
        assert_eq!(wire.receive(Duration::from_millis(1)).unwrap(), None);
        card.send_to(b"back", folder.join(host_end(0))).unwrap();
        assert_eq!(wire.receive(Duration::from_secs(10)).unwrap().as_deref(), Some(&b"back"[..]));
        fs::write(folder.join("trace.log"), "1@2:e1000e_irq_eitr_set EITR[1] = 1\n1@2:e1000e_irq_eitr_set EITR[0")
            .unwrap();
        assert_eq!(wire.interrupts().unwrap().moderation.len(), 1);
        fs::write(
            folder.join("trace.log"),
            "1@2:e1000e_irq_eitr_set EITR[1] = 1\n1@2:e1000e_irq_eitr_set EITR[0] = 2\n",
        )
        .unwrap();
        assert_eq!(wire.interrupts().unwrap().moderation[0].vector, 0);
        fs::remove_dir_all(&folder).unwrap();
        assert!(wire.send(&frame).is_err());
    }
}
