//! What is not for others: secrets always, addresses and serial numbers unless asked for.

/// Parameters of a command line whose values are kept: those that rules, or people who help, look at.
/// The values of all others are kept too unless their names or values look like the words below.
const SECRET_NAMES: [&str; 20] = [
    "auth",
    "bootif",
    "cred",
    "dns",
    "fqdn",
    "gateway",
    "hostname",
    "ifname",
    "ip",
    "iscsi",
    "key",
    "mac",
    "nameserver",
    "netroot",
    "nfsroot",
    "pass",
    "proxy",
    "secret",
    "token",
    "uuid",
];
/// Names that contain one of those words and are harmless.
const HARMLESS: [&str; 6] = ["macaddr_check", "passthrough", "ipv6.disable", "skip", "slub_debug", "random.trust_cpu"];
/// Ends of names that hold a secret: `inst.sshpw`, `sshkey`.
const SECRET_ENDS: [&str; 7] = ["pw", "pwd", "passwd", "password", "secret", "token", "key"];
const MASK: &str = "MASKED";

/// A command line whose private values are masked.
pub(super) fn command_line(line: &str) -> String {
    let mut out: Vec<String> = Vec::new();
    // A masked value in quotes goes on until they end.
    let mut quoted = false;
    for word in line.split(' ') {
        if quoted {
            quoted = !word.contains('"');
            continue;
        }
        let (before, word) = match word.split_once("=\"").or_else(|| word.split_once("='")) {
            Some((name, rest)) if name.trim_start().starts_with("GRUB_CMDLINE") => {
                word.split_at(word.len() - rest.len())
            }
            _ => ("", word),
        };
        out.push(match word.split_once('=') {
            Some((name, value)) if is_secret(name) || looks_private(value) => {
                quoted = value.starts_with('"') && value.matches('"').count() == 1;
                format!("{before}{name}={MASK}")
            }
            _ => format!("{before}{word}"),
        });
    }
    out.join(" ")
}

/// `/proc/cpuinfo` without the serial number that ARM's boards print there (arch/arm/kernel/setup.c).
pub(super) fn cpu_info(text: &str) -> String {
    let line = |line: &str| match line.split_once(':') {
        Some((name, _)) if name.trim_end().eq_ignore_ascii_case("serial") => format!("{name}: {MASK}\n"),
        _ => line.to_owned(),
    };
    text.split_inclusive('\n').map(line).collect()
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let words = || name.split(['.', '_', '-']);
    !HARMLESS.iter().any(|harmless| name.contains(harmless))
        && SECRET_NAMES
            .iter()
            .any(|secret| words().any(|word| word == *secret || (secret.len() > 3 && word.contains(secret))))
        || words().any(|word| SECRET_ENDS.iter().any(|end| word.ends_with(end)))
}

/// A URL, an address, or a name of a file system by its number.
fn looks_private(value: &str) -> bool {
    value.contains("://") || value.contains("UUID=") || addresses(value) != value || value.contains('@')
}

/// The command lines of a boot loader's file.
pub(super) fn loader(text: &str) -> String {
    let kept = |line: &&str| {
        ["linux", "options", "GRUB_CMDLINE_LINUX"].iter().any(|start| line.trim_start().starts_with(start))
    };
    text.lines().filter(kept).map(|line| command_line(line) + "\n").collect()
}

/// Mounts of the kernel's own kinds.
pub(super) fn mounts(text: &str) -> String {
    const KINDS: [&str; 7] = ["hugetlbfs", "resctrl", "cgroup", "cgroup2", "debugfs", "tracefs", "bpf"];
    let kept = |line: &&str| line.split(' ').nth(2).is_some_and(|kind| KINDS.contains(&kind));
    text.lines().filter(kept).map(|line| format!("{line}\n")).collect()
}

