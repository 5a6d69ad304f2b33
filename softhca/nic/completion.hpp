// Completion queue entries (CQEs), in the format that libmlx5 asks for ("version 1").
#pragma once

#include <cstdint>
#include <span>

namespace softhca {

enum class CqeKind : uint8_t {
	request = 0,
	received_write_immediate = 1,
	received_send = 2,
	received_send_immediate = 3,
	request_error = 13,
	receive_error = 14,
};

// Why a work request failed.
enum class Syndrome : uint8_t {
	none = 0,
	local_length = 0x01,
	local_operation = 0x02,
	local_protection = 0x04,
	flushed = 0x05,
	bad_response = 0x10,
	local_access = 0x11,
	remote_invalid_request = 0x12,
	remote_access = 0x13,
	remote_operation = 0x14,
	retry_exceeded = 0x15,
	rnr_retry_exceeded = 0x16,
};

// How much payload a CQE has room for: its first half, or what a CQE of 128 bytes has before its own 64.
constexpr uint32_t payload_room(uint32_t cqe_bytes) { return cqe_bytes == 128 ? 64 : 32; }

struct Completion {
	CqeKind kind;
	Syndrome syndrome;
	uint8_t opcode; // of the work request
	bool route;     // the message has a global route header
	uint16_t index; // of the WQE
	uint16_t source_lid;
	uint32_t qpn, user_index;
	uint32_t source_qpn;
	uint32_t immediate;
	uint32_t bytes;
	std::span<const uint8_t> payload; // in the CQE, at most its room
};

} // namespace softhca
