// DC initiators that several ranks share.
#include "tests/net/job.hpp"

#include <algorithm>
#include <memory>
#include <random>

#include "transports/dct/pool.hpp"

using namespace net;

namespace {

// Numbered messages from rank 0 to another. The receiver has posted receives for all that are in flight.
class Stream {
public:
	static constexpr uint64_t window = 300;

	Stream(Job &job, int to) : job_(job), to_(to)
	{
		for (uint64_t n = 0; n < window; ++n)
			receive(n);
	}
	// Sends up to so many more. Returns how many there was room for.
	uint64_t send(uint64_t count, size_t length = 8)
	{
		count = std::min(count, received_ + window - sent_);
		for (uint64_t n = 0; n < count; ++n, ++sent_) {
			pt2p_request_t *&request = sends_[sent_ % window];
			if (request)
				REQUIRE(pt2p_wait(job_.ctx[0], request, nullptr) == PT2P_OK);
			out_[sent_ % window * 8] = sent_;
			REQUIRE(pt2p_isend(job_.ctx[0], &out_[sent_ % window * 8], length, to_, 1, &request) == PT2P_OK);
		}
		return count;
	}
	// How many of them have been posted.
	uint64_t posted()
	{
		for (; posted_ < sent_; ++posted_) {
			pt2p_request_t *&request = sends_[posted_ % window];
			int done = 1;
			if (request)
				REQUIRE(pt2p_test(job_.ctx[0], request, &done, nullptr) == PT2P_OK);
			if (!done)
				break;
			request = nullptr;
		}
		return posted_;
	}
	// Receives what has arrived, in order.
	void take()
	{
		for (int done = 1; received_ < sent_;) {
			REQUIRE(pt2p_test(job_.ctx[Job::index(to_)], receives_[received_ % window], &done, nullptr) == PT2P_OK);
			if (!done)
				break;
			REQUIRE(in_[received_ % window * 8] == received_);
			receive(received_++ + window);
		}
	}
	uint64_t received() const { return received_; }
	// Waits for the rest.
	void end()
	{
		while (received_ < sent_) {
			job_.progress();
			take();
		}
		for (auto *request : sends_)
			if (request)
				REQUIRE(pt2p_wait(job_.ctx[0], request, nullptr) == PT2P_OK);
		for (auto *request : receives_) {
			REQUIRE(pt2p_cancel(job_.ctx[Job::index(to_)], request) == PT2P_OK);
			CHECK(pt2p_wait(job_.ctx[Job::index(to_)], request, nullptr) == PT2P_ERR_CANCELLED);
		}
	}

private:
	void receive(uint64_t number)
	{
		REQUIRE(pt2p_irecv(job_.ctx[Job::index(to_)], &in_[number % window * 8], 64, 0, 1, PT2P_TAG_EXACT,
		                   &receives_[number % window]) == PT2P_OK);
	}

	Job &job_;
	const int to_;
	std::vector<pt2p_request_t *> receives_ = std::vector<pt2p_request_t *>(window), sends_ = receives_;
	std::vector<uint64_t> in_ = std::vector<uint64_t>(window * 8), out_ = in_;
	uint64_t sent_ = 0, posted_ = 0, received_ = 0;
};

} // namespace

// More streams than the initiators have room for. Each message arrives once and in order, also when initiators fail.
TEST_CASE("ranks that wait for a DC initiator lose nothing, and their messages stay in order")
{
	// Work has to stay in flight for a while.
	const char *rules =
	    GENERATE("drop rate=0.002 seed=7", "delay rate=0.01 us=300 seed=7", "break rate=0.001 count=12 seed=7");
	const char *initiators = GENERATE("PT2P_DCT_INITIATORS=1", "PT2P_DCT_INITIATORS=2");
	constexpr int ranks = 7;
	Job job("dct", ranks, {initiators, "PT2P_NET_TIMEOUT=8"});
	std::vector<Stream> streams;
	for (int to = 1; to < ranks; ++to) {
		job.warm_up(0, to);
		streams.emplace_back(job, to);
	}
	auto faults = std::make_unique<Faults>(rules);
	const auto seen = [&] {
		return job.counter(0, "dct_waits") > 0 && (*rules != 'b' || job.counter(0, "reconnects") > 0);
	};
	std::mt19937 random(1);
	constexpr unsigned turns = 2000, most = 100 * turns, pause = 500;
	for (unsigned turn = 0; turn < turns || (!seen() && turn < most);
	     ++turn) { // a busy machine's devices do less in a turn
		job.progress();
		for (size_t i = 0; i < streams.size(); ++i) {
			streams[i].take();
			if (turn / pause % streams.size() != i) // else it rests
				streams[i].send(random() % 6, 8 + random() % 57);
		}
	}
	CHECK(seen());
	faults.reset();
	for (Stream &s : streams)
		s.end();
	CHECK(job.counter(0, "peers_lost") == 0);
}

// The bound of pool.hpp: two streams wait behind one that always has more to send than there is room for.
TEST_CASE("a steady stream to one rank keeps no other rank from a DC initiator")
{
	constexpr uint64_t depth = 64;
	Job job("dct", 4, {"PT2P_DCT_INITIATORS=1", "PT2P_NET_SEND_DEPTH=" + std::to_string(depth)});
	std::vector<Stream> streams;
	for (int to = 1; to < 4; ++to) {
		job.warm_up(0, to);
		streams.emplace_back(job, to);
	}
	Stream &busy = streams[0];
	const auto turn = [&] {
		busy.send(Stream::window);
		job.progress();
		busy.posted();
		for (Stream &s : streams)
			s.take();
	};
	for (uint64_t n = 0; n < 200; ++n) {
		turn();
		const uint64_t before = busy.posted();
		CHECK(streams[1].send(1) == 1);
		CHECK(streams[2].send(1) == 1);
		while (streams[1].posted() <= n || streams[2].posted() <= n)
			turn();
		// And the last turn goes on after both are served. It posts a window at most, and that if this thread runs so
		// slowly that all of it completes meanwhile.
		CHECK(busy.posted() - before <= streams.size() * pt2p::dct::quota + Stream::window + depth);
	}
	CHECK(job.counter(0, "dct_waits") > 0);
	CHECK(busy.received() > 10 * depth);
	for (Stream &s : streams)
		s.end();
}

// Ranks that share initiators have to know which of them is done. That costs a completion for each message, while it is
// needed.
TEST_CASE("each work request is signalled while DC initiators change targets, and only then")
{
	Job job("dct", 4, {"PT2P_TUNE=off", "PT2P_DCT_INITIATORS=2", "PT2P_NET_DELIVERY=send"});
	for (int to = 1; to < 4; ++to)
		job.warm_up(0, to);
	constexpr unsigned messages = 320;
	// Completions of sends and of receives for each message.
	const auto completions = [&](int targets) {
		uint64_t before, after;
		REQUIRE(softhca_counter("cqes", -1, 0, &before) == 0);
		for (unsigned n = 0; n < messages; ++n)
			job.exchange(0, 1 + static_cast<int>(n) % targets);
		job.progress();
		REQUIRE(softhca_counter("cqes", -1, 0, &after) == 0);
		return static_cast<double>(after - before) / messages;
	};
	CHECK(completions(3) >= 1.99); // the last one may come after the count
	completions(1);                // settles
	CHECK(completions(1) < 1.1);
	CHECK(completions(3) >= 1.9);
}
