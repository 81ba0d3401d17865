#!/usr/bin/env python3
"""Latency against CPU time, live: every way of waiting of Apus, OVS-DPDK and testpmd, under eight kinds of traffic.

In each round, all contenders run under one kind of traffic, one right after the other, before the round goes on to the next
kind. Their order shifts by one from round to round. One run is one sample. Everything runs over veth pairs between network
namespaces that the script creates, with one queue each. The generator (`apus bench latency`) spins on one CPU in
SCHED_FIFO 50. The contender's loop runs on the other CPU in the same class. CPU time is that of the contender's whole
process. OVS-DPDK and testpmd are started once, and are stopped (SIGSTOP) while it is not their turn. See
docs/bench-frontier.md.

The script needs root, two CPUs, 512 MiB for huge pages, cargo, and the Debian packages python3, util-linux,
openvswitch-switch-dpdk (OVS-DPDK) and dpdk-dev (testpmd). It builds the programs that it runs, and undoes its changes at the
end, also on Ctrl-C and SIGTERM. It then judges what it has measured so far.

    sudo benches/frontier.py --json frontier.json --page frontier.html          # 5 rounds of 3 s each: 2 to 3 hours
    sudo benches/frontier.py --quick --page frontier.html                       # 1 round of 2 s, goals at p99 only
    sudo benches/frontier.py --only poisson20k onoff adaptive interrupt         # names of traffic and contenders
    benches/frontier.py --from frontier.json --page frontier.html               # measure nothing

Exit status 1 means that a goal that a fixed mode holds is missed, or is held with more CPU time than the bounds allow.
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

import frontier_judge as judge
import frontier_page as page
from throughput import HugePages, Program, inside, milliseconds, run

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
APUS = os.path.join(os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")), "release", "apus")
PRIORITY = 50
LEARNING = "500ms"
TRAFFIC = {
    "poisson2k": "poisson:2kpps",
    "poisson20k": "poisson:20kpps",
    "poisson100k": "poisson:100kpps",
    "onoff": "burst:1000@50ms,rate=100kpps",
    "pareto": "pareto:30kpps,alpha=1.5",
    "ramp": "ramp:1kpps-100kpps@2s",
    "each350us": "constant:350us",
    "slots": "slot:500us,frames=4,jitter=20us",
}
SLEEPS_US = [10, 20, 50, 100, 200]
OVS_SLEEPS_US = [0, 20, 50, 100, 200]
OVS = "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk"
OVS_SCHEMA = "/usr/share/openvswitch/vswitch.ovsschema"
# What each takes in MiB, and huge pages of 2 MiB for both, with room for the last one that may not be gone yet.
TESTPMD_MIB, OVS_MIB, HUGE_PAGES = 128, 256, 256
# A device that polls in copy mode, without the kernel's busy polling: as Apus runs on a veth.
AF_XDP = "net_af_xdp0,iface=dut0,start_queue=0,queue_count=1,force_copy=1,busy_budget=0"


class Lab:
    """A veth pair: tx0 in one namespace, dut0 in another."""

    def __init__(self, role):
        self.name = f"frontier{os.getpid()}{role}"
        self.tx, self.dut = (f"apus-{self.name}-{end}" for end in ("tx", "dut"))

    def __enter__(self):
        run(APUS, "lab", "up", "pair", "--name", self.name)
        return self

    def __exit__(self, *_):
        subprocess.run([APUS, "lab", "down", self.name], capture_output=True)


class Apus:
    """A new instance for each measurement, so that `adaptive` knows nothing from earlier traffic."""

    def __init__(self, bench, name, family, *mode):
        self.bench, self.name, self.family, self.mode = bench, name, family, mode
        self.lab = bench.labs["apus"]

    @contextlib.contextmanager
    def turn(self):
        telemetry = os.path.join(self.bench.scratch, "telemetry")
        command = [APUS, "run", "macswap", "dut0", "--netns", self.lab.dut, "--cpu", self.bench.cpu, "--fifo", PRIORITY,
                   "--name", "frontier", "--telemetry", telemetry, "--mode", *self.mode]
        with Program([str(word) for word in command], "dut0: queue 0", None, self.bench.log("apus")) as program:
            pid = program.process.pid
            known = [] if self.family == "blind" else ["--instance", "frontier", "--telemetry", telemetry]
            yield ["--pid", pid, *known]


class Standing:
    """A program that runs all the time, and is stopped while it is not its turn."""

    def __init__(self, program):
        self.program, self.pid = program, program.process.pid

    def __enter__(self):
        os.kill(self.pid, signal.SIGSTOP)
        return self

    def __exit__(self, *_):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGCONT)

    @contextlib.contextmanager
    def running(self):
        if self.program.process.poll() is not None:
            raise RuntimeError(f"{self.program.process.args} has ended:\n{self.program.said()}")
        os.kill(self.pid, signal.SIGCONT)
        try:
            yield ["--pid", self.pid]
        finally:
            os.kill(self.pid, signal.SIGSTOP)


class Testpmd:
    """DPDK's testpmd, which only polls."""

    name, family = "testpmd", "testpmd"

    def __init__(self, bench, stack):
        self.lab = bench.labs["testpmd"]
        command = [*inside(self.lab.dut), "chrt", "-f", PRIORITY, "stdbuf", "-oL", "dpdk-testpmd", "-l",
                   f"{bench.tester},{bench.cpu}", "--no-pci", "--in-memory", "-m", TESTPMD_MIB, "--file-prefix",
                   f"apus{os.getpid()}", "--vdev", AF_XDP, "--", "--interactive", "--forward-mode=macswap", "--auto-start",
                   "--nb-cores=1", "--burst=64", "--total-num-mbufs=16384"]
        program = Program([str(word) for word in command], "testpmd> ", "quit\n", bench.log("testpmd"))
        self.standing = stack.enter_context(Standing(stack.enter_context(program)))

    def turn(self):
        return self.standing.running()


