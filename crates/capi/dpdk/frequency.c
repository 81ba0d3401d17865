/* SPDX-License-Identifier: Apache-2.0 OR MIT
 * Sets the frequency of an lcore, through rte_power. */
#include <rte_cycles.h>
#if __has_include(<rte_power_cpufreq.h>) /* since DPDK 24.11 */
#include <rte_power_cpufreq.h>
#else
#include <rte_power.h>
#endif

#include "lcore.h"

/* Time between two judgements of the load: a tenth of the time between two reductions in l3fwd-power. A test
 * in the VM lab, where everything takes longer, compiles this file with a longer time. */
#ifndef JUDGED_EVERY_MS
#define JUDGED_EVERY_MS 10
#endif
/* Highest share of time for which the lcore may be busy at the chosen frequency, in per cent. */
#define BUSY_PERCENT 75

int frequency_begin(struct lcore *lcore)
{
	unsigned int id = lcore->id;

	if (lcore->scaled)
		return 0;
	if (rte_power_init(id) != 0)
		return failed(APUS_E_UNSUPPORTED, "lcore %u: rte_power cannot set its frequency; see DPDK's messages above, and "
			      "/sys/devices/system/cpu/cpu*/cpufreq", id);
	lcore->frequencies = rte_power_freqs == NULL ? 0 : rte_power_freqs(id, lcore->khz, RTE_DIM(lcore->khz));
	if (lcore->frequencies == 0 || lcore->frequencies > RTE_DIM(lcore->khz)) {
		rte_power_exit(id);
		return failed(APUS_E_UNSUPPORTED, "lcore %u: rte_power lists no frequencies", id);
	}
	lcore->scaled = true;
	lcore->busy = 0;
	lcore->busy_since = 0;
	lcore->judged = rte_get_tsc_cycles();
	lcore->at = lcore->frequencies; /* none is set yet */
	lcore->hurry = true;
	return 0;
}

void frequency_end(struct lcore *lcore)
{
	if (lcore->scaled)
		rte_power_exit(lcore->id);
	lcore->scaled = false;
	lcore->counts.khz = 0;
}

static void set(struct lcore *lcore, uint32_t at)
{
	int cancel;

	if (at == lcore->at)
		return;
	cancel = defer_cancel();
	/* Recorded before the call, so that a failure is not repeated for each packet. */
	lcore->at = at;
	if (rte_power_set_freq(lcore->id, at) >= 0)
		lcore->counts.khz = lcore->khz[at];
	restore_cancel(cancel);
}

/* Chooses the frequency. rte_power lists frequencies highest first. */
void frequency_judge(struct lcore *lcore, uint64_t ticks)
{
	uint64_t span = ticks - lcore->judged, needed;
	uint32_t at = 0;

	if (lcore->hurry && lcore->at != 0) {
		set(lcore, 0);
		lcore->busy = 0;
		lcore->judged = ticks;
		lcore->hurry = false;
		return;
	}
	if (span < rte_get_tsc_hz() / 1000 * JUDGED_EVERY_MS)
		return;
	needed = lcore->khz[lcore->at % lcore->frequencies] * (100 * RTE_MIN(lcore->busy, span) / span) / BUSY_PERCENT;
	while (!lcore->hurry && at + 1 < lcore->frequencies && lcore->khz[at + 1] >= needed)
		at++;
	set(lcore, at);
	lcore->busy = 0;
	lcore->judged = ticks;
	lcore->hurry = false;
}
