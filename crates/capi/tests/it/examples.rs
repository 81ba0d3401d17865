//! The examples build without a warning, run, and do what their comments say. Their traffic stays in network namespaces of
//! their own.

use std::fs;
use std::path::Path;

use super::*;

/// In a network namespace of its own: starts `server`, runs `client`, stops the server, and shows what both said.
fn served(set_up: &str, server: &str, client: &str) -> String {
    let script = format!(
        "set -e; ip link set lo up; {set_up}\n{server} > $0/said 2>&1 & server=$!; trap 'kill $server 2>/dev/null || :' EXIT\n\
         sleep 0.7\n{client}\n\
         kill -TERM $server; wait $server || echo \"status $?\"\ncat $0/said"
    );
    let to = scratch("served");
    run(with_library("unshare").args(["--net", "bash", "-c", &script]).arg(&to).env("PYTHONDONTWRITEBYTECODE", "1"))
}

/// Whether the calling user can make network namespaces.
fn can_unshare() -> bool {
    let can =
        Command::new("unshare").args(["--net", "ip", "link"]).output().is_ok_and(|output| output.status.success());
    if !can {
        testkit::skip("root, who can make a network namespace");
    }
    can
}

fn example(name: &str) -> PathBuf {
    folder().join("examples").join(name)
}

fn load() -> String {
    format!("python3 {}", folder().join("tests/it/load.py").display())
}

/// All answered, and the server said so. As few as these fit into a socket's buffer, however long a busy machine lets it wait. It may have got others too, as the kernel's own frames on a veth.
fn answered(said: &str, what: &str) {
    let first: Vec<&str> = said.lines().next().unwrap_or_default().split(' ').collect();
    assert!(first.len() == 4 && first[0] == first[1] && first[0] != "0", "{said}");
    let count = said.lines().find_map(|line| line.strip_suffix(what)?.trim().parse::<u64>().ok());
    assert!(count >= first[0].parse().ok() && count.is_some(), "{said}");
}

#[test]
fn the_udp_server_in_c() {
    let echo = compiled("gcc", &example("udp-echo.c"), "udp-echo", &[]);
    let checked = compiled("gcc", &example("udp-echo.c"), "udp-echo-asan", &super::programs::CHECKED);
    if !can_unshare() {
        return;
    }
    for (program, words) in [(&echo, ""), (&echo, "p99=100us"), (&checked, "p99=100us")] {
        let server = format!("{} 127.0.0.1 7007 {words}", program.display());
        answered(&served("", &server, &format!("{} udp 127.0.0.1 7007 250 1", load())), "datagrams answered");
    }
}

#[test]
fn the_udp_server_in_python() {
    if !can_unshare() {
        return;
    }
    let server = format!("python3 {} 127.0.0.1 7007 p99=100us", example("udp_echo.py").display());
    answered(&served("", &server, &format!("{} udp 127.0.0.1 7007 250 1", load())), "datagrams answered");
}

fn python(script: &str) -> String {
    let mut python = with_library("python3");
    python.args(["-c", script]).env("PYTHONPATH", example("")).env("PYTHONDONTWRITEBYTECODE", "1");
    run(&mut python)
}

/// Regression test: waiters that were dropped once kept their handles and names, and counts were cut to 32 bits.
#[test]
fn pythons_waiters_are_freed_and_counts_are_checked() {
    let root = scratch("python");
    python(&format!(
        r#"
import apus, socket
def refused(kind, call, *arguments):
    try:
        call(*arguments)
    except kind:
        return
    raise SystemExit(f"{{call}} {{arguments}} was not refused")
for _ in range(1100):
    apus.Waiter()
named = dict(name="python", telemetry_root="{}")
apus.Waiter(**named)
with apus.Waiter(**named) as waiter:
    refused(apus.Error, lambda: apus.Waiter(**named))
    for received in (-1, 2**32):
        refused(ValueError, waiter.wait, received)
        refused(ValueError, waiter.wait_stamped, received, 1, 1)
    near, far = socket.socketpair()
    waiter.watch(near)
    waiter.unwatch(near)
    refused(apus.Error, waiter.unwatch, near)
    waiter.wait(2**32 - 1)
waiter.close()
waiter.close()
refused(apus.Error, waiter.wait, 0)
refused(apus.Error, lambda: apus.Waiter(goal="often"))
last = apus.Waiter(**named)
"#,
        root.display()
    ));
    assert!(!root.join("python").exists());
}

/// Regression test: an answer that could not be sent once ended the server, or counted as an empty socket.
#[test]
fn pythons_server_goes_on_if_an_answer_cannot_be_sent() {
    let said = python(
        r#"
import udp_echo
class Server:
    left = [PermissionError, BlockingIOError, None] * 30
    def recvmsg(self, *_):
        if not self.left:
            raise BlockingIOError
        return b"x", [(0, 0, udp_echo.STAMP.pack(1, 2))], 0, "sender"
    def sendto(self, *_):
        why = self.left.pop()
        if why:
            raise why
server = Server()
print(*[udp_echo.answer_some(server)[0] for _ in range(3)])
"#,
    );
    assert_eq!(said, "64 26 0\n");
}

/// The structures in apus.py are those of the header.
#[test]
fn pythons_structures_have_the_same_layout() {
    let script = "import apus, ctypes\nfor c, t in (('apus_config', apus.Config), ('apus_done', apus.Done)):\n \
                  print(c, ctypes.sizeof(t))\n for f, _ in t._fields_: print(f'{c}.{f}', getattr(t, f).offset)";
    let said = python(script);
    let mut ours = String::new();
    for (name, size, fields) in
        capi::types::LAYOUTS.into_iter().filter(|of| ["apus_config", "apus_done"].contains(&of.0))
    {
        ours += &format!("{name} {size}\n");
        fields.iter().for_each(|(field, offset)| ours += &format!("{name}.{field} {offset}\n"));
    }
    assert_eq!(said, ours);
}

#[test]
fn the_af_xdp_loop_before_and_after() {
    let [before, after] =
        ["xdp-echo-before.c", "xdp-echo-after.c"].map(|name| fs::read_to_string(example(name)).unwrap());
    let changed = |of: &str, other: &str| of.lines().filter(|line| !other.lines().any(|one| one == *line)).count();
    let lines = changed(&before, &after) + changed(&after, &before);
    assert!((1..=10).contains(&lines), "{lines} lines differ");
    if !Path::new("/usr/include/xdp/xsk.h").exists() {
        testkit::skip("libxdp-dev: install it with tools/setup.sh test");
        return;
    }
    if !can_unshare() {
        return;
    }
    let pair = "ip link add va type veth peer name vb; ip link set va up; ip link set vb up";
    for name in ["xdp-echo-before", "xdp-echo-after"] {
        let flags: &[&str] = if name.ends_with("after") { &["-lxdp", "-lbpf", "-DAFTER"] } else { &["-lxdp", "-lbpf"] };
        let program = compiled("gcc", &example(&format!("{name}.c")), name, flags);
        let said = served(pair, &format!("{} vb", program.display()), &format!("{} frames va 250 1", load()));
        answered(&said, "frames returned");
    }
}

/// The loop in Rust, with the crate `policy` alone.
#[test]
fn the_rust_loop_runs() {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["run", "--quiet", "--offline", "-p", "policy", "--example", "own-loop"]).current_dir(folder());
    let said = run(&mut cargo);
    assert!(said.contains("packets") && said.contains("sleep"), "{said}");
}
