// SPDX-License-Identifier: MIT OR GPL-2.0-only
//
// Counts what chosen NAPI instances do, and measures how long their packets take from reception to the application's
// read. It changes nothing.
//
//   interrupt or timer
//        |
//        v          packet 1, packet 2, ...                       (the next poll)
//   poll ├─ gro entry ─┬─ delivery ───── poll ends          poll ├─ delivery
//        ^             |     ^                |                  |    ^
//        |             |     |                └── GRO holds the packet ┘
//     stamp: when the  |   a packet that is                 what it was held is counted apart, and the stamp is
//     poll took its    |   delivered in its poll            moved on by as much
//     first packet     |   was not held
//                      └──────────────► socket ───────────► read: the time since the stamp is counted
//
// Tracepoints (Linux, include/trace/events/{napi,net,skb,sock}.h):
//
//   napi_poll                        a poll has ended
//   napi_gro_receive_entry,
//   napi_gro_frags_entry,
//   netif_receive_skb_entry,
//   netif_receive_skb_list_entry     the driver passes a packet on
//   netif_receive_skb                the packet is delivered to the protocols
//   skb_copy_datagram_iovec          an application reads it (TCP, and UDP datagrams in several pieces)
//   sk_data_ready, sock_recv_length  a datagram waits in a socket; an application has read one
//
// A UDP datagram in one piece is copied without a tracepoint that names it (net/ipv4/udp.c, udp_recvmsg and
// copy_linear_skb). So the first datagram that waits in a socket is noted, whenever the socket was read and whenever one
// comes while none is noted: that is what the next reading takes. It is looked up in the socket's own queues each time, so
// nothing can get out of step for longer than one reading. Several threads that read one socket at the same moment may
// take datagrams in another order than they report it; then one of the datagrams is measured at the other's reading, and
// the other may be missed.
//
// One poll has one time: when it took its first packet. The others waited in the ring until then, or came while it lasted;
// so the delay includes what a packet waits for those before it. It also saves reading the clock for each packet. A poll
// that used up its budget left packets waiting: those that the next poll takes have the time of the poll before, through up
// to 16 such polls.
//
// Of a CPU that delivers more than 5,000 packets a second, only every n-th poll's packets are stamped, with n from the
// rate of the last 100 ms: a sample of the delays that depends on nothing but their number. Packets, bytes and polls are
// always counted in full.
//
// Stamps are kept by the address of the packet's data (sk_buff.head), which a clone shares with its original, in a table
// with two places for each address. If both are taken, the newer stamp overwrites the older one, and that packet is not
// measured. A stamp holds the ID of its NAPI instance. Nothing removes the stamp of a packet that nobody reads; when its
// memory is used again,
//   - by a watched instance, the packet is stamped anew,
//   - by an interface that is not watched or by a local sender (loopback, unix sockets), the sk_buff has another ID or
//     none, and the stamp does not count.
//
// Each packet is counted once, where the driver passes it on: sk_buff.dev is then the device of the NAPI instance. Tunnels
// (gro_cells), bridges and stacked devices pass the same packet through these tracepoints again, with their own device;
// those do not count. Drivers that call netif_receive_skb without skb_mark_napi_id (some without GRO) are not seen: their
// packets name no instance.
//
// Each packet is measured at most once: a datagram when it is read (not with MSG_PEEK), anything else when an application
// first copies some of its data. Not measured are
//   - what is forwarded or dropped, and TCP segments without data,
//   - what crosses another device's queue on its way (to a container behind a veth: there, watch the veth's instance),
//   - what TCP merges into an earlier segment of its queue (that one is measured), or moves to save memory,
//   - what is read by splice, zero-copy, kTLS, sockmap or AF_PACKET.
// Of packets that RPS delivers on another CPU, what GRO held them is part of the delay. Under busy polling, packets that
// are delivered at the end of their poll count as held that long.

#include <linux/bpf.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

char _license[] SEC("license") = "Dual MIT/GPL";

// The fields that are read; the kernel's own offsets are put in at the load (BTF).
struct net_device;

