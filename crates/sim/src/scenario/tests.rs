use super::*;

const GOOD: &str = r#"machine = "xeon-gold-6338n"
nic = "x540"
duration = "1s"

[goal]
latency = "p99.9=50us"
loss = "0%"

[[traffic]]
kind = "poisson"
rate = "100kpps"
frame = 64

[queues]
count = 2
rx_descriptors = 512

[worker]
driver = "user"
cores = 2
wait = "adaptive"

[moderation]
policy = "static"
delay = "8us"

[frequency]
policy = "fixed"
at = "2.2GHz"

[idle]
deepest = "C1"

[scheduler]
class = "fifo"
"#;

fn parse(text: &str) -> Result<Scenario, Error> {
    Scenario::parse("a.toml", text, &[], &mut |name| match name {
        "good.csv" => Ok(b"time_ns,octets\n0,64\n1000,1518\n".to_vec()),
        "queue9.csv" => Ok(b"time_ns,octets,queue\n0,64,9\n".to_vec()),
        "empty.csv" => Ok(b"time_ns,octets\n".to_vec()),
        _ => Err("no such file".into()),
    })
}

#[test]
fn reads_all_sections() {
    let scenario = parse(GOOD).unwrap();
    assert_eq!((scenario.seed, scenario.queues, scenario.worker.cores()), (SEED, 2, 2));
    assert_eq!((scenario.warm_up, scenario.duration), (WARM_UP, Nanos::from_secs(1)));
    assert_eq!(scenario.host.nic.rx_descriptors, 512);
    assert_eq!(scenario.host.nic.rx_moderation.delay, Nanos::from_micros(8));
    let states = &scenario.host.processor.cstates;
    assert_eq!(states.states[states.deepest].name, "C1");
    assert_eq!(scenario.goal.unwrap().loss_ppm, Some(0));
}

