/* Ports: opening, queues, bursts. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

#include <rte_bus.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_interrupts.h>
#include <rte_lcore.h>
#include <rte_memory.h>
#include <rte_version.h>

#include "shim.h"
#include "slots.h"

int apus_eal_init(int argc, char **argv)
{
	return rte_eal_init(argc, argv) < 0 ? -rte_errno : 0;
}

const char *apus_version(void)
{
	return rte_version();
}

/* Error number of this thread's last failed call, for functions that do not return it. */
int apus_errno(void)
{
	return rte_errno;
}

/* Registers the calling thread as an lcore, which gives it a cache of the mempool. */
int apus_thread_begin(void)
{
	if (rte_lcore_id() != LCORE_ID_ANY)
		return 0;
	return rte_thread_register() < 0 ? -rte_errno : 1;
}

void apus_thread_end(void)
{
	rte_thread_unregister();
}

/* The first port of the device with this name. (The ports of a net_ring have other names than the device.) */
static int find(const char *name, uint16_t *port)
{
	struct rte_eth_dev_info known;

	RTE_ETH_FOREACH_DEV(*port)
		if (rte_eth_dev_info_get(*port, &known) == 0 && strcmp(rte_dev_name(known.device), name) == 0)
			return 0;
	return -ENODEV;
}

int apus_port_open(const char *devargs, uint16_t *port)
{
	char name[RTE_ETH_NAME_MAX_LEN];
	size_t len = strcspn(devargs, ",");
	int result;

	if (len == 0 || len >= sizeof(name))
		return -EINVAL;
	memcpy(name, devargs, len);
	name[len] = 0;
	if (find(name, port) == 0)
		return -EEXIST;
	result = rte_dev_probe(devargs);
	if (result < 0)
		return result;
	return find(name, port);
}

static const char *bus_name(const struct rte_device *device)
{
	return rte_bus_name(rte_dev_bus(device));
}

int apus_port_info(uint16_t port, struct apus_port_info *info)
{
	struct rte_eth_dev_info known;
	struct rte_eth_link link = {0};
	struct rte_ether_addr mac;
	int result = rte_eth_dev_info_get(port, &known);

	if (result < 0)
		return result;
	memset(info, 0, sizeof(*info));
	snprintf(info->driver, sizeof(info->driver), "%s", known.driver_name);
	if (rte_eth_macaddr_get(port, &mac) == 0)
		memcpy(info->mac, mac.addr_bytes, sizeof(info->mac));
	info->is_virtual = strcmp(bus_name(known.device), "vdev") == 0;
	info->by_physical = !info->is_virtual && rte_eal_iova_mode() == RTE_IOVA_PA;
	/* The speed of a virtual device is only a constant in its source, so it is not reported. */
	if (!info->is_virtual && rte_eth_link_get_nowait(port, &link) == 0 && link.link_speed != RTE_ETH_SPEED_NUM_UNKNOWN)
		info->speed_mbps = link.link_speed;
	info->if_index = known.if_index;
	info->max_rx_queues = known.max_rx_queues;
	info->max_tx_queues = known.max_tx_queues;
	return 0;
}

int apus_port_configure(uint16_t port, uint16_t queues, uint16_t *rx_descriptors, uint16_t *tx_descriptors)
{
	struct rte_eth_dev_info known;
	struct rte_eth_conf config = {0};
	int result = rte_eth_dev_info_get(port, &known);

	if (result < 0)
		return result;
	if (queues > 1 && known.flow_type_rss_offloads != 0) {
		config.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
		config.rx_adv_conf.rss_conf.rss_hf =
			known.flow_type_rss_offloads & (RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP | RTE_ETH_RSS_TCP);
	}
	/* All frames of a queue come from its worker's pool, and no mbuf is shared. */
	config.txmode.offloads = known.tx_offload_capa & RTE_ETH_TX_OFFLOAD_MBUF_FAST_FREE;
	config.intr_conf.rxq = 1;
	result = rte_eth_dev_configure(port, queues, queues, &config);
	if (result < 0) {
		/* A driver without receive interrupts may reject this. apus_queue_wakes then reports it. */
		config.intr_conf.rxq = 0;
		result = rte_eth_dev_configure(port, queues, queues, &config);
	}
	if (result < 0)
		return result;
	return rte_eth_dev_adjust_nb_rx_tx_desc(port, rx_descriptors, tx_descriptors);
}

