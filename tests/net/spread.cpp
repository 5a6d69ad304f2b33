// Striping: large data over several queue pairs. How it is divided, and that only its time depends on it.
#include "tests/net/window.hpp"

#include <algorithm>
#include <optional>

#include "route/route.hpp"
#include "tests/net/peer.hpp"
#include "transports/dct/dct.hpp"
#include "transports/rc/rc.hpp"

using namespace net;
using Catch::Matchers::Contains;

namespace {

pt2p::Transport &transport_of(Job &job, int rank = 1)
{
	return *job.ctx[0]->router->transport_of(peer_of(job, 0, rank));
}

std::vector<pt2p::verbs::SendQueue *> queues_of(Job &job, int rank = 1)
{
	pt2p::Transport &t = transport_of(job, rank);
	if (auto *rc = dynamic_cast<pt2p::rc::RcTransport *>(&t))
		return rc->queues_for(peer_of(job, 0, rank));
	return dynamic_cast<pt2p::dct::DctTransport &>(t).queues_for(peer_of(job, 0, rank));
}

// Puts all of `out` to the beginning of the window, by `count` operations together, and checks what has arrived.
void put(Window &w, const Bytes &out, size_t count)
{
	std::vector<pt2p_request_t *> requests(count);
	const size_t each = out.size() / count;
	for (size_t i = 0; i < count; ++i)
		REQUIRE(pt2p_put(w.job.ctx[0], out.data() + i * each, each, w.remote, i * each, &requests[i]) == PT2P_OK);
	REQUIRE(pt2p_waitall(w.job.ctx[0], count, requests.data(), nullptr) == PT2P_OK);
	REQUIRE(std::equal(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(count * each), w.bytes.begin()));
}

// Sends large data until all queue pairs that were asked for are connected.
void connect_all(Window &w, uint32_t n)
{
	const Bytes out = random_bytes(256 << 10, 1);
	put(w, out, 4);
	for (int i = 0; i < 10'000 && peer_of(w.job, 0, w.owner).striping->in_use() < n; ++i)
		put(w, out, 4);
	REQUIRE(peer_of(w.job, 0, w.owner).striping->in_use() == n);
}

std::vector<std::string> pinned(unsigned n, std::vector<std::string> more = {})
{
	more = apart(std::move(more));
	more.push_back("PT2P_NET_QUEUE_PAIRS=" + std::to_string(n));
	more.push_back("PT2P_NET_TIMEOUT=8");
	return more;
}

uint64_t wqes_of(const pt2p::verbs::SendQueue &queue)
{
	uint64_t n = 0;
	REQUIRE(softhca_counter("wqes", -1, queue.number(), &n) == 0);
	return n;
}

std::string report(Job &job)
{
	std::string text(20'000, 0);
	REQUIRE(pt2p_report(job.ctx[0], text.data(), text.size(), nullptr) == PT2P_OK);
	return text.substr(0, text.find('\0'));
}

} // namespace

TEST_CASE("parts of large data go over as many queue pairs as are asked for, about the same number over each")
{
	const char *transport = GENERATE("rc", "dct"), *direct = GENERATE("1", "0");
	const unsigned n = GENERATE(2u, 4u);
	Job job(transport, 2, pinned(n, {std::string("PT2P_NET_DIRECT=") + direct}));
	Window w(job, 1, 4 << 20);
	connect_all(w, n);
	const auto queues = queues_of(job);
	REQUIRE(queues.size() >= n);
	std::vector<uint64_t> before;
	for (auto *queue : queues)
		before.push_back(wqes_of(*queue));
	// 16 operations of 256 KiB in 1/n of that.
	for (unsigned round = 0; round < 5; ++round)
		put(w, random_bytes(4 << 20, round), 16);
	uint64_t parts = 0, used = 0;
	for (size_t i = 0; i < queues.size(); ++i) {
		const uint64_t here = wqes_of(*queues[i]) - before[i];
		CAPTURE(i, here);
		CHECK((here == 0 || here >= 5 * 16 / 2));
		used += here != 0;
		parts += here;
	}
	CHECK(used == n);
	CHECK(parts == 5 * 16 * n);
	CHECK_THAT(report(job), Contains("     large data over " + std::to_string(n) +
	                                 " queue pairs, PT2P_NET_QUEUE_PAIRS is " + std::to_string(n) + "\n"));
}

TEST_CASE("pinned to one, or neither pinned nor tuned, all parts go over one queue pair")
{
	const char *transport = GENERATE("rc", "dct");
	const bool pin = GENERATE(true, false);
	Job job(transport, 2, pin ? pinned(1, {"PT2P_TUNE=on"}) : apart({"PT2P_TUNE=off"}));
	Window w(job, 1, 4 << 20);
	for (unsigned round = 0; round < 5; ++round)
		put(w, random_bytes(4 << 20, round), 16);
	CHECK(job.counter(0, "net_parts_beside") == 0);
	CHECK(!peer_of(job).striping);
	CHECK_THAT(report(job), !Contains("large data"));
}

TEST_CASE("short operations and messages stay on one queue pair")
{
	const char *transport = GENERATE("rc", "dct");
	Job job(transport, 2, pinned(4));
	Window w(job, 1, 4 << 20);
	put(w, random_bytes(400'000, 1), 100);
	send_many(job, 1000, 3000);
	CHECK(job.counter(0, "net_parts_beside") == 0);
}

TEST_CASE("gets and large messages over several queue pairs bring the right bytes")
{
	const char *transport = GENERATE("rc", "dct"), *rendezvous = GENERATE("read", "write");
	Job job(transport, 2, pinned(3, {std::string("PT2P_RENDEZVOUS=") + rendezvous}));
	Window w(job, 1, 3'000'001);
	connect_all(w, 3);
	const Bytes there = random_bytes(w.bytes.size(), 2);
	std::copy(there.begin(), there.end(), w.bytes.begin());
	Bytes in(there.size());
	pt2p_request_t *request;
	REQUIRE(pt2p_get(job.ctx[0], in.data(), in.size(), w.remote, 0, &request) == PT2P_OK);
	REQUIRE(pt2p_wait(job.ctx[0], request, nullptr) == PT2P_OK);
	CHECK((in == there)); // without printing all of it
	// Large messages, both ways, and short ones between them arrive in order.
	for (int round = 0; round < 4; ++round) {
		const int from = round % 2, to = 1 - from;
		std::vector<Bytes> out, got(8);
		std::vector<pt2p_request_t *> sends(8), receives(8);
		for (unsigned i = 0; i < 8; ++i) {
			out.push_back(random_bytes(i % 2 ? 100 : 700'000, i));
			got[i].resize(out[i].size());
			REQUIRE(pt2p_isend(job.ctx[Job::index(from)], out[i].data(), out[i].size(), to, 5, &sends[i]) == PT2P_OK);
		}
		for (unsigned i = 0; i < 8; ++i)
			REQUIRE(pt2p_irecv(job.ctx[Job::index(to)], got[i].data(), got[i].size(), from, 5, PT2P_TAG_EXACT,
			                   &receives[i]) == PT2P_OK);
		REQUIRE(pt2p_waitall(job.ctx[Job::index(to)], 8, receives.data(), nullptr) == PT2P_OK);
		REQUIRE(pt2p_waitall(job.ctx[Job::index(from)], 8, sends.data(), nullptr) == PT2P_OK);
		CHECK((out == got));
	}
	CHECK(job.counter(0, "net_parts_beside") > 0);
	CHECK(job.counter(1, "net_parts_beside") > 0);
}

TEST_CASE("over several queue pairs, a signal comes after its data and a fence holds, on any wire")
{
	const char *transport = GENERATE("rc", "dct");
	const char *wire = GENERATE("", "drop rate=0.01; duplicate rate=0.02; reorder rate=0.05");
	Job job(transport, 2, pinned(4));
	constexpr size_t length = 600'000;
	Window w(job, 1, 8 + length);
	{
		Window big(job, 1, 256 << 10);
		connect_all(big, 4);
	}
	// One of the queue pairs is behind the others.
	Faults faults(*wire ? wire + ("; drop rate=0.3 qp=" + std::to_string(queues_of(job)[1]->number())) : "clear");
	const uint64_t before = job.counter(0, "net_parts_beside");
	const auto *word = reinterpret_cast<const uint64_t *>(w.bytes.data());
	for (unsigned i = 1; i <= 20; ++i) {
		const Bytes overwritten = random_bytes(length, 1000 + i), out = random_bytes(length, i);
		constexpr size_t first = 130'000; // divided at another place than what follows
		REQUIRE(pt2p_put(job.ctx[0], overwritten.data(), first, w.remote, 8, nullptr) == PT2P_OK);
		REQUIRE(pt2p_put(job.ctx[0], overwritten.data() + first, length - first, w.remote, 8 + first, nullptr) ==
		        PT2P_OK);
		REQUIRE(pt2p_fence(job.ctx[0], 1) == PT2P_OK);
		REQUIRE(pt2p_put_signal(job.ctx[0], out.data(), length, w.remote, 8, w.remote, 0, PT2P_SIGNAL_SET, i,
		                        nullptr) == PT2P_OK);
		while (__atomic_load_n(word, __ATOMIC_ACQUIRE) != i)
			job.progress();
		REQUIRE(std::equal(out.begin(), out.end(), w.bytes.begin() + 8));
		REQUIRE(pt2p_flush(job.ctx[0], 1) == PT2P_OK);
	}
	CHECK(job.counter(0, "net_parts_beside") - before > 40);
}

TEST_CASE("when one of several queue pairs breaks it is made anew, and nothing is lost")
{
	const char *transport = GENERATE("rc", "dct");
	const size_t which = GENERATE(0u, 1u, 3u);
	Job job(transport, 2, pinned(4));
	Window w(job, 1, 4 << 20);
	connect_all(w, 4);
	const auto *queue = queues_of(job)[which];
	{
		Faults faults("break count=1 qp=" + std::to_string(queue->number()));
		for (unsigned round = 0; round < 1000 && job.counter(0, "reconnects") == 0; ++round)
			put(w, random_bytes(4 << 20, round), 8);
	}
	CHECK(job.counter(0, "reconnects") >= 1);
	// It takes its share again.
	connect_all(w, 4);
	const uint64_t before = wqes_of(*queue);
	for (unsigned round = 0; round < 1000 && wqes_of(*queue) == before; ++round)
		put(w, random_bytes(4 << 20, round), 8);
	CHECK(wqes_of(*queue) > before);
	CHECK(job.counter(0, "peers_lost") == 0);
	job.warm_up();
}

TEST_CASE("nothing is lost when queue pairs break all the time")
{
	const char *transport = GENERATE("rc", "dct");
	Job job(transport, 2, pinned(4));
	Window w(job, 1, 4 << 20);
	connect_all(w, 4);
	Faults faults("break rate=0.01 count=10");
	INFO(transport);
	for (unsigned round = 0; round < 1000 && job.counter(0, "reconnects") < 6; ++round) {
		put(w, random_bytes(4 << 20, round), 16);
		job.exchange(0, 1, 100 + round);
		job.exchange(1, 0, 100'000);
	}
	CHECK(job.counter(0, "reconnects") >= 6);
	CHECK(job.counter(0, "peers_lost") == 0);
}

TEST_CASE("a rank that is given up is given up on all queue pairs, and others are not affected")
{
	const char *transport = GENERATE("rc", "dct");
	Job job(transport, 3, pinned(3));
	Window lost(job, 1, 4 << 20), other(job, 2, 4 << 20);
	connect_all(lost, 3);
	connect_all(other, 3);
	const Bytes out = random_bytes(4 << 20, 7);
	std::vector<pt2p_request_t *> requests(16), others(16);
	std::optional<Faults> nothing_arrives("drop kind=write");
	for (size_t i = 0; i < 16; ++i) {
		const size_t at = i * (256 << 10);
		REQUIRE(pt2p_put(job.ctx[0], out.data() + at, 256 << 10, lost.remote, at, &requests[i]) == PT2P_OK);
		REQUIRE(pt2p_put(job.ctx[0], out.data() + at, 256 << 10, other.remote, at, &others[i]) == PT2P_OK);
	}
	REQUIRE(peer_of(job).striping->under_way() > 3);
	transport_of(job).abandon(1, PT2P_ERR_PEER_LOST, "for a test");
	nothing_arrives.reset();
	for (pt2p_request_t *r : requests)
		CHECK(pt2p_wait(job.ctx[0], r, nullptr) == PT2P_ERR_PEER_LOST);
	CHECK(peer_of(job).striping->under_way() == 0);
	REQUIRE(pt2p_waitall(job.ctx[0], 16, others.data(), nullptr) == PT2P_OK);
	CHECK((other.bytes == out));
	put(other, random_bytes(4 << 20, 8), 16);
	CHECK(peer_of(job, 0, 2).striping->under_way() == 0);
}

TEST_CASE("a remote access error fails the operation once, whichever queue pairs its parts are on")
{
	const char *transport = GENERATE("rc", "dct");
	Job job(transport, 2, pinned(4));
	Window w(job, 1, 4 << 20);
	connect_all(w, 4);
	Bytes in(1 << 20);
	auto &peer = peer_of(job);
	REQUIRE(peer.table->get(peer, in.data(), {0x10000, 0xdead}, in.size(), nullptr) == pt2p::Outcome::in_progress);
	CHECK(peer.striping->under_way() == 4);
	for (unsigned round = 0; peer.striping->under_way() || round < 5; ++round)
		put(w, random_bytes(1 << 20, round), 4);
	CHECK(job.counter(0, "reconnects") >= 4);
	CHECK(job.counter(0, "peers_lost") == 0);
	put(w, random_bytes(4 << 20, 9), 8);
}

TEST_CASE("when queue pairs are refused, on either side, fewer are used")
{
	const char *rule = GENERATE("refuse qp", "refuse qp after=1 count=1");
	Job job("rc", 2, pinned(4));
	job.warm_up();
	Window w(job, 1, 4 << 20);
	Faults faults(rule);
	for (unsigned round = 0; round < 50; ++round)
		put(w, random_bytes(1 << 20, round), 8);
	CHECK(peer_of(job).striping->in_use() == 1);
	CHECK(job.counter(0, "net_parts_beside") == 0);
	CHECK(job.counter(0, "peers_lost") == 0);
}

TEST_CASE("with a single DC initiator there is no striping")
{
	Job job("dct", 2, pinned(4, {"PT2P_DCT_INITIATORS=1"}));
	Window w(job, 1, 4 << 20);
	put(w, random_bytes(4 << 20, 1), 16);
	CHECK(job.counter(0, "net_parts_beside") == 0);
}

TEST_CASE("the tuner tries numbers of queue pairs within its bounds, and loses nothing in between")
{
	const char *transport = GENERATE("rc", "dct");
	const std::string mode = GENERATE("on", "paper");
	Job job(transport, 2, apart({"PT2P_TUNE=" + mode}));
	Window w(job, 1, 4 << 20);
	put(w, random_bytes(4 << 20, 0), 16);
	const auto &spread = *peer_of(job).striping;
	constexpr uint32_t most = 4;
	for (unsigned round = 1; round < 3000 && spread.climber().trials() < 3; ++round) {
		put(w, random_bytes(4 << 20, round % 16), 32);
		REQUIRE(spread.queue_pairs() >= 1);
		REQUIRE(spread.queue_pairs() <= most);
		REQUIRE(spread.in_use() <= most);
	}
	CHECK(spread.climber().trials() >= 3);
	CHECK(spread.under_way() == 0);
	CHECK(job.counter(0, "net_parts_beside") > 0);
	const std::string text = report(job);
	CAPTURE(text);
	CHECK_THAT(text, Contains("     large data over ") && Contains(" trials of other numbers, of which "));
}

TEST_CASE("a rank that ends with large data in flight over several queue pairs lets it arrive")
{
	const char *transport = GENERATE("rc", "dct");
	Job job(transport, 2, pinned(4));
	Window w(job, 1, 4 << 20);
	connect_all(w, 4);
	const Bytes out = random_bytes(4 << 20, 3);
	for (size_t i = 0; i < 16; ++i)
		REQUIRE(pt2p_put(job.ctx[0], out.data() + i * (256 << 10), 256 << 10, w.remote, i * (256 << 10), nullptr) ==
		        PT2P_OK);
	CHECK(pt2p_finalize(job.ctx[0]) == PT2P_OK);
	job.ctx[0] = nullptr;
	CHECK((w.bytes == out));
}
