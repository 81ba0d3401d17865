//! Masks kernel command lines: known parameters keep their values, other parameters lose them.

use super::{MASK, keeps, scrub};

/// Values that identify nobody, whatever parameter they belong to.
const SMALL_WORDS: [&str; 17] = [
    "", "auto", "disable", "disabled", "enable", "enabled", "false", "force", "n", "N", "no", "none", "off", "on",
    "true", "y", "yes",
];

/// Masks a command line word by word, as the kernel splits it (`next_arg`, lib/cmdline.c). The words after `--`, which
/// belong to init, are all masked.
pub fn command_line(line: &str) -> String {
    let mut out = Vec::new();
    for word in words(line) {
        if word == "--" {
            out.push(format!("-- {MASK}"));
            break;
        }
        out.push(parameter(word));
    }
    let end = if line.ends_with('\n') { "\n" } else { "" };
    out.join(" ") + end
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    let words = line.split(move |c: char| {
        quoted ^= c == '"';
        c.is_whitespace() && !quoted
    });
    words.filter(|word| !word.is_empty())
}

fn parameter(word: &str) -> String {
    let plain = word.replace('"', "");
    let Some((name, value)) = plain.split_once('=') else {
        let is_known = keeps("flag", &dashed(&plain)) || keeps("parameter", &dashed(&plain));
        return if is_known { plain } else { MASK.to_owned() };
    };
    if name == "BOOT_IMAGE" {
        // The folder would reveal the disk. The file name shows the kernel's release.
        return format!("{name}=/{}", image(value));
    }
    if name == "ostree" && value.contains("/rhcos/") {
        // Keeps the kind of system (Red Hat CoreOS, where operators write the host's settings), but not the build.
        return format!("{name}=/ostree/rhcos/{MASK}");
    }
    let known = keeps("parameter", &dashed(name));
    match () {
        () if known && is_public(value) => format!("{name}={value}"),
        () if !known && !is_name(name) => MASK.to_owned(),
        () if is_small(value) => format!("{name}={value}"),
        () => format!("{name}={MASK}"),
    }
}

/// The file name of a kernel image without its folders; masked if it is not known to be harmless.
pub fn image(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or_default();
    if is_public(file) { file.to_owned() } else { MASK.to_owned() }
}

fn dashed(name: &str) -> String {
    name.replace('-', "_")
}

/// Whether the value is a word or a number that is never secret.
fn is_small(value: &str) -> bool {
    SMALL_WORDS.contains(&value) || value.len() < 3 && value.bytes().all(|c| c.is_ascii_digit())
}

/// Whether the value consists only of characters that occur in lists, sizes and words, and contains no address or key.
pub fn is_public(value: &str) -> bool {
    let plain = |c: u8| c.is_ascii_alphanumeric() || b"_,.:;+*()!^%@$#-=".contains(&c);
    value.bytes().all(plain) && value.split([',', ';', '=']).all(|part| scrub::prose(part) == part)
}

/// Whether the string is the name of a parameter. Keys can also end in `=`, such as `c2VjcmV0cGFzcw==` or `AKIA…=`.
fn is_name(name: &str) -> bool {
    let digits = name.bytes().filter(u8::is_ascii_digit).count();
    let lower = name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || b"_.-:".contains(&c));
    let upper = name.bytes().all(|c| c.is_ascii_uppercase() || c == b'_');
    let starts = name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    starts && (lower || upper) && digits < 5 && digits < name.len() && name.len() < 48
}

/// Masks a boot loader's file: keeps only its command lines (masked) and the file name of the kernel image.
pub fn loader(text: &str) -> String {
    text.lines().filter_map(entry).collect()
}