/// The change to [`GOOD`], the line of the resulting error, and strings that the error must contain.
const WRONG: &[(&str, &str, usize, &[&str])] = &[
    ("duration = \"1s\"", "duration = \"1\"", 3, &["`duration = \"1\"`", "50us"]),
    ("duration = \"1s\"", "duration = 1", 3, &["`duration` is a whole number", "a text in quotes", "50us"]),
    ("duration = \"1s\"", "duration = \"0s\"", 3, &["more than 0"]),
    ("duration = \"1s\"", "duration = \"86401s\"", 3, &["at most 86400s"]),
    (
        "duration = \"1s\"",
        "duration = \"1ns\"",
        3,
        &["no packet can arrive and leave within it", "the time of a single packet in the x540", "1s is usual"],
    ),
    ("duration = \"1s\"", "duration = \"1us\"", 3, &["no packet can arrive and leave within it"]),
    ("duration = \"1s\"", "duraton = \"1s\"", 1, &["`duration` is missing", "add duration"]),
    ("xeon-gold-6338n", "xeon-gold", 1, &["xeon-gold-6338n"]),
    ("xeon-gold-6338n", "mine.toml", 1, &["`mine.toml`", "no such file"]),
    ("\"x540\"", "\"xeon-gold-6338n\"", 2, &["no network controller"]),
    ("nic = \"x540\"\n", "", 1, &["no network controller", "add nic"]),
    ("p99.9=50us", "p99.9=50", 6, &["expected a duration"]),
    ("p99.9=50us", "p100=50us", 6, &["a quantile such as p99"]),
    ("\"0%\"", "\"0\"", 7, &["0.1%"]),
    ("\"poisson\"", "\"poison\"", 10, &["did you mean `poisson`?"]),
    ("100kpps", "100", 11, &["14.88Mpps"]),
    ("100kpps", "20Mpps", 11, &["13440 Mbit/s", "10000 Mbit/s", "lower rate"]),
    ("frame = 64", "frame = 63", 12, &["64 to 9216", "IMIX"]),
    ("frame = 64", "frame = 64\nperiod = \"5us\"", 13, &["unknown key `traffic.0.period`"]),
    ("frame = 64", "queue = 2", 12, &["from 0 to 1"]),
    ("count = 2", "count = 1", 20, &["2 cores for 1 queue;", "[queues]", "metronome"]),
    ("rx_descriptors = 512", "rx_descriptors = 0", 16, &["from 1 to 65536"]),
    ("rx_descriptors = 512", "rx_ring = 512", 16, &["unknown key `queues.rx_ring`", "rx_descriptors"]),
    ("driver = \"user\"", "driver = \"kernel\"", 21, &["unknown key `worker.wait`"]),
    ("wait = \"adaptive\"", "wait = \"adaptve\"", 21, &["did you mean `adaptive`?"]),
    ("wait = \"adaptive\"", "wait = \"backoff\"\nsleep_max = \"20ms\"", 22, &["at most 10ms"]),
    ("wait = \"adaptive\"", "wait = \"poll\"\nknows = true", 22, &["worker.knows", "only adaptive"]),
    ("wait = \"adaptive\"", "wait = \"backoff\"\nlimits_idle = true", 22, &["worker.limits_idle", "only adaptive"]),
    (
        "cores = 2\nwait = \"adaptive\"",
        "cores = 1\nwait = \"metronome\"",
        18,
        &["2 queues for 1 metronome thread", "cores in [worker]"],
    ),
    (
        "wait = \"adaptive\"",
        "wait = \"metronome\"\nvacation = \"0us\"",
        22,
        &["`worker.vacation = \"0ns\"`", "more than 0 and at most 100ms"],
    ),
    (
        "wait = \"adaptive\"",
        "wait = \"metronome\"\ntimeout = \"1s\"",
        22,
        &["`worker.timeout = \"1s\"`", "at most 100ms"],
    ),
    ("cores = 2", "cores = 2000", 20, &["from 1 to 1536"]),
    (
        "policy = \"fixed\"\nat = \"2.2GHz\"",
        "policy = \"nmap\"",
        28,
        &["nmap with driver = \"user\"", "driver = \"kernel\""],
    ),
    ("policy = \"fixed\"\nat = \"2.2GHz\"", "policy = \"ondemand\"\nup_threshold = 101", 29, &["from 1 to 100"]),
    (
        "policy = \"fixed\"\nat = \"2.2GHz\"",
        "policy = \"ondemand\"\nsampling_rate = \"1us\"",
        29,
        &["100us to 10s", "such as 10ms"],
    ),
    ("policy = \"fixed\"\nat = \"2.2GHz\"", "policy = \"schedutil\"\nrate_limit = \"11s\"", 29, &["0ns to 10s"]),
    (
        "policy = \"fixed\"\nat = \"2.2GHz\"",
        "policy = \"ondemand\"\nfreq_step = 5",
        29,
        &["unknown key `frequency.freq_step`"],
    ),
    (
        "policy = \"fixed\"\nat = \"2.2GHz\"",
        "policy = \"conservative\"\ndown_threshold = 80",
        29,
        &["up_threshold of 80"],
    ),
    ("policy = \"fixed\"\nat = \"2.2GHz\"", "policy = \"schedutl\"", 28, &["did you mean `schedutil`?"]),
    ("policy = \"fixed\"\nat = \"2.2GHz\"", "policy = \"performance\"\nlowest = \"9GHz\"", 29, &["800MHz to 3500MHz"]),
    ("wait = \"adaptive\"", "", 18, &["`worker.wait` is missing", "hybrid300"]),
    ("cores = 2", "cores = 2\nframe = \"100\"", 21, &["150cycles"]),
    ("policy = \"static\"", "policy = \"dim\"", 24, &["driver = \"kernel\""]),
    ("policy = \"static\"", "policy = \"off\"", 25, &["unknown key `moderation.delay`"]),
    ("delay = \"8us\"", "", 23, &["without a setting", "rx-usecs"]),
    ("delay = \"8us\"", "frames = 32", 25, &["last frames would wait forever"]),
    ("at = \"2.2GHz\"", "at = \"2.25GHz\"", 29, &["800MHz to 3500MHz, in steps of 100MHz"]),
    ("at = \"2.2GHz\"", "at = \"2.2us\"", 29, &["2.1GHz"]),
    ("deepest = \"C1\"", "deepest = \"C3\"", 32, &["POLL, C1, C1E, C6"]),
    ("class = \"fifo\"", "class = \"fair\"\nthrottle = true", 36, &["only FIFO threads"]),
    ("class = \"fifo\"", "clas = \"fifo\"", 35, &["did you mean `class`?"]),
    ("[scheduler]", "[schedular]", 34, &["unknown key `schedular`", "did you mean `scheduler`?"]),
    ("[scheduler]", "[scheduler", 34, &["write it as TOML"]),
    ("class = \"fifo\"", "slack = \"5s\"", 35, &["`slack = \"5s\"`", "expected at most 1s"]),
];

