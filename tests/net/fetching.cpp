// Calls whose results are fetched: what they cost, and that they arrive.
#include <chrono>
#include <utility>

#include "tests/net/job.hpp"

using net::Faults;
using net::Job;

namespace {

void echo(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, void *)
{
	pt2p_reply(ctx, call, length, input, length);
}

} // namespace

TEST_CASE("the server posts nothing for a call whose result is fetched, and the caller reads once", "[.exact]")
{
	const char *transport = GENERATE("rc", "dct");
	const char *preset = GENERATE("PT2P_NET_DELIVERY=send", "PT2P_NET_DELIVERY=write");
	const bool by_service = GENERATE(false, true);
	INFO(transport << " " << preset << (by_service ? " asked for by the service" : ""));
	Job job(transport, 2, {preset, "PT2P_NET_RING_SLOTS=16", "PT2P_NET_RING_SLOT_BYTES=256"});
	pt2p_service_t *service = nullptr;
	pt2p_service_options_t options = PT2P_SERVICE_OPTIONS_INIT;
	options.reply_by = by_service ? PT2P_DELIVERY_READ : PT2P_DELIVERY_AUTO;
	REQUIRE(pt2p_service_open(job.ctx[1], 1, echo, nullptr, &options, &service) == PT2P_OK);
	const auto call = [&](size_t length) {
		std::vector<unsigned char> out(length, 7), in(length);
		pt2p_call_options_t how = PT2P_CALL_OPTIONS_INIT;
		how.reply_by = by_service ? PT2P_DELIVERY_AUTO : PT2P_DELIVERY_READ;
		pt2p_request_t *request = nullptr;
		REQUIRE(pt2p_icall(job.ctx[0], 1, 1, out.data(), length, in.data(), length, &how, &request) == PT2P_OK);
		int done = 0;
		while (!done) {
			REQUIRE(pt2p_progress(job.ctx[1]) == PT2P_OK);
			REQUIRE(pt2p_test(job.ctx[0], request, &done, nullptr) == PT2P_OK);
		}
		REQUIRE(in == out);
	};
	for (const size_t length : {size_t{0}, size_t{8}, size_t{200}}) {
		INFO(length << " bytes");
		for (unsigned i = 0; i < 600; ++i)
			call(length);
		constexpr unsigned n = 300;
		const uint64_t read = job.counter(0, "results_read"), fetched = job.counter(0, "results_fetched");
		uint64_t posted = 0, before = 0;
		REQUIRE(softhca_counter("wqes", -1, 0, &before) == 0);
		const uint64_t sent = job.counter(0, transport[0] == 'r' ? "rc_messages" : "dct_messages");
		for (unsigned i = 0; i < n; ++i)
			call(length);
		REQUIRE(softhca_counter("wqes", -1, 0, &posted) == 0);
		const uint64_t reads = job.counter(0, "results_read") - read;
		CHECK(job.counter(0, "results_fetched") - fetched == n);
		CHECK(reads <= n + n / 100 + 1);
		CHECK(job.counter(0, transport[0] == 'r' ? "rc_messages" : "dct_messages") - sent == n);
		// Both ranks share the counter: nothing is left for the server. Now and then a rank probes a silent peer, which
		// has nothing to do with calls.
		CHECK(posted - before >= n + reads);
		CHECK(posted - before <= n + reads + 3);
		pt2p_calls_info_t info = PT2P_CALLS_INFO_INIT;
		REQUIRE(pt2p_calls_query(job.ctx[0], 1, &info) == PT2P_OK);
		CHECK(info.fetch_bytes == (length > 32 ? 256 : 64));
		CHECK(info.fetched == job.counter(0, "results_fetched"));
		CHECK(info.reads == job.counter(0, "results_read"));
	}
	REQUIRE(pt2p_service_close(job.ctx[1], service) == PT2P_OK);
}

