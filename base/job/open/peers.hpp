// The numbers of an open job: who has which, how they stand, and what is to be told of them. The context's threads and
// its helper thread share it.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/job/job.hpp"
#include "base/job/open/wire.hpp"

namespace pt2p::open_job {

// A number and its owner: the same number of a later owner is another place.
struct Slot {
	int rank = -1; // -1: none is left
	uint64_t owner = 0;
};

class Peers {
public:
	// `pending` is set while there are events.
	Peers(int size, std::atomic<bool> &pending) : size_(size), pending_(pending), peers_(1) {}

	// ---- for the helper thread: connections come, peers become known, and end

	// The number of the live peer with this id; -1: there is none.
	int find_live(const Id &id) const;
	// A connection of this context dials a peer with that id: its number, a new one if need be.
	Slot begin(const Id &id);
	// The same for a connection over which it has told this context's number at the peer. A peer that tells another one
	// than before has removed this context and come again.
	Slot begin(const Id &id, int rank_there);
	void learn(Slot slot, int rank_there, const std::string &blob, const std::string &address);
	void become_live(Slot slot);
	// A connection of this number has ended; with the last one, a live peer is lost.
	void detach(Slot slot, const std::string &reason);
	// It has said goodbye.
	void leave(Slot slot, const std::string &reason);
	// Whether nothing goes to it any more from here: its connection may be closed.
	bool is_handled(Slot slot) const;

	// ---- for the job

	// False: its address is not there yet. Throws Error. With `wait`, waits for the end of an exchange under way.
	bool take_blob(int rank, std::string &blob, bool wait);
	bool is_free(int rank) const;
	int rank_at(int rank) const;
	// Where it answers; empty: nobody has the number, or has not told yet.
	std::string address_of(int rank) const;
	bool next_event(RankEvent &event);
	Job::End end_of(int rank, std::string &reason);
	// What is wrong with removing it; empty: it is removed, and `was_live` tells whether it was a peer.
	std::string remove(int rank, bool &was_live);
	// See Job.
	void set_handled(int rank);
	bool next_to_forget(size_t &position, int &rank, bool &removed) const;
	void free_number(int rank);

private:
	enum class State { free, pending, live, left, lost };
	struct Peer {
		State state = State::free;
		Id id{};
		uint64_t owner = 0; // counts the owners of numbers
		int rank_there = -1, connections = 0;
		std::string blob, address, reason; // reason: of its end
		int64_t end_asked = 0;             // when somebody first asked how it has ended, ns
		int64_t ended = 0;                 // when it has, ns
		bool may_send = false;             // while it is pending, too: it was told its number
		bool handled = false;              // nothing goes to it any more
		bool removed = false;              // by the program
	};

	// With the lock held.
	Peer *find(int rank);
	const Peer *find(int rank) const { return const_cast<Peers *>(this)->find(rank); }
	Peer *find(Slot slot);
	int take_number(const Id &id);
	void wait_until_known(std::unique_lock<std::mutex> &lock, int rank);
	void end(int rank, State state, const std::string &reason);
	void note_end(Peer &peer, State state, const std::string &reason);

	const int size_;
	std::atomic<bool> &pending_;
	mutable std::mutex mutex_;
	std::condition_variable changed_;
	std::vector<Peer> peers_;   // by number; those above were never given
	std::map<Id, int> numbers_; // of pending and live peers
	std::deque<int> free_;      // numbers that were given before, in the order in which they became free
	std::deque<int> ended_;     // numbers of peers that have gone, in the order of their ends
	std::deque<RankEvent> events_;
	uint64_t owners_ = 0; // so far
};

} // namespace pt2p::open_job