struct napi_struct {
	struct net_device *dev;
	unsigned int napi_id;
} __attribute__((preserve_access_index));

struct sk_buff_head {
	struct sk_buff *next;
	__u32 qlen;
} __attribute__((preserve_access_index));

struct sock_common {
	unsigned short skc_family;
} __attribute__((preserve_access_index));

struct sock {
	struct sock_common __sk_common;
	struct sk_buff_head sk_receive_queue;
	__u16 sk_protocol;
} __attribute__((preserve_access_index));

struct udp_sock {
	struct sk_buff_head reader_queue; // what readers have taken from sk_receive_queue at once
} __attribute__((preserve_access_index));

struct sk_buff {
	struct net_device *dev;
	struct sock *sk;
	unsigned int len;
	unsigned int napi_id;
	unsigned char *head;
} __attribute__((preserve_access_index));

#define AF_PACKET 17        // include/linux/socket.h
#define MSG_PEEK 2          // as above
#define MSG_ERRQUEUE 0x2000 // as above
#define IPPROTO_UDP 17      // include/uapi/linux/in.h

#define SLOTS 256
// Eight buckets of 128 ns, then eight per octave up to 2^34 ns (17 s); the last takes all that is longer, too.
#define BUCKETS 200
#define FIRST_OCTAVE 10
#define LAST_OCTAVE 33

// What is seen of an instance. sys.rs reads it as so many u64. Of a slot, one CPU at a time polls, but many read.
struct seen {
	__u64 packets;
	__u64 bytes;
	__u64 polls;
	__u64 full_polls;
	__u64 unused[4]; // the readers' counters begin in another cache line
	__u64 delays[BUCKETS];
	__u64 held[BUCKETS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SLOTS);
	__type(key, __u32);
	__type(value, struct seen);
} seen SEC(".maps");

// mod.rs writes it as four u64.
struct watched {
	__u64 slot;
	__u64 dev;   // the instance's net_device; 0 until its first poll has ended
	__u64 began; // its first poll of those that used up their budget, up to its last one; 0: the last one did not
	__u64 run;   // how many such polls there were one after the other
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SLOTS);
	__type(key, __u32); // napi_id
	__type(value, struct watched);
} watched SEC(".maps");

// Of this many packets in a window, all are stamped; of more, about as many.
#define SAMPLED 500
#define WINDOW 100000000 // ns
// At least one poll of so many is stamped, at any rate.
#define LONGEST_PAUSE 63
// So many full polls empty a ring of 1024 descriptors (a poll takes at most 64, NAPI_POLL_WEIGHT of
// include/linux/netdevice.h).
#define LONGEST_RUN 16
// The packets of this poll are not stamped.
#define NOT_SAMPLED 1

// The poll that goes on on this CPU.
struct poll {
	__u64 began;	// when it took its first packet, or NOT_SAMPLED; 0: none yet
	__u64 previous; // when the previous poll began, if that used up its budget: its packets are delivered after its end
	__u64 dev;
	__u64 packets;
	__u64 bytes;
	__u32 napi;  // of the last packet
	__u32 place; // its slot and one; 0: it is not watched
	__u64 window;	 // when the window began
	__u32 in_window; // stamped packets delivered in it
	__u32 pause;	 // polls that are not stamped after one that is
	__u32 paused;	 // of these, those yet to come
	__u32 unused;
	__u64 run_began; // `began` of its instance
	__u64 run;	 // `run` of its instance
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct poll);
} polls SEC(".maps");

struct stamp {
	__u64 head; // 0: none, or it was read
	__u64 at;   // when the poll began; later if GRO held it
	__u32 napi;
	__u16 cpu;
	__u8 slot;
	__u8 is_delivered;
};

// While 1,000 packets wait, one of them is overwritten in one case of 26 (1000^3 / 6 / 2^32). They take 3 MiB.
#define PAIR_BITS 16

struct pair {
	struct stamp stamps[2];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 << PAIR_BITS);
	__type(key, __u32);
	__type(value, struct pair);
} pairs SEC(".maps");

