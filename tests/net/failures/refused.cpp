// What a device refuses is done in another way, or the failure says why. Nothing waits for ever.
#include "tests/net/window.hpp"

#include <sys/mman.h>
#include <utility>

#include "base/job/job.hpp"
#include "transports/verbs/net.hpp"

using namespace net;

namespace {

constexpr size_t length = 3'000'001; // more than all buffers of a rank hold

void wait(Job &job, pt2p_request_t *request)
{
	const pt2p_status_t status = pt2p_wait(job.ctx[0], request, nullptr);
	INFO(pt2p_last_error(job.ctx[0]));
	REQUIRE(status == PT2P_OK);
}

std::string failure_of(pt2p_context_t *ctx, pt2p_request_t *request, pt2p_status_t &status)
{
	status = pt2p_wait(ctx, request, nullptr);
	return pt2p_last_error(ctx);
}

// Memory that may only be read.
struct ReadOnly {
	explicit ReadOnly(size_t bytes)
	    : size(bytes), memory(mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))
	{
		REQUIRE(memory != MAP_FAILED);
	}
	~ReadOnly() { munmap(memory, size); }
	const size_t size;
	void *const memory;
};

} // namespace

TEST_CASE("long puts and gets from memory that the device refuses to register go through buffers")
{
	const char *transport = GENERATE("rc", "dct");
	const bool small = GENERATE(false, true);
	const bool requests = GENERATE(false, true);
	std::vector<std::string> tunables;
	if (small) // 16 buffers
		tunables = {"PT2P_NET_SEND_DEPTH=4", "PT2P_NET_MESSAGE_BYTES=256"};
	const size_t n = small ? 30'001 : length;
	Job job(transport, 2, apart(tunables));
	job.warm_up();
	Window w(job, 1, n);
	const Bytes out = random_bytes(n, 1);
	Bytes in(n);
	Faults faults("refuse mr");
	pt2p_request_t *first = nullptr, *second = nullptr, *third = nullptr;
	// Two halves and short messages at the same time.
	REQUIRE(pt2p_put(job.ctx[0], out.data(), n / 2, w.remote, 0, requests ? &first : nullptr) == PT2P_OK);
	REQUIRE(pt2p_put(job.ctx[0], out.data() + n / 2, n - n / 2 - 100, w.remote, n / 2, requests ? &second : nullptr) ==
	        PT2P_OK);
	REQUIRE(pt2p_put(job.ctx[0], out.data() + n - 100, 100, w.remote, n - 100, requests ? &third : nullptr) == PT2P_OK);
	job.exchange(0, 1, 200); // does not wait for it
	for (pt2p_request_t *r : {first, second, third})
		if (requests)
			wait(job, r);
	REQUIRE(pt2p_flush(job.ctx[0], 1) == PT2P_OK);
	CHECK(w.bytes == out);
	REQUIRE(pt2p_get(job.ctx[0], in.data(), n, w.remote, 0, requests ? &first : nullptr) == PT2P_OK);
	if (requests)
		wait(job, first);
	REQUIRE(pt2p_flush_all(job.ctx[0]) == PT2P_OK);
	CHECK(in == out);
	CHECK(job.counter(0, "registrations") == 0);
	CHECK(job.counter(0, "net_staged_bytes") == 2 * n - 100);
	CHECK(job.counter(1, "one_sided_served") == 0);
}

TEST_CASE("a put with a signal and atomic operations need no registration")
{
	const char *transport = GENERATE("rc", "dct"), *atomics = GENERATE("cpu", "nic");
	Job job(transport, 2, apart({std::string("PT2P_ATOMICS=") + atomics}));
	job.warm_up();
	Window w(job, 1, length + 7);
	const Bytes out = random_bytes(length - 1000, 1);
	Faults faults("refuse mr");
	const auto word = [&](size_t at) {
		uint64_t value;
		std::memcpy(&value, w.bytes.data() + at, sizeof value);
		return value;
	};
	pt2p_request_t *request;
	REQUIRE(pt2p_put_signal(job.ctx[0], out.data(), out.size(), w.remote, 1000, w.remote, 0, PT2P_SIGNAL_ADD, 7,
	                        &request) == PT2P_OK);
	wait(job, request);
	CHECK(word(0) == 7);
	CHECK(std::equal(out.begin(), out.end(), w.bytes.begin() + 1000));
	uint64_t before = 0;
	REQUIRE(pt2p_fetch_add64(job.ctx[0], w.remote, 0, 5, &before, &request) == PT2P_OK);
	wait(job, request);
	CHECK(before == 7);
	REQUIRE(pt2p_put_signal(job.ctx[0], out.data(), out.size(), w.remote, 1000, w.remote, 8, PT2P_SIGNAL_SET, 3,
	                        nullptr) == PT2P_OK);
	REQUIRE(pt2p_flush(job.ctx[0], 1) == PT2P_OK);
	CHECK(word(0) == 12);
	CHECK(word(8) == 3);
}

