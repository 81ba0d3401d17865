//! Allocation of cache and memory bandwidth.

use host::Facts;
use host::facts::{CpuSet, KernelVersion, ResctrlGroup, Vendor};

use crate::rules::common::see_parameter;
use crate::{Applies, Cause, Context, Fix, Judged, Judgement, Magnitude, Rule, Skip, known};

/// The tables of this group's rules, in the order of docs/rules.md.
pub const RULES: &[&[Rule]] = &[ALLOCATION];

const KERNEL: &str = "Linux Documentation/filesystems/resctrl.rst";
const SLIDES: &str = "FlexRAN real-time platform slides (2018), Resource Director Technology";
const X86: Applies = Applies::LINUX.made_by(&[Vendor::Intel, Vendor::Amd]).on_hardware();

const MISS: Magnitude = Magnitude::slower(
    "about 80 ns more for each cache line that a neighbour has evicted to memory",
    "general knowledge of memory latency; FlexRAN real-time platform slides (2018) ask for cache allocation without a number",
);

/// Rules on cache allocation.
const ALLOCATION: &[Rule] = &[
    Rule {
        id: "rdt.available",
        cause: Cause::Cache,
        title: "Cache allocation can be used: resctrl is mounted",
        applies: X86.isolated(),
        judge: available,
        why: "All cores of a socket share its last-level cache. Housekeeping and neighbours evict the application's \
         cache lines and rings, unless some ways of the cache are reserved for the application.",
        magnitude: MISS,
        fix: Fix::both(
            "mount -t resctrl resctrl /sys/fs/resctrl\nmkdir /sys/fs/resctrl/application\n\
             echo {isolated} > /sys/fs/resctrl/application/cpus_list\n\
             # then divide the ways: some into the L3 line of /sys/fs/resctrl/application/schemata, the others into that of /sys/fs/resctrl/schemata",
            "mount it at boot: resctrl /sys/fs/resctrl resctrl defaults 0 0 in /etc/fstab",
        ),
        cost: "Other programs get less cache; the groups are gone after a reboot.",
        references: &[
            KERNEL,
            SLIDES,
            "Linux Documentation/core-api/real-time/hardware.rst",
            "Linux arch/x86/kernel/cpu/resctrl/core.c, __check_quirks_intel and rdt_cpu_has",
            "Linux Documentation/admin-guide/kernel-parameters.txt, rdt",
            "Intel, Core X-series specification update: SKZ4, SKZ17, SKZ18, SKZ19",
        ],
    },
    Rule {
        id: "rdt.partition",
        cause: Cause::Cache,
        title: "The application has its own ways of the cache",
        applies: X86.isolated(),
        judge: partition,
        why: "If two groups may fill a way of the cache, the busier one evicts the other's lines. Devices fill some ways \
         too (shareable_bits), with packets of all interfaces.",
        magnitude: MISS,
        fix: Fix::for_good(
            "give CPUs {isolated} ways of the cache that no other group has: make a folder in /sys/fs/resctrl and \
             set its cpus_list and schemata (pqos does the same)",
        ),
        cost: "Other programs get less cache.",
        references: &[KERNEL, SLIDES],
    },
    Rule {
        id: "rdt.mba",
        cause: Cause::Cache,
        title: "The application's memory bandwidth is not throttled",
        applies: X86.isolated(),
        judge: bandwidth,
        why: "Memory bandwidth allocation delays a group's requests between core and mesh. It was made to restrain noisy \
         neighbours. If the application's CPUs are in the throttled group, it delays each of their cache misses.",
        magnitude: Magnitude::slower(
            "a delay per cache miss that grows with the throttling; at 10 %, memory is many times slower",
            "Linux Documentation/filesystems/resctrl.rst, Memory bandwidth Allocation, warns that it also lowers performance of the cache; no figure is given",
        ),
        fix: Fix::for_good(
            "write MB: 100 for each domain into the schemata of the application's group in /sys/fs/resctrl",
        ),
        cost: "Neighbours get less bandwidth; throttle their group instead.",
        references: &["Linux Documentation/filesystems/resctrl.rst, Memory bandwidth Allocation", SLIDES],
    },
];

