//! Runs the trials of all tests for one frame size, with their pauses, and sums up their counts.

use units::Nanos;

use super::effort::{Effort, Test};
use super::result::{TesterQuality, TrialRow};
use super::{Anomalies, LATE, Measurer, Observed, Offer, TesterSide};
use crate::Error;
use crate::document::Name;
use crate::host::Reading;
use crate::sizes::Sizes;

/// Rate of the learning frames, and the time for which they are sent. This gives 10 frames, enough for a switch or a
/// router to learn both sides. RFC 2544, 23 b and c.
const LEARNING_PPS: u64 = 100;
pub const LEARNING: Nanos = Nanos::from_millis(100);
/// Share of unsent frames, in ppm, above which a warning says that the tester is overloaded.
const OVERLOADED_PPM: u64 = 1_000;
/// Number of times that a trial is run until the tester does not disturb it.
const ATTEMPTS: u32 = 3;

/// Why a procedure stopped before its end.
#[derive(Debug)]
pub enum Halt {
    /// The user asked to stop.
    Interrupted,
    /// A trial failed, for example because a port disappeared.
    Failed(Error),
}

impl std::fmt::Display for Halt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Interrupted => f.write_str("interrupted by the user"),
            Self::Failed(error) => write!(f, "a trial failed: {error}"),
        }
    }
}

/// Runs the trials of one frame size.
pub struct Bench<'m, M: Measurer + ?Sized> {
    pub measurer: &'m mut M,
    pub effort: Effort,
    pub sizes: Sizes,
    pub anomalies: Anomalies,
    pub tester: TesterSide,
    pub trials: Vec<TrialRow>,
    /// Warnings that individual tests add.
    pub notes: Vec<String>,
    sent: u64,
    unsent: u64,
    disturbed: u64,
    repeated: u64,
}

impl<'m, M: Measurer + ?Sized> Bench<'m, M> {
    pub fn new(measurer: &'m mut M, effort: Effort, sizes: Sizes) -> Self {
        let (anomalies, tester) = (Anomalies::default(), TesterSide::default());
        let (trials, notes) = (Vec::new(), Vec::new());
        let [sent, unsent, disturbed, repeated] = [0; 4];
        Self { measurer, effort, sizes, anomalies, tester, trials, notes, sent, unsent, disturbed, repeated }
    }

    /// Builds a trial at a constant rate, with the frame sizes of this bench and its wait for the last frames.
    pub fn constant(&self, rate_pps: u64, duration: Nanos) -> Offer {
        Offer::constant(&self.sizes, rate_pps, duration, self.effort.residue)
    }

    /// Measures the highest rate at which the tester can send.
    pub fn ceiling(&mut self, span: Nanos) -> Result<u64, Halt> {
        let ceiling = self.measurer.ceiling(&self.sizes, span).map_err(Halt::Failed)?;
        // A measurement that was cut short says nothing about the tester.
        self.check()?;
        Ok(ceiling)
    }

    /// Runs a trial, and repeats it if it says nothing about the device: if it was disturbed, or if it is a burst that
    /// the tester did not send completely. The last attempt counts, even if it is one of these.
    pub fn run(&mut self, test: Test, offer: &Offer) -> Result<Observed, Halt> {
        for _ in 1..ATTEMPTS {
            let seen = self.once(test, offer)?;
            let disturbed = seen.is_disturbed();
            let incomplete = test == Test::BackToBack && seen.outcome.unsent > 0;
            if !disturbed && !incomplete {
                return Ok(seen);
            }
            self.repeated += u64::from(disturbed);
        }
        self.once(test, offer)
    }

    /// Runs a trial with the pauses of RFC 2544, 23: learning frames, pause, trial and wait for its last frames, pause.
    pub fn once(&mut self, test: Test, offer: &Offer) -> Result<Observed, Halt> {
        self.learn()?;
        let seen = self.go_on(test, offer)?;
        if seen.interrupted {
            return Err(Halt::Interrupted);
        }
        self.measurer.wait(self.effort.between);
        Ok(seen)
    }

    /// Sends learning frames, and waits.
    pub fn learn(&mut self) -> Result<(), Halt> {
        self.check()?;
        let learning = Offer::constant(&self.sizes, LEARNING_PPS, LEARNING, Nanos::ZERO);
        self.measurer.trial(&learning).map_err(Halt::Failed)?;
        self.measurer.wait(self.effort.after_learning);
        Ok(())
    }

