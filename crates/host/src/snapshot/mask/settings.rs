//! Masks files of settings, tables and messages: keeps only the parts that rules use.

use std::io::{Read as _, Write as _};

use super::line::{command_line, is_public};
use super::scrub::{self, identifiers};
use super::{MASK, keeps, prose};

/// Masks the `NAME=value` lines of an environment file or of a systemd file. Names are kept; values are kept only if
/// they are known to be harmless.
pub fn settings(text: &str) -> String {
    text.lines().filter_map(setting).map(|line| line + "\n").collect()
}

fn setting(line: &str) -> Option<String> {
    let line = line.trim();
    let section = line.strip_prefix('[').and_then(|line| line.strip_suffix(']'));
    if let Some(name) = section {
        return name.bytes().all(|c| c.is_ascii_alphabetic()).then(|| line.to_owned());
    }
    let (name, value) = line.strip_prefix("export ").unwrap_or(line).split_once('=')?;
    let (name, value) = (name.trim(), value.trim().trim_matches(['"', '\'']));
    let letters = name.bytes().all(|c| c.is_ascii_alphabetic() || c == b'_');
    if !letters || !name.starts_with(|c: char| c.is_ascii_uppercase()) || name.len() > 40 {
        return None;
    }
    if !keeps("setting", name) {
        // A text such as `SECRET=` without a value is not a setting: an encoded text can end this way.
        return (!value.trim_matches('=').is_empty()).then(|| format!("{name}={MASK}"));
    }
    let mut words = Vec::new();
    let (mut is_argument, is_command_line) = (false, name.ends_with("ARGS") || name == "OPTIONS");
    for word in value.split_whitespace() {
        // A word after a masked option is its argument and is masked. After another option, only a small number is
        // kept.
        let argument = is_command_line && !word.starts_with('-');
        let small = word.len() < 4 && word.bytes().all(|c| c.is_ascii_digit());
        let kept = if argument { small && !is_argument } else { is_setting(word) };
        is_argument = !kept && word.starts_with('-') && !word.contains('=');
        words.push(if kept { word } else { MASK });
    }
    Some(format!("{name}={}", words.join(" ")))
}

/// Whether the word is a number, a list or a mask of CPUs, a switch, or a known option.
fn is_setting(word: &str) -> bool {
    const SWITCHES: [&str; 8] = ["yes", "no", "true", "false", "on", "off", "0", "1"];
    let numbers = |text: &str| text.len() < 400 && text.bytes().all(|c| c.is_ascii_hexdigit() || b",-x".contains(&c));
    let list = |text: &str| {
        numbers(text)
            && identifiers(text) == text
            && text.split([',', '-']).all(|part| part.len() <= 8 || part.starts_with("0x"))
    };
    let option = word.trim_start_matches('-').split_once('=').map_or((word.trim_start_matches('-'), ""), |pair| pair);
    let is_option = word.starts_with('-') && (keeps("option", option.0) || option.0.len() == 1);
    SWITCHES.contains(&word) || list(word) || is_option && (list(option.1) || is_plain_word(option.1))
}

/// Whether the word is one of a few harmless words, such as `exact`, `subset` or `static`.
fn is_plain_word(word: &str) -> bool {
    const WORDS: [&str; 9] =
        ["exact", "subset", "ignore", "none", "static", "restricted", "best-effort", "single-numa-node", "debug"];
    WORDS.contains(&word)
}

/// Keeps the known settings at the top level of the kubelet's configuration, in the form `key: value` (YAML) or
/// `"key": "value",` (JSON).
pub fn kubelet(text: &str) -> String {
    let line = |line: &str| {
        let is_nested = line.starts_with([' ', '\t', '-']) && !line.trim_start().starts_with('"');
        let (key, value) = line.trim().trim_end_matches(',').split_once(':')?;
        let clean = |text: &str| text.trim().trim_matches('"').to_owned();
        let (key, value) = (clean(key), clean(value));
        let plain = value.len() <= 40 && value.bytes().all(|c| c.is_ascii_alphanumeric() || b"-_.,/%".contains(&c));
        let kept = !is_nested && keeps("kubelet", &key);
        kept.then(|| {
            format!("{key}: {}\n", if plain && is_public(&value.replace('/', ".")) { value } else { MASK.into() })
        })
    };
    text.lines().filter_map(line).collect()
}

