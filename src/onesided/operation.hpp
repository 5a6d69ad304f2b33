// One-sided operations in flight, what they work on, and where they wait.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "base/memory/fifo.hpp"
#include "base/memory/pool.hpp"
#include "base/memory/shared_file.hpp"
#include "channel/channel.hpp"
#include "message/request/request.hpp"
#include "onesided/additions.hpp"
#include "onesided/atomic_way.hpp"
#include "onesided/blob.hpp"
#include "onesided/wire.hpp"
#include "onesided/word_atomic.hpp"

namespace pt2p::onesided {

// Who moves the bytes or changes the word.
enum class Path : uint8_t {
	direct,    // this rank's processor
	transport, // get, put and atomic of the endpoint
	owner,     // the owner: a message asks it, and it acts when it makes progress
};

struct Target;

// Memory of a rank, imported.
struct Remote {
	uint64_t handle = 0; // see HandlePool
	Remote *next_free = nullptr;
	bool active = false;
	int rank = 0;
	Target *target = nullptr;
	uint64_t memory = 0;              // the owner's handle
	uint64_t address = 0, length = 0; // at the owner
	Agent agent = Agent::cpu;
	bool async_progress = false; // the owner makes progress while its program computes
	std::string nic;             // transport whose device does the atomic operations
	std::vector<Key> keys;
	unsigned char *base = nullptr; // where this rank's processor reaches it; null: nowhere
	Mapping mapping;
	size_t pending = 0; // operations

	// Chosen on first use.
	bool paths_known = false;
	Path put_path = Path::owner, get_path = Path::owner, atomic_path = Path::owner;
	Endpoint *endpoint = nullptr, *atomic_endpoint = nullptr; // Path::transport
	uint64_t key = 0, atomic_key = 0;
	bool may_ask = false; // Path::transport: the owner can be asked for additions instead
	AtomicWay atomic_way;
	// Additions by a device, and what they take, a mean of the last ones that were timed; ticks.
	uint64_t additions = 0;
	int64_t addition_latency = 0;

	bool holds(uint64_t offset, uint64_t bytes) const { return offset <= length && bytes <= length - offset; }
};

// Memory that its owner lends to one rank for a call.
struct LentMemory {
	uint64_t memory; // the owner's handle
	uint64_t address, length;
	Key key; // of the transport by which the owner reaches that rank
};
static_assert(sizeof(LentMemory) == 40);

struct Operation {
	enum class Kind : uint8_t { put, get, atomic };

	uint64_t handle = 0; // see HandlePool
	Operation *next_free = nullptr;
	Operation *next = nullptr; // in a queue
	Target *target = nullptr;
	Request *request = nullptr; // null: flush reports its failure
	const char *name = "";
	Remote *remote = nullptr, *signal_remote = nullptr;
	Remote *at = nullptr; // the one of the two that is being worked on
	Kind kind = Kind::put;
	Path path = Path::owner;
	bool active = false;
	bool started = false; // has left Target::waiting
	bool fenced = false;  // starts when all before it are done
	bool asked = false;   // the owner has been asked and has not answered
	bool signals = false; // a put that an atomic operation follows
	bool timed = false;   // an addition whose way is chosen by what it takes

	uint64_t offset = 0, length = 0;
	unsigned char *local = nullptr;
	uint64_t moved = 0; // bytes sent or received in pieces

	AtomicRequest atomic; // or the signal that follows
	uint64_t signal_offset = 0;
	void *result = nullptr; // of the caller; may be null
	int64_t issued = 0;     // ticks; timed
	uint32_t together = 0;  // additions that the owner has combined, this one included
	struct {
		DeviceAtomic atomic;
		Endpoint *endpoint = nullptr;
		uint64_t key = 0;
		uint64_t word = 0;  // what the device answered
		uint64_t value = 0; // what that means
	} device;               // Path::transport
	struct {
		bool foreign = false;     // this rank's device does it on behalf of a peer
		Target *target = nullptr; // the peer; null: it does not wait any more
		uint64_t token = 0;
		Fifo<Addition> additions; // with their peers, instead of those two
		AddedWord word;
	} served;
};

class Operations {
public:
	Operations() : pool_(std::random_device{}()) {}
	// Active, and otherwise as new.
	Operation &take(Target &target)
	{
		Operation &op = *pool_.take();
		const uint64_t handle = op.handle;
		op = Operation{};
		op.handle = handle;
		op.active = true;
		op.target = &target;
		return op;
	}
	void give(Operation &op)
	{
		op.active = false;
		pool_.give(&op);
	}
	// Null: it is over.
	Operation *find(uint64_t handle) const
	{
		Operation *op = pool_.find(handle);
		return op && op->active ? op : nullptr;
	}
	// Those that are active.
	template <class F>
	void for_each(F &&function) const
	{
		pool_.for_each([&](Operation &op) {
			if (op.active)
				function(op);
		});
	}

private:
	HandlePool<Operation> pool_;
};

// An answer that the owner has not sent yet.
struct Reply {
	Reply *next;
	uint8_t id; // id_result or id_data
	uint64_t token;
	Result result;
	uint64_t memory, offset, remaining; // id_data
};

// Everything between this rank and another, in both directions.
struct Target {
	int rank = 0;
	Channel *channel = nullptr;     // once it was needed
	pt2p_status_t status = PT2P_OK; // how the rank was lost
	bool listed = false;            // among those that have work

	// Operations of this rank on memory of that one.
	Fifo<Operation> waiting;         // not started, in order
	Fifo<Operation> resumed;         // started, with another step to do
	Operation *streaming = nullptr;  // a put whose pieces are being sent
	size_t pending = 0, started = 0; // of the pending ones, started
	uint32_t asked = 0;              // not answered by the owner
	bool fence = false;              // before the next operation
	pt2p_status_t failure = PT2P_OK; // the first of an operation without a request
	std::string failure_text;

	// Operations of that rank on memory of this one.
	Fifo<Reply> replies;
	uint32_t owed = 0; // answers, including those of operations that a device does
	struct Incoming {
		bool open = false;
		uint64_t token = 0, offset = 0, remaining = 0;
		pt2p_status_t status = PT2P_OK;
		PutHead head{};
	} incoming; // a put that comes in pieces

	bool has_work() const { return !waiting.empty() || !resumed.empty() || streaming || !replies.empty(); }
};

} // namespace pt2p::onesided
