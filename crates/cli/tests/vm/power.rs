use serde_json::Value;
use units::Microwatts;
use vmlab::Guest;
use vmlab::harness::{OnShared, ok};

pub(crate) const TESTS: [OnShared; 2] = [
    ("power::watch_shows_what_the_acpi_power_meter_is_given", watch),
    ("power::a_run_has_the_energy_of_the_acpi_power_meter", energy),
];

fn json(guest: &Guest, words: &str) -> Value {
    let said = ok(guest.run(&format!("apus {words} --json")));
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
}

/// Whether `is` is within one percent of `wanted`.
fn close(is: &Value, wanted: u64) -> bool {
    is.as_u64().is_some_and(|is| is.abs_diff(wanted) * 100 <= wanted)
}

fn watch(guest: &Guest) {
    ok(guest.run("modprobe acpi_power_meter 2>/dev/null; true"));
    for uw in [42_000_000, 55_500_000, 123_456_000] {
        ok(guest.set_power(Microwatts::new(uw)));
        // The firmware's interval passes before the kernel asks again.
        let document = json(guest, "power watch --interval 2s");
        let measured = &document["energy"]["measured"]["value"];
        assert!(close(&measured["power_uw"], uw), "{uw}: {:#}", document["energy"]);
        assert!(measured["meter"].as_str().is_some_and(|name| name.starts_with("ACPI000D")), "{measured:#}");
        assert_eq!(document["energy"]["meters"][0]["interface"], "acpi");
    }
    let document = json(guest, "power watch --interval 1s");
    assert_eq!(document["cores"][0]["frequency_from"], "scaling_cur_freq", "emulation has no APERF");
    let states = document["cores"][0]["idle_states"]["value"].as_array().unwrap();
    let names: Vec<&str> = states.iter().filter_map(|state| state["name"].as_str()).collect();
    assert_eq!(names, ["POLL", "C1", "C2", "C3", "C4"]);
    assert!(states.iter().any(|state| state["entries"].as_u64() > Some(0)), "an idle guest enters states: {states:#?}");
}

/// Energy of a run is power times time, and per frame that by the frames.
fn energy(guest: &Guest) {
    ok(guest.set_power(Microwatts::new(50_000_000)));
    ok(guest.run("sleep 2"));
    let document = json(guest, "run drop memory:64 --duration 2s");
    let energy = &document["energy"];
    let measured = &energy["measured"]["value"];
    let (uj, ns) = (measured["energy_uj"].as_u64().unwrap(), measured["interval_ns"].as_u64().unwrap());
    assert!(close(&measured["energy_uj"], ns / 20), "50 W for {ns} ns are not {uj} uJ");
    let frames = energy["frames"].as_u64().unwrap() as f64;
    let per_frame = measured["energy_per_frame_nj"].as_f64().unwrap();
    assert!((per_frame * frames / (uj as f64 * 1e3) - 1.0).abs() < 0.01, "{energy:#}");
}
