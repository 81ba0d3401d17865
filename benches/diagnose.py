#!/usr/bin/env python3
"""Does `apus diagnose` find the cause? Two namespaces, a load, one injected cause; apus is not told which. As root.

    benches/diagnose.py [--apus target/debug/apus] [--rounds 10] [--causes one-queue,nothing] [--seed N] [--watch 4s]
                        [--keep DIR] [-o diagnose.json] [--for SECONDS]

Every round makes its own bed (namespaces `apus-dgA` and `apus-dgB`, in one of them the cause), runs a load, and runs
`apus diagnose --netns … --peer-netns … --json` while it lasts. Causes and rounds come in random order, and their strength
varies. A round is right if the first-ranked cause is the injected one; for `nothing`, if apus says that nothing is wrong.
The table prints the rounds that were lost first.

A machine need not be quiet for all of it at once: with `-o FILE --for 200`, rounds begin for 200 s at most, and each result is
written as soon as it is there. The same command again goes on where the file ends; it says how many rounds are left.

How each cause is made, without anything that only this bench could see:

    one-queue      XPS sends all flows into transmit queue 0 of 4, and so into receive queue 0 of the other end
    rx-moderation  NAPI deferral of 0.7 to 1.5 ms at the receiving end (a veth has no interrupt to moderate)
    tx-moderation  the sender's "card" is a namespace in between: its side holds frames, and with them their completion, 0.7 to 1.5 ms
    ring           a tap whose ring has 64 slots; bursts of 150 frames
    offloads       TSO and GSO off at the sending end alone
    slow-app       a receiver that works, or waits, 2 to 4 ms for every 32 KiB it reads
    buffer         a receive buffer of 4 to 8 KiB (TCP), or of 8 to 16 KiB under bursts (UDP)
    fifo           the NAPI thread of the queue shares its CPU with a SCHED_FIFO thread that takes 70 to 85 % of it
    delay          a wire that takes 3 to 10 ms (a process between two taps: this machine's kernel may lack netem)
    loss           a wire that loses 1 to 4 % of the frames, counted nowhere
    rps            receive packet steering to the CPU on which the application does not run
    nothing        one of the beds above with its load, and no cause
"""
import argparse
import ctypes
import fcntl
import heapq
import json
import os
import random
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time

A, B, CARD = f"apus-dga{os.getpid()}", f"apus-dgb{os.getpid()}", f"apus-dgc{os.getpid()}"
IP_A, IP_B = "192.0.2.1", "192.0.2.2"
PORT = 5201
CLONE_NEWNET = 0x40000000
CAUSES = ("one-queue", "rx-moderation", "tx-moderation", "ring", "offloads", "slow-app", "buffer", "fifo", "delay", "loss",
          "rps", "nothing")


# --- The programs of the load, each a process of its own: benches/diagnose.py --role NAME ARGUMENTS

def tcp_sink(cost_ms, buffer_bytes, burn):
    """Reads all connections, one after the other; works or waits `cost_ms` for every 32 KiB."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if buffer_bytes:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
    listener.bind((IP_B, PORT))
    listener.listen()
    taken, _ = listener.accept()
    since = 0
    while got := taken.recv(32 << 10):
        since += len(got)
        while since >= 32 << 10 and cost_ms:
            since -= 32 << 10
            end = time.monotonic() + cost_ms / 1e3
            if not burn:
                time.sleep(cost_ms / 1e3)
            while burn and time.monotonic() < end:
                pass


def tcp_source(bit_s):
    """Sends as fast as it can, or at a rate in pieces of 16 KiB."""
    out = socket.create_connection((IP_B, PORT), timeout=10)
    out.settimeout(None)
    piece, next_at = bytes(16 << 10), time.monotonic()
    while True:
        out.sendall(piece)
        if bit_s:
            next_at += len(piece) * 8 / bit_s
            time.sleep(max(0, next_at - time.monotonic()))


def udp_sink(buffer_bytes):
    sink = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    if buffer_bytes:
        sink.setsockopt(socket.SOL_SOCKET, 33, buffer_bytes)  # SO_RCVBUFFORCE: also above net.core.rmem_max
    sink.bind((IP_B, PORT))
    while True:
        sink.recv(2048)


def udp_source(flows, burst, every_ms, size):
    """`burst` datagrams of each of `flows` sockets every `every_ms`."""
    outs = []
    for _ in range(flows):
        out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        out.connect((IP_B, PORT))
        outs.append(out)
    piece, next_at = bytes(size), time.monotonic()
    while True:
        for _ in range(burst):
            for out in outs:
                try:
                    out.send(piece)
                except (ConnectionRefusedError, OSError):
                    pass
        next_at += every_ms / 1e3
        time.sleep(max(0, next_at - time.monotonic()))


def echo():
    """Answers one request at a time."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((IP_B, PORT))
    listener.listen()
    taken, _ = listener.accept()
    taken.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while got := taken.recv(2048):
        taken.sendall(got)


