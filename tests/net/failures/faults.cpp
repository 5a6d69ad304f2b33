// What happens when things go wrong: nothing is lost, duplicated or reordered, or the failure is reported.
#include "tests/net/peer.hpp"

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "base/job/job.hpp"
#include "route/route.hpp"

using namespace net;
using namespace std::chrono_literals;

namespace {

using Clock = std::chrono::steady_clock;

// Streams of numbered messages of several sizes in both directions between two ranks.
struct Traffic {
	Traffic(Job &j, int first, int second) : job(j), a(first), b(second) {}

	Job &job;
	const int a, b;
	unsigned sent[2] = {}, received[2] = {};

	static size_t length_of(unsigned n)
	{
		constexpr size_t lengths[] = {8, 40, 100, 700, 5000, 40000};
		return lengths[n % 6];
	}
	static void fill(std::vector<unsigned char> &message, unsigned n)
	{
		message.assign(length_of(n), static_cast<unsigned char>(n));
		std::memcpy(message.data(), &n, sizeof n);
	}
	struct Pending {
		pt2p_request_t *request;
		std::vector<unsigned char> data;
	};
	std::vector<Pending> sends[2];
	std::vector<Pending> receives[2];

	// Keeps `window` messages in flight in each direction until `done()`, and checks each. Then waits for those in
	// flight.
	template <class Done>
	void run(unsigned window, const Done &done)
	{
		bool stopping = false;
		const auto limit = Clock::now() + 40s;
		for (;;) {
			REQUIRE(Clock::now() < limit);
			stopping |= done();
			bool busy = false;
			for (int side = 0; side < 2; ++side) {
				pt2p_context_t *from = job.ctx[Job::index(side ? b : a)], *to = job.ctx[Job::index(side ? a : b)];
				while (!stopping && sends[side].size() < window) {
					receives[side].push_back({nullptr, std::vector<unsigned char>(length_of(sent[side]))});
					Pending &in = receives[side].back();
					REQUIRE(pt2p_irecv(to, in.data.data(), in.data.size(), side ? b : a, 9, PT2P_TAG_EXACT,
					                   &in.request) == PT2P_OK);
					sends[side].emplace_back();
					Pending &out = sends[side].back();
					fill(out.data, sent[side]++);
					REQUIRE(pt2p_isend(from, out.data.data(), out.data.size(), side ? a : b, 9, &out.request) ==
					        PT2P_OK);
				}
				collect(from, sends[side], nullptr);
				collect(to, receives[side], &received[side]);
				busy |= !sends[side].empty() || !receives[side].empty();
			}
			job.progress();
			if (stopping && !busy)
				break;
		}
		CHECK(received[0] == sent[0]);
		CHECK(received[1] == sent[1]);
	}

private:
	void collect(pt2p_context_t *ctx, std::vector<Pending> &list, unsigned *expected)
	{
		while (!list.empty()) {
			int finished = 0;
			pt2p_result_t result;
			const pt2p_status_t status = pt2p_test(ctx, list.front().request, &finished, &result);
			if (!finished)
				return;
			INFO(pt2p_last_error(ctx));
			REQUIRE(status == PT2P_OK);
			if (expected) {
				std::vector<unsigned char> wanted;
				fill(wanted, (*expected)++);
				REQUIRE(list.front().data == wanted);
			}
			list.erase(list.begin());
		}
	}
};

auto for_time(std::chrono::milliseconds time)
{
	return [end = Clock::now() + time] { return Clock::now() >= end; };
}

const std::vector<std::string> impatient = {"PT2P_NET_TIMEOUT=8", "PT2P_NET_RETRIES=2"};

} // namespace

TEST_CASE("the queue pair of the wire-up breaks, and works again")
{
	Job job("rc", 3, {"PT2P_NET_RECONNECT_TIME=20s"});
	job.warm_up(0, 1);
	Faults faults("break count=1"); // the first work request: the connection request
	job.exchange(0, 2);
	job.exchange(2, 1);
}