fn entry(line: &str) -> Option<String> {
    let line = line.trim();
    if let Some((name, value)) = line.split_once('=').filter(|(name, _)| name.starts_with("GRUB_CMDLINE_LINUX")) {
        let name = name.trim_end();
        let letters = name.bytes().all(|c| c.is_ascii_uppercase() || c == b'_');
        let value = value.trim();
        let quote = if value.starts_with('\'') { '\'' } else { '"' };
        let inner =
            value.strip_prefix(quote).map_or(value, |value| value.rsplit_once(quote).map_or(value, |(inner, _)| inner));
        return letters.then(|| format!("{name}=\"{}\"\n", command_line(&inner.replace(['\\', '"', '\''], ""))));
    }
    let (key, rest) = line.split_once([' ', '\t'])?;
    match key {
        "options" => Some(format!("options {}\n", command_line(rest))),
        "linux" | "linux16" | "linuxefi" => {
            let (file, options) = rest.trim().split_once(' ').unwrap_or((rest.trim(), ""));
            Some(format!("{key} /{} {}", image(file), command_line(options)).trim_end().to_owned() + "\n")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_parameters_keep_their_values_and_others_do_not() {
        let line = "BOOT_IMAGE=(hd0,gpt3)/ostree/rhcos-1/vmlinuz-5.14.0-427.el9.x86_64 ro root=UUID=ab80a591 nohz-full=2-7 \
                    isolcpus=managed_irq,domain,2-7 ip=10.0.0.1::10.0.0.254 rd.iscsi.password=x BOOTIF=01-aa psk=abc \
                    inst.ks=http://a/b skew_tick=1 tsc=reliable ds=nocloud;s=https://h/ console=ttyS0,115200n8 login=joe \
                    systemd.setenv=DB_PASSWORD=hunter2 iommu=pt x=1.2.3.4 default_hugepagesz=1G serial=8FJ2 mce=off \
                    dyndbg=\"file secret.c +p\" c2VjcmV0cGFzcw== hunter2 systemd.unified_cgroup_hierarchy=0 memmap=64M@0x18000000 \
                    -- --password hunter2\n";
        assert_eq!(
            command_line(line),
            "BOOT_IMAGE=/vmlinuz-5.14.0-427.el9.x86_64 ro root=MASKED nohz-full=2-7 isolcpus=managed_irq,domain,2-7 ip=MASKED \
             rd.iscsi.password=MASKED BOOTIF=MASKED psk=MASKED inst.ks=MASKED skew_tick=1 tsc=reliable ds=MASKED \
             console=ttyS0,115200n8 login=MASKED systemd.setenv=MASKED iommu=pt x=MASKED default_hugepagesz=1G serial=MASKED \
             mce=off dyndbg=MASKED MASKED MASKED systemd.unified_cgroup_hierarchy=0 memmap=64M@0x18000000 -- MASKED\n"
        );
        assert_eq!(command_line("--password hunter2 quiet"), "MASKED MASKED quiet");
        // The recording telco-worker1 has such a path. It shows which operator writes a node's settings.
        assert_eq!(
            command_line("ostree=/ostree/boot.0/rhcos/1e2f3a/0 ostree=/ostree/boot.0/home/joe/0"),
            "ostree=/ostree/rhcos/MASKED ostree=MASKED"
        );
        assert_eq!(
            command_line("isolcpus=https://u:p@h/ console=AKIAIOSFODNN7EXAMPLE"),
            "isolcpus=MASKED console=MASKED"
        );
    }

    #[test]
    fn files_of_boot_loaders() {
        let entry = "title x\nlinux /boot/7e1b3e4a-12ab/vmlinuz-6.1.9\noptions quiet ip=dhcp\npassword y\n";
        assert_eq!(loader(entry), "linux /vmlinuz-6.1.9\noptions quiet ip=MASKED\n");
        let grub = "# x\nGRUB_CMDLINE_LINUX=\"rootpw='hunter 2' quiet\"\nGRUB_CMDLINE_LINUX_DEFAULT='nohz_full=2-3'\nGRUB_PASSWORD=x\n";
        assert_eq!(
            loader(grub),
            "GRUB_CMDLINE_LINUX=\"rootpw=MASKED MASKED quiet\"\nGRUB_CMDLINE_LINUX_DEFAULT=\"nohz_full=2-3\"\n"
        );
    }

    proptest! {
        #[test]
        fn any_line_is_masked_once_for_all(line in "\\PC{0,80}") {
            let once = command_line(&line);
            prop_assert_eq!(&command_line(&once), &once);
            loader(&line);
        }
    }
}
