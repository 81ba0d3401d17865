//! What one `record` costs: `cargo bench -p live --bench histogram`.

use std::hint::black_box;
use std::time::Instant;

use live::telemetry::histogram::HistogramCells;
use units::Nanos;

const RECORDS: u64 = 20_000_000;

fn main() {
    let cells: Box<HistogramCells> = Box::default();
    // What the loop sees: most values near each other. And the worst case: each in another line.
    let generator = best_of_five(|value| {
        black_box(Nanos::from_nanos(value));
    });
    for (name, mask) in [("values within 1 us", 0x3ff), ("values up to 1 ms", 0xf_ffff)] {
        let both = best_of_five(|value| cells.record(black_box(Nanos::from_nanos(2_048 + (value & mask)))));
        println!(
            "histogram record_ns={:.2} ({name}; best of 5, {generator:.2} ns for the generator taken off)",
            both - generator
        );
    }
}

/// Nanoseconds for one call, the making of its random value included.
fn best_of_five(mut call: impl FnMut(u64)) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let began = Instant::now();
        let mut value = 88_172_645_463_325_252u64;
        for _ in 0..RECORDS {
            // xorshift64 (Marsaglia 2003)
            value ^= value << 13;
            value ^= value >> 7;
            value ^= value << 17;
            call(value);
        }
        best = best.min(began.elapsed().as_nanos() as f64 / RECORDS as f64);
    }
    best
}
