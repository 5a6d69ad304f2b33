// SPDX-License-Identifier: BSD-3-Clause
// With groups of nodes: which ranks are reached by reliable connections and which by DC.
#include "job.hpp"

#include "route/groups/groups.hpp"

using net::Job;

namespace {

// Pretended nodes of two ranks each, in groups of two nodes: ranks 0 ... 3 and 4 ... 7.
Job job_of_groups(std::vector<std::string> more, const char *transports = "rc,dct")
{
	more.push_back("PT2P_RANKS_PER_NODE=2");
	more.push_back("PT2P_ROUTE=direct");
	more.push_back("PT2P_RC_CONNECTIONS=2"); // has no effect
	return Job(transports, 8, more);
}

std::string transport(const Job &job, int from, int to)
{
	pt2p_peer_info_t info{};
	REQUIRE(pt2p_peer_query(job.ctx[Job::index(from)], to, &info) == PT2P_OK);
	return info.transport;
}

std::string summary(const Job &job, int rank)
{
	std::vector<char> text(20000);
	REQUIRE(pt2p_summary(job.ctx[Job::index(rank)], text.data(), text.size(), nullptr) == PT2P_OK);
	return text.data();
}

} // namespace

TEST_CASE("with groups of nodes, rc is used inside of a group and dct between groups")
{
	Job job = job_of_groups({"PT2P_GROUPS=nodes:2"});
	REQUIRE(job.ctx[0]->router->policy().groups());
	for (int from : {0, 5})
		for (int to = 0; to < 8; ++to) {
			if (from == to)
				continue;
			job.warm_up(from, to);
			CAPTURE(from, to);
			CHECK(transport(job, from, to) == (from / 4 == to / 4 ? "rc" : "dct"));
			CHECK(transport(job, to, from) == transport(job, from, to));
		}
	const std::string text = summary(job, 0);
	CAPTURE(text);
	CHECK(text.find("rc: in another group (PT2P_GROUPS)") != text.npos);
}

TEST_CASE("without PT2P_GROUPS, PT2P_ROUTE=direct makes no groups")
{
	Job job = job_of_groups({});
	CHECK(!job.ctx[0]->router->policy().groups());
}

TEST_CASE("without dct, ranks of other groups are reached by rc")
{
	Job job = job_of_groups({"PT2P_GROUPS=0,3;1-2"}, "rc");
	job.warm_up(0, 2);
	CHECK(transport(job, 0, 2) == "rc");
}

TEST_CASE("ranks with different groups or routes report it")
{
	Job job = job_of_groups({"PT2P_GROUPS=nodes:2"});
	job.ctx[0]->config.route = pt2p::choice::route::forward; // as if it had started with another setting
	uint64_t word = 1;
	CHECK(pt2p_send(job.ctx[0], &word, sizeof word, 2, 1) == PT2P_ERR_UNREACHABLE);
	const std::string why = pt2p_last_error(job.ctx[0]);
	CAPTURE(why);
	CHECK(why.find("rank 2 has PT2P_ROUTE=direct and 2 groups of nodes (PT2P_GROUPS, checksum ") != why.npos);
	CHECK(why.find("and this rank, 0, has PT2P_ROUTE=forward and 2 groups of nodes") != why.npos);
}

TEST_CASE("groups that cannot be parsed are an error at the start")
{
	pt2p_context_t *ctx[2];
	const char *tunables[] = {"PT2P_GROUPS=0;2", "PT2P_TRANSPORTS=self,shm", nullptr};
	pt2p_options_t options = PT2P_OPTIONS_INIT;
	options.tunables = tunables;
	CHECK(pt2p_init_inprocess(2, PT2P_INPROCESS_COOPERATIVE, &options, ctx) == PT2P_ERR_TUNABLE);
	const std::string why = pt2p_last_error(nullptr);
	CAPTURE(why);
	CHECK(why.find("PT2P_GROUPS=\"0;2\": there is no node 2: this job has the nodes 0 to 0") != why.npos);
}
