// Bad arguments of every public function: a status and an explanation, never a crash, and the context goes on working.
#include <catch2/catch.hpp>

#include <climits>
#include <cstring>
#include <string>
#include <vector>

#include <sys/sysinfo.h>

#include <pt2p.h>

namespace {

struct Job {
	explicit Job(int size = 2, pt2p_thread_level_t level = PT2P_THREAD_SINGLE) : contexts(static_cast<size_t>(size))
	{
		pt2p_options_t options = PT2P_OPTIONS_INIT;
		options.thread_level = level;
		REQUIRE(pt2p_init_inprocess(size, PT2P_INPROCESS_COOPERATIVE, &options, contexts.data()) == PT2P_OK);
	}
	~Job()
	{
		for (pt2p_context_t *c : contexts)
			if (c)
				CHECK(pt2p_finalize(c) == PT2P_OK);
	}
	pt2p_context_t *operator[](size_t i) const { return contexts[i]; }
	std::vector<pt2p_context_t *> contexts;
};

const size_t negative = static_cast<size_t>(-5);
pt2p_request_t *const garbage[] = {
    reinterpret_cast<pt2p_request_t *>(uintptr_t{1}),
    reinterpret_cast<pt2p_request_t *>(uintptr_t{0xdeadbeef}),
    reinterpret_cast<pt2p_request_t *>(UINTPTR_MAX),
    reinterpret_cast<pt2p_request_t *>(uintptr_t{1} << 32),
    reinterpret_cast<pt2p_request_t *>((uintptr_t{7} << 32) | 3),
};

// The status is as wanted and there is an explanation that names `word`.
void refused(const pt2p_context_t *ctx, pt2p_status_t got, pt2p_status_t wanted, const char *word = "")
{
	INFO(pt2p_last_error(ctx));
	CHECK(got == wanted);
	CHECK(strlen(pt2p_last_error(ctx)) > 10);
	CHECK(std::string(pt2p_last_error(ctx)).find(word) != std::string::npos);
}

// A callback that is not called, as nothing is started with it.
void never(pt2p_context_t *, const pt2p_result_t *, void *) { FAIL("called"); }

} // namespace

TEST_CASE("a null context is refused by every function")
{
	int flag = 0;
	char byte = 0;
	size_t index = 0;
	uint64_t value = 0;
	pt2p_request_t *req = nullptr;
	pt2p_message_t *message = nullptr;
	pt2p_info_t info;
	pt2p_peer_info_t peer;
	pt2p_memory_t *mem = nullptr;
	pt2p_remote_t *remote = nullptr;
	pt2p_remote_info_t remote_info;
	void *address = nullptr;
	const pt2p_status_t got[] = {
	    pt2p_finalize(nullptr),
	    pt2p_query(nullptr, &info),
	    pt2p_peer_query(nullptr, 0, &peer),
	    pt2p_set_delivery(nullptr, 0, PT2P_DELIVERY_SEND),
	    pt2p_send(nullptr, &byte, 1, 0, 0),
	    pt2p_recv(nullptr, &byte, 1, 0, 0, 0, nullptr),
	    pt2p_isend(nullptr, &byte, 1, 0, 0, &req),
	    pt2p_irecv(nullptr, &byte, 1, 0, 0, 0, &req),
	    pt2p_sendrecv(nullptr, &byte, 1, 0, 0, &byte, 1, 0, 0, 0, nullptr),
	    pt2p_probe(nullptr, 0, 0, 0, nullptr),
	    pt2p_iprobe(nullptr, 0, 0, 0, &flag, nullptr),
	    pt2p_ssend(nullptr, &byte, 1, 0, 0),
	    pt2p_issend(nullptr, &byte, 1, 0, 0, &req),
	    pt2p_mprobe(nullptr, 0, 0, 0, &message, nullptr),
	    pt2p_improbe(nullptr, 0, 0, 0, &message, nullptr),
	    pt2p_mrecv(nullptr, &byte, 1, nullptr, nullptr),
	    pt2p_imrecv(nullptr, &byte, 1, nullptr, &req),
	    pt2p_wait(nullptr, nullptr, nullptr),
	    pt2p_test(nullptr, nullptr, &flag, nullptr),
	    pt2p_waitall(nullptr, 0, nullptr, nullptr),
	    pt2p_waitany(nullptr, 0, nullptr, &index, nullptr),
	    pt2p_testany(nullptr, 0, nullptr, &index, nullptr),
	    pt2p_testall(nullptr, 0, nullptr, &flag, nullptr),
	    pt2p_cancel(nullptr, nullptr),
	    pt2p_barrier(nullptr),
	    pt2p_progress(nullptr),
	    pt2p_counter_read(nullptr, 0, &value),
	    pt2p_memory_register(nullptr, &value, 8, &mem),
	    pt2p_memory_allocate(nullptr, 8, &mem, &address),
	    pt2p_memory_release(nullptr, nullptr),
	    pt2p_memory_export(nullptr, nullptr, &byte, 1, &index),
	    pt2p_memory_import(nullptr, 0, &byte, 1, &remote),
	    pt2p_memory_gone(nullptr, &byte, 1),
	    pt2p_remote_release(nullptr, nullptr),
	    pt2p_remote_query(nullptr, nullptr, &remote_info),
	    pt2p_put(nullptr, &byte, 1, nullptr, 0, &req),
	    pt2p_get(nullptr, &byte, 1, nullptr, 0, &req),
	    pt2p_put_signal(nullptr, &byte, 1, nullptr, 0, nullptr, 0, PT2P_SIGNAL_SET, 1, &req),
	    pt2p_fetch_add32(nullptr, nullptr, 0, 1, nullptr, &req),
	    pt2p_fetch_add64(nullptr, nullptr, 0, 1, nullptr, &req),
	    pt2p_swap32(nullptr, nullptr, 0, 1, nullptr, &req),
	    pt2p_swap64(nullptr, nullptr, 0, 1, nullptr, &req),
	    pt2p_compare_swap32(nullptr, nullptr, 0, 1, 2, nullptr, &req),
	    pt2p_compare_swap64(nullptr, nullptr, 0, 1, 2, nullptr, &req),
	    pt2p_flush(nullptr, 0),
	    pt2p_flush_all(nullptr),
	    pt2p_fence(nullptr, 0),
	    pt2p_signal_wait(nullptr, &value, 0, 0),
	    pt2p_waitsome(nullptr, 0, nullptr, &index, nullptr, nullptr),
	    pt2p_testsome(nullptr, 0, nullptr, &index, nullptr, nullptr),
	    pt2p_request_query(nullptr, nullptr, &flag, nullptr),
	    pt2p_request_free(nullptr, nullptr),
	    pt2p_request_callback(nullptr, nullptr, never, nullptr),
	    pt2p_isend_callback(nullptr, &byte, 1, 0, 0, never, nullptr),
	    pt2p_irecv_callback(nullptr, &byte, 1, 0, 0, 0, never, nullptr),
	    pt2p_put_callback(nullptr, &byte, 1, nullptr, 0, never, nullptr),
	    pt2p_get_callback(nullptr, &byte, 1, nullptr, 0, never, nullptr),
	    pt2p_isendv(nullptr, nullptr, 0, 0, 0, &req),
	    pt2p_irecvv(nullptr, nullptr, 0, 0, 0, 0, &req),
	    pt2p_sendv(nullptr, nullptr, 0, 0, 0),
	    pt2p_recvv(nullptr, nullptr, 0, 0, 0, 0, nullptr),
	    pt2p_remote_address(nullptr, nullptr, &address),
	    pt2p_summary(nullptr, &byte, 1, nullptr),
	    pt2p_report(nullptr, &byte, 1, nullptr),
	    pt2p_dump(nullptr),
	};
	for (pt2p_status_t status : got)
		CHECK(status == PT2P_ERR_CONTEXT);
	refused(nullptr, pt2p_barrier(nullptr), PT2P_ERR_CONTEXT, "pt2p_barrier");
	CHECK(pt2p_rank(nullptr) == -1);
	CHECK(pt2p_size(nullptr) == -1);
}