TEST_CASE("staged puts and gets survive queue pairs that break")
{
	const char *transport = GENERATE("rc", "dct");
	Job job(transport, 2, apart());
	job.warm_up();
	constexpr size_t n = 400'000;
	Window w(job, 1, n);
	Faults faults("refuse mr; break rate=0.01 count=6");
	for (unsigned round = 0; job.counter(0, "reconnects") < 3 && round < 100; ++round) {
		const Bytes out = random_bytes(n, round);
		Bytes in(n);
		REQUIRE(pt2p_put(job.ctx[0], out.data(), n, w.remote, 0, nullptr) == PT2P_OK);
		REQUIRE(pt2p_flush(job.ctx[0], 1) == PT2P_OK);
		REQUIRE(w.bytes == out);
		REQUIRE(pt2p_get(job.ctx[0], in.data(), n, w.remote, 0, nullptr) == PT2P_OK);
		REQUIRE(pt2p_flush(job.ctx[0], 1) == PT2P_OK);
		REQUIRE(in == out);
	}
	CHECK(job.counter(0, "reconnects") >= 3);
}

TEST_CASE("when a buffer may only be read, the explanation of the failed receive says so")
{
	const char *transport = GENERATE("rc", "dct");
	const bool by_write = GENERATE(false, true);
	constexpr size_t n = 1 << 20;
	Job job(transport, 2, apart({std::string("PT2P_RENDEZVOUS=") + (by_write ? "write" : "read")}));
	job.warm_up();
	Window w(job, 1, n);
	const ReadOnly buffer(n);
	pt2p_request_t *request;
	pt2p_status_t status;
	REQUIRE(pt2p_get(job.ctx[0], buffer.memory, n, w.remote, 0, &request) == PT2P_OK);
	std::string why = failure_of(job.ctx[0], request, status);
	INFO(why);
	CHECK(status == PT2P_ERR_ARGUMENT);
	CHECK(why.find("get of 1048576 bytes") != why.npos);
	CHECK(why.find("may only be read") != why.npos);
	REQUIRE(pt2p_get(job.ctx[0], buffer.memory, n, w.remote, 0, nullptr) == PT2P_OK);
	CHECK(pt2p_flush(job.ctx[0], 1) == PT2P_ERR_ARGUMENT);
	why = pt2p_last_error(job.ctx[0]);
	INFO(why);
	CHECK(why.find("may only be read") != why.npos);
	// The same for a message, when either side writes it.
	Bytes out(n, 3);
	pt2p_request_t *send;
	REQUIRE(pt2p_irecv(job.ctx[0], buffer.memory, n, 1, 7, PT2P_TAG_EXACT, &request) == PT2P_OK);
	REQUIRE(pt2p_isend(job.ctx[1], out.data(), n, 0, 7, &send) == PT2P_OK);
	why = failure_of(job.ctx[0], request, status);
	INFO(why);
	CHECK(status == (by_write ? PT2P_ERR_SYSTEM : PT2P_ERR_ARGUMENT));
	CHECK(why.find(by_write ? "that of the receiver writable" : "may only be read") != why.npos);
	why = failure_of(job.ctx[1], send, status);
	INFO(why);
	CHECK(status == PT2P_ERR_SYSTEM);
	CHECK(why.find("rank 0") != why.npos);
	if (by_write) // the device of the sender is the one that fails
		return;
	// Nothing else has failed, and memory that may only be read can be sent.
	REQUIRE(pt2p_put(job.ctx[0], buffer.memory, n, w.remote, 0, nullptr) == PT2P_OK);
	CHECK(pt2p_flush(job.ctx[0], 1) == PT2P_OK);
	job.warm_up();
	CHECK(job.counter(0, "reconnects") + job.counter(1, "reconnects") == 0);
	CHECK(job.counter(0, "peers_lost") + job.counter(1, "peers_lost") == 0);
}

