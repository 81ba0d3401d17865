//! Watches NAPI instances: packets, polls, and how long packets take from reception to the application's read.
//!
//! A BPF program on tracepoints counts (bpf/watch.bpf.c, which says what each number is). It is attached as long as a
//! [`NapiWatch`] exists, also when the process is killed, and changes nothing. It needs CAP_BPF and CAP_PERFMON, or
//! root, and a kernel with BTF (`CONFIG_DEBUG_INFO_BTF`).

use aya::Ebpf;
use aya::maps::{HashMap, MapData, PerCpuArray};
use aya::programs::RawTracePoint;

use crate::knob::Error;
use units::Nanos;

static OBJECT: &[u8] = aya::include_bytes_aligned!("bpf/watch.bpf.o");

/// The programs, and the tracepoint of each (Linux, include/trace/events).
const PROGRAMS: [(&str, &str); 5] = [
    ("on_poll", "napi_poll"),
    ("on_gro_receive", "napi_gro_receive_entry"),
    ("on_gro_frags", "napi_gro_frags_entry"),
    ("on_receive", "netif_receive_skb_entry"),
    ("on_read", "skb_copy_datagram_iovec"),
];
/// The programs that measure UDP datagrams, and their tracepoints. Linux has the last two from 6.3 on.
const DATAGRAMS: [(&str, &str); 3] =
    [("on_deliver", "netif_receive_skb"), ("on_queued", "sk_data_ready"), ("on_recv", "sock_recv_length")];
/// Number of instances that one watch can have, `SLOTS` of the program.
const SLOTS: usize = 256;
/// Number of buckets of delays, `BUCKETS` of the program.
pub const BUCKETS: usize = 120;
/// Counters before the buckets, in the order of `struct seen`.
const COUNTERS: usize = 4;

/// What a NAPI instance did since the watch began, summed over all CPUs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NapiCounts {
    /// Packets received.
    pub packets: u64,
    /// Bytes received.
    pub bytes: u64,
    /// How often the kernel polled the instance, for an interrupt or for the deferral's timer.
    pub polls: u64,
    /// Polls that used up their budget, so that more packets were waiting.
    pub full_polls: u64,
    /// Number of packets by the time from their reception to the application's read; [`bounds`] has the buckets.
    pub delays: [u64; BUCKETS],
}

/// The shortest delay of a bucket, and the longest. The last bucket has no upper bound; its longest is twice its
/// shortest.
pub fn bounds(bucket: usize) -> (Nanos, Nanos) {
    let lower = |bucket: u64| if bucket < 8 { bucket << 7 } else { (8 + bucket % 8) << (bucket / 8 + 6) };
    let from = lower(bucket as u64);
    let to = if bucket + 1 == BUCKETS { 2 * from } else { lower(bucket as u64 + 1) };
    (Nanos::from_nanos(from), Nanos::from_nanos(to))
}

/// Watches NAPI instances as long as it exists.
pub struct NapiWatch {
    seen: PerCpuArray<MapData, [u64; COUNTERS + BUCKETS]>,
    slots: u32,
    watched: HashMap<MapData, u32, u32>,
    ids: Vec<Option<u32>>,
    datagrams: Result<(), Error>,
    // The programs are detached with it.
    _programs: Ebpf,
}

impl std::fmt::Debug for NapiWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NapiWatch").field("slots", &self.slots).finish_non_exhaustive()
    }
}

