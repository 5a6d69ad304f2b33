// Calls by datagram: without a connection, and executed once, whatever the network does.
#include <algorithm>
#include <chrono>
#include <map>
#include <thread>

#include "rpc/rpc.hpp"
#include "tests/net/job.hpp"

using net::Change;
using net::Faults;
using net::Job;

namespace {

struct Server {
	std::map<uint64_t, unsigned> executed; // how often, by the number that a call carries
	uint64_t step = 1, word = 0;           // of the replies
	size_t reply = 0;                      // bytes
	bool keeps = false;
	std::vector<pt2p_call_t *> kept;
};

void serve(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t, void *argument)
{
	auto &server = *static_cast<Server *>(argument);
	uint64_t number = 0;
	std::memcpy(&number, input, sizeof number);
	++server.executed[number];
	if (server.keeps)
		return server.kept.push_back(call);
	const std::vector<unsigned char> bytes(server.reply, static_cast<unsigned char>(number));
	CHECK(pt2p_reply(ctx, call, server.word, bytes.data(), bytes.size()) == PT2P_OK);
	server.word += server.step;
}

struct Calls {
	explicit Calls(Job &j) : job(j)
	{
		pt2p_service_t *service = nullptr;
		REQUIRE(pt2p_service_open(job.ctx[1], 1, serve, &server, nullptr, &service) == PT2P_OK);
	}
	pt2p_request_t *start(const pt2p_call_options_t *options = nullptr)
	{
		const size_t at = made++;
		inputs[at].assign(length, 0);
		std::memcpy(inputs[at].data(), &at, sizeof at);
		replies[at].resize(server.reply);
		pt2p_request_t *request = nullptr;
		REQUIRE(pt2p_icall(job.ctx[0], 1, 1, inputs[at].data(), length, replies[at].data(), replies[at].size(), options,
		                   &request) == PT2P_OK);
		return request;
	}
	pt2p_result_t wait(pt2p_request_t *request)
	{
		pt2p_result_t result{};
		for (int done = 0; !done; job.progress())
			pt2p_test(job.ctx[0], request, &done, &result);
		return result;
	}
	// So many calls, `window` at a time; the words that they brought.
	std::vector<uint64_t> run(size_t count, size_t window)
	{
		std::vector<uint64_t> words;
		std::vector<pt2p_request_t *> under_way;
		for (size_t i = 0; i < count + window; ++i) {
			if (i >= window && !under_way.empty()) {
				const pt2p_result_t result = wait(under_way.front());
				CHECK(result.status == PT2P_OK);
				words.push_back(result.tag);
				under_way.erase(under_way.begin());
			}
			if (i < count)
				under_way.push_back(start());
		}
		return words;
	}
	bool each_once() const
	{
		return server.executed.size() == made && std::all_of(server.executed.begin(), server.executed.end(),
		                                                     [](const auto &call) { return call.second == 1; });
	}
	uint64_t counted(const char *name, int rank = 0) const { return job.counter(rank, name); }

	Job &job;
	Server server;
	size_t length = sizeof(uint64_t), made = 0;
	std::map<size_t, std::vector<unsigned char>> inputs, replies;
};

std::vector<uint64_t> from_on(uint64_t first, uint64_t step, size_t count)
{
	std::vector<uint64_t> words;
	for (size_t i = 0; i < count; ++i)
		words.push_back(first + i * step);
	return words;
}

const std::vector<std::string> datagrams = {"PT2P_CALL_INPUT_BY=datagram"};
constexpr const char *bad_wire = "drop rate=0.2; duplicate rate=0.2; reorder rate=0.2";

} // namespace

TEST_CASE("calls by datagram connect nothing")
{
	Job job(GENERATE(as<std::string>(), "rc,ud", "dct,ud"), 2, datagrams);
	Calls calls(job);
	CHECK(calls.run(300, 8) == from_on(0, 1, 300));
	CHECK(calls.each_once());
	for (const int rank : {0, 1})
		CHECK(job.counter(rank, "peers_connected") == 0);
	CHECK(job.counter(0, "ud_messages") >= 300);
	std::string report(8192, 0);
	REQUIRE(pt2p_report(job.ctx[0], report.data(), report.size(), nullptr) == PT2P_OK);
	CHECK_THAT(report, Catch::Matchers::Contains("rank 0 to 1 by ud") &&
	                       Catch::Matchers::Contains("nobody acknowledges datagrams"));
}

