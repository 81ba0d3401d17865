//! CPUs and their topology: `/sys/devices/system/cpu`, `/sys/devices/system/node`, `/proc/cpuinfo`.

use std::collections::BTreeMap;

use super::cpuinfo::{self, CpuInfo, Processor, generation};
use super::{frequency, idle, memory};
use crate::facts::{Context, Cpu, CpuSet, Cpus, Fact, MachineCheck, Node, ResumeLatency, Root, Source};

const CPUS: &str = "sys/devices/system/cpu";
const NODES: &str = "sys/devices/system/node";

pub(super) fn read(context: &Context) -> Cpus {
    let root = context.root;
    let list = |name: &str| root.cpu_list(&format!("{CPUS}/{name}"));
    let info = cpuinfo::read(context);
    let first = info.as_ref().and_then(|info| match info.processors.first() {
        Some(first) => Fact::known(first, "/proc/cpuinfo"),
        None => Fact::malformed("it names no processor", "/proc/cpuinfo"),
    });
    let common = |get: fn(&Processor) -> Option<u32>| said(&first, get);
    let (vendor, family, model) = (said(&first, |p| p.vendor), common(|p| p.family), common(|p| p.model));
    let stepping = common(|p| p.stepping);
    let known = vendor.clone().zip(family.clone()).zip(model.clone()).zip(stepping.clone());
    let cpus = cpus(context, &info);
    let online = list("online");
    Cpus {
        present: list("present"),
        smt_active: root.switch(&format!("{CPUS}/smt/active")).or_else(|| shared_cores(&cpus, online.value())),
        online,
        possible: list("possible"),
        isolated: list("isolated"),
        nohz_full: nohz_full(root),
        smt_control: root.text(&format!("{CPUS}/smt/control")),
        vendor,
        family,
        model,
        stepping,
        model_name: said(&first, |p| p.name.clone()),
        generation: known.and_then(|(((vendor, family), model), stepping)| {
            match generation(vendor, family, model, stepping) {
                Some(generation) => Fact::known(generation, "/proc/cpuinfo"),
                None => Fact::missing(
                    crate::facts::Why::Unsupported(format!("family {family} model {model} is not in the table").into()),
                    "/proc/cpuinfo",
                ),
            }
        }),
        flags: cpuinfo::flags(&info),
        vulnerabilities: vulnerabilities(root),
        list: cpus,
        nodes: nodes(root),
    }
}

/// Reads `nohz_full`. The kernel prints `(null)` if the set is empty (drivers/base/cpu.c, `print_cpus_nohz_full`).
fn nohz_full(root: &Root) -> Fact<CpuSet> {
    root.text(&format!("{CPUS}/nohz_full")).parse(|text| match text.as_str() {
        "(null)" => Ok(CpuSet::new()),
        text => CpuSet::parse_list(text),
    })
}

fn vulnerabilities(root: &Root) -> Fact<BTreeMap<String, String>> {
    let place = format!("{CPUS}/vulnerabilities");
    root.list(&place).map(|names| {
        let state = |name: String| Some((name.clone(), root.text(&format!("{place}/{name}")).into_value()?));
        names.into_iter().filter_map(state).collect()
    })
}

/// A value from a CPU's block in /proc/cpuinfo. If it is missing, it counts as not recorded, because some architectures
/// do not print it.
fn said<T>(processor: &Fact<&Processor>, get: impl FnOnce(&Processor) -> Option<T>) -> Fact<T> {
    processor.clone().and_then(|processor| match get(processor) {
        Some(value) => Fact::known(value, "/proc/cpuinfo"),
        None => Fact::not_recorded("/proc/cpuinfo"),
    })
}

