use std::collections::BTreeSet;

use proptest::prelude::*;

use super::model::*;
use super::*;
use crate::histogram::Histogram;
use crate::random::Random;

const MODES: [&str; 7] =
    ["poll", "interrupt", "backoff", "hybrid300", "adaptive p99=30us", "adaptive p99=60us", "adaptive p99=250us"];

/// CPU time (%) and p99 (us) of each mode, similar to those of a prototype on veth on a 2-vCPU VM.
const SCATTERED: [(&str, [(f64, f64); 7]); 3] = [
    (
        "1 packet each 350 us",
        [(99.8, 14.7), (5.4, 52.8), (16.0, 74.0), (5.9, 57.0), (31.0, 21.4), (15.1, 33.0), (5.2, 55.9)],
    ),
    (
        "Poisson, 20 kpps",
        [(99.7, 16.1), (31.5, 48.2), (33.8, 71.5), (46.0, 50.9), (62.1, 27.8), (33.0, 55.2), (12.4, 221.0)],
    ),
    (
        "highest loss-free rate",
        [(99.9, 310.0), (99.2, 350.0), (98.9, 420.0), (99.6, 333.0), (99.5, 318.0), (99.1, 322.0), (97.0, 341.0)],
    ),
];

fn goals() -> Vec<Goal> {
    [30.0, 60.0, 250.0].map(|us| Goal { label: format!("p99 ≤ {us} us"), value: us }).to_vec()
}

/// Points of a made-up tail with the given p99. A larger `stretch` makes the end of the tail longer.
fn tail(p99: f64, stretch: f64) -> Vec<TailPoint> {
    let above = |i: u32| 10f64.powf(-f64::from(i) / 60.0);
    let value = |a: f64| {
        p99 * (0.35 + 0.65 * (-a.log10() / 2.0).powf(1.3)) * (1.0 + (stretch - 1.0) * (-a.log10() / 4.0).powi(3))
    };
    let mut points: Vec<TailPoint> = (0..=250).map(|i| TailPoint { value: value(above(i)), above: above(i) }).collect();
    points.push(TailPoint { value: value(1e-5), above: 0.0 });
    points
}

