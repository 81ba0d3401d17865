//! The AF_XDP backend: distributes the queues of a network interface over the workers.

use std::any::Any;

use crate::Error;
use crate::app::PortInfo;
use crate::app::headers::Mac;
use crate::cpu::MAX_HANDLES;
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
                native_failure: self.interface.native_failure().map(Into::into),
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

    fn hold(&self) -> Option<Box<dyn Any + Send>> {
        Some(Box::new(self.interface.clone()))
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

/// Returns an error unless every worker gets a queue of every port, and not more than it can serve.
fn check_spread(port: &InterfaceConfig, workers: usize) -> Result<(), Error> {
    let most = port.queues.len().div_ceil(workers.max(1));
    if most > MAX_HANDLES {
        return Err(Error::Invalid {
            what: format!("{} queues of {} for {workers} worker(s)", port.queues.len(), port.name),
            why: format!(
                "a worker serves at most {MAX_HANDLES} queues; list fewer queues, or use at least {} workers",
                port.queues.len().div_ceil(MAX_HANDLES)
            ),
        });
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The program was attached and the memory of all queues was mapped before a worker refused its queues.
    #[test]
    fn queues_are_spread_before_the_port_is_opened() {
        let queues = |n: u32| InterfaceConfig { queues: (0..n).collect(), ..InterfaceConfig::new("nosuch0") };
        let refused = |n, workers| {
            let sockets = SocketConfig::default();
            let opening = Opening { number: 0, workers, sockets: &sockets, peak_rate: None };
            let error = queues(n).open(&opening).map(drop).unwrap_err();
            error.to_string()
        };
        assert!(refused(65, 2).contains("at least 3 workers"), "{}", refused(65, 2));
        assert!(refused(1, 2).contains("every worker needs its own queue"), "{}", refused(1, 2));
        assert!(check_spread(&queues(64), 2).is_ok() && check_spread(&queues(2), 2).is_ok());
    }
}
