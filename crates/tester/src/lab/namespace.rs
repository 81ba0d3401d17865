//! Enters network namespaces, and configures them.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};

use live::Error;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::tools::{lacking, refused, words};

/// Folder where iproute2 mounts named namespaces; ip-netns(8).
const FOLDER: &str = "/run/netns";

/// `NSFS_MAGIC` of include/uapi/linux/magic.h: the file system type of a file on which a namespace is mounted.
const NSFS_MAGIC: i128 = 0x6e73_6673;

/// Moves the calling thread into the network namespace `namespace` (its full name, as `ip netns list` shows it).
/// Sockets that the thread opens later, and threads and processes that it starts, belong to that namespace. `/sys`
/// still shows the namespace in which `/sys` was mounted.
pub fn enter(namespace: &str) -> Result<(), Error> {
    let path = path_of(namespace)?;
    let what = || format!("enter the network namespace {namespace}");
    let file = fs::File::open(&path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => lacking(
            what(),
            "there is no such namespace".into(),
            "`apus lab list` shows the labs, `apus lab up` creates one".into(),
        ),
        _ => refused(what(), error),
    })?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).map_err(|e| refused(what(), e))
}

/// Runs `f` on a new thread inside the network namespace `namespace`, waits, and returns the result of `f`. The calling
/// thread stays in its own namespace. If `f` panics, the caller panics too.
pub fn in_namespace<T: Send>(namespace: &str, f: impl FnOnce() -> T + Send) -> Result<T, Error> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("in-namespace".into());
        let handle = thread
            .spawn_scoped(scope, || enter(namespace).map(|()| f()))
            .map_err(|e| refused("start a thread".into(), e))?;
        handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Starts `command` inside the network namespace `namespace`.
///
/// `command` must not request a signal for when its parent dies (PR_SET_PDEATHSIG): the parent is a thread that ends
/// when this function returns.
pub fn spawn(namespace: &str, command: &mut Command) -> Result<Child, Error> {
    let program = command.get_program().to_owned();
    in_namespace(namespace, || command.spawn())?.map_err(|e| not_run(&[program], e))
}

/// Runs `command` inside the network namespace `namespace`, and waits for it.
pub fn run(namespace: &str, command: &[OsString]) -> Result<ExitStatus, Error> {
    let mut child = spawn(namespace, &mut prepare(command)?)?;
    child.wait().map_err(|e| not_run(command, e))
}

/// Replaces this process by `command`, inside the namespace of role `role` of the lab `name`. The command takes over
/// the process identifier, so it receives all signals itself, and its exit status reaches the caller of Apus. Returns
/// only on failure.
pub fn exec(name: &str, role: &str, command: &[OsString]) -> Error {
    let become_it = || -> Result<std::convert::Infallible, Error> {
        super::check_name(name)?;
        super::check_word("namespace", role)?;
        let mut prepared = prepare(command)?;
        enter(&super::full_name(name, role))?;
        Err(not_run(command, prepared.exec()))
    };
    match become_it() {
        Err(error) => error,
        Ok(never) => match never {},
    }
}

fn prepare(command: &[OsString]) -> Result<Command, Error> {
    let [program, arguments @ ..] = command else {
        return Err(Error::Invalid {
            what: "command to run in the lab".into(),
            why: "it is empty; give it after --, as in apus lab exec demo tx -- ping 10.77.0.2".into(),
        });
    };
    let mut prepared = Command::new(program);
    prepared.args(arguments);
    Ok(prepared)
}

fn not_run(command: &[OsString], error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::NotFound => lacking(
            format!("run {}", words(command)),
            "there is no such program".into(),
            "check the name and the PATH".into(),
        ),
        _ => refused(format!("run {}", words(command)), error),
    }
}

/// Full names of all named namespaces, sorted.
pub(super) fn names() -> Result<Vec<String>, Error> {
    let what = || format!("read {FOLDER}");
    let folder = match fs::read_dir(FOLDER) {
        Ok(folder) => folder,
        // No named namespace has existed since boot.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(refused(what(), error)),
    };
    let mut names = Vec::new();
    for entry in folder {
        // Skips names that are not UTF-8: no lab has such a name.
        names.extend(entry.map_err(|e| refused(what(), e))?.file_name().into_string());
    }
    names.sort();
    Ok(names)
}

/// Whether a namespace is mounted under this name; `false` if only an empty file remains.
pub(super) fn is_mounted(namespace: &str) -> Result<bool, Error> {
    let path = path_of(namespace)?;
    let system = rustix::fs::statfs(&path).map_err(|e| refused(format!("look at {}", path.display()), e))?;
    Ok(i128::from(system.f_type) == NSFS_MAGIC)
}

/// Stops the kernel from forwarding and from sending frames by itself. Call this before you create links, because a new
/// link takes its settings from `default`. Documentation/networking/ip-sysctl.rst describes each setting.
pub(super) fn quieten(namespace: &str, with_ipv6: bool) -> Result<(), Error> {
    // A new namespace inherits these settings from the initial one, where a container engine may have changed them.
    let ipv4 = [("ip_forward", "0"), ("conf/all/rp_filter", "0"), ("conf/default/rp_filter", "0")];
    let disable_ipv6 = if with_ipv6 { "0" } else { "1" };
    let ipv6 = [
        ("disable_ipv6", disable_ipv6),
        ("forwarding", "0"),
        ("accept_ra", "0"),
        ("autoconf", "0"),
        ("router_solicitations", "0"),
        ("accept_dad", "0"),
        ("addr_gen_mode", "1"), // 1: no link-local address.
    ];
    in_namespace(namespace, || {
        for (key, value) in ipv4 {
            set(&format!("/proc/sys/net/ipv4/{key}"), value)?;
        }
        // Without IPv6 in the kernel, there is nothing to turn off. If the lab has IPv6 addresses, `ip` reports the
        // error later.
        if fs::exists("/proc/sys/net/ipv6/conf/default").map_err(|e| refused("check for IPv6".into(), e))? {
            for (key, value) in ipv6 {
                for scope in ["all", "default"] {
                    set(&format!("/proc/sys/net/ipv6/conf/{scope}/{key}"), value)?;
                }
            }
        }
        Ok(())
    })?
}

fn set(path: &str, value: &str) -> Result<(), Error> {
    fs::write(path, value).map_err(|error| match error.kind() {
        io::ErrorKind::ReadOnlyFilesystem => lacking(
            format!("write {value} to {path}"),
            "/proc/sys is read-only".into(),
            "in a container, run the container privileged".into(),
        ),
        _ => refused(format!("write {value} to {path}"), error),
    })
}

fn path_of(namespace: &str) -> Result<PathBuf, Error> {
    if namespace.is_empty() || namespace.contains('/') || namespace.starts_with('.') {
        return Err(Error::Invalid {
            what: format!("network namespace {namespace:?}"),
            why: "use a name that `ip netns list` shows".into(),
        });
    }
    Ok(PathBuf::from(FOLDER).join(namespace))
}
