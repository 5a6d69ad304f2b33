// Further lanes to a peer, over which calls go.
#include <atomic>
#include <thread>

#include "tests/net/peer.hpp"
#include "transports/rc/rc.hpp"

using net::Faults;
using net::Job;
using net::peer_of;

namespace {

pt2p::rc::RcPeer &rc_peer(const Job &job, int rank = 0, int other = 1)
{
	return static_cast<pt2p::rc::RcPeer &>(peer_of(job, rank, other));
}

// What the server has seen, in this order.
struct Seen {
	std::vector<unsigned> numbers;
};

void note(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, void *argument)
{
	unsigned number = 0;
	std::memcpy(&number, input, std::min(length, sizeof number));
	static_cast<Seen *>(argument)->numbers.push_back(number);
	pt2p_reply(ctx, call, number, input, length);
}

struct Calls {
	explicit Calls(Job &j, size_t n = 8) : job(j), out(n, 1), in(n)
	{
		pt2p_service_t *service = nullptr;
		REQUIRE(pt2p_service_open(job.ctx[1], 1, note, &seen, nullptr, &service) == PT2P_OK);
	}
	pt2p_request_t *start(unsigned number, size_t length = sizeof number)
	{
		std::memcpy(out.data(), &number, sizeof number);
		pt2p_request_t *request = nullptr;
		REQUIRE(pt2p_icall(job.ctx[0], 1, 1, out.data(), length, in.data(), in.size(), nullptr, &request) == PT2P_OK);
		return request;
	}
	bool ended(pt2p_request_t *request, unsigned number)
	{
		int done = 0;
		pt2p_result_t result{};
		job.progress();
		REQUIRE(pt2p_test(job.ctx[0], request, &done, &result) == PT2P_OK);
		if (done)
			CHECK(result.tag == number);
		return done;
	}
	void call(unsigned number, size_t length = sizeof number)
	{
		pt2p_request_t *request = start(number, length);
		while (!ended(request, number))
			;
	}
	// Until a call goes over a further lane.
	void use_lanes()
	{
		const uint64_t before = job.counter(0, "calls_beside");
		for (unsigned i = 0; i < 1'000'000 && job.counter(0, "calls_beside") < before + 2; ++i)
			call(0);
		REQUIRE(job.counter(0, "calls_beside") >= before + 2);
		seen.numbers.clear();
	}
	uint64_t beside() const { return job.counter(0, "calls_beside"); }

	Job &job;
	Seen seen;
	std::vector<unsigned char> out, in;
};

const std::vector<std::string> two = {"PT2P_NET_LANES=2", "PT2P_NET_DELIVERY=send"};

} // namespace

TEST_CASE("a thread that is alone has one queue pair to a peer, and takes several in turn where their number is fixed")
{
	{
		Job job("rc");
		Calls calls(job);
		for (unsigned i = 0; i < 1000; ++i)
			calls.call(i, i % 2 ? 4 : 8);
		CHECK(calls.beside() == 0);
		CHECK(rc_peer(job).others.empty());
	}
	const unsigned lanes = GENERATE(2u, 4u);
	Job job("rc", 2, {"PT2P_NET_LANES=" + std::to_string(lanes)});
	Calls calls(job);
	calls.call(0);
	for (unsigned i = 0; i < 1'000'000 && rc_peer(job).others.size() + 1 < lanes; ++i)
		calls.call(i);
	calls.use_lanes();
	const uint64_t before = calls.beside();
	for (unsigned i = 0; i < 40 * lanes; ++i)
		calls.call(i);
	CHECK(calls.beside() - before == 40 * (lanes - 1));
	CHECK(rc_peer(job).others.size() + 1 == lanes);
	for (unsigned lane = 1; lane < lanes; ++lane)
		CHECK((*rc_peer(job).lanes)[lane - 1]->next_sequence >= 40);
}

TEST_CASE("messages keep their order within a lane, and wait for none of another")
{
	Job job("rc", 2, two);
	Calls calls(job);
	calls.use_lanes();
	auto &lane = *rc_peer(job).lanes->front();
	// The second call of the lane comes first; the next one closes the gap.
	const uint64_t first = lane.next_sequence;
	pt2p_request_t *late[2] = {}, *request = nullptr;
	lane.next_sequence = first + 1;
	for (unsigned number = 1; !late[0]; ++number) {
		request = calls.start(number);
		if (lane.next_sequence == first + 2) {
			late[0] = request;
			break;
		}
		while (!calls.ended(request, number))
			;
	}
	calls.seen.numbers.clear();
	// Those over the first lane go on.
	for (unsigned number = 10; number < 14;) {
		lane.next_sequence = first;
		request = calls.start(number);
		if (lane.next_sequence != first) {
			late[1] = request;
			break;
		}
		while (!calls.ended(request, number))
			;
		CHECK(calls.seen.numbers.back() == number);
		++number;
	}
	REQUIRE(late[1]);
	lane.next_sequence = first + 2;
	for (int done = 0; !done; job.progress())
		REQUIRE(pt2p_testall(job.ctx[0], 2, late, &done, nullptr) == PT2P_OK);
	REQUIRE(calls.seen.numbers.size() >= 2);
	const auto *last = &calls.seen.numbers.back();
	CHECK(last[-1] >= 10); // the one that closed the gap
	CHECK(last[0] < 10);   // the one that had to wait
	calls.call(99);
	CHECK(job.counter(1, "net_duplicates") == 0);
}

