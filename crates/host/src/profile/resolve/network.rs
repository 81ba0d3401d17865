//! Resolves the sections of a profile that concern network interfaces.

use toml::Spanned;

use super::pattern;
use super::{Work, nanos_or_plain};
use crate::facts::CpuSet;
use crate::knob::{
    AnySetting, Channels, Coalesce, CoalesceQueue, CpuMask, Features, Knob, Napi, Pause, PrivateFlags, Rings,
    Setting as _, Value, napi_queues,
};
use crate::profile::Error;
use crate::profile::file::{Fields, Layer, NetworkSection, Scalar};
use crate::transaction::OnRefusal;

const FOLDER: &str = "/sys/class/net";

impl Work<'_> {
    /// Plans the settings of a section. Its `name` selects one interface by name, or several by a pattern or by their
    /// driver (`driver:ice`).
    pub(super) fn network_section(&mut self, layer: &Layer, name: &str, section: &NetworkSection) -> Result<(), Error> {
        let driver = name.strip_prefix("driver:");
        if driver.is_none() && !pattern::is_pattern(name) {
            return self.interface(layer, name, section, false);
        }
        let mut found = self.interfaces(layer, name == "*")?;
        let of_driver = |interface: &String| {
            let link = self.access.link(&format!("{FOLDER}/{interface}/device/driver")).ok().flatten();
            driver.is_some_and(|driver| {
                link.is_some_and(|link| pattern::matches(driver, link.rsplit('/').next().unwrap_or("")))
            })
        };
        match driver {
            Some(_) => found.retain(of_driver),
            None => found.retain(|interface| pattern::matches(name, interface)),
        }
        if found.is_empty() && name != "*" {
            self.resolved.notes.push(format!("{}, [network.\"{name}\"]: no interface matches now", layer.name));
        }
        for interface in found {
            self.interface(layer, &interface, section, true)?;
        }
        Ok(())
    }

    /// The interfaces that the user named. If the user named none, all interfaces, or those with a device if
    /// `with_device` is true.
    fn interfaces(&mut self, layer: &Layer, with_device: bool) -> Result<Vec<String>, Error> {
        if !self.purpose.interfaces.is_empty() {
            return Ok(self.purpose.interfaces.clone());
        }
        let names = self.access.list(FOLDER).map_err(|e| Error { place: layer.name.clone(), why: e.to_string() })?;
        let names = names.unwrap_or_default();
        let is_meant = |name: &String| !with_device || self.access.exists(&format!("{FOLDER}/{name}/device"));
        let found: Vec<String> = names.into_iter().filter(is_meant).collect();
        if found.is_empty() && with_device {
            let note = format!(
                "{}, [network.\"*\"]: no interface belongs to a device; choose some with --interface",
                layer.name
            );
            self.resolved.notes.push(note);
        }
        Ok(found)
    }

    /// Plans the settings of one interface. If `one_of_many` is true, a pattern selected the interface: settings that
    /// its driver does not support are left out with a note, and settings that the driver rejects are reported.
    /// Otherwise both are errors.
    fn interface(
        &mut self,
        layer: &Layer,
        name: &str,
        section: &NetworkSection,
        one_of_many: bool,
    ) -> Result<(), Error> {
        // Settings that restart the interface come first, because a restart may reset the other settings.
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
                self.group(layer, fields, name, setting, Value::fields(value), one_of_many)?;
            }
        }
        for (queues, fields) in &section.coalesce_queue {
            let numbers: CpuSet =
                queues.parse().map_err(|_| layer.wrong(fields, format!("{queues:?}: expected queues such as 0-3")))?;
            for queue in numbers.iter() {
                let value = fields.get_ref().iter().map(|(field, value)| (field, word(value, false)));
                let setting = CoalesceQueue::new(name, queue).into();
                self.group(layer, fields, name, setting, Value::fields(value), one_of_many)?;
            }
        }
        if let Some(fields) = &section.napi {
            let value = Value::fields(fields.get_ref().iter().map(|(field, value)| (field, nanos_or_plain(value))));
            let queues = napi_queues(self.access, name).map_err(|e| layer.wrong(fields, e))?;
            if queues.is_empty() {
                self.note(
                    layer,
                    fields,
                    &format!("{name} has no NAPI instance: it is down, does not exist, or its driver has none"),
                );
            }
            for queue in queues {
                self.group(layer, fields, name, Napi::new(name, queue).into(), value.clone(), one_of_many)?;
            }
        }
        self.steering(layer, name, section)
    }

    /// Adds a group of fields. If a pattern selected the interface, only the fields that its driver supports are added.
    fn group(
        &mut self,
        layer: &Layer,
        place: &Spanned<Fields>,
        name: &str,
        setting: AnySetting,
        wanted: Value,
        one_of_many: bool,
    ) -> Result<(), Error> {
        if !one_of_many {
            return self.add(layer, place, setting, wanted);
        }
        if let Err(error @ crate::knob::Error::Invalid { .. }) = setting.check(self.access, &wanted) {
            return Err(layer.wrong(place, error));
        }
        let now = setting.read(self.access).map_err(|e| layer.wrong(place, e))?;
        let (mut has, mut lacks) = (Vec::new(), Vec::new());
        for (field, text) in wanted.as_fields().into_iter().flatten() {
            let shown = |now: &Value| now.field(field).is_some();
            let holds = |now: &Value| Knob(&setting).holds(now, &Value::fields([(field, text)]));
            match &now {
                Some(now) if !shown(now) && !holds(now) => lacks.push(field.as_str()),
                _ => has.push((field, text)),
            }
        }
        if !lacks.is_empty() {
            self.note(layer, place, &format!("{name} has no {}: skipped", lacks.join(", ")));
        }
        match has.is_empty() {
            true => Ok(()),
            false => self.add_as(layer, place, setting, Value::fields(has), OnRefusal::Report),
        }
    }

    fn steering(&mut self, layer: &Layer, name: &str, section: &NetworkSection) -> Result<(), Error> {
        let Some(text) = &section.rps_cpus else { return Ok(()) };
        let cpus = match text.get_ref().as_str() {
            "none" => CpuSet::new(),
            _ => match self.cpus(layer, text)? {
                Some(cpus) => cpus,
                None => return Ok(()),
            },
        };
        let folder = format!("/sys/class/net/{name}/queues");
        let queues = self.access.numbered(&folder, "rx-").map_err(|e| layer.wrong(text, e))?;
        if queues.is_empty() {
            self.note(layer, text, &format!("{name} has no receive queue, or does not exist"));
        }
        for queue in queues {
            self.add(layer, text, CpuMask::new(format!("{folder}/rx-{queue}/rps_cpus")), CpuMask::value(&cpus))?;
        }
        Ok(())
    }
}

/// Converts a value of the profile to the kernel's form. If `switch` is false, `on` and `off` become 1 and 0: netlink
/// has numbers where ethtool(8) has, for example, `autoneg off`.
fn word(value: &Scalar, switch: bool) -> String {
    match (value, switch) {
        (Scalar::Boolean(yes), true) => if *yes { "on" } else { "off" }.into(),
        (Scalar::Text(text), false) if text == "on" => "1".into(),
        (Scalar::Text(text), false) if text == "off" => "0".into(),
        (other, _) => other.to_string(),
    }
}
