/* Calls libapus at random: random COUNT SEED [TELEMETRY-FOLDER]. Every result must be a defined one, and the one that a small model of the
 * handles expects. Prints how often each result came; the exit status is 1 after the first that is wrong. */
#define _GNU_SOURCE
#include "apus.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HANDLES = 8, CODES = 16 };

typedef struct {
    apus_waiter *handle; /* NULL: never made */
    int alive, begun, waited, watches, watching[2];
    uint32_t wakes;
} slot;

static slot slots[HANDLES];
static int pair[2][2];
static const char *root;
static uint64_t state, calls, results[CODES + 4];

static uint64_t next(void) { /* xorshift64*: G. Marsaglia, "Xorshift RNGs", 2003, and S. Vigna's multiplier */
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * UINT64_C(0x2545F4914F6CDD1D);
}

static uint32_t below(uint32_t bound) { return (uint32_t)((next() >> 32) % bound); }
static int chance(uint32_t in) { return below(in) == 0; }

/* Any number, the edges more often. */
static uint64_t any(void) {
    switch (below(6)) {
    case 0: return 0;
    case 1: return UINT64_MAX - below(3);
    case 2: return UINT64_C(1) << below(64);
    case 3: return apus_now() - below(1000000);
    case 4: return below(100);
    default: return next();
    }
}

static void wrong(const char *what, int got) {
    fprintf(stderr, "call %llu: %s: got %d (%s)\n", (unsigned long long)calls, what, got, apus_error());
    exit(1);
}

/* Counts a result, and says whether it was a success. */
static int defined(const char *what, int got) {
    calls++;
    if (got >= 0) {
        if (got > APUS_BLOCK) wrong(what, got);
        results[CODES + got]++;
        return 1;
    }
    if (got < APUS_E_UNSUPPORTED - 1 || got == APUS_E_INTERNAL) wrong(what, got);
    if (apus_error()[0] == 0 || apus_strerror(got)[0] == 0) wrong("an error without a text", got);
    results[-got]++;
    return 0;
}

static void expect(const char *what, int got, int code) {
    if (got != code) wrong(what, got);
}

/* A handle, and the code that any call with it returns; 0 if it is alive. */
static apus_waiter *pick(int *which, int *code) {
    *which = (int)below(HANDLES);
    slot *at = &slots[*which];
    *code = 0;
    if (chance(20)) {
        static char no_handle[64];
        *which = -1;
        *code = chance(2) ? APUS_E_NULL : APUS_E_HANDLE;
        if (*code == APUS_E_NULL) return NULL;
        if (chance(2)) return (apus_waiter *)(void *)(no_handle + below(64));
        return (apus_waiter *)(uintptr_t)(next() | 1);
    }
    if (at->handle == NULL) *code = APUS_E_NULL;
    else if (!at->alive) *code = APUS_E_HANDLE;
    return at->handle;
}

