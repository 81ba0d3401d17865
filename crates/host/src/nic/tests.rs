//! Tests on recorded replies, on the loopback interface, and on a veth pair in a separate network namespace, as root.

use std::time::{Duration, Instant};

use rustix::net::netlink::{GENERIC, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType};

use super::numbers::read;
use super::*;
use crate::testing::{in_own_namespace, ip, tap};

/// Parses a group from a reply of Linux 6.18 for virtio-net. `reply` lacks the two headers.
fn recorded<G: Numbers>(reply: &[u8]) -> G {
    read(attributes(&reply[message::HEAD..]))
}

#[test]
fn recorded_replies_are_understood_and_torn_ones_survived() {
    let coalescing = include_bytes!("recorded/coalesce_get.bin");
    let known = Coalescing {
        rx_usecs: Some(0),
        rx_frames: Some(1),
        tx_usecs: Some(0),
        tx_frames: Some(1),
        adaptive_rx: Some(false),
        ..Coalescing::default()
    };
    assert_eq!(recorded::<Coalescing>(coalescing), known);
    let rings: Rings = recorded(include_bytes!("recorded/rings_get.bin"));
    assert_eq!((rings.rx, rings.rx_max, rings.tx_push, rings.rx_mini), (Some(256), Some(256), Some(false), None));
    let channels: Channels = recorded(include_bytes!("recorded/channels_get.bin"));
    assert_eq!(channels, Channels { combined: Some(1), combined_max: Some(1), ..Channels::default() });
    let settings: NapiSettings = recorded(include_bytes!("recorded/napi_get.bin"));
    let zeroes = NapiSettings {
        defer_hard_irqs: Some(0),
        gro_flush_timeout_ns: Some(0),
        irq_suspend_timeout_ns: Some(0),
        threaded: Some(0),
    };
    assert_eq!(settings, zeroes);
    let counts: QueueCounts = recorded(&include_bytes!("recorded/qstats_get.bin")[..60]);
    assert!(counts.rx_packets.is_some_and(|n| n > 0) && counts.rx_bytes > counts.rx_packets, "{counts:?}");
    assert_eq!(counts.tx_packets, None);
    for length in message::HEAD..coalescing.len() {
        recorded::<Coalescing>(&coalescing[..length]);
    }
}

/// The ioctl's structures contain the fields in the order of the netlink attributes.
#[test]
fn words_are_fields() {
    let mut words = [0; sys::COALESCE];
    (words[1], words[5], words[10], words[22]) = (50, u32::MAX, 1, 7);
    let said: Coalescing = numbers::of_words(&words);
    assert_eq!((said.rx_usecs, said.tx_usecs, said.adaptive_rx), (Some(50), None, Some(true)), "all ones are none");
    assert_eq!(said.sample_interval, Some(7));
    let wanted = Coalescing { rx_usecs: Some(20), adaptive_rx: Some(false), ..Coalescing::default() };
    numbers::to_words(&wanted, &mut words).unwrap();
    assert_eq!((words[1], words[5], words[10], words[22]), (20, u32::MAX, 0, 7), "others stay");
    let beyond = Coalescing { cqe_mode_rx: Some(true), ..Coalescing::default() };
    assert_eq!(numbers::to_words(&beyond, &mut words).unwrap_err().name, "cqe-mode-rx");
    // struct ethtool_ringparam: maxima of rx, mini, jumbo and tx, then the current sizes.
    let rings: Rings = numbers::of_words(&[0x10, 4096, 0, 0, 2048, 512, 0, 0, 256]);
    assert_eq!((rings.rx, rings.rx_max, rings.tx, rings.tx_max), (Some(512), Some(4096), Some(256), Some(2048)));
    assert_eq!((rings.rx_mini, rings.rx_mini_max), (None, None));
    // struct ethtool_pauseparam: switches have no maxima.
    let pause: Pause = numbers::of_words(&[0x12, 0, 1, 0]);
    assert_eq!(pause, Pause { autoneg: Some(false), rx: Some(true), tx: Some(false) });
}

/// The ioctl, which is used if the kernel lacks the netlink command, gives the same result as netlink.
#[test]
fn both_ways_say_the_same() {
    in_own_namespace(|| {
        let mut client = Client::new();
        let veth = client.interface("v0").unwrap();
        let said: Channels = client.get(&veth).unwrap();
        assert_eq!((said.rx_max, said.tx_max), (Some(4), Some(4)), "{said:?}");
        client.families.iter_mut().for_each(|family| family.commands = [0; 4]);
        let by_ioctl: Channels = client.get(&veth).unwrap();
        let zero = |n: Option<u32>| n.filter(|n| *n > 0);
        assert_eq!(
            by_ioctl,
            Channels { other_max: zero(said.other_max), combined_max: zero(said.combined_max), ..said }
        );
        let error = client.set(&veth, &Channels { rx: Some(1), ..Channels::default() }).unwrap_err();
        assert!(matches!(&error, Error::UnknownToKernel { what, .. } if what.contains("command 18")), "{error}");
    });
}

