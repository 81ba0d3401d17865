/* libapus-dpdk in a process with virtual ports: dpdk TEST LCORES [ARGUMENT]. LCORES is the EAL's --lcores, with lcores 0 and 1.
 * Prints what it saw; the exit status is 1 after the first thing that is wrong. */
#include <apus_dpdk.h>

#ifdef FAILING
#include <dlfcn.h>
#endif
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_launch.h>

#define CHECK(what)                                                                                        \
    do {                                                                                                   \
        if (!(what)) {                                                                                     \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #what, apus_dpdk_error());             \
            exit(1);                                                                                       \
        }                                                                                                  \
    } while (0)

_Static_assert(sizeof(apus_dpdk_counts) == 80, "apus_dpdk_counts keeps its size under one soname");

enum { QUEUES = 2, BURST = 32 };

static struct rte_mempool *pool;
static uint16_t ring, other_ring, endless;

static uint16_t port_of(const char *device) {
    uint16_t port;
    struct rte_eth_dev_info info;
    RTE_ETH_FOREACH_DEV(port) {
        if (rte_eth_dev_info_get(port, &info) == 0 && strcmp(rte_dev_name(info.device), device) == 0) return port;
    }
    fprintf(stderr, "no device %s\n", device);
    exit(1);
}

static void start_port(uint16_t port, uint16_t queues) {
    struct rte_eth_conf config = {.intr_conf.rxq = 1};
    CHECK(rte_eth_dev_configure(port, queues, queues, &config) == 0);
    for (uint16_t queue = 0; queue < queues; queue++) {
        CHECK(rte_eth_rx_queue_setup(port, queue, 512, 0, NULL, pool) == 0);
        CHECK(rte_eth_tx_queue_setup(port, queue, 512, 0, NULL) == 0);
    }
    CHECK(rte_eth_dev_start(port) == 0);
}

static apus_dpdk_counts counts_of(unsigned lcore) {
    apus_dpdk_counts counts = {.size = sizeof counts};
    CHECK(apus_dpdk_lcore_counts(lcore, &counts) == 0);
    return counts;
}

static uint64_t waits(apus_dpdk_counts counts) {
    return counts.waits[APUS_PAUSE] + counts.waits[APUS_SLEEP] + counts.waits[APUS_BLOCK];
}

static void show(const char *what, apus_dpdk_counts counts) {
    printf("%s: %" PRIu64 " packets, %" PRIu64 " polls on, %" PRIu64 " pauses, %" PRIu64 " sleeps, %" PRIu64 " blocks, raced %" PRIu64
           ", strangers %" PRIu64 ", wakes %u, error %d\n",
           what, counts.packets, counts.waits[0], counts.waits[1], counts.waits[2], counts.waits[3], counts.raced,
           counts.strangers, counts.wakes, counts.error);
}

/* What lcore 1 does: polls the queues, and frees what it gets. */
static struct {
    volatile bool stop, cancelled;
    volatile uint32_t queues; /* how many of these it polls */
    struct { uint16_t port, queue; } queue[4];
    uint64_t received, late_ns[1 << 14], spent_ns;
} worker;

static int work(void *arg) {
    struct rte_mbuf *frames[BURST];
    struct timespec spent;
    (void)arg;
    if (worker.cancelled) CHECK(pthread_cancel(pthread_self()) == 0);
    while (!worker.stop) {
        for (uint32_t i = 0; i < worker.queues; i++) {
            uint16_t count = rte_eth_rx_burst(worker.queue[i].port, worker.queue[i].queue, frames, BURST);
            for (uint16_t at = 0; at < count; at++) {
                uint64_t sent = *rte_pktmbuf_mtod(frames[at], uint64_t *);
                worker.late_ns[worker.received++ % RTE_DIM(worker.late_ns)] = apus_now() - sent;
                rte_pktmbuf_free(frames[at]);
            }
        }
    }
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL); /* the EAL's thread goes on */
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
    worker.spent_ns = (uint64_t)spent.tv_sec * 1000000000 + (uint64_t)spent.tv_nsec;
    return 0;
}

static bool cancel_worker;

static void worker_starts(uint16_t port, uint16_t queue) {
    memset(&worker, 0, sizeof worker);
    worker.cancelled = cancel_worker;
    worker.queue[0].port = port;
    worker.queue[0].queue = queue;
    worker.queues = 1;
    CHECK(rte_eal_remote_launch(work, NULL, 1) == 0);
}

