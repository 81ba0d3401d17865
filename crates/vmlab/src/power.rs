//! The power hardware that a guest's firmware describes: P-states, C-states, a firmware limit and a power meter that
//! the host controls.

use units::{Hertz, Microwatts, Nanos};

use super::Error;
use super::aml::{self, Register};

/// I/O port for P-state writes. QEMU's `isa-debugcon` device at this port writes each byte to a file.
pub(super) const PSTATE_PORT: u16 = 0x4e0;

/// Maximum number of CPUs, because the byte written holds the CPU in its upper four bits and the state in its lower
/// four.
const CPUS_MAX: usize = 16;
const PSTATES_MAX: usize = 16;

/// Maximum number of C-states: Linux has at most ten idle states, and it defines the first one itself
/// (`CPUIDLE_STATE_MAX`, include/linux/cpuidle.h).
const CSTATES_MAX: usize = 9;

/// A performance state, as in `_PSS` (ACPI 6.5, 8.4.5.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pstate {
    /// Frequency of the core; whole megahertz.
    pub frequency: Hertz,
    /// Maximum power in this state; whole milliwatts.
    pub power: Microwatts,
}

const fn pstate(mhz: u64, mw: u64) -> Pstate {
    Pstate { frequency: Hertz::new(mhz * 1_000_000), power: Microwatts::new(mw * 1_000) }
}

/// Six P-states from 3.0 GHz down to 800 MHz, as a server processor has.
pub const PSTATES: [Pstate; 6] = [
    pstate(3000, 95_000),
    pstate(2600, 80_000),
    pstate(2200, 65_000),
    pstate(1800, 50_000),
    pstate(1200, 30_000),
    pstate(800, 15_000),
];

/// An idle state, as in `_CST` (ACPI 6.5, 8.4.1.1). In the guest, every state only halts the CPU. The states differ in
/// the exit latency that they report, and therefore in when Linux chooses them. The real time to wake is the same in
/// all states.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cstate {
    /// Reported worst-case exit latency; whole microseconds. Linux takes twice this as the target residency
    /// (drivers/acpi/processor_idle.c).
    pub latency: Nanos,
    /// Power in this state; whole milliwatts.
    pub power: Microwatts,
}

const fn cstate(us: u64, mw: u64) -> Cstate {
    Cstate { latency: Nanos::from_micros(us), power: Microwatts::new(mw * 1_000) }
}

/// Four states: C1 to C4 with exit latencies of 2, 20, 90 and 400 us.
pub const CSTATES: [Cstate; 4] = [cstate(2, 1_000), cstate(20, 500), cstate(90, 300), cstate(400, 100)];

/// A write to a P-state register, as the emulated hardware saw it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PstateWrite {
    /// CPU whose register was written.
    pub cpu: usize,
    /// Requested frequency.
    pub frequency: Hertz,
}

/// The power hardware of one guest.
#[derive(Clone, Default, Debug)]
pub(super) struct Power {
    pub(super) pstates: Vec<Pstate>,
    pub(super) cstates: Vec<Cstate>,
    /// Address of the words that the host writes in the guest's memory; `None` without firmware.
    pub(super) firmware: Option<u64>,
}

impl Power {
    /// Whether there is nothing to describe to the guest.
    pub(super) fn is_empty(&self) -> bool {
        self.pstates.is_empty() && self.cstates.is_empty() && self.firmware.is_none()
    }

    pub(super) fn check(&self, cpus: usize) -> Result<(), Error> {
        let falls = self.pstates.windows(2).all(|pair| pair[0].frequency > pair[1].frequency);
        let deepens = self.cstates.windows(2).all(|pair| pair[0].latency < pair[1].latency);
        if self.pstates.len() > PSTATES_MAX || !falls {
            return Err(Error::invalid("P-states", format!("write at most {PSTATES_MAX}, from fast to slow")));
        }
        if !self.pstates.is_empty() && cpus > CPUS_MAX {
            return Err(Error::invalid(format!("{cpus} CPUs with P-states"), format!("use at most {CPUS_MAX}")));
        }
        if self.cstates.len() > CSTATES_MAX || !deepens {
            return Err(Error::invalid("C-states", format!("write at most {CSTATES_MAX}, from light to deep")));
        }
        Ok(())
    }

