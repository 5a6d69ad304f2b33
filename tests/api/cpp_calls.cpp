// SPDX-License-Identifier: BSD-3-Clause
// The C++ header of calls: services, calls that are served, calls of a context.
#include <catch2/catch.hpp>

#include <array>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include <pt2p.hpp>

static_assert(!std::is_copy_constructible_v<pt2p::service> && std::is_move_constructible_v<pt2p::service>);
static_assert(!std::is_copy_constructible_v<pt2p::served_call> && std::is_move_constructible_v<pt2p::served_call>);
static_assert(pt2p::payload<int> && pt2p::payload<std::span<const int>> && !pt2p::payload<std::vector<int>>);

namespace {

struct Point {
	int x, y;
};

constexpr uint32_t id = 7;

// Rank 0 and 1 of a job. What rank 0 calls, rank 1 serves while rank 0 waits.
struct Two {
	Two() : Two(std::array<pt2p_context_t *, 2>{}) {}
	explicit Two(std::array<pt2p_context_t *, 2> ctx)
	{
		pt2p::check(pt2p_init_inprocess(2, PT2P_INPROCESS_COOPERATIVE, nullptr, ctx.data()));
		a = pt2p::context(ctx[0]);
		b = pt2p::context(ctx[1]);
	}
	pt2p::context a{nullptr}, b{nullptr};
};

// The status of what is thrown.
pt2p_status_t thrown(const std::function<void()> &function)
{
	try {
		function();
	} catch (const pt2p::error &e) {
		CHECK(std::string(e.what()).size() > 10);
		return e.status();
	}
	return PT2P_OK;
}

} // namespace

TEST_CASE("C++: a service replies with values, spans and words")
{
	Two two;
	int calls = 0;
	const pt2p::service service(two.b, id, [&calls](pt2p::served_call call) {
		CHECK(call);
		CHECK(call.query().caller == 0);
		++calls;
		switch (call.length()) {
		case 0: return call.reply_word(99);
		case sizeof(Point): {
			const auto p = call.as<Point>();
			return call.reply(Point{p.y, p.x}, 5);
		}
		default: {
			int sum = 0;
			for (int i : call.input<int>())
				sum += i;
			const std::array<int, 2> sums{sum, 1};
			return call.reply(std::span(sums));
		}
		}
	});
	CHECK(service);
	CHECK(two.a.call(1, id).tag == 99);
	const auto p = two.a.call<Point>(1, id, Point{3, 4});
	CHECK(p.x == 4);
	CHECK(p.y == 3);
	const std::vector<int> numbers{1, 2, 3, 4};
	CHECK(two.a.call<std::array<int, 2>>(1, id, std::span(numbers))[0] == 10);

	std::array<int, 2> reply{};
	pt2p::request request = two.a.icall(1, id, std::span(numbers), std::span(reply));
	const pt2p_result_t result = request.wait();
	CHECK(result.length == sizeof reply);
	CHECK(reply[0] == 10);
	CHECK(calls == 4);

	CHECK(thrown([&] { two.a.call<Point>(1, id); }) == PT2P_ERR_LENGTH);           // the reply is a word
	CHECK(thrown([&] { two.a.call<int>(1, id, Point{}); }) == PT2P_ERR_TRUNCATED); // it is longer
	CHECK(thrown([&] { two.a.call(1, id + 1); }) == PT2P_ERR_NO_SERVICE);
	CHECK(thrown([&] { pt2p::service(two.b, id, [](pt2p::served_call) {}); }) == PT2P_ERR_ARGUMENT); // is open
}

TEST_CASE("C++: the input of a call is checked")
{
	Two two;
	const pt2p::service service(two.b, id, [](pt2p::served_call call) {
		CHECK(thrown([&] { call.as<Point>(); }) == PT2P_ERR_LENGTH);
		CHECK(call.input<Point>().empty());
		call.reply_word(1);
		CHECK(!call);
		CHECK(thrown([&] { call.reply_word(2); }) == PT2P_ERR_CALL);
	});
	CHECK(two.a.call(1, id, 3).tag == 1);
}

