// Endpoints, and their operations under way.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include <rdma/fi_endpoint.h>

#include "ofi/address.hpp"
#include "ofi/completion.hpp"
#include "ofi/context.hpp"
#include "ofi/domain.hpp"

namespace pt2p_ofi {

// An operation under way. What libpt2p calls at its end gets it as argument.
struct Op {
	Op *next; // free ones
	Endpoint *endpoint;
	void *context;  // of the program
	uint64_t flags; // of the completion
	void *buffer;
	size_t length;
	Counter *counter;
	bool receives = false; // a receive under way
	bool reports;          // a success is a completion, too
	int rank = -1;         // of the peer while under way, except of receives
	// Operations on remote memory.
	bool tells;     // the owner wants to know of them (FI_RMA_EVENT)
	uint32_t parts; // that have not ended
	pt2p_status_t status;
	uint64_t data, key;
	// What the operation needs while it lasts; kept for the next one.
	unsigned char *allocate(size_t bytes)
	{
		if (__builtin_expect(capacity < bytes, 0)) {
			memory = std::make_unique_for_overwrite<unsigned char[]>(bytes);
			capacity = bytes;
		}
		return memory.get();
	}
	std::unique_ptr<unsigned char[]> memory;
	size_t capacity = 0;
};

// Buffers for receives of many messages, and the receives behind them. Such a buffer takes messages until it is full,
// so only the first one is posted, and what came after it waits.
struct MultiReceive;

struct Endpoint {
	fid_ep fid;
	Domain *domain;
	bool in_job = false;  // of a launcher: its address is a rank
	sockaddr_in listen{}; // else: where to be reached; 0: anywhere
	uint64_t caps = 0;
	uint64_t tx_flags = 0, rx_flags = 0; // FI_SETOPSFLAG: of calls without flags
	Av *av = nullptr;
	Cq *tx_cq = nullptr, *rx_cq = nullptr;
	bool tx_selective = false, rx_selective = false;
	Counter *send_counter = nullptr, *recv_counter = nullptr, *read_counter = nullptr, *write_counter = nullptr;
	Counter *remote_read_counter = nullptr, *remote_write_counter = nullptr; // with FI_RMA_EVENT
	std::vector<Counter *> bound_counters;                                   // once for each bind
	std::vector<Counter *> counters;                                         // all of them, each once
	bool enabled = false;
	size_t min_multi_recv = 64;

	Context *context = nullptr;
	pt2p_context_t *ctx = nullptr; // of that

	// What follows from the flags: whether calls without flags report a success, and whether sends are nothing special.
	bool tx_reports = true, rx_reports = true, tx_plain = true, directed = false;
	// Whether calls without flags take a short path. They do where one thread works on the endpoint at a time, and
	// where they report to a queue and count nowhere; reads and writes may count.
	bool quick_sends = false, quick_injects = false, quick_receives = false, quick_rma = false;

	Lock lock;                        // of all below
	std::vector<int> ranks;           // by number in the address vector; negative: not looked up
	std::vector<fi_addr_t> addresses; // by rank, as completions name it; filled when asked for
	Op *free_ops = nullptr;
	std::vector<std::unique_ptr<Op[]>> op_blocks;
	std::unique_ptr<MultiReceive> multi;

	Endpoint();
	~Endpoint();

	// A new operation. With the lock. context: the program's; flags: of its completion.
	Op *take(void *context, uint64_t flags, Counter *counter, bool reports)
	{
		if (__builtin_expect(!free_ops, 0))
			allocate_ops();
		Op *op = free_ops;
		free_ops = op->next;
		op->context = context;
		op->flags = flags;
		op->buffer = nullptr;
		op->counter = counter;
		op->reports = reports;
		return op;
	}
	void give(Op *op)
	{
		const Locked locked(lock);
		give_locked(op);
	}
	void give_locked(Op *op)
	{
		op->receives = false;
		op->rank = -1;
		op->next = free_ops;
		free_ops = op;
	}

	// The same for an operation with the peer of this rank. Without the lock.
	Op *take_with(int rank, void *context, uint64_t flags, Counter *counter, bool reports)
	{
		const Locked locked(lock);
		Op *op = take(context, flags, counter, reports);
		op->rank = rank;
		return op;
	}

	// The same for the peer at this address. Null: `error` is one of libfabric.
	Op *take_for(fi_addr_t peer, ssize_t &error, void *context, uint64_t flags, Counter *counter, bool reports)
	{
		const Locked locked(lock);
		const int rank = rank_of(peer);
		if (rank < 0) {
			error = rank;
			return nullptr;
		}
		Op *op = take(context, flags, counter, reports);
		op->rank = rank;
		return op;
	}

