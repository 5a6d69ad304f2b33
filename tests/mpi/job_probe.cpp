// SPDX-License-Identifier: BSD-3-Clause
// The job layer alone below a real launcher. Each mode checks one promise and exits with 0 when it holds:
//   exchange   every rank reads every other rank's blob, without a fence, three times over (leave and join again)
//   nodes N    as exchange, with N ranks on each pretended node
//   twice      two jobs at once in one process
//   news       a loss that the launcher reports arrives as an event, once
//   dead       rank 1 is killed before it publishes (mpirun --enable-recovery): the others learn of it
//   killed     rank 1 is killed after the exchange (mpirun --enable-recovery): the launcher says so when asked
//   leaving    the job is left while the launcher has not yet answered a question of any kind
//   abort      rank 1 ends the job with code 7
//   refuse     joining fails with PT2P_ERR_LAUNCHER within 5 seconds; prints the explanation
//   alone      joining gives a job of one rank
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <pmix.h>
#include <unistd.h>

#include "base/config/config.hpp"
#include "base/job/job.hpp"
#include "base/job/topology.hpp"
#include "base/report/report.hpp"

using namespace pt2p;

// PMIx never frees a few strings. The leak sanitizer is not to report them.
extern "C" __attribute__((weak)) const char *__lsan_default_suppressions() { return "leak:libpmix\n"; }
// Else a report ends at a C library function without a frame, and is not recognized.
extern "C" __attribute__((weak)) const char *__asan_default_options() { return "fast_unwind_on_malloc=0"; }

