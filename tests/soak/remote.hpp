// SPDX-License-Identifier: BSD-3-Clause
// One-sided operations beside the messages. Their results are known in advance, or each change is accounted for.
//
// Each rank lends a window:
//
//     words          all ranks change them atomically; each change is accounted for, so their sum is known at the end
//     for each lane  a signal word, room for the payload of signals, and a private area that only this lane writes
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "lane.hpp"

namespace soak {

class Window {
public:
	static constexpr size_t words = 16, slot = 1024;
	static constexpr unsigned max_signals = 3; // of a lane to a rank in an episode

	explicit Window(Rank &rank);
	~Window();
	// The steps of a run. In a cooperative job all ranks take a step before the next one.
	void lend();     // makes the window, and exports it
	void take();     // imports those of the others
	void account();  // when all is done: tells each owner what was changed there
	void verify();   // checks this rank's window
	void give_up();  // releases those of the others
	void withdraw(); // releases this one's, when all others have given it up

	size_t signal_at(int lane) const { return words * 8 + static_cast<size_t>(lane) * area_; }
	size_t slot_at(int lane, size_t index) const { return signal_at(lane) + 8 + index * slot; }
	size_t private_at(int lane) const { return slot_at(lane, slots_); }
	size_t private_bytes() const { return private_; }
	unsigned signals(int lane, int owner, size_t episode) const; // how many
	size_t signal_length(int lane, int owner, size_t index) const;
	uint64_t signal_payload(int lane, int owner, size_t index) const;
	pt2p_remote_t *remote(int rank) const { return remotes_[static_cast<size_t>(rank)]; }
	const unsigned char *memory() const { return base_; }

	// For all threads: the sum of the changes there, and the last state of the private areas.
	void changed(int owner, size_t word, uint64_t by);
	void leaves(int owner, int lane, uint64_t checksum);

private:
	struct Account {
		uint64_t unknown; // an atomic operation failed
		uint64_t change[words];
		uint64_t checksum[8]; // of the private areas of the rank's lanes
	};
	Rank &rank_;
	size_t private_, slots_, area_, bytes_;
	bool allocated_ = false;
	std::unique_ptr<unsigned char[]> own_;
	unsigned char *base_ = nullptr;
	pt2p_memory_t *memory_ = nullptr;
	std::vector<pt2p_remote_t *> remotes_;
	std::vector<Account> accounts_, incoming_;
	std::vector<std::vector<unsigned char>> blobs_;
	std::vector<unsigned char> blob_;
	struct Pending {
		pt2p_request_t *request;
		int peer;
		bool receive;
	};
	std::vector<Pending> pending_;
	std::vector<size_t> received_; // bytes of the last exchange, from each rank
	std::mutex mutex_;
	void exchange(const void *out, size_t length, bool each, uint64_t tag, const std::function<void *(int)> &in,
	              size_t capacity);
	bool await();
};

uint64_t checksum(const unsigned char *data, size_t length);

// The operations of one lane.
class RemoteLoad {
public:
	RemoteLoad(Window &window, Rank &rank, int thread);
	void attach(Lane &lane) { lane_ = &lane; }
	void begin(size_t episode);
	bool more() const { return left_ > 0 || !signals_.empty(); }
	void start(); // one operation
	void await_signals(size_t episode);
	void finish(); // waits for all
	void last();   // after all episodes: reads everything back

private:
	struct Range {
		size_t begin, end;
		bool write;
	};
	struct Target {
		std::vector<unsigned char> expected; // of the private area
		std::vector<Range> under_way;        // since the last fence
		size_t signals = 0;                  // sent, in all episodes
	};
	void put_or_get(int owner, bool put);
	void atomic(int owner);
	void signal(int owner);
	void order(int owner, Range next);
	void flush(int owner);
	void started(Operation &o, pt2p_status_t status, const char *what);

	Window &window_;
	Rank &rank_;
	const int thread_, me_; // me_: number of the lane
	Lane *lane_ = nullptr;
	Random random_;
	std::vector<Target> targets_;
	std::vector<size_t> seen_;         // signals, of each lane
	std::vector<int> signals_;         // owners that get one yet in this episode
	std::vector<Operation *> unasked_; // without a request; the next flush completes them
	unsigned left_ = 0;
};

} // namespace soak
