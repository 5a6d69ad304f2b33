// The caller's side of results.hpp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <new>
#include <vector>

#include "onesided/operation.hpp"
#include "rpc/laws/fetch.hpp"

namespace pt2p::rpc {

struct Outgoing;
struct Peer;

constexpr size_t max_services = 64; // of a server, that want results to be fetched

// Where a server keeps the results of this rank's calls, and what is known of fetching them.
struct FetchSource {
	uint64_t address = 0, key = 0;
	uint32_t slots = 0, slot_bytes = 0;
	bool usable = true; // no READ was refused
	bool asked = false; // the server wants all results to be fetched, where the library chooses
	std::vector<uint32_t> services;
	laws::FetchBytes bytes;
	size_t fixed_bytes = 0; // of each first READ; 0: by the law
	laws::Looks looks;
	laws::Escape escape;
	uint64_t fetched = 0, reads = 0;

	bool has(uint32_t service) const { return std::find(services.begin(), services.end(), service) != services.end(); }
	bool asks(uint32_t service) const { return asked || has(service); }
	// Bytes of the next READ.
	size_t first_bytes() const { return std::min<size_t>(fixed_bytes ? fixed_bytes : bytes.bytes(), slot_bytes); }
};

// A call whose result is fetched. It ends with the call, and not before its READ.
struct Fetch {
	uint64_t handle = 0; // see HandlePool
	Fetch *next_free = nullptr;
	Outgoing *call = nullptr; // null: it has ended, or the object is free
	Peer *peer = nullptr;
	uint16_t slot = 0;
	bool reading = false;
	bool pushed = false;         // PUSH_IT has been sent
	bool last_look = false;      // one more, all the same
	unsigned looks = 0;          // in vain
	size_t have = 0, wanted = 0; // bytes that are there; once the READ has ended
	int64_t left = 0, due = 0;   // when the call left; when to look, ns
	int64_t read_at = 0;         // ns
	unsigned char *landing = nullptr;

	Fetch() = default;
	~Fetch() { ::operator delete(landing); } // of a call that has not ended: as the pool would
	Fetch(const Fetch &) = delete;
	Fetch &operator=(const Fetch &) = delete;
};

// Fetches that wait for their time.
class Agenda {
public:
	bool empty() const { return items_.empty(); }
	void add(const Fetch &fetch)
	{
		items_.push_back({fetch.due, fetch.handle});
		std::push_heap(items_.begin(), items_.end());
	}
	// The handle of one whose time has come; 0: there is none. It may have ended.
	uint64_t next(int64_t now)
	{
		if (items_.empty() || items_.front().due > now)
			return 0;
		const uint64_t handle = items_.front().handle;
		std::pop_heap(items_.begin(), items_.end());
		items_.pop_back();
		return handle;
	}

private:
	struct Item {
		int64_t due;
		uint64_t handle;
		bool operator<(const Item &other) const { return due > other.due; } // the earliest is the top
	};
	std::vector<Item> items_;
};

} // namespace pt2p::rpc