def ask(pause_us):
    """One request of 64 bytes at a time, with a pause after each answer."""
    out = socket.create_connection((IP_B, PORT), timeout=10)
    out.settimeout(None)
    out.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while True:
        out.sendall(bytes(64))
        out.recv(64)
        time.sleep(pause_us / 1e6)


def hog(share):
    """Takes `share` of its CPU in turns of 10 ms."""
    while True:
        end = time.monotonic() + share / 100
        while time.monotonic() < end:
            pass
        time.sleep((1 - share) / 100)


def enter(namespace):
    with open(f"/run/netns/{namespace}", encoding="ascii") as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"setns {namespace}")


def tap(namespace, name):
    enter(namespace)
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, 0x400454CA, struct.pack("16sH22x", name.encode(), 0x0002 | 0x1000))  # TUNSETIFF: IFF_TAP, IFF_NO_PI
    return fd


def wire(a, b, delay_ms, loss):
    """Joins two taps: every frame arrives `delay_ms` later at the other, or, with probability `loss`, never."""
    os.nice(-20)  # a wire does not wait for a CPU
    fds = (tap(a, "va"), tap(b, "vb"))
    print("ready", flush=True)
    other, waiting, number = dict(zip(fds, fds[::-1])), [], 0
    while True:
        timeout = max(0, waiting[0][0] - time.monotonic()) if waiting else 1
        for fd in select.select(fds, (), (), timeout)[0]:
            for _ in range(64):
                try:
                    frame = os.read(fd, 65536)
                except BlockingIOError:
                    break
                except OSError:  # the interface is down
                    break
                if loss and random.random() < loss:
                    continue
                if delay_ms:
                    number += 1
                    heapq.heappush(waiting, (time.monotonic() + delay_ms / 1e3, number, other[fd], frame))
                else:
                    put(other[fd], frame)
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, fd, frame = heapq.heappop(waiting)
            put(fd, frame)


def put(fd, frame):
    try:
        os.write(fd, frame)
    except OSError:
        pass


# --- Beds

