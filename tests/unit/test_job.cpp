// SPDX-License-Identifier: BSD-3-Clause
// Jobs without a launcher: alone, in-process, on pretended nodes, and with what the environment says of launchers.
#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include <pt2p.h>

#include "base/config/config.hpp"
#include "base/job/job.hpp"
#include "base/job/topology.hpp"
#include "base/report/report.hpp"

using namespace pt2p;
using Catch::Matchers::Contains;

// PMIx never frees a few strings. The leak sanitizer is not to report them.
extern "C" __attribute__((weak)) const char *__lsan_default_suppressions() { return "leak:libpmix\n"; }

namespace {

const char *const launcher_variables[] = {
    "PMIX_NAMESPACE",       "PMIX_RANK",         "PMIX_SERVER_URI41", "PMIX_SERVER_URI4",
    "PMIX_SERVER_URI3",     "PMIX_SERVER_URI21", "PMIX_SERVER_URI2",  "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE", "PMI_RANK",          "PMI_SIZE",          "SLURM_PROCID",
    "SLURM_NTASKS",         "FLUX_TASK_RANK",    "FLUX_JOB_SIZE",     "MV2_COMM_WORLD_RANK",
    "MV2_COMM_WORLD_SIZE",
};

// Sets only these variables of launchers. The destructor restores the environment.
class Environment {
public:
	explicit Environment(const std::map<std::string, std::string> &variables)
	{
		for (const char *name : launcher_variables) {
			const char *value = std::getenv(name);
			before_[name] = value ? std::optional<std::string>(value) : std::nullopt;
			unsetenv(name);
		}
		for (const auto &[name, value] : variables)
			setenv(name.c_str(), value.c_str(), 1);
	}
	~Environment()
	{
		for (const auto &[name, value] : before_)
			if (value)
				setenv(name.c_str(), value->c_str(), 1);
			else
				unsetenv(name.c_str());
	}

private:
	std::map<std::string, std::optional<std::string>> before_;
};

std::unique_ptr<Job> join()
{
	static Reporter reporter;
	static const Topology topology;
	return join_job(Config{}, topology, reporter);
}

// The explanation with which joining is refused; empty when it succeeds.
std::string refusal(const std::map<std::string, std::string> &variables)
{
	Environment environment(variables);
	const auto start = std::chrono::steady_clock::now();
	std::string text;
	try {
		join();
	} catch (const Error &error) {
		CHECK(error.status() == PT2P_ERR_LAUNCHER);
		text = error.what();
	}
	CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(5));
	return text;
}

std::string error_of(Job &job, int rank, pt2p_status_t status = PT2P_ERR_EXCHANGE)
{
	try {
		job.lookup(rank);
	} catch (const Error &error) {
		CHECK(error.status() == status);
		return error.what();
	}
	return "";
}

} // namespace

TEST_CASE("without a launcher the job is alone", "[job]")
{
	Environment environment({});
	auto job = join();
	CHECK(std::string(job->kind()) == "alone");
	CHECK(job->rank() == 0);
	CHECK(job->size() == 1);
	CHECK(job->local_ranks() == std::vector<int>{0});
	CHECK(job->local_rank() == 0);
	CHECK(job->local_index(0) == 0);
	CHECK(job->host_size() == 1);
	std::vector<std::string> hosts;
	CHECK(job->nodes(&hosts) == std::vector<int>{0});
	CHECK(hosts.size() == 1);
	CHECK_FALSE(job->step());
	CHECK(job->id() != join()->id());

	std::string blob;
	CHECK_FALSE(job->try_lookup(0, blob));
	CHECK_THAT(error_of(*job, 0), Contains("not published"));
	CHECK_THAT(error_of(*job, 1), Contains("rank 1"));
	job->publish(std::string("a\0b", 3));
	CHECK(job->lookup(0) == std::string("a\0b", 3));
	CHECK(job->try_lookup(0, blob));
	RankEvent event;
	CHECK_FALSE(job->has_events());
	CHECK_FALSE(job->next_event(event));
	job->check();

	auto thing = std::make_shared<int>(1);
	job->keep(thing);
	CHECK(thing.use_count() == 2);
	job->leave();
	job->leave();
	CHECK(thing.use_count() == 1);
}

