#!/usr/bin/env python3
"""Measures several forwarders in the same place, native and in a guest of the VM lab, and prints their tables side by side.

    sudo benches/rfc2544.py -o FOLDER [--devices l2fwd,l3fwd,testpmd,guest] [--frame 64,…] [--no-build] [-- OPTIONS OF apus bench]
    benches/rfc2544.py --table FOLDER/l2fwd.json FOLDER/guest.json

Each device is between the same two veth ports (`apus lab up wire`), on CPU 1; the tester is on CPU 0, and sends in both
directions. It runs `apus bench rfc2544 --quick --test latency`, which is not RFC 2544 and says so. Other options come after `--`.

    l2fwd     apus run l2fwd --mode poll
    l3fwd     apus run l3fwd --mode poll; UDP over IPv4 in 256 flows, all others have frames without IP
    testpmd   dpdk-testpmd --forward-mode=io on net_af_xdp, as DPDK's own l2fwd
    guest     apus run l2fwd --mode interrupt in an emulated machine with one CPU and two virtio cards (docs/vmlab.md). A bridge
              joins each card's tap to the veth port.

Needs root, two CPUs, cargo, iproute2, ethtool; for testpmd the package dpdk-dev; for the guest QEMU (tools/setup.sh vm). What it
changes is undone at the end.
"""
import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

from throughput import HugePages, Program, inside, run

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TESTER_CPU, DEVICE_CPU = "0", "1"
SIZES = "64,128,256,512,1024,1280,1518,2000,4000,6000,9000"
MTU = 9000
# Devices that do not take frames of several buffers, and the largest frame that they forward. XDP in virtio's driver takes frames
# of at most a page, and Linux 6.1 has no AF_XDP of several buffers. DPDK's net_af_xdp has buffers of 2048 bytes, 256 of them in
# front of the frame. Above an MTU of about a page, veth refuses XDP programs such as its own.
SHORT_MTU = 2200
SHORT = {"guest": 2000, "testpmd": 1518}
DEVICES = {
    "l2fwd": "apus run l2fwd --mode poll, native",
    "l3fwd": "apus run l3fwd --mode poll, native, 256 flows of UDP over IPv4",
    "testpmd": "dpdk-testpmd --forward-mode=io on net_af_xdp, native",
    "guest": "apus run l2fwd --mode interrupt in a guest of the VM lab (emulated CPU, virtio, Linux 6.1)",
}


class Lab:
    """`left0` ═ `dutl` the device `dutr` ═ `right0`."""

    def __init__(self, apus, mtu):
        self.apus, self.name, self.mtu = apus, f"rfc{os.getpid()}", mtu
        self.left, self.dut, self.right = (f"apus-{self.name}-{role}" for role in ("left", "dut", "right"))

    def __enter__(self):
        run(self.apus, "lab", "up", "wire", "--name", self.name, "--mtu", self.mtu)
        return self

    def __exit__(self, *_):
        subprocess.run([self.apus, "lab", "down", self.name], check=False, capture_output=True)

    def mac(self, namespace, interface):
        return json.loads(run("ip", "-j", "-n", namespace, "link", "show", interface))[0]["address"]


class Bench:
    def __init__(self, args, scratch):
        self.args, self.scratch = args, scratch
        self.apus = os.path.join(ROOT, "target", "release", "apus")
        self.forwarder = os.path.join(ROOT, "target", "release", "examples", "forwarder")
        self.log = open(os.path.join(scratch, "log"), "w+", encoding="utf-8")

    def build(self):
        cargo = ["cargo", "build", "--release", "--quiet"]
        subprocess.run([*cargo, "--bin", "apus"], cwd=ROOT, check=True)
        if "guest" in self.args.devices:
            subprocess.run([*cargo, "-p", "vmlab", "--example", "forwarder"], cwd=ROOT, check=True)

    def measure(self, device):
        short = device in SHORT
        with Lab(self.apus, SHORT_MTU if short else MTU) as lab:
            sizes, more = self.args.frame, []
            if short:
                sizes = [size for size in sizes if size <= SHORT[device]]
            if device == "l3fwd":
                more = ["--ip", "ipv4", "--flows", "256", "--mac", lab.mac(lab.dut, "dutl"), "--back-mac", lab.mac(lab.dut, "dutr")]
            if not sizes:
                print(f"{device}: forwards none of these sizes", file=sys.stderr)
                return None
            file = os.path.join(self.args.output, f"{device}.json")
            with getattr(self, device)(lab):
                words = [self.apus, "bench", "rfc2544", "--tx", "left0", "--tx-netns", lab.left, "--rx", "right0", "--rx-netns",
                         lab.right, "--bidirectional", "--cpu", TESTER_CPU, "--frame", ",".join(map(str, sizes)), "--device",
                         DEVICES[device], "-o", file, *more, *(self.args.options or ["--quick", "--test", "latency"])]
                done = subprocess.run(words, check=False, text=True)
            # 1: a size has no throughput.
            if done.returncode not in (0, 1):
                raise RuntimeError(f"{' '.join(words)}: exit status {done.returncode}")
            return file

    def run_app(self, lab, *app):
        return [self.apus, "run", *app, "dutl", "dutr", "--netns", lab.dut, "--mode", "poll", "--cpu", DEVICE_CPU, "--telemetry",
                os.path.join(self.scratch, "telemetry")]

    def l2fwd(self, lab):
        return Program(self.run_app(lab, "l2fwd"), "dutr: queue 0", None, self.log)

    def l3fwd(self, lab):
        routes = os.path.join(self.scratch, "routes.toml")
        with open(routes, "w", encoding="utf-8") as file:
            for prefix, port, mac in (("198.18.0.0/16", "dutl", lab.mac(lab.left, "left0")),
                                      ("198.19.0.0/16", "dutr", lab.mac(lab.right, "right0"))):
                file.write(f'[[route]]\nprefix = "{prefix}"\nport = "{port}"\nmac = "{mac}"\n')
        return Program(self.run_app(lab, "l3fwd", "--routes", routes), "dutr: queue 0", None, self.log)

    def testpmd(self, lab):
        devices = [f"net_af_xdp{n},iface={port},start_queue=0,queue_count=1,force_copy=1,busy_budget=0"
                   for n, port in enumerate(("dutl", "dutr"))]
        command = [*inside(lab.dut), "stdbuf", "-oL", "dpdk-testpmd", "-l", f"{TESTER_CPU},{DEVICE_CPU}", "--no-pci", "--in-memory",
                   "-m", "128", "--file-prefix", f"apus{os.getpid()}", "--vdev", devices[0], "--vdev", devices[1], "--",
                   "--interactive", "--forward-mode=io", "--auto-start", "--nb-cores=1", "--burst=64", "--total-num-mbufs=16384"]
        return Program(command, "testpmd> ", "quit\n", self.log)

    def guest(self, lab):
        return Guest(self, lab)