/// Lines `key: word` that are not indented.
pub(super) fn plain(text: &str) -> String {
    let kept = |line: &&str| {
        let Some((key, value)) = line.split_once(':') else { return false };
        let word = |text: &str, more: &[u8]| text.bytes().all(|c| c.is_ascii_alphanumeric() || more.contains(&c));
        !key.is_empty() && word(key, b"\"") && value.len() <= 40 && word(value, b" _.,/%\"-")
    };
    text.lines().filter(kept).map(|line| format!("{line}\n")).collect()
}

/// The policy and the default set, which stand before the containers.
pub(super) fn cpu_manager(text: &str) -> String {
    text.split("\"entries\"").next().unwrap_or_default().to_owned()
}

/// The lines that rules look at.
pub(super) fn limits(text: &str) -> String {
    let kept =
        |line: &&str| !line.trim_start().starts_with('#') && (line.contains("memlock") || line.contains("rtprio"));
    text.lines().filter(kept).map(|line| format!("{line}\n")).collect()
}

/// Masks MAC addresses, and those in names of interfaces (`enx001122334455`), of which the last three digits
/// stay so that two interfaces stay two.
pub(super) fn macs(text: &str) -> String {
    let octets = text.as_bytes();
    let mut out = String::with_capacity(text.len());
    let (mut at, mut copied) = (0, 0);
    while at < octets.len() {
        let rest = &octets[at..];
        let masked = if rest.get(2) == Some(&b':') && is_mac(rest) && !continues(octets, at) {
            Some((17, "xx:xx:xx:xx:xx:xx".to_owned()))
        } else if rest.starts_with(b"enx") && rest.len() >= 15 && is_hex(&rest[3..15]) {
            Some((15, format!("enxmasked{}", &text[at + 12..at + 15])))
        } else {
            None
        };
        match masked {
            Some((length, mask)) => {
                out.push_str(&text[copied..at]);
                out.push_str(&mask);
                at += length;
                copied = at;
            }
            None => at += 1,
        }
    }
    out.push_str(&text[copied..]);
    out
}

/// Does what stands here go on from what stands before?
fn continues(octets: &[u8], at: usize) -> bool {
    at > 0 && (octets[at - 1].is_ascii_hexdigit() || octets[at - 1] == b':')
}

/// Six pairs of digits with colons, and no seventh.
fn is_mac(octets: &[u8]) -> bool {
    octets.len() >= 17
        && octets[..17].iter().enumerate().all(|(n, c)| if n % 3 == 2 { *c == b':' } else { c.is_ascii_hexdigit() })
        && octets.get(17).is_none_or(|c| !c.is_ascii_hexdigit() && *c != b':')
}

fn is_hex(octets: &[u8]) -> bool {
    octets.iter().all(u8::is_ascii_hexdigit)
}