    /// The secondary ACPI table that describes the hardware to the guest's kernel.
    pub(super) fn table(&self, cpus: usize) -> Vec<u8> {
        let mut terms = Vec::new();
        if let Some(address) = self.firmware {
            terms.push(aml::memory_words("HOST", address, &words(cpus)));
            terms.extend((0..cpus).map(|cpu| aml::named(&seen(cpu), &aml::integer(0))));
        }
        for cpu in 0..cpus {
            terms.push(aml::scope(&path(cpu), &self.processor(cpu)));
        }
        if self.firmware.is_some() {
            terms.push(power_meter());
            terms.push(thermal_zone(cpus));
        }
        aml::table(&terms)
    }

    fn processor(&self, cpu: usize) -> Vec<Vec<u8>> {
        let mut terms = Vec::new();
        if !self.pstates.is_empty() {
            let port = Register { space: 1, bits: 8, offset: 0, access: 0, address: PSTATE_PORT.into() };
            terms.push(aml::named("_PCT", &aml::package(&[aml::register(port), aml::register(port)])));
            let states: Vec<_> = self.pstates.iter().enumerate().map(|(at, state)| pss(cpu, at, state)).collect();
            terms.push(aml::named("_PSS", &aml::package(&states)));
            let limit = if self.firmware.is_some() { aml::name(&limit(cpu)) } else { aml::integer(0) };
            terms.push(aml::method("_PPC", &[aml::returns(&limit)]));
            // Five entries, revision 0, a separate domain, coordinated by software (0xfc), one CPU (8.4.5.5).
            let domain = [5, 0, cpu as u64, 0xfc, 1].map(aml::integer);
            terms.push(aml::named("_PSD", &aml::package(&[aml::package(&domain)])));
        }
        if !self.cstates.is_empty() {
            let count = aml::integer(self.cstates.len() as u64);
            let states: Vec<_> = std::iter::once(count).chain(self.cstates.iter().map(cst)).collect();
            terms.push(aml::named("_CST", &aml::package(&states)));
        }
        terms
    }

    /// The write to a P-state register that `octet` stands for; `None` if it names no P-state.
    pub(super) fn write(&self, octet: u8) -> Option<PstateWrite> {
        let state = self.pstates.get(usize::from(octet & 0xf))?;
        Some(PstateWrite { cpu: usize::from(octet >> 4), frequency: state.frequency })
    }
}

/// Encodes a P-state: megahertz, milliwatts, transition and bus master latency in us, control, status (8.4.5.2).
fn pss(cpu: usize, at: usize, state: &Pstate) -> Vec<u8> {
    let code = (cpu << 4 | at) as u64;
    let mw = state.power.as_microwatts() / 1_000;
    aml::package(&[state.frequency.as_hertz() / 1_000_000, mw, 10, 10, code, code].map(aml::integer))
}

/// Encodes a C-state: register, type, latency in us, milliwatts (8.4.1.1). To Linux, type 1 in functional fixed
/// hardware without an MWAIT hint means HLT (drivers/acpi/processor_idle.c). A deeper type with an I/O port would not
/// halt, because QEMU answers the port at once.
fn cst(state: &Cstate) -> Vec<u8> {
    let halt = Register { space: 0x7f, bits: 1, offset: 2, access: 1, address: 0 };
    let mw = state.power.as_microwatts() / 1_000;
    let numbers = [1, state.latency.as_micros_floor(), mw].map(aml::integer);
    aml::package(&[&[aml::register(halt)], &numbers[..]].concat())
}

/// The processor's name in QEMU's own ACPI table (hw/acpi/cpu.c).
fn path(cpu: usize) -> String {
    format!("\\_SB.CPUS.C{cpu:03X}")
}

/// The words that the host writes: power in milliwatts, and for each CPU the fastest allowed P-state.
fn words(cpus: usize) -> Vec<String> {
    std::iter::once("POWR".into()).chain((0..cpus).map(limit)).collect()
}

/// Offset of the power word in bytes.
pub(super) const POWER_AT: u64 = 0;

/// Offset in bytes of the word with the limit of `cpu`.
pub(super) fn limit_at(cpu: usize) -> u64 {
    4 + 4 * cpu as u64
}