fn sample() -> Report {
    let panels = SCATTERED.map(|(load, marks)| ScatterPanel {
        title: load.into(),
        points: MODES
            .iter()
            .zip(marks)
            .map(|(mode, (cpu, p99))| ScatterPoint {
                series: (*mode).into(),
                x: Estimate::between(cpu, cpu * 0.94, (cpu * 1.05).min(100.0)),
                y: Estimate::between(p99, p99 * 0.88, p99 * 1.2),
            })
            .collect(),
        goals: goals(),
    });
    let tails = SCATTERED.map(|(load, marks)| DistributionPanel {
        title: load.into(),
        lines: MODES
            .iter()
            .zip(marks)
            .map(|(mode, (_, p99))| TailLine { series: (*mode).into(), all: tail(p99, 4.0), clean: tail(p99, 1.3) })
            .collect(),
        goals: goals(),
    });
    let rates = [551_300.0, 498_210.0, 471_900.0, 533_000.0, 549_100.0, 548_800.0, 502_400.0];
    let rows = SCATTERED.iter().flat_map(|(load, marks)| {
        MODES.iter().zip(marks).map(move |(mode, (cpu, p99))| {
            vec![
                Cell::Text((*load).into()),
                Cell::Text((*mode).into()),
                Cell::Count(128_431),
                Cell::Number(Estimate::exact(p99 * 0.45)),
                Cell::Number(Estimate::between(*p99, p99 * 0.88, p99 * 1.2)),
                if *mode == "backoff" {
                    Cell::Unknown("too few samples".into())
                } else {
                    Cell::Number(Estimate::exact(p99 * 1.9))
                },
                Cell::Number(Estimate::exact(*cpu)),
                Cell::Count(0),
            ]
        })
    });
    Report {
        title: "Apus: ways of waiting compared".into(),
        lead: "Adaptive waiting holds p99 within 60 us at Poisson 20 kpps with a third of the CPU time of polling.".into(),
        host: vec![
            Fact::new("CPU", "Intel(R) Xeon(R) Platinum 8481C, 2 CPUs, virtualised (KVM)"),
            Fact::new("Kernel", "6.18.44"),
            Fact::unknown("C-states", "no cpuidle driver in this guest"),
            Fact::new("Governor", "none"),
        ],
        conditions: vec![
            Fact::new("Device under test", "macswap on veth dut0, AF_XDP native, copy mode"),
            Fact::new("Frame size", "64 B"),
            Fact::new("Runs", "3 a mode and load, interleaved (A B B A)"),
            Fact::unknown("Energy", "no RAPL on this host; CPU time is reported instead"),
        ],
        notes: vec![
            "Latency is measured from the intended send time.".into(),
            "4.1 % of the samples fell into gaps in which the host took the CPU away; they are left out of “clean”.".into(),
        ],
        sections: vec![
            Section::Scatter(Scatter {
                title: "What a late packet costs in CPU time".into(),
                caption: "Lower and further left is better. Bars are 95 % confidence intervals; dashed lines are the goals.".into(),
                x: Axis::linear("CPU time", "% of one core"),
                y: Axis::log("p99 latency", "us"),
                panels: panels.to_vec(),
            }),
            Section::Distribution(Distribution {
                title: "Latency distributions".into(),
                caption: "How many packets were later than the value below. Thick: samples outside of gaps; thin: all samples.".into(),
                x: Axis::log("latency", "us"),
                panels: tails.to_vec(),
            }),
            Section::Trace(Trace {
                title: "Work over time".into(),
                caption: "Lines from top to bottom: requests.".into(),
                x: Axis::linear("time", "ms"),
                y: Axis::linear("longest unit", "us"),
                panels: vec![TracePanel {
                    title: "CPU 1".into(),
                    lines: vec![TraceLine {
                        series: "longest of 100 units".into(),
                        points: (0..50).map(|n| (f64::from(n), 10.0 + f64::from(n % 7))).collect(),
                    }],
                    events: vec![TraceEvent { label: "800 MHz <asked for>".into(), x: 25.0 }],
                }],
            }),
            Section::Bars(Bars {
                title: "Throughput without loss".into(),
                caption: "64-byte frames, one core, NAPI deferral off.".into(),
                quantity: "highest loss-free rate".into(),
                unit: "packets/s".into(),
                bars: MODES
                    .iter()
                    .zip(rates)
                    .map(|(mode, rate)| Bar { series: (*mode).into(), value: Estimate::between(rate, rate * 0.96, rate * 1.03) })
                    .collect(),
            }),
            Section::Table(Table {
                title: "The numbers".into(),
                caption: "Intervals are 95 % confidence intervals.".into(),
                columns: [
                    ("load", ""), ("mode", ""), ("samples", ""), ("median", "us"), ("p99", "us"), ("p99.9", "us"),
                    ("CPU time", "% of one core"), ("lost", "packets"),
                ]
                .map(|(quantity, unit)| Column::new(quantity, unit))
                .to_vec(),
                rows: rows.collect(),
            }),
        ],
        results: serde_json::json!({"seed": 7, "histogram": [[14_700, 3], [15_000, 1]]}),
    }
}

/// An element: its name, and its attributes with entities resolved.
struct Element {
    name: String,
    attributes: Vec<(String, String)>,
}

