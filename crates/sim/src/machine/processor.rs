//! The section `[processor]` of a machine's file.

use serde::Deserialize;
use units::{Hertz, Nanos};

use super::sourced::{Quantity, Sourced, SourcedCycles, SourcedSpread};
use super::{Disturbance, Processor, WorkModel};
use crate::hw::ModelError;
use crate::hw::aspm::AspmModel;
use crate::hw::cstate::{CStateModel, Gate, IdleState};
use crate::hw::governor::HaltPollModel;
use crate::hw::interrupt::DeliveryModel;
use crate::hw::power::{PowerModel, UncorePoint, VoltagePoint};
use crate::hw::pstate::PStateModel;
use crate::hw::scheduler::{BackgroundModel, ThrottleModel};
use crate::hw::timer::TimerModel;
use crate::hw::vcpu::VcpuModel;
use crate::units_text::{Microvolts, Power, Text};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Section {
    base: Quantity<Hertz>,
    pstates: PStates,
    idle: Vec<Idle>,
    delivery: Delivery,
    timer: Timer,
    scheduler: Scheduler,
    vcpu: Vcpu,
    aspm: Aspm,
    power: PowerSection,
    work: Work,
    disturbance: DisturbanceSection,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PStates {
    period: Quantity<Nanos>,
    block: Quantity<Nanos>,
    lowest: Quantity<Hertz>,
    highest: Quantity<Hertz>,
    step: Quantity<Hertz>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Idle {
    name: String,
    gate: GateName,
    stated_exit: Quantity<Nanos>,
    residency: Quantity<Nanos>,
    entry: Quantity<Nanos>,
    exit: SourcedSpread,
    timer_exit: SourcedSpread,
    refill: SourcedCycles,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "kebab-case")]
enum GateName {
    Nothing,
    Clock,
    ClockLowVoltage,
    Caches,
    Power,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Delivery {
    message: SourcedSpread,
    entry: SourcedCycles,
    handler: SourcedCycles,
    thread: SourcedCycles,
    ipi: SourcedSpread,
    resume: SourcedCycles,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Timer {
    slack: Quantity<Nanos>,
    lateness: SourcedSpread,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Scheduler {
    switch: SourcedCycles,
    unpreemptible: SourcedSpread,
    turn: SourcedSpread,
    refill: SourcedCycles,
    throttle_period: Quantity<Nanos>,
    throttle_runtime: Quantity<Nanos>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Vcpu {
    exit: SourcedCycles,
    entry: SourcedCycles,
    kick: SourcedCycles,
    injection: SourcedCycles,
    signal: SourcedCycles,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Aspm {
    idle: Quantity<Nanos>,
    exit: Quantity<Nanos>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PowerSection {
    cores: Sourced<u32>,
    capacitance_pf: Sourced<u32>,
    leakage: Quantity<Power>,
    gated: Quantity<Power>,
    curve: Vec<CurvePoint>,
    uncore: Vec<UncoreSection>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CurvePoint {
    frequency: Text<Hertz>,
    voltage: Text<Microvolts>,
    #[serde(rename = "source")]
    _source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UncoreSection {
    frequency: Text<Hertz>,
    power: Text<Power>,
    #[serde(rename = "source")]
    _source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Work {
    poll: SourcedCycles,
    burst: SourcedCycles,
    frame: SourcedCycles,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DisturbanceSection {
    every: Quantity<Nanos>,
    takes: SourcedSpread,
}

impl Section {
    pub fn model(self) -> Result<Processor, ModelError> {
        let pstates = PStateModel {
            period: self.pstates.period.get(),
            block: self.pstates.block.get(),
            lowest: self.pstates.lowest.get(),
            highest: self.pstates.highest.get(),
            step: self.pstates.step.get(),
        };
        pstates.validate()?;
        let states = self.idle.iter().map(Idle::model).collect::<Result<Vec<_>, _>>()?;
        let cstates = CStateModel { deepest: states.len().saturating_sub(1), states };
        cstates.validate()?;
        let power = self.power.model();
        power.validate()?;
        let aspm = AspmModel { idle: self.aspm.idle.get(), exit: self.aspm.exit.get() };
        aspm.validate()?;
        let disturbance = Disturbance { every: self.disturbance.every.get(), takes: self.disturbance.takes.get()? };
        disturbance.validate()?;
        Ok(Processor {
            base: self.base.get(),
            pstates,
            cstates,
            delivery: DeliveryModel {
                message: self.delivery.message.get()?,
                entry: self.delivery.entry.get(),
                handler: self.delivery.handler.get(),
                thread: self.delivery.thread.get(),
                ipi: self.delivery.ipi.get()?,
                resume: self.delivery.resume.get(),
            },
            timer: TimerModel { slack: self.timer.slack.get(), lateness: self.timer.lateness.get()? },
            switch: self.scheduler.switch.get(),
            background: BackgroundModel {
                unpreemptible: self.scheduler.unpreemptible.get()?,
                turn: self.scheduler.turn.get()?,
                refill: self.scheduler.refill.get(),
            },
            throttle: ThrottleModel {
                period: self.scheduler.throttle_period.get(),
                runtime: self.scheduler.throttle_runtime.get(),
            },
            vcpu: VcpuModel {
                exit: self.vcpu.exit.get(),
                entry: self.vcpu.entry.get(),
                kick: self.vcpu.kick.get(),
                injection: self.vcpu.injection.get(),
                signal: self.vcpu.signal.get(),
                halt_poll: HaltPollModel::OFF,
                direct: false,
            },
            aspm,
            power,
            work: WorkModel { poll: self.work.poll.get(), burst: self.work.burst.get(), frame: self.work.frame.get() },
            disturbance,
        })
    }
}

impl Idle {
    fn model(&self) -> Result<IdleState, ModelError> {
        Ok(IdleState {
            name: self.name.clone(),
            stated_exit: self.stated_exit.get(),
            residency: self.residency.get(),
            entry: self.entry.get(),
            exit: self.exit.get()?,
            timer_exit: self.timer_exit.get()?,
            gate: match self.gate {
                GateName::Nothing => Gate::Nothing,
                GateName::Clock => Gate::Clock,
                GateName::ClockLowVoltage => Gate::ClockLowVoltage,
                GateName::Caches => Gate::Caches,
                GateName::Power => Gate::Power,
            },
            refill: self.refill.get(),
        })
    }
}

impl PowerSection {
    fn model(&self) -> PowerModel {
        PowerModel {
            curve: self
                .curve
                .iter()
                .map(|point| VoltagePoint { frequency: point.frequency.0, voltage: point.voltage.0 })
                .collect(),
            capacitance_pf: self.capacitance_pf.value,
            leakage: self.leakage.get().0,
            gated: self.gated.get().0,
            cores: self.cores.value,
            uncore: self
                .uncore
                .iter()
                .map(|point| UncorePoint { frequency: point.frequency.0, power: point.power.0.0 })
                .collect(),
        }
    }
}
