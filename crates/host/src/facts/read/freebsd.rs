//! A FreeBSD host: its settings and the outputs of its tools, as the snapshot script collects them.

use std::collections::BTreeMap;

use super::services::assignments;
use super::sysctls;
use crate::facts::{BsdInterface, BsdInterrupt, BsdThread, Context, CpuSet, Fact, FreeBsd, Os, Root};

/// Maximum number of lines that are read from a tool's output.
const MAX_LINES: usize = 100_000;

pub(super) fn read(context: &Context, os: Os) -> Fact<FreeBsd> {
    let root = context.root;
    if os != Os::FreeBsd {
        return Fact::absent("uname");
    }
    let command = |name: &str| root.command(name);
    let facts = FreeBsd {
        release: command("uname -r").map(|text| text.trim().to_owned()),
        sysctls: command("sysctl -a").map(|text| sysctls::parse(&text)),
        loader: settings(root, &["boot/loader.conf", "boot/loader.conf.local"], "boot/loader.conf.d"),
        rc: settings(root, &["etc/rc.conf", "etc/rc.conf.local"], "etc/rc.conf.d"),
        sysctl_conf: settings(root, &["etc/sysctl.conf", "etc/sysctl.conf.local"], "etc/sysctl.conf.d"),
        interfaces: command("ifconfig -a").map(|text| interfaces(&text)),
        interrupts: command("vmstat -i").map(|text| interrupts(&text)),
        threads: command("top -bSH").map(|text| threads(&text)),
        pci: command("pciconf -l").map(|text| pci(&text)),
        irq_cpus: command("cpuset -g -x").value().map(|text| irq_cpus(text)).unwrap_or_default(),
    };
    Fact::known(facts, "a FreeBSD snapshot")
}

/// The operating system of a host: FreeBSD if the manifest or `uname` says so, or if there are FreeBSD's loader
/// settings but no Linux command line; otherwise Linux.
pub(super) fn operating_system(root: &Root) -> Os {
    let said = root.text("apus-snapshot").or_else(|| root.command("uname -s")).or_else(|| root.command("uname -a"));
    let named = said.value().is_some_and(|text| text.contains("FreeBSD"));
    let settings = || root.text("boot/loader.conf").is_known() && !root.text("proc/cmdline").is_known();
    if named || settings() { Os::FreeBsd } else { Os::Linux }
}

/// Settings from several files; later files override earlier ones. Known if at least one file is known.
fn settings(root: &Root, files: &[&str], folder: &str) -> Fact<BTreeMap<String, String>> {
    let more = root.list(folder).into_value().unwrap_or_default();
    let more = more.into_iter().filter(|name| name.ends_with(".conf")).take(512).map(|name| format!("{folder}/{name}"));
    let mut all = root.text(files[0]).map(|text| without_comments(&text));
    for file in files[1..].iter().map(|file| (*file).to_owned()).chain(more) {
        if let Fact::Known { value, source } = root.text(&file).map(|text| without_comments(&text)) {
            all = match all {
                Fact::Known { value: mut before, source } => {
                    before.extend(value);
                    Fact::known(before, source)
                }
                Fact::Missing { .. } => Fact::known(value, source),
            };
        }
    }
    all
}

/// Parses lines such as `name="value"  # why`. Comments are dropped.
fn without_comments(text: &str) -> BTreeMap<String, String> {
    let line = |line: &str| match line.split_once('#') {
        Some((before, _)) if before.matches('"').count() % 2 == 0 => format!("{}\n", before.trim()),
        _ => format!("{line}\n"),
    };
    assignments(&text.lines().take(MAX_LINES).map(line).collect::<String>())
}

/// Parses the output of `ifconfig -a`: `ixl0: flags=8863<UP,BROADCAST> metric 0 mtu 1500`, then
/// `options=…<RXCSUM,TSO4>` and `media: …`.
pub(crate) fn interfaces(text: &str) -> Vec<BsdInterface> {
    let mut all: Vec<BsdInterface> = Vec::new();
    for line in text.lines().take(MAX_LINES) {
        let in_brackets = || -> Vec<String> {
            let inside =
                line.split_once('<').and_then(|(_, rest)| rest.split_once('>')).map_or("", |(inside, _)| inside);
            inside.split(',').filter(|word| !word.is_empty()).map(str::to_owned).collect()
        };
        let trimmed = line.trim();
        if !line.starts_with([' ', '\t']) {
            let Some((name, rest)) = line.split_once(": ") else { continue };
            let mtu = rest.split_once(" mtu ").and_then(|(_, mtu)| mtu.split_whitespace().next()?.parse().ok());
            all.push(BsdInterface { name: name.into(), flags: in_brackets(), mtu, ..BsdInterface::default() });
        } else if let Some(interface) = all.last_mut() {
            if trimmed.starts_with("options=") {
                interface.options = in_brackets();
            } else if let Some(media) = trimmed.strip_prefix("media: ") {
                interface.media = Some(media.to_owned());
            }
        }
    }
    all
}

