// SPDX-License-Identifier: BSD-3-Clause
// One thread of a rank: sends and receives what the plan says, in its own order, and checks it.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>

#include "buffer.hpp"
#include "rank.hpp"

namespace soak {

class RemoteLoad;

struct Operation {
	enum class What { send, receive, ghost, remote };
	What what;
	pt2p_request_t *request = nullptr;
	Message message{};
	int peer = 0; // PT2P_ANY_SOURCE as well
	std::unique_ptr<Buffer> buffer;
	pt2p_result_t result{};
	bool failed = false;            // because the peer is lost
	std::function<void(bool)> then; // of a one-sided operation; the argument: whether it succeeded
	uint64_t value = 0;             // of an atomic operation
	uint32_t value32 = 0;
};

class Lane {
public:
	Lane(Rank &rank, int thread, const std::vector<std::vector<Message>> &messages, RemoteLoad *remote);
	~Lane();

	// An episode in three steps. In a cooperative job each step is taken by all ranks before the next one.
	void post(size_t episode);    // starts everything; waits for nothing that others have to start yet
	void receive(size_t episode); // until all has been received
	void finish(size_t episode);  // until all else has completed

	std::string state() const; // for a dump after a hang

	Rank &rank;
	const int thread;
	Random random;
	std::deque<Operation> operations; // of this episode
	std::vector<Operation *> open;    // have a request that has not been reported

	Operation &add(Operation::What what, int peer);

private:
	void send(const Message &m);
	void post_receive(Operation &o);
	void something_else();
	void cancel_one();
	void drain_probed(size_t episode);
	void receive_any();
	// Completes these, which are all in `open`, with random wait and test functions.
	void complete(std::vector<Operation *> list);
	void completed(Operation &o, pt2p_status_t status, const pt2p_result_t &result);
	void received(Operation &o, pt2p_status_t status);
	Message decode(int source, uint64_t tag) const;
	void in_order(const Message &m);
	uint64_t missing(const std::vector<uint64_t> &planned, const std::vector<uint64_t> &got) const;
	std::string name(const Operation &o) const;

	const std::vector<std::vector<Message>> &messages_;
	RemoteLoad *remote_;
	size_t episode_ = 0;
	const char *doing_ = "nothing";
	std::map<uint64_t, uint32_t> next_;                 // number that comes next, of each stream
	std::vector<uint64_t> planned_, got_;               // messages of kind any from each rank, in all episodes so far
	std::vector<uint64_t> planned_probed_, got_probed_; // of kind probed
};

} // namespace soak
