/* A mempool over the slots of a worker's pool. The slots that the pool has lent are on the stack below, in the
 * mempool's caches, or in drivers' rings. So frames are received into the pool and sent from it without a copy. */
#include <errno.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#include <rte_errno.h>
#include <rte_eal.h>
#include <rte_lcore.h>
#include <rte_mbuf_pool_ops.h>

#include "shim.h"
#include "slots.h"

#define OPS "apus_slots"
/* Objects in an lcore's cache, which its thread uses without the lock. A refill takes up to CACHE + a burst. */
#define CACHE 256

static int ops_alloc(struct rte_mempool *mp)
{
	mp->pool_data = mp->pool_config;
	return 0;
}

static void ops_free(struct rte_mempool *mp)
{
	(void)mp; /* apus_slots_delete frees it */
}

/* The lock is needed because another worker's thread may free mbufs that it got, for example, through a net_ring. */
static int ops_enqueue(struct rte_mempool *mp, void *const *objects, unsigned int count)
{
	struct apus_slots *slots = mp->pool_data;
	int fits;

	rte_spinlock_lock(&slots->lock);
	fits = count <= slots->size - slots->count;
	if (likely(fits)) {
		memcpy(&slots->stack[slots->count], objects, count * sizeof(*objects));
		slots->count += count;
	}
	rte_spinlock_unlock(&slots->lock);
	return fits ? 0 : -ENOBUFS;
}

static int ops_dequeue(struct rte_mempool *mp, void **objects, unsigned int count)
{
	struct apus_slots *slots = mp->pool_data;
	int enough;

	rte_spinlock_lock(&slots->lock);
	enough = count <= slots->count;
	if (likely(enough)) {
		slots->count -= count;
		memcpy(objects, &slots->stack[slots->count], count * sizeof(*objects));
	}
	rte_spinlock_unlock(&slots->lock);
	return enough ? 0 : -ENOBUFS;
}

static unsigned int ops_count(const struct rte_mempool *mp)
{
	const struct apus_slots *slots = mp->pool_data;

	return slots->count;
}

/* Every slot is an object, but none is in the mempool yet: the pool lends them. DPDK's list of objects stays empty,
 * because its links lie in the objects, where other devices may write while they have the slot. */
static int ops_populate(struct rte_mempool *mp, unsigned int max, void *start, rte_iova_t iova, size_t len,
			rte_mempool_populate_obj_cb_t *callback, void *argument)
{
	struct apus_slots *slots = mp->pool_data;

	(void)iova;
	(void)callback;
	(void)argument;
	if (start != slots->base || len != slots->len || max != slots->size)
		return -EINVAL;
	mp->populated_size += max;
	return max;
}

static const struct rte_mempool_ops ops = {
	.name = OPS,
	.alloc = ops_alloc,
	.free = ops_free,
	.enqueue = ops_enqueue,
	.dequeue = ops_dequeue,
	.get_count = ops_count,
	.populate = ops_populate,
};
RTE_MEMPOOL_REGISTER_OPS(ops);

void apus_slots_format(const struct apus_slots *slots, struct rte_mbuf *mbuf)
{
	struct rte_mempool_objhdr *header = (struct rte_mempool_objhdr *)mbuf - 1;
	size_t at = (uint8_t *)mbuf - slots->base;

	memset(header, 0, sizeof(*header));
	header->mp = slots->pool;
	header->iova = slots->iova + at;
	if (slots->addresses != NULL)
		header->iova = slots->addresses[at >> slots->shift] + (at & (((size_t)1 << slots->shift) - 1));
	RTE_ASSERT((uintptr_t)mbuf % RTE_CACHE_LINE_SIZE == 0);
	rte_pktmbuf_init(slots->pool, NULL, mbuf, 0);
}

/* Looks up the physical address of each slot now, because workers later lack the privilege for it. */
static int look_up(struct apus_slots *slots)
{
	slots->addresses = calloc(slots->size, sizeof(*slots->addresses));
	if (slots->addresses == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < slots->size; i++) {
		volatile uint8_t *slot = slots->base + ((size_t)i << slots->shift);

		(void)*slot; /* a page has a physical address only after its first use */
		slots->addresses[i] = rte_mem_virt2iova((const void *)slot);
		if (slots->addresses[i] == RTE_BAD_IOVA)
			return -EPERM;
	}
	return 0;
}

/* Addresses for DMA through an IOMMU. They are below 4 GiB, because an IOMMU may support only 39 bits, and the pool's
 * own address has 47. DPDK's own memory is higher (EAL's base address), and the range avoids the interrupt addresses at
 * 0xfee00000. */
static rte_iova_t reserve(void *base, size_t len)
{
	static const rte_iova_t first = 0x40000000, end = 0xc0000000, alignment = 0x200000;
	static rte_iova_t used;
	rte_iova_t all = RTE_ALIGN_CEIL((rte_iova_t)len, alignment);
	rte_iova_t at = __atomic_fetch_add(&used, all, __ATOMIC_RELAXED);

	return first + at + all <= end ? first + at : (rte_iova_t)(uintptr_t)base;
}

