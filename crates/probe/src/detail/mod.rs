//! The results of each probe that are not distributions. They have a separate module because `measured` contains them
//! and all probes use `measured`.

pub mod clock;
pub mod frequency;
pub mod idle;
pub mod import;
pub mod interrupt;
pub mod jitter;
pub mod switch;
pub mod timer;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use clock::ClockDetail;
use frequency::FrequencyDetail;
use idle::IdleDetail;
use import::ImportDetail;
use interrupt::InterruptDetail;
use jitter::JitterDetail;
use switch::SwitchDetail;
use timer::TimerDetail;

/// Results of one probe that are not distributions.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Detail {
    /// Details of the probe `timer`.
    Timer(TimerDetail),
    /// Details of the probe `jitter`.
    Jitter(JitterDetail),
    /// Details of the probe `switch`.
    Switch(SwitchDetail),
    /// Details of the probe `interrupt`.
    Interrupt(InterruptDetail),
    /// Details of the probe `idle`.
    Idle(IdleDetail),
    /// Details of the probe `frequency`.
    Frequency(FrequencyDetail),
    /// Details of the probe `clock`.
    Clock(ClockDetail),
    /// Details of a result measured by another tool.
    Imported(ImportDetail),
}
