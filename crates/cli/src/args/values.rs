//! Types and parsers for argument values that are more than a single number.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use host::facts::CpuSet;
use host::knob::NapiDeferral;
use live::app::headers::Mac;
use live::device::afxdp::Filter;
use live::device::fault::{FaultPlan, FaultRates, Outage};
use live::device::pcap::Timing;
use tester::document::meanings;
use units::{BitRate, Named, Nanos, PacketRate, UnknownName};

/// A parser that accepts the names of `T`. The help lists each name with its meaning.
pub fn one_of<T>() -> impl TypedValueParser<Value = T>
where
    T: Named + FromStr<Err = UnknownName> + Clone + Send + Sync + 'static,
{
    let meanings =
        meanings::<T>().map(|(name, meaning)| PossibleValue::new(name).help(meaning.trim_end_matches('.').to_owned()));
    PossibleValuesParser::new(meanings.collect::<Vec<_>>()).try_map(|name| name.parse::<T>())
}

/// A port as typed: `eth0`, `eth0:0-3`, `eth0:0,2`, `memory:64[,frames=N]`,
/// `pcap:FILE[,out=FILE][,timing=recorded][,repeat]` or `dpdk:DEVICE[,OPTION=VALUE...]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PortText {
    /// Queues of a network interface.
    Interface {
        /// Name of the interface, up to 15 characters.
        name: String,
        /// Queue numbers in the order typed. `None`, which means queue 0, if none was typed.
        queues: Option<Vec<u32>>,
    },
    /// A source in memory that repeats one frame.
    Memory {
        /// Size of the frame in bytes, 60 to 9000, without its check sequence.
        octets: u32,
        /// Number of frames to deliver; None for no end.
        frames: Option<u64>,
    },
    /// A capture file to replay.
    Pcap {
        /// File to read frames from.
        input: PathBuf,
        /// File to write sent frames to; None discards them.
        output: Option<PathBuf>,
        /// Whether frames come as recorded or as fast as the worker takes them.
        timing: Timing,
        /// Whether to start again at the end of the file.
        repeat: bool,
    },
    /// A port of a DPDK driver.
    Dpdk {
        /// DPDK's device arguments: `0000:03:00.0`, or `net_af_xdp0,iface=eth0`.
        device: String,
    },
}

impl FromStr for PortText {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("memory", rest)) => memory(rest),
            Some(("pcap", rest)) => pcap(rest),
            Some(("dpdk", rest)) => dpdk(rest),
            Some((name, list)) => Ok(Self::Interface { name: interface(name)?, queues: Some(queues(list)?) }),
            None if text == "memory" => Err("a memory port needs a frame size in bytes, such as memory:64".into()),
            None if text == "pcap" => Err("a pcap port needs a file: pcap:FILE".into()),
            None if text == "dpdk" => Err(DPDK_NEEDS.into()),
            None => Ok(Self::Interface { name: interface(text)?, queues: None }),
        }
    }
}

/// Whether the kernel accepts `name` as the name of an interface: at most 15 bytes (IFNAMSIZ is 16, with the
/// terminating zero), without slash, colon or white space, and neither `.` nor `..` (net/core/dev.c, `dev_valid_name`).
pub fn is_interface_name(name: &str) -> bool {
    let valid = (1..=15).contains(&name.len()) && !name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace());
    valid && name != "." && name != ".."
}

fn interface(name: &str) -> Result<String, String> {
    if is_interface_name(name) {
        Ok(name.to_owned())
    } else {
        Err(format!("{name:?} is not an interface name; write eth0, eth0:0-3, memory:64, pcap:FILE or dpdk:DEVICE"))
    }
}

fn queues(list: &str) -> Result<Vec<u32>, String> {
    let wrong = || format!("{list:?} is not a list of queues; write 0, 0-3 or 0,2");
    let mut queues = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().map_err(|_| wrong())?, last.parse().map_err(|_| wrong())?);
        // More queues than any NIC has would only be a typing mistake that takes all memory.
        if first > last || last > 4095 {
            return Err(wrong());
        }
        queues.extend(first..=last);
    }
    Ok(queues)
}

fn memory(rest: &str) -> Result<PortText, String> {
    let mut parts = rest.split(',');
    let octets = parts.next().unwrap_or_default();
    let octets = octets.parse().ok().filter(|n| (60..=9000).contains(n));
    let octets =
        octets.ok_or("the frame size of a memory port is 60 to 9000 bytes, without the check sequence: memory:64")?;
    let mut frames = None;
    for part in parts {
        frames = match part.split_once('=') {
            Some(("frames", n)) => Some(n.parse().map_err(|_| format!("frames={n}: {n:?} is not a whole number"))?),
            _ => return Err(format!("a memory port has no option {part:?}; it has frames=N")),
        };
    }
    Ok(PortText::Memory { octets, frames })
}