/// Keeps the policy and the default CPU set from the kubelet's CPU manager state. The rest of the file names
/// containers.
pub fn cpu_manager(text: &str) -> String {
    let value = |key: &str| {
        let (_, rest) = text.split_once(&format!("\"{key}\""))?;
        rest.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?.split('"').next()
    };
    let kept = |key: &str| {
        let value = value(key)?;
        let good = is_plain_word(value) || value.bytes().all(|c| c.is_ascii_digit() || b",-".contains(&c));
        Some(format!("\"{key}\":\"{}\"", if good { value } else { MASK }))
    };
    let pairs: Vec<String> = ["policyName", "defaultCpuSet"].into_iter().filter_map(kept).collect();
    format!("{{{}}}\n", pairs.join(","))
}

/// Keeps `key : value` lines with known keys, and drops all other lines.
fn table(kind: &str, text: &str) -> String {
    let line = |line: &str| {
        let Some((key, value)) = line.split_once(':') else {
            // A line that begins a block.
            return (line.is_empty() || line == "Memory Device").then(|| format!("{line}\n"));
        };
        let name = key.trim().to_ascii_lowercase().replace(' ', "_");
        match keeps(kind, &name) {
            true if keeps("cpunames", &name) => Some(format!("{key}:{}\n", features(value))),
            true => Some(format!("{key}:{}\n", prose(value))),
            false => None,
        }
    };
    text.lines().filter_map(line).collect()
}

