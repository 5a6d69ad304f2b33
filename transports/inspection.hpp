// What a transport tells people: in the summary, the report, and the dump of a rank that waits.
#pragma once

#include <cstddef>
#include <string>

namespace pt2p {

struct ChannelFacts;

class Inspection {
public:
	virtual ~Inspection() = default;
	// One line for the summary: how `peer` is reached, and how large messages get there.
	virtual std::string describe(int peer) = 0;
	// What keeps messages to and from `peer` from moving, in words; empty: nothing is known.
	virtual std::string trouble(int peer) { return (void)peer, std::string(); }
	// Its device as the vendor numbers them; 0: it has none.
	virtual uint32_t device_part() const { return 0; }
	// The facts below then have rates since the last time.
	virtual void read_meters() {}
	// What is known of the channel to `peer`, for the report; false: nothing, as without a device.
	virtual bool facts(int peer, ChannelFacts &facts) { return (void)peer, (void)facts, false; }
	// Bytes per peer: without communication, and with it.
	struct Memory {
		size_t silent = 0, talking = 0;
	};
	virtual Memory memory_per_peer() { return {}; }
};

} // namespace pt2p
