// What a rank of the job knows of another one.
#pragma once

#include "tests/net/job.hpp"
#include "transports/verbs/net.hpp"

namespace net {

inline pt2p::verbs::NetPeer &peer_of(const Job &job, int rank = 0, int other = 1)
{
	return static_cast<pt2p::verbs::NetPeer &>(job.ctx[Job::index(rank)]->router->find(other)->endpoint);
}

// Rank 1 receives the numbers from 0 on, of uint32_t, from rank 0 and in this order.
inline void receive_numbers(const Job &job, uint32_t count, uint64_t tag)
{
	for (uint32_t wanted = 0; wanted < count; ++wanted) {
		uint32_t number = 99;
		REQUIRE(pt2p_recv(job.ctx[1], &number, sizeof number, 0, tag, PT2P_TAG_EXACT, nullptr) == PT2P_OK);
		CHECK(number == wanted);
	}
}

} // namespace net