static void worker_ends(void) {
    worker.stop = true;
    CHECK(rte_eal_wait_lcore(1) == 0);
}

static void send_one(uint16_t port) {
    struct rte_mbuf *frame = rte_pktmbuf_alloc(pool);
    CHECK(frame != NULL && rte_pktmbuf_append(frame, 60) != NULL);
    *rte_pktmbuf_mtod(frame, uint64_t *) = apus_now();
    while (rte_eth_tx_burst(port, 0, &frame, 1) != 1) usleep(100);
}

/* Waits for what another thread does, as long as it takes. */
#define UNTIL(what)                                                           \
    for (uint64_t end = apus_now() + 30000000000ull; !(what); usleep(1000)) { \
        CHECK(apus_now() < end && #what != NULL);                             \
    }

static int ascending(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static apus_config configuration(const char *goal) {
    apus_config config;
    memset(&config, 0, sizeof config);
    config.size = sizeof config;
    config.goal = goal;
    return config;
}

static bool says(const char *part) { return strstr(apus_dpdk_error(), part) != NULL; }

/* Each misuse returns its code, with a text, and changes nothing. */
static void errors(const char *arg) {
    apus_config config = configuration("p99=60us"), wrong = configuration("p99=often"), differs = configuration("p99=70us");
    apus_dpdk_counts counts = {.size = 1};
    (void)arg;
    CHECK(apus_dpdk_queue_enable(77, ring, 0, NULL) == APUS_DPDK_E_LCORE && says("lcore 77"));
    CHECK(apus_dpdk_queue_enable(RTE_MAX_LCORE, ring, 0, NULL) == APUS_DPDK_E_LCORE);
    CHECK(apus_dpdk_queue_enable(LCORE_ID_ANY, ring, 0, NULL) == APUS_DPDK_E_LCORE);
    CHECK(apus_dpdk_queue_enable(1, 999, 0, NULL) == APUS_DPDK_E_QUEUE && says("port 999"));
    CHECK(apus_dpdk_queue_enable(1, ring, QUEUES, NULL) == APUS_DPDK_E_QUEUE && says("2 receive queues"));
    CHECK(apus_dpdk_queue_enable(1, ring, 0, &wrong) == APUS_E_CONFIG && says("often"));
    wrong.size = 7;
    CHECK(apus_dpdk_queue_enable(1, ring, 0, &wrong) == APUS_E_SIZE && says("7"));
    CHECK(counts_of(1).queues == 0);
    CHECK(apus_dpdk_queue_disable(1, ring, 0) == APUS_DPDK_E_DISABLED && says("not enabled"));
    CHECK(apus_dpdk_lcore_frequency(1, 1) == APUS_DPDK_E_DISABLED);
    CHECK(apus_dpdk_queue_enable(1, ring, 0, &config) == 0);
    CHECK(apus_dpdk_queue_enable(1, ring, 0, &config) == APUS_DPDK_E_ENABLED && says("on lcore 1"));
    CHECK(apus_dpdk_queue_enable(0, ring, 0, &config) == APUS_DPDK_E_ENABLED);
    CHECK(apus_dpdk_queue_enable(1, ring, 1, &differs) == APUS_E_CONFIG && says("the same, or NULL"));
    CHECK(apus_dpdk_queue_enable(1, ring, 1, NULL) == 0);
    CHECK(apus_dpdk_queue_enable(1, other_ring, 0, &config) == 0 && counts_of(1).queues == 3);
    CHECK(apus_dpdk_queue_disable(0, ring, 0) == APUS_DPDK_E_LCORE && says("on lcore 1, not on 0"));
    CHECK(apus_dpdk_queue_disable(77, ring, 0) == APUS_DPDK_E_LCORE);
    CHECK(apus_dpdk_lcore_counts(1, NULL) == APUS_E_NULL);
    CHECK(apus_dpdk_lcore_counts(1, &counts) == APUS_E_SIZE);
    CHECK(apus_dpdk_lcore_work(77, NULL, NULL) == APUS_DPDK_E_LCORE);
    int scaled = apus_dpdk_lcore_frequency(1, 1);
    CHECK(scaled == 0 || scaled == APUS_E_UNSUPPORTED);
    printf("frequencies: %s\n", scaled == 0 ? "set" : apus_dpdk_error());
    CHECK(apus_dpdk_lcore_frequency(1, 0) == 0);
    CHECK(apus_dpdk_queue_disable(1, ring, 0) == 0);
    CHECK(apus_dpdk_queue_disable(1, ring, 0) == APUS_DPDK_E_DISABLED);
    CHECK(apus_dpdk_queue_disable(1, ring, 1) == 0 && apus_dpdk_queue_disable(1, other_ring, 0) == 0);
    CHECK(counts_of(1).queues == 0);
    CHECK(apus_dpdk_queue_enable(1, ring, 0, &differs) == 0 && apus_dpdk_queue_disable(1, ring, 0) == 0);
    for (int code = -120; code <= 0; code++) CHECK(apus_dpdk_strerror(code) != NULL && apus_dpdk_strerror(code)[0] != 0);
}

/* Packets every 200 us: the lcore sleeps between, and gets them all. */
static void sleeps(const char *arg) {
    apus_config config = configuration("p99=60us");
    const uint64_t count = 3000;
    (void)arg;
    CHECK(apus_dpdk_queue_enable(1, ring, 0, &config) == 0);
    worker_starts(ring, 0);
    uint64_t began = apus_now();
    for (uint64_t i = 0; i < count; i++) {
        uint64_t at = began + i * 200000;
        struct timespec until = {.tv_sec = (time_t)(at / 1000000000), .tv_nsec = (long)(at % 1000000000)};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
        send_one(ring);
    }
    UNTIL(worker.received == count);
    uint64_t lasted = apus_now() - began;
    /* On a machine too busy for the goal it polled meanwhile, but not for ever. */
    UNTIL(counts_of(1).waits[APUS_SLEEP] > count / 10);
    worker_ends();
    apus_dpdk_counts counts = counts_of(1);
    show("every 200 us", counts);
    qsort(worker.late_ns, count, sizeof worker.late_ns[0], ascending);
    printf("p50 %" PRIu64 " ns, p99 %" PRIu64 " ns, CPU %" PRIu64 " %%\n", worker.late_ns[count / 2], worker.late_ns[count * 99 / 100],
           100 * worker.spent_ns / lasted);
    CHECK(counts.packets == count && counts.error == 0 && counts.wakes == APUS_DPDK_TIMER);
    CHECK(counts.waits[APUS_BLOCK] == 0);
    /* However busy the machine: nobody was forgotten. */
    CHECK(worker.late_ns[count / 2] < 30000000);
    CHECK(apus_dpdk_queue_disable(1, ring, 0) == 0);
}

/* An lcore waits only when all its queues are empty. */
static void several_queues(const char *arg) {
    (void)arg;
    CHECK(apus_dpdk_queue_enable(1, ring, 0, NULL) == 0 && apus_dpdk_queue_enable(1, endless, 0, NULL) == 0);
    worker_starts(ring, 0);
    worker.queue[1].port = endless;
    worker.queues = 2;
    UNTIL(worker.received > 100000);
    apus_dpdk_counts counts = counts_of(1);
    show("one of two is never empty", counts);
    CHECK(waits(counts) == 0);
    /* One that is enabled and not polled could have packets: no wait either. */
    worker.queues = 1;
    usleep(50000);
    uint64_t before = waits(counts_of(1));
    usleep(50000);
    CHECK(waits(counts_of(1)) == before);
    CHECK(apus_dpdk_queue_disable(1, endless, 0) == 0);
    UNTIL(waits(counts_of(1)) > before + 100);
    CHECK(apus_dpdk_queue_enable(1, other_ring, 0, NULL) == 0);
    worker.queue[1].port = other_ring;
    worker.queues = 2;
    before = waits(counts_of(1));
    UNTIL(waits(counts_of(1)) > before + 100);
    /* Either of them is served. */
    uint64_t received = worker.received;
    send_one(ring);
    send_one(other_ring);
    UNTIL(worker.received == received + 2);
    worker_ends();
    show("both empty", counts_of(1));
    CHECK(apus_dpdk_queue_disable(1, ring, 0) == 0 && apus_dpdk_queue_disable(1, other_ring, 0) == 0);
}

static volatile uint64_t can_wait_ns;
static volatile uint64_t asked, soon;

static uint64_t other_work(unsigned lcore, void *arg) {
    static uint64_t last;
    uint64_t now = apus_now();
    CHECK(lcore == 1 && arg == &asked);
    soon += now - last < 500000;
    last = now;
    asked++;
    return can_wait_ns;
}

/* Nothing waits for the lcore's other work for longer than it says. */
static void work_of_others(const char *arg) {
    apus_config config = configuration(NULL);
    (void)arg;
    config.mode = "interrupt"; /* blocks at once; without interrupts, for 1 ms */
    CHECK(apus_dpdk_queue_enable(1, ring, 0, &config) == 0);
    CHECK(apus_dpdk_lcore_work(1, other_work, (void *)(uintptr_t)&asked) == 0);
    worker_starts(ring, 0);
    UNTIL(asked > 10000);
    CHECK(waits(counts_of(1)) == 0);
    can_wait_ns = 30000;
    uint64_t before = asked, were = soon;
    UNTIL(asked > before + 1000);
    show("other work in 30 us", counts_of(1));
    CHECK(waits(counts_of(1)) > 900 && soon - were > 500);
    can_wait_ns = APUS_NEVER;
    usleep(20000);
    before = asked, were = soon;
    UNTIL(asked > before + 200);
    CHECK(soon - were < 50);
    CHECK(apus_dpdk_lcore_work(1, NULL, NULL) == 0);
    before = asked;
    usleep(20000);
    CHECK(asked == before);
    worker_ends();
    CHECK(apus_dpdk_queue_disable(1, ring, 0) == 0);
}

/* Queues are enabled and disabled while they are polled, and no packet is lost. */
static void changes_while_running(const char *arg) {
    apus_config config = configuration("p99=60us");
    uint64_t sent = 0, seen = 0;
    (void)arg;
    worker_starts(ring, 0);
    worker.queue[1].port = ring;
    worker.queue[1].queue = 1;
    worker.queues = 2;
    for (int i = 0; i < 400; i++) {
        CHECK(apus_dpdk_queue_enable(1, ring, 0, &config) == 0);
        CHECK(i % 2 == 0 || apus_dpdk_queue_enable(1, ring, 1, &config) == 0);
        for (int one = 0; one < 5; one++, sent++) send_one(ring);
        if (i % 7 == 0) usleep(2000);
        CHECK(i % 2 == 0 || apus_dpdk_queue_disable(1, ring, 1) == 0);
        seen += counts_of(1).packets;
        CHECK(counts_of(1).error == 0);
        CHECK(apus_dpdk_queue_disable(1, ring, 0) == 0);
        for (int one = 0; one < 5; one++, sent++) send_one(ring);
    }
    UNTIL(worker.received == sent);
    worker_ends();
    printf("%" PRIu64 " packets, %" PRIu64 " of them seen by the callback\n", sent, seen);
    CHECK(seen > 0 && seen < sent);
}

/* Polls by another lcore neither wait nor count. */
static void strangers(const char *arg) {
    struct rte_mbuf *frames[BURST];
    (void)arg;
    CHECK(apus_dpdk_queue_enable(1, ring, 0, NULL) == 0);
    for (int i = 0; i < 1000; i++) CHECK(rte_eth_rx_burst(ring, 0, frames, BURST) == 0);
    apus_dpdk_counts counts = counts_of(1);
    CHECK(counts.strangers == 1000 && waits(counts) == 0 && counts.waits[APUS_POLL] == 0);
    CHECK(apus_dpdk_queue_disable(1, ring, 0) == 0);
    CHECK(rte_eth_rx_burst(ring, 0, frames, BURST) == 0 && counts_of(1).strangers == 1000);
}

/* A port that is stopped, started, and closed. */
static void ports_end(const char *arg) {
    (void)arg;
    CHECK(apus_dpdk_queue_enable(1, ring, 0, NULL) == 0 && apus_dpdk_queue_enable(1, endless, 0, NULL) == 0);
    CHECK(rte_eth_dev_stop(ring) == 0 && rte_eth_dev_start(ring) == 0);
    CHECK(counts_of(1).queues == 2);
    CHECK(rte_eth_dev_stop(endless) == 0 && rte_eth_dev_close(endless) == 0);
    CHECK(counts_of(1).queues == 1);
    CHECK(apus_dpdk_queue_disable(1, endless, 0) == APUS_DPDK_E_DISABLED);
    worker_starts(ring, 0);
    UNTIL(waits(counts_of(1)) > 100);
    send_one(ring);
    UNTIL(worker.received == 1);
    worker_ends();
    CHECK(apus_dpdk_queue_disable(1, ring, 0) == 0);
}

/* A port that is closed and opened again under its number, with the callback that DPDK kept: each packet counts once. */
static void ports_return(const char *arg) {
    struct rte_mbuf *frames[BURST];
    uint64_t received = 0;
    (void)arg;
    CHECK(apus_dpdk_queue_enable(0, endless, 0, NULL) == 0);
    CHECK(rte_eth_dev_stop(endless) == 0 && rte_eth_dev_close(endless) == 0);
    CHECK(rte_dev_probe("net_null8") == 0 && port_of("net_null8") == endless);
    start_port(endless, 1);
    CHECK(apus_dpdk_queue_enable(0, endless, 0, NULL) == 0);
    for (int i = 0; i < 100; i++) {
        uint16_t count = rte_eth_rx_burst(endless, 0, frames, BURST);
        for (uint16_t at = 0; at < count; at++) rte_pktmbuf_free(frames[at]);
        received += count;
    }
    CHECK(received == 100 * BURST && counts_of(0).packets == received);
    CHECK(apus_dpdk_queue_disable(0, endless, 0) == 0);
}

/* Another thread gets the lock of an lcore that waits nearly always, after at most one wait. */
static void asleep(const char *arg) {
    (void)arg;
    CHECK(apus_dpdk_queue_enable(1, ring, 0, NULL) == 0);
    worker_starts(ring, 0);
    UNTIL(waits(counts_of(1)) > 100);
    uint64_t began = apus_now();
    for (int i = 0; i < 100; i++) CHECK(apus_dpdk_lcore_work(1, NULL, NULL) == 0);
    printf("100 changes in %" PRIu64 " ns\n", apus_now() - began);
    CHECK(apus_now() - began < 10000000000ull);
    worker_ends();
    CHECK(apus_dpdk_queue_disable(1, ring, 0) == 0);
}

/* Changes lcore 1 with a cancellation pending, which would take effect at the first cancellation point. */
static void *changes(void *finished) {
    CHECK(pthread_cancel(pthread_self()) == 0);
    for (int i = 0; i < 20; i++) {
        CHECK(apus_dpdk_queue_enable(1, ring, 1, NULL) == 0);
        CHECK(apus_dpdk_lcore_work(1, NULL, NULL) == 0);
        CHECK(apus_dpdk_queue_disable(1, ring, 1) == 0);
    }
    *(bool *)finished = true;
    pthread_testcancel();
    return NULL;
}

/* Neither an lcore nor a thread that changes it is cancelled while it holds a lock. */
static void cancellation(const char *arg) {
    apus_config config = configuration(NULL);
    pthread_t thread;
    void *result;
    bool finished = false;
    (void)arg;
    config.mode = "interrupt"; /* blocks at once; without interrupts, for 1 ms */
    CHECK(apus_dpdk_queue_enable(1, ring, 0, &config) == 0);
    cancel_worker = true;
    worker_starts(ring, 0);
    UNTIL(waits(counts_of(1)) > 20);
    CHECK(pthread_create(&thread, NULL, changes, &finished) == 0);
    CHECK(pthread_join(thread, &result) == 0);
    CHECK(finished && result == PTHREAD_CANCELED);
    worker_ends();
    CHECK(apus_dpdk_queue_disable(1, ring, 0) == 0);
}

#ifdef FAILING
static volatile uint64_t failing;

/* Takes the place of libapus's function, and fails `failing` times. */
int apus_wait_begin(apus_waiter *waiter, const apus_queue *queues, uint32_t count, apus_decision *decision) {
    static int (*real)(apus_waiter *, const apus_queue *, uint32_t, apus_decision *);
    if (real == NULL) *(void **)&real = dlsym(RTLD_NEXT, "apus_wait_begin");
    if (failing == 0) return real(waiter, queues, count, decision);
    failing--;
    return APUS_E_TIME;
}

/* An error that passes only interrupts the waits. One that lasts ends them, and can be seen. */
static void lasting_errors(const char *arg) {
    (void)arg;
    failing = 999;
    CHECK(apus_dpdk_queue_enable(1, ring, 0, NULL) == 0);
    worker_starts(ring, 0);
    UNTIL(failing == 0 && waits(counts_of(1)) > 20);
    CHECK(counts_of(1).error == 0);
    failing = UINT64_MAX;
    UNTIL(counts_of(1).error == APUS_E_TIME);
    worker_ends();
    CHECK(apus_dpdk_queue_disable(1, ring, 0) == 0);
}
#endif

/* The strings of a configuration count by what they say, and the fields of a newer header if they are not 0. */
static void configurations(const char *arg) {
    char goal[] = "p99=60us", same[] = "p99=60us";
    apus_config first = configuration(goal), second = configuration(same), defaults = {.size = sizeof defaults};
    (void)arg;
    CHECK(apus_dpdk_queue_enable(0, ring, 0, &first) == 0);
    CHECK(apus_dpdk_queue_enable(0, ring, 1, &second) == 0);
    CHECK(apus_dpdk_queue_disable(0, ring, 1) == 0);
    goal[4] = '7';
    CHECK(apus_dpdk_queue_enable(0, ring, 1, &first) == APUS_E_CONFIG);
    CHECK(apus_dpdk_queue_enable(0, ring, 1, &second) == 0);
    CHECK(apus_dpdk_queue_disable(0, ring, 0) == 0 && apus_dpdk_queue_disable(0, ring, 1) == 0);
    struct { apus_config config; uint64_t more; } newer = {.config = configuration("p99=70us"), .more = 1};
    newer.config.size = sizeof newer;
    CHECK(apus_dpdk_queue_enable(0, ring, 0, &newer.config) == APUS_E_SIZE && says("older library"));
    newer.more = 0;
    CHECK(apus_dpdk_queue_enable(0, ring, 0, &newer.config) == 0);
    newer.config.size = sizeof newer.config;
    CHECK(apus_dpdk_queue_enable(0, ring, 1, &newer.config) == 0);
    CHECK(apus_dpdk_queue_disable(0, ring, 0) == 0 && apus_dpdk_queue_disable(0, ring, 1) == 0);
    CHECK(apus_dpdk_queue_enable(0, ring, 0, NULL) == 0 && apus_dpdk_queue_enable(0, ring, 1, &defaults) == 0);
    CHECK(apus_dpdk_queue_disable(0, ring, 0) == 0 && apus_dpdk_queue_disable(0, ring, 1) == 0);
}

/* A child process must not touch its parent's. */
static void other_process(const char *arg) {
    struct rte_mbuf *frames[BURST];
    (void)arg;
    CHECK(apus_dpdk_queue_enable(0, ring, 0, NULL) == 0);
    while (waits(counts_of(0)) < 10) rte_eth_rx_burst(ring, 0, frames, BURST);
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 10; i++) rte_eth_rx_burst(ring, 0, frames, BURST);
        bool refused = apus_dpdk_queue_disable(0, ring, 0) == APUS_E_THREAD &&
                       apus_dpdk_queue_enable(0, ring, 1, NULL) == APUS_E_THREAD &&
                       apus_dpdk_lcore_work(0, NULL, NULL) == APUS_E_THREAD;
        bool polls = counts_of(0).error == APUS_E_THREAD && strstr(apus_dpdk_strerror(APUS_E_THREAD), "process");
        _exit(refused && polls ? 0 : 1);
    }
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    CHECK(counts_of(0).error == 0);
    CHECK(apus_dpdk_queue_disable(0, ring, 0) == 0);
}

