// SPDX-License-Identifier: BSD-3-Clause
// The default: direct connections while they fit the device, and then as many as each rank's share.
#include "job.hpp"

#include "route/forward/relay.hpp"

using net::Job;

namespace {

// Pretended nodes of two ranks each. All connections of a node: 2 x 6.
Job job_of_nodes(const std::string &connections, const std::string &transports = "shm,rc,dct")
{
	return Job(transports, 8, {"PT2P_RANKS_PER_NODE=2", "PT2P_RC_CONNECTIONS=" + connections});
}

std::string summary(const Job &job, int rank)
{
	std::vector<char> text(20000);
	REQUIRE(pt2p_summary(job.ctx[Job::index(rank)], text.data(), text.size(), nullptr) == PT2P_OK);
	return text.data();
}

std::string routes(const Job &job)
{
	const std::string text = summary(job, 0), title = "  routes: ";
	const size_t at = text.find(title);
	REQUIRE(at != text.npos);
	const size_t begin = at + title.size();
	return text.substr(begin, text.find('\n', begin) - begin);
}

// Rank 0 and each of the ranks in turn.
void talk(Job &job, const std::vector<int> &ranks, int times)
{
	for (int i = 0; i < times; ++i)
		for (const int rank : ranks)
			job.warm_up(0, rank);
}

} // namespace

TEST_CASE("a job whose connections fit the device has no relay")
{
	Job job = job_of_nodes("12");
	talk(job, {1, 2, 3, 4, 5, 6, 7}, 1);
	CHECK(!job.ctx[0]->router->relay());
	CHECK(!job.ctx[0]->router->policy().groups());
	CHECK(routes(job) ==
	      "all ranks directly: a node with 2 ranks needs up to 12 reliable connections, and its device has "
	      "room for 12 (PT2P_RC_CONNECTIONS)");
	CHECK(job.counter(0, "rc_messages") == 6);
}

TEST_CASE("a rank with few partners gets connections to them, one with many has messages forwarded")
{
	Job job = job_of_nodes("11");
	const pt2p::Relay *relay = job.ctx[0]->router->relay();
	REQUIRE(relay);
	CHECK(routes(job) ==
	      "few ranks directly, many by forwarders: a node with 2 ranks needs up to 12 reliable connections, "
	      "and its device has room for 11 (PT2P_RC_CONNECTIONS)");

	// Ranks 3, 5 and 7 are at another place of their nodes than rank 0. The share is 5.
	talk(job, {3, 5}, 40);
	CHECK(job.counter(0, "forward_sent") > 0);
	CHECK(summary(job, 0).find("this rank talks with few ranks of its group at a time, and has connected to 2 of 5") !=
	      std::string::npos);
	const uint64_t before = job.counter(0, "forward_sent");
	talk(job, {3, 5}, 100);
	CHECK(job.counter(0, "forward_sent") == before);
	CHECK(job.counter(0, "dct_messages") == 0);
}

TEST_CASE("with more partners than its share, a rank goes back to forwarding")
{
	Job job = job_of_nodes("4"); // the share is 2, and there are two groups of two nodes
	talk(job, {3}, 100);
	uint64_t before = job.counter(0, "forward_sent");
	talk(job, {3}, 10);
	CHECK(job.counter(0, "forward_sent") == before);

	Job large("shm,rc,dct", 16, {"PT2P_RANKS_PER_NODE=4", "PT2P_RC_CONNECTIONS=12"}); // the share is 3
	talk(large, {5, 6, 9, 10}, 40);
	before = large.counter(0, "forward_sent");
	talk(large, {5, 6, 9, 10}, 10);
	CHECK(large.counter(0, "forward_sent") == before + 40);
	CHECK(summary(large, 0).find("this rank talks with many ranks of its group at a time") != std::string::npos);
}

TEST_CASE("initiators are chosen, and made when dct is first used")
{
	Job few("rc,dct", 2, {"PT2P_RANKS_PER_NODE=1"}), many("rc,dct", 2, {"PT2P_RC_CONNECTIONS=8"});
	CHECK(few.ctx[0]->config.dct_initiators == 16);
	CHECK(many.ctx[0]->config.dct_initiators == 1);
	const uint32_t before = softhca_queue_pairs(-1);
	few.warm_up();
	CHECK(softhca_queue_pairs(-1) == before + 2); // a connection
	Job dct("dct", 2);
	const uint32_t made = softhca_queue_pairs(-1);
	dct.exchange(0, 1);
	CHECK(softhca_queue_pairs(-1) >= made + 15);
}
