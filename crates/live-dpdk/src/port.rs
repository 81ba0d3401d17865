//! A DPDK port as a backend of the crate `live`. It has one receive and one transmit queue for each worker.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use live::Error;
use live::app::PortInfo;
use live::app::headers::Mac;
use live::device::Device;
use live::device::link::Link;
use live::port::{Backend, DriverReport, OpenPort, Opening, PeakRate, PortKind, PortReport, Share};
use units::BitRate;

use crate::device::{DpdkDevice, IDLE_TARGET, LONGEST_BURST};
use crate::eal::{Eal, is_virtual};
use crate::sys::{self, RawPool};

/// Size of the smallest slot, in bytes. It has room for DPDK's headers, for an offset that spreads the headers over the
/// CPU cache, and for the 2048 bytes of data that `net_af_xdp` requires.
pub const FRAME_SIZE: u32 = 4096;

/// Configuration of a port of a DPDK driver.
#[derive(Clone, Debug)]
pub struct DpdkPort {
    /// DPDK's device arguments: `0000:03:00.0`, or `net_af_xdp0,iface=eth0`.
    pub device: String,
    /// The user's arguments for the EAL. They must be the same for all ports of a process.
    pub eal: Vec<String>,
    /// Whether DPDK's own memory uses huge pages, which hardware devices need. Must be the same for all ports of a
    /// process.
    pub huge_pages: bool,
    /// Whether the memory of the frame slots uses huge pages.
    pub huge_slots: bool,
    /// Maximum number of frames requested from the driver at once, from 1 to [`LONGEST_BURST`].
    pub burst: u16,
}

impl DpdkPort {
    /// A port for `device` with default settings: no additional EAL arguments, and the largest bursts.
    pub fn new(device: impl Into<String>) -> Self {
        let device = device.into();
        let huge_pages = !is_virtual(&device);
        Self { device, eal: Vec::new(), huge_pages, huge_slots: false, burst: LONGEST_BURST }
    }

    fn name(&self) -> &str {
        self.device.split(',').next().unwrap_or_default()
    }
}

/// An open port. It is closed when the last device is dropped.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) id: u16,
    pub(crate) name: String,
    pub(crate) info: sys::PortInfo,
    /// Number of descriptors of each receive and transmit queue.
    pub(crate) descriptors: (u16, u16),
    /// The kernel's interface behind the port. `None` if there is none.
    pub(crate) link: Option<Link>,
    eal: &'static Eal,
    /// The network namespace in which the port was opened, and in which it must be closed.
    namespace: File,
    started: AtomicBool,
    /// The pools of all workers, kept because the port's driver may still hold slots of them.
    pools: Mutex<Vec<Arc<RawPool>>>,
    /// Those of them to which the device has access by DMA.
    mapped: Arc<Mutex<Vec<Arc<RawPool>>>>,
}

impl Port {
    /// Whether all queues are set up and the port is started.
    pub(crate) fn started(&self) -> bool {
        self.started.load(Ordering::Acquire)
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        let id = self.id;
        // A failure is ignored here: the port is being dropped, so nothing could be done about it.
        if let Ok(namespace) = self.namespace.try_clone() {
            let mapped = std::mem::take(&mut *self.mapped.lock().unwrap_or_else(PoisonError::into_inner));
            let _ = self.eal.run_in(namespace, move || sys::port_close(id, &mapped));
        }
    }
}

#[derive(Debug)]
struct Open {
    port: Arc<Port>,
    workers: usize,
    peak: Option<PeakRate>,
    huge_slots: bool,
    burst: usize,
}