namespace {

int failures = 0;

void check(bool holds, const char *what, int line)
{
	if (holds)
		return;
	failures++;
	std::fprintf(stderr, "job_probe: line %d: %s\n", line, what);
}
#define EXPECT(...) check((__VA_ARGS__), #__VA_ARGS__, __LINE__)

double seconds()
{
	using namespace std::chrono;
	return duration<double>(steady_clock::now().time_since_epoch()).count();
}

void pause_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

std::string blob_of(const Job &job, int rank, int round)
{
	// Lengths differ, and bytes include zeros: blobs are not strings.
	std::string blob(static_cast<size_t>(40 + 17 * rank + round), '\0');
	for (size_t i = 0; i < blob.size(); i++)
		blob[i] = static_cast<char>(i * 7 + static_cast<size_t>(rank) * 31 + static_cast<size_t>(round));
	return job.id() + blob;
}

void check_places(const Job &job, int64_t ranks_per_node)
{
	EXPECT(job.rank() >= 0 && job.rank() < job.size());
	EXPECT(job.local_ranks()[static_cast<size_t>(job.local_rank())] == job.rank());
	int local = 0;
	for (int r = 0; r < job.size(); r++) {
		const bool here = ranks_per_node == 0 || r / ranks_per_node == job.rank() / ranks_per_node;
		EXPECT((job.local_index(r) >= 0) == here);
		if (job.local_index(r) < 0)
			continue;
		EXPECT(job.local_index(r) == local++);
		EXPECT(job.local_ranks()[static_cast<size_t>(job.local_index(r))] == r);
	}
	EXPECT(local == job.local_size());
	EXPECT(job.host_size() == job.size());
}

void check_nodes(Job &job, int64_t ranks_per_node)
{
	std::vector<std::string> hosts;
	const std::vector<int> node_of = job.nodes(&hosts);
	EXPECT(static_cast<int>(node_of.size()) == job.size());
	for (int r = 0; r < job.size(); r++)
		EXPECT(node_of[static_cast<size_t>(r)] == (ranks_per_node ? r / static_cast<int>(ranks_per_node) : 0));
	EXPECT(static_cast<int>(hosts.size()) == node_of.back() + 1);
	for (const std::string &host : hosts)
		EXPECT(!host.empty() && host == hosts[0]);
}

void exchange(const Config &config, const Topology &topology, Reporter &reporter)
{
	for (int round = 0; round < 3; round++) {
		auto job = join_job(config, topology, reporter);
		EXPECT(std::string(job->kind()) == "launched");
		check_places(*job, config.ranks_per_node);
		const int last = job->size() - 1;
		std::string blob;
		// The last rank is late, and the first looks up its blob before it can have published.
		if (job->rank() == last)
			pause_ms(100);
		else if (job->rank() == 0)
			EXPECT(!job->try_lookup(last, blob));
		job->publish(blob_of(*job, job->rank(), round));
		for (int i = 0; i < job->size(); i++) {
			const int r = (job->rank() + i) % job->size();
			if (r % 2) {
				while (!job->try_lookup(r, blob))
					pause_ms(1);
				EXPECT(blob == blob_of(*job, r, round));
			}
			EXPECT(job->lookup(r) == blob_of(*job, r, round));
		}
		bool refused = false;
		try {
			job->lookup(job->size());
		} catch (const Error &error) {
			refused = error.status() == PT2P_ERR_EXCHANGE;
		}
		EXPECT(refused);
		EXPECT(!job->has_events());
		check_nodes(*job, config.ranks_per_node);
		job->leave();
		job->leave();
	}
}

void twice(const Config &config, const Topology &topology, Reporter &reporter)
{
	auto first = join_job(config, topology, reporter), second = join_job(config, topology, reporter);
	first->publish("first of " + std::to_string(first->rank()));
	second->publish("second of " + std::to_string(second->rank()));
	for (int r = 0; r < first->size(); r++) {
		EXPECT(second->lookup(r) == "second of " + std::to_string(r));
		if (r == 0)
			continue;
		EXPECT(first->lookup(r) == "first of " + std::to_string(r));
	}
	first->leave();
	EXPECT(second->lookup(0) == "second of 0");
}

void news(const Config &config, const Topology &topology, Reporter &reporter)
{
	auto job = join_job(config, topology, reporter);
	if (job->size() < 2)
		return;
	const int other = job->rank() == 0 ? 1 : 0;
	pmix_proc_t me, lost;
	PMIX_PROC_LOAD(&me, job->id().c_str(), static_cast<pmix_rank_t>(job->rank()));
	PMIX_PROC_LOAD(&lost, job->id().c_str(), static_cast<pmix_rank_t>(other));
	for (int times = 0; times < 2; times++) {
		pmix_info_t info[2];
		PMIX_INFO_LOAD(&info[0], PMIX_EVENT_AFFECTED_PROC, &lost, PMIX_PROC);
		bool custom = true;
		PMIX_INFO_LOAD(&info[1], PMIX_EVENT_NON_DEFAULT, &custom, PMIX_BOOL);
		PMIx_Notify_event(PMIX_ERR_PROC_ABORTED_BY_SIG, &me, PMIX_RANGE_PROC_LOCAL, info, 2, nullptr, nullptr);
		const double start = seconds();
		while (!job->has_events() && seconds() - start < (times ? 0.2 : 5))
			pause_ms(1);
		RankEvent event{-1, ""};
		EXPECT(job->next_event(event) == (times == 0));
		if (times == 0) {
			EXPECT(event.rank == other);
			EXPECT(event.reason == "killed by a signal");
		}
		EXPECT(!job->has_events());
		EXPECT(!job->next_event(event));
	}
	bool refused = false;
	try {
		job->lookup(other);
	} catch (const Error &error) {
		refused = error.status() == PT2P_ERR_PEER_LOST && std::strstr(error.what(), "killed by a signal");
	}
	EXPECT(refused);
}

void dead(const Config &config, const Topology &topology, Reporter &reporter)
{
	auto job = join_job(config, topology, reporter);
	if (job->rank() == 1)
		raise(SIGKILL);
	job->publish("here");
	std::string blob, told;
	const double start = seconds();
	try {
		while (seconds() - start < 5 && !job->try_lookup(1, blob))
			pause_ms(10);
	} catch (const Error &error) {
		told = error.what();
	}
	EXPECT(blob.empty());
	std::printf("job_probe: rank %d after %.2f s: %s\n", job->rank(), seconds() - start, told.c_str());
	EXPECT(told.find("killed") != std::string::npos); // by a signal, or "aborted or killed": it depends on the timing
	RankEvent event{-1, ""};
	EXPECT(job->has_events());
	EXPECT(job->next_event(event));
	EXPECT(event.rank == 1);
	told.clear();
	try {
		job->lookup(1);
	} catch (const Error &error) {
		told = error.what();
	}
	EXPECT(told.find("killed") != std::string::npos);
	job->leave();
	EXPECT(seconds() - start < 10);
}

void killed(const Config &config, const Topology &topology, Reporter &reporter)
{
	auto job = join_job(config, topology, reporter);
	job->publish("here");
	for (int r = 0; r < job->size(); r++)
		EXPECT(job->lookup(r) == "here");
	if (job->rank() == 1) {
		pause_ms(300);
		raise(SIGKILL);
	}
	const double start = seconds();
	while (!job->has_events() && seconds() - start < 5) {
		job->check();
		pause_ms(1);
	}
	RankEvent event{-1, ""};
	if (job->next_event(event))
		std::printf("job_probe: rank %d after %.3f s: rank %d %s\n", job->rank(), seconds() - start, event.rank,
		            event.reason.c_str());
	EXPECT(event.rank == 1);
	EXPECT(job->lookup(1) == "here");
}

// A census has just been asked for; with `lookups`, so have addresses that nobody publishes.
void leaving(const Config &config, const Topology &topology, Reporter &reporter, bool lookups)
{
	auto job = join_job(config, topology, reporter);
	std::string blob;
	for (const double start = seconds(); seconds() - start < 1.05; pause_ms(5)) {
		for (int r = 0; lookups && r < job->size(); r++)
			EXPECT(r == job->rank() || !job->try_lookup(r, blob));
		if (seconds() - start < 0.02)
			job->check(); // the first is asked for a second later
	}
	job->check();
	const double start = seconds();
	job->leave();
	EXPECT(seconds() - start < 5);
}

void refuse(const Config &config, const Topology &topology, Reporter &reporter)
{
	for (int times = 0; times < 2; times++) {
		const double start = seconds();
		bool refused = false;
		try {
			join_job(config, topology, reporter);
		} catch (const Error &error) {
			refused = error.status() == PT2P_ERR_LAUNCHER;
			if (times == 0)
				std::printf("%s\n", error.what());
		}
		EXPECT(refused);
		EXPECT(seconds() - start < 5);
	}
}

} // namespace

