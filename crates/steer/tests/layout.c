/* Writes DPDK's packets as this machine's compiler lays them out, and reads Apus's answers the same way. */
#include <stdio.h>
#include <string.h>

#include <rte_power_guest_channel.h>

static void put(const void *what, size_t length)
{
	fwrite(what, 1, length, stdout);
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "read")) {
		struct rte_power_channel_packet ack;
		struct rte_power_channel_packet_freq_list list;
		struct rte_power_channel_packet_caps_list caps;

		if (fread(&ack, sizeof(ack), 1, stdin) != 1 || fread(&list, sizeof(list), 1, stdin) != 1 ||
		    fread(&caps, sizeof(caps), 1, stdin) != 1 || getchar() != EOF)
			return 1;
		printf("%u %lu %s\n", ack.command, (unsigned long)ack.resource_id, ack.vm_name);
		printf("%u %u %u %u\n", list.command, list.num_vcpu, list.freq_list[0], list.freq_list[7]);
		printf("%u %u %lu %lu %lu\n", caps.command, caps.num_vcpu, (unsigned long)caps.turbo[0],
		       (unsigned long)caps.turbo[1], (unsigned long)caps.priority[1]);
		return 0;
	}
	struct rte_power_channel_packet packet;

	memset(&packet, 0, sizeof(packet));
	packet.resource_id = 0x0102030405060708;
	packet.command = RTE_POWER_CPU_POWER;
	packet.unit = RTE_POWER_SCALE_MIN;
	strcpy(packet.vm_name, "vm1");
	put(&packet, sizeof(packet));
	packet.core_type = RTE_POWER_CORE_TYPE_PHYSICAL;
	packet.unit = RTE_POWER_DISABLE_TURBO;
	put(&packet, sizeof(packet));
	packet.command = RTE_POWER_PKT_POLICY;
	packet.policy_to_use = RTE_POWER_POLICY_WORKLOAD;
	packet.workload = RTE_POWER_WL_LOW;
	packet.num_vcpu = 3;
	packet.vcpu_to_control[0] = 7;
	packet.vcpu_to_control[1] = 1;
	packet.vcpu_to_control[2] = 200;
	put(&packet, sizeof(packet));
	packet.command = RTE_POWER_QUERY_CAPS;
	put(&packet, sizeof(packet));
	return 0;
}
