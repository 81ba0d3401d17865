//! Masks a recording that another tool made, whose files may differ from those of a host. A file is kept only if a
//! reader of Apus uses it, and only in the form that this reader parses.

use super::settings::{memory_modules, path, thread};
use super::{MASK, prose};
use crate::facts::{Observed, THREAD_STATUS};

/// Masks the file `name` of the folder `commands`, `tasks` or `msr`. `None` if no reader uses this file. Kernel
/// messages are masked elsewhere.
pub fn recorded(folder: &str, name: &str, text: &str) -> Option<String> {
    let key = |line: &str| line.split_once(':').is_some_and(|(key, _)| THREAD_STATUS.contains(&key));
    match (folder, name) {
        ("commands", _) => output(name, text),
        // The names of threads and groups in these files are masked later, as in a snapshot of this machine.
        ("tasks", "stat" | "cgroup") => Some(text.to_owned()),
        ("tasks", "status") => Some(lines(text, |line| key(line).then(|| line.to_owned()))),
        ("msr", _) if is_hexadecimal(name) => Some(lines(text, |line| register(line).then(|| line.to_owned()))),
        _ => None,
    }
}

fn lines(text: &str, of: impl Fn(&str) -> Option<String>) -> String {
    text.lines().filter_map(of).map(|line| line + "\n").collect()
}

/// Whether the string is a hexadecimal number of at most 64 bits, such as `0x1a0`.
fn is_hexadecimal(text: &str) -> bool {
    text.strip_prefix("0x")
        .is_some_and(|digits| (1..=16).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

/// Whether the line consists of a CPU number and the value of a register.
fn register(line: &str) -> bool {
    line.split_once(' ').is_some_and(|(cpu, value)| cpu.parse::<u32>().is_ok() && is_hexadecimal(value))
}

/// Masks the output of a command. `None` if no reader uses it.
fn output(name: &str, text: &str) -> Option<String> {
    /// Options for which the output of `ethtool OPTION INTERFACE` is kept.
    const ETHTOOL: [&str; 10] =
        ["-i", "-c", "-g", "-l", "-k", "-a", "-T", "--show-priv-flags", "--show-fec", "--show-eee"];
    let number = |line: &str| line.rsplit(' ').next().is_some_and(|value| value.parse::<u64>().is_ok());
    let kept = |line: &str, of: &dyn Fn(&str) -> bool| of(line).then(|| line.to_owned());
    let Some(rest) = name.strip_prefix("ethtool_") else {
        return match () {
            () if name.starts_with("dmidecode") => Some(memory_modules(text)),
            // Descriptions follow the states. They are left out.
            () if name.starts_with("systemctl") => Some(lines(text, |line| {
                let mut words = line.split_whitespace().skip_while(|word| !word.ends_with(".service"));
                let unit = words.next()?;
                let states = words.take(3).take_while(|word| word.bytes().all(|c| c.is_ascii_lowercase() || c == b'-'));
                Some(path(&[unit].into_iter().chain(states).collect::<Vec<_>>().join(" ")))
            })),
            () if name == "cpu_dma_latency" => Some(lines(text, |line| kept(line, &number))),
            () if name == "cpu_dma_latency_holders" => Some(lines(text, holder)),
            // Keeps lines such as `qdisc mq 0: root` and `qdisc fq_codel 8001: dev eth0 parent :1`.
            () if name.starts_with("tc_") => Some(lines(text, |line| {
                line.starts_with("qdisc ").then(|| line.split(' ').take(5).collect::<Vec<_>>().join(" "))
            })),
            // Contains ports and process numbers, but no addresses.
            () if name == "apus_observed" => {
                serde_json::from_str::<Observed>(text).and_then(|seen| serde_json::to_string(&seen)).ok()
            }
            () if name.starts_with("netdev_") => Some(prose(text)),
            () => None,
        };
    };
    match rest.split('_').next().unwrap_or_default() {
        "-n" => Some(lines(text, |line| kept(line, &|line| line.contains("Total")))),
        "-x" => Some(text.split("RSS hash key").next().unwrap_or_default().to_owned()),
        "-S" => Some(lines(text, |line| kept(line, &number))),
        option if ETHTOOL.contains(&option) => Some(prose(text)),
        "--per-queue" => Some(prose(text)),
        option if option.starts_with('-') => None,
        // The output of `ethtool INTERFACE` without options. Only these lines are kept, because Wake-on-LAN has a
        // password.
        _ => {
            let wanted = |line: &str| ["Speed:", "Duplex:", "Auto-negotiation:"].iter().any(|key| line.contains(key));
            Some(lines(text, |line| kept(line, &wanted)))
        }
    }
}

/// Keeps a line of the form `NAME (PID)`. The name of a thread has at most 15 bytes (TASK_COMM_LEN); a longer one is
/// masked.
fn holder(line: &str) -> Option<String> {
    let (name, pid) = line.strip_suffix(')')?.rsplit_once(" (")?;
    let name = if name.len() < 16 { thread(name) } else { MASK.to_owned() };
    pid.parse::<u32>().ok().map(|pid| format!("{name} ({pid})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_readers_ask_for_in_the_form_that_they_understand() {
        for (folder, name, text, kept) in [
            ("tasks", "environ", "DB_PASSWORD=hunter2\n", None),
            ("tasks", "status", "Name:\tx\nSecret:\thunter2\nPid:\t1\n", Some("Name:\tx\nPid:\t1\n")),
            ("msr", "0xe2", "0 0x1e008403\nhunter2\n1 hunter2\n", Some("0 0x1e008403\n")),
            ("msr", "passwords", "0 0x1\n", None),
            ("commands", "env", "A=hunter2\n", None),
            ("commands", "ethtool_-m_eth0", "\tVendor SN : AVD12345\n", None),
            ("commands", "ethtool_-e_eth0", "0x0000:\t\t00 1b 21 aa bb cc 30\n", None),
            ("commands", "ethtool_-u_eth0", "\tDest IP addr: 10.9.9.9\n", None),
            (
                "commands",
                "ethtool_-i_eth0",
                "driver: ice\nbus-info: 0000:3b:00.0\n",
                Some("driver: ice\nbus-info: 0000:3b:00.0\n"),
            ),
            (
                "commands",
                "ethtool_-S_eth0",
                "NIC statistics:\n     rx_1024_to_1522_byte_packets: 7\n     x: hunter2\n",
                Some("     rx_1024_to_1522_byte_packets: 7\n"),
            ),
            (
                "commands",
                "ethtool_eth0",
                "\tSpeed: 25000Mb/s\n\tSecureOn password: 00:11:22:33:44:55\n",
                Some("\tSpeed: 25000Mb/s\n"),
            ),
            ("commands", "tc_qdisc_show_dev_eth0", "qdisc mq 0: root hunter2 x\n", Some("qdisc mq 0: root hunter2\n")),
            (
                "commands",
                "cpu_dma_latency_holders",
                "tuned (7)\npsql --password hunter2 (8)\nhunter2\n",
                Some("tuned (7)\nMASKED (8)\n"),
            ),
            (
                "commands",
                "systemctl_list-units_--all",
                "● a.service Described x y\n  b.service loaded active running words\n",
                Some("a.service\nb.service loaded active running\n"),
            ),
        ] {
            assert_eq!(recorded(folder, name, text).as_deref(), kept, "{folder}/{name}");
        }
    }
}
