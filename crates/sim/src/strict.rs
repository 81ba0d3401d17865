//! Reads TOML strictly: an unknown key, a wrong unit or an impossible value is an error that names its position and the
//! fix.
//!
//! The reader asks a [`Section`] for its keys one by one. [`Section::finish`] then returns an error if any key was not
//! read, so no separate list of keys is needed. Single values can be replaced from outside ([`Override`]); the same
//! rules apply to them.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// An error in a document: where it is, what is wrong, and how to correct it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{place}: {what}; {fix}")]
pub struct Error {
    /// Where the mistake is.
    pub place: Place,
    /// What is wrong there.
    pub what: String,
    /// How to correct the mistake.
    pub fix: String,
}

/// Where a value comes from.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Place {
    /// A line of a file, counted from 1.
    Line {
        /// The file's name as the user gave it.
        file: String,
        /// The line, counted from 1.
        line: usize,
    },
    /// The value is not from the file: it was given as `key=value`, which replaces the file's value.
    Override(String),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line { file, line } => write!(f, "{file}:{line}"),
            Self::Override(text) => f.write_str(text),
        }
    }
}

/// A value that replaces one in the file, for example `traffic.rate` = `1Mpps`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Override {
    /// The full key: the keys of the enclosing tables and the value's own key, separated by dots. A number, from 0,
    /// selects one element of an array of tables; without a number, the value is replaced in all elements.
    pub key: String,
    /// The value. A string needs no quotes.
    pub value: String,
}

/// Reads `KEY=VALUE`. The key ends at the first `=`: in `goal.latency=p99=20us`, the value is `p99=20us`.
impl FromStr for Override {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE such as traffic.rate=1Mpps")?;
        let (key, value) = (key.trim(), value.trim());
        if key.is_empty() || value.is_empty() || key.split('.').any(str::is_empty) {
            return Err("expected KEY=VALUE such as traffic.rate=1Mpps".into());
        }
        Ok(Self { key: key.into(), value: value.into() })
    }
}

impl fmt::Display for Override {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.key, self.value)
    }
}

/// A value, and where it comes from.
#[derive(Clone, Debug)]
struct Entry {
    place: Place,
    value: Value,
}

#[derive(Clone, Debug)]
enum Value {
    Text(String),
    /// A whole number without sign: its digits as written, and their radix.
    Integer(String, u32),
    Flag(bool),
    Tables(Vec<Table>),
    Table(Table),
    /// A value of a type that no key here accepts. The string names the type.
    Other(&'static str),
}

impl Value {
    const fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "a text",
            Self::Integer(..) => "a whole number",
            Self::Flag(_) => "true or false",
            Self::Tables(_) => "a list of tables",
            Self::Table(_) => "a table",
            Self::Other(kind) => kind,
        }
    }
}

#[derive(Clone, Debug)]
struct Table {
    place: Place,
    entries: BTreeMap<String, (Place, Entry)>,
}

/// Reads `text` as TOML. Values in `overrides` replace those of `text`. Error messages give `file` as the file's name.
pub fn parse(file: &str, text: &str, overrides: &[Override]) -> Result<Section, Error> {
    let lines = Lines::new(file, text);
    let root = DeTable::parse(text).map_err(|error| Error {
        place: lines.at(error.span().map_or(0, |span| span.start)),
        what: error.message().to_owned(),
        fix: "write it as TOML".into(),
    })?;
    let mut root = lines.table(lines.at(0), root.get_ref());
    for replaced in overrides {
        replace(&mut root, &replaced.key, replaced)?;
    }
    Ok(Section { path: String::new(), table: root, asked: Vec::new() })
}

/// Converts byte offsets in the text into line numbers.
struct Lines<'a> {
    file: &'a str,
    text: &'a str,
}

impl<'a> Lines<'a> {
    fn new(file: &'a str, text: &'a str) -> Self {
        Self { file, text }
    }

    fn at(&self, octet: usize) -> Place {
        let before = &self.text.as_bytes()[..octet.min(self.text.len())];
        Place::Line { file: self.file.into(), line: 1 + before.iter().filter(|o| **o == b'\n').count() }
    }

    fn table(&self, place: Place, table: &DeTable<'_>) -> Table {
        let entries = table
            .iter()
            .map(|(key, value)| (key.get_ref().to_string(), (self.at(key.span().start), self.entry(value))))
            .collect();
        Table { place, entries }
    }