class Ovs:
    """Open vSwitch with DPDK's datapath and its own database: one bridge, one port, and one flow that sends frames back."""

    def __init__(self, bench, stack):
        self.lab, self.folder = bench.labs["ovs"], os.path.join(bench.scratch, "ovs")
        os.mkdir(self.folder)
        path = lambda name: os.path.join(self.folder, name)
        self.database, self.control = f"unix:{path('db.sock')}", path("vswitchd.ctl")
        environment = os.environ | {"OVS_RUNDIR": self.folder, "OVS_LOGDIR": self.folder}
        run("ovsdb-tool", "create", path("conf.db"), OVS_SCHEMA)
        server = ["ovsdb-server", f"--remote=p{self.database}", f"--unixctl={path('ovsdb.ctl')}", path("conf.db")]
        stack.enter_context(Daemon(server, lambda: os.path.exists(path("db.sock")), environment, bench.log("ovsdb")))
        self.vsctl("--no-wait", "init")
        self.set("dpdk-init=true", f"pmd-cpu-mask={1 << bench.cpu:#x}", f"dpdk-socket-mem={OVS_MIB}",
                 f"dpdk-lcore-mask={1 << bench.tester:#x}", "per-port-memory=true", "n-handler-threads=1",
                 "n-revalidator-threads=1", f'dpdk-extra="--no-pci --in-memory --file-prefix=ovs{os.getpid()}"')
        self.vsctl("--no-wait", "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev", "fail_mode=secure",
                   "--", "add-port", "br0", "dut0", "--", "set", "interface", "dut0", "type=dpdk",
                   f'options:dpdk-devargs="{AF_XDP}"', "options:n_rxq=1")
        switch = [*inside(self.lab.dut), OVS, self.database, f"--unixctl={self.control}"]
        daemon = Daemon(switch, self.is_up, environment, bench.log("ovs"))
        self.standing = Standing(stack.enter_context(daemon))
        self.pmd().place()
        run("ovs-ofctl", "add-flow", f"unix:{path('br0.mgmt')}", "in_port=dut0,actions=in_port", env=environment)
        stack.enter_context(self.standing)

    def vsctl(self, *words):
        run("ovs-vsctl", f"--db={self.database}", "--timeout=20", *words)

    def set(self, *settings):
        self.vsctl("--no-wait", "set", "Open_vSwitch", ".", *(f"other_config:{setting}" for setting in settings))

    def is_up(self):
        """Whether the port is there and its polling thread runs."""
        told = subprocess.run(["ovs-appctl", "-t", self.control, "dpif-netdev/pmd-rxq-show"], capture_output=True, text=True)
        return told.returncode == 0 and "dut0" in told.stdout

    def pmd(self):
        return Pmd(self.standing.pid)

    def contender(self, us):
        return OvsSleeping(self, us)


class Pmd:
    """The polling thread of an OVS process."""

    def __init__(self, pid):
        tasks = f"/proc/{pid}/task"
        name = lambda tid: open(f"{tasks}/{tid}/comm").read().strip()
        self.tids = [tid for tid in os.listdir(tasks) if name(tid).startswith("pmd-")]
        if len(self.tids) != 1:
            raise RuntimeError(f"OVS has {len(self.tids)} polling threads, not one")

    def place(self):
        run("chrt", "-f", "-p", PRIORITY, self.tids[0])