struct apus_slots *apus_slots_new(void *base, size_t len, uint32_t slot_size, int physical)
{
	static unsigned int number;
	uint32_t size = len / slot_size;
	uint32_t object = slot_size - (APUS_COLOURS - 1) * RTE_CACHE_LINE_SIZE;
	struct rte_pktmbuf_pool_private private = {
		.mbuf_data_room_size = object - APUS_HEADER - sizeof(struct rte_mbuf),
	};
	struct apus_slots *slots;
	char name[RTE_MEMPOOL_NAMESIZE];
	int result;

	slots = calloc(1, sizeof(*slots) + size * sizeof(void *));
	if (slots == NULL) {
		rte_errno = ENOMEM;
		return NULL;
	}
	slots->base = base;
	slots->len = len;
	slots->size = size;
	slots->shift = __builtin_ctz(slot_size);
	rte_spinlock_init(&slots->lock);
	slots->iova = rte_eal_iova_mode() == RTE_IOVA_VA ? reserve(base, len) : (rte_iova_t)(uintptr_t)base;
	result = physical && rte_eal_iova_mode() == RTE_IOVA_PA ? look_up(slots) : 0;
	if (result < 0)
		goto failed;
	snprintf(name, sizeof(name), "apus_%u", __atomic_fetch_add(&number, 1, __ATOMIC_RELAXED));
	slots->pool = rte_mempool_create_empty(name, size, object - APUS_HEADER, CACHE,
					       sizeof(private), rte_socket_id(), RTE_MEMPOOL_F_NO_SPREAD);
	if (slots->pool == NULL) {
		result = -rte_errno;
		goto failed;
	}
	result = rte_mempool_set_ops_byname(slots->pool, OPS, slots);
	if (result < 0)
		goto failed;
	rte_pktmbuf_pool_init(slots->pool, &private);
	result = rte_mempool_populate_iova(slots->pool, base, slots->addresses != NULL ? RTE_BAD_IOVA : slots->iova, len, NULL,
					   NULL);
	if (result == (int)size)
		return slots;
failed:
	rte_errno = result < 0 ? -result : EINVAL;
	rte_mempool_free(slots->pool);
	free(slots->addresses);
	free(slots);
	return NULL;
}

/* Puts up to APUS_BATCH slots into the mempool. */
void apus_slots_lend(struct apus_slots *slots, const uint64_t *offsets, uint32_t count)
{
	void *objects[APUS_BATCH];

	count = RTE_MIN(count, (uint32_t)APUS_BATCH);
	for (uint32_t i = 0; i < count; i++) {
		struct rte_mbuf *mbuf = apus_mbuf_of(slots, offsets[i]);

		apus_slots_format(slots, mbuf);
		objects[i] = mbuf;
	}
	ops_enqueue(slots->pool, objects, count);
}

/* Takes `count` slots out of the mempool, but at most APUS_BATCH. Takes none if the mempool has fewer. */
uint32_t apus_slots_reclaim(struct apus_slots *slots, uint64_t *offsets, uint32_t count)
{
	void *objects[APUS_BATCH];

	count = RTE_MIN(count, (uint32_t)APUS_BATCH);
	if (ops_dequeue(slots->pool, objects, count) < 0)
		return 0;
	for (uint32_t i = 0; i < count; i++)
		offsets[i] = (uint8_t *)objects[i] - slots->base;
	return count;
}

/* Number of objects on the stack and in the caches: lent, but not in a driver's ring. */
uint32_t apus_slots_idle(const struct apus_slots *slots)
{
	return rte_mempool_avail_count(slots->pool);
}

/* Moves the objects in the calling thread's cache back to the stack. */
void apus_slots_flush(struct apus_slots *slots)
{
	struct rte_mempool_cache *cache = rte_mempool_default_cache(slots->pool, rte_lcore_id());

	if (cache != NULL)
		rte_mempool_cache_flush(cache, slots->pool);
}

/* Maximum number of objects that one thread's caches can hold. */
uint32_t apus_slots_reserve(void)
{
	return 2 * CACHE;
}

/* Length of each mbuf's buffer, which follows the mbuf. */
uint32_t apus_slots_buffer(const struct apus_slots *slots)
{
	return rte_pktmbuf_data_room_size(slots->pool);
}

/* Length of the longest frame that a driver can write into one slot, after the headroom. */
uint32_t apus_slots_room(const struct apus_slots *slots)
{
	return apus_slots_buffer(slots) - RTE_PKTMBUF_HEADROOM;
}

void apus_slots_delete(struct apus_slots *slots)
{
	rte_mempool_free(slots->pool);
	free(slots->addresses);
	free(slots);
}