TEST_CASE("a result longer than the bytes that are set for its first READ takes a second one, however often")
{
	struct Setting {
		const char *tunable;
		uint32_t bytes;
		unsigned reads; // of a result of 200 bytes
	};
	const auto setting =
	    GENERATE(Setting{"PT2P_CALL_FETCH_BYTES=64", 64, 2}, Setting{"PT2P_CALL_FETCH_BYTES=192", 192, 2},
	             Setting{"PT2P_CALL_FETCH_BYTES=256", 256, 1}, Setting{"PT2P_CALL_FETCH_BYTES=8k", 1024, 1});
	INFO(setting.tunable);
	Job job("rc", 2, {setting.tunable, "PT2P_CALL_REPLY_BY=read"});
	pt2p_service_t *service = nullptr;
	REQUIRE(pt2p_service_open(job.ctx[1], 1, echo, nullptr, nullptr, &service) == PT2P_OK);
	const auto call = [&] {
		const std::vector<unsigned char> out(200, 7);
		std::vector<unsigned char> in(200);
		pt2p_request_t *request = nullptr;
		REQUIRE(pt2p_icall(job.ctx[0], 1, 1, out.data(), 200, in.data(), 200, nullptr, &request) == PT2P_OK);
		for (int done = 0; !done;) {
			REQUIRE(pt2p_progress(job.ctx[1]) == PT2P_OK); // so looks are seldom in vain
			REQUIRE(pt2p_test(job.ctx[0], request, &done, nullptr) == PT2P_OK);
		}
		REQUIRE(in == out);
	};
	while (job.counter(0, "results_fetched") == 0)
		call();
	pt2p_calls_info_t info = PT2P_CALLS_INFO_INIT;
	REQUIRE(pt2p_calls_query(job.ctx[0], 1, &info) == PT2P_OK);
	CHECK(info.fetch_bytes == setting.bytes);
	const uint64_t fetched = job.counter(0, "results_fetched"), read = job.counter(0, "results_read");
	for (unsigned i = 0; i < 300; ++i)
		call();
	CHECK(job.counter(0, "results_fetched") - fetched == 300);
	CHECK(job.counter(0, "results_read") - read >= 300 * setting.reads);
	CHECK(job.counter(0, "results_read") - read < 300 * setting.reads + 100);
	REQUIRE(pt2p_service_close(job.ctx[1], service) == PT2P_OK);
}

TEST_CASE("results arrive whole where READs are torn, replies are pushed where a caller sleeps or memory is short")
{
	const char *transport = GENERATE("rc", "dct");
	const char *setting = GENERATE("PT2P_CALL_RESULTS=0", "PT2P_CALL_RESULTS=64", "PT2P_CALL_RESULT_BYTES=64");
	INFO(transport << " " << setting);
	Job job(transport, 2, {setting, "PT2P_CALL_REPLY_BY=read"});
	const Faults faults("tear rate=0.5 us=30");
	pt2p_service_t *service = nullptr;
	const auto fill = [](pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, void *) {
		uint64_t seed = 0;
		REQUIRE(length == sizeof seed);
		std::memcpy(&seed, input, sizeof seed);
		std::vector<uint64_t> words(seed % 120, seed);
		pt2p_reply(ctx, call, seed, words.data(), 8 * words.size());
	};
	REQUIRE(pt2p_service_open(job.ctx[1], 1, fill, nullptr, nullptr, &service) == PT2P_OK);
	constexpr unsigned window = 8;
	for (uint64_t i = 0; i < 200; ++i) {
		uint64_t seeds[window], in[window][128] = {};
		pt2p_request_t *requests[window];
		pt2p_result_t results[window];
		for (unsigned k = 0; k < window; ++k) {
			seeds[k] = i * 31 + k * 17;
			REQUIRE(pt2p_icall(job.ctx[0], 1, 1, &seeds[k], 8, in[k], sizeof in[k], nullptr, &requests[k]) == PT2P_OK);
		}
		for (int done = 0; !done; job.progress())
			REQUIRE(pt2p_testall(job.ctx[0], window, requests, &done, results) == PT2P_OK);
		for (unsigned k = 0; k < window; ++k) {
			REQUIRE(results[k].status == PT2P_OK);
			REQUIRE(results[k].tag == seeds[k]);
			REQUIRE(results[k].length == 8 * (seeds[k] % 120));
			for (size_t w = 0; w < seeds[k] % 120; ++w)
				REQUIRE(in[k][w] == seeds[k]);
		}
	}
	if (std::strcmp(setting, "PT2P_CALL_RESULTS=64"))
		CHECK(job.counter(0, "results_fetched") > 0);
	else
		CHECK(job.counter(0, "results_read") == 0);
	REQUIRE(pt2p_service_close(job.ctx[1], service) == PT2P_OK);
}