int main(int argc, char **argv)
{
	const std::string mode = argc > 1 ? argv[1] : "exchange";
	Reporter reporter;
	Config config = load_config(nullptr).config;
	const Topology topology = read_topology();
	if (mode == "nodes")
		config.ranks_per_node = argc > 2 ? std::atol(argv[2]) : 1;
	try {
		if (mode == "exchange" || mode == "nodes") {
			exchange(config, topology, reporter);
		} else if (mode == "twice") {
			twice(config, topology, reporter);
		} else if (mode == "news") {
			news(config, topology, reporter);
		} else if (mode == "dead") {
			dead(config, topology, reporter);
		} else if (mode == "killed") {
			killed(config, topology, reporter);
		} else if (mode == "leaving") {
			leaving(config, topology, reporter, argc > 2);
		} else if (mode == "abort") {
			auto job = join_job(config, topology, reporter);
			if (job->rank() == 1)
				job->abort(7, "as the test wants it");
			pause_ms(20000);
			EXPECT(!"still here after rank 1 has aborted the job");
		} else if (mode == "refuse") {
			refuse(config, topology, reporter);
		} else if (mode == "alone") {
			auto job = join_job(config, topology, reporter);
			EXPECT(std::string(job->kind()) == "alone");
			check_places(*job, 0);
			EXPECT(job->size() == 1);
		} else {
			std::fprintf(stderr, "job_probe: unknown mode %s\n", mode.c_str());
			return 2;
		}
	} catch (const std::exception &error) {
		std::fprintf(stderr, "job_probe %s: %s\n", mode.c_str(), error.what());
		return 1;
	}
	return failures ? 1 : 0;
}
