// Packets between two devices: one header for all kinds, then the payload. The header has the fields of InfiniBand's
// base and extended headers (InfiniBand specification, volume 1, 9.2 to 9.4), in the host's byte order.
#pragma once

#include <cstddef>
#include <cstdint>

namespace softhca {

enum class PacketKind : uint8_t {
	send,
	write,
	read,   // asks for read_response packets
	atomic, // asks for an atomic_response
	read_response,
	atomic_response,
	acknowledge,
	refuse, // a NAK; `reason` says why
	datagram,
	disconnect, // a DC initiator leaves its target
};

// Whether a connection's responder executes it.
constexpr bool is_request(PacketKind kind) { return kind <= PacketKind::atomic; }

enum PacketFlag : uint8_t {
	packet_first = 1 << 0, // of a message
	packet_last = 1 << 1,
	packet_ack_request = 1 << 2,
	packet_solicited = 1 << 3,
	packet_immediate = 1 << 4,
	packet_connect = 1 << 5, // the first of a DC connection
	packet_route = 1 << 6,   // a datagram with a global route header
	packet_compare = 1 << 7, // an atomic that compares and swaps; otherwise it adds
};

enum class Refusal : uint8_t {
	none,
	sequence,           // a packet is missing
	receiver_not_ready, // no receive is posted; `timer` says when to come again
	invalid_request,
	remote_access,
	remote_operation,
};

struct Packet {
	PacketKind kind;
	uint8_t flags;
	Refusal reason;
	uint8_t timer; // code of an RNR timer
	uint16_t source_lid, destination_lid;
	uint32_t source, destination; // queue pairs
	uint32_t psn;                 // 24 bits
	uint32_t immediate;
	uint32_t length; // of the whole message: write, read
	uint32_t remote_key;
	uint64_t remote_address;   // of a datagram with a route: the source's GUID; its destination's is `operand`
	uint64_t key;              // DC access key, or the Q_Key of a datagram
	uint64_t operand, compare; // of an atomic; the old value in its response
	uint32_t connection;       // of a DC initiator: changes with every target
	uint32_t payload;          // bytes that follow
};
static_assert(sizeof(Packet) == 72);

constexpr size_t max_mtu = 4096;

// Packet sequence numbers are 24 bits and wrap around.
constexpr uint32_t psn_mask = 0xffffff;
constexpr uint32_t psn_add(uint32_t psn, uint32_t n) { return (psn + n) & psn_mask; }
// How far `a` is beyond `b`; negative when it is before.
constexpr int32_t psn_distance(uint32_t a, uint32_t b) { return static_cast<int32_t>((a - b) << 8) >> 8; }

} // namespace softhca