fn pcap(rest: &str) -> Result<PortText, String> {
    let mut parts = rest.split(',');
    let input = parts.next().filter(|file| !file.is_empty()).ok_or("a pcap port needs a file: pcap:FILE")?;
    let (mut output, mut timing, mut repeat) = (None, Timing::Asap, false);
    for part in parts {
        match part.split_once('=') {
            Some(("out", file)) if !file.is_empty() => output = Some(PathBuf::from(file)),
            Some(("timing", "recorded")) => timing = Timing::Recorded,
            Some(("timing", "asap")) => timing = Timing::Asap,
            None if part == "repeat" => repeat = true,
            _ => {
                let known = "out=FILE, timing=asap, timing=recorded and repeat";
                return Err(format!("a pcap port has no option {part:?}; it has {known}"));
            }
        }
    }
    Ok(PortText::Pcap { input: input.into(), output, timing, repeat })
}

const DPDK_NEEDS: &str = "a dpdk port needs a device: dpdk:0000:03:00.0 or dpdk:net_af_xdp0,iface=eth0";

/// Parses the device of a DPDK port. Rejects only what cannot be a device name; DPDK itself checks the options.
fn dpdk(device: &str) -> Result<PortText, String> {
    let name = device.split(',').next().unwrap_or_default();
    if name.is_empty() || device.contains(char::is_whitespace) || device.contains('\0') {
        return Err(DPDK_NEEDS.into());
    }
    Ok(PortText::Dpdk { device: device.to_owned() })
}

/// Parses which frames to take: `all`, `ethertype=0x88b5,0x88b6`, `udp=7` or `udp=7-9`.
pub fn filter(text: &str) -> Result<Filter, String> {
    let wrong = || "expected all, ethertype=0x88b5[,...] (up to four) or udp=7[-9]".to_owned();
    match text.split_once('=') {
        None if text == "all" => Ok(Filter::All),
        Some(("ethertype", list)) => {
            let types = list.split(',').map(|word| {
                let hex = word.strip_prefix("0x").ok_or_else(wrong)?;
                u16::from_str_radix(hex, 16).map_err(|_| wrong())
            });
            let types: Vec<u16> = types.collect::<Result<_, _>>()?;
            if types.len() <= 4 { Ok(Filter::EtherTypes(types)) } else { Err(wrong()) }
        }
        Some(("udp", range)) => {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last) = (first.parse().map_err(|_| wrong())?, last.parse().map_err(|_| wrong())?);
            if first <= last { Ok(Filter::UdpPorts { first, last }) } else { Err(wrong()) }
        }
        _ => Err(wrong()),
    }
}

/// Parses the number of empty polls and the timeout, such as `2,200us`.
pub fn deferral(text: &str) -> Result<NapiDeferral, String> {
    let wrong = "expected COUNT,TIMEOUT, such as 2,200us";
    let (count, timeout) = text.split_once(',').ok_or(wrong)?;
    let defer_hard_irqs = count.trim().parse().map_err(|_| wrong)?;
    let gro_flush_timeout = timeout.parse().map_err(|e: units::ParseError| format!("{wrong}: {e}"))?;
    let deferral = NapiDeferral { defer_hard_irqs, gro_flush_timeout };
    deferral.check().map_err(|e| e.to_string())?;
    Ok(deferral)
}

/// Parses a duration above zero.
pub fn span(text: &str) -> Result<Nanos, String> {
    match text.parse() {
        Ok(Nanos::ZERO) => Err("expected a duration above 0, such as 10us or 5s".into()),
        Ok(span) => Ok(span),
        Err(error) => Err(error.to_string()),
    }
}

/// Parses a packet rate above zero.
pub fn rate(text: &str) -> Result<PacketRate, String> {
    match text.parse::<PacketRate>() {
        Ok(rate) if rate.as_pps() == 0 => Err("expected a rate of at least 1pps".into()),
        other => other.map_err(|error| error.to_string()),
    }
}

/// Parses a bit rate above zero.
pub fn bit_rate(text: &str) -> Result<BitRate, String> {
    match text.parse::<BitRate>() {
        Ok(rate) if rate.as_bps() == 0 => Err("expected a rate of at least 1bps".into()),
        other => other.map_err(|error| error.to_string()),
    }
}

/// Parses a list of CPUs that is not empty.
pub fn cpus(text: &str) -> Result<CpuSet, String> {
    match text.parse::<CpuSet>() {
        Ok(cpus) if cpus.is_empty() => Err("expected at least one CPU, such as 2 or 2-5".into()),
        other => other.map_err(|error| error.to_string()),
    }
}

