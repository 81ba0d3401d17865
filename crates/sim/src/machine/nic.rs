//! The section `[nic]` of a machine's file.

use serde::Deserialize;
use units::{BitRate, Nanos};

use super::sourced::{Quantity, Sourced};
use crate::hw::ModelError;
use crate::hw::interrupt::{DelayFrom, ModerationModel, quantized};
use crate::hw::link::LinkModel;
use crate::hw::nic::NicModel;
use crate::hw::ring::WriteBackModel;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Section {
    rate: Quantity<BitRate>,
    phy: Quantity<Nanos>,
    bus: Quantity<BitRate>,
    receive: Quantity<Nanos>,
    transmit: Quantity<Nanos>,
    jitter: Quantity<Nanos>,
    rx_descriptors: Sourced<u32>,
    tx_descriptors: Sourced<u32>,
    interval_granularity: Quantity<Nanos>,
    rx_moderation: Moderation,
    tx_moderation: Moderation,
    write_back: WriteBack,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Moderation {
    delay: Quantity<Nanos>,
    frames: Sourced<u32>,
    interval: Quantity<Nanos>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WriteBack {
    batch: Sourced<u32>,
    flush: Quantity<Nanos>,
}

impl Section {
    pub fn model(self) -> Result<NicModel, ModelError> {
        let granularity = self.interval_granularity.get();
        let moderation = |typed: &Moderation| -> Result<ModerationModel, ModelError> {
            Ok(ModerationModel {
                delay: typed.delay.get(),
                from: DelayFrom::FirstFrame,
                frames: typed.frames.value,
                interval: quantized(typed.interval.get(), granularity)?,
            })
        };
        let model = NicModel {
            link: LinkModel { rate: self.rate.get(), latency: self.phy.get() },
            rx_descriptors: self.rx_descriptors.value,
            tx_descriptors: self.tx_descriptors.value,
            rx_moderation: moderation(&self.rx_moderation)?,
            tx_moderation: moderation(&self.tx_moderation)?,
            write_back: WriteBackModel { batch: self.write_back.batch.value, flush: self.write_back.flush.get() },
            receive: self.receive.get(),
            transmit: self.transmit.get(),
            jitter: self.jitter.get(),
            bus: self.bus.get(),
        };
        model.validate()?;
        Ok(model)
    }
}
