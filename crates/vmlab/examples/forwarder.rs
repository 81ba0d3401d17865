//! A guest that forwards between two taps of this network namespace: the device under test of `benches/rfc2544.py`.
//!
//! ```text
//! forwarder prepare
//! forwarder PATH-OF-APUS NIC CPUS MTU TAP TAP ARGUMENTS…
//! ```
//! `prepare` only fetches the guest's packages: a network namespace cannot reach their server.
//!
//! NIC is virtio or e1000e. In the guest, `apus run ARGUMENTS…` forwards between `eth0` and `eth1`. When it does, `ready` is
//! printed. The guest ends when the standard input does; then what `apus run` said is printed.

use std::io::{Read as _, Write as _};

use vmlab::{Error, Nic, Vm};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Err(error) = forward(&words) {
        eprintln!("forwarder: {error}");
        std::process::exit(1);
    }
}

fn forward(words: &[String]) -> Result<(), Error> {
    if words == ["prepare"] {
        return Vm::new().map(drop);
    }
    let wrong = || Error::Invalid { what: "the arguments".into(), why: "see the head of this example".into() };
    let [program, nic, cpus, mtu, left, right, arguments @ ..] = words else { return Err(wrong()) };
    let nic = match nic.as_str() {
        "virtio" => Nic::Virtio,
        "e1000e" => Nic::E1000e,
        _ => return Err(wrong()),
    };
    let (cpus, mtu): (usize, u32) = (cpus.parse().map_err(|_| wrong())?, mtu.parse().map_err(|_| wrong())?);
    let guest = Vm::new()?.cpus(cpus).nic_on_tap(nic, left).nic_on_tap(nic, right).program(program).boot()?;
    // A card takes frames to other addresses in promiscuous mode alone.
    guest.run(&format!("for eth in eth0 eth1; do ip link set $eth mtu {mtu} promisc on up; done"))?;
    guest.run(&format!(
        "(apus run {} eth0 eth1 >/tmp/said 2>&1; echo ended >>/tmp/said) >/dev/null 2>&1 &",
        arguments.join(" ")
    ))?;
    guest.wait_until("grep -q -e '^eth1: queue' -e '^ended' /tmp/said", 600)?;
    let said = guest.run("cat /tmp/said")?;
    if said.ends_with("ended") {
        return Err(Error::Invalid { what: "apus run in the guest".into(), why: said });
    }
    println!("ready");
    let _ = std::io::stdout().flush();
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    guest.run("kill -INT $(pidof apus)")?;
    guest.wait_until("grep -q '^ended' /tmp/said", 300)?;
    println!("{}", guest.run("cat /tmp/said")?);
    Ok(())
}