/// Keeps the names of CPU features, even if they look like keys (avx512_vp2intersect).
fn features(value: &str) -> String {
    let is_name = |word: &str| word.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_');
    let word = |word: &str| if is_name(word) { word.to_owned() } else { prose(word) };
    value.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// Masks `/proc/cpuinfo`, which contains serial numbers on some boards and mainframes.
pub fn cpu_info(text: &str) -> String {
    table("cpuinfo", text)
}

/// Masks the output of `dmidecode -t 17`: removes serial numbers, asset tags and part numbers.
pub fn memory_modules(text: &str) -> String {
    table("dmidecode", text)
}

/// Masks the kernel's configuration: keeps switches, numbers and a few known strings. Other strings are masked, because
/// they can be keys.
pub fn config(text: &str) -> String {
    let line = |line: &str| {
        let (name, value) = line.strip_prefix("CONFIG_")?.split_once('=')?;
        let number = value.strip_prefix("0x").unwrap_or(value.strip_prefix('-').unwrap_or(value));
        let is_value = matches!(value, "y" | "m" | "n" | "\"\"")
            || number.bytes().all(|c| c.is_ascii_hexdigit()) && number.len() <= 16;
        Some(match () {
            () if is_value => format!("{line}\n"),
            () if name == "CMDLINE" => format!("CONFIG_{name}=\"{}\"\n", command_line(&value.replace('"', ""))),
            () if keeps("config", name) => format!("CONFIG_{name}={}\n", prose(value)),
            () => format!("CONFIG_{name}=\"{MASK}\"\n"),
        })
    };
    text.lines().filter_map(line).collect()
}

/// Masks the kernel's configuration in gzip form. `None` if it cannot be decompressed.
pub fn packed_config(octets: &[u8]) -> Option<Vec<u8>> {
    let mut text = String::new();
    flate2::read::GzDecoder::new(octets).take(super::super::SIZE_LIMIT as u64).read_to_string(&mut text).ok()?;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(config(&text).as_bytes()).ok()?;
    encoder.finish().ok()
}

/// Removes the memory addresses from `/proc/modules`, which only root may know.
pub fn modules(text: &str) -> String {
    let word = |word: &str| if word.starts_with("0x") { "0x0".to_owned() } else { word.to_owned() };
    let line = |line: &str| line.split(' ').map(word).collect::<Vec<_>>().join(" ") + "\n";
    text.lines().map(line).collect()
}

/// Masks the paths in `/proc/swaps`, except those of the kernel's own devices.
pub fn swaps(text: &str) -> String {
    let line = |(n, line): (usize, &str)| {
        let (path, rest) = line.split_at(line.find([' ', '\t']).unwrap_or(line.len()));
        let device = path.strip_prefix("/dev/").is_some_and(|name| {
            name.len() < 12 && name.starts_with(|c: char| c.is_ascii_lowercase()) && !name.contains('/')
        });
        let usual = device || n == 0 || ["/swapfile", "/swap.img", "/swap"].contains(&path);
        format!("{}{rest}\n", if usual { path } else { MASK })
    };
    text.lines().enumerate().map(line).collect()
}

/// Keeps the mounts of the kernel's own file systems. Of `/`, only the existence of its line is kept, which shows that
/// the list is complete.
pub fn mounts(text: &str) -> String {
    const KINDS: [&str; 7] = ["hugetlbfs", "resctrl", "cgroup", "cgroup2", "debugfs", "tracefs", "bpf"];
    const PLACES: [&str; 6] = ["/dev/", "/sys/", "/proc/", "/run/", "/mnt/huge", "/hugepages"];
    let line = |line: &str| {
        let mut fields: Vec<String> = line.split(' ').map(str::to_owned).collect();
        if fields.get(1).is_some_and(|place| place == "/") {
            return Some(format!("none / {MASK} {MASK} 0 0\n"));
        }
        let kind = KINDS.iter().find(|kind| fields.get(2).is_some_and(|field| field == *kind))?;
        if fields[0] != *kind {
            "none".clone_into(&mut fields[0]);
        }
        if !PLACES.iter().any(|place| fields[1].starts_with(place)) || prose(&fields[1]) != fields[1] {
            fields[1] = format!("/{MASK}");
        }
        let options = fields.get_mut(3)?;
        if !is_public(options) {
            MASK.clone_into(options);
        }
        Some(fields.join(" ") + "\n")
    };
    text.lines().filter_map(line).collect()
}

/// Keeps the limits of locked memory and real-time priority, without the names of users and groups.
pub fn limits(text: &str) -> String {
    let line = |line: &str| {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        let wanted = words.len() == 4 && !words[0].starts_with('#') && ["memlock", "rtprio"].contains(&words[2]);
        if !wanted {
            return None;
        }
        if !["*", "root"].contains(&words[0]) {
            words[0] = if words[0].starts_with('@') { "@MASKED" } else { MASK };
        }
        let number = words[3].trim_start_matches('-').bytes().all(|c| c.is_ascii_digit());
        if !number && !["unlimited", "infinity"].contains(&words[3]) || !["-", "soft", "hard"].contains(&words[1]) {
            return None;
        }
        Some(words.join(" ") + "\n")
    };
    text.lines().filter_map(line).collect()
}

/// Replaces every line by the mask, so that only the number of lines is kept.
pub fn counted(text: &str) -> String {
    text.lines().map(|_| format!("{MASK}\n")).collect()
}

/// Masks a kernel message. `None` if a program wrote it (`name[pid]: …`). A kernel command line in the message is
/// masked as such. In `name=value`, the value is kept only if it is a number, or if the name is `severity`, `type` or
/// `id`.
pub fn message(line: &str) -> Option<String> {
    const WORDS: [&str; 3] = ["severity", "type", "id"];
    // `dmesg --raw` prints the priority first. For messages of programs, it includes a facility.
    let raw = line.strip_prefix('<').and_then(|line| line.split_once('>'));
    let (priority, line) = raw.map_or((0, line), |(priority, line)| (priority.parse().unwrap_or(u32::MAX), line));
    let (time, text) = match line.find("] ") {
        Some(at) if line.starts_with('[') => line.split_at(at + 2),
        _ => ("", line),
    };
    let by_program = text.split_once(':').is_some_and(|(name, _)| {
        name.strip_suffix(']')
            .and_then(|name| name.rsplit_once('['))
            .is_some_and(|(_, pid)| !pid.is_empty() && pid.bytes().all(|c| c.is_ascii_digit()))
    });
    if by_program || priority > 7 {
        return None;
    }
    if let Some(at) = text.find("ommand line") {
        let from = text[at..].find([':', '"']).map_or(text.len(), |from| at + from + 1);
        let to = text.rfind('"').filter(|to| *to >= from && text[..from].ends_with('"')).unwrap_or(text.len());
        let space = if text[from..].starts_with(' ') { " " } else { "" };
        return Some(format!("{time}{}{space}{}{}", &text[..from], command_line(&text[from..to]), &text[to..]));
    }
    let word = |word: &str| match word.split_once('=') {
        Some((name, value)) => {
            let number = value.len() <= 20 && value.bytes().all(|c| c.is_ascii_hexdigit() || b"x./,:;)-".contains(&c));
            let kept = number || WORDS.contains(&name);
            format!("{name}={}", if kept { value } else { MASK })
        }
        None => word.to_owned(),
    };
    let text: Vec<String> = text.split(' ').map(word).collect();
    Some(format!("{time}{}", prose(&text.join(" "))))
}

/// Masks the names of groups, threads and interfaces in a file's contents. This is the last step of masking.
pub fn names(path_of: &str, contents: Vec<u8>) -> Vec<u8> {
    // These files are not texts: a packed configuration, which was masked before, or a PCI configuration space.
    if path_of.ends_with(".gz") || path_of.starts_with("sys/bus/pci/") && path_of.ends_with("/config") {
        return contents;
    }
    // A text with an invalid byte is still treated as text.
    let text = String::from_utf8_lossy(&contents).into_owned();
    let by_line = |mask: &dyn Fn(&str) -> String| -> String { text.split_inclusive('\n').map(mask).collect() };
    let ends = |ends: &[&str]| ends.iter().any(|end| path_of.ends_with(end));
    let masked = match () {
        // Values of registers are numbers.
        () if path_of.contains("msr/0x") => return text.into_bytes(),
        () if ends(&["tasks/cgroup", "bundle/paths", "bundle/links", "denied", "unasked"]) => by_line(&path),
        () if ends(&["tasks/stat"]) => by_line(&|line| match (line.find('('), line.rfind(')')) {
            (Some(from), Some(to)) if from < to => {
                format!("{}{}{}", &line[..=from], thread(&line[from + 1..to]), &line[to..])
            }
            _ => line.to_owned(),
        }),
        () if ends(&["tasks/status"]) => by_line(&|line| match line.strip_prefix("Name:\t") {
            Some(name) => format!("Name:\t{}\n", thread(name.trim_end_matches('\n'))),
            None => line.to_owned(),
        }),
        () => identifiers(&text),
    };
    masked.into_bytes()
}

/// Masks the name of a thread, because a program can choose it freely.
pub(super) fn thread(name: &str) -> String {
    match name.split_once('=') {
        Some((name, _)) => format!("{name}={MASK}"),
        None if scrub::is_private(name) => MASK.to_owned(),
        None => identifiers(name),
    }
}

/// Masks a path, or a line with paths: masks the instance part of unit names, and names that users may have chosen.
pub fn path(path: &str) -> String {
    let part = |part: &str| -> String {
        let (stem, kind) = part.rsplit_once('.').unwrap_or((part, ""));
        if !["service", "scope", "slice", "socket", "mount", "swap", "automount", "path", "timer", "target", "device"]
            .contains(&kind)
        {
            return part.to_owned();
        }
        // An escaped name (systemd.unit(5)) stands for a path, or for a name with characters that unit names cannot
        // have.
        if let Some((before, after)) = stem.split_once("\\x") {
            return format!("{before}-masked{}.{kind}", sum(after));
        }
        match stem.split_once('@') {
            Some((name, instance)) if !is_usual(instance) => format!("{name}@masked{}.{kind}", sum(instance)),
            _ => part.to_owned(),
        }
    };
    let is_end = |c: char| c == '/' || c.is_whitespace();
    let masked = path.split_inclusive(is_end).map(|piece| {
        let name = piece.trim_end_matches(is_end);
        part(name) + &piece[name.len()..]
    });
    identifiers(&masked.collect::<String>())
}

/// Whether the instance of a unit is one that exists on every host: a user ID, or a terminal.
fn is_usual(instance: &str) -> bool {
    let digits = instance.trim_start_matches("tty").trim_start_matches('S');
    digits.len() <= 5 && digits.bytes().all(|c| c.is_ascii_digit())
}

/// A number computed from a name. It usually distinguishes two names, but does not reveal them.
fn sum(text: &str) -> u32 {
    text.bytes().fold(0, |sum, octet| (sum * 31 + u32::from(octet)) % 997)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_keep_names_and_known_values() {
        let text = "# x=1\n[Manager]\nCPUAffinity=0 1-3\nDefaultEnvironment=TOKEN=x\nIRQBALANCE_BANNED_CPUS=000000fc,ffffffff\n\
                    IRQBALANCE_ARGS=\"--banirq=5 --policyscript=/root/hunter2 --hintpolicy=exact hunter2\"\nDB_PASSWORD='hunter2'\n\
                    IRQBALANCE_BANNED_CPULIST=\nSECRET=\nIRQBALANCE_ONESHOT=hunter2\nc2VjcmV0==\n\
                    OPTIONS=-t 10 --token 87654321 --pin 77 -p cafebabe\n";
        assert_eq!(
            settings(text),
            "[Manager]\nCPUAffinity=0 1-3\nDefaultEnvironment=MASKED\nIRQBALANCE_BANNED_CPUS=000000fc,ffffffff\n\
             IRQBALANCE_ARGS=--banirq=5 MASKED --hintpolicy=exact MASKED\nDB_PASSWORD=MASKED\nIRQBALANCE_BANNED_CPULIST=\n\
             IRQBALANCE_ONESHOT=MASKED\nOPTIONS=-t 10 MASKED MASKED MASKED MASKED -p MASKED\n"
        );
    }

    #[test]
    fn what_is_kept_of_services() {
        let yaml = "kind: KubeletConfiguration\ncpuManagerPolicy: static\ntoken: abcdef\n  token: x\nreservedSystemCPUs: 0-3,40\n\
                    client-certificate-data: LS0t\nserver: https://x\nmaxPods: hunter2 x\n";
        assert_eq!(
            kubelet(yaml),
            "kind: KubeletConfiguration\ncpuManagerPolicy: static\nreservedSystemCPUs: 0-3,40\nmaxPods: MASKED\n"
        );
        assert_eq!(kubelet("{\n \"cpuManagerPolicy\": \"static\",\n"), "cpuManagerPolicy: static\n");
        let state = "{\"policyName\":\"static\",\"defaultCpuSet\":\"0-1\",\"entries\":{\"pod\":1}}";
        assert_eq!(cpu_manager(state), "{\"policyName\":\"static\",\"defaultCpuSet\":\"0-1\"}\n");
        assert_eq!(
            limits("# memlock\n@rt - rtprio 99\nbob hard memlock unlimited\n* soft nofile 5\nx - memlock hunter2\n"),
            "@MASKED - rtprio 99\nMASKED hard memlock unlimited\n"
        );
    }

    #[test]
    fn what_is_kept_of_the_kernel() {
        let arm =
            "processor\t: 0\nHardware\t: BCM2835\nSerial\t\t: 10000000abcdef01\nmodel name\t: A\n\nModel\t\t: Pi\n";
        assert_eq!(cpu_info(arm), "processor\t: 0\nHardware\t: BCM2835\nmodel name\t: A\n\nModel\t\t: Pi\n");
        for flags in [
            "flags\t\t: fpu avx512_vp2intersect avx512_4vnniw 3dnowprefetch\n",
            "isa\t\t: rv64imafdcv_zicbom_zicntr_zve32x_zvl128b\n",
        ] {
            assert_eq!(cpu_info(flags), flags);
        }
        let other = "flags\t\t: fpu AKIAIOSFODNN7EXAMPLE\n";
        assert_eq!(cpu_info(other), "flags\t\t: fpu MASKED\n");
        let text = "CONFIG_HZ=250\n# CONFIG_X is not set\nCONFIG_CMDLINE=\"quiet psk=hunter2\"\nCONFIG_DEFAULT_HOSTNAME=\"h\"\n\
                    CONFIG_LOCALVERSION=\"-rt\"\nCONFIG_PHYSICAL_START=0x1000000\n";
        assert_eq!(
            config(text),
            "CONFIG_HZ=250\nCONFIG_CMDLINE=\"quiet psk=MASKED\"\nCONFIG_DEFAULT_HOSTNAME=\"MASKED\"\nCONFIG_LOCALVERSION=\"-rt\"\n\
             CONFIG_PHYSICAL_START=0x1000000\n"
        );
        assert_eq!(modules("ice 1 0 - Live 0xffffffffc0a00000 (OE)\n"), "ice 1 0 - Live 0x0 (OE)\n");
        assert_eq!(
            mounts(
                "a /b nfs rw 0 0\n/dev/sda4 / xfs rw 0 0\nnodev /dev/hugepages hugetlbfs rw,pagesize=1024M 0 0\nx /srv/joe hugetlbfs rw 0 0\n"
            ),
            "none / MASKED MASKED 0 0\nnone /dev/hugepages hugetlbfs rw,pagesize=1024M 0 0\nnone /MASKED hugetlbfs rw 0 0\n"
        );
        assert_eq!(
            swaps("Filename Type Size\n/dev/dm-1 partition 5\n/home/joe/swap file 5\n"),
            "Filename Type Size\n/dev/dm-1 partition 5\nMASKED file 5\n"
        );
    }

    #[test]
    fn messages_repeat_no_command_line() {
        for (given, masked) in [
            (
                "[    0.000000] Kernel command line: quiet psk=hunter2 tsc=reliable",
                "[    0.000000] Kernel command line: quiet psk=MASKED tsc=reliable",
            ),
            (
                "[    0.1] Unknown kernel command line parameters \"isolcpu=2-3 hunter2\", will be passed to user space.",
                "[    0.1] Unknown kernel command line parameters \"isolcpu=MASKED MASKED\", will be passed to user space.",
            ),
            ("[    1.0] tsc: password=hunter2 rate=2100.0", "[    1.0] tsc: password=MASKED rate=2100.0"),
            (
                "[    1.0] mlx5_core 0000:3b:00.0: Port guid: 0002:c903:00ef:5a20, tsc",
                "[    1.0] mlx5_core 0000:3b:00.0: Port guid: MASKED, tsc",
            ),
            (
                "[    1.0] pcieport 0000:00:1c.0: AER: severity=Corrected, type=Data Link",
                "[    1.0] pcieport 0000:00:1c.0: AER: severity=Corrected, type=Data Link",
            ),
        ] {
            assert_eq!(message(given).as_deref(), Some(masked));
        }
        for program in [
            "[    3.0] dracut-cmdline[250]: Using kernel command line parameters: tsc=x",
            "[    3.0] my prog[12]: tsc hunter2",
            "<6>[    3.0] sshd[12]: tsc hunter2",
            "<30>[    3.0] sudo: tsc hunter2",
        ] {
            assert_eq!(message(program), None);
        }
        assert_eq!(message("<6>[    1.0] tsc: x").as_deref(), Some("[    1.0] tsc: x"));
    }

    #[test]
    fn an_octet_that_is_no_text_hides_nothing() {
        let masked = names("proc/interrupts", b"24: 1 enx001122334455 \xff\n".to_vec());
        assert_eq!(String::from_utf8(masked).unwrap(), "24: 1 enxmasked455 \u{fffd}\n");
        let binary = b"\x86\x80enx001122334455\xff".to_vec();
        assert_eq!(names("sys/bus/pci/devices/0000:00:01.0/config", binary.clone()), binary);
    }

    #[test]
    fn names_of_units() {
        for (given, masked) in [
            ("sys/fs/cgroup/user.slice/user@1000.service/x", "sys/fs/cgroup/user.slice/user@1000.service/x"),
            ("a.wants/wg-quick@hunter2.service", "a.wants/wg-quick@masked558.service"),
            ("a.wants/getty@tty1.service", "a.wants/getty@tty1.service"),
            ("dev-disk-by\\x2duuid-7e1b.swap", "dev-disk-by-masked331.swap"),
        ] {
            let (masked, number) = masked.split_once("masked").map_or((masked, ""), |(a, b)| (a, b));
            let now = path(given);
            assert!(
                now.starts_with(masked) && (number.is_empty() || !now.contains("hunter2") && !now.contains("7e1b")),
                "{now}"
            );
        }
        assert_ne!(path("a@x.service"), path("a@y.service"));
    }
}
