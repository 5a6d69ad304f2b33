// What other ranks ask of this one as the owner of memory; wire.hpp draws the messages.
//
// Whoever asks is not trusted. The owner looks a handle up in its table and checks offset and length for each message,
// so nothing outside of registered memory is touched, also when the memory is released amid a transfer.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/memory/pool.hpp"
#include "onesided/memory.hpp"
#include "onesided/targets.hpp"

namespace pt2p::onesided {

class Owner {
public:
	Owner(Reporter &reporter, int rank, MemoryTable &memories, Operations &operations, Targets &targets)
	    : reporter_(reporter), rank_(rank), memories_(memories), operations_(operations), targets_(targets)
	{
	}

	// What a peer asks. Null, or what is wrong with it.
	const char *on_message(Target &target, uint8_t id, uint64_t token, const void *data, size_t length);
	// Has this rank's device do an atomic operation that nobody but the device itself waits for.
	void start(Operation &operation, Memory &memory, uint64_t offset, const AtomicRequest &atomic);
	// This rank's device has done an operation for a peer.
	void on_served(Operation &operation, pt2p_status_t status);
	// That rank does not wait for answers any more.
	void forget(const Target &target);

	// Sends what there is room for; returns how many messages went.
	unsigned send_replies(Target &target);
	void drop_replies(Target &target);
	size_t owed() const { return owed_; } // answers, over all targets

private:
	const char *on_put(Target &target, uint64_t token, const PutHead &head, const unsigned char *data, size_t length);
	const char *on_piece(Target &target, uint64_t token, const void *data, size_t length);
	void take_piece(Target &target, const void *data, size_t length);
	const char *on_get(Target &target, uint64_t token, const GetHead &head);
	const char *on_atomic(Target &target, uint64_t token, const AtomicHead &head);
	void execute(Target &target, uint64_t token, uint64_t memory, uint64_t offset, const AtomicRequest &atomic);
	pt2p_status_t examine(uint64_t memory, uint64_t offset, uint64_t length, Memory *&found);
	void add(const AddedWord &word);
	void on_added(Operation &operation, pt2p_status_t status);
	void reply(Target &target, uint64_t token, pt2p_status_t status, uint64_t value, size_t together = 1);
	bool send_reply(Target &target, Reply &reply, bool &over);
	void owe(Target &target);
	void settle(Target &target);

	Reporter &reporter_;
	const int rank_;
	MemoryTable &memories_;
	Operations &operations_;
	Targets &targets_;
	Additions additions_;
	Pool<Reply> replies_;
	size_t owed_ = 0;
};

} // namespace pt2p::onesided
