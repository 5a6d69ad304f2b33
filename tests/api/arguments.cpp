// SPDX-License-Identifier: BSD-3-Clause
// Bad arguments of every function: a status and an explanation, never a crash, and the context goes on working.
#include "tests/api/job.hpp"

#include <climits>
#include <cstring>
#include <string>
#include <vector>

TEST_CASE("a null context is refused by every function for messages and requests")
{
	int flag = 0;
	char byte = 0;
	size_t index = 0;
	uint64_t value = 0;
	pt2p_request_t *req = nullptr;
	pt2p_message_t *message = nullptr;
	pt2p_info_t info;
	pt2p_peer_info_t peer;
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
	    pt2p_waitsome(nullptr, 0, nullptr, &index, nullptr, nullptr),
	    pt2p_testsome(nullptr, 0, nullptr, &index, nullptr, nullptr),
	    pt2p_request_query(nullptr, nullptr, &flag, nullptr),
	    pt2p_request_free(nullptr, nullptr),
	    pt2p_request_callback(nullptr, nullptr, never, nullptr),
	    pt2p_isend_callback(nullptr, &byte, 1, 0, 0, never, nullptr),
	    pt2p_irecv_callback(nullptr, &byte, 1, 0, 0, 0, never, nullptr),
	    pt2p_isendv(nullptr, nullptr, 0, 0, 0, &req),
	    pt2p_irecvv(nullptr, nullptr, 0, 0, 0, 0, &req),
	    pt2p_sendv(nullptr, nullptr, 0, 0, 0),
	    pt2p_recvv(nullptr, nullptr, 0, 0, 0, 0, nullptr),
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
	CHECK(pt2p_set_delivery(c, 0, PT2P_DELIVERY_WRITE) == PT2P_OK); // has no effect
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
	// PT2P_ANY_SOURCE is for receives only.
	refused(c, pt2p_send(c, &byte, 1, PT2P_ANY_SOURCE, 0), PT2P_ERR_RANK);
	refused(c, pt2p_isend(c, &byte, 1, PT2P_ANY_SOURCE, 0, &req), PT2P_ERR_RANK);
	refused(c, pt2p_peer_query(c, PT2P_ANY_SOURCE, &peer), PT2P_ERR_RANK);
}

TEST_CASE("completed, foreign and invented requests are refused")
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

TEST_CASE("a context works after failures")
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

TEST_CASE("lists, queries, release and callbacks of requests: bad arguments")
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
