//! Test helpers: hosts in memory, and test cases of rules.
//!
//! A case gives the files of a small host to the real reader, and checks how the rule judges this host:
//!
//! ```ignore
//! Case::pass("wq.global-cpumask", || host().isolated("2-7").file("/sys/devices/virtual/workqueue/cpumask", "03")),
//! Case::warn("wq.global-cpumask", || host().isolated("2-7").file("/sys/devices/virtual/workqueue/cpumask", "ff")),
//! Case::unknown("wq.global-cpumask", || host().isolated("2-7")),
//! ```

use std::collections::BTreeMap;

use host::facts::{Facts, Os, Root};

use crate::{Context, Goal, Intended, Judgement, Subject, Verdict, Workload, rules};

/// The verdict that a case expects. If a rule makes several judgements, the worst one counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Expect {
    Pass,
    Warn,
    Fail,
    Disagree,
    Unknown,
    NotApplicable,
}

/// A test case of a rule: a host, and the expected verdict.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub rule: &'static str,
    pub expect: Expect,
    pub host: fn() -> Host,
}

impl Case {
    pub const fn pass(rule: &'static str, host: fn() -> Host) -> Self {
        Self { rule, expect: Expect::Pass, host }
    }
    pub const fn warn(rule: &'static str, host: fn() -> Host) -> Self {
        Self { rule, expect: Expect::Warn, host }
    }
    pub const fn fail(rule: &'static str, host: fn() -> Host) -> Self {
        Self { rule, expect: Expect::Fail, host }
    }
    pub const fn disagree(rule: &'static str, host: fn() -> Host) -> Self {
        Self { rule, expect: Expect::Disagree, host }
    }
    pub const fn unknown(rule: &'static str, host: fn() -> Host) -> Self {
        Self { rule, expect: Expect::Unknown, host }
    }
    pub const fn not_applicable(rule: &'static str, host: fn() -> Host) -> Self {
        Self { rule, expect: Expect::NotApplicable, host }
    }
}

/// A host in memory, and its purpose.
#[derive(Clone)]
pub(crate) struct Host {
    files: BTreeMap<String, String>,
    links: BTreeMap<String, String>,
    complete: bool,
    edits: Vec<fn(&mut Facts)>,
    context: Context,
}

/// A physical Intel host with CPUs 0 to 7 online. Nothing else is recorded.
pub(crate) fn host() -> Host {
    let host = Host {
        files: BTreeMap::new(),
        links: BTreeMap::new(),
        complete: false,
        edits: Vec::new(),
        context: Context::default(),
    };
    host.file("/sys/devices/system/cpu/present", "0-7").file("/sys/devices/system/cpu/online", "0-7").edit(|facts| {
        facts.virtualisation.guest = host::Fact::known(false, "/proc/cpuinfo flags");
        facts.cpus.vendor = host::Fact::known(host::facts::Vendor::Intel, "/proc/cpuinfo");
    })
}

/// A FreeBSD host without any recorded facts.
pub(crate) fn freebsd() -> Host {
    host().edit(|facts| facts.origin.os = Os::FreeBsd)
}

