/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * libapus: decides how a poll loop waits, so that it holds a latency goal at the least CPU time.
 *
 * High level, one line in an existing loop:
 *
 *     apus_config config = {0};
 *     config.size = sizeof config;
 *     config.goal = "p99=100us";
 *     config.name = "my-loop";                      // shown by `apus top`
 *     apus_waiter *waiter;
 *     if (apus_waiter_new(&config, &waiter) < 0) { fprintf(stderr, "%s\n", apus_error()); exit(1); }
 *     apus_watch(waiter, socket);                   // a non-blocking descriptor that becomes readable
 *     for (;;) {
 *         unsigned received = handle_all_packets(socket);
 *         apus_wait(waiter, received, NULL);
 *     }
 *
 * Low level: apus_policy_new and apus_decide. The caller has the clock and does the waiting.
 *
 * All times are nanoseconds of CLOCK_MONOTONIC (high level) or of any clock that never goes backwards (low level).
 *
 * Handles. A function that gets NULL, a freed handle or a pointer that is no handle returns an error and changes
 * nothing. A handle is used by one thread at a time: a call during another call of the same handle returns APUS_E_BUSY.
 * A waiter belongs to the thread that waits with it first; others get APUS_E_THREAD. After fork(2), the child gets
 * APUS_E_THREAD for the parent's waiters, and can free them.
 *
 * Errors. Functions that return int return 0 or more if they succeed, and an APUS_E_ code, which is negative, if they
 * fail. apus_error has the text. No function ends the process or throws.
 */
#ifndef APUS_H
#define APUS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The number in the soname. Programs that were built with one number run with any library of the same number. */
#define APUS_ABI 0

/* "No end", and "not known" for times that may be unknown. */
#define APUS_NEVER UINT64_MAX
#define APUS_UNKNOWN UINT64_MAX

/* The largest number of queues in a call, and of descriptors of a waiter. */
#define APUS_MAX_QUEUES 32

/* Errors. apus_strerror has a sentence for each. */
enum {
    APUS_OK = 0,
    APUS_E_NULL = -1,        /* a pointer that must not be NULL is NULL */
    APUS_E_HANDLE = -2,      /* no handle, or a freed one */
    APUS_E_BUSY = -3,        /* the handle is in use by another call at this moment */
    APUS_E_THREAD = -4,      /* the waiter belongs to another thread or process */
    APUS_E_SIZE = -5,        /* config.size is not that of a known apus_config, or has fields that this library lacks */
    APUS_E_CONFIG = -6,      /* a mode, goal, name or number in the configuration is wrong */
    APUS_E_PROFILE = -7,     /* the platform profile cannot be read or used */
    APUS_E_OBSERVATION = -8, /* what was seen contradicts itself, or has a value out of range */
    APUS_E_TIME = -9,        /* time went backwards, or is out of range */
    APUS_E_ORDER = -10,      /* apus_wait_end without apus_wait_begin, or two apus_wait_begin in a row */
    APUS_E_LIMIT = -11,      /* no handle, descriptor or queue more is possible */
    APUS_E_UNSUPPORTED = -12, /* this CPU or kernel lacks what was asked for */
    APUS_E_SYSTEM = -13,     /* the operating system refused: telemetry's folder, a descriptor, a clock */
    APUS_E_INTERNAL = -14    /* a fault of libapus. The handle can only be freed */
};

/* What to do until the next poll, and what was done. */
enum {
    APUS_POLL = 0,  /* poll again at once */
    APUS_PAUSE = 1, /* keep the core, in its cheapest running state */
    APUS_SLEEP = 2, /* give up the core until a time */
    APUS_BLOCK = 3  /* arm the interrupt, poll once more, and give up the core until a packet arrives or until a time */
};

/* Why. apus_reason_name has the names, docs/waiting.md explains them. */
enum {
    APUS_REASON_FIXED = 0,
    APUS_REASON_TRAFFIC = 1,
    APUS_REASON_PERIODIC = 2,
    APUS_REASON_BUDGET = 3,
    APUS_REASON_INTERRUPT = 4,
    APUS_REASON_IDLE = 5,
    APUS_REASON_GOAL_TOO_TIGHT = 6,
    APUS_REASON_LATE = 7,
    APUS_REASON_LOSS_BOUND = 8
};