#[test]
fn a_veth_is_set_and_read_back() {
    in_own_namespace(|| {
        let mut client = Client::new();
        let veth = client.interface("v0").unwrap();
        client.set_features(&veth, [("rx-gro", true)]).unwrap();
        assert!(client.features(&veth).unwrap()["rx-gro"].on);
        let before = client.napis(&veth).unwrap();
        let settings = NapiSettings {
            defer_hard_irqs: Some(2),
            gro_flush_timeout_ns: Some(200_000),
            irq_suspend_timeout_ns: Some(20_000_000),
            threaded: Some(1),
        };
        client.set_napi(before[0].id, &settings).unwrap();
        let napi = client.napi(before[0].id).unwrap();
        assert_eq!((napi.settings, napi.pid.is_some()), (settings, true));
        assert_eq!(client.napis(&veth).unwrap()[0], napi);
        // A field without a value does not change.
        client.set_napi(napi.id, &NapiSettings { threaded: Some(0), ..NapiSettings::default() }).unwrap();
        let now = client.napi(napi.id).unwrap().settings;
        assert_eq!(now, NapiSettings { threaded: Some(0), ..settings });
        let queues = client.queues(&veth).unwrap();
        assert!(queues.iter().any(|queue| queue.direction == Direction::Rx && queue.napi.is_none()), "{queues:?}");
        client.set(&veth, &Channels { rx: Some(2), tx: Some(2), ..Channels::default() }).unwrap();
        let channels: Channels = client.get(&veth).unwrap();
        assert_eq!((channels.rx, channels.tx), (Some(2), Some(2)));
    });
}

/// The driver of a tap device accepts at most 64 frames (drivers/net/tun.c, `tun_set_coalesce`). Reading the setting
/// back shows the value in force. The error for an unsupported field names the field.
#[test]
fn a_driver_that_moderates_rounds_and_refuses() {
    in_own_namespace(|| {
        if !tap() {
            return;
        }
        let mut client = Client::new();
        let interface = client.interface("t0").unwrap();
        let frames = |frames| Coalescing { rx_frames: Some(frames), ..Coalescing::default() };
        for (wanted, becomes) in [(8, 8), (1000, 64), (0, 0)] {
            client.set(&interface, &frames(wanted)).unwrap();
            assert_eq!(client.get::<Coalescing>(&interface).unwrap(), frames(becomes), "{wanted}");
        }
        let wanted = Coalescing { tx_usecs: Some(4), ..frames(8) };
        let error = client.set(&interface, &wanted).unwrap_err();
        assert!(matches!(error, Error::Unsupported(_)), "{error}");
        assert_eq!(error.said().field.as_deref(), Some("tx-usecs"), "{error}");
        assert_eq!(client.get::<Coalescing>(&interface).unwrap(), frames(0), "all or nothing");
        assert_eq!(client.rx_profile(&interface), Ok(Vec::new()));
    });
}

/// Different causes give different errors, with the kernel's explanation if there is one.
#[test]
fn causes_are_told_apart() {
    in_own_namespace(|| {
        let mut client = Client::new();
        let veth = client.interface("v0").unwrap();
        assert!(matches!(client.interface("nowhere"), Err(Error::NoDevice(_))));
        assert!(matches!(client.napis(&Interface::new("nowhere", 9999)), Err(Error::NoDevice(_))));
        assert!(matches!(client.get::<Coalescing>(&Interface::new("nowhere", 9999)), Err(Error::NoDevice(_))));
        assert!(matches!(client.napi(u32::MAX), Err(Error::NoDevice(_))));
        assert!(matches!(client.get::<Coalescing>(&veth), Err(Error::Unsupported(_))));
        assert!(matches!(client.queue_coalescing(&veth, 0), Err(Error::Unsupported(_))));
        assert!(matches!(client.queue_statistics(&veth), Err(Error::Unsupported(_))));
        let error = client.set_features(&veth, [("no-such-offload", true)]).unwrap_err();
        assert!(matches!(error, Error::Unsupported(_)) && error.to_string().contains("no-such-offload"), "{error}");
        client.set_features(&veth, [("rx-gro", true)]).unwrap();
        let before = client.napis(&veth).unwrap();
        let napi = before[0];
        let error = client.set_napi(napi.id, &NapiSettings { threaded: Some(7), ..napi.settings }).unwrap_err();
        assert_eq!(error.said().field.as_deref(), Some("threaded"), "{error}");
        assert!(error.said().range.is_some_and(|(least, most)| least == 0 && most < 7), "{error}");
        assert_eq!(client.napi(napi.id).unwrap(), napi, "nothing of a refused request is done");
        // A rejected request does not affect the next one.
        assert_eq!(client.napis(&veth).unwrap(), before);
    });
}