TEST_CASE("nothing is kept of a failure that is reported to nobody")
{
	enum class End { wait, free_failed, give_up, callback, sendrecv };
	const char *transport = GENERATE("rc", "dct");
	const End end = GENERATE(End::wait, End::free_failed, End::give_up, End::callback, End::sendrecv);
	constexpr size_t n = 1 << 20;
	Job job(transport);
	job.warm_up();
	pt2p_context_t *ctx = job.ctx[0];
	const ReadOnly buffer(n);
	Bytes out(n, 3);
	pt2p_request_t *send, *request = nullptr;
	REQUIRE(pt2p_isend(job.ctx[1], out.data(), n, 0, 7, &send) == PT2P_OK);
	if (end == End::sendrecv) {
		// Both fail, and the explanation is that of the send.
		pt2p_request_t *receive;
		REQUIRE(pt2p_irecv(job.ctx[1], buffer.memory, n, 0, 8, PT2P_TAG_EXACT, &receive) == PT2P_OK);
		CHECK(pt2p_sendrecv(ctx, out.data(), n, 1, 8, buffer.memory, n, 1, 7, PT2P_TAG_EXACT, nullptr) ==
		      PT2P_ERR_SYSTEM);
		CHECK(pt2p_wait(job.ctx[1], receive, nullptr) == PT2P_ERR_ARGUMENT);
	} else {
		REQUIRE(pt2p_irecv(ctx, buffer.memory, n, 1, 7, PT2P_TAG_EXACT, &request) == PT2P_OK);
	}
	unsigned calls = 0;
	const auto count = [](pt2p_context_t *, const pt2p_result_t *, void *argument) {
		++*static_cast<unsigned *>(argument);
	};
	if (end == End::give_up)
		REQUIRE(pt2p_request_free(ctx, request) == PT2P_OK);
	if (end == End::callback)
		REQUIRE(pt2p_request_callback(ctx, request, count, &calls) == PT2P_OK);
	CHECK(pt2p_wait(job.ctx[1], send, nullptr) == PT2P_ERR_SYSTEM);
	job.exchange(1, 0); // and handles what has completed before
	if (end == End::wait)
		CHECK(pt2p_wait(ctx, request, nullptr) == PT2P_ERR_ARGUMENT);
	if (end == End::free_failed)
		REQUIRE(pt2p_request_free(ctx, request) == PT2P_OK);
	CHECK(calls == (end == End::callback));
	CHECK(job.ctx[0]->engine->requests().reasons() == 0);
	CHECK(job.ctx[1]->engine->requests().reasons() == 0);
}

TEST_CASE("the failure of a message is not explained with a rank that leaves afterwards")
{
	const char *transport = GENERATE("rc", "dct");
	const int leaves = GENERATE(0, 1);
	constexpr size_t n = 1 << 20;
	Job job(transport);
	job.warm_up();
	const ReadOnly buffer(n);
	Bytes out(n, 3);
	pt2p_request_t *receive, *send;
	REQUIRE(pt2p_irecv(job.ctx[0], buffer.memory, n, 1, 7, PT2P_TAG_EXACT, &receive) == PT2P_OK);
	REQUIRE(pt2p_isend(job.ctx[1], out.data(), n, 0, 7, &send) == PT2P_OK);
	pt2p_status_t status = PT2P_OK;
	CHECK(failure_of(job.ctx[Job::index(leaves)], leaves ? send : receive, status) != "");
	CHECK(pt2p_finalize(std::exchange(job.ctx[Job::index(leaves)], nullptr)) == PT2P_OK);
	pt2p_context_t *stays = job.ctx[Job::index(1 - leaves)];
	uint64_t word;
	REQUIRE(pt2p_recv(stays, &word, sizeof word, leaves, 1, PT2P_TAG_EXACT, nullptr) == PT2P_ERR_PEER_FINALIZED);
	const std::string why = failure_of(stays, leaves ? receive : send, status);
	INFO(why);
	CHECK(status == (leaves ? PT2P_ERR_ARGUMENT : PT2P_ERR_SYSTEM));
	CHECK(why.find("finalize") == why.npos);
	CHECK(why.find(leaves ? "may only be read" : "that of the receiver writable") != why.npos);
}

