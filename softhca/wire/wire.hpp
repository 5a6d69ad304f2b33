// The wire between the processes of one machine: frames through shared memory in the fabric's directory.
//
//   slots       who is there: for each process its slot, a number, and how often that slot has been given away
//   inbox.<n>   what has been sent to slot n: a ring of frames with many writers and one reader
//
// The processes may be in different network, mount, UTS and PID name spaces. One that is killed, at whatever
// instruction, loses its own unfinished frame and holds up nobody else. One that is stopped while it writes to an inbox
// makes that inbox look full to the others; one that is stopped while it joins lets the next one that joins wait.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace softhca {

constexpr unsigned max_processes = 1024;
constexpr size_t max_frame_bytes = 8192;

// One process on the wire. All calls but sleep() and wake() are made under one lock of the caller, which also keeps
// fork() out of the constructor.
class Wire {
public:
	// Joins the fabric in `directory`. Throws std::runtime_error with cause and remedy. All memory is allocated here: a
	// full /dev/shm is an error now, and no SIGBUS later.
	explicit Wire(const std::string &directory);
	// Leaves: the slot is free, its inbox gone.
	~Wire();

	unsigned slot() const { return slot_; }
	// Changes whenever another process takes the slot; 0: nobody has had it.
	uint64_t incarnation(unsigned slot) const;
	// Whether the process of that slot still runs; frees the slot when it has died. Makes system calls.
	bool alive(unsigned slot);

	enum class Room { yes, full, nobody };
	// Room for a frame of `bytes`, 1 to max_frame_bytes, in the inbox of `slot`; `frame` is aligned to 16. On yes,
	// that inbox is locked until end(), which must follow soon; its reader sees nothing of the frame before. `full`:
	// try again later; also when the lock, or memory to map the inbox, is not to be had just now. `nobody`: no process
	// there, or it is known to have ended, or we may not open its inbox.
	Room begin(unsigned slot, size_t bytes, uint8_t *&frame);
	void end();
	// How many bytes have been put into an inbox so far, by everybody, and how many of them its owner has taken: with
	// nothing taken, a peer may simply not have had the processor. Counted anew for each incarnation, heads of frames
	// included; `taken` moves in steps of up to a quarter of the ring. 0 until begin() has opened that inbox.
	uint64_t posted(unsigned slot) const;
	uint64_t taken(unsigned slot) const;

	// The oldest frame in our inbox, empty when there is none; valid until pop(). Lengths in shared memory are not
	// trusted: after an impossible one, everything up to the writers' position is dropped.
	std::span<const uint8_t> front();
	void pop();

	// Returns when there is a frame (with `for_frames`), when wake() has been called since the last sleep(), or when
	// `most` has passed. One thread at a time. A writer that is killed between its frame and its signal leaves the
	// frame unnoticed until the next one or until `most`: choose it finite.
	void sleep(std::chrono::nanoseconds most, bool for_frames);
	void wake();

	// After fork(), in the child: forgets everything, without leaving in the parent's name. Only the destructor may
	// follow. A child that does not call it, and does not exec, hides the death of its parent.
	void abandon();

private:
	struct Table;
	struct Inbox;
	struct Unmap {
		void operator()(Table *table) const;
		void operator()(Inbox *inbox) const;
	};
	struct Peer {
		std::unique_ptr<Inbox, Unmap> inbox;
		uint64_t state = 0;    // of its slot when it was mapped
		uint64_t head = 0;     // as last seen
		unsigned refusals = 0; // for want of room
	};

	uint64_t state(unsigned slot) const;
	std::string inbox_path(unsigned slot) const;
	Room open_inbox(unsigned slot, uint64_t state);
	bool lock(Inbox &inbox);
	bool gone(uint64_t holder);
	void publish_head(uint64_t head);

	const std::string directory_;
	std::unique_ptr<Table, Unmap> table_;
	// Ourselves.
	unsigned slot_ = 0;
	uint64_t state_ = 0; // of our slot
	uint64_t me_ = 0;    // in the lock of an inbox
	int life_ = -1;      // the descriptor whose lock says that we live
	// Sending.
	std::vector<Peer> peers_;
	Inbox *sending_ = nullptr; // between begin() and end()
	uint64_t sending_tail_ = 0;
	// Receiving.
	std::unique_ptr<Inbox, Unmap> inbox_;
	std::atomic<uint64_t> head_ = 0; // atomic for sleep() only
	uint64_t published_head_ = 0, seen_tail_ = 0, front_bytes_ = 0;
	std::atomic<bool> woken_ = false;
};

} // namespace softhca
