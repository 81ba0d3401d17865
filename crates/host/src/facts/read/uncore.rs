//! Uncore frequencies and RAPL limits.

use units::{Microwatts, Nanos};

use super::frequency::kilohertz;
use crate::facts::{Context, Cpus, Fact, PowerLimit, PowerZone, Root, Uncore, Why};

const UNCORE: &str = "sys/devices/system/cpu/intel_uncore_frequency";
const POWERCAP: &str = "sys/class/powercap";
/// Maximum number of uncore domains and power zones that are read. A host has a few dies with a few domains each.
const MAX_ENTRIES: usize = 4096;
/// Maximum number of power limits that the kernel has for a zone (drivers/powercap/powercap_sys.c,
/// `MAX_CONSTRAINTS_PER_ZONE`).
const MAX_LIMITS: u32 = 10;

pub(super) fn domains(context: &Context, cpus: &Cpus) -> Fact<Vec<Uncore>> {
    context.root.list(UNCORE).map(|mut names| {
        names.truncate(MAX_ENTRIES);
        names.into_iter().map(|name| domain(context, cpus, name)).collect()
    })
}

fn domain(context: &Context, cpus: &Cpus, name: String) -> Uncore {
    let root = context.root;
    let place = format!("{UNCORE}/{name}");
    let numbers: Vec<u32> = name.split('_').filter_map(|part| part.parse().ok()).collect();
    let named = |index: usize| match numbers.get(index) {
        Some(number) => Fact::known(*number, format!("/{place}").as_str()),
        None => Fact::not_recorded(format!("/{place}").as_str()),
    };
    let package = root.number(&format!("{place}/package_id")).or_else(|| named(0));
    let frequency = |file: &str| root.number(&format!("{place}/{file}")).parse(kilohertz);
    // On older processors, the limits are in MSR 0x620 of the package's first CPU
    // (drivers/platform/x86/intel/uncore-frequency/uncore-frequency.c, `uncore_read`). Processors with `domain_id`
    // (TPMI) have them in memory.
    let in_register = root.number::<u32>(&format!("{place}/domain_id")).is_absent();
    let from_register = |file: &str| {
        if in_register && !quiet(context, cpus, package.get()) {
            return Fact::missing(Why::NotAsked, format!("/{place}/{file}").as_str());
        }
        frequency(file)
    };
    Uncore {
        die: root.number(&format!("{place}/domain_id")).or_else(|| named(1)),
        min: from_register("min_freq_khz"),
        max: from_register("max_freq_khz"),
        initial_min: frequency("initial_min_freq_khz"),
        initial_max: frequency("initial_max_freq_khz"),
        current: from_register("current_freq_khz"),
        elc_floor: frequency("elc_floor_freq_khz"),
        elc_low_threshold_pct: root.number(&format!("{place}/elc_low_threshold_percent")),
        elc_high_threshold_pct: root.number(&format!("{place}/elc_high_threshold_percent")),
        elc_high_threshold: root.switch(&format!("{place}/elc_high_threshold_enable")),
        package,
        name,
    }
}

/// Whether the first CPU of a package may be interrupted. The kernel reads the package's registers on this CPU.
fn quiet(context: &Context, cpus: &Cpus, package: Option<u32>) -> bool {
    let online = cpus.all();
    let in_package = |id: &u32| match (package, cpus.cpu(*id).and_then(|cpu| cpu.package.get())) {
        (Some(wanted), Some(package)) => wanted == package,
        _ => true,
    };
    let first = online.iter().find(in_package);
    first.is_none_or(|cpu| !context.spared.contains(cpu))
}

pub(super) fn power_zones(context: &Context, cpus: &Cpus) -> Fact<Vec<PowerZone>> {
    let root = context.root;
    root.list(POWERCAP).map(|names| {
        let zones = names.into_iter().filter(|name| name.starts_with("intel-rapl:")).take(MAX_ENTRIES);
        zones.map(|id| zone(context, cpus, id)).collect()
    })
}

fn zone(context: &Context, cpus: &Cpus, id: String) -> PowerZone {
    let root = context.root;
    let place = format!("{POWERCAP}/{id}");
    let name = root.text(&format!("{place}/name"));
    let package = name.value().and_then(|name| name.strip_prefix("package-")?.split('-').next()?.parse().ok());
    let quiet = quiet(context, cpus, package);
    let limits = (0..MAX_LIMITS).map_while(|n| limit(root, &place, n, quiet)).collect();
    let enabled = format!("{place}/enabled");
    let enabled =
        if quiet { root.switch(&enabled) } else { Fact::missing(Why::NotAsked, format!("/{enabled}").as_str()) };
    PowerZone { id, name, enabled, limits }
}

fn limit(root: &Root, place: &str, n: u32, quiet: bool) -> Option<PowerLimit> {
    let file = |what: &str| format!("{place}/constraint_{n}_{what}");
    let name = root.text(&file("name"));
    name.value()?;
    let number = |what: &str| match quiet {
        true => root.number::<u64>(&file(what)),
        false => Fact::missing(Why::NotAsked, format!("/{}", file(what)).as_str()),
    };
    Some(PowerLimit {
        name,
        limit: number("power_limit_uw").map(Microwatts::new),
        max: number("max_power_uw").map(Microwatts::new),
        window: number("time_window_us").parse(|us| {
            us.checked_mul(1_000).map(Nanos::from_nanos).ok_or_else(|| format!("{us} us is beyond what is counted"))
        }),
    })
}