TEST_CASE("memory that is not a context is refused")
{
	alignas(64) unsigned char memory[4096] = {};
	auto *ctx = reinterpret_cast<pt2p_context_t *>(memory);
	CHECK(pt2p_rank(ctx) == -1);
	refused(nullptr, pt2p_progress(ctx), PT2P_ERR_CONTEXT);
	refused(nullptr, pt2p_finalize(ctx), PT2P_ERR_CONTEXT);
}

TEST_CASE("null pointers are refused and named")
{
	Job job;
	pt2p_context_t *c = job[0];
	char byte = 0;
	int flag = 0;
	size_t index = 0;
	pt2p_request_t *req = nullptr;
	refused(c, pt2p_query(c, nullptr), PT2P_ERR_ARGUMENT, "info");
	refused(c, pt2p_peer_query(c, 0, nullptr), PT2P_ERR_ARGUMENT, "info");
	refused(c, pt2p_set_delivery(c, 0, static_cast<pt2p_delivery_t>(4)), PT2P_ERR_ARGUMENT, "delivery 4");
	CHECK(pt2p_set_delivery(c, 0, PT2P_DELIVERY_WRITE) == PT2P_OK); // of no effect
	refused(c, pt2p_send(c, nullptr, 1, 1, 0), PT2P_ERR_ARGUMENT, "buffer");
	refused(c, pt2p_recv(c, nullptr, 1, 1, 0, 0, nullptr), PT2P_ERR_ARGUMENT, "buffer");
	refused(c, pt2p_isend(c, &byte, 1, 1, 0, nullptr), PT2P_ERR_ARGUMENT, "req");
	refused(c, pt2p_isend(c, nullptr, 9, 1, 0, &req), PT2P_ERR_ARGUMENT, "buffer");
	refused(c, pt2p_irecv(c, &byte, 1, 1, 0, 0, nullptr), PT2P_ERR_ARGUMENT, "req");
	refused(c, pt2p_irecv(c, nullptr, 9, 1, 0, 0, &req), PT2P_ERR_ARGUMENT, "buffer");
	refused(c, pt2p_sendrecv(c, nullptr, 1, 1, 0, &byte, 1, 1, 0, 0, nullptr), PT2P_ERR_ARGUMENT, "buffer");
	refused(c, pt2p_sendrecv(c, &byte, 1, 1, 0, nullptr, 1, 1, 0, 0, nullptr), PT2P_ERR_ARGUMENT, "buffer");
	refused(c, pt2p_iprobe(c, 1, 0, 0, nullptr, nullptr), PT2P_ERR_ARGUMENT, "found");
	refused(c, pt2p_wait(c, nullptr, nullptr), PT2P_ERR_REQUEST);
	refused(c, pt2p_test(c, nullptr, &flag, nullptr), PT2P_ERR_REQUEST);
	refused(c, pt2p_cancel(c, nullptr), PT2P_ERR_REQUEST);
	refused(c, pt2p_waitall(c, 1, nullptr, nullptr), PT2P_ERR_ARGUMENT, "reqs");
	refused(c, pt2p_waitany(c, 1, nullptr, &index, nullptr), PT2P_ERR_ARGUMENT, "reqs");
	refused(c, pt2p_testany(c, 1, nullptr, &index, nullptr), PT2P_ERR_ARGUMENT, "reqs");
	refused(c, pt2p_testall(c, 1, nullptr, &flag, nullptr), PT2P_ERR_ARGUMENT, "reqs");
	refused(c, pt2p_waitany(c, 1, &req, nullptr, nullptr), PT2P_ERR_ARGUMENT, "index");
	refused(c, pt2p_testany(c, 1, &req, nullptr, nullptr), PT2P_ERR_ARGUMENT, "index");
	refused(c, pt2p_testall(c, 1, &req, nullptr, nullptr), PT2P_ERR_ARGUMENT, "done");
	refused(c, pt2p_counter_read(c, 0, nullptr), PT2P_ERR_ARGUMENT, "value");
	refused(c, pt2p_summary(c, nullptr, 10, nullptr), PT2P_ERR_ARGUMENT, "text");
	refused(c, pt2p_report(c, nullptr, 10, nullptr), PT2P_ERR_ARGUMENT, "text");

	REQUIRE(pt2p_irecv(c, &byte, 1, 1, 5, PT2P_TAG_EXACT, &req) == PT2P_OK);
	refused(c, pt2p_test(c, req, nullptr, nullptr), PT2P_ERR_ARGUMENT, "done");
	CHECK(pt2p_cancel(c, req) == PT2P_OK);
	CHECK(pt2p_wait(c, req, nullptr) == PT2P_ERR_CANCELLED);
}

TEST_CASE("synchronous sends and matched probes check their arguments")
{
	Job job;
	pt2p_context_t *c = job[0];
	char byte = 0;
	pt2p_message_t *message = nullptr;
	auto *const stale = reinterpret_cast<pt2p_request_t *>(uintptr_t{5});
	pt2p_request_t *req = stale;
	refused(c, pt2p_ssend(c, nullptr, 1, 1, 0), PT2P_ERR_ARGUMENT, "buffer");
	refused(c, pt2p_ssend(c, &byte, negative, 1, 0), PT2P_ERR_LENGTH, "-5");
	refused(c, pt2p_issend(c, &byte, 1, 1, 0, nullptr), PT2P_ERR_ARGUMENT, "req");
	refused(c, pt2p_issend(c, nullptr, 9, 1, 0, &req), PT2P_ERR_ARGUMENT, "buffer");
	CHECK(req == nullptr);
	refused(c, pt2p_issend(c, &byte, SIZE_MAX, 1, 0, &req), PT2P_ERR_LENGTH);
	refused(c, pt2p_mprobe(c, 1, 0, 0, nullptr, nullptr), PT2P_ERR_ARGUMENT, "message");
	refused(c, pt2p_improbe(c, 1, 0, 0, nullptr, nullptr), PT2P_ERR_ARGUMENT, "message");
	refused(c, pt2p_mrecv(c, &byte, 1, nullptr, nullptr), PT2P_ERR_REQUEST, "NULL");
	for (int rank : {2, -2, INT_MAX, INT_MIN}) {
		const std::string name = std::to_string(rank);
		refused(c, pt2p_ssend(c, &byte, 1, rank, 0), PT2P_ERR_RANK, name.c_str());
		refused(c, pt2p_issend(c, &byte, 1, rank, 0, &req), PT2P_ERR_RANK, name.c_str());
		refused(c, pt2p_mprobe(c, rank, 0, 0, &message, nullptr), PT2P_ERR_RANK, name.c_str());
		refused(c, pt2p_improbe(c, rank, 0, 0, &message, nullptr), PT2P_ERR_RANK, name.c_str());
	}
	refused(c, pt2p_ssend(c, &byte, 1, PT2P_ANY_SOURCE, 0), PT2P_ERR_RANK);

	// A message survives refused receives.
	REQUIRE(pt2p_send(job[1], "xy", 2, 0, 4) == PT2P_OK);
	REQUIRE(pt2p_mprobe(c, PT2P_ANY_SOURCE, 0, PT2P_TAG_ANY, &message, nullptr) == PT2P_OK);
	refused(c, pt2p_imrecv(c, &byte, 1, message, nullptr), PT2P_ERR_ARGUMENT, "req");
	req = stale;
	refused(c, pt2p_imrecv(c, nullptr, 1, message, &req), PT2P_ERR_ARGUMENT, "buffer");
	CHECK(req == nullptr);
	refused(c, pt2p_mrecv(c, nullptr, 1, message, nullptr), PT2P_ERR_ARGUMENT, "buffer");
	refused(c, pt2p_mrecv(c, &byte, negative, message, nullptr), PT2P_ERR_LENGTH);
	refused(c, pt2p_imrecv(c, &byte, negative, message, &req), PT2P_ERR_LENGTH);
	pt2p_result_t result{};
	refused(c, pt2p_mrecv(c, &byte, 1, message, &result), PT2P_ERR_TRUNCATED, "2 bytes");
	CHECK((byte == 'x' && result.length == 2 && result.source == 1 && result.tag == 4));
}

