// Buffers that take many messages (FI_MULTI_RECV).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "ofi/endpoint.hpp"

namespace pt2p_ofi {

// A receive of untagged messages that waits for its turn.
struct UntaggedReceive {
	void *buffer;
	size_t length;
	fi_addr_t from;
	void *context;
	bool reports, multi;
	std::vector<iovec> segments; // in place of buffer and length, if not empty
};

// While a buffer for many messages is posted, receives that come after it wait behind it: it takes what matches until
// it is full. Under the lock of the endpoint.
struct MultiReceive {
	Op *posted = nullptr;
	Op *starting = nullptr;      // not posted with libpt2p yet
	Op *cancelled = nullptr;     // one of these two, to be cancelled as soon as that can be done
	unsigned char *at = nullptr; // where the next message goes
	size_t left = 0;
	UntaggedReceive of{};
	std::deque<UntaggedReceive> waiting;
};

// Posts the receive, or lets it wait behind a buffer for many messages.
ssize_t receive_untagged(Endpoint &endpoint, const UntaggedReceive &receive);

} // namespace pt2p_ofi