static void make(void) {
    slot *at = &slots[chance(2) ? below(HANDLES) : calls % HANDLES];
    static const char *const modes[] = {NULL, "adaptive", "poll", "interrupt", "backoff=20us", "hybrid300", "nonsense",
                                        "backoff=99ms", "adaptive=p99=20us"};
    static const char *const goals[] = {NULL, NULL, "p99=30us", "p99.9=60us", "p100=1us", "", "p50=5us"};
    apus_config config;
    memset(&config, 0, sizeof config);
    config.size = sizeof config;
    config.wakes = chance(2) ? APUS_WAKES_WATCHED : below(3);
    /* Short, so that many calls take little time. */
    config.longest_block_ns = 1000 + below(30000);
    if (chance(3)) { /* anything */
        config.mode = modes[below(sizeof modes / sizeof *modes)];
        config.goal = goals[below(sizeof goals / sizeof *goals)];
        if (chance(4)) config.size = (size_t)below(300);
        if (chance(4)) config.ring_descriptors = (uint32_t)any();
        if (chance(4)) config.peak_pps = any();
        if (chance(4)) config.wakes = (uint32_t)any();
        if (chance(4)) config.profile = "{\"schema\": \"apus.platform/2\"}";
        if (chance(4)) config.profile_path = "/nowhere/profile";
        if (chance(4)) config.reserved = (uint32_t)any();
        if (chance(4)) config.flags = (uint32_t)any() & 3;
        if (chance(4)) config.burst = (uint32_t)any();
        if (chance(4)) config.app = "random\xff";
    } else { /* what is right */
        config.mode = modes[below(6)];
        config.goal = below(6) > 1 ? NULL : config.mode && strcmp(config.mode, "adaptive") ? NULL : "p99=30us";
        if (chance(2)) config.burst = 1 + below(64);
        if (chance(4)) config.flags = APUS_KEEP_TIMER_SLACK;
    }
    if (at->alive) expect("freeing a waiter", apus_waiter_free(at->handle), 0);
    memset(at, 0, sizeof *at);
    if (root && chance(3)) {
        static const char *const names[] = {"a", "b", "a/b"};
        config.name = names[below(3)];
        config.telemetry_root = root;
        config.worker = below(3);
    }
    uint32_t wakes = config.wakes;
    if (config.size > sizeof config) config.size = sizeof config;
    int got = apus_waiter_new(chance(100) ? NULL : &config, &at->handle);
    at->alive = defined("apus_waiter_new", got);
    at->wakes = wakes;
    if (!at->alive && at->handle != NULL) wrong("a failed apus_waiter_new leaves a handle", got);
}

static void queues_of(apus_queue *queues, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        memset(&queues[i], 0, sizeof queues[i]);
        if (chance(2)) continue;
        queues[i].received = chance(3) ? (uint32_t)any() : below(65);
        if (chance(8)) queues[i].fill = (uint32_t)any();
        if (chance(8)) queues[i].stamped = below(4);
        if (chance(8)) queues[i].first_ns = any();
        if (chance(8)) queues[i].last_ns = any();
        if (chance(8)) queues[i].picked_up_ns = any();
        if (chance(50)) queues[i].reserved = 1;
    }
}

/* A call of a living waiter succeeded or was refused for its arguments. */
static void check_done(const char *what, int got, const apus_done *done) {
    if (got < 0) {
        if (done->reserved != 77) wrong("a failed wait wrote its result", got);
        return;
    }
    if (done->kind != (uint32_t)got || done->ended_ns < done->began_ns || apus_reason_name(done->reason) == NULL ||
        done->woken > APUS_WOKEN_BY_ERROR || (got == APUS_POLL) != (done->woken == APUS_WOKEN_NOT))
        wrong(what, got);
}

static void *from_elsewhere(void *handle) {
    return (void *)(intptr_t)apus_wait((apus_waiter *)handle, 0, NULL);
}