TEST_CASE("dead, foreign and invented messages are refused")
{
	Job job;
	pt2p_context_t *c = job[0];
	char byte = 0;
	int flag = 0;
	pt2p_request_t *req = nullptr, *request = nullptr;
	pt2p_message_t *dead = nullptr, *live = nullptr;
	for (int i = 0; i < 2; ++i)
		REQUIRE(pt2p_send(job[1], "x", 1, 0, 4) == PT2P_OK);
	REQUIRE(pt2p_mprobe(c, 1, 4, PT2P_TAG_EXACT, &dead, nullptr) == PT2P_OK);
	REQUIRE(pt2p_mrecv(c, &byte, 1, dead, nullptr) == PT2P_OK);
	REQUIRE(pt2p_mprobe(c, 1, 4, PT2P_TAG_EXACT, &live, nullptr) == PT2P_OK);
	CHECK(live != dead); // although it lies in the same place
	REQUIRE(pt2p_irecv(c, &byte, 1, 1, 5, PT2P_TAG_EXACT, &request) == PT2P_OK);
	std::vector<pt2p_message_t *> bad = {nullptr, dead, reinterpret_cast<pt2p_message_t *>(request)};
	for (pt2p_request_t *g : garbage)
		bad.push_back(reinterpret_cast<pt2p_message_t *>(g));
	for (pt2p_message_t *m : bad) {
		INFO(m);
		refused(c, pt2p_mrecv(c, &byte, 1, m, nullptr), PT2P_ERR_REQUEST, "pt2p_mrecv");
		refused(c, pt2p_imrecv(c, &byte, 1, m, &req), PT2P_ERR_REQUEST, "pt2p_imrecv");
		CHECK(req == nullptr);
	}
	refused(job[1], pt2p_mrecv(job[1], &byte, 1, live, nullptr), PT2P_ERR_REQUEST); // the other rank's
	// A message is no request, taken or not yet.
	auto *as_request = reinterpret_cast<pt2p_request_t *>(live);
	refused(c, pt2p_wait(c, as_request, nullptr), PT2P_ERR_REQUEST);
	refused(c, pt2p_test(c, as_request, &flag, nullptr), PT2P_ERR_REQUEST);
	refused(c, pt2p_cancel(c, as_request), PT2P_ERR_REQUEST);
	CHECK(pt2p_mrecv(c, &byte, 1, live, nullptr) == PT2P_OK);
	CHECK(pt2p_cancel(c, request) == PT2P_OK);
	CHECK(pt2p_wait(c, request, nullptr) == PT2P_ERR_CANCELLED);
}

// What is kept for messages that were taken counts as unexpected: senders are held back until they are received.
TEST_CASE("messages that were taken count as unexpected until they are received")
{
	const char *list[] = {"PT2P_UNEXPECTED_MAX=4000", nullptr};
	pt2p_options_t options = PT2P_OPTIONS_INIT;
	options.tunables = list;
	pt2p_context_t *ctx[2];
	REQUIRE(pt2p_init_inprocess(2, PT2P_INPROCESS_COOPERATIVE, &options, ctx) == PT2P_OK);
	const std::vector<char> out(1000, 'x');
	std::vector<char> in(1000);
	const auto eager = [&](pt2p_context_t *c) {
		for (int i = 0; i < pt2p_counter_count(); ++i)
			if (std::string(pt2p_counter_name(i)) == "eager_sent") {
				uint64_t value = 0;
				REQUIRE(pt2p_counter_read(c, i, &value) == PT2P_OK);
				return value;
			}
		return UINT64_MAX;
	};
	const auto settle = [&] {
		for (int i = 0; i < 20; ++i)
			for (pt2p_context_t *c : ctx)
				REQUIRE(pt2p_progress(c) == PT2P_OK);
	};
	for (int again = 0; again < 3; ++again) {
		std::vector<pt2p_request_t *> sends(5);
		std::vector<pt2p_message_t *> messages;
		const uint64_t before = eager(ctx[0]);
		for (size_t i = 0; i < sends.size(); ++i)
			REQUIRE((i % 2 ? pt2p_isend : pt2p_issend)(ctx[0], out.data(), out.size(), 1, 7, &sends[i]) == PT2P_OK);
		settle();
		CHECK(eager(ctx[0]) == before + 5);
		for (size_t i = 0; i < sends.size(); ++i) {
			messages.push_back(nullptr);
			REQUIRE(pt2p_mprobe(ctx[1], 0, 7, PT2P_TAG_EXACT, &messages.back(), nullptr) == PT2P_OK);
		}
		settle();
		// All are out of matching, and still there: the next one is announced.
		sends.push_back(nullptr);
		REQUIRE(pt2p_isend(ctx[0], out.data(), out.size(), 1, 7, &sends.back()) == PT2P_OK);
		sends.push_back(nullptr);
		REQUIRE(pt2p_issend(ctx[0], out.data(), out.size(), 1, 7, &sends.back()) == PT2P_OK);
		CHECK(eager(ctx[0]) == before + 5);
		for (pt2p_message_t *m : messages)
			REQUIRE(pt2p_mrecv(ctx[1], in.data(), in.size(), m, nullptr) == PT2P_OK);
		for (int i = 0; i < 2; ++i)
			REQUIRE(pt2p_recv(ctx[1], in.data(), in.size(), 0, 7, PT2P_TAG_EXACT, nullptr) == PT2P_OK);
		CHECK(pt2p_waitall(ctx[0], sends.size(), sends.data(), nullptr) == PT2P_OK);
		settle();
	}
	CHECK(pt2p_finalize(ctx[0]) == PT2P_OK);
	CHECK(pt2p_finalize(ctx[1]) == PT2P_OK);
}

TEST_CASE("a message that was taken and never received is reported by pt2p_finalize")
{
	for (const char *sizes : {"PT2P_EAGER_MAX=8k", "PT2P_EAGER_MAX=0"}) {
		const char *list[] = {sizes, "PT2P_FINALIZE_TIME=50ms", nullptr};
		pt2p_options_t options = PT2P_OPTIONS_INIT;
		options.tunables = list;
		pt2p_context_t *ctx[2];
		REQUIRE(pt2p_init_inprocess(2, PT2P_INPROCESS_COOPERATIVE, &options, ctx) == PT2P_OK);
		pt2p_message_t *message = nullptr;
		pt2p_request_t *send = nullptr;
		REQUIRE(pt2p_issend(ctx[0], "abc", 3, 1, 0x77, &send) == PT2P_OK);
		REQUIRE(pt2p_mprobe(ctx[1], 0, 0x77, PT2P_TAG_EXACT, &message, nullptr) == PT2P_OK);
		refused(nullptr, pt2p_finalize(ctx[1]), PT2P_ERR_UNFINISHED, "1 message of pt2p_mprobe was not received");
		CHECK(std::string(pt2p_last_error(nullptr)).find("message of 3 bytes from rank 0, tag 0x77") != std::string::npos);
		// Nobody will ever receive it.
		refused(ctx[0], pt2p_wait(ctx[0], send, nullptr), PT2P_ERR_PEER_FINALIZED, "rank 1");
		CHECK(pt2p_finalize(ctx[0]) == PT2P_OK);
	}
}

