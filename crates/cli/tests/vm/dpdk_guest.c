/* A DPDK program in a guest: sends, for an lcore, each command that it is told, through librte_power, and prints what the
 * host answers. Usage: dpdk_guest EAL-OPTIONS -- LCORE COMMAND... */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_eal.h>
#include <rte_power.h>
#include <rte_power_guest_channel.h>

/* An emulated host answers late: a read waits 10 ms (lib/power/guest_channel.c, TIMEOUT). */
#define TRIES 6000

static int hear(void *answer, size_t length, unsigned int lcore)
{
	for (int i = 0; i < TRIES; i++)
		if (rte_power_guest_channel_receive_msg(answer, length, lcore) == 0)
			return 0;
	return -1;
}

static int scale(const char *command, unsigned int lcore)
{
	if (!strcmp(command, "up"))
		return rte_power_freq_up(lcore);
	if (!strcmp(command, "down"))
		return rte_power_freq_down(lcore);
	if (!strcmp(command, "max"))
		return rte_power_freq_max(lcore);
	if (!strcmp(command, "min"))
		return rte_power_freq_min(lcore);
	if (!strcmp(command, "enable-turbo"))
		return rte_power_freq_enable_turbo(lcore);
	if (!strcmp(command, "disable-turbo"))
		return rte_power_freq_disable_turbo(lcore);
	return -1;
}

int main(int argc, char **argv)
{
	int used = rte_eal_init(argc, argv);

	if (used < 0 || argc - used < 2)
		return 2;
	argv += used + 1;
	unsigned int lcore = (unsigned int)atoi(*argv++);

	rte_power_set_env(PM_ENV_KVM_VM);
	if (rte_power_init(lcore) != 0) {
		fprintf(stderr, "no channel for lcore %u\n", lcore);
		return 3;
	}
	for (; *argv; argv++) {
		if (!strcmp(*argv, "freq-list")) {
			struct rte_power_channel_packet asked = { 0 };
			struct rte_power_channel_packet_freq_list answer;

			asked.command = RTE_POWER_QUERY_FREQ_LIST;
			if (rte_power_guest_channel_send_msg(&asked, lcore) != 0 || hear(&answer, sizeof(answer), lcore) != 0)
				return 4;
			printf("freq-list %u:", answer.command == RTE_POWER_FREQ_LIST ? answer.num_vcpu : 0);
			for (int i = 0; i < answer.num_vcpu; i++)
				printf(" %u", answer.freq_list[i]);
			printf("\n");
		} else {
			struct rte_power_channel_packet answer;
			int sent = scale(*argv, lcore);

			if (sent != 1 || hear(&answer, sizeof(answer), lcore) != 0)
				return 4;
			printf("%s %s\n", *argv, answer.command == RTE_POWER_CMD_ACK ? "ACK" : "NACK");
		}
	}
	rte_power_exit(lcore);
	rte_eal_cleanup();
	return 0;
}
