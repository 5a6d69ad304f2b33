// How results get back to callers that leave it to the library: what is chosen, that callers follow, and what is right
// meanwhile.
#include <algorithm>
#include <chrono>
#include <map>
#include <utility>

#include "tests/net/job.hpp"

using net::Faults;
using net::Job;

namespace {

enum class Way { reply, fetch, datagram };

// Rank 2 serves, 0 and 1 call it in turn. Each way costs what the test wants, however busy the machine is: a call that
// takes another way than `quick` is followed by a pause of everybody that is three times as long as the call.
struct Calls {
	explicit Calls(const std::string &transports) : job(transports, 3)
	{
		REQUIRE(pt2p_service_open(job.ctx[2], 1, echo, this, nullptr, &service) == PT2P_OK);
	}
	static void echo(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, void *argument)
	{
		uint64_t number = 0;
		std::memcpy(&number, input, sizeof number);
		++static_cast<Calls *>(argument)->executed[number];
		pt2p_reply(ctx, call, length, input, length);
	}
	pt2p_request_t *start(int rank, const std::vector<unsigned char> &out, std::vector<unsigned char> &in,
	                      uint32_t to = 1)
	{
		pt2p_request_t *request = nullptr;
		in.assign(out.size(), 0);
		REQUIRE(pt2p_icall(job.ctx[Job::index(rank)], 2, to, out.data(), out.size(), in.data(), in.size(), nullptr,
		                   &request) == PT2P_OK);
		return request;
	}
	std::vector<unsigned char> input(size_t length)
	{
		std::vector<unsigned char> bytes(std::max(length, sizeof made), static_cast<unsigned char>(made));
		std::memcpy(bytes.data(), &made, sizeof made);
		++made;
		return bytes;
	}
	void wait(int rank, pt2p_request_t *request, bool all_progress = false)
	{
		pt2p_result_t result{};
		pt2p_status_t status = PT2P_OK;
		for (int done = 0; !done && status == PT2P_OK;) {
			all_progress ? job.progress() : static_cast<void>(pt2p_progress(job.ctx[2]));
			status = pt2p_test(job.ctx[Job::index(rank)], request, &done, &result);
		}
		REQUIRE(status == PT2P_OK);
		REQUIRE(result.status == PT2P_OK);
	}
	// The way that it took.
	Way call(size_t length = 8, uint32_t to = 1)
	{
		using Clock = std::chrono::steady_clock;
		const int rank = static_cast<int>(made % 2);
		const uint64_t fetched = job.counter(rank, "results_fetched"), sent = datagrams();
		const std::vector<unsigned char> out = input(length);
		std::vector<unsigned char> in;
		const auto begin = Clock::now();
		wait(rank, start(rank, out, in, to));
		REQUIRE(in == out);
		const Way way = job.counter(rank, "results_fetched") > fetched ? Way::fetch
		                : datagrams() > sent                           ? Way::datagram
		                                                               : Way::reply;
		const auto end = Clock::now();
		if (way != quick)
			while (Clock::now() - end < 3 * (end - begin))
				continue;
		return way;
	}
	// Makes a way the quickest, and goes on until it has been taken for longer than in any step of a trial.
	void settle(Way wanted)
	{
		quick = wanted;
		unsigned in_a_row = 0;
		for (unsigned i = 0; i < 1000000 && in_a_row < 20000; ++i)
			in_a_row = call() == wanted ? in_a_row + 1 : 0;
		CHECK(in_a_row == 20000);
	}
	uint64_t datagrams() const { return job.counter(2, "ud_messages") - job.counter(2, "replies_repeated"); }
	bool each_once() const
	{
		return executed.size() == made &&
		       std::all_of(executed.begin(), executed.end(), [](const auto &call) { return call.second == 1; });
	}

	Job job;
	Way quick = Way::fetch;
	uint64_t made = 0;
	std::map<uint64_t, unsigned> executed; // how often, by the number that a call carries
	pt2p_service_t *service = nullptr;
};

} // namespace

TEST_CASE("auto: results are fetched, or sent in either way, as is quicker for the server")
{
	const std::string transports = GENERATE("dct", "dct,ud", "rc,ud");
	INFO(transports);
	Calls calls(transports);
	for (unsigned i = 0; i < 4000; ++i)
		calls.call();
	CHECK(calls.job.counter(0, "results_read") + calls.job.counter(1, "results_read") == 0); // no trial yet
	CHECK(calls.datagrams() == 0);
	calls.settle(Way::fetch);
	if (transports != "dct")
		calls.settle(Way::datagram);
	calls.settle(Way::reply);
	CHECK(calls.each_once());
	REQUIRE(pt2p_service_close(calls.job.ctx[2], calls.service) == PT2P_OK);
}

