//! Where the load of each controlled CPU is read, and the frequency domains of this machine.

use std::collections::BTreeMap;

use host::facts::CpuSet;
use host::knob::{Access, Domain, policies};
use host::nic::Counted;
use live::telemetry::{Reader, instances};
use policy::Goal as Latency;
use steer::frequency::Judge;
use steer::frequency::counters::CounterSensor;
use steer::frequency::place::Place;

use super::super::branches::{counters, recorded, signature, spans};
use super::note;
use crate::Failure;
use crate::args::power::steer::{Branches, Goal, Policy, PowerSteer};

/// Frequency domains of this machine.
pub(super) struct Domains {
    policies: Vec<u32>,
    access: Access,
    /// The domains of the controlled CPUs, and how the frequency of each is set.
    pub(super) places: Vec<Place>,
    /// Index of the domain of each controlled CPU.
    pub(super) of_cpu: BTreeMap<u32, usize>,
}

/// Where the load of a CPU is read.
pub(super) enum Source {
    Workers(Vec<Reader>),
    Nic(Counted, String),
    Branches(CounterSensor, Judge, String),
    Nothing,
}

/// Share of busy time, in ppm, to aim at if neither the user nor a worker states a goal. The spare fifth of the time
/// keeps queues short during bursts.
const BUSY_PPM: u32 = 800_000;

impl Domains {
    /// Lists the domains. Fails if there are none.
    pub(super) fn read(access: &Access) -> anyhow::Result<Self> {
        let policies = policies(access)?;
        if policies.is_empty() {
            let what = format!(
                "cannot control frequencies: {} contains no frequency policy",
                access.show("/sys/devices/system/cpu/cpufreq")
            );
            let why = "no cpufreq driver is loaded: this is a virtual machine, or the firmware hides the P-states";
            let fix = "run the command on the host instead of in the guest, let the host set the frequencies with --through-host, enable P-states in the firmware, or use --root with a copy of a host";
            return Err(Failure::lacking(what, why, fix).into());
        }
        Ok(Self { policies, access: access.clone(), places: Vec::new(), of_cpu: BTreeMap::new() })
    }

    /// Finds the domains of the CPUs to control.
    pub(super) fn of(mut self, typed: &PowerSteer, cpus: &[u32]) -> anyhow::Result<Self> {
        let wanted: CpuSet = cpus.iter().copied().collect();
        for policy in &self.policies {
            let domain = Domain::read(&self.access, *policy)?;
            let ours = domain.cpus.intersection(&wanted);
            if ours.is_empty() {
                continue;
            }
            let others = domain.cpus.difference(&wanted);
            if !others.is_empty() {
                note(&format!(
                    "CPUs {} share the frequency domain {policy}, so the frequency of CPUs {others} changes too",
                    domain.cpus
                ));
            }
            let way = typed.via.unwrap_or_else(|| Place::best(&domain));
            let fix = "choose another setting with --via, or omit these CPUs";
            let place = Place::new(domain, way, &self.access)
                .map_err(|why| Failure::lacking(format!("cannot control CPUs {ours} through {way}"), why, fix))?;
            self.of_cpu.extend(ours.iter().map(|cpu| (cpu, self.places.len())));
            self.places.push(place);
        }
        if let Some(cpu) = cpus.iter().find(|cpu| !self.of_cpu.contains_key(cpu)) {
            let (what, why) = (format!("cannot control CPU {cpu}"), "no frequency policy of this host includes it");
            return Err(Failure::wrong(what, why, "omit it from --cpus").into());
        }
        Ok(self)
    }
}