/// Parses the output of `vmstat -i`. Each line has the interrupt's name, its total and its rate per second, as in
/// `irq293: ixl1:q2     5551234 4211`.
pub(crate) fn interrupts(text: &str) -> Vec<BsdInterrupt> {
    let line = |line: &str| {
        let mut words = line.trim().rsplitn(3, char::is_whitespace).map(str::trim);
        let (rate, rest) = (words.next()?.parse().ok()?, words.next()?);
        // Columns are padded with spaces: the total is either the whole rest or the last word of the name.
        let (name, total) = match words.next() {
            Some(name) if !rest.is_empty() => (name.to_owned(), rest.to_owned()),
            Some(name) => name.rsplit_once(char::is_whitespace).map(|(a, b)| (a.trim().to_owned(), b.to_owned()))?,
            None => return None,
        };
        Some(BsdInterrupt { name: name.trim().to_owned(), total: total.parse().ok()?, rate })
    };
    let lines =
        text.lines().take(MAX_LINES).filter(|line| !line.starts_with("Total") && !line.starts_with("interrupt"));
    lines.filter_map(line).collect()
}

/// Parses lines of `top -SH`. A CPU share such as `50.98%` comes before the name `intr{irq293: ixl1:q2}`. The number of
/// the CPU is in the column before the time, or else in the state column (`CPU2`).
pub(crate) fn threads(text: &str) -> Vec<BsdThread> {
    let line = |line: &str| {
        let (before, name) = line.split_once('%')?;
        let words: Vec<&str> = before.split_whitespace().collect();
        let share = words.last()?;
        let (whole, part) = share.split_once('.')?;
        let cpu_permyriad =
            whole.parse::<u32>().ok()?.checked_mul(100)?.checked_add(format!("{part:0<2}").get(..2)?.parse().ok()?)?;
        // The column TIME is the word with a colon. The column C, if top prints it, comes before TIME.
        let time =
            words.iter().rposition(|word| word.contains(':') && word.starts_with(|c: char| c.is_ascii_digit()))?;
        let column = time.checked_sub(1).and_then(|at| words[at].parse().ok());
        let state = words.iter().find_map(|word| word.strip_prefix("CPU")?.parse().ok());
        Some(BsdThread { name: name.trim().to_owned(), cpu: column.or(state), cpu_permyriad })
    };
    text.lines().take(MAX_LINES).filter_map(line).filter(|thread| !thread.name.is_empty()).collect()
}

/// Parses the output of `pciconf -l`: `ixl0@pci0:2:0:0: class=0x020000 rev=0x02 hdr=0x00 vendor=0x8086 device=0x1583
/// …`. Before FreeBSD 13, `chip=0x15838086` stands for vendor and device.
pub(crate) fn pci(text: &str) -> BTreeMap<String, String> {
    let device = |line: &str| {
        let (name, rest) = line.split_once('@')?;
        let value = |key: &str| rest.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
        let chip = value("chip").map(str::to_owned);
        let of_two = || Some(format!("{}{}", value("device")?, value("vendor")?.trim_start_matches("0x")));
        Some((name.to_owned(), chip.or_else(of_two)?))
    };
    text.lines().take(MAX_LINES).filter_map(device).collect()
}