impl Host {
    /// Adds a file for the reader to read.
    pub fn file(mut self, path: &str, text: &str) -> Self {
        self.files.insert(path.trim_start_matches('/').into(), text.into());
        self
    }
    /// Adds the output of a command such as `ethtool -c eth0`, as sos stores it.
    pub fn command(self, command: &str, text: &str) -> Self {
        let mut name = String::new();
        for c in command.chars() {
            match c {
                '/' => name.push('.'),
                c if c.is_alphanumeric() || matches!(c, '_' | '-' | '.') => name.push(c),
                _ if name.ends_with('_') => {}
                _ => name.push('_'),
            }
        }
        self.file(&format!("commands/{name}"), text)
    }
    /// Adds a symbolic link.
    #[allow(dead_code)]
    pub fn link(mut self, path: &str, target: &str) -> Self {
        self.links.insert(path.trim_start_matches('/').into(), target.into());
        self
    }
    /// Makes files that were not added count as absent on the host, not as unrecorded.
    pub fn complete(mut self) -> Self {
        self.complete = true;
        self
    }
    /// Changes the facts after they were read. Use it for facts that are laborious to write as files.
    pub fn edit(mut self, edit: fn(&mut Facts)) -> Self {
        self.edits.push(edit);
        self
    }
    /// Adds a kernel command line.
    pub fn cmdline(self, line: &str) -> Self {
        self.file("/proc/cmdline", line)
    }
    /// Makes the host's processor one of Arm.
    pub fn arm(self) -> Self {
        self.edit(|facts| facts.cpus.vendor = host::Fact::known(host::facts::Vendor::Arm, "/proc/cpuinfo"))
    }
    /// Makes the host a guest of KVM.
    pub fn guest(self) -> Self {
        self.edit(|facts| {
            facts.virtualisation.guest = host::Fact::known(true, "/proc/cpuinfo flags");
            facts.virtualisation.hypervisor = host::Fact::known("kvm".into(), "/sys/class/dmi/id/sys_vendor");
        })
        .workload(Workload::Guest)
    }
    /// Sets the intent's isolated CPUs.
    pub fn isolated(mut self, list: &str) -> Self {
        self.context.isolated = Intended::given(list.parse().expect("a CPU list"));
        self
    }
    /// Adds an interface to the intent.
    pub fn nic(mut self, name: &str) -> Self {
        self.context.nics.value.push(name.into());
        self.context.nics.how = crate::How::Given;
        self
    }
    /// Removes an interface from the intent.
    pub fn forget_nic(&mut self, name: &str) {
        self.context.nics.value.retain(|known| known != name);
    }
    /// Adds a use to the intent.
    pub fn workload(mut self, workload: Workload) -> Self {
        self.context.workloads.value.push(workload);
        self.context.workloads.how = crate::How::Given;
        self
    }
    /// Infers the uses of the host, as if the user had stated none.
    pub fn infer_uses(&mut self) {
        self.context.workloads.how = crate::How::Inferred("the host".into());
    }
    /// Removes all uses from the intent.
    pub fn without_uses(mut self) -> Self {
        self.context.workloads.value.clear();
        self
    }
    /// Sets the intent's goal: this latency, for 99.9 % of all packets.
    pub fn goal(mut self, latency: units::Nanos) -> Self {
        self.context.goal = Some(Goal { quantile: units::Quantile::P99_9, latency });
        self
    }

    /// The facts that the reader finds in the files.
    pub fn facts(&self) -> Facts {
        let root = Root::given(self.files.iter());
        let root = if self.complete { root.complete() } else { root };
        let mut facts = Facts::read(&root.linked(self.links.iter()));
        self.edits.iter().for_each(|edit| edit(&mut facts));
        facts
    }

    /// The judgements of the rule `id` on this host.
    pub fn judge(&self, id: &str) -> Vec<Judgement> {
        let rule = rules::find(id).unwrap_or_else(|| panic!("there is no rule {id}"));
        let facts = self.facts();
        let judged = rule.applies.check(&facts, &self.context).and_then(|()| (rule.judge)(&facts, &self.context));
        judged.unwrap_or_else(|skip| vec![Judgement::skipped(Subject::Host, skip)])
    }
}

/// Runs the cases of a group. Returns a description of each case that fails.
pub(crate) fn run(cases: &[Case]) -> Vec<String> {
    cases.iter().enumerate().filter_map(|(number, case)| wrong(number, case)).collect()
}

