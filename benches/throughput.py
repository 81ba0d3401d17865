#!/usr/bin/env python3
"""Compares the throughput of Apus with that of DPDK's testpmd and of an XDP program. See docs/bench-throughput.md.

The script needs root, two CPUs, cargo, and the Debian packages python3, iproute2, ethtool, util-linux, procps, dpdk-dev,
clang, libbpf-dev and linux-libc-dev. It builds the programs that it runs, and undoes its changes at the end.
"""

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HUGE_PAGES = 128  # of 2 MiB: twice what testpmd takes, as the last one may not be gone yet
GENERATOR_CPU, REFLECTOR_CPU, PRIORITY = 0, 1, 50
DEFER_HARD_IRQS, GRO_FLUSH_TIMEOUT_NS = 2, 200_000
MEMORY_OCTETS = 64  # as net_null's frames are by default
PLAIN, DEFERRED, MEMORY = "plain", "deferred", "memory"
DPDK_VETH, DPDK_NULL = "dpdk-veth", "dpdk-null"  # both programs on the same DPDK driver: net_af_xdp, net_null
# (setting, compared with, least median of the ratios Apus : it)
BOUNDS = [(PLAIN, "testpmd", 0.97), (DEFERRED, "testpmd", 1.05), (DEFERRED, "xdp_tx", 0.95), (MEMORY, "testpmd", 1.0),
          (DPDK_VETH, "testpmd", 0.97), (DPDK_NULL, "testpmd", 1.0)]


