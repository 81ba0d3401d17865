#!/usr/bin/env python3
"""What `apus moderate` costs and saves: sockperf between two namespaces, as root.

    benches/moderate.py [--apus target/release/apus] [--rounds 5] [--seconds 4] [-o moderate.json]

A client sends UDP datagrams to a server at fixed rates (sockperf under-load) over a veth pair that receives through NAPI.
Each round runs, in an order that is reversed in every other round: no moderation, fixed timers, net_dim, and the goals.
The client's latency is half the round trip, so it has the wake-up of the client and its unmoderated way back in it; every
row has that. CPU: of all CPUs (busy time), of the server's process, and of apus itself, in percent of one CPU.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

CLIENT, SERVER = f"apusmc{os.getpid()}", f"apusms{os.getpid()}"
TICKS = os.sysconf("SC_CLK_TCK")


def sh(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def up():
    for name in (CLIENT, SERVER):
        sh("ip", "netns", "add", name)
    sh("ip", "link", "add", "mc0", "netns", CLIENT, "type", "veth", "peer", "name", "ms0", "netns", SERVER)
    for name, port, address in ((CLIENT, "mc0", "192.0.2.2/24"), (SERVER, "ms0", "192.0.2.1/24")):
        sh("ip", "-n", name, "addr", "add", address, "dev", port)
        # By that a veth receives through NAPI.
        sh("ip", "netns", "exec", name, "ethtool", "-K", port, "tso", "off", "gro", "on")
        sh("ip", "-n", name, "link", "set", port, "up")
    # Only the server's side is moderated: what the client receives goes past NAPI.
    sh("ip", "netns", "exec", CLIENT, "ethtool", "-K", "mc0", "gro", "off")


def down():
    for name in (CLIENT, SERVER):
        subprocess.run(["ip", "netns", "del", name], check=False)


def spent(pid):
    """CPU time of a process in seconds (proc_pid_stat(5), utime and stime)."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def busy():
    """Busy time of all CPUs in seconds (proc_stat(5); not idle, not waiting, not stolen)."""
    with open("/proc/stat", encoding="ascii") as file:
        fields = [int(field) for field in file.readline().split()[1:]]
    return (sum(fields[:8]) - fields[3] - fields[4] - fields[7]) / TICKS


def one(apus, server, way, mps, seconds):
    """One run: latencies of the client in us, CPU in percent, what apus says."""
    inside = ["ip", "netns", "exec", SERVER]
    steer = None
    if way:
        steer = subprocess.Popen(
            [*inside, apus, "moderate", "ms0", *way, "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        time.sleep(1.5 if "--goal" in way else 0.5)
    began, all_before, server_before = time.monotonic(), busy(), spent(server)
    apus_before = spent(steer.pid) if steer else 0
    client = subprocess.run(
        ["ip", "netns", "exec", CLIENT, "sockperf", "under-load", "-i", "192.0.2.1", "-p", "11111", "--mps", str(mps),
         "-t", str(seconds), "-m", "64", "--reply-every", "20"],
        capture_output=True, text=True, check=True)
    lasted = time.monotonic() - began
    share = lambda seconds: round(100 * seconds / lasted, 1)
    result = {"busy_percent": share(busy() - all_before), "server_percent": share(spent(server) - server_before)}
    if steer:
        result["apus_percent"] = share(spent(steer.pid) - apus_before)
        steer.send_signal(2)
        said = json.loads(steer.communicate(timeout=30)[0])
        queue = said["queues"][0]
        result |= {key: queue[key] for key in ("timer_ns", "polls", "packets", "reception_to_read_ns", "verdict")}
    for quantile in ("50.000", "99.000", "99.900"):
        found = re.search(rf"percentile {quantile} =\s+([0-9.]+)", client.stdout)
        result[f"p{float(quantile):g}_us"] = float(found[1]) if found else None
    dropped = re.search(r"# dropped messages = (\d+)", client.stdout)
    result["dropped"] = int(dropped[1]) if dropped else None
    return result


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--apus", default="target/release/apus")
    parse.add_argument("--rounds", type=int, default=5)
    parse.add_argument("--seconds", type=int, default=4)
    parse.add_argument("--mps", default="10000,50000,90000")
    parse.add_argument("-o", "--output", default="moderate.json")
    typed = parse.parse_args()
    ways = {"off": []}
    ways |= {f"static:{us}us": ["--policy", f"static:{us}us"] for us in (0, 20, 50, 90, 200)}
    ways["net-dim"] = ["--policy", "net-dim"]
    ways |= {f"p99={us}us": ["--goal", f"p99={us}us"] for us in (50, 100, 300)}
    runs = []
    up()
    log = tempfile.TemporaryFile()
    server = subprocess.Popen(["ip", "netns", "exec", SERVER, "sockperf", "server", "-i", "192.0.2.1"], stdout=log, stderr=log)
    try:
        time.sleep(0.5)
        for number in range(typed.rounds):
            order = list(ways.items())
            for mps in map(int, typed.mps.split(",")):
                for name, way in order if number % 2 == 0 else reversed(order):
                    result = one(typed.apus, server.pid, way, mps, typed.seconds)
                    runs.append({"round": number, "mps": mps, "way": name, **result})
                    print(json.dumps(runs[-1]), file=sys.stderr)
    finally:
        server.terminate()
        server.wait()
        down()
    with open(typed.output, "w", encoding="utf-8") as file:
        json.dump({"runs": runs}, file, indent=1)
    table(runs)


def table(runs):
    """Medians over the rounds; CPU also as a ratio to no moderation."""
    median = lambda chosen, key: statistics.median([run[key] for run in chosen if run.get(key) is not None] or [float("nan")])
    print(f"{'rate/s':>7} {'way':<13} {'timer us':>8} {'polls/packet':>12} {'p50 us':>7} {'p99 us':>7} {'busy %':>7} "
          f"{'ratio':>6} {'server %':>8} {'apus %':>6}  goal")
    for mps in sorted({run["mps"] for run in runs}):
        off = [run for run in runs if run["mps"] == mps and run["way"] == "off"]
        for way in dict.fromkeys(run["way"] for run in runs):
            chosen = [run for run in runs if run["mps"] == mps and run["way"] == way]
            shares = [run["polls"] / run["packets"] for run in chosen if run.get("packets")]
            held = [run["verdict"] for run in chosen if "verdict" in run and way.startswith("p")]
            print(f"{mps:>7} {way:<13} {median(chosen, 'timer_ns') / 1e3:>8.0f} "
                  f"{statistics.median(shares) if shares else float('nan'):>12.2f} "
                  f"{median(chosen, 'p50_us'):>7.0f} {median(chosen, 'p99_us'):>7.0f} {median(chosen, 'busy_percent'):>7.0f} "
                  f"{median(chosen, 'busy_percent') / median(off, 'busy_percent'):>6.2f} "
                  f"{median(chosen, 'server_percent'):>8.0f} {median(chosen, 'apus_percent'):>6.1f}  "
                  f"{', '.join(f'{held.count(one)} {one}' for one in dict.fromkeys(held))}")


if __name__ == "__main__":
    main()
