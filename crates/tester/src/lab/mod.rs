//! The lab: network namespaces joined by veth pairs, which Apus creates and removes itself.
//!
//! A [`Lab`] is plain data: namespaces, links, addresses. [`Lab::up`] creates the lab with iproute2's `ip` and with
//! `ethtool`, and returns a [`Guard`]. Dropping the guard removes the lab, even when a panic unwinds the stack. The
//! name of each namespace contains the lab's name: the namespace of role `dut` in the lab `demo` is `apus-demo-dut`. So
//! [`down`] finds everything that belongs to a lab without a state file.
//!
//! ```text
//! pair    tx ── tx0 ═══ dut0 ── dut                                  macswap, udp-echo, drop
//! wire    left ── left0 ═══ dutl ── dut ── dutr ═══ right0 ── right   l2fwd, one subnet
//! routed  the same, two subnets, default routes through dut           l3fwd, IPv4 and IPv6
//! ```
//!
//! How the links are configured, and why (each reason was measured on a 2-vCPU VM, Linux 6.18):
//! - Segmentation offload is off, for two reasons: a device under test cannot forward a 64 KiB segment as one frame,
//!   and veth passes frames to the peer's NAPI only if the sender's TSO is off.
//! - Transmit checksum offload is off: otherwise a locally sent packet crosses the veth pair with a partial checksum
//!   (CHECKSUM_PARTIAL), which AF_XDP's copy mode passes on as if it were complete.
//! - VLAN offload is off: otherwise the kernel keeps the VLAN tag in its metadata, not in the frame.
//! - GRO is on: without GRO and without an XDP program, veth has no NAPI on which deferral could be set. With GRO, the
//!   NAPI keeps its id when the program is attached or detached.
//! - IPv6 is off in namespaces without an IPv6 address. In namespaces with one, link-local addresses, duplicate address
//!   detection and router solicitation are off; the kernel still sends one multicast listener report for each address.
//!   The kernel sends no frames by itself in a lab without addresses.
//! - Forwarding in the kernel is off, so only Apus can forward a frame across the device under test.

mod namespace;
mod tools;

use std::net::IpAddr;
use std::time::{Duration, Instant};

use live::Error;
use serde::Serialize;

pub use namespace::{enter, exec, in_namespace, run, spawn};
use tools::{Tool, lacking};

/// Prefix of all namespaces of all labs.
const PREFIX: &str = "apus-";

/// Time limit for the links to come up. A veth needs only a few milliseconds, but more on a busy machine.
const UP_WITHIN: Duration = Duration::from_secs(10);

/// Maximum length of a lab name. With it, `apus-NAME-right` stays readable, and far shorter than the kernel's limit for
/// file names (NAME_MAX, 255).
const NAME_MAX: usize = 32;

units::named! {
    /// The predefined layouts.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Preset {
        /// A tester and a device under test, joined by one link without addresses: for measurements.
        Pair = "pair",
        /// Two ordinary hosts in one subnet, with a device under test between them: for l2fwd.
        Wire = "wire",
        /// Two ordinary hosts in two subnets, IPv4 and IPv6, with a router between them: for l3fwd.
        Routed = "routed",
    }
}

/// One end of a link: the role of the namespace and the name of the interface.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct End {
    /// Role of the namespace, such as `dut`.
    pub namespace: String,
    /// Name of the interface in the namespace, such as `dut0`.
    pub interface: String,
}

impl End {
    /// The interface `interface` in the namespace of role `namespace`.
    pub fn new(namespace: &str, interface: &str) -> Self {
        Self { namespace: namespace.into(), interface: interface.into() }
    }
}

/// An address of an interface.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Address {
    /// The interface that has the address.
    pub end: End,
    /// The IP address.
    pub ip: IpAddr,
    /// Prefix length of the address's subnet.
    pub prefix: u8,
}

/// A permanent entry of a neighbor table, so that the kernel needs no address resolution.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Neighbour {
    /// The interface whose table has the entry.
    pub end: End,
    /// IP address of the neighbor.
    pub ip: IpAddr,
    /// Interface of the neighbor. The entry has the MAC address of this interface.
    pub at: End,
}

/// A default route.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct DefaultRoute {
    /// Role of the namespace that has the route.
    pub namespace: String,
    /// The next hop.
    pub via: IpAddr,
}