TEST_CASE("a PMIx launcher that does not answer is an error", "[job][launcher]")
{
	const std::string uri = "x.0;tcp4://127.0.0.1:1";
	const std::string text = refusal({{"PMIX_NAMESPACE", "x"}, {"PMIX_RANK", "0"}, {"PMIX_SERVER_URI41", uri}});
	CHECK_THAT(text, Contains("PMIX_NAMESPACE=x") && Contains("PMIX_SERVER_URI41=" + uri) && Contains("PMIx status") &&
	                     Contains("unset"));
	CHECK_THAT(refusal({{"PMIX_NAMESPACE", "x"}, {"PMIX_RANK", "0"}}), Contains("no PMIX_SERVER_URI"));
	CHECK_THAT(refusal({{"PMIX_RANK", "0"}}), Contains("PMIX_NAMESPACE is not"));
	CHECK_THAT(refusal({{"PMIX_NAMESPACE", "x"}}), Contains("PMIX_RANK is not"));
	CHECK_THAT(refusal({{"PMIX_SERVER_URI2", uri}}), Contains("PMIX_SERVER_URI2"));
	// Not for good: the next job of this process may be alone.
	CHECK(refusal({}).empty());
}

TEST_CASE("a launcher without PMIx is an error when it started several ranks", "[job][launcher]")
{
	CHECK_THAT(refusal({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}), Contains("PMI_RANK=1 and PMI_SIZE=2"));
	CHECK_THAT(refusal({{"PMI_RANK", "1"}}), Contains("PMI_RANK=1"));
	CHECK_THAT(refusal({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}), Contains("--mpi=pmix"));
	CHECK_THAT(refusal({{"FLUX_TASK_RANK", "0"}, {"FLUX_JOB_SIZE", "2"}}), Contains("FLUX_TASK_RANK=0"));
	CHECK_THAT(refusal({{"OMPI_COMM_WORLD_SIZE", "2"}}), Contains("OMPI_COMM_WORLD_SIZE=2"));
	CHECK_THAT(refusal({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}), Contains("COMM_WORLD_RANK"));
	CHECK(refusal({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}).empty());
	CHECK(refusal({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}}).empty());
	CHECK(refusal({{"SLURM_NTASKS", "4"}}).empty());
	CHECK(refusal({{"PMI_SIZE", "4"}}).empty());
}

TEST_CASE("in-process ranks read one another's blobs", "[job]")
{
	const int n = 8;
	auto jobs = make_inprocess_jobs(n, Config{}, nullptr);
	REQUIRE(jobs.size() == n);
	std::vector<std::thread> threads;
	std::vector<int> wrong(n, 0);
	for (int r = 0; r < n; r++)
		threads.emplace_back([&, r] {
			Job &job = *jobs[static_cast<size_t>(r)];
			// Half of them look up before they publish.
			if (r % 2)
				std::this_thread::sleep_for(std::chrono::milliseconds(20));
			job.publish("blob " + std::to_string(r));
			for (int i = 0; i < n; i++)
				if (job.lookup((r + i) % n) != "blob " + std::to_string((r + i) % n))
					wrong[static_cast<size_t>(r)]++;
		});
	for (auto &thread : threads)
		thread.join();
	CHECK(wrong == std::vector<int>(n, 0));
	for (int r = 0; r < n; r++) {
		CHECK(std::string(jobs[static_cast<size_t>(r)]->kind()) == "in-process");
		CHECK(jobs[static_cast<size_t>(r)]->rank() == r);
		CHECK(jobs[static_cast<size_t>(r)]->id() == jobs[0]->id());
		CHECK_FALSE(jobs[static_cast<size_t>(r)]->step());
	}
	CHECK(jobs[0]->id() != make_inprocess_jobs(1, Config{}, nullptr)[0]->id());
	CHECK_THROWS_AS(make_inprocess_jobs(0, Config{}, nullptr), Error);
	CHECK_THAT(error_of(*jobs[0], n), Contains("not in this job"));
	CHECK_THAT(error_of(*jobs[0], -1), Contains("not in this job"));
}

