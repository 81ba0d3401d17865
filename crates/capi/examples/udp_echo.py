#!/usr/bin/env python3
"""A UDP server that answers each datagram, with a non-blocking socket: udp_echo.py ADDRESS PORT [GOAL [NAME]]

Without a goal it spins. With one, such as p99=100us, libapus waits; NAME is what `apus top` shows.
"""
import signal
import socket
import sys

import apus


def answer_all(server):
    """Answers all datagrams that there are, and returns their number."""
    received = 0
    try:
        while True:
            data, sender = server.recvfrom(2048)
            server.sendto(data, sender)
            received += 1
    except BlockingIOError:
        return received


def main():
    if len(sys.argv) < 3:
        sys.exit(f"usage: {sys.argv[0]} ADDRESS PORT [GOAL [NAME]]")
    address, port, goal, name = (sys.argv[1:] + [None, None])[:4]
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((address, int(port)))
    server.setblocking(False)
    waiter = None
    if goal:
        waiter = apus.Waiter(goal=goal, name=name)
        waiter.watch(server)
    running = [True]
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: running.clear())
    answered = 0
    while running:
        received = answer_all(server)
        answered += received
        if waiter:
            waiter.wait(received)
    print(f"{answered} datagrams answered")
    if waiter:
        waiter.close()


main()