/// Where the load of each CPU is read, and the goal.
pub(super) fn sources(typed: &PowerSteer) -> anyhow::Result<(BTreeMap<u32, Source>, Goal)> {
    let wrong = |why: &str, fix: &str| Failure::wrong("cannot tell how busy the CPUs are", why, fix);
    let busy = Goal::Busy(BUSY_PPM);
    if let (Some(goal @ Goal::Busy(_)), false) = (typed.goal, typed.policy == Policy::Goal) {
        let why = format!("the policy {} has no such goal", typed.policy);
        return Err(Failure::wrong(format!("--goal {goal}"), why, "omit it, or choose --policy goal").into());
    }
    if let Some(name) = &typed.instance {
        return workers(typed, name);
    }
    let Some(cpus) = &typed.cpus else {
        return Err(wrong("no CPUs are given", "give --instance NAME, or --cpus CPUS").into());
    };
    if let Some(Goal::Latency(goal)) = typed.goal {
        let why =
            format!("without an instance of Apus, the latency is not measured, so the goal {goal} cannot be judged");
        return Err(
            Failure::wrong("cannot use the goal", why, "give --instance NAME, or a goal such as busy=80%").into()
        );
    }
    if !typed.policy.looks() {
        let unused = [("--watch", !typed.watch.is_empty()), ("--branches", typed.branches.is_some())];
        if let Some((option, _)) = unused.into_iter().find(|(_, given)| *given) {
            let why = format!("the policy {} does not look at the load", typed.policy);
            return Err(Failure::wrong(option, why, "omit it, or choose another --policy").into());
        }
        return Ok((cpus.iter().map(|cpu| (cpu, Source::Nothing)).collect(), typed.goal.unwrap_or(busy)));
    }
    if let Some(judged) = &typed.branches {
        return Ok((branches(typed, cpus, judged)?, typed.goal.unwrap_or(busy)));
    }
    if typed.watch.is_empty() {
        let why = format!(
            "the policy {} needs the load of the CPUs, but none of --instance, --watch and --branches is given",
            typed.policy
        );
        return Err(wrong(
            &why,
            "give --instance NAME, or --watch INTERFACE with the interface that the CPUs poll, or --branches",
        )
        .into());
    }
    if typed.watch.len() != 1 && typed.watch.len() != cpus.len() {
        let why = format!("--watch is given {} times for {} CPUs", typed.watch.len(), cpus.len());
        return Err(wrong(&why, "give it once, or once for each CPU").into());
    }
    if typed.policy == Policy::L3fwdPower {
        let why = "l3fwd-power needs the number of polls, which an interface does not count";
        return Err(Failure::wrong("cannot use the policy", why, "give --instance NAME, or --policy goal").into());
    }
    let mut sources = BTreeMap::new();
    for (number, cpu) in cpus.iter().enumerate() {
        let watch = typed.watch.get(number).unwrap_or(&typed.watch[0]);
        let shown = match watch.queue {
            Some(queue) => format!("{} queue {queue}", watch.interface),
            None => watch.interface.clone(),
        };
        let counted = Counted::new(&watch.interface, watch.queue).map_err(|error| {
            let fix = "name an interface of this network namespace; --watch INTERFACE:QUEUE needs a driver that counts packets per queue";
            Failure::lacking(format!("cannot watch {shown}"), error, fix)
        })?;
        sources.insert(cpu, Source::Nic(counted, shown));
    }
    Ok((sources, typed.goal.unwrap_or(busy)))
}

/// Opens the branch counters of each CPU.
fn branches(typed: &PowerSteer, cpus: &CpuSet, judged: &Branches) -> Result<BTreeMap<u32, Source>, Failure> {
    if matches!(typed.policy, Policy::TwoLevel | Policy::L3fwdPower) {
        let why = format!("{} counts packets, which branch counters do not tell", typed.policy);
        return Err(Failure::wrong("cannot use the policy", why, "give --policy goal, or --watch INTERFACE"));
    }
    let (judge, shown) = match judged {
        Branches::Share(ppm) => (Judge::Threshold(u64::from(*ppm)), "branches".to_owned()),
        Branches::Learned(path) => {
            let signature = signature(&spans(path)?);
            if !signature.is_distinct() {
                note(
                    "what was learned does not tell idleness from load: the highest frequency is requested all the time",
                );
            }
            (Judge::Signature(Box::new(signature)), format!("branches as in {}", path.display()))
        }
    };
    let each = |cpu: u32| {
        let sensor = match &typed.counts {
            Some(path) => recorded(path)?,
            None => counters(cpu)?,
        };
        Ok((cpu, Source::Branches(sensor, judge.clone(), shown.clone())))
    };
    cpus.iter().map(each).collect()
}

/// The workers of an instance of Apus, by the CPUs on which they run.
fn workers(typed: &PowerSteer, name: &str) -> anyhow::Result<(BTreeMap<u32, Source>, Goal)> {
    let (readers, _) = instances(&typed.telemetry.root)?;
    let mut of_cpu: BTreeMap<u32, Vec<Reader>> = BTreeMap::new();
    let mut goals: Vec<Latency> = Vec::new();
    for reader in readers {
        let id = reader.snapshot().identity;
        if id.instance != name {
            continue;
        }
        let Some(cpu) = id.cpu else {
            let why = format!("worker {} is not pinned to a CPU, so it may move to any CPU", id.worker);
            return Err(Failure::wrong(
                format!("cannot control the CPUs of {name}"),
                why,
                "start the instance with --cpu",
            )
            .into());
        };
        goals.extend(id.goal.and_then(|goal| goal.parse::<Latency>().ok()));
        if typed.cpus.as_ref().is_none_or(|cpus| cpus.contains(cpu)) {
            of_cpu.entry(cpu).or_default().push(reader);
        }
    }
    if let Some(cpus) = &typed.cpus
        && let Some(cpu) = cpus.iter().find(|cpu| !of_cpu.contains_key(cpu))
    {
        let why = format!("no worker of {name} is pinned to it, so its load is unknown");
        return Err(Failure::wrong(format!("cannot control CPU {cpu}"), why, "omit it from --cpus").into());
    }
    if of_cpu.is_empty() {
        let why = format!("no instance of this name is running below {}", typed.telemetry.root.display());
        return Err(Failure::wrong(
            format!("cannot control the CPUs of {name}"),
            why,
            "apus top lists the running instances",
        )
        .into());
    }
    // The strictest goal has the shortest latency and, among equal latencies, the highest quantile.
    let strictest = goals.into_iter().min_by_key(|goal| (goal.latency, goal.quantile.above_ppm()));
    let goal = typed.goal.or(strictest.map(Goal::Latency)).unwrap_or(Goal::Busy(BUSY_PPM));
    let sources = of_cpu.into_iter().map(|(cpu, readers)| (cpu, Source::Workers(readers)));
    Ok((sources.collect(), goal))
}
