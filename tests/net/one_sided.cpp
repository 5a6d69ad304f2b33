// What short one-sided operations cost, and that they leave nothing behind.
#include "tests/net/window.hpp"

#include <algorithm>
#include <chrono>

using namespace net;
using namespace std::chrono_literals;

namespace {

void put(Window &w, const unsigned char *from, size_t length, size_t offset)
{
	pt2p_request_t *request;
	REQUIRE(pt2p_put(w.job.ctx[0], from, length, w.remote, offset, &request) == PT2P_OK);
	REQUIRE(pt2p_wait(w.job.ctx[0], request, nullptr) == PT2P_OK);
}

void get(Window &w, unsigned char *to, size_t length, size_t offset)
{
	pt2p_request_t *request;
	REQUIRE(pt2p_get(w.job.ctx[0], to, length, w.remote, offset, &request) == PT2P_OK);
	REQUIRE(pt2p_wait(w.job.ctx[0], request, nullptr) == PT2P_OK);
}

} // namespace

TEST_CASE("short puts and gets need no registered memory, long ones do")
{
	const char *transport = GENERATE("rc", "dct"), *direct = GENERATE("yes", "no");
	Job job(transport, 2, apart({std::string("PT2P_NET_DIRECT=") + direct}));
	job.warm_up();
	Window w(job, 1, 20000);
	const Bytes out = random_bytes(20000, 1);
	for (const size_t length : {1, 8, 63, 64, 65, 1000, 8192, 8193, 20000}) {
		INFO(length << " bytes");
		const uint64_t before = job.counter(0, "registrations");
		std::fill(w.bytes.begin(), w.bytes.end(), 0);
		put(w, out.data(), length, 0);
		CHECK(std::equal(w.bytes.begin(), w.bytes.begin() + static_cast<std::ptrdiff_t>(length), out.begin()));
		CHECK(std::all_of(w.bytes.begin() + static_cast<std::ptrdiff_t>(length), w.bytes.end(),
		                  [](auto b) { return b == 0; }));
		Bytes in(length + 1);
		get(w, in.data(), length, 0);
		CHECK(std::equal(in.begin(), in.end() - 1, out.begin()));
		CHECK(in.back() == 0);
		CHECK(job.counter(0, "registrations") - before == (length <= 8192 ? 0 : 2));
	}
}

TEST_CASE("short operations that do not find a buffer wait for one")
{
	const char *transport = GENERATE("rc", "dct");
	// 16 buffers of 256 bytes, for more operations than that.
	Job job(transport, 2, apart({"PT2P_NET_SEND_DEPTH=4", "PT2P_NET_MESSAGE_BYTES=256"}));
	job.warm_up();
	constexpr size_t count = 300, each = 100;
	Window w(job, 1, count * each);
	const Bytes out = random_bytes(count * each, 2);
	Bytes in(count * each);
	std::vector<pt2p_request_t *> requests(count);
	for (size_t i = 0; i < count; ++i)
		REQUIRE(pt2p_put(job.ctx[0], &out[i * each], each, w.remote, i * each, &requests[i]) == PT2P_OK);
	REQUIRE(pt2p_waitall(job.ctx[0], count, requests.data(), nullptr) == PT2P_OK);
	CHECK(w.bytes == out);
	for (size_t i = 0; i < count; ++i)
		REQUIRE(pt2p_get(job.ctx[0], &in[i * each], each, w.remote, i * each, &requests[i]) == PT2P_OK);
	job.exchange(0, 1, 200); // these take buffers, too
	REQUIRE(pt2p_waitall(job.ctx[0], count, requests.data(), nullptr) == PT2P_OK);
	CHECK(in == out);
	CHECK(job.counter(0, "registrations") == 0);
}

