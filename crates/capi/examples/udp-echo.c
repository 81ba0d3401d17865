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
#include <unistd.h>

static volatile sig_atomic_t stop;

static void on_signal(int number) {
    (void)number;
    stop = 1;
}

/* Answers all datagrams that there are, and returns their number. */
static unsigned answer_all(int socket) {
    char data[2048];
    struct sockaddr_in from;
    unsigned received = 0;
    for (;;) {
        socklen_t size = sizeof from;
        ssize_t length = recvfrom(socket, data, sizeof data, 0, (struct sockaddr *)&from, &size);
        if (length < 0) return received;
        sendto(socket, data, (size_t)length, 0, (struct sockaddr *)&from, size);
        received++;
    }
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
    if (bind(server, (struct sockaddr *)&address, sizeof address)) fail("cannot bind", argv[1]);

    apus_waiter *waiter = NULL;
    if (argc > 3) {
        apus_config config = {0};
        config.size = sizeof config;
        config.goal = argv[3];
        config.name = argc > 4 ? argv[4] : NULL;
        if (apus_waiter_new(&config, &waiter) < 0) fail("cannot make a waiter", apus_error());
        if (apus_watch(waiter, server) < 0) fail("cannot watch the socket", apus_error());
    }
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    unsigned long long answered = 0;
    while (!stop) {
        unsigned received = answer_all(server);
        answered += received;
        if (waiter && apus_wait(waiter, received, NULL) < 0) fail("cannot wait", apus_error());
    }
    printf("%llu datagrams answered\n", answered);
    if (waiter) apus_waiter_free(waiter);
    return 0;
}
