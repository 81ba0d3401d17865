//! Masks everything in a string that identifies a host or its owner: hardware addresses in every notation, GUIDs, UUIDs
//! and IDs of containers. If people or programs wrote the string, also masks network addresses, URLs, mail addresses
//! and keys.
//!
//! Names of interfaces and groups occur in several files. So the same name always gets the same replacement, and the
//! replacement of an ID in a name keeps its last digits, so that different names usually stay different.

use super::MASK;

/// Minimum number of consecutive hexadecimal digits that count as an address or an ID: a MAC address without
/// separators.
const ADDRESS: usize = 12;
/// Minimum number of hexadecimal digits of the ID of a container, a machine or a partition.
const ID: usize = 32;
/// Minimum number of characters from which a key, a token or encoded data can be distinguished from a word.
const KEY: usize = 16;

/// Masks addresses and IDs, also inside names. Of an address without separators, as in `enx001122334455`, the last
/// three digits stay; of a UUID, or an ID of at least 32 digits, the last six. So different names usually stay
/// different.
pub fn identifiers(text: &str) -> String {
    let octets = text.as_bytes();
    let mut out = String::with_capacity(text.len());
    let (mut at, mut copied) = (0, 0);
    while at < octets.len() {
        if !octets[at].is_ascii_hexdigit() || (at > 0 && octets[at - 1].is_ascii_hexdigit()) {
            at += 1;
            continue;
        }
        match address(text, at) {
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

/// The length and the replacement of the address that begins at offset `at`. `None` if no address begins there.
fn address(text: &str, at: usize) -> Option<(usize, String)> {
    let rest = &text.as_bytes()[at..];
    let groups = |separator: u8| {
        let mut lengths = Vec::new();
        let mut from = 0;
        loop {
            let digits = rest[from..].iter().take_while(|c| c.is_ascii_hexdigit()).count();
            lengths.push(digits);
            from += digits;
            let goes_on = digits > 0 && rest.get(from) == Some(&separator);
            if !goes_on || !rest.get(from + 1).is_some_and(u8::is_ascii_hexdigit) {
                return lengths;
            }
            from += 1;
        }
    };
    for separator in *b":-_." {
        let lengths = groups(separator);
        let digits = |n: usize| &text[at..at + lengths[..n].iter().sum::<usize>() + n - 1];
        // Counts the groups of digits of a given length. Digits before the first group can be the end of a word
        // (`pod7e1b3e4a-…`).
        let first = lengths[0];
        let same = |length: usize| match first >= length {
            true => 1 + lengths[1..].iter().take_while(|other| **other == length).count(),
            false => 0,
        };
        let masked = |n: usize, length: usize, mask: &str| {
            let all = digits(n);
            Some((all.len(), format!("{}{mask}", &all[..first - length])))
        };
        // IEEE 802: six or eight pairs of digits; InfiniBand: twenty (RFC 4391, 9.1.1).
        if same(2) >= 6 {
            return masked(same(2), 2, "xx:xx:xx:xx:xx:xx");
        }
        if first >= 8 && lengths[1..].starts_with(&[4, 4, 4, 12]) {
            let all = digits(5);
            return masked(5, 8, &format!("masked{}", &all[all.len() - 6..]));
        }
        // InfiniBand GUIDs, and IPv6 addresses written in full; MAC addresses in the notation of routers.
        if separator == b':' && same(4) >= 4 {
            return masked(same(4), 4, MASK);
        }
        if separator == b'.' && lengths == [4, 4, 4] && digits(3).bytes().any(|c| c.is_ascii_alphabetic()) {
            return masked(3, 4, "xx:xx:xx:xx:xx:xx");
        }
    }
    let run = rest.iter().take_while(|c| c.is_ascii_hexdigit()).count();
    let digits = &text[at..at + run];
    let before = &text[..at];
    // A name that the kernel cut off (TASK_COMM_LEN), such as `napi/enx0011223`. The first six digits identify the
    // manufacturer.
    if (7..ADDRESS).contains(&run) && before.ends_with('x') && INTERFACES.iter().any(|name| before.ends_with(name)) {
        return Some((run, "masked".to_owned()));
    }
    let letters = digits.bytes().any(|c| c.is_ascii_alphabetic());
    let numbers = digits.bytes().any(|c| c.is_ascii_digit());
    let is_number = before.ends_with("0x") || before.ends_with("0X");
    let of_name = before.ends_with('x') && !is_number;
    let is_address = run >= ADDRESS && (of_name || digits.starts_with('0') || letters && numbers);
    // CPU masks and similar numbers have few digits other than 0 and f.
    let plain = digits.bytes().filter(|c| !b"0fF".contains(c)).count() < 4;
    if is_number || !is_address || (plain && !of_name) {
        return None;
    }
    let tail = if run >= ID { 6 } else { 3 };
    Some((run, format!("masked{}", &digits[run - tail..])))
}

/// Prefixes of interface names that contain a MAC address (systemd.net-naming-scheme(7)).
const INTERFACES: [&str; 5] = ["enx", "ibx", "slx", "wlx", "wwx"];

/// Masks a string that people or programs wrote: masks identifiers, network addresses, URLs, mail addresses and keys.
pub fn prose(text: &str) -> String {
    let is_separator = |c: char| c.is_whitespace() || matches!(c, ',' | '=' | '[' | ']' | '(' | ')' | '"' | '\'' | ';');
    let text = identifiers(text);
    let mut out = String::with_capacity(text.len());
    for piece in text.split_inclusive(is_separator) {
        let word = piece.trim_end_matches(is_separator);
        out.push_str(if is_private(word) { MASK } else { word });
        out.push_str(&piece[word.len()..]);
    }
    out
}

/// Whether a word is an address, a URL, a user at a host (`user@host`), or a key.
pub fn is_private(word: &str) -> bool {
    word.contains("://") || at_place(word) || is_address(word) || has_key(word)
}

/// Whether the word has the form `user@host`. A size with an address, as in `memmap=64M@0x18000000`, does not count.
fn at_place(word: &str) -> bool {
    let number = |place: &str| {
        let digits = place.strip_prefix("0x").unwrap_or(place).trim_end_matches(['K', 'M', 'G', 'T']);
        place.starts_with(|c: char| c.is_ascii_digit()) && digits.bytes().all(|c| c.is_ascii_hexdigit())
    };
    word.split_once('@').is_some_and(|(user, place)| !user.is_empty() && !number(place))
}

/// Whether the word is an IPv4 or IPv6 address, with or without a port or a prefix length.
fn is_address(word: &str) -> bool {
    let word = word.trim_end_matches(['.', ':', ',']);
    // An IPv6 address must have at least three colons here. Shorter texts can be times or PCI addresses.
    let parts = || word.split('/').next().unwrap_or_default().split('%').next().unwrap_or_default();
    let v6 = parts().matches(':').count() >= 3 && parts().parse::<std::net::Ipv6Addr>().is_ok();
    v6 || word.split([':', '/', '@']).any(|word| word.parse::<std::net::Ipv4Addr>().is_ok())
}

/// Whether a word contains characters that look like a key, a token or encoded data.
fn has_key(word: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '_');
    word.split(|c| !is_part(c)).any(|run| {
        let count = |is: fn(&u8) -> bool| run.bytes().filter(is).count();
        let (upper, lower, digits) =
            (count(u8::is_ascii_uppercase), count(u8::is_ascii_lowercase), count(u8::is_ascii_digit));
        let kinds = [upper, lower, digits].into_iter().filter(|n| *n > 0).count();
        let is_mixed = kinds == 3 || kinds == 2 && (digits >= 4 || digits > 0 && lower == 0 && !run.contains('_'));
        run.len() >= KEY && is_mixed || run.len() >= ID && upper > 2 && lower > 2
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hardware_addresses_in_every_notation() {
        for (given, masked) in [
            ("a 00:1B:21:aa:bb:cc, b", "a xx:xx:xx:xx:xx:xx, b"),
            ("BOOTIF 01-00-1b-21-aa-bb-cc", "BOOTIF xx:xx:xx:xx:xx:xx"),
            ("001b.21aa.bbcc", "xx:xx:xx:xx:xx:xx"),
            ("mac 001b21aabbcc", "mac maskedbcc"),
            ("enx001122334455-rx-0 enx01", "enxmasked455-rx-0 enx01"),
            ("irq/55-enx00112", "irq/55-enx00112"),
            ("napi/enx0011223", "napi/enxmasked"),
            ("bond001122334455", "bonmasked455"),
            ("guid 0002:c903:00ef:5a20", "guid MASKED"),
            ("80:00:02:08:fe:80:00:00:00:00:00:00:00:02:c9:03:00:ef:5a:21", "xx:xx:xx:xx:xx:xx"),
            ("pod7e1b3e4a_12ab_4d5e_8f60_0123456789ab.slice", "podmasked6789ab.slice"),
            ("7e1b3e4a-12ab-4d5e-8f60-0123456789ab", "masked6789ab"),
            ("4c4c45440051-x", "masked051-x"),
        ] {
            assert_eq!(identifiers(given), masked);
        }
        assert_eq!(identifiers(&format!("crio-{}beef.scope", "3f2a9c".repeat(10))), "crio-masked9cbeef.scope");
        for kept in [
            "0000:3b:00.0",
            "ff,ffffffff",
            "é",
            "0x1c1c1c1d1e1f2021",
            "123456789012345",
            "ffffffffffffffff",
            "5.14.0-427",
        ] {
            assert_eq!(identifiers(kept), kept);
        }
    }

    #[test]
    fn what_people_write() {
        assert_eq!(prose("from 192.168.1.7:80 to fe80::1:2, at 10:23:45"), "from MASKED to MASKED, at 10:23:45");
        for private in [
            "https://u:p@h/",
            "me@example.com",
            "root@3com.example",
            "user:pass@10host",
            "10.0.0.1/24",
            "fe80::211:22ff:fe33:4455%eth0",
            "AKIAIOSFODNN7EXAMPLE",
            "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N",
            "c2VjcmV0cGFzc3dvcmQxMjM0NTY3ODkw",
            "AAAAC3NzaC1lZDI1NTE5AAAAIJ",
        ] {
            assert_eq!(prose(&format!("x {private} y")), "x MASKED y");
        }
        for kept in [
            "0000:3b:00.0",
            "5.14.0-427.59.1.el9_4.x86_64+rt",
            "2-7,10",
            "1.2.3",
            "::",
            "64M@0x18000000",
            "intel_rapl_msr",
        ] {
            assert_eq!(prose(kept), kept);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_masked_once_for_all(text in "\\PC{0,30}([0-9a-f]{2}[:-]){0,7}[0-9a-f]{0,2}(enx[0-9a-f]{9,14})?\\PC{0,9}") {
            let once = identifiers(&text);
            prop_assert_eq!(&identifiers(&once), &once);
            prose(&text);
        }
    }
}
