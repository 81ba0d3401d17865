//! What one `record` costs: `cargo bench -p live --bench histogram`.

use std::hint::black_box;
use std::time::Instant;

use live::telemetry::histogram::HistogramCells;
use units::Nanos;

const RECORDS: u64 = 20_000_000;

fn main() {
    let cells: Box<HistogramCells> = Box::default();
    let mut best = f64::INFINITY;
    for _ in 0..5 {
        let began = Instant::now();
        let mut value = 88_172_645_463_325_252u64;
        for _ in 0..RECORDS {
            // xorshift64 (Marsaglia 2003): its cost is part of the figure.
            value ^= value << 13;
            value ^= value >> 7;
            value ^= value << 17;
            cells.record(black_box(Nanos::from_nanos(value & 0xf_ffff)));
        }
        best = best.min(began.elapsed().as_nanos() as f64 / RECORDS as f64);
    }
    println!("histogram record_ns={best:.2} (best of 5, random values up to 1 ms, the generator included)");
}
