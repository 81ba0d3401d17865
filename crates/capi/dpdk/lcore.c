/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * An lcore: reports to libapus what its polls found, and carries out what libapus decides. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include <rte_cpuflags.h>
#include <rte_cycles.h>
#include <rte_interrupts.h>
#include <rte_pause.h>
#include <rte_power_intrinsics.h>

#include "lcore.h"

#define NS_PER_SECOND 1000000000ull
/* Length in ns of a block that no packet can end; the same as in Apus's own loop. */
#define UNWAKEABLE_NS 1000000
/* Shortest wait in ns. A system call takes as long, so a shorter wait is useless. */
#define LEAST_NS 2000
/* After this many blocks in a row that ended without a packet, the port was probably restarted and its interrupts
 * changed. */
#define SPURIOUS 16
/* After this many equal errors in a row, an error lasts. */
#define LASTING 1000

struct lcore lcores[RTE_MAX_LCORE];

/* The time between two readings of the time stamp counter. 0 if the counter went backwards, as it can when a virtual
 * machine is restored, or between sockets. */
static uint64_t ns_between(uint64_t from, uint64_t to)
{
	uint64_t hz = rte_get_tsc_hz(), ticks = to > from ? to - from : 0;

	return ticks >= hz ? ticks / hz * NS_PER_SECOND : ticks * NS_PER_SECOND / hz;
}

static uint64_t ticks_of(uint64_t ns)
{
	uint64_t hz = rte_get_tsc_hz();

	return ns / NS_PER_SECOND * hz + ns % NS_PER_SECOND * hz / NS_PER_SECOND;
}

/* The end of a wait: `until_ns`, or the time of the other work if that is earlier. */
static uint64_t earlier(uint64_t until_ns, uint64_t free_ns)
{
	uint64_t now_ns = apus_now();

	return free_ns < until_ns && until_ns - free_ns > now_ns ? now_ns + free_ns : until_ns;
}

/* Makes the lcore stop waiting for good, if the error lasts. After any other error, it decides again at the next poll. */
static void give_up(struct lcore *lcore, int code)
{
	lcore->failures = code == lcore->failed ? lcore->failures + 1 : 1;
	lcore->failed = code;
	if ((code != APUS_E_TIME && code != APUS_E_SYSTEM) || lcore->failures >= LASTING)
		lcore->counts.error = code;
}

static void ended(struct lcore *lcore, uint32_t kind, uint64_t until_ns)
{
	apus_done done;
	int code = apus_wait_end(lcore->waiter, kind, until_ns == APUS_NEVER ? 0 : until_ns, &done);

	if (code < 0) {
		give_up(lcore, code);
		return;
	}
	lcore->failed = 0;
	lcore->counts.waits[kind]++;
}

static bool begun(struct lcore *lcore, const apus_queue *queues, apus_decision *decision)
{
	int code = apus_wait_begin(lcore->waiter, queues, lcore->count, decision);

	if (code < 0)
		give_up(lcore, code);
	return code >= 0;
}

/* Reports packets to libapus. The application has processed all of them, or all but those of this poll. */
static void tell(struct lcore *lcore)
{
	apus_queue seen[APUS_MAX_QUEUES];
	apus_decision decision;
	uint64_t now_ns = apus_now(), ticks = rte_get_tsc_cycles();

	memset(seen, 0, lcore->count * sizeof(seen[0]));
	for (uint32_t i = 0; i < lcore->count; i++) {
		struct queue *queue = lcore->queues[i];

		if (queue->received == 0)
			continue;
		seen[i].received = queue->received;
		/* This report does not ask for a wait: the loop polls again before any wait. */
		seen[i].fill = queue->received + 1;
		seen[i].picked_up_ns = now_ns - ns_between(queue->picked_up, ticks);
		seen[i].first_ns = seen[i].picked_up_ns;
		if (queue->before != 0)
			seen[i].first_ns = RTE_MIN(seen[i].picked_up_ns, now_ns - ns_between(queue->before, ticks));
		queue->received = 0;
	}
	lcore->pending = 0;
	if (begun(lcore, seen, &decision)) {
		lcore->hurry |= decision.reason == APUS_REASON_LATE;
		ended(lcore, APUS_POLL, 0);
	}
}