TEST_CASE("a call by datagram is executed once on a wire that loses, repeats and reorders")
{
	Job job("rc,ud", 2,
	        {"PT2P_CALL_INPUT_BY=datagram",
	         GENERATE(as<std::string>(), "PT2P_CALL_HEADER_ONLY=1", "PT2P_CALL_HEADER_ONLY=0")});
	Calls calls(job);
	calls.server.reply = GENERATE(size_t{0}, size_t{300});
	const Faults faults(bad_wire);
	std::vector<uint64_t> words = calls.run(500, GENERATE(size_t{1}, size_t{40}));
	std::sort(words.begin(), words.end());
	CHECK(words == from_on(0, 1, 500));
	CHECK(calls.each_once());
	CHECK(calls.counted("calls_repeated") > 0);
	CHECK(calls.counted("replies_repeated", 1) > 0);
	for (const auto &[number, reply] : calls.replies)
		CHECK(std::all_of(reply.begin(), reply.end(),
		                  [n = number](unsigned char byte) { return byte == static_cast<unsigned char>(n); }));
}

TEST_CASE("words that jump are right, and those that do not take less of the device")
{
	Job job("rc,ud", 2, datagrams);
	Calls calls(job);
	for (const uint64_t step : {UINT64_C(1), UINT64_C(1) << 40, ~UINT64_C(0), UINT64_C(131071), UINT64_C(131072)}) {
		calls.server.step = step;
		const uint64_t first = calls.server.word;
		CHECK(calls.run(50, 1) == from_on(first, step, 50));
	}
	const auto bytes_for = [&](uint64_t step) {
		calls.server.step = step;
		calls.run(2, 1);
		const Change bytes("wqe_bytes");
		calls.run(100, 1);
		return bytes();
	};
	const uint64_t messages = bytes_for(UINT64_C(1) << 20), alone = bytes_for(1);
	CHECK(messages - alone >= 90 * 64); // a WQEBB less for each, and little besides
	CHECK(messages - alone <= 110 * 64);
}

TEST_CASE("replies go by datagram although calls do not")
{
	Job job("rc,ud", 2, {"PT2P_CALL_REPLY_BY=datagram", "PT2P_NET_DELIVERY=write"});
	Calls calls(job);
	const Faults faults("drop rate=0.05; duplicate rate=0.05");
	CHECK(calls.run(500, 8).size() == 500);
	CHECK(calls.each_once());
	CHECK(job.counter(1, "ud_messages") >= 400);
	CHECK(job.counter(0, "ud_messages") == 0);
}

TEST_CASE("PT2P_NET_BATCHING says what replies that leave together share", "[.exact]")
{
	const std::string by = GENERATE("send", "datagram"), batching = GENERATE("off", "doorbells", "bundles");
	Job job("rc,ud", 2, {"PT2P_CALL_REPLY_BY=" + by, "PT2P_CALL_HEADER_ONLY=no", "PT2P_NET_BATCHING=" + batching});
	Calls calls(job);
	calls.run(20, 1);
	constexpr size_t rounds = 40, window = 8, n = rounds * window;
	Change wqes("wqes"), rings("doorbells");
	for (size_t i = 0; i < rounds; ++i) {
		std::vector<pt2p_request_t *> under_way;
		for (size_t k = 0; k < window; ++k)
			under_way.push_back(calls.start());
		std::this_thread::sleep_for(std::chrono::milliseconds(1)); // all have arrived
		for (pt2p_request_t *request : under_way)
			CHECK(calls.wait(request).status == PT2P_OK);
	}
	CAPTURE(by, batching);
	// Of these, the calls have n, as they do not leave in a turn of progress. Some may be sent again.
	const uint64_t work_requests = wqes() - n, doorbells = rings() - n;
	const uint64_t again = calls.counted("calls_repeated") + calls.counted("replies_repeated", 1);
	if (batching == "off")
		CHECK(doorbells == work_requests);
	else
		CHECK(doorbells <= n / 2 + again);
	if (batching == "bundles")
		CHECK(work_requests <= n / 2 + again);
	else
		CHECK(work_requests >= n);
	CHECK(calls.each_once());
}

