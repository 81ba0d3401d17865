//! Records a policy's observations and decisions, and replays them.
//!
//! [`Recording`] wraps any policy. It writes into memory that was reserved at the start, so recording allocates nothing
//! and never blocks the loop. When the memory is full, it stops recording and counts the decisions that it leaves out.
//! The file contains JSON lines: a header with the policy's settings, then one line per decision. [`replay`] passes the
//! observations to a fresh policy and compares the decisions. The decisions must be equal, because a policy depends
//! only on its observations. Each line also contains what the policy expected of its choice ([`Belief`]), for people to
//! read; [`replay`] does not compare it.

mod account;

use std::io::{self, BufRead, Write};

use policy::wait::{
    Action, Arrivals, Belief, Decision, Ended, IdleState, Observation, Queue, Reason, Sent, WaitPolicy, WakeCosts,
};
use serde::{Deserialize, Deserializer, Serialize};
use units::{Instant, Monotonic, Nanos};

pub use account::{Account, Came, NoAccount};

use crate::Error;
use crate::mode::{CostsText, ModeText};

/// Maximum number of queues of a worker whose decisions are recorded. [`Recording`] leaves out observations of more
/// queues, and an instance with such a worker does not start.
pub const MOST_QUEUES: usize = 8;

/// Wraps the policy `P` and records its observations and decisions.
#[derive(Debug)]
pub struct Recording<P> {
    inner: P,
    entries: Vec<Entry>,
    left_out: u64,
    /// The hold-off in force when the policy was last asked for another one, until its next decision.
    asked: Option<Nanos>,
    /// The same of the limit of the exit latency.
    limited: Option<Nanos>,
}

/// What a recorded policy knew at the start, besides its mode.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known<'a> {
    /// The costs from which it started. `None` if it learned them.
    pub costs: Option<&'a WakeCosts>,
    /// The longest hold-off that it could choose. `None` if it chose none.
    pub longest_hold_off: Option<Nanos>,
    /// The idle states of its CPU. `None` if it did not choose how deep the CPU may idle.
    pub idle_states: Option<&'a [IdleState]>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    now: Instant<Monotonic>,
    ended: Option<Ended<Monotonic>>,
    queues: [Queue<Monotonic>; MOST_QUEUES],
    count: u8,
    decision: Decision<Monotonic>,
    belief: Option<Belief>,
    asked: Option<Nanos>,
    limited: Option<Nanos>,
}

impl<P> Recording<P> {
    /// Records the first `limit` decisions of the policy `inner`.
    pub fn new(inner: P, limit: usize) -> Self {
        Self { inner, entries: Vec::with_capacity(limit), left_out: 0, asked: None, limited: None }
    }

    /// Writes the recording. [`replay`] creates its policy from `mode` and `known`.
    pub fn write(&self, mode: &ModeText, known: &Known<'_>, out: &mut impl Write) -> io::Result<()> {
        let header = Header {
            schema: SCHEMA.into(),
            mode: mode.clone(),
            costs: known.costs.map(CostsText::from),
            longest_hold_off_ns: known.longest_hold_off.map(Nanos::as_nanos),
            idle_states: known.idle_states.map(|states| states.iter().map(IdleStateText::from).collect()),
            decisions: self.entries.len() as u64,
            left_out: self.left_out,
        };
        serde_json::to_writer(&mut *out, &header)?;
        for entry in &self.entries {
            out.write_all(b"\n")?;
            serde_json::to_writer(&mut *out, &Line::from(entry))?;
        }
        out.write_all(b"\n")?;
        out.flush()
    }
}

impl<P: WaitPolicy<Monotonic>> WaitPolicy<Monotonic> for Recording<P> {
    fn decide(&mut self, seen: &Observation<'_, Monotonic>) -> Decision<Monotonic> {
        let decision = self.inner.decide(seen);
        let (asked, limited) = (self.asked.take(), self.limited.take());
        if self.entries.len() == self.entries.capacity() || seen.queues.len() > MOST_QUEUES {
            self.left_out += 1;
            return decision;
        }
        let nothing = Queue { received: 0, fill: 0, arrivals: None };
        let mut queues = [nothing; MOST_QUEUES];
        queues[..seen.queues.len()].copy_from_slice(seen.queues);
        let count = seen.queues.len() as u8;
        let belief = self.inner.belief();
        let (now, ended) = (seen.now, seen.ended);
        self.entries.push(Entry { now, ended, queues, count, decision, belief, asked, limited });
        decision
    }

    fn belief(&self) -> Option<Belief> {
        self.inner.belief()
    }

