/* A UDP server that answers each datagram, with a non-blocking socket: udp-echo ADDRESS PORT [GOAL [NAME]]
 *
 * Without a goal it spins. With one, such as p99=100us, libapus waits; NAME is what `apus top` shows. */
#include <apus.h>

#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t stop;

static void on_signal(int number) {
    (void)number;
    stop = 1;
}

/* When the kernel received a datagram, by CLOCK_REALTIME in nanoseconds (SO_TIMESTAMPNS). */
static uint64_t arrival(struct msghdr *message) {
    struct timespec stamp = {0, 0};
    struct cmsghdr *first = CMSG_FIRSTHDR(message);
    if (first) memcpy(&stamp, CMSG_DATA(first), sizeof stamp);
    return (uint64_t)stamp.tv_sec * 1000000000u + (uint64_t)stamp.tv_nsec;
}

/* Most datagrams that are answered before the next call of libapus, and before a signal is noticed. */
enum { BURST = 64 };

/* Answers at most BURST datagrams, and tells their number and the arrival of the oldest and of the newest. They may be in
 * another order than their stamps, if several CPUs received them. */
static apus_queue answer_some(int socket) {
    char data[2048], control[64];
    struct sockaddr_in from;
    apus_queue seen;
    memset(&seen, 0, sizeof seen);
    seen.stamped = APUS_STAMPED_REALTIME;
    while (seen.received < BURST) {
        struct iovec buffer = {data, sizeof data};
        struct msghdr message;
        memset(&message, 0, sizeof message);
        message.msg_name = &from, message.msg_namelen = sizeof from;
        message.msg_iov = &buffer, message.msg_iovlen = 1;
        message.msg_control = control, message.msg_controllen = sizeof control;
        ssize_t length = recvmsg(socket, &message, 0);
        if (length < 0) break;
        uint64_t at = arrival(&message);
        if (seen.received++ == 0 || at < seen.first_ns) seen.first_ns = at;
        if (at > seen.last_ns) seen.last_ns = at;
        /* If it fails, this answer is lost, as any datagram can be. */
        sendto(socket, data, (size_t)length, 0, (struct sockaddr *)&from, message.msg_namelen);
    }
    return seen;
}

static void fail(const char *what, const char *why) {
    fprintf(stderr, "udp-echo: %s: %s\n", what, why);
    exit(3);
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: %s ADDRESS PORT [GOAL [NAME]]\n", argv[0]);
        return 2;
    }
    struct sockaddr_in address;
    memset(&address, 0, sizeof address);
    address.sin_family = AF_INET;
    address.sin_port = htons((uint16_t)atoi(argv[2]));
    if (inet_pton(AF_INET, argv[1], &address.sin_addr) != 1) fail(argv[1], "not an address");
    int server = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    int on = 1;
    setsockopt(server, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
    if (bind(server, (struct sockaddr *)&address, sizeof address)) fail("cannot bind", argv[1]);

    apus_waiter *waiter = NULL;
    if (argc > 3) {
        apus_config config = {0};
        config.size = sizeof config;
        config.goal = argv[3];
        config.burst = BURST;
        config.name = argc > 4 ? argv[4] : NULL;
        if (apus_waiter_new(&config, &waiter) < 0) fail("cannot make a waiter", apus_error());
        if (apus_watch(waiter, server) < 0) fail("cannot watch the socket", apus_error());
    }
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    unsigned long long answered = 0;
    while (!stop) {
        apus_queue seen = answer_some(server);
        answered += seen.received;
        if (waiter && apus_wait_queues(waiter, &seen, 1, NULL) < 0) fail("cannot wait", apus_error());
    }
    printf("%llu datagrams answered\n", answered);
    if (waiter) apus_waiter_free(waiter);
    return 0;
}