TEST_CASE("operations on memory that its owner has released say so")
{
	const char *transport = GENERATE("rc", "dct");
	Job job(transport, 2, apart());
	job.warm_up();
	Window w(job, 1, 100'000);
	REQUIRE(pt2p_memory_release(job.ctx[1], w.memory) == PT2P_OK);
	Bytes out(100'000);
	for (const size_t n : {size_t{8}, size_t{5000}, out.size()}) {
		pt2p_request_t *request;
		pt2p_status_t status;
		REQUIRE(pt2p_put(job.ctx[0], out.data(), n, w.remote, 0, &request) == PT2P_OK);
		std::string why = failure_of(job.ctx[0], request, status);
		INFO(why);
		CHECK(status != PT2P_OK);
		CHECK(why.find("released") != why.npos);
		REQUIRE(pt2p_get(job.ctx[0], out.data(), n, w.remote, 0, nullptr) == PT2P_OK);
		CHECK(pt2p_flush(job.ctx[0], 1) == status);
		why = pt2p_last_error(job.ctx[0]);
		INFO(why);
		CHECK(why.find("released") != why.npos);
	}
	job.warm_up();
}

TEST_CASE("a message arrives although its sender leaves while its connection is broken")
{
	const char *transport = GENERATE("rc", "dct");
	Job job(transport, 2, apart());
	job.warm_up();
	Window w(job, 1, 64);
	REQUIRE(pt2p_memory_release(job.ctx[1], w.memory) == PT2P_OK);
	uint64_t out = 0x1234, in = 0;
	pt2p_request_t *request;
	REQUIRE(pt2p_put(job.ctx[0], &out, sizeof out, w.remote, 0, &request) == PT2P_OK);
	CHECK(pt2p_wait(job.ctx[0], request, nullptr) != PT2P_OK); // breaks it, which rank 1 does not know yet
	REQUIRE(pt2p_send(job.ctx[1], &out, sizeof out, 0, 9) == PT2P_OK);
	CHECK(pt2p_finalize(std::exchange(job.ctx[1], nullptr)) == PT2P_OK);
	const pt2p_status_t status = pt2p_recv(job.ctx[0], &in, sizeof in, 1, 9, PT2P_TAG_EXACT, nullptr);
	INFO(pt2p_last_error(job.ctx[0]));
	CHECK(status == PT2P_OK);
	CHECK(in == out);
}

TEST_CASE("atomic operations that an owner's device can no longer do fail, and nobody waits for them")
{
	const char *transport = GENERATE("rc", "dct");
	Job job(transport, 2, apart({"PT2P_ATOMICS=nic", "PT2P_ONE_SIDED=owner"}));
	job.warm_up();
	Window w(job, 1, 64);
	pt2p_request_t *request;
	uint64_t before = 0;
	REQUIRE(pt2p_fetch_add64(job.ctx[0], w.remote, 0, 5, &before, &request) == PT2P_OK);
	wait(job, request);
	auto &loopback = static_cast<pt2p::verbs::NetPeer &>(
	    *job.ctx[1]->onesided->memories().find(reinterpret_cast<uint64_t>(w.memory))->nic);
	loopback.net->take_down(loopback, PT2P_ERR_SYSTEM, "by this test");
	for (int i = 0; i < 3; ++i) {
		REQUIRE(pt2p_fetch_add64(job.ctx[0], w.remote, 0, 5, &before, &request) == PT2P_OK);
		CHECK(pt2p_wait(job.ctx[0], request, nullptr) == PT2P_ERR_SYSTEM);
	}
	job.warm_up();
}

TEST_CASE("a flush tells of a lost rank, also when an operation had failed there before")
{
	const char *transport = GENERATE("rc", "dct");
	Job job(transport, 2, apart({"PT2P_ATOMICS=nic", "PT2P_ONE_SIDED=owner"}));
	job.warm_up();
	Window w(job, 1, 64);
	uint64_t before = 0, read = 0;
	pt2p_request_t *request;
	REQUIRE(pt2p_fetch_add64(job.ctx[0], w.remote, 0, 5, &before, &request) == PT2P_OK);
	wait(job, request);
	auto &loopback = static_cast<pt2p::verbs::NetPeer &>(
	    *job.ctx[1]->onesided->memories().find(reinterpret_cast<uint64_t>(w.memory))->nic);
	loopback.net->take_down(loopback, PT2P_ERR_SYSTEM, "by this test");
	REQUIRE(pt2p_fetch_add64(job.ctx[0], w.remote, 0, 5, &before, nullptr) == PT2P_OK);
	REQUIRE(pt2p_fetch_add64(job.ctx[0], w.remote, 0, 5, &before, &request) == PT2P_OK);
	REQUIRE(pt2p_wait(job.ctx[0], request, nullptr) == PT2P_ERR_SYSTEM); // so the other one has failed, too
	REQUIRE(pt2p_get(job.ctx[0], &read, sizeof read, w.remote, 0, nullptr) == PT2P_OK);
	pt2p::declare_lost(*job.ctx[1]->job, 1, "by this test");
	while (!job.counter(0, "peers_lost"))
		pt2p_progress(job.ctx[0]);
	for (int flushes = 0; flushes < 3; ++flushes)
		CHECK(pt2p_flush(job.ctx[0], 1) == PT2P_ERR_PEER_LOST);
	// Rank 1 does not know that it is lost, and would still read there.
	REQUIRE(pt2p_memory_release(job.ctx[1], w.memory) == PT2P_OK);
}
