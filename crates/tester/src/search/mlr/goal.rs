//! The goals of MLRsearch (RFC 9971, 4.6.7), and three predefined sets of them.

use units::Nanos;

use crate::Error;

/// One search goal of MLRsearch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Goal {
    /// Goal Loss Ratio in ppm: a trial that loses at most this share of its frames is a low-loss trial.
    pub loss_ratio_ppm: u32,
    /// Goal Exceed Ratio in ppm, below 100 %: share of the time of trials at a lower bound that high-loss trials may
    /// take.
    pub exceed_ratio_ppm: u32,
    /// Goal Width in ppm of the upper bound: the goal is reached when the relevant bounds are this close.
    pub width_ppm: u32,
    /// Goal Initial Trial Duration: duration of the first, shortest trials.
    pub initial_trial: Nanos,
    /// Goal Final Trial Duration: trials at least this long are full-length trials.
    pub final_trial: Nanos,
    /// Goal Duration Sum: total time of full-length trials that is needed to classify a load.
    pub duration_sum: Nanos,
}

units::named! {
    /// A predefined set of goals.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Preset {
        /// One trial of 60 s without loss, as RFC 2544 requires (RFC 9971, 4.9.1).
        Rfc2544 = "rfc2544",
        /// Two trials of 60 s, one of which may lose frames, as ETSI GS NFV-TST 009 requires (RFC 9971, 4.9.2).
        Tst009 = "tst009",
        /// The two goals of the FD.io CSIT project: no loss (NDR) and 0.5 % loss (PDR). Each needs 21 trials of 1 s, of
        /// which up to half may fail.
        Csit = "csit",
    }
}

impl Goal {
    /// The throughput of RFC 2544 as a goal. The first, shortest trials take only 1 s.
    pub const RFC2544: Self = Self {
        loss_ratio_ppm: 0,
        exceed_ratio_ppm: 0,
        width_ppm: 5_000,
        initial_trial: Nanos::from_secs(1),
        final_trial: Nanos::from_secs(60),
        duration_sum: Nanos::from_secs(60),
    };
    /// The binary search with loss verification of ETSI GS NFV-TST 009 as a goal.
    pub const TST009: Self = Self { exceed_ratio_ppm: 500_000, duration_sum: Nanos::from_secs(120), ..Self::RFC2544 };
    /// The no-drop rate (NDR) of FD.io CSIT.
    pub const CSIT_NDR: Self = Self {
        exceed_ratio_ppm: 500_000,
        final_trial: Nanos::from_secs(1),
        duration_sum: Nanos::from_secs(21),
        ..Self::RFC2544
    };
    /// The partial-drop rate (PDR) of FD.io CSIT: 0.5 % loss.
    pub const CSIT_PDR: Self = Self { loss_ratio_ppm: 5_000, ..Self::CSIT_NDR };

    /// Checks the restrictions of RFC 9971. The error says what is expected.
    pub fn check(&self) -> Result<(), Error> {
        let wrong = |expected: &str| Err(Error::invalid(format!("goal {}", self.code()), expected));
        if self.loss_ratio_ppm >= 1_000_000 || self.exceed_ratio_ppm >= 1_000_000 {
            return wrong("expected a loss ratio and an exceed ratio below 100 %");
        }
        if !(1..1_000_000).contains(&self.width_ppm) {
            return wrong("expected a width above 0 and below 100 %");
        }
        if self.initial_trial == Nanos::ZERO || self.initial_trial > self.final_trial {
            return wrong("expected an initial trial longer than 0 and at most as long as the final trial");
        }
        if self.duration_sum < self.final_trial {
            return wrong("expected a duration sum of at least one final trial");
        }
        Ok(())
    }

    /// The goal in the form of RFC 9971, A.1, such as `60f120d0l50e`: final trial duration (60 s), duration sum (120
    /// s), loss ratio (0 %) and exceed ratio (50 %).
    pub fn code(&self) -> String {
        let seconds = |span: Nanos| span.as_nanos() as f64 / 1e9;
        let percent = |ppm: u32| f64::from(ppm) / 1e4;
        format!(
            "{}f{}d{}l{}e",
            seconds(self.final_trial),
            seconds(self.duration_sum),
            percent(self.loss_ratio_ppm),
            percent(self.exceed_ratio_ppm)
        )
    }
}

impl Preset {
    /// The goals of the preset.
    pub fn goals(self) -> Vec<Goal> {
        match self {
            Self::Rfc2544 => vec![Goal::RFC2544],
            Self::Tst009 => vec![Goal::TST009],
            Self::Csit => vec![Goal::CSIT_NDR, Goal::CSIT_PDR],
        }
    }
}