/// Parses the number of descriptors in a ring of AF_XDP ([`RingSizes`](live::device::afxdp::RingSizes)).
pub fn ring(text: &str) -> Result<u32, String> {
    let size = text.parse().ok().filter(|size: &u32| size.is_power_of_two() && (64..=1 << 20).contains(size));
    size.ok_or_else(|| "expected a power of two from 64 to 1048576".into())
}

/// Parses a duration above zero that may also be in minutes or hours: `90s`, `10m`, `2h`.
pub fn span_with_hours(text: &str) -> Result<Nanos, String> {
    let whole = |unit: char| text.strip_suffix(unit).and_then(|number| number.parse::<u64>().ok());
    let seconds = whole('h').and_then(|n| n.checked_mul(3_600)).or_else(|| whole('m').and_then(|n| n.checked_mul(60)));
    match seconds {
        Some(0) => Err("expected a duration above 0, such as 10us or 5s".into()),
        Some(seconds) => Ok(Nanos::from_secs(seconds)),
        None => span(text).map_err(|why| format!("{why}; or 10m, 2h")),
    }
}

/// Parses `02:61:70:75:73:01` or `broadcast`.
pub fn mac(text: &str) -> Result<[u8; 6], String> {
    if text == "broadcast" {
        return Ok([0xff; 6]);
    }
    let mut mac = [0; 6];
    let mut parts = text.split(':');
    for octet in &mut mac {
        let part = parts.next().filter(|part| part.len() == 2);
        *octet = part.and_then(|part| u8::from_str_radix(part, 16).ok()).ok_or(WRONG_MAC)?;
    }
    if parts.next().is_some() { Err(WRONG_MAC.into()) } else { Ok(mac) }
}

const WRONG_MAC: &str = "expected a MAC address such as 02:61:70:75:73:01, or broadcast";

/// Writes a MAC address as six hexadecimal numbers with colons.
pub fn show_mac(mac: [u8; 6]) -> String {
    Mac::new(mac).to_string()
}

/// Faults to inject, and the text they were parsed from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FaultText {
    /// The text as typed, for messages.
    pub text: String,
    /// The plan that devices follow.
    pub plan: FaultPlan,
}

impl fmt::Display for FaultText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Parses `seed=1,rx_drop=100ppm,tx_delay=1%,hold=10,lost_after=1000`.
impl FromStr for FaultText {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let mut plan = FaultPlan { seed: 1, ..FaultPlan::default() };
        for part in text.split(',') {
            let (key, value) = part.split_once('=').ok_or_else(|| format!("{part:?} is not KEY=VALUE: {FAULTS}"))?;
            let number = || value.parse::<u64>().map_err(|_| format!("{part:?}: the value is not a whole number"));
            let (side, what) = key.split_once('_').unwrap_or(("", key));
            match key {
                "seed" => plan.seed = number()?,
                "hold" => {
                    let polls = u32::try_from(number()?).map_err(|_| format!("{part:?}: too many polls"))?;
                    (plan.rx.hold_polls, plan.tx.hold_polls) = (polls, polls);
                }
                "lost_after" => plan.fail_after = Some((number()?, Outage::Lost)),
                "down_after" => plan.fail_after = Some((number()?, Outage::Down { health_checks: 10 })),
                _ => {
                    let rates = match side {
                        "rx" => &mut plan.rx,
                        "tx" => &mut plan.tx,
                        _ => return Err(format!("there is no fault {key:?}: {FAULTS}")),
                    };
                    *fault(rates, what).ok_or_else(|| format!("there is no fault {key:?}: {FAULTS}"))? = parts(value)?;
                }
            }
        }
        Ok(Self { text: text.to_owned(), plan })
    }
}

/// The keys of `--fault`, for error messages.
const FAULTS: &str = "expected seed, hold (polls), lost_after or down_after (frames), or rx_ or tx_ with drop, \
                      duplicate, corrupt, truncate, delay or reorder, such as rx_drop=100ppm or tx_delay=1%";

fn fault<'a>(rates: &'a mut FaultRates, what: &str) -> Option<&'a mut u32> {
    Some(match what {
        "drop" => &mut rates.drop_ppm,
        "duplicate" => &mut rates.duplicate_ppm,
        "corrupt" => &mut rates.corrupt_ppm,
        "truncate" => &mut rates.truncate_ppm,
        "delay" => &mut rates.delay_ppm,
        "reorder" => &mut rates.reorder_ppm,
        _ => return None,
    })
}