TEST_CASE("negative lengths are refused, and a failed start leaves no request")
{
	Job job;
	pt2p_context_t *c = job[0];
	char byte = 0;
	auto *req = reinterpret_cast<pt2p_request_t *>(uintptr_t{5});
	for (size_t length : {negative, SIZE_MAX, static_cast<size_t>(PTRDIFF_MAX) + 1}) {
		refused(c, pt2p_send(c, &byte, length, 1, 0), PT2P_ERR_LENGTH);
		refused(c, pt2p_recv(c, &byte, length, 1, 0, 0, nullptr), PT2P_ERR_LENGTH);
		refused(c, pt2p_isend(c, &byte, length, 1, 0, &req), PT2P_ERR_LENGTH);
		CHECK(req == nullptr);
		req = reinterpret_cast<pt2p_request_t *>(uintptr_t{5});
		refused(c, pt2p_irecv(c, &byte, length, 1, 0, 0, &req), PT2P_ERR_LENGTH);
		CHECK(req == nullptr);
		refused(c, pt2p_sendrecv(c, &byte, length, 1, 0, &byte, 1, 1, 0, 0, nullptr), PT2P_ERR_LENGTH);
		refused(c, pt2p_sendrecv(c, &byte, 1, 1, 0, &byte, length, 1, 0, 0, nullptr), PT2P_ERR_LENGTH);
	}
	pt2p_send(c, &byte, negative, 1, 0);
	CHECK(std::string(pt2p_last_error(c)).find("-5") != std::string::npos);
}

TEST_CASE("ranks out of range are refused and named")
{
	Job job;
	pt2p_context_t *c = job[0];
	char byte = 0;
	int flag = 0;
	pt2p_request_t *req = nullptr;
	pt2p_peer_info_t peer;
	for (int rank : {2, 77, -2, INT_MAX, INT_MIN}) {
		const std::string name = std::to_string(rank);
		refused(c, pt2p_send(c, &byte, 1, rank, 0), PT2P_ERR_RANK, name.c_str());
		refused(c, pt2p_recv(c, &byte, 1, rank, 0, 0, nullptr), PT2P_ERR_RANK, name.c_str());
		refused(c, pt2p_isend(c, &byte, 1, rank, 0, &req), PT2P_ERR_RANK, name.c_str());
		refused(c, pt2p_irecv(c, &byte, 1, rank, 0, 0, &req), PT2P_ERR_RANK, name.c_str());
		refused(c, pt2p_sendrecv(c, &byte, 1, rank, 0, &byte, 1, 1, 0, 0, nullptr), PT2P_ERR_RANK, name.c_str());
		refused(c, pt2p_sendrecv(c, &byte, 1, 1, 0, &byte, 1, rank, 0, 0, nullptr), PT2P_ERR_RANK, name.c_str());
		refused(c, pt2p_probe(c, rank, 0, 0, nullptr), PT2P_ERR_RANK, name.c_str());
		refused(c, pt2p_iprobe(c, rank, 0, 0, &flag, nullptr), PT2P_ERR_RANK, name.c_str());
		refused(c, pt2p_peer_query(c, rank, &peer), PT2P_ERR_RANK, name.c_str());
		refused(c, pt2p_set_delivery(c, rank, PT2P_DELIVERY_SEND), PT2P_ERR_RANK, name.c_str());
	}
	// Any source is for receives only.
	refused(c, pt2p_send(c, &byte, 1, PT2P_ANY_SOURCE, 0), PT2P_ERR_RANK);
	refused(c, pt2p_isend(c, &byte, 1, PT2P_ANY_SOURCE, 0, &req), PT2P_ERR_RANK);
	refused(c, pt2p_peer_query(c, PT2P_ANY_SOURCE, &peer), PT2P_ERR_RANK);
}

TEST_CASE("dead, foreign and invented requests are refused")
{
	Job job;
	pt2p_context_t *c = job[0];
	char byte = 0;
	int flag = 0;
	size_t index = 0;
	pt2p_request_t *mine = nullptr, *finished = nullptr;
	REQUIRE(pt2p_irecv(c, &byte, 1, 1, 5, PT2P_TAG_EXACT, &mine) == PT2P_OK);
	REQUIRE(pt2p_irecv(c, &byte, 1, 1, 6, PT2P_TAG_EXACT, &finished) == PT2P_OK);
	REQUIRE(pt2p_cancel(c, finished) == PT2P_OK);
	REQUIRE(pt2p_wait(c, finished, nullptr) == PT2P_ERR_CANCELLED);
	std::vector<pt2p_request_t *> bad(std::begin(garbage), std::end(garbage));
	bad.push_back(finished);
	for (pt2p_request_t *req : bad) {
		INFO(req);
		pt2p_request_t *list[] = {nullptr, mine, req};
		refused(c, pt2p_wait(c, req, nullptr), PT2P_ERR_REQUEST, "pt2p_wait");
		refused(c, pt2p_test(c, req, &flag, nullptr), PT2P_ERR_REQUEST, "pt2p_test");
		refused(c, pt2p_cancel(c, req), PT2P_ERR_REQUEST, "pt2p_cancel");
		refused(c, pt2p_waitall(c, 3, list, nullptr), PT2P_ERR_REQUEST, "pt2p_waitall");
		refused(c, pt2p_waitany(c, 3, list, &index, nullptr), PT2P_ERR_REQUEST, "pt2p_waitany");
		refused(c, pt2p_testany(c, 3, list, &index, nullptr), PT2P_ERR_REQUEST, "pt2p_testany");
		refused(c, pt2p_testall(c, 3, list, &flag, nullptr), PT2P_ERR_REQUEST, "pt2p_testall");
		CHECK(list[1] == mine);
	}
	// The other rank's request.
	refused(job[1], pt2p_wait(job[1], mine, nullptr), PT2P_ERR_REQUEST);
	refused(job[1], pt2p_cancel(job[1], mine), PT2P_ERR_REQUEST);
	CHECK(pt2p_cancel(c, mine) == PT2P_OK);
	// The same request twice in a list.
	pt2p_request_t *twice[] = {mine, mine};
	const pt2p_status_t status = pt2p_waitall(c, 2, twice, nullptr);
	CHECK((status == PT2P_ERR_CANCELLED || status == PT2P_ERR_REQUEST));
}

TEST_CASE("a context goes on after failures")
{
	Job job;
	int out = 3, in = 0;
	for (int i = 0; i < 100; ++i) {
		pt2p_send(job[0], nullptr, 1, 9, 0);
		pt2p_wait(job[0], garbage[0], nullptr);
	}
	CHECK(pt2p_send(job[0], &out, sizeof out, 1, 4) == PT2P_OK);
	CHECK(pt2p_recv(job[1], &in, sizeof in, 0, 4, PT2P_TAG_EXACT, nullptr) == PT2P_OK);
	CHECK(in == 3);
}