// The datagram that a UDP socket's next reading takes, if it is a watched one. The kernel frees it with the socket. It
// has all that the reading needs, so that the stamps stay in the cache of the CPU that receives.
struct waiting {
	__u64 at; // of its stamp; 0: none
	__u32 slot;
	__u32 more; // stamped ones may follow it in the queue
};

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct waiting);
} sockets SEC(".maps");

// The address as a number. For the verifier of Linux 6.18 a pointer stays one through 64-bit arithmetic, and can't be
// hashed; a move of 32 bits makes a number of it.
static __always_inline __u64 number(const void *address)
{
	__u64 whole = (__u64)address;
	__u32 low, high;
	asm volatile("%0 = %1" : "=w"(low) : "w"((__u32)whole));
	asm volatile("%0 = %1" : "=w"(high) : "w"((__u32)(whole >> 32)));
	return (__u64)high << 32 | low;
}

static __always_inline struct pair *pair_of(__u64 head)
{
	// 2^64 divided by the golden ratio (Knuth, The Art of Computer Programming, volume 3, 6.4).
	__u32 place = (head * 0x9e3779b97f4a7c15ULL) >> (64 - PAIR_BITS);
	return bpf_map_lookup_elem(&pairs, &place);
}

// The stamp of a packet, or null.
static __always_inline struct stamp *stamp_of(__u64 head)
{
	struct pair *pair = pair_of(head);
	if (pair && pair->stamps[0].head == head)
		return &pair->stamps[0];
	if (pair && pair->stamps[1].head == head)
		return &pair->stamps[1];
	return 0;
}

// Where to write the stamp of a packet: over its former one, that of a packet that was read, or the older.
static __always_inline struct stamp *place_for(__u64 head)
{
	struct pair *pair = pair_of(head);
	if (!pair)
		return 0;
	struct stamp *a = &pair->stamps[0];
	struct stamp *b = &pair->stamps[1];
	if (a->head == head)
		return a;
	if (b->head == head)
		return b;
	return a->head && (!b->head || b->at < a->at) ? b : a;
}

static __always_inline struct seen *of_slot(__u32 slot)
{
	return bpf_map_lookup_elem(&seen, &slot);
}

static __always_inline struct poll *this_poll(void)
{
	__u32 zero = 0;
	return bpf_map_lookup_elem(&polls, &zero);
}

static __always_inline __u32 bucket(__u64 ns)
{
	if (ns < 1 << FIRST_OCTAVE)
		return ns >> 7;
	if (ns >> (LAST_OCTAVE + 1))
		return BUCKETS - 1;
	// The highest bit, by halves.
	__u32 octave = 0;
	__u64 rest = ns;
#pragma unroll
	for (int half = 32; half; half /= 2)
		if (rest >> half) {
			rest >>= half;
			octave += half;
		}
	return 8 * (octave - FIRST_OCTAVE + 1) + ((ns >> (octave - 3)) & 7);
}

// Adds what the poll took up to now to its instance, and begins to count another's packets.
static __always_inline void turn_to(struct poll *now, __u32 napi)
{
	if (now->packets && now->place) {
		struct seen *its = of_slot(now->place - 1);
		if (its) {
			__sync_fetch_and_add(&its->packets, now->packets);
			__sync_fetch_and_add(&its->bytes, now->bytes);
		}
	}
	now->packets = 0;
	now->bytes = 0;
	now->napi = napi;
	now->place = 0;
	now->run_began = 0;
	struct watched *is = napi ? bpf_map_lookup_elem(&watched, &napi) : 0;
	if (is) {
		now->place = is->slot + 1;
		now->dev = is->dev;
		now->run_began = is->began;
		now->run = is->run;
	}
}

// The time of the poll that begins, or NOT_SAMPLED.
static __always_inline __u64 begin(struct poll *now)
{
	if (now->paused) {
		now->paused--;
		return NOT_SAMPLED;
	}
	__u64 time = bpf_ktime_get_ns();
	__u64 lasted = time - now->window;
	if (lasted >= WINDOW) {
		__u64 all = (__u64)now->in_window * (now->pause + 1);
		__u64 pause = all * WINDOW / lasted / SAMPLED;
		now->pause = pause < LONGEST_PAUSE ? pause : LONGEST_PAUSE;
		now->window = time;
		now->in_window = 0;
	}
	now->paused = now->pause;
	return time;
}

