// What a rank lacks for a while, here or at the other end, does not make a peer lost. The call that needed it fails and
// says so, and the next call tries again.
#include "tests/net/window.hpp"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <dlfcn.h>
#include <infiniband/verbs.h>
#include <memory>
#include <thread>
#include <utility>

using namespace net;
using namespace std::chrono_literals;

namespace {

// Of the calls of ibv_modify_qp to a state that can send or receive, so many succeed. Then so many fail with ENOMEM.
std::atomic<int> modify_passes{0}, modify_failures{0};

struct Lacking {
	Lacking(int passes, int failures)
	{
		modify_passes = passes;
		modify_failures = failures;
	}
	~Lacking() { modify_failures = 0; }
};

} // namespace

// Replaces that of libibverbs.
extern "C" int ibv_modify_qp(ibv_qp *qp, ibv_qp_attr *attr, int mask)
{
	static const auto real = reinterpret_cast<decltype(&ibv_modify_qp)>(dlsym(RTLD_NEXT, "ibv_modify_qp"));
	const bool starts = mask & IBV_QP_STATE && (attr->qp_state == IBV_QPS_RTR || attr->qp_state == IBV_QPS_RTS);
	if (starts && modify_failures.load() > 0 && modify_passes-- <= 0) {
		--modify_failures;
		return ENOMEM;
	}
	return real(qp, attr, mask);
}

namespace {

void lacks(const Job &job, int rank, pt2p_status_t status, const char *what)
{
	const std::string why = pt2p_last_error(job.ctx[Job::index(rank)]);
	CAPTURE(why);
	CHECK(status == PT2P_ERR_NO_MEMORY);
	CHECK(why.find("rank " + std::to_string(1 - rank)) != why.npos);
	CHECK(why.find(what) != why.npos);
	CHECK(why.find("ENOMEM") != why.npos);
}

void nobody_is_lost(const Job &job)
{
	for (int rank = 0; rank < 2; ++rank) {
		CHECK(job.counter(rank, "peers_lost") == 0);
		pt2p_peer_info_t info{};
		CHECK(pt2p_peer_query(job.ctx[Job::index(rank)], 1 - rank, &info) == PT2P_OK);
		CHECK(info.state != PT2P_PEER_LOST);
		CHECK(info.state != PT2P_PEER_FINALIZED);
	}
}

} // namespace

