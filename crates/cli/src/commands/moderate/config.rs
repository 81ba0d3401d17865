//! Which interfaces to control and how, from the command line or from the configuration file.
//!
//! ```toml
//! [defaults]              # optional; for interfaces that do not say otherwise
//! goal = "p99=200us"
//!
//! [interface.eth0]
//! goal = "p99=100us"
//! peak_rate = "2Mpps"
//! [interface.eth0.queue.3]
//! goal = "p99.9=1ms"
//!
//! [interface.eth1]
//! policy = "net-dim"
//! place = "nic"
//! ```
//! Unknown keys are errors. All mistakes are reported at once, each with its line and column.

use std::fmt;
use std::path::Path;

use clap::ValueEnum as _;
use policy::Goal;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use units::PacketRate;

use crate::Failure;
use crate::args::moderate::{GOAL, Moderate, Place, Policy, policy, queue_number, wrong_interface};
use crate::args::values::rate;

/// The interfaces to control, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// The interfaces, at least one. From the command line, they are in the order in which they were typed; from a
    /// file, they are sorted by name.
    pub interfaces: Vec<InterfaceConfig>,
}

/// How to control the interrupt moderation of an interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InterfaceConfig {
    /// Name of the interface.
    pub name: String,
    /// Latency goal of each queue without a separate goal. The policy `goal` controls the queue to meet it; under other
    /// policies, it only determines the verdict.
    pub goal: Goal,
    /// The policy that chooses the interrupt delay.
    pub policy: Policy,
    /// Where the interrupt delay is set.
    pub place: Place,
    /// Highest packet rate that one queue may receive. `None`: the rate of 64-byte frames at line rate.
    pub peak_rate: Option<PacketRate>,
    /// The queues with a separate goal: number and goal. Empty unless the policy is `goal`.
    pub queues: Vec<(u32, Goal)>,
}

/// Maximum size of a configuration file in bytes, enough for a section for each of thousands of queues.
const LARGEST: u64 = 1 << 20;

impl Config {
    /// The configuration from the command line, or from the file that it names.
    pub fn of(typed: &Moderate) -> Result<Self, Failure> {
        match &typed.config {
            Some(file) => Self::read(file),
            None => Self::typed(typed),
        }
    }

    /// Reads a configuration file.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let what = format!("cannot use the configuration file {}", path.display());
        let text = text(path).map_err(|e| {
            Failure::wrong(&what, e, "create it, or name another file; docs/moderate.md has an example")
        })?;
        Self::parse(&path.display().to_string(), &text).map_err(|mistakes| {
            let lines: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
            Failure::wrong(
                &what,
                lines.join("\n"),
                "correct the file; apus moderate check reads it and changes nothing",
            )
        })
    }

    fn typed(typed: &Moderate) -> Result<Self, Failure> {
        let wrong = |what: String, why: &str| Failure::wrong(what, why, "apus moderate --help explains the options");
        let mut queues = typed.queue_goals.clone();
        queues.sort_by_key(|(queue, _)| *queue);
        if let Some(pair) = queues.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(wrong(format!("--queue-goal {}", pair[0].0), "the queue has two goals"));
        }
        if typed.policy != Policy::Goal && !queues.is_empty() {
            return Err(wrong(
                format!("--queue-goal with --policy {}", typed.policy),
                "queue goals need --policy goal",
            ));
        }
        if typed.policy != Policy::Goal && typed.peak_rate.is_some() {
            return Err(wrong(
                format!("--peak-rate with --policy {}", typed.policy),
                "the peak rate limits only the timer of --policy goal",
            ));
        }
        let mut interfaces: Vec<InterfaceConfig> = Vec::new();
        for name in &typed.interfaces {
            if !interfaces.iter().any(|known| known.name == *name) {
                interfaces.push(InterfaceConfig {
                    name: name.clone(),
                    goal: typed.goal,
                    policy: typed.policy,
                    place: typed.place,
                    peak_rate: typed.peak_rate,
                    queues: queues.clone(),
                });
            }
        }
        Ok(Self { interfaces })
    }

    /// Parses a configuration file. `file` is its name in error messages.
    fn parse(file: &str, text: &str) -> Result<Self, Vec<Mistake>> {
        let mut reader = Reader { file, text, mistakes: Vec::new() };
        let (root, errors) = DeTable::parse_recoverable(text);
        if !errors.is_empty() {
            // If the text is not TOML, only these errors are reported: further ones would be misleading.
            for error in errors {
                reader.mistake(error.span().map_or(0, |span| span.start), error.message().trim().replace('\n', "; "));
            }
            return Err(reader.sorted());
        }
        let config = reader.config(root.get_ref());
        if reader.mistakes.is_empty() { Ok(config) } else { Err(reader.sorted()) }
    }
}