static __always_inline int received(struct sk_buff *skb)
{
	struct poll *now = this_poll();
	if (!now)
		return 0;
	__u32 napi = skb->napi_id;
	if (napi != now->napi)
		turn_to(now, napi);
	if (!now->place)
		return 0;
	if (now->dev && now->dev != (__u64)skb->dev)
		return 0;
	if (!now->began)
		now->began = now->run_began && now->run < LONGEST_RUN ? now->run_began : begin(now);
	now->packets++;
	now->bytes += skb->len;
	__u64 head = number(skb->head);
	if (now->began == NOT_SAMPLED) {
		// Nothing may be left of a packet that had this memory before.
		struct stamp *old = stamp_of(head);
		if (old)
			old->head = 0;
		return 0;
	}
	struct stamp *stamp = place_for(head);
	if (!stamp)
		return 0;
	stamp->at = now->began;
	stamp->napi = napi;
	stamp->cpu = bpf_get_smp_processor_id();
	stamp->slot = now->place - 1;
	stamp->is_delivered = 0;
	stamp->head = head;
	return 0;
}

SEC("tp_btf/napi_gro_receive_entry")
int on_gro_receive(__u64 *args)
{
	return received((struct sk_buff *)args[0]);
}

SEC("tp_btf/napi_gro_frags_entry")
int on_gro_frags(__u64 *args)
{
	return received((struct sk_buff *)args[0]);
}

SEC("tp_btf/netif_receive_skb_entry")
int on_receive(__u64 *args)
{
	return received((struct sk_buff *)args[0]);
}

SEC("tp_btf/netif_receive_skb_list_entry")
int on_receive_list(__u64 *args)
{
	return received((struct sk_buff *)args[0]);
}

SEC("tp_btf/netif_receive_skb")
int on_deliver(__u64 *args)
{
	struct sk_buff *skb = (struct sk_buff *)args[0];
	__u64 head = number(skb->head);
	struct stamp *stamp = stamp_of(head);
	if (!stamp || stamp->is_delivered || stamp->napi != skb->napi_id)
		return 0;
	stamp->is_delivered = 1;
	struct poll *now = this_poll();
	if (!now)
		return 0;
	now->in_window++;
	if (stamp->at == now->began || stamp->at == now->previous || stamp->cpu != bpf_get_smp_processor_id())
		return 0;
	__u64 held = bpf_ktime_get_ns() - stamp->at;
	stamp->at += held;
	__u32 in = bucket(held);
	struct seen *its = of_slot(stamp->slot);
	if (its && in < BUCKETS)
		__sync_fetch_and_add(&its->held[in], 1);
	return 0;
}

// Counts the delay of a packet that is read now.
static __always_inline void count(__u32 slot, __u64 at)
{
	__u32 in = bucket(bpf_ktime_get_ns() - at);
	struct seen *its = of_slot(slot);
	if (its && in < BUCKETS)
		__sync_fetch_and_add(&its->delays[in], 1);
}

SEC("tp_btf/skb_copy_datagram_iovec")
int on_read(__u64 *args)
{
	struct sk_buff *skb = (struct sk_buff *)args[0];
	__u64 head = number(skb->head);
	struct stamp *stamp = stamp_of(head);
	if (!stamp || stamp->napi != skb->napi_id)
		return 0;
	// A datagram has no owner while it waits in a UDP socket (net/ipv4/udp.c, __udp_enqueue_schedule_skb).
	struct sock *sk = skb->sk;
	if (!sk || sk->__sk_common.skc_family == AF_PACKET)
		return 0;
	__u32 slot = stamp->slot;
	__u64 at = stamp->at;
	// Two sockets may read two clones at once.
	if (__sync_bool_compare_and_swap(&stamp->head, head, 0))
		count(slot, at);
	return 0;
}

