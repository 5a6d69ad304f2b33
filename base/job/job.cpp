// What all kinds of jobs have in common, the job of one rank, and the choice of the kind.
#include "base/job/job.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>

#include <sys/random.h>
#include <unistd.h>

#include "base/config/config.hpp"
#include "base/job/topology.hpp"
#include "base/report/report.hpp"

namespace pt2p {

void Job::set_local_ranks(std::vector<int> host_ranks, int64_t ranks_per_node)
{
	// A launcher's list may be unsorted or, for a rank that it does not place, empty.
	host_ranks.push_back(rank_);
	std::sort(host_ranks.begin(), host_ranks.end());
	host_ranks.erase(std::unique(host_ranks.begin(), host_ranks.end()), host_ranks.end());
	const auto outside = [this](int r) { return r < 0 || r >= size_; };
	host_ranks.erase(std::remove_if(host_ranks.begin(), host_ranks.end(), outside), host_ranks.end());
	host_size_ = static_cast<int>(host_ranks.size());
	ranks_per_node_ = ranks_per_node;

	if (ranks_per_node > 0) {
		const int64_t mine = rank_ / ranks_per_node;
		host_ranks.erase(
		    std::remove_if(host_ranks.begin(), host_ranks.end(), [=](int r) { return r / ranks_per_node != mine; }),
		    host_ranks.end());
	}
	local_ranks_ = std::move(host_ranks);
	local_index_.assign(static_cast<size_t>(size_), -1);
	for (size_t i = 0; i < local_ranks_.size(); i++)
		local_index_[static_cast<size_t>(local_ranks_[i])] = static_cast<int>(i);
	local_rank_ = local_index_[static_cast<size_t>(rank_)];
}

std::vector<int> Job::nodes(std::vector<std::string> *hosts)
{
	const std::vector<std::string> host_of = host_of_each();
	std::map<std::pair<std::string, int64_t>, int> numbers; // a pretended node does not span hosts
	std::vector<int> node_of;
	if (hosts)
		hosts->clear();
	for (int rank = 0; rank < size_; rank++) {
		const std::string &host = host_of[static_cast<size_t>(rank)];
		const int64_t part = ranks_per_node_ > 0 ? rank / ranks_per_node_ : 0;
		const auto [found, first] = numbers.try_emplace({host, part}, static_cast<int>(numbers.size()));
		node_of.push_back(found->second);
		if (first && hosts)
			hosts->push_back(host);
	}
	return node_of;
}

void announce_abort(int rank, const char *message)
{
	if (message && *message) {
		write_to_stderr(format("libpt2p: rank %d aborts the job: %s\n", rank, message));
	}
	// The program's output so far helps to find the reason. A lock that another thread holds must not stop the end.
	if (ftrylockfile(stdout) == 0) {
		fflush_unlocked(stdout);
		funlockfile(stdout);
	}
}

void end_process(int code) { _exit(code >= 1 && code <= 255 ? code : 1); }

namespace {

class AloneJob final : public Job {
public:
	explicit AloneJob(const std::string &host) : host_(host)
	{
		uint64_t number = 0;
		if (getrandom(&number, sizeof number, GRND_NONBLOCK) != static_cast<ssize_t>(sizeof number))
			number = static_cast<uint64_t>(getpid()) << 32 ^ static_cast<uint64_t>(reinterpret_cast<uintptr_t>(this));
		id_ = format("alone-%016llx", static_cast<unsigned long long>(number));
		set_local_ranks({0}, 0);
	}
	~AloneJob() override { leave(); }

	const char *kind() const override { return "alone"; }
	void publish(const std::string &blob) override
	{
		blob_ = blob;
		published_ = true;
	}
	std::string lookup(int rank) override
	{
		std::string blob;
		if (!try_lookup(rank, blob))
			throw Error(PT2P_ERR_EXCHANGE, "this rank, the only one, has not published its address yet");
		return blob;
	}
	bool try_lookup(int rank, std::string &blob) override
	{
		if (rank != 0)
			throw Error(PT2P_ERR_EXCHANGE, format("rank %d is not in this job of one rank", rank));
		if (published_)
			blob = blob_;
		return published_;
	}
	bool next_event(RankEvent &) override { return false; }
	void keep(std::shared_ptr<void> thing) override { kept_.push_back(std::move(thing)); }
	void leave() override { kept_.clear(); }
	[[noreturn]] void abort(int code, const char *message) override
	{
		announce_abort(0, message);
		end_process(code);
	}

protected:
	std::vector<std::string> host_of_each() override { return {host_}; }

private:
	const std::string host_;
	bool published_ = false;
	std::string blob_;
	std::vector<std::shared_ptr<void>> kept_;
};

// A launcher that tells a process its rank by variables of its own. Open MPI always offers PMIx; the others do when
// asked to.
struct ForeignLauncher {
	const char *launcher, *rank, *size, *remedy;
	bool even_alone; // also refused when the size is 1
};

const ForeignLauncher foreign_launchers[] = {
    {"Open MPI's mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "start the program directly with mpirun, with its PMIX_ variables passed on, or unset the OMPI_COMM_WORLD_ "
     "variables",
     true},
    {"a PMI launcher (MPICH's mpirun)", "PMI_RANK", "PMI_SIZE",
     "start the program with Open MPI's mpirun, with prterun, or with srun --mpi=pmix", false},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS",
     "start the program with srun --mpi=pmix or with Open MPI's mpirun; to run it as a job of one rank, unset "
     "SLURM_PROCID",
     false},
    {"Flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "start the program with flux run -o pmi=pmix or with Open MPI's mpirun",
     false},
    {"MVAPICH's mpirun_rsh", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "start the program with Open MPI's mpirun",
     false},
};

void refuse_foreign_launchers()
{
	for (const auto &foreign : foreign_launchers) {
		const char *rank = environment(foreign.rank), *size = environment(foreign.size);
		if (!rank && !(size && foreign.even_alone))
			continue;
		// A job of one rank needs no launcher.
		if (!foreign.even_alone && size && std::strtol(size, nullptr, 10) <= 1)
			continue;
		const char *name = rank ? foreign.rank : foreign.size;
		std::string facts = format("%s=%s", name, rank ? rank : size);
		if (rank && size)
			facts += format(" and %s=%s", foreign.size, size);
		throw Error(PT2P_ERR_LAUNCHER,
		            format("%s: set by %s, which offers no PMIx here (PMIX_NAMESPACE is not set); %s", facts.c_str(),
		                   foreign.launcher, foreign.remedy));
	}
}

} // namespace

std::unique_ptr<Job> join_job(const Config &config, const Topology &topology, Reporter &reporter)
{
	std::unique_ptr<Job> job;
	bool launched = false;
	for (const char *name : {"PMIX_NAMESPACE", "PMIX_RANK", "PMIX_SERVER_URI41", "PMIX_SERVER_URI4", "PMIX_SERVER_URI3",
	                         "PMIX_SERVER_URI21", "PMIX_SERVER_URI2"})
		launched = launched || environment(name);
	if (launched) {
		job = join_pmix_job(config, reporter);
	} else {
		refuse_foreign_launchers();
		job = std::make_unique<AloneJob>(topology.host);
	}
	reporter.log(LogLevel::debug, "job %s (%s): rank %d of %d, %d on host %s, %d of them on this node, CPUs %s",
	             job->id().c_str(), job->kind(), job->rank(), job->size(), job->host_size(), topology.host.c_str(),
	             job->local_size(), cpu_ranges(topology.cpu_list).c_str());
	return job;
}

} // namespace pt2p
