// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// Swaps the MAC addresses and sends the frame back from within the driver: what a reflector could
// reach at best if it cost nothing to bring frames to user space and back.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <bpf/bpf_helpers.h>

char _license[] SEC("license") = "Dual MIT/GPL";

SEC("xdp")
int swap_and_return(struct xdp_md *ctx)
{
	struct ethhdr *eth = (void *)(long)ctx->data;
	unsigned char mac[ETH_ALEN];

	if ((void *)(eth + 1) > (void *)(long)ctx->data_end)
		return XDP_DROP;
	__builtin_memcpy(mac, eth->h_dest, ETH_ALEN);
	__builtin_memcpy(eth->h_dest, eth->h_source, ETH_ALEN);
	__builtin_memcpy(eth->h_source, mac, ETH_ALEN);
	return XDP_TX;
}
