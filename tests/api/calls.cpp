// SPDX-License-Identifier: BSD-3-Clause
// Calls in jobs whose ranks are driven one turn at a time: limits, deadlines in every queue, failures, and
// handlers that never reply.
#include "tests/api/calls.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <stdexcept>
#include <thread>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/stderr.hpp"

using namespace calls_test;

TEST_CASE("calls: a lane holds PT2P_CALL_QUEUE calls, and the next one is refused")
{
	CallJob job(3, {"PT2P_CALL_QUEUE=3"});
	Served served;
	pt2p_service_t *service = open(job[0], 7, reply_at_once, &served, 2);
	std::deque<Call> calls(9);
	for (size_t i = 0; i < 5; ++i) {
		calls[i].number = i;
		calls[i].start(job[1 + i % 2], 0, 7);
		job.turn();
	}
	calls[5].number = 5;
	calls[5].start(job[1], 0, 7, 1); // another lane
	for (int i = 0; i < 3; ++i)
		job.turn();
	for (size_t i = 0; i < 6; ++i) {
		const bool refused = i == 3 || i == 4;
		CHECK(calls[i].ended == int{refused});
		CHECK(calls[i].status == (refused ? PT2P_ERR_BUSY : PT2P_OK));
	}
	CHECK(counter(job[0], "calls_refused") == 2);
	// The explanation of a call that waits.
	pt2p_request_t *request = nullptr;
	REQUIRE(pt2p_icall(job[1], 0, 7, nullptr, 0, nullptr, 0, nullptr, &request) == PT2P_OK);
	refused(job[1], pt2p_wait(job[1], request, nullptr), PT2P_ERR_BUSY, "PT2P_CALL_QUEUE");
	// One that was taken makes room for one.
	size_t count = 0;
	REQUIRE(pt2p_serve(job[0], service, 0, 1, 0, &count) == PT2P_OK);
	CHECK(count == 1);
	for (size_t i = 6; i < 8; ++i) {
		calls[i].number = i;
		calls[i].start(job[1], 0, 7);
	}
	for (int i = 0; i < 3; ++i)
		job.turn();
	CHECK(calls[6].ended == 0);
	CHECK(calls[7].status == PT2P_ERR_BUSY);
	// A notice beyond the limit is dropped and counted.
	REQUIRE(pt2p_notify(job[2], 0, 7, nullptr, 0, nullptr) == PT2P_OK);
	for (int i = 0; i < 3; ++i)
		job.turn();
	CHECK(counter(job[0], "calls_refused") == 5);
	REQUIRE(pt2p_serve(job[0], service, 0, 100, 0, &count) == PT2P_OK);
	CHECK(count == 3);
	REQUIRE(pt2p_serve(job[0], service, 1, 100, 0, &count) == PT2P_OK);
	CHECK(count == 1);
	for (int i = 0; i < 3; ++i)
		job.turn();
	CHECK(served.numbers == std::vector<uint64_t>{0, 1, 2, 6, 5});
	for (size_t i = 0; i < 8; ++i)
		CHECK(calls[i].ended == 1);
	CHECK(job.turns_well);
}