TEST_CASE("C++: a call is kept, moved and replied to later")
{
	Two two;
	std::vector<pt2p::served_call> kept;
	const pt2p::service service(two.b, id, [&kept](pt2p::served_call call) {
		call.keep();
		kept.push_back(std::move(call));
	});
	int reply = 0;
	const std::array<int, 1> input{6};
	pt2p::request request = two.a.icall(1, id, std::span(input), std::span(&reply, 1));
	while (kept.empty())
		two.b.progress();
	CHECK(!request.test());
	pt2p::served_call call;
	CHECK(!call);
	call = std::move(kept[0]);
	CHECK(!kept[0]);
	call.reply(7 * call.as<int>());
	request.wait();
	CHECK(reply == 42);
}

TEST_CASE("C++: a call that is dropped is abandoned")
{
	Two two;
	std::vector<pt2p::served_call> kept;
	bool keep = false;
	int notices = 0;
	const pt2p::service service(two.b, id, [&](pt2p::served_call call) {
		notices += call.query().notice;
		if (keep)
			kept.push_back(std::move(call));
	});
	CHECK(thrown([&] { two.a.call<int>(1, id, 1); }) == PT2P_ERR_ABANDONED);
	keep = true;
	int reply = 5;
	const std::array<int, 1> input{6};
	pt2p::request request = two.a.icall(1, id, std::span(input), std::span(&reply, 1));
	while (kept.empty())
		two.b.progress();
	kept[0] = pt2p::served_call();
	CHECK(thrown([&] { request.wait(); }) == PT2P_ERR_ABANDONED);
	CHECK(reply == 5);
	kept.clear();
	keep = false;
	two.a.notify(1, id, 1);
	while (!notices)
		two.b.progress();
	CHECK(notices == 1);
}

TEST_CASE("C++: calls wait in lanes, and a service is closed and moved")
{
	Two two;
	pt2p_service_options_t options = PT2P_SERVICE_OPTIONS_INIT;
	options.lanes = 2;
	int served = 0;
	pt2p::service service(
	    two.b, id, [&served](pt2p::served_call call) { call.reply(++served); }, options);
	std::array<int, 2> replies{};
	const std::array<int, 1> input{};
	std::array<pt2p::request, 2> requests;
	pt2p_call_options_t lane = PT2P_CALL_OPTIONS_INIT;
	lane.lane = 1;
	for (size_t i = 0; i < 2; ++i)
		requests[i] = two.a.icall(1, id, std::span(input), std::span(&replies[i], 1), &lane);
	CHECK(service.serve(0, 1, 0) == 0);
	pt2p::service moved(std::move(service));
	CHECK(!service);
	while (served < 2)
		moved.serve(1, 2);
	two.a.wait_all(requests);
	CHECK(replies[0] + replies[1] == 3);
	moved.close();
	CHECK(!moved);
	CHECK(thrown([&] { two.a.call(1, id); }) == PT2P_ERR_NO_SERVICE);
	CHECK(thrown([&] { moved.close(); }) == PT2P_ERR_ARGUMENT);
	service = pt2p::service(two.b, id, [](pt2p::served_call call) { call.reply_word(3); });
	CHECK(two.a.call(1, id).tag == 3);
	service = pt2p::service();
	CHECK(thrown([&] { two.a.call(1, id); }) == PT2P_ERR_NO_SERVICE);
}

TEST_CASE("C++: windows of a call, and a reply in place")
{
	Two two;
	const pt2p::service service(two.b, id, [](pt2p::served_call call) {
		const pt2p_call_info_t info = call.query();
		CHECK(info.give == 4 * sizeof(int));
		static std::vector<int> numbers(4);
		call.pull(std::span(numbers).first(2), 0);
		call.keep();
		// Those with a request end outside of the handler.
		static std::vector<int> rest(2);
		static const std::vector<int> pushed{7, 8};
		static pt2p::served_call later;
		call.ipull(std::span(rest), 2 * sizeof(int)).then([](const pt2p_result_t &result) {
			CHECK(result.status == PT2P_OK);
			later.push(std::span(pushed), sizeof(int));
			const std::span<int> room = later.reply_room<int>(1);
			room[0] = rest[0] + rest[1];
			later.reply(room);
			later = pt2p::served_call();
		});
		later = std::move(call);
	});
	std::array<int, 4> give{1, 2, 3, 4};
	std::array<int, 3> take{};
	pt2p_call_options_t options = PT2P_CALL_OPTIONS_INIT;
	options.give = {give.data(), sizeof give};
	options.take = {take.data(), sizeof take};
	CHECK(two.a.call<int>(1, id, 0, &options) == 7);
	CHECK(take == std::array<int, 3>{0, 7, 8});
}
