//! A controlled CPU, and the messages about it.

use std::time::{SystemTime, UNIX_EPOCH};

use policy::frequency::outside::{Occupancy, Reason as PolicyReason, Unsure};
use steer::frequency::{CoreSeen, Figures, InForce, Judge, Pace, Phase, Reason};
use steer::{Acted, Blind, Machine, Poll, Reading, Sensor, Step};
use tester::clock::{MonotonicClock, TrialClock as _};
use units::{Hertz, Instant, Monotonic, Nanos};

use super::hand::Hand;
use super::shared::Need;
use crate::documents::power_steer::{Cpu as Document, LastSecond, Verdict};
use crate::terminal;

pub(super) type AnySensor = Box<dyn Sensor<Monotonic, Seen = CoreSeen>>;

/// Time since midnight, UTC. `None` if the clock is set before 1970.
pub(super) fn time_of_day() -> Option<Nanos> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    Some(Nanos::from_secs(since.as_secs() % 86_400))
}

/// A sensor that reads no counters, for policies that need only the time.
pub(super) struct Clock;

impl Sensor<Monotonic> for Clock {
    type Seen = CoreSeen;

    fn read(&mut self, now: Instant<Monotonic>) -> Result<Reading<CoreSeen, Monotonic>, Blind> {
        Ok(Reading { taken: now, seen: CoreSeen { time_of_day: time_of_day(), ..CoreSeen::default() } })
    }
}

/// A controlled CPU and its control loop.
pub(super) struct Core {
    pub(super) cpu: u32,
    /// What shows the CPU's load, in words. `None` if nothing does.
    pub(super) watches: Option<String>,
    machine: Machine<Monotonic, AnySensor, Pace<Monotonic>, Hand>,
    aloud: bool,
    began: Instant<Monotonic>,
    reason: Reason,
    phase: Phase,
    told: Option<InForce>,
    /// What the machine did instead of using the requested frequency. `None` if it uses the requested frequency.
    trouble: Option<String>,
    /// Whether the machine refuses the requested frequency.
    is_refused: bool,
    /// Why the load cannot be read.
    blind: Option<String>,
    /// The last problem that was printed.
    said: Option<String>,
    /// Whether the CPU has needed turbo, and whether it has had work, in the current second.
    needed: Need,
    /// The counts at the end of the last full second, and the counts within that second. `None` until a second has
    /// passed.
    second: (Figures, Option<Figures>),
}