/// Parses markup as strictly as XML, and panics if it is not well-formed. Returns the elements, and all text outside
/// `style` and `script`.
fn parse(html: &str) -> (Vec<Element>, String) {
    let mut rest = html.strip_prefix("<!DOCTYPE html>").expect("no doctype");
    let (mut elements, mut text, mut open) = (Vec::new(), String::new(), Vec::<String>::new());
    while let Some(at) = rest.find('<') {
        text += &resolve(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('/') {
            let (name, after) = after.split_once('>').expect("end tag is not closed");
            assert_eq!(open.pop().as_deref(), Some(name), "tags are not balanced");
            rest = after;
            continue;
        }
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).expect("tag is not closed");
        let name = rest[..end].to_owned();
        assert!(!name.is_empty(), "stray < before {:.40}", rest);
        rest = &rest[end..];
        let mut attributes: Vec<(String, String)> = Vec::new();
        while let Some(after) = rest.strip_prefix(' ') {
            let (key, after) = after.split_once("=\"").expect("attribute has no value");
            assert!(key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'), "attribute {key:?}");
            let (value, after) = after.split_once('"').expect("attribute is not closed");
            assert!(!value.contains('<') && attributes.iter().all(|(known, _)| known != key));
            attributes.push((key.into(), resolve(value)));
            rest = after;
        }
        if let Some(after) = rest.strip_prefix("/>") {
            rest = after;
        } else {
            rest = rest.strip_prefix('>').expect("tag is not closed");
            if name == "script" || name == "style" {
                rest = &rest[rest.find(&format!("</{name}>")).expect("raw text is not closed")..];
            }
            open.push(name.clone());
        }
        elements.push(Element { name, attributes });
    }
    assert!(open.is_empty(), "{open:?} are not closed");
    (elements, text)
}

fn resolve(text: &str) -> String {
    for after in text.split('&').skip(1) {
        assert!(
            ["amp;", "lt;", "gt;", "quot;", "#39;"].iter().any(|e| after.starts_with(e)),
            "bare & before {after:.20}"
        );
    }
    [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&amp;", "&")]
        .iter()
        .fold(text.to_owned(), |text, (entity, c)| text.replace(entity, c))
}

/// Checks that every number in the drawings is finite.
fn check_drawings(elements: &[Element]) {
    for element in elements {
        for (key, value) in &element.attributes {
            if ["x", "y", "x1", "x2", "y1", "y2", "width", "height"].contains(&key.as_str()) {
                let number: f64 = value.parse().unwrap_or_else(|_| panic!("{}: {key}={value}", element.name));
                assert!(number.is_finite() && (-1.0..1e6).contains(&number), "{}: {key}={value}", element.name);
            }
            if key == "d" {
                assert!(value.starts_with('M') && !value.contains("NaN") && !value.contains("inf"), "path {value}");
            }
        }
    }
}

fn embedded_in(html: &str) -> &str {
    html.split_once("id=\"apus-data\">").unwrap().1.split_once("</script>").unwrap().0
}

fn count(elements: &[Element], class: &str) -> usize {
    let has = |e: &&Element| e.attributes.iter().any(|(k, v)| k == "class" && v.split(' ').any(|c| c == class));
    elements.iter().filter(has).count()
}

#[test]
fn the_file_is_well_formed_and_the_same_each_time() {
    let html = render(&sample());
    assert_eq!(html, render(&sample()));
    let (elements, text) = parse(&html);
    check_drawings(&elements);
    for part in
        ["Apus: ways of waiting compared", "unknown: no cpuidle driver", "CPU time, % of one core", "too few samples"]
    {
        assert!(text.contains(part), "{part} is not in the text");
    }
    assert!(!text.contains("No data"), "the sample is complete");
}

#[test]
fn nothing_is_fetched_and_nothing_runs() {
    let html = render(&sample());
    let (elements, _) = parse(&html);
    let names: BTreeSet<&str> = elements.iter().map(|e| e.name.as_str()).collect();
    for forbidden in ["img", "link", "iframe", "object", "embed", "image", "use", "foreignObject", "base"] {
        assert!(!names.contains(forbidden), "{forbidden}");
    }
    assert_eq!(elements.iter().filter(|e| e.name == "script").count(), 1);
    assert!(
        elements
            .iter()
            .flat_map(|e| &e.attributes)
            .all(|(key, _)| !key.starts_with("on") && key != "src" && key != "href")
    );
    assert!(!html.contains("url(") && !html.contains("@import") && !html.contains("http:") && !html.contains("https:"));
    assert!(html.contains("default-src &#39;none&#39;"));
}

#[test]
fn every_mode_has_its_marks_and_its_name() {
    let (elements, text) = parse(&render(&sample()));
    // Each mode has one mark in each scatter panel, and five in each distribution: p50, p90, p99, p99.9 and p99.99.
    let swatches = count(&elements, "swatch");
    assert_eq!(count(&elements, "mark") - swatches, MODES.len() * (3 + 3 * 5));
    assert_eq!(count(&elements, "bar"), MODES.len());
    let traced = 1; // The trace's one line.
    assert_eq!(count(&elements, "curve") - swatches, MODES.len() * 3 * 2 + traced);
    for mode in MODES {
        // The name occurs as a label in each of seven plots (or in a key), and in the titles of marks.
        assert!(text.matches(mode).count() > 7, "{mode}");
    }
}

#[test]
fn a_series_looks_the_same_in_all_figures_and_no_two_look_alike() {
    let styles = Styles::of(&sample());
    let looks: Vec<_> = MODES.iter().map(|m| styles.of_series(m)).collect();
    let colours: BTreeSet<String> = looks.iter().map(|l| l.colour()).collect();
    assert_eq!(colours.len(), MODES.len());
    let mut many = sample();
    let bar = |i| Bar { series: format!("s{i}"), value: Estimate::exact(1.0) };
    let Some(Section::Bars(bars)) = many.sections.iter_mut().find(|s| matches!(s, Section::Bars(_))) else {
        panic!("not the bars")
    };
    bars.bars = (0..40).map(bar).collect();
    let styles = Styles::of(&many);
    let looks: BTreeSet<_> = (0..40)
        .map(|i| styles.of_series(&format!("s{i}")))
        .map(|l| (l.colour(), l.outline(svg::At { x: 0.0, y: 0.0 }, 5.0)))
        .collect();
    assert_eq!(looks.len(), 40);
}

#[test]
fn the_embedded_data_are_what_was_given() {
    let mut report = sample();
    report.results = serde_json::json!({
        "</script><script>alert(1)</script>": "<!-- <script> & \u{2028} é \" \\",
        "largest": u64::MAX, "third": 1.0 / 3.0,
    });
    let html = render(&report);
    // Compares the JSON as text: serde_json writes numbers exactly, but reads them exactly only with its feature
    // `float_roundtrip`.
    let text = embedded_in(&html).replace("\\u003c", "<").replace("\\u003e", ">").replace("\\u0026", "&");
    let text = text.replace("\\u2028", "\u{2028}");
    assert!(text.contains(&serde_json::to_string(&report).unwrap()));
    let data: serde_json::Value = serde_json::from_str(embedded_in(&html)).unwrap();
    assert_eq!(data["report"]["results"], report.results);
    assert_eq!(data["report"]["title"], report.title.as_str());
    assert_eq!(data["schema"], "apus.report/1");
    assert_eq!(html.matches("</script>").count(), 1);
}

/// Every point left out of a line lies within about a pixel of a drawn point.
#[test]
fn a_line_has_what_can_be_seen_of_a_distribution() {
    let mut histogram = Histogram::new();
    let mut random = Random::new(7);
    (0..200_000).for_each(|_| histogram.record((5_000.0 / random.unit().powf(0.7)) as u64));
    let document = histogram.to_document();
    let points = super::tail(&document);
    assert!(points.len() < document.counts.len() / 2, "{} of {}", points.len(), document.counts.len());
    assert!(points.windows(2).all(|w| w[0].value < w[1].value && w[0].above > w[1].above));
    let n = histogram.len() as f64;
    let mut above = n;
    for (value, count) in &document.counts {
        above -= *count as f64;
        let (value, share) = (*value as f64 / 1e3, above / n);
        let seen = points.iter().any(|p| {
            let (right, down) = (value / p.value, (p.above / share).max(share / p.above));
            (1.0..=1.0101).contains(&right) && (down <= 1.0301 || share == p.above)
        });
        assert!(seen, "{value} us, {share}");
    }
    assert_eq!(points.last().map(|p| (p.value, p.above)), document.counts.last().map(|(v, _)| (*v as f64 / 1e3, 0.0)));
}

#[test]
fn results_are_embedded_without_histograms() {
    let results =
        serde_json::json!([{"n": 2, "histogram": {"counts": [[1, 2]]}, "inner": [{"histogram": {}}]}, "histogram"]);
    let left = super::without_histograms(results);
    assert_eq!(left, serde_json::json!([{"n": 2, "inner": [{}]}, "histogram"]));
    let kept = serde_json::json!({"histogram": [[14_700, 3]]});
    assert_eq!(super::without_histograms(kept.clone()), kept, "not a histogram's document");
}

/// Puts a string with all kinds of markup into every field of a report that holds text.
#[test]
fn no_text_becomes_markup() {
    let evil = "\"'></title></style></script><script>alert(1)</script><img src=x onerror=alert(1)>&amp;<!--]]>";
    let json = serde_json::to_string(&serde_json::to_value(Evil::report(evil)).unwrap()).unwrap();
    assert!(json.matches("alert(1)</script>").count() >= 30, "not in every place");
    let html = render(&Evil::report(evil));
    let (elements, text) = parse(&html);
    check_drawings(&elements);
    assert!(text.contains(evil));
    assert_eq!(elements.iter().filter(|e| e.name == "script").count(), 1);
    assert!(elements.iter().all(|e| e.name != "img"));
    assert_eq!(elements.iter().filter(|e| e.name == "title").count(), html.matches("</title>").count());
    let html = render(&Evil::report("\u{0}\u{8}\u{fffe}\u{202e}\r\n\t\u{1b}[31m\u{9b}31m\u{7f}"));
    parse(&html);
    assert!(!html.contains(units::acts), "a character that acts on a terminal");
}

struct Evil;

impl Evil {
    fn report(t: &str) -> Report {
        let s = || t.to_owned();
        let (one, axis) = (Estimate::exact(1.0), Axis::linear(t, t));
        let goals = || vec![Goal { label: s(), value: 2.0 }, Goal { label: s(), value: f64::NAN }];
        let point = |v| ScatterPoint { series: s(), x: Estimate::exact(v), y: one };
        let line = |v| TailLine { series: s(), all: vec![TailPoint { value: v, above: 0.5 }], clean: vec![] };
        Report {
            title: s(),
            lead: s(),
            host: vec![Fact::new(t, t), Fact::unknown(t, t)],
            conditions: vec![Fact::new(t, t)],
            notes: vec![s()],
            sections: vec![
                Section::Scatter(Scatter {
                    title: s(),
                    caption: s(),
                    x: axis.clone(),
                    y: axis,
                    panels: vec![ScatterPanel {
                        title: s(),
                        points: vec![point(1.0), point(f64::NAN)],
                        goals: goals(),
                    }],
                }),
                Section::Distribution(Distribution {
                    title: s(),
                    caption: s(),
                    x: Axis::log(t, t),
                    panels: vec![DistributionPanel { title: s(), lines: vec![line(1.0), line(-1.0)], goals: goals() }],
                }),
                Section::Bars(Bars {
                    title: s(),
                    caption: s(),
                    quantity: s(),
                    unit: s(),
                    bars: vec![Bar { series: s(), value: one }, Bar { series: s(), value: Estimate::exact(f64::NAN) }],
                }),
                Section::Table(Table {
                    title: s(),
                    caption: s(),
                    columns: vec![Column::new(t, t)],
                    rows: vec![vec![Cell::Text(s())], vec![Cell::Unknown(s())]],
                }),
            ],
            results: serde_json::json!({ t: t }),
        }
    }
}

#[test]
fn without_data_a_figure_says_so() {
    let scatter = |panels| {
        Section::Scatter(Scatter {
            title: "S".into(),
            caption: String::new(),
            x: Axis::linear("x", "%"),
            y: Axis::log("y", "us"),
            panels,
        })
    };
    let distribution = |panels| {
        Section::Distribution(Distribution {
            title: "D".into(),
            caption: String::new(),
            x: Axis::log("x", "us"),
            panels,
        })
    };
    let bars = |bars| {
        Section::Bars(Bars {
            title: "B".into(),
            caption: String::new(),
            quantity: "q".into(),
            unit: String::new(),
            bars,
        })
    };
    let point = |x, y| ScatterPoint { series: "m".into(), x: Estimate::exact(x), y: Estimate::exact(y) };
    let tail = |value, above| TailLine { series: "m".into(), all: vec![TailPoint { value, above }], clean: vec![] };
    let panel = |points| ScatterPanel { title: "P".into(), points, goals: vec![] };
    let empty = [
        scatter(vec![]),
        scatter(vec![panel(vec![])]),
        scatter(vec![panel(vec![point(f64::NAN, 1.0)])]),
        scatter(vec![panel(vec![point(1.0, 0.0), point(1.0, f64::INFINITY)])]),
        scatter(vec![panel(vec![point(f64::MAX, 1.0), point(f64::MIN, 1.0)])]),
        distribution(vec![]),
        distribution(vec![DistributionPanel { title: "P".into(), lines: vec![], goals: goals() }]),
        distribution(vec![DistributionPanel {
            title: "P".into(),
            lines: vec![tail(f64::NAN, 0.5), tail(1.0, f64::NAN)],
            goals: vec![],
        }]),
        bars(vec![]),
        bars(vec![Bar { series: "m".into(), value: Estimate::exact(f64::NAN) }]),
        Section::Table(Table { title: "T".into(), caption: String::new(), columns: vec![], rows: vec![] }),
    ];
    for section in empty {
        let report = Report { sections: vec![section.clone()], ..Report::default() };
        let (elements, text) = parse(&render(&report));
        check_drawings(&elements);
        assert!(text.contains("No data"), "{section:?} is silently empty: {text}");
    }
    // One point is enough for a figure. It also names the series without data.
    for section in [
        scatter(vec![panel(vec![point(0.0, 1.0), ScatterPoint { series: "gone".into(), ..point(1.0, f64::NAN) }])]),
        bars(vec![
            Bar { series: "m".into(), value: Estimate::exact(0.0) },
            Bar { series: "gone".into(), value: Estimate::exact(f64::NAN) },
        ]),
        distribution(vec![DistributionPanel {
            title: "P".into(),
            lines: vec![tail(3.0, 1.0), TailLine { series: "gone".into(), all: vec![], clean: vec![] }],
            goals: vec![],
        }]),
    ] {
        let report = Report { sections: vec![section], ..Report::default() };
        let (elements, text) = parse(&render(&report));
        check_drawings(&elements);
        assert!(text.contains("No data: gone"), "{text}");
        assert!(count(&elements, "mark") + count(&elements, "curve") + count(&elements, "bar") > 0);
    }
    parse(&render(&Report::default()));
}

fn estimate() -> impl Strategy<Value = Estimate> {
    (any::<f64>(), prop::option::of((any::<f64>(), any::<f64>())))
        .prop_map(|(value, interval)| Estimate { value, interval })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn no_numbers_make_it_fail(
        points in prop::collection::vec((estimate(), estimate()), 0..12),
        tail in prop::collection::vec((any::<f64>(), any::<f64>()), 0..30),
        goal in any::<f64>(),
        log in any::<bool>(),
    ) {
        let axis = if log { Axis::log("a", "b") } else { Axis::linear("a", "b") };
        let mut report = sample();
        report.sections = vec![
            Section::Scatter(Scatter {
                title: String::new(), caption: String::new(), x: axis.clone(), y: axis.clone(),
                panels: vec![ScatterPanel {
                    title: String::new(),
                    points: points.iter().map(|(x, y)| ScatterPoint { series: "s".into(), x: *x, y: *y }).collect(),
                    goals: vec![Goal { label: "g".into(), value: goal }],
                }],
            }),
            Section::Distribution(Distribution {
                title: String::new(), caption: String::new(), x: axis,
                panels: vec![DistributionPanel {
                    title: String::new(),
                    lines: vec![TailLine {
                        series: "s".into(),
                        all: tail.iter().map(|&(value, above)| TailPoint { value, above }).collect(),
                        clean: tail.iter().map(|&(value, above)| TailPoint { value, above: above.abs().fract() }).collect(),
                    }],
                    goals: vec![Goal { label: "g".into(), value: goal }],
                }],
            }),
            Section::Bars(Bars {
                title: String::new(), caption: String::new(), quantity: String::new(), unit: String::new(),
                bars: points.iter().map(|(x, _)| Bar { series: "s".into(), value: *x }).collect(),
            }),
        ];
        check_drawings(&parse(&render(&report)).0);
    }
}

#[test]
fn a_place_that_cannot_be_written_is_named() {
    let error = write(&sample(), Path::new("/nowhere/report.html")).unwrap_err();
    assert!(error.to_string().contains("/nowhere/report.html"), "{error}");
}

/// Not a test: writes the sample report so that you can look at it. Run `cargo test -p tester write_the_sample --
/// --ignored`.
#[test]
#[ignore = "writes a file to look at"]
fn write_the_sample() {
    let path = std::env::temp_dir().join("apus-report-sample.html");
    write(&sample(), &path).unwrap();
    println!("{}", path.display());
}