TEST_CASE("pt2p_init and pt2p_init_inprocess refuse bad options")
{
	pt2p_context_t *ctx[2];
	const auto reset = [&] { ctx[0] = ctx[1] = reinterpret_cast<pt2p_context_t *>(uintptr_t{8}); };
	refused(nullptr, pt2p_init(nullptr, nullptr), PT2P_ERR_ARGUMENT, "ctx");
	refused(nullptr, pt2p_init_inprocess(2, PT2P_INPROCESS_THREADS, nullptr, nullptr), PT2P_ERR_ARGUMENT, "ctx");
	for (int size : {0, -1, 4097, INT_MAX, INT_MIN})
		refused(nullptr, pt2p_init_inprocess(size, PT2P_INPROCESS_THREADS, nullptr, ctx), PT2P_ERR_ARGUMENT, "size");
	reset();
	refused(nullptr, pt2p_init_inprocess(2, static_cast<pt2p_inprocess_mode_t>(3), nullptr, ctx), PT2P_ERR_ARGUMENT, "mode");
	CHECK(ctx[0] == nullptr);
	CHECK(ctx[1] == nullptr);

	for (size_t size : {size_t{0}, size_t{1}, sizeof(pt2p_options_t) + 8, SIZE_MAX}) {
		pt2p_options_t options = PT2P_OPTIONS_INIT;
		options.struct_size = size;
		reset();
		refused(nullptr, pt2p_init(&options, ctx), PT2P_ERR_ARGUMENT, "struct_size");
		CHECK(ctx[0] == nullptr);
		refused(nullptr, pt2p_init_inprocess(2, PT2P_INPROCESS_THREADS, &options, ctx), PT2P_ERR_ARGUMENT, "struct_size");
		CHECK(ctx[1] == nullptr);
	}
	pt2p_options_t options = PT2P_OPTIONS_INIT;
	options.thread_level = static_cast<pt2p_thread_level_t>(3);
	refused(nullptr, pt2p_init(&options, ctx), PT2P_ERR_ARGUMENT, "thread_level");

	const struct {
		const char *text, *word;
	} tunables[] = {
	    {"PT2P_EAGER_MXA=1", "PT2P_EAGER_MAX"}, {"PT2P_EAGER_MAX=abc", "PT2P_EAGER_MAX"},
	    {"PT2P_EAGER_MAX=-1", "PT2P_EAGER_MAX"}, {"PT2P_SHM_RING_SLOTS=1", "8"},
	    {"PT2P_SHM_BACKING=floppy", "memfd"},   {"PT2P_SLEEP=maybe", "PT2P_SLEEP"},
	    {"PT2P_EAGER_MAX", "PT2P_EAGER_MAX"},   {"=1", ""},
	    {"", ""},                               {"EAGER_MAX=1", ""},
	};
	for (const auto &t : tunables) {
		INFO(t.text);
		const char *list[] = {t.text, nullptr};
		options = PT2P_OPTIONS_INIT;
		options.tunables = list;
		reset();
		refused(nullptr, pt2p_init(&options, ctx), PT2P_ERR_TUNABLE, t.word);
		CHECK(ctx[0] == nullptr);
		refused(nullptr, pt2p_init_inprocess(2, PT2P_INPROCESS_COOPERATIVE, &options, ctx), PT2P_ERR_TUNABLE, t.word);
		CHECK(ctx[1] == nullptr);
	}
}

TEST_CASE("a transport list that reaches nobody")
{
	const char *list[] = {"PT2P_TRANSPORTS=self", nullptr};
	pt2p_options_t options = PT2P_OPTIONS_INIT;
	options.tunables = list;
	pt2p_context_t *ctx[2];
	const pt2p_status_t started = pt2p_init_inprocess(2, PT2P_INPROCESS_COOPERATIVE, &options, ctx);
	REQUIRE(started == PT2P_OK);
	char byte = 1;
	refused(ctx[0], pt2p_send(ctx[0], &byte, 1, 1, 0), PT2P_ERR_UNREACHABLE, "rank 1");
	pt2p_request_t *req = nullptr;
	refused(ctx[0], pt2p_isend(ctx[0], &byte, 1, 1, 0, &req), PT2P_ERR_UNREACHABLE, "rank 1");
	CHECK(req == nullptr);
	pt2p_message_t *message = nullptr;
	const uint64_t word = 0;
	refused(ctx[0], pt2p_probe(ctx[0], 1, 0, PT2P_TAG_EXACT, nullptr), PT2P_ERR_UNREACHABLE, "rank 1");
	refused(ctx[0], pt2p_mprobe(ctx[0], 1, 0, PT2P_TAG_EXACT, &message, nullptr), PT2P_ERR_UNREACHABLE, "rank 1");
	refused(ctx[0], pt2p_signal_wait(ctx[0], &word, 1, 1), PT2P_ERR_UNREACHABLE, "rank 1");
	CHECK(pt2p_send(ctx[0], &byte, 1, 0, 0) == PT2P_OK);
	CHECK(pt2p_recv(ctx[0], &byte, 1, 0, 0, PT2P_TAG_EXACT, nullptr) == PT2P_OK);
	CHECK(pt2p_finalize(ctx[0]) == PT2P_OK);
	CHECK(pt2p_finalize(ctx[1]) == PT2P_OK);

	const char *unknown[] = {"PT2P_TRANSPORTS=self,carrier_pigeon", nullptr};
	options.tunables = unknown;
	refused(nullptr, pt2p_init_inprocess(2, PT2P_INPROCESS_COOPERATIVE, &options, ctx), PT2P_ERR_TUNABLE, "carrier_pigeon");
}

TEST_CASE("pretended nodes are not reached by shm")
{
	const char *list[] = {"PT2P_RANKS_PER_NODE=1", nullptr};
	pt2p_options_t options = PT2P_OPTIONS_INIT;
	options.tunables = list;
	pt2p_context_t *ctx[2];
	REQUIRE(pt2p_init_inprocess(2, PT2P_INPROCESS_COOPERATIVE, &options, ctx) == PT2P_OK);
	pt2p_peer_info_t peer;
	CHECK(pt2p_peer_query(ctx[0], 1, &peer) == PT2P_OK);
	CHECK(peer.same_node == 0);
	char byte = 1;
	refused(ctx[0], pt2p_send(ctx[0], &byte, 1, 1, 0), PT2P_ERR_UNREACHABLE, "rank 1");
	CHECK(pt2p_finalize(ctx[0]) == PT2P_OK);
	CHECK(pt2p_finalize(ctx[1]) == PT2P_OK);
}

TEST_CASE("finalize with unfinished requests tells of them")
{
	Job job;
	char in[10], out[100000] = {};
	pt2p_request_t *req = nullptr;
	REQUIRE(pt2p_irecv(job[0], in, sizeof in, 1, 0x1234, PT2P_TAG_EXACT, &req) == PT2P_OK);
	refused(nullptr, pt2p_finalize(job[0]), PT2P_ERR_UNFINISHED, "0x1234");
	CHECK(std::string(pt2p_last_error(nullptr)).find("rank 1") != std::string::npos);
	job.contexts[0] = nullptr;

	// A rendezvous that nobody receives, with a short patience.
	const char *list[] = {"PT2P_FINALIZE_TIME=20ms", nullptr};
	pt2p_options_t options = PT2P_OPTIONS_INIT;
	options.tunables = list;
	pt2p_context_t *ctx[2];
	REQUIRE(pt2p_init_inprocess(2, PT2P_INPROCESS_COOPERATIVE, &options, ctx) == PT2P_OK);
	REQUIRE(pt2p_isend(ctx[0], out, sizeof out, 1, 0x77, &req) == PT2P_OK);
	refused(nullptr, pt2p_finalize(ctx[0]), PT2P_ERR_UNFINISHED, "100000 bytes");
	CHECK(pt2p_finalize(ctx[1]) == PT2P_OK);
}

