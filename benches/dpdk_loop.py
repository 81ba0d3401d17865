#!/usr/bin/env python3
"""libapus-dpdk against rte_power and l3fwd-power in one DPDK application: p99, CPU time, loss, and throughput at saturation.

The application is benches/dpdk_loop.c, a forwarder on net_af_xdp over a veth pair, built once for each way of waiting. In each
round all of them run under one kind of traffic, one right after the other, before the round goes on to the next kind; their
order shifts by one from round to round. One run is one sample. The generator (`apus bench latency`) spins on CPU 0 and the
forwarder's lcore runs on CPU 1, both in SCHED_FIFO 50, with the kernel's throttling of real-time threads off. CPU time is
that of the forwarder's whole process. At saturation, the generator sends as fast as its port accepts frames, and testpmd's
macswap runs too.

The script needs root, two CPUs, cargo, and the Debian packages python3, iproute2, util-linux, dpdk-dev and libdpdk-dev. It
builds what it runs (`make lib-dpdk build`), and undoes its changes at the end.

    sudo benches/dpdk_loop.py --json dpdk-loop.json                        # 5 rounds: 20 minutes
    sudo benches/dpdk_loop.py --rounds 1 --json dpdk-loop.json --append    # one round more
    benches/dpdk_loop.py --rounds 0 --json dpdk-loop.json --append         # judge what was measured

Exit status 1 means that a bound is missed: libapus-dpdk holds each goal that a peer holds, with at most 0.8 x the CPU time of
the cheaper one at 60 us and 0.6 x at 120 us, loses no packet that a peer delivers, and reaches 0.98 x of testpmd's throughput.
"""

import argparse
import contextlib
import json
import os
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile

from frontier import APUS, AF_XDP, LEARNING, PRIORITY, ROOT, Lab, quantiles
from throughput import Bench as Throughput, HugePages, Program, inside, milliseconds, run

TESTER, CPU, HUGE_PAGES, MIB = 0, 1, 128, 96
TRAFFIC = {"poisson2k": "poisson:2kpps", "poisson20k": "poisson:20kpps", "poisson100k": "poisson:100kpps",
           "each350us": "constant:350us"}
# Goal in us, and the most CPU time that it may take, as a share of the cheaper peer's.
GOALS = {60: 0.8, 120: 0.6}
PEERS = {"pause": "PAUSE", "scale": "SCALE", "l3fwd-power": "L3FWD"}
OURS = {f"libapus {us}us": us for us in GOALS}
SCHEMES = {"poll": "POLL"} | PEERS | {name: "APUS" for name in OURS}
SATURATION, SHARE = "saturation", 0.98


class NoThrottling:
    """The kernel takes 5 % of each second from real-time threads that spin (sched_rt_runtime_us). Peers spin: their packets
    would be late by 50 ms."""

    PATH = "/proc/sys/kernel/sched_rt_runtime_us"

    def __enter__(self):
        with open(self.PATH, encoding="ascii") as file:
            self.before = file.read()
        self.set("-1")

    def __exit__(self, *_):
        self.set(self.before)

    def set(self, value):
        with open(self.PATH, "w", encoding="ascii") as file:
            file.write(value)


class Loops:
    """The forwarder, built once for each scheme."""

    def __init__(self, scratch, library):
        self.scratch, self.missing = scratch, {}
        self.log = open(os.path.join(scratch, "log"), "w+")
        os.environ["LD_LIBRARY_PATH"] = os.path.join(library, "lib")
        dpdk = lambda what: shlex.split(run("pkg-config", what, "libdpdk"))
        for scheme in sorted(set(SCHEMES.values())):
            ours = ["-L", os.path.join(library, "lib"), "-lapus-dpdk", "-lapus"] if scheme == "APUS" else []
            run("cc", "-O3", f"-DSCHEME={scheme}", "-DALLOW_EXPERIMENTAL_API", *dpdk("--cflags"), "-I",
                os.path.join(library, "include"), os.path.join(ROOT, "benches", "dpdk_loop.c"), "-o",
                os.path.join(scratch, scheme), *ours, *dpdk("--libs"))

    def eal(self):
        return ["--no-pci", "--in-memory", "-m", str(MIB), "--no-telemetry", "--log-level=*:warning", "--file-prefix",
                f"apus{os.getpid()}", "--vdev", AF_XDP]

    @contextlib.contextmanager
    def running(self, scheme, lab):
        if scheme == "testpmd":
            command = ["stdbuf", "-oL", "dpdk-testpmd", "-l", f"{TESTER},{CPU}", *self.eal(), "--", "--interactive",
                       "--forward-mode=macswap", "--auto-start", "--nb-cores=1", "--burst=64", "--total-num-mbufs=16384"]
            ready, farewell = "testpmd> ", "quit\n"
        else:
            goal = [f"APUS_GOAL=p99={OURS[scheme]}us"] if scheme in OURS else []
            command = ["env", *goal, os.path.join(self.scratch, SCHEMES[scheme]), "-l", str(CPU), *self.eal()]
            ready, farewell = "forwarding", None
        command = inside(lab.dut, "chrt", "-f", PRIORITY, *command)
        with Program(command, ready, farewell, self.log) as program:
            yield program

    def lacking(self, scheme, lab):
        """Why the scheme does not work here; None if it does."""
        if scheme not in self.missing:
            try:
                with self.running(scheme, lab):
                    self.missing[scheme] = None
            except RuntimeError as why:
                said = [line for line in str(why).splitlines() if line.startswith("dpdk_loop: ")]
                if not said:
                    raise
                self.missing[scheme] = said[-1].removeprefix("dpdk_loop: ")
        return self.missing[scheme]