/// The layout of a lab. Change `mtu`, `queues` and addresses before [`Lab::up`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Lab {
    /// Name of the lab: lower-case letters, digits and underscores.
    pub name: String,
    /// Roles of the namespaces.
    pub namespaces: Vec<String>,
    /// The veth pairs.
    pub links: Vec<(End, End)>,
    /// The addresses of the interfaces. If there are none, the kernel sends no frames by itself in the lab.
    pub addresses: Vec<Address>,
    /// Permanent entries of the neighbor tables.
    pub neighbours: Vec<Neighbour>,
    /// The default routes.
    pub default_routes: Vec<DefaultRoute>,
    /// MTU of every link in bytes.
    pub mtu: u32,
    /// Number of transmit queues, and of receive queues, of every interface.
    pub queues: u32,
}

impl Lab {
    /// A lab named `name` with the layout `preset`, an MTU of 1500 bytes and one queue.
    pub fn new(preset: Preset, name: &str) -> Self {
        match preset {
            Preset::Pair => Self::pair(name),
            Preset::Wire => Self::wire(name),
            Preset::Routed => Self::routed(name),
        }
    }

    /// A lab of two namespaces: `tx0` in `tx`, joined to `dut0` in `dut`. They have no addresses, so the kernel sends
    /// no frames by itself.
    pub fn pair(name: &str) -> Self {
        Self {
            name: name.into(),
            namespaces: vec!["tx".into(), "dut".into()],
            links: vec![(End::new("tx", "tx0"), End::new("dut", "dut0"))],
            addresses: Vec::new(),
            neighbours: Vec::new(),
            default_routes: Vec::new(),
            mtu: 1500,
            queues: 1,
        }
    }

    /// A lab of three namespaces: `left0` (10.77.0.1/24) in `left` is joined to `dutl` in `dut`, and `dutr` in `dut` is
    /// joined to `right0` (10.77.0.2/24) in `right`.
    pub fn wire(name: &str) -> Self {
        Self::three(name).address("left", "left0", [10, 77, 0, 1], 24).address("right", "right0", [10, 77, 0, 2], 24)
    }

    /// A lab with the namespaces and links of [`Lab::wire`], but with two subnets for each IP version: 10.77.1.0/24 and
    /// fd77:1::/64 on the left, 10.77.2.0/24 and fd77:2::/64 on the right. The addresses of the hosts end in `1`; the
    /// addresses of the router's interfaces `dutl` and `dutr` end in `254` (IPv4) or `fe` (IPv6). All neighbor tables
    /// are filled in advance, so that a router that takes every frame from the kernel need not answer ARP and neighbor
    /// discovery.
    pub fn routed(name: &str) -> Self {
        let mut lab = Self::three(name);
        for (net, host, host_if, dut_if) in [(1, "left", "left0", "dutl"), (2, "right", "right0", "dutr")] {
            let v6 = |end| [0xfd77, net, 0, 0, 0, 0, 0, end];
            let v4 = |end| [10, 77, net as u8, end];
            let hosts: [IpAddr; 2] = [v4(1).into(), v6(1).into()];
            let routers: [IpAddr; 2] = [v4(254).into(), v6(0xfe).into()];
            for ((host_ip, router_ip), prefix) in hosts.into_iter().zip(routers).zip([24, 64]) {
                lab = lab.address(host, host_if, host_ip, prefix).address("dut", dut_if, router_ip, prefix);
                let (host_end, dut_end) = (End::new(host, host_if), End::new("dut", dut_if));
                lab.neighbours.push(Neighbour { end: host_end.clone(), ip: router_ip, at: dut_end.clone() });
                lab.neighbours.push(Neighbour { end: dut_end, ip: host_ip, at: host_end });
                lab.default_routes.push(DefaultRoute { namespace: host.into(), via: router_ip });
            }
        }
        lab
    }

    fn three(name: &str) -> Self {
        Self {
            namespaces: vec!["left".into(), "dut".into(), "right".into()],
            links: vec![
                (End::new("left", "left0"), End::new("dut", "dutl")),
                (End::new("dut", "dutr"), End::new("right", "right0")),
            ],
            ..Self::pair(name)
        }
    }

    /// Adds an address to an interface. For example, `Lab::pair(name).address("tx", "tx0", [10, 77, 0, 1], 24)` lets an
    /// ordinary client in `tx` talk to the device under test.
    pub fn address(mut self, namespace: &str, interface: &str, ip: impl Into<IpAddr>, prefix: u8) -> Self {
        self.addresses.push(Address { end: End::new(namespace, interface), ip: ip.into(), prefix });
        self
    }

    /// Full name of the namespace of role `role` for `ip netns`, such as `apus-demo-dut`.
    pub fn namespace(&self, role: &str) -> String {
        full_name(&self.name, role)
    }