def sh(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def inside(namespace, *words):
    return sh("ip", "netns", "exec", namespace, *words)


def put_file(namespace, path, value):
    inside(namespace, "sh", "-c", f"echo {value} > {path}")


class Round:
    """One bed with its load and its cause."""

    def __init__(self, cause, bed, rng):
        self.cause, self.bed, self.rng, self.children, self.how = cause, bed, rng, [], {}

    def start(self, namespace, cpu, *words, stdout=subprocess.DEVNULL):
        words = ["ip", "netns", "exec", namespace, "taskset", "-c", str(cpu), *map(str, words)] if namespace else [*map(str, words)]
        child = subprocess.Popen(words, stdout=stdout, stderr=subprocess.DEVNULL)
        self.children.append(child)
        return child

    def role(self, namespace, cpu, *words, **more):
        return self.start(namespace, cpu, sys.executable, os.path.abspath(__file__), "--role", *words, **more)

    def __enter__(self):
        names = [A, B] + ([CARD] if self.bed == "card" else [])
        for name in names:
            sh("ip", "netns", "add", name)
            sh("ip", "-n", name, "link", "set", "lo", "up")
        try:
            getattr(self, "bed_" + self.bed)()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for child in self.children:
            child.kill()
            child.wait()
        for name in (A, B, CARD):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def address(self):
        for name, port, ip in ((A, "va", IP_A), (B, "vb", IP_B)):
            sh("ip", "-n", name, "addr", "add", f"{ip}/24", "dev", port)
            sh("ip", "-n", name, "link", "set", port, "up")

    def veth(self, queues=1, napi=False):
        number = ["numtxqueues", str(queues), "numrxqueues", str(queues)]
        sh("ip", "link", "add", "va", "netns", A, *number, "type", "veth", "peer", "name", "vb", "netns", B, *number)
        if napi:
            for name, port in ((A, "va"), (B, "vb")):
                inside(name, "ethtool", "-K", port, "tso", "off", "gro", "on")
        self.address()

    def amount(self, name, low, high):
        """How strong the cause is, if this round has it."""
        self.how[name] = self.rng.uniform(low, high)
        return self.how[name]

    def bed_queues(self):
        self.veth(queues=4, napi=True)
        if self.cause == "one-queue":
            for queue in range(4):
                put_file(A, f"/sys/class/net/va/queues/tx-{queue}/xps_cpus", "3" if queue == 0 else "0")
        self.role(B, 1, "udp_sink", 4 << 20)
        time.sleep(0.3)
        self.role(A, 0, "udp_source", self.rng.choice((8, 12, 16)), 1, self.rng.choice((2, 4)), 200)

    def bed_requests(self):
        self.veth(napi=True)
        if self.cause == "rx-moderation":
            put_file(B, "/sys/class/net/vb/napi_defer_hard_irqs", 1000)
            put_file(B, "/sys/class/net/vb/gro_flush_timeout", int(self.amount("hold_us", 700, 1500)) * 1000)
        self.ping_pong()

    def ping_pong(self):
        self.role(B, 1, "echo")
        time.sleep(0.3)
        self.role(A, 0, "ask", self.rng.choice((0, 100, 400)))

    def bed_card(self):
        sh("ip", "link", "add", "va", "netns", A, "type", "veth", "peer", "name", "ca", "netns", CARD)
        sh("ip", "link", "add", "vb", "netns", B, "type", "veth", "peer", "name", "cb", "netns", CARD)
        sh("ip", "-n", CARD, "link", "add", "name", "bridge0", "type", "bridge")
        for name, port in ((A, "va"), (CARD, "ca"), (CARD, "cb"), (B, "vb")):
            inside(name, "ethtool", "-K", port, "tso", "off", "gro", "on")
        for port in ("ca", "cb"):
            sh("ip", "-n", CARD, "link", "set", port, "master", "bridge0", "up")
        sh("ip", "-n", CARD, "link", "set", "bridge0", "up")
        self.address()
        if self.cause == "tx-moderation":
            put_file(CARD, "/sys/class/net/ca/napi_defer_hard_irqs", 1000)
            put_file(CARD, "/sys/class/net/ca/gro_flush_timeout", int(self.amount("hold_us", 700, 1500)) * 1000)
        self.ping_pong()

    def taps(self, delay_ms=0, loss=0, slots=1000):
        child = self.role(None, 0, "wire", A, B, delay_ms, loss, stdout=subprocess.PIPE)
        child.stdout.readline()
        for name, port in ((A, "va"), (B, "vb")):
            sh("ip", "-n", name, "link", "set", port, "txqueuelen", str(slots))
        self.address()

    def bed_bursts(self):
        self.taps(slots=64 if self.cause == "ring" else 1000)
        self.role(B, 1, "udp_sink", 4 << 20)
        time.sleep(0.3)
        self.role(A, 0, "udp_source", 1, self.rng.randint(120, 200), self.rng.choice((15, 20, 25)), 1000)

    def bed_stream(self):
        self.veth()
        if self.cause == "offloads":
            inside(A, "ethtool", "-K", "va", "tso", "off", "gso", "off")
        self.role(B, 1, "tcp_sink", 0, 0, 0)
        time.sleep(0.3)
        self.role(A, 0, "tcp_source", 0)

    def bed_application(self):
        self.veth()
        slow = self.cause == "slow-app"
        self.role(B, 1, "tcp_sink", self.amount("cost_ms", 2, 4) if slow else 0, 0, self.rng.choice((0, 1)))
        time.sleep(0.3)
        # A rate that a healthy receiver takes easily, and one that costs 2 ms for every 32 KiB does not.
        self.role(A, 0, "tcp_source", 400e6)

    def bed_buffer(self):
        self.veth()
        small = self.cause == "buffer"
        if self.rng.random() < 0.5:
            self.role(B, 1, "tcp_sink", 0, int(self.amount("buffer_bytes", 2048, 4096)) if small else 0, 0)
            time.sleep(0.3)
            self.role(A, 0, "tcp_source", 0)
        else:
            self.role(B, 1, "udp_sink", int(self.amount("buffer_bytes", 4096, 8192)) if small else 1 << 20)
            time.sleep(0.3)
            self.role(A, 0, "udp_source", 1, 60, 10, 1000)

    def bed_thread(self):
        before = set(napi_threads())
        self.veth(napi=True)
        put_file(B, "/sys/class/net/vb/threaded", 1)
        for pid in set(napi_threads()) - before:
            sh("taskset", "-pc", "1", str(pid))
        if self.cause == "fifo":
            self.start(None, 1, "taskset", "-c", "1", "chrt", "-f", "50", sys.executable, os.path.abspath(__file__), "--role",
                       "hog", self.amount("share", 0.70, 0.85))
        self.role(B, 0, "echo")
        time.sleep(0.3)
        self.role(A, 0, "ask", self.rng.choice((100, 400)))

    def bed_far(self):
        delay = self.amount("delay_ms", 3, 10) if self.cause == "delay" else 0
        self.taps(delay_ms=delay)
        self.ping_pong()

    def bed_lossy(self):
        loss = self.amount("loss", 0.01, 0.04) if self.cause == "loss" else 0
        self.taps(loss=loss)
        for name, port in ((A, "va"), (B, "vb")):
            inside(name, "ethtool", "-K", port, "tso", "off", "gso", "off")
        self.role(B, 1, "tcp_sink", 0, 0, 0)
        time.sleep(0.3)
        self.role(A, 0, "tcp_source", self.rng.choice((10e6, 20e6, 40e6)))

    def bed_steered(self):
        self.veth()
        if self.cause == "rps":
            put_file(B, "/sys/class/net/vb/queues/rx-0/rps_cpus", 2)
        self.role(B, 0, "echo")
        time.sleep(0.3)
        self.role(A, 0, "ask", self.rng.choice((0, 100)))


BED_OF = {"one-queue": "queues", "rx-moderation": "requests", "tx-moderation": "card", "ring": "bursts", "offloads": "stream",
          "slow-app": "application", "buffer": "buffer", "fifo": "thread", "delay": "far", "loss": "lossy", "rps": "steered"}
# What the person in front of it sees.
SYMPTOM_OF = {"queues": "slow", "requests": "late", "card": "late", "bursts": "drops", "stream": "slow", "application": "slow",
              "buffer": "slow", "thread": "late", "far": "late", "lossy": "slow", "steered": "late"}


def napi_threads():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/comm", encoding="ascii", errors="replace") as file:
                if file.read().startswith("napi/"):
                    yield int(pid)
        except OSError:
            pass


def one(args, cause, rng, number):
    bed = BED_OF[cause] if cause != "nothing" else rng.choice(sorted(set(BED_OF.values())))
    with Round(cause, bed, rng) as made:
        time.sleep(1)
        begun = time.monotonic()
        if args.keep:
            os.makedirs(args.keep, exist_ok=True)
            stem = os.path.join(args.keep, f"{number:03}-{cause}-{bed}")
        words = [args.apus, "diagnose", "--netns", A, "--peer-netns", B, "--symptom", SYMPTOM_OF[bed], "--watch", args.watch, "--json"]
        if args.keep:
            words += ["--keep", stem]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120)
        took = time.monotonic() - begun
    if done.returncode not in (0, 1):
        raise SystemExit(f"{cause} in {bed}: apus ended with {done.returncode}: {done.stderr}")
    said = json.loads(done.stdout)
    ranked = [(cause["id"], cause["likelihood_percent"]) for cause in said["causes"]]
    first = "nothing" if said["verdict"] == "nothing_found" else ranked[0][0]
    if args.keep and first == cause:
        for end in ("here", "peer"):
            os.remove(f"{stem}.{end}.tar")
    return {"cause": cause, "bed": bed, "how": made.how, "first": first, "ranked": ranked[:4], "took_s": round(took, 1),
            "load_average": os.getloadavg()[0]}