TEST_CASE("messages to and from a rank that has finalized")
{
	Job job(3);
	char byte = 9;
	pt2p_request_t *req = nullptr;
	// What it sent before it left still arrives.
	REQUIRE(pt2p_send(job[1], &byte, 1, 0, 3) == PT2P_OK);
	REQUIRE(pt2p_irecv(job[0], &byte, 1, 1, 4, PT2P_TAG_EXACT, &req) == PT2P_OK);
	REQUIRE(pt2p_finalize(job[1]) == PT2P_OK);
	job.contexts[1] = nullptr;
	refused(job[0], pt2p_wait(job[0], req, nullptr), PT2P_ERR_PEER_FINALIZED, "rank 1");
	byte = 0;
	CHECK(pt2p_recv(job[0], &byte, 1, 1, 3, PT2P_TAG_EXACT, nullptr) == PT2P_OK);
	CHECK(byte == 9);
	refused(job[0], pt2p_send(job[0], &byte, 1, 1, 3), PT2P_ERR_PEER_FINALIZED, "rank 1");
	refused(job[0], pt2p_recv(job[0], &byte, 1, 1, 3, PT2P_TAG_EXACT, nullptr), PT2P_ERR_PEER_FINALIZED, "rank 1");
	refused(job[0], pt2p_probe(job[0], 1, 3, PT2P_TAG_EXACT, nullptr), PT2P_ERR_PEER_FINALIZED, "rank 1");
	auto *message = reinterpret_cast<pt2p_message_t *>(uintptr_t{5});
	refused(job[0], pt2p_mprobe(job[0], 1, 3, PT2P_TAG_EXACT, &message, nullptr), PT2P_ERR_PEER_FINALIZED, "rank 1");
	CHECK(message == nullptr);
	refused(job[0], pt2p_improbe(job[0], 1, 3, PT2P_TAG_EXACT, &message, nullptr), PT2P_ERR_PEER_FINALIZED, "rank 1");
	refused(job[0], pt2p_ssend(job[0], "x", 1, 1, 3), PT2P_ERR_PEER_FINALIZED, "rank 1");
	refused(job[0], pt2p_barrier(job[0]), PT2P_ERR_PEER_FINALIZED, "rank 1");
	pt2p_peer_info_t peer;
	CHECK(pt2p_peer_query(job[0], 1, &peer) == PT2P_OK);
	CHECK(peer.state == PT2P_PEER_FINALIZED);
	// The others go on.
	CHECK(pt2p_send(job[0], &byte, 1, 2, 3) == PT2P_OK);
	CHECK(pt2p_recv(job[2], &byte, 1, 0, 3, PT2P_TAG_EXACT, nullptr) == PT2P_OK);
}

TEST_CASE("texts, counters, queries")
{
	CHECK(std::string(pt2p_version()) == std::to_string(PT2P_VERSION_MAJOR) + "." + std::to_string(PT2P_VERSION_MINOR) +
	                                         "." + std::to_string(PT2P_VERSION_PATCH));
	CHECK(std::string(pt2p_strerror(PT2P_OK)) == "success");
	for (int code = -3; code < 40; ++code) {
		REQUIRE(pt2p_strerror(static_cast<pt2p_status_t>(code)) != nullptr);
		CHECK(strlen(pt2p_strerror(static_cast<pt2p_status_t>(code))) > 0);
	}
	REQUIRE(pt2p_counter_count() > 5);
	for (int i = 0; i < pt2p_counter_count(); ++i) {
		CHECK(strlen(pt2p_counter_name(i)) > 0);
		CHECK(strlen(pt2p_counter_help(i)) > 0);
	}
	for (int i : {-1, pt2p_counter_count(), INT_MAX, INT_MIN}) {
		CHECK(pt2p_counter_name(i) == nullptr);
		CHECK(pt2p_counter_help(i) == nullptr);
	}
	Job job(2, PT2P_THREAD_SERIALIZED);
	uint64_t value = 1;
	for (int i : {-1, pt2p_counter_count(), INT_MAX, INT_MIN})
		refused(job[0], pt2p_counter_read(job[0], i, &value), PT2P_ERR_ARGUMENT);
	pt2p_info_t info;
	CHECK(pt2p_query(job[1], &info) == PT2P_OK);
	CHECK(info.rank == 1);
	CHECK(info.size == 2);
	CHECK(info.local_rank == 1);
	CHECK(info.local_size == 2);
	CHECK(info.cpus > 0);
	CHECK(strlen(info.host) > 0);
	CHECK(info.thread_level == PT2P_THREAD_SERIALIZED);
	pt2p_peer_info_t peer;
	CHECK(pt2p_peer_query(job[0], 1, &peer) == PT2P_OK);
	CHECK(peer.state == PT2P_PEER_UNKNOWN);
	CHECK(peer.transport[0] == 0);
	CHECK(peer.same_node == 1);
	CHECK(pt2p_dump(job[0]) == PT2P_OK);

	for (const auto write : {pt2p_summary, pt2p_report}) {
		size_t needed = 0;
		CHECK(write(job[0], nullptr, 0, &needed) == PT2P_OK);
		REQUIRE(needed > 20);
		std::string text(needed, 'x');
		CHECK(write(job[0], text.data(), needed, nullptr) == PT2P_OK);
		CHECK(strlen(text.c_str()) == needed - 1);
		char small[6];
		memset(small, 'x', sizeof small);
		CHECK(write(job[0], small, 5, &needed) == PT2P_OK);
		CHECK(needed == text.size());
		CHECK(small[4] == 0);
		CHECK(small[5] == 'x');
		CHECK(text.compare(0, 4, small) == 0);
	}
}