/* What ended a wait. */
enum {
    APUS_WOKEN_NOT = 0,      /* there was no wait */
    APUS_WOKEN_BY_TIME = 1,  /* its end, or a signal */
    APUS_WOKEN_BY_DEVICE = 2, /* a watched descriptor is readable, or the watched memory changed */
    APUS_WOKEN_BY_ERROR = 3  /* a watched descriptor has an error, was hung up or closed: read it, or apus_unwatch it */
};

/* apus_config.wakes: what can end a block. */
enum {
    APUS_WAKES_WATCHED = 0, /* what apus_watch and apus_watch_memory name; without any, only timed waits are used.
                               For apus_policy_new: the caller can block. */
    APUS_WAKES_CALLER = 1,  /* the caller blocks by itself, between apus_wait_begin and apus_wait_end */
    APUS_WAKES_NOTHING = 2  /* only timed waits are used */
};

/* apus_config.flags */
#define APUS_KEEP_TIMER_SLACK 1u /* Leave the thread's timer slack. Otherwise the first wait sets it to 1 ns, because the
                                    kernel's default adds 50 us to each sleep (PR_SET_TIMERSLACK). */

typedef struct apus_policy apus_policy;
typedef struct apus_waiter apus_waiter;

/* Settings. Set all fields to 0 and `size` to sizeof(apus_config) first; 0 and NULL mean the default. */
typedef struct apus_config {
    size_t size;
    const char *mode;          /* "adaptive" (default), "poll", "interrupt", "backoff=100us", "hybrid300" */
    const char *goal;          /* "p99.9=50us", for adaptive. Default: p99=100us */
    uint64_t peak_pps;         /* highest packet rate of the ring; with ring_descriptors: no wait may overflow it */
    uint32_t ring_descriptors; /* size of the smallest receive ring */
    uint32_t wakes;            /* APUS_WAKES_ */
    const char *profile;       /* text of a platform profile (`apus probe all -o FILE`), from which adaptive starts */
    const char *profile_path;  /* or its path */
    /* The rest is for waiters alone. */
    const char *name;          /* instance name in telemetry, as `apus run --name`. NULL: no telemetry */
    const char *app;           /* name of the application in telemetry. Default: "libapus" */
    const char *port;          /* name of the port in telemetry. Default: none */
    const char *telemetry_root; /* folder. Default: /dev/shm/apus, or /dev/shm/apus-UID for other users than root */
    uint64_t longest_block_ns; /* a block ends after this time at the latest. Default: 100 ms */
    uint32_t worker;           /* number of this loop in its instance, for several loops of one name */
    uint32_t burst;            /* the most packets that the loop takes at once: when it got as many, more may wait.
                                  Default: the loop takes all that there are */
    uint32_t flags;            /* APUS_KEEP_TIMER_SLACK */
    uint32_t reserved;
} apus_config;

/* What a poll of one queue returned. */
typedef struct apus_queue {
    uint64_t first_ns;     /* stamped: arrival of the oldest packet. Otherwise: when the queue was polled before */
    uint64_t last_ns;      /* stamped: arrival of the newest packet. Otherwise ignored */
    uint64_t picked_up_ns; /* when the packets were taken. 0 in waiters: when the last wait ended */
    uint32_t received;     /* number of packets */
    uint32_t fill;         /* packets that lay in the ring, with those received; 0: as many as received */
    uint32_t stamped;      /* 1: the device stamps arrivals. 0: arrivals are only known to lie after first_ns. In waiters,
                              first_ns may be 0 then: the waiter knows when it was polled before */
    uint32_t reserved;     /* 0 */
} apus_queue;

/* A wait that has ended. */
typedef struct apus_ended {
    uint64_t began_ns;
    uint64_t ended_ns;
    uint64_t until_ns;  /* the end that was asked for; APUS_NEVER: none */
    uint64_t spent_ns;  /* CPU time, or energy as the time of a polling core that costs as much; APUS_UNKNOWN */
    uint64_t idle_ns;   /* the part of that which the idle state caused; 0 if only CPU time is known */
    uint32_t kind;      /* APUS_PAUSE, APUS_SLEEP or APUS_BLOCK */
    uint32_t reserved;  /* 0 */
} apus_ended;

