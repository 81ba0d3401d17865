//! Exports a plan as a PerformanceProfile of OpenShift's node tuning operator (`performance.openshift.io/v2`).
//!
//! Source: openshift/cluster-node-tuning-operator, docs/performanceprofile/performance_profile.md; `balanceIsolated`,
//! true by default, decides between `isolcpus=managed_irq,LIST` and `isolcpus=domain,managed_irq,LIST`
//! (assets/performanceprofile/tuned/openshift-node-performance, `isolated_cores`). The operator itself sets sysctls,
//! workqueues and interrupts. Settings for which a PerformanceProfile has no field go into a Tuned object.

use std::fmt::Write as _;

use super::{Export, ExportedFile, quoted};
use crate::knob::{AnySetting, Setting as _};
use crate::profile::Resolved;

/// Names of the kernel arguments that the operator itself sets from `spec.cpu`.
const ITS_OWN: [&str; 6] = ["isolcpus", "nohz_full", "rcu_nocbs", "irqaffinity", "skew_tick", "tuned.non_isolcpus"];

pub(super) fn export(resolved: &Resolved, summary: &str) -> Export {
    let name = format!("apus-{}", resolved.plan.name);
    let mut out = Export::default();
    if resolved.isolated.is_empty() {
        out.left_out.push("spec.cpu: no CPU is isolated; choose some with --isolated".into());
    }
    let mut pages = String::new();
    for item in &resolved.plan.items {
        match &item.setting {
            AnySetting::HugePages(huge) => {
                let size = if huge.size_kb == 1_048_576 { "1G" } else { "2M" };
                let _ = writeln!(pages, "      - size: {}\n        count: {}", quoted(size), item.wanted);
                if let Some(node) = huge.node {
                    let _ = writeln!(pages, "        node: {node}");
                }
            }
            // The operator sets these itself, from the division of the CPUs.
            AnySetting::BootFragment(_) | AnySetting::CpuMask(_) | AnySetting::IrqDefaultAffinity(_) => {}
            AnySetting::IrqAffinity(_) | AnySetting::IrqbalanceBans(_) => {}
            other => out.left_out.push(format!("{} = {}: needs a Tuned object", other.label(), item.wanted)),
        }
    }
    let key = |argument: &str| argument.split('=').next().unwrap_or_default().to_owned();
    let more: Vec<&String> =
        resolved.arguments.iter().filter(|argument| !ITS_OWN.contains(&key(argument).as_str())).collect();
    let mut text = format!(
        "# Written by apus tune export. {summary}\napiVersion: performance.openshift.io/v2\nkind: PerformanceProfile\n\
         metadata:\n  name: {}\nspec:\n  cpu:\n    isolated: {}\n    reserved: {}\n    \
         # Without it the operator leaves the scheduler its domains: it writes isolcpus=managed_irq alone.\n    \
         balanceIsolated: false\n",
        quoted(&name),
        quoted(&resolved.isolated.to_string()),
        quoted(&resolved.housekeeping.to_string()),
    );
    if !pages.is_empty() {
        let _ = write!(text, "  hugepages:\n    pages:\n{pages}");
    }
    if !more.is_empty() {
        text.push_str("  additionalKernelArgs:\n");
        for argument in more {
            let _ = writeln!(text, "    - {}", quoted(argument));
        }
    }
    text.push_str(
        "  globallyDisableIrqLoadBalancing: true\n  numa:\n    topologyPolicy: \"single-numa-node\"\n  \
         nodeSelector:\n    node-role.kubernetes.io/worker-cnf: \"\"\n",
    );
    out.files.push(ExportedFile { name: format!("{name}.yaml"), place: "the cluster: oc apply -f".into(), text });
    out
}