TEST_CASE("memory: bad arguments")
{
	const Job job;
	pt2p_context_t *c = job[0];
	alignas(8) unsigned char bytes[64] = {};
	pt2p_memory_t *mem = reinterpret_cast<pt2p_memory_t *>(garbage[0]);
	void *address = bytes;
	size_t needed = 5;
	refused(c, pt2p_memory_register(c, bytes, 64, nullptr), PT2P_ERR_ARGUMENT, "mem");
	refused(c, pt2p_memory_register(c, nullptr, 64, &mem), PT2P_ERR_ARGUMENT, "address");
	CHECK(mem == nullptr);
	refused(c, pt2p_memory_register(c, bytes, 0, &mem), PT2P_ERR_LENGTH);
	refused(c, pt2p_memory_register(c, bytes, negative, &mem), PT2P_ERR_LENGTH, "-5");
	refused(c, pt2p_memory_allocate(c, 64, nullptr, &address), PT2P_ERR_ARGUMENT, "mem");
	refused(c, pt2p_memory_allocate(c, 64, &mem, nullptr), PT2P_ERR_ARGUMENT, "address");
	refused(c, pt2p_memory_allocate(c, negative, &mem, &address), PT2P_ERR_LENGTH, "-5");
	CHECK((mem == nullptr && address == nullptr));
	// More than there is: reserved when it is made, not found out later.
	struct sysinfo host;
	REQUIRE(sysinfo(&host) == 0);
	refused(c, pt2p_memory_allocate(c, (host.totalram + host.totalswap) * host.mem_unit, &mem, &address), PT2P_ERR_SHARED_MEMORY,
	        "bytes needed");
	CHECK((mem == nullptr && address == nullptr));
	refused(c, pt2p_memory_allocate(c, PTRDIFF_MAX, &mem, &address), PT2P_ERR_LENGTH, "this host has");
	CHECK((mem == nullptr && address == nullptr));
	refused(c, pt2p_memory_export(c, nullptr, bytes, 64, &needed), PT2P_ERR_MEMORY, "NULL");
	CHECK(needed == 0);
	REQUIRE(pt2p_memory_register(c, bytes, 64, &mem) == PT2P_OK);
	refused(c, pt2p_memory_export(c, mem, nullptr, 64, &needed), PT2P_ERR_ARGUMENT, "blob");
	refused(c, pt2p_memory_export(c, mem, bytes, 64, nullptr), PT2P_ERR_ARGUMENT, "needed");
	refused(c, pt2p_memory_export(c, mem, bytes, 64, &needed), PT2P_ERR_TRUNCATED, "room for 64");
	refused(job[1], pt2p_memory_export(job[1], mem, bytes, 64, &needed), PT2P_ERR_MEMORY); // another context's
	std::vector<unsigned char> blob(PT2P_EXPORT_MAX);
	REQUIRE(pt2p_memory_export(c, mem, blob.data(), blob.size(), &needed) == PT2P_OK);
	pt2p_remote_t *remote = nullptr, *other = nullptr;
	refused(c, pt2p_memory_import(c, 0, blob.data(), needed, nullptr), PT2P_ERR_ARGUMENT, "remote");
	refused(c, pt2p_memory_import(c, 0, nullptr, needed, &remote), PT2P_ERR_ARGUMENT, "blob");
	refused(c, pt2p_memory_import(c, 2, blob.data(), needed, &remote), PT2P_ERR_RANK, "2");
	refused(c, pt2p_memory_import(c, 0, blob.data(), needed - 1, &remote), PT2P_ERR_ARGUMENT);
	refused(c, pt2p_memory_import(c, 1, blob.data(), needed, &remote), PT2P_ERR_ARGUMENT, "rank 0");
	const Job another;
	refused(another[0], pt2p_memory_import(another[0], 0, blob.data(), needed, &remote), PT2P_ERR_ARGUMENT, "another job");
	REQUIRE(pt2p_memory_import(c, 0, blob.data(), needed, &remote) == PT2P_OK);
	REQUIRE(pt2p_memory_import(job[1], 0, blob.data(), needed, &other) == PT2P_OK);

	pt2p_remote_info_t info;
	refused(c, pt2p_remote_query(c, remote, nullptr), PT2P_ERR_ARGUMENT, "info");
	refused(c, pt2p_remote_query(c, other, &info), PT2P_ERR_MEMORY);
	refused(c, pt2p_remote_release(c, other), PT2P_ERR_MEMORY);
	pt2p_request_t *req = garbage[1];
	refused(c, pt2p_put(c, nullptr, 8, remote, 0, &req), PT2P_ERR_ARGUMENT, "buffer");
	CHECK(req == nullptr);
	refused(c, pt2p_get(c, bytes, negative, remote, 0, &req), PT2P_ERR_LENGTH, "-5");
	refused(c, pt2p_get(c, bytes, 8, remote, 57, &req), PT2P_ERR_BOUNDS, "57");
	refused(c, pt2p_get(c, bytes, 8, other, 0, &req), PT2P_ERR_MEMORY);
	refused(c, pt2p_put_signal(c, bytes, 8, remote, 0, nullptr, 8, PT2P_SIGNAL_SET, 1, &req), PT2P_ERR_MEMORY, "signal");
	refused(c, pt2p_put_signal(c, bytes, 8, remote, 0, remote, 12, PT2P_SIGNAL_SET, 1, &req), PT2P_ERR_BOUNDS, "aligned");
	pt2p_signal_t how;
	std::memset(&how, 7, sizeof how);
	refused(c, pt2p_put_signal(c, bytes, 8, remote, 0, remote, 8, how, 1, &req), PT2P_ERR_ARGUMENT, "how");
	for (pt2p_request_t *g : garbage) {
		auto *handle = reinterpret_cast<pt2p_remote_t *>(g);
		refused(c, pt2p_put(c, bytes, 8, handle, 0, &req), PT2P_ERR_MEMORY);
		refused(c, pt2p_fetch_add32(c, handle, 0, 1, nullptr, &req), PT2P_ERR_MEMORY);
		refused(c, pt2p_compare_swap64(c, handle, 0, 1, 2, nullptr, &req), PT2P_ERR_MEMORY);
		refused(c, pt2p_memory_release(c, reinterpret_cast<pt2p_memory_t *>(g)), PT2P_ERR_MEMORY);
	}
	refused(c, pt2p_flush(c, 2), PT2P_ERR_RANK, "2");
	refused(c, pt2p_fence(c, -1), PT2P_ERR_RANK, "-1");
	refused(c, pt2p_signal_wait(c, nullptr, 0, 0), PT2P_ERR_ARGUMENT, "word");
	refused(c, pt2p_signal_wait(c, reinterpret_cast<uint64_t *>(bytes + 4), 0, 0), PT2P_ERR_ARGUMENT, "aligned");
	refused(c, pt2p_signal_wait(c, reinterpret_cast<uint64_t *>(bytes), 0, 2), PT2P_ERR_RANK, "2");
	refused(c, pt2p_memory_gone(c, nullptr, 8), PT2P_ERR_ARGUMENT, "address");
	refused(c, pt2p_memory_gone(c, bytes + 8, 8), PT2P_ERR_ARGUMENT, "registered");
	// None of this did anything, and the context works.
	for (unsigned char byte : bytes)
		CHECK(byte == 0);
	CHECK(pt2p_put(c, "x", 1, remote, 5, nullptr) == PT2P_OK);
	CHECK(pt2p_flush_all(c) == PT2P_OK);
	CHECK(bytes[5] == 'x');
	CHECK(pt2p_remote_release(c, remote) == PT2P_OK);
	CHECK(pt2p_remote_release(job[1], other) == PT2P_OK);
	CHECK(pt2p_memory_release(c, mem) == PT2P_OK);
	CHECK(pt2p_memory_gone(c, bytes, 64) == PT2P_OK);
}

TEST_CASE("finalize drives one-sided operations to their end, and tells of those that have none")
{
	for (const char *time : {"PT2P_FINALIZE_TIME=10", "PT2P_FINALIZE_TIME=0"}) {
		const char *tunables[] = {"PT2P_ONE_SIDED=owner", time, nullptr};
		pt2p_options_t options = PT2P_OPTIONS_INIT;
		options.tunables = tunables;
		pt2p_context_t *ctx[2];
		REQUIRE(pt2p_init_inprocess(2, PT2P_INPROCESS_COOPERATIVE, &options, ctx) == PT2P_OK);
		pt2p_memory_t *mem = nullptr;
		pt2p_remote_t *remote = nullptr;
		void *address = nullptr;
		unsigned char blob[PT2P_EXPORT_MAX];
		size_t needed = 0;
		const size_t length = 1 << 20;
		std::vector<unsigned char> data(length, 7);
		REQUIRE(pt2p_memory_allocate(ctx[1], length, &mem, &address) == PT2P_OK);
		REQUIRE(pt2p_memory_export(ctx[1], mem, blob, sizeof blob, &needed) == PT2P_OK);
		REQUIRE(pt2p_memory_import(ctx[0], 1, blob, needed, &remote) == PT2P_OK);
		CHECK(pt2p_put(ctx[0], data.data(), length, remote, 0, nullptr) == PT2P_OK);
		CHECK(pt2p_fetch_add64(ctx[0], remote, 0, 0, nullptr, nullptr) == PT2P_OK);
		std::vector<char> text(10000);
		REQUIRE(pt2p_summary(ctx[0], text.data(), text.size(), nullptr) == PT2P_OK);
		CHECK(strstr(text.data(), "2 one-sided operations on memory of rank 1 not done") != nullptr);
		const bool drives = strcmp(time, "PT2P_FINALIZE_TIME=0") != 0;
		CHECK(pt2p_finalize(ctx[0]) == (drives ? PT2P_OK : PT2P_ERR_UNFINISHED));
		if (!drives)
			CHECK(strstr(pt2p_last_error(nullptr), "one-sided operations on memory of rank 1") != nullptr);
		CHECK((memcmp(address, data.data(), length) == 0) == drives);
		CHECK(pt2p_finalize(ctx[1]) == PT2P_OK);
	}
}

