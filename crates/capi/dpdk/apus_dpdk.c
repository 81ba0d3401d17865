/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * Enables and disables queues. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_errno.h>

#include "lcore.h"

/* Default maximum length of a block in ns, as in apus.h. */
#define LONGEST_NS 100000000
/* Packets of full polls within this time are reported to libapus together, because each report costs about 0.2 us.
 * libapus reserves at most this time for delays that it cannot see. */
#define GATHER_US 10
/* Largest accepted config.size, as in libapus. */
#define MOST_BYTES 4096

static pthread_mutex_t control = PTHREAD_MUTEX_INITIALIZER; /* held while queues are enabled or disabled */
static struct queue *known;                                 /* all queues that were ever enabled */
static pid_t home;                                          /* the process that enabled the first one */
static __thread char said[256];

int failed(int code, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(said, sizeof(said), format, arguments);
	va_end(arguments);
	return code;
}

const char *apus_dpdk_error(void)
{
	return said;
}

const char *apus_dpdk_strerror(int code)
{
	switch (code) {
	case APUS_DPDK_E_LCORE:
		return "there is no such lcore, or the queue belongs to another one";
	case APUS_DPDK_E_QUEUE:
		return "there is no such port or receive queue";
	case APUS_DPDK_E_ENABLED:
		return "the queue is enabled already";
	case APUS_DPDK_E_DISABLED:
		return "the queue is not enabled";
	default:
		return apus_strerror(code);
	}
}

/* Whether this is a child of the process that enabled queues. Its parent may have held a lock during fork(2). */
static bool is_child(void)
{
	return home != 0 && home != getpid();
}

static int refused_to_child(void)
{
	return failed(APUS_E_THREAD, "the queues belong to the parent process: a child cannot change them");
}

/* Takes the lock `control`. Returns the state of cancellation to restore. */
static int take_control(void)
{
	int cancel = defer_cancel();

	pthread_mutex_lock(&control);
	return cancel;
}

static void leave_control(int cancel)
{
	pthread_mutex_unlock(&control);
	restore_cancel(cancel);
}

/* Waits until the lcore has left its callback, in which it may be blocked. The lcore does not enter it again before.
 * The caller has deferred cancellation. */
static void take(struct lcore *lcore)
{
	__atomic_fetch_add(&lcore->wanted, 1, __ATOMIC_RELAXED);
	while (!rte_spinlock_trylock(&lcore->lock))
		usleep(50);
	__atomic_fetch_sub(&lcore->wanted, 1, __ATOMIC_RELAXED);
}

static uint16_t on_poll(uint16_t port, uint16_t number, struct rte_mbuf **packets, uint16_t received, uint16_t most,
			void *arg)
{
	struct queue *queue = arg;
	struct lcore *lcore = __atomic_load_n(&queue->lcore, __ATOMIC_ACQUIRE);

	(void)port, (void)number, (void)packets;
	if (lcore == NULL)
		return received;
	if (unlikely(lcore->id != rte_lcore_id())) {
		__atomic_fetch_add(&lcore->counts.strangers, 1, __ATOMIC_RELAXED);
		return received;
	}
	if (unlikely(__atomic_load_n(&lcore->wanted, __ATOMIC_RELAXED) != 0 || !rte_spinlock_trylock(&lcore->lock)))
		return received;
	if (likely(queue->lcore == lcore))
		lcore_polled(lcore, queue, received, received == most);
	rte_spinlock_unlock(&lcore->lock);
	return received;
}

static int check_lcore(unsigned int lcore)
{
	if (lcore >= RTE_MAX_LCORE || rte_eal_lcore_role(lcore) == ROLE_OFF)
		return failed(APUS_DPDK_E_LCORE, "lcore %u is not one of this process: see the EAL's -l and --lcores", lcore);
	return 0;
}

static struct queue *find(uint16_t port, uint16_t number)
{
	struct queue *queue = known;

