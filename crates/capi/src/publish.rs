//! Publishes a waiter's telemetry. Errors name the fields of `apus_config`.

use live::telemetry::{Identity, Refused, Telemetry};
use policy::wait::Mode;

use crate::config::Shown;
use crate::error::{Code, fail};

/// Creates the telemetry file of a loop.
pub fn publish(shown: &Shown, mode: Mode) -> Result<Telemetry, Code> {
    let id = Identity {
        instance: shown.name.clone(),
        worker: shown.worker,
        app: shown.app.clone(),
        mode: mode.name().into(),
        goal: mode.goal().map(|goal| goal.to_string()),
        ports: shown.port.iter().cloned().collect(),
        cpu: None,
    };
    Telemetry::publish(&shown.root, &id).map_err(|refused| unpublished(&shown.name, &refused))
}

/// The error of a waiter whose telemetry cannot be published, in terms of `apus_config`.
fn unpublished(name: &str, refused: &Refused) -> Code {
    let taken = |why: std::fmt::Arguments<'_>| fail(Code::Config, format_args!("config.name {name:?}: {why}"));
    match refused {
        Refused::Invalid { why } => taken(format_args!("{why}")),
        Refused::Taken { worker, pid } => taken(format_args!(
            "process {pid} runs worker {worker} of this name: give each process a name of its own, or end process {pid}"
        )),
        Refused::TakenHere { worker } => taken(format_args!(
            "this process already has worker {worker} of this name: give each loop another config.worker, or free the \
             first waiter"
        )),
        Refused::Lacking { path, error } => {
            let remedy = refused.remedy("config.telemetry_root").unwrap_or_default();
            fail(Code::System, format_args!("cannot create telemetry {}: {error}: {remedy}", path.display()))
        }
    }
}