/* Shows up in telemetry under its name, in the folder `arg`. */
static void telemetry(const char *arg) {
    apus_config config = configuration("p99=60us");
    struct rte_mbuf *frames[BURST];
    char command[512];
    config.name = "dpdk-test";
    config.telemetry_root = arg;
    CHECK(apus_dpdk_queue_enable(0, ring, 0, &config) == 0);
    for (int i = 0; i < 200; i++) rte_eth_rx_burst(ring, 0, frames, BURST);
    snprintf(command, sizeof command, "find %s -type f", arg);
    CHECK(system(command) == 0);
    CHECK(apus_dpdk_queue_disable(0, ring, 0) == 0);
}

/* What the callback costs with full bursts, and with empty ones of a policy that polls. */
static void cost(const char *arg) {
    struct rte_mbuf *frames[BURST];
    uint64_t ticks[2] = {0};
    (void)arg;
    for (int round = 0; round < 10; round++) {
        bool with = round % 2 == 1;
        CHECK(!with || apus_dpdk_queue_enable(0, endless, 0, NULL) == 0);
        uint64_t began = rte_get_tsc_cycles();
        for (int i = 0; i < 200000; i++) {
            uint16_t count = rte_eth_rx_burst(endless, 0, frames, BURST);
            rte_pktmbuf_free_bulk(frames, count);
        }
        ticks[with] += rte_get_tsc_cycles() - began;
        CHECK(!with || (waits(counts_of(0)) == 0 && apus_dpdk_queue_disable(0, endless, 0) == 0));
    }
    double ns = 1e9 / (double)rte_get_tsc_hz() / 1e6;
    printf("%.1f ns a burst of %d without, %.1f ns with\n", (double)ticks[0] * ns, BURST, (double)ticks[1] * ns);
}

