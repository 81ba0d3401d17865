/* A forwarder that returns each frame with its MAC addresses swapped, for benches/dpdk_loop.py. SCHEME says how it waits:
 *   POLL    not at all
 *   PAUSE   rte_power_pmd_mgmt's pause: 1 us after 512 empty polls
 *   SCALE   rte_power_pmd_mgmt's scale: the lowest frequency after 512 empty polls, the highest at a packet
 *   L3FWD   as l3fwd-power: 10 free polls, then spins of 1 us; from the 300th on, the receive interrupt, or polling on
 *           if the driver has none
 *   APUS    libapus-dpdk, with the goal in the environment's APUS_GOAL; if APUS_FREQUENCY is set, the lcore's frequency
 *           also follows the load
 * The exit status is 3 if the scheme does not work here. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_interrupts.h>
#include <rte_power_pmd_mgmt.h>

#include <apus_dpdk.h>

#define POLL 0
#define PAUSE 1
#define SCALE 2
#define L3FWD 3
#define APUS 4

enum { DESCRIPTORS = 1024, MBUFS = 16383, CACHE = 250, BURST = 64 };

static volatile sig_atomic_t stop;

static void on_signal(int number)
{
	(void)number;
	stop = 1;
}

static __rte_unused void lacking(const char *what)
{
	fprintf(stderr, "dpdk_loop: %s\n", what);
	exit(3);
}

static void wait_by(uint16_t port)
{
	(void)port;
#if SCHEME == PAUSE
	if (rte_power_ethdev_pmgmt_queue_enable(rte_lcore_id(), port, 0, RTE_POWER_MGMT_TYPE_PAUSE) < 0)
		lacking("pmd_mgmt refuses pause");
#elif SCHEME == SCALE
	if (rte_power_ethdev_pmgmt_queue_enable(rte_lcore_id(), port, 0, RTE_POWER_MGMT_TYPE_SCALE) < 0)
		lacking("pmd_mgmt refuses scale: no frequencies");
#elif SCHEME == APUS
	apus_config config = {.size = sizeof(config), .goal = getenv("APUS_GOAL"), .name = getenv("APUS_NAME"),
			      .telemetry_root = getenv("APUS_NAME") ? getenv("APUS_TELEMETRY") : NULL};

	if (apus_dpdk_queue_enable(rte_lcore_id(), port, 0, &config) < 0)
		lacking(apus_dpdk_error());
	if (getenv("APUS_FREQUENCY") && apus_dpdk_lcore_frequency(rte_lcore_id(), 1) < 0)
		lacking(apus_dpdk_error());
#endif
}

/* l3fwd-power's main_loop of DPDK 22.11: MIN_ZERO_POLL_COUNT, MINIMUM_SLEEP_TIME, SUSPEND_THRESHOLD. */
static void l3fwd_power(uint16_t port, uint16_t received)
{
	static uint32_t zero;
	static int interrupts = -1;
	struct rte_epoll_event event;

	if (interrupts < 0)
		interrupts = rte_eth_dev_rx_intr_ctl_q(port, 0, RTE_EPOLL_PER_THREAD, RTE_INTR_EVENT_ADD, NULL) == 0;
	if (received > 0) {
		zero = 0;
	} else if (++zero > 10 && zero < 300) {
		rte_delay_us(1);
	} else if (zero >= 300 && interrupts) {
		rte_eth_dev_rx_intr_enable(port, 0);
		rte_epoll_wait(RTE_EPOLL_PER_THREAD, &event, 1, 10);
		rte_eth_dev_rx_intr_disable(port, 0);
	}
}

static void open_port(uint16_t port, struct rte_mempool *pool)
{
	struct rte_eth_conf config = {.intr_conf.rxq = 1};
	uint16_t rx = DESCRIPTORS, tx = DESCRIPTORS;
	int socket = rte_eth_dev_socket_id(port);

	if (rte_eth_dev_configure(port, 1, 1, &config) < 0)
		rte_exit(1, "cannot configure the port\n");
	rte_eth_dev_adjust_nb_rx_tx_desc(port, &rx, &tx);
	if (rte_eth_rx_queue_setup(port, 0, rx, socket, NULL, pool) < 0 ||
	    rte_eth_tx_queue_setup(port, 0, tx, socket, NULL) < 0)
		rte_exit(1, "no queues\n");
	wait_by(port);
	if (rte_eth_dev_start(port) < 0)
		rte_exit(1, "cannot start the port\n");
}

static uint16_t forward(uint16_t port, uint64_t *returned)
{
	struct rte_mbuf *frames[BURST];
	uint16_t received = rte_eth_rx_burst(port, 0, frames, BURST), sent;

	if (received == 0)
		return 0;
	for (uint16_t i = 0; i < received; i++) {
		struct rte_ether_hdr *header = rte_pktmbuf_mtod(frames[i], struct rte_ether_hdr *);
		struct rte_ether_addr address = header->src_addr;

		header->src_addr = header->dst_addr;
		header->dst_addr = address;
	}
	sent = rte_eth_tx_burst(port, 0, frames, received);
	for (uint16_t i = sent; i < received; i++)
		rte_pktmbuf_free(frames[i]);
	*returned += sent;
	return received;
}

int main(int argc, char **argv)
{
	struct rte_mempool *pool;
	uint64_t returned = 0;

	if (rte_eal_init(argc, argv) < 0)
		rte_exit(1, "the EAL does not start\n");
	pool = rte_pktmbuf_pool_create("frames", MBUFS, CACHE, 0, RTE_MBUF_DEFAULT_BUF_SIZE, (int)rte_socket_id());
	if (pool == NULL)
		rte_exit(1, "no memory for frames\n");
	if (!rte_eth_dev_is_valid_port(0))
		rte_exit(1, "no port: give --vdev\n");
	open_port(0, pool);
	signal(SIGINT, on_signal);
	signal(SIGTERM, on_signal);
	puts("forwarding");
	fflush(stdout);
	while (!stop) {
		uint16_t received = forward(0, &returned);

		if (SCHEME == L3FWD)
			l3fwd_power(0, received);
	}
#if SCHEME == APUS
	apus_dpdk_counts counts = {.size = sizeof(counts)};

	if (apus_dpdk_lcore_counts(rte_lcore_id(), &counts) == 0)
		printf("polls %" PRIu64 ", pauses %" PRIu64 ", sleeps %" PRIu64 ", blocks %" PRIu64 ", error %d\n",
		       counts.waits[APUS_POLL], counts.waits[APUS_PAUSE], counts.waits[APUS_SLEEP], counts.waits[APUS_BLOCK],
		       counts.error);
#endif
	printf("%" PRIu64 " frames returned\n", returned);
	rte_eth_dev_stop(0);
	rte_eth_dev_close(0);
	rte_eal_cleanup();
	return 0;
}
