// Write rings are granted to those that send most, and taken back.
#include <cstdint>
#include <vector>

#include "softhca/softhca.h"
#include "tests/net/job.hpp"

using namespace net;

namespace {

// Numbered messages to rank 0, checked there.
struct Streams {
	explicit Streams(Job &j) : job(j), next(job.ctx.size()), expected(job.ctx.size())
	{
		for (int rank = 1; rank < static_cast<int>(job.ctx.size()); ++rank)
			job.exchange(rank, 0);
	}
	Job &job;
	std::vector<uint64_t> next, expected;

	// `n` messages from each of these ranks, some of them at a time.
	void run(const std::vector<int> &from, unsigned n)
	{
		constexpr unsigned window = 24;
		for (unsigned done = 0; done < n; done += window) {
			job.progress(); // also of those that send nothing: they have rings to return
			std::vector<uint64_t> out(from.size() * window), in(out.size());
			std::vector<pt2p_request_t *> receives(out.size()), sends(out.size());
			for (size_t i = 0; i < out.size(); ++i) {
				const int rank = from[i / window];
				out[i] = next[Job::index(rank)]++;
				REQUIRE(pt2p_irecv(job.ctx[0], &in[i], 8, rank, 1, PT2P_TAG_EXACT, &receives[i]) == PT2P_OK);
			}
			for (size_t i = 0; i < out.size(); ++i)
				REQUIRE(pt2p_isend(job.ctx[Job::index(from[i / window])], &out[i], 8, 0, 1, &sends[i]) == PT2P_OK);
			REQUIRE(pt2p_waitall(job.ctx[0], receives.size(), receives.data(), nullptr) == PT2P_OK);
			for (size_t i = 0; i < out.size(); ++i) {
				REQUIRE(pt2p_wait(job.ctx[Job::index(from[i / window])], sends[i], nullptr) == PT2P_OK);
				REQUIRE(in[i] == expected[Job::index(from[i / window])]++);
			}
		}
	}
	uint64_t written(int rank) const { return job.counter(rank, "net_deposits"); }
};

constexpr unsigned period = 1024; // messages, as grants.hpp counts with up to 4 rings of a rank

} // namespace

TEST_CASE("the only write ring goes to the rank that sends most, whenever that changes")
{
	const char *transport = GENERATE("rc", "dct");
	CAPTURE(transport);
	Job job(transport, 4, {"PT2P_NET_RINGS=1", "PT2P_NET_DELIVERY=write"});
	Streams streams(job);
	streams.run({1, 2, 3}, 48); // the first that asks gets it
	for (int round = 0; round < 2; ++round)
		for (int hot = 3; hot >= 1; --hot) {
			streams.run({hot}, 4 * period);
			const uint64_t before = streams.written(hot);
			streams.run({hot}, period);
			CHECK(streams.written(hot) - before > period / 2);
			for (int other = 1; other <= 3; ++other) {
				const uint64_t none = streams.written(other);
				if (other != hot)
					streams.run({other}, 24);
				CHECK(streams.written(other) == none);
			}
		}
	CHECK(job.counter(0, "net_rings_taken_back") >= 5);
	CHECK(job.counter(0, "net_rings_granted") == job.counter(0, "net_rings_taken_back") + 1);
}

TEST_CASE("ranks that share a device divide its write rings, and have one each at least")
{
	const char *transport = GENERATE("rc", "dct");
	const auto [rings, apart, granted] =
	    GENERATE(table<int, bool, unsigned>({{8, false, 2}, {3, false, 1}, {0, false, 0}, {8, true, 3}, {1, true, 1}}));
	CAPTURE(transport, rings, apart, granted);
	std::vector<std::string> tunables = {"PT2P_NET_RINGS=" + std::to_string(rings), "PT2P_NET_DELIVERY=write"};
	if (apart) // each on a node of its own
		tunables.push_back("PT2P_RANKS_PER_NODE=1");
	Job job(transport, 4, tunables);
	Streams streams(job);
	streams.run({1, 2, 3}, 240);
	CHECK(job.counter(0, "net_rings_granted") == granted);
}

