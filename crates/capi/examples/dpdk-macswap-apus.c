/* Returns each frame to the port that it came from, with its MAC addresses swapped: dpdk-macswap [EAL arguments].
 * libapus-dpdk waits, for p99=60us. */
#include <apus_dpdk.h>

#include <inttypes.h>
#include <rte_eal.h>
#include <rte_ethdev.h>
#include <signal.h>
#include <stdio.h>

enum { DESCRIPTORS = 1024, MBUFS = 8191, CACHE = 250, BURST = 32 };

static volatile sig_atomic_t stop;

static void on_signal(int number) {
    (void)number;
    stop = 1;
}

static void open_port(uint16_t port, struct rte_mempool *pool) {
    struct rte_eth_conf config = {.intr_conf.rxq = 1};
    uint16_t rx = DESCRIPTORS, tx = DESCRIPTORS;
    unsigned socket = (unsigned)rte_eth_dev_socket_id(port);
    if (rte_eth_dev_configure(port, 1, 1, &config) < 0) rte_exit(1, "port %u: cannot configure it\n", port);
    rte_eth_dev_adjust_nb_rx_tx_desc(port, &rx, &tx);
    if (rte_eth_rx_queue_setup(port, 0, rx, socket, NULL, pool) < 0) rte_exit(1, "port %u: no receive queue\n", port);
    if (rte_eth_tx_queue_setup(port, 0, tx, socket, NULL) < 0) rte_exit(1, "port %u: no transmit queue\n", port);
    apus_config waits = {.size = sizeof waits, .goal = "p99=60us", .name = "macswap"};
    if (apus_dpdk_queue_enable(rte_lcore_id(), port, 0, &waits) < 0)
        rte_exit(1, "port %u: %s\n", port, apus_dpdk_error());
    if (rte_eth_dev_start(port) < 0) rte_exit(1, "port %u: cannot start it\n", port);
    rte_eth_promiscuous_enable(port);
}

static uint64_t forward(uint16_t port) {
    struct rte_mbuf *frames[BURST];
    uint16_t received = rte_eth_rx_burst(port, 0, frames, BURST), sent;
    for (uint16_t i = 0; i < received; i++) {
        struct rte_ether_hdr *header = rte_pktmbuf_mtod(frames[i], struct rte_ether_hdr *);
        struct rte_ether_addr address = header->src_addr;
        header->src_addr = header->dst_addr;
        header->dst_addr = address;
    }
    sent = received == 0 ? 0 : rte_eth_tx_burst(port, 0, frames, received);
    for (uint16_t i = sent; i < received; i++) rte_pktmbuf_free(frames[i]);
    return sent;
}

int main(int argc, char **argv) {
    uint64_t returned = 0;
    uint16_t port;
    if (rte_eal_init(argc, argv) < 0) rte_exit(1, "the EAL does not start\n");
    struct rte_mempool *pool = rte_pktmbuf_pool_create("frames", MBUFS, CACHE, 0, RTE_MBUF_DEFAULT_BUF_SIZE, (int)rte_socket_id());
    if (pool == NULL) rte_exit(1, "no memory for frames\n");
    RTE_ETH_FOREACH_DEV(port) open_port(port, pool);
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    while (!stop) {
        RTE_ETH_FOREACH_DEV(port) returned += forward(port);
    }
    RTE_ETH_FOREACH_DEV(port) {
        rte_eth_dev_stop(port);
        rte_eth_dev_close(port);
    }
    printf("%" PRIu64 " frames returned\n", returned);
    rte_eal_cleanup();
    return 0;
}