	while (queue != NULL && (queue->port != port || queue->queue != number))
		queue = queue->next;
	return queue;
}

/* Creates the lcore's policy, when its first queue is enabled. */
static int begin(struct lcore *lcore, unsigned int id, uint16_t port, const apus_config *config)
{
	apus_config own = {.size = sizeof(own)};
	char name[RTE_ETH_NAME_MAX_LEN];
	int code;

	if (config != NULL)
		own = *config;
	if (own.name != NULL) {
		own.worker = id;
		own.app = own.app == NULL ? "libapus-dpdk" : own.app;
		own.port = own.port == NULL && rte_eth_dev_get_name_by_port(port, name) == 0 ? name : own.port;
	}
	own.wakes = own.wakes == APUS_WAKES_WATCHED ? APUS_WAKES_CALLER : own.wakes;
	code = apus_waiter_new(&own, &lcore->waiter);
	if (code < 0)
		return failed(code, "%s", apus_error());
	lcore->id = id;
	lcore->interrupts = own.wakes == APUS_WAKES_CALLER;
	lcore->longest_ns = own.longest_block_ns == 0 ? LONGEST_NS : own.longest_block_ns;
	lcore->gather = rte_get_tsc_hz() / 1000000 * GATHER_US;
	lcore->epoll = -1;
	lcore->pending = 0;
	lcore->armed = false;
	lcore->open = false;
	lcore->full = false;
	lcore->failed = 0;
	memset(&lcore->counts, 0, sizeof(lcore->counts));
	return 0;
}

/* Removes the queue from its lcore. With the last queue, frees the policy. */
static void leave(struct queue *queue)
{
	struct lcore *lcore = queue->lcore;
	uint32_t at = 0;

	take(lcore);
	lcore_forget_wakes(lcore);
	while (lcore->queues[at] != queue)
		at++;
	lcore->queues[at] = lcore->queues[--lcore->count];
	lcore->empty = 0;
	lcore->round++;
	__atomic_store_n(&queue->lcore, NULL, __ATOMIC_RELEASE);
	if (lcore->count == 0) {
		apus_waiter_free(lcore->waiter);
		lcore->waiter = NULL;
		frequency_end(lcore);
	}
	rte_spinlock_unlock(&lcore->lock);
}

/* Called when a port is closed: disables its queues. */
static int on_destroy(uint16_t port, enum rte_eth_event_type type, void *arg, void *ret)
{
	int cancel;

	(void)type, (void)arg, (void)ret;
	if (is_child())
		return 0;
	cancel = take_control();
	for (struct queue *queue = known; queue != NULL; queue = queue->next)
		queue->closed |= queue->port == port;
	for (struct queue *queue = known; queue != NULL; queue = queue->next)
		if (queue->port == port && queue->lcore != NULL)
			leave(queue);
	leave_control(cancel);
	return 0;
}

static struct queue *make(uint16_t port, uint16_t number)
{
	struct queue *queue = calloc(1, sizeof(*queue));

	if (queue == NULL)
		return NULL;
	if (known == NULL) {
		rte_eth_dev_callback_register(RTE_ETH_ALL, RTE_ETH_EVENT_DESTROY, on_destroy, NULL);
		home = getpid();
	}
	queue->port = port;
	queue->queue = number;
	queue->next = known;
	known = queue;
	return queue;
}

/* The strings of a configuration. */
enum { STRINGS = 8 };

static void strings_of(apus_config *config, const char **all[STRINGS])
{
	const char **strings[STRINGS] = {&config->mode, &config->goal, &config->profile, &config->profile_path,
					 &config->name, &config->app, &config->port, &config->telemetry_root};

	memcpy(all, strings, sizeof(strings));
}

