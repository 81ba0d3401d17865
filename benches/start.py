#!/usr/bin/env python3
"""The first second after the start of `adaptive`, with a platform profile and without. See docs/probe.md.

Each start is an instance of its own (macswap over a veth pair); three pieces of traffic, a second each or as --piece
says, follow each other. What is compared is the share of frames later than the goal in the first piece with that in
those after it, for starts with and without `--platform`, interleaved. Needs root and two CPUs; builds what it runs.

    sudo target/release/apus probe all --priority 50 -o platform.json
    sudo benches/start.py platform.json --starts 7
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PRIORITY = 50
PIECES = 3


def run(*command, good=(0,)):
    """Runs a command to its end; what it printed, or an error that says what it said."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode not in good:
        raise RuntimeError(f"{' '.join(map(str, command))}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


class Lab:
    """A veth pair between two namespaces."""

    def __init__(self, binary):
        self.binary, self.name = binary, f"start{os.getpid()}"

    def __enter__(self):
        run(self.binary, "lab", "up", "pair", "--name", self.name)
        return self

    def __exit__(self, *_):
        run(self.binary, "lab", "down", self.name)

    def namespace(self, role):
        return f"apus-{self.name}-{role}"


def start(typed, binary, lab, platform):
    """The share of late frames in each piece after a start, its p99 in us, and the frames in it."""
    with tempfile.TemporaryDirectory() as telemetry:
        words = [binary, "run", "macswap", "dut0", "--netns", lab.namespace("dut"), "--cpu", str(typed.cpu),
                 "--fifo", str(PRIORITY), "--mode", "adaptive", "--goal", typed.goal, "--name", "start",
                 "--telemetry", telemetry]
        instance = subprocess.Popen(words + (["--platform", typed.platform] if platform else []),
                                    stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            until = time.monotonic() + 10
            while not os.path.exists(os.path.join(telemetry, "start", "worker-0")):
                if instance.poll() is not None or time.monotonic() > until:
                    instance.kill()
                    raise RuntimeError(f"apus run: {instance.stderr.read()}")
                time.sleep(0.02)
            time.sleep(0.3)
            return [piece(typed, binary, lab, telemetry) for _ in range(PIECES)]
        finally:
            instance.send_signal(signal.SIGINT)
            instance.wait()
            instance.stderr.close()


def piece(typed, binary, lab, telemetry):
    out = run(binary, "bench", "latency", "--port", "tx0", "--netns", lab.namespace("tx"), "--cpu", typed.tester,
              "--fifo", PRIORITY, "--schedule", typed.schedule, "--duration", typed.piece, "--warm-up", "0s",
              "--goal", typed.goal, "--instance", "start", "--telemetry", telemetry, "--json", good=(0, 1))
    of = json.loads(out)["result"]["latency"]
    of = of[0] if isinstance(of, list) else of
    bound, counts = of["goal"]["bound_ns"], of["clean"]["histogram"]["counts"]
    late, n = sum(n for ns, n in counts if ns > bound), of["clean"]["n"]
    p99 = next(q["latency_ns"] for q in of["clean"]["quantiles"] if q["quantile"] == "p99")
    return {"late": late / n, "p99_us": (p99 or 0) / 1e3, "n": n, "held": of["goal"]["held"]["value"],
            "cpu": (of["tested_cpu"]["value"] or {})}


def main():
    cpus = sorted(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("platform")
    parser.add_argument("--starts", type=int, default=7, help="of each kind")
    parser.add_argument("--goal", default="p99=40us")
    parser.add_argument("--schedule", default="poisson:20kpps")
    parser.add_argument("--piece", default="1s", help="so long is each piece of traffic")
    parser.add_argument("--cpu", type=int, default=cpus[-1])
    parser.add_argument("--tester", type=int, default=cpus[0])
    parser.add_argument("--no-build", action="store_true", help="run what target/release/apus is now")
    typed = parser.parse_args()
    binary = os.path.join(ROOT, "target", "release", "apus")
    if not typed.no_build:
        subprocess.run(["cargo", "build", "--release", "-p", "cli"], cwd=ROOT, check=True)
    seen = {True: [], False: []}
    with Lab(binary) as lab:
        for number in range(typed.starts):
            for platform in ([True, False] if number % 2 == 0 else [False, True]):
                pieces = start(typed, binary, lab, platform)
                seen[platform].append(pieces)
                shown = "; ".join(f"{of['late']:.3%} late, p99 {of['p99_us']:.1f} us" for of in pieces)
                print(f"start {number + 1} {'with' if platform else 'without'}: {shown}", flush=True)
    for platform in (False, True):
        first = [pieces[0]["late"] for pieces in seen[platform]]
        later = [of["late"] for pieces in seen[platform] for of in pieces[1:]]
        held = sum(pieces[0]["held"] is True for pieces in seen[platform])
        print(f"{'with' if platform else 'without':<8} first piece: {statistics.median(first):.3%} late (median of "
              f"{len(first)} starts, {min(first):.3%} to {max(first):.3%}), goal held in {held}; "
              f"later: {statistics.median(later):.3%}")
    print(f"pieces of {typed.piece}, {typed.schedule}, {typed.goal}, worker on CPU {typed.cpu}, tester on CPU {typed.tester}, SCHED_FIFO")
    return 0


if __name__ == "__main__":
    sys.exit(main())
