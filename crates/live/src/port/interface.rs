//! The AF_XDP backend: distributes the queues of a network interface over the workers.

use crate::Error;
use crate::app::PortInfo;
use crate::app::headers::Mac;
use crate::device::Device;
use crate::device::afxdp::{AfXdpDevice, Interface, InterfaceConfig, SocketConfig, XskContext};
use crate::os;
use crate::port::{Backend, DriverReport, OpenPort, Opening, PeakRate, PortKind, PortReport, Share};

#[derive(Debug)]
struct Open {
    interface: Interface,
    mac: Mac,
    workers: usize,
    sockets: SocketConfig,
    peak: PeakRate,
}

impl Backend for InterfaceConfig {
    fn open(&self, opening: &Opening<'_>) -> Result<Box<dyn OpenPort>, Error> {
        check_spread(self, opening.workers)?;
        let interface = Interface::attach(self)?;
        check_senders(self, opening.workers, interface.sending_queues())?;
        let facts = os::interface_facts(&self.name)?;
        let peak = opening.peak(facts.speed);
        let mut sockets = *opening.sockets;
        if let Some(span) = sockets.lasting {
            sockets.rings = sockets.rings.lasting(span, peak.rate);
        }
        Ok(Box::new(Open { interface, mac: Mac::new(facts.mac), workers: opening.workers, sockets, peak }))
    }
}

impl OpenPort for Open {
    fn info(&self) -> PortInfo {
        PortInfo { name: self.interface.name().to_owned(), mac: self.mac }
    }

    fn report(&self) -> PortReport {
        PortReport {
            name: self.interface.name().to_owned(),
            kind: PortKind::AfXdp,
            driver: Some(DriverReport {
                xdp_mode: Some(self.interface.mode()),
                zero_copy: false, // known only when the sockets are open: see `learn`
                queues: self.interface.queues().to_vec(),
                available_queues: self.interface.available_queues(),
                dpdk_driver: None,
                wakes: None,
            }),
            rx_descriptors: self.sockets.rings.rx,
            rx_room: self.sockets.rings.rx_room(),
            peak: Some(self.peak),
        }
    }

    fn slots(&self, worker: usize) -> u32 {
        self.sockets.slots_per_queue() * self.share(worker).len() as u32
    }

    fn device(&self, worker: usize, share: &mut Share<'_>) -> Result<Box<dyn Device>, Error> {
        let (pool, context) = share.context(|pool| Ok(XskContext::new(pool)))?;
        Ok(Box::new(AfXdpDevice::open(&self.interface, &self.share(worker), &self.sockets, context, pool)?))
    }

    fn learn(&self, device: &dyn Device, report: &mut PortReport) {
        if let Some(driver) = &mut report.driver {
            let can = device.capabilities();
            (driver.zero_copy, driver.wakes) = (can.zero_copy, Some(can.wakes));
        }
    }
}

impl Open {
    /// The queues of one worker: every n-th queue, starting with the worker's number, where n is the number of workers.
    fn share(&self, worker: usize) -> Vec<u32> {
        self.interface.queues().iter().copied().skip(worker).step_by(self.workers).collect()
    }
}

/// Returns an error if a worker could never send on the port. A worker sends on its first queue.
fn check_senders(port: &InterfaceConfig, workers: usize, sending: Option<u32>) -> Result<(), Error> {
    let Some(sending) = sending else { return Ok(()) };
    let mut first = port.queues.iter().take(workers).enumerate();
    let Some((worker, queue)) = first.find(|(_, queue)| **queue >= sending) else { return Ok(()) };
    let name = &port.name;
    Err(Error::Invalid {
        what: format!("queue {queue} of {name}"),
        why: format!(
            "worker {worker} would send on it, but {name} has only {sending} transmit queue(s), so it could receive on \
             this queue but not send; give {name} more transmit queues (ethtool -L {name} tx {}; see ethtool -l \
             {name}), list other queues first, or use fewer workers",
            queue + 1
        ),
    })
}

/// Returns an error unless every worker gets a queue of every port.
fn check_spread(port: &InterfaceConfig, workers: usize) -> Result<(), Error> {
    if port.queues.len() >= workers {
        return Ok(());
    }
    Err(Error::Invalid {
        what: format!("{workers} workers on the {} queue(s) of {}", port.queues.len(), port.name),
        why: format!(
            "every worker needs its own queue on each port; give more queues ({}:0-{})",
            port.name,
            workers - 1
        ),
    })
}