/// Describes why a case fails. `None` if it passes.
fn wrong(number: usize, case: &Case) -> Option<String> {
    let judgements = (case.host)().judge(case.rule);
    let worst = judgements.iter().max_by_key(|judgement| judgement.verdict.weight()).map(|j| &j.verdict);
    let got = match worst {
        None => return Some(format!("case {number}: {} returned no judgement: return Skip instead", case.rule)),
        Some(Verdict::Pass) => Expect::Pass,
        Some(Verdict::Warn) => Expect::Warn,
        Some(Verdict::Fail) => Expect::Fail,
        Some(Verdict::SourcesDisagree) => Expect::Disagree,
        Some(Verdict::Unknown(_)) => Expect::Unknown,
        Some(Verdict::NotApplicable(_)) if judgements.iter().any(|j| j.verdict == Verdict::Pass) => Expect::Pass,
        Some(Verdict::NotApplicable(_)) => Expect::NotApplicable,
    };
    if got != case.expect {
        return Some(format!("case {number} of {}: {got:?} instead of {:?}: {judgements:#?}", case.rule, case.expect));
    }
    let silent = |j: &Judgement| j.verdict.reason().is_none() && (j.found.is_empty() || j.evidence.is_empty());
    let silent = judgements.iter().find(|judgement| silent(judgement))?;
    Some(format!("case {number} of {}: {silent:?} says nothing or rests on nothing: use .see()", case.rule))
}

#[test]
fn every_rule_is_complete_and_has_its_cases() {
    let cases: Vec<Case> = rules::cases().flatten().copied().collect();
    let mut seen = std::collections::BTreeSet::new();
    for rule in rules::all() {
        let id = rule.id;
        assert!(seen.insert(id), "{id} is there twice");
        let word = |text: &str| {
            text.starts_with(|c: char| c.is_ascii_lowercase())
                && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        };
        assert!(id.split_once('.').is_some_and(|(a, b)| word(a) && word(b)), "{id:?} is no group.words");
        for (name, text) in [
            ("title", rule.title),
            ("why", rule.why),
            ("magnitude", rule.magnitude.text),
            ("source of the magnitude", rule.magnitude.source),
            ("cost", rule.cost),
        ] {
            assert!(text.len() > 3, "{id} has no {name}");
        }
        assert!(!rule.title.ends_with('.') && rule.title.len() <= 90, "{id}: a title is short and has no full stop");
        assert!(rule.why.ends_with('.'), "{id}: why is in full sentences");
        assert!(!rule.references.is_empty(), "{id} has no reference");
        let fixes = [rule.fix.look, rule.fix.runtime, rule.fix.persistent];
        assert!(fixes.iter().flatten().next().is_some(), "{id} has no fix: say at least what to look at");
        for template in fixes.into_iter().flatten() {
            for hole in template.split('{').skip(1).filter_map(|rest| rest.split_once('}')) {
                // The block of a chain of nft is no placeholder either.
                let shell = template.contains(&format!("${{{}}}", hole.0)) || hole.0.starts_with(' ');
                let known = crate::remedy::HOLES.contains(&&*format!("{{{}}}", hole.0));
                assert!(shell || known, "{id}: nothing fills {{{}}} in its fix", hole.0);
            }
        }
        let has = |expect: &[Expect]| cases.iter().any(|case| case.rule == id && expect.contains(&case.expect));
        assert!(has(&[Expect::Pass]), "{id} has no case that passes");
        assert!(has(&[Expect::Warn, Expect::Fail, Expect::Disagree]), "{id} has no case with a finding");
        assert!(has(&[Expect::Unknown]), "{id} has no case where it cannot tell");
    }
    for case in &cases {
        assert!(seen.contains(case.rule), "a case is of rule {:?}, which is not there", case.rule);
    }
}

#[test]
fn of_a_host_of_which_nothing_is_known_nothing_is_claimed() {
    let everything = |mut host: Host| {
        host = Workload::ALL.into_iter().fold(host, Host::workload);
        host.isolated("2-7").nic("eth0")
    };
    let nothing = |host: Host| Host { files: BTreeMap::new(), ..host };
    for (host, os) in [(everything(nothing(host())), Os::Linux), (everything(nothing(freebsd())), Os::FreeBsd)] {
        let facts = Facts { origin: host::facts::Origin { os, ..Default::default() }, ..Facts::default() };
        for rule in rules::all() {
            for judgement in crate::report::judge(rule, &facts, &host.context) {
                let reason = judgement.verdict.reason();
                assert!(reason.is_some(), "{} claims something of nothing: {judgement:?}", rule.id);
            }
        }
    }
}