TEST_CASE("a queue pair that breaks under traffic is reconnected, and each message arrives once")
{
	const char *transport = GENERATE("rc", "dct"), *delivery = GENERATE("send", "write");
	Job job(transport, 2, {std::string("PT2P_NET_DELIVERY=") + delivery});
	job.warm_up();
	Traffic traffic(job, 0, 1);
	{
		Faults faults("break rate=0.002 count=12");
		traffic.run(16, [&] {
			return traffic.sent[0] > 4000 && job.counter(0, "reconnects") + job.counter(1, "reconnects") >= 4;
		});
	}
	traffic.run(16, for_time(50ms));
	CHECK(traffic.sent[0] > 4000);
	CHECK(job.counter(0, "peers_lost") == 0);
}

TEST_CASE("when packets are lost for longer than the device retries, messages are sent over a new connection")
{
	const char *transport = GENERATE("rc", "dct");
	Job job(transport, 2, impatient);
	job.warm_up();
	Traffic traffic(job, 0, 1);
	traffic.run(16, for_time(20ms));
	for (int i = 0; i < 3; ++i) {
		{
			Faults faults("drop");
			traffic.run(16, [&, end = Clock::now() + 150ms] {
				// In flight when the wire comes back.
				return Clock::now() >= end && softhca_fault("clear", nullptr, 0) == 0;
			});
		}
		traffic.run(16, for_time(30ms));
	}
	CHECK(job.counter(0, "reconnects") + job.counter(1, "reconnects") >= 1);
	CHECK(job.counter(0, "peers_lost") == 0);
}

TEST_CASE("a link that is down for two seconds delays everything, and nothing is lost")
{
	const char *transport = GENERATE("rc", "dct");
	Job job(transport);
	job.warm_up();
	Traffic traffic(job, 0, 1);
	traffic.run(16, for_time(20ms));
	const auto start = Clock::now();
	{
		Faults faults("link_down ms=2000 count=1");
		const unsigned before = traffic.sent[0];
		traffic.run(16, [&] { return traffic.sent[0] > before + 200; });
		CHECK(Clock::now() - start >= 2s);
		CHECK(Clock::now() - start < 20s);
	}
	CHECK(job.counter(0, "peers_lost") == 0);
}

TEST_CASE("a receiver that is not ready for a long time loses nothing")
{
	const char *transport = GENERATE("rc", "dct");
	Job job(transport, 2, {"PT2P_NET_RECEIVES=16", "PT2P_NET_SEND_DEPTH=256"});
	job.warm_up();
	constexpr unsigned n = 150;
	std::vector<unsigned> out(n), in(n);
	std::vector<pt2p_request_t *> sends(n), receives(n);
	for (unsigned i = 0; i < n; ++i) {
		out[i] = i;
		REQUIRE(pt2p_isend(job.ctx[0], &out[i], sizeof out[i], 1, 5, &sends[i]) == PT2P_OK);
	}
	for (const auto end = Clock::now() + 1s; Clock::now() < end;)
		pt2p_progress(job.ctx[0]);
	for (unsigned i = 0; i < n; ++i)
		REQUIRE(pt2p_irecv(job.ctx[1], &in[i], sizeof in[i], 0, 5, PT2P_TAG_EXACT, &receives[i]) == PT2P_OK);
	REQUIRE(pt2p_waitall(job.ctx[1], n, receives.data(), nullptr) == PT2P_OK);
	REQUIRE(pt2p_waitall(job.ctx[0], n, sends.data(), nullptr) == PT2P_OK);
	CHECK(in == out);
}