TEST_CASE("a lane whose queue pair breaks is made again, and calls go over the first meanwhile")
{
	const int breaks = GENERATE(0, 1); // at the caller, at the server
	Job job("rc", 2, two);
	Calls calls(job);
	calls.use_lanes();
	for (unsigned round = 0; round < 3; ++round) {
		pt2p_request_t *const under_way[] = {calls.start(1), calls.start(1)};
		pt2p::verbs::set_state(rc_peer(job, breaks, 1 - breaks).others[0]->queue->qp(), IBV_QPS_ERR);
		for (pt2p_request_t *request : under_way)
			while (!calls.ended(request, 1))
				;
		for (unsigned i = 0; i < 200; ++i)
			calls.call(i);
		calls.use_lanes();
	}
	CHECK(job.counter(0, "reconnects") + job.counter(1, "reconnects") >= 3);
	CHECK(job.counter(0, "peers_lost") == 0);
}

TEST_CASE("where there is no queue pair for a further lane, calls go over the first")
{
	const char *rule = GENERATE("refuse qp", "refuse qp count=1");
	Job job("rc", 2, two);
	job.warm_up();
	Calls calls(job);
	Faults faults(rule);
	for (unsigned i = 0; i < 2000; ++i)
		calls.call(i);
	CHECK(calls.seen.numbers.size() == 2000);
	CHECK(calls.beside() == 0);
}

TEST_CASE("replies over a further lane arrive before the goodbye")
{
	for (unsigned round = 0; round < 20; ++round) {
		Job job("rc", 2, two, PT2P_INPROCESS_THREADS);
		Calls calls(job);
		calls.use_lanes();
		pt2p_request_t *requests[4];
		for (pt2p_request_t *&request : requests)
			request = calls.start(7);
		while (calls.seen.numbers.size() < 4)
			REQUIRE(pt2p_progress(job.ctx[1]) == PT2P_OK);
		std::thread leaves([&] { pt2p_finalize(job.ctx[1]); });
		CHECK(pt2p_waitall(job.ctx[0], 4, requests, nullptr) == PT2P_OK);
		std::thread leaves_too([&] { pt2p_finalize(job.ctx[0]); });
		leaves.join();
		leaves_too.join();
		job.ctx = {nullptr, nullptr};
	}
}

TEST_CASE("calls go over several lanes whatever their length, and a rank that is lost ends them all")
{
	Job job("rc", 2, {"PT2P_NET_LANES=3", "PT2P_RANKS_PER_NODE=1"});
	Calls calls(job, 300000);
	calls.use_lanes();
	for (const size_t length : {size_t{8}, size_t{5000}, size_t{60000}, size_t{100000}, size_t{300000}, size_t{4}})
		for (unsigned i = 0; i < 50; ++i)
			calls.call(i, length);
	CHECK(calls.seen.numbers.size() == 300);
	pt2p_request_t *requests[12];
	for (pt2p_request_t *&request : requests)
		request = calls.start(3, 60000);
	job.ctx[0]->router->transport_of(job.ctx[0]->router->find(1)->endpoint)->abandon(1, PT2P_ERR_PEER_LOST, "a test");
	for (pt2p_request_t *request : requests)
		CHECK(pt2p_wait(job.ctx[0], request, nullptr) == PT2P_ERR_PEER_LOST);
}

namespace {

void echo(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, void *)
{
	pt2p_reply(ctx, call, length, input, length);
}

} // namespace

TEST_CASE("short and long threads that share a peer get a queue pair each, and threads that are alike share one")
{
	const size_t length = GENERATE(64u, 20000u, 100000u); // the last moves beside the messages
	const char *tunables[] = {"PT2P_TRANSPORTS=self,rc", "PT2P_RANKS_PER_NODE=1", nullptr};
	pt2p_options_t options = PT2P_OPTIONS_INIT;
	options.thread_level = PT2P_THREAD_MULTIPLE;
	options.tunables = tunables;
	Job job("rc"); // replaced by one for threads
	for (pt2p_context_t *&c : job.ctx) {
		REQUIRE(pt2p_finalize(c) == PT2P_OK);
		c = nullptr;
	}
	REQUIRE(pt2p_init_inprocess(2, PT2P_INPROCESS_THREADS, &options, job.ctx.data()) == PT2P_OK);
	pt2p_service_t *service = nullptr;
	REQUIRE(pt2p_service_open(job.ctx[1], 1, echo, nullptr, nullptr, &service) == PT2P_OK);
	std::atomic<bool> end = false;
	std::atomic<unsigned> calls = 0, wrong = 0;
	std::thread server([&] {
		while (!end)
			pt2p_progress(job.ctx[1]);
	});
	constexpr unsigned enough = 3000, most = 200'000;
	const bool parts = length == 20000;
	std::vector<std::thread> threads;
	for (unsigned t = 0; t < 3; ++t)
		threads.emplace_back([&, bytes = t == 2 ? length : size_t{64}] {
			std::vector<unsigned char> out(bytes, static_cast<unsigned char>(bytes)), in(bytes);
			while (++calls < (parts && !job.counter(0, "calls_beside") ? most : enough)) {
				pt2p_result_t result{};
				wrong +=
				    pt2p_call(job.ctx[0], 1, 1, out.data(), bytes, in.data(), bytes, nullptr, &result) != PT2P_OK ||
				    result.length != bytes || in != out;
			}
		});
	for (std::thread &t : threads)
		t.join();
	end = true;
	server.join();
	CHECK(wrong == 0);
	CHECK((job.counter(0, "calls_beside") > 0) == parts);
	CHECK((length != 64 || rc_peer(job).others.empty()));
	std::thread leaves([&] { pt2p_finalize(job.ctx[1]); });
	pt2p_finalize(job.ctx[0]);
	leaves.join();
	job.ctx = {nullptr, nullptr};
}
