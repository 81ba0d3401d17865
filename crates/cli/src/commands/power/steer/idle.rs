//! The limits of idle states that `--idle-latency` sets, one for each controlled CPU.

use host::knob::{ResumeLatency, Value};
use host::transaction::{Look, Moved, Steered};
use units::Nanos;

use super::note;

/// The limits, and whether they are in force.
pub(super) struct IdleLimits {
    limit: Nanos,
    /// Index of the first limit among the controlled settings.
    first: usize,
    /// Each CPU, and the reason if its limit is not in force.
    cpus: Vec<(u32, Option<String>)>,
}

impl IdleLimits {
    /// Sets the limits. `first` is the index of the first one among the controlled settings. Without `steered`, nothing
    /// is changed.
    pub(super) fn set(
        limit: Nanos,
        cpus: impl IntoIterator<Item = u32>,
        first: usize,
        steered: Option<&mut Steered>,
    ) -> anyhow::Result<Self> {
        let mut limits = Self { limit, first, cpus: cpus.into_iter().map(|cpu| (cpu, None)).collect() };
        if let Some(steered) = steered {
            for number in 0..limits.cpus.len() {
                let moved = steered.steer(first + number, &limits.value())?;
                limits.now(number, refused(moved));
            }
        }
        Ok(limits)
    }

    /// Creates the limits from the answers of the host. Each item of `cpus` is a CPU, and the reason if its limit is
    /// not in force.
    pub(super) fn requested(limit: Nanos, cpus: impl Iterator<Item = (u32, Option<String>)>) -> Self {
        let mut limits = Self { limit, first: 0, cpus: Vec::new() };
        for (number, (cpu, trouble)) in cpus.enumerate() {
            limits.cpus.push((cpu, None));
            limits.now(number, trouble);
        }
        limits
    }

    /// Checks whether somebody else has changed a limit.
    pub(super) fn look(&mut self, steered: &mut Steered) {
        for number in 0..self.cpus.len() {
            let trouble = match steered.look(self.first + number) {
                // The reason for a limit that is not in force stays the same. A limit that cannot be read now is not
                // lost.
                Ok(Look::Ours) | Err(_) => continue,
                Ok(Look::LetGo { now }) => Some(overruled(&now)),
                Ok(Look::Gone) => Some("the CPU is gone".to_owned()),
                Ok(Look::Away) => Some("the CPU is offline".to_owned()),
                Ok(Look::Fresh) => match steered.steer(self.first + number, &self.value()) {
                    Ok(moved) => refused(moved),
                    Err(error) => Some(error.to_string()),
                },
            };
            self.now(number, trouble);
        }
    }

    /// The limit in ns, and the reason if it is not in force for the CPU with this index.
    pub(super) fn of(&self, number: usize) -> (u64, Option<String>) {
        (self.limit.as_nanos(), self.cpus.get(number).and_then(|(_, trouble)| trouble.clone()))
    }

    fn value(&self) -> Value {
        if self.limit == Nanos::ZERO { ResumeLatency::Zero } else { ResumeLatency::AtMost(self.limit) }.value()
    }

    /// Stores the reason why a limit is not in force, and prints it if it is new.
    fn now(&mut self, number: usize, trouble: Option<String>) {
        let (cpu, before) = &mut self.cpus[number];
        if let Some(why) = trouble.as_ref().filter(|why| before.as_ref() != Some(why)) {
            note(&format!("CPU {cpu}: its idle states are not limited to an exit latency of {}: {why}", self.limit));
        }
        *before = trouble;
    }
}

/// The reason why a limit is not in force after it was set. `None` if it is in force.
fn refused(moved: Moved) -> Option<String> {
    match moved {
        Moved::AsWanted { .. } => None,
        Moved::Otherwise { now, why } | Moved::Unmoved { now, why } => {
            Some(why.unwrap_or_else(|| format!("the limit is {} instead", shown(&now))))
        }
        Moved::LetGo { now } => Some(overruled(&now)),
        Moved::Away => Some("the CPU is offline".to_owned()),
        Moved::Gone => Some("the CPU is gone".to_owned()),
    }
}

fn overruled(now: &Value) -> String {
    match now.as_text().and_then(ResumeLatency::of_file) {
        Some(ResumeLatency::NoLimit) => "somebody else has removed the limit; Apus leaves it so".to_owned(),
        _ => format!("somebody else set the limit to {}; Apus leaves it at this value", shown(now)),
    }
}

/// Formats a limit: `20us`, or `no limit`.
fn shown(value: &Value) -> String {
    match value.as_text().and_then(ResumeLatency::of_file) {
        Some(ResumeLatency::NoLimit) => "no limit".to_owned(),
        Some(ResumeLatency::Zero) => Nanos::ZERO.to_string(),
        Some(ResumeLatency::AtMost(limit)) => limit.to_string(),
        None => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_inverted_zero_is_said_in_words() {
        let of = |text: &str| overruled(&Value::text(text));
        assert_eq!(of("0"), "somebody else has removed the limit; Apus leaves it so");
        assert!(of("n/a").contains(" to 0ns;") && of("20").contains(" to 20us;") && of("x").contains(" to x;"));
        assert_eq!(refused(Moved::AsWanted { now: Value::text("20") }), None);
        let other = Moved::Otherwise { now: Value::text("30"), why: None };
        assert_eq!(refused(other).unwrap(), "the limit is 30us instead");
    }
}