/// An interface keeps its index when it is renamed, and loses it when it is deleted.
#[test]
fn a_renamed_interface_is_found_and_a_deleted_one_is_not() {
    in_own_namespace(|| {
        let mut client = Client::new();
        let veth = client.interface("v0").unwrap();
        ip(&["link", "set", "v0", "down"]);
        assert_eq!(client.napis(&veth).unwrap(), []);
        ip(&["link", "set", "v0", "name", "renamed"]);
        assert!(client.get::<Channels>(&veth).is_ok());
        assert_eq!(client.interface_numbered(veth.index()).unwrap().name(), "renamed");
        ip(&["link", "delete", "renamed"]);
        assert!(matches!(client.get::<Channels>(&veth), Err(Error::NoDevice(_))));
        assert!(matches!(client.napis(&veth), Err(Error::NoDevice(_))));
    });
}

/// A thread in another network namespace gets another client. The client is reused while the namespace stays the same.
#[test]
fn each_namespace_has_its_client() {
    let shared = Shared::default();
    let loopback = shared.with(|client| client.interface("lo")).unwrap();
    assert!(shared.with(|client| client.control.is_some()), "it was kept");
    in_own_namespace(|| {
        assert!(shared.with(|client| client.control.is_none()), "it is another's");
        assert!(shared.with(|client| client.interface("v0")).is_ok());
    });
    assert!(shared.with(|client| client.interface("v0")).is_err());
    assert_eq!(shared.with(|client| client.interface("lo")).unwrap(), loopback);
}

/// Without the capability, a change is rejected; after the capability is restored, the change succeeds. The second
/// change needs a new socket, because the first socket was opened without the capability.
#[test]
fn a_capability_that_is_set_aside_and_taken_up() {
    in_own_namespace(|| {
        let shared = Shared::default();
        let set = |on| {
            shared.with(|client| {
                let veth = client.interface("v0")?;
                client.set_features(&veth, [("rx-gro", on)])
            })
        };
        crate::privilege::rest(rustix::thread::CapabilitySet::empty()).unwrap();
        assert!(matches!(set(true), Err(Error::NotPermitted(_))));
        crate::privilege::resume().unwrap();
        assert_eq!(set(true), Ok(()));
    });
}

/// A dump takes one send and one receive, which the bare system calls confirm. The test prints how much time the client
/// adds.
#[test]
fn a_dump_costs_one_send_and_one_receive() {
    in_own_namespace(|| {
        let mut client = Client::new();
        let veth = client.interface("v0").unwrap();
        client.set_features(&veth, [("rx-gro", true)]).unwrap();
        let family = client.family("netdev").unwrap();
        let mut request = Message::command(11);
        request.number(1, veth.index());
        // NLM_F_REQUEST | NLM_F_DUMP.
        let request = request.sealed(family.id, 0x301, 0).to_vec();
        let bare = rustix::net::socket(AddressFamily::NETLINK, SocketType::RAW, Some(GENERIC)).unwrap();
        rustix::net::connect(&bare, &SocketAddrNetlink::new(0, 0)).unwrap();
        let mut buffer = vec![0_u8; 32 << 10];
        let mut by_hand = || {
            rustix::net::send(&bare, &request, SendFlags::empty()).unwrap();
            rustix::net::recv(&bare, &mut buffer[..], RecvFlags::DONTWAIT).unwrap().1
        };
        // One reply contains all instances and the end of the dump. The client's single receive relies on this.
        let length = by_hand();
        assert!(length > 20 && rustix::net::recv(&bare, [0_u8; 1].as_mut_slice(), RecvFlags::DONTWAIT).is_err());
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..2000 {
            let start = Instant::now();
            by_hand();
            times[0].push(start.elapsed());
            let start = Instant::now();
            assert!(!client.napis(&veth).unwrap().is_empty());
            times[1].push(start.elapsed());
        }
        let [bare, ours]: [Duration; 2] = times.map(|mut times| {
            times.sort_unstable();
            times[times.len() / 2]
        });
        let ratio = ours.as_secs_f64() / bare.as_secs_f64();
        println!("napi-get of a veth: {bare:?} by bare system calls, {ours:?} by the client, ratio {ratio:.2}");
    });
}
