#!/usr/bin/env python3
"""Does libapus hold a goal in other people's loops, and at what CPU time? The UDP servers of crates/capi/examples, as root.

    benches/own_loop.py [--library target/libapus] [--rounds 5] [--seconds 5] [--rates 1000,5000] [--goal p99=85us]
                        [--within 100] [--apus target/release/apus] [-o own-loop.json]

A paced client on CPU 0 sends UDP datagrams over a veth pair to a server on CPU 1, in C and in Python, and times each answer
from the time at which the datagram was to be sent. Each server runs without libapus (it spins) and with it (a goal, on its
socket). The order is reversed in every other round. CPU is that of the server's process, in percent of one CPU.
A goal is from the arrival of a datagram to the server's poll that picks it up. The client times more: sending, the server's
work and the answer's way back, 10 to 15 us where the server spins. So --within, what the client's p99 must not exceed, is that
much longer than the goal.

The client wakes 80 us before a datagram is due and then spins, so that its own wake-up is not in the latency. It and the
servers with libapus run under SCHED_FIFO, so that other programs do not disturb them. The servers that spin run at nice -20,
because the kernel takes 5 % of each second from real-time threads that only spin. A second of traffic goes before each run. `make lib` builds the library. With --apus, `apus bench
latency` measures each server that uses libapus once more, as an instance, from an AF_XDP socket at the other end.
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

CLIENT, SERVER = f"apusoc{os.getpid()}", f"apusos{os.getpid()}"
ADDRESS, PORT = "10.77.0.1", "7007"
CLIENT_ADDRESS, CLIENT_MAC, SERVER_MAC = "10.77.0.2", "02:61:70:75:00:00", "02:61:70:75:00:01"
CPU_CLIENT, CPU_SERVER = "0", "1"
HERE = os.path.dirname(os.path.abspath(__file__))
EXAMPLES = os.path.join(HERE, "../crates/capi/examples")
LOAD = os.path.join(HERE, "../crates/capi/tests/it/load.py")


def sh(*words, **more):
    return subprocess.run(words, check=True, capture_output=True, text=True, **more).stdout


def up():
    for name in (CLIENT, SERVER):
        sh("ip", "netns", "add", name)
    sh("ip", "link", "add", "oc0", "netns", CLIENT, "address", CLIENT_MAC, "type", "veth",
       "peer", "name", "os0", "netns", SERVER, "address", SERVER_MAC)
    for name, port, address in ((CLIENT, "oc0", CLIENT_ADDRESS), (SERVER, "os0", ADDRESS)):
        sh("ip", "-n", name, "addr", "add", f"{address}/24", "dev", port)
        sh("ip", "-n", name, "link", "set", port, "up")
    # `apus bench` answers no ARP.
    sh("ip", "-n", SERVER, "neigh", "add", CLIENT_ADDRESS, "lladdr", CLIENT_MAC, "dev", "os0", "nud", "permanent")


def down():
    for name in (CLIENT, SERVER):
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def spent(pid):
    """CPU time of a process with all its threads, in seconds (/proc/PID/schedstat)."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as file:
            total += int(file.read().split()[0])
    return total / 1e9


def one(typed, program, words, rate, library):
    """One run: latencies of the client in us, and CPU of the server in percent."""
    fifo = ["chrt", "-f", "50"]
    # A real-time thread that never sleeps would be throttled.
    first = fifo if words else ["nice", "-n", "-20"]
    inside = ["ip", "netns", "exec", SERVER, *first, "taskset", "-c", CPU_SERVER, *program, ADDRESS, PORT, *words]
    outside = ["ip", "netns", "exec", CLIENT, *fifo, sys.executable, LOAD, "udp", ADDRESS, PORT, str(rate)]
    env = os.environ | {"LD_LIBRARY_PATH": library, "PYTHONDONTWRITEBYTECODE": "1", "APUS_LOAD_CPU": CPU_CLIENT}
    with tempfile.TemporaryFile() as log:
        server = subprocess.Popen(inside, stdout=log, stderr=log, env=env)
        try:
            time.sleep(0.5)
            sh(*outside, "1", env=env)
            before, began = spent(server.pid), time.monotonic()
            answers, sent, p50, p99 = sh(*outside, str(typed.seconds), env=env).split()
            cpu = 100 * (spent(server.pid) - before) / (time.monotonic() - began)
            result = {"answers": int(answers), "sent": int(sent), "p50_us": float(p50), "p99_us": float(p99),
                      "cpu_percent": round(cpu, 2)}
            if typed.apus and words:
                result |= measured(typed, rate)
            return result
        finally:
            server.send_signal(signal.SIGTERM)
            if server.wait(timeout=10) != 0:
                log.seek(0)
                sys.exit(f"the server ended badly: {log.read().decode()}")


