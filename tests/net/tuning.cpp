// The tuner of the signal period within the library: the device sees what it decides. Whether its decisions are good is
// for tests/unit/tuning/test_tune.cpp, as latencies of softhca say little.
#include "tests/net/job.hpp"
#include "transports/channel_facts.hpp"

using net::Job;
using net::send_many;

namespace {

// Laws by which period and window always grow, or never.
const std::vector<std::string> grow{"PT2P_TUNE_RAISE_BELOW=100000000", "PT2P_TUNE_CUT_ABOVE=100000000",
                                    "PT2P_TUNE_STEP=32", "PT2P_NET_STAGING=device"};
const std::vector<std::string> stay{"PT2P_TUNE_RAISE_BELOW=0", "PT2P_TUNE_CUT_ABOVE=0", "PT2P_NET_STAGING=device"};

std::vector<std::string> with(const std::string &tune, std::vector<std::string> law)
{
	law.insert(law.end(), {"PT2P_TUNE=" + tune, "PT2P_NET_DELIVERY=send"});
	return law;
}

// Completions of the sender alone. The receiver has one for each message.
uint64_t completions_of_sends(Job &job, unsigned count, size_t length)
{
	uint64_t before = 0, after = 0;
	REQUIRE(softhca_counter("cqes", -1, 0, &before) == 0);
	send_many(job, count, length);
	REQUIRE(softhca_counter("cqes", -1, 0, &after) == 0);
	return after - before - count;
}

std::string description(Job &job)
{
	return job.ctx[0]->router->transport_of(job.ctx[0]->router->find(1)->endpoint)->describe(1);
}

// The depth of the queue, which may be less than PT2P_NET_SEND_DEPTH.
unsigned depth(Job &job)
{
	pt2p::ChannelFacts facts;
	REQUIRE(job.ctx[0]->router->transport_of(job.ctx[0]->router->find(1)->endpoint)->facts(1, facts));
	return facts.depth;
}

// The period in the report; 0: none.
unsigned period(Job &job, const std::string &kind)
{
	const std::string text = description(job), before = kind + ": signal period ";
	const size_t at = text.find(before);
	return at == text.npos ? 0 : static_cast<unsigned>(std::stoul(text.substr(at + before.size())));
}

// How many of three messages are posted before any is known to be complete.
uint32_t in_flight_at_once(Job &job)
{
	pt2p::ChannelFacts facts;
	pt2p::Transport *transport = job.ctx[0]->router->transport_of(job.ctx[0]->router->find(1)->endpoint);
	job.progress();
	std::vector<pt2p_request_t *> sends(3); // fewer than make the library look at the completions
	uint64_t value = 0;
	for (auto &s : sends)
		REQUIRE(pt2p_isend(job.ctx[0], &value, sizeof value, 1, 1, &s) == PT2P_OK);
	REQUIRE(transport->facts(1, facts));
	for (size_t i = 0; i < sends.size(); ++i)
		REQUIRE(pt2p_recv(job.ctx[1], &value, sizeof value, 0, 1, PT2P_TAG_EXACT, nullptr) == PT2P_OK);
	REQUIRE(pt2p_waitall(job.ctx[0], sends.size(), sends.data(), nullptr) == PT2P_OK);
	return facts.in_flight;
}

} // namespace

TEST_CASE("a period that grows with every observation reaches the depth, and is never halved")
{
	const char *transport = GENERATE("rc", "dct");
	Job job(transport, 2, with("paper", grow));
	job.warm_up();
	send_many(job, 30'000, 8);
	INFO(description(job));
	CHECK(description(job).find(pt2p::format("inline: signal period %u, N ", depth(job))) != std::string::npos);
	CHECK(description(job).find(" 0 cuts") != std::string::npos);
	// At least one in 85, and now and then one on an idle channel.
	CHECK(completions_of_sends(job, 12'800, 8) <= 100 + 12'800 / 64);
}

TEST_CASE("on: window and period are the law's")
{
	const char *transport = GENERATE("rc", "dct");
	const bool grows = GENERATE(false, true), shared = GENERATE(false, true);
	auto settings = with("on", grows ? grow : stay);
	settings.push_back(shared ? "PT2P_NET_DOORBELL_BATCH=4" : "PT2P_NET_DOORBELL_BATCH=1");
	Job job(transport, 2, settings);
	job.warm_up();
	const unsigned window = grows ? depth(job) : 2; // 2: WindowLaw::min
	const unsigned wanted = std::max(window / (shared ? 4 : 8), 1u);
	for (const auto &[kind, length] : {std::pair("inline", 8), std::pair("device memory", 512)})
		for (int turn = 0; turn < 100 && period(job, kind) != wanted; ++turn)
			send_many(job, 1000, static_cast<size_t>(length), 1, 10); // few: posting takes less than the latency
	INFO(description(job));
	CHECK(period(job, "inline") == wanted);
	CHECK(period(job, "device memory") == wanted); // one window for all
}

TEST_CASE("on: no more than the window is in flight")
{
	const char *transport = GENERATE("rc", "dct");
	Job job(transport, 2, with("on", stay));
	job.warm_up();
	for (int turn = 0; turn < 100 && in_flight_at_once(job) > 2; ++turn)
		send_many(job, 500, 8);
	INFO(description(job));
	CHECK(in_flight_at_once(job) <= 2);
}

TEST_CASE("a period that never grows is one, also for other payloads")
{
	const char *transport = GENERATE("rc", "dct");
	Job job(transport, 2, with("paper", stay));
	job.warm_up();
	send_many(job, 1000, 8);
	CHECK(completions_of_sends(job, 1000, 8) >= 900); // the last may still be in flight
	CHECK(completions_of_sends(job, 1000, 512) >= 900);
	const std::string text = description(job);
	INFO(text);
	CHECK(text.find("inline: signal period 1, N ") != std::string::npos);
	CHECK(text.find("device memory: signal period 1, N ") != std::string::npos);
}

TEST_CASE("each kind of payload has its own period")
{
	Job job("rc", 2, with("paper", grow));
	job.warm_up();
	send_many(job, 30'000, 8);
	send_many(job, 2000, 4000);
	const std::string text = description(job);
	INFO(text);
	CHECK(text.find(pt2p::format("inline: signal period %u, ", depth(job))) != std::string::npos);
	CHECK(period(job, "buffer") > 0);
	CHECK(period(job, "buffer") < 100);
}

TEST_CASE("paper: no more than one period is in flight", "[.exact]")
{
	const char *transport = GENERATE("rc", "dct");
	Job job(transport, 2, with("paper", stay));
	job.warm_up();
	CHECK(in_flight_at_once(job) == 1);
}

TEST_CASE("a period that is set is fixed, and nothing is tuned")
{
	const char *tune = GENERATE("PT2P_TUNE=off", "PT2P_TUNE=on");
	Job job("rc", 2, {"PT2P_NET_SIGNAL_PERIOD=10", tune, "PT2P_NET_DELIVERY=send"});
	job.warm_up();
	send_many(job, 1000, 8);
	const uint64_t n = completions_of_sends(job, 1000, 8);
	CHECK(n >= 98);
	CHECK(n <= 110);
	CHECK(description(job).find("signal period") == std::string::npos);
}
