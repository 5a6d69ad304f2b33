// A connection to a context that is, or is to become, a peer; for connections.cpp and handshake.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/job/open/connection_manager.hpp"

namespace pt2p::open_job {

constexpr int64_t handshake_time = 5'000'000'000; // for others to introduce themselves, ns
constexpr size_t max_half_open = 128;             // those of TCP that have not yet

// An address that is to be added.
struct ConnectionManager::Dial {
	std::string address;
	Place place;
	std::vector<Way> ways;
	int64_t deadline = 0;
	// Of the thread:
	size_t next = 0;      // way to try
	std::string why_not;  // the ways so far
	bool refused = false; // by one of them
	// What it has come to, under the lock:
	bool done = false;
	int rank = -1;
	pt2p_status_t status = PT2P_OK;
	std::string why;
};

struct ConnectionManager::Connection {
	// said_goodbye: one side has said goodbye, and the other closes the connection once it sends nothing any more by
	// other ways. So the number at this side has no late messages when it gets another owner.
	enum class State { connects, awaits_hello, awaits_introduction, awaits_ready, established, said_goodbye };
	bool introduced() const { return state >= State::established; }

	Socket socket;
	State state = State::connects;
	bool dialed = false; // by this context
	bool closed = false;
	Way way = Way::local;
	uint32_t events = 0; // that are watched
	int64_t deadline = 0;
	std::string in, out;
	Hello mine, theirs;
	Keys keys; // over TCP
	Slot slot;
	std::shared_ptr<Dial> dial; // that is not done
};

} // namespace pt2p::open_job