static volatile sig_atomic_t stop, again;

static void on_signal(int number) {
    if (number == SIGUSR1) again = 1;
    else stop = 1;
}

/* Returns frames to their sender until a signal comes; SIGUSR1 stops and starts the port. `arg` is the device. */
static void serve(const char *arg) {
    apus_config config = configuration("p99=100us");
    uint16_t port = port_of(arg);
    struct rte_mbuf *frames[BURST];
    uint64_t returned = 0;
    start_port(port, 1);
    CHECK(apus_dpdk_queue_enable(0, port, 0, &config) == 0);
    signal(SIGTERM, on_signal);
    signal(SIGUSR1, on_signal);
    while (!stop) {
        if (again) {
            again = 0;
            CHECK(rte_eth_dev_stop(port) == 0 && rte_eth_dev_start(port) == 0);
        }
        uint16_t count = rte_eth_rx_burst(port, 0, frames, BURST);
        for (uint16_t i = 0; i < count; i++) {
            struct rte_ether_hdr *header = rte_pktmbuf_mtod(frames[i], struct rte_ether_hdr *);
            struct rte_ether_addr address = header->src_addr;
            header->src_addr = header->dst_addr;
            header->dst_addr = address;
        }
        uint16_t sent = count == 0 ? 0 : rte_eth_tx_burst(port, 0, frames, count);
        returned += sent;
        for (uint16_t i = sent; i < count; i++) rte_pktmbuf_free(frames[i]);
    }
    show("served", counts_of(0));
    printf("%" PRIu64 " frames returned\n", returned);
    CHECK(counts_of(0).error == 0);
    rte_eth_dev_stop(port);
    rte_eth_dev_close(port);
}

