// One-sided operations. They are cut into parts, which are posted as the queues take them. The owner hears of the
// completion of the last part. Parts of large data are striped over several queue pairs.
#pragma once

#include <string>

#include "base/memory/fifo.hpp"
#include "base/memory/pool.hpp"
#include "transports/verbs/device/registrations.hpp"
#include "transports/verbs/peer.hpp"
#include "transports/verbs/qp/send_queue.hpp"

namespace pt2p::verbs {

struct Operation {
	Kind kind;
	void *owner = nullptr;          // passed to on_complete
	unsigned char *local = nullptr; // read and write: the program's memory
	uint64_t *result = nullptr;     // atomics: where the previous value goes
	size_t length = 0;
	RemoteMemory remote{};
	uint64_t operand = 0, compare = 0;
	NetPeer *peer = nullptr;
	// For Operations only. The payload is in the program's memory, in a buffer, or, for a short write, in the WQE.
	Payload payload = Payload::memory;
	Registration *registration = nullptr; // of `local`; null: buffers
	bool striped = false;                 // its parts may go through several queue pairs
	size_t posted = 0, done = 0;          // bytes
	pt2p_status_t status = PT2P_OK;       // PT2P_OK: nothing has failed so far
	const char *reason = "";              // why
	Operation *next = nullptr;            // in the list of those that wait

	bool is_atomic() const { return kind >= Kind::fetch_add; }
};

class Operations final : public PartEvents {
public:
	Operations(const TransportEnvironment &environment, const Device &device, SendMemory &memory);

	// Copies `wanted`.
	Outcome start(const Operation &wanted);
	// Why the last one was refused.
	const Refusal &refusal() const { return refusal_; }
	void *expose(void *memory, size_t length, uint64_t &key, std::string &why_not);
	void withdraw(void *exposure) { registrations_.release(static_cast<Registration *>(exposure)); }
	void forget(const void *memory, size_t length) { registrations_.forget(memory, length); }

	// Posts what waits, as far as the queues take it now.
	bool any_waits() const { return !waiting_.empty(); }
	void drive_waiting();
	// Waiting operations with that peer fail; what is in flight ends by itself.
	void end_waiting(const NetPeer &peer, pt2p_status_t status);
	// From now on no callback is made: the layers above are going away, too.
	void leave() { left_ = true; }
	bool left() const { return left_; }

	void part_done(Operation &operation, size_t bytes) override;
	void part_failed(Operation &operation, size_t bytes, pt2p_status_t status, const char *reason) override;

private:
	Outcome refuse(pt2p_status_t status, std::string reason);
	Registration *register_for(const Operation &wanted);
	bool choose_payload(Operation &operation);
	bool stripes(NetPeer &peer, size_t length) const;
	bool post_parts(Operation &operation);
	void post_part(SendQueue &queue, Operation &operation, size_t offset, size_t length, bool signal);
	void finish(Operation &operation);

	const TransportEnvironment environment_;
	SendMemory &memory_;
	Registrations registrations_;
	// Bytes. Writes of up to max_inline_ are inlined. Operations of up to max_copied_ go through a buffer if their
	// memory is not registered, because registering costs more than a copy.
	const size_t max_inline_, max_copied_;
	Pool<Operation> operations_;
	Fifo<Operation> waiting_;
	Refusal refusal_;
	bool left_ = false;
};

// Operations of a transport's table.
Outcome get(Endpoint &endpoint, void *local, RemoteMemory from, size_t length, void *operation);
Outcome put(Endpoint &endpoint, const void *local, RemoteMemory to, size_t length, void *operation);
Outcome atomic(Endpoint &endpoint, AtomicOperation what, RemoteMemory at, uint64_t operand, uint64_t compare,
               uint64_t *result, void *operation);

} // namespace pt2p::verbs
