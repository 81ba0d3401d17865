//! Exports a plan as a Tuned object of OpenShift's node tuning operator (`tuned.openshift.io/v1`).
//!
//! Source: openshift/cluster-node-tuning-operator, README, "Custom tuning specification". The object contains a tuned
//! profile, but no other files, so settings that need a script are listed as left out. A PerformanceProfile sets
//! interrupts, workqueues and the kernel arguments for isolation by itself: for these, use `--format openshift`.

use super::tuned::Parts;
use super::{Export, ExportedFile, quoted};
use crate::knob::{Access, Error};
use crate::profile::Resolved;

pub(super) fn export(resolved: &Resolved, access: &Access, summary: &str) -> Result<Export, Error> {
    let name = format!("apus-{}", resolved.plan.name);
    let mut parts = Parts::of(resolved, access)?;
    let mut left_out = std::mem::take(&mut parts.left_out);
    left_out.extend(parts.commands.iter().map(|(label, ..)| {
        format!("{label}: no plugin of tuned sets it, and a Tuned object carries no script; see --format openshift")
    }));
    // The profile includes openshift-node, which is every node's default.
    let conf = parts.conf(summary, Some("openshift-node"));
    let data: String =
        conf.lines().map(|line| if line.is_empty() { "\n".into() } else { format!("      {line}\n") }).collect();
    let text = format!(
        "# Written by apus tune export. {summary}\napiVersion: tuned.openshift.io/v1\nkind: Tuned\nmetadata:\n  \
         name: {name}\n  namespace: openshift-cluster-node-tuning-operator\nspec:\n  profile:\n  - name: {name}\n    \
         data: |\n{data}  recommend:\n  - profile: {name}\n    priority: 20\n    machineConfigLabels:\n      \
         machineconfiguration.openshift.io/role: {}\n",
        quoted("worker-cnf")
    );
    let place = "the cluster: oc apply -f".into();
    Ok(Export { files: vec![ExportedFile { name: format!("{name}-tuned.yaml"), place, text }], left_out })
}