static void one(void) {
    int which, code;
    apus_queue queues[APUS_MAX_QUEUES];
    uint32_t count = chance(20) ? (uint32_t)any() : 1 + below(chance(4) ? APUS_MAX_QUEUES : 2);
    apus_done done;
    apus_decision decision;
    memset(&done, 0, sizeof done);
    done.reserved = 77;
    if (chance(60) || (slots[calls % HANDLES].handle == NULL && chance(4))) {
        make();
        return;
    }
    apus_waiter *handle = pick(&which, &code);
    slot *at = which < 0 ? NULL : &slots[which];
    int got;
    switch (below(12)) {
    case 0:
    case 1:
    case 2:
    case 3:
        got = apus_wait(handle, chance(3) ? (uint32_t)any() : 0, chance(4) ? NULL : &done);
        defined("apus_wait", got);
        if (code) expect("apus_wait of no handle", got, code);
        else if (at->begun) expect("apus_wait within a wait", got, APUS_E_ORDER);
        else if (got < 0) wrong("apus_wait", got);
        else at->waited = 1;
        return;
    case 4:
    case 5:
        queues_of(queues, count <= APUS_MAX_QUEUES ? count : 0);
        got = apus_wait_queues(handle, chance(40) ? NULL : queues, count, &done);
        defined("apus_wait_queues", got);
        if (code) expect("apus_wait_queues of no handle", got, code);
        else check_done("apus_wait_queues", got, &done);
        if (!code && got >= 0 && at->begun) wrong("apus_wait_queues within a wait", got);
        if (!code && got >= 0) at->waited = 1;
        return;
    case 6:
    case 7:
        queues_of(queues, count <= APUS_MAX_QUEUES ? count : 0);
        got = apus_wait_begin(handle, queues, count, chance(40) ? NULL : &decision);
        defined("apus_wait_begin", got);
        if (code) expect("apus_wait_begin of no handle", got, code);
        else if (got >= 0) {
            if (at->begun) wrong("two apus_wait_begin in a row", got);
            at->begun = at->waited = 1;
        }
        return;
    case 8:
    case 9: {
        uint32_t kind = chance(6) ? (uint32_t)any() : below(4);
        got = apus_wait_end(handle, kind, chance(2) ? 0 : any(), &done);
        defined("apus_wait_end", got);
        if (code) expect("apus_wait_end of no handle", got, code);
        else {
            check_done("apus_wait_end", got, &done);
            if (kind <= APUS_BLOCK && !at->begun) expect("apus_wait_end alone", got, APUS_E_ORDER);
            if (got >= 0) at->begun = 0;
        }
        return;
    }
    case 10: {
        int end = (int)below(2), fd = chance(10) ? (int)any() : pair[end][0];
        if (chance(2)) {
            got = apus_watch(handle, fd);
            defined("apus_watch", got);
            if (code) expect("apus_watch of no handle", got, code);
            else if (at->begun) expect("apus_watch within a wait", got, APUS_E_ORDER);
            else if (at->wakes != APUS_WAKES_WATCHED) expect("apus_watch where nothing is watched", got, APUS_E_CONFIG);
            else if (fd == pair[end][0]) expect("apus_watch", got, at->watching[end] ? APUS_E_CONFIG : 0);
            if (!code && got == 0 && fd == pair[end][0]) at->watching[end] = 1;
            if (!code && got == 0 && fd != pair[end][0] && apus_unwatch(handle, fd) != 0) wrong("apus_unwatch", got);
        } else {
            got = apus_unwatch(handle, pair[end][0]);
            defined("apus_unwatch", got);
            if (code) expect("apus_unwatch of no handle", got, code);
            else if (at->begun) expect("apus_unwatch within a wait", got, APUS_E_ORDER);
            else expect("apus_unwatch", got, at->watching[end] ? 0 : APUS_E_CONFIG);
            if (!code && !at->begun) at->watching[end] = 0;
        }
        return;
    }
    default:
        switch (below(6)) {
        case 4: {
            uint32_t wakes = chance(8) ? (uint32_t)any() : below(3);
            got = apus_set_wakes(handle, wakes);
            defined("apus_set_wakes", got);
            if (code) expect("apus_set_wakes of no handle", got, code);
            else if (wakes > APUS_WAKES_NOTHING) expect("apus_set_wakes", got, APUS_E_CONFIG);
            else expect("apus_set_wakes", got, at->begun ? APUS_E_ORDER : 0);
            if (got == 0) at->wakes = wakes;
            return;
        }
        case 0:
            got = apus_count(handle, any(), any(), any(), any());
            defined("apus_count", got);
            expect("apus_count", got, code);
            return;
        case 1:
            got = apus_waiter_free(handle);
            defined("apus_waiter_free", got);
            expect("apus_waiter_free", got, code);
            if (!code) {
                expect("freeing twice", apus_waiter_free(handle), APUS_E_HANDLE);
                at->alive = at->begun = 0;
            }
            return;
        case 2: /* the pipe's other end writes, or somebody reads */
            if (chance(2)) {
                if (write(pair[below(2)][1], "x", 1) < 0) return;
            } else {
                char into[64];
                if (read(pair[below(2)][0], into, sizeof into) < 0) return;
            }
            return;
        case 3: {
            if (code || !at->waited || !chance(10)) return;
            pthread_t thread;
            void *result;
            if (pthread_create(&thread, NULL, from_elsewhere, handle) || pthread_join(thread, &result)) exit(3);
            got = (int)(intptr_t)result;
            calls++;
            if (got >= 0 || got < APUS_E_INTERNAL) wrong("another thread's wait", got);
            expect("another thread's wait", got, APUS_E_THREAD);
            return;
        }
        default: {
            static uint64_t word;
            got = apus_watch_memory(handle, chance(4) ? NULL : &word, any(), any());
            defined("apus_watch_memory", got);
            if (code && code != got) wrong("apus_watch_memory of no handle", got);
            if (!code && at->begun) expect("apus_watch_memory within a wait", got, APUS_E_ORDER);
            if (!code && got == 0) expect("ending it", apus_watch_memory(handle, NULL, 0, 0), 0);
            return;
        }
        }
    }
}

