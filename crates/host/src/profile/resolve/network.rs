//! Sections about interfaces.

use toml::Spanned;

use super::{Work, nanos_or_plain};
use crate::knob::{
    AnySetting, Channels, Coalesce, CoalesceQueue, CpuMask, Cpus, Features, Napi, Pause, PrivateFlags, Rings, Value,
    napi_queues,
};
use crate::profile::Error;
use crate::profile::file::{Fields, Layer, NetworkSection, Scalar};

impl Work<'_> {
    pub(super) fn network_section(&mut self, layer: &Layer, name: &str, section: &NetworkSection) -> Result<(), Error> {
        let interfaces = if name == "*" { self.interfaces(layer)? } else { vec![name.to_owned()] };
        for interface in interfaces {
            self.interface(layer, &interface, section)?;
        }
        Ok(())
    }

    /// Those that were named, or all with a device behind them.
    fn interfaces(&mut self, layer: &Layer) -> Result<Vec<String>, Error> {
        if !self.purpose.interfaces.is_empty() {
            return Ok(self.purpose.interfaces.clone());
        }
        const FOLDER: &str = "/sys/class/net";
        let names = self.access.list(FOLDER).map_err(|e| Error { place: layer.name.clone(), why: e.to_string() })?;
        let names = names.unwrap_or_default();
        let found: Vec<String> =
            names.into_iter().filter(|name| self.access.exists(&format!("{FOLDER}/{name}/device"))).collect();
        if found.is_empty() {
            let note =
                format!("{}, [network.\"*\"]: no interface has a device: name some with --interface", layer.name);
            self.resolved.notes.push(note);
        }
        Ok(found)
    }

    fn interface(&mut self, layer: &Layer, name: &str, section: &NetworkSection) -> Result<(), Error> {
        // What stops and starts the interface first: it may reset the rest.
        let groups: [(&Option<Spanned<Fields>>, AnySetting); 6] = [
            (&section.private_flags, PrivateFlags::new(name).into()),
            (&section.channels, Channels::new(name).into()),
            (&section.rings, Rings::new(name).into()),
            (&section.features, Features::new(name).into()),
            (&section.pause, Pause::new(name).into()),
            (&section.coalesce, Coalesce::new(name).into()),
        ];
        for (fields, setting) in groups {
            if let Some(fields) = fields {
                let switches = matches!(setting, AnySetting::Features(_) | AnySetting::PrivateFlags(_));
                let value = fields.get_ref().iter().map(|(field, value)| (field, word(value, switches)));
                self.add(layer, fields, setting, Value::fields(value))?;
            }
        }
        for (queues, fields) in &section.coalesce_queue {
            let numbers: Cpus =
                queues.parse().map_err(|_| layer.wrong(fields, format!("{queues:?}: expected queues such as 0-3")))?;
            for queue in numbers.iter() {
                let value = fields.get_ref().iter().map(|(field, value)| (field, word(value, false)));
                self.add(layer, fields, CoalesceQueue::new(name, queue), Value::fields(value))?;
            }
        }
        if let Some(fields) = &section.napi {
            let value = Value::fields(fields.get_ref().iter().map(|(field, value)| (field, nanos_or_plain(value))));
            let queues = napi_queues(self.access, name).map_err(|e| layer.wrong(fields, e))?;
            if queues.is_empty() {
                self.note(layer, fields, &format!("{name} has no NAPI: it is down, not there, or its driver has none"));
            }
            for queue in queues {
                self.add(layer, fields, Napi::new(name, queue), value.clone())?;
            }
        }
        self.steering(layer, name, section)
    }

    fn steering(&mut self, layer: &Layer, name: &str, section: &NetworkSection) -> Result<(), Error> {
        let Some(text) = &section.rps_cpus else { return Ok(()) };
        let cpus = match text.get_ref().as_str() {
            "none" => Cpus::new(),
            _ => match self.cpus(layer, text)? {
                Some(cpus) => cpus,
                None => return Ok(()),
            },
        };
        let folder = format!("/sys/class/net/{name}/queues");
        let queues = self.access.numbered(&folder, "rx-").map_err(|e| layer.wrong(text, e))?;
        for queue in queues {
            self.add(layer, text, CpuMask::new(format!("{folder}/rx-{queue}/rps_cpus")), CpuMask::value(&cpus))?;
        }
        Ok(())
    }
}

/// A switch is on or off, and a number is one, however it is written: ethtool(8) says `autoneg off`, netlink 0.
fn word(value: &Scalar, switch: bool) -> String {
    match (value, switch) {
        (Scalar::Boolean(yes), true) => if *yes { "on" } else { "off" }.into(),
        (Scalar::Text(text), false) if text == "on" => "1".into(),
        (Scalar::Text(text), false) if text == "off" => "0".into(),
        (other, _) => other.to_string(),
    }
}