TEST_CASE("a lookup waits for the publication", "[job]")
{
	auto jobs = make_inprocess_jobs(2, Config{}, nullptr);
	std::string blob;
	CHECK_FALSE(jobs[0]->try_lookup(1, blob));
	std::thread late([&] {
		std::this_thread::sleep_for(std::chrono::milliseconds(50));
		jobs[1]->publish("late");
	});
	CHECK(jobs[0]->lookup(1) == "late");
	late.join();
	CHECK(jobs[0]->try_lookup(1, blob));
	CHECK(blob == "late");
	// Leaving does not take the blob away.
	jobs[1].reset();
	CHECK(jobs[0]->lookup(1) == "late");
}

TEST_CASE("a cooperative lookup steps instead of blocking", "[job]")
{
	std::vector<int> steps;
	std::vector<std::unique_ptr<Job>> jobs;
	jobs = make_inprocess_jobs(3, Config{}, [&](int rank) {
		steps.push_back(rank);
		if (steps.size() == 5)
			jobs[2]->publish("stepped");
	});
	CHECK(jobs[1]->lookup(2) == "stepped");
	CHECK(steps == std::vector<int>(5, 1));
	REQUIRE(jobs[0]->step());
	jobs[0]->step()();
	CHECK(steps.back() == 0);
}

TEST_CASE("the loss of an in-process rank is reported to all others, once", "[job]")
{
	auto jobs = make_inprocess_jobs(4, Config{}, nullptr);
	jobs[3]->leave();
	declare_lost(*jobs[0], 1, "killed by the test");
	declare_lost(*jobs[2], 1, "again");
	RankEvent event;
	for (size_t r : {0u, 2u}) {
		CHECK(jobs[r]->has_events());
		REQUIRE(jobs[r]->next_event(event));
		CHECK(event.rank == 1);
		CHECK(event.reason == "killed by the test");
		CHECK_FALSE(jobs[r]->has_events());
		CHECK_FALSE(jobs[r]->next_event(event));
	}
	CHECK_FALSE(jobs[1]->has_events());
	CHECK_FALSE(jobs[3]->has_events());
	CHECK_THAT(error_of(*jobs[0], 1, PT2P_ERR_PEER_LOST), Contains("killed by the test"));
	CHECK_THAT(error_of(*jobs[0], 3, PT2P_ERR_PEER_FINALIZED), Contains("has left"));

	Environment environment({});
	auto alone = join();
	declare_lost(*alone, 0, "nothing to declare");
	CHECK_FALSE(alone->has_events());
}

TEST_CASE("a blocked lookup ends when the rank is lost or leaves", "[job]")
{
	auto jobs = make_inprocess_jobs(3, Config{}, nullptr);
	std::thread later([&] {
		std::this_thread::sleep_for(std::chrono::milliseconds(30));
		declare_lost(*jobs[0], 1, "gone");
		std::this_thread::sleep_for(std::chrono::milliseconds(30));
		jobs[2]->leave();
	});
	CHECK_THAT(error_of(*jobs[0], 1, PT2P_ERR_PEER_LOST), Contains("gone"));
	CHECK_THAT(error_of(*jobs[0], 2, PT2P_ERR_PEER_FINALIZED), Contains("has left"));
	later.join();
}

TEST_CASE("what is kept lives until the last rank leaves", "[job]")
{
	auto jobs = make_inprocess_jobs(3, Config{}, nullptr);
	auto thing = std::make_shared<int>(1);
	std::weak_ptr<int> watch = thing;
	jobs[1]->keep(std::move(thing));
	jobs[1]->leave();
	jobs[0].reset();
	CHECK_FALSE(watch.expired());
	jobs[1].reset();
	CHECK_FALSE(watch.expired());
	jobs[2]->leave();
	CHECK(watch.expired());
}

TEST_CASE("what is kept may use the job while it is destroyed", "[job]")
{
	auto jobs = make_inprocess_jobs(2, Config{}, nullptr);
	Job *first = jobs[0].get();
	std::string seen;
	first->publish("still here");
	first->keep(std::shared_ptr<void>(nullptr, [&](void *) { first->try_lookup(0, seen); }));
	jobs[1]->leave();
	first->leave();
	CHECK(seen == "still here");
}