int apus_port_queue(uint16_t port, uint16_t queue, uint16_t rx_descriptors, uint16_t tx_descriptors,
		    struct apus_slots *slots)
{
	int socket = rte_eth_dev_socket_id(port);
	int result = rte_eth_rx_queue_setup(port, queue, rx_descriptors, socket, NULL, slots->pool);

	return result < 0 ? result : rte_eth_tx_queue_setup(port, queue, tx_descriptors, socket, NULL);
}

/* Gives a device access to the pool by DMA. Returns 1 if DPDK did not know the pool's memory before, otherwise 0. */
int apus_port_map(uint16_t port, struct apus_slots *slots)
{
	struct rte_eth_dev_info known;
	int result = rte_eth_dev_info_get(port, &known);
	int is_new = 1;

	if (result < 0)
		return result;
	if (rte_eal_iova_mode() == RTE_IOVA_PA)
		return 0; /* addresses come with each buffer */
	if (rte_extmem_register(slots->base, slots->len, NULL, 0, 4096) < 0) {
		if (rte_errno != EEXIST)
			return -rte_errno;
		is_new = 0;
	}
	rte_errno = 0;
	if (rte_dev_dma_map(known.device, slots->base, slots->iova, slots->len) == 0)
		return is_new;
	/* A bus without an IOMMU reports that it does not support this. A bus with an IOMMU may fail without a
	 * reason. */
	if (rte_errno == EEXIST || rte_errno == ENOTSUP)
		return is_new;
	result = rte_errno != 0 ? -rte_errno : -EIO;
	if (is_new)
		rte_extmem_unregister(slots->base, slots->len);
	return result;
}

int apus_port_start(uint16_t port)
{
	struct rte_eth_dev_info known;
	int result = rte_eth_dev_start(port);

	if (result == 0)
		result = rte_eth_dev_info_get(port, &known);
	/* The flags of a kernel interface belong to its administrator; DPDK would leave it promiscuous after the
	 * end. */
	if (result < 0 || known.if_index != 0)
		return result;
	/* A forwarder accepts frames to any address. A driver without an address filter does not need this mode. */
	result = rte_eth_promiscuous_enable(port);
	return result < 0 && result != -ENOTSUP ? result : 0;
}

/* Closes the port, and removes its device. `unmapped` are the pools that no other port uses: the IOMMU would keep their
 * pages, and DPDK would map their addresses again when it opens the next device, even if the memory is gone. */
void apus_port_close(uint16_t port, struct apus_slots *const *unmapped, size_t count)
{
	struct rte_eth_dev_info known;
	struct rte_device *device = rte_eth_dev_info_get(port, &known) == 0 ? known.device : NULL;

	rte_eth_dev_stop(port);
	rte_eth_dev_close(port);
	for (size_t i = 0; i < count && rte_eal_iova_mode() != RTE_IOVA_PA; i++) {
		if (device != NULL)
			rte_dev_dma_unmap(device, unmapped[i]->base, unmapped[i]->iova, unmapped[i]->len);
		rte_extmem_unregister(unmapped[i]->base, unmapped[i]->len);
	}
	if (device != NULL)
		rte_dev_remove(device);
}

int apus_port_link(uint16_t port)
{
	struct rte_eth_link link = {0};
	int result = rte_eth_link_get_nowait(port, &link);

	return result < 0 ? result : link.link_status == RTE_ETH_LINK_UP;
}

