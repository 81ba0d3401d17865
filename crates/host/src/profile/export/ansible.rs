//! A list of Ansible tasks.
//!
//! Source: Ansible documentation, modules ansible.posix.sysctl, ansible.builtin.shell, ansible.builtin.copy.

use std::fmt::Write as _;

use super::steps::{Step, steps};
use super::{Export, ExportedFile, quoted};
use crate::knob::{Access, BootFragment, Error, Setting as _};
use crate::profile::Resolved;

pub(super) fn export(resolved: &Resolved, access: &Access, summary: &str) -> Result<Export, Error> {
    let name = &resolved.plan.name;
    let mut out = Export::default();
    let mut text = format!(
        "# Written by apus tune export. {summary}\n# Include it with ansible.builtin.import_tasks, as root.\n---\n"
    );
    for item in &resolved.plan.items {
        let label = quoted(&format!("{} = {}", item.setting.label(), item.wanted));
        for step in steps(access, &item.setting, &item.wanted)? {
            // Writing to a string cannot fail.
            let _ = match step {
                Step::Sysctl { name: key, value } => writeln!(
                    text,
                    "- name: {label}\n  ansible.posix.sysctl:\n    name: {}\n    value: {}\n    \
                     sysctl_file: /etc/sysctl.d/90-apus-{name}.conf\n    sysctl_set: true",
                    quoted(&key),
                    quoted(&value)
                ),
                Step::Write { path, text: to } => writeln!(
                    text,
                    "- name: {label}\n  ansible.builtin.shell: |\n    if [ \"$(cat '{path}')\" != '{to}' ]; then echo '{to}' > '{path}'; \
                     echo changed; fi\n  register: apus_write\n  changed_when: apus_write.stdout == 'changed'"
                ),
                Step::Run(words) => {
                    let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
                    writeln!(text, "- name: {label}\n  ansible.builtin.command:\n    argv: [{}]", words.join(", "))
                }
                Step::Folder(path) => writeln!(
                    text,
                    "- name: {label}\n  ansible.builtin.file:\n    path: {}\n    state: directory",
                    quoted(&path)
                ),
                Step::Arguments(arguments) => writeln!(
                    text,
                    "- name: {label}\n  ansible.builtin.copy:\n    dest: {}\n    content: {}\n    mode: \"0644\"\n  \
                     notify: update-grub and reboot",
                    quoted(BootFragment::PATH),
                    quoted(&BootFragment::content(&arguments))
                ),
                Step::Latency(micros) => {
                    out.left_out
                        .push(format!("exit latency of {micros} us: a process must hold /dev/cpu_dma_latency open"));
                    Ok(())
                }
                Step::None(why) => {
                    out.left_out.push(format!("{}: {why}", item.setting.label()));
                    Ok(())
                }
            };
        }
    }
    let file = format!("apus-{name}.yml");
    out.files.push(ExportedFile { name: file, place: "a role's tasks/".into(), text });
    Ok(out)
}