class OvsSleeping:
    """OVS-DPDK with a limit on its sleeps; with 0 it polls."""

    family = "ovs"

    def __init__(self, ovs, us):
        self.ovs, self.us, self.lab = ovs, us, ovs.lab
        self.name = f"ovs {us}us"

    @contextlib.contextmanager
    def turn(self):
        # OVS 3.1 calls it pmd-maxsleep, and from 3.2 on pmd-sleep-max; each ignores the other's name.
        self.ovs.set(f"pmd-maxsleep={self.us}", f"pmd-sleep-max={self.us}")
        with self.ovs.standing.running() as words:
            time.sleep(0.3)  # its main thread reads the setting, and tells the polling thread
            yield words


class Daemon(Program):
    """A program that gives no sign when it is ready."""

    def __init__(self, command, ready, environment, log):
        self.log, self.farewell = log, None
        command = [str(word) for word in command]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, text=True,
                                        env=environment)
        until = time.monotonic() + 30
        while not ready():
            if self.process.poll() is not None or time.monotonic() > until:
                self.process.kill()
                raise RuntimeError(f"{command}: not ready\n{self.said()}")
            time.sleep(0.1)


class Bench:
    def __init__(self, typed, scratch):
        self.typed, self.scratch = typed, scratch
        self.tester, self.cpu = typed.tester, typed.cpu
        self.labs, self.logs = {}, {}

    def log(self, name):
        if name not in self.logs:
            self.logs[name] = open(os.path.join(self.scratch, f"{name}.log"), "w+")
        return self.logs[name]

    def contenders(self, wanted, stack):
        """Starts the programs that run all the time, and returns all wanted contenders by name."""
        for role in sorted({lab_of(name) for name in wanted}):
            self.labs[role] = stack.enter_context(Lab(role))
        standing = {}
        if "testpmd" in wanted or "ovs" in self.labs:
            stack.enter_context(HugePages(HUGE_PAGES))
        if "testpmd" in wanted:
            standing["testpmd"] = Testpmd(self, stack)
        if "ovs" in self.labs:
            ovs = Ovs(self, stack)
            standing |= {of.name: of for of in (ovs.contender(us) for us in OVS_SLEEPS_US)}
        return [standing[name] if name in standing else Apus(self, name, *CONTENDERS[name]) for name in wanted]

    def measure(self, contender, traffic, round_):
        """Makes one run, and returns what `apus bench latency` reports about it."""
        with contender.turn() as words:
            common = [APUS, "bench", "latency", "--port", "tx0", "--netns", contender.lab.tx, "--cpu", self.tester, "--fifo",
                      PRIORITY, "--schedule", TRAFFIC[traffic], "--json", *words]
            self.result(*common, "--duration", LEARNING, "--warm-up", "0s", "--seed", 1000 + round_)
            of = self.result(*common, "--duration", milliseconds(self.typed.seconds), "--seed", 1 + round_)
        used, exclusion = of["tested_cpu"]["value"], of["exclusion"]
        if used is None:
            raise RuntimeError(f"{contender.name}: {of['tested_cpu']['unknown_because']}")
        return {
            "traffic": traffic, "contender": contender.name, "round": round_,
            "all": quantiles(of["all"]), "clean": quantiles(of["clean"]), "n": of["all"]["count"],
            "cpu": 100 * used["cpu_ns"] / used["interval_ns"], "wakeups_per_s": used["wakeups_per_s"],
            "waiting_for_cpu": 100 * used["run_delay_ns"] / used["interval_ns"],
            "intended": exclusion["intended"], "excluded": exclusion["share_excluded"]["value"],
            "worker_gaps": exclusion["tested_gaps"]["value"], "tester_gaps_ns": exclusion["tester_gaps_ns"],
            "lost": exclusion["lost"], "lost_outside_gaps": exclusion["lost_outside_gaps"], "at": time.time(),
        }

    def result(self, *command):
        return json.loads(run(*command))["result"]["latency"]


def quantiles(distribution):
    """The quantiles in us, by name; None if there are too few samples."""
    of = {q["quantile"]: q["latency_ns"] for q in distribution["quantiles"]}
    return {name: None if of[name] is None else of[name] / 1e3 for name in ("p50", "p99", "p99.9")}