impl Core {
    pub(super) fn new(
        cpu: u32,
        watches: Option<String>,
        machine: Machine<Monotonic, AnySensor, Pace<Monotonic>, Hand>,
        aloud: bool,
    ) -> Self {
        let began = MonotonicClock.now();
        let second = (machine.controller().figures(), None);
        let (reason, phase, told) = (Reason::Begin, Phase::Unknown, None);
        let (trouble, is_refused, blind, said, needed) = (None, false, None, None, Need::default());
        Self {
            cpu,
            watches,
            machine,
            aloud,
            began,
            reason,
            phase,
            told,
            trouble,
            is_refused,
            blind,
            said,
            needed,
            second,
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.machine.lost().is_some()
    }

    /// What the CPU has needed, or may have needed, since the last call.
    pub(super) fn take_needed(&mut self) -> Need {
        self.notice_need();
        std::mem::take(&mut self.needed)
    }

    /// Notes what the CPU needs now. A CPU whose load cannot be read may need everything.
    fn notice_need(&mut self) {
        let pace = self.machine.controller();
        let (wish, hand) = (pace.wish(), self.hand());
        // With turbo off, a policy that wants more than the nominal frequency can only request the nominal one.
        let is_capped = |nominal| wish >= nominal && hand.in_force().ceiling <= nominal && hand.is_turbo_off();
        let is_above = hand.nominal().is_none_or(|nominal| wish > nominal || is_capped(nominal));
        self.needed.turbo |= is_above || self.blind.is_some();
        self.needed.uncore |= pace.phase() != Phase::Idle || self.blind.is_some();
    }

    /// Tells the actuator whether frequencies above the nominal one are available.
    pub(super) fn allow_turbo(&mut self, is_allowed: bool) {
        self.machine.actuator_mut().allow_turbo(is_allowed);
    }

    pub(super) fn hand(&self) -> &Hand {
        self.machine.actuator()
    }

    /// Ends a full second. The counts since the previous call become the counts of the last full second.
    pub(super) fn end_second(&mut self) {
        let now = self.machine.controller().figures();
        let second = now.since(&self.second.0);
        self.second = (now, Some(second));
    }

    fn last_second(&self) -> Option<LastSecond> {
        let figures = self.second.1?;
        Some(LastSecond {
            span_ns: figures.span.as_nanos(),
            // `None` if nothing was observed.
            mean_frequency_hz: figures.mean_frequency()?.as_hertz(),
            busy_ratio: figures.busy_ppm().map(|ppm| ppm as f64 / 1e6),
            packets: figures.packets,
            judged: figures.late.map(|late| late.judged),
            late: figures.late.map(|late| late.late),
        })
    }

    /// The results so far. `allowed_ppm` is the share of late packets that the goal allows, in ppm. `idle` is the limit
    /// of the CPU's idle states in ns, and the reason if the limit is not in force.
    pub(super) fn document(&self, allowed_ppm: Option<u32>, idle: Option<(u64, Option<String>)>) -> Document {
        let pace = self.machine.controller();
        let (figures, in_force) = (pace.figures(), self.hand().in_force());
        let late = figures.late;
        let verdict = match (allowed_ppm, late) {
            (Some(allowed), Some(late)) => verdict(late.judged, late.late, allowed),
            _ => Verdict::Unmeasured,
        };
        Document {
            cpu: self.cpu,
            domain: self.hand().site().domain,
            watches: self.watches.clone(),
            wish_hz: pace.wish().as_hertz(),
            frequency_hz: in_force.frequency.as_hertz(),
            ceiling_hz: in_force.ceiling.as_hertz(),
            mean_frequency_hz: figures.mean_frequency().map(Hertz::as_hertz),
            phase: pace.phase().into(),
            reason: because(self.reason).to_owned(),
            policy_reason: match self.reason {
                Reason::Policy(reason) => Some(reason.into()),
                _ => None,
            },
            unsure: match pace.occupancy() {
                Some(Occupancy::Unsure(why)) if *pace.judge() != Judge::Nothing => Some(why.into()),
                _ => None,
            },
            busy_ratio: figures.busy_ppm().map(|ppm| ppm as f64 / 1e6),
            packets: figures.packets,
            judged: late.map(|late| late.judged),
            late: late.map(|late| late.late),
            verdict: verdict.into(),
            cycles_per_packet: match pace.judge() {
                Judge::Packets(cost) => cost.bound(),
                _ => None,
            },
            wishes: figures.wishes,
            last_second: self.last_second(),
            trouble: self.trouble.as_ref().or(self.blind.as_ref()).cloned(),
            refused: self.is_refused,
            lost: self.machine.lost().map(ToString::to_string),
            idle_limit_ns: idle.as_ref().map(|(limit, _)| *limit),
            idle_trouble: idle.and_then(|(_, trouble)| trouble),
        }
    }

    fn tell(&self, text: &str) {
        if self.aloud {
            let since = MonotonicClock.now().since(self.began).unwrap_or(Nanos::ZERO).as_nanos() as f64 / 1e9;
            terminal::aside::print(format!("{since:9.3} s  CPU {}: {}", self.cpu, terminal::line(text)));
        }
    }

    /// Prints what has changed since the last message.
    fn tell_changes(&mut self) {
        let phase = self.machine.controller().phase();
        if std::mem::replace(&mut self.phase, phase) != phase {
            self.tell(match phase {
                Phase::Load => "load",
                Phase::Idle => "idle",
                Phase::Unsure | Phase::Unknown => "its load is uncertain",
            });
        }
        let now = self.hand().in_force();
        let before = self.told.replace(now);
        if before == Some(now) {
            return;
        }
        if let Some(before) = before.filter(|before| before.ceiling != now.ceiling) {
            let change = if now.ceiling < before.ceiling { "limits the frequency to" } else { "now allows up to" };
            self.tell(&format!("{} {change} {}", self.hand().limited_by(), now.ceiling));
        }
        if before.is_none_or(|before| before.frequency != now.frequency) {
            let busy = match self.machine.controller().occupancy() {
                Some(Occupancy::Share(ppm)) => format!(", busy {:.0} %", f64::from(ppm) / 1e4),
                _ => String::new(),
            };
            let trouble = self.trouble.as_ref().map_or(String::new(), |trouble| format!("; {trouble}"));
            self.tell(&format!("{} ({}{busy}){trouble}", now.frequency, because(self.reason)));
        }
    }

    fn acted(&mut self, acted: &Acted<InForce>) {
        let trouble = match acted {
            Acted::InForce | Acted::Later { .. } => None,
            Acted::Rounded { now, why } => {
                why.as_ref().map(|why| format!("the frequency is {} instead: {why}", now.frequency))
            }
            Acted::Ignored { why } => Some(why.clone().unwrap_or_else(|| "the request had no effect".into())),
            Acted::Refused { why } => Some(format!("refused: {}", why.replace('\n', "; "))),
            Acted::Away(away) => Some(away.to_string()),
            Acted::Lost(lost) => Some(lost.to_string()),
        };
        self.is_refused = matches!(acted, Acted::Refused { .. });
        if let (true, Some(text)) = (self.is_refused, &trouble) {
            self.say(text);
        }
        self.trouble = trouble;
    }

    /// Prints a problem, unless it was the last one printed.
    fn say(&mut self, why: &str) {
        if self.said.as_deref() != Some(why) {
            self.tell(why);
            self.said = Some(why.to_owned());
        }
    }

    /// Forgets problems that are over: the load can be read again, or the frequency is in force by now, because the
    /// firmware allows it again or another CPU of the domain requested it.
    fn forget(&mut self, is_read: bool) {
        if is_read {
            self.blind = None;
        }
        if self.trouble.is_some() && self.hand().in_force().frequency == self.machine.controller().wish() {
            (self.trouble, self.is_refused) = (None, false);
        }
    }
}

/// Judges a latency goal. It counts as met only after enough packets: if the true share of late packets were the
/// allowed share, the probability of seeing none late must be at most 2.5 %.
fn verdict(judged: u64, late: u64, allowed_ppm: u32) -> Verdict {
    const BY_CHANCE: f64 = 0.025;
    let share = f64::from(allowed_ppm) / 1e6;
    let least = (BY_CHANCE.ln() / (1.0 - share).ln()).ceil();
    let all = judged as f64;
    match late as f64 > share * all.max(least) {
        true => Verdict::Missed,
        false if all < least => Verdict::Unmeasured,
        false => Verdict::Held,
    }
}

/// The reason for a decision, in words.
pub(super) fn because(reason: Reason) -> &'static str {
    match reason {
        Reason::Begin => "initial setting",
        Reason::Blind => "load not readable: highest frequency",
        Reason::Unsure(why) => match why {
            Unsure::Learning => "cost of a packet not learned yet: highest frequency",
            Unsure::Loss => "packets were lost: highest frequency",
            Unsure::Unlike => "counters match neither idle nor load: highest frequency",
            Unsure::Indistinct => "counters look the same idle and under load: highest frequency",
            Unsure::Uncounted => "counters in use elsewhere: highest frequency",
            Unsure::Silent => "no report of the load: highest frequency",
        },
        Reason::Policy(reason) => match reason {
            PolicyReason::Fixed => "fixed",
            PolicyReason::TimeOfDay => "time of day",
            PolicyReason::Traffic => "packets arrive",
            PolicyReason::Idle => "idle",
            PolicyReason::Measuring => "measuring",
            PolicyReason::Steady => "frequency fits the load",
            PolicyReason::Load => "load has risen",
            PolicyReason::Saturated => "busy all the time: highest frequency",
            PolicyReason::LessLoad => "load has fallen",
            PolicyReason::Late => "too many packets were late",
            PolicyReason::GoalTooTight => "packets are late even at the highest frequency",
            PolicyReason::Unsure => "load uncertain: highest frequency",
            PolicyReason::NotWorthIt => "a lower frequency would not be worth the stall of changing",
        },
    }
}