// Which of the socket's datagrams is the first.
static __always_inline struct waiting first_of(struct sock *sk)
{
	struct waiting first = {};
	struct udp_sock *udp = (struct udp_sock *)sk;
	__u64 head;
	__u32 napi;
	// The sk_buff may be freed by now. Then what is read here names no stamp.
	if (BPF_CORE_READ(udp, reader_queue.qlen)) {
		struct sk_buff *skb = BPF_CORE_READ(udp, reader_queue.next);
		head = (__u64)BPF_CORE_READ(skb, head);
		napi = BPF_CORE_READ(skb, napi_id);
	} else if (sk->sk_receive_queue.qlen) {
		struct sk_buff *skb = sk->sk_receive_queue.next;
		head = number(skb->head);
		napi = skb->napi_id;
	} else {
		return first;
	}
	first.more = 1;
	struct stamp *stamp = stamp_of(head);
	if (stamp && stamp->napi == napi) {
		first.at = stamp->at;
		first.slot = stamp->slot;
	}
	return first;
}

SEC("tp_btf/sk_data_ready")
int on_queued(__u64 *args)
{
	struct sock *sk = (struct sock *)args[0];
	if (sk->sk_protocol != IPPROTO_UDP)
		return 0;
	struct poll *now = this_poll();
	if (now && now->began == NOT_SAMPLED)
		return 0;
	struct waiting *its = bpf_sk_storage_get(&sockets, sk, 0, 0);
	// The first one stays the first until its reading is reported, also when it has left the queue by now.
	if (its && its->at) {
		its->more = 1;
		return 0;
	}
	struct waiting first = first_of(sk);
	first.more = 1;
	if (its)
		*its = first;
	else if (first.at) // a socket is followed from its first watched datagram on
		bpf_sk_storage_get(&sockets, sk, &first, BPF_SK_STORAGE_GET_F_CREATE);
	return 0;
}

// TRACE_EVENT(sock_recv_length, TP_PROTO(struct sock *sk, int ret, int flags))
SEC("tp_btf/sock_recv_length")
int on_recv(__u64 *args)
{
	struct sock *sk = (struct sock *)args[0];
	if (sk->sk_protocol != IPPROTO_UDP || (int)args[2] & (MSG_PEEK | MSG_ERRQUEUE))
		return 0;
	struct waiting *its = bpf_sk_storage_get(&sockets, sk, 0, 0);
	if (!its)
		return 0;
	if (!its->at && !its->more)
		return 0;
	if ((int)args[1] >= 0 && its->at)
		count(its->slot, its->at);
	*its = first_of(sk);
	return 0;
}

// TRACE_EVENT(napi_poll, TP_PROTO(struct napi_struct *napi, int work, int budget))
SEC("tp_btf/napi_poll")
int on_poll(__u64 *args)
{
	struct napi_struct *napi = (struct napi_struct *)args[0];
	struct poll *now = this_poll();
	if (!now)
		return 0;
	__u32 id = napi->napi_id;
	int is_full = (int)args[1] >= (int)args[2];
	if (id != now->napi)
		turn_to(now, id);
	struct seen *its = now->place ? of_slot(now->place - 1) : 0;
	if (its) {
		__u64 dev = (__u64)napi->dev;
		struct watched *is = now->dev == dev && !is_full && !now->run_began ? 0 : bpf_map_lookup_elem(&watched, &id);
		if (is) {
			is->dev = dev;
			is->run = is_full && now->run_began && now->run < LONGEST_RUN ? now->run + 1 : 0;
			is->began = is_full ? now->began : 0;
		}
		__sync_fetch_and_add(&its->polls, 1);
		if (is_full)
			__sync_fetch_and_add(&its->full_polls, 1);
		if (now->packets) {
			__sync_fetch_and_add(&its->packets, now->packets);
			__sync_fetch_and_add(&its->bytes, now->bytes);
		}
	}
	now->previous = is_full ? now->began : 0;
	now->began = 0;
	now->packets = 0;
	now->bytes = 0;
	now->napi = 0;
	now->place = 0;
	return 0;
}
