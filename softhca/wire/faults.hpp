// Faults on request. A rule is one line of words, for example
//
//   drop rate=0.01 kind=read_response seed=7
//   break qp=0x4010 after=100
//   refuse mr count=1
//
// softhca(1) describes the language. A decision depends on the rule's seed and on how often the rule has matched for
// that queue pair, not on time: a run can be repeated.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "softhca/nic/packet.hpp"
#include "softhca/time/clock.hpp"

namespace softhca {

struct FaultRule {
	enum class Action : uint8_t {
		drop, // packets
		duplicate,
		reorder, // held back until the next packet of the queue pair is sent
		delay,
		link_down, // all packets, for a time
		tear,      // a READ is answered in pieces
		break_qp,  // to the error state, with a fatal event
		starve,    // receives are not seen
		refuse,    // registration of memory, device memory, queue pairs
		fatal,     // the device
	};
	enum class Object : uint8_t { mr, dm, qp };
	Action action{};
	Object object{};
	double rate = 1;
	uint64_t after = 0, count = UINT64_MAX; // of the matches: the first that counts, and how many
	uint64_t seed = 1;
	Time time = 0;   // of a delay, of a link that is down, or between pieces
	uint32_t qp = 0; // 0: any
	uint32_t destination = 0;
	int kind = -1; // PacketKind; -1: any
	int device = -1;
	std::map<uint32_t, uint64_t> seen; // how often it has matched, for each queue pair
	Time until = 0;                    // the link is down until then
};

// A part of a range of bytes.
struct Piece {
	uint32_t offset, bytes;
};

// A range of bytes in the order in which a torn READ takes its pieces: 2 to 8 of them, as the seed wants it. They meet
// where cache lines do, as a device reads whole lines; what lies in one line is one piece.
std::vector<Piece> pieces_of(uint64_t address, uint32_t bytes, uint64_t seed);

class Faults {
public:
	// Parses rules, separated by semicolons or new lines, and adds them; "clear" removes all before it. Returns what is
	// wrong; empty: nothing.
	std::string add(std::string_view rules);
	bool none() const { return rules_.empty(); }

	enum class Fate : uint8_t { pass, drop, twice, after_next, later };
	// What becomes of a packet that is to be sent; `delay` with `later`.
	Fate packet(const Packet &packet, unsigned device, Time now, Time &delay);
	// Whether the link of a device is down.
	bool down(unsigned device, Time now) const;
	// When the next link that is down comes back; 0: none is down.
	Time links_until(Time now) const;
	// Whether a receive of that queue pair is hidden.
	bool starves(uint32_t qp, unsigned device);
	// Whether the answer to a READ is torn, by which seed, and how long the responder waits after each piece.
	struct Tear {
		uint64_t seed;
		Time pause;
	};
	std::optional<Tear> tears(uint32_t qp, uint32_t requester, unsigned device);
	// Whether an object is refused.
	bool refuses(FaultRule::Object object, unsigned device);
	// Whether a work request of that queue pair breaks it.
	bool breaks(uint32_t qp, unsigned device);
	// Whether a work request makes the device fail.
	bool fatal(unsigned device);
	// Reads the rules again when the file has changed: they replace all others. At most a hundred times a second.
	void look_at_file(const std::string &path, Time now);

private:
	bool hits(FaultRule &rule, uint32_t qp, unsigned device);

	std::vector<FaultRule> rules_;
	Time last_look_ = 0;
	int64_t file_time_ = 0; // of its last change; 0: there was none
};

} // namespace softhca