TEST_CASE("calls: deadlines pass in every queue, and the server does not start what is late")
{
	CallJob job(2, {"PT2P_CALL_WINDOW=2", "PT2P_CALL_DEADLINE=10s"});
	Served served, kept;
	pt2p_service_t *service = open(job[1], 7, reply_at_once, &served, 1);
	open(job[1], 8, keep, &kept);
	pt2p_context_t *c = job[0];
	SECTION("while it waits for a slot at the caller")
	{
		std::deque<Call> calls(3);
		for (Call &call : calls)
			call.start(c, 1, 7, 0, &call == &calls[2] ? 2 * ms : 0);
		pt2p_request_t *request = nullptr;
		pt2p_call_options_t options = PT2P_CALL_OPTIONS_INIT;
		options.deadline = 2 * ms;
		REQUIRE(pt2p_icall(c, 1, 7, nullptr, 0, nullptr, 0, &options, &request) == PT2P_OK);
		refused(c, pt2p_wait(c, request, nullptr), PT2P_ERR_DEADLINE, "it has not left this rank");
		sleep_ms(1);
		job.turn();
		CHECK(calls[2].ended == 1);
		CHECK(calls[2].status == PT2P_ERR_DEADLINE);
		CHECK(counter(c, "calls_late") == 2);
		size_t count = 0;
		REQUIRE(pt2p_serve(job[1], service, 0, 10, 0, &count) == PT2P_OK);
		CHECK(count == 2);
		job.turn();
		CHECK((calls[0].ended == 1 && calls[0].status == PT2P_OK));
		CHECK((calls[1].ended == 1 && calls[1].status == PT2P_OK));
	}
	SECTION("in the lane, of a caller that does not notice it")
	{
		Call call;
		call.start(c, 1, 7, 0, 3 * ms);
		CHECK(pt2p_progress(job[1]) == PT2P_OK); // now it is in the lane
		sleep_ms(5);
		size_t count = 7;
		REQUIRE(pt2p_serve(job[1], service, 0, 10, 0, &count) == PT2P_OK);
		CHECK(count == 0);
		CHECK(served.numbers.empty());
		CHECK(counter(job[1], "calls_refused") == 1);
		job.turn();
		CHECK(call.ended == 1);
		CHECK(call.status == PT2P_ERR_DEADLINE);
		// So are notices.
		pt2p_call_options_t options = PT2P_CALL_OPTIONS_INIT;
		options.deadline = 1 * ms;
		REQUIRE(pt2p_notify(c, 1, 7, nullptr, 0, &options) == PT2P_OK);
		CHECK(pt2p_progress(job[1]) == PT2P_OK);
		sleep_ms(3);
		REQUIRE(pt2p_serve(job[1], service, 0, 10, 0, &count) == PT2P_OK);
		CHECK(count == 0);
		CHECK(counter(job[1], "calls_refused") == 2);
	}
	SECTION("while it runs: the server is told, and the slot comes back")
	{
		for (int round = 0; round < 5; ++round) { // more than there are slots
			Call call;
			call.start(c, 1, 8, 0, 20 * ms);
			job.turn();
			REQUIRE(kept.kept.size() == 1);
			pt2p_call_info_t info{};
			REQUIRE(pt2p_call_query(job[1], kept.kept[0], &info) == PT2P_OK);
			CHECK(info.remaining <= 20 * ms);
			if (round == 0)
				CHECK(info.remaining > 0);
			sleep_ms(21);
			for (int i = 0; i < 4; ++i)
				job.turn();
			CHECK(call.ended == 1);
			CHECK(call.status == PT2P_ERR_DEADLINE);
			REQUIRE(pt2p_call_query(job[1], kept.kept[0], &info) == PT2P_OK);
			CHECK(info.remaining == 0);
			CHECK(info.cancelled == 1);
			CHECK(pt2p_reply(job[1], kept.kept[0], 0, "late", 4) == PT2P_OK); // and is dropped
			kept.kept.clear();
			job.turn();
			CHECK(call.ended == 1);
		}
	}
	SECTION("the deadline that the environment gives")
	{
		Call call;
		call.start(c, 1, 8);
		job.turn();
		pt2p_call_info_t info{};
		REQUIRE(pt2p_call_query(job[1], kept.kept.at(0), &info) == PT2P_OK);
		CHECK(info.remaining > 5000 * ms);
		CHECK(info.remaining <= 10000 * ms);
		CHECK(pt2p_reply(job[1], kept.kept[0], 0, nullptr, 0) == PT2P_OK);
		job.turn();
		CHECK(call.ended == 1);
	}
	CHECK(job.turns_well);
}

TEST_CASE("calls: the longest deadlines and times are no short ones")
{
	CallJob job(2);
	Served kept;
	open(job[1], 8, keep, &kept);
	pt2p_service_t *lane = open(job[1], 9, keep, &kept, 1);
	Call call;
	// As a handler would pass on the time that its caller has left, when that is without end.
	call.start(job[0], 1, 8, 0, INT64_MAX);
	for (int i = 0; i < 3; ++i)
		job.turn();
	CHECK(call.ended == 0);
	REQUIRE(kept.kept.size() == 1);
	pt2p_call_info_t info{};
	REQUIRE(pt2p_call_query(job[1], kept.kept[0], &info) == PT2P_OK);
	CHECK(info.remaining > INT64_MAX / 2);
	CHECK(pt2p_reply(job[1], kept.kept[0], 0, nullptr, 0) == PT2P_OK);
	job.turn();
	CHECK((call.ended == 1 && call.status == PT2P_OK));
	// pt2p_serve waits for a call that comes later: in a cooperative job the other rank makes its turns meanwhile.
	Call soon, later;
	soon.start(job[0], 1, 9, 0, 20 * ms);
	later.start(job[0], 1, 9);
	size_t count = 0;
	REQUIRE(pt2p_serve(job[1], lane, 0, 2, INT64_MAX, &count) == PT2P_OK);
	CHECK(count >= 1);
	for (size_t i = 1; i < kept.kept.size(); ++i)
		CHECK(pt2p_reply(job[1], kept.kept[i], 0, nullptr, 0) == PT2P_OK);
	for (int i = 0; i < 3; ++i)
		job.turn();
	CHECK((soon.ended == 1 && later.ended == 1));
	CHECK(later.status == PT2P_OK);
}