fn cpus(context: &Context, info: &Fact<CpuInfo>) -> Vec<Cpu> {
    let root = context.root;
    let mut set: CpuSet = root.numbered(CPUS, "cpu").into_iter().collect();
    for more in ["present", "online"] {
        set = set.union(&root.cpu_list(&format!("{CPUS}/{more}")).into_value().unwrap_or_default());
    }
    let by_id: BTreeMap<u32, &Processor> =
        info.value().into_iter().flat_map(|info| &info.processors).map(|p| (p.id, p)).collect();
    set = set.union(&by_id.keys().copied().collect());
    let why = |id: u32| match info {
        Fact::Known { .. } => match by_id.get(&id) {
            Some(processor) => Fact::known(*processor, "/proc/cpuinfo"),
            None => Fact::not_recorded("/proc/cpuinfo"),
        },
        Fact::Missing { why, source } => Fact::missing(why.clone(), source.clone()),
    };
    let policies = frequency::Policies::read(root);
    let mut list: Vec<Cpu> = set.iter().map(|id| cpu(context, id, &why(id), &policies)).collect();
    siblings_by_core(&mut list);
    list
}

fn cpu(context: &Context, id: u32, info: &Fact<&Processor>, policies: &frequency::Policies) -> Cpu {
    let root = context.root;
    let place = format!("{CPUS}/cpu{id}");
    let topology = |name: &str| root.number::<u32>(&format!("{place}/topology/{name}"));
    let machine_check = format!("sys/devices/system/machinecheck/machinecheck{id}");
    let siblings = root.cpu_list(&format!("{place}/topology/thread_siblings_list"));
    Cpu {
        id,
        online: root.switch(&format!("{place}/online")),
        package: topology("physical_package_id").or_else(|| said(info, |p| p.package)),
        die: topology("die_id"),
        core: topology("core_id").or_else(|| said(info, |p| p.core)),
        siblings: siblings.or_else(|| root.cpu_list(&format!("{place}/topology/core_cpus_list"))),
        l3: last_level_cache(root, &place),
        microcode: said(info, |p| p.microcode),
        cpuinfo_frequency: said(info, |p| p.frequency),
        idle_states: idle::states(root, id),
        frequency: policies.of(context, id),
        resume_latency: root.text(&format!("{place}/power/pm_qos_resume_latency_us")).parse(|t| resume_latency(&t)),
        energy_perf_bias: context.on(id, &format!("{place}/power/energy_perf_bias"), Root::number),
        machine_check: MachineCheck {
            ignore_ce: root.switch(&format!("{machine_check}/ignore_ce")),
            check_interval_s: root.text(&format!("{machine_check}/check_interval")).parse(|t| hexadecimal(&t)),
        },
    }
}

/// The CPUs that share the third-level cache, which is cache index 3: the first two levels have the indexes 0 to 2 on
/// x86.
fn last_level_cache(root: &Root, place: &str) -> Fact<CpuSet> {
    root.cpu_list(&format!("{place}/cache/index3/shared_cpu_list"))
}

/// Parses `check_interval`. Old kernels print it in hexadecimal without a prefix (arch/x86/kernel/cpu/mce/core.c), new
/// kernels in decimal (`DEVICE_INT_ATTR`). The default of 300 is recognised in both forms, because it is `12c` in
/// hexadecimal.
fn hexadecimal(text: &str) -> Result<u64, std::num::ParseIntError> {
    text.parse().or_else(|_| u64::from_str_radix(text, 16))
}

fn resume_latency(text: &str) -> Result<ResumeLatency, std::num::ParseIntError> {
    match text {
        "n/a" => Ok(ResumeLatency::Zero),
        "0" => Ok(ResumeLatency::NoLimit),
        text => text.parse().map(|us| ResumeLatency::AtMost(units::Nanos::from_micros(us))),
    }
}

/// Finds out whether SMT is active if `smt/active` does not say so (before Linux 4.19, or not recorded). SMT is active
/// if an online CPU has an online sibling.
fn shared_cores(list: &[Cpu], online: Option<&CpuSet>) -> Fact<bool> {
    let runs = |cpu: u32| online.is_none_or(|online| online.contains(cpu));
    let mut source = None;
    for cpu in list.iter().filter(|cpu| runs(cpu.id)) {
        let Fact::Known { value, source: from } = &cpu.siblings else {
            return Fact::not_recorded(format!("/{CPUS}/smt/active").as_str());
        };
        if value.iter().filter(|sibling| runs(*sibling)).count() > 1 {
            return Fact::known(true, from.clone());
        }
        source.get_or_insert(from);
    }
    match source {
        Some(source) => Fact::known(false, source.clone()),
        None => Fact::not_recorded(format!("/{CPUS}/smt/active").as_str()),
    }
}

