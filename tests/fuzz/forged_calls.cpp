// SPDX-License-Identifier: BSD-3-Clause
// Calls between the two ranks, and forged messages about them from rank 0 to rank 1.
#include "tests/fuzz/pair.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "rpc/datagrams.hpp"
#include "rpc/wire.hpp"

namespace fuzz {

namespace {

constexpr uint32_t inline_service = 1, lane_service = 2;

unsigned char lent[4096]; // what forged windows name

// Replies at once, or leaves the call to a later step; reads all of its input. Moves what the windows hold.
void handle(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, void *argument)
{
	unsigned char sum = 0;
	static unsigned char memory[4096];
	pt2p_call_info_t info{};
	pt2p_call_query(ctx, call, &info);
	pt2p_call_pull(ctx, call, memory, 0, std::min(info.give ? info.give : length, sizeof memory), nullptr);
	pt2p_call_push(ctx, call, memory, info.take / 2, std::min(info.take - info.take / 2, sizeof memory), nullptr);
	if (!input)
		length = 0;
	for (size_t i = 0; i < length; ++i)
		sum = static_cast<unsigned char>(sum + static_cast<const unsigned char *>(input)[i]);
	if (sum % 4)
		pt2p_reply(ctx, call, sum, input, length);
	else
		static_cast<std::vector<pt2p_call_t *> *>(argument)->push_back(call);
}

} // namespace

void Pair::open_services()
{
	for (int rank = 0; rank < 2; ++rank) {
		pt2p_service_options_t options = PT2P_SERVICE_OPTIONS_INIT;
		options.input_max = 3000;
		pt2p_service_open(ctx_[rank], inline_service, handle, &kept_calls_[rank], &options, &services_[rank]);
		options.lanes = 2;
		pt2p_service_open(ctx_[rank], lane_service, handle, &kept_calls_[rank], &options, &services_[rank]);
	}
}

void Pair::call(Input &in)
{
	const uint8_t how = in.byte();
	const int rank = how & 1;
	pt2p_context_t *c = ctx_[rank];
	switch (how / 2 % 16) {
	case 0: // a reply that was put off
		if (!kept_calls_[rank].empty()) {
			pt2p_reply(c, kept_calls_[rank].back(), how, private_, in.number(2) % sizeof private_);
			kept_calls_[rank].pop_back();
		}
		return;
	case 4:
		if (!kept_calls_[rank].empty()) {
			pt2p_call_abandon(c, kept_calls_[rank].back());
			kept_calls_[rank].pop_back();
		}
		return;
	case 5: // one that is fetched
		if (!kept_calls_[rank].empty()) {
			void *room = nullptr;
			pt2p_reply_room(c, kept_calls_[rank].back(), 70000, &room);
			pt2p_reply(c, kept_calls_[rank].back(), how, room, 70000);
			kept_calls_[rank].pop_back();
		}
		return;
	case 1: pt2p_serve(c, services_[rank], in.byte() % 2, 3, 0, nullptr); return;
	case 2: pt2p_notify(c, 1 - rank, 1 + in.byte() % 3u, private_, in.number(2) % sizeof private_, nullptr); return;
	case 3:
		if (!requests_[rank].empty())
			pt2p_cancel(c, requests_[rank][in.byte() % requests_[rank].size()].request);
		return;
	default: {
		if (requests_[rank].size() >= 12)
			return collect_from(rank);
		pt2p_request_t *r = nullptr;
		const size_t capacity = in.number(2) % 3000;
		auto reply = std::make_unique<unsigned char[]>(capacity + 1); // of nearly that size, so that more is seen
		pt2p_call_options_t options = PT2P_CALL_OPTIONS_INIT;
		options.lane = how;
		options.deadline = how % 3 ? 0 : 20000; // ns
		const uint8_t rare = in.byte();
		if (rare % 4 == 0)
			options.give = {lent, in.number(2) % sizeof lent};
		if (rare % 8 == 0)
			options.take = {lent, in.number(2) % sizeof lent};
		if (rare % 3 == 0)
			options.room = [](void *, size_t length) -> void * { return length < sizeof lent ? lent : nullptr; };
		pt2p_icall(c, 1 - rank, 1 + in.byte() % 3u, private_, in.number(2) % sizeof private_, reply.get(), capacity,
		           &options, &r);
		keep(rank, r, std::move(reply), false);
	}
	}
}

void Pair::forge_call(Input &in)
{
	using namespace rpc;
	unsigned char payload[512];
	std::memset(payload, in.byte(), sizeof payload);
	const auto near = [&](uint64_t right) {
		const uint8_t how = in.byte();
		return how < 160 ? right : how < 200 ? right + in.byte() - 128 : any_number(in);
	};
	const auto tell = [&](uint8_t id, uint64_t header, size_t length) {
		ctx_[1]->engine->on_message(0, id, header, payload, in.byte() < 8 ? in.number(2) % sizeof payload : length);
	};
	// Of a call of rank 0, and of one that rank 1 may have made.
	const auto number = [&] { return near(uint64_t{in.byte() % 8u} << 16 | in.byte() % 8u); };
	// Of memory that may be read and written: both ranks are in this process, and reach it by address.
	const auto window = [&](unsigned char *at) {
		const LentMemory memory{
		    any_number(in), reinterpret_cast<uint64_t>(lent), in.number(2) % sizeof lent, {"shm", 0}};
		std::memcpy(at, &memory, sizeof memory);
		return sizeof memory;
	};
	// As the transport for datagrams does, which checks nothing of the layer above.
	if (const uint8_t how = in.byte(); how < 64) {
		constexpr uint8_t ids[] = {id_short_call, id_call, id_cancel, id_short_reply, id_reply, id_gone};
		for (unsigned char &byte : payload)
			byte = in.byte();
		const uint32_t service = 1 + how % 2u;
		std::memcpy(payload, &service, sizeof service);
		if (how % 8 == 0)
			return ctx_[1]->engine->on_immediate(static_cast<uint32_t>(any_number(in)));
		const uint64_t header = number() | uint64_t{in.byte()} << datagram_number_bits;
		return ctx_[1]->engine->on_datagram(0, ids[in.byte() % std::size(ids)], header, payload,
		                                    in.number(2) % sizeof payload);
	}
	switch (in.byte() % 16) {
	case 0:
	case 1:
	case 2: {
		const uint64_t here = in.byte(), id = in.byte() % 3 ? id_call : id_notice;
		const uint64_t whole = id == id_call && in.byte() % 2 ? here + in.number(2) % 3000 : here;
		const CallHead head{static_cast<uint32_t>(near(1 + in.byte() % 2u)),
		                    in.byte(),
		                    in.byte(),
		                    in.byte() % 2 ? 0 : static_cast<int64_t>(near(1000)),
		                    in.byte() % 4u,
		                    near(whole),
		                    0,
		                    in.byte() % 8u,
		                    in.byte() % 2u};
		std::memcpy(payload, &head, sizeof head);
		return tell(static_cast<uint8_t>(id), number(), sizeof head + here);
	}
	case 8: {
		const uint8_t windows = in.byte() % 16 ? in.byte() % 8 : in.byte();
		const uint64_t here = in.byte();
		const CallHead head{1 + in.byte() % 2u, in.byte(),      in.byte(),          0, in.byte() % 4u, near(here),
		                    windows & 15u,      in.byte() % 8u, in.byte() % 8u == 0};
		std::memcpy(payload, &head, sizeof head);
		size_t length = sizeof head;
		for (unsigned bit = 0; bit < window_count; ++bit)
			if (windows >> bit & 1)
				length += window(payload + length);
		if (windows & carried_bit) {
			const Carried carried{static_cast<uint16_t>(near(in.byte())), static_cast<uint16_t>(near(in.byte()))};
			std::memcpy(payload + length, &carried, sizeof carried);
			length += sizeof carried + std::min<size_t>(carried.give, 250);
		}
		return tell(id_call, number(), std::min(length + here, sizeof payload));
	}
	case 9: {
		const ShortCall head{static_cast<uint32_t>(near(1 + in.byte() % 2u)),
		                     {in.byte(), static_cast<uint16_t>(in.byte() % 4u)}};
		std::memcpy(payload, &head, sizeof head);
		return tell(id_short_call, number(), sizeof head + in.byte());
	}
	case 10: return tell(id_short_reply, number(), in.byte());
	case 11: {
		ReplyHead head{};
		head.word = any_number(in);
		head.length = near(in.number(2));
		head.lent = 1;
		std::memcpy(payload, &head, sizeof head);
		const size_t length = window(payload + sizeof head);
		tell(id_reply, number(), sizeof head + length);
		return tell(id_fetched, number(), 0);
	}
	case 3: return tell(id_more, number(), in.number(2) % sizeof payload);
	case 4: payload[0] = in.byte() % 2; return tell(id_cancel, number(), 1);
	case 5: {
		ReplyHead head{};
		const uint64_t here = in.byte() % 200;
		head.word = any_number(in);
		head.length = near(in.byte() % 2 ? here : here + in.number(2) % 3000);
		head.status = in.byte() % 4 ? 0 : in.byte();
		std::memcpy(payload, &head, sizeof head);
		return tell(id_reply, number(), sizeof head + here);
	}
	case 12: {
		ReplyHead head{};
		const Pushed part{static_cast<uint32_t>(near(in.byte())), static_cast<uint32_t>(near(in.byte()))};
		head.word = any_number(in);
		head.length = near(in.byte());
		head.pushed = 1;
		std::memcpy(payload, &head, sizeof head);
		std::memcpy(payload + sizeof head, &part, sizeof part);
		return tell(id_reply, number(), sizeof head + sizeof part + near(part.length + head.length) % 400);
	}
	case 14: {
		ResultsOffer offer{};
		const uint64_t slots = near(8), bytes = near(1024);
		window(reinterpret_cast<unsigned char *>(&offer.memory));
		offer.service = 1 + in.byte() % 2u;
		offer.what = static_cast<ToFetch>(in.byte() % 4);
		std::memcpy(payload, &offer, sizeof offer);
		return tell(id_results, bytes << 32 | (slots & UINT32_MAX), sizeof offer);
	}
	case 15: return tell(id_push_it, number(), 0);
	case 13: {
		const auto offset = static_cast<uint32_t>(near(in.byte()));
		std::memcpy(payload, &offset, sizeof offset);
		return tell(id_pushed, number(), sizeof offset + in.byte());
	}
	case 6: return tell(id_rest, number(), in.number(2) % sizeof payload);
	default: return tell(id_taken, near(in.byte() % 4), 0);
	}
}

} // namespace fuzz
