//! Exports a plan as a playbook for Ansible, which needs only modules of ansible-core.
//!
//! Source: Ansible documentation, modules ansible.builtin.shell, copy, stat and command; "Unsafe or raw strings".

use std::fmt::Write as _;

use super::shell::Command;
use super::steps::{Step, steps};
use super::{Export, ExportedFile, quoted};
use crate::knob::{Access, BootFragment, Error, Setting as _};
use crate::profile::Resolved;
use crate::transaction::OnRefusal;

/// Tag of a string in which Ansible does not treat `{{ }}` as a template (Ansible documentation, "Unsafe or raw
/// strings").
const TAG: &str = "!unsafe";

pub(super) fn export(resolved: &Resolved, access: &Access, summary: &str) -> Result<Export, Error> {
    let name = &resolved.plan.name;
    let mut out = Export::default();
    let (mut tasks, mut sysctl) = (String::new(), String::new());
    for item in &resolved.plan.items {
        for step in steps(access, &item.setting, &item.wanted)? {
            if let Step::Sysctl { name, value, .. } = &step {
                // Writing to a string cannot fail.
                let _ = writeln!(sysctl, "{name} = {value}");
            }
            match (&step, Command::of(&step)) {
                (_, Some(command)) => {
                    let label = format!("{} = {}", item.setting.label(), item.wanted);
                    tasks.push_str(&task(&label, &command, item.on_refusal));
                }
                (Step::Arguments(arguments), None) => tasks.push_str(&boot(arguments)),
                (step, None) => out.left_out.push(step.why_not(&item.setting.label())),
            }
        }
    }
    if !sysctl.is_empty() {
        let _ = write!(
            tasks,
            "    - name: sysctls, for the next boot\n      ansible.builtin.copy:\n        \
             dest: /etc/sysctl.d/90-apus-{name}.conf\n        content: {TAG} {}\n        mode: \"0644\"\n",
            quoted(&sysctl)
        );
    }
    let title = quoted(&plain(&format!("Apus: {summary}")));
    let text = format!(
        "# Written by apus tune export. What is no sysctl and no kernel argument lasts until the next boot.\n---\n\
         - name: {title}\n  hosts: all\n  become: true\n  gather_facts: false\n  tasks:\n{tasks}"
    );
    let file = format!("apus-{name}.yml");
    let place = format!("the control node: ansible-playbook -i INVENTORY {file}");
    out.files.push(ExportedFile { name: file, place, text });
    Ok(out)
}

/// A task that makes a change only if it is needed, and reports whether it made the change.
fn task(label: &str, command: &Command, on_refusal: OnRefusal) -> String {
    use super::shell::quoted as word;
    let Command { subject, show, set, wanted } = command;
    let mut script = format!("if [ ! -e {} ]; then echo 'not here'; exit 0; fi\nbefore=$({show})\n", word(subject));
    if let Some(wanted) = wanted {
        let _ = writeln!(script, "if [ \"$before\" = {} ]; then exit 0; fi", word(wanted));
    }
    // The kernel shows a choice (`always [never]`), a mask or a rounded number in another form than it was written.
    let _ = write!(script, "{set} || exit 1\nif [ \"$({show})\" != \"$before\" ]; then echo changed; fi");
    let ignore = if on_refusal == OnRefusal::Report { "\n      ignore_errors: true" } else { "" };
    format!(
        "    - name: {}\n      ansible.builtin.shell:\n        cmd: {TAG} {}\n        executable: /bin/sh\n      \
         register: apus_step\n      changed_when: \"'changed' in apus_step.stdout_lines\"{ignore}\n",
        quoted(&plain(label)),
        quoted(&script)
    )
}

fn boot(arguments: &str) -> String {
    let (folder, _) = BootFragment::PATH.rsplit_once('/').unwrap_or_default();
    format!(
        "    - name: is there a folder for kernel arguments\n      ansible.builtin.stat:\n        path: {folder}\n      \
         register: apus_boot\n    - name: kernel arguments, for the next boot\n      ansible.builtin.copy:\n        \
         dest: {}\n        content: {TAG} {}\n        mode: \"0644\"\n      register: apus_arguments\n      \
         when: apus_boot.stat.isdir is defined and apus_boot.stat.isdir\n    \
         - name: into the bootloader's configuration; they are in force after a reboot\n      \
         ansible.builtin.command: update-grub\n      when: apus_arguments is changed\n",
        quoted(BootFragment::PATH),
        quoted(&BootFragment::content(arguments))
    )
}

/// A name in which no characters begin a Jinja expression.
fn plain(text: &str) -> String {
    text.replace("{{", "{ {").replace("{%", "{ %").replace("{#", "{ #")
}