/* ---- interrupts ---- */

/* Some drivers provide an interrupt that need not be enabled: with net_tap, it is the device's file descriptor. */
static int enable(const struct queue *queue)
{
	int code = rte_eth_dev_rx_intr_enable(queue->port, queue->queue);

	return code == -ENOTSUP ? 0 : code;
}

static void drain(const struct lcore *lcore)
{
	struct rte_epoll_event events[4];

	while (rte_epoll_wait(lcore->epoll, events, RTE_DIM(events), 0) == (int)RTE_DIM(events))
		;
}

static void disarm(struct lcore *lcore)
{
	lcore->armed = false;
	for (uint32_t i = 0; i < lcore->count; i++)
		rte_eth_dev_rx_intr_disable(lcore->queues[i]->port, lcore->queues[i]->queue);
	drain(lcore);
}

/* Cancels an armed block. */
static void retreat(struct lcore *lcore)
{
	int cancel = defer_cancel();

	disarm(lcore);
	lcore->counts.raced++;
	ended(lcore, APUS_POLL, 0);
	restore_cancel(cancel);
}

static void remove_interrupts(struct lcore *lcore, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		const struct queue *queue = lcore->queues[i];

		if (!queue->closed)
			rte_eth_dev_rx_intr_ctl_q(queue->port, queue->queue, lcore->epoll, RTE_INTR_EVENT_DEL, NULL);
	}
}

void lcore_forget_wakes(struct lcore *lcore)
{
	if (lcore->armed) {
		disarm(lcore);
		lcore->open = true;
	}
	if (lcore->counts.wakes == APUS_DPDK_INTERRUPT)
		remove_interrupts(lcore, lcore->count);
	if (lcore->epoll >= 0)
		close(lcore->epoll);
	lcore->epoll = -1;
	lcore->counts.wakes = APUS_DPDK_UNKNOWN;
	lcore->spurious = 0;
	lcore->woken = false;
}

/* Whether the driver delays receive interrupts for longer than most goals allow: net_e1000_em, to one every 16.8 ms
 * (DPDK 22.11, drivers/net/e1000/em_ethdev.c, eth_em_start: register ITR). No time stamp would show how late they are. */
static bool delays_interrupts(uint16_t port)
{
	struct rte_eth_dev_info info;

	return rte_eth_dev_info_get(port, &info) == 0 && strcmp(info.driver_name, "net_e1000_em") == 0;
}

/* Adds the receive interrupts of all queues to `epoll`. Returns whether each queue has one that may be used. */
static bool add_interrupts(struct lcore *lcore)
{
	uint32_t added = 0;

	lcore->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (lcore->epoll < 0)
		return false;
	for (; added < lcore->count; added++) {
		const struct queue *queue = lcore->queues[added];

		if (delays_interrupts(queue->port))
			break;
		if (rte_eth_dev_rx_intr_ctl_q(queue->port, queue->queue, lcore->epoll, RTE_INTR_EVENT_ADD, NULL) < 0)
			break;
		if (rte_eth_dev_rx_intr_ctl_q_get_fd(queue->port, queue->queue) < 0 || enable(queue) < 0) {
			added++;
			break;
		}
		rte_eth_dev_rx_intr_disable(queue->port, queue->queue);
		if (added + 1 == lcore->count)
			return true;
	}
	remove_interrupts(lcore, added);
	close(lcore->epoll);
	lcore->epoll = -1;
	return false;
}

/* Enables the interrupts of all queues. Fails if a queue no longer has one: its port was restarted without. */
static bool arm(struct lcore *lcore)
{
	lcore->armed = true;
	drain(lcore);
	for (uint32_t i = 0; i < lcore->count; i++) {
		const struct queue *queue = lcore->queues[i];

		if (rte_eth_dev_rx_intr_ctl_q_get_fd(queue->port, queue->queue) < 0 || enable(queue) < 0) {
			disarm(lcore);
			return false;
		}
	}
	return true;
}

