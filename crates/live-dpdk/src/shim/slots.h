/* The slots of one worker's pool as DPDK's packet buffers. Used by shim.c and slots.c only. */
#ifndef APUS_DPDK_SLOTS_H
#define APUS_DPDK_SLOTS_H

#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_spinlock.h>

/* Slots are aligned to their size. With every mbuf at the same place in its slot, all headers would share a few sets of
 * the level 1 cache and evict each other. So the mbuf of a slot starts 0 to COLOURS - 1 cache lines later. With 24, the rest
 * of 4096 bytes still holds the 2176 bytes of RTE_MBUF_DEFAULT_BUF_SIZE, which drivers expect. */
#define APUS_COLOURS 24
/* Bytes before an mbuf, with the mempool's header at their end. Drivers write to mbufs with aligned vector instructions,
 * so each mbuf is aligned to a cache line, as struct rte_mbuf requires. */
#define APUS_HEADER RTE_ALIGN_CEIL(sizeof(struct rte_mempool_objhdr), RTE_CACHE_LINE_SIZE)

struct apus_slots {
	struct rte_mempool *pool;
	uint8_t *base;
	size_t len;
	uint32_t shift; /* log2 of a slot's size */
	uint32_t count; /* entries of `stack` */
	uint32_t size;  /* number of slots */
	rte_iova_t iova;       /* address of `base` for DMA through an IOMMU */
	rte_iova_t *addresses; /* physical address of each slot, for DMA without an IOMMU; otherwise NULL */
	rte_spinlock_t lock;
	void *stack[];
};

static inline struct rte_mbuf *apus_mbuf_of(const struct apus_slots *slots, uint64_t at)
{
	uint64_t number = at >> slots->shift;
	/* number % 32 * COLOURS / 32 cache lines: a remainder by COLOURS would need a multiplication of 128 bits. */
	uint64_t colour = number % 32 * (APUS_COLOURS * RTE_CACHE_LINE_SIZE / 32) & ~(uint64_t)RTE_CACHE_LINE_MASK;

	return (struct rte_mbuf *)(slots->base + (number << slots->shift) + colour + APUS_HEADER);
}

/* Writes the headers of a slot, which another device may have overwritten. */
void apus_slots_format(const struct apus_slots *slots, struct rte_mbuf *mbuf);

#endif