typedef struct apus_decision {
    uint64_t until_ns; /* when to end the wait; APUS_NEVER: only a packet ends it */
    uint32_t kind;     /* APUS_POLL, APUS_PAUSE, APUS_SLEEP or APUS_BLOCK */
    uint32_t reason;   /* APUS_REASON_ */
} apus_decision;

/* What a waiter did. */
typedef struct apus_done {
    uint64_t began_ns; /* when the wait began, and the decision was made */
    uint64_t ended_ns; /* when it ended */
    uint64_t until_ns; /* the end that was asked for; APUS_NEVER: none */
    uint32_t kind;
    uint32_t reason;
    uint32_t woken;    /* APUS_WOKEN_ */
    uint32_t reserved;
} apus_done;

/* Version of the library, such as "0.1.0", and its APUS_ABI. */
const char *apus_version(void);
uint32_t apus_abi(void);

/* One sentence for an error code. Never NULL. */
const char *apus_strerror(int code);
/* What the last failed call of this thread says: what happened, why, what to do. Never NULL; valid until the thread's
 * next failure. */
const char *apus_error(void);
/* Names as in `apus top`: "poll", "sleep"; "budget", "traffic". NULL if there is no such number. */
const char *apus_kind_name(uint32_t kind);
const char *apus_reason_name(uint32_t reason);
/* The clock of waiters: nanoseconds of CLOCK_MONOTONIC. */
uint64_t apus_now(void);

/* ---- low level: decisions. No clock, no thread, no allocation, no system call after apus_policy_new ---- */

int apus_policy_new(const apus_config *config, apus_policy **policy);
int apus_policy_free(apus_policy *policy);
/* Decides after a poll of all queues at `now_ns`, when its packets had been processed. `ended` is the wait before the
 * poll, NULL after APUS_POLL. An error changes nothing. */
int apus_decide(apus_policy *policy, uint64_t now_ns, const apus_queue *queues, uint32_t count,
                const apus_ended *ended, apus_decision *decision);

/* ---- high level: decisions, carried out ---- */

int apus_waiter_new(const apus_config *config, apus_waiter **waiter);
/* Frees the waiter and removes its telemetry. */
int apus_waiter_free(apus_waiter *waiter);

/* Ends blocks when `fd` is readable (poll(2), POLLIN). The descriptor stays the caller's: apus_unwatch it before closing
 * it. Watch before the first wait: the first descriptor makes the policy start anew. */
int apus_watch(apus_waiter *waiter, int fd);
int apus_unwatch(apus_waiter *waiter, int fd);
/* Ends blocks when (*address & mask) != value, with umonitor and umwait: the thread keeps its core, at less power.
 * APUS_E_UNSUPPORTED on a CPU without waitpkg. NULL ends it. */
int apus_watch_memory(apus_waiter *waiter, const volatile uint64_t *address, uint64_t mask, uint64_t value);

/* Waits as the policy decides, after a poll that returned `received` packets, all processed. Returns what it did: an
 * APUS_ kind. `done` may be NULL. Descriptors that are still readable end a block at once, so nothing is missed. */
int apus_wait(apus_waiter *waiter, uint32_t received, apus_done *done);
/* The same with what is known of each queue. */
int apus_wait_queues(apus_waiter *waiter, const apus_queue *queues, uint32_t count, apus_done *done);

/* The two halves of apus_wait_queues, for callers that wait by themselves. Between them the caller carries out the
 * decision; after APUS_BLOCK it first polls once more. */
int apus_wait_begin(apus_waiter *waiter, const apus_queue *queues, uint32_t count, apus_decision *decision);
/* `kind` is what was done; APUS_POLL: nothing, for example because the poll after arming found packets. `until_ns` is the
 * end that was asked for; 0: the decision's. Returns `kind`. */
int apus_wait_end(apus_waiter *waiter, uint32_t kind, uint64_t until_ns, apus_done *done);

/* Adds to the counters in telemetry. Received packets are counted by waits. `dropped` are packets that were received and
 * not sent. */
int apus_count(apus_waiter *waiter, uint64_t rx_bytes, uint64_t tx_packets, uint64_t tx_bytes, uint64_t dropped);

#ifdef __cplusplus
}
#endif
#endif