/* Waits for the descriptors themselves, level-triggered, because an edge may come before the frame can be read
 * (net_tap). */
static void block(struct lcore *lcore, uint64_t free_ns)
{
	struct pollfd set[APUS_MAX_QUEUES];
	struct timespec span;
	uint64_t now_ns = apus_now(), until_ns, left_ns;

	lcore->until_ns = earlier(lcore->until_ns, free_ns);
	until_ns = RTE_MIN(lcore->until_ns, now_ns + lcore->longest_ns);
	left_ns = until_ns > now_ns ? until_ns - now_ns : 0;
	for (uint32_t i = 0; i < lcore->count; i++) {
		set[i].fd = rte_eth_dev_rx_intr_ctl_q_get_fd(lcore->queues[i]->port, lcore->queues[i]->queue);
		set[i].events = POLLIN;
	}
	span.tv_sec = left_ns / NS_PER_SECOND;
	span.tv_nsec = left_ns % NS_PER_SECOND;
	if (ppoll(set, lcore->count, &span, NULL) != 0) {
		lcore->spurious = lcore->woken ? lcore->spurious + 1 : 0;
		lcore->woken = true;
	}
	disarm(lcore);
	ended(lcore, APUS_BLOCK, lcore->until_ns);
	if (lcore->spurious >= SPURIOUS)
		lcore_forget_wakes(lcore);
}

/* ---- waits that keep the core ---- */

/* Gets the condition that shows a packet in each queue. */
static bool conditions(const struct lcore *lcore, struct rte_power_monitor_cond *conditions)
{
	for (uint32_t i = 0; i < lcore->count; i++)
		if (rte_eth_get_monitor_addr(lcore->queues[i]->port, lcore->queues[i]->queue, &conditions[i]) < 0)
			return false;
	return true;
}

static bool can_monitor(const struct lcore *lcore, const struct rte_cpu_intrinsics *cpu)
{
	struct rte_power_monitor_cond monitored[APUS_MAX_QUEUES];

	return cpu->power_monitor && (lcore->count == 1 || cpu->power_monitor_multi) && conditions(lcore, monitored);
}

static void monitor(struct lcore *lcore, uint64_t until_ns)
{
	struct rte_power_monitor_cond monitored[APUS_MAX_QUEUES];
	uint64_t now_ns = apus_now(), end_ns = RTE_MIN(until_ns, now_ns + lcore->longest_ns);
	uint64_t end = rte_get_tsc_cycles() + ticks_of(end_ns > now_ns ? end_ns - now_ns : 0);

	if (!conditions(lcore, monitored)) {
		lcore_forget_wakes(lcore);
		ended(lcore, APUS_POLL, 0);
		return;
	}
	if (lcore->count == 1)
		rte_power_monitor(&monitored[0], end);
	else
		rte_power_monitor_multi(monitored, lcore->count, end);
	ended(lcore, APUS_BLOCK, until_ns);
}

static void pause_until(const struct lcore *lcore, uint64_t until_ns)
{
	uint64_t now_ns = apus_now();
	uint64_t end = rte_get_tsc_cycles() + ticks_of(until_ns > now_ns ? until_ns - now_ns : 0);

	if (lcore->can_pause && rte_power_pause(end) == 0)
		return;
	while (rte_get_tsc_cycles() < end)
		rte_pause();
}

