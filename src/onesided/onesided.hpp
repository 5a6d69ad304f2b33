// One-sided operations: memory that is registered, exported and imported; put, get and atomic operations on it; their
// order and their end. pt2p_onesided(7) tells the semantics.
//
// The path of an operation is chosen for each remote memory. It is the first of these that works:
//
//   direct      the memory is this rank's, or mapped here (allocated memory of a rank of this node): memcpy and the
//               processor's atomic instructions, done within the call
//   transport   get, put and atomic of the endpoint
//   owner       messages; the owner does it in its next turn (wire.hpp)
//
// One agent does all atomic operations on one memory. The owner chooses it when it registers the memory:
//
//   cpu   the processors of the owner's host; ranks of other hosts ask the owner
//   nic   the owner's device; ranks that reach the owner by the transport of that device use it, all others ask the
//         owner, which uses the loopback of its device
//
//   waiting ---> started ---> done         waiting: behind a fence, for room, or for answers of the owner
//
// Operations that wait are kept in order for each target; nothing else is ordered. A put with a signal becomes an
// atomic operation when its payload is in place.
#pragma once

#include <cstdint>
#include <string>

#include "base/memory/pool.hpp"
#include "message/engine.hpp"
#include "onesided/asking.hpp"
#include "onesided/memory.hpp"
#include "onesided/operation.hpp"
#include "onesided/owner.hpp"
#include "onesided/targets.hpp"

namespace pt2p::onesided {

class OneSided final : public Extension, private Asker::Client {
public:
	OneSided(const TransportEnvironment &environment, Engine &engine, Router &router, Progress &progress);

	MemoryTable &memories() { return memories_; }
	// What other ranks need to import it.
	std::string export_memory(const Memory &memory) { return memories_.blob(memory, progress_.has_thread()); }
	// Null for a dead or foreign handle.
	Remote *find_remote(uint64_t handle) const
	{
		Remote *r = remotes_.find(handle);
		return r && r->active ? r : nullptr;
	}
	// Throws Error.
	Remote &import(int rank, std::string_view bytes);
	// Waits for the operations that use it.
	void release(Remote &remote);
	// The same for memory that a peer has lent to this rank for one call.
	LentMemory describe(const Memory &memory, Endpoint &endpoint) const;
	Remote &import(int rank, const LentMemory &memory);
	// None of its operations is in flight.
	void forget(Remote &remote);
	// Chooses the paths if that has not been done. A failure has been recorded.
	pt2p_status_t choose_paths(Remote &remote);
	// Memory is unmapped: transports forget their registrations of it.
	void gone(void *address, size_t length);

	// What to do. Arguments have been checked.
	struct Work {
		const char *name;
		Operation::Kind kind;
		Remote *remote;
		uint64_t offset, length;
		void *local;            // put: where from; get: where to
		AtomicRequest atomic{}; // atomic operation or signal
		void *result = nullptr;
		Remote *signal = nullptr; // of the same rank
		uint64_t signal_offset = 0;
	};
	// Starts it. Without `req`, flush reports its failure.
	pt2p_status_t start(const Work &work, pt2p_request_t **req);
	// The same, and polls from time to time.
	pt2p_status_t submit(const Work &work, pt2p_request_t **req);
	pt2p_status_t flush(int rank);
	pt2p_status_t flush_all();
	void fence(int rank);

	// From the engine.
	const char *on_message(int peer, uint8_t id, uint64_t header, const void *data, size_t length) override;
	void on_complete(uint64_t operation, pt2p_status_t status, std::string_view reason) override;
	void on_peer_down(int peer, pt2p_status_t status) override { end_operations(peer, status, {}); }
	bool may_forget(int peer) override;
	void forget_peer(int peer) override;
	void on_refused(int peer, pt2p_status_t status, std::string_view reason) override;
	unsigned drive() override;
	bool has_work() const override { return targets_.busy(); }
	bool pending() const override { return pending_ || owner_.owed() || normal_.under_way; }
	std::string pending_text() const override;
	std::string advice(uint32_t device_part, size_t local_ranks) const override;

private:
	void end_operations(int peer, pt2p_status_t status, std::string_view reason);
	unsigned drive(Target &target);
	unsigned start_waiting(Target &target);

	Remote &make_remote(int rank);
	pt2p_status_t examine(const Work &work);
	bool at_once(const Work &work, Target &target);
	Operation &make_operation(const Work &work, Request *request);
	void do_direct(Operation &operation);
	// False when there is no room now and nothing has happened.
	bool issue(Operation &operation);
	bool issue_by_transport(Operation &operation);
	bool finish_step(Operation &operation);
	void advance(Operation &operation, pt2p_status_t status, std::string_view reason = {}) override;
	void finish(Operation &operation, pt2p_status_t status, std::string_view reason = {}) override;
	void keep_failure(const Operation &operation, pt2p_status_t status, std::string_view reason);
	void set_up_atomic(Operation &operation, Remote &remote, uint64_t offset);
	void choose_way(Operation &operation);
	void measure_normal();
	void learn_way(Operation &operation, pt2p_status_t status);
	pt2p_status_t report_failure(Target &target);

	TransportEnvironment environment_;
	const Config &config_;
	Reporter &reporter_;
	Job &job_;
	Engine &engine_;
	Router &router_;
	Progress &progress_;
	MemoryTable memories_;
	HandlePool<Remote> remotes_;
	Operations operations_;
	Targets targets_;
	Asker asker_;
	Owner owner_;
	// The latency of an addition by this rank's device in its own memory, or of one elsewhere that took less: the first
	// may have been late.
	struct Normal {
		Normal(const TransportEnvironment &environment, Router &router) : table(environment, router) {}
		alignas(8) uint64_t word = 0;
		MemoryTable table; // no other rank knows of what is in it
		Memory *memory = nullptr;
		unsigned additions = 0;
		bool under_way = false;
		int64_t latency = 0; // ticks; 0: not known
	} normal_;
	size_t pending_ = 0; // over all targets
	uint32_t calls_ = 0;
	const int64_t since_ticks_, since_ns_; // tell how long a tick is
};

} // namespace pt2p::onesided
