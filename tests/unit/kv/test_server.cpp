// The server of examples/kv: what clients ask, and requests that no client makes.
#include <catch2/catch.hpp>

#include <pt2p.hpp>

#include "examples/kv/client.hpp"
#include "examples/kv/server.hpp"
#include "examples/kv/ycsb.hpp"

using kv::Status;

namespace {

pt2p::context alone()
{
	pt2p_context_t *ctx = nullptr;
	pt2p::check(pt2p_init_inprocess(1, PT2P_INPROCESS_COOPERATIVE, nullptr, &ctx));
	return pt2p::context(ctx);
}

struct Answer {
	Status status;
	std::string bytes;
};
Answer ask(pt2p::context &ctx, std::string_view input)
{
	Answer answer;
	const pt2p_call_options_t options = kv::reply_to(answer.bytes);
	pt2p_result_t result{};
	pt2p::check(pt2p_call(ctx.get(), 0, 0, input.data(), input.size(), nullptr, 0, &options, &result), ctx.get());
	answer.status = static_cast<Status>(result.tag);
	return answer;
}

} // namespace

TEST_CASE("kv server: get, put, erase and several keys at once")
{
	pt2p::context ctx = alone();
	kv::Partition first(ctx, 0, kv::Store::min_memory, false, false),
	    second(ctx, 1, kv::Store::min_memory, false, false);
	kv::Client client(ctx, {1, 2});
	std::string value;
	REQUIRE(client.get("a", value) == Status::not_found);
	std::vector<std::string> keys;
	for (int i = 0; i < 50; ++i) {
		keys.push_back("key" + std::to_string(i));
		if (i % 5)
			REQUIRE(client.put(keys.back(), std::string(static_cast<size_t>(i % 3) * 700, 'v')) == Status::ok);
	}
	REQUIRE(client.facts(0).items + client.facts(1).items == 40);
	REQUIRE(client.facts(0).items > 5);
	REQUIRE(client.facts(1).items > 5);
	const auto values = client.get_many(keys);
	for (size_t i = 0; i < keys.size(); ++i) {
		REQUIRE(values[i].has_value() == (i % 5 != 0));
		if (values[i])
			REQUIRE(*values[i] == std::string(i % 3 * 700, 'v'));
	}
	REQUIRE(client.get_many({}).empty());
	REQUIRE(client.get("key8", value) == Status::ok);
	REQUIRE(value == std::string(1400, 'v'));
	REQUIRE(client.erase("key8") == Status::ok);
	REQUIRE(client.erase("key8") == Status::not_found);
	REQUIRE(client.get("key8", value) == Status::not_found);
	REQUIRE(client.put("", "v") == Status::key_length);
	REQUIRE(client.put(std::string(kv::max_key + 1, 'k'), "v") == Status::key_length);
	REQUIRE(client.put("k", std::string(5000, 'v')) == Status::value_too_long);
	REQUIRE(client.put("k", std::string(kv::max_value + 1, 'v')) == Status::value_too_long);
}

TEST_CASE("kv server: malformed requests are answered as such")
{
	pt2p::context ctx = alone();
	kv::Partition partition(ctx, 0, kv::Store::min_memory, false, false);
	using namespace std::string_literals;
	REQUIRE(ask(ctx, "\1\3keyvalue"s).status == Status::ok);
	REQUIRE(ask(ctx, "\0\3key"s).bytes == "value");
	for (const std::string &request : {""s, "\0"s, "\1"s, "\0\4key"s, "\1\377key"s, "\2\4key"s, "\5\3key"s,
	                                   "\377\3key"s, "\3\0\4key"s, "\3\0\3key\1"s})
		REQUIRE(ask(ctx, request).status == Status::malformed);
	REQUIRE(ask(ctx, std::string(2 << 20, 0)).status == Status::malformed); // above input_max
	REQUIRE(ask(ctx, "\0\0"s).status == Status::not_found);
	REQUIRE(ask(ctx, "\1\0value"s).status == Status::key_length);
	REQUIRE(ask(ctx, "\3\0"s).bytes.empty());
	ycsb::Random random(1);
	for (int i = 0; i < 20'000; ++i) {
		std::string request(random.below(random.below(10) ? 12 : 400), 0);
		for (char &c : request)
			c = static_cast<char>(random() >> 32);
		if (request.size() > 1) {
			request[0] = static_cast<char>(random.below(6));
			request[1] = static_cast<char>(random.below(12));
		}
		REQUIRE(ask(ctx, request).status <= Status::malformed);
	}
	REQUIRE(ask(ctx, "\0\3key"s).bytes == "value");
}