/* Whether two configurations say the same, wherever their strings are. */
static bool is_same(const apus_config *given, const apus_config *kept)
{
	apus_config a = *given, b = *kept;
	const char **of_a[STRINGS], **of_b[STRINGS];

	strings_of(&a, of_a);
	strings_of(&b, of_b);
	for (int i = 0; i < STRINGS; i++) {
		if ((*of_a[i] == NULL) != (*of_b[i] == NULL) || (*of_a[i] != NULL && strcmp(*of_a[i], *of_b[i]) != 0))
			return false;
		*of_a[i] = *of_b[i] = NULL;
	}
	return memcmp(&a, &b, sizeof(a)) == 0;
}

/* Replaces the configuration that is kept for the comparison with those of further queues. */
static void keep(apus_config *kept, const apus_config *given)
{
	const char **strings[STRINGS];

	strings_of(kept, strings);
	for (int i = 0; i < STRINGS; i++)
		free((void *)(uintptr_t)*strings[i]);
	memset(kept, 0, sizeof(*kept));
	kept->size = sizeof(*kept);
	if (given == NULL)
		return;
	*kept = *given;
	for (int i = 0; i < STRINGS; i++)
		*strings[i] = *strings[i] == NULL ? NULL : strdup(*strings[i]);
}

/* Copies a configuration. It may come from a newer header and have fields that this library lacks; they must be 0, as
 * in libapus. */
static int copy(const apus_config *given, apus_config *own)
{
	const unsigned char *bytes = (const unsigned char *)given;

	if (given->size < sizeof(*own) || given->size > MOST_BYTES)
		return failed(APUS_E_SIZE, "config.size is %zu, but apus_config has %zu bytes in this library: set it to "
			      "sizeof(apus_config)", given->size, sizeof(*own));
	for (size_t at = sizeof(*own); at < given->size; at++)
		if (bytes[at] != 0)
			return failed(APUS_E_SIZE, "config has fields that this older library lacks: update libapus-dpdk, or set "
				      "them to 0");
	*own = *given;
	own->size = sizeof(*own);
	return 0;
}

static int add(unsigned int id, uint16_t port, uint16_t number, const apus_config *config)
{
	struct lcore *lcore = &lcores[id];
	struct queue *queue = find(port, number);
	apus_config own;
	int code;

	if (queue != NULL && queue->lcore != NULL)
		return failed(APUS_DPDK_E_ENABLED, "queue %u of port %u is enabled already, on lcore %u", number, port,
			      queue->lcore->id);
	if (config != NULL) {
		code = copy(config, &own);
		if (code < 0)
			return code;
		config = &own;
	}
	if (lcore->count == APUS_MAX_QUEUES)
		return failed(APUS_E_LIMIT, "lcore %u has %u queues: no more are possible", id, APUS_MAX_QUEUES);
	if (lcore->count > 0 && config != NULL && !is_same(config, &lcore->config))
		return failed(APUS_E_CONFIG, "lcore %u has another configuration since its first queue: pass the same, or NULL", id);
	queue = queue == NULL ? make(port, number) : queue;
	if (queue == NULL)
		return failed(APUS_E_SYSTEM, "no memory for queue %u of port %u", number, port);
	if (lcore->count == 0) {
		code = begin(lcore, id, port, config);
		if (code < 0)
			return code;
		keep(&lcore->config, config);
	}
	take(lcore);
	lcore_forget_wakes(lcore);
	queue->round = lcore->round - 1;
	queue->received = 0;
	queue->polled = 0;
	queue->closed = false;
	lcore->queues[lcore->count++] = queue;
	lcore->empty = 0;
	lcore->round++;
	__atomic_store_n(&queue->lcore, lcore, __ATOMIC_RELEASE);
	rte_spinlock_unlock(&lcore->lock);
	/* DPDK keeps the callbacks of a port that was closed, and runs them for the next port with its number. */
	if (queue->callback != NULL)
		rte_eth_remove_rx_callback(port, number, queue->callback);
	queue->callback = rte_eth_add_rx_callback(port, number, on_poll, queue);
	if (queue->callback == NULL) {
		code = rte_errno;
		leave(queue);
		return failed(APUS_E_SYSTEM, "cannot add a callback to queue %u of port %u: %s", number, port, rte_strerror(code));
	}
	return 0;
}