	// The rank at this address if it has been looked up, or -1. With the lock.
	int known_rank(fi_addr_t address) const { return address < ranks.size() ? ranks[address] : -1; }
	// The same; looks it up. Negative: an error of libfabric. A lookup gives the lock up meanwhile.
	int rank_of(fi_addr_t address)
	{
		const int rank = known_rank(address);
		return __builtin_expect(rank >= 0, 1) ? rank : look_up(address);
	}
	// The same, without the lock.
	int rank_at(fi_addr_t address)
	{
		const Locked locked(lock);
		return rank_of(address);
	}
	// The address of a rank as completions name it, if it has been looked up, or FI_ADDR_NOTAVAIL. With the lock.
	fi_addr_t known_address(int rank) const
	{
		const auto at = static_cast<size_t>(rank);
		return at < addresses.size() ? addresses[at] : FI_ADDR_NOTAVAIL;
	}
	// The same, without the lock; looks it up.
	fi_addr_t address_of(int rank)
	{
		{
			const Locked locked(lock);
			if (const fi_addr_t address = known_address(rank); address != FI_ADDR_NOTAVAIL)
				return address;
		}
		return look_up_source(rank);
	}
	// The address of a rank as getname gives it there. False: nobody has that number.
	bool name_of(int rank, unsigned char *address) const;
	// The address vector has given up that entry.
	void forget(fi_addr_t address);

	// Whether a call with these flags reports its success.
	bool reports_send(uint64_t flags) const { return tx_cq && (!tx_selective || flags & FI_COMPLETION); }
	bool reports_receive(uint64_t flags) const { return rx_cq && (!rx_selective || flags & FI_COMPLETION); }
	// What a function of libfabric returns that has asked libpt2p to start an operation.
	ssize_t started(Op *op, pt2p_status_t status)
	{
		return __builtin_expect(status == PT2P_OK, 1) ? 0 : not_started(op, status);
	}
	// The end of an operation: a completion, or an error, and the counter.
	void succeed(Op *op)
	{
		if (op->reports)
			tx_cq->push({op->context, op->flags, 0, nullptr, 0, 0});
		if (op->counter)
			op->counter->add(1);
		give(op);
	}
	void fail(Op *op, const pt2p_result_t &result, Cq *cq);
	// Either of both, for libpt2p: for all that reports to tx_cq. argument: the operation.
	static void ended(pt2p_context_t *, const pt2p_result_t *result, void *argument)
	{
		Op *op = static_cast<Op *>(argument);
		Endpoint &e = *op->endpoint;
		if (__builtin_expect(result->status == PT2P_OK, 1))
			e.succeed(op);
		else
			e.fail(op, *result, e.tx_cq);
	}
	// FI_FENCE: 0: all operations with that peer have ended, so the next one may start. Or a negative error, most often
	// -FI_EAGAIN. Makes progress. Without the lock.
	ssize_t fence(fi_addr_t peer);
	void use(Counter &counter); // that counts something of this endpoint
	void update_flags();        // what follows from the flags, the counters and the lock
	int enable();
	// Nobody can address it: it only reads, writes, and asks for atomic operations.
	bool only_initiates() const
	{
		return caps & (FI_READ | FI_WRITE) && !(caps & (FI_MSG | FI_TAGGED | FI_REMOTE_READ | FI_REMOTE_WRITE)) &&
		       !listen.sin_port;
	}
	int make_context();
	// 0, or -FI_EBUSY: nothing has been done.
	int close();

private:
	void allocate_ops();
	[[gnu::cold]] ssize_t not_started(Op *op, pt2p_status_t status);
	void remember(int rank, fi_addr_t address); // as completions name it; with the lock
	int look_up(fi_addr_t address);
	fi_addr_t look_up_source(int rank);
	void enable_locks();
	bool has_operations(int rank = -1); // under way with that peer; negative: with any
	bool operations_end();              // false: not in time
	template <class F>
	void for_each_queue(F &&f) // each once
	{
		if (tx_cq)
			f(*tx_cq);
		if (rx_cq && rx_cq != tx_cq)
			f(*rx_cq);
	}
};

inline Endpoint &endpoint_of(fid_ep *f) { return *object_of<Endpoint>(f); }

// Bytes of all segments together.
inline size_t length_of(const iovec *segments, size_t count)
{
	size_t length = 0;
	for (size_t i = 0; i < count; ++i)
		length += segments[i].iov_len;
	return length;
}

int open_endpoint(fid_domain *domain, fi_info *info, fid_ep **endpoint, void *context);

// The tables of its functions, and what they need when it is enabled, is asked to cancel, and is closed.
extern fi_ops_msg message_ops;
extern fi_ops_tagged tagged_ops;
extern fi_ops_rma rma_ops;
extern fi_ops_atomic atomic_ops;
ssize_t cancel(Endpoint &endpoint, void *context);
// Tells a peer that the memory with this key is no more.
void tell_end(pt2p_context_t *ctx, int rank, uint64_t key);

constexpr uint32_t protocol = FI_PROV_SPECIFIC | 0x7074; // of ep_attr

// Tags of libpt2p. Tagged messages have the highest bit clear, so tags of programs have 63 bits.
constexpr uint64_t untagged = UINT64_C(1) << 63;
constexpr uint64_t tag_bits = untagged - 1;

// What fits into one injected message, and how many segments an operation may have.
constexpr size_t inject_size = 1024, max_segments = 8;

constexpr size_t ops_per_block = 64; // of Endpoint::op_blocks

} // namespace pt2p_ofi
