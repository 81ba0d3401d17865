// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// Decides which frames are for Apus, stamps their arrival, and passes them to the AF_XDP socket of their queue. All
// other frames go to the kernel's stack as if no program were attached.
//
// "xdp.frags": the program also gets multi-buffer (jumbo) frames (kernel documentation, networking/xdp-rx-metadata and
// bpf/libbpf/program_types: SEC("xdp.frags")).

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

char _license[] SEC("license") = "Dual MIT/GPL";

// What is ours; written before the load by interface.rs.
#define FILTER_ALL 0
#define FILTER_ETHERTYPE 1
#define FILTER_UDP 2
volatile const __u32 filter_kind = FILTER_ALL;
volatile const __u32 ethertype_count = 0;
volatile const __u16 ethertypes[4] = {0, 0, 0, 0}; // host order
volatile const __u16 udp_first = 0;                 // host order
volatile const __u16 udp_last = 0;

// CLOCK_MONOTONIC (bpf-helpers(7), bpf_ktime_get_ns) in units of 16 ns, modulo 2^32. Four octets, so
// that they and the 60 octets of a shortest frame are one cache line; parts.rs reads them.
typedef __u32 stamp_t;
#define STAMP_SHIFT 4

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u32);
} xsks SEC(".maps");

#define COUNT_REDIRECTED 0
#define COUNT_PASSED 1
#define COUNT_NO_META 2
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 3);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

static __always_inline void count(__u32 which)
{
	__u64 *n = bpf_map_lookup_elem(&counts, &which);
	if (n)
		(*n)++;
}

struct vlan_tag {
	__be16 tci;
	__be16 ethertype;
};

static __always_inline int is_our_udp(void *at, void *end, __u16 ethertype)
{
	struct udphdr *udp;

	if (ethertype == ETH_P_IP) {
		struct iphdr *ip = at;
		if ((void *)(ip + 1) > end || ip->version != 4 || ip->ihl < 5 || ip->protocol != IPPROTO_UDP)
			return 0;
		// More fragments, or an offset (RFC 791, section 3.1): a fragment is the kernel's business.
		if (ip->frag_off & bpf_htons(0x3fff))
			return 0;
		udp = at + ip->ihl * 4;
	} else if (ethertype == ETH_P_IPV6) {
		struct ipv6hdr *ip = at;
		// Extension headers (a fragment header among them) make it the kernel's business too.
		if ((void *)(ip + 1) > end || ip->version != 6 || ip->nexthdr != IPPROTO_UDP)
			return 0;
		udp = (void *)(ip + 1);
	} else {
		return 0;
	}
	if ((void *)(udp + 1) > end)
		return 0;
	__u16 port = bpf_ntohs(udp->dest);
	return port >= udp_first && port <= udp_last;
}

static __always_inline int is_ours(struct xdp_md *ctx)
{
	void *at = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = at;

	if (filter_kind == FILTER_ALL)
		return 1;
	if ((void *)(eth + 1) > end)
		return 0;
	__u16 ethertype = bpf_ntohs(eth->h_proto);
	at = eth + 1;
	if (ethertype == ETH_P_8021Q || ethertype == ETH_P_8021AD) {
		struct vlan_tag *tag = at;
		if ((void *)(tag + 1) > end)
			return 0;
		ethertype = bpf_ntohs(tag->ethertype);
		at = tag + 1;
	}
	if (filter_kind == FILTER_UDP)
		return is_our_udp(at, end, ethertype);
	for (__u32 i = 0; i < 4; i++)
		if (i < ethertype_count && ethertype == ethertypes[i])
			return 1;
	return 0;
}

SEC("xdp.frags")
int apus_redirect(struct xdp_md *ctx)
{
	__u32 queue = ctx->rx_queue_index;

	// XDP_PASS, and no redirect noted, if the queue has no socket.
	if (!is_ours(ctx) || bpf_redirect_map(&xsks, queue, XDP_PASS) != XDP_REDIRECT) {
		count(COUNT_PASSED);
		return XDP_PASS;
	}
	stamp_t *stamp = 0;
	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(*stamp)) == 0) {
		stamp = (void *)(long)ctx->data_meta;
		if ((void *)(stamp + 1) > (void *)(long)ctx->data)
			stamp = 0;
	}
	if (stamp)
		*stamp = bpf_ktime_get_ns() >> STAMP_SHIFT;
	else
		count(COUNT_NO_META);
	count(COUNT_REDIRECTED);
	return XDP_REDIRECT;
}