    /// The MAC address of an interface. It follows from the position of the interface in [`Lab::links`], so it is the
    /// same in every run. `None` if the lab has no such interface.
    ///
    /// Bit 1 of the first byte marks the address as locally administered (IEEE 802-2014, 8.2).
    pub fn mac(&self, end: &End) -> Option<[u8; 6]> {
        let ends = self.links.iter().flat_map(|(a, b)| [a, b]);
        let at = u16::try_from(ends.into_iter().position(|e| e == end)?).ok()?;
        let [high, low] = at.to_be_bytes();
        Some([0x02, b'a', b'p', b'u', high, low])
    }

    /// Creates the lab. First removes everything that an earlier lab with the same name left behind, so that each lab
    /// starts in the same state.
    pub fn up(&self) -> Result<Guard, Error> {
        self.check()?;
        let (ip, ethtool) = (Tool::find("ip")?, Tool::find("ethtool")?);
        down(&self.name)?;
        let guard = Guard { lab: self.clone(), armed: true };
        self.make_namespaces(&ip)?;
        self.make_links(&ip, &ethtool)?;
        self.make_addresses(&ip)?;
        self.wait_up(&ip)?;
        Ok(guard)
    }

    fn make_namespaces(&self, ip: &Tool) -> Result<(), Error> {
        for role in &self.namespaces {
            let namespace = self.namespace(role);
            ip.run(&["netns", "add", &namespace])?;
            let with_ipv6 = self.addresses.iter().any(|a| a.end.namespace == *role && a.ip.is_ipv6());
            namespace::quieten(&namespace, with_ipv6)?;
            ip.run(&["-n", &namespace, "link", "set", "lo", "up"])?;
        }
        Ok(())
    }

    fn make_links(&self, ip: &Tool, ethtool: &Tool) -> Result<(), Error> {
        let queues = self.queues.to_string();
        let mtu = self.mtu.to_string();
        for (a, b) in &self.links {
            let ends = [a, b].map(|end| (self.namespace(&end.namespace), end.interface.as_str(), self.mac_text(end)));
            let mut words = vec!["link", "add"];
            for (which, (namespace, interface, mac)) in ends.iter().enumerate() {
                if which == 1 {
                    words.extend(["type", "veth", "peer"]);
                }
                words.extend(["name", interface, "netns", namespace, "address", mac, "mtu", &mtu]);
                words.extend(["numtxqueues", &queues, "numrxqueues", &queues]);
            }
            ip.run(&words)?;
            for (namespace, interface, _) in &ends {
                // All features are set in one call, because the kernel refuses or undoes some of them if they are set
                // one by one. The words are ethtool(8)'s short names; veth supports all of them.
                let off = ["tx", "tso", "gso", "txvlan", "rxvlan"].map(|word| [word, "off"]);
                let mut words = vec!["-K", interface, "gro", "on"];
                words.extend(off.as_flattened());
                ethtool.run_in(namespace, &words)?;
                ip.run(&["-n", namespace, "link", "set", interface, "up"])?;
            }
        }
        Ok(())
    }

    fn make_addresses(&self, ip: &Tool) -> Result<(), Error> {
        for Address { end, ip: address, prefix } in &self.addresses {
            let (namespace, cidr) = (self.namespace(&end.namespace), format!("{address}/{prefix}"));
            let mut words = vec!["-n", &namespace, "address", "add", &cidr, "dev", &end.interface];
            words.extend(address.is_ipv6().then_some("nodad"));
            ip.run(&words)?;
        }
        for Neighbour { end, ip: address, at } in &self.neighbours {
            let (namespace, address, mac) = (self.namespace(&end.namespace), address.to_string(), self.mac_text(at));
            let words = ["-n", &namespace, "neighbour", "replace", &address, "lladdr", &mac, "nud", "permanent"];
            ip.run(&[&words[..], &["dev", &end.interface]].concat())?;
        }
        for DefaultRoute { namespace, via } in &self.default_routes {
            let family = if via.is_ipv6() { "-6" } else { "-4" };
            let words = ["-n", &self.namespace(namespace), family, "route", "add", "default", "via", &via.to_string()];
            ip.run(&words)?;
        }
        Ok(())
    }