/// The kernel accepts 0 for `rate_limit_us`, and so do scenarios.
#[test]
fn schedutil_may_ask_at_each_wake_up() {
    let text = GOOD.replacen("policy = \"fixed\"\nat = \"2.2GHz\"", "policy = \"schedutil\"\nrate_limit = \"0us\"", 1);
    assert_ne!(text, GOOD);
    assert!(parse(&text).is_ok());
}

#[test]
fn what_is_wrong_is_told_with_line_and_remedy() {
    for (from, to, line, parts) in WRONG {
        let text = GOOD.replacen(from, to, 1);
        assert_ne!(text, GOOD, "{from} is not there");
        let error = parse(&text).expect_err(to).to_string();
        assert!(error.starts_with(&format!("a.toml:{line}: ")), "{from} -> {to}: {error}");
        for part in *parts {
            assert!(error.contains(part), "{from} -> {to}: {error:?} does not say {part:?}");
        }
    }
}

/// Traffic that replaces that of [`GOOD`], and a part of the expected error. `None` if the traffic is valid.
const TRAFFIC: &[(&str, Option<&str>)] = &[
    ("kind = \"constant\"\nrate = \"99.8%\"", None),
    ("kind = \"on-off\"\nrate = \"1Mpps\"\non = \"10us\"\noff = \"0us\"\nlengths = \"exponential\"", None),
    ("kind = \"on-off\"\nrate = \"1Mpps\"\non = \"0us\"\noff = \"1us\"", Some("`on` is 0")),
    ("kind = \"on-off\"\nrate = \"1Mpps\"\non = \"1us\"", Some("`off` is missing")),
    ("kind = \"slots\"\nperiod = \"500us\"\nburst = 4\nspacing = \"3us\"\njitter = \"10us\"", None),
    ("kind = \"slots\"\nperiod = \"10us\"\nburst = 4\nspacing = \"3us\"\njitter = \"1us\"", Some("does not fit 10us")),
    ("kind = \"request\"\ndistance = \"10us\"\nanswer = 1518", None),
    ("kind = \"request\"", Some("one way to the client")),
    ("kind = \"request\"\ndistance = \"10us\"\nconnections = 0", Some("from 1 to")),
    (
        "kind = \"self-similar\"\nrate = \"100kpps\"\npeak = \"20kpps\"\nsources = 16\nburst = \"1ms\"\nhurst = \"0.8\"",
        None,
    ),
    ("kind = \"self-similar\"\nrate = \"100kpps\"\npeak = \"5kpps\"\nburst = \"1ms\"", Some("a higher peak")),
    ("kind = \"self-similar\"\nrate = \"1kpps\"\npeak = \"5kpps\"\nburst = \"1ms\"\nhurst = \"0.5\"", Some("0.501")),
    ("kind = \"replay\"\nfile = \"good.csv\"\nrepeat = true", None),
    ("kind = \"replay\"\nfile = \"lost.pcap\"", Some("no such file")),
    ("kind = \"replay\"\nfile = \"empty.csv\"", Some("holds no frame")),
    ("kind = \"replay\"\nfile = \"queue9.csv\"", Some("frames for queue 9")),
    ("kind = \"replay\"\nfile = \"good.csv\"\nframe = 64", Some("unknown key `traffic.0.frame`")),
    ("kind = \"constant\"\nrate = \"60%\"\n[[traffic]]\nkind = \"constant\"\nrate = \"50%\"", Some("11000 Mbit/s")),
];

