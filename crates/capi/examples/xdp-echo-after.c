/* Returns each frame to its sender, over an AF_XDP socket of libxdp: xdp-echo INTERFACE. libapus waits, for p99=100us. */
#define _DEFAULT_SOURCE
#include <apus.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <xdp/xsk.h>

enum { FRAMES = 4096, SIZE = 2048, BURST = 64 };

static volatile sig_atomic_t stop;
static struct xsk_ring_prod fill, tx;
static struct xsk_ring_cons completion, rx;
static struct xsk_umem *umem;
static struct xsk_socket *xsk;
static char *memory;

static void on_signal(int number) {
    (void)number;
    stop = 1;
}

static void fail(const char *what) {
    fprintf(stderr, "xdp-echo: %s\n", what);
    exit(3);
}

static void refill(uint64_t address) {
    uint32_t at = 0;
    if (xsk_ring_prod__reserve(&fill, 1, &at) != 1) fail("the fill ring is full");
    *xsk_ring_prod__fill_addr(&fill, at) = address;
    xsk_ring_prod__submit(&fill, 1);
}

static void set_up(const char *interface) {
    struct xsk_umem_config frames = {FRAMES, FRAMES, SIZE, 0, 0};
    struct xsk_socket_config config = {.rx_size = FRAMES / 2, .tx_size = FRAMES / 2, .bind_flags = 0};
    size_t size = (size_t)FRAMES * SIZE;
    memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) fail("no memory");
    if (xsk_umem__create(&umem, memory, size, &fill, &completion, &frames)) fail("cannot create the UMEM: run as root");
    if (xsk_socket__create(&xsk, interface, 0, umem, &rx, &tx, &config)) fail("cannot create the socket");
    for (uint64_t i = 0; i < FRAMES / 2; i++) refill(i * SIZE);
}

/* Makes the kernel send all frames of the transmit ring. In copy mode, one call sends at most 32 of them, and then
 * returns EAGAIN (Linux, net/xdp/xsk.c, TX_BATCH_SIZE). */
static void send_all(void) {
    while (xsk_prod_nb_free(&tx, FRAMES / 2) < FRAMES / 2)
        if (sendto(xsk_socket__fd(xsk), NULL, 0, MSG_DONTWAIT, NULL, 0) < 0 && errno != EAGAIN && errno != EBUSY &&
            errno != ENOBUFS)
            return;
}

/* Returns the frames that there are, at most BURST, and their number. */
static unsigned echo(void) {
    uint32_t at = 0, to = 0;
    uint32_t done = xsk_ring_cons__peek(&completion, FRAMES, &at);
    for (uint32_t i = 0; i < done; i++) refill(*xsk_ring_cons__comp_addr(&completion, at + i) / SIZE * SIZE);
    xsk_ring_cons__release(&completion, done);
    uint32_t received = xsk_ring_cons__peek(&rx, BURST, &at);
    if (received == 0) return 0;
    if (xsk_ring_prod__reserve(&tx, received, &to) != received) fail("the transmit ring is full");
    for (uint32_t i = 0; i < received; i++) {
        const struct xdp_desc *frame = xsk_ring_cons__rx_desc(&rx, at + i);
        char *data = xsk_umem__get_data(memory, frame->addr), mac[6];
        memcpy(mac, data, 6);
        memmove(data, data + 6, 6);
        memcpy(data + 6, mac, 6);
        *xsk_ring_prod__tx_desc(&tx, to + i) = *frame;
    }
    xsk_ring_prod__submit(&tx, received);
    xsk_ring_cons__release(&rx, received);
    send_all();
    return received;
}

int main(int argc, char **argv) {
    if (argc < 2) fail("usage: xdp-echo INTERFACE");
    set_up(argv[1]);
    apus_config config = {.size = sizeof config, .goal = "p99=100us", .name = "xdp-echo", .burst = BURST};
    apus_waiter *waiter;
    if (apus_waiter_new(&config, &waiter) < 0 || apus_watch(waiter, xsk_socket__fd(xsk)) < 0) fail(apus_error());
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    unsigned long long echoed = 0;
    while (!stop) {
        unsigned received = echo();
        echoed += received;
        apus_wait(waiter, received, NULL);
    }
    printf("%llu frames returned\n", echoed);
    apus_waiter_free(waiter);
    xsk_socket__delete(xsk);
    xsk_umem__delete(umem);
    return 0;
}