TEST_CASE("a rank that has fallen behind frees at least half of its receives in a turn")
{
	const char *transport = GENERATE("rc", "dct"), *direct = GENERATE("0", "1");
	Job job(transport, 2,
	        {"PT2P_NET_RECEIVES=160", "PT2P_NET_SEND_DEPTH=256", "PT2P_NET_SIGNAL_PERIOD=1", "PT2P_NET_DELIVERY=send",
	         "PT2P_TUNE=off", std::string("PT2P_NET_DIRECT=") + direct});
	job.warm_up();
	const auto &peer = peer_of(job);
	constexpr unsigned n = 140;
	pt2p_request_t *sends[n];
	for (pt2p_request_t *&s : sends)
		REQUIRE(pt2p_isend(job.ctx[0], &n, sizeof n, 1, 5, &s) == PT2P_OK);
	REQUIRE(pt2p_waitall(job.ctx[0], n, sends, nullptr) == PT2P_OK);
	while (peer.in_flight)
		pt2p_progress(job.ctx[0]);
	const uint64_t before = job.counter(1, "unexpected");
	pt2p_progress(job.ctx[1]);
	CHECK(job.counter(1, "unexpected") - before >= n - 160 / 2);
	for (unsigned i = 0, in; i < n; ++i)
		REQUIRE(pt2p_recv(job.ctx[1], &in, sizeof in, 0, 5, PT2P_TAG_EXACT, nullptr) == PT2P_OK);
}

TEST_CASE("a remote access error fails its operation, and nothing else")
{
	const char *transport = GENERATE("rc", "dct");
	Job job(transport, 2, impatient);
	job.warm_up();
	pt2p::Channel *channel = job.ctx[0]->router->find(1);
	REQUIRE(channel);
	static unsigned char memory[4096];
	const uint64_t before = job.counter(0, "reconnects");
	REQUIRE(channel->endpoint.table->get(channel->endpoint, memory, {0x10000, 0xdead}, sizeof memory, nullptr) ==
	        pt2p::Outcome::in_progress);
	Traffic traffic(job, 0, 1);
	traffic.run(8, [&] { return job.counter(0, "reconnects") > before; });
	traffic.run(8, for_time(50ms));
	CHECK(job.counter(0, "peers_lost") == 0);
}

TEST_CASE("a message that overtakes another waits for it, and a duplicate is dropped")
{
	const char *transport = GENERATE("rc", "dct");
	Job job(transport);
	job.warm_up();
	auto &peer = peer_of(job);
	const uint32_t first = peer.next_sequence;
	// As if they had been sent on several queue pairs.
	for (const uint32_t place : {2u, 1u, 0u, 1u, 3u}) {
		peer.next_sequence = first + place;
		REQUIRE(pt2p_send(job.ctx[0], &place, sizeof place, 1, 4) == PT2P_OK);
	}
	receive_numbers(job, 4, 4);
	CHECK(job.counter(1, "net_duplicates") == 1);
	job.exchange(0, 1);
}

TEST_CASE("a message from memory that the device refuses to register goes in pieces")
{
	const char *transport = GENERATE("rc", "dct");
	Job job(transport);
	job.warm_up();
	{
		Faults faults("refuse mr");
		job.exchange(0, 1, 100000);
	}
	CHECK(job.counter(0, "not_exposed") == 1);
	CHECK(job.counter(1, "net_read_bytes") == 0);
	job.exchange(0, 1, 100000);
	CHECK(job.counter(1, "net_read_bytes") == 100000);
}