TEST_CASE("short operations survive queue pairs that break")
{
	const char *transport = GENERATE("rc", "dct");
	Job job(transport, 2, apart());
	job.warm_up();
	constexpr size_t count = 100;
	Window w(job, 1, count * 200);
	Faults faults("break rate=0.01 count=10");
	unsigned round = 0;
	while (job.counter(0, "reconnects") < 4 && round < 500) {
		const Bytes out = random_bytes(count * 200, ++round);
		Bytes in(out.size());
		std::vector<pt2p_request_t *> requests(count);
		for (size_t i = 0; i < count; ++i) // inline, and from a buffer
			REQUIRE(pt2p_put(job.ctx[0], &out[i * 200], i % 2 ? 200 : 40, w.remote, i * 200, &requests[i]) == PT2P_OK);
		REQUIRE(pt2p_waitall(job.ctx[0], count, requests.data(), nullptr) == PT2P_OK);
		for (size_t i = 0; i < count; ++i)
			REQUIRE(pt2p_get(job.ctx[0], &in[i * 200], i % 2 ? 200 : 40, w.remote, i * 200, &requests[i]) == PT2P_OK);
		REQUIRE(pt2p_waitall(job.ctx[0], count, requests.data(), nullptr) == PT2P_OK);
		for (size_t i = 0; i < count; ++i) {
			const auto at = static_cast<std::ptrdiff_t>(i * 200), end = at + (i % 2 ? 200 : 40);
			REQUIRE(std::equal(in.begin() + at, in.begin() + end, out.begin() + at));
		}
	}
	CHECK(job.counter(0, "reconnects") >= 4);
	CHECK(job.counter(0, "peers_lost") == 0);
}

TEST_CASE("the loopback, by which a device changes words of its own rank, is reconnected when it breaks")
{
	const char *transport = GENERATE("rc", "dct");
	Job job(transport, 2, apart({"PT2P_NET_RECONNECT_TIME=3s", "PT2P_FINALIZE_TIME=1s"}));
	Window w(job, 0, 64);
	pt2p_remote_info_t info{};
	REQUIRE(pt2p_remote_query(job.ctx[0], w.remote, &info) == PT2P_OK);
	REQUIRE(info.atomics_by_nic == 1);
	const auto add = [&w](uint64_t &before) {
		pt2p_request_t *request;
		REQUIRE(pt2p_fetch_add64(w.job.ctx[0], w.remote, 0, 1, &before, &request) == PT2P_OK);
		return pt2p_wait(w.job.ctx[0], request, nullptr);
	};
	uint64_t before;
	REQUIRE(add(before) == PT2P_OK); // connects
	for (int i = 0; i < 3; ++i) {
		{
			Faults faults("break count=1");
			add(before); // one that is under way may fail
		}
		uint64_t again;
		CHECK(add(again) == PT2P_OK);
		CHECK(again >= before);
	}
	CHECK(job.counter(0, "reconnects") == 3);
	CHECK(job.counter(0, "peers_lost") == 0);
}

TEST_CASE("a short put is one entry that has its payload; one from a buffer or from registered memory is read",
          "[.exact]")
{
	Job job("rc", 2, apart());
	job.warm_up();
	Window w(job, 1, 4096);
	Bytes out(4096, 3);
	const auto cost = [&](size_t length, uint64_t reads) {
		INFO(length << " bytes");
		const Change wqes("wqes"), payload("payload_read_bytes"), blueflames("blueflames");
		put(w, out.data(), length, 0);
		CHECK(wqes() == 1);
		CHECK(payload() == reads);
		CHECK(blueflames() == 1);
	};
	cost(8, 0);
	cost(64, 0);
	cost(65, 65);
	cost(4096, 4096);
	pt2p_memory_t *memory;
	REQUIRE(pt2p_memory_register(job.ctx[0], out.data(), out.size(), &memory) == PT2P_OK);
	const uint64_t reused = job.counter(0, "registrations_reused");
	cost(64, 0);
	cost(4096, 4096);
	CHECK(job.counter(0, "registrations_reused") == reused + 1);
	REQUIRE(pt2p_memory_release(job.ctx[0], memory) == PT2P_OK);
}

TEST_CASE("who owns memory that was read through DC may leave first: nobody waits for it")
{
	Job job("shm,rc,dct", 8, {"PT2P_RANKS_PER_NODE=2", "PT2P_GROUPS=nodes:2", "PT2P_ROUTE=forward"});
	Window w(job, 7, 64);
	unsigned char in[8];
	get(w, in, sizeof in, 0);
	REQUIRE(pt2p_finalize(job.ctx[7]) == PT2P_OK);
	job.ctx[7] = nullptr;
	const auto begin = std::chrono::steady_clock::now();
	CHECK(pt2p_finalize(job.ctx[0]) == PT2P_OK);
	job.ctx[0] = nullptr;
	CHECK(std::chrono::steady_clock::now() - begin < 1s); // a goodbye that has to arrive is waited for twice as long
}