TEST_CASE("pretended nodes partition the ranks", "[job]")
{
	for (int size : {1, 2, 3, 4, 7, 8, 16, 33})
		for (int64_t per_node : {0, 1, 2, 3, 4, 5, 8, 32, 33, 34, 65536}) {
			CAPTURE(size, per_node);
			Config config;
			config.ranks_per_node = per_node;
			auto jobs = make_inprocess_jobs(size, config, nullptr);
			std::map<int, std::vector<int>> nodes; // by their first rank
			for (int r = 0; r < size; r++) {
				const Job &job = *jobs[static_cast<size_t>(r)];
				const auto &local = job.local_ranks();
				REQUIRE(std::is_sorted(local.begin(), local.end()));
				REQUIRE(local[static_cast<size_t>(job.local_rank())] == r);
				REQUIRE(job.host_size() == size);
				int here = 0;
				for (int other = 0; other < size; other++) {
					const int index = job.local_index(other);
					REQUIRE((index >= 0) == (per_node == 0 || other / per_node == r / per_node));
					if (index < 0)
						continue;
					here++;
					REQUIRE(index < job.local_size());
					REQUIRE(local[static_cast<size_t>(index)] == other);
				}
				REQUIRE(here == job.local_size());
				std::vector<std::string> hosts;
				const std::vector<int> node_of = jobs[static_cast<size_t>(r)]->nodes(&hosts);
				REQUIRE(node_of == jobs[0]->nodes());
				for (int other = 0; other < size; other++)
					REQUIRE((node_of[static_cast<size_t>(other)] == node_of[static_cast<size_t>(r)]) ==
					        (job.local_index(other) >= 0));
				REQUIRE(hosts == std::vector<std::string>(static_cast<size_t>(node_of.back() + 1)));
				auto &node = nodes[local.front()];
				REQUIRE((node.empty() || node == local));
				node = local;
			}
			std::multiset<int> all;
			for (const auto &[first, members] : nodes)
				all.insert(members.begin(), members.end());
			REQUIRE(all.size() == static_cast<size_t>(size));
			REQUIRE(std::set<int>(all.begin(), all.end()).size() == static_cast<size_t>(size));
		}
}

TEST_CASE("abort ends the process with the code and shows the message", "[job]")
{
	const std::map<int, int> codes{{7, 7}, {1, 1}, {255, 255}, {0, 1}, {256, 1}, {-3, 1}};
	for (const auto &[given, seen] : codes) {
		int output[2];
		REQUIRE(pipe(output) == 0);
		std::fflush(stdout); // else the child prints it again
		const pid_t child = fork();
		REQUIRE(child >= 0);
		if (child == 0) {
			dup2(output[1], STDERR_FILENO);
			make_inprocess_jobs(2, Config{}, nullptr)[1]->abort(given, "no more");
		}
		close(output[1]);
		char text[256];
		const ssize_t n = read(output[0], text, sizeof text);
		int status = 0;
		REQUIRE(waitpid(child, &status, 0) == child);
		close(output[0]);
		CHECK(WIFEXITED(status));
		CHECK(WEXITSTATUS(status) == seen);
		REQUIRE(n > 0);
		CHECK_THAT(std::string(text, static_cast<size_t>(n)), Contains("rank 1 aborts the job: no more"));
	}
}

TEST_CASE("two hundred ranks of a process leave without waiting for each other", "[job]")
{
	const pt2p_inprocess_mode_t mode = GENERATE(PT2P_INPROCESS_COOPERATIVE, PT2P_INPROCESS_THREADS);
	constexpr int n = 200;
	const char *tunables[] = {"PT2P_TRANSPORTS=self,shm", "PT2P_SHM_RING_BYTES=4k", "PT2P_SHM_RING_SLOTS=16", nullptr};
	pt2p_options_t options = PT2P_OPTIONS_INIT;
	options.tunables = tunables;
	std::vector<pt2p_context_t *> ctx(n);
	REQUIRE(pt2p_init_inprocess(n, mode, &options, ctx.data()) == PT2P_OK);
	// Some have met, most have not.
	for (int rank = 0; rank < n; rank += 2) {
		int word = rank;
		const auto r = static_cast<size_t>(rank);
		REQUIRE(pt2p_send(ctx[r], &word, sizeof word, rank + 1, 1) == PT2P_OK);
		REQUIRE(pt2p_recv(ctx[r + 1], &word, sizeof word, rank, 1, PT2P_TAG_EXACT, nullptr) == PT2P_OK);
	}
	const auto start = std::chrono::steady_clock::now();
	for (pt2p_context_t *c : ctx)
		CHECK(pt2p_finalize(c) == PT2P_OK);
	CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(1));
}
