"""Sends packets, paced, and waits for the answer to each. Prints a line: answers, sent, p50 and p99 in microseconds.

    load.py udp ADDRESS PORT RATE SECONDS
    load.py frames INTERFACE RATE SECONDS

It sleeps where there is time and spins for the rest: a real-time thread that only spins is stopped by the kernel for 5 % of
each second.
"""
import os
import select
import socket
import struct
import sys
import time


# It wakes this long before a packet is due: more than a sleep is late by on a slow virtual machine.
EARLY = 80_000


def measure(send, receive, fd, rate, seconds):
    """Round trips, from the time at which each packet was to be sent."""
    times, sent, start = [], 0, time.monotonic_ns() + 1_000_000
    count, gap = int(rate * seconds), int(1e9 / rate)
    end = start + count * gap + 5_000_000_000
    while len(times) < count:
        now = time.monotonic_ns()
        while sent < count and now >= start + sent * gap:
            send(struct.pack("<Q", sent).ljust(64, b"."))
            sent += 1
        due = start + sent * gap
        # One reading of the clock: between two, the process may be kept from running for longer than is left.
        left = due - EARLY - time.monotonic_ns()
        if len(times) == sent < count and left > 20_000:
            time.sleep(left / 1e9)
        ready, _, _ = select.select([fd], [], [], 0)
        if ready and (number := receive()) is not None:
            times.append(time.monotonic_ns() - (start + number * gap))
        elif now > end:
            break
    times.sort()
    p = lambda q: times[min(len(times) - 1, int(len(times) * q))] / 1e3 if times else 0
    print(len(times), sent, round(p(0.5), 1), round(p(0.99), 1))


def udp(address, port, rate, seconds):
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.connect((address, int(port)))
    receive = lambda: struct.unpack("<Q", client.recv(2048)[:8])[0]
    measure(client.send, receive, client, float(rate), float(seconds))


def frames(interface, rate, seconds):
    kind = 0x88b5
    client = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(kind))
    client.bind((interface, kind))
    head = b"\x02\x00\x00\x00\x00\x02\x02\x00\x00\x00\x00\x01" + struct.pack(">H", kind)

    def receive():
        data, sender = client.recvfrom(2048)
        ours = sender[2] == socket.PACKET_OUTGOING
        return None if ours or data[:6] != head[6:12] else struct.unpack("<Q", data[14:22])[0]

    measure(lambda data: client.send(head + data), receive, client, float(rate), float(seconds))


if os.environ.get("APUS_LOAD_CPU"):
    os.sched_setaffinity(0, {int(os.environ["APUS_LOAD_CPU"])})
{"udp": udp, "frames": frames}[sys.argv[1]](*sys.argv[2:])
