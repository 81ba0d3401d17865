/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * libapus-dpdk: libapus in the poll loops of DPDK applications. One call for each receive queue:
 *
 *     apus_config config = {0};     // in C++: = {}
 *     config.size = sizeof config;
 *     config.goal = "p99=60us";
 *     if (apus_dpdk_queue_enable(lcore, port, queue, &config) < 0) rte_exit(1, "%s\n", apus_dpdk_error());
 *
 * It installs a receive callback, as rte_power_ethdev_pmgmt_queue_enable does. When rte_eth_rx_burst has found all queues
 * of the lcore empty, the callback waits as libapus decides, and then returns. The loop itself needs no change.
 *
 * How it waits:
 *   block   if all of the lcore's queues have receive interrupts: enables them, polls once more, and sleeps until one
 *           arrives. The port must have been configured with intr_conf.rxq = 1. Otherwise uses rte_power_monitor, if
 *           driver and CPU support it. (For a driver without interrupts, DPDK prints "Rx Intr handle unset" once. Those
 *           of net_e1000_em are not used, because its driver delays them by up to 16.8 ms.)
 *   sleep   until a given time. If packets cannot end a wait, libapus uses only sleep and pause
 *   pause   with rte_power_pause if the CPU supports it, otherwise with rte_pause
 *
 * Packets that the application still holds (in a transmit buffer, for a timer) are delayed by the wait: see
 * apus_dpdk_lcore_work.
 *
 * Functions may be called from any thread, even while the queues are polled. Each returns 0, or a negative error code
 * (APUS_E_ or APUS_DPDK_E_); apus_dpdk_error returns its message. A call that fails changes nothing. If a thread is
 * cancelled in a call or in the callback, this ends first: see apus.h.
 */
#ifndef APUS_DPDK_H
#define APUS_DPDK_H

#include <apus.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Error codes in addition to those of apus.h. */
enum {
    APUS_DPDK_E_LCORE = -101,   /* no such lcore, or the queue belongs to another lcore */
    APUS_DPDK_E_QUEUE = -102,   /* no such port or receive queue: configure the port first */
    APUS_DPDK_E_ENABLED = -103, /* the queue is enabled already */
    APUS_DPDK_E_DISABLED = -104 /* the queue is not enabled */
};

/* What ends a block: apus_dpdk_counts.wakes. */
enum {
    APUS_DPDK_UNKNOWN = 0,   /* the lcore has not waited yet */
    APUS_DPDK_TIMER = 1,     /* nothing: packets do not end a wait, so only timed waits are used */
    APUS_DPDK_INTERRUPT = 2, /* receive interrupts */
    APUS_DPDK_MONITOR = 3    /* rte_power_monitor */
};

/* Enables waiting: when all enabled queues of `lcore` are empty, libapus waits. Call it after rte_eth_dev_configure,
 * before or after rte_eth_dev_start. Only this lcore may poll the queue.
 *
 * The queues of an lcore share one policy, made from the first queue's `config`. For further queues, pass an equal
 * configuration (its strings may be copies) or NULL. NULL for the first queue means all defaults (p99=100us).
 * APUS_WAKES_NOTHING in `config.wakes` forbids interrupts and monitoring. `config.worker` is set to the lcore's number, and `config.port` to the port's name
 * if it is NULL. */
int apus_dpdk_queue_enable(unsigned int lcore, uint16_t port, uint16_t queue, const apus_config *config);

/* Disables waiting for a queue. If the lcore is blocked, the call returns only after that wait. Disabling the lcore's
 * last queue also frees the lcore's policy and ends its telemetry. Closing a port disables its queues. */
int apus_dpdk_queue_disable(unsigned int lcore, uint16_t port, uint16_t queue);

/* Returns how long the lcore's other work can wait, in nanoseconds: 0 if there is work now (so there is no wait),
 * APUS_NEVER if there is none. A wait for this long ends late by the time that the lcore needs to wake up, as any sleep
 * does: for work that must not be late, return less. The function is called on the lcore when all its queues are empty.
 * It must not call apus_dpdk_ functions. */
typedef uint64_t apus_dpdk_work(unsigned int lcore, void *arg);

/* Sets the function that reports the lcore's other work: transmit buffers, timers, rings, crypto devices. NULL: the
 * lcore has no other work. The function stays set until the next call, also while the lcore has no enabled queue: pass
 * NULL before `arg` is freed. */
int apus_dpdk_lcore_work(unsigned int lcore, apus_dpdk_work *work, void *arg);

/* Adapts the lcore's frequency to its load, through rte_power: every 10 ms, it sets the lowest frequency at which the
 * lcore is busy for at most 3/4 of the time. It sets the highest frequency as soon as a poll returns a full burst or
 * packets are late. `follow` 0 stops this and restores the governor, and so does disabling the lcore's last queue.
 * Returns APUS_E_UNSUPPORTED if rte_power cannot set frequencies. */
int apus_dpdk_lcore_frequency(unsigned int lcore, int follow);

/* What happened on an lcore since its first queue was enabled. Set `size` to sizeof(apus_dpdk_counts). While the
 * lcore runs, the numbers may be from slightly different times. */
typedef struct apus_dpdk_counts {
    size_t size;
    uint64_t packets;   /* received from the enabled queues */
    uint64_t waits[4];  /* waits by kind; [APUS_POLL]: decisions to poll again */
    uint64_t raced;     /* blocks that did not happen, because the poll after arming found packets or other work */
    uint64_t strangers; /* polls of these queues by other lcores. Such polls never wait, and count nowhere else */
    uint32_t wakes;     /* APUS_DPDK_ */
    uint32_t queues;    /* enabled queues */
    uint32_t khz;       /* the last frequency that was set, in kHz; 0: none */
    int32_t error;      /* why the lcore no longer waits, such as APUS_E_THREAD after fork(2); 0: it waits. After an error
                           that may pass (APUS_E_TIME, APUS_E_SYSTEM), it polls once more and decides again, up to
                           1,000 times in a row */
} apus_dpdk_counts;

int apus_dpdk_lcore_counts(unsigned int lcore, apus_dpdk_counts *counts);

/* Message of the last failed call in this thread. Never NULL; valid until the thread's next failure. */
const char *apus_dpdk_error(void);
/* One sentence for an error code of this library or of libapus. */
const char *apus_dpdk_strerror(int code);

#ifdef __cplusplus
}
#endif
#endif