int apus_port_removed(uint16_t port)
{
	return rte_eth_dev_is_removed(port);
}

int apus_port_stats(uint16_t port, struct apus_port_stats *stats)
{
	struct rte_eth_stats known;
	int result = rte_eth_stats_get(port, &known);

	if (result < 0)
		return result;
	stats->missed = known.imissed;
	stats->no_mbuf = known.rx_nombuf;
	stats->rx_errors = known.ierrors;
	stats->tx_errors = known.oerrors;
	return 0;
}

/* Some drivers provide an interrupt that need not be enabled: with net_tap, it is the device's file descriptor, which
 * is readable while frames wait. */
static int enable(uint16_t port, uint16_t queue)
{
	int result = rte_eth_dev_rx_intr_enable(port, queue);

	return result == -ENOTSUP ? 0 : result;
}

/* Adds the queue's receive interrupt to `epoll`, and returns its descriptor. Fails if the driver has none.
 *
 * A worker waits for the descriptor itself, which stays readable until its events are read. DPDK's epoll events are
 * edge-triggered. With net_tap they would miss frames, because its frames can be read only after a signal that comes
 * later than the edge. `epoll` is used only to read the event descriptors, which differs between the kinds of
 * interrupts. */
int apus_queue_wakes(uint16_t port, uint16_t queue, int epoll)
{
	int result = apus_e1000_begin(port);

	if (result < 0)
		return result;
	result = rte_eth_dev_rx_intr_ctl_q(port, queue, epoll, RTE_INTR_EVENT_ADD, NULL);
	if (result < 0)
		return result;
	result = enable(port, queue);
	if (result < 0) {
		rte_eth_dev_rx_intr_ctl_q(port, queue, epoll, RTE_INTR_EVENT_DEL, NULL);
		return result;
	}
	rte_eth_dev_rx_intr_disable(port, queue);
	return rte_eth_dev_rx_intr_ctl_q_get_fd(port, queue);
}

/* Discards past interrupts, and reads their event descriptors. */
static void drain(int epoll)
{
	struct rte_epoll_event events[4];

	while (rte_epoll_wait(epoll, events, RTE_DIM(events), 0) == (int)RTE_DIM(events))
		;
}

int apus_queue_arm(uint16_t port, uint16_t queue, int epoll)
{
	/* Before enabling: afterwards, this would also discard the interrupt of a frame that has just arrived. */
	drain(epoll);
	return enable(port, queue);
}

void apus_queue_disarm(uint16_t port, uint16_t queue, int epoll)
{
	rte_eth_dev_rx_intr_disable(port, queue);
	drain(epoll);
}

int apus_queue_backlog(uint16_t port, uint16_t queue)
{
	return rte_eth_rx_queue_count(port, queue);
}

/* What live::pool::packets::Header says of an mbuf. */
_Static_assert(sizeof(struct rte_mbuf) == 128 && offsetof(struct rte_mbuf, buf_addr) == 0 &&
	       offsetof(struct rte_mbuf, data_off) == 16 && offsetof(struct rte_mbuf, refcnt) == 18 &&
	       offsetof(struct rte_mbuf, nb_segs) == 20 && offsetof(struct rte_mbuf, data_len) == 40 &&
	       RTE_BYTE_ORDER == RTE_LITTLE_ENDIAN, "Header is the start of struct rte_mbuf");

/* Sets `idle` to the number of free slots that the mempool has outside of its caches. */
uint32_t apus_rx(uint16_t port, uint16_t queue, const struct apus_slots *slots, struct rte_mbuf **mbufs, uint32_t room,
		 uint32_t *idle)
{
	uint32_t count = rte_eth_rx_burst(port, queue, mbufs, room);

	*idle = slots->count;
	return count;
}

/* Sends mbufs as they are. */
uint32_t apus_tx_packets(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint32_t count)
{
	return rte_eth_tx_burst(port, queue, mbufs, count);
}

