#!/usr/bin/env python3
"""Measures the first second after the start of `adaptive`, with a platform profile and without. See docs/probe.md.

Each start is a new instance (macswap over a veth pair). It gets several pieces of traffic with a pause before each. All
pieces of a start have the same frames at the same times, so they differ only in what the policy has learned.

The script compares the share of frames later than the goal within each start. It prints the share in the first piece minus
that in the later pieces, and the share in the first piece without `--platform` minus that with it. It prints medians,
because one stall of the host can outweigh everything else in a mean. The intervals hold 95 % of 10,000 bootstraps over the
starts. With a profile, the first piece is as good as the others if, at the upper end of the interval, its share exceeds
theirs by less than a quarter of what the goal allows. Exit status 1 means that this was not shown.

--save FILE adds the starts to those of earlier runs. The script needs root and two CPUs. It builds the programs that it
runs.

    sudo target/release/apus probe all --priority 50 -o platform.json
    sudo benches/start.py platform.json --starts 20
    sudo benches/start.py platform.json --starts 20 --piece 50ms
    sudo benches/start.py platform.json --starts 20 --schedule constant:350us
"""

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PRIORITY = 50
BOOTSTRAPS = 10_000
# A piece that came to nothing, since a gap of the host took it all: so often its start is done again.
TRIES = 5
# Of the share of late frames that the goal allows: so much worse would still count as the same.
MARGIN = 0.25


def run(*command, good=(0,)):
    """Runs a command to its end and returns its output; raises an error with the output if it fails."""
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


def start(typed, binary, lab, platform, seed):
    """The result of each piece of traffic after a start."""
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
            return [piece(typed, binary, lab, telemetry, seed) for _ in range(typed.pieces)]
        finally:
            instance.send_signal(signal.SIGINT)
            instance.wait()
            instance.stderr.close()


def whole(*typed):
    """The pieces of a start of which no piece was lost; makes a new start if one was."""
    for _ in range(TRIES):
        pieces = start(*typed)
        if all(of["n"] > 0 for of in pieces):
            return pieces
        print("a gap of the host took a whole piece: starting again", flush=True)
    raise RuntimeError("gaps of the host took whole pieces of traffic in each start: use longer pieces (--piece), or a quieter machine")


def piece(typed, binary, lab, telemetry, seed):
    out = run(binary, "bench", "latency", "--port", "tx0", "--netns", lab.namespace("tx"), "--cpu", typed.tester,
              "--fifo", PRIORITY, "--schedule", typed.schedule, "--duration", typed.piece, "--warm-up", "0s",
              "--seed", seed, "--goal", typed.goal, "--instance", "start", "--telemetry", telemetry, "--json",
              good=(0, 1))
    of = json.loads(out)["result"]["latency"]
    of = of[0] if isinstance(of, list) else of
    bound, counts = of["goal"]["bound_ns"], of["clean"]["histogram"]["counts"]
    return {"late": sum(n for ns, n in counts if ns > bound), "n": of["clean"]["count"]}


def share(pieces):
    """The share of late frames in these pieces."""
    return sum(of["late"] for of in pieces) / sum(of["n"] for of in pieces)


def interval(samples):
    """The median, and the interval that holds 95 % of the medians of such samples (percentile bootstrap)."""
    dice = random.Random(1)
    medians = sorted(statistics.median(dice.choices(samples, k=len(samples))) for _ in range(BOOTSTRAPS))
    return statistics.median(samples), medians[BOOTSTRAPS * 25 // 1000], medians[BOOTSTRAPS * 975 // 1000]


def points(of):
    return f"{of[0] * 100:+.2f} points ({of[1] * 100:+.2f} to {of[2] * 100:+.2f})"


def kept(shares, allowed):
    return f"{sum(of <= allowed for of in shares)} of {len(shares)}"


def summary(starts, allowed):
    """Prints the results; returns whether the first piece with a profile is as good as those after it."""
    firsts, laters = {}, {}
    for name in ("with", "without"):
        pieces = [start[name] for start in starts]
        firsts[name], laters[name] = [share(of[:1]) for of in pieces], [share(of[1:]) for of in pieces]
        each = [share([later]) for of in pieces for later in of[1:]]
        print(f"{name:<8} late: first piece {statistics.median(firsts[name]):.2%}, later {statistics.median(each):.2%}; first "
              f"less later {points(interval([a - b for a, b in zip(firsts[name], laters[name])]))}; goal kept in "
              f"{kept(firsts[name], allowed)} first pieces, {kept(each, allowed)} later ones")
    gain = [a - b for a, b in zip(firsts["without"], firsts["with"])]
    print(f"first piece, without less with: {points(interval(gain))}")
    worst = interval([a - b for a, b in zip(firsts["with"], laters["with"])])[2]
    held = worst <= allowed * MARGIN
    print(f"with a profile the first piece is {'as good as' if held else 'NOT shown to be as good as'} those after it: "
          f"at most {worst * 100:+.2f} points, {allowed * MARGIN * 100:.2f} would do")
    return held


def allowed_by(goal):
    """The share that may be late: 0.01 for p99=40us."""
    return 1 - float(goal.partition("=")[0].removeprefix("p")) / 100


def main():
    # So that a plain kill, too, ends what the script started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    cpus = sorted(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("platform", help="platform profile of apus probe")
    parser.add_argument("--starts", type=int, default=20, help="number of starts with a profile, and without (default %(default)s)")
    parser.add_argument("--goal", default="p99=40us", help="latency goal (default %(default)s)")
    parser.add_argument("--schedule", default="poisson:20kpps", help="schedule of the frames (default %(default)s)")
    parser.add_argument("--piece", default="1s", help="duration of each piece of traffic (default %(default)s)")
    parser.add_argument("--pieces", type=int, default=3, help="pieces of traffic after each start (default %(default)s)")
    parser.add_argument("--cpu", type=int, default=cpus[-1], help="CPU of the worker (default %(default)s)")
    parser.add_argument("--tester", type=int, default=cpus[0], help="CPU of the generator (default %(default)s)")
    parser.add_argument("--save", metavar="FILE", help="add the starts to FILE, and evaluate all starts in it")
    parser.add_argument("--no-build", action="store_true", help="do not build; run the present target/release/apus")
    typed = parser.parse_args()
    if typed.pieces < 2:
        parser.error("--pieces: at least 2, the first and one to compare it with")
    binary = os.path.join(ROOT, "target", "release", "apus")
    if not typed.no_build:
        subprocess.run(["cargo", "build", "--release", "-p", "cli"], cwd=ROOT, check=True)
    settings = f"pieces of {typed.piece}, {typed.schedule}, {typed.goal}"
    starts = []
    if typed.save and os.path.exists(typed.save):
        with open(typed.save) as file:
            starts = [start for start in map(json.loads, file) if start["settings"] == settings]
    with Lab(binary) as lab:
        for _ in range(typed.starts):
            number = len(starts) + 1
            seen = {"settings": settings}
            for platform in ([True, False] if number % 2 == 0 else [False, True]):
                name = "with" if platform else "without"
                seen[name] = whole(typed, binary, lab, platform, number)
                print(f"start {number} {name}: {'; '.join(f'{share([of]):.3%} late' for of in seen[name])}", flush=True)
            starts.append(seen)
            if typed.save:
                with open(typed.save, "a") as file:
                    file.write(json.dumps(seen) + "\n")
    held = summary(starts, allowed_by(typed.goal))
    print(f"{len(starts)} starts of each kind, {settings}, worker on CPU {typed.cpu}, tester on CPU {typed.tester}, SCHED_FIFO")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