impl Backend for DpdkPort {
    fn open(&self, opening: &Opening<'_>) -> Result<Box<dyn OpenPort>, Error> {
        let invalid = |why: String| Error::Invalid { what: format!("port dpdk:{}", self.device), why };
        if self.burst == 0 || self.burst > LONGEST_BURST {
            return Err(invalid(format!("bursts of {} frames: expected 1 to {LONGEST_BURST}", self.burst)));
        }
        let ring = |n: u32| {
            u16::try_from(n).map_err(|_| invalid(format!("rings of {n} descriptors: DPDK supports at most 65535")))
        };
        let wanted = (ring(opening.sockets.rings.rx)?, ring(opening.sockets.rings.tx)?);
        let devargs = CString::new(self.device.as_str()).map_err(|_| invalid("a zero byte in its name".into()))?;
        let eal = Eal::start(&self.eal, self.huge_pages)?;
        let namespace = File::open("/proc/thread-self/ns/net")
            .map_err(|source| Error::System { what: "open the network namespace of this thread".into(), source })?;
        let id = eal.run(move || sys::port_open(&devargs))?.map_err(|e| self.not_opened(&e))?;
        let failed = |what: &str, source: io::Error| Error::System { what: format!("{what} {}", self.device), source };
        let mut port = Port {
            id,
            name: self.name().to_owned(),
            info: sys::port_info(id).map_err(|e| failed("query", e))?,
            descriptors: wanted,
            link: None,
            eal,
            namespace,
            started: AtomicBool::new(false),
            pools: Mutex::default(),
            mapped: Arc::default(),
        };
        let most = port.info.max_rx_queues.min(port.info.max_tx_queues);
        let workers = opening.workers;
        let queues = u16::try_from(workers).ok().filter(|n| *n <= most);
        let queues = queues.ok_or_else(|| {
            invalid(format!("{workers} workers need one queue each, but the port has only {most}; use fewer workers, or the driver's option for more queues"))
        })?;
        let set = eal.run(move || sys::port_configure(id, queues, wanted))?;
        port.descriptors = set.map_err(|e| failed(&format!("configure {queues} queues of"), e))?;
        if port.info.if_index != 0 {
            port.link = Some(Link::new(&port.name, port.info.if_index)?);
        }
        let speed = u64::from(port.info.speed_mbps) * 1_000_000;
        let speed = (speed > 0).then(|| BitRate::new(speed));
        // These drivers generate frames when they are polled; nobody sends frames to them.
        let supplies = ["net_null", "net_pcap"].contains(&port.info.driver().as_str());
        let peak = if supplies { opening.stated_peak() } else { Some(opening.peak(speed)) };
        Ok(Box::new(Open {
            port: Arc::new(port),
            workers,
            peak,
            huge_slots: self.huge_slots,
            burst: usize::from(self.burst),
        }))
    }
}

impl DpdkPort {
    fn not_opened(&self, error: &io::Error) -> Error {
        let fix = match error.kind() {
            io::ErrorKind::AlreadyExists => "give each port once, and each virtual device its own number".to_owned(),
            _ if is_virtual(&self.device) => format!(
                "check the name and options of the driver (DPDK's network interface controller guide), its interface (ip link), and whether this DPDK includes the driver: {} is parsed as DRIVER and NUMBER",
                self.name()
            ),
            _ => format!("bind it to a driver that DPDK can use: dpdk-devbind.py --bind=vfio-pci {}", self.name()),
        };
        Error::Lacking { what: format!("open port dpdk:{}", self.device), why: error.to_string(), fix }
    }
}

impl OpenPort for Open {
    fn info(&self) -> PortInfo {
        PortInfo { name: self.port.name.clone(), mac: Mac::new(self.port.info.mac) }
    }

    fn report(&self) -> PortReport {
        PortReport {
            name: self.port.name.clone(),
            kind: PortKind::Dpdk,
            driver: Some(DriverReport {
                xdp_mode: None,
                native_failure: None,
                zero_copy: !self.port.info.is_virtual(),
                queues: (0..self.workers as u32).collect(),
                // DPDK configures as many queues as there are workers.
                available_queues: Some(self.workers as u32),
                dpdk_driver: Some(self.port.info.driver()),
                wakes: None,
            }),
            rx_descriptors: u32::from(self.port.descriptors.0),
            rx_room: u32::from(self.port.descriptors.0),
            peak: self.peak,
        }
    }

