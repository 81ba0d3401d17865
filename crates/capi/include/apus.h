/* SPDX-License-Identifier: Apache-2.0 OR MIT
 *
 * libapus: decides how a poll loop waits, so that it meets a latency goal with the least CPU time.
 *
 * High level, one line in an existing loop:
 *
 *     apus_config config = {0};                     // in C++: = {}
 *     config.size = sizeof config;
 *     config.goal = "p99=100us";
 *     config.name = "my-loop";                      // shown by `apus top`
 *     apus_waiter *waiter;
 *     if (apus_waiter_new(&config, &waiter) < 0) { fprintf(stderr, "%s\n", apus_error()); exit(1); }
 *     apus_watch(waiter, socket);                   // a non-blocking file descriptor
 *     for (;;) {
 *         unsigned received = handle_all_packets(socket);
 *         apus_wait(waiter, received, NULL);
 *     }
 *
 * Low level: apus_policy_new and apus_decide. The caller reads the clock and carries out the waits.
 *
 * All times are nanoseconds of CLOCK_MONOTONIC (high level) or of any clock that never goes backwards (low level).
 *
 * Handles. A function that gets NULL, a freed handle or a pointer that is not a handle returns an error and changes
 * nothing. Only one thread at a time may use a handle: a call with a handle that another call is using returns
 * APUS_E_BUSY. A waiter belongs to the first thread that waits with it; other threads get APUS_E_THREAD. After fork(2),
 * the child gets APUS_E_THREAD for the parent's waiters, but it can free them.
 *
 * Cancellation. If a thread is cancelled during a call (pthread_cancel(3)), the call first ends as usual: a block, after
 * longest_block_ns at the latest. The cancellation takes effect at the caller's next cancellation point, such as
 * pthread_testcancel(3). Asynchronous cancellation (PTHREAD_CANCEL_ASYNCHRONOUS) is not supported.
 *
 * Errors. Functions that return int return 0 or more on success, and an APUS_E_ code, which is negative, on failure.
 * apus_error returns the message of the last failure. No function terminates the process or throws an exception.
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

/* APUS_NEVER: a time without end. APUS_UNKNOWN: a time or cost that is not known. */
#define APUS_NEVER UINT64_MAX
#define APUS_UNKNOWN UINT64_MAX

/* Maximum number of queues in a call, and of descriptors that a waiter watches. */
#define APUS_MAX_QUEUES 32

/* Error codes. apus_strerror describes each in one sentence. */
enum {
    APUS_OK = 0,
    APUS_E_NULL = -1,        /* a pointer that must not be NULL is NULL */
    APUS_E_HANDLE = -2,      /* not a handle, or a freed one */
    APUS_E_BUSY = -3,        /* another call is using the handle right now */
    APUS_E_THREAD = -4,      /* the waiter belongs to another thread or process */
    APUS_E_SIZE = -5,        /* config.size is wrong, or the configuration has fields that this older library lacks */
    APUS_E_CONFIG = -6,      /* a mode, goal, name or number in the configuration is invalid */
    APUS_E_PROFILE = -7,     /* the platform profile cannot be read or used */
    APUS_E_OBSERVATION = -8, /* the observation contradicts itself, or a value is out of range */
    APUS_E_TIME = -9,        /* a time went backwards, or is out of range */
    APUS_E_ORDER = -10,      /* apus_wait_end without apus_wait_begin, or another call between the two */
    APUS_E_LIMIT = -11,      /* the maximum number of handles, descriptors or queues is reached */
    APUS_E_UNSUPPORTED = -12, /* this CPU or kernel does not support the requested feature */
    APUS_E_SYSTEM = -13,     /* a system call failed: on the telemetry folder, a descriptor or a clock */
    APUS_E_INTERNAL = -14    /* a bug in libapus. The handle can only be freed */
};

/* Kinds of waits: what to do until the next poll, or what was done. */
enum {
    APUS_POLL = 0,  /* poll again at once */
    APUS_PAUSE = 1, /* keep the core, and execute pause or tpause instructions */
    APUS_SLEEP = 2, /* give up the core until a given time */
    APUS_BLOCK = 3  /* arm the interrupt, poll once more, and give up the core until a packet arrives or a given time */
};

/* Reasons for a decision. apus_reason_name returns their names; docs/waiting.md explains them. */
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
    APUS_WOKEN_BY_TIME = 1,  /* the requested end was reached, or a signal arrived (not in a wait for memory) */
    APUS_WOKEN_BY_DEVICE = 2, /* a watched descriptor is readable, or the watched memory changed */
    APUS_WOKEN_BY_ERROR = 3  /* a watched descriptor has an error, was hung up or closed: read it, or call apus_unwatch */
};