    fn entry(&self, value: &Spanned<DeValue<'_>>) -> Entry {
        let place = self.at(value.span().start);
        let value = match value.get_ref() {
            DeValue::String(text) => Value::Text(text.to_string()),
            DeValue::Integer(number) => Value::Integer(number.as_str().to_owned(), number.radix()),
            DeValue::Boolean(flag) => Value::Flag(*flag),
            DeValue::Table(table) => Value::Table(self.table(place.clone(), table)),
            DeValue::Array(array) => {
                let tables: Option<Vec<Table>> = array
                    .iter()
                    .map(|element| match element.get_ref() {
                        DeValue::Table(table) => Some(self.table(self.at(element.span().start), table)),
                        _ => None,
                    })
                    .collect();
                tables.map_or(Value::Other("a list"), Value::Tables)
            }
            DeValue::Float(_) => Value::Other("a number with a fraction"),
            DeValue::Datetime(_) => Value::Other("a date"),
        };
        Entry { place, value }
    }
}

/// Sets the key `path` below `table` to the value of `replaced`. Missing tables are created.
fn replace(table: &mut Table, path: &str, replaced: &Override) -> Result<(), Error> {
    let place = Place::Override(replaced.to_string());
    let Some((first, rest)) = path.split_once('.') else {
        let value = Value::typed(&replaced.value);
        table.entries.insert(path.to_owned(), (place.clone(), Entry { place, value }));
        return Ok(());
    };
    let empty = || {
        let table = Table { place: place.clone(), entries: BTreeMap::new() };
        (place.clone(), Entry { place: place.clone(), value: Value::Table(table) })
    };
    let (_, entry) = table.entries.entry(first.to_owned()).or_insert_with(empty);
    match &mut entry.value {
        Value::Table(table) => replace(table, rest, replaced),
        Value::Tables(tables) => match rest.split_once('.').map(|(number, rest)| (number.parse::<usize>(), rest)) {
            Some((Ok(number), rest)) => match tables.get_mut(number) {
                Some(table) => replace(table, rest, replaced),
                None => Err(Error {
                    place,
                    what: format!("there is no {first} number {number}"),
                    fix: format!("the file has {}, counted from 0", tables.len()),
                }),
            },
            _ => tables.iter_mut().try_for_each(|table| replace(table, rest, replaced)),
        },
        other => {
            let what = format!("{first} is {}, not a table", other.kind());
            Err(Error { place, what, fix: format!("omit `.{rest}`") })
        }
    }
}

impl Value {
    /// A value as typed on a command line: a number or a flag if it looks like one, otherwise a string.
    fn typed(text: &str) -> Self {
        match text {
            "true" => Self::Flag(true),
            "false" => Self::Flag(false),
            _ if !text.is_empty() && text.bytes().all(|octet| octet.is_ascii_digit()) => {
                Self::Integer(text.to_owned(), 10)
            }
            _ => Self::Text(text.to_owned()),
        }
    }
}

/// A table that is being read.
#[derive(Clone, Debug)]
pub struct Section {
    /// The table's full key, with the keys of the enclosing tables, separated by dots. Empty for the whole document.
    path: String,
    table: Table,
    /// The keys that were read.
    asked: Vec<&'static str>,
}

/// A value, and where it comes from. The position is kept because a valid value may still be impossible in combination
/// with other values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spot<T> {
    /// The value.
    pub value: T,
    /// Where the value comes from.
    pub place: Place,
}

impl<T> Spot<T> {
    /// An error about this value.
    pub fn wrong(&self, what: impl Into<String>, fix: impl Into<String>) -> Error {
        Error { place: self.place.clone(), what: what.into(), fix: fix.into() }
    }
}

impl Section {
    /// Where the table begins.
    pub fn place(&self) -> &Place {
        &self.table.place
    }

    /// Makes an error about the section as a whole.
    pub fn wrong(&self, what: impl Into<String>, fix: impl Into<String>) -> Error {
        Error { place: self.table.place.clone(), what: what.into(), fix: fix.into() }
    }

