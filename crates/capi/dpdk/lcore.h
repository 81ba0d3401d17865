/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * Shared by the files of libapus-dpdk: the queues of an lcore, and their state.
 *
 *            a queue has packets ◄───────────────────────────┐
 *              │ restarts the round                           │
 *   ROUND ─────┴─ all queues empty ──► decide ──► pause, sleep, monitor ──► ROUND
 *                                        └─ block ──► ARMED ── all empty again ──► sleep until an interrupt ──► ROUND
 *                                                       └─ packets, other work ──► ROUND (no wait)
 */
#ifndef APUS_DPDK_LCORE_H
#define APUS_DPDK_LCORE_H

#include <pthread.h>
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
	bool closed; /* its port is being closed, and no longer has interrupts */
	uint32_t round;    /* the last round in which it was empty */
	uint32_t received; /* packets not yet reported to libapus */
	uint64_t polled;   /* time stamp counter at the last poll; 0: none yet */
	uint64_t before;   /* time stamp counter at the poll before the one that returned the first of `received` */
	uint64_t picked_up; /* time stamp counter at the poll that returned the first of `received` */
};

struct __rte_cache_aligned lcore {
	/* For all fields below. The lcore never waits for it; other threads hold it while they add or remove queues. */
	rte_spinlock_t lock;
	uint32_t wanted; /* how many other threads wait for the lock: the lcore leaves it to them */
	unsigned int id;
	uint32_t count;
	struct queue *queues[APUS_MAX_QUEUES];
	apus_waiter *waiter; /* NULL: no queue */
	apus_config config;  /* configuration given for the first queue, with copies of its strings */
	bool interrupts;     /* the configuration allows interrupts and monitoring */
	bool can_pause;      /* the CPU has rte_power_pause */
	uint64_t longest_ns; /* maximum length of a block */

	uint32_t round, empty; /* number of the round, and how many queues were empty in it */
	uint64_t pending;      /* time stamp counter when the first unreported packets came; 0: none */
	uint64_t gather;       /* ticks for which packets are gathered before they are reported to libapus */
	bool full;             /* the last poll with packets returned a full burst */
	bool armed;
	bool open;             /* another thread cancelled a block, and its end was not reported to libapus yet */
	uint64_t until_ns;     /* the end of the armed block; APUS_NEVER: none */
	int epoll;             /* epoll descriptor that reads the interrupts' events; -1: none */
	uint32_t spurious;     /* blocks in a row that ended early, but not because of a packet */
	bool woken;            /* the last block ended early, and no packet has come since */

	int failed;        /* the error of the last call of libapus; 0: it succeeded */
	uint32_t failures; /* how often it failed so in a row */

	apus_dpdk_work *work;
	void *work_arg;
	apus_dpdk_counts counts;

	bool scaled; /* its frequency follows its load */
	uint32_t khz[64];
	uint32_t frequencies, at; /* number of entries in `khz`, and the index of the frequency that is set */
	uint64_t busy, busy_since, judged; /* ticks; time stamp counters, 0: idle */
	bool hurry;
};

extern struct lcore lcores[RTE_MAX_LCORE];

/* Handles one poll, on the lcore, with the lock held. Called by the receive callback. */
void lcore_polled(struct lcore *lcore, struct queue *queue, uint32_t received, bool full);
/* Forgets what can end a block, because the queues change. May be called from any thread. */
void lcore_forget_wakes(struct lcore *lcore);

/* Defers cancellation of the calling thread, which would otherwise end while it holds a lock. Returns the state to
 * restore. */
static inline int defer_cancel(void)
{
	int before;

	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
	return before;
}

static inline void restore_cancel(int before)
{
	pthread_setcancelstate(before, NULL);
}

/* Sets the text of an error and returns the code. */
int failed(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));

int frequency_begin(struct lcore *lcore);
void frequency_end(struct lcore *lcore);
void frequency_judge(struct lcore *lcore, uint64_t ticks);

#endif