TEST_CASE("a message wakes a rank that sleeps")
{
	const char *transport = GENERATE("rc", "dct"), *delivery = GENERATE("send", "write");
	// Each context is driven by its own thread.
	Job job(transport, 2, {"PT2P_SPIN_TIME=0", "PT2P_YIELD_TIME=0", std::string("PT2P_NET_DELIVERY=") + delivery},
	        PT2P_INPROCESS_THREADS);
	// A nap that no message ends takes 20 ms. Where others need the processors, many other naps take as long, so more
	// of them are needed.
	constexpr unsigned n = 60, most = 20 * n, enough = n / 4;
	struct Message {
		unsigned number;
		bool last;
	};
	std::atomic<unsigned> failed = 0;
	std::thread echo([&] {
		Message m{};
		for (unsigned i = 0; !m.last; ++i) {
			m = {most, true};
			failed += pt2p_recv(job.ctx[1], &m, sizeof m, 0, 1, PT2P_TAG_EXACT, nullptr) != PT2P_OK || m.number != i;
			failed += pt2p_send(job.ctx[1], &m, sizeof m, 0, 2) != PT2P_OK;
		}
	});
	unsigned asleep = 0, quick = 0, naps = 0;
	for (bool last = false; !last; ++naps) {
		last = naps + 1 == most || (naps + 1 >= n && quick > enough);
		// The other rank goes to sleep, or has just begun another nap.
		const uint64_t before = job.counter(1, "sleeps");
		for (int k = 0; k < 20'000 && job.counter(1, "sleeps") == before; ++k)
			std::this_thread::sleep_for(100us);
		asleep += job.counter(1, "sleeps") != before;
		const auto start = Clock::now();
		const Message out = {naps, last};
		Message in = {most, true};
		failed += pt2p_send(job.ctx[0], &out, sizeof out, 1, 1) != PT2P_OK;
		failed += pt2p_recv(job.ctx[0], &in, sizeof in, 1, 2, PT2P_TAG_EXACT, nullptr) != PT2P_OK || in.number != naps;
		quick += Clock::now() - start < 15ms;
	}
	echo.join();
	CHECK(failed == 0);
	CHECK(asleep == naps);
	CHECK(quick > enough);
}

TEST_CASE("a context can be finalized whatever its threads are doing", "[.often]")
{
	for (int i = 0; i < 150; ++i) {
		Job job("rc", 2,
		        {"PT2P_SPIN_TIME=0", "PT2P_YIELD_TIME=0", "PT2P_PROGRESS_THREAD=1", "PT2P_NET_RECEIVES=16",
		         "PT2P_NET_SEND_DEPTH=4"},
		        PT2P_INPROCESS_THREADS);
		job.exchange(0, 1);
	}
}

TEST_CASE("a rank that has only received says goodbye, too")
{
	Job job("dct", 2, {"PT2P_NET_TIMEOUT=18"}); // one second
	job.exchange(0, 1);
	const Change timeouts("timeouts");
	CHECK(pt2p_finalize(job.ctx[1]) == PT2P_OK);
	job.ctx[1] = nullptr;
	char byte;
	CHECK(pt2p_recv(job.ctx[0], &byte, 1, 1, 1, PT2P_TAG_EXACT, nullptr) == PT2P_ERR_PEER_FINALIZED);
	CHECK(pt2p_finalize(job.ctx[0]) == PT2P_OK);
	job.ctx[0] = nullptr;
	CHECK(timeouts() == 0);
}

TEST_CASE("a rank that others count as lost learns of it, receives what they had sent, and waits for none of them")
{
	const bool told = GENERATE(true, false);
	const std::string timeout = told ? "20" : "8"; // four seconds, or one millisecond
	Job job("rc", 3, {"PT2P_NET_RECONNECT_TIME=60s", "PT2P_NET_TIMEOUT=" + timeout});
	for (const int other : {0, 2})
		job.warm_up(other, 1);
	int value = 5;
	REQUIRE(pt2p_send(job.ctx[0], &value, sizeof value, 1, 3) == PT2P_OK);
	for (const auto end = Clock::now() + 20ms; Clock::now() < end;)
		pt2p_progress(job.ctx[0]); // rank 1 does nothing meanwhile
	{
		// The message that says so gets lost, and rank 1 has to ask.
		const std::unique_ptr<Faults> faults(told ? nullptr : new Faults("break count=2"));
		pt2p::declare_lost(*job.ctx[1]->job, 1, "by this test");
		for (const int other : {0, 2})
			while (!job.counter(other, "peers_lost"))
				pt2p_progress(job.ctx[Job::index(other)]);
	}
	const Change timeouts("timeouts");
	std::vector<unsigned char> large(1 << 20);
	pt2p_request_t *to_0, *to_2;
	REQUIRE(pt2p_isend(job.ctx[1], large.data(), large.size(), 0, 4, &to_0) == PT2P_OK);
	REQUIRE(pt2p_isend(job.ctx[1], large.data(), large.size(), 2, 4, &to_2) == PT2P_OK);
	value = 0;
	CHECK(pt2p_recv(job.ctx[1], &value, sizeof value, 0, 3, PT2P_TAG_EXACT, nullptr) == PT2P_OK);
	CHECK(value == 5);
	CHECK(pt2p_wait(job.ctx[1], to_0, nullptr) == PT2P_ERR_PEER_LOST);
	CHECK(pt2p_wait(job.ctx[1], to_2, nullptr) == PT2P_ERR_PEER_LOST);
	CHECK(std::string(pt2p_last_error(job.ctx[1])).find("counts this rank as lost") != std::string::npos);
	CHECK(job.counter(1, "peers_lost") == 2);
	CHECK(pt2p_finalize(std::exchange(job.ctx[1], nullptr)) == PT2P_OK);
	CHECK((timeouts() == 0) == told);
	job.warm_up(0, 2);
}

TEST_CASE("a connection that is refused is an error that says why")
{
	Job job("rc");
	Faults faults("refuse qp");
	uint64_t word = 1;
	CHECK(pt2p_send(job.ctx[0], &word, sizeof word, 1, 1) != PT2P_OK);
	const std::string why = pt2p_last_error(job.ctx[0]);
	CAPTURE(why);
	CHECK(why.find("ibv_create_qp_ex (RC)") != why.npos);
	CHECK(why.find("rank 1") != why.npos);
}

TEST_CASE("near ranks use rc, far ranks dct, and ranks that disagree on that report it")
{
	{
		Job job("rc,dct", 6, {"PT2P_RANKS_PER_NODE=1", "PT2P_ROUTE=direct", "PT2P_RC_CONNECTIONS=2"});
		for (int rank = 1; rank < 6; ++rank) {
			job.warm_up(0, rank);
			pt2p_peer_info_t info{};
			REQUIRE(pt2p_peer_query(job.ctx[0], rank, &info) == PT2P_OK);
			CHECK(std::string(info.transport) == (rank == 1 || rank == 5 ? "rc" : "dct"));
			CHECK(std::string(info.large) == "zero-copy");
		}
		std::vector<char> text(20000);
		REQUIRE(pt2p_summary(job.ctx[0], text.data(), text.size(), nullptr) == PT2P_OK);
		const std::string summary = text.data();
		CAPTURE(summary);
		CHECK(summary.find("because: self: another rank; rc: not among the 2 nearest ranks (PT2P_RC_CONNECTIONS)") !=
		      summary.npos);
	}
	Job job("rc,dct", 4, {"PT2P_RC_CONNECTIONS=20"});
	job.ctx[0]->config.rc_connections = 4; // as if it had started with another setting
	uint64_t word = 1;
	CHECK(pt2p_send(job.ctx[0], &word, sizeof word, 2, 1) == PT2P_ERR_UNREACHABLE);
	const std::string why = pt2p_last_error(job.ctx[0]);
	CAPTURE(why);
	CHECK(why.find("rank 2 has PT2P_RC_CONNECTIONS=20 and this rank, 0, has PT2P_RC_CONNECTIONS=4") != why.npos);
}

// Afterwards the device has failed for the whole process.
void fail_device(const char *transport)
{
	Job job(transport);
	job.warm_up();
	Faults faults("fatal count=1");
	uint64_t word = 1, in = 0;
	pt2p_request_t *receive;
	REQUIRE(pt2p_irecv(job.ctx[1], &in, sizeof in, 0, 1, PT2P_TAG_EXACT, &receive) == PT2P_OK);
	pt2p_send(job.ctx[0], &word, sizeof word, 1, 1);
	const pt2p_status_t status = pt2p_wait(job.ctx[1], receive, nullptr);
	const std::string why = pt2p_last_error(job.ctx[1]);
	CAPTURE(why);
	CHECK(status == PT2P_ERR_SYSTEM);
	CHECK(why.find("has failed") != why.npos);
	CHECK(pt2p_send(job.ctx[0], &word, sizeof word, 1, 1) == PT2P_ERR_SYSTEM);
}

TEST_CASE("when a device fails for good, operations over it fail and say so: rc", "[.fatal_rc]") { fail_device("rc"); }
TEST_CASE("when a device fails for good, operations over it fail and say so: dct", "[.fatal_dct]")
{
	fail_device("dct");
}

TEST_CASE("what the device refuses at the start is not needed, or is an error that says why", "[.refused]")
{
	const char *transport = GENERATE("rc", "dct");
	pt2p_context_t *ctx[2] = {};
	const std::string list = std::string("PT2P_TRANSPORTS=self,") + transport;
	const char *tunables[] = {list.c_str(), nullptr};
	pt2p_options_t options = PT2P_OPTIONS_INIT;
	options.tunables = tunables;
	const pt2p_status_t status = pt2p_init_inprocess(2, PT2P_INPROCESS_COOPERATIVE, &options, ctx);
	if (status == PT2P_OK) {
		uint64_t word = 1, in = 0;
		pt2p_request_t *receive;
		REQUIRE(pt2p_irecv(ctx[1], &in, sizeof in, 0, 1, PT2P_TAG_EXACT, &receive) == PT2P_OK);
		const pt2p_status_t sent = pt2p_send(ctx[0], &word, sizeof word, 1, 1);
		if (sent == PT2P_OK) {
			CHECK(pt2p_wait(ctx[1], receive, nullptr) == PT2P_OK);
		} else {
			INFO(pt2p_last_error(ctx[0]));
			CHECK(std::string(pt2p_last_error(ctx[0])).find("create_qp") != std::string::npos);
			pt2p_cancel(ctx[1], receive);
			pt2p_wait(ctx[1], receive, nullptr);
		}
		for (pt2p_context_t *c : ctx)
			pt2p_finalize(c);
	} else {
		const std::string why = pt2p_last_error(nullptr);
		CAPTURE(why);
		CHECK((why.find("ibv_reg_mr failed") != why.npos || why.find("create_qp") != why.npos));
		CHECK(why.find("ENOMEM") != why.npos);
	}
}

TEST_CASE("when a queue is too long for the device, the error names the tunable and a value that would do")
{
	pt2p::verbs::Device device;
	device.name = "mlx5_9:1";
	const auto said = [&](int error, int64_t value, int limit) -> std::pair<pt2p_status_t, std::string> {
		try {
			pt2p::verbs::fail_queue(device, "ibv_create_srq", error, "PT2P_NET_RECEIVES", value, limit);
		} catch (const pt2p::Error &e) {
			return {e.status(), e.what()};
		}
	};
	auto [status, text] = said(EINVAL, 32767, 4095);
	CHECK(status == PT2P_ERR_TUNABLE);
	CHECK_THAT(text, Catch::Matchers::Contains("PT2P_NET_RECEIVES=32767") && Catch::Matchers::Contains("mlx5_9:1") &&
	                     Catch::Matchers::Contains("limit is 4095") &&
	                     Catch::Matchers::Contains("PT2P_NET_RECEIVES=2047"));
	CHECK(said(ENOMEM, 32767, 4095).first == PT2P_ERR_TUNABLE);
	CHECK(said(ENOMEM, 512, 4095).first == PT2P_ERR_NO_MEMORY); // not because of its length
	CHECK(said(EPERM, 32767, 4095).first == PT2P_ERR_SYSTEM);
}