/// What disables the cache allocation that the CPUs support, what enables it, and what that costs. `None` if it is
/// enabled. `rdt=!l3cat` disables it. On the Xeons of model 85 (Skylake, Cascade Lake, Cooper Lake), the kernel
/// disables it by itself. `rdt=l3cat` enables it in both cases (arch/x86/kernel/cpu/resctrl/core.c,
/// `__check_quirks_intel`, `rdt_cpu_has`). /proc/cpuinfo shows cat_l3 even if it is disabled.
fn switched_off(facts: &Facts) -> Result<Option<[&'static str; 3]>, Skip> {
    let line = known(&facts.cmdline)?;
    let asked = |word: &str| line.all("rdt").any(|parameter| parameter.parts().any(|part| part == word));
    let cpus = &facts.cpus;
    let has_quirk =
        cpus.vendor.get() == Some(Vendor::Intel) && cpus.family.get() == Some(6) && *known(&cpus.model)? == 85;
    if asked("l3cat") {
        return Ok(None);
    }
    if asked("!l3cat") {
        return Ok(Some([
            "rdt=!l3cat has disabled cache allocation",
            "# take !l3cat out of rdt= on the kernel command line; then mount resctrl and divide the ways",
            "Other programs get less cache.",
        ]));
    }
    if !has_quirk {
        return Ok(None);
    }
    // Older kernels do this in another file (intel_rdt.c), and not all of them for all steppings.
    match *known(&facts.kernel.version)? {
        version if version >= KernelVersion::new(5, 0) => Ok(Some([
            "the kernel has disabled cache allocation, as on all Xeons of model 85 without rdt=l3cat",
            "# decide: rdt=l3cat on the kernel command line enables cache allocation again; then mount resctrl, \
                 divide the ways, and measure whether programs keep to their ways",
            "Overrides the kernel's precaution: by erratum SKZ18 of Skylake, cache allocation may fail to restrict \
             allocations under certain conditions. Other programs get less cache.",
        ])),
        version => {
            Err(Skip::unknown(format!("whether Linux {version} uses cache allocation on model 85 is not known")))
        }
    }
}

fn available(facts: &Facts, _: &Context) -> Judged {
    let flags = known(&facts.cpus.flags)?;
    if !flags.contains("cat_l3") {
        return Err(Skip::not_applicable("these CPUs have no cache allocation (cat_l3)"));
    }
    let mounted = &facts.resctrl.mounted;
    // If resctrl is mounted, it shows that the kernel uses cache allocation.
    let groups = facts.resctrl.groups.value().into_iter().flatten();
    let is_offered = facts.resctrl.l3_mask.is_known()
        || groups.flat_map(|group| group.schemata.keys()).any(|name| name.starts_with("L3"));
    if !is_offered && let Some([reason, on, cost]) = switched_off(facts)? {
        let judgement =
            Judgement::warn(format!("{reason}: the application shares the last-level cache with all other programs"));
        let judgement = judgement.for_good(on).now("# nothing: only a reboot can change this").costs(cost);
        let judgement = match facts.cpus.model.get() {
            Some(model) => judgement.see_as(format!("model {model}"), facts.cpus.model.source()),
            None => judgement,
        };
        return see_parameter(judgement, facts, "rdt").see_as("cat_l3", facts.cpus.flags.source()).alone();
    }
    let judgement = match *known(mounted)? {
        true => Judgement::pass("the CPUs have cache allocation, and resctrl is mounted"),
        false => Judgement::warn(
            "the CPUs can allocate cache ways to the application, but resctrl, the kernel's interface to it, is not mounted",
        ),
    };
    judgement
        .see_whether(mounted, "resctrl is mounted", "resctrl is not mounted")
        .see_as("cat_l3", facts.cpus.flags.source())
        .alone()
}

/// The group to which a CPU belongs: the group that lists the CPU, otherwise the default group.
fn group_of(groups: &[ResctrlGroup], cpu: u32) -> Option<&ResctrlGroup> {
    let named = groups.iter().find(|group| group.name != "/" && group.cpus.contains(cpu));
    named.or_else(|| groups.iter().find(|group| group.name == "/"))
}