    /// Runs a trial without learning frames and without a pause after it. Returns what was measured even if the user
    /// stopped the trial.
    pub fn go_on(&mut self, test: Test, offer: &Offer) -> Result<Observed, Halt> {
        self.check()?;
        let seen = self.measurer.trial(offer).map_err(Halt::Failed)?;
        self.keep(test, offer, &seen);
        Ok(seen)
    }

    fn check(&self) -> Result<(), Halt> {
        if self.measurer.stopped() { Err(Halt::Interrupted) } else { Ok(()) }
    }

    fn keep(&mut self, test: Test, offer: &Offer, seen: &Observed) {
        self.anomalies.add(&seen.anomalies);
        let (sum, tester) = (&mut self.tester, &seen.tester);
        sum.pacing.add(&tester.pacing);
        sum.busy += tester.busy;
        sum.sent += tester.sent;
        sum.idle += tester.idle;
        sum.idle_rounds += tester.idle_rounds;
        sum.own_losses += tester.own_losses;
        sum.link_down_seen += tester.link_down_seen;
        self.sent += seen.outcome.sent;
        self.unsent += seen.outcome.unsent;
        let disturbed = seen.is_disturbed();
        self.disturbed += u64::from(disturbed);
        self.notes.extend(seen.reset_note.clone());
        self.trials.push(TrialRow {
            test: Name::of(&test),
            load_pps: offer.phases.first().map_or(0, |phase| phase.rate_pps),
            duration_ns: offer.span().as_nanos(),
            sent: seen.outcome.sent,
            lost: seen.outcome.lost,
            unsent: seen.outcome.unsent,
            anomalies: seen.anomalies.into(),
            disturbed,
        });
    }

    /// Quality of the tester's own work, such as its pacing error.
    pub fn quality(&self) -> TesterQuality {
        let tester = &self.tester;
        let per = |time: Nanos, count: u64| (count > 0).then(|| time.as_nanos() as f64 / count as f64);
        TesterQuality {
            pacing: (&tester.pacing).into(),
            stamp_error_ns: Reading::or_unknown(per(tester.idle, tester.idle_rounds), "the loop was never idle"),
            cost_per_frame_ns: Reading::or_unknown(per(tester.busy, tester.sent), "no frame was sent"),
            own_losses: tester.own_losses,
            link_down_seen: tester.link_down_seen,
            disturbed_trials: self.disturbed,
            repeated_trials: self.repeated,
            stamps: "software".into(),
        }
    }

    /// Problems of the trials so far, each with its remedy. `trials` is what the procedure calls them.
    pub fn warnings(&self, trials: &str) -> Vec<String> {
        let mut found = warnings(&self.anomalies, &self.tester, self.sent, self.unsent);
        let why = format!(
            "lost frames while the tester sent overdue frames in a burst, more than {LATE} late; give the tester \
             an isolated CPU (--cpu, --fifo)"
        );
        let (repeated, left) = (self.repeated, self.disturbed - self.repeated);
        if repeated > 0 {
            found.push(format!("{repeated} {trials} were repeated, because the device {why}"));
        }
        if left > 0 {
            found.push(format!("{left} {trials} say nothing about the device, which {why}"));
        }
        found.extend(self.notes.iter().cloned());
        found
    }
}

/// One warning for each kind of anomaly in the received frames, and for each failure of the tester itself.
fn warnings(anomalies: &Anomalies, tester: &TesterSide, sent: u64, unsent: u64) -> Vec<String> {
    let mut found = Vec::new();
    let mut say = |count: u64, text: &str| {
        if count > 0 {
            found.push(format!("{count} {text}"));
        }
    };
    say(anomalies.duplicates, "frames came back more than once: the device duplicates frames; the copies do not count");
    say(
        anomalies.reordered,
        "frames overtook others of their flow: the device reorders frames; those that came late count as lost",
    );
    say(
        anomalies.corrupted,
        "frames came back damaged: the device or a cable corrupts frames (see ethtool -S); they count as lost",
    );
    say(
        anomalies.looped,
        "frames came back to the port that sent them: the device or a switch sends them back; they count as lost",
    );
    say(tester.own_losses, "frames came back, but the tester's own ports lost them: the tester is overloaded here");
    say(
        tester.link_down_seen,
        "times a link was found down: check the cables, and whether something restarts the device",
    );
    if u128::from(unsent) * 1_000_000 > u128::from(sent + unsent) * u128::from(OVERLOADED_PPM) {
        let share = 100.0 * unsent as f64 / (sent + unsent) as f64;
        found.push(format!(
            "the tester did not send {share:.2} % of the frames: it is overloaded at the highest loads; give it an \
             isolated CPU (--cpu, --fifo), or lower --max-rate"
        ));
    }
    found
}
