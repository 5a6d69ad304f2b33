// What people are told of a transport: in the summary, the report, and the dump of a rank that waits.
#pragma once

#include <cstddef>
#include <string>

namespace pt2p {

struct ChannelFacts;

class Inspection {
public:
	virtual ~Inspection() = default;
	// One line for the summary on how `peer` is reached, and the way that large messages take to it.
	virtual std::string describe(int peer) = 0;
	// What keeps messages to and from `peer` from moving, in words; empty: nothing that is known.
	virtual std::string trouble(int peer) { return (void)peer, std::string(); }
	// What is known of the queues and the work on the way to `peer`, for the report; false: nothing is, as where no
	// device stands between.
	virtual bool facts(int peer, ChannelFacts &facts) { return (void)peer, (void)facts, false; }
	// Bytes that a rank costs which nothing is exchanged with, and one that is talked with.
	struct Memory {
		size_t silent = 0, talking = 0;
	};
	virtual Memory memory_per_peer() { return {}; }
};

} // namespace pt2p
