//! Rules on offloads that merge or split frames.

use host::Facts;
use host::facts::Link;
use units::Nanos;

use crate::rules::interfaces::{by_link, gigabits, offered, on_wire};
use crate::{Applies, Cause, Context, Fix, Judged, Judgement, Magnitude, Rule, Skip, Workload, known};

const SEGMENTATION: &str = "Linux Documentation/networking/segmentation-offloads.rst";
const THREAD: &str = "FreeBSD mailing list freebsd-net, thread \"ixl 40G bad performance\" (2015)";
const ETHTOOL: &str = "ethtool(8), -K";

/// The rules of this module, in the order of docs/rules.md.
pub const RULES: &[Rule] = &[
    Rule {
        id: "nic.lro",
        cause: Cause::Offloads,
        title: "The card and its driver do not merge received segments",
        applies: Applies::LINUX.with_nic(),
        judge: merged,
        why: "Large receive offload and hardware GRO hold a segment back to append the next ones to it. LRO also loses \
              the differences between the segments, so a host that forwards does not send the frames as it received them.",
        magnitude: Magnitude::late(
            Nanos::from_micros(5),
            "until the next segment arrives, a timer of the card expires or the poll ends: microseconds",
            "Linux Documentation/networking/segmentation-offloads.rst; the figure is an estimate",
        ),
        fix: Fix::runtime("ethtool -K {nic} lro off rx-gro-hw off"),
        cost: "Bulk TCP takes more CPU time.",
        references: &[SEGMENTATION, THREAD, ETHTOOL],
    },
    Rule {
        id: "nic.gro",
        cause: Cause::Offloads,
        title: "The kernel does not merge received segments",
        applies: Applies::LINUX.with_nic().to(&[Workload::Interrupt, Workload::Rt]),
        judge: gro,
        why: "Generic receive offload merges segments of one flow that arrive in one poll of the card, and passes them \
         on at the end of the poll. So the first segment waits for the processing of the others. With \
         gro_flush_timeout it can also wait for the next poll.",
        magnitude: Magnitude::late(
            Nanos::from_micros(5),
            "the processing of up to 64 frames of a poll: a few microseconds under load, nothing otherwise",
            "Linux Documentation/networking/napi.rst (budget of a poll); the figure is an estimate",
        ),
        fix: Fix::runtime("ethtool -K {nic} gro off").against(&[
            "off: the FreeBSD thread, GitHub padalan/latency-audit and nawaz1991/lltune; on: Linux by default, for throughput",
        ]),
        cost: "Bulk TCP takes several times as much CPU time.",
        references: &["Linux Documentation/networking/napi.rst", SEGMENTATION, ETHTOOL],
    },
    Rule {
        id: "nic.tso",
        cause: Cause::Offloads,
        title: "A large segment does not occupy the wire for longer than the budget",
        applies: Applies::LINUX.with_nic(),
        judge: segmentation,
        why: "With segmentation offload, TCP passes up to 64 KB to the card at once, and the card sends them back to \
         back. Another flow's packet on the same queue waits behind them.",
        magnitude: Magnitude::late(
            Nanos::from_micros(52),
            "64 KB take 52 us at 10 Gbit/s, 13 us at 40, 5.2 us at 100",
            "arithmetic: 65,536 bytes x 8 / rate; Linux include/linux/netdevice.h, GSO_LEGACY_MAX_SIZE",
        ),
        fix: Fix::both(
            "ip link set dev {nic} gso_max_size 16384 # or ethtool -K {nic} tso off gso off",
            "set the same in a udev rule",
        ).against(&["Linux by default: on, for throughput"]),
        cost: "Bulk TCP takes more CPU time. The FreeBSD thread advises to turn all off, measure, and turn them on \
               one at a time.",
        references: &[SEGMENTATION, THREAD, ETHTOOL],
    },
    Rule {
        id: "nic.csum",
        cause: Cause::Offloads,
        title: "The card computes checksums",
        applies: Applies::LINUX.with_nic(),
        judge: checksums,
        why: "Without the card's help the CPU reads each byte of each packet once more.",
        magnitude: Magnitude::slower(
            "about 0.1 us for 1500 bytes in the cache, more from memory",
            "arithmetic from some 16 bytes per nanosecond; general knowledge",
        ),
        fix: Fix::runtime("ethtool -K {nic} rx on tx on").against(&["the FreeBSD thread: off as an experiment, then on again one at a time"]),
        cost: "None, unless the driver's offload has a bug.",
        references: &["Linux Documentation/networking/checksum-offloads.rst", ETHTOOL],
    },
];

/// Size in bytes of the largest segment that TCP passes down, unless gso_max_size allows more (`GSO_LEGACY_MAX_SIZE`).
const LARGEST_SEGMENT: u64 = 65_536;

/// Whether a feature is on. The error is [`Skip::Unknown`] if the list of features is unknown, and
/// [`Skip::NotApplicable`] if the driver does not have the feature.
fn on(link: &Link, name: &str) -> Result<bool, Skip> {
    let all = offered(&link.features)?;
    let feature = all.get(name).ok_or_else(|| Skip::not_applicable(format!("the kernel has no feature {name}")))?;
    Ok(feature.on)
}