def all_contenders():
    """Maps each name to a family and the words for `apus run --mode`; contenders other than Apus have no words."""
    found = {"poll": ("fixed", "poll"), "interrupt": ("fixed", "interrupt"), "interrupt again": ("again", "interrupt"),
             "hybrid300": ("fixed", "hybrid300")}
    found |= {f"backoff {us}us": ("backoff", "backoff", "--sleep-max", f"{us}us") for us in SLEEPS_US}
    for quantile in judge.QUANTILES:
        for us in judge.GOALS_US:
            found[judge.goal_name(quantile, us)] = (f"adaptive {quantile}", "adaptive", "--goal", f"{quantile}={us}us")
    for us in judge.GOALS_US:
        found[judge.goal_name("p99", us, blind=True)] = ("blind", "adaptive", "--goal", f"p99={us}us")
    found |= {f"ovs {us}us": ("ovs",) for us in OVS_SLEEPS_US}
    return found | {"testpmd": ("testpmd",)}


CONTENDERS = all_contenders()


def lab_of(name):
    return next((role for role in ("ovs", "testpmd") if name.startswith(role)), "apus")


def chosen(typed):
    """Returns the wanted traffic and the wanted contenders."""
    traffic, contenders = list(TRAFFIC), list(CONTENDERS)
    if typed.quick:
        contenders = [name for name in contenders if "p99.9" not in name]
    some_traffic = [t for t in traffic if any(word in t for word in typed.only)]
    some_contenders = [c for c in contenders if any(word in c for word in typed.only)]
    for word in typed.only:
        if not any(word in name for name in traffic + contenders):
            sys.exit(f"frontier.py: --only {word}: neither traffic ({', '.join(traffic)}) nor a contender "
                     f"({', '.join(contenders)})")
    left_out = set(typed.without) | ({"blind"} if "ovs" in typed.without else set())
    contenders = [c for c in some_contenders or contenders if not left_out & {lab_of(c), CONTENDERS[c][0]}]
    return some_traffic or traffic, contenders


def measure(bench, traffic, contenders, rounds, runs):
    """Adds each run to `runs` at once, so that no measured run is lost if the script is stopped."""
    for number in range(rounds):
        for place, of in enumerate(traffic):
            turn = (number + place) % len(contenders)
            for contender in contenders[turn:] + contenders[:turn]:
                one = bench.measure(contender, of, number)
                runs.append(one)
                us = lambda value: "-" if value is None else f"{value:.1f}"
                print(f"round {number + 1}/{rounds} {of:12} {contender.name:20} p99 {us(one['clean']['p99']):>8} us  p99.9 "
                      f"{us(one['clean']['p99.9']):>8} us  CPU {one['cpu']:5.1f} %  left out {100 * (one['excluded'] or 0):.1f} %  "
                      f"lost {one['lost']}", file=sys.stderr, flush=True)


def host():
    with open("/proc/cpuinfo") as file:
        model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "unknown")
    kernel, load = os.uname(), os.getloadavg()
    return {"cpu_model": model, "cpus": os.cpu_count(), "kernel": kernel.release, "load_average_before": load,
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}


def table(document):
    """Medians by traffic and contender."""
    lines = []
    number = lambda value: "-" if value is None else f"{value:.1f}"
    for traffic, of in judge.points(document).items():
        floor = document["verdict"]["noise"][traffic]
        times = lambda value: "unknown" if value is None else f"x {value:.2f}"
        noise = f"; `interrupt` twice: p99 {times(floor['p99'])}, CPU {times(floor['cpu'])}" if floor else ""
        lines.append(f"\n{traffic} ({document['traffic'][traffic]}), {len(of[0].runs)} rounds, medians{noise}")
        lines.append(f"  {'contender':20} {'p99 us':>8} {'p99.9 us':>9} {'all p99':>8} {'CPU %':>6} {'woken/s':>8} {'left out':>8} {'lost':>5}")
        for p in of:
            lines.append(f"  {p.name:20} {number(p.latency('p99')):>8} {number(p.latency('p99.9')):>9} "
                         f"{number(p.all_p99()):>8} {number(p.median('cpu')):>6} {number(p.median('wakeups_per_s')):>8} "
                         f"{100 * (p.median('excluded') or 0):>7.1f}% {sum(p.all('lost')):>5}")
        for quantile in judge.QUANTILES:
            front = document["verdict"]["frontiers"][traffic][quantile]["frontier"]
            lines.append(f"  on the frontier at {quantile}: {', '.join(front) or '-'}")
    return "\n".join(lines)