/// Masks IPv4 and IPv6 addresses, word by word.
pub(super) fn addresses(text: &str) -> String {
    let is_separator = |c: char| c.is_whitespace() || matches!(c, ',' | '=' | '[' | ']' | '(' | ')' | '/' | '"' | '\'');
    let mut out = String::with_capacity(text.len());
    for piece in text.split_inclusive(is_separator) {
        let word = piece.trim_end_matches(is_separator);
        // Three colons or more: `::` and shorter texts are times, or PCI devices.
        let v6 = word.matches(':').count() >= 3 && word.parse::<std::net::Ipv6Addr>().is_ok();
        let v4 = word.split(':').next().is_some_and(|word| word.parse::<std::net::Ipv4Addr>().is_ok());
        out.push_str(if v4 || v6 { MASK } else { word });
        out.push_str(&piece[word.len()..]);
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_that_can_hold_a_secret_are_masked_and_others_are_not() {
        let line = "ro root=UUID=ab80a591 isolcpus=managed_irq,domain,2-7 ip=10.0.0.1::10.0.0.254 rd.iscsi.password=x \
                    BOOTIF=01-aa nohz_full=2-7 inst.ks=http://a/b skew_tick=1 tsc=reliable ds=nocloud;s=https://h/ \
                    console=ttyS0,115200 systemd.hostname=h iommu=pt x=1.2.3.4 intel_idle.max_cstate=0 default_hugepagesz=1G";
        let masked = command_line(line);
        for kept in [
            "isolcpus=managed_irq,domain,2-7",
            "nohz_full=2-7",
            "skew_tick=1",
            "tsc=reliable",
            "iommu=pt",
            "console=ttyS0,115200",
            "intel_idle.max_cstate=0",
            "default_hugepagesz=1G",
        ] {
            assert!(masked.contains(kept), "{kept}: {masked}");
        }
        for gone in ["ab80a591", "10.0.0.1", "password=x", "01-aa", "http", "1.2.3.4", "hostname=h"] {
            assert!(!masked.contains(gone), "{gone}: {masked}");
        }
    }

    #[test]
    fn passwords_of_installers_and_serial_numbers_are_masked() {
        let line = "inst.sshpw=hunter2 inst.sshkey=\"ssh-rsa AAAA me\" vncpasswd=hunter2 mytoken=hunter2 quiet iommu.passthrough=1";
        assert_eq!(
            command_line(line),
            "inst.sshpw=MASKED inst.sshkey=MASKED vncpasswd=MASKED mytoken=MASKED quiet iommu.passthrough=1"
        );
        let grub = "GRUB_CMDLINE_LINUX=\"inst.sshpw=hunter2 quiet\"\noptions rootpw=hunter2 ro\n";
        assert_eq!(loader(grub), "GRUB_CMDLINE_LINUX=\"inst.sshpw=MASKED quiet\"\noptions rootpw=MASKED ro\n");
        let arm = "Hardware\t: BCM2835\nSerial\t\t: 10000000abcdef01\nModel\t\t: Pi\n";
        assert_eq!(cpu_info(arm), "Hardware\t: BCM2835\nSerial\t\t: MASKED\nModel\t\t: Pi\n");
    }

    #[test]
    fn hardware_addresses() {
        assert_eq!(macs("a 00:1B:21:aa:bb:cc, b"), "a xx:xx:xx:xx:xx:xx, b");
        assert_eq!(macs("enx001b21aabbcc-rx-0 enx01"), "enxmaskedbcc-rx-0 enx01");
        for kept in ["0000:3b:00.0", "00:11:22:33:44:55:66:77", "ff,ffffffff", "é"] {
            assert_eq!(macs(kept), kept);
        }
    }

    #[test]
    fn network_addresses() {
        assert_eq!(addresses("from 192.168.1.7:80 to fe80::1:2, at 10:23:45"), "from MASKED to MASKED, at 10:23:45");
        for kept in ["0000:3b:00.0", "5.14.0-427.59", "2-7,10", "1.2.3", "::"] {
            assert_eq!(addresses(kept), kept);
        }
    }

    #[test]
    fn what_is_kept_of_settings() {
        assert_eq!(
            loader("title x\nlinux /vmlinuz\noptions quiet ip=dhcp\npassword y\n"),
            "linux /vmlinuz\noptions quiet ip=MASKED\n"
        );
        assert_eq!(
            mounts("a /b nfs rw 0 0\nnodev /dev/hugepages hugetlbfs rw 0 0\n"),
            "nodev /dev/hugepages hugetlbfs rw 0 0\n"
        );
        assert_eq!(
            plain(
                "kind: Config\ncpuManagerPolicy: static\n  token: x\nclient-certificate-data: LS0t\nserver: https://x\n"
            ),
            "kind: Config\ncpuManagerPolicy: static\n"
        );
        assert_eq!(cpu_manager("{\"policyName\":\"static\",\"entries\":{\"pod\":1}}"), "{\"policyName\":\"static\",");
        assert_eq!(limits("# memlock\n@rt - rtprio 99\nbob hard nproc 9\n"), "@rt - rtprio 99\n");
    }

    proptest! {
        #[test]
        fn any_text_is_masked_without_a_mac_left(text in "\\PC{0,30}([0-9a-f]{2}:){0,7}[0-9a-f]{0,2}(enx[0-9a-f]{9,14})?\\PC{0,9}") {
            let once = macs(&text);
            prop_assert_eq!(&macs(&once), &once);
            addresses(&text);
            command_line(&text);
            plain(&text);
        }
    }
}
