// Which way of asking another rank for something is the quickest, and why: the advisor. Pure functions of a load and of
// the class of the devices.
//
// A way is a call, whose input and reply are each sent, written into a ring, fetched, or go by datagram; or a READ of
// the bytes by the caller, where it knows where they lie. Its rate is estimated from what one request takes of each
// resource at both ends, and the resource that is used up first limits it:
//
//   processor       of a caller and of a server: posts, completions, handlers, copies
//   units           of the device: requests, acknowledgements and responses, and what serves them; contexts
//                   and WQEs that its caches do not hold are read while a unit waits
//   PCIe, wire      bytes in either direction
//   initiators      of DC: one that changes its target waits for what it has sent, and disconnects
//   latency         of one request, where few are under way
//
// What a request takes depends on where others wait: the busier a server is, the more calls a turn of it finds, whose
// replies share doorbells and work requests, and WQEs that wait for a unit may be evicted from its cache. So each way
// is estimated once without waiting, and again until how busy a server is and what its turns find agree.
//
// A rate is an estimate for ordering ways; how well that works, the section "Advisor" of softhca/studies/RESULTS.md
// tells.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "rpc/laws/device_class.hpp"

namespace pt2p::rpc::laws {

// Who asks whom: ranks of many nodes those of one, ranks of one node those of many, or all each other.
enum class Shape : uint8_t { many_to_one, one_to_many, many_to_many };

struct CallLoad {
	Shape shape = Shape::many_to_one;
	uint32_t nodes = 1;   // the many; of many_to_many, all
	uint32_t threads = 1; // ranks of a node that ask, each over a queue pair of its own to each rank that it asks
	uint32_t servers = 1; // of many_to_one: ranks of the one node that serve
	uint32_t window = 1;  // requests under way of a rank to another
	size_t input = 36, reply = 0; // bytes
	double handler = 0;           // ns
	uint32_t caller_qps = 0;      // reliable queue pairs of a device; 0: as the shape says
	uint32_t server_qps = 0;
	uint32_t initiators = 16;    // DC initiators of a rank (PT2P_DCT_INITIATORS)
	size_t message_bytes = 8192; // PT2P_NET_MESSAGE_BYTES
};

enum class TransportKind : uint8_t { rc, dct };
enum class Delivery : uint8_t { send, write, read, datagram }; // how a half of a call gets there

struct CallWay {
	bool get = false; // the caller READs the bytes, and nobody serves
	TransportKind transport = TransportKind::rc;
	Delivery input = Delivery::send, reply = Delivery::send;
	bool operator==(const CallWay &) const = default;
};

enum class Limit : uint8_t {
	latency,
	caller,
	server,
	caller_units,
	server_units,
	receiving_unit,
	initiators,
	pcie,
	wire
};

struct Advice {
	CallWay way;
	double rate; // requests a second, of all
	Limit limit;
	std::string reason; // one sentence, without a full stop
};

// What is wrong with the load; null: nothing.
const char *wrong_load(const CallLoad &load);
// All ways that the devices have, the quickest first. The load must not be wrong.
std::vector<Advice> advise(const CallLoad &load, const DeviceClass &device);

// Additions to words of one rank by its device, which does one after the other on a word.
struct Contention {
	double alone_ns;  // of one that waits for no other
	double waiting;   // at the word at a time
	double max_rate;  // additions a second, of all ranks
	double call_rate; // calls a second that a service of one rank would carry for as many
};
// `taken`: ns, of each.
Contention contention_of(double taken, const DeviceClass &device);

// "rc send/read", or "dct read" for a READ by the caller.
std::string text_of(const CallWay &way);
// Tunables that select the way, "NAME=VALUE ..."; of a READ, those that it goes by.
std::string settings_of(const CallWay &way, const CallLoad &load);

} // namespace pt2p::rpc::laws