impl Poll<Monotonic> for Core {
    fn poll(&mut self, now: Instant<Monotonic>) {
        let step = self.machine.poll(now);
        self.notice_need();
        match step {
            Step::NotDue => return,
            Step::Kept { reason: Reason::Policy(PolicyReason::Measuring) } => self.forget(true),
            Step::Kept { reason } => {
                self.reason = reason;
                self.forget(true);
            }
            Step::Applied { reason, acted, .. } => {
                self.reason = reason;
                self.acted(&acted);
            }
            Step::Arrived { acted, .. } => self.acted(&acted),
            Step::Blind { why } => {
                let why = format!("cannot read its load: {why}");
                self.say(&why);
                self.blind = Some(why);
                self.forget(false);
            }
            Step::Away(why) => {
                let why = why.to_string();
                self.say(&why);
                self.trouble = Some(why);
            }
            Step::Lost(lost) => {
                self.tell(&format!("no longer controlled: {lost}"));
                return;
            }
        }
        self.tell_changes();
    }

    fn poll_at(&self) -> Option<Instant<Monotonic>> {
        self.machine.poll_at()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_held_by_enough_packets_only() {
        let of = |judged, late| verdict(judged, late, 10_000);
        assert_eq!((of(367, 0), of(368, 0)), (Verdict::Unmeasured, Verdict::Held));
        assert_eq!((of(1_000, 10), of(1_000, 11)), (Verdict::Held, Verdict::Missed));
        assert_eq!((of(0, 0), of(10, 10)), (Verdict::Unmeasured, Verdict::Missed));
    }
}
