//! Makes the remedies of one report consistent with each other, with the command line, and with the kernel.

use std::collections::BTreeMap;

use host::facts::{CommandLine, Parameter, same_name};

use super::{Action, Place, Setting, Step};
use crate::cmdline::{Kind, judge, table};
use crate::plan::merged;
use crate::{Context, Finding, Level};

/// Parameters that only kernels with CONFIG_NO_HZ_FULL accept.
const OF_TICKS: [&str; 2] = ["nohz_full", "rcutree.nohz_full_patience_delay"];

/// Makes the remedies of findings consistent. `findings` are sorted, worst first. If two findings want different values
/// for one setting, both get the value of the worse finding. A word is not added if the line already has it, if this
/// kernel does not accept it, or if it contradicts another word on the line.
pub(crate) fn agree(findings: &mut [Finding], line: Option<&CommandLine>, full_ticks: bool) {
    let mut wanted = Wanted { line: line.cloned().unwrap_or_default(), ..Wanted::default() };
    for finding in findings.iter_mut() {
        // A choice is in no plan, so it must not influence other findings, nor be changed by them.
        let binds = finding.level() >= Level::Warn;
        let fix = &mut finding.fix;
        let had = fix.persistent.len();
        fix.persistent.retain_mut(|step| wanted.words(step, binds, full_ticks));
        let asked = had > 0;
        if binds {
            fix.runtime.iter_mut().for_each(|step| wanted.settings(step));
        }
        if asked && fix.persistent.is_empty() && fix.runtime.is_empty() {
            fix.persistent.push(Step::advice(
                "the command line already asks for it: check in dmesg why the kernel did not apply it",
            ));
        }
        let settings: Vec<&Setting> = fix.settings().collect();
        if fix.persistent.is_empty() && !settings.is_empty() {
            let keep = keep(&settings, binds);
            fix.persistent.extend(keep);
        }
    }
}

#[derive(Default)]
struct Wanted {
    /// The line with which the host was booted.
    line: CommandLine,
    add: Vec<Parameter>,
    remove: Vec<Parameter>,
    settings: BTreeMap<Place, String>,
}

impl Wanted {
    fn settings(&mut self, step: &mut Step) {
        let Action::Set(settings) = &mut step.action else { return };
        for setting in settings {
            let mut places = single(setting);
            if let Some(value) = places.iter().find_map(|place| self.settings.get(place)) {
                setting.value.clone_from(value);
            }
            for place in places.drain(..) {
                self.settings.entry(place).or_insert_with(|| setting.value.clone());
            }
        }
    }

    /// Adapts the words of a step to the line. Returns whether anything is left to do in the step.
    fn words(&mut self, step: &mut Step, binds: bool, full_ticks: bool) -> bool {
        let Action::Arguments { add, remove } = &mut step.action else { return true };
        let before = add.len();
        let is_tick = |word: &Parameter| OF_TICKS.iter().any(|name| same_name(name, &word.name));
        if !full_ticks {
            add.retain(|word| !is_tick(word));
            if before > 0 && add.is_empty() {
                step.action = Action::Advise("boot a kernel with CONFIG_NO_HZ_FULL=y".to_owned());
                return true;
            }
        }
        if !binds {
            return true;
        }
        for word in add.iter_mut() {
            let earlier = self.add.iter().find(|earlier| same_name(&earlier.name, &word.name));
            if let Some(earlier) = earlier.filter(|_| !repeats(word)) {
                word.clone_from(earlier);
            }
        }
        add.retain(|word| self.takes(word));
        // A word that an earlier finding replaces need not be removed.
        let on_line = |word: &Parameter| {
            let same = |known: &Parameter| word.value.is_none() || word.value == known.value;
            self.line.parameters.is_empty() || self.line.all(&word.name).any(same)
        };
        remove.retain(|word| on_line(word) && !self.add.iter().any(|earlier| same_name(&earlier.name, &word.name)));
        self.add.extend(add.iter().cloned());
        self.remove.extend(remove.iter().cloned());
        !add.is_empty() || !remove.is_empty()
    }

    /// Whether the line lacks the word, and can take it without a contradiction.
    fn takes(&self, word: &Parameter) -> bool {
        let of_name = self.line.last(&word.name);
        let removed = |gone: &Parameter| same_name(&gone.name, &word.name) && gone.value == word.value;
        if of_name.is_some_and(|last| last.value == word.value) || self.remove.iter().any(removed) {
            return false;
        }
        let contradictions = |line: &CommandLine| {
            let remarks = judge(line, &Context::default());
            remarks.iter().filter(|remark| remark.kind == Kind::Contradiction).count()
        };
        let with: Vec<Parameter> = self.add.iter().chain([word]).cloned().collect();
        let (before, after) = (merged(&self.line, &self.add, &self.remove), merged(&self.line, &with, &self.remove));
        contradictions(&after) <= contradictions(&before)
    }
}

/// The step that makes these settings permanent, by repeating them at each boot. `None` if no such step exists.
fn keep(settings: &[&Setting], binds: bool) -> Option<Step> {
    let sysctl = |setting: &&Setting| match &setting.place {
        Place::Sysctl(name) => Some(format!("{name} = {}", setting.value)),
        _ => None,
    };
    match settings.iter().map(sysctl).collect::<Option<Vec<_>>>() {
        Some(lines) => Some(Step::advice(format!("/etc/sysctl.d/90-apus.conf: {}", lines.join(", ")))),
        // Settings that belong to choices are not in the profile.
        None if binds => Some(Step::advice("apus audit --fix FILE.toml, then apus tune enable ./FILE.toml")),
        None => None,
    }
}

fn repeats(word: &Parameter) -> bool {
    table::find(&word.name).is_some_and(|known| known.repeats)
}

/// The [`Place`]s that a setting changes, with a separate one for each CPU.
fn single(setting: &Setting) -> Vec<Place> {
    match &setting.place {
        Place::Cpus(cpus, what) => cpus.iter().map(|cpu| Place::Cpus([cpu].into(), *what)).collect(),
        place => vec![place.clone()],
    }
}
