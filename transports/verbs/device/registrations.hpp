// Memory that is registered with the device.
//
// The library does not hook into the allocator, so it does not learn when a range is unmapped. A registration of
// unmapped pages reads and writes memory that no process sees any more. The rule that prevents this: a registration is
// used only while somebody vouches for its memory:
//   - the program, for what it has registered itself, until it releases it;
//   - an operation in flight, for its buffer, until it is complete;
//   - with PT2P_REGISTRATION_CACHE=all, the program for every buffer it has passed, until it says that a range is
//     gone (Transport::forget). Registrations then outlive their operations, up to PT2P_REGISTRATION_CACHE_BYTES.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <string>

#include "transports/verbs/device/device.hpp"

namespace pt2p {
class Reporter;
}

namespace pt2p::verbs {

class Registrations;

// A range of registered memory.
class Registration {
public:
	uint32_t local_key() const { return mr_->lkey; }
	uint32_t remote_key() const { return mr_->rkey; }
	// Whether the device may write there.
	bool writable() const { return writable_; }

private:
	friend class Registrations;
	MrOwner mr_;
	uintptr_t begin_ = 0, end_ = 0;
	unsigned users_ = 0;
	bool writable_ = true;
	bool stale_ = false; // find() passes over it
	std::multimap<uintptr_t, Registration>::iterator self_;
	std::list<Registration *>::iterator idle_; // in the list of those without users
};

class Registrations {
public:
	// Up to `kept` bytes may stay registered without users.
	Registrations(const Device &device, Reporter &reporter, uint64_t kept);

	// A registration that covers the range, to be released; null: there is none.
	Registration *find(const void *memory, size_t length);
	// The same, or a new one. Null: the device refuses, `why_not` says why. Read-only memory is registered for reading.
	Registration *acquire(const void *memory, size_t length, std::string &why_not);
	void release(Registration *registration);
	// The range is about to be unmapped, or has been.
	void forget(const void *memory, size_t length);

private:
	void drop(Registration *registration);

	const Device &device_;
	Reporter &reporter_;
	const uint64_t kept_;
	std::multimap<uintptr_t, Registration> all_; // by begin
	std::list<Registration *> idle_;             // without users; the one that was used last is at the front
	uint64_t idle_bytes_ = 0;
	uintptr_t longest_ = 0; // bytes of the longest so far
};

} // namespace pt2p::verbs