/// The groups to which isolated CPUs belong, each with its isolated CPUs.
fn groups<'a>(facts: &'a Facts, context: &Context) -> Result<Vec<(&'a ResctrlGroup, CpuSet)>, Skip> {
    let all = known(&facts.resctrl.groups)?;
    let mut found: Vec<(&ResctrlGroup, CpuSet)> = Vec::new();
    for cpu in context.isolated.value.iter() {
        let Some(group) = group_of(all, cpu) else { continue };
        match found.iter_mut().find(|(other, _)| other.name == group.name) {
            Some((_, cpus)) => cpus.insert(cpu),
            None => found.push((group, CpuSet::from([cpu]))),
        }
    }
    match found.is_empty() {
        true => Err(Skip::unknown("/sys/fs/resctrl: no group holds the isolated CPUs")),
        false => Ok(found),
    }
}

fn place(group: &ResctrlGroup) -> String {
    match group.name.as_str() {
        "/" => "/sys/fs/resctrl/schemata".into(),
        name => format!("/sys/fs/resctrl/{name}/schemata"),
    }
}

fn partition(facts: &Facts, context: &Context) -> Judged {
    let mine = groups(facts, context)?;
    let all = known(&facts.resctrl.groups)?;
    let devices = facts.resctrl.l3_shareable.get().unwrap_or(0);
    let mut judgements = Vec::new();
    for (group, cpus) in mine {
        let Some(masks) = group.schemata.get("L3") else {
            return Err(Skip::not_applicable("the host does not partition its last-level cache"));
        };
        let shared = all.iter().filter(|other| other.name != group.name).find(|other| {
            let theirs = other.schemata.get("L3");
            theirs.is_some_and(|theirs| {
                masks.iter().any(|(domain, mask)| theirs.get(domain).is_some_and(|other| other & mask != 0))
            })
        });
        let judgement = match (group.name.as_str(), shared) {
            ("/", _) => Judgement::warn_for(
                &cpus,
                format!("CPUs {cpus} are in the default group, together with all other CPUs"),
            ),
            (name, Some(other)) => {
                Judgement::warn_for(&cpus, format!("group {name} shares ways with group {}", other.name))
            }
            (name, None) if masks.values().any(|mask| mask & devices != 0) => {
                Judgement::warn_for(&cpus, format!("group {name} has its own ways, but devices fill some of them too"))
            }
            (name, None) => Judgement::pass_for(&cpus, format!("group {name} has its own ways")),
        };
        let text = masks.iter().map(|(domain, mask)| format!("{domain}={mask:x}")).collect::<Vec<_>>().join(";");
        judgements.push(
            judgement
                .see_as(format!("L3:{text}"), place(group))
                .see_as(format!("{devices:x}"), facts.resctrl.l3_shareable.source()),
        );
    }
    Ok(judgements)
}

fn bandwidth(facts: &Facts, context: &Context) -> Judged {
    let mut judgements = Vec::new();
    for (group, cpus) in groups(facts, context)? {
        let Some(shares) = group.schemata.get("MB") else {
            return Err(Skip::not_applicable("the host does not limit memory bandwidth"));
        };
        let text = shares.iter().map(|(domain, share)| format!("{domain}={share}")).collect::<Vec<_>>().join(";");
        // In percent. Values above 100 are in MiB/s (mount option mba_MBps) or in AMD's units; neither shows a
        // reduction.
        let judgement = match shares.values().min() {
            Some(share) if *share < 100 => {
                Judgement::warn_for(&cpus, format!("group {} has {share} % of the bandwidth", group.name))
            }
            _ => Judgement::pass_for(&cpus, format!("group {} is not throttled", group.name)),
        };
        judgements.push(judgement.see_as(format!("MB:{text}"), place(group)));
    }
    Ok(judgements)
}

#[cfg(test)]
pub(crate) const CASES: &[&[crate::testing::Case]] = &[tests::CASES];

#[cfg(test)]
mod tests {
    use crate::testing::{Case, Host, host};

    fn cpu(flags: &str) -> Host {
        of_model(106, flags, "quiet")
    }

    /// A CPU of this model, and a kernel with this command line.
    fn of_model(model: u32, flags: &str, line: &str) -> Host {
        let info = format!(
            "processor : 0\nvendor_id : GenuineIntel\ncpu family : 6\nmodel : {model}\nstepping : 6\nflags : {flags}\n"
        );
        let host = host().isolated("2-7").file("/proc/cpuinfo", &info).cmdline(line);
        host.file("/proc/sys/kernel/osrelease", "7.0.0-rc1\n")
    }

    const MOUNTED: &str = "resctrl /sys/fs/resctrl resctrl rw 0 0\n";