/// Parses `100ppm` or `1.5%` into parts per million.
pub fn parts(text: &str) -> Result<u32, String> {
    let wrong = || format!("{text:?}: expected a share such as 100ppm or 1.5%");
    let ppm = match (text.strip_suffix("ppm"), text.strip_suffix('%')) {
        (Some(ppm), _) => ppm.parse().map_err(|_| wrong())?,
        // A quantile is read with the same digits: p1.5 is 15,000 ppm.
        (None, Some("100")) => 1_000_000,
        (None, Some(percent)) => format!("p{percent}").parse::<units::Quantile>().map_err(|_| wrong())?.as_ppm(),
        (None, None) if text == "0" => 0,
        (None, None) => return Err(wrong()),
    };
    if ppm <= 1_000_000 { Ok(ppm) } else { Err(wrong()) }
}

/// Parses a share above 0 and below 100 %.
pub fn width(text: &str) -> Result<u32, String> {
    match parts(text)? {
        0 | 1_000_000 => Err("expected a share above 0 and below 100%, such as 100ppm or 5%".into()),
        width => Ok(width),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports() {
        let interface =
            |queues: Option<&[u32]>| PortText::Interface { name: "eth0".into(), queues: queues.map(Into::into) };
        assert_eq!("eth0".parse(), Ok(interface(None)));
        assert_eq!("eth0:0-2,5".parse(), Ok(interface(Some(&[0, 1, 2, 5]))));
        let dpdk = |device: &str| PortText::Dpdk { device: device.into() };
        assert_eq!("dpdk:0000:03:00.0".parse(), Ok(dpdk("0000:03:00.0")));
        assert_eq!("dpdk:net_af_xdp0,iface=vb".parse(), Ok(dpdk("net_af_xdp0,iface=vb")));
        assert_eq!("memory:64,frames=9".parse(), Ok(PortText::Memory { octets: 64, frames: Some(9) }));
        let pcap = |repeat| PortText::Pcap {
            input: "a.pcap".into(),
            output: Some("b".into()),
            timing: Timing::Recorded,
            repeat,
        };
        assert_eq!("pcap:a.pcap,out=b,timing=recorded,repeat".parse(), Ok(pcap(true)));
        for text in ["", "eth0:", "eth0:3-1", "eth0:x", "an_interface_far_too_long", "memory", "memory:1", "pcap:"] {
            assert!(text.parse::<PortText>().is_err(), "{text:?} was taken");
        }
    }

    #[test]
    fn filters_deferrals_addresses_and_shares() {
        assert_eq!(filter("ethertype=0x88b5,0x0806"), Ok(Filter::EtherTypes(vec![0x88b5, 0x0806])));
        assert_eq!(filter("udp=7-9"), Ok(Filter::UdpPorts { first: 7, last: 9 }));
        assert!(filter("udp=9-7").is_err() && filter("tcp=7").is_err() && filter("ethertype=88b5").is_err());
        let deferred = NapiDeferral { defer_hard_irqs: 2, gro_flush_timeout: Nanos::from_micros(200) };
        assert_eq!(deferral("2,200us"), Ok(deferred));
        assert!(deferral("2").is_err() && deferral("2,200").is_err() && deferral("2,0us").is_err());
        assert_eq!(mac("02:61:70:75:73:01").map(show_mac), Ok("02:61:70:75:73:01".to_owned()));
        assert!(mac("2:61:70:75:73:01").is_err() && mac("02:61:70:75:73:01:02").is_err());
        assert_eq!(
            (parts("100ppm"), parts("1.5%"), parts("100%"), parts("0")),
            (Ok(100), Ok(15_000), Ok(1_000_000), Ok(0))
        );
        assert!(parts("5").is_err() && parts("1000001ppm").is_err());
        assert_eq!((width("1ppm"), width("5%")), (Ok(1), Ok(50_000)));
        assert!(width("0").is_err() && width("100%").is_err());
        assert_eq!((ring("64"), ring("1048576")), (Ok(64), Ok(1 << 20)));
        assert!(["32", "100", "268435456", ""].into_iter().all(|text| ring(text).is_err()));
        assert!(cpus("").is_err() && cpus(" ").is_err() && cpus("2-1").is_err());
        assert_eq!(cpus("1,3"), Ok(CpuSet::from([1, 3])));
        assert!(rate("0pps").is_err() && bit_rate("0Gbps").is_err() && rate("1pps").is_ok());
    }

    #[test]
    fn faults() {
        let fault: FaultText = "seed=7,rx_drop=100ppm,tx_delay=1%,hold=10,lost_after=5".parse().unwrap();
        assert_eq!((fault.plan.seed, fault.plan.rx.drop_ppm, fault.plan.tx.delay_ppm), (7, 100, 10_000));
        assert_eq!((fault.plan.tx.hold_polls, fault.plan.fail_after), (10, Some((5, Outage::Lost))));
        for text in ["", "rx_drop", "rx_drip=1%", "xx_drop=1%", "rx_drop=5"] {
            assert!(text.parse::<FaultText>().is_err(), "{text:?} was taken");
        }
    }
}