TEST_CASE("auto: where replies go by datagram, nothing is lost or done twice, and what cannot go so goes as before")
{
	Calls calls("rc,ud");
	calls.settle(Way::datagram);
	Job &job = calls.job;
	// Calls or replies that are too long; then the next are by datagram again.
	for (const size_t length : {size_t{3000}, size_t{7000}, size_t{100000}}) {
		INFO(length);
		CHECK(calls.call(length) == (length == 3000 ? Way::datagram : Way::reply));
		CHECK(calls.call(length) == (length == 3000 ? Way::datagram : Way::reply));
		CHECK(calls.call() == Way::datagram);
		CHECK(calls.call() == Way::datagram);
	}
	// What a service or a caller chooses comes first.
	pt2p_service_t *sends = nullptr;
	pt2p_service_options_t options = PT2P_SERVICE_OPTIONS_INIT;
	options.reply_by = PT2P_DELIVERY_SEND;
	REQUIRE(pt2p_service_open(job.ctx[2], 2, Calls::echo, &calls, &options, &sends) == PT2P_OK);
	CHECK(calls.call(8, 2) == Way::reply);
	CHECK(calls.call(8, 2) == Way::reply);
	REQUIRE(pt2p_service_close(job.ctx[2], sends) == PT2P_OK);
	{
		const Faults faults("drop rate=0.1; duplicate rate=0.1; reorder rate=0.1");
		std::vector<std::vector<unsigned char>> in(32), out(32);
		for (unsigned round = 0; round < 20; ++round) {
			std::vector<pt2p_request_t *> under_way;
			for (size_t i = 0; i < in.size(); ++i)
				under_way.push_back(calls.start(static_cast<int>(i % 2), out[i] = calls.input(8 + 40 * i), in[i]));
			for (size_t i = 0; i < in.size(); ++i)
				calls.wait(static_cast<int>(i % 2), under_way[i], true);
			REQUIRE(in == out);
		}
	}
	CHECK(job.counter(0, "calls_repeated") + job.counter(1, "calls_repeated") > 0);
	CHECK(calls.each_once());
	REQUIRE(pt2p_service_close(job.ctx[2], calls.service) == PT2P_OK);
}

TEST_CASE("auto: nothing is tried where a result fits nowhere else, is forced to be sent, or where no device is")
{
	const char *why = GENERATE("length", "caller", "service", "transport");
	INFO(why);
	const std::string reason = why;
	Job job(reason == "transport" ? "shm,ud" : "rc,ud", 2);
	pt2p_service_t *service = nullptr;
	const auto reply = [](pt2p_context_t *ctx, pt2p_call_t *call, const void *, size_t, void *argument) {
		static const unsigned char bytes[9000] = {};
		pt2p_reply(ctx, call, 0, bytes, *static_cast<size_t *>(argument));
	};
	size_t length = reason == "length" ? 9000 : 8;
	pt2p_service_options_t options = PT2P_SERVICE_OPTIONS_INIT;
	pt2p_call_options_t how = PT2P_CALL_OPTIONS_INIT;
	if (reason == "service")
		options.reply_by = PT2P_DELIVERY_SEND;
	if (reason == "caller")
		how.reply_by = PT2P_DELIVERY_SEND;
	REQUIRE(pt2p_service_open(job.ctx[1], 1, reply, &length, &options, &service) == PT2P_OK);
	for (unsigned i = 0; i < 20000; ++i) {
		unsigned char in[9000];
		pt2p_request_t *request = nullptr;
		REQUIRE(pt2p_icall(job.ctx[0], 1, 1, nullptr, 0, in, sizeof in, &how, &request) == PT2P_OK);
		for (int done = 0; !done; job.progress())
			REQUIRE(pt2p_test(job.ctx[0], request, &done, nullptr) == PT2P_OK);
	}
	CHECK(job.counter(1, "results_stored") == 0);
	CHECK(job.counter(0, "results_read") == 0);
	CHECK(job.counter(1, "ud_messages") == 0);
	REQUIRE(pt2p_service_close(job.ctx[1], service) == PT2P_OK);
}