TEST_CASE("calls: an exception that leaves a handler ends the program")
{
	const uint32_t lanes = GENERATE(0u, 1u);
	fflush(nullptr);
	const pid_t child = fork();
	REQUIRE(child >= 0);
	if (child == 0) {
		signal(SIGABRT, SIG_DFL); // not Catch's
		dup2(::open("/dev/null", O_WRONLY), STDERR_FILENO);
		pt2p_context_t *ctx = nullptr;
		pt2p_service_options_t options = PT2P_SERVICE_OPTIONS_INIT;
		options.lanes = lanes;
		pt2p_service_t *service = nullptr;
		const auto handler = [](pt2p_context_t *, pt2p_call_t *, const void *, size_t, void *) {
			throw std::runtime_error("of the handler");
		};
		pt2p_request_t *request = nullptr;
		if (pt2p_init_inprocess(1, PT2P_INPROCESS_COOPERATIVE, nullptr, &ctx) != PT2P_OK ||
		    pt2p_service_open(ctx, 7, handler, nullptr, &options, &service) != PT2P_OK ||
		    pt2p_icall(ctx, 0, 7, nullptr, 0, nullptr, 0, nullptr, &request) != PT2P_OK)
			_exit(1);
		pt2p_progress(ctx);
		if (lanes)
			pt2p_serve(ctx, service, 0, 1, 0, nullptr);
		_exit(2); // it was caught
	}
	int status = 0;
	REQUIRE(waitpid(child, &status, 0) == child);
	CHECK(WIFSIGNALED(status));
	CHECK(WTERMSIG(status) == SIGABRT);
}

TEST_CASE("calls: pt2p_serve ends in time while only late calls come")
{
	CallJob job(2);
	Served served;
	pt2p_service_t *lane = open(job[1], 7, reply_at_once, &served, 1);
	// Each call starts the next one when it has ended, and is late when it arrives.
	struct Chain {
		int left = 300000;
		static void next(pt2p_context_t *ctx, const pt2p_result_t *, void *argument)
		{
			auto &c = *static_cast<Chain *>(argument);
			pt2p_call_options_t options = PT2P_CALL_OPTIONS_INIT;
			options.deadline = 1;
			options.done = next;
			options.argument = argument;
			if (c.left-- > 0)
				CHECK(pt2p_icall(ctx, 1, 7, nullptr, 0, nullptr, 0, &options, nullptr) == PT2P_OK);
		}
	} chain;
	Chain::next(job[0], nullptr, &chain);
	size_t count = 0;
	CHECK(pt2p_serve(job[1], lane, 0, 1, 1 * ms, &count) == PT2P_OK);
	CHECK(count == 0);
	INFO(chain.left);
	CHECK(chain.left > 290000); // about 600 of these take 1 ms
	chain.left = 0;
	for (int i = 0; i < 10; ++i)
		job.turn();
	CHECK(served.numbers.empty());
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) // they end the program