def main():
    # So that a plain kill, too, ends what the script started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--apus", default="target/debug/apus")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--causes", default=",".join(CAUSES))
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--watch", default="4s")
    parser.add_argument("--keep", metavar="DIR", help="keep the recordings of the rounds that were lost")
    parser.add_argument("-o", "--output", metavar="FILE", help="write the results, and go on with those that it has")
    parser.add_argument("--for", dest="seconds", type=float, default=float("inf"), metavar="SECONDS",
                        help="begin no round after this time")
    args = parser.parse_args()
    causes = args.causes.split(",")
    if wrong := set(causes) - set(CAUSES):
        parser.error(f"no such cause: {', '.join(sorted(wrong))}; known: {', '.join(CAUSES)}")
    if os.geteuid() or not all(map(shutil.which, ("ip", "ethtool", "taskset", "chrt"))):
        parser.error("needs root, and ip, ethtool, taskset and chrt")
    begun = time.monotonic()
    run = begin_or_go_on(args, causes, parser)
    plan = planned(run["seed"], causes, args.rounds)
    for number in range(len(run["results"]), len(plan)):
        if time.monotonic() - begun > args.seconds:
            break
        cause = plan[number]
        result = one(args, cause, random.Random(f"{run['seed']}/{number}"), number)
        run["results"].append(result)
        mark = "" if result["first"] == cause else "  <-- LOST"
        print(f"{cause:14} in {result['bed']:12} said {result['first']:14} {result['took_s']:5} s  {result['ranked']}{mark}", file=sys.stderr, flush=True)
        if args.output:
            with open(args.output + ".new", "w", encoding="utf-8") as file:
                json.dump(run, file, indent=1)
            os.replace(args.output + ".new", args.output)
    if run["results"]:
        report(run["seed"], causes, run["results"])
    if left := len(plan) - len(run["results"]):
        print(f"{left} rounds are left" + ("; the same command goes on" if args.output else ""))