class Guest:
    """The guest between two taps, and a bridge between each tap and its port."""

    def __init__(self, bench, lab):
        for port, tap, bridge in (("dutl", "tapl", "brl"), ("dutr", "tapr", "brr")):
            ip = ["ip", "-n", lab.dut]
            run(*ip, "tuntap", "add", tap, "mode", "tap")
            run(*ip, "link", "add", bridge, "type", "bridge")
            for interface in (port, tap):
                run(*ip, "link", "set", interface, "mtu", SHORT_MTU, "master", bridge, "up")
            run(*ip, "link", "set", bridge, "up")
        words = ["ip", "netns", "exec", lab.dut, "taskset", "-c", DEVICE_CPU, bench.forwarder, bench.apus, "virtio", "1",
                 str(SHORT_MTU), "tapl", "tapr", "l2fwd", "--mode", "interrupt"]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        if self.process.stdout.readline() != "ready\n":
            self.process.wait()
            raise RuntimeError("the guest does not forward; see its message above")

    def __exit__(self, *_):
        said, _ = self.process.communicate(timeout=120)
        print("in the guest: " + said.strip().replace("\n", "\n    "), file=sys.stderr)


def table(files):
    """Rate and latency of each frame size; the form is that of the FlexRAN slides: native beside a guest."""
    documents = []
    for file in files:
        with open(file, encoding="utf-8") as opened:
            documents.append(json.load(opened))
    for letter, document in zip("ABCDEFGH", documents):
        result = document["result"]
        ended = "" if result["ended"]["complete"] else f"; INCOMPLETE: {result['ended']['because']}"
        print(f"{letter}: {document['setup']['device']}. {result['standard']}{ended}")
    letters = "ABCDEFGH"[:len(documents)]
    print("\n| frame |" + "".join(f" {letter}: fps | min us | avg us | max us | n |" for letter in letters))
    print("| --- |" + " --- |" * 5 * len(documents))
    sizes = {}
    for number, document in enumerate(documents):
        for size in document["result"]["sizes"]:
            sizes.setdefault(size["frames"], {})[number] = size
    for frames, found in sizes.items():
        print(f"| {frames} |" + "".join(cells(found.get(number)) for number in range(len(documents))))


def cells(size):
    if size is None:
        return " not measured | | | | |"
    rate, latency = size["throughput_pps"]["value"], size["latency"]["value"]
    if rate is None:
        return " none | | | | |"
    text = f" {'>= ' if size['at_least'] else ''}{rate['median']:.0f} |"
    if latency is None:
        return text + " | | | |"
    of = latency["all"]
    return text + "".join(f" {of[key] / 1e3:.1f} |" for key in ("min_ns", "mean_ns", "max_ns")) + f" {of['count']} |"


def main():
    # So that a plain kill, too, ends what the script started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", metavar="FOLDER", help="where the results go: FOLDER/DEVICE.json")
    parser.add_argument("--devices", default="l2fwd,l3fwd,testpmd,guest", type=lambda text: text.split(","))
    parser.add_argument("--frame", default=SIZES, type=lambda text: [int(size) for size in text.split(",")])
    parser.add_argument("--no-build", action="store_true", help="use the programs in target/release")
    parser.add_argument("--table", nargs="+", metavar="FILE", help="print the results of these files side by side, and end")
    parser.add_argument("options", nargs="*", help="options of apus bench rfc2544, after -- [default: --quick --test latency]")
    args = parser.parse_args()
    if args.table:
        return table(args.table)
    if not args.output or set(args.devices) - set(DEVICES):
        parser.error(f"give -o FOLDER, and devices out of {', '.join(DEVICES)}")
    if os.geteuid():
        parser.error("needs root, for network namespaces and AF_XDP")
    os.makedirs(args.output, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="apus-rfc2544") as scratch, HugePages() if "testpmd" in args.devices else contextlib.nullcontext():
        bench = Bench(args, scratch)
        if not args.no_build:
            bench.build()
        if "guest" in args.devices:
            subprocess.run([bench.forwarder, "prepare"], check=True)
        files = []
        for device in args.devices:
            began = time.monotonic()
            files.append(bench.measure(device))
            print(f"{device}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    files = [file for file in files if file]
    if not files:
        sys.exit("nothing was measured")
    table(files)


if __name__ == "__main__":
    main()
