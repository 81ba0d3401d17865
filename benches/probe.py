#!/usr/bin/env python3
"""`apus probe timer` against cyclictest, and `apus probe jitter` against oslat. See docs/probe.md.

Both tools of a pair run on the same CPU in the same class, one right after the other; which one is first changes from
pair to pair. Each figure is the median over the pairs of the number of Apus divided by that of the other tool. The script
needs root, two CPUs, and the Debian packages python3 and rt-tests. It builds the programs that it runs.

    sudo benches/probe.py timer --pairs 7 --seconds 10
    sudo benches/probe.py gaps --pairs 7 --seconds 10
"""

import argparse
import contextlib
import json
import os
import signal
import statistics
import struct
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PRIORITY = 95
OVER_US = 10
# oslat's most buckets, of 1 us; cyclictest's, of 1 ns.
OSLAT_BUCKETS, CYCLICTEST_BUCKETS = 1024, 1_000_000
# (what, how far from 1 the median of the ratios may be)
BOUNDS = {"timer": {"p50": 0.15, "p99": 0.15}, "gaps": {"number": 0.20, "total": 0.20}}


def run(*command):
    """Runs a command to its end and returns its output; raises an error with the output if it fails."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


@contextlib.contextmanager
def no_deep_sleep():
    """Keeps the CPU out of idle states for both tools, because cyclictest asks for that and Apus does not."""
    try:
        file = open("/dev/cpu_dma_latency", "wb", buffering=0)
    except OSError:
        yield "idle states as they are"
        return
    with file:
        file.write(struct.pack("i", 0))
        yield "cpu_dma_latency 0 for both"


def quantile(counts, q):
    """The sample of rank ceil(q n) of pairs (value, count) in ascending order."""
    rank = -(-sum(n for _, n in counts) * q // 1)
    for value, n in counts:
        rank -= n
        if rank <= 0:
            return value
    raise RuntimeError("no samples")


def apus(binary, probe, cpu, seconds, *more):
    out = run(binary, "probe", probe, "--cpu", cpu, "--priority", PRIORITY, "--duration", f"{seconds}s", "--json", *more)
    measured = json.loads(out)["measured"][0]
    raw = measured["terms"][0]["raw"]
    if raw["histogram"]["overflow"]:
        raise RuntimeError("a stall of more than 4 s: run this on a quieter machine")
    return measured, [(value, n) for value, n in raw["histogram"]["counts"]]


def timer_by_apus(binary, cpu, seconds):
    _, counts = apus(binary, "timer", cpu, seconds, "--interval", "1ms")
    return {"p50": quantile(counts, 0.5), "p99": quantile(counts, 0.99), "n": sum(n for _, n in counts)}


def timer_by_cyclictest(cpu, seconds):
    # By default cyclictest's main thread shares the measured CPU, and wakes it a hundred times a second between the
    # samples. Apus keeps whoever looks on from it. On a virtual machine that made a difference of 15 % at the median.
    elsewhere = min(os.sched_getaffinity(0) - {cpu})
    with tempfile.NamedTemporaryFile("r", suffix=".json") as file:
        run("cyclictest", "-m", "-q", "-N", "-t", 1, "-p", PRIORITY, "-i", 1000, "-a", cpu,
            "--mainaffinity", elsewhere, "-D", seconds, "-h", CYCLICTEST_BUCKETS, f"--json={file.name}")
        thread = json.load(file)["thread"]["0"]
    counts = sorted((int(ns), n) for ns, n in thread["histogram"].items())
    # What is above the histogram is not in the file, but in the number of cycles.
    above = thread["cycles"] - sum(n for _, n in counts)
    counts.append((thread["max"], above))
    return {"p50": quantile(counts, 0.5), "p99": quantile(counts, 0.99), "n": thread["cycles"]}


def gaps_by_apus(binary, cpu, seconds):
    measured, _ = apus(binary, "jitter", cpu, seconds, "--causes", "none", "--explain-over", f"{OVER_US}us")
    of = measured["detail"]["jitter"]["cpus"][0]
    # A second of the run, so that neither tool's start counts.
    per = of["run_ns"] / 1e9
    return {"number": of["large_gaps"] / per, "total": of["large_gaps_ns"] / 1e3 / per}


def gaps_by_oslat(cpu, seconds):
    with tempfile.NamedTemporaryFile("r", suffix=".json") as file:
        run("oslat", "-q", "-c", cpu, "-f", PRIORITY, "-D", seconds, "-b", OSLAT_BUCKETS, f"--json={file.name}")
        thread = json.load(file)["thread"]["0"]
    counts = sorted((int(us), n) for us, n in thread["histogram"].items())
    # rt-tests 2.4, oslat.c, insert_bucket and write_summary_json: the bucket called k holds gaps from k - 1 to k us,
    # the last one also all that are longer; by how much they are longer is in the average.
    beyond = thread["avg"] * sum(n for _, n in counts) - sum(us * n for us, n in counts)
    over = [(us, n) for us, n in counts if us - 1 >= OVER_US]
    total = sum((us - 0.5) * n for us, n in over) + max(beyond, 0)
    return {"number": sum(n for _, n in over) / thread["duration"], "total": total / thread["duration"]}


def main():
    # So that a plain kill, too, ends what the script started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=list(BOUNDS), help="what to compare")
    parser.add_argument("--pairs", type=int, default=7, help="number of pairs (default %(default)s)")
    parser.add_argument("--seconds", type=int, default=10, help="duration of each run (default %(default)s)")
    parser.add_argument("--cpu", type=int, default=max(os.sched_getaffinity(0)), help="measured CPU (default %(default)s)")
    parser.add_argument("--no-build", action="store_true", help="do not build; run the present target/release/apus")
    typed = parser.parse_args()
    binary = os.path.join(ROOT, "target", "release", "apus")
    if not typed.no_build:
        subprocess.run(["cargo", "build", "--release", "-p", "cli"], cwd=ROOT, check=True)
    tools = {
        "timer": (lambda: timer_by_apus(binary, typed.cpu, typed.seconds),
                  lambda: timer_by_cyclictest(typed.cpu, typed.seconds), "ns", "cyclictest"),
        "gaps": (lambda: gaps_by_apus(binary, typed.cpu, typed.seconds),
                 lambda: gaps_by_oslat(typed.cpu, typed.seconds), "a second; total in us", "oslat"),
    }
    ours, theirs, unit, name = tools[typed.what]
    pairs = []
    with no_deep_sleep() as idle:
        for number in range(typed.pairs):
            if number % 2 == 0:
                a = ours()
                b = theirs()
            else:
                b = theirs()
                a = ours()
            pairs.append((a, b))
            shown = ", ".join(f"{key} {a[key]:.0f} : {b[key]:.0f}" for key in a)
            print(f"pair {number + 1}: apus : {name}: {shown} ({unit})", flush=True)
    held = True
    for key, bound in BOUNDS[typed.what].items():
        ratios = [a[key] / b[key] for a, b in pairs if b[key] > 0]
        if len(ratios) < len(pairs):
            print(f"{key}: {name} saw none in {len(pairs) - len(ratios)} pairs: take longer runs")
            held = False
            continue
        middle = statistics.median(ratios)
        within = abs(middle - 1) <= bound
        held &= within
        print(f"{key}: median of the ratios {middle:.3f} ({min(ratios):.3f} to {max(ratios):.3f}), "
              f"{'within' if within else 'NOT within'} {bound:.0%}")
    print(f"{typed.pairs} pairs of {typed.seconds} s, CPU {typed.cpu}, SCHED_FIFO {PRIORITY}, {idle}")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
