/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * What the files of libapus-dpdk share: the queues of an lcore, and their state.
 *
 *            a queue has packets ◄───────────────────────────┐
 *              │ restarts the round                           │
 *   ROUND ─────┴─ all queues empty ──► decide ──► pause, sleep, monitor ──► ROUND
 *                                        └─ block ──► ARMED ── all empty again ──► sleep until an interrupt ──► ROUND
 *                                                       └─ packets, other work ──► ROUND (no wait)
 */
#ifndef APUS_DPDK_LCORE_H
#define APUS_DPDK_LCORE_H

#include <stdbool.h>

#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_spinlock.h>

#pragma GCC visibility push(default)
#include "apus_dpdk.h"
#pragma GCC visibility pop

struct lcore;

/* A receive queue. It is never freed: another thread may be in its callback while it is disabled. */
struct queue {
	struct queue *next;
	struct lcore *lcore; /* NULL: disabled */
	const struct rte_eth_rxtx_callback *callback;
	uint16_t port, queue;
	bool closed; /* its port is being closed, and has no interrupts any more */
	uint32_t round;    /* the last round in which it was empty */
	uint32_t received; /* packets that libapus was not told of yet */
	uint64_t polled;   /* time stamp counter at the last poll; 0: none yet */
	uint64_t before;   /* at the poll before the first of `received` */
	uint64_t picked_up; /* at the poll that returned the first of them */
};

struct __rte_cache_aligned lcore {
	rte_spinlock_t lock; /* for all below. The lcore never waits for it: it is held while queues are added or removed */
	unsigned int id;
	uint32_t count;
	struct queue *queues[APUS_MAX_QUEUES];
	apus_waiter *waiter; /* NULL: no queue */
	apus_config config;  /* as the first queue's was given */
	bool interrupts;     /* may be used */
	bool can_pause;      /* the CPU has rte_power_pause */
	uint64_t longest_ns; /* of a block */

	uint32_t round, empty; /* the round, and the number of queues that were empty in it */
	uint64_t pending;      /* time stamp counter when the first packets came that libapus was not told of; 0: none */
	uint64_t gather;       /* ticks for which packets are gathered before libapus is told, while polls return some */
	bool full;             /* the last poll with packets returned as many as the application takes */
	bool armed;
	bool open;             /* libapus still waits for the end of a block that was taken back by another thread */
	uint64_t until_ns;     /* the end of the armed block; APUS_NEVER */
	int epoll;             /* what reads the interrupts' events; -1: none */
	uint32_t spurious;     /* blocks in a row that ended early and for no packet */
	bool woken;            /* the last block ended early, and no packet has come since */

	apus_dpdk_work *work;
	void *work_arg;
	apus_dpdk_counts counts;

	bool scaled; /* its frequency follows its load */
	uint32_t khz[64];
	uint32_t frequencies, at; /* their number, and the index of the one that is set */
	uint64_t busy, busy_since, judged; /* ticks; time stamp counters, 0: idle */
	bool hurry;
};

extern struct lcore lcores[RTE_MAX_LCORE];

/* What the callback does, with the lock held. */
void lcore_polled(struct lcore *lcore, struct queue *queue, uint32_t received, bool full);
/* Forgets what ends a block: the queues change. From any thread. */
void lcore_forget_wakes(struct lcore *lcore);

/* Sets the text of an error and returns the code. */
int failed(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

int frequency_begin(struct lcore *lcore);
void frequency_end(struct lcore *lcore);
void frequency_judge(struct lcore *lcore, uint64_t ticks);

#endif