    fn hold_off(&mut self, now: Instant<Monotonic>, in_force: Nanos) -> Nanos {
        self.asked = Some(in_force);
        self.inner.hold_off(now, in_force)
    }

    #[inline]
    fn limit_idle_is_due(&self, now: Instant<Monotonic>) -> bool {
        self.inner.limit_idle_is_due(now)
    }

    fn limit_idle(&mut self, now: Instant<Monotonic>, in_force: Nanos) -> Nanos {
        self.limited = Some(in_force);
        self.inner.limit_idle(now, in_force)
    }
}

/// The result of [`replay`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replay {
    /// The mode of the recorded policy.
    pub mode: ModeText,
    /// Number of decisions compared.
    pub decisions: u64,
    /// Number of decisions that the recorded worker made but that are not in the file.
    pub left_out: u64,
    /// The first difference: the number of the line (from 1), the decision in the file, and the replayed decision. Each
    /// decision is followed by the policy's expectations if they are known. `None` if all decisions are equal.
    pub first_difference: Option<(u64, String, String)>,
    /// Arrivals and costs of the recorded run, up to the line in `first_difference`. An error says why they are not in
    /// the file.
    pub account: Result<Account, NoAccount>,
}

/// Replays a recorded file with a fresh policy that has the same settings.
pub fn replay(input: impl BufRead, name: &str) -> Result<Replay, Error> {
    let bad = |line: u64, why: String| Error::Invalid { what: format!("{name}, line {line}"), why };
    let mut lines = input.lines();
    let first = lines.next().ok_or_else(|| bad(1, "the file is empty; record one with apus run --record".into()))?;
    let first = first.map_err(|e| bad(1, e.to_string()))?;
    let header: Header = serde_json::from_str(&first).map_err(|e| bad(1, e.to_string()))?;
    if header.schema != SCHEMA {
        return Err(bad(1, format!("the schema is {:?}, but this program reads {SCHEMA:?}", header.schema)));
    }
    let mut policy = header.mode.parse()?.policy::<Monotonic>();
    if let Some(costs) = &header.costs {
        policy.know(&costs.parse()?);
    }
    if let Some(longest) = header.longest_hold_off_ns {
        policy.expect_held_frames(Nanos::from_nanos(longest));
    }
    if let Some(states) = &header.idle_states {
        /// An idle state has its times in an unsigned int of microseconds (Linux, include/linux/cpuidle.h).
        const LONGEST_NS: u64 = u32::MAX as u64 * 1_000;
        if states.iter().any(|state| state.exit_ns.max(state.residency_ns) > LONGEST_NS) {
            return Err(bad(1, "an idle state has a time above 4294967295 us; record again".into()));
        }
        policy.know_idle_states(&states.iter().map(IdleStateText::state).collect::<Vec<_>>());
    }
    let (mut decisions, mut first_difference) = (0, None);
    let mut sum = account::Sum::default();
    let mut before = 0;
    for (number, text) in (2..).zip(lines) {
        let text = text.map_err(|e| bad(number, e.to_string()))?;
        let line: Line = serde_json::from_str(&text).map_err(|e| bad(number, e.to_string()))?;
        line.check(before).map_err(|why| bad(number, format!("{why}; the file is damaged, record again")))?;
        before = line.now_ns;
        let queues: Vec<_> = line.queues.iter().map(QueueLine::queue).collect();
        let seen = Observation {
            now: Instant::from_nanos(line.now_ns),
            queues: &queues,
            ended: line.ended.as_ref().map(EndedLine::ended),
        };
        sum.see(&seen);
        if let Some(in_force) = line.hold_off_ns {
            policy.hold_off(seen.now, Nanos::from_nanos(in_force));
        }
        if let Some(in_force) = line.idle_limit_ns {
            policy.limit_idle(seen.now, in_force.map_or(Nanos::MAX, Nanos::from_nanos));
        }
        let said = DecisionLine::from(policy.decide(&seen));
        decisions += 1;
        if said != line.decision {
            let belief = policy.belief().as_ref().map(BeliefText::from);
            first_difference = Some((number, shown(&line.decision, line.belief), shown(&said, belief)));
            break;
        }
    }
    if first_difference.is_none() && decisions != header.decisions {
        let why = format!(
            "it announces {} decisions, but the file has {decisions}; the file is incomplete, record again",
            header.decisions
        );
        return Err(bad(1, why));
    }
    Ok(Replay { mode: header.mode, decisions, left_out: header.left_out, first_difference, account: sum.finish() })
}