/* The low level: times that go anywhere. */
static void decisions(uint64_t count) {
    apus_config config;
    memset(&config, 0, sizeof config);
    config.size = sizeof config;
    apus_policy *policy = NULL;
    uint64_t now = 0;
    for (uint64_t i = 0; i < count; i++) {
        if (policy == NULL || chance(500)) {
            static const char *const modes[] = {"adaptive=p99=50us", "interrupt", "backoff=1ms", "hybrid300", "poll"};
            if (policy && apus_policy_free(policy) != 0) wrong("apus_policy_free", 0);
            if (policy) expect("freeing a policy twice", apus_policy_free(policy), APUS_E_HANDLE);
            config.mode = modes[below(5)];
            config.wakes = below(3);
            expect("apus_policy_new", apus_policy_new(&config, &policy), 0);
            now = 0;
        }
        uint64_t then = now;
        now = chance(50) ? any() : now + below(200000);
        apus_queue queues[4];
        queues_of(queues, 4);
        for (int q = 0; q < 4; q++) {
            if (chance(8)) continue;
            queues[q].picked_up_ns = now;
            queues[q].first_ns = queues[q].last_ns = now - (now ? below(100000) % now : 0);
        }
        apus_ended ended;
        memset(&ended, 0, sizeof ended);
        ended.began_ns = chance(20) ? any() : then;
        ended.ended_ns = chance(20) ? any() : now;
        ended.until_ns = chance(4) ? any() : now - (now ? below(20000) % now : 0);
        ended.spent_ns = chance(4) ? any() : APUS_UNKNOWN;
        ended.kind = chance(20) ? (uint32_t)any() : 1 + below(3);
        apus_decision decision = {0, 99, 0};
        int got = apus_decide(policy, now, queues, 1 + below(4), chance(3) ? NULL : &ended, &decision);
        if (!defined("apus_decide", got)) {
            if (decision.kind != 99) wrong("a failed apus_decide wrote its result", got);
            now = then;
        } else if (decision.kind > APUS_BLOCK || apus_reason_name(decision.reason) == NULL || now < then) {
            wrong("apus_decide", got);
        }
    }
    apus_policy_free(policy);
}

int main(int argc, char **argv) {
    uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 10) : 10000;
    state = argc > 2 ? strtoull(argv[2], NULL, 10) * 2 + 1 : 1;
    root = argc > 3 ? argv[3] : NULL;
    for (int i = 0; i < 2; i++)
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair[i])) return 3;
    while (calls < count) one();
    printf("%llu calls of waiters, %llu made\n", (unsigned long long)count, (unsigned long long)calls);
    for (int i = 0; i < HANDLES; i++)
        if (slots[i].alive) expect("freeing a waiter", apus_waiter_free(slots[i].handle), 0);
    decisions(count);
    for (int i = 1; i < CODES; i++)
        if (results[i]) printf("%10llu %s\n", (unsigned long long)results[i], apus_strerror(-i));
    for (int i = 0; i < 4; i++) printf("%10llu %s\n", (unsigned long long)results[CODES + i], apus_kind_name((uint32_t)i));
    return 0;
}