    /// clx2s0, skld0, telco-worker1: the flag is there, and the kernel does not use it.
    #[test]
    fn allocation_that_the_kernel_has_switched_off_is_not_there() {
        let judge = |model, line, mounts: &str| {
            of_model(model, "cat_l3", line).file("/proc/mounts", mounts).judge("rdt.available").remove(0)
        };
        for mounts in ["none / ext4 rw 0 0\n", MOUNTED] {
            let off = judge(85, "quiet", mounts);
            assert_eq!(off.verdict, crate::Verdict::Warn);
            assert!(off.found.starts_with("the kernel has disabled cache allocation, as on all Xeons of model 85"));
            assert!(off.for_good[0].contains("rdt=l3cat") && off.now[0].starts_with("# nothing"), "{off:?}");
            assert!(off.cost.is_some_and(|cost| cost.contains("SKZ18")));
            assert!(judge(106, "rdt=cmt,!l3cat", mounts).found.starts_with("rdt=!l3cat has disabled"));
        }
        for (model, line) in [(85, "rdt=l3cat,mba"), (106, "quiet"), (106, "rdt=!l3cat,l3cat")] {
            assert_eq!(judge(model, line, MOUNTED).verdict, crate::Verdict::Pass, "{model} {line}");
            assert!(judge(model, line, "none / ext4 rw 0 0\n").found.ends_with("is not mounted"), "{model} {line}");
        }
        // What changes the command line takes a reboot, whoever writes it.
        let facts = of_model(85, "cat_l3", "quiet").file("/proc/mounts", MOUNTED).facts();
        let intent = crate::Intent { isolated: Some("2-7".parse().unwrap()), ..Default::default() };
        let report = crate::audit(&facts, &intent);
        let finding = report.findings.iter().find(|finding| finding.rule.id == "rdt.available").unwrap();
        assert!(finding.fix.reboot && finding.fix.risks().contains(&crate::Risk::Reboot), "{:?}", finding.fix);
        assert!(finding.fix.adds().next().is_none(), "nobody but a person sets aside what the kernel does");
        // What resctrl shows decides.
        let shown = of_model(85, "cat_l3", "quiet").file("/sys/fs/resctrl/schemata", "L3:0=7ff\n");
        assert_eq!(shown.judge("rdt.available")[0].verdict, crate::Verdict::Pass);
        let old = of_model(85, "cat_l3", "quiet").file("/proc/sys/kernel/osrelease", "4.14.0\n");
        assert!(old.judge("rdt.available")[0].verdict.reason().is_some());
    }

    fn resctrl(default: &str, application: &str) -> Host {
        let place = "/sys/fs/resctrl";
        host()
            .isolated("2-7")
            .file(&format!("{place}/schemata"), default)
            .file(&format!("{place}/cpus_list"), "0-1\n")
            .file(&format!("{place}/app/schemata"), application)
            .file(&format!("{place}/app/cpus_list"), "2-7\n")
            .file(&format!("{place}/info/L3/shareable_bits"), "600\n")
    }

    pub(super) const CASES: &[Case] = &[
        Case::pass("rdt.available", || cpu("cat_l3").file("/proc/mounts", MOUNTED)),
        Case::warn("rdt.available", || cpu("cat_l3").file("/proc/mounts", "none / ext4 rw 0 0\n")),
        Case::unknown("rdt.available", || host().isolated("2-7")),
        Case::unknown("rdt.available", || {
            cpu("cat_l3").file("/proc/mounts", "debugfs /sys/kernel/debug debugfs rw 0 0\n")
        }),
        Case::not_applicable("rdt.available", || cpu("tsc").file("/proc/mounts", "none / ext4 rw 0 0\n")),
        Case::pass("rdt.partition", || resctrl("L3:0=00f\n", "L3:0=1f0\n")),
        Case::warn("rdt.partition", || resctrl("L3:0=7ff\n", "L3:0=1f0\n")),
        Case::warn("rdt.partition", || resctrl("L3:0=00f\n", "L3:0=7f0\n")),
        Case::unknown("rdt.partition", || host().isolated("2-7")),
        Case::pass("rdt.mba", || resctrl("MB:0=50\n", "MB:0=100\n")),
        Case::warn("rdt.mba", || resctrl("MB:0=100\n", "MB:0=50\n")),
        Case::unknown("rdt.mba", || host().isolated("2-7")),
    ];
}
