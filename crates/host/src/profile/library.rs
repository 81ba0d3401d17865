//! Finds profiles: a file by its path, a profile of the site by its name, or a built-in profile.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use super::file::{Layer, Variables};
use super::{Error, Profile, builtin};

/// The available profiles, and values for their variables.
///
/// A name means the site's file `FOLDER/NAME.toml`, or else the built-in profile. A string that contains a slash or
/// ends in `.toml` is the path of a file. A site's file may include the built-in profile of the same name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Library {
    folder: PathBuf,
    variables: Variables,
}

/// The folder with a site's own profiles.
const FOLDER: &str = "etc/apus/profiles";

/// Maximum size of a profile in bytes. A profile is a few pages of text; the longest built-in profile has 2 kB.
const LONGEST: u64 = 1 << 20;

/// Maximum number of files that one profile can consist of, so that loading always ends.
const MOST_LAYERS: usize = 64;

/// Identifies a profile: a file or a built-in profile.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Id {
    Builtin(String),
    File { device: u64, inode: u64 },
}

/// A profile's text, and where it was found.
struct Source {
    id: Id,
    name: String,
    folder: Option<PathBuf>,
    text: String,
}

/// A profile that is being loaded.
#[derive(Default)]
struct Loading {
    layers: Vec<Layer>,
    done: Vec<Id>,
    /// The chain of includes from the requested profile to the one that is being read.
    chain: Vec<(Id, String)>,
    /// The variables that the loaded profiles define so far.
    defined: BTreeSet<String>,
    notes: Vec<String>,
}

impl Library {
    /// The profiles of the machine below `root`.
    pub fn below(root: &Path) -> Self {
        Self { folder: root.join(FOLDER), variables: Variables::new() }
    }

    /// Sets the values of variables, which override those of the profiles.
    #[must_use]
    pub fn with(mut self, variables: Variables) -> Self {
        self.variables = variables;
        self
    }