namespace {

// Address space of a size that no machine has as memory.
struct Huge {
	static constexpr size_t bytes = size_t{1} << 45;
	Huge() : address(mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
	~Huge()
	{
		if (address != MAP_FAILED)
			munmap(address, bytes);
	}
	// Whether there is such address space, and malloc refuses as much memory.
	bool usable() const
	{
		void *volatile memory = malloc(bytes);
		free(memory);
		return address != MAP_FAILED && !memory;
	}
	void *address;
};

} // namespace

TEST_CASE("calls: memory that is lacking is the failure of one call")
{
	const Huge huge;
	if (!huge.usable()) {
		WARN("skipped: this system promises any amount of memory");
		return;
	}
	CallJob job(2);
	Served served, kept;
	open(job[1], 7, reply_at_once, &served, 0, PTRDIFF_MAX);
	open(job[1], 8, keep, &kept);
	pt2p_context_t *c = job[0];
	SECTION("at the server, for the input")
	{
		pt2p_request_t *request = nullptr;
		REQUIRE(pt2p_icall(c, 1, 7, huge.address, Huge::bytes, nullptr, 0, nullptr, &request) == PT2P_OK);
		for (int i = 0; i < 3; ++i)
			job.turn();
		int done = 0;
		CHECK(pt2p_test(c, request, &done, nullptr) == PT2P_ERR_NO_MEMORY);
		CHECK(done);
		CHECK(served.numbers.empty());
	}
	SECTION("at the server, for the reply: the call still needs one")
	{
		Call call;
		call.start(c, 1, 8);
		job.turn();
		REQUIRE(kept.kept.size() == 1);
		CHECK(pt2p_reply(job[1], kept.kept[0], 0, huge.address, Huge::bytes) == PT2P_ERR_NO_MEMORY);
		CHECK(pt2p_reply(job[1], kept.kept[0], 0, nullptr, 0) == PT2P_OK);
		job.turn();
		CHECK((call.ended == 1 && call.status == PT2P_OK));
	}
	SECTION("at the caller, for a copy of the input")
	{
		CHECK(pt2p_notify(c, 1, 7, huge.address, Huge::bytes, nullptr) == PT2P_ERR_NO_MEMORY);
	}
	// The job goes on, and nothing is left over.
	Call call;
	call.start(c, 1, 7);
	for (int i = 0; i < 3; ++i)
		job.turn();
	CHECK((call.ended == 1 && call.status == PT2P_OK));
	CHECK(job.turns_well);
}

#endif

TEST_CASE("calls: a failure belongs to its call, and progress and other calls go on")
{
	CallJob job(2, {"PT2P_CALL_QUEUE=1"});
	Served served, waiting;
	open(job[1], 7, reply_at_once, &served);
	pt2p_service_t *lane = open(job[1], 8, reply_at_once, &waiting, 1);
	open(job[1], 9, give_up, nullptr);
	std::deque<Call> good(50), no_service(10), given_up(10), late(10);
	std::vector<pt2p_request_t *> cancelled(10);
	Call taken, busy;
	taken.start(job[0], 1, 8, 0, 0);
	busy.start(job[0], 1, 8, 0, 0);
	for (size_t i = 0; i < good.size(); ++i) {
		good[i].number = i;
		good[i].start(job[0], 1, 7);
		const size_t n = i / 5;
		switch (i % 5) {
		case 0: no_service[n].start(job[0], 1, 999); break;
		case 1: given_up[n].start(job[0], 1, 9); break;
		case 2: late[n].start(job[0], 1, 7, 0, 1); break;
		case 3:
			REQUIRE(pt2p_icall(job[0], 1, 7, nullptr, 0, nullptr, 0, nullptr, &cancelled[n]) == PT2P_OK);
			CHECK(pt2p_cancel(job[0], cancelled[n]) == PT2P_OK);
			break;
		default: break;
		}
	}
	for (int i = 0; i < 20; ++i)
		job.turn();
	CHECK(job.turns_well);
	for (const Call &call : good)
		CHECK((call.ended == 1 && call.status == PT2P_OK));
	for (const Call &call : no_service)
		CHECK((call.ended == 1 && call.status == PT2P_ERR_NO_SERVICE));
	for (const Call &call : given_up)
		CHECK((call.ended == 1 && call.status == PT2P_ERR_ABANDONED));
	for (const Call &call : late)
		CHECK((call.ended == 1 && call.status == PT2P_ERR_DEADLINE));
	for (pt2p_request_t *request : cancelled) {
		const pt2p_status_t status = pt2p_wait(job[0], request, nullptr);
		CHECK((status == PT2P_ERR_CANCELLED || status == PT2P_OK));
	}
	CHECK(taken.ended == 0);
	CHECK((busy.ended == 1 && busy.status == PT2P_ERR_BUSY));
	REQUIRE(pt2p_service_close(job[1], lane) == PT2P_OK);
	for (int i = 0; i < 3; ++i)
		job.turn();
	CHECK((taken.ended == 1 && taken.status == PT2P_ERR_NO_SERVICE));
	CHECK(waiting.numbers.empty());
	CHECK(served.numbers.size() >= good.size());
	CHECK(served.numbers.size() <= good.size() + cancelled.size() + late.size());
}

TEST_CASE("calls: an id is open once, and again after its service has closed")
{
	CallJob job(2);
	Served first, second;
	pt2p_service_t *service = open(job[1], 7, keep, &first), *twice = service;
	refused(job[1], pt2p_service_open(job[1], 7, reply_at_once, &second, nullptr, &twice), PT2P_ERR_ARGUMENT,
	        "service 7 is open already");
	CHECK(twice == nullptr);
	Call kept, again;
	kept.start(job[0], 1, 7);
	job.turn();
	REQUIRE(first.kept.size() == 1);
	CHECK(pt2p_reply(job[1], first.kept[0], 0, nullptr, 0) == PT2P_OK);
	REQUIRE(pt2p_service_close(job[1], service) == PT2P_OK);
	refused(job[1], pt2p_service_close(job[1], service), PT2P_ERR_ARGUMENT, "closed");
	pt2p_service_t *reopened = open(job[1], 7, reply_at_once, &second);
	CHECK(reopened != service); // the old handle does not become that of the new service
	refused(job[1], pt2p_service_close(job[1], service), PT2P_ERR_ARGUMENT, "closed");
	again.start(job[0], 1, 7);
	for (int i = 0; i < 3; ++i)
		job.turn();
	CHECK((kept.ended == 1 && again.ended == 1));
	CHECK((first.numbers.size() == 1 && second.numbers.size() == 1));
}

TEST_CASE("calls: who is told of a handler that never replies")
{
	CallJob job(2, {"PT2P_STALL_TIME=30ms", "PT2P_FINALIZE_TIME=20ms"});
	Served served, queued;
	open(job[1], 7, keep, &served);
	pt2p_service_t *lane = open(job[1], 8, keep, &queued, 2);
	pt2p_request_t *request = nullptr, *waiting = nullptr;
	REQUIRE(pt2p_icall(job[0], 1, 7, "x", 1, nullptr, 0, nullptr, &request) == PT2P_OK);
	REQUIRE(pt2p_icall(job[0], 1, 8, "x", 1, nullptr, 0, nullptr, &waiting) == PT2P_OK);
	job.turn();
	REQUIRE(served.kept.size() == 1);
	// A wait of the rank that serves, for something else.
	pt2p_status_t status = PT2P_ERR_CONTEXT;
	const std::string text = stderr_of([&] { status = pt2p_serve(job[1], lane, 1, 1, 100 * ms, nullptr); });
	CHECK(status == PT2P_OK);
	INFO(text);
	CHECK(text.find("call of service 7 by rank 0: has no reply yet") != std::string::npos);
	CHECK(text.find("call of service 8 by rank 0: waits for pt2p_serve") != std::string::npos);
	// The caller has its request.
	{
		pt2p_call_options_t options = PT2P_CALL_OPTIONS_INIT;
		options.deadline = 100 * ms;
		pt2p_status_t late = PT2P_OK;
		const std::string report =
		    stderr_of([&] { late = pt2p_call(job[0], 1, 7, "x", 1, nullptr, 0, &options, nullptr); });
		INFO(report);
		CHECK(late == PT2P_ERR_DEADLINE);
		CHECK(report.find("call of service 7") != std::string::npos);
	}
	job.turn();
	refused(nullptr, pt2p_finalize(job[1]), PT2P_ERR_UNFINISHED, "call of service 7 by rank 0: has no reply yet");
	job.contexts[1] = nullptr;
	// The one that waited in the lane was refused; the other one's server is gone.
	CHECK(pt2p_wait(job[0], waiting, nullptr) == PT2P_ERR_NO_SERVICE);
	CHECK(pt2p_wait(job[0], request, nullptr) == PT2P_ERR_PEER_FINALIZED);
}

TEST_CASE("calls: a caller that finalizes names the calls that have no reply")
{
	CallJob job(2, {"PT2P_FINALIZE_TIME=20ms"});
	Served served;
	open(job[1], 7, keep, &served);
	pt2p_request_t *request = nullptr;
	REQUIRE(pt2p_icall(job[0], 1, 7, "x", 1, nullptr, 0, nullptr, &request) == PT2P_OK);
	job.turn();
	REQUIRE(served.kept.size() == 1);
	refused(nullptr, pt2p_finalize(job[0]), PT2P_ERR_UNFINISHED, "service 7");
	job.contexts[0] = nullptr;
	// The server learns that the caller is gone when it next looks after its peers.
	pt2p_call_info_t info{};
	for (int i = 0; i < 2000 && !info.cancelled; ++i) {
		sleep_ms(1);
		for (int k = 0; k < 1000; ++k)
			job.turn();
		REQUIRE(pt2p_call_query(job[1], served.kept[0], &info) == PT2P_OK);
	}
	CHECK(info.cancelled == 1);
	CHECK(info.caller == 0);
	CHECK(pt2p_reply(job[1], served.kept[0], 0, nullptr, 0) == PT2P_OK);
	CHECK(pt2p_reply(job[1], served.kept[0], 0, nullptr, 0) == PT2P_ERR_CALL);
}