fn limit(cpu: usize) -> String {
    format!("L{cpu:03X}")
}

fn seen(cpu: usize) -> String {
    format!("S{cpu:03X}")
}

/// Encodes a power meter (10.4) that measures in milliwatts, with an accuracy of 100 %.
fn power_meter() -> Vec<u8> {
    let numbers = [1, 0, 1, 100_000, 10, 100, 10_000, 0xffff_ffff, 0, 0, 0].map(aml::integer);
    let names = ["vm", "1", "apus"].map(aml::text);
    let capabilities = aml::package(&[&numbers[..], &names].concat());
    let meter = aml::device(
        "PMTR",
        &[
            aml::named("_HID", &aml::text("ACPI000D")),
            aml::named("_UID", &aml::integer(0)),
            aml::named("_GAI", &aml::integer(1000)),
            aml::method("_STA", &[aml::returns(&aml::integer(0xf))]),
            aml::method("_PMC", &[aml::returns(&capabilities)]),
            aml::method("_PMM", &[aml::returns(&aml::name("POWR"))]),
            aml::method("_PMD", &[aml::returns(&aml::package(&[aml::name("\\_SB")]))]),
        ],
    );
    aml::scope("\\_SB", &[meter])
}

/// Encodes a thermal zone (11.4) that the guest reads twice a second. Each reading notifies the CPUs whose limit has
/// changed (Notify 0x80: the number of supported P-states has changed, 8.4.5.3).
fn thermal_zone(cpus: usize) -> Vec<u8> {
    let mut reading: Vec<_> = (0..cpus)
        .map(|cpu| {
            let (now, before) = (aml::name(&limit(cpu)), aml::name(&seen(cpu)));
            aml::if_differ(&now, &before, &[aml::store(&now, &seen(cpu)), aml::notify(&path(cpu), 0x80)])
        })
        .collect();
    reading.push(aml::returns(&aml::integer(3031))); // 30 °C in tenths of a kelvin
    let zone = aml::thermal_zone(
        "TZ00",
        &[
            aml::method("_TMP", &reading),
            aml::named("_CRT", &aml::integer(3931)), // 120 °C
            aml::named("_TZP", &aml::integer(5)),    // read every five tenths of a second
        ],
    );
    aml::scope("\\_TZ", &[zone])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_names_cpu_and_frequency() {
        let power = Power { pstates: PSTATES.to_vec(), ..Power::default() };
        assert_eq!(power.write(0x15), Some(PstateWrite { cpu: 1, frequency: Hertz::new(800_000_000) }));
        assert_eq!(power.write(0x06), None);
    }

    #[test]
    fn states_out_of_order_or_too_many_are_refused() {
        let mut pstates = PSTATES.to_vec();
        pstates.reverse();
        let mut cstates = CSTATES.to_vec();
        cstates.swap(0, 1);
        for bad in [
            Power { pstates, ..Power::default() },
            Power { pstates: vec![PSTATES[0]; 17], ..Power::default() },
            Power { cstates, ..Power::default() },
        ] {
            bad.check(2).unwrap_err();
        }
        let good = Power { pstates: PSTATES.to_vec(), cstates: CSTATES.to_vec(), firmware: None };
        good.check(16).unwrap();
        assert!(good.check(17).unwrap_err().to_string().contains("17 CPUs"));
    }

    #[test]
    fn the_table_has_what_was_asked_for_and_nothing_else() {
        let has = |table: &[u8], name: &str| table.windows(4).any(|window| window == name.as_bytes());
        let all = Power { pstates: PSTATES.to_vec(), cstates: CSTATES.to_vec(), firmware: Some(0x3f00_0000) }.table(2);
        for name in ["_PSS", "_PCT", "_PPC", "_PSD", "_CST", "_PMM", "_TMP", "C001", "L001", "S001"] {
            assert!(has(&all, name), "{name}");
        }
        let idle = Power { cstates: CSTATES.to_vec(), ..Power::default() }.table(1);
        assert!(has(&idle, "_CST") && !has(&idle, "_PSS") && !has(&idle, "HOST") && !has(&idle, "C001"));
        assert!(Power::default().is_empty());
    }
}