    /// The key's full name.
    fn name(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    fn take(&mut self, key: &'static str) -> Option<Entry> {
        self.asked.push(key);
        self.table.entries.remove(key).map(|(_, entry)| entry)
    }

    fn missing(&self, key: &str, example: &str) -> Error {
        self.wrong(format!("`{}` is missing", self.name(key)), format!("add {key} = {example}"))
    }

    fn mismatch(&self, key: &str, entry: &Entry, expected: &str) -> Error {
        let what = format!("`{}` is {}", self.name(key), entry.value.kind());
        Error { place: entry.place.clone(), what, fix: format!("expected {expected}") }
    }

    /// Reads a string and parses it as `T`, such as a duration with its unit. `None` if the key is missing.
    pub fn text<T: FromStr<Err: fmt::Display>>(&mut self, key: &'static str) -> Result<Option<Spot<T>>, Error> {
        let Some(entry) = self.take(key) else { return Ok(None) };
        let Entry { place, value: Value::Text(text) } = &entry else {
            // A bare number most often lacks its unit. The error of the type `T` names the possible units.
            let expected = match (&entry.value, "".parse::<T>()) {
                (Value::Integer(..) | Value::Other(_), Err(why)) => format!("a text in quotes: {why}"),
                _ => "a text in quotes".to_owned(),
            };
            return Err(self.mismatch(key, &entry, &expected));
        };
        match text.parse() {
            Ok(value) => Ok(Some(Spot { value, place: place.clone() })),
            Err(why) => Err(Error {
                place: place.clone(),
                what: format!("`{} = \"{text}\"`", self.name(key)),
                fix: why.to_string(),
            }),
        }
    }

    /// Reads a string and parses it as `T`. A missing key is an error, whose message proposes the value `example`.
    pub fn required<T: FromStr<Err: fmt::Display>>(
        &mut self,
        key: &'static str,
        example: &str,
    ) -> Result<Spot<T>, Error> {
        self.text(key)?.ok_or_else(|| self.missing(key, &format!("\"{example}\"")))
    }

    /// Reads a whole number within `range`. `None` if the key is missing.
    pub fn count(&mut self, key: &'static str, range: RangeInclusive<u64>) -> Result<Option<Spot<u64>>, Error> {
        let Some(entry) = self.take(key) else { return Ok(None) };
        let expected = format!("a whole number from {} to {}", range.start(), range.end());
        let Entry { place, value: Value::Integer(text, radix) } = &entry else {
            return Err(self.mismatch(key, &entry, &expected));
        };
        match u64::from_str_radix(&text.replace('_', ""), *radix).ok().filter(|value| range.contains(value)) {
            Some(value) => Ok(Some(Spot { value, place: place.clone() })),
            None => Err(Error {
                place: place.clone(),
                what: format!("`{} = {text}`", self.name(key)),
                fix: format!("expected {expected}"),
            }),
        }
    }

    /// Reads `true` or `false`. `None` if the key is missing.
    pub fn flag(&mut self, key: &'static str) -> Result<Option<Spot<bool>>, Error> {
        let Some(entry) = self.take(key) else { return Ok(None) };
        match entry.value {
            Value::Flag(value) => Ok(Some(Spot { value, place: entry.place })),
            _ => Err(self.mismatch(key, &entry, "true or false")),
        }
    }

    /// Reads one of the names in `choices` and returns its value. `None` if the key is missing.
    pub fn choice<T: Copy>(
        &mut self,
        key: &'static str,
        choices: &[(&'static str, T)],
    ) -> Result<Option<Spot<T>>, Error> {
        let Some(entry) = self.take(key) else { return Ok(None) };
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        let Value::Text(text) = &entry.value else {
            return Err(self.mismatch(key, &entry, &format!("one of {}", list(&names))));
        };
        match choices.iter().find(|(name, _)| name == text) {
            Some((_, value)) => Ok(Some(Spot { value: *value, place: entry.place })),
            None => Err(Error {
                place: entry.place,
                what: format!("`{} = \"{text}\"`", self.name(key)),
                fix: suggestion(text, &names),
            }),
        }
    }

    /// Reads one of the names in `choices` and returns its value. A missing key is an error.
    pub fn required_choice<T: Copy>(
        &mut self,
        key: &'static str,
        choices: &[(&'static str, T)],
    ) -> Result<Spot<T>, Error> {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        match self.choice(key, choices)? {
            Some(found) => Ok(found),
            None => {
                Err(self.wrong(format!("`{}` is missing", self.name(key)), format!("expected one of {}", list(&names))))
            }
        }
    }

    /// Reads a string or a whole number, for keys that accept both, and returns it as a string. `None` if the key is
    /// missing.
    pub fn word(&mut self, key: &'static str) -> Result<Option<Spot<String>>, Error> {
        let Some(entry) = self.take(key) else { return Ok(None) };
        match entry.value {
            Value::Text(value) | Value::Integer(value, 10) => Ok(Some(Spot { value, place: entry.place })),
            _ => Err(self.mismatch(key, &entry, "a text or a whole number")),
        }
    }

    /// Reads the table `key` inside this table. `None` if the key is missing.
    pub fn section(&mut self, key: &'static str) -> Result<Option<Section>, Error> {
        let Some(entry) = self.take(key) else { return Ok(None) };
        match entry.value {
            Value::Table(table) => Ok(Some(Section { path: self.name(key), table, asked: Vec::new() })),
            _ => Err(self.mismatch(key, &entry, &format!("a table [{}]", self.name(key)))),
        }
    }

    /// Reads an array of tables, `[[key]]`.
    pub fn sections(&mut self, key: &'static str) -> Result<Vec<Section>, Error> {
        let Some(entry) = self.take(key) else { return Ok(Vec::new()) };
        let name = self.name(key);
        match entry.value {
            Value::Tables(tables) => Ok(tables
                .into_iter()
                .enumerate()
                .map(|(number, table)| Section { path: format!("{name}.{number}"), table, asked: Vec::new() })
                .collect()),
            _ => Err(self.mismatch(key, &entry, &format!("a list of tables [[{name}]]"))),
        }
    }

    /// The keys that have not been read yet, for tables whose keys the user chooses.
    pub fn keys(&self) -> Vec<String> {
        self.table.entries.keys().cloned().collect()
    }

    /// Returns an error if the table contains keys that were not read.
    pub fn finish(self) -> Result<(), Error> {
        let Some((key, (place, _))) = self.table.entries.iter().min_by(|a, b| (&a.1.0, a.0).cmp(&(&b.1.0, b.0))) else {
            return Ok(());
        };
        let mut known = self.asked.clone();
        known.sort_unstable();
        known.dedup();
        Err(Error {
            place: place.clone(),
            what: format!("unknown key `{}`", self.name(key)),
            fix: suggestion(key, &known),
        })
    }
}

/// The end of an error message about an unknown name: "did you mean …?", or the list of all known names.
pub(crate) fn suggestion(typed: &str, known: &[&str]) -> String {
    let nearest = known.iter().map(|name| (distance(typed, name), *name)).min();
    match nearest {
        // A name is suggested if at most half of the letters differ, but not if all of them do.
        Some((far, name)) if far <= (typed.chars().count().max(name.len()) / 2).max(1) && far < name.len() => {
            format!("did you mean `{name}`?")
        }
        _ if known.is_empty() => "nothing is known there: leave it out".into(),
        _ => format!("expected one of {}", list(known)),
    }
}

fn list(names: &[&str]) -> String {
    names.join(", ")
}

/// Number of letters to insert, remove, change or swap with a neighbour to turn `a` into `b`: the optimal string
/// alignment distance (L. Boytsov, "Indexing methods for approximate dictionary searching", 2011, 2.1).
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let changed = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let mut least = changed.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
                if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    least = least.min(rows[i - 2][j - 2] + 1);
                }
                least
            };
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use units::Nanos;

    const TEXT: &str = "seed = 7\n\n[goal]\nlatency = \"50us\"\nloose = true\n\n[[traffic]]\nkind = \"poisson\"\n\n[[traffic]]\nkind = \"constant\"\n";

    fn root() -> Section {
        parse("a.toml", TEXT, &[]).unwrap()
    }

    #[test]
    fn reads_what_is_asked_for() {
        let mut root = root();
        assert_eq!(root.count("seed", 0..=9).unwrap().unwrap().value, 7);
        let mut goal = root.section("goal").unwrap().unwrap();
        assert_eq!(goal.required::<Nanos>("latency", "1us").unwrap().value, Nanos::from_micros(50));
        assert!(goal.flag("loose").unwrap().unwrap().value);
        goal.finish().unwrap();
        let kinds = [("poisson", 1), ("constant", 2)];
        let read: Vec<i32> = root
            .sections("traffic")
            .unwrap()
            .into_iter()
            .map(|mut traffic| traffic.required_choice("kind", &kinds).unwrap().value)
            .collect();
        assert_eq!(read, [1, 2]);
        root.finish().unwrap();
    }

    #[test]
    fn errors_name_line_and_remedy() {
        let text = |result: Error| result.to_string();
        assert_eq!(
            text(parse("a.toml", "a = 1\nb = \n", &[]).unwrap_err()).split(':').take(2).collect::<Vec<_>>(),
            ["a.toml", "2"]
        );
        let mut goal = root().section("goal").unwrap().unwrap();
        assert_eq!(
            text(goal.clone().count("latency", 1..=5).unwrap_err()),
            "a.toml:4: `goal.latency` is a text; expected a whole number from 1 to 5"
        );
        assert!(text(goal.clone().text::<units::Hertz>("latency").unwrap_err()).contains("expected a frequency"));
        assert_eq!(
            text(goal.required::<Nanos>("delay", "5us").unwrap_err()),
            "a.toml:3: `goal.delay` is missing; add delay = \"5us\""
        );
        let mut goal = root().section("goal").unwrap().unwrap();
        let _ = (goal.word("latency").unwrap(), goal.flag("lose").unwrap());
        assert_eq!(text(goal.finish().unwrap_err()), "a.toml:5: unknown key `goal.loose`; did you mean `lose`?");
        let mut root = root();
        assert_eq!(
            text(root.count("seed", 0..=6).unwrap_err()),
            "a.toml:1: `seed = 7`; expected a whole number from 0 to 6"
        );
        let mut number = parse("a.toml", "time = 50", &[]).unwrap();
        assert!(text(number.text::<Nanos>("time").unwrap_err()).contains("a duration such as 50us"));
        let mut named = parse("a.toml", "kind = \"poison\"", &[]).unwrap();
        let kinds = [("poisson", 1), ("constant", 2)];
        assert_eq!(
            text(named.choice("kind", &kinds).unwrap_err()),
            "a.toml:1: `kind = \"poison\"`; did you mean `poisson`?"
        );
    }

    #[test]
    fn overrides_replace_and_are_read_by_the_same_rules() {
        let overrides: Vec<Override> =
            ["seed=8", "goal.latency=p99=1us", "traffic.1.kind=poisson", "traffic.rate=5kpps", "nic.ring=64"]
                .iter()
                .map(|text| text.parse().unwrap())
                .collect();
        let mut root = parse("a.toml", TEXT, &overrides).unwrap();
        assert_eq!(root.count("seed", 0..=9).unwrap().unwrap().value, 8);
        let mut goal = root.section("goal").unwrap().unwrap();
        assert_eq!(goal.word("latency").unwrap().unwrap().value, "p99=1us");
        for mut traffic in root.sections("traffic").unwrap() {
            assert_eq!(traffic.word("kind").unwrap().unwrap().value, "poisson");
            assert_eq!(traffic.required::<units::PacketRate>("rate", "").unwrap().value.as_pps(), 5_000);
        }
        let mut nic = root.section("nic").unwrap().unwrap();
        assert!(nic.count("ring", 1..=32).unwrap_err().to_string().starts_with("nic.ring=64: "));
        let beyond = parse("a.toml", TEXT, &["traffic.2.kind=poisson".parse().unwrap()]).unwrap_err();
        assert!(beyond.to_string().contains("no traffic number 2"));
        assert!(parse("a.toml", TEXT, &["seed.x=1".parse().unwrap()]).is_err());
        for wrong in ["seed", "=1", "a..b=1", "a="] {
            assert!(wrong.parse::<Override>().is_err(), "{wrong} was taken");
        }
    }

    #[test]
    fn distances() {
        for (a, b, far) in [("", "abc", 3), ("abc", "abc", 0), ("abc", "acb", 1), ("rate", "rates", 1), ("ab", "cd", 2)]
        {
            assert_eq!((distance(a, b), distance(b, a)), (far, far), "{a} {b}");
        }
        assert_eq!(suggestion("wate", &["x", "wait"]), "did you mean `wait`?");
        assert_eq!(suggestion("xyz", &["kind", "rate"]), "expected one of kind, rate");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in ".{0,60}", key in "[a-z.0-9]{1,8}") {
            if let Ok(replaced) = format!("{key}=1").parse() {
                let _ = parse("a", &text, &[replaced]).map(Section::finish);
            }
        }
    }
}