    /// The names of the site's profiles and the built-in ones, each with its summary or the reason why it cannot be
    /// read.
    pub fn list(&self) -> Vec<(String, Result<String, Error>)> {
        let mut names: BTreeSet<String> = BTreeSet::new();
        for entry in std::fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            names.extend(name.strip_suffix(".toml").filter(|name| is_name(name)).map(str::to_owned));
        }
        let own = names.iter().cloned();
        let others = builtin::NAMES.iter().filter(|name| !names.contains(**name)).map(|name| (*name).to_owned());
        let all: Vec<String> = others.chain(own).collect();
        all.into_iter().map(|name| (name.clone(), self.load(&name).map(|profile| profile.summary))).collect()
    }

    /// Loads a profile by its name or by the path of its file, together with all included profiles.
    pub fn load(&self, name: &str) -> Result<Profile, Error> {
        let mut loading = Loading::default();
        self.add(name, None, "the command line", &self.variables, &mut loading)?;
        let summary = loading.layers.last().map(|layer| layer.file.summary.clone()).unwrap_or_default();
        let name = name.rsplit('/').next().unwrap_or(name);
        let name = name.strip_suffix(".toml").unwrap_or(name).to_owned();
        if let Some(unknown) = self.variables.keys().find(|name| !loading.defined.contains(*name)) {
            let known: Vec<&str> = loading.defined.iter().map(String::as_str).collect();
            let known = if known.is_empty() { "no variables".into() } else { known.join(", ") };
            return Err(Error { place: name, why: format!("there is no variable {unknown}; known are {known}") });
        }
        Ok(Profile { name, summary, layers: loading.layers, notes: loading.notes })
    }

    /// Loads a profile that is part of a larger file, together with all included profiles. The profile's summary serves
    /// as its name.
    pub fn within(&self, layer: Layer) -> Result<Profile, Error> {
        let summary = layer.file.summary.clone();
        let mut loading = Loading::default();
        for include in &layer.file.include {
            self.add(include.get_ref(), layer.folder.as_deref(), &layer.place(include), &self.variables, &mut loading)?;
        }
        loading.layers.push(layer);
        Ok(Profile { name: summary.clone(), summary, layers: loading.layers, notes: loading.notes })
    }

    fn add(
        &self,
        name: &str,
        folder: Option<&Path>,
        from: &str,
        outer: &Variables,
        loading: &mut Loading,
    ) -> Result<(), Error> {
        let wrong = |why: String| Error { place: from.to_owned(), why };
        let source = self.source(name, folder, loading).map_err(wrong)?;
        if let Some(at) = loading.chain.iter().position(|(id, _)| *id == source.id) {
            let ring = loading.chain[at..].iter().map(|(_, name)| name.as_str()).chain([source.name.as_str()]);
            return Err(wrong(format!("a profile cannot include itself: {}", ring.collect::<Vec<_>>().join(" -> "))));
        }
        // A profile that is included twice is applied once, at its first place.
        if loading.done.contains(&source.id) {
            return Ok(());
        }
        if loading.done.len() + loading.chain.len() >= MOST_LAYERS {
            return Err(wrong(format!("more than {MOST_LAYERS} profiles are included")));
        }
        let layer = Layer::parse_with(&source.name, source.folder.as_deref(), &source.text, outer)?;
        let mut variables: Variables =
            layer.file.variables.iter().map(|(name, value)| (name.clone(), value.get_ref().to_string())).collect();
        loading.defined.extend(variables.keys().cloned());
        variables.extend(outer.clone());
        loading.chain.push((source.id, source.name));
        for include in &layer.file.include {
            let place = layer.place(include);
            self.add(include.get_ref(), layer.folder.as_deref(), &place, &variables, loading)?;
        }
        loading.done.extend(loading.chain.pop().map(|(id, _)| id));
        loading.layers.push(layer);
        Ok(())
    }

    /// Finds and reads a profile.
    fn source(&self, name: &str, folder: Option<&Path>, loading: &mut Loading) -> Result<Source, String> {
        if name.contains('/') || name.ends_with(".toml") {
            let path = folder.map_or_else(|| Path::new(name).to_owned(), |folder| folder.join(name));
            let (text, id) = read(&path, false).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
            return Ok(Source {
                id,
                name: path.display().to_string(),
                folder: path.parent().map(Path::to_owned),
                text,
            });
        }
        let known = builtin::text(name);
        let path = self.folder.join(format!("{name}.toml"));
        let own = match is_name(name).then(|| read(&path, true)) {
            None => None,
            Some(Err(e)) if e.kind() == io::ErrorKind::NotFound => None,
            Some(Err(e)) => return Err(format!("cannot read {}: {e}", path.display())),
            Some(Ok(own)) => Some(own),
        };
        // If the site's profile includes its own name, this means the built-in profile that it replaces.
        let own = own.filter(|(_, id)| known.is_none() || !loading.chain.iter().any(|(open, _)| open == id));
        if let Some((text, id)) = own {
            if known.is_some() && !loading.done.contains(&id) {
                let note = format!("{name} is the file {}, not the built-in profile of this name", path.display());
                loading.notes.push(note);
            }
            return Ok(Source { id, name: path.display().to_string(), folder: Some(self.folder.clone()), text });
        }
        let text = known.ok_or_else(|| {
            format!(
                "there is no profile {name:?}; known are {} and the files in {}; give any other by its path, such as ./{name}.toml",
                builtin::NAMES.join(", "),
                self.folder.display()
            )
        })?;
        Ok(Source { id: Id::Builtin(name.into()), name: format!("{name}.toml"), folder: None, text: text.into() })
    }
}

/// Whether a string can be the name of a profile.
fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.starts_with('.') && !text.contains(['/', '\0'])
}

/// Reads a profile's file without blocking. Returns an error if it is not a regular file or is too long.
///
/// If a profile is found by name, it is applied although the user has not seen its path. So such a file must belong to
/// root or to this user, and nobody else may be able to write to it.
fn read(path: &Path, by_name: bool) -> io::Result<(String, Id)> {
    let refused = |why: String| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    // Checks the kind of file first: opening a FIFO may already wake its writer.
    let kind = std::fs::metadata(path)?;
    if !kind.is_file() {
        return refused("it is not a regular file".into());
    }
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return refused("it is not a regular file".into());
    }
    let ours = found.uid() == 0 || found.uid() == rustix::process::geteuid().as_raw();
    let others_may_write = found.mode() & 0o002 != 0 || found.mode() & 0o020 != 0 && found.gid() != 0;
    if by_name && (!ours || others_may_write) {
        return refused("users other than root and you can change it; chown it to root and chmod go-w".into());
    }
    let mut text = String::new();
    file.take(LONGEST + 1).read_to_string(&mut text)?;
    if text.len() as u64 > LONGEST {
        return refused(format!("it is longer than the limit for a profile ({LONGEST} bytes)"));
    }
    Ok((text, Id::File { device: found.dev(), inode: found.ino() }))
}