/// Fills in siblings that were not recorded: CPUs with the same core number and socket number.
fn siblings_by_core(list: &mut [Cpu]) {
    let mut cores: BTreeMap<(u32, u32), CpuSet> = BTreeMap::new();
    for cpu in list.iter() {
        if let (Some(package), Some(core)) = (cpu.package.get(), cpu.core.get()) {
            cores.entry((package, core)).or_default().insert(cpu.id);
        }
    }
    for cpu in list.iter_mut().filter(|cpu| cpu.siblings.is_unknown()) {
        if let (Some(package), Fact::Known { value: core, source }) = (cpu.package.get(), &cpu.core)
            && let Some(set) = cores.get(&(package, *core))
        {
            cpu.siblings = Fact::known(set.clone(), source.clone());
        }
    }
}

fn nodes(root: &Root) -> Vec<Node> {
    root.numbered(NODES, "node").into_iter().map(|id| node(root, id)).collect()
}

fn node(root: &Root, id: u32) -> Node {
    let place = format!("{NODES}/node{id}");
    let info = root.text(&format!("{place}/meminfo")).map(|text| node_memory(&text));
    let amount = |name: &str| {
        info.clone().and_then(|info: BTreeMap<String, u64>| match info.get(name) {
            Some(bytes) => Fact::known(*bytes, Source::new(format!("/{place}/meminfo"))),
            None => Fact::not_recorded(Source::new(format!("/{place}/meminfo"))),
        })
    };
    Node {
        id,
        cpus: root.cpu_list(&format!("{place}/cpulist")),
        distances: root
            .text(&format!("{place}/distance"))
            .parse(|text| text.split_ascii_whitespace().map(str::parse).collect::<Result<Vec<u32>, _>>()),
        huge_pages: memory::huge_pages(root, &format!("{place}/hugepages")),
        memory_bytes: amount("MemTotal"),
        free_bytes: amount("MemFree"),
    }
}

/// Parses lines such as `Node 0 MemTotal:  98468532 kB`. After the node's number, they are like lines of /proc/meminfo.
fn node_memory(text: &str) -> BTreeMap<String, u64> {
    let lines: String = text
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("Node ")?.trim_start().split_once(' '))
        .map(|(_, rest)| format!("{}\n", rest.trim_start()))
        .collect();
    memory::meminfo(&lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::Facts;

    /// Whether SMT is active on a recorded host with two threads, on one core or on two. Only /proc/cpuinfo was
    /// recorded.
    fn cpuinfo(second_core: u32) -> Fact<bool> {
        let block = |id: u32, core: u32| format!("processor : {id}\nphysical id : 0\ncore id : {core}\n\n");
        let text = format!("{}{}", block(0, 0), block(1, second_core));
        Facts::read(&Root::given([("proc/cpuinfo", text)])).cpus.smt_active
    }

    #[test]
    fn threads_of_a_core_tell_of_smt_where_nobody_says_so() {
        assert_eq!(cpuinfo(0), Fact::known(true, "/proc/cpuinfo"));
        assert_eq!(cpuinfo(1), Fact::known(false, "/proc/cpuinfo"));
        assert!(Facts::read(&Root::given([("proc/cpuinfo", "processor : 0\n")])).cpus.smt_active.is_unknown());
        // The file `smt/active` takes precedence.
        let said = Root::given([("sys/devices/system/cpu/smt/active", "0\n"), ("proc/cpuinfo", "processor : 0\n")]);
        assert_eq!(Facts::read(&said).cpus.smt_active.get(), Some(false));
    }
}
