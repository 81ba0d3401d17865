//! `--limit-idle`: lets each worker choose how deep its CPU may idle, and restores the original limit at the end.

use host::knob::{Access, CpuLatency, DmaLatency, ResumeLatency, State, Value, online, states};
use host::privilege;
use host::transaction::{Look, Steered, Target};
use live::idle_limit::{Ended, IdleLimit};
use live::os::Scheduling;
use policy::wait::IdleState;
use units::Nanos;

use super::COMMAND;
use crate::Failure;
use crate::commands::ports;
use crate::documents::VERSION;

/// The limits that the workers choose, one per worker.
pub(super) struct IdleLimits {
    lent: Vec<Lent>,
    /// Dropped last: before it restores the files, no worker may write them any more.
    steered: Steered,
}

/// The limit of one worker's CPU. Its position is the number of its setting.
struct Lent {
    cpu: u32,
    /// The names of the idle states among which the policy chooses, and their exit latencies.
    states: Vec<String>,
    limit: IdleLimit,
    /// Whether the worker may still write the limit.
    is_lent: bool,
    /// Whether the user knows that the worker no longer chooses.
    is_told: bool,
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.limit.stop();
    }
}

impl IdleLimits {
    /// Records the limit of each worker's CPU in the journal, and opens it for the worker. Changes nothing yet.
    pub(super) fn begin(workers: &[Scheduling]) -> anyhow::Result<Self> {
        let access = Access::live()?;
        let cpus: Vec<u32> = workers.iter().filter_map(|worker| u32::try_from(worker.cpu?).ok()).collect();
        // What is missing is reported before the journal is touched.
        let usable = cpus.iter().map(|cpu| usable(&access, *cpu)).collect::<Result<Vec<_>, _>>()?;
        let targets: Vec<Target> = cpus.iter().map(|cpu| CpuLatency::new(*cpu).into()).collect();
        let mut steered = Steered::new(&access, "limit-idle", &targets, COMMAND, VERSION)?;
        let mut lent = Vec::new();
        for (place, (cpu, usable)) in cpus.into_iter().zip(usable).enumerate() {
            let known: Vec<IdleState> = usable.iter().map(|state| state.known).collect();
            let limit = IdleLimit::new(steered.lend(place)?, &known)?;
            let told = usable.iter().filter(|state| limit.states().contains(&state.known));
            let states = told.map(|state| format!("{} ({})", state.name, state.known.exit)).collect();
            lent.push(Lent { cpu, states, limit, is_lent: true, is_told: false });
        }
        Ok(Self { steered, lent })
    }

    /// The limits, in the order of the workers.
    pub(super) fn limits(&self) -> Vec<IdleLimit> {
        self.lent.iter().map(|one| one.limit.clone()).collect()
    }

    /// A line about each worker's CPU.
    pub(super) fn lines(&self) -> impl Iterator<Item = String> {
        self.lent.iter().map(|one| {
            format!(
                "adaptive chooses how deep CPU {} may idle (states: {}); the CPU's own limit is restored at the end",
                one.cpu,
                one.states.join(", ")
            )
        })
    }

    /// Returns a warning for each worker that has ceased to choose.
    pub(super) fn poll(&mut self) -> Vec<String> {
        let mut warnings = Vec::new();
        for place in 0..self.lent.len() {
            let one = &mut self.lent[place];
            let Some(ended) = one.limit.ended().filter(|_| !one.is_told) else { continue };
            one.is_told = true;
            let why = match ended {
                Ended::Stopped => continue,
                Ended::Changed(limit) => format!("something else has set it to {}, which stays", shown(limit)),
                Ended::Failed(0) => "the file has no limit in it".to_owned(),
                Ended::Failed(error) => std::io::Error::from_raw_os_error(error).to_string(),
            };
            warnings.push(format!(
                "worker {place} no longer chooses how deep CPU {} may idle ({}): {why}",
                one.cpu,
                file(one.cpu)
            ));
            if matches!(ended, Ended::Changed(_)) {
                warnings.extend(self.end_loan(place).err());
            }
        }
        warnings
    }

    /// How often each worker changed its limit.
    pub(super) fn changes(&self) -> Vec<u64> {
        self.lent.iter().map(|one| one.limit.changes()).collect()
    }

    /// Restores the original limits, when the workers have ended. Returns warnings.
    pub(super) fn end(mut self) -> Vec<String> {
        let mut warnings = self.poll();
        for place in 0..self.lent.len() {
            if !self.lent[place].is_lent {
                continue;
            }
            match self.end_loan(place) {
                Ok(Look::LetGo { now }) => {
                    let cpu = self.lent[place].cpu;
                    warnings.push(format!("{} stays at {now}: something else has set it", file(cpu)));
                }
                Ok(_) => {}
                Err(warning) => warnings.push(warning),
            }
        }
        // If a capability is missing, the release reports it.
        let _ = privilege::resume();
        warnings.extend(ports::restored("the limit of the exit latency", self.steered.release()));
        warnings
    }

    fn end_loan(&mut self, place: usize) -> Result<Look, String> {
        let one = &mut self.lent[place];
        one.is_lent = false;
        let ended = self.steered.end_loan(place, &Value::text(one.limit.last()));
        ended.map_err(|error| format!("{}: {}", file(one.cpu), error.to_string().replace('\n', "; ")))
    }
}