#[test]
fn each_kind_of_traffic_has_its_keys() {
    for (keys, wrong) in TRAFFIC {
        let text = GOOD.replacen("kind = \"poisson\"\nrate = \"100kpps\"\nframe = 64", keys, 1);
        assert_ne!(text, GOOD);
        match (parse(&text), wrong) {
            (Ok(_), None) => {}
            (Err(error), Some(part)) if error.to_string().contains(part) => {}
            (result, _) => panic!("{keys}: {:?}", result.map(|_| ()).map_err(|error| error.to_string())),
        }
    }
}

#[test]
fn the_goals_policies_need_a_goal() {
    let without = GOOD.replace("[goal]\nlatency = \"p99.9=50us\"\nloss = \"0%\"\n", "");
    assert!(parse(&without).is_ok());
    let frequency = without.replace("policy = \"fixed\"\nat = \"2.2GHz\"", "policy = \"goal\"");
    assert!(parse(&frequency).unwrap_err().to_string().contains("add [goal]"));
    let kernel = |text: &str| text.replace("\"user\"", "\"kernel\"").replace("wait = \"adaptive\"\n", "");
    let moderation = kernel(&without).replace("policy = \"static\"\ndelay = \"8us\"", "policy = \"goal\"");
    assert!(parse(&moderation).unwrap_err().to_string().contains("add [goal]"));
    let both = kernel(GOOD)
        .replace("policy = \"static\"\ndelay = \"8us\"", "policy = \"goal\"")
        .replace("policy = \"fixed\"\nat = \"2.2GHz\"", "policy = \"goal\"\nhighest = \"3GHz\"");
    assert!(parse(&both).is_ok(), "{:?}", parse(&both).err());
}

/// A hold-off needs a policy that chooses it, and interrupts.
#[test]
fn only_adaptive_holds_off() {
    let hold_off = |worker: &str, keys: &str| {
        let text = format!(
            "machine = \"xeon-gold-6338n\"\nnic = \"x540\"\nduration = \"1s\"\n[[traffic]]\nkind = \"poisson\"\nrate = \
             \"1kpps\"\n[worker]\n{worker}\n[moderation]\npolicy = \"hold-off\"\n{keys}\n"
        );
        parse(&text).map(|scenario| scenario.moderation).map_err(|error| error.to_string())
    };
    let adaptive = "driver = \"user\"\nwait = \"adaptive\"";
    for (keys, every) in [("", Nanos::from_millis(40)), ("every = \"2ms\"", Nanos::from_millis(2))] {
        assert_eq!(hold_off(adaptive, keys), Ok(ModerationPlan::HoldOff { every }));
    }
    assert!(hold_off(adaptive, "every = \"0s\"").unwrap_err().contains("expected more than 0"));
    let deaf = format!("{adaptive}\ninterrupts = false");
    for worker in [&deaf, "driver = \"user\"\nwait = \"interrupt\"", "driver = \"kernel\""] {
        let error = hold_off(worker, "").unwrap_err();
        assert!(error.contains("wait = \"adaptive\"") && error.starts_with("a.toml:"), "{worker}: {error}");
    }
}

