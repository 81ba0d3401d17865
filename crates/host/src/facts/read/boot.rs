//! The kernel command lines for the next boot, from Boot Loader Specification entries and grub's settings.

use crate::facts::{CommandLine, Fact, Root, Source};

const ENTRIES: &str = "boot/loader/entries";
/// Maximum number of boot entries that are read.
const MAX_ENTRIES: usize = 256;

/// The command lines of the boot entries for the running kernel release (or of all entries, if none matches it) and of
/// grub's settings. If there are none, returns one fact with the reason.
pub(super) fn command_lines(root: &Root, release: &Fact<String>) -> Vec<Fact<CommandLine>> {
    let entries = root.list(ENTRIES);
    let names = entries.value().into_iter().flatten().filter(|name| name.ends_with(".conf")).take(MAX_ENTRIES);
    let read: Vec<_> = names.map(|name| root.text(&format!("{ENTRIES}/{name}"))).collect();
    let of_release = |text: &&Fact<String>| match (text.value(), release.value()) {
        (Some(text), Some(release)) => key(text, "linux").is_some_and(|image| image.contains(release.as_str())),
        _ => false,
    };
    let mine: Vec<_> = read.iter().filter(of_release).collect();
    let chosen = if mine.is_empty() { read.iter().collect() } else { mine };
    let mut lines: Vec<Fact<CommandLine>> = chosen
        .into_iter()
        .cloned()
        .map(|text| text.map(|text| CommandLine::parse(key(&text, "options").unwrap_or_default())))
        .filter(|line| line.is(|line| line.raw.contains("$kernelopts") || line.raw.is_empty()) != Some(true))
        .collect();
    lines.extend(grub(root));
    if lines.is_empty() {
        lines.push(entries.and_then(|_| Fact::absent(Source::new("/boot/loader/entries, /etc/default/grub"))));
    }
    lines
}

/// Joins `GRUB_CMDLINE_LINUX` and `GRUB_CMDLINE_LINUX_DEFAULT` in the order in which grub-mkconfig writes them.
fn grub(root: &Root) -> Option<Fact<CommandLine>> {
    let settings = root.text("etc/default/grub");
    settings.is_known().then(|| {
        settings.map(|text| {
            let part = |name: &str| variable(&text, name).unwrap_or_default();
            CommandLine::parse(&format!("{} {}", part("GRUB_CMDLINE_LINUX"), part("GRUB_CMDLINE_LINUX_DEFAULT")))
        })
    })
}

/// The value of the key `name` in a boot loader entry.
fn key<'a>(entry: &'a str, name: &str) -> Option<&'a str> {
    entry.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix([' ', '\t']).map(str::trim))
}

/// The value of the last `NAME=value` line in a shell file, without its outer quotes.
pub(super) fn variable(text: &str, name: &str) -> Option<String> {
    let value = |line: &str| line.trim().strip_prefix(name)?.strip_prefix('=').map(str::trim).map(unquoted);
    text.lines().rev().find_map(value)
}

/// A shell word without its outer quotes.
pub(super) fn unquoted(text: &str) -> String {
    let inner = |quote: char| text.strip_prefix(quote).and_then(|text| text.split(quote).next());
    inner('"').or_else(|| inner('\'')).unwrap_or(text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Facts;

    #[test]
    fn entries_of_the_running_release_and_grubs_settings() {
        let root = Root::given([
            ("proc/sys/kernel/osrelease", "6.1.9"),
            ("boot/loader/entries/a.conf", "title A\nlinux /vmlinuz-6.1.9\noptions root=/dev/sda isolcpus=2-3\n"),
            ("boot/loader/entries/b.conf", "title B\nlinux /vmlinuz-5.0\noptions root=/dev/sda\n"),
            (
                "etc/default/grub",
                "GRUB_CMDLINE_LINUX=\"quiet\"\n#GRUB_CMDLINE_LINUX=x\nGRUB_CMDLINE_LINUX_DEFAULT='nohz_full=2-3'\n",
            ),
        ]);
        let lines = Facts::read(&root).kernel.next_boot;
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0].source().as_str(), "/boot/loader/entries/a.conf");
        assert_eq!(lines[0].value().unwrap().value("isolcpus"), Some("2-3"));
        assert_eq!(lines[1].value().unwrap().raw, "quiet nohz_full=2-3");
        let nothing = Facts::read(&Root::given([("proc/cmdline", "")])).kernel.next_boot;
        assert!(nothing.len() == 1 && nothing[0].is_unknown());
    }
}