/* apus_config.wakes: what can end a block. */
enum {
    APUS_WAKES_WATCHED = 0, /* the descriptors or memory given to apus_watch or apus_watch_memory; without any, only
                               timed waits are used. With apus_policy_new, it means that the caller can block. */
    APUS_WAKES_CALLER = 1,  /* the caller carries out blocks itself, between apus_wait_begin and apus_wait_end */
    APUS_WAKES_NOTHING = 2  /* nothing: only timed waits are used */
};

/* apus_queue.stamped: whether packets have time stamps of their arrival, and of which clock. */
enum {
    APUS_STAMPED_NOT = 0,       /* there are no time stamps: it is only known that packets arrived after first_ns. With a
                                   waiter, first_ns may then be 0, because the waiter knows the time of the previous poll */
    APUS_STAMPED_MONOTONIC = 1, /* time stamps of CLOCK_MONOTONIC; with apus_decide, of the same clock as now_ns */
    APUS_STAMPED_REALTIME = 2   /* time stamps of CLOCK_REALTIME, such as the kernel's own (SO_TIMESTAMPNS). With waiters
                                   only */
};

/* apus_config.flags */
#define APUS_KEEP_TIMER_SLACK 1u /* Do not change the thread's timer slack. Without this flag, the first wait sets it to
                                    1 ns, because the kernel's default delays each sleep by up to 50 us
                                    (PR_SET_TIMERSLACK). */

typedef struct apus_policy apus_policy;
typedef struct apus_waiter apus_waiter;

/* Settings. Set all fields to 0 and `size` to sizeof(apus_config) first; 0 and NULL mean the default. */
typedef struct apus_config {
    size_t size;
    const char *mode;          /* "adaptive" (default), "poll", "interrupt", "backoff=100us", "hybrid300" */
    const char *goal;          /* latency goal of "adaptive", such as "p99.9=50us". Default: p99=100us */
    uint64_t peak_pps;         /* highest packet rate that one receive ring gets, in packets per second. Set it together
                                  with ring_descriptors, or neither: then no wait is so long that a ring overflows */
    uint32_t ring_descriptors; /* size of the smallest receive ring, in descriptors */
    uint32_t wakes;            /* APUS_WAKES_ */
    const char *profile;       /* content of a platform profile (`apus probe all -o FILE`): wait costs for "adaptive" */
    const char *profile_path;  /* path of a platform profile, instead of `profile`: a regular file of at most 16 MiB */
    /* The fields below are used by waiters only. */
    const char *name;          /* instance name in telemetry, like `apus run --name`. NULL: no telemetry */
    const char *app;           /* name of the application in telemetry. Default: "libapus" */
    const char *port;          /* name of the port in telemetry. Default: none */
    const char *telemetry_root; /* telemetry folder. Default: /dev/shm/apus; /dev/shm/apus-UID for users other than root */
    uint64_t longest_block_ns; /* maximum length of a block or sleep. Default: 100 ms */
    uint32_t worker;           /* number of this loop, if several loops of this process have the same name. Loops of
                                  different processes need different names */
    uint32_t burst;            /* maximum number of packets that the loop takes in one poll: after so many,
                                  more may be waiting. Default: a poll takes all waiting packets */
    uint32_t flags;            /* APUS_KEEP_TIMER_SLACK */
    uint32_t reserved;
} apus_config;

/* The result of polling one queue. */
typedef struct apus_queue {
    uint64_t first_ns;     /* with time stamps: arrival of the oldest packet. Without: time of the queue's previous poll */
    uint64_t last_ns;      /* with time stamps: arrival of the newest packet. Without: ignored */
    uint64_t picked_up_ns; /* when the loop took the packets. With a waiter, 0 means the end of the last wait */
    uint32_t received;     /* number of packets */
    uint32_t fill;         /* packets that were in the ring, including those received; 0: same as received */
    uint32_t stamped;      /* APUS_STAMPED_: clock of first_ns and last_ns */
    uint32_t reserved;     /* 0 */
} apus_queue;

/* A wait that has ended. */
typedef struct apus_ended {
    uint64_t began_ns;
    uint64_t ended_ns;
    uint64_t until_ns;  /* requested end; APUS_NEVER: none */
    uint64_t spent_ns;  /* cost of the wait: CPU time, or energy as the time in which a polling core uses the same energy.
                           APUS_UNKNOWN if not measured */
    uint64_t idle_ns;   /* the part of spent_ns that the idle state caused; 0 if only CPU time is known */
    uint32_t kind;      /* APUS_PAUSE, APUS_SLEEP or APUS_BLOCK */
    uint32_t reserved;  /* 0 */
} apus_ended;

typedef struct apus_decision {
    uint64_t until_ns; /* when the wait must end; APUS_NEVER: only a packet ends it */
    uint32_t kind;     /* APUS_POLL, APUS_PAUSE, APUS_SLEEP or APUS_BLOCK */
    uint32_t reason;   /* APUS_REASON_ */
} apus_decision;

