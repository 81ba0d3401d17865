// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// Counts what chosen NAPI instances do, and measures how long their packets take from reception to the
// application's read. It changes nothing.
//
//   napi_poll                                   the kernel has looked at a queue
//   napi_gro_receive_entry, napi_gro_frags_entry,
//   netif_receive_skb_entry                     a packet is received: its time is noted, by the address of its sk_buff
//   skb_copy_datagram_iovec                     an application reads it: the time since is counted
//
// A UDP datagram in one piece is copied without that tracepoint (net/ipv4/udp.c, udp_recvmsg and copy_linear_skb). Of UDP
// sockets the reads are therefore counted off against the datagrams that were queued, first in, first out:
//
//   netif_receive_skb                           from here on, this CPU hands that packet to its protocol
//   sk_data_ready                               it is in a socket's queue
//   sock_recv_length                            the socket was read
//
// (Linux, include/trace/events/{napi,net,skb,sock}.h; the last two are there from 6.3 on.) The time that GRO holds a packet
// back is part of what is measured. Segments that TCP or GRO joins are measured by the sk_buff that remains. A packet that
// no application reads (it is forwarded, acknowledges only, or is dropped) is counted as received and not measured.
//
// NAPI instances are told apart by their ID, which is unique in all network namespaces (net/core/dev.c, napi_hash_add).

#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char _license[] SEC("license") = "Dual MIT/GPL";

// The fields that are read; the kernel's own offsets are put in at the load (BTF).
struct napi_struct {
	unsigned int napi_id;
} __attribute__((preserve_access_index));

struct sk_buff {
	unsigned int napi_id;
	unsigned int len;
} __attribute__((preserve_access_index));

struct sock {
	__u16 sk_protocol;
} __attribute__((preserve_access_index));

#define IPPROTO_UDP 17 // include/uapi/linux/in.h
#define MSG_PEEK 2     // include/linux/socket.h
#define EAGAIN 11      // include/uapi/asm-generic/errno-base.h

#define SLOTS 256
// Eight buckets of 128 ns, then eight per octave up to 2^24 ns (17 ms); the last takes all that is longer.
#define BUCKETS 120
#define FIRST_OCTAVE 10

// What is seen of an instance, by one CPU. sensor.rs reads it as so many u64.
struct seen {
	__u64 packets;
	__u64 bytes;
	__u64 polls;
	__u64 full_polls;
	__u64 delays[BUCKETS];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SLOTS);
	__type(key, __u32);   // napi_id
	__type(value, __u32); // slot
} watched SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SLOTS);
	__type(key, __u32);
	__type(value, struct seen);
} seen SEC(".maps");

struct stamp {
	__u64 at;
	__u64 slot;
};

// A packet that is never read leaves its stamp; the oldest go first.
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64); // address of the sk_buff
	__type(value, struct stamp);
} stamps SEC(".maps");

// The datagrams that wait in a UDP socket, as a ring: about as many small ones as net.core.rmem_default (212,992 octets)
// lets wait.
#define FIFO 256
struct fifo {
	__u32 head;
	__u32 tail;
	struct stamp stamps[FIFO];
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64); // address of the sock
	__type(value, struct fifo);
} fifos SEC(".maps");

// An empty one, too large for the stack.
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct fifo);
} empty SEC(".maps");

struct handed {
	struct stamp stamp;
	__u64 skb;
};

// The packet that this CPU is handing to its protocol; all zero if it is not a watched one.
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct handed);
} current SEC(".maps");

static __always_inline struct seen *of_slot(__u32 slot)
{
	return bpf_map_lookup_elem(&seen, &slot);
}

static __always_inline int received(struct sk_buff *skb)
{
	__u32 id = BPF_CORE_READ(skb, napi_id);
	__u32 *slot = bpf_map_lookup_elem(&watched, &id);
	__u64 key = (__u64)skb;
	if (!slot) {
		// The address may have been that of a watched packet that nobody read.
		bpf_map_delete_elem(&stamps, &key);
		return 0;
	}
	struct seen *its = of_slot(*slot);
	if (!its)
		return 0;
	its->packets++;
	its->bytes += BPF_CORE_READ(skb, len);
	struct stamp stamp = {.at = bpf_ktime_get_ns(), .slot = *slot};
	bpf_map_update_elem(&stamps, &key, &stamp, BPF_ANY);
	return 0;
}

SEC("raw_tp/napi_gro_receive_entry")
int on_gro_receive(struct bpf_raw_tracepoint_args *args)
{
	return received((struct sk_buff *)args->args[0]);
}

SEC("raw_tp/napi_gro_frags_entry")
int on_gro_frags(struct bpf_raw_tracepoint_args *args)
{
	return received((struct sk_buff *)args->args[0]);
}

SEC("raw_tp/netif_receive_skb_entry")
int on_receive(struct bpf_raw_tracepoint_args *args)
{
	return received((struct sk_buff *)args->args[0]);
}