TEST_CASE("operations fail while the peer can create no queue pair, and work afterwards")
{
	Job job("rc", 2, apart());
	Window w(job, 1, 100'000);
	uint64_t word = 5, in = 0;
	std::vector<unsigned char> large(1 << 20);
	pt2p_request_t *receive, *sends[3];
	REQUIRE(pt2p_irecv(job.ctx[1], &in, sizeof in, 0, 1, PT2P_TAG_EXACT, &receive) == PT2P_OK);
	{
		Faults faults("refuse qp after=1"); // this rank's own
		for (int i = 0; i < 2; ++i)
			lacks(job, 0, pt2p_send(job.ctx[0], &word, sizeof word, 1, 2),
			      "it refuses a connection: ibv_create_qp_ex (RC)");
		lacks(job, 0, pt2p_ssend(job.ctx[0], &word, sizeof word, 1, 2), "the next call tries again");
		for (pt2p_request_t *&r : sends)
			REQUIRE(pt2p_isend(job.ctx[0], large.data(), &r == sends ? large.size() : 8, 1, 2, &r) == PT2P_OK);
		for (pt2p_request_t *r : sends)
			lacks(job, 0, pt2p_wait(job.ctx[0], r, nullptr), "it refuses a connection");
		pt2p_request_t *put;
		REQUIRE(pt2p_put(job.ctx[0], large.data(), 8, w.remote, 0, &put) == PT2P_OK);
		REQUIRE(pt2p_put(job.ctx[0], large.data(), 50'000, w.remote, 0, nullptr) == PT2P_OK);
		lacks(job, 0, pt2p_wait(job.ctx[0], put, nullptr), "put of 8 bytes");
		lacks(job, 0, pt2p_flush(job.ctx[0], 1), "put of 50000 bytes");
		lacks(job, 1, pt2p_send(job.ctx[1], &word, sizeof word, 0, 2), "ibv_create_qp_ex (RC)");
	}
	nobody_is_lost(job);
	CHECK(job.ctx[0]->engine->requests().reasons() == 0);
	REQUIRE(pt2p_send(job.ctx[0], &word, sizeof word, 1, 1) == PT2P_OK);
	REQUIRE(pt2p_wait(job.ctx[1], receive, nullptr) == PT2P_OK);
	CHECK(in == word);
	job.warm_up();
	job.exchange(0, 1, large.size());
	REQUIRE(pt2p_put(job.ctx[0], &word, 8, w.remote, 0, nullptr) == PT2P_OK);
	CHECK(pt2p_flush(job.ctx[0], 1) == PT2P_OK);
}

TEST_CASE("operations fail while a queue pair cannot be connected, on either side, and work afterwards")
{
	// The other side first brings its queue pair to RTS, in two steps.
	const int passes = GENERATE(0, 1, 2, 3);
	const bool first = GENERATE(true, false);
	Job job("rc");
	uint64_t word = 5;
	{
		Lacking lacking(passes, 1);
		lacks(job, 0, pt2p_send(job.ctx[0], &word, sizeof word, 1, 2), "ibv_modify_qp");
	}
	nobody_is_lost(job);
	job.exchange(first, !first);
	job.warm_up();
	nobody_is_lost(job);
}

TEST_CASE("a broken connection is made anew when there is memory again, and nothing is lost meanwhile")
{
	const char *transport = GENERATE("rc", "dct");
	Job job(transport);
	job.warm_up();
	{
		Lacking lacking(0, 7);
		Faults faults("break count=1");
		job.exchange(0, 1);
		job.exchange(1, 0);
		CHECK(modify_failures == 0);
	}
	job.warm_up();
	CHECK(job.counter(0, "reconnects") >= 1);
	nobody_is_lost(job);
}

TEST_CASE("a broken connection that cannot be made anew is given up in the end, with the reason")
{
	const char *transport = GENERATE("rc", "dct");
	Job job(transport, 2, {"PT2P_NET_RECONNECT_TIME=1s"});
	job.warm_up();
	Lacking lacking(0, 1 << 30);
	Faults faults("break count=1");
	uint64_t word = 5;
	pt2p_request_t *send;
	pt2p_status_t status = pt2p_issend(job.ctx[0], &word, sizeof word, 1, 2, &send);
	if (status == PT2P_OK)
		status = pt2p_wait(job.ctx[0], send, nullptr);
	std::string why = pt2p_last_error(job.ctx[0]);
	CHECK(status != PT2P_OK);
	if (why.find("counts this rank as lost") != why.npos) { // the other one gave up first
		CHECK(pt2p_send(job.ctx[1], &word, sizeof word, 0, 2) != PT2P_OK);
		why = pt2p_last_error(job.ctx[1]);
	}
	CAPTURE(why);
	CHECK(why.find("ibv_modify_qp") != why.npos);
	CHECK(why.find("ENOMEM") != why.npos);
}

TEST_CASE("a barrier for which ranks can create no queue pairs ends on all of them, and the next ones work")
{
	const int enough = GENERATE(0, 1, 2, 3, 5, 8, 11);
	const int n = GENERATE(2, 4, 5);
	Job job("rc", n, {}, PT2P_INPROCESS_THREADS);
	auto faults = std::make_unique<Faults>("refuse qp after=" + std::to_string(enough));
	constexpr uint64_t last = 4;
	std::atomic<int> ended{0}, strange{0}, failed_at_last{0};
	std::atomic<bool> free{false};
	std::vector<std::thread> threads;
	for (pt2p_context_t *ctx : job.ctx)
		threads.emplace_back([&, ctx] {
			// Some ranks may pass a barrier that fails for others, so the number of a rank's barrier counts.
			for (;;) {
				const pt2p_status_t status = pt2p_barrier(ctx);
				strange += status != PT2P_OK && status != PT2P_ERR_NO_MEMORY;
				ended += !free;
				while (!free)
					pt2p_progress(ctx);
				if (ctx->engine->barrier().entered() == last) {
					failed_at_last += status != PT2P_OK;
					return;
				}
			}
		});
	const auto end = std::chrono::steady_clock::now() + 200ms;
	// A rank that reaches nobody enters no barrier, and the others wait for it.
	while (ended < n && std::chrono::steady_clock::now() < end)
		std::this_thread::sleep_for(1ms);
	faults.reset();
	free = true;
	for (std::thread &t : threads)
		t.join();
	CHECK(strange == 0);
	CHECK(failed_at_last == 0);
	for (int rank = 0; rank < n; ++rank)
		CHECK(job.counter(rank, "peers_lost") == 0);
}

TEST_CASE("a barrier ends on all ranks when one cannot reach another and can tell only a third one")
{
	const bool refused = GENERATE(false, true); // by the other rank; else this rank can create no queue pair
	constexpr int n = 5;
	Job job("rc", n, {}, PT2P_INPROCESS_THREADS);
	// All pairs of ranks that send to each other in a barrier are connected, except for ranks 0 and 2.
	const auto exchange = [&](int from, int to) {
		uint64_t word = 1;
		pt2p_request_t *send, *receive;
		REQUIRE(pt2p_irecv(job.ctx[Job::index(to)], &word, 8, from, 1, PT2P_TAG_EXACT, &receive) == PT2P_OK);
		REQUIRE(pt2p_isend(job.ctx[Job::index(from)], &word, 8, to, 1, &send) == PT2P_OK);
		for (int done[2] = {}; !done[0] || !done[1];) {
			if (!done[0])
				REQUIRE(pt2p_test(job.ctx[Job::index(from)], send, &done[0], nullptr) == PT2P_OK);
			if (!done[1])
				REQUIRE(pt2p_test(job.ctx[Job::index(to)], receive, &done[1], nullptr) == PT2P_OK);
		}
	};
	for (int from = 0; from < n; ++from)
		for (const int distance : {1, 2, 4})
			if (from || distance != 2)
				exchange(from, (from + distance) % n);
	const auto all = [&](const auto &check) {
		std::vector<std::thread> threads;
		std::vector<pt2p_status_t> status(n);
		std::vector<std::string> why(n);
		for (int rank = 0; rank < n; ++rank)
			threads.emplace_back([&, rank] {
				const size_t i = Job::index(rank);
				status[i] = pt2p_barrier(job.ctx[i]);
				why[i] = pt2p_last_error(job.ctx[i]);
			});
		for (std::thread &t : threads)
			t.join();
		for (size_t i = 0; i < n; ++i) {
			CAPTURE(i, why[i]);
			check(status[i], why[i]);
		}
		CAPTURE(why[0]);
		return why[0];
	};
	for (int round = 0; round < 3; ++round) {
		Faults faults(refused ? "refuse qp after=1" : "refuse qp");
		if (refused && round)
			break;      // its queue pair is there now
		int passed = 0; // before rank 0 was refused
		const std::string why = all([&](pt2p_status_t status, const std::string &text) {
			if (status == PT2P_OK && refused && ++passed < n - 1)
				return;
			CHECK(status == PT2P_ERR_NO_MEMORY);
			CHECK(text.find("rank 0 cannot arrive") != text.npos);
		});
		CHECK(why.find("it cannot send to rank 2: ") != why.npos);
		CHECK(why.find("ibv_create_qp_ex") != why.npos);
	}
	for (int round = 0; round < 3; ++round)
		all([](pt2p_status_t status, const std::string &) { CHECK(status == PT2P_OK); });
}
