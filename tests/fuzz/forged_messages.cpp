// SPDX-License-Identifier: BSD-3-Clause
// Messages to the engine of rank 1 that no peer would send, or not now.
#include "tests/fuzz/pair.hpp"

#include <cstring>
#include <memory>

#include "onesided/wire.hpp"
#include "transports/verbs/message/bundle.hpp"

namespace fuzz {

namespace {

// Forged announcements point to this memory.
constexpr size_t accessible = 1u << 16;
unsigned char accessible_memory[accessible];
// Forged announcements of segments point to this list. The memory in the list is accessible, too, and nobody is told to
// write to it.
constexpr size_t listed = 256, listed_bytes = 200; // segments; bytes of each
Segment accessible_list[listed];

} // namespace

void bound(uint8_t id, uint64_t *words)
{
	if (id != wire::id_announce && id != wire::id_accept)
		return;
	words[2] = reinterpret_cast<uint64_t>(accessible_memory);
	uint64_t &length = words[id == wire::id_announce ? 0 : 1];
	if (length <= PTRDIFF_MAX && length > accessible)
		length %= accessible + 1;
	if (id != wire::id_announce || words[4] < 2)
		return;
	for (size_t i = 0; i < listed; ++i)
		accessible_list[i] = {reinterpret_cast<uint64_t>(accessible_memory + i * listed_bytes), listed_bytes, 0};
	// A list that fits its message, one that does not, and any other.
	const uint64_t count = words[4] = words[4] % listed;
	if (count > 1)
		words[2] = reinterpret_cast<uint64_t>(accessible_list);
	if (count > 1 && count % 3)
		length = count * listed_bytes + (count % 3 == 2);
}

uint64_t Pair::any_number(Input &in)
{
	const uint8_t kind = in.byte();
	switch (kind % 6) {
	case 0: return in.number(8);
	case 1: return in.byte();
	case 2: return UINT64_C(1) << in.byte() % 64;
	case 3: return ~in.number(1);
	case 4: // a handle that is, or was, somebody's
		if (!tokens_.empty())
			return tokens_[in.byte() % tokens_.size()];
		return 0;
	default: return in.number(2);
	}
}

uint64_t Pair::live_handle(Input &in, bool is_send) const
{
	const auto &list = requests_[1];
	for (size_t i = 0, at = in.byte(); i < list.size(); ++i, ++at)
		if (list[at % list.size()].is_send == is_send)
			return reinterpret_cast<uint64_t>(list[at % list.size()].request);
	return 0;
}

void Pair::plausible(Input &in)
{
	unsigned char payload[1024];
	const auto tell = [&](uint8_t id, uint64_t header, const void *data, size_t length) {
		ctx_[1]->engine->on_message(0, id, header, data, length);
	};
	const uint8_t how = in.byte();
	std::memset(payload, how, sizeof payload);
	switch (how % 10) {
	case 9: {
		const uint64_t token = any_number(in);
		std::memcpy(payload, &token, sizeof token);
		return tell(wire::id_synchronous, in.byte() % 4, payload, in.number(2) % (sizeof payload + 1));
	}
	case 0: return tell(wire::id_eager, in.byte() % 4, payload, in.number(2) % (sizeof payload + 1));
	case 1: {
		uint64_t words[5] = {1 + in.number(2), any_number(in), 0, any_number(in), in.byte() % 4u};
		bound(wire::id_announce, words);
		return tell(wire::id_announce, in.byte() % 4, words, sizeof words);
	}
	case 2:
	case 3: {
		const uint64_t send = live_handle(in, true);
		uint64_t words[5] = {any_number(in), 1 + in.number(2) % 1500, 0, any_number(in), in.byte() % 2u};
		bound(wire::id_accept, words);
		return send ? tell(wire::id_accept, send, words, sizeof words) : void();
	}
	case 4: {
		const uint64_t receive = live_handle(in, false);
		return receive ? tell(wire::id_piece, receive, payload, 1 + in.number(2) % sizeof payload) : void();
	}
	case 5: {
		const bool finished = in.byte() % 2;
		const uint64_t request = live_handle(in, finished);
		const uint32_t status = in.byte() % 4 ? PT2P_OK : PT2P_ERR_SYSTEM;
		return request ? tell(finished ? wire::id_finished : wire::id_written, request, &status, sizeof status)
		               : void();
	}
	case 6: return tell(in.byte() % 2 ? wire::id_stop_eager : wire::id_resume_eager, 0, nullptr, 0);
	case 7: {
		const uint64_t failure = static_cast<uint64_t>(PT2P_ERR_PEER_LOST) << 40 | UINT64_C(0x100);
		return tell(wire::id_barrier, in.byte() % 2 ? failure : 0, nullptr, 0);
	}
	default: return forge_payload_at_end(in);
	}
}

size_t Pair::control_payload(Input &in, uint8_t id, unsigned char *payload)
{
	uint64_t words[6];
	for (uint64_t &w : words)
		w = any_number(in);
	bound(id, words);
	const size_t usual[] = {0, sizeof(wire::Announcement), sizeof(wire::Acceptance), sizeof(uint32_t),
	                        sizeof(shm::Help)};
	size_t length = usual[in.byte() % 5];
	if (in.byte() % 8 == 0)
		length = in.byte() % (sizeof words + 1);
	switch (id) {
	case wire::id_announce: length = in.byte() % 8 ? sizeof(wire::Announcement) : length; break;
	case wire::id_accept: length = in.byte() % 8 ? sizeof(wire::Acceptance) : length; break;
	case wire::id_finished:
	case wire::id_written:
		length = in.byte() % 8 ? sizeof(uint32_t) : length;
		words[0] %= 32;
		break;
	default: break;
	}
	std::memcpy(payload, words, length);
	return length;
}

void Pair::forge_bundle(Input &in)
{
	namespace verbs = pt2p::verbs;
	unsigned char payload[2048];
	std::vector<unsigned char> bytes;
	const uint8_t count = in.byte() % 6, lies = in.byte() % 4;
	for (uint8_t n = 0; n < count; ++n) {
		const auto id = static_cast<uint8_t>(in.byte() % 10);
		const size_t length = control_payload(in, id, payload), at = bytes.size();
		bytes.resize(at + verbs::framed_bytes(length));
		verbs::write_frame(&bytes[at], id, any_number(in), payload, length);
	}
	for (uint8_t n = 0; n < lies && !bytes.empty(); ++n)
		bytes[in.number(2) % bytes.size()] = in.byte();
	// Memory that ends where the message ends.
	const size_t length = bytes.size() - (lies ? in.byte() % (bytes.size() + 1) : 0);
	const auto exact = std::make_unique<unsigned char[]>(length);
	std::copy_n(bytes.begin(), length, exact.get());
	verbs::read_bundle(lies == 1 ? in.byte() : count, exact.get(), length,
	                   [&](const verbs::BundleFrame &frame, const unsigned char *data) {
		                   const auto id = static_cast<uint8_t>(frame.id);
		                   std::memcpy(payload, data, frame.length);
		                   if (frame.length == sizeof(wire::Announcement)) {
			                   uint64_t words[5];
			                   std::memcpy(words, payload, sizeof words);
			                   bound(id, words);
			                   std::memcpy(payload, words, sizeof words);
		                   }
		                   ctx_[1]->engine->on_message(0, id, frame.header, payload, frame.length);
	                   });
}

void Pair::forge_message(Input &in)
{
	unsigned char payload[2048];
	const uint8_t how = in.byte();
	if (how >= 0xe0)
		return forge_bundle(in);
	const auto id = static_cast<uint8_t>(how & 1    ? in.byte()
	                                     : how & 64 ? onesided::id_put + in.byte() % 7
	                                                : in.byte() % 10);
	const uint64_t header = any_number(in);
	size_t length = control_payload(in, id, payload);
	if (how & 2 && id != wire::id_announce) {
		length = in.number(2) % sizeof payload;
		std::memset(payload, in.byte(), length);
	}
	ctx_[1]->engine->on_message(0, id, header, payload, length);
}

} // namespace fuzz
