// What the library explains: at the end of a context, in a dump, and after a failure.
#include <catch2/catch.hpp>

#include <cstring>
#include <string>
#include <vector>

#include <pt2p.h>

#include "tests/stderr.hpp"

using Catch::Matchers::Contains;
using Catch::Matchers::StartsWith;

namespace {

constexpr size_t large = 1 << 20;

struct Pair {
	Pair() { REQUIRE(pt2p_init_inprocess(2, PT2P_INPROCESS_COOPERATIVE, nullptr, ctx) == PT2P_OK); }
	~Pair()
	{
		for (pt2p_context_t *c : ctx)
			if (c)
				pt2p_finalize(c);
	}
	void progress() const
	{
		for (int i = 0; i < 100; ++i)
			for (pt2p_context_t *c : ctx)
				if (c)
					pt2p_progress(c);
	}
	// What is left according to pt2p_finalize; empty: nothing.
	std::string finalize(int rank)
	{
		pt2p_context_t *c = ctx[rank];
		ctx[rank] = nullptr;
		return pt2p_finalize(c) == PT2P_OK ? "" : pt2p_last_error(nullptr);
	}
	pt2p_context_t *ctx[2] = {};
};

std::string dump(pt2p_context_t *ctx)
{
	pt2p_status_t status = PT2P_ERR_CONTEXT;
	const std::string text = stderr_of([&] { status = pt2p_dump(ctx); });
	CHECK(status == PT2P_OK);
	return text;
}

} // namespace

TEST_CASE("a send that could not be delivered is reported as failed, with the reason")
{
	Pair pair;
	std::vector<char> out(large);
	pt2p_request_t *request;
	REQUIRE(pt2p_isend(pair.ctx[0], out.data(), large, 1, 3, &request) == PT2P_OK);
	pair.progress();
	pair.finalize(1); // without a receive
	const std::string text = pair.finalize(0);
	CHECK_THAT(text, Contains("1 failed request was not waited for") &&
	                     Contains("first: send of 1048576 bytes to rank 1, tag 0x3, failed (peer has finalized: ") &&
	                     !Contains("done but not waited for"));
}

TEST_CASE("a synchronous send that nobody received is reported as such")
{
	Pair pair;
	const bool short_one = GENERATE(true, false);
	std::vector<char> out(large);
	const size_t length = short_one ? 8 : large;
	pt2p_request_t *request;
	REQUIRE(pt2p_issend(pair.ctx[0], out.data(), length, 1, 3, &request) == PT2P_OK);
	pair.progress();
	const std::string text = dump(pair.ctx[0]);
	CHECK_THAT(text, Contains("send of " + std::to_string(length) +
	                          " bytes to rank 1, tag 0x3, no receive there has matched it") &&
	                     !Contains("announced"));
	REQUIRE(pt2p_recv(pair.ctx[1], out.data(), length, 0, 3, PT2P_TAG_EXACT, nullptr) == PT2P_OK);
	CHECK(pt2p_wait(pair.ctx[0], request, nullptr) == PT2P_OK);
}

TEST_CASE("what is left at the end is counted in singular and plural, and errors come first")
{
	Pair pair;
	char in[2], out = 1;
	pt2p_request_t *request;
	REQUIRE(pt2p_isend(pair.ctx[0], &out, 1, 1, 1, &request) == PT2P_OK);
	REQUIRE(pt2p_isend(pair.ctx[0], &out, 1, 1, 1, &request) == PT2P_OK);
	REQUIRE(pt2p_irecv(pair.ctx[0], in, 1, 1, 9, PT2P_TAG_EXACT, &request) == PT2P_OK);
	pair.progress();
	CHECK_THAT(pair.finalize(0),
	           Contains("1 receive has not completed; 2 completed requests were not waited for; first: receive "));
	REQUIRE(pt2p_irecv(pair.ctx[1], in, 1, 0, 1, PT2P_TAG_EXACT, &request) == PT2P_OK);
	CHECK_THAT(pair.finalize(1), Contains("unfinished: 1 completed request was not waited for; first: receive "));
}

TEST_CASE("when two ranks both send to each other first, the explanation says what to do instead")
{
	Pair pair;
	std::vector<char> out(large), in(large);
	pt2p_request_t *sends[2], *receives[2];
	for (int i = 0; i < 2; ++i)
		REQUIRE(pt2p_isend(pair.ctx[i], out.data(), large, 1 - i, 5, &sends[i]) == PT2P_OK);
	pair.progress();
	for (pt2p_context_t *c : pair.ctx)
		CHECK_THAT(dump(c), Contains("no receive there has matched it") && Contains("advice: ") &&
		                        Contains("pt2p_sendrecv") && Contains("pt2p_isend"));
	// A rank that has posted a receive for something else, or has nothing to receive, is another case.
	REQUIRE(pt2p_irecv(pair.ctx[0], in.data(), large, 1, 6, PT2P_TAG_EXACT, &receives[0]) == PT2P_OK);
	CHECK_THAT(dump(pair.ctx[0]), !Contains("advice: "));
	REQUIRE(pt2p_cancel(pair.ctx[0], receives[0]) == PT2P_OK);
	pt2p_wait(pair.ctx[0], receives[0], nullptr);
	REQUIRE(pt2p_recv(pair.ctx[1], in.data(), large, 0, 5, PT2P_TAG_EXACT, nullptr) == PT2P_OK);
	CHECK_THAT(dump(pair.ctx[1]), !Contains("advice: "));
	REQUIRE(pt2p_recv(pair.ctx[0], in.data(), large, 1, 5, PT2P_TAG_EXACT, nullptr) == PT2P_OK);
	for (int i = 0; i < 2; ++i)
		REQUIRE(pt2p_wait(pair.ctx[i], sends[i], nullptr) == PT2P_OK);
}

TEST_CASE("an explanation begins with the text of the status and ends with the remedy")
{
	Pair pair;
	const pt2p_status_t status = pt2p_send(pair.ctx[0], nullptr, 0, 7, 0);
	REQUIRE(status == PT2P_ERR_RANK);
	CHECK_THAT(pt2p_last_error(pair.ctx[0]),
	           StartsWith(std::string(pt2p_strerror(status)) + ": ") && Contains(". Remedy: "));
}