int apus_dpdk_queue_enable(unsigned int lcore, uint16_t port, uint16_t queue, const apus_config *config)
{
	struct rte_eth_dev_info info;
	int code = check_lcore(lcore), cancel;

	if (is_child())
		return refused_to_child();
	if (code < 0)
		return code;
	if (!rte_eth_dev_is_valid_port(port) || rte_eth_dev_info_get(port, &info) < 0)
		return failed(APUS_DPDK_E_QUEUE, "there is no port %u", port);
	if (queue >= info.nb_rx_queues)
		return failed(APUS_DPDK_E_QUEUE, "port %u has %u receive queues, and no number %u: configure it first", port,
			      info.nb_rx_queues, queue);
	cancel = take_control();
	code = add(lcore, port, queue, config);
	leave_control(cancel);
	return code;
}

static int remove_queue(unsigned int id, uint16_t port, uint16_t number)
{
	struct queue *queue = find(port, number);

	if (queue == NULL || queue->lcore == NULL)
		return failed(APUS_DPDK_E_DISABLED, "queue %u of port %u is not enabled", number, port);
	if (queue->lcore->id != id)
		return failed(APUS_DPDK_E_LCORE, "queue %u of port %u is enabled on lcore %u, not on %u", number, port,
			      queue->lcore->id, id);
	/* DPDK leaves freeing the callback to its caller. It is never freed, because a thread may still run in it. */
	rte_eth_remove_rx_callback(port, number, queue->callback);
	queue->callback = NULL;
	leave(queue);
	return 0;
}

int apus_dpdk_queue_disable(unsigned int lcore, uint16_t port, uint16_t queue)
{
	int code = check_lcore(lcore), cancel;

	if (is_child())
		return refused_to_child();
	if (code < 0)
		return code;
	cancel = take_control();
	code = remove_queue(lcore, port, queue);
	leave_control(cancel);
	return code;
}

int apus_dpdk_lcore_work(unsigned int id, apus_dpdk_work *work, void *arg)
{
	int code = check_lcore(id), cancel;

	if (is_child())
		return refused_to_child();
	if (code < 0)
		return code;
	cancel = defer_cancel();
	take(&lcores[id]);
	lcores[id].work = work;
	lcores[id].work_arg = arg;
	rte_spinlock_unlock(&lcores[id].lock);
	restore_cancel(cancel);
	return 0;
}

int apus_dpdk_lcore_frequency(unsigned int id, int follow)
{
	struct lcore *lcore = &lcores[id < RTE_MAX_LCORE ? id : 0];
	int code = check_lcore(id), cancel;

	if (is_child())
		return refused_to_child();
	if (code < 0)
		return code;
	cancel = take_control();
	take(lcore);
	if (lcore->count == 0)
		code = failed(APUS_DPDK_E_DISABLED, "lcore %u has no enabled queue", id);
	else if (follow)
		code = frequency_begin(lcore);
	else
		frequency_end(lcore);
	rte_spinlock_unlock(&lcore->lock);
	leave_control(cancel);
	return code;
}

int apus_dpdk_lcore_counts(unsigned int id, apus_dpdk_counts *counts)
{
	int code = check_lcore(id);

	if (code < 0)
		return code;
	if (counts == NULL)
		return failed(APUS_E_NULL, "counts is NULL");
	if (counts->size != sizeof(*counts))
		return failed(APUS_E_SIZE, "counts.size is %zu, but apus_dpdk_counts has %zu bytes", counts->size, sizeof(*counts));
	/* Without the lock, so that the reader does not wait for the end of a block. */
	*counts = lcores[id].counts;
	counts->queues = lcores[id].count;
	counts->size = sizeof(*counts);
	return 0;
}
