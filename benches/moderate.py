#!/usr/bin/env python3
"""What `apus moderate` costs and saves: unmodified servers between two namespaces, as root.

    benches/moderate.py [--apus target/release/apus] [--rounds 5] [--seconds 4] [--traffic udp:10000,redis]
                        [--fixed 0,50,150] [-o moderate.json]
    benches/moderate.py --two-queues [--rate 1G] [--rounds 5] [--seconds 4] [-o moderate.json]
    benches/moderate.py --from moderate.json [--fixed 0,50,150]     (measures nothing)

A client on CPU 0 loads a server on CPU 1 over a veth pair. The server's side receives through NAPI, in a kernel thread on
CPU 1, so that its CPU time is that of a thread: this kernel does not account the time of softirqs. Traffic:

    udp:RATE   sockperf under-load: UDP datagrams of 64 bytes at RATE a second, one in 20 is answered
    pingpong   sockperf ping-pong over TCP: one request at a time
    redis      redis-server, redis-benchmark GET over 20 connections
    memcached  memcached, memcslap GET over 8 connections (it reports no latencies)
    iperf3:RATE
               iperf3: a TCP stream of RATE (1G), in segments of 1,448 bytes, which count as requests here

Each round runs, in an order of its own: no moderation, fixed timers, net_dim, and the goals. CPU is that of the server, its
NAPI threads and apus together, after a run that lets the policy settle, in percent of one CPU and in microseconds a request.
Goals are compared with the other ways within each round, because the machine may change its speed between rounds; the medians
of these ratios are printed. The client's latency has its own wake-up in it; sockperf's is half the round trip.

With --two-queues, the ping-pong comes to queue 0 and an iperf3 stream over TCP, paced to RATE, to queue 1, at once. Each
runs alone too. The stream's client is on CPU 1, its server and the NAPI thread of its queue on CPU 0. So each CPU serves
both; the ping-pong's processes run before the stream's (SCHED_FIFO). Ways: no moderation, the same fixed timer for both
queues, net_dim, and a goal for each queue. The table compares the throughput with that of the stream alone. RATE is below
what the two CPUs can carry, as a line would be: clients, servers and polls share these CPUs, so that at full speed each
takes CPU time from the other.

A process that runs only when nothing else does keeps each CPU from halting: a virtual CPU that halts wakes late.

A fixed timer holds a goal if the timer and the measured rest at p99 are together within it. The tables print the goals that
were lost first.
"""
import argparse
import contextlib
import csv
import io
import json
import operator
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

CLIENT, SERVER = f"apusmc{os.getpid()}", f"apusms{os.getpid()}"
ADDRESS = "192.0.2.1"
CPU_CLIENT, CPU_SERVER = "0", "1"
# The goal's policy changes its timer once a second, so it has settled after this time.
SETTLES = 2
GOALS = (50, 100, 300)
# All goals are about p99.
LATE_PERCENT = 1
STATIC = "0,20,50,80,150,280"
SOCKPERF_PORT, IPERF_PORT = "11111", "5201"
# Payload of a full TCP segment with timestamps, in bytes.
SEGMENT = 1448
# With --two-queues: one fixed timer for both, and each queue's goal.
BOTH = (50, 300)
EACH = ("p99=100us", "p99=1ms")


def needed(traffic, apus):
    """Ends with a message if a program is missing: otherwise the run would end in the middle."""
    programs = {"redis": ["redis-server", "redis-benchmark"], "memcached": ["memcached", "memcslap"], "iperf3": ["iperf3"]}
    words = {program for name in traffic for program in programs.get(name.split(":")[0], ["sockperf"])} | {"ethtool", "chrt"}
    missing = sorted(word for word in words if not shutil.which(word))
    if missing:
        sys.exit(f"{', '.join(missing)} not found: tools/setup.sh bench installs them")
    if not os.access(apus, os.X_OK):
        sys.exit(f"{apus} not found: build it with `make build`, or name another with --apus")