    fn slots(&self, _worker: usize) -> u32 {
        let (rx, tx) = self.port.descriptors;
        // Three threads may have caches: this one, the worker, and DPDK's main thread.
        u32::from(rx) + u32::from(tx) + IDLE_TARGET as u32 + 3 * sys::reserve()
    }

    fn least_frame_size(&self) -> u32 {
        FRAME_SIZE
    }

    fn device(&self, worker: usize, share: &mut Share<'_>) -> Result<Box<dyn Device>, Error> {
        let Port { id, eal, info, descriptors, .. } = &*self.port;
        let (id, descriptors, is_virtual) = (*id, *descriptors, info.is_virtual());
        let failed = |what: &str, source| Error::System { what: format!("{what} {}", self.port.name), source };
        if info.by_physical() && !self.huge_slots {
            return Err(Error::Lacking {
                what: format!("give {} memory for frames", self.port.name),
                why: "its DMA uses physical addresses, which are fixed only for huge pages".into(),
                fix: "add --huge-pages, or enable the IOMMU and bind the device to vfio-pci".into(),
            });
        }
        let (pool, slots) = share.context(|pool| {
            // Look up physical addresses for all devices; virtual devices ignore them.
            let made = RawPool::new(pool, self.huge_slots);
            made.map(Arc::new)
                .map_err(|source| Error::System { what: "create a DPDK mempool for the frame slots".into(), source })
        })?;
        slots.lend(pool, usize::from(descriptors.0) + IDLE_TARGET + sys::reserve() as usize);
        self.port.pools.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(slots));
        let (last, raw) = (worker + 1 == self.workers, Arc::clone(slots));
        let mapped = Arc::clone(&self.port.mapped);
        let set_up = eal.run(move || -> io::Result<()> {
            if !is_virtual {
                sys::port_map(id, &raw)?;
                mapped.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&raw));
            }
            sys::port_queue(id, worker as u16, descriptors, &raw)?;
            raw.flush();
            if last {
                sys::port_start(id)?;
                raw.flush();
            }
            Ok(())
        })?;
        set_up.map_err(|e| failed("start", e))?;
        if last {
            self.port.started.store(true, Ordering::Release);
        }
        Ok(Box::new(DpdkDevice::new(Arc::clone(&self.port), worker as u16, Arc::clone(slots), self.burst)?))
    }

    fn learn(&self, device: &dyn Device, report: &mut PortReport) {
        // Known only when all queues are set up, so the report of the last device applies.
        if let Some(driver) = &mut report.driver {
            driver.wakes = Some(device.capabilities().wakes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use live::pool::{Pool, PoolConfig};

    /// Regression test: once, DPDK knew the memory of each pool until the process ended. It maps all memory that it knows
    /// for the next hardware device, which failed because the memory was gone.
    #[test]
    fn the_last_port_that_closes_gives_up_the_pools_memory() {
        let eal = Eal::start(&[], false).unwrap();
        let pool = Pool::new(PoolConfig { frame_size: FRAME_SIZE, ..PoolConfig::default() }).unwrap();
        let raw = Arc::new(RawPool::new(&pool, false).unwrap());
        let open_and_map = |device: &str| {
            let (device, raw) = (CString::new(device).unwrap(), Arc::clone(&raw));
            let opened = eal.run(move || {
                let id = sys::port_open(&device)?;
                Ok::<_, io::Error>((id, sys::port_map(id, &raw)?))
            });
            opened.unwrap().unwrap()
        };
        let close = |id| {
            let mapped = [Arc::clone(&raw)];
            eal.run(move || sys::port_close(id, &mapped)).unwrap();
        };
        let (a, is_new) = open_and_map("net_null0");
        assert!(is_new);
        let (b, is_new) = open_and_map("net_null1");
        assert!(!is_new, "two ports of a worker share its pool");
        close(a);
        let (c, is_new) = open_and_map("net_null2");
        assert!(!is_new, "the second port still used it");
        close(b);
        close(c);
        let (d, is_new) = open_and_map("net_null3");
        assert!(is_new);
        close(d);
    }
}