static __always_inline __u32 bucket(__u64 ns)
{
	if (ns < 1024)
		return ns >> 7;
	if (ns >> 24)
		return BUCKETS - 1;
	__u32 octave = FIRST_OCTAVE;
#pragma unroll
	for (int i = FIRST_OCTAVE + 1; i < 24; i++)
		if (ns >> i)
			octave = i;
	return 8 * (octave - FIRST_OCTAVE + 1) + ((ns >> (octave - 3)) & 7);
}

static __always_inline void was_read(const struct stamp *stamp)
{
	__u32 at = bucket(bpf_ktime_get_ns() - stamp->at);
	struct seen *its = of_slot(stamp->slot);
	if (its && at < BUCKETS)
		its->delays[at]++;
}

SEC("raw_tp/skb_copy_datagram_iovec")
int on_read(struct bpf_raw_tracepoint_args *args)
{
	__u64 key = args->args[0];
	struct stamp *stamp = bpf_map_lookup_elem(&stamps, &key);
	if (!stamp)
		return 0;
	struct stamp its = *stamp;
	// Only the first read of a packet counts.
	bpf_map_delete_elem(&stamps, &key);
	was_read(&its);
	return 0;
}

SEC("raw_tp/netif_receive_skb")
int on_deliver(struct bpf_raw_tracepoint_args *args)
{
	__u64 key = args->args[0];
	__u32 zero = 0;
	struct handed *now = bpf_map_lookup_elem(&current, &zero);
	if (!now)
		return 0;
	struct stamp *stamp = bpf_map_lookup_elem(&stamps, &key);
	now->stamp.at = stamp ? stamp->at : 0;
	now->stamp.slot = stamp ? stamp->slot : 0;
	now->skb = key;
	return 0;
}

SEC("raw_tp/sk_data_ready")
int on_queued(struct bpf_raw_tracepoint_args *args)
{
	struct sock *sk = (struct sock *)args->args[0];
	if (BPF_CORE_READ(sk, sk_protocol) != IPPROTO_UDP)
		return 0;
	__u32 zero = 0;
	__u64 key = (__u64)sk;
	struct handed *now = bpf_map_lookup_elem(&current, &zero);
	if (!now)
		return 0;
	struct fifo *fifo = bpf_map_lookup_elem(&fifos, &key);
	if (!fifo) {
		// A socket is followed from its first watched datagram on.
		struct fifo *none = bpf_map_lookup_elem(&empty, &zero);
		if (!now->stamp.at || !none)
			return 0;
		bpf_map_update_elem(&fifos, &key, none, BPF_NOEXIST);
		fifo = bpf_map_lookup_elem(&fifos, &key);
		if (!fifo)
			return 0;
	}
	// Its reading is seen at the socket, not by skb_copy_datagram_iovec, which would count it twice.
	if (now->stamp.at)
		bpf_map_delete_elem(&stamps, &now->skb);
	// Not atomic: two CPUs at once lose a stamp, and a datagram is not measured.
	__u32 head = fifo->head;
	fifo->head = head + 1;
	if (head - fifo->tail >= FIFO) // so many wait, or some left the queue unseen: it begins anew
		fifo->tail = head;
	fifo->stamps[head % FIFO] = now->stamp;
	return 0;
}

// TRACE_EVENT(sock_recv_length, TP_PROTO(struct sock *sk, int ret, int flags))
SEC("raw_tp/sock_recv_length")
int on_recv(struct bpf_raw_tracepoint_args *args)
{
	__u64 key = args->args[0];
	int length = (int)args->args[1];
	struct fifo *fifo = bpf_map_lookup_elem(&fifos, &key);
	if (!fifo || (args->args[2] & MSG_PEEK))
		return 0;
	if (length < 0) {
		if (length == -EAGAIN) // it is empty
			fifo->tail = fifo->head;
		return 0;
	}
	__u32 tail = fifo->tail;
	if (tail == fifo->head)
		return 0;
	fifo->tail = tail + 1;
	struct stamp its = fifo->stamps[tail % FIFO];
	if (its.at)
		was_read(&its);
	return 0;
}

SEC("raw_tp/napi_poll")
int on_poll(struct bpf_raw_tracepoint_args *args)
{
	struct napi_struct *napi = (struct napi_struct *)args->args[0];
	__u32 id = BPF_CORE_READ(napi, napi_id);
	__u32 *slot = bpf_map_lookup_elem(&watched, &id);
	struct seen *its = slot ? of_slot(*slot) : 0;
	if (!its)
		return 0;
	its->polls++;
	// TRACE_EVENT(napi_poll, TP_PROTO(struct napi_struct *napi, int work, int budget))
	if ((int)args->args[1] >= (int)args->args[2])
		its->full_polls++;
	return 0;
}