fn shown(decision: &DecisionLine, belief: Option<BeliefText>) -> String {
    let by = belief.and_then(|belief| serde_json::to_string(&belief).ok());
    format!("{decision:?}{}", by.map_or_else(String::new, |by| format!(" by {by}")))
}

const SCHEMA: &str = "apus.record/1";

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    schema: String,
    mode: ModeText,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    costs: Option<CostsText>,
    /// The longest hold-off that the policy could choose. Absent if it chose none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    longest_hold_off_ns: Option<u64>,
    /// The idle states of the worker's CPU, the shallowest first. Absent if the policy did not choose among them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    idle_states: Option<Vec<IdleStateText>>,
    decisions: u64,
    left_out: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct IdleStateText {
    exit_ns: u64,
    residency_ns: u64,
}

impl From<&IdleState> for IdleStateText {
    fn from(state: &IdleState) -> Self {
        Self { exit_ns: state.exit.as_nanos(), residency_ns: state.residency.as_nanos() }
    }
}

impl IdleStateText {
    fn state(&self) -> IdleState {
        IdleState { exit: Nanos::from_nanos(self.exit_ns), residency: Nanos::from_nanos(self.residency_ns) }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    now_ns: u64,
    /// The hold-off in force, if the policy was asked for another one just before this decision.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    hold_off_ns: Option<u64>,
    /// The limit of the exit latency in force, if the policy was asked for another one just before this decision. `null`
    /// if there was no limit.
    #[serde(skip_serializing_if = "Option::is_none", default, deserialize_with = "present")]
    idle_limit_ns: Option<Option<u64>>,
    queues: Vec<QueueLine>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    ended: Option<EndedLine>,
    decision: DecisionLine,
    /// What the policy expected of the decision. This is for people to read: a replay computes it again. Old files do
    /// not contain it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    belief: Option<BeliefText>,
}

/// Tells a key with the value `null` from a missing one.
fn present<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Option<u64>>, D::Error> {
    Option::deserialize(value).map(Some)
}

impl Line {
    /// Fails if the line has times that cannot be. `before` is the time of the decision before it. The time of a
    /// pick-up is not compared with the arrivals, because a device's stamp may be later.
    fn check(&self, before: u64) -> Result<(), String> {
        let in_order = |what: &str, earlier: u64, later: u64| {
            (earlier <= later)
                .then_some(())
                .ok_or_else(|| format!("time goes back from {earlier} to {later} ns {what}"))
        };
        in_order("between two decisions", before, self.now_ns)?;
        if let Some(ended) = &self.ended {
            in_order("during the wait", ended.began_ns, ended.ended_ns)?;
            in_order("between the end of the wait and the decision", ended.ended_ns, self.now_ns)?;
        }
        let mut arrivals =
            self.queues.iter().filter_map(|queue| queue.arrivals.as_ref()).map(|a| (a.first_ns, a.last_ns));
        arrivals.try_for_each(|(first, last)| in_order("between two arrivals", first, last))?;
        let mut sent = self.queues.iter().filter_map(|queue| queue.arrivals.as_ref()?.sent.as_ref());
        sent.try_for_each(|sent| in_order("between two departures", sent.first_ns, sent.last_ns))
    }
}

/// [`Belief`] as it is written to a recording: the field names contain the units.
#[derive(Serialize, Deserialize)]
struct BeliefText {
    wait_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    price_ns_per_packet: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    core_ppm: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    expected_late_ppm: Option<u64>,
    aimed_late_ppm: u32,
    owed_thousandths: u64,
    multiplier_thousandths: u64,
}

impl From<&Belief> for BeliefText {
    fn from(belief: &Belief) -> Self {
        Self {
            wait_ns: belief.wait.as_nanos(),
            price_ns_per_packet: belief.price().map(Nanos::as_nanos),
            core_ppm: belief.core_ppm(),
            expected_late_ppm: belief.expected_late_ppm(),
            aimed_late_ppm: belief.aimed_ppm,
            owed_thousandths: belief.owed_millionths / 1_000,
            multiplier_thousandths: belief.multiplier_256ths.saturating_mul(1_000) / 256,
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct QueueLine {
    received: u32,
    fill: u32,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    arrivals: Option<ArrivalsLine>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ArrivalsLine {
    first_ns: u64,
    last_ns: u64,
    picked_up_ns: u64,
    /// Whether the device stamped the arrivals. True if the file does not say.
    #[serde(skip_serializing_if = "is_true", default = "yes")]
    stamped: bool,
    /// How much of the time since `first_ns` a hold-off has taken. Absent if the policy chose no hold-off.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    held_ns: Option<u64>,
    /// When the frames left one after another. Absent if all of them left at the time of the decision.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    sent: Option<SentLine>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SentLine {
    first_ns: u64,
    last_ns: u64,
}

fn yes() -> bool {
    true
}

fn is_true(stamped: &bool) -> bool {
    *stamped
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EndedLine {
    action: ActionLine,
    began_ns: u64,
    ended_ns: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    spent_ns: Option<u64>,
}

#[derive(Serialize, Deserialize, PartialEq, Debug)]
#[serde(deny_unknown_fields)]
struct DecisionLine {
    action: ActionLine,
    reason: String,
}

#[derive(Serialize, Deserialize, PartialEq, Debug)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum ActionLine {
    Poll,
    Pause { span_ns: u64 },
    Sleep { until_ns: u64 },
    Block { until_ns: Option<u64> },
}

impl From<&Entry> for Line {
    fn from(entry: &Entry) -> Self {
        Self {
            now_ns: entry.now.as_nanos(),
            hold_off_ns: entry.asked.map(Nanos::as_nanos),
            idle_limit_ns: entry.limited.map(|limit| (limit != Nanos::MAX).then(|| limit.as_nanos())),
            queues: entry.queues[..usize::from(entry.count)].iter().map(QueueLine::from).collect(),
            ended: entry.ended.map(|wait| EndedLine {
                action: wait.action.into(),
                began_ns: wait.began.as_nanos(),
                ended_ns: wait.ended.as_nanos(),
                spent_ns: wait.spent.map(Nanos::as_nanos),
            }),
            decision: entry.decision.into(),
            belief: entry.belief.as_ref().map(BeliefText::from),
        }
    }
}

impl From<&Queue<Monotonic>> for QueueLine {
    fn from(queue: &Queue<Monotonic>) -> Self {
        Self {
            received: queue.received,
            fill: queue.fill,
            arrivals: queue.arrivals.map(|a| ArrivalsLine {
                first_ns: a.first.as_nanos(),
                last_ns: a.last.as_nanos(),
                picked_up_ns: a.picked_up.as_nanos(),
                stamped: a.stamped,
                held_ns: a.held.map(Nanos::as_nanos),
                sent: a.sent.map(|sent| SentLine { first_ns: sent.first.as_nanos(), last_ns: sent.last.as_nanos() }),
            }),
        }
    }
}

impl QueueLine {
    fn queue(&self) -> Queue<Monotonic> {
        let at = Instant::from_nanos;
        Queue {
            received: self.received,
            fill: self.fill,
            arrivals: self.arrivals.as_ref().map(|a| Arrivals {
                first: at(a.first_ns),
                last: at(a.last_ns),
                picked_up: at(a.picked_up_ns),
                stamped: a.stamped,
                held: a.held_ns.map(Nanos::from_nanos),
                sent: a.sent.as_ref().map(|sent| Sent { first: at(sent.first_ns), last: at(sent.last_ns) }),
            }),
        }
    }
}

impl EndedLine {
    fn ended(&self) -> Ended<Monotonic> {
        Ended {
            action: self.action.action(),
            began: Instant::from_nanos(self.began_ns),
            ended: Instant::from_nanos(self.ended_ns),
            spent: self.spent_ns.map(Nanos::from_nanos),
            // The live loop measures the CPU time but no idle time.
            idle: Nanos::ZERO,
        }
    }
}

impl From<Action<Monotonic>> for ActionLine {
    fn from(action: Action<Monotonic>) -> Self {
        match action {
            Action::Poll => Self::Poll,
            Action::Pause(span) => Self::Pause { span_ns: span.as_nanos() },
            Action::SleepUntil(until) => Self::Sleep { until_ns: until.as_nanos() },
            Action::BlockUntil(until) => Self::Block { until_ns: until.map(Instant::as_nanos) },
        }
    }
}

impl ActionLine {
    fn action(&self) -> Action<Monotonic> {
        match *self {
            Self::Poll => Action::Poll,
            Self::Pause { span_ns } => Action::Pause(Nanos::from_nanos(span_ns)),
            Self::Sleep { until_ns } => Action::SleepUntil(Instant::from_nanos(until_ns)),
            Self::Block { until_ns } => Action::BlockUntil(until_ns.map(Instant::from_nanos)),
        }
    }
}

impl From<Decision<Monotonic>> for DecisionLine {
    fn from(decision: Decision<Monotonic>) -> Self {
        let reason: Reason = decision.reason;
        Self { action: decision.action.into(), reason: reason.name().into() }
    }
}