def told(document):
    """Returns the table and the checks, the lost ones first."""
    checks = document["verdict"]["checks"]
    lost = sum(c["outcome"] == "lost" for c in checks)
    print(table(document))
    print(f"\n{lost} of {len(checks)} checks lost")
    noisy = sorted({c["traffic"] for c in checks if c["noisy"]})
    if noisy:
        print(f"noisy: under {', '.join(noisy)} the same mode measured twice differs by more than {judge.NOISY['p99']} x in p99 or "
              f"{judge.NOISY['cpu']} x in CPU time; repeat it on a calm machine, with more rounds")
    for c in checks:
        print(judge.line(c))
    return 1 if lost else 0


def write(document, typed):
    if typed.json:
        with open(typed.json, "w") as file:
            json.dump(judge.plain(document), file, indent=1, allow_nan=False)
    if typed.page:
        with open(typed.page, "w") as file:
            file.write(page.render(document))


def options():
    cpus = sorted(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, help="number of interleaved rounds (default 5)")
    parser.add_argument("--seconds", type=float, help="duration of each measurement in seconds (default 3)")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="run only traffic and contenders whose names contain a WORD")
    parser.add_argument("--quick", action="store_true", help="make 1 round of 2 s, with goals at p99 only")
    parser.add_argument("--without", nargs="+", default=[], choices=["ovs", "testpmd"], help="leave out these contenders")
    parser.add_argument("--cpu", type=int, default=cpus[-1], help="CPU of the contender's loop (default %(default)s)")
    parser.add_argument("--tester", type=int, default=cpus[0], help="CPU of the generator (default %(default)s)")
    parser.add_argument("--json", metavar="FILE", help="write all results and verdicts to FILE")
    parser.add_argument("--page", metavar="FILE", help="write a page with plots to FILE")
    parser.add_argument("--from", dest="source", metavar="FILE", help="measure nothing, and judge the results in a FILE of --json")
    parser.add_argument("--no-build", action="store_true", help="do not build; run the present target/release/apus")
    typed = parser.parse_args()
    typed.rounds = typed.rounds or (1 if typed.quick else 5)
    typed.seconds = typed.seconds or (2 if typed.quick else 3)
    return typed


def lacking(contenders):
    """Returns the missing programs, and how to get them."""
    needed = {"ovs": [OVS, "ovsdb-server", "ovsdb-tool", "ovs-vsctl", "ovs-ofctl", "ovs-appctl"], "testpmd": ["dpdk-testpmd"]}
    package = {"ovs": "openvswitch-switch-dpdk", "testpmd": "dpdk-dev"}
    for role, programs in needed.items():
        absent = [p for p in programs if subprocess.run(["which", p], capture_output=True).returncode != 0]
        if absent and any(lab_of(c) == role for c in contenders):
            sys.exit(f"frontier.py: {', '.join(absent)} missing: apt-get install {package[role]}, or --without {role}")


def main():
    typed = options()
    if typed.source:
        with open(typed.source) as file:
            document = json.load(file)
        document["verdict"] = judge.judge(document)
        write(document, typed)
        return told(document)
    if os.geteuid() != 0:
        sys.exit("frontier.py: needs root, for namespaces, XDP and SCHED_FIFO")
    if typed.cpu == typed.tester:
        sys.exit("frontier.py: --cpu and --tester are the same, and both spin")
    traffic, contenders = chosen(typed)
    lacking(contenders)
    if not typed.no_build:
        subprocess.run(["cargo", "build", "--release", "--quiet", "-p", "cli", "--bin", "apus"], cwd=ROOT, check=True)
    if not os.path.exists(APUS):
        sys.exit(f"frontier.py: {APUS} is missing: leave out --no-build")
    # A plain kill does what Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    runs, interrupted, failed = [], False, None
    document = {"schema": "apus.frontier/1", "host": host(), "rounds": typed.rounds, "seconds": typed.seconds, "runs": runs,
                "traffic": {name: TRAFFIC[name] for name in traffic},
                "contenders": [{"name": name, "family": CONTENDERS[name][0]} for name in contenders]}
    with contextlib.ExitStack() as stack:
        bench = Bench(typed, stack.enter_context(tempfile.TemporaryDirectory(prefix="apus-frontier")))
        try:
            measure(bench, traffic, bench.contenders(contenders, stack), typed.rounds, runs)
        except KeyboardInterrupt:
            interrupted = True
        except (RuntimeError, OSError, ValueError) as error:
            # A contender that ended, say. The runs so far took hours.
            if not runs:
                raise
            failed = str(error)
    document["host"]["load_average_after"] = os.getloadavg()
    document["interrupted"], document["failed"] = interrupted, failed
    document["verdict"] = judge.judge(document)
    write(document, typed)
    status = told(document)
    if failed:
        sys.exit(f"frontier.py: stopped early: {failed}")
    return 130 if interrupted else status


if __name__ == "__main__":
    sys.exit(main())