def latency(loops, lab, scheme, traffic, number, seconds):
    """One run."""
    with loops.running(scheme, lab) as program:
        common = [APUS, "bench", "latency", "--port", "tx0", "--netns", lab.tx, "--cpu", TESTER, "--fifo", PRIORITY,
                  "--schedule", TRAFFIC[traffic], "--json", "--pid", program.process.pid]
        run(*common, "--duration", LEARNING, "--warm-up", "0s", "--seed", 1000 + number)
        of = json.loads(run(*common, "--duration", milliseconds(seconds), "--seed", 1 + number))["result"]["latency"]
    used, exclusion = of["tested_cpu"]["value"], of["exclusion"]
    if used is None:
        raise RuntimeError(f"{scheme}: {of['tested_cpu']['unknown_because']}")
    said = next((line for line in program.said().splitlines() if line.startswith("polls ")), None)
    return {"all": quantiles(of["all"]), "clean": quantiles(of["clean"]), "n": of["all"]["count"],
            "cpu": 100 * used["cpu_ns"] / used["interval_ns"], "wakeups_per_s": used["wakeups_per_s"],
            "lost": exclusion["lost"], "lost_outside_gaps": exclusion["lost_outside_gaps"],
            "excluded": exclusion["share_excluded"]["value"], "libapus": said}


def saturation(loops, lab, scheme, seconds):
    with loops.running(scheme, lab):
        out = run(APUS, "bench", "load", "--flood", "--port", "tx0", "--netns", lab.tx, "--cpu", TESTER, "--fifo", PRIORITY,
                  "--frame", 64, "--warm-up", "300ms", "--duration", milliseconds(seconds), "--json")
    flood = Throughput.find(json.loads(out), "received_pps")
    if not flood["received"]:
        raise RuntimeError(f"{scheme}: nothing came back: {out}")
    return {"pps": flood["received"] / (flood["duration_ns"] / 1e9)}


def measure(typed, runs, first):
    with tempfile.TemporaryDirectory(prefix="apus-dpdk-loop") as scratch, HugePages(HUGE_PAGES), NoThrottling(), Lab("loop") as lab:
        loops = Loops(scratch, os.path.abspath(typed.library))
        for number in range(first, first + typed.rounds):
            for place, traffic in enumerate(typed.traffic):
                names = [*SCHEMES, "testpmd"] if traffic == SATURATION else list(SCHEMES)
                turn = (number + place) % len(names)
                for scheme in names[turn:] + names[:turn]:
                    if scheme in PEERS and loops.lacking(scheme, lab):
                        continue
                    one = (saturation(loops, lab, scheme, typed.seconds) if traffic == SATURATION else
                           latency(loops, lab, scheme, traffic, number, typed.seconds))
                    runs.append({"round": number, "traffic": traffic, "scheme": scheme, **one})
                    print(json.dumps(runs[-1]), file=sys.stderr, flush=True)
        return {name: why for name, why in loops.missing.items() if why}