fn file(cpu: u32) -> String {
    format!("/sys/devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us")
}

fn shown(limit: Nanos) -> String {
    if limit == Nanos::MAX { "0 (no limit)".to_owned() } else { limit.to_string() }
}

/// An idle state that Linux may use.
struct Usable {
    name: String,
    known: IdleState,
}

/// The idle states that Linux may use on this CPU. Fails if there are not two with different exit latencies.
fn usable(access: &Access, cpu: u32) -> anyhow::Result<Vec<Usable>> {
    let what = || format!("cannot choose how deep CPU {cpu} may idle");
    if !online(access)?.contains(cpu) {
        return Err(Failure::lacking(what(), "it is not online", "give another CPU with --cpu").into());
    }
    let all = states(access, cpu)?;
    if all.is_empty() {
        let why = format!("it has no idle states: /sys/devices/system/cpu/cpu{cpu}/cpuidle is missing or empty");
        let fix = "omit --limit-idle in a virtual machine, whose host chooses the idle states; else boot with cpuidle (without \
                   idle=poll, idle=halt or cpuidle.off=1)";
        return Err(Failure::lacking(what(), why, fix).into());
    }
    let own = access.line(&file(cpu))?.as_deref().and_then(ResumeLatency::of_file);
    let own = match own {
        Some(ResumeLatency::Zero) => Nanos::ZERO,
        Some(ResumeLatency::AtMost(limit)) => limit,
        Some(ResumeLatency::NoLimit) | None => Nanos::MAX,
    };
    let global = DmaLatency::effective(access)?.unwrap_or(Nanos::MAX);
    let (usable, kept_out) = sort_out(&all, own, global);
    let mut exits: Vec<Nanos> =
        usable.iter().map(|state| state.known.exit).filter(|exit| *exit > Nanos::ZERO).collect();
    exits.sort_unstable();
    exits.dedup();
    if exits.len() >= 2 {
        return Ok(usable);
    }
    let sleeps = usable.iter().filter(|state| state.known.exit > Nanos::ZERO);
    let sleeps: Vec<String> = sleeps.map(|state| format!("{} ({})", state.name, state.known.exit)).collect();
    let sleeps = if sleeps.is_empty() { "none".to_owned() } else { sleeps.join(", ") };
    let kept_out = kept_out.map_or(String::new(), |why| format!("; {why}"));
    let why = format!(
        "it needs two idle states that take different times to leave, and Linux may use {sleeps} besides polling{kept_out}"
    );
    let fix = if kept_out.is_empty() { "omit --limit-idle" } else { "allow the deeper states, or omit --limit-idle" };
    Err(Failure::lacking(what(), why, fix).into())
}

/// The states that Linux may use with the CPU's own limit and that of all CPUs, and why others are not among them.
fn sort_out(all: &[State], own: Nanos, global: Nanos) -> (Vec<Usable>, Option<String>) {
    let (mut usable, mut kept_out) = (Vec::new(), Vec::new());
    for state in all {
        // A driver that does not state how long it takes to leave a state offers nothing to choose by.
        let Some(exit) = state.latency else { continue };
        let name = state.name.clone().unwrap_or_else(|| format!("state {}", state.number));
        if state.disabled == Some(true) {
            kept_out.push(format!("{name} is disabled (stateN/disable)"));
        } else if exit > own {
            kept_out.push(format!("{name} ({exit}) is beyond the CPU's limit of {own} (pm_qos_resume_latency_us)"));
        } else if exit > global {
            kept_out
                .push(format!("{name} ({exit}) is beyond the limit of {global} for all CPUs (/dev/cpu_dma_latency)"));
        } else {
            let known = IdleState { exit, residency: state.residency.unwrap_or(exit) };
            usable.push(Usable { name, known });
        }
    }
    (usable, (!kept_out.is_empty()).then(|| kept_out.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Nanos = Nanos::from_micros(1);

    fn state(number: u32, name: &str, latency: u64, disabled: bool) -> State {
        State {
            number,
            name: Some(name.into()),
            latency: Some(US * latency),
            residency: Some(US * 3 * latency),
            usage: None,
            time: None,
            disabled: Some(disabled),
        }
    }

    #[test]
    fn only_what_linux_may_use_is_chosen_from() {
        let all = [
            state(0, "POLL", 0, false),
            state(1, "C1", 2, false),
            state(2, "C1E", 10, true),
            state(3, "C6", 133, false),
            state(4, "C10", 890, false),
        ];
        let names = |own: Nanos, global: Nanos| {
            let (usable, kept_out) = sort_out(&all, own, global);
            let names: Vec<String> = usable.into_iter().map(|state| state.name).collect();
            (names.join(" "), kept_out.unwrap_or_default())
        };
        assert_eq!(names(Nanos::MAX, Nanos::MAX).0, "POLL C1 C6 C10");
        let (usable, kept_out) = names(US * 200, US * 5);
        assert_eq!(usable, "POLL C1");
        for part in
            ["C1E is disabled", "C6 (133us) is beyond the limit of 5us for all", "C10 (890us) is beyond the CPU's"]
        {
            assert!(kept_out.contains(part), "{kept_out}");
        }
        assert_eq!(names(Nanos::ZERO, Nanos::MAX).0, "POLL");
    }
}