def begin_or_go_on(args, causes, parser):
    """The results so far, which have to be of the same rounds."""
    seed = args.seed if args.seed is not None else random.SystemRandom().randrange(10**6)
    if not args.output or not os.path.exists(args.output):
        return {"seed": seed, "causes": causes, "watch": args.watch, "results": []}
    with open(args.output, encoding="utf-8") as file:
        run = json.load(file)
    if (run["causes"], run["watch"]) != (causes, args.watch) or args.seed not in (None, run["seed"]):
        parser.error(f"{args.output} has other rounds ({run['seed']}, {run['causes']}, {run['watch']}); name another file")
    return run


def planned(seed, causes, rounds):
    """Each cause once, in random order, then each once more, so that also the first part of it says something of all."""
    rng, plan = random.Random(seed), []
    for _ in range(rounds):
        plan += rng.sample(causes, len(causes))
    return plan


def report(seed, causes, results):
    lost = [result for result in results if result["first"] != result["cause"]]
    print(f"seed {seed}: {len(results)} rounds, {len(lost)} lost, the longest took {max(result['took_s'] for result in results)} s")
    for result in lost:
        how = ", ".join(f"{name} {value:.3g}" for name, value in result["how"].items()) or "no amount"
        print(f"  lost: {result['cause']} ({how}) in {result['bed']}: said {result['first']}; {result['ranked']}")
    said = sorted({result["first"] for result in results} | set(causes))
    print(f"{'injected':14} {'right':>7}  " + " ".join(f"{name[:8]:>8}" for name in said))
    for cause in causes:
        of = [result["first"] for result in results if result["cause"] == cause]
        print(f"{cause:14} {of.count(cause):3}/{len(of):<3}  " + " ".join(f"{of.count(name) or '':>8}" for name in said))


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[1] == "--role":
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        role, words = globals()[sys.argv[2]], sys.argv[3:]
        numbers = [word if role is wire and at < 2 else float(word) for at, word in enumerate(words)]
        if role in (udp_source, udp_sink, tcp_sink):
            numbers = [number if role is tcp_sink and at == 0 else int(number) for at, number in enumerate(numbers)]
        role(*numbers)
    else:
        main()