static void sleep_until(uint64_t until_ns)
{
	struct timespec until = {.tv_sec = until_ns / NS_PER_SECOND, .tv_nsec = until_ns % NS_PER_SECOND};

	/* If a signal ends the sleep early, the loop polls, and libapus decides again. */
	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

/* ---- rounds ---- */

/* Finds out what can end a block. This is known only while the port runs. */
static void find_wakes(struct lcore *lcore)
{
	struct rte_cpu_intrinsics cpu;
	int code;

	rte_cpu_get_intrinsics_support(&cpu);
	lcore->can_pause = cpu.power_pause;
	lcore->counts.wakes = APUS_DPDK_TIMER;
	if (lcore->interrupts && add_interrupts(lcore))
		lcore->counts.wakes = APUS_DPDK_INTERRUPT;
	else if (lcore->interrupts && can_monitor(lcore, &cpu))
		lcore->counts.wakes = APUS_DPDK_MONITOR;
	code = apus_set_wakes(lcore->waiter,
			      lcore->counts.wakes == APUS_DPDK_TIMER ? APUS_WAKES_NOTHING : APUS_WAKES_CALLER);
	if (code < 0)
		give_up(lcore, code);
}

static void decide(struct lcore *lcore, uint64_t free_ns)
{
	static const apus_queue empty[APUS_MAX_QUEUES];
	apus_decision decision;
	uint64_t until_ns;

	if (!begun(lcore, empty, &decision))
		return;
	until_ns = decision.until_ns;
	lcore->hurry |= decision.reason == APUS_REASON_LATE;
	if (decision.kind != APUS_POLL)
		until_ns = earlier(until_ns, free_ns);
	if (free_ns < LEAST_NS)
		decision.kind = APUS_POLL;
	switch (decision.kind) {
	case APUS_PAUSE:
		pause_until(lcore, until_ns);
		break;
	case APUS_SLEEP:
		sleep_until(RTE_MIN(until_ns, apus_now() + lcore->longest_ns));
		break;
	case APUS_BLOCK:
		if (lcore->counts.wakes == APUS_DPDK_INTERRUPT) {
			lcore->until_ns = until_ns;
			if (arm(lcore))
				return; /* the block begins when all queues were polled once more */
			ended(lcore, APUS_POLL, 0);
			lcore_forget_wakes(lcore);
			return;
		}
		if (lcore->counts.wakes == APUS_DPDK_MONITOR) {
			monitor(lcore, until_ns);
			return;
		}
		sleep_until(RTE_MIN(until_ns, apus_now() + UNWAKEABLE_NS));
		break;
	default:
		until_ns = 0;
	}
	ended(lcore, decision.kind, until_ns);
}

/* All waits are in here, and most of them are cancellation points (pthreads(7)). */
static void all_empty(struct lcore *lcore)
{
	int cancel = defer_cancel();
	uint64_t free_ns = lcore->work == NULL ? APUS_NEVER : lcore->work(lcore->id, lcore->work_arg);

	if (lcore->counts.wakes == APUS_DPDK_UNKNOWN)
		find_wakes(lcore);
	if (lcore->pending != 0)
		tell(lcore);
	if (lcore->armed && free_ns == 0)
		retreat(lcore);
	else if (lcore->armed)
		block(lcore, free_ns);
	else if (free_ns != 0)
		decide(lcore, free_ns);
	restore_cancel(cancel);
}

void lcore_polled(struct lcore *lcore, struct queue *queue, uint32_t received, bool full)
{
	uint64_t ticks = rte_get_tsc_cycles();

	if (lcore->counts.error != 0)
		return;
	if (lcore->scaled) {
		lcore->busy += lcore->busy_since == 0 ? 0 : ticks - lcore->busy_since;
		lcore->busy_since = received == 0 ? 0 : ticks;
		lcore->hurry |= full;
		frequency_judge(lcore, ticks);
	}
	if (unlikely(lcore->open)) {
		lcore->open = false;
		ended(lcore, APUS_POLL, 0);
	}
	if (received > 0) {
		if (lcore->armed)
			retreat(lcore);
		if (lcore->pending != 0 && (!lcore->full || ticks - lcore->pending > lcore->gather))
			tell(lcore);
		lcore->full = full;
		if (queue->received == 0) {
			queue->before = queue->polled;
			queue->picked_up = ticks;
		}
		if (lcore->pending == 0)
			lcore->pending = ticks;
		queue->polled = ticks;
		queue->received += received;
		lcore->counts.packets += received;
		lcore->woken = false;
		lcore->round++;
		lcore->empty = 0;
		return;
	}
	queue->polled = ticks;
	if (queue->round == lcore->round)
		return;
	queue->round = lcore->round;
	if (++lcore->empty < lcore->count)
		return;
	lcore->round++;
	lcore->empty = 0;
	all_empty(lcore);
}
