use audit::diagnosis::{Case, Symptom, SymptomKind, diagnose, end_of};
use host::{Facts, facts::Root};
fn main() {
    let verbose = std::env::var("V").is_ok();
    for stem in std::env::args().skip(1) {
        let read = |end: &str| Facts::read(&Root::open(format!("{stem}.{end}.tar")).unwrap());
        let ends = vec![end_of("a", &read("a"), None), end_of("b", &read("b"), None)];
        let kind = match stem.rsplit('/').next().unwrap().split('-').rev().nth(1).unwrap() {
            "queues" | "stream" | "application" | "buffer" | "lossy" => SymptomKind::Slow,
            "bursts" => SymptomKind::Drops,
            _ => SymptomKind::Late,
        };
        let case = Case { symptom: Symptom { kind, ..Symptom::default() }, ends };
        let said = diagnose(&case);
        let first: Vec<String> = said.causes.iter().take(4).map(|c| format!("{} {}", c.id, c.hit.likelihood_percent)).collect();
        println!("{:40} {}", stem.rsplit('/').next().unwrap(), first.join(", "));
        if verbose { println!("{case:#?}"); for c in &said.causes { println!("{:?}", c.hit); } }
    }
}