def measured(typed, rate):
    """What `apus bench` says of the same server."""
    words = ["ip", "netns", "exec", CLIENT, typed.apus, "bench", "latency", "--port", "oc0", "--cpu", CPU_CLIENT, "--schedule",
             f"constant:{rate}pps", "--goal", typed.goal, "--duration", f"{typed.seconds:g}s", "--udp", f"{CLIENT_ADDRESS}:5000-{ADDRESS}:{PORT}", "--frame",
             "128", "--mac", SERVER_MAC, "--instance", "own-loop", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode > 1:
        sys.exit(f"{' '.join(words)}: {done.stderr}")
    return {"apus_bench": json.loads(done.stdout)}


def main():
    # So that a plain kill, too, ends what the script started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--library", default="target/libapus", help="folder that `make lib` or tools/libapus.sh wrote")
    parse.add_argument("--rounds", type=int, default=5)
    parse.add_argument("--seconds", type=float, default=5)
    parse.add_argument("--rates", default="1000,5000")
    parse.add_argument("--goal", default="p99=85us")
    parse.add_argument("--within", type=float, default=100, help="longest p99 of the client, in us")
    parse.add_argument("--apus", help="the program, to measure with `apus bench` too")
    parse.add_argument("-o", "--output", default="own-loop.json")
    typed = parse.parse_args()
    library = os.path.join(os.path.abspath(typed.library), "lib")
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        echo = os.path.join(folder, "udp-echo")
        sh("cc", "-O2", "-I", os.path.join(typed.library, "include"), os.path.join(EXAMPLES, "udp-echo.c"), "-o", echo,
           "-L", library, "-lapus")
        programs = {"C": [echo], "Python": [sys.executable, os.path.join(EXAMPLES, "udp_echo.py")]}
        ways = [(name, words) for name in programs for words in ([], [typed.goal, "own-loop"])]
        try:
            up()
            for number in range(typed.rounds):
                for rate in map(int, typed.rates.split(",")):
                    for name, words in ways if number % 2 == 0 else reversed(ways):
                        result = one(typed, programs[name], words, rate, library)
                        runs.append({"round": number, "rate_pps": rate, "program": name, "libapus": bool(words), **result})
                        shown = {key: value for key, value in runs[-1].items() if key != "apus_bench"}
                        print(json.dumps(shown), file=sys.stderr, flush=True)
        finally:
            down()
            with open(typed.output, "w", encoding="utf-8") as file:
                json.dump({"goal": typed.goal, "within_us": typed.within, "seconds": typed.seconds, "runs": runs}, file, indent=1)
    print(f"{'program':<8} {'rate':>6} {'way':<10} {'lost':>5} {'p50 us':>7} {'p99 us: median':>15} {'worst':>7} {'within':>7} {'CPU %':>6}")
    for rate in map(int, typed.rates.split(",")):
        for name, words in ways:
            of = [run for run in runs if (run["rate_pps"], run["program"], run["libapus"]) == (rate, name, bool(words))]
            middle = lambda key, of=of: statistics.median(run[key] for run in of)
            print(f"{name:<8} {rate:>6} {typed.goal if words else 'spins':<10} "
                  f"{sum(run['sent'] - run['answers'] for run in of):>5} {middle('p50_us'):>7.1f} {middle('p99_us'):>15.1f} "
                  f"{max(run['p99_us'] for run in of):>7.1f} "
                  f"{sum(run['p99_us'] <= typed.within for run in of):>4}/{len(of):<2} {middle('cpu_percent'):>6.1f}")


main()
