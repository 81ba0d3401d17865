/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * libapus-dpdk: libapus in the poll loops of DPDK applications. One call for each receive queue:
 *
 *     apus_config config = {0};
 *     config.size = sizeof config;
 *     config.goal = "p99=60us";
 *     if (apus_dpdk_queue_enable(lcore, port, queue, &config) < 0) rte_exit(1, "%s\n", apus_dpdk_error());
 *
 * It installs a receive callback, as rte_power_ethdev_pmgmt_queue_enable does. When rte_eth_rx_burst has found all queues
 * of the lcore empty, the callback waits as libapus decides, and then returns. The loop stays as it is.
 *
 * How it waits:
 *   block   on the receive interrupts, if all of the lcore's queues have them: enabled, polled once more, slept. The port
 *           must have been configured with intr_conf.rxq = 1. Otherwise by rte_power_monitor, if driver and CPU support it.
           (For a driver without interrupts, DPDK prints "Rx Intr handle unset" once.)
 *   sleep   until a time. If packets cannot end a wait, libapus uses these alone
 *   pause   rte_power_pause where the CPU has it, otherwise rte_pause
 *
 * Packets that the application holds back (in a transmit buffer, for a timer) wait with it: see apus_dpdk_lcore_work.
 *
 * Functions may be called from any thread, also while the queues are polled. Each returns 0 or an error, which is an
 * APUS_E_ or APUS_DPDK_E_ code and negative; apus_dpdk_error has the text. An error changes nothing.
 */
#ifndef APUS_DPDK_H
#define APUS_DPDK_H

#include <apus.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Errors, besides those of apus.h. */
enum {
    APUS_DPDK_E_LCORE = -101,   /* no such lcore, or the queue belongs to another one */
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

/* Lets libapus wait when all enabled queues of `lcore` are empty. Call it after rte_eth_dev_configure, before or after
 * rte_eth_dev_start. The lcore is the only one that polls the queue.
 *
 * The queues of an lcore share one policy, made from `config`: pass the same configuration, or NULL, for further ones.
 * NULL for the first one means all defaults (p99=100us). `config.wakes` APUS_WAKES_NOTHING forbids interrupts and
 * monitoring. `config.worker` is set to the lcore's number, and `config.port` to the port's name if it is NULL. */
int apus_dpdk_queue_enable(unsigned int lcore, uint16_t port, uint16_t queue, const apus_config *config);

/* Undoes it. If the lcore blocks, waits for the end of that. With the lcore's last queue, its policy and telemetry end.
 * Closing a port disables its queues. */
int apus_dpdk_queue_disable(unsigned int lcore, uint16_t port, uint16_t queue);

/* How long the lcore's other work can wait, in nanoseconds: 0 if there is work now (no wait), APUS_NEVER if there is none.
 * Called on the lcore when all its queues are empty. Must not call apus_dpdk_ functions. */
typedef uint64_t apus_dpdk_work(unsigned int lcore, void *arg);

/* Tells of the lcore's other work: transmit buffers, timers, rings, crypto devices. NULL: there is none. */
int apus_dpdk_lcore_work(unsigned int lcore, apus_dpdk_work *work, void *arg);

/* Lets the lcore's frequency follow its load, through rte_power: the lowest at which it is busy for at most 3/4 of the
 * time, judged every 10 ms; the highest as soon as a poll returns a full burst or packets are late. 0 ends it and restores
 * the governor, and so does disabling the lcore's last queue. APUS_E_UNSUPPORTED if rte_power cannot set frequencies. */
int apus_dpdk_lcore_frequency(unsigned int lcore, int follow);

/* What happened on an lcore since its first queue was enabled. Set `size` to sizeof(apus_dpdk_counts). Of an lcore that
 * runs, the numbers are not all of one moment. */
typedef struct apus_dpdk_counts {
    size_t size;
    uint64_t packets;   /* received from the enabled queues */
    uint64_t waits[4];  /* by APUS_ kind; [APUS_POLL]: decisions to poll on */
    uint64_t raced;     /* blocks that did not happen, because the poll after arming found packets or other work */
    uint64_t strangers; /* polls of these queues by other lcores, which neither wait nor count */
    uint32_t wakes;     /* APUS_DPDK_ */
    uint32_t queues;    /* enabled queues */
    uint32_t khz;       /* the frequency that was set last; 0: none */
    int32_t error;      /* why the lcore waits no more, such as APUS_E_THREAD after fork(2); 0: it waits */
} apus_dpdk_counts;

int apus_dpdk_lcore_counts(unsigned int lcore, apus_dpdk_counts *counts);

/* What the last failed call of this thread says. Never NULL; valid until the thread's next failure. */
const char *apus_dpdk_error(void);
/* One sentence for a code of this library or of libapus. */
const char *apus_dpdk_strerror(int code);

#ifdef __cplusplus
}
#endif
#endif