/* The wait that a waiter carried out. */
typedef struct apus_done {
    uint64_t began_ns; /* time of the decision and start of the wait */
    uint64_t ended_ns; /* end of the wait */
    uint64_t until_ns; /* requested end, after the limit of longest_block_ns; APUS_NEVER: none */
    uint32_t kind;
    uint32_t reason;
    uint32_t woken;    /* APUS_WOKEN_ */
    uint32_t reserved;
} apus_done;

/* Version of the library, such as "0.1.0", and the APUS_ABI that it was built with. */
const char *apus_version(void);
uint32_t apus_abi(void);

/* One sentence for an error code. Never NULL. */
const char *apus_strerror(int code);
/* Message of the last failed call in this thread: what happened, why, and what to do. Never NULL; valid until the next
 * failure in this thread. */
const char *apus_error(void);
/* Names as shown by `apus top`, such as "sleep" for a kind and "traffic" for a reason. NULL for an unknown number. */
const char *apus_kind_name(uint32_t kind);
const char *apus_reason_name(uint32_t reason);
/* The clock that waiters use: CLOCK_MONOTONIC in nanoseconds. */
uint64_t apus_now(void);

/* ---- Low level: decisions only. After apus_policy_new: no clock, no thread, no allocation, no system call ---- */

int apus_policy_new(const apus_config *config, apus_policy **policy);
int apus_policy_free(apus_policy *policy);
/* Decides how to wait. Call it after all queues were polled and their packets processed; `now_ns` is the time of the
 * call. `ended` is the wait before the poll, or NULL if the previous decision was APUS_POLL. On error, nothing
 * changes. */
int apus_decide(apus_policy *policy, uint64_t now_ns, const apus_queue *queues, uint32_t count,
                const apus_ended *ended, apus_decision *decision);

/* ---- High level: the library also carries out the waits ---- */

int apus_waiter_new(const apus_config *config, apus_waiter **waiter);
/* Frees the waiter and removes its telemetry. */
int apus_waiter_free(apus_waiter *waiter);

/* From now on, blocks end when `fd` is readable (poll(2), POLLIN). The descriptor still belongs to the caller: call
 * apus_unwatch before closing it. Call apus_watch before the first wait, because adding the first descriptor resets the
 * policy. Between apus_wait_begin and apus_wait_end, these three functions return APUS_E_ORDER. */
int apus_watch(apus_waiter *waiter, int fd);
int apus_unwatch(apus_waiter *waiter, int fd);
/* From now on, blocks end when (*address & mask) != value. The wait uses umonitor and umwait: the thread keeps its
 * core, which uses less power meanwhile. A signal does not end it; it ends after longest_block_ns at the latest. A
 * waiter watches either memory or descriptors: APUS_E_CONFIG if it watches descriptors already. Returns
 * APUS_E_UNSUPPORTED on a CPU without waitpkg. An address of NULL stops the watch. */
int apus_watch_memory(apus_waiter *waiter, const volatile uint64_t *address, uint64_t mask, uint64_t value);

/* Sets what can end a block (APUS_WAKES_), for callers that learn it only after apus_waiter_new. A change resets the
 * policy. Returns APUS_E_ORDER between apus_wait_begin and apus_wait_end. */
int apus_set_wakes(apus_waiter *waiter, uint32_t wakes);

/* Waits as the policy decides. Call it when all of the `received` packets that the last poll returned are processed.
 * Returns the kind of wait (APUS_POLL to APUS_BLOCK). `done` may be NULL. A descriptor that is still readable ends a
 * block at once, so no packet is missed. */
int apus_wait(apus_waiter *waiter, uint32_t received, apus_done *done);
/* Like apus_wait, with the result of polling each queue. */
int apus_wait_queues(apus_waiter *waiter, const apus_queue *queues, uint32_t count, apus_done *done);

/* The two halves of apus_wait_queues, for callers that carry out the wait themselves, between the two calls. For
 * APUS_BLOCK, the caller must arm the interrupt and poll once more before it blocks. */
int apus_wait_begin(apus_waiter *waiter, const apus_queue *queues, uint32_t count, apus_decision *decision);
/* `kind` is the wait that was carried out; APUS_POLL if there was none, for example because the poll after arming found
 * packets. `until_ns` is the requested end; 0 means the end that was decided. Returns `kind`. */
int apus_wait_end(apus_waiter *waiter, uint32_t kind, uint64_t until_ns, apus_done *done);

/* Adds to the counters in telemetry. Waits already count received packets. `dropped` is the number of packets that were
 * received but not sent. */
int apus_count(apus_waiter *waiter, uint64_t rx_bytes, uint64_t tx_packets, uint64_t tx_bytes, uint64_t dropped);

#ifdef __cplusplus
}
#endif
#endif
