#!/usr/bin/env python3
"""A UDP server that answers each datagram, with a non-blocking socket: udp_echo.py ADDRESS PORT [GOAL [NAME]]

Without a goal it spins. With one, such as p99=100us, libapus waits; NAME is what `apus top` shows.
"""
import signal
import socket
import struct
import sys

import apus


# Linux: the kernel stamps each datagram when it receives it. Python's socket module does not name the option.
SO_TIMESTAMPNS = getattr(socket, "SO_TIMESTAMPNS", 35)
STAMP = struct.Struct("@ll")
# Most datagrams that are answered before the next call of libapus, and before signals are noticed.
BURST = 64


def answer_some(server):
    """Answers at most BURST datagrams. Returns their number, and when the oldest and the newest arrived."""
    received, first, last = 0, 0, 0
    while received < BURST:
        try:
            data, ancillary, _, sender = server.recvmsg(2048, 64)
        except BlockingIOError:
            break
        seconds, nanoseconds = STAMP.unpack(ancillary[0][2])
        at = seconds * 1_000_000_000 + nanoseconds
        received, first, last = received + 1, min(first or at, at), max(last, at)
        try:
            server.sendto(data, sender)
        except OSError:
            pass  # This answer is lost: the sender cannot be reached, or the send buffer is full.
    return received, first, last


def main():
    if len(sys.argv) < 3:
        sys.exit(f"usage: {sys.argv[0]} ADDRESS PORT [GOAL [NAME]]")
    address, port, goal, name = (sys.argv[1:] + [None, None])[:4]
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    server.bind((address, int(port)))
    server.setblocking(False)
    waiter = None
    if goal:
        waiter = apus.Waiter(goal=goal, name=name, burst=BURST)
        waiter.watch(server)
    running = [True]
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: running.clear())
    answered = 0
    while running:
        received, first, last = answer_some(server)
        answered += received
        if waiter:
            waiter.wait_stamped(received, first, last)
    print(f"{answered} datagrams answered")
    if waiter:
        waiter.close()


if __name__ == "__main__":
    main()