/// Errors in DIM's profiles and in NMAP's thresholds are reported.
#[test]
fn profiles_and_thresholds_are_checked() {
    let kernel = "machine = \"xeon-gold-6338n\"\nnic = \"x540\"\nduration = \"1s\"\n[[traffic]]\nkind = \"poisson\"\nrate = \"1kpps\"\n\
                  [worker]\ndriver = \"kernel\"\n";
    let dim = |profiles: &str| {
        parse(&format!(
            "{kernel}[moderation]\npolicy = \"dim\"\nmode = \"rx-cqe\"\n[moderation.profiles]\n{profiles}\n"
        ))
        .map(|scenario| scenario.moderation)
        .map_err(|error| error.to_string())
    };
    let ModerationPlan::Dim { profiles, .. } = dim("rx-cqe = \"n,n_9,8_n,n_n,n_n,n\"").unwrap() else {
        panic!("not DIM")
    };
    assert_eq!(
        profiles.map(|profile| (profile.usecs, profile.frames)),
        [(2, 256), (9, 8), (16, 64), (32, 64), (64, 64)]
    );
    for (profiles, line, part) in [
        ("rx-cqe = \"1,1_2,2\"", 13, "expected five profiles"),
        ("rx-eqe = \"1,1_2,2\"", 13, "expected five profiles"),
        ("rx-cqe = \"0,0_1,1_1,1_1,1_1,1\"", 13, "profile 0 of `rx-cqe` has 0 us and 0 frames"),
        ("rx-cqe = 5", 13, "a text in quotes"),
        ("tx-eqe = \"n,n_n,n_n,n_n,n_n,n\"", 13, "unknown key `moderation.profiles.tx-eqe`"),
    ] {
        let error = dim(profiles).unwrap_err();
        assert!(error.starts_with(&format!("a.toml:{line}: ")) && error.contains(part), "{profiles}: {error}");
    }
    let nmap = |keys: &str| {
        parse(&format!("{kernel}[frequency]\npolicy = \"nmap\"\n{keys}\n")).map_err(|error| error.to_string())
    };
    assert!(nmap("ni_threshold = 16\ncu_threshold = \"0.5\"").is_ok());
    for (keys, part) in [
        ("ni_threshold = 16", "nmap without its thresholds"),
        ("ni_threshold = 0\ncu_threshold = \"0.5\"", "from 1 to 1000000"),
        ("ni_threshold = 16\ncu_threshold = \"0\"", "a ratio such as 0.5"),
        ("ni_threshold = 16\ncu_threshold = 0.5", "a text in quotes"),
    ] {
        let error = nmap(keys).unwrap_err();
        assert!(error.contains(part), "{keys}: {error}");
    }
}

/// An error in a machine's file is reported with that file's line and key, not with the scenario's.
#[test]
fn a_machines_file_has_its_own_errors() {
    let good = crate::machine::Machine::text("xl710").unwrap();
    let told = |from: &str, to: &str| {
        let file = good.replacen(from, to, 1);
        assert_ne!(file, good, "{from}");
        let text = GOOD.replacen("\"x540\"", "\"mine.toml\"", 1);
        let mut load = |_: &str| Ok(file.clone().into_bytes());
        Scenario::parse("a.toml", &text, &[], &mut load).unwrap_err().to_string()
    };
    for (from, to, parts) in [
        ("\nphy", "\nphi", ["unknown key `nic.phi`", "did you mean `phy`?"]),
        ("\nphy = { value = \"", "\nphy = { value = \"x", ["`nic.phy.value` is \"x", "expected a duration"]),
    ] {
        let error = told(from, to);
        let line = 1 + good.lines().position(|line| line.starts_with("phy")).unwrap();
        assert!(error.starts_with(&format!("mine.toml:{line}: ")), "{error}");
        parts.iter().for_each(|part| assert!(error.contains(part), "{error:?} does not say {part:?}"));
    }
    // If a valid machine file lacks the part that the scenario needs, the error is reported for the scenario.
    let text = GOOD.replacen("xeon-gold-6338n", "mine.toml", 1);
    let mut load = |_: &str| Ok(good.as_bytes().to_vec());
    let error = Scenario::parse("a.toml", &text, &[], &mut load).unwrap_err().to_string();
    assert!(
        error.starts_with("a.toml:1: mine.toml has no processor") && error.contains("apus sim machines"),
        "{error}"
    );
}