impl NapiWatch {
    /// Begins to watch the instances with these IDs ([`crate::knob::napis_of`]), in any network namespace.
    pub fn new(napis: &[u32]) -> Result<Self, Error> {
        if napis.len() > SLOTS {
            let why = format!("{} instances are too many: at most {SLOTS} can be watched", napis.len());
            return Err(Error::invalid("watch NAPI instances", why));
        }
        let mut programs = Ebpf::load(OBJECT).map_err(|e| failed("load the program that watches NAPI", &e))?;
        let lacking = |map: &str| Error::System {
            what: "watch NAPI instances".into(),
            why: format!("the program has no map {map}: this build of Apus is damaged"),
        };
        let watched = programs.take_map("watched").ok_or_else(|| lacking("watched"))?;
        let mut watched: HashMap<MapData, u32, u32> =
            watched.try_into().map_err(|e| failed("open the map of watched instances", &e))?;
        let mut slots = 0;
        for napi in napis {
            watched.insert(napi, slots, 0).map_err(|e| failed("write the map of watched instances", &e))?;
            slots += 1;
        }
        let seen = programs.take_map("seen").ok_or_else(|| lacking("seen"))?;
        let seen = seen.try_into().map_err(|e| failed("open the map of counters", &e))?;
        let mut attach = |(program, tracepoint): (&str, &str)| {
            let what = format!("attach to the tracepoint {tracepoint}");
            let program = programs.program_mut(program).ok_or_else(|| lacking(program))?;
            let program: &mut RawTracePoint = program.try_into().map_err(|e| failed(&what, &e))?;
            program.load().map_err(|e| failed(&what, &e))?;
            program.attach(tracepoint).map_err(|e| failed(&what, &e)).map(drop)
        };
        PROGRAMS.into_iter().try_for_each(&mut attach)?;
        let datagrams = DATAGRAMS.into_iter().try_for_each(attach);
        Ok(Self {
            seen,
            slots: SLOTS as u32,
            watched,
            ids: napis.iter().copied().map(Some).collect(),
            datagrams,
            _programs: programs,
        })
    }

    /// Whether UDP datagrams are measured. The error says why not: Linux before 6.3 has no tracepoints for that. What is
    /// read of other protocols is measured in any case.
    pub fn measures_datagrams(&self) -> Result<(), &Error> {
        self.datagrams.as_ref().map(drop)
    }

    /// Follows.
    pub fn follow(&mut self, place: usize, napi: u32) -> Result<(), Error> {
        self.forget(place);
        self.watched.insert(napi, place as u32, 0).map_err(|e| failed("write the map of watched instances", &e))?;
        if self.ids.len() <= place {
            self.ids.resize(place + 1, None);
        }
        self.ids[place] = Some(napi);
        Ok(())
    }

    /// Forgets.
    pub fn forget(&mut self, place: usize) {
        if let Some(napi) = self.ids.get_mut(place).and_then(Option::take) {
            let _ = self.watched.remove(&napi);
        }
    }

    /// What instance number `place` of the list did since the watch began.
    pub fn read(&self, place: usize) -> Result<NapiCounts, Error> {
        let slot = u32::try_from(place).ok().filter(|slot| *slot < self.slots);
        let slot = slot.ok_or_else(|| {
            Error::invalid(format!("NAPI instance {place}"), format!("{} instances are watched", self.slots))
        })?;
        let cpus = self.seen.get(&slot, 0).map_err(|e| failed("read the counters of a NAPI instance", &e))?;
        let mut sum = [0u64; COUNTERS + BUCKETS];
        for cpu in cpus.iter() {
            sum.iter_mut().zip(cpu).for_each(|(sum, one)| *sum += one);
        }
        let [packets, bytes, polls, full_polls, ..] = sum;
        let mut delays = [0; BUCKETS];
        delays.copy_from_slice(&sum[COUNTERS..]);
        Ok(NapiCounts { packets, bytes, polls, full_polls, delays })
    }
}