def sh(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def up(queues=1):
    for name in (CLIENT, SERVER):
        sh("ip", "netns", "add", name)
    number = ["numtxqueues", str(queues), "numrxqueues", str(queues)]
    sh("ip", "link", "add", "mc0", "netns", CLIENT, *number, "type", "veth", "peer", "name", "ms0", "netns", SERVER, *number)
    for name, port, address in ((CLIENT, "mc0", "192.0.2.2/24"), (SERVER, "ms0", f"{ADDRESS}/24")):
        sh("ip", "-n", name, "addr", "add", address, "dev", port)
        # By that a veth receives through NAPI.
        sh("ip", "netns", "exec", name, "ethtool", "-K", port, "tso", "off", "gro", "on")
        sh("ip", "-n", name, "link", "set", port, "up")
        sh("ip", "-n", name, "link", "set", "lo", "up")
    # Only the server's side is moderated: what the client receives goes past NAPI.
    sh("ip", "netns", "exec", CLIENT, "ethtool", "-K", "mc0", "gro", "off")
    if queues > 1:
        # XPS: a client's frames leave by the queue of its CPU, and come to the same queue of the other end.
        for cpu in (CPU_CLIENT, CPU_SERVER):
            sh("ip", "netns", "exec", CLIENT, "sh", "-c", f"echo {1 << int(cpu):x} > /sys/class/net/mc0/queues/tx-{cpu}/xps_cpus")
    before = set(kernel_threads())
    sh("ip", "netns", "exec", SERVER, "sh", "-c", "echo 1 > /sys/class/net/ms0/threaded")
    threads = sorted(pid for pid in kernel_threads() if pid not in before)
    # The first one serves queue 0: the kernel numbers the NAPI instances in the order of the queues.
    for pid, cpu in zip(threads, (CPU_SERVER, CPU_CLIENT)):
        sh("taskset", "-pc", cpu, str(pid))
        # An interrupt would not wait for the server's time slice either.
        sh("chrt", "-f", "-p", "10", str(pid))
    return threads


def kernel_threads():
    """The kernel threads that poll NAPI instances of ms0."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/comm", encoding="ascii") as file:
                if file.read().startswith("napi/ms0-"):
                    yield int(pid)
        except OSError:
            pass


@contextlib.contextmanager
def awake():
    """Keeps the CPUs from halting, by processes that run only when nothing else wants to (SCHED_IDLE). A virtual CPU that halts
    is woken by its hypervisor, in hundreds of microseconds, and the more often, the more moderation lets it rest."""
    words = ["chrt", "-i", "0", "taskset", "-c"]
    spinners = [subprocess.Popen([*words, cpu, sys.executable, "-c", "while True: pass"]) for cpu in (CPU_CLIENT, CPU_SERVER)]
    try:
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()


def down():
    for name in (CLIENT, SERVER):
        subprocess.run(["ip", "netns", "del", name], check=False)


def spent(pids):
    """CPU time of processes with all their threads, in seconds (Documentation/scheduler/sched-stats, /proc/PID/schedstat)."""
    total = 0
    for pid in pids:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as file:
                total += int(file.read().split()[0])
    return total / 1e9


def judged(apus, pid):
    """For each queue that a running instance steers: how many packets it has judged, and how many of them were late."""
    found = subprocess.run([apus, "moderate", "status", "--json"], check=False, capture_output=True, text=True)
    instances = json.loads(found.stdout)["instances"]
    return [(queue["judged"], queue["late"]) for instance in instances if instance["pid"] == pid for queue in instance["queues"]]


def settled(queue, before):
    """Adds the share of late packets in percent of those that were judged since `before`, when the policy had settled."""
    judged_, late = before
    if queue["judged"] > judged_:
        queue["late_percent"] = round(100 * (queue["late"] - late) / (queue["judged"] - judged_), 3)
    return queue


class Sockperf:
    """Paced UDP datagrams, or a ping-pong over TCP."""
    # With two queues: where its client and its server run, and that they need not wait for the other's time slice.
    cpus = (CPU_CLIENT, CPU_SERVER)
    first = ["chrt", "-f", "5"]

    def __init__(self, rate=None):
        self.rate = rate
        self.tcp = [] if rate else ["--tcp"]

    def server(self):
        return ["sockperf", "server", "-i", ADDRESS, *self.tcp]

    def client(self, seconds):
        how = ["under-load", "--mps", str(self.rate), "--reply-every", "20"] if self.rate else ["ping-pong"]
        return ["sockperf", how[0], "-i", ADDRESS, "-p", SOCKPERF_PORT, "-t", str(seconds), "-m", "64", *how[1:], *self.tcp]

    def read(self, out, _):
        result = {}
        for quantile in ("50.000", "99.000"):
            found = re.search(rf"percentile {quantile} =\s+([0-9.]+)", out)
            result[f"p{float(quantile):g}_us"] = float(found[1]) if found else None
        sent = re.search(r"SentMessages=(\d+)", out)
        result["requests"] = int(sent[1]) if sent else None
        return result


class Redis:
    """A fixed number of requests: as many as take the time without moderation."""
    rate = None

    def server(self):
        return ["redis-server", "--bind", ADDRESS, "--protected-mode", "no", "--save", "", "--port", "6379"]

    def client(self, seconds):
        requests = int((self.rate or 20_000) * seconds)
        return ["redis-benchmark", "-h", ADDRESS, "-t", "get", "-c", "20", "-n", str(requests), "--csv"]

    def read(self, out, words):
        # "test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"
        row = [row for row in csv.reader(io.StringIO(out)) if row and row[0] == "GET"][0]
        self.rate = self.rate or float(row[1])
        return {"p50_us": float(row[4]) * 1e3, "p99_us": float(row[6]) * 1e3, "requests": int(words[-2])}


class Memcached:
    def server(self):
        return ["memcached", "-l", ADDRESS, "-u", "root", "-t", "1"]

    def client(self, seconds):
        return ["memcslap", "-s", ADDRESS, "-t", "get", "-c", "8", "-e", str(int(1_000 * seconds))]

    def read(self, _, words):
        return {"requests": 8 * int(words[-1])}


class Iperf:
    """A TCP stream, paced: a segment a write, so that frames come one by one, as a line brings them, and not as a burst."""
    cpus = (CPU_SERVER, CPU_CLIENT)
    first = []

    def __init__(self, rate):
        self.rate = rate

    def server(self):
        return ["iperf3", "-s", "-B", ADDRESS, "-p", IPERF_PORT]

    def client(self, seconds):
        return ["iperf3", "-c", ADDRESS, "-p", IPERF_PORT, "-t", str(seconds), "-b", self.rate, "-l", str(SEGMENT), "-N", "--json"]

    def read(self, out, _):
        end = json.loads(out)["end"]
        received = end["sum_received"]
        return {"gbit_s": received["bits_per_second"] / 1e9, "retransmits": end["sum_sent"]["retransmits"],
                "requests": received["bytes"] // SEGMENT}


def traffic(name):
    if name.startswith("udp:"):
        return Sockperf(int(name[4:]))
    kinds = {"pingpong": Sockperf, "redis": Redis, "memcached": Memcached}
    if name == "iperf3" or name.startswith("iperf3:"):
        return Iperf(name[7:] or "1G")
    if name not in kinds:
        sys.exit(f"--traffic {name}: expected udp:RATE, iperf3:RATE, {', '.join(kinds)}")
    return kinds[name]()


def one(apus, threads, name, way, seconds, kind):
    """One run: latencies of the client in us, CPU time, what apus says."""
    inside = ["ip", "netns", "exec", SERVER, "taskset", "-c", CPU_SERVER]
    outside = ["ip", "netns", "exec", CLIENT, "taskset", "-c", CPU_CLIENT]
    with tempfile.TemporaryFile() as log:
        server = subprocess.Popen([*inside, *kind.server()], stdout=log, stderr=log)
        steer = None
        try:
            time.sleep(0.3)
            if way:
                words = [*inside, apus, "moderate", "ms0", *way, "--json"]
                steer = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
                time.sleep(0.7)
            sh(*outside, *kind.client(SETTLES))
            pids = {"server": [server.pid], "napi": threads, "apus": [steer.pid] if steer else []}
            late_before = judged(apus, steer.pid) if steer else []
            before, began = {key: spent(of) for key, of in pids.items()}, time.monotonic()
            words = kind.client(seconds)
            out = sh(*outside, *words)
            lasted = time.monotonic() - began
            cpu = {key: spent(of) - before[key] for key, of in pids.items()}
            result = {"seconds": lasted, **kind.read(out, words)}
            result |= {f"{key}_percent": round(100 * time_ / lasted, 2) for key, time_ in cpu.items()}
            result["cpu_percent"] = round(100 * sum(cpu.values()) / lasted, 2)
            result["cpu_us_per_request"] = round(1e6 * sum(cpu.values()) / result["requests"], 3)
            if steer:
                # At once: what it says is about the last full second.
                steer.send_signal(2)
                queue = settled(json.loads(steer.communicate(timeout=30)[0])["queues"][0], late_before[0])
                keys = ("timer_ns", "polls", "packets", "reception_to_read_ns", "judged", "late", "late_percent", "verdict", "reason")
                result |= {key: queue.get(key) for key in keys}
                if queue["reception_to_read_ns"] is not None:
                    result["at_most_us"] = (queue["reception_to_read_ns"] + (queue["arrival_to_reception_bound_ns"] or 0)) / 1e3
            return result
        finally:
            if steer and steer.poll() is None:
                steer.kill()
                steer.wait()
            server.terminate()
            server.wait()


def both(apus, threads, kinds, way, seconds):
    """One run of one or both kinds of traffic at once, each to its queue."""
    inside = {name: ["ip", "netns", "exec", SERVER, *kind.first, "taskset", "-c", kind.cpus[1]] for name, kind in kinds.items()}
    outside = {name: ["ip", "netns", "exec", CLIENT, *kind.first, "taskset", "-c", kind.cpus[0]] for name, kind in kinds.items()}
    servers, clients, steer = [], [], None
    with tempfile.TemporaryFile() as log:
        try:
            servers = [subprocess.Popen([*inside[name], *kind.server()], stdout=log, stderr=log)
                       for name, kind in kinds.items()]
            time.sleep(0.3)
            if way:
                words = ["ip", "netns", "exec", SERVER, apus, "moderate", "ms0", *way, "--json"]
                steer = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
                time.sleep(0.7)

            def run(lasting):
                words = {name: kind.client(lasting) for name, kind in kinds.items()}
                clients[:] = [subprocess.Popen([*outside[name], *typed], stdout=subprocess.PIPE, stderr=log, text=True)
                              for name, typed in words.items()]
                outs = [client.communicate(timeout=lasting + 30)[0] for client in clients]
                return {name: kinds[name].read(out, words[name]) for name, out in zip(kinds, outs)}

            run(SETTLES)
            pids = [*(server.pid for server in servers), *threads, *([steer.pid] if steer else [])]
            late_before = judged(apus, steer.pid) if steer else []
            before, began = spent(pids), time.monotonic()
            result = run(seconds)
            result["cpu_percent"] = round(100 * (spent(pids) - before) / (time.monotonic() - began), 2)
            if steer:
                steer.send_signal(2)
                keys = ("timer_ns", "reception_to_read_ns", "arrival_to_reception_bound_ns", "verdict", "reason", "late_percent")
                queues = map(settled, json.loads(steer.communicate(timeout=30)[0])["queues"], late_before)
                result["queues"] = [{key: queue.get(key) for key in keys} for queue in queues]
            return result
        finally:
            for process in [*clients, *servers, *([steer] if steer else [])]:
                if process.poll() is None:
                    process.kill()
                process.wait()


def two_queues(typed):
    """A queue for latency and one for throughput, at once."""
    kinds = {"pingpong": Sockperf(), "iperf3": Iperf(typed.rate)}
    ways = {"pingpong alone": (["pingpong"], []), "iperf3 alone": (["iperf3"], []), "off": (list(kinds), [])}
    ways |= {f"static:{us}us": (list(kinds), ["--policy", f"static:{us}us"]) for us in BOTH}
    ways["net-dim"] = (list(kinds), ["--policy", "net-dim"])
    ways["goals"] = (list(kinds), ["--goal", EACH[1], "--queue-goal", f"0:{EACH[0]}"])
    runs = []
    try:
        threads = up(queues=2)
        with awake():
            for number in range(typed.rounds):
                for way, (names, words) in turned(ways, number, typed.rounds):
                    result = both(typed.apus, threads, {name: kinds[name] for name in names}, words, typed.seconds)
                    runs.append({"round": number, "way": way, **result})
                    print(json.dumps(runs[-1]), file=sys.stderr, flush=True)
    finally:
        down()
        with open(typed.output, "w", encoding="utf-8") as file:
            json.dump({"rate": typed.rate, "seconds": typed.seconds, "goals": EACH, "runs": runs}, file, indent=1)
    both_queues_table(runs, typed.seconds)


def both_queues_table(runs, seconds):
    """Medians over the rounds, of one kind of traffic on each of two queues."""
    middle = lambda way, path: median([{"x": find(run, path)} for run in runs if run["way"] == way], "x")
    alone = middle("iperf3 alone", ("iperf3", "gbit_s"))
    print(f"{'way':<15} {'timers us':>10} {'late %':>12} {'requests/s':>10} {'p50 us':>7} {'p99 us':>7} "
          f"{'Gbit/s':>7} {'of alone':>8} {'CPU %':>6}")
    for way in dict.fromkeys(run["way"] for run in runs if run["round"] == 0):
        pair = lambda key, way=way: [middle(way, ("queues", queue, key)) for queue in (0, 1)]
        timers, late = [f"{ns / 1e3:.0f}" for ns in pair("timer_ns")], [f"{share:.2f}" for share in pair("late_percent")]
        print(f"{way:<15} {'/'.join(timers):>10} {'/'.join(late):>12} "
              f"{middle(way, ('pingpong', 'requests')) / seconds:>10.0f} {middle(way, ('pingpong', 'p50_us')):>7.0f} "
              f"{middle(way, ('pingpong', 'p99_us')):>7.0f} {middle(way, ('iperf3', 'gbit_s')):>7.2f} "
              f"{middle(way, ('iperf3', 'gbit_s')) / alone:>8.3f} {middle(way, ('cpu_percent',)):>6.1f}")
    rounds = 1 + max(run["round"] for run in runs)
    print(f"medians of {rounds} rounds; of each queue, the timer at the end, and the packets that may have been later than "
          f"the goal: {EACH[0]} and {EACH[1]}, p99=100us of a way without goals")


def turned(ways, number, rounds):
    """The ways in a round's order: each round begins elsewhere, so that no way always runs long after another."""
    order = list(ways.items())
    begins = number * len(order) // rounds
    order = order[begins:] + order[:begins]
    return order if number % 2 == 0 else order[::-1]


def find(run, path):
    """What stands at a path of keys and indices; None if it is not there."""
    for key in path:
        try:
            run = run[key]
        except (KeyError, IndexError, TypeError):
            return None
    return run


def judge_file(name, fixed):
    """Prints what a file of results says."""
    # A reader such as head may close the pipe early. That ends this script, and is no fault of the file.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        with open(name, encoding="utf-8") as file:
            measured = json.load(file)
        if "rate" in measured:
            both_queues_table(measured["runs"], measured["seconds"])
        else:
            judge(measured["runs"], fixed)
            table(measured["runs"])
    except OSError as error:
        sys.exit(f"{name}: {error.strerror}")
    except (ValueError, KeyError, TypeError) as error:
        sys.exit(f"{name}: not a file of results of this script ({error!r})")


def main():
    # So that a plain kill, too, ends what the script started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("--apus", default="target/release/apus")
    parse.add_argument("--rounds", type=int, default=5)
    parse.add_argument("--seconds", type=int, default=4)
    parse.add_argument("--traffic", default="udp:10000,udp:50000,udp:90000,redis")
    parse.add_argument("--fixed", default=STATIC, help="fixed timers in microseconds")
    parse.add_argument("--two-queues", action="store_true", help="ping-pong on one queue, iperf3 on another, at once")
    parse.add_argument("--rate", default="1G", help="of the iperf3 stream, with --two-queues")
    parse.add_argument("-o", "--output", default="moderate.json")
    parse.add_argument("--from", dest="source", metavar="FILE", help="measure nothing, and judge the results in a FILE of -o")
    typed = parse.parse_args()
    fixed = [int(us) for us in typed.fixed.split(",")]
    if typed.source:
        judge_file(typed.source, fixed)
        return
    needed(["pingpong", "iperf3"] if typed.two_queues else typed.traffic.split(","), typed.apus)
    if typed.two_queues:
        two_queues(typed)
        return
    ways = {"off": []}
    ways |= {f"static:{us}us": ["--policy", f"static:{us}us"] for us in fixed}
    ways["net-dim"] = ["--policy", "net-dim"]
    ways |= {f"p99={us}us": ["--goal", f"p99={us}us"] for us in GOALS}
    kinds = {name: traffic(name) for name in typed.traffic.split(",")}
    runs = []
    try:
        threads = up()
        with awake():
            for number in range(typed.rounds):
                for name, kind in kinds.items():
                    for way, words in turned(ways, number, typed.rounds):
                        result = one(typed.apus, threads, name, words, typed.seconds, kind)
                        runs.append({"round": number, "traffic": name, "way": way, **result})
                        print(json.dumps(runs[-1]), file=sys.stderr, flush=True)
    finally:
        down()
        with open(typed.output, "w", encoding="utf-8") as file:
            json.dump({"runs": runs}, file, indent=1)
    judge(runs, fixed)
    table(runs)


def median(chosen, key):
    values = [run[key] for run in chosen if run.get(key) is not None]
    return statistics.median(values) if values else float("nan")


def paired(ours, others, key, compare):
    """Compares two ways within each round, because the machine may change its speed between rounds. Returns the median."""
    others = {run["round"]: run.get(key) for run in others}
    pairs = [(run.get(key), others.get(run["round"])) for run in ours]
    values = [compare(mine, other) for mine, other in pairs if mine is not None and other is not None]
    return statistics.median(values) if values else float("nan")


def of(runs, name, way):
    return [run for run in runs if run["traffic"] == name and run["way"] == way]


def judge(runs, fixed):
    """For each traffic and goal: is it held, and with which CPU against the cheapest fixed timer that holds it?"""
    lines = []
    for name in dict.fromkeys(run["traffic"] for run in runs):
        off = of(runs, name, "off")
        for goal in GOALS:
            ours = of(runs, name, f"p99={goal}us")
            holds = lambda chosen: median(chosen, "at_most_us") <= goal  # not if it is unknown
            costs = lambda others: paired(ours, others, "cpu_us_per_request", operator.truediv)
            statics = [(costs(of(runs, name, f"static:{us}us")), us) for us in fixed
                       if holds(of(runs, name, f"static:{us}us"))]
            of_off = costs(off)
            # The cheaper the other way, the larger the ratio.
            ratio, timer = max([*statics, (of_off, 0)])
            later = paired(ours, off, "p99_us", operator.sub)
            held = sum((100 if run["late_percent"] is None else run["late_percent"]) <= LATE_PERCENT for run in ours)
            reports = any(run.get("p99_us") is not None for run in runs if run["traffic"] == name)
            # Whatever is unknown is lost, unless the client never reports it. A goal that no fixed timer holds either is told
            # apart.
            lost = not (held > len(ours) / 2 and ratio <= 1.1 and (later <= goal or not reports))
            client = f"the client's p99 {later:+.0f} us" if reports else "the client reports no latency"
            any_holds = bool(statics)
            lines.append((not lost, f"{('lost' if any_holds else 'none') if lost else 'ok':<5}{name:<12} p99={goal}us: held {held} of {len(ours)}, at most "
                          f"{median(ours, 'at_most_us'):.0f} us; {client}; timer "
                          f"{median(ours, 'timer_ns') / 1e3:.0f} us; CPU {ratio:.2f} x of the best fixed timer ({timer} us), "
                          f"{of_off:.2f} x of off"))
    for _, line in sorted(lines, key=lambda line: line[0]):
        print(line)
    print()


def table(runs):
    """Medians over the rounds."""
    print(f"{'traffic':<12} {'way':<13} {'timer us':>8} {'polls/packet':>12} {'p50 us':>7} {'p99 us':>7} {'at most':>8} "
          f"{'server %':>8} {'napi %':>7} {'apus %':>6} {'us/request':>10} {'ratio':>6}")
    for name in dict.fromkeys(run["traffic"] for run in runs):
        off = median(of(runs, name, "off"), "cpu_us_per_request")
        for way in dict.fromkeys(run["way"] for run in runs):
            chosen = of(runs, name, way)
            shares = [run["polls"] / run["packets"] for run in chosen if run.get("packets")]
            print(f"{name:<12} {way:<13} {median(chosen, 'timer_ns') / 1e3:>8.0f} "
                  f"{statistics.median(shares) if shares else float('nan'):>12.2f} "
                  f"{median(chosen, 'p50_us'):>7.0f} {median(chosen, 'p99_us'):>7.0f} {median(chosen, 'at_most_us'):>8.0f} "
                  f"{median(chosen, 'server_percent'):>8.1f} {median(chosen, 'napi_percent'):>7.1f} "
                  f"{median(chosen, 'apus_percent'):>6.1f} {median(chosen, 'cpu_us_per_request'):>10.2f} "
                  f"{median(chosen, 'cpu_us_per_request') / off:>6.2f}")


if __name__ == "__main__":
    main()
