// Calls with memory: windows, inputs that are pulled, replies whose place is found when they arrive, replies that are
// built in place.
#include <algorithm>

#include "tests/conformance/cases/served.hpp"

namespace conformance {
namespace {

constexpr size_t lengths[] = {1, 40, 1000, 4096, 7500, 8192, 8193, 65535, 65536, 300001};

// What the server is asked to do with the windows.
struct Order {
	uint64_t seed; // of `take`
	uint64_t detached;
};

// A call whose windows the server moves in two halves, and what for.
struct Transfers {
	pt2p_call_t *call;
	Order order;
	Bytes given, taken;
	pt2p_request_t *requests[4] = {};
};

struct Mover : Served {
	Left<std::unique_ptr<Transfers>> transfers;
};

void move_windows(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, void *argument)
{
	EXPECT_EQ(length, sizeof(Order));
	pt2p_call_info_t info{};
	EXPECT_OK(ctx, pt2p_call_query(ctx, call, &info));
	auto t = std::make_unique<Transfers>();
	t->call = call;
	std::memcpy(&t->order, input, sizeof t->order);
	t->given.resize(info.give);
	t->taken = payload(info.take, t->order.seed);
	const size_t half_given = info.give / 2, half_taken = info.take / 2;
	pt2p_request_t **req = t->order.detached ? nullptr : t->requests;
	EXPECT_OK(ctx, pt2p_call_pull(ctx, call, t->given.data(), 0, half_given, req));
	EXPECT_OK(ctx, pt2p_call_pull(ctx, call, t->given.data() + half_given, half_given, info.give - half_given,
	                              req ? req + 1 : nullptr));
	EXPECT_OK(ctx, pt2p_call_push(ctx, call, t->taken.data(), 0, half_taken, req ? req + 2 : nullptr));
	EXPECT_OK(ctx, pt2p_call_push(ctx, call, t->taken.data() + half_taken, half_taken, info.take - half_taken,
	                              req ? req + 3 : nullptr));
	for (const size_t offset : {info.give, info.give + 1})
		EXPECT_STATUS(ctx, pt2p_call_pull(ctx, call, t->given.data(), offset, 1, nullptr), PT2P_ERR_BOUNDS);
	EXPECT_STATUS(ctx, pt2p_call_push(ctx, call, t->taken.data(), 1, info.take, nullptr), PT2P_ERR_BOUNDS);
	if (t->order.detached)
		EXPECT_OK(ctx, pt2p_reply(ctx, call, mix(t->order.seed), nullptr, 0)); // waits for the transfers
	of<Mover>(argument).transfers.push_back(std::move(t));
}

// Replies to the first call once its transfers have ended, if the handler has not replied.
void reply_to_transfers(Rank &r, Mover &s, uint64_t seed_given)
{
	Transfers &t = *s.transfers[0];
	if (t.order.detached)
		return;
	EXPECT_OK(r.ctx, pt2p_waitall(r.ctx, 4, t.requests, nullptr));
	EXPECT_PAYLOAD(t.given.data(), t.given.size(), seed_given);
	EXPECT_OK(r.ctx, pt2p_reply(r.ctx, t.call, mix(t.order.seed), nullptr, 0));
}

Finish windows(Rank &r)
{
	auto s = open<Mover>(r, 60, move_windows);
	close_last(r, {s});
	return [&r, s] {
		meet(r);
		for (const bool detached : {false, true})
			for (const size_t length : lengths) {
				const uint64_t given_seed = seed_of(60, r.left(), r.me, length);
				Bytes given = payload(length, seed_of(60, r.me, r.right(), length)), taken(length + 1, 77);
				const Order order{mix(length + static_cast<uint64_t>(r.me)), detached};
				pt2p_call_options_t options = PT2P_CALL_OPTIONS_INIT;
				options.give = {given.data(), length};
				options.take = {taken.data(), length};
				pt2p_request_t *request = nullptr;
				EXPECT_OK(r.ctx,
				          pt2p_icall(r.ctx, r.right(), 60, &order, sizeof order, nullptr, 0, &options, &request));
				for (; s->transfers.empty(); r.poll())
					EXPECT_OK(r.ctx, pt2p_progress(r.ctx));
				reply_to_transfers(r, *s, given_seed);
				pt2p_result_t result{};
				EXPECT_OK(r.ctx, pt2p_wait(r.ctx, request, &result));
				EXPECT_EQ(result.tag, mix(order.seed));
				EXPECT_PAYLOAD(taken.data(), length, order.seed);
				EXPECT_EQ(taken[length], 77);
				meet(r); // the transfers of this rank as a server have ended, too
				EXPECT_PAYLOAD(s->transfers[0]->given.data(), length, given_seed);
				s->transfers.pop_front(); // the next call may be here
			}
	};
}

// A service that takes no more than 100 bytes at once: the handler pulls longer inputs.
Finish pulled_input(Rank &r)
{
	auto s = open(
	    r, 61,
	    [](pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, void *argument) {
		    EXPECT(input ? length <= 100 : length > 100);
		    if (input) {
			    EXPECT_STATUS(ctx, pt2p_call_pull(ctx, call, argument, 0, 1, nullptr), PT2P_ERR_ARGUMENT);
			    EXPECT_OK(ctx, pt2p_reply(ctx, call, 1, input, length));
			    return;
		    }
		    void *room = nullptr;
		    EXPECT_OK(ctx, pt2p_reply_room(ctx, call, length, &room));
		    EXPECT_OK(ctx, pt2p_call_pull(ctx, call, room, 0, length, nullptr));
		    // The room is the library's until the reply: it leaves when the bytes are there.
		    EXPECT_OK(ctx, pt2p_reply(ctx, call, 2, room, length));
		    ++of(argument).calls;
	    },
	    0, 100);
	close_last(r, {s});
	return [&r, s] {
		meet(r);
		for (const size_t length : lengths) {
			const Bytes out = payload(length, seed_of(61, r.me, r.right(), length));
			Bytes in(length + 1, 77);
			pt2p_result_t result{};
			EXPECT_OK(r.ctx, pt2p_call(r.ctx, r.right(), 61, out.data(), length, in.data(), length, nullptr, &result));
			EXPECT_EQ(result.tag, length > 100 ? 2u : 1u);
			EXPECT_EQ(result.length, length);
			EXPECT_EQ(in[length], 77);
			EXPECT(!std::memcmp(in.data(), out.data(), length));
		}
		meet(r);
	};
}

// Replies longer than the caller's buffer, and a caller that finds a place for them, or does not.
struct Place {
	Bytes memory;
	size_t calls = 0;
	bool refuse = false;
};

void *find_place(void *argument, size_t length)
{
	auto &place = *static_cast<Place *>(argument);
	++place.calls;
	if (place.refuse)
		return nullptr;
	place.memory.assign(length + 1, 77);
	return place.memory.data();
}

Finish room(Rank &r)
{
	auto s = open(r, 62, [](pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t, void *) {
		uint64_t length;
		std::memcpy(&length, input, sizeof length);
		const Bytes reply = payload(length, length);
		EXPECT_OK(ctx, pt2p_reply(ctx, call, length, reply.data(), length));
	});
	close_last(r, {s});
	return [&r, s] {
		meet(r);
		for (const bool refuse : {false, true})
			for (const uint64_t length : lengths) {
				Place place;
				place.refuse = refuse;
				pt2p_call_options_t options = PT2P_CALL_OPTIONS_INIT;
				options.room = find_place;
				options.argument = &place;
				Bytes small(51, 77);
				pt2p_result_t result{};
				EXPECT_STATUS(
				    r.ctx, pt2p_call(r.ctx, r.right(), 62, &length, sizeof length, small.data(), 50, &options, &result),
				    refuse && length > 50 ? PT2P_ERR_TRUNCATED : PT2P_OK);
				EXPECT_EQ(result.tag, length);
				EXPECT_EQ(result.length, size_t{length});
				EXPECT_EQ(place.calls, size_t{length > 50});
				EXPECT_EQ(small[50], 77);
				if (length <= 50 || refuse)
					EXPECT_PAYLOAD(small.data(), std::min<size_t>(length, 50), length);
				else
					EXPECT_EQ(place.memory[length], 77);
				if (length > 50 && !refuse)
					EXPECT_PAYLOAD(place.memory.data(), length, length);
			}
		meet(r);
	};
}

Finish abandoned(Rank &r)
{
	auto s = open(r, 63, [](pt2p_context_t *ctx, pt2p_call_t *call, const void *, size_t, void *) {
		EXPECT_OK(ctx, pt2p_call_abandon(ctx, call));
		EXPECT_STATUS(ctx, pt2p_call_abandon(ctx, call), PT2P_ERR_CALL);
	});
	close_last(r, {s});
	return [&r, s] {
		meet(r);
		for (int i = 0; i < 5; ++i) {
			uint64_t word = 5;
			EXPECT_STATUS(r.ctx, pt2p_call(r.ctx, r.right(), 63, &word, 8, &word, 8, nullptr, nullptr),
			              PT2P_ERR_ABANDONED);
			EXPECT_EQ(word, 5u);
		}
		meet(r);
	};
}

// What a handler pushes: bytes at places that touch, that overlap, and that are apart.
struct Part {
	size_t offset, length;
	unsigned char value;
};

std::vector<Part> parts_of(size_t length)
{
	const size_t third = length / 3;
	std::vector<Part> parts{{0, third, 1}, {third, third, 2}, {third / 2, third, 3}, {length - 1, 1, 4}};
	for (size_t at = 2 * third + 1; at + 2 < length && parts.size() < 40; at += 3)
		parts.push_back({at, 1, 5});
	return parts;
}

struct Pieces {
	uint64_t reply; // bytes
	uint64_t seed;
	uint64_t place; // of the reply: the beginning of the room, the rest of it, or other memory
};

// Pulls all in two parts and pushes in many. Windows of some lengths are carried by the messages of the call, others
// are lent.
void move_pieces(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t, void *)
{
	Pieces pieces;
	std::memcpy(&pieces, input, sizeof pieces);
	pt2p_call_info_t info{};
	EXPECT_OK(ctx, pt2p_call_query(ctx, call, &info));
	// It stays until the reply has left.
	void *memory = nullptr;
	EXPECT_OK(ctx, pt2p_reply_room(ctx, call, 2 * pieces.reply + info.give + info.take + 64, &memory));
	auto *bytes = static_cast<unsigned char *>(memory);
	const Bytes reply = payload(pieces.reply, pieces.seed);
	std::copy(reply.begin(), reply.end(), bytes);
	bytes += pieces.reply;
	if (info.give) {
		EXPECT_OK(ctx, pt2p_call_pull(ctx, call, bytes, 0, info.give / 2, nullptr));
		EXPECT_OK(ctx,
		          pt2p_call_pull(ctx, call, bytes + info.give / 2, info.give / 2, info.give - info.give / 2, nullptr));
	}
	bytes += info.give;
	if (info.take)
		for (const Part &part : parts_of(info.take)) {
			std::memset(bytes, part.value, part.length);
			EXPECT_OK(ctx, pt2p_call_push(ctx, call, bytes, part.offset, part.length, nullptr));
			bytes += part.length;
		}
	const void *const from = pieces.place == 0 ? memory : pieces.place == 1 ? bytes : reply.data();
	if (pieces.place == 1)
		std::copy(reply.begin(), reply.end(), bytes);
	EXPECT_OK(ctx, pt2p_reply(ctx, call, info.give, from, pieces.reply));
}

Finish pieces(Rank &r)
{
	auto s = open(r, 65, move_pieces);
	close_last(r, {s});
	return [&r, s] {
		meet(r);
		for (const size_t length : {size_t{3}, size_t{40}, size_t{1000}, size_t{4096}, size_t{8192}, size_t{70000}})
			for (const size_t reply : {size_t{0}, size_t{100}, size_t{9000}, size_t{70000}})
				for (const unsigned windows : {0u, 1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 10u, 11u}) {
					const Pieces work{reply, length + reply, windows / 4};
					const Bytes given = payload(length, 65);
					Bytes taken(length + 1, 77), expected = taken, data(reply);
					pt2p_call_options_t options = PT2P_CALL_OPTIONS_INIT;
					if (windows & 1)
						options.give = {const_cast<unsigned char *>(given.data()), length};
					if (windows & 2) {
						options.take = {taken.data(), length};
						for (const Part &part : parts_of(length))
							std::fill_n(expected.begin() + static_cast<ptrdiff_t>(part.offset), part.length,
							            part.value);
					}
					pt2p_result_t result{};
					EXPECT_OK(r.ctx, pt2p_call(r.ctx, r.right(), 65, &work, sizeof work, data.data(), reply, &options,
					                           &result));
					EXPECT_EQ(result.tag, windows & 1 ? length : 0);
					EXPECT_EQ(result.length, reply);
					EXPECT_PAYLOAD(data.data(), reply, work.seed);
					for (const Part &part : parts_of(length)) // those before overlap, and are not ordered
						if (windows & 2 && part.value > 3)
							EXPECT_EQ(int{taken[part.offset]}, int{part.value});
					for (size_t i = 0; i <= length; ++i)
						EXPECT_EQ(taken[i] == 77, expected[i] == 77);
				}
		meet(r);
	};
}

// The deadline of a call with a window passes while the server holds it. The call ends when the server has let go of
// the window, and what the server pushes later is refused.
Finish late_window(Rank &r)
{
	auto s = open(r, 64, [](pt2p_context_t *, pt2p_call_t *call, const void *, size_t, void *argument) {
		of(argument).kept.push_back(call);
	});
	close_last(r, {s});
	return [&r, s] {
		meet(r);
		for (const size_t length : {size_t{1000}, size_t{100000}}) {
			const Bytes pushed = payload(length, 64);
			Bytes taken(length, 77);
			pt2p_call_options_t options = PT2P_CALL_OPTIONS_INIT;
			options.take = {taken.data(), length};
			options.deadline = 2000000;
			pt2p_request_t *request = nullptr;
			EXPECT_OK(r.ctx, pt2p_icall(r.ctx, r.right(), 64, nullptr, 0, nullptr, 0, &options, &request));
			EXPECT_STATUS(r.ctx, pt2p_wait(r.ctx, request, nullptr), PT2P_ERR_DEADLINE);
			const Bytes after = taken; // as the call has left it
			meet(r);
			for (; !s->kept.empty(); s->kept.pop_front()) { // none, if it came too late
				pt2p_call_t *call = s->kept[0];
				pt2p_call_info_t info{};
				for (; !info.cancelled; r.poll()) { // messages may come before
					EXPECT_OK(r.ctx, pt2p_progress(r.ctx));
					EXPECT_OK(r.ctx, pt2p_call_query(r.ctx, call, &info));
				}
				EXPECT_STATUS(r.ctx, pt2p_call_push(r.ctx, call, pushed.data(), 0, length, nullptr), PT2P_ERR_DEADLINE);
				EXPECT_OK(r.ctx, pt2p_reply(r.ctx, call, 0, nullptr, 0));
			}
			meet(r);
			EXPECT(taken == after);
		}
	};
}

// A reply that comes too late asks for no room, and changes nothing, also when its beginning came in time.
Finish late_room(Rank &r)
{
	auto s = open(r, 67, [](pt2p_context_t *, pt2p_call_t *call, const void *, size_t, void *argument) {
		of(argument).kept.push_back(call);
	});
	close_last(r, {s});
	return [&r, s] {
		meet(r);
		for (const size_t length : {size_t{50}, size_t{5000}, size_t{60000}, size_t{200000}}) {
			Place place;
			pt2p_call_options_t options = PT2P_CALL_OPTIONS_INIT;
			options.room = find_place;
			options.argument = &place;
			options.deadline = 2000000;
			Bytes small(100, 77);
			pt2p_result_t result{};
			EXPECT_STATUS(r.ctx,
			              pt2p_call(r.ctx, r.right(), 67, nullptr, 0, small.data(), small.size(), &options, &result),
			              PT2P_ERR_DEADLINE);
			EXPECT_EQ(result.length, size_t{0});
			meet(r);
			const Bytes reply = payload(length, length);
			for (; !s->kept.empty(); s->kept.pop_front())
				EXPECT_OK(r.ctx, pt2p_reply(r.ctx, s->kept[0], 0, reply.data(), length));
			meet(r);
			// Once this one has been refused, the late reply is here.
			EXPECT_STATUS(r.ctx, pt2p_call(r.ctx, r.right(), 68, nullptr, 0, nullptr, 0, nullptr, nullptr),
			              PT2P_ERR_NO_SERVICE);
			EXPECT_EQ(place.calls, size_t{0});
			EXPECT(small == Bytes(100, 77));
		}
		meet(r);
	};
}

// The deadline passes while pushes are in flight, or just before they start. The call ends once they have ended.
Finish late_pushes(Rank &r)
{
	auto s = open(r, 66, [](pt2p_context_t *ctx, pt2p_call_t *call, const void *, size_t, void *argument) {
		static const Bytes data = payload(300000, 66);
		pt2p_call_info_t info{};
		do
			EXPECT_OK(ctx, pt2p_call_query(ctx, call, &info));
		while (info.remaining > 0);
		// This rank does not know yet that the call is over, unless another thread makes progress.
		for (size_t offset = 0; offset < info.take; offset += data.size()) {
			const pt2p_status_t status =
			    pt2p_call_push(ctx, call, data.data(), offset, std::min(data.size(), info.take - offset), nullptr);
			EXPECT(status == PT2P_OK || status == PT2P_ERR_DEADLINE);
		}
		of(argument).kept.push_back(call);
	});
	close_last(r, {s});
	return [&r, s] {
		meet(r);
		for (const size_t length : {size_t{500}, size_t{100000}, size_t{3000000}}) {
			Bytes taken(length, 77);
			pt2p_call_options_t options = PT2P_CALL_OPTIONS_INIT;
			options.take = {taken.data(), length};
			options.deadline = 2000000;
			EXPECT_STATUS(r.ctx, pt2p_call(r.ctx, r.right(), 66, nullptr, 0, nullptr, 0, &options, nullptr),
			              PT2P_ERR_DEADLINE);
			const Bytes after = taken;
			meet(r);
			for (; !s->kept.empty(); s->kept.pop_front())
				EXPECT_OK(r.ctx, pt2p_reply(r.ctx, s->kept[0], 0, nullptr, 0));
			meet(r);
			EXPECT(taken == after);
		}
	};
}

} // namespace

void add_call_memory_cases(std::vector<Case> &cases)
{
	cases.insert(cases.end(), {
	                              {"call_windows", false, windows},
	                              {"call_pulled_input", true, pulled_input},
	                              {"call_room", true, room},
	                              {"call_abandoned", true, abandoned},
	                              {"call_late_window", false, late_window},
	                              {"call_late_pushes", false, late_pushes},
	                              {"call_late_room", false, late_room},
	                              {"call_pieces", false, pieces},
	                          });
}

} // namespace conformance