def judge(runs):
    """A line for each bound. `holds` is None where no peer holds the goal."""
    def of(traffic, scheme):
        return [one for one in runs if (one["traffic"], one["scheme"]) == (traffic, scheme)]

    def middle(found, value):
        known = [value(one) for one in found]
        return statistics.median(known) if known and None not in known else None

    checks = []
    for traffic in TRAFFIC:
        p99 = {scheme: middle(of(traffic, scheme), lambda one: one["clean"]["p99"]) for scheme in SCHEMES}
        cpu = {scheme: middle(of(traffic, scheme), lambda one: one["cpu"]) for scheme in SCHEMES}
        for ours, goal in OURS.items():
            if p99[ours] is None:
                continue
            peers = [name for name in PEERS if p99[name] is not None and p99[name] <= goal]
            cheaper = min(peers, key=lambda name: cpu[name], default=None)
            lost = sum(one["lost_outside_gaps"] for one in of(traffic, ours))
            peers_lost = min((sum(one["lost_outside_gaps"] for one in of(traffic, name)) for name in peers), default=None)
            ratio = cpu[ours] / cpu[cheaper] if cheaper else None
            held = p99[ours] <= goal
            checks.append({"traffic": traffic, "goal_us": goal, "p99_us": p99[ours], "cpu_percent": cpu[ours], "lost": lost,
                           "peer": cheaper, "peer_p99_us": p99.get(cheaper), "peer_cpu_percent": cpu.get(cheaper),
                           "peer_lost": peers_lost, "cpu_ratio": ratio, "bound": GOALS[goal], "rounds": len(of(traffic, ours)),
                           "held_rounds": sum(one["clean"]["p99"] <= goal for one in of(traffic, ours)),
                           "holds": None if cheaper is None else held and ratio <= GOALS[goal] and lost <= peers_lost})
    testpmd = {one["round"]: one["pps"] for one in of(SATURATION, "testpmd")}
    for scheme in SCHEMES:
        ratios = [one["pps"] / testpmd[one["round"]] for one in of(SATURATION, scheme) if one["round"] in testpmd]
        if ratios:
            median = statistics.median(ratios)
            checks.append({"traffic": SATURATION, "scheme": scheme, "ratio_to_testpmd": median, "ratios": ratios,
                           "bound": SHARE if scheme in OURS else None, "holds": median >= SHARE if scheme in OURS else None})
    return checks


def table(checks, runs):
    verdict = {None: "", True: "holds", False: "MISSED"}
    lines = []
    for c in sorted(checks, key=lambda c: c["holds"] is not False):
        if c["traffic"] == SATURATION:
            ratios = " ".join(f"{ratio:.3f}" for ratio in c["ratios"])
            lines.append(f"{SATURATION:12} {c['scheme']:14} {c['ratio_to_testpmd']:.3f} x testpmd "
                         f"{verdict[c['holds']]:6} ({ratios})")
        else:
            peer = "no peer holds it" if c["peer"] is None else (
                f"{c['cpu_ratio']:.2f} x {c['peer']} ({c['peer_p99_us']:.1f} us, {c['peer_cpu_percent']:.1f} %, lost "
                f"{c['peer_lost']}), bound {c['bound']}")
            lines.append(f"{c['traffic']:12} p99={c['goal_us']}us: {c['p99_us']:.1f} us in {c['held_rounds']} of {c['rounds']} rounds, "
                         f"CPU {c['cpu_percent']:.1f} %, lost {c['lost']}: {verdict[c['holds']]:6} {peer}")
    lines.append(f"{'traffic':12} {'scheme':14} {'p99 us':>8} {'worst':>8} {'CPU %':>6} {'lost':>5}  rounds")
    for traffic in TRAFFIC:
        for scheme in SCHEMES:
            of = [one for one in runs if (one["traffic"], one["scheme"]) == (traffic, scheme)]
            p99 = [one["clean"]["p99"] for one in of if one["clean"]["p99"] is not None]
            if p99:
                lines.append(f"{traffic:12} {scheme:14} {statistics.median(p99):>8.1f} {max(p99):>8.1f} "
                             f"{statistics.median(one['cpu'] for one in of):>6.1f} "
                             f"{sum(one['lost_outside_gaps'] for one in of):>5}  {len(of)}")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2, help="duration of each run (default 2)")
    parser.add_argument("--traffic", nargs="+", choices=[*TRAFFIC, SATURATION], default=[*TRAFFIC, SATURATION])
    parser.add_argument("--library", default=os.path.join(ROOT, "target", "libapus"), help="what `make lib-dpdk` wrote")
    parser.add_argument("--no-build", action="store_true", help="do not build libapus-dpdk and apus")
    parser.add_argument("--json", metavar="FILE", default="dpdk-loop.json")
    parser.add_argument("--append", action="store_true", help="add to the runs in FILE")
    typed = parser.parse_args()
    runs, missing = [], {}
    if typed.append and os.path.exists(typed.json):
        with open(typed.json, encoding="utf-8") as file:
            before = json.load(file)
        runs, missing = before["runs"], before["missing"]
    if typed.rounds and os.geteuid() != 0:
        sys.exit("dpdk_loop.py: needs root, for namespaces, XDP and SCHED_FIFO")
    if typed.rounds and not typed.no_build:
        subprocess.run(["make", "--quiet", "lib-dpdk", "build"], cwd=ROOT, check=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    first = 1 + max((one["round"] for one in runs), default=-1)
    try:
        if typed.rounds:
            missing |= measure(typed, runs, first)
    finally:
        checks = judge(runs)
        with open(typed.json, "w", encoding="utf-8") as file:
            json.dump({"seconds": typed.seconds, "load_average": os.getloadavg(), "missing": missing, "checks": checks,
                       "runs": runs}, file, indent=1)
    for name, why in missing.items():
        print(f"{name}: not measured: {why}")
    print(table(checks, runs))
    sys.exit(1 if any(c["holds"] is False for c in checks) else 0)


if __name__ == "__main__":
    main()
