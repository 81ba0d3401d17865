//! Any octets as any files of a host, judged by all rules for all uses: nothing panics, and what is judged rests on
//! something.
#![no_main]

use audit::{Intent, Workload, audit};
use host::facts::{Facts, Root};
use libfuzzer_sys::fuzz_target;

#[path = "../files.rs"]
mod files;

fuzz_target!(|data: &[u8]| {
    let facts = Facts::read(&Root::given(files::split(data)));
    let everything = Intent {
        isolated: "2-7".parse().ok(),
        nics: Some(vec!["eth0".into()]),
        workloads: Some(Workload::ALL.to_vec()),
        goal: None,
    };
    for intent in [Intent::default(), everything] {
        for finding in audit(&facts, &intent).findings {
            let judgement = &finding.judgement;
            let rests = judgement.verdict.reason().is_some() || !judgement.evidence.is_empty();
            assert!(rests, "{} rests on nothing: {judgement:?}", finding.rule.id);
        }
    }
});
