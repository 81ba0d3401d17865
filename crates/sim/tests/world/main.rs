//! The world as a whole: one program, so that it is linked once.

/// What a clairvoyant would draw, no mode that holds the goal draws less than.
mod bound;
/// Where queueing theory has a closed form, the world gives it.
mod closed_forms;
/// What Apus does against what others do, on named machines.
mod goals;
/// A hold-off lets one wake-up serve several packets, where that saves something.
mod hold_off;
/// A limit of the idle states takes less power where the goal is tighter than the deepest of them.
mod idle_limit;
/// Where a result can be computed by hand, the world gives that result.
mod known;
/// No more packets are late than the goal allows: in the long run, at first, after a change.
mod late;
/// Machines with odd values, such as no state but POLL or long stalls: the bound holds there, too.
mod odd;
/// What two papers did can be done here: threads that share a queue, governors, NAPI's modes; and DIM's own tables.
mod papers;
/// Scenarios made at random: nothing panics, nothing is lost, time and energy add up.
mod random;
/// The same scenario and seed give the same result, on any number of threads; one of each kind of
/// traffic is pinned.
mod same;
/// What simulating takes goes by the frames, not by the cores.
mod scale;
/// What the tests share.
mod support;
