// Memory that is registered with the device, so that it, and peers, can read and write it.
//
// There are no hooks in the allocator, so nobody tells when a range is unmapped, and a registration of pages that have
// gone reads and writes what nobody sees any more. The rule that keeps this safe: a registration is used only while
// somebody vouches for its memory. That is
//   - the program, for what it has registered itself, until it releases it;
//   - an operation under way, for its buffer, until it is complete;
//   - with PT2P_REGISTRATION_CACHE=all, the program for everything it has ever handed over, until it says that a range
//     is gone (Transport::forget). Then registrations outlive their operations, up to PT2P_REGISTRATION_CACHE_BYTES.
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
	bool stale_ = false; // not to be found again
	std::multimap<uintptr_t, Registration>::iterator self_;
	std::list<Registration *>::iterator idle_; // place among those that nobody uses
};

class Registrations {
public:
	// `kept` bytes may stay registered while nobody uses them.
	Registrations(const Device &device, Reporter &reporter, uint64_t kept);

	// A registration that covers the range, if there is one. To be released.
	Registration *find(const void *memory, size_t length);
	// The same, or a new one. Null, with the reason, when the device refuses. Memory that may only be read is
	// registered for reading.
	Registration *acquire(const void *memory, size_t length, std::string &why_not);
	void release(Registration *registration);
	// The range is going to be unmapped, or has been.
	void forget(const void *memory, size_t length);

private:
	void drop(Registration *registration);

	const Device &device_;
	Reporter &reporter_;
	const uint64_t kept_;
	std::multimap<uintptr_t, Registration> all_; // by where they begin
	std::list<Registration *> idle_;             // the one that was used last at the front
	uint64_t idle_bytes_ = 0;
	uintptr_t longest_ = 0; // bytes of the longest there ever was
};

} // namespace pt2p::verbs
