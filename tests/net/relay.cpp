// Forwarded messages (src/route/forward): their routes, and that nothing is lost, duplicated or reordered when a
// forwarder computes, leaves or dies.
//
// Eight ranks on four pretended nodes in two groups. From 0 to 7: across to 4, inside of the group to 6, on the node to
// 7.
//
//   group 0: [0 1] [2 3]      group 1: [4 5] [6 7]
#include "tests/net/job.hpp"

#include <atomic>
#include <chrono>
#include <climits>
#include <deque>
#include <functional>
#include <pthread.h>
#include <thread>
#include <utility>

#include "route/forward/relay.hpp"

using namespace net;
using namespace std::chrono_literals;

namespace {

using Clock = std::chrono::steady_clock;

std::vector<std::string> forward(std::vector<std::string> more = {})
{
	more.insert(more.end(), {"PT2P_RANKS_PER_NODE=2", "PT2P_GROUPS=nodes:2", "PT2P_ROUTE=forward"});
	return more;
}

// A stream of numbered messages of several sizes from one rank to another. It calls nothing that waits, so only those
// ranks make progress that a test drives.
struct Stream {
	Stream(Job &j, int from, int to) : job(j), source(from), destination(to) {}

	void turn(unsigned window, bool more)
	{
		while (more && sends.size() < window) {
			sends.push_back({nullptr, message(sent++)});
			Pending &out = sends.back();
			REQUIRE(pt2p_isend(job.ctx[Job::index(source)], out.data.data(), out.data.size(), destination, 3,
			                   &out.request) == PT2P_OK);
		}
		while (receives.size() < window) {
			receives.push_back({nullptr, std::vector<unsigned char>(50'000)});
			Pending &in = receives.back();
			REQUIRE(pt2p_irecv(job.ctx[Job::index(destination)], in.data.data(), in.data.size(), source, 3,
			                   PT2P_TAG_EXACT, &in.request) == PT2P_OK);
		}
		int finished = 0;
		pt2p_result_t result;
		while (!sends.empty() &&
		       pt2p_test(job.ctx[Job::index(source)], sends.front().request, &finished, &result) == PT2P_OK && finished)
			sends.pop_front();
		for (;;) {
			const pt2p_status_t status =
			    pt2p_test(job.ctx[Job::index(destination)], receives.front().request, &finished, &result);
			if (!finished)
				break;
			INFO(pt2p_last_error(job.ctx[Job::index(destination)]));
			REQUIRE(status == PT2P_OK);
			receives.front().data.resize(result.length);
			REQUIRE(receives.front().data == message(received));
			++received;
			receives.pop_front();
		}
	}
	static std::vector<unsigned char> message(unsigned n)
	{
		constexpr size_t lengths[] = {4, 40, 8, 700, 16, 5000, 12, 40000};
		std::vector<unsigned char> data(lengths[n % 8], static_cast<unsigned char>(n));
		std::memcpy(data.data(), &n, sizeof n);
		return data;
	}
	bool complete() const { return received == sent && sends.empty(); }
	void cancel()
	{
		for (Pending &in : receives) {
			pt2p_cancel(job.ctx[Job::index(destination)], in.request);
			int finished = 0;
			pt2p_test(job.ctx[Job::index(destination)], in.request, &finished, nullptr);
		}
		receives.clear();
	}

	struct Pending {
		pt2p_request_t *request;
		std::vector<unsigned char> data;
	};
	Job &job;
	const int source, destination;
	std::deque<Pending> sends, receives;
	unsigned sent = 0, received = 0;
};

// Drives these ranks until the first `count` messages of each stream have arrived.
void run(
    Job &job, std::vector<Stream> &streams, unsigned count, const std::vector<int> &ranks,
    const std::function<void()> &each_turn = [] {}, unsigned window = 20)
{
	const auto limit = Clock::now() + 60s;
	for (;;) {
		REQUIRE(Clock::now() < limit);
		bool done = true;
		for (Stream &s : streams) {
			s.turn(window, s.sent < count);
			done &= s.sent >= count && s.complete();
		}
		for (const int rank : ranks)
			pt2p_progress(job.ctx[Job::index(rank)]);
		each_turn();
		if (done)
			break;
	}
	for (Stream &s : streams)
		s.cancel();
}

constexpr const char *transports = "shm,rc,dct";

} // namespace

TEST_CASE("a message is forwarded by neighbours, a large one goes directly")
{
	Job job(transports, 8, forward({"PT2P_FORWARD_TIMEOUT=10s"}));
	job.exchange(0, 7);
	CHECK(job.counter(0, "forward_sent") == 1);
	CHECK(job.counter(4, "forwarded") == 1);
	CHECK(job.counter(4, "forwarded_bytes") == 8);
	CHECK(job.counter(6, "forwarded") == 1);
	CHECK(job.counter(0, "dct_messages") == 1);
	CHECK(job.counter(4, "rc_messages") == 1);
	CHECK(job.counter(7, "dct_messages") == 0);
	// Neighbours need no forwarder.
	for (const int neighbour : {1, 2, 4})
		job.exchange(0, neighbour);
	CHECK(job.counter(0, "forward_sent") == 1);
	// The announcement is forwarded, the data is not.
	job.exchange(0, 7, 100'000);
	CHECK(job.counter(0, "forward_sent") == 2);
	CHECK(job.counter(4, "forwarded_bytes") < 1000);
	CHECK(job.counter(7, "net_read_bytes") == 100'000);
	// A message too long to be forwarded and too short to be announced goes directly, and still in order.
	job.exchange(0, 7, 6000);
	CHECK(job.counter(0, "forward_sent") == 2);
	pt2p_peer_info_t info;
	REQUIRE(pt2p_peer_query(job.ctx[0], 7, &info) == PT2P_OK);
	CHECK(std::string(info.transport) == "relay");
	CHECK(info.forwarder == 4);
	CHECK(std::string(info.direct) == "dct");
	CHECK(std::string(info.large) == "zero-copy");
	CHECK(info.from_host_memory == 1);
	REQUIRE(pt2p_peer_query(job.ctx[0], 4, &info) == PT2P_OK);
	CHECK(info.forwarder == -1);
	CHECK(std::string(info.direct) == "dct");
	CHECK(info.inlined > 0);
	CHECK(info.signal_period >= 1);
	REQUIRE(pt2p_peer_query(job.ctx[0], 1, &info) == PT2P_OK);
	CHECK(std::string(info.direct) == "shm");
	CHECK(info.inlined + info.signal_period == 0);
	REQUIRE(pt2p_peer_query(job.ctx[0], 6, &info) == PT2P_OK); // never talked to
	CHECK(info.forwarder == -1);
	CHECK(std::string(info.direct).empty());
}

TEST_CASE("forwarded streams of all sizes between all ranks keep their order")
{
	for (const char *credits : {"PT2P_FORWARD_CREDITS=64", "PT2P_FORWARD_CREDITS=4"}) {
		Job job(transports, 8, forward({credits, "PT2P_FORWARD_WINDOW=8", "PT2P_DCT_INITIATORS=1"}));
		std::vector<Stream> streams;
		for (int a = 0; a < 8; ++a)
			for (int b = 0; b < 8; ++b)
				if (a != b)
					streams.emplace_back(job, a, b);
		run(job, streams, 60, {0, 1, 2, 3, 4, 5, 6, 7});
		uint64_t forwarded = 0, again = 0;
		for (int rank = 0; rank < 8; ++rank) {
			forwarded += job.counter(rank, "forwarded");
			again += job.counter(rank, "forward_rerouted");
		}
		CHECK(forwarded > 1000);
		CHECK(again < forwarded / 4); // by time-outs, on a machine that is very busy
	}
}

TEST_CASE("a forwarder that makes no progress delays what it should forward, and nothing else")
{
	Job job(transports, 8, forward({"PT2P_FORWARD_TIMEOUT=20ms"}));
	std::vector<Stream> streams;
	streams.emplace_back(job, 0, 7);
	streams.emplace_back(job, 7, 0);
	run(job, streams, 200, {0, 1, 2, 3, 5, 6, 7}); // without 4
	CHECK(job.counter(0, "forward_rerouted") > 0);
	CHECK(job.counter(0, "peers_lost") == 0);
}

TEST_CASE("messages are routed round a forwarder that dies under load")
{
	for (const int victim : {4, 6}) {
		Job job(transports, 8, forward({"PT2P_FORWARD_TIMEOUT=50ms"}));
		std::vector<Stream> streams;
		streams.emplace_back(job, 0, 7);
		streams.emplace_back(job, 7, 0);
		streams.emplace_back(job, 1, 7);
		std::vector<int> others;
		for (int rank = 0; rank < 8; ++rank)
			if (rank != victim)
				others.push_back(rank);
		bool dead = false;
		run(job, streams, 300, others, [&] {
			if (dead)
				return;
			pt2p_progress(job.ctx[Job::index(victim)]);
			if (streams[0].received > 50) {
				pt2p::declare_lost(*job.ctx[Job::index(victim)]->job, victim, "killed by this test");
				dead = true;
			}
		});
		CHECK(dead);
		CHECK(job.counter(0, "peers_lost") + job.counter(7, "peers_lost") > 0);
	}
}

TEST_CASE("messages are routed round a forwarder that was lost before")
{
	Job job(transports, 8, forward({"PT2P_FORWARD_TIMEOUT=10s"}));
	pt2p::declare_lost(*job.ctx[4]->job, 4, "killed by this test");
	for (const int rank : {0, 7})
		REQUIRE(pt2p_recv(job.ctx[Job::index(rank)], nullptr, 0, 4, 1, PT2P_TAG_EXACT, nullptr) == PT2P_ERR_PEER_LOST);
	job.exchange(0, 7);
	job.exchange(7, 0);
	CHECK(job.counter(0, "forward_sent") == 0);
}

TEST_CASE("messages are routed round a forwarder that finalizes under load")
{
	Job job(transports, 8, forward({"PT2P_FORWARD_TIMEOUT=50ms"}));
	std::vector<Stream> streams;
	streams.emplace_back(job, 0, 7);
	streams.emplace_back(job, 7, 0);
	bool left = false;
	run(job, streams, 300, {0, 1, 2, 3, 5, 6, 7}, [&] {
		if (left)
			return;
		pt2p_progress(job.ctx[4]);
		if (streams[0].received > 50) {
			CHECK(pt2p_finalize(job.ctx[4]) == PT2P_OK);
			job.ctx[4] = nullptr;
			left = true;
		}
	});
	CHECK(left);
}

TEST_CASE("a forwarder that leaves says goodbye to ranks that it never sent anything to, too")
{
	Job job(transports, 8, forward({"PT2P_FORWARD_TIMEOUT=10s", "PT2P_NET_TIMEOUT=18"})); // one second
	job.exchange(0, 7); // 4 gets a message from 0, and 7 acknowledges through 3
	const Change timeouts("timeouts");
	CHECK(pt2p_finalize(job.ctx[4]) == PT2P_OK);
	job.ctx[4] = nullptr;
	char byte;
	CHECK(pt2p_recv(job.ctx[0], &byte, 1, 4, 1, PT2P_TAG_EXACT, nullptr) == PT2P_ERR_PEER_FINALIZED);
	job.exchange(0, 7);
	CHECK(job.counter(0, "forward_sent") == 1); // the second went directly
	for (pt2p_context_t *&c : job.ctx)
		if (c)
			CHECK(pt2p_finalize(std::exchange(c, nullptr)) == PT2P_OK);
	CHECK(timeouts() == 0);
}

TEST_CASE("messages in flight arrive when their sender leaves, whatever the forwarders do")
{
	// With forwarders that progress in their own threads, and with nobody who progresses.
	for (const bool thread : {true, false}) {
		Job job(
		    transports, 8,
		    forward({"PT2P_FORWARD_TIMEOUT=20ms", thread ? "PT2P_PROGRESS_THREAD=auto" : "PT2P_PROGRESS_THREAD=no"}),
		    PT2P_INPROCESS_THREADS);
		int in[5] = {};
		pt2p_request_t *requests[5];
		for (int i = 0; i < 5; ++i) {
			REQUIRE(pt2p_irecv(job.ctx[7], &in[i], sizeof in[i], 0, 1, PT2P_TAG_EXACT, &requests[i]) == PT2P_OK);
			const int out = i + 1;
			REQUIRE(pt2p_send(job.ctx[0], &out, sizeof out, 7, 1) == PT2P_OK);
		}
		CHECK(pt2p_finalize(job.ctx[0]) == PT2P_OK);
		job.ctx[0] = nullptr;
		for (int i = 0; i < 5; ++i) {
			CHECK(pt2p_wait(job.ctx[7], requests[i], nullptr) == PT2P_OK);
			CHECK(in[i] == i + 1);
		}
		// And it is known that it has left, although the two were never connected.
		char byte;
		CHECK(pt2p_recv(job.ctx[7], &byte, 1, 0, 2, PT2P_TAG_EXACT, nullptr) == PT2P_ERR_PEER_FINALIZED);
	}
}

// Sixteen ranks on sixteen pretended nodes in four groups of four, each with as many initiators as there are other
// groups.
//
// Without forwarding, a rank has 12 DC targets: with 3 initiators, each message to another group needs a new
// connection. With forwarding it has 3, which keep their connections.
TEST_CASE("with forwarding, a rank connects to one target of each other group, once")
{
	constexpr int size = 16, group = 4, rounds = 3;
	constexpr uint64_t others = size / group - 1, far = size - group;
	uint64_t connects[2], switches[2];
	for (const bool forwarded : {false, true}) {
		Job job("rc,dct", size,
		        {"PT2P_RANKS_PER_NODE=1", "PT2P_GROUPS=nodes:4", forwarded ? "PT2P_ROUTE=forward" : "PT2P_ROUTE=direct",
		         "PT2P_DCT_INITIATORS=3", "PT2P_FORWARD_TIMEOUT=10s"});
		const Change connected("dc_connects"), switched("dc_switches");
		for (int round = 0; round < rounds; ++round)
			for (int distance = 1; distance < size; ++distance)
				for (int rank = 0; rank < size; ++rank)
					job.exchange(rank, (rank + distance) % size);
		connects[forwarded] = connected();
		switches[forwarded] = switched();
		for (int rank = 0; rank < size; ++rank) {
			CHECK(job.counter(rank, "forward_rerouted") == 0);
			// 12 far ranks, 3 of them neighbours in other groups. A forwarded message takes one more hop.
			CHECK(job.counter(rank, "forward_sent") == (forwarded ? rounds * (far - others) : 0));
		}
	}
	CHECK(connects[0] == rounds * size * far);
	CHECK(switches[0] == (rounds * far - others) * size);
	CHECK(connects[1] == size * others);
	CHECK(switches[1] == 0);
}

// Rank 12 has queues for its 16 initiators and makes 11 connections, each when it reads the first message for that
// rank. Its first two completion queues have room for 8 and 16 of them.
TEST_CASE("completion queues are added while messages are forwarded")
{
	constexpr int size = 24;
	Job job("rc,dct", size,
	        {"PT2P_RANKS_PER_NODE=1", "PT2P_GROUPS=nodes:12", "PT2P_ROUTE=forward", "PT2P_DCT_INITIATORS=16",
	         "PT2P_FORWARD_TIMEOUT=10s"});
	for (int rank = size / 2; rank < size; ++rank)
		job.exchange(0, rank);
	CHECK(job.counter(size / 2, "forwarded") == size / 2 - 1);
}

TEST_CASE("direct messages need no envelope while nothing is forwarded")
{
	Job job(transports, 8, {"PT2P_RANKS_PER_NODE=2", "PT2P_GROUPS=nodes:2", "PT2P_ROUTE=auto"});
	const auto plain = [&](int from, int to) {
		return job.ctx[Job::index(from)]->router->relay()->session(to).outbox.after_plain();
	};
	for (int i = 0; i < 200; ++i) {
		job.exchange(0, 7);
		job.exchange(7, 0);
	}
	CHECK(job.counter(0, "forward_sent") == 0);
	CHECK(job.ctx[0]->router->relay()->trial().trials() == 0);
	CHECK(plain(0, 7));
	CHECK(plain(7, 0));
	CHECK(job.counter(0, "dct_messages") == 200);
}

TEST_CASE("all ranks hold the trial of the routes together, and nothing is lost or reordered in it")
{
	Job job(transports, 8,
	        {"PT2P_RANKS_PER_NODE=2", "PT2P_GROUPS=nodes:2", "PT2P_ROUTE=auto", "PT2P_DCT_INITIATORS=1",
	         "PT2P_FORWARD_WINDOW=8"});
	std::vector<Stream> streams;
	for (int a = 0; a < 8; ++a)
		for (int b = 0; b < 8; ++b)
			if (a / 4 != b / 4)
				streams.emplace_back(job, a, b);
	const auto choice = [&](int rank) -> const pt2p::tune::RouteTrial & {
		return job.ctx[Job::index(rank)]->router->relay()->trial();
	};
	const auto nothing = [] {};
	unsigned count = 0, over = 0;
	for (; over < 8 && count < 40'000;) {
		// At most two messages in a row for a target, which changes often.
		run(job, streams, count += 100, {0, 1, 2, 3, 4, 5, 6, 7}, nothing, 2);
		over = 0;
		for (int rank = 0; rank < 8; ++rank)
			over += choice(rank).trials() == 1 && choice(rank).epoch() == choice(0).epoch() && !choice(rank).in_trial();
	}
	CHECK(over == 8);
	for (int rank = 0; rank < 8; ++rank)
		CHECK(job.counter(rank, "forward_sent") > 0);
}

TEST_CASE("a rank holds no more messages of a neighbour than it has given credits for")
{
	constexpr unsigned credits = 8, count = 50;
	Job job(transports, 8, forward({"PT2P_FORWARD_CREDITS=8", "PT2P_FORWARD_TIMEOUT=10s"}));
	std::vector<uint32_t> out(count), in(count);
	std::vector<pt2p_request_t *> sends(count), receives(count);
	for (unsigned i = 0; i < count; ++i) {
		out[i] = i + 1;
		REQUIRE(pt2p_irecv(job.ctx[7], &in[i], sizeof in[i], 0, 1, PT2P_TAG_EXACT, &receives[i]) == PT2P_OK);
		REQUIRE(pt2p_isend(job.ctx[0], &out[i], sizeof out[i], 7, 1, &sends[i]) == PT2P_OK);
	}
	// Rank 4 progresses, rank 6 does not, so they cannot connect, and rank 4 holds the messages. What the credits allow
	// arrives in time. Any more would come in the turns after that.
	const auto end = Clock::now() + std::chrono::seconds(60);
	for (unsigned more = 2000; more && Clock::now() < end; more -= job.counter(4, "forward_queued") >= credits)
		for (const int rank : {0, 4})
			pt2p_progress(job.ctx[Job::index(rank)]);
	CHECK(job.counter(0, "forward_sent") == credits);
	CHECK(job.counter(4, "forward_queued") == credits);
	CHECK(job.counter(4, "forwarded") == 0);
	// When all progress, everything arrives.
	REQUIRE(pt2p_waitall(job.ctx[7], count, receives.data(), nullptr) == PT2P_OK);
	REQUIRE(pt2p_waitall(job.ctx[0], count, sends.data(), nullptr) == PT2P_OK);
	CHECK(in == out);
	CHECK(job.counter(4, "forwarded") == count);
	CHECK(job.counter(4, "forward_queue_ns") > 0);
}

TEST_CASE("a forwarder's own messages and those that it forwards both get their turn")
{
	Job job(transports, 8, forward({"PT2P_FORWARD_CREDITS=8", "PT2P_FORWARD_TIMEOUT=10s"}));
	// Both go from 4 through 6.
	std::vector<Stream> streams;
	streams.emplace_back(job, 0, 7);
	streams.emplace_back(job, 4, 7);
	unsigned least = UINT_MAX;
	run(job, streams, 600, {0, 1, 2, 3, 4, 5, 6, 7}, [&] {
		const unsigned a = streams[0].received, b = streams[1].received;
		if (least == UINT_MAX && std::max(a, b) >= 400)
			least = std::min(a, b);
	});
	CHECK(least >= 40);
}

// Ranks 0 and 1 are on one node, 2 and 3 on another. The thread of rank 3 receives what rank 2 forwards.
TEST_CASE("a progress thread that nobody asked for leaves callbacks to the program's calls")
{
	const bool asked = GENERATE(false, true);
	std::vector<std::string> tunables{"PT2P_RANKS_PER_NODE=2", "PT2P_ROUTE=forward"};
	if (asked)
		tunables.push_back("PT2P_PROGRESS_THREAD=yes");
	Job job("shm,rc", 4, tunables, PT2P_INPROCESS_THREADS);
	std::vector<std::thread> ranks;
	struct Called {
		std::atomic<bool> awaited{false}, done{false};
		pthread_t by{};
	} called;
	std::atomic<bool> over{false};
	for (int rank = 0; rank < 4; ++rank)
		ranks.emplace_back([&job, &called, &over, rank, asked] {
			pt2p_context_t *ctx = job.ctx[Job::index(rank)];
			uint64_t word = 0;
			if (rank == 0) {
				pt2p_send(ctx, &word, sizeof word, 3, 1);
				while (!called.awaited)
					std::this_thread::sleep_for(1ms);
				pt2p_send(ctx, &word, sizeof word, 3, 1);
			}
			if (rank == 3) {
				pt2p_recv(ctx, &word, sizeof word, 0, 1, PT2P_TAG_EXACT, nullptr);
				pt2p_request_t *request;
				pt2p_irecv(ctx, &word, sizeof word, 0, 1, PT2P_TAG_EXACT, &request);
				pt2p_request_callback(
				    ctx, request,
				    [](pt2p_context_t *, const pt2p_result_t *, void *argument) {
					    Called &it = *static_cast<Called *>(argument);
					    it.by = pthread_self();
					    it.done = true;
				    },
				    &called);
				called.awaited = true;
				const auto end = Clock::now() + (asked ? 20s : 200ms);
				while (!called.done && Clock::now() < end)
					std::this_thread::sleep_for(1ms);
				CHECK(called.done == asked);
				while (!called.done)
					pt2p_progress(ctx);
				CHECK(!pthread_equal(called.by, pthread_self()) == asked);
				over = true;
			}
			while (!over)
				std::this_thread::sleep_for(1ms);
			pt2p_finalize(std::exchange(job.ctx[Job::index(rank)], nullptr));
		});
	for (std::thread &rank : ranks)
		rank.join();
}

TEST_CASE("a progress thread sends again what a forwarder did not forward")
{
	Job job("shm,rc", 4, {"PT2P_RANKS_PER_NODE=2", "PT2P_ROUTE=forward"}, PT2P_INPROCESS_THREADS);
	const auto leave = [&job](int rank) {
		CHECK(pt2p_finalize(std::exchange(job.ctx[Job::index(rank)], nullptr)) == PT2P_OK);
	};
	leave(2); // between 0 and 3
	uint64_t word = 5;
	REQUIRE(pt2p_send(job.ctx[0], &word, sizeof word, 3, 1) == PT2P_OK); // the last call of rank 0
	REQUIRE(pt2p_recv(job.ctx[3], &word, sizeof word, 0, 1, PT2P_TAG_EXACT, nullptr) == PT2P_OK);
	for (const int rank : {0, 1, 3})
		leave(rank);
}
