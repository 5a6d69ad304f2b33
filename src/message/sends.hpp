// Sends: eager, synchronous, in segments, or announced.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "message/rendezvous/rendezvous.hpp"
#include "message/request/requests.hpp"

namespace pt2p {

class Sends {
public:
	Sends(Reporter &reporter, Channels &channels, Requests &requests, Rendezvous &rendezvous)
	    : reporter_(reporter), channels_(channels), requests_(requests), rendezvous_(rendezvous)
	{
	}

	// Start a send. Arguments have been checked. Null when it could not be started: `status` says why and the
	// explanation has been recorded.
	Request *isend(const void *buffer, size_t length, int dest, uint64_t tag, pt2p_status_t &status);
	// Done when a receive has matched the message.
	Request *issend(const void *buffer, size_t length, int dest, uint64_t tag, pt2p_status_t &status);
	// Data in segments, `length` bytes altogether.
	Request *isend(const pt2p_iovec_t *segments, size_t count, size_t length, int dest, uint64_t tag,
	               pt2p_status_t &status);

	// What a send may do beside sending; see pt2p_send_options_t.
	struct Options {
		bool synchronous, buffered;
		const uint64_t *data; // null: none
	};
	Request *isend_with(const pt2p_iovec_t *segments, size_t count, size_t length, int dest, uint64_t tag,
	                    const Options &options, pt2p_status_t &status);

	// An eager message that there is no room for yet.
	[[gnu::noinline, gnu::cold]] void queue_or_announce(Request &request);
	void count_eager(size_t length)
	{
		reporter_.add(Counter::eager_sent);
		reporter_.add(Counter::bytes_sent, length);
	}

private:
	Request *start(const void *buffer, size_t length, int dest, uint64_t tag);
	bool send_behind(uint64_t word, wire::Id id, const Request &request, Channel &channel, const pt2p_iovec_t *segments,
	                 size_t count);
	void attach(Request &request, Details *list);
	void pack(Request &request, const pt2p_iovec_t *segments, size_t count);
	Request *isend_packed(const pt2p_iovec_t *segments, size_t count, size_t length, int dest, uint64_t tag,
	                      pt2p_status_t &status);

	Reporter &reporter_;
	Channels &channels_;
	Requests &requests_;
	Rendezvous &rendezvous_;
	std::vector<unsigned char> staged_; // a message with a word before its payload, while it is sent
};

} // namespace pt2p