/// Parses variables that were set on a command line as `NAME=VALUE`.
pub fn variables(words: &[String]) -> Result<Variables, Error> {
    let one = |word: &String| {
        let wrong = |why: &str| Error { place: format!("--set {word}"), why: why.into() };
        let (name, value) = word.split_once('=').ok_or_else(|| wrong("expected NAME=VALUE"))?;
        super::file::check_variable(name, value).map_err(|why| wrong(&why))?;
        Ok((name.to_owned(), value.to_owned()))
    };
    words.iter().map(one).collect::<Result<BTreeMap<_, _>, _>>()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::profile::Purpose;
    use crate::testing::Folder;

    fn library(folder: &Folder) -> Library {
        Library::below(&folder.path(""))
    }

    fn load(folder: &Folder, path: &str) -> Result<Profile, Error> {
        library(folder).load(folder.path(path).to_str().unwrap())
    }

    #[test]
    fn what_is_no_profile_is_refused_at_once() {
        let folder =
            Folder::new(&[("long.toml", &"#".repeat(LONGEST as usize + 1)), ("binary.toml", "summary = \"\0\"")]);
        folder.put("includes.toml", "summary = \"x\"\n\ninclude = [\"./fifo.toml\"]\n");
        let made = std::process::Command::new("mkfifo").arg(folder.path("fifo.toml")).status().unwrap();
        assert!(made.success());
        for (link, target) in [("device.toml", "/dev/zero"), ("loop.toml", "loop.toml"), ("folder.toml", "/")] {
            std::os::unix::fs::symlink(target, folder.path(link)).unwrap();
        }
        let start = Instant::now();
        for (path, part) in [
            ("fifo.toml", "not a regular file"),
            ("includes.toml", "includes.toml:3"),
            ("device.toml", "not a regular file"),
            ("folder.toml", "not a regular file"),
            ("loop.toml", "cannot read"),
            ("long.toml", "longer than"),
            ("binary.toml", "binary.toml:1"),
        ] {
            let error = load(&folder, path).expect_err(path).to_string();
            assert!(error.contains(part), "{path}: {error}");
        }
        assert!(start.elapsed() < Duration::from_secs(60), "none of them was waited for");
    }

    #[test]
    fn an_include_tree_ends() {
        let folder = Folder::new(&[]);
        let profile = |includes: &str| format!("summary = \"x\"\ninclude = [{includes}]\n");
        folder.put("self.toml", &profile("\"./self.toml\""));
        folder.put("a.toml", &profile("\"./b.toml\""));
        folder.put("b.toml", &profile("\"./sub/../a.toml\""));
        std::fs::create_dir(folder.path("sub")).unwrap();
        for (path, place) in [("self.toml", "self.toml:2"), ("a.toml", "b.toml:2")] {
            let error = load(&folder, path).unwrap_err();
            assert!(error.why.contains("cannot include itself") && error.place.ends_with(place), "{error}");
        }
        // Each profile includes the next one twice, by two names. So 2^40 paths lead to the last one, which is read
        // once.
        for n in 0..40 {
            folder.put(&format!("{n}.toml"), &profile(&format!("\"./{0}.toml\", \"./sub/../{0}.toml\"", n + 1)));
        }
        folder.put("40.toml", &profile(""));
        assert_eq!(load(&folder, "0.toml").unwrap().layers.len(), 41);
        // A chain that is longer than allowed.
        for n in 0..100 {
            folder.put(&format!("c{n}.toml"), &profile(&format!("\"./c{}.toml\"", n + 1)));
        }
        let error = load(&folder, "c0.toml").unwrap_err();
        assert!(error.why.contains("more than 64"), "{error}");
    }

    #[test]
    fn the_sites_profiles_have_names_and_may_replace_built_in_ones() {
        let own = "summary = \"ours\"\ninclude = [\"poll\"]\n[sysctl]\n\"vm.swappiness\" = 1\n";
        let folder = Folder::new(&[
            ("sys/devices/system/cpu/online", "0-3\n"),
            ("etc/apus/profiles/poll.toml", own),
            ("etc/apus/profiles/edge.toml", "summary = \"the edge\"\ninclude = [\"poll\"]\n"),
            ("etc/apus/profiles/.hidden.toml", "summary = \"x\"\n"),
            ("etc/apus/profiles/wrong.toml", "summary = 1\n"),
        ]);
        let library = library(&folder);
        let poll = library.load("poll").unwrap();
        assert_eq!((poll.name.as_str(), poll.summary.as_str(), poll.layers.len()), ("poll", "ours", 3));
        assert!(poll.notes.iter().any(|note| note.contains("not the built-in")), "{:?}", poll.notes);
        let resolved = library.load("edge").unwrap().resolve(&folder.access(), &Purpose::default()).unwrap();
        assert!(resolved.notes[0].contains("poll.toml, not the built-in"), "{:?}", resolved.notes);
        let names: Vec<(String, bool)> = library.list().into_iter().map(|(name, is)| (name, is.is_ok())).collect();
        let names: Vec<(&str, bool)> = names.iter().map(|(name, is)| (name.as_str(), *is)).collect();
        let expected = [
            ("base", true),
            ("interrupt", true),
            ("kvm-host", true),
            ("powersave", true),
            ("edge", true),
            ("poll", true),
            ("wrong", false),
        ];
        assert_eq!(names, expected);
        use std::os::unix::fs::PermissionsExt as _;
        let file = folder.path("etc/apus/profiles/poll.toml");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
        let error = library.load("poll").unwrap_err();
        assert!(error.why.contains("chmod go-w"), "{error}");
    }

    #[test]
    fn variables_are_set_by_whoever_is_further_out() {
        let folder = Folder::new(&[
            ("sys/devices/system/cpu/online", "0-3\n"),
            (
                "in.toml",
                "summary = \"in\"\n[variables]\nswap = 5\nfile = \"x\"\n[sysctl]\n\"vm.swappiness\" = \"{swap}\"\n\"a.{file}\" = 1\n",
            ),
            (
                "out.toml",
                "summary = \"out\"\ninclude = [\"./in.toml\"]\n[variables]\nswap = 7\n[kernel]\narguments = [\"a={swap}\"]\n",
            ),
            ("bad.toml", "summary = \"bad\"\n\n[sysctl]\n\"vm.swappiness\" = \"{swap}\"\n"),
            ("quote.toml", "summary = \"bad\"\n[variables]\n\nx = 'a\"b'\n"),
        ]);
        let items = |name: &str, set: &[&str]| {
            let set: Vec<String> = set.iter().map(|set| (*set).to_owned()).collect();
            let library = library(&folder).with(variables(&set)?);
            let resolved =
                library.load(folder.path(name).to_str().unwrap())?.resolve(&folder.access(), &Purpose::default())?;
            let items = resolved.plan.items.iter().map(|item| item.wanted.to_string()).collect::<Vec<_>>();
            Ok::<_, Error>(items)
        };
        assert_eq!(items("in.toml", &[]).unwrap(), ["1", "5"]);
        assert_eq!(items("out.toml", &[]).unwrap(), ["1", "7", "a=7"]);
        assert_eq!(items("out.toml", &["swap=9", "file=y"]).unwrap(), ["1", "9", "a=9"]);
        for (name, set, place, part) in [
            ("bad.toml", &[][..], "bad.toml:4", "{swap}"),
            ("quote.toml", &[], "quote.toml:4", "quotes"),
            ("out.toml", &["swop=9"], "out", "swap"),
            ("out.toml", &["swap"], "--set swap", "NAME=VALUE"),
            ("out.toml", &["swap=a\nb"], "--set swap=a\nb", "control"),
        ] {
            let error = items(name, set).unwrap_err();
            assert!(error.place.ends_with(place) && error.why.contains(part), "{error}");
        }
    }
}