/// Parses lines such as `irq 293 mask: 2`, one for each interrupt. The mask is a list of CPUs.
pub(crate) fn irq_cpus(text: &str) -> BTreeMap<u32, Fact<CpuSet>> {
    let line = |line: &str| {
        let (number, set) = line.strip_prefix("irq ")?.split_once(" mask:")?;
        let number: u32 = number.trim().parse().ok()?;
        let set: String = set.chars().filter(|c| !c.is_whitespace()).collect();
        let source = format!("cpuset -g -x {number}");
        Some((number, Fact::known(set, source.as_str()).parse(|set| CpuSet::parse_list(&set))))
    };
    text.lines().take(MAX_LINES).filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::facts::Facts;

    #[test]
    fn a_snapshot_of_freebsd() {
        let facts = Facts::read(&Root::given([
            ("apus-snapshot", "apus-snapshot 1\nos: FreeBSD\n"),
            ("commands/sysctl_-a", "hw.ixl.rx_itr: 62\nhw.acpi.cpu.cx_lowest: C8\n"),
            ("boot/loader.conf", "hw.ixl.max_queues=\"4\" # fewer\nhw.ixl.ringsz=256\n"),
            ("boot/loader.conf.local", "hw.ixl.ringsz=\"512\"\n"),
            ("etc/rc.conf", "powerd_flags=\"-a max -b max -n max\"\n"),
            ("commands/cpuset_-g_-x", "irq 293 mask: 2, 3\n"),
        ]));
        assert_eq!(facts.origin.os, Os::FreeBsd);
        let host = facts.freebsd.value().unwrap();
        assert_eq!(host.sysctl("hw.ixl.rx_itr").get(), Some("62"));
        assert!(host.sysctl("hw.ixl.ringsz").is_absent() && host.release.is_unknown());
        assert_eq!(
            (host.tunable("hw.ixl.ringsz").get(), host.tunable("hw.ixl.max_queues").get()),
            (Some("512"), Some("4"))
        );
        assert_eq!(host.rc.value().unwrap()["powerd_flags"], "-a max -b max -n max");
        assert_eq!(host.irq_cpus[&293].value(), Some(&CpuSet::from([2, 3])));
        assert!(Facts::read(&Root::given([("proc/cmdline", "")])).freebsd.is_absent());
    }

    #[test]
    fn outputs_of_its_tools() {
        let links = interfaces(
            "ixl0: flags=8863<UP,BROADCAST> metric 0 mtu 1500\n\toptions=e507bb<RXCSUM,TSO4,LRO>\n\tmedia: Ethernet autoselect (40Gbase-CR4 <full-duplex>)\nlo0: flags=8049<UP> mtu 16384\n",
        );
        assert_eq!(
            (links[0].options.as_slice(), links[0].mtu),
            (&["RXCSUM", "TSO4", "LRO"].map(str::to_owned)[..], Some(1500))
        );
        assert!(links[0].media.as_deref().is_some_and(|media| media.contains("40Gbase")));
        assert_eq!((links.len(), links[1].mtu), (2, Some(16384)));
        let counts = interrupts(
            "interrupt                          total       rate\nirq293: ixl1:q2                  5551234       4211\ncpu0:timer 77 1\nTotal 9 9\n",
        );
        assert_eq!(counts[0], BsdInterrupt { name: "irq293: ixl1:q2".into(), total: 5551234, rate: 4211 });
        assert_eq!((counts.len(), counts[1].total), (2, 77));
        let devices = pci(
            "ixl0@pci0:2:0:0:\tclass=0x020000 card=0x00008086 chip=0x15838086 rev=0x02\nix0@pci0:4:0:0: class=0x02 vendor=0x8086 device=0x10fb\n",
        );
        assert_eq!((devices["ixl0"].as_str(), devices["ix0"].as_str()), ("0x15838086", "0x10fb8086"));
    }

    #[test]
    fn threads_of_interrupts_in_top() {
        let all = threads(
            "   11      0   -92    -     0K  1152K CPU2    2   0:19  50.98% intr{irq293: ixl1:q2}\n    0      0   -92    0     0K  8944K -      25   0:01   1.07% kernel{ixl1 que}\nCPU:  5.0% user\n",
        );
        assert_eq!(all[0], BsdThread { name: "intr{irq293: ixl1:q2}".into(), cpu: Some(2), cpu_permyriad: 5098 });
        assert_eq!((all.len(), all[1].cpu, all[1].cpu_permyriad), (2, Some(25), 107));
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "((irq |ixl0[:@]|\\t?options=|[0-9 ]{1,9})\\PC{0,20}\n){0,9}") {
            let _ = (interfaces(&text), interrupts(&text), threads(&text), pci(&text), irq_cpus(&text));
            without_comments(&text);
        }
    }
}