static const struct {
    const char *name;
    void (*test)(const char *arg);
} tests[] = {
    {"errors", errors},
    {"sleeps", sleeps},
    {"several_queues", several_queues},
    {"work_of_others", work_of_others},
    {"changes_while_running", changes_while_running},
    {"strangers", strangers},
    {"ports_end", ports_end},
    {"ports_return", ports_return},
    {"asleep", asleep},
    {"cancellation", cancellation},
#ifdef FAILING
    {"lasting_errors", lasting_errors},
#endif
    {"configurations", configurations},
    {"other_process", other_process},
    {"telemetry", telemetry},
    {"cost", cost},
    {"serve", serve},
};

int main(int argc, char **argv) {
    const char *arg = argc > 3 ? argv[3] : NULL, *device = arg != NULL && strncmp(arg, "net_", 4) == 0 ? arg : "net_ring2";
    char *eal[] = {argv[0], "--no-huge", "-m", "96", "--no-pci", "--no-shconf", "--no-telemetry", "--log-level=*:error",
                   argc > 2 ? argv[2] : "", "--vdev", "net_ring0", "--vdev", "net_ring1", "--vdev", "net_null0", "--vdev",
                   strdup(device), NULL};
    CHECK(argc > 2 && rte_eal_init(RTE_DIM(eal) - 1, eal) >= 0);
    pool = rte_pktmbuf_pool_create("frames", 8191, 250, 0, RTE_MBUF_DEFAULT_BUF_SIZE, 0);
    CHECK(pool != NULL);
    ring = port_of("net_ring0");
    other_ring = port_of("net_ring1");
    endless = port_of("net_null0");
    start_port(ring, QUEUES);
    start_port(other_ring, 1);
    start_port(endless, 1);
    for (size_t i = 0; i < RTE_DIM(tests); i++) {
        if (strcmp(argv[1], tests[i].name) != 0) continue;
        char only[64];
        snprintf(only, sizeof only, "%.*s", (int)(arg == NULL ? 0 : strcspn(arg, ",")), arg == NULL ? "" : arg);
        tests[i].test(device == arg ? only : arg);
        printf("ok\n");
        fflush(stdout);
        rte_eal_cleanup();
        return 0;
    }
    fprintf(stderr, "no test %s\n", argv[1]);
    return 2;
}