TEST_CASE("requests that are listed, looked at or given up: bad arguments")
{
	Job job;
	pt2p_context_t *c = job[0];
	char byte = 0;
	int flag = 5;
	size_t completed = 7, indices[2];
	pt2p_request_t *req = nullptr, *list[2] = {};
	refused(c, pt2p_waitsome(c, 1, nullptr, &completed, indices, nullptr), PT2P_ERR_ARGUMENT, "reqs");
	CHECK(completed == 0);
	refused(c, pt2p_testsome(c, 1, list, nullptr, indices, nullptr), PT2P_ERR_ARGUMENT, "completed");
	refused(c, pt2p_testsome(c, 1, list, &completed, nullptr, nullptr), PT2P_ERR_ARGUMENT, "indices");
	CHECK(pt2p_waitsome(c, 0, nullptr, &completed, nullptr, nullptr) == PT2P_OK);
	CHECK(pt2p_waitsome(c, 2, list, &completed, indices, nullptr) == PT2P_OK);
	CHECK(completed == 0);

	REQUIRE(pt2p_irecv(c, &byte, 1, 1, 5, PT2P_TAG_EXACT, &req) == PT2P_OK);
	refused(c, pt2p_request_query(c, req, nullptr, nullptr), PT2P_ERR_ARGUMENT, "done");
	refused(c, pt2p_request_callback(c, req, nullptr, nullptr), PT2P_ERR_ARGUMENT, "done");
	for (pt2p_request_t *bad : garbage) {
		list[0] = req;
		list[1] = bad;
		refused(c, pt2p_waitsome(c, 2, list, &completed, indices, nullptr), PT2P_ERR_REQUEST, "request 1 of the list");
		refused(c, pt2p_request_query(c, bad, &flag, nullptr), PT2P_ERR_REQUEST);
		CHECK(flag == 0);
		refused(c, pt2p_request_free(c, bad), PT2P_ERR_REQUEST);
		refused(c, pt2p_request_callback(c, bad, never, nullptr), PT2P_ERR_REQUEST);
	}
	refused(c, pt2p_request_free(c, nullptr), PT2P_ERR_REQUEST, "NULL");
	CHECK(pt2p_cancel(c, req) == PT2P_OK);
	CHECK(pt2p_request_free(c, req) == PT2P_OK); // completed already
	refused(c, pt2p_wait(c, req, nullptr), PT2P_ERR_REQUEST);

	refused(c, pt2p_isend_callback(c, &byte, 1, 1, 0, nullptr, nullptr), PT2P_ERR_ARGUMENT, "done");
	refused(c, pt2p_isend_callback(c, &byte, 1, 2, 0, never, nullptr), PT2P_ERR_RANK, "2");
	refused(c, pt2p_irecv_callback(c, nullptr, 1, 1, 0, 0, never, nullptr), PT2P_ERR_ARGUMENT, "buffer");
	refused(c, pt2p_irecv_callback(c, &byte, negative, 1, 0, 0, never, nullptr), PT2P_ERR_LENGTH);
	refused(c, pt2p_put_callback(c, &byte, 1, nullptr, 0, never, nullptr), PT2P_ERR_MEMORY, "NULL");
	refused(c, pt2p_get_callback(c, &byte, 1, nullptr, 0, nullptr, nullptr), PT2P_ERR_ARGUMENT, "done");
}

TEST_CASE("lists of segments: bad arguments")
{
	Job job;
	pt2p_context_t *c = job[0];
	char byte = 0;
	pt2p_request_t *req = nullptr;
	const pt2p_iovec_t good[] = {{&byte, 1}}, no_base[] = {{&byte, 1}, {nullptr, 0}, {nullptr, 3}},
	                   too_long[] = {{&byte, PTRDIFF_MAX}, {&byte, 1}}, negative_one[] = {{&byte, negative}};
	refused(c, pt2p_isendv(c, nullptr, 2, 1, 0, &req), PT2P_ERR_ARGUMENT, "list");
	refused(c, pt2p_irecvv(c, nullptr, 2, 1, 0, 0, &req), PT2P_ERR_ARGUMENT, "list");
	refused(c, pt2p_isendv(c, good, 1, 1, 0, nullptr), PT2P_ERR_ARGUMENT, "req");
	refused(c, pt2p_irecvv(c, good, 1, 1, 0, 0, nullptr), PT2P_ERR_ARGUMENT, "req");
	refused(c, pt2p_sendv(c, no_base, 3, 1, 0), PT2P_ERR_ARGUMENT, "segment 2");
	refused(c, pt2p_recvv(c, no_base, 3, 1, 0, 0, nullptr), PT2P_ERR_ARGUMENT, "segment 2");
	refused(c, pt2p_sendv(c, too_long, 2, 1, 0), PT2P_ERR_LENGTH, "segment 1");
	refused(c, pt2p_recvv(c, negative_one, 1, 1, 0, 0, nullptr), PT2P_ERR_LENGTH, "segment 0");
	refused(c, pt2p_isendv(c, good, SIZE_MAX, 1, 0, &req), PT2P_ERR_ARGUMENT, "count");
	refused(c, pt2p_sendv(c, good, 1, 2, 0), PT2P_ERR_RANK, "2");
	refused(c, pt2p_sendv(c, good, 1, PT2P_ANY_SOURCE, 0), PT2P_ERR_RANK);
	refused(c, pt2p_recvv(c, good, 1, -2, 0, 0, nullptr), PT2P_ERR_RANK, "-2");
	CHECK(req == nullptr);
}

TEST_CASE("the address of remote memory: bad arguments")
{
	Job job;
	void *address = &job;
	refused(job[0], pt2p_remote_address(job[0], nullptr, &address), PT2P_ERR_MEMORY, "NULL");
	CHECK(address == nullptr);
	refused(job[0], pt2p_remote_address(job[0], nullptr, nullptr), PT2P_ERR_ARGUMENT, "address");
}

namespace {

// What a callback was told.
struct Told {
	int calls = 0;
	pt2p_status_t status = PT2P_OK, again = PT2P_OK;
	bool explained = false;
};

void tell(pt2p_context_t *ctx, const pt2p_result_t *result, void *argument)
{
	auto *t = static_cast<Told *>(argument);
	++t->calls;
	t->status = result->status;
	t->explained = result->status == PT2P_OK || *pt2p_last_error(ctx);
	t->again = pt2p_isend_callback(ctx, nullptr, 0, pt2p_rank(ctx), 9, tell, argument);
}

} // namespace

TEST_CASE("finalize: what was given up or has a callback")
{
	pt2p_context_t *c = nullptr;
	REQUIRE(pt2p_init_inprocess(1, PT2P_INPROCESS_COOPERATIVE, nullptr, &c) == PT2P_OK);
	pt2p_request_t *req = nullptr;
	char byte = 0;
	Told told;
	SECTION("a receive with a callback that nothing matches")
	{
		REQUIRE(pt2p_irecv_callback(c, &byte, 1, 0, 5, PT2P_TAG_EXACT, tell, &told) == PT2P_OK);
		CHECK(pt2p_finalize(c) == PT2P_ERR_UNFINISHED);
		CHECK(std::string(pt2p_last_error(nullptr)).find("with a callback") != std::string::npos);
		CHECK(told.calls == 1);
		CHECK(told.status == PT2P_ERR_UNFINISHED);
		CHECK(told.again == PT2P_ERR_UNFINISHED);
	}
	SECTION("a receive that was given up and nothing matches")
	{
		REQUIRE(pt2p_irecv(c, &byte, 1, 0, 5, PT2P_TAG_EXACT, &req) == PT2P_OK);
		REQUIRE(pt2p_request_free(c, req) == PT2P_OK);
		CHECK(pt2p_finalize(c) == PT2P_ERR_UNFINISHED);
		CHECK(std::string(pt2p_last_error(nullptr)).find("1 receive has") != std::string::npos);
		CHECK(std::string(pt2p_last_error(nullptr)).find("given up") != std::string::npos);
	}
	SECTION("completed: nothing is left to tell")
	{
		REQUIRE(pt2p_irecv(c, &byte, 1, 0, 5, PT2P_TAG_EXACT, &req) == PT2P_OK);
		REQUIRE(pt2p_request_free(c, req) == PT2P_OK);
		REQUIRE(pt2p_send(c, "x", 1, 0, 5) == PT2P_OK);
		Told other;
		auto count = [](pt2p_context_t *, const pt2p_result_t *, void *argument) { ++static_cast<Told *>(argument)->calls; };
		REQUIRE(pt2p_isend_callback(c, "y", 1, 0, 6, count, &other) == PT2P_OK);
		CHECK(other.calls == 0);
		CHECK(pt2p_finalize(c) == PT2P_OK);
		CHECK(other.calls == 1);
		CHECK(byte == 'x');
	}
}
