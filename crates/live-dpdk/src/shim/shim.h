/* The functions that src/sys.rs calls. DPDK's inline functions, and structs whose layout differs between DPDK's
 * versions, stay in C. A function that can fail returns a negative errno. */
#ifndef APUS_DPDK_SHIM_H
#define APUS_DPDK_SHIM_H

#include <stddef.h>
#include <stdint.h>

/* Maximum number of packets or slots that one call moves. */
#define APUS_BATCH 64

/* Where a packet's data are: apus_packet.kind. */
enum {
	APUS_OWN = 0,    /* in the pool, and the slot's mbuf header is valid */
	APUS_FRESH = 1,  /* in the pool, but another device may have overwritten the header */
	APUS_FOREIGN = 2, /* not in one slot of the pool: `at` is the address of the mbuf */
	APUS_COPIED = 3, /* result of apus_tx: sent as a copy, so the slot is free */
};

struct apus_packet {
	uint64_t at; /* offset of the data from the pool's start */
	uint32_t len;
	uint32_t kind;
};

struct apus_port_info {
	char driver[64];
	uint8_t mac[6];
	uint8_t is_virtual; /* no DMA: frames are copied by a CPU */
	uint8_t by_physical; /* DMA by physical addresses */
	uint32_t speed_mbps; /* 0: not known */
	uint32_t if_index;   /* index of the kernel interface behind the port; 0: none */
	uint16_t max_rx_queues;
	uint16_t max_tx_queues;
};

struct apus_port_stats {
	uint64_t missed, no_mbuf, rx_errors, tx_errors;
};

struct apus_slots;

int apus_eal_init(int argc, char **argv);
const char *apus_version(void);
int apus_errno(void);
int apus_thread_begin(void);
void apus_thread_end(void);

struct apus_slots *apus_slots_new(void *base, size_t len, uint32_t slot_size, int physical);
void apus_slots_lend(struct apus_slots *slots, const uint64_t *offsets, uint32_t count);
uint32_t apus_slots_reclaim(struct apus_slots *slots, uint64_t *offsets, uint32_t count);
uint32_t apus_slots_idle(const struct apus_slots *slots);
void apus_slots_flush(struct apus_slots *slots);
uint32_t apus_slots_reserve(void);
uint32_t apus_slots_room(const struct apus_slots *slots);
uint32_t apus_slots_buffer(const struct apus_slots *slots);
void apus_slots_delete(struct apus_slots *slots);

int apus_port_open(const char *devargs, uint16_t *port);
int apus_port_info(uint16_t port, struct apus_port_info *info);
int apus_port_configure(uint16_t port, uint16_t queues, uint16_t *rx_descriptors, uint16_t *tx_descriptors);
int apus_port_queue(uint16_t port, uint16_t queue, uint16_t rx_descriptors, uint16_t tx_descriptors,
		    struct apus_slots *slots);
int apus_port_map(uint16_t port, struct apus_slots *slots);
int apus_port_start(uint16_t port);
void apus_port_close(uint16_t port, struct apus_slots *const *unmapped, size_t count);
int apus_port_link(uint16_t port);
int apus_port_removed(uint16_t port);
int apus_port_stats(uint16_t port, struct apus_port_stats *stats);

/* Prepares the receive interrupts of a port of net_e1000_em, for shim.c. Fails if the device would not raise any. */
int apus_e1000_begin(uint16_t port);

int apus_queue_wakes(uint16_t port, uint16_t queue, int epoll);
int apus_queue_arm(uint16_t port, uint16_t queue, int epoll);
void apus_queue_disarm(uint16_t port, uint16_t queue, int epoll);
int apus_queue_backlog(uint16_t port, uint16_t queue);

struct rte_mbuf;

uint32_t apus_rx(uint16_t port, uint16_t queue, const struct apus_slots *slots, struct rte_mbuf **mbufs, uint32_t room,
		 uint32_t *idle);
uint32_t apus_tx_packets(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint32_t count);
uint32_t apus_describe(const struct apus_slots *slots, struct rte_mbuf *const *mbufs, uint32_t count,
		       struct apus_packet *out);
uint32_t apus_tx(uint16_t port, uint16_t queue, struct apus_slots *slots, struct apus_packet *packets, uint16_t count);
void apus_foreign_take(uint64_t at, void *data, uint32_t len);

#endif