def run(*command, **options):
    """Runs a command to its end and returns its output; raises an error with the output if it fails."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def milliseconds(seconds):
    return f"{round(seconds * 1000)}ms"


class HugePages:
    """The huge pages that DPDK needs, as long as it needs them."""

    PATH = "/proc/sys/vm/nr_hugepages"

    def __init__(self, pages=HUGE_PAGES):
        self.pages = pages

    def __enter__(self):
        with open(self.PATH) as file:
            self.before = int(file.read())
        if self.before < self.pages:
            self.set(self.pages)
        with open(self.PATH) as file:
            got = int(file.read())
        if got < self.pages:
            self.set(self.before)
            raise RuntimeError(f"{got} huge pages of {self.pages}: memory is too fragmented; try after a reboot")
        return self

    def __exit__(self, *_):
        if self.before < self.pages:
            self.set(self.before)

    def set(self, pages):
        with open(self.PATH, "w") as file:
            file.write(str(pages))


class Wire:
    """Two namespaces, one veth pair: tx0 for the generator, dut0 for the reflector."""

    def __init__(self):
        self.tx, self.dut = (f"apus-tp{os.getpid()}-{role}" for role in ("tx", "dut"))
        self.ends = [(self.tx, "tx0"), (self.dut, "dut0")]

    def __enter__(self):
        try:
            for namespace, _ in self.ends:
                run("ip", "netns", "add", namespace)
                run("ip", "netns", "exec", namespace, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1",
                    "net.ipv6.conf.default.disable_ipv6=1")
            run("ip", "link", "add", "tx0", "netns", self.tx, "numtxqueues", 1, "numrxqueues", 1,
                "type", "veth", "peer", "name", "dut0", "netns", self.dut, "numtxqueues", 1, "numrxqueues", 1)
            for namespace, interface in self.ends:
                # With GRO the NAPI is there before a program is attached, and stays.
                run("ip", "netns", "exec", namespace, "ethtool", "-K", interface, "tx", "off", "tso", "off", "gso",
                    "off", "gro", "on")
                run("ip", "-n", namespace, "link", "set", "dev", interface, "up")
            self.wait_until_up()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for namespace, _ in self.ends:
            subprocess.run(["ip", "netns", "del", namespace], capture_output=True)

    def wait_until_up(self):
        """Waits until the kernel has seen the carriers and given both ends their transmit queues. It does so
        in a worker thread, which could not run while two spinning loops have the CPUs."""
        until = time.monotonic() + 10
        for namespace, interface in self.ends:
            while (state := self.read(namespace, interface, "operstate")) != "up":
                if time.monotonic() > until:
                    raise RuntimeError(f"{interface} does not come up: it is {state}")
                time.sleep(0.05)

    def read(self, namespace, interface, knob):
        return run("ip", "netns", "exec", namespace, "cat", f"/sys/class/net/{interface}/{knob}").strip()

    def defer(self, on):
        values = {"napi_defer_hard_irqs": DEFER_HARD_IRQS if on else 0,
                  "gro_flush_timeout": GRO_FLUSH_TIMEOUT_NS if on else 0}
        for namespace, interface in self.ends:
            for knob, value in values.items():
                path = f"/sys/class/net/{interface}/{knob}"
                run("ip", "netns", "exec", namespace, "sh", "-c", f"echo {value} > {path}")
                got = self.read(namespace, interface, knob)
                if int(got) != value:
                    raise RuntimeError(f"{path} is {got}, not {value}")


def inside(namespace, *command):
    # Not `ip netns exec`: it mounts another /sys.
    return ["nsenter", f"--net=/run/netns/{namespace}", *map(str, command)]


class Program:
    """A program that reflects until it is told to stop."""

    def __init__(self, command, ready, farewell, log):
        """`farewell` is the text that ends the program; None means a termination signal."""
        self.log = log
        log.seek(0)
        log.truncate()
        self.farewell = farewell
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, text=True)
        self.wait_for(ready)

    def said(self):
        with open(self.log.name) as file:
            return file.read()

    def wait_for(self, text, times=1):
        until = time.monotonic() + 30
        while self.said().count(text) < times:
            if self.process.poll() is not None or time.monotonic() > until:
                self.process.kill()
                raise RuntimeError(f"{self.process.args}: no {text!r}\n{self.said()}")
            time.sleep(0.05)

    def tell(self, text):
        self.process.stdin.write(text)
        self.process.stdin.flush()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            if self.farewell is None:
                self.process.terminate()
            else:
                self.tell(self.farewell)
            self.process.wait(timeout=20)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()


class Bench:
    def __init__(self, arguments, wire, scratch):
        self.seconds, self.wire = arguments.seconds, wire
        self.log = open(os.path.join(scratch, "log"), "w+")
        self.apus_program = os.path.join(ROOT, "target", "release", "apus")
        self.apus_dpdk_program = os.path.join(ROOT, "target", "release", "apus-dpdk")
        self.telemetry = os.path.join(scratch, "telemetry")
        self.xdp_tx_object = os.path.join(scratch, "xdp_tx.o")

    def build(self, with_cargo, with_dpdk):
        if with_cargo:
            subprocess.run(["cargo", "build", "--release", "--quiet", "--bin", "apus"], cwd=ROOT, check=True)
        if with_cargo and with_dpdk:
            subprocess.run(["cargo", "build", "--release", "--quiet", "-p", "cli", "--features", "dpdk", "--bin", "apus-dpdk"],
                           cwd=ROOT, check=True)
        run("clang", "-O2", "-g", "-target", "bpf", f"-I/usr/include/{os.uname().machine}-linux-gnu", "-c",
            os.path.join(ROOT, "benches", "xdp_tx.bpf.c"), "-o", self.xdp_tx_object)

    # Part A: one veth port

    def rate(self):
        """The rate that comes back to a generator that sends as fast as its port accepts frames."""
        out = run(self.apus_program, "bench", "load", "--flood", "--port", "tx0", "--netns", self.wire.tx, "--cpu",
                  GENERATOR_CPU, "--fifo", PRIORITY, "--frame", 64, "--warm-up", "300ms", "--duration",
                  milliseconds(self.seconds), "--json")
        flood = self.find(json.loads(out), "received_pps")
        if flood["foreign"] or flood["corrupted"] or not flood["received"]:
            raise RuntimeError(f"not what was sent came back: {out}")
        keys = ("duration_ns", "sent", "received", "tester_rx_dropped", "tester_tx_refused", "tester_gaps_ns")
        return {"pps": flood["received"] / (flood["duration_ns"] / 1e9)} | {key: flood[key] for key in keys}

    @classmethod
    def find(cls, document, key):
        """The object with the key `key`, anywhere in the document."""
        if isinstance(document, dict):
            if key in document:
                return document
            document = list(document.values())
        parts = document if isinstance(document, list) else []
        return next((found for part in parts if (found := cls.find(part, key))), None)

    def macswap(self, port, *more, program=None):
        return [program or self.apus_program, "run", "macswap", port, "--mode", "poll", "--cpu", str(REFLECTOR_CPU), "--fifo",
                str(PRIORITY), "--telemetry", self.telemetry, *more]

    def apus(self):
        with Program(self.macswap("dut0", "--netns", self.wire.dut), "dut0: queue 0", None, self.log):
            return self.rate()

    AF_XDP = "net_af_xdp0,iface=dut0,start_queue=0,queue_count=1,force_copy=1,busy_budget=0"

    def testpmd(self):
        with self.testpmd_on(self.AF_XDP, inside(self.wire.dut)):
            return self.rate()

    def apus_dpdk(self):
        command = self.macswap(f"dpdk:{self.AF_XDP}", "--netns", self.wire.dut, program=self.apus_dpdk_program)
        with Program(command, "net_af_xdp0: queue 0", None, self.log):
            return self.rate()

    def xdp_tx(self):
        link = ["ip", "-n", self.wire.dut, "link", "set", "dev", "dut0"]
        run(*link, "xdpdrv", "obj", self.xdp_tx_object, "sec", "xdp")
        try:
            return self.rate()
        finally:
            run(*link, "xdpdrv", "off")

    def testpmd_on(self, device, before=()):
        command = [*before, "chrt", "-f", PRIORITY, "stdbuf", "-oL", "dpdk-testpmd", "-l", f"{GENERATOR_CPU},{REFLECTOR_CPU}",
                   "--no-pci", "--in-memory", "-m", HUGE_PAGES, "--file-prefix", f"apus{os.getpid()}",
                   "--vdev", device, "--", "--interactive", "--forward-mode=macswap", "--auto-start", "--nb-cores=1",
                   "--burst=64", "--total-num-mbufs=16384"]
        return Program([str(c) for c in command], "testpmd> ", "quit\n", self.log)

    # Part B: without the kernel

    def apus_memory(self):
        return self.apus_alone(self.macswap(f"memory:{MEMORY_OCTETS}"))

    def apus_dpdk_null(self):
        return self.apus_alone(self.macswap("dpdk:net_null0", "--huge-pages", program=self.apus_dpdk_program))

    def apus_alone(self, command):
        document = json.loads(run(*command, "--duration", milliseconds(self.seconds), "--json"))
        counts = self.find(document, "total")
        frames, span = counts["total"]["sent_frames"], counts["ran_ns"]
        # From the worker's start to its end: writing all of the pool for the first time is in it.
        return {"pps": frames * 1e9 / span, "duration_ns": span, "sent": frames}

    def testpmd_memory(self):
        with self.testpmd_on("net_null0") as program:
            time.sleep(0.3)
            program.tell("show port stats 0\n")
            program.wait_for("Tx-pps:", 1)
            time.sleep(self.seconds)
            program.tell("show port stats 0\n")
            program.wait_for("Tx-pps:", 2)
            said = program.said()
            # The second Tx-pps is over the time since the first, by testpmd's own clock.
            pps = int(re.findall(r"Tx-pps:\s+(\d+)", said)[1])
            frames = [int(n) for n in re.findall(r"TX-packets:\s+(\d+)", said)]
            return {"pps": pps, "sent": frames[1] - frames[0]}


def measure(bench, arguments):
    """The results of each setting: a list of rounds. In each round all reflectors take their turn."""
    plan = {
        PLAIN: {"apus": bench.apus, "testpmd": bench.testpmd, "xdp_tx": bench.xdp_tx},
        DEFERRED: {"apus": bench.apus, "testpmd": bench.testpmd, "xdp_tx": bench.xdp_tx},
        MEMORY: {"apus": bench.apus_memory, "testpmd": bench.testpmd_memory},
        DPDK_VETH: {"apus": bench.apus_dpdk, "testpmd": bench.testpmd},
        DPDK_NULL: {"apus": bench.apus_dpdk_null, "testpmd": bench.testpmd_memory},
    }
    results = {}
    for setting in arguments.settings:
        bench.wire.defer(setting == DEFERRED)
        results[setting] = []
        for number in range(arguments.pairs):
            # Who goes first changes, so that a drift of the machine favours nobody.
            order = list(plan[setting].items())
            order = order if number % 2 == 0 else order[::-1]
            one = {name: reflector() for name, reflector in order}
            results[setting].append({name: one[name] for name in plan[setting]})
            rates = ", ".join(f"{name} {result['pps'] / 1e3:.1f}" for name, result in results[setting][-1].items())
            print(f"{setting} {number + 1}/{arguments.pairs}: {rates} kpps", file=sys.stderr, flush=True)
    return results


def judge(results):
    """The comparisons: the ratio of each pair, their median, and whether the bound holds."""
    comparisons = []
    for setting, rounds in results.items():
        for other in (name for name in rounds[0] if name != "apus"):
            ratios = [one["apus"]["pps"] / one[other]["pps"] for one in rounds]
            bound = next((least for s, o, least in BOUNDS if (s, o) == (setting, other)), None)
            median = statistics.median(ratios)
            comparisons.append({
                "setting": setting,
                "other": other,
                "apus_pps": statistics.median(one["apus"]["pps"] for one in rounds),
                "other_pps": statistics.median(one[other]["pps"] for one in rounds),
                "ratios": ratios,
                "median_ratio": median,
                "bound": bound,
                "holds": None if bound is None else median >= bound,
            })
    return comparisons


def table(comparisons):
    lines = [f"{'setting':9} {'apus kpps':>10} {'against':>8} {'its kpps':>10} {'median':>7} {'bound':>6}  {'':6} ratios"]
    for c in comparisons:
        bound = "-" if c["bound"] is None else f"{c['bound']:.2f}"
        verdict = {None: "", True: "holds", False: "MISSED"}[c["holds"]]
        ratios = " ".join(f"{ratio:.3f}" for ratio in c["ratios"])
        lines.append(f"{c['setting']:9} {c['apus_pps'] / 1e3:>10.1f} {c['other']:>8} {c['other_pps'] / 1e3:>10.1f} "
                     f"{c['median_ratio']:>7.3f} {bound:>6}  {verdict:6} {ratios}")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7, help="number of interleaved rounds of each setting (default 7)")
    parser.add_argument("--seconds", type=float, default=2, help="duration of each measurement in seconds (default 2)")
    parser.add_argument("--settings", nargs="+", choices=[PLAIN, DEFERRED, MEMORY, DPDK_VETH, DPDK_NULL],
                        default=[PLAIN, DEFERRED, MEMORY], help="dpdk-veth and dpdk-null compare Apus on DPDK's drivers (libdpdk-dev)")
    parser.add_argument("--json", metavar="FILE", help="also write all results to FILE ('-': print them instead of the table)")
    parser.add_argument("--no-build", action="store_true", help="do not build; use the programs in target/")
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("throughput.py: needs root, for namespaces, XDP and SCHED_FIFO")
    # So that Ctrl-C's clean-up happens on a plain kill, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory(prefix="apus-throughput") as scratch, HugePages(), Wire() as wire:
        bench = Bench(arguments, wire, scratch)
        bench.build(not arguments.no_build, with_dpdk=bool({DPDK_VETH, DPDK_NULL} & set(arguments.settings)))
        results = measure(bench, arguments)
    comparisons = judge(results)
    document = {"seconds": arguments.seconds, "pairs": arguments.pairs, "load_average": os.getloadavg(),
                "comparisons": comparisons, "rounds": results}
    if arguments.json == "-":
        print(json.dumps(document, indent=1))
    else:
        print(table(comparisons))
        if arguments.json:
            with open(arguments.json, "w") as file:
                json.dump(document, file, indent=1)
    sys.exit(1 if any(c["holds"] is False for c in comparisons) else 0)


if __name__ == "__main__":
    main()