TEST_CASE("what does not fit in a datagram goes over a connection")
{
	Job job("rc,ud", 2, datagrams);
	Calls calls(job);
	calls.length = GENERATE(size_t{8}, size_t{5000}, size_t{100000});
	calls.server.reply = GENERATE(size_t{0}, size_t{5000}, size_t{100000});
	calls.run(20, 4);
	CHECK(calls.each_once());
	for (const auto &[number, reply] : calls.replies)
		CHECK(std::all_of(reply.begin(), reply.end(),
		                  [n = number](unsigned char byte) { return byte == static_cast<unsigned char>(n); }));
}

TEST_CASE("calls by datagram are numbered on and on")
{
	Job job("rc,ud", 2, datagrams);
	Calls calls(job);
	calls.server.reply = GENERATE(size_t{8}, size_t{5000}); // the second goes over the connection
	for (const uint64_t before : {UINT64_C(0), UINT64_C(0x7ffffff0), UINT64_C(0xfffffff0), UINT64_C(0x17ffffff0)}) {
		job.ctx[0]->rpc->peers().at(1).calls = before;
		CHECK(calls.run(40, 1).size() == 40);
	}
	CHECK(calls.each_once());
}

TEST_CASE("a call by datagram whose deadline has passed frees its place")
{
	Job job("rc,ud", 2, {"PT2P_CALL_INPUT_BY=datagram", "PT2P_CALL_WINDOW=2"});
	Calls calls(job);
	const Faults faults(bad_wire);
	calls.server.keeps = true;
	pt2p_call_options_t options = PT2P_CALL_OPTIONS_INIT;
	options.deadline = 20'000'000;
	for (int i = 0; i < 4; ++i)
		CHECK(calls.wait(calls.start(&options)).status == PT2P_ERR_DEADLINE);
	calls.server.keeps = false;
	CHECK(calls.wait(calls.start()).status == PT2P_OK);
	for (pt2p_call_t *call : calls.server.kept)
		pt2p_reply(job.ctx[1], call, 0, nullptr, 0);
}

TEST_CASE("calls by datagram to a rank that is lost fail")
{
	Job job("rc,ud", 2, datagrams);
	Calls calls(job);
	calls.run(3, 1);
	calls.server.keeps = true;
	pt2p_request_t *request = calls.start();
	job.ctx[0]->engine->channels().declare_down(1, PT2P_ERR_PEER_LOST, "it is said to be");
	CHECK(calls.wait(request).status == PT2P_ERR_PEER_LOST);
	uint64_t input = 0;
	CHECK(pt2p_icall(job.ctx[0], 1, 1, &input, sizeof input, nullptr, 0, nullptr, &request) == PT2P_ERR_PEER_LOST);
	for (pt2p_call_t *call : calls.server.kept)
		pt2p_reply(job.ctx[1], call, 0, nullptr, 0);
}

TEST_CASE("a server that finalizes tells callers by datagram")
{
	Job job("rc,ud", 2, {"PT2P_CALL_INPUT_BY=datagram", "PT2P_FINALIZE_TIME=0.2"});
	Calls calls(job);
	calls.run(3, 1);
	calls.server.keeps = true;
	pt2p_request_t *request = calls.start();
	while (calls.server.kept.empty())
		job.progress();
	CHECK(pt2p_finalize(job.ctx[1]) == PT2P_ERR_UNFINISHED);
	job.ctx[1] = nullptr;
	CHECK(calls.wait(request).status == PT2P_ERR_PEER_FINALIZED);
}
