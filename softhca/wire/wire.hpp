// The wire between the processes of one machine: frames through shared memory in the fabric's directory.
//
//   slots       which slots processes occupy, and how many processes have had each slot
//   inbox.<n>   the frames sent to slot n: a ring with many writers and one reader
//
// The processes may be in different network, mount, UTS and PID name spaces. A process that is killed, at any
// instruction, loses its own unfinished frame and blocks nobody. When a process is stopped while it writes to an inbox,
// that inbox looks full to the others; when it is stopped while it joins, the next one that joins waits.
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

// One process on the wire. The caller makes all calls but sleep() and wake() under one lock, which also keeps fork()
// out of the constructor.
class Wire {
public:
	// Joins the fabric in `directory`. Throws std::runtime_error with cause and remedy. Allocates all memory here: a
	// full /dev/shm is an error now, and no SIGBUS later.
	explicit Wire(const std::string &directory);
	// Leaves: frees the slot and removes its inbox.
	~Wire();

	unsigned slot() const { return slot_; }
	// Changes whenever another process takes the slot; 0: nobody has had it.
	uint64_t incarnation(unsigned slot) const;
	// Whether the process of that slot still runs; frees the slot when it has died. Makes system calls.
	bool alive(unsigned slot);

	enum class Room { yes, full, nobody };
	// Room for a frame of `bytes`, 1 to max_frame_bytes, in the inbox of `slot`; `frame` is aligned to 16. `yes`: the
	// inbox is locked until end(), which must follow soon; the reader sees the frame after that. `full`: try again
	// later; also when the lock, or memory to map the inbox, is not available now. `nobody`: there is no process, it
	// has ended, or its inbox cannot be opened.
	Room begin(unsigned slot, size_t bytes, uint8_t *&frame);
	void end();
	// How many bytes all writers have put into an inbox, and how many of them its owner has taken. An owner that takes
	// nothing may be waiting for a processor. Both count from zero for each incarnation and include the heads of
	// frames; `taken` moves in steps of up to a quarter of the ring. 0 until begin() has opened that inbox.
	uint64_t posted(unsigned slot) const;
	uint64_t taken(unsigned slot) const;

	// The oldest frame in this process's inbox, empty when there is none; valid until pop(). Lengths in shared memory
	// are not trusted: after an impossible one, everything up to the writers' position is dropped.
	std::span<const uint8_t> front();
	void pop();

	// Returns when there is a frame (with `for_frames`), when wake() has been called since the last sleep(), or after
	// `limit`. One thread at a time. When a writer is killed between its frame and its signal, the frame is noticed
	// with the next one or after `limit`: choose it finite.
	void sleep(std::chrono::nanoseconds limit, bool for_frames);
	void wake();

	// After fork(), in the child: forgets everything; the parent stays on the wire. Only the destructor may follow. A
	// child that neither calls this nor execs hides the death of its parent.
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
		unsigned refusals = 0; // because the inbox was full
	};

	uint64_t state(unsigned slot) const;
	std::string inbox_path(unsigned slot) const;
	Room open_inbox(unsigned slot, uint64_t state);
	bool lock(Inbox &inbox);
	bool gone(uint64_t holder);
	void publish_head(uint64_t head);

	const std::string directory_;
	std::unique_ptr<Table, Unmap> table_;
	// This process.
	unsigned slot_ = 0;
	uint64_t state_ = 0; // of its slot
	uint64_t me_ = 0;    // in the lock of an inbox
	int life_ = -1;      // the descriptor whose lock shows that it lives
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
