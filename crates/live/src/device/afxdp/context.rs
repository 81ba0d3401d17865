//! The UMEM that all sockets of one worker share: the worker's pool.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};

use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::xdp::{SocketAddrXdp, SocketAddrXdpFlags, SocketAddrXdpWithSharedUmem, XdpUmemReg, XdpUmemRegFlags};

use crate::Error;
use crate::pool::{Pool, STAMP};

use super::config::ZeroCopy;

/// Size in bytes of the largest UMEM chunk that the kernel accepts: a page. Source: net/xdp/xdp_umem.c, `xdp_umem_reg`:
/// `chunk_size > PAGE_SIZE` gives EINVAL, even with huge pages on Linux 6.18.
const LARGEST_CHUNK: u32 = 4096;

/// Lets all AF_XDP sockets of one worker receive into one pool and send from it.
///
/// The first socket registers the pool as UMEM. The others bind with `XDP_SHARED_UMEM` to any socket that still exists
/// (kernel documentation, networking/af_xdp, "XDP_SHARED_UMEM bind flag").
///
/// If the pool's slots are larger than 4096 bytes, each slot consists of several chunks of the UMEM. A received jumbo
/// frame arrives in several slots and is joined in the first one. A frame to be sent is in one slot, but takes several
/// descriptors (networking/af_xdp, "Multi-Buffer Support").
#[derive(Debug)]
pub struct XskContext {
    sockets: Vec<Weak<OwnedFd>>,
    area: (usize, usize),
    frame_size: u32,
}

impl XskContext {
    /// Creates a context for the devices of the worker that owns `pool`.
    pub fn new(pool: &Pool) -> Self {
        let (start, len) = pool.area();
        Self { sockets: Vec::new(), area: (start as usize, len), frame_size: pool.frame_size() }
    }

    pub(super) fn check(&self, pool: &Pool) -> Result<(), Error> {
        let (start, len) = pool.area();
        if self.area == (start as usize, len) {
            return Ok(());
        }
        let why = "its AF_XDP context was made for another pool; create one context per pool".into();
        Err(Error::Invalid { what: "the pool".into(), why })
    }

    /// Size of a chunk of the UMEM, in bytes.
    pub(super) fn chunk(&self) -> u32 {
        self.frame_size.min(LARGEST_CHUNK)
    }

    /// Whether a frame can take several descriptors.
    pub(super) fn multi_buffer(&self) -> bool {
        self.frame_size > LARGEST_CHUNK
    }

    /// A socket whose UMEM the next socket can share. `None` if the next socket must register the pool.
    pub(super) fn live(&mut self) -> Option<Arc<OwnedFd>> {
        self.sockets.retain(|socket| socket.strong_count() > 0);
        self.sockets.iter().rev().find_map(|socket| socket.upgrade())
    }

    pub(super) fn register(&self, socket: &OwnedFd) -> Result<(), Error> {
        let umem = XdpUmemReg {
            addr: self.area.0 as u64,
            len: self.area.1 as u64,
            chunk_size: self.chunk(),
            headroom: STAMP as u32, // the kernel adds XDP_PACKET_HEADROOM
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        sockopt::set_xdp_umem_reg(socket, umem).map_err(|e| match e {
            Errno::NOBUFS | Errno::NOMEM => Error::Lacking {
                what: format!("register {} MiB of pool with AF_XDP", self.area.1 >> 20),
                why: format!("{e} (the limit for locked memory is too low, or there is too little memory)"),
                fix: "raise the limit (ulimit -l unlimited, or LimitMEMLOCK= of the unit), or run as root".into(),
            },
            e => Error::system("register the pool with AF_XDP (XDP_UMEM_REG)", e),
        })
    }

    /// Binds `socket`. The socket shares the UMEM of `shared`; if `shared` is `None`, it has registered the UMEM
    /// itself.
    pub(super) fn bind(
        &mut self,
        socket: &Arc<OwnedFd>,
        shared: Option<&Arc<OwnedFd>>,
        (ifindex, queue): (u32, u32),
        (zero_copy, need_wakeup): (ZeroCopy, bool),
    ) -> Result<(), Errno> {
        match shared {
            // No other flags are allowed: copy mode and need_wakeup are those of the shared UMEM (net/xdp/xsk.c,
            // xsk_bind).
            Some(shared) => {
                let addr = SocketAddrXdp::new(SocketAddrXdpFlags::XDP_SHARED_UMEM, ifindex, queue);
                let addr = SocketAddrXdpWithSharedUmem { addr, shared_umem_fd: shared.as_fd() };
                rustix::net::bind(socket, &addr)?;
            }
            None => {
                let mut flags = match zero_copy {
                    ZeroCopy::Auto => SocketAddrXdpFlags::empty(), // the kernel falls back by itself
                    ZeroCopy::Force => SocketAddrXdpFlags::XDP_ZEROCOPY,
                    ZeroCopy::Off => SocketAddrXdpFlags::XDP_COPY,
                };
                flags.set(SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP, need_wakeup);
                flags.set(SocketAddrXdpFlags::XDP_USE_SG, self.multi_buffer());
                rustix::net::bind(socket, &SocketAddrXdp::new(flags, ifindex, queue))?;
            }
        }
        self.sockets.push(Arc::downgrade(socket));
        Ok(())
    }
}