/// A mistake in the configuration file: `moderate.toml:3:8: expected a goal such as p99.9=50us`.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Mistake {
    file: String,
    /// Line, from 1.
    line: usize,
    /// Column in characters, from 1.
    column: usize,
    why: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.why)
    }
}

fn text(path: &Path) -> std::io::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    std::fs::File::open(path)?.take(LARGEST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LARGEST {
        return Err(std::io::Error::other("it is larger than 1 MiB"));
    }
    Ok(text)
}

/// The keys of a section, which say how to control the moderation.
#[derive(Default)]
struct Keys {
    goal: Option<Goal>,
    policy: Option<Policy>,
    place: Option<Place>,
    peak_rate: Option<PacketRate>,
}

/// Reads sections, and collects the mistakes.
struct Reader<'a> {
    file: &'a str,
    text: &'a str,
    mistakes: Vec<Mistake>,
}

type Entry<'e, 'i> = (&'e Spanned<std::borrow::Cow<'i, str>>, &'e Spanned<DeValue<'i>>);

impl Reader<'_> {
    fn mistake(&mut self, octet: usize, why: impl Into<String>) {
        let before = self.text.get(..octet).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        self.mistakes.push(Mistake { file: self.file.to_owned(), line, column, why: why.into() });
    }

    /// The mistakes, in the order of the file.
    fn sorted(mut self) -> Vec<Mistake> {
        self.mistakes.sort_by_key(|mistake| (mistake.line, mistake.column));
        self.mistakes
    }

    fn config(&mut self, root: &DeTable<'_>) -> Config {
        let mut defaults = Keys::default();
        let mut sections: Vec<Entry<'_, '_>> = Vec::new();
        for (key, value) in root.iter() {
            match key.get_ref().as_ref() {
                "defaults" => {
                    for entry in self.table(key.get_ref(), value) {
                        self.keys(entry, &mut defaults, &["goal", "policy", "place"]);
                    }
                }
                "interface" => sections = self.table("interface", value),
                other => self.mistake(
                    key.span().start,
                    format!("the section {other:?} is unknown; expected defaults or interface.NAME"),
                ),
            }
        }
        if sections.is_empty() && self.mistakes.is_empty() {
            self.mistake(self.text.len(), "it lists no interface; add a section such as [interface.eth0]");
        }
        let mut interfaces: Vec<_> = sections.into_iter().map(|section| self.interface(section, &defaults)).collect();
        interfaces.sort_by(|a, b| a.name.cmp(&b.name));
        Config { interfaces }
    }

    fn interface(&mut self, (key, value): Entry<'_, '_>, defaults: &Keys) -> InterfaceConfig {
        let name = key.get_ref().as_ref();
        if let Some(why) = wrong_interface(name) {
            self.mistake(key.span().start, format!("{name:?}: {why}"));
        }
        let mut own = Keys::default();
        let mut queues: Vec<(u32, Goal)> = Vec::new();
        let mut goals_at: Vec<usize> = Vec::new();
        let mut peak_at = None;
        for entry in self.table(name, value) {
            if entry.0.get_ref() != "queue" {
                peak_at = peak_at.or((entry.0.get_ref() == "peak_rate").then_some(entry.0.span().start));
                self.keys(entry, &mut own, &["goal", "policy", "place", "peak_rate", "queue"]);
                continue;
            }
            for (number, value) in self.table("queue", entry.1) {
                let queue = queue_number(number.get_ref()).map_err(|why| self.mistake(number.span().start, why));
                let mut keys = Keys::default();
                let known = self.mistakes.len();
                for entry in self.table(number.get_ref(), value) {
                    self.keys(entry, &mut keys, &["goal"]);
                }
                match (queue, keys.goal) {
                    (Ok(queue), Some(goal)) => queues.push((queue, goal)),
                    (Ok(queue), None) if self.mistakes.len() == known => {
                        self.mistake(number.span().start, format!("queue {queue} has no goal"));
                    }
                    _ => {}
                }
                goals_at.push(number.span().start);
            }
        }
        queues.sort_by_key(|(queue, _)| *queue);
        let policy = own.policy.or(defaults.policy).unwrap_or(Policy::Goal);
        if policy != Policy::Goal {
            for at in goals_at {
                self.mistake(at, format!("a queue can have a goal only with the policy goal, and {name} has {policy}"));
            }
            if let Some(at) = peak_at {
                let why = format!("peak_rate limits the timer only with the policy goal, and {name} has {policy}");
                self.mistake(at, why);
            }
        }
        InterfaceConfig {
            name: name.to_owned(),
            goal: own.goal.or(defaults.goal).unwrap_or_else(|| GOAL.parse().expect("a goal")),
            policy,
            place: own.place.or(defaults.place).unwrap_or(Place::Napi),
            peak_rate: own.peak_rate,
            queues,
        }
    }

    /// Reads one key of a section into `keys`; `known` has the keys that the section may have.
    fn keys(&mut self, (key, value): Entry<'_, '_>, keys: &mut Keys, known: &[&str]) {
        let name = key.get_ref().as_ref();
        if !known.contains(&name) {
            let why = format!("the key {name:?} is unknown here; expected {}", known.join(", "));
            return self.mistake(key.span().start, why);
        }
        let Some(text) = value.get_ref().as_str() else {
            let why = format!("{name} must be a text in quotes, not {}", kind(value.get_ref()));
            return self.mistake(value.span().start, why);
        };
        let wrong = match name {
            "goal" => set(&mut keys.goal, text.parse()),
            "policy" => set(&mut keys.policy, policy(text)),
            "place" => set(&mut keys.place, Place::from_str(text, false).map_err(|_| "expected napi, epoll or nic")),
            _ => set(&mut keys.peak_rate, rate(text)),
        };
        if let Some(why) = wrong {
            self.mistake(value.span().start, format!("{name} = {text:?}: {why}"));
        }
    }

    /// The entries of a section, in the order of the file.
    fn table<'e, 'i>(&mut self, name: &str, value: &'e Spanned<DeValue<'i>>) -> Vec<Entry<'e, 'i>> {
        match value.get_ref().as_table() {
            Some(table) => table.iter().collect(),
            None => {
                self.mistake(value.span().start, format!("{name} must be a section, not {}", kind(value.get_ref())));
                Vec::new()
            }
        }
    }
}