TEST_CASE("a rank that only receives grants write rings, too")
{
	const char *transport = GENERATE("rc", "dct");
	Job job(transport, 2, {"PT2P_NET_DELIVERY=write"});
	Streams streams(job);
	streams.run({1}, 240);
	CHECK(job.counter(0, "net_rings_granted") == 1);
	CHECK(streams.written(1) > 100);
	CHECK(job.counter(0, "messages_sent") == 0);
}

TEST_CASE("a rank that sends nothing any more loses its write ring, and gets one again when it does")
{
	Job job("rc", 3, {"PT2P_NET_RINGS=12", "PT2P_NET_DELIVERY=write"});
	Streams streams(job);
	streams.run({1, 2}, period);
	CHECK(job.counter(0, "net_rings_granted") == 2);
	streams.run({2}, 7 * period);
	CHECK(job.counter(0, "net_rings_taken_back") == 1);
	const uint64_t before = streams.written(1);
	streams.run({1}, period);
	CHECK(streams.written(1) > before);
	CHECK(job.counter(0, "net_rings_granted") == 3);
}

TEST_CASE("write rings change hands while queue pairs break, and nothing is lost")
{
	const char *transport = GENERATE("rc", "dct");
	Job job(transport, 3, {"PT2P_NET_RINGS=1", "PT2P_NET_DELIVERY=write", "PT2P_NET_RING_SLOTS=8"});
	Streams streams(job);
	streams.run({1, 2}, 48);
	Faults faults("break rate=0.005 count=60");
	for (int round = 0; round < 6; ++round) {
		const int hot = 1 + round % 2;
		streams.run({hot}, 5 * period);
	}
	CHECK(job.counter(0, "net_rings_taken_back") >= 2);
	CHECK(job.counter(1, "reconnects") + job.counter(2, "reconnects") + job.counter(0, "reconnects") > 0);
}

namespace {

// Calls of rank 0 to rank 1, many at a time, over queue pairs with few work requests.
struct Calls {
	Calls(pt2p_delivery_t there, pt2p_delivery_t back, const char *slots)
	    : job("rc", 2, {"PT2P_NET_DELIVERY=send", "PT2P_NET_SEND_DEPTH=4", slots})
	{
		options.input_by = there;
		options.reply_by = back;
		const auto echo = [](pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, void *) {
			pt2p_reply(ctx, call, length, input, length);
		};
		REQUIRE(pt2p_service_open(job.ctx[1], 1, echo, nullptr, nullptr, &service) == PT2P_OK);
		run(1, 60); // without a write ring, some calls ask for one
	}
	~Calls() { CHECK(pt2p_service_close(job.ctx[1], service) == PT2P_OK); }
	void run(size_t together, size_t times)
	{
		for (; times; --times) {
			std::vector<uint64_t> out(together), in(together);
			std::vector<pt2p_request_t *> calls(together);
			for (size_t i = 0; i < together; ++i) {
				out[i] = ++made;
				REQUIRE(pt2p_icall(job.ctx[0], 1, 1, &out[i], 8, &in[i], 8, &options, &calls[i]) == PT2P_OK);
			}
			for (size_t i = 0; i < together; ++i)
				for (int done = 0; !done; job.progress())
					REQUIRE(pt2p_test(job.ctx[0], calls[i], &done, nullptr) == PT2P_OK);
			REQUIRE(in == out);
		}
	}
	uint64_t written(int rank) const { return job.counter(rank, "net_deposits"); }

	Job job;
	pt2p_service_t *service = nullptr;
	pt2p_call_options_t options = PT2P_CALL_OPTIONS_INIT;
	uint64_t made = 0;
};

} // namespace

TEST_CASE("a reply that has to wait for room is delivered as its caller says")
{
	Calls calls(PT2P_DELIVERY_SEND, PT2P_DELIVERY_WRITE, "PT2P_NET_RING_SLOTS=64");
	const uint64_t before = calls.written(1);
	calls.run(30, 1); // no more than the ring holds without a word of its reader
	CHECK(calls.written(1) - before == 30);
}

TEST_CASE("a ring that was full while its reader could not post is used again")
{
	Calls calls(PT2P_DELIVERY_WRITE, PT2P_DELIVERY_SEND, "PT2P_NET_RING_SLOTS=4");
	calls.run(60, 10);
	const uint64_t before = calls.written(0);
	calls.run(1, 20);
	CHECK(calls.written(0) - before == 20);
}