fn state(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

fn merged(facts: &Facts, context: &Context) -> Judged {
    by_link(facts, context, |link| {
        let (lro, hardware) = (on(link, "rx-lro")?, on(link, "rx-gro-hw").unwrap_or(false));
        let judgement = match (lro, hardware) {
            (false, false) => Judgement::pass("segments arrive as they were sent"),
            (true, _) => Judgement::warn("large receive offload merges segments"),
            (false, true) => {
                Judgement::warn("the card may merge received segments before it passes them on (hardware GRO)")
            }
        };
        let name = if lro { "rx-lro" } else { "rx-gro-hw" };
        let fixed =
            link.features.value().and_then(|all| all.get(name)).is_some_and(|feature| feature.on && feature.fixed);
        let judgement = match (fixed, link.driver.is(|driver| driver == "virtio_net") == Some(true)) {
            (true, true) => judgement
                .now("# nothing: the guest's driver cannot disable it")
                .for_good("at the hypervisor: -device virtio-net-pci,guest_tso4=off,guest_tso6=off"),
            (true, false) => judgement.now("# nothing: the driver cannot disable it"),
            (false, _) => judgement,
        };
        let word = |on| if fixed && on { "on [fixed]" } else { state(on) };
        Ok(judgement.see_as(format!("lro {}, rx-gro-hw {}", word(lro), word(hardware)), link.features.source()))
    })
}

fn gro(facts: &Facts, context: &Context) -> Judged {
    by_link(facts, context, |link| {
        let judgement = match on(link, "rx-gro")? {
            false => Judgement::pass("segments are passed on one by one"),
            true => Judgement::disagree("segments that arrive in one poll are merged"),
        };
        Ok(judgement.see_as(format!("gro {}", state(on(link, "rx-gro")?)), link.features.source()))
    })
}

fn segmentation(facts: &Facts, context: &Context) -> Judged {
    by_link(facts, context, |link| {
        let (tso, gso) = (on(link, "tx-tcp-segmentation")?, on(link, "tx-generic-segmentation").unwrap_or(false));
        let text = format!("tso {}, gso {}", state(tso), state(gso));
        if !tso && !gso {
            return Ok(Judgement::pass("TCP sends frame by frame").see_as(text, link.features.source()));
        }
        let speed = *known(&link.speed)?;
        let takes = on_wire(LARGEST_SEGMENT, speed);
        let found = format!("up to 64 KB are sent at once, which takes {takes} at {}", gigabits(speed.as_bps()));
        let judgement = match takes <= context.budget() {
            true => Judgement::pass(found),
            false => Judgement::warn(found).takes(takes),
        };
        Ok(judgement.see_as(text, link.features.source()))
    })
}

fn checksums(facts: &Facts, context: &Context) -> Judged {
    by_link(facts, context, |link| {
        let all = offered(&link.features)?;
        let rx = on(link, "rx-checksum")?;
        // Cards differ in the kind of checksum that they compute: one of these is enough.
        let kinds = ["tx-checksumming", "tx-checksum-ip-generic", "tx-checksum-ipv4"];
        let tx = kinds.iter().filter_map(|name| all.get(*name)).any(|feature| feature.on);
        let judgement = match (rx, tx) {
            (true, true) => Judgement::pass("the card computes checksums both ways"),
            (false, true) => Judgement::warn("the CPU checks what is received"),
            (true, false) => Judgement::warn("the CPU computes what is sent"),
            (false, false) => Judgement::warn("the CPU computes checksums both ways"),
        };
        Ok(judgement.see_as(format!("rx {}, tx {}", state(rx), state(tx)), link.features.source()))
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use crate::Workload;
    use crate::testing::{Case, Host, host};
    use units::Nanos;

    fn features(lines: &str) -> Host {
        bare().workload(Workload::Interrupt).command("ethtool -k eth0", &format!("Features for eth0:\n{lines}"))
    }

    fn bare() -> Host {
        host().nic("eth0").workload(Workload::Interrupt).file("/sys/class/net/eth0/mtu", "1500\n")
    }

    fn tso(on: &str, speed: &str) -> Host {
        features(&format!("tcp-segmentation-offload: {on}\ngeneric-segmentation-offload: {on}\n"))
            .file("/sys/class/net/eth0/speed", speed)
    }

    pub(crate) const CASES: &[Case] = &[
        Case::pass("nic.lro", || features("large-receive-offload: off [fixed]\nrx-gro-hw: off\n")),
        Case::warn("nic.lro", || features("large-receive-offload: on\n")),
        Case::warn("nic.lro", || features("large-receive-offload: off\nrx-gro-hw: on\n")),
        Case::unknown("nic.lro", bare),
        Case::pass("nic.gro", || features("generic-receive-offload: off\n")),
        Case::disagree("nic.gro", || features("generic-receive-offload: on\n")),
        Case::unknown("nic.gro", bare),
        Case::pass("nic.tso", || tso("off", "10000\n")),
        Case::warn("nic.tso", || tso("on", "10000\n")),
        Case::pass("nic.tso", || tso("on", "100000\n")),
        Case::pass("nic.tso", || tso("on", "10000\n").goal(Nanos::from_micros(100))),
        Case::unknown("nic.tso", bare),
        Case::pass("nic.csum", || features("rx-checksumming: on\ntx-checksum-ip-generic: on\n")),
        Case::warn("nic.csum", || features("rx-checksumming: off\ntx-checksum-ip-generic: on\n")),
        Case::warn("nic.csum", || features("rx-checksumming: on\ntx-checksum-ip-generic: off\n")),
        Case::unknown("nic.csum", bare),
    ];

    #[test]
    fn what_is_fixed_is_not_to_be_switched() {
        let judgements = features("large-receive-offload: off\nrx-gro-hw: on [fixed]\n").judge("nic.lro");
        assert!(judgements[0].now[0].starts_with("# nothing"), "{judgements:?}");
        assert_eq!(judgements[0].evidence[0].value, "lro off, rx-gro-hw on [fixed]");
    }

    #[test]
    fn a_large_segment_takes_what_the_wire_takes() {
        assert_eq!(
            tso("on", "10000\n").judge("nic.tso")[0].effect,
            Some(crate::Effect::Late(Nanos::from_nanos(52_428)))
        );
    }
}