/// Stores a value. Returns the reason if the value is invalid.
fn set<T, E: fmt::Display>(to: &mut Option<T>, value: Result<T, E>) -> Option<String> {
    match value {
        Ok(value) => {
            *to = Some(value);
            None
        }
        Err(why) => Some(why.to_string()),
    }
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a section",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;
    use policy::moderation::Profile;
    use proptest::prelude::*;

    fn goal(text: &str) -> Goal {
        text.parse().unwrap()
    }

    fn mistakes(text: &str) -> Vec<String> {
        Config::parse("f", text).unwrap_err().iter().map(ToString::to_string).collect()
    }

    fn typed(words: &[&str]) -> Moderate {
        let words = ["apus", "moderate"].iter().chain(words);
        match crate::args::Args::try_parse_from(words).unwrap().command {
            crate::args::Command::Moderate(typed) => typed,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_file_says_what_each_interface_gets() {
        let text = r#"
            [defaults]
            goal = "p99=200us"
            place = "nic"
            [interface.eth0]
            goal = "p99=100us"
            peak_rate = "2Mpps"
            [interface.eth0.queue.12]
            goal = "p99=50us"
            [interface.eth0.queue.3]
            goal = "p99.9=1ms"
            [interface."eth1.100"]
            policy = "net-dim"
            place = "napi"
            [interface.eth2]
            policy = "static:50us"
            [interface.eth3]
        "#;
        let config = Config::parse("f", text).unwrap();
        let names: Vec<&str> = config.interfaces.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["eth0", "eth1.100", "eth2", "eth3"]);
        assert_eq!(
            config.interfaces[0],
            InterfaceConfig {
                name: "eth0".into(),
                goal: goal("p99=100us"),
                policy: Policy::Goal,
                place: Place::Nic,
                peak_rate: Some("2Mpps".parse().unwrap()),
                queues: vec![(3, goal("p99.9=1ms")), (12, goal("p99=50us"))],
            }
        );
        let of = |n: usize| (config.interfaces[n].goal, config.interfaces[n].policy, config.interfaces[n].place);
        assert_eq!(of(1), (goal("p99=200us"), Policy::NetDim, Place::Napi));
        assert_eq!(of(2), (goal("p99=200us"), Policy::Static(Profile::eqe(50, 0)), Place::Nic));
        assert_eq!(of(3), (goal("p99=200us"), Policy::Goal, Place::Nic));
    }

    #[test]
    fn all_mistakes_are_said_at_once_with_their_places() {
        let text = "\
[default]
goal = \"p99=1ms\"
[defaults]
goal = \"100us\"
peak_rate = \"1Mpps\"
[interface.\"eth 0\"]
goal = 5
colour = \"red\"
[interface.eth1]
policy = \"dim\"
place = \"card\"
queue = 3
peak_rate = \"fast\"
[interface.eth2]
policy = \"net-dim\"
peak_rate = \"0pps\"
  [interface.eth2.queue.01]
  goal = \"p99=1ms\"
  [interface.eth2.queue.4]
  policy = \"goal\"
[interface.eth3.queue.1]
[interface]
eth4 = true
";
        let expected = [
            r#"f:1:2: the section "default" is unknown; expected defaults or interface.NAME"#,
            r#"f:4:8: goal = "100us": expected a goal such as p99.9=50us"#,
            r#"f:5:1: the key "peak_rate" is unknown here; expected goal, policy, place"#,
            r#"f:6:12: "eth 0": an interface name has 1 to 15 characters, without /, : and spaces"#,
            "f:7:8: goal must be a text in quotes, not a whole number",
            r#"f:8:1: the key "colour" is unknown here; expected goal, policy, place, peak_rate, queue"#,
            r#"f:10:10: policy = "dim": choose goal, net-dim or static:TIME, such as static:50us"#,
            r#"f:11:9: place = "card": expected napi, epoll or nic"#,
            "f:12:9: queue must be a section, not a whole number",
        ];
        let said = mistakes(text);
        assert_eq!(said[..expected.len()], expected);
        let rest = said[expected.len()..].join("\n");
        for part in [
            "f:13:13: peak_rate = \"fast\": ",
            "f:16:13: peak_rate = \"0pps\": expected a rate of at least 1pps",
            "f:16:1: peak_rate limits the timer only with the policy goal, and eth2 has net-dim",
            "f:17:25: \"01\" is not the number of a queue, 0 to 4095",
            "f:17:25: a queue can have a goal only with the policy goal, and eth2 has net-dim",
            "f:20:3: the key \"policy\" is unknown here; expected goal",
            "f:21:23: queue 1 has no goal",
            "f:23:8: eth4 must be a section, not true or false",
        ] {
            assert!(rest.contains(part), "{part}\nis not in\n{rest}");
        }
    }

    #[test]
    fn what_is_no_toml_is_said_with_its_place() {
        let said = mistakes("[interface.eth0]\ngoal = \"p99=1ms\ngoal\n");
        assert!(said[0].starts_with("f:2:"), "{said:?}");
        let twice = mistakes("[interface.eth0]\n[interface.eth0]\n");
        assert!(twice[0].starts_with("f:2:"), "{twice:?}");
        for empty in ["", "# nothing\n", "[defaults]\n", "[interface]\n"] {
            assert!(mistakes(empty)[0].contains("it lists no interface"), "{empty:?}");
        }
        assert!(mistakes("[interface.\"eth*\"]\n")[0].contains("patterns are not supported: name each interface"));
        // A column counts characters, not bytes.
        assert_eq!(mistakes("[interface.\"ü:\"]\n")[0].split(':').nth(2), Some("12"));
        assert_eq!(mistakes("interface = { \"üü\" = 1 }\n")[0].split(':').nth(2), Some("22"));
    }

    #[test]
    fn the_command_line_and_a_file_say_the_same() {
        let by_words = Config::of(&typed(&[
            "eth1",
            "eth0",
            "eth1",
            "--goal",
            "p99=1ms",
            "--queue-goal",
            "3:p99=50us",
            "--queue-goal",
            "0:p50=10us",
            "--place",
            "nic",
            "--peak-rate",
            "1Mpps",
        ]))
        .unwrap();
        let section = |name: &str| {
            format!(
                "[interface.{name}]\ngoal = \"p99=1ms\"\nplace = \"nic\"\npeak_rate = \"1Mpps\"\n\
                 queue.0.goal = \"p50=10us\"\nqueue.3.goal = \"p99=50us\"\n"
            )
        };
        let by_file = Config::parse("f", &(section("eth0") + &section("eth1"))).unwrap();
        let mut sorted = by_words.clone();
        assert_eq!(sorted.interfaces.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["eth1", "eth0"]);
        sorted.interfaces.reverse();
        assert_eq!(sorted, by_file);
        let plain = Config::of(&typed(&["eth0"])).unwrap();
        assert_eq!(plain, Config::parse("f", "[interface.eth0]\n").unwrap());
        for (words, why) in [
            (&["eth0", "--queue-goal", "1:p99=1ms", "--queue-goal", "1:p99=2ms"][..], "the queue has two goals"),
            (&["eth0", "--policy", "net-dim", "--queue-goal", "1:p99=1ms"], "queue goals need --policy goal"),
            (
                &["eth0", "--policy", "net-dim", "--peak-rate", "1Mpps"],
                "the peak rate limits only the timer of --policy goal",
            ),
        ] {
            let failure = Config::of(&typed(words)).unwrap_err();
            assert!(failure.why == why && failure.status == crate::Status::Wrong, "{failure}");
        }
    }

    #[test]
    fn subcommands_and_interfaces_do_not_get_in_each_others_way() {
        use crate::args::moderate::{CONFIG, Command};
        assert!(matches!(typed(&["status"]).command, Some(Command::Status(_))));
        assert!(matches!(typed(&["check"]).command, Some(Command::Check(check)) if check.file == Path::new(CONFIG)));
        for words in [&["--", "status"][..], &["--goal", "p99=1ms", "status"], &["--dry-run", "--", "status"]] {
            assert_eq!(typed(words).interfaces, ["status"], "a subcommand comes first");
        }
        assert_eq!(typed(&["--config"]).config.as_deref(), Some(Path::new(CONFIG)));
        assert_eq!(typed(&["--config", "x", "--dry-run"]).config.as_deref(), Some(Path::new("x")));
        for wrong in [
            &[][..],
            &["eth0", "--config"],
            &["--config", "--goal", "p99=1ms"],
            &["--config", "--queue-goal", "1:p99=1ms"],
            &["status", "eth0"],
        ] {
            let words = ["apus", "moderate"].iter().chain(wrong);
            assert!(crate::args::Args::try_parse_from(words).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn files_that_cannot_be_read_are_said() {
        let failure = Config::read(Path::new("/nonexistent/x.toml")).unwrap_err();
        assert_eq!(failure.status, crate::Status::Wrong);
        assert!(failure.what.contains("/nonexistent/x.toml"), "{failure}");
        assert!(Config::read(Path::new("/dev/zero")).is_err(), "without an end");
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(?s).{0,200}") {
            let _ = Config::parse("f", &text);
        }

        #[test]
        fn no_section_panics(key in "[a-z0-9.]{1,12}", value in "[\"a-z0-9={}\\[\\]]{0,20}") {
            let _ = Config::parse("f", &format!("[interface.{key}]\n{key} = {value}\n[defaults]\ngoal = {value}\n"));
        }
    }
}