/// The error of a BPF operation, with its causes and what to do.
fn failed(what: &str, error: &(dyn std::error::Error + 'static)) -> Error {
    let mut why = error.to_string();
    let mut cause = error.source();
    let mut errno = None;
    while let Some(next) = cause {
        why = format!("{why}: {next}");
        errno = errno.or_else(|| next.downcast_ref::<std::io::Error>().and_then(std::io::Error::raw_os_error));
        cause = next.source();
    }
    let refused = [rustix::io::Errno::PERM, rustix::io::Errno::ACCESS].map(|errno| Some(errno.raw_os_error()));
    if refused.contains(&errno) {
        let fix = "run as root, or with CAP_BPF and CAP_PERFMON".into();
        return Error::NotPermitted { what: what.into(), why, fix };
    }
    Error::System { what: what.into(), why }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knob::{Access, napis_of};
    use crate::testing::{in_own_namespace, ip};
    use std::net::UdpSocket;
    use std::time::Duration;

    #[test]
    fn buckets_follow_one_another() {
        assert_eq!(bounds(0), (Nanos::ZERO, Nanos::from_nanos(128)));
        assert_eq!(bounds(8), (Nanos::from_nanos(1_024), Nanos::from_nanos(1_152)));
        for bucket in 1..BUCKETS {
            assert_eq!(bounds(bucket).0, bounds(bucket - 1).1, "{bucket}");
        }
        // 2^24 ns less an eighth of an octave: bucket() of the program puts the rest into the last one, too.
        assert_eq!(bounds(BUCKETS - 1).0.as_nanos(), (1 << 24) - (1 << 20));
    }

    /// Packets between two namespaces over a veth with NAPI: each is received once, and read once.
    #[test]
    fn each_packet_that_an_application_reads_is_measured() {
        in_own_namespace(|| {
            // The peer of v0 in a namespace of its own, held by a process.
            let mut other = std::process::Command::new("unshare").args(["--net", "sleep", "60"]).spawn().unwrap();
            let at = format!("{}", other.id());
            let inside = |words: &[&str]| {
                let mut all = vec!["-t", &at, "-n", "ip"];
                all.extend(words);
                let done = std::process::Command::new("nsenter").args(&all).status().unwrap();
                assert!(done.success(), "{words:?}");
            };
            let own = std::fs::read_link("/proc/thread-self/ns/net").unwrap();
            let of_child = format!("/proc/{at}/ns/net");
            while std::fs::read_link(&of_child).map_or(true, |theirs| theirs == own) {
                std::thread::sleep(Duration::from_millis(1));
            }
            // By that a veth receives through NAPI: GRO here, and no segmentation by the sender (drivers/net/veth.c).
            for words in [["-K", "v0", "gro", "on"], ["-K", "v1", "tso", "off"]] {
                assert!(std::process::Command::new("ethtool").args(words).status().unwrap().success());
            }
            ip(&["link", "set", "v1", "netns", &at]);
            ip(&["addr", "add", "192.0.2.1/24", "dev", "v0"]);
            inside(&["addr", "add", "192.0.2.2/24", "dev", "v1"]);
            inside(&["link", "set", "v1", "up"]);
            let access = Access::live().unwrap();
            let napis: Vec<u32> = napis_of(&access, "v0", &[]).unwrap().into_iter().map(|(_, id)| id).collect();
            assert!(!napis.is_empty());
            let watch = NapiWatch::new(&napis).unwrap();
            watch.measures_datagrams().unwrap();
            let socket = UdpSocket::bind("192.0.2.1:7000").unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let send = "for n in $(seq 50); do echo $n > /dev/udp/192.0.2.1/7000; done";
            let mut sender =
                std::process::Command::new("nsenter").args(["-t", &at, "-n", "bash", "-c", send]).spawn().unwrap();
            let mut octets = [0; 100];
            for n in 1..=50 {
                let length = socket.recv(&mut octets).unwrap();
                assert_eq!(std::str::from_utf8(&octets[..length]).unwrap().trim(), n.to_string());
            }
            assert!(sender.wait().unwrap().success());
            let (mut measured, mut packets, mut polls) = (0, 0, 0);
            for place in 0..napis.len() {
                let counts = watch.read(place).unwrap();
                measured += counts.delays.iter().sum::<u64>();
                packets += counts.packets;
                polls += counts.polls;
            }
            assert_eq!(measured, 50, "each datagram was read once; {packets} packets in {polls} polls");
            // ARP and IPv6's own come too.
            assert!((50..80).contains(&packets) && polls > 0, "{packets} packets in {polls} polls");
            assert!(watch.read(napis.len()).unwrap_err().to_string().contains("are watched"));
            other.kill().unwrap();
            other.wait().unwrap();
        });
    }

    #[test]
    fn too_many_instances_are_refused() {
        let error = NapiWatch::new(&vec![1; SLOTS + 1]).unwrap_err();
        assert!(error.to_string().contains("at most 256"), "{error}");
    }
}
