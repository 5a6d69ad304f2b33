// Ranks that leave while others connect to them.
#include "tests/net/job.hpp"

#include <chrono>
#include <stdexcept>
#include <string>
#include <utility>

#include "route/route.hpp"
#include "transports/verbs/net.hpp"

using namespace net;
using namespace std::chrono_literals;

namespace {

void leave(Job &job, int rank) { REQUIRE(pt2p_finalize(std::exchange(job.ctx[Job::index(rank)], nullptr)) == PT2P_OK); }

pt2p::Transport &rc_of(Job &job, int rank)
{
	for (auto &t : job.ctx[Job::index(rank)]->router->transports())
		if (std::string(t->table().name) == "rc")
			return *t;
	throw std::logic_error("no rc");
}

// Waits in a receive from rank 0 that ends because rank 0 is gone; returns what the error says.
std::string receive_in_vain(Job &job)
{
	char byte;
	CHECK(pt2p_recv(job.ctx[1], &byte, 1, 0, 1, PT2P_TAG_EXACT, nullptr) == PT2P_ERR_PEER_FINALIZED);
	return pt2p_last_error(job.ctx[1]);
}

} // namespace

TEST_CASE("a rank that leaves tells ranks whose connections are not made yet")
{
	Job job("rc", 2, {"PT2P_STALL_TIME=0"});
	const uint64_t word = 7;
	pt2p_request_t *request;
	REQUIRE(pt2p_isend(job.ctx[1], &word, sizeof word, 0, 2, &request) == PT2P_OK);
	SECTION("it has accepted, and not heard that they know")
	{
		// Only rank 0 works, until it has made its side of the connection.
		const auto limit = std::chrono::steady_clock::now() + 10s;
		while (rc_of(job, 0).trouble(1).empty()) {
			REQUIRE(std::chrono::steady_clock::now() < limit);
			pt2p_progress(job.ctx[0]);
		}
	}
	SECTION("it has not read their request") {}
	leave(job, 0);
	CHECK(receive_in_vain(job).find("it has called pt2p_finalize") != std::string::npos);
	pt2p_result_t result;
	pt2p_wait(job.ctx[1], request, &result);
	leave(job, 1);
}

TEST_CASE("a receive from a rank that left before it was known ends, and says that it has left")
{
	Job job("rc", 2, {"PT2P_STALL_TIME=0"});
	leave(job, 0);
	CHECK(receive_in_vain(job).find("it has left the job") != std::string::npos);
	leave(job, 1);
}