    /// Waits until the kernel reports both ends of every link as up.
    fn wait_up(&self, ip: &Tool) -> Result<(), Error> {
        let give_up = Instant::now() + UP_WITHIN;
        for end in self.links.iter().flat_map(|(a, b)| [a, b]) {
            let namespace = self.namespace(&end.namespace);
            loop {
                let links = interfaces(ip, &namespace, &["dev", &end.interface])?;
                let state = links.first().map_or("absent", |link| link.state.as_str());
                if state == "UP" {
                    break;
                }
                if Instant::now() > give_up {
                    return Err(lacking(
                        format!("bring up {} in {namespace}", end.interface),
                        format!("its state is still {state} after {} s", UP_WITHIN.as_secs()),
                        format!("inspect it with: ip -n {namespace} -d link show {}", end.interface),
                    ));
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        Ok(())
    }

    fn mac_text(&self, end: &End) -> String {
        let mac = self.mac(end).expect("checked: every end is an end of a link");
        mac.map(|octet| format!("{octet:02x}")).join(":")
    }

    /// Checks the layout before anything is created.
    fn check(&self) -> Result<(), Error> {
        check_name(&self.name)?;
        let wrong = |what: String, why: &str| {
            Err(Error::Invalid { what: format!("lab {}: {what}", self.name), why: why.into() })
        };
        for (i, role) in self.namespaces.iter().enumerate() {
            check_word("namespace", role)?;
            if self.namespaces[..i].contains(role) {
                return wrong(format!("namespace {role}"), "it is given twice");
            }
        }
        let ends: Vec<&End> = self.links.iter().flat_map(|(a, b)| [a, b]).collect();
        for (i, end) in ends.iter().enumerate() {
            if !self.namespaces.contains(&end.namespace) {
                return wrong(format!("interface {}", end.interface), "its namespace does not belong to the lab");
            }
            // IFNAMSIZ is 16, including the final zero. `dev_valid_name` in net/core/dev.c also forbids some
            // characters.
            let valid = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            if !(1..16).contains(&end.interface.len())
                || !end.interface.chars().all(valid)
                || end.interface.starts_with(['-', '.'])
            {
                return wrong(
                    format!("interface {:?}", end.interface),
                    "a name has 1 to 15 letters, digits, -, _ or .",
                );
            }
            if ends[..i].contains(end) || end.interface == "lo" {
                return wrong(
                    format!("interface {}", end.interface),
                    "its namespace already has an interface of that name",
                );
            }
        }
        let used = self.addresses.iter().map(|a| &a.end).chain(self.neighbours.iter().flat_map(|n| [&n.end, &n.at]));
        if let Some(end) = used.into_iter().find(|end| !ends.contains(end)) {
            return wrong(format!("address of {}", end.interface), "the lab has no such interface");
        }
        if let Some(route) = self.default_routes.iter().find(|r| !self.namespaces.contains(&r.namespace)) {
            return wrong(format!("route of {}", route.namespace), "the lab has no such namespace");
        }
        // Lowest MTU: 68 for IPv4 (RFC 791 3.1), 1280 for IPv6 (RFC 8200 5). Highest: ETH_MAX_MTU, the limit of veth.
        let least = if self.addresses.iter().any(|a| a.ip.is_ipv6()) { 1280 } else { 68 };
        if !(least..=65_535).contains(&self.mtu) {
            return wrong(format!("mtu {}", self.mtu), &format!("it must be {least} to 65535 bytes"));
        }
        // The kernel's limit for `numtxqueues`: rtnl_create_link in net/core/rtnetlink.c.
        if !(1..=4096).contains(&self.queues) {
            return wrong(format!("{} queues", self.queues), "there must be 1 to 4096");
        }
        Ok(())
    }
}

/// A lab that is up. Dropping it removes the lab.
#[must_use = "dropping the guard takes the lab down"]
#[derive(Debug)]
pub struct Guard {
    lab: Lab,
    armed: bool,
}

impl Guard {
    /// The layout of the lab.
    pub fn lab(&self) -> &Lab {
        &self.lab
    }
    /// Full name of the namespace of role `role`, for [`in_namespace`] and [`enter`].
    pub fn namespace(&self, role: &str) -> String {
        self.lab.namespace(role)
    }
    /// Consumes the guard without removing the lab; `apus lab down NAME` removes it later.
    pub fn keep(mut self) -> Lab {
        self.armed = false;
        self.lab.clone()
    }
    /// Removes the lab and reports errors.
    pub fn down(mut self) -> Result<Removed, Error> {
        self.armed = false;
        down(&self.lab.name)
    }
}

impl Drop for Guard {
    #[expect(clippy::print_stderr, reason = "whoever drops it takes no error")]
    fn drop(&mut self) {
        if self.armed
            && let Err(error) = down(&self.lab.name)
        {
            eprintln!("lab {:?} was not taken down: {:?}", self.lab.name, error.to_string());
        }
    }
}

/// What [`down`] removed.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Removed {
    /// Full names of the removed namespaces.
    pub namespaces: Vec<String>,
    /// PIDs of processes that still run in the removed namespaces. They are not killed, because the lab did not start
    /// them. Until they end, the kernel keeps their namespaces, without names and without links.
    pub still_running: Vec<u32>,
}

/// Removes the lab `name`: links first, then namespaces. Does nothing if there is no such lab.
pub fn down(name: &str) -> Result<Removed, Error> {
    check_name(name)?;
    let mut removed = Removed::default();
    let Some(lab) = list()?.into_iter().find(|lab| lab.name == name) else { return Ok(removed) };
    let ip = Tool::find("ip")?;
    for role in &lab.namespaces {
        let namespace = full_name(name, role);
        // `ip netns add` creates a file and then mounts the namespace on it. If it was killed in between, only the file
        // is left. `ip netns delete` removes either.
        if namespace::is_mounted(&namespace)? {
            removed.still_running.extend(pids(&ip, &namespace)?);
            // `ip netns delete` only removes the name: the kernel destroys the namespace later, when no process is in
            // it any more. So delete the links first, so that they are gone when this function returns. Deleting one
            // end also deletes its peer, possibly in the same namespace, so list the links again each time.
            while let Some(link) = interfaces(&ip, &namespace, &["type", "veth"])?.first() {
                ip.run(&["-n", &namespace, "link", "delete", &link.name])?;
            }
        }
        ip.run(&["netns", "delete", &namespace])?;
        removed.namespaces.push(namespace);
    }
    Ok(removed)
}

/// A lab found on this host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Found {
    /// Name of the lab.
    pub name: String,
    /// Roles of the lab's namespaces, sorted.
    pub namespaces: Vec<String>,
}

/// All labs of this host, complete or not, sorted by name.
pub fn list() -> Result<Vec<Found>, Error> {
    let mut found: Vec<Found> = Vec::new();
    for namespace in namespace::names()? {
        let Some((name, role)) = namespace.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-')) else { continue };
        if check_name(name).is_err() || check_word("namespace", role).is_err() {
            continue; // Not from a lab: no lab could have that name.
        }
        match found.last_mut() {
            Some(lab) if lab.name == name => lab.namespaces.push(role.into()),
            _ => found.push(Found { name: name.into(), namespaces: vec![role.into()] }),
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// Full name of the namespace of role `role` in the lab `name`, as `ip netns` shows it.
pub fn full_name(name: &str, role: &str) -> String {
    format!("{PREFIX}{name}-{role}")
}

fn check_name(name: &str) -> Result<(), Error> {
    check_word("lab name", name)
}

/// Checks that a word has only lower-case letters, digits and underscores, so that it is neither a path nor an option.
/// Hyphens are not allowed, because they separate the parts of a namespace name.
fn check_word(what: &str, word: &str) -> Result<(), Error> {
    let valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if (1..=NAME_MAX).contains(&word.len()) && word.chars().all(valid) {
        return Ok(());
    }
    Err(Error::Invalid {
        what: format!("{what} {word:?}"),
        why: format!("use 1 to {NAME_MAX} lower-case letters, digits or underscores"),
    })
}

struct Interface {
    name: String,
    state: String,
}

/// The interfaces that `ip link show` lists in a namespace; `which` has additional arguments that limit the list.
fn interfaces(ip: &Tool, namespace: &str, which: &[&str]) -> Result<Vec<Interface>, Error> {
    let text = ip.run(&[&["-n", namespace, "-j", "link", "show"], which].concat())?;
    let unread = |why: String| Error::Invalid { what: format!("output of ip -j link show in {namespace}"), why };
    // If there is no interface, some releases print nothing, others print an empty list.
    if text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let list: Vec<serde_json::Value> = serde_json::from_str(&text).map_err(|e| unread(e.to_string()))?;
    // Some releases print an empty object for each link that was not selected.
    list.iter()
        .filter(|link| link.as_object().is_some_and(|fields| !fields.is_empty()))
        .map(|link| {
            let field = |key: &str| {
                link.get(key)
                    .and_then(|v| v.as_str())
                    .map(str::to_owned)
                    .ok_or_else(|| unread(format!("{key} is missing")))
            };
            Ok(Interface { name: field("ifname")?, state: field("operstate")? })
        })
        .collect()
}

fn pids(ip: &Tool, namespace: &str) -> Result<Vec<u32>, Error> {
    let text = ip.run(&["netns", "pids", namespace])?;
    Ok(text.split_whitespace().filter_map(|word| word.parse().ok()).collect())
}

#[cfg(test)]
mod tests;