/* Finds the data of each packet. Returns how many are not in one slot of the pool. */
uint32_t apus_describe(const struct apus_slots *slots, struct rte_mbuf *const *mbufs, uint32_t count,
		       struct apus_packet *out)
{
	const uint64_t base = (uintptr_t)slots->base, len = slots->len;
	uint32_t foreign = 0;

	for (uint32_t i = 0; i < count; i++) {
		struct rte_mbuf *mbuf = mbufs[i];
		uint64_t at = (uintptr_t)mbuf->buf_addr + mbuf->data_off - base;

		if (likely(at < len && mbuf->nb_segs == 1 && RTE_MBUF_DIRECT(mbuf) && rte_mbuf_refcnt_read(mbuf) == 1)) {
			out[i].at = at;
			out[i].len = mbuf->data_len;
			out[i].kind = APUS_OWN;
		} else {
			out[i].at = (uintptr_t)mbuf;
			out[i].len = mbuf->pkt_len;
			out[i].kind = APUS_FOREIGN;
			foreign++;
		}
	}
	return foreign;
}

/* An mbuf for a packet whose slot has no valid mbuf header. NULL if the packet must be copied and no mbuf is free. */
static __rte_noinline struct rte_mbuf *make(struct apus_slots *slots, struct apus_packet *packet)
{
	struct rte_mbuf *mbuf = apus_mbuf_of(slots, packet->at);
	uint8_t *data = slots->base + packet->at;

	if (data >= (uint8_t *)(mbuf + 1)) {
		apus_slots_format(slots, mbuf);
		return mbuf;
	}
	/* The packet's data lie where the slot's mbuf header must be, so copy it. */
	mbuf = rte_pktmbuf_alloc(slots->pool);
	if (mbuf == NULL)
		return NULL;
	memcpy(rte_pktmbuf_mtod(mbuf, void *), data, packet->len);
	packet->kind = APUS_COPIED;
	return mbuf;
}

/* Makes the packet's mbuf ready to be sent. NULL if there is none. */
static inline struct rte_mbuf *prepare(struct apus_slots *slots, struct apus_packet *packet)
{
	struct rte_mbuf *mbuf = apus_mbuf_of(slots, packet->at);

	if (unlikely(packet->kind != APUS_OWN)) {
		mbuf = make(slots, packet);
		if (mbuf == NULL)
			return NULL;
	}
	/* The buffer of each of our mbufs follows it, so its address need not be read. */
	if (likely(packet->kind != APUS_COPIED))
		mbuf->data_off = slots->base + packet->at - (uint8_t *)(mbuf + 1);
	mbuf->data_len = packet->len;
	mbuf->pkt_len = packet->len;
	mbuf->ol_flags = 0;
	return mbuf;
}

uint32_t apus_tx(uint16_t port, uint16_t queue, struct apus_slots *slots, struct apus_packet *packets, uint16_t count)
{
	struct rte_mbuf *mbufs[APUS_BATCH];
	uint16_t ready = 0, sent;

	count = RTE_MIN(count, APUS_BATCH);
	while (ready < count && (mbufs[ready] = prepare(slots, &packets[ready])) != NULL)
		ready++;
	sent = rte_eth_tx_burst(port, queue, mbufs, ready);
	for (uint16_t i = sent; i < ready; i++) {
		if (packets[i].kind == APUS_COPIED)
			rte_pktmbuf_free(mbufs[i]);
	}
	return sent;
}

/* Copies the data of a packet that is not in one slot of the pool, and frees its mbufs. */
void apus_foreign_take(uint64_t at, void *data, uint32_t len)
{
	struct rte_mbuf *mbuf = (struct rte_mbuf *)(uintptr_t)at;
	const void *read = rte_pktmbuf_read(mbuf, 0, len, data);

	if (len > 0 && read != NULL && read != data)
		memcpy(data, read, len);
	rte_pktmbuf_free(mbuf);
}
