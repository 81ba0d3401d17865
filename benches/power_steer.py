#!/usr/bin/env python3
"""How fast does `apus power steer` tell an idle polling process from a loaded one? As root.

    benches/power_steer.py [--apus target/debug/apus] [--seconds 120] [--half 2] [--rate 10000] [-o power_steer.json]

testpmd polls net_af_xdp on one end of a veth pair, on CPU 1, and knows nothing of Apus. From the other end, packets come for
--half seconds, and then none for as long, again and again. `apus power steer --watch` sees the packets of the interface, and
requests frequencies for CPU 1 in a folder that stands for a machine with P-states, because this one may have none.

Checked: in 99 % of the switches, idle and load are told apart within 100 ms; under load, no lower frequency is ever
requested. The times are those at which the command's lines arrive. Needs the Debian packages dpdk (testpmd), iproute2.
"""
import argparse
import json
import math
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

GENERATOR, DUT = f"apuspg{os.getpid()}", f"apuspd{os.getpid()}"
FREQUENCIES = (3000000, 2600000, 2200000, 1800000, 1200000, 800000)
WITHIN = 0.100
SHARE = 0.99


def sh(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def up():
    for name in (GENERATOR, DUT):
        sh("ip", "netns", "add", name)
        # Without IPv6, nothing but the load comes.
        sh("ip", "netns", "exec", name, "sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1")
    sh("ip", "link", "add", "pg0", "netns", GENERATOR, "type", "veth", "peer", "name", "pd0", "netns", DUT)
    for name, port in ((GENERATOR, "pg0"), (DUT, "pd0")):
        sh("ip", "-n", name, "link", "set", port, "arp", "off", "up")


def down():
    for name in (GENERATOR, DUT):
        subprocess.run(["ip", "netns", "del", name], check=False)


def machine(folder):
    """A folder with CPU 1's frequency policy, as acpi-cpufreq shows it."""
    policy = folder / "sys/devices/system/cpu/cpufreq/policy1"
    policy.mkdir(parents=True)
    files = {
        "related_cpus": "1", "scaling_driver": "acpi-cpufreq", "scaling_governor": "performance",
        "scaling_available_frequencies": " ".join(map(str, FREQUENCIES)), "scaling_setspeed": "<unsupported>",
        "scaling_available_governors": "performance powersave userspace", "scaling_min_freq": str(FREQUENCIES[-1]),
        "scaling_max_freq": str(FREQUENCIES[0]), "cpuinfo_min_freq": str(FREQUENCIES[-1]),
        "cpuinfo_max_freq": str(FREQUENCIES[0]), "scaling_cur_freq": str(FREQUENCIES[0]),
    }
    for name, text in files.items():
        (policy / name).write_text(text + "\n")
    boot = folder / "proc/sys/kernel/random"
    boot.mkdir(parents=True)
    (boot / "boot_id").write_text("boot-1\n")
    (folder / "sys/devices/system/cpu/online").write_text("0-1\n")
    return policy


def testpmd():
    command = ["ip", "netns", "exec", DUT, "dpdk-testpmd", "-l", "0,1", "--no-pci", "--no-huge", "-m", "256",
               "--file-prefix", DUT, "--vdev", "net_af_xdp0,iface=pd0,start_queue=0,queue_count=1,force_copy=1,busy_budget=0",
               "--", "--interactive", "--forward-mode=macswap", "--auto-start", "--nb-cores=1", "--total-num-mbufs=16384"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said = ""
    while "testpmd>" not in said:
        char = child.stdout.read(1)
        if not char:
            raise SystemExit(f"testpmd ended:\n{said}")
        said += char
    return child


def send(rate, half, seconds):
    """Packets each millisecond for `half` seconds, and then none, for `seconds`. Prints when each phase begins."""
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    packets.bind(("pg0", 0))
    frame = bytes.fromhex("020000000001020000000002") + b"\x88\xb5" + bytes(46)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        begin, sent = time.monotonic(), 0
        print(begin, "load", flush=True)
        last = begin
        while (now := time.monotonic()) < begin + half:
            if now - last > 0.02:
                # Something else had the CPU: the load has truly stopped meanwhile.
                print(last, now, "stall", flush=True)
            last = now
            for _ in range(int((now - begin) * rate) - sent):
                packets.send(frame)
                sent += 1
            time.sleep(0.001)
        print(time.monotonic(), "idle", flush=True)
        time.sleep(half)


def quantile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]


def main():
    # So that a plain kill, too, ends what the script started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--apus", default="target/debug/apus")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--half", type=float, default=2)
    parser.add_argument("--rate", type=int, default=10_000)
    parser.add_argument("-o", "--output")
    parser.add_argument("--send", action="store_true", help=argparse.SUPPRESS)
    typed = parser.parse_args()
    if typed.send:
        send(typed.rate, typed.half, typed.seconds)
        return 0
    folder = tempfile.TemporaryDirectory()
    program = steering = None
    lines, switches, stalls = [], [], []
    try:
        up()
        policy = machine(pathlib.Path(folder.name))
        program = testpmd()
        command = ["ip", "netns", "exec", DUT, "taskset", "-c", "0", typed.apus, "power", "steer", "--cpus", "1", "--watch", "pd0",
                   "--root", folder.name]
        steering = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        reader = threading.Thread(target=lambda: lines.extend((time.monotonic(), line) for line in steering.stdout))
        reader.start()
        time.sleep(1)
        sender = ["ip", "netns", "exec", GENERATOR, "taskset", "-c", "0", sys.executable, __file__, "--send",
                  "--rate", str(typed.rate), "--half", str(typed.half), "--seconds", str(typed.seconds)]
        for line in sh(*sender).splitlines():
            *times, phase = line.split()
            (stalls if phase == "stall" else switches).append((*map(float, times), phase))
        said = program.communicate("quit\n")[0]
        forwarded = int(re.search(r"RX-packets:\s*(\d+)", said)[1])
        steering.send_signal(2)
        status = steering.wait()
        reader.join()
        governor = (policy / "scaling_governor").read_text().strip()
    finally:
        for child in (steering, program):
            if child and child.poll() is None:
                child.terminate()
                child.wait()
        down()
        folder.cleanup()
    return judge(typed, lines, switches, status, governor, forwarded, stalls)


def judge(typed, lines, switches, status, governor, forwarded, stalls):
    # Packets that were sent before the switch to idle arrive within the millisecond; the phases are told in order.
    told = [(at, match[1]) for at, line in lines if (match := re.search(r"CPU 1: (load|idle|unsure)", line))]
    took = []
    for number, (at, phase) in enumerate(switches):
        until = switches[number + 1][0] if number + 1 < len(switches) else at + typed.half
        first = next((when for when, what in told if at <= when < until and what == phase), None)
        took.append(None if first is None else first - at)
    good = sum(1 for span in took if span is not None and span <= WITHIN)
    requests = [(at, float(match[1]) * {"GHz": 1e9, "MHz": 1e6}[match[2]]) for at, line in lines
                if (match := re.search(r"CPU 1: ([0-9.]+)(GHz|MHz)", line))]
    slower, lower_lines = 0, []
    for number, (at, phase) in enumerate(switches):
        until = switches[number + 1][0] if number + 1 < len(switches) else at + typed.half
        if phase == "load":
            within = [(when, hertz) for when, hertz in requests if at + WITHIN <= when < until and hertz < FREQUENCIES[0] * 1e3]
            slower += len(within)
            lower_lines += [line.strip() for when, line in lines if when in {when for when, _ in within}]
    falls = sum(1 for _, hertz in requests if hertz < FREQUENCIES[0] * 1e3)
    spans = [span * 1e3 for span in took if span is not None]
    result = {"switches": len(switches), "within_100_ms": good, "share": good / len(switches),
              "median_ms": quantile(spans, 0.5), "p99_ms": quantile(spans, 0.99), "max_ms": max(spans),
              "not_told": len(took) - len(spans), "lower_under_load": slower, "lower_when_idle": falls - slower,
              "requests": len(requests), "testpmd_received": forwarded,
              "sender_stalls": len(stalls), "longest_stall_ms": 1e3 * max((to - since for since, to, _ in stalls), default=0), "status": status, "governor_after": governor}
    print(json.dumps(result, indent=1))
    print("\n".join(lower_lines[:20]))
    if typed.output:
        pathlib.Path(typed.output).write_text(json.dumps({**result, "took_s": took, "lines": lines}, indent=1))
    held = result["share"] >= SHARE and slower == 0 and forwarded > 0 and result["lower_when_idle"] > 0 and governor == "performance"
    print(f"{good} of {len(switches)} switches told within {WITHIN * 1e3:.0f} ms ({SHARE:.0%} promised), "
          f"{slower} lower requests under load (0 promised), {falls - slower} when idle: {'holds' if held else 'missed'}")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
