// The job: rank, size, node, the exchange of addresses, and news of lost ranks. There are four kinds of job: launched
// (PMIx), alone (no launcher), in-process (n contexts of one process), and open (no launcher, and peers come and go).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/job/secret.hpp"

namespace pt2p {

struct Config;
struct Topology;
class Reporter;

// News from the launcher about a rank.
struct RankEvent {
	int rank;
	std::string reason;    // "aborted", "terminated without finalizing", ...
	bool in_order = false; // it had left the job before it ended
};

class Job {
public:
	virtual ~Job() = default;

	virtual const char *kind() const = 0; // "launched", "alone", "in-process", "open"
	// An open job: each context numbers its peers by itself, and is number 0 to itself. A number that nobody has may
	// get an owner later. Size is how many numbers there are.
	bool open() const { return open_; }
	int rank() const { return rank_; }
	int size() const { return size_; }
	// What ranks call each other: this rank's number at a peer, negative while the peer has told none; and the peer's
	// own.
	virtual int rank_at(int peer) const { return (void)peer, rank_; }
	int own_rank_of(int peer) const { return open_ ? 0 : peer; }
	const std::string &id() const { return id_; }    // the same on all ranks, different for jobs that run side by side
	const Secret &secret() const { return secret_; } // of this rank; goes with its address blob

	// Ranks on this node in ascending order, this one included. With PT2P_RANKS_PER_NODE: on this pretended node.
	const std::vector<int> &local_ranks() const { return local_ranks_; }
	int local_rank() const { return local_rank_; } // position in local_ranks()
	int local_size() const { return static_cast<int>(local_ranks_.size()); }
	// Position of `rank` in local_ranks(), -1 when it is on another node.
	int local_index(int rank) const { return local_index_[static_cast<size_t>(rank)]; }
	// Ranks that share this node's devices.
	int device_sharers() const { return open_ ? 1 : local_size(); }
	// Ranks on this host, whatever nodes are pretended: those that share its CPUs.
	int host_size() const { return host_size_; }
	// The node of each rank, numbered densely in the order of their lowest ranks; this rank's is that of local_ranks().
	// A launched job looks it up in each call, some 10 us for each rank of the job, and throws Error(PT2P_ERR_LAUNCHER)
	// when the launcher does not tell. `hosts`, when given, becomes the host of each node, empty in an in-process job.
	std::vector<int> nodes(std::vector<std::string> *hosts = nullptr);

	// Publishes this rank's address blob: once, no fence.
	virtual void publish(const std::string &blob) = 0;
	// The blob of another rank; waits until that rank has published. Throws Error: PT2P_ERR_PEER_LOST when it is lost,
	// PT2P_ERR_PEER_FINALIZED when it has left, PT2P_ERR_EXCHANGE when the launcher fails.
	// PT2P_ERR_RANK when nobody has that number of an open job.
	virtual std::string lookup(int rank) = 0;
	// As lookup, but returns false at once when the blob is not there yet. The request stays in flight, so a repeated
	// call costs nothing.
	virtual bool try_lookup(int rank, std::string &blob) = 0;

	// ---- open jobs only: numbers get another owner when the last one has gone and is forgotten here

	// Whether a number is free.
	virtual bool nobody_has(int rank) const { return (void)rank, false; }
	// What next_event() told has been done: nothing goes to that rank any more.
	virtual void handled(int rank) { (void)rank; }
	// A number that wants another owner; false: there is none behind `position`, which begins at 0. `removed`: its
	// owner was removed, and messages of his are not wanted any more.
	virtual bool next_to_forget(size_t &position, int &rank, bool &removed)
	{
		return (void)position, (void)rank, (void)removed, false;
	}
	// All layers have forgotten its owner.
	virtual void forgotten(int rank) { (void)rank; }

	// True when next_event has something: one relaxed load.
	bool has_events() const { return events_pending_.load(std::memory_order_relaxed); }
	virtual bool next_event(RankEvent &event) = 0;
	// Asks the launcher, without waiting, for lost ranks that it has sent no event of; answers come as events. Keeps
	// its own pace (1 s, then ever more rarely), so a waiting call may call it as often as Transport::check.
	virtual void check() {}

	// For how long the launcher has been gone, ns; it then gives no news of other ranks. 0: it is there.
	virtual int64_t without_launcher() { return 0; }

	// Called in each turn of a waiting loop in place of yielding when the job is driven cooperatively; null otherwise.
	const std::function<void()> &step() const { return step_; }

	// How a rank ended whose process is known to be gone. `unknown`: there will be no answer. `asked`: the launcher has
	// been asked and will answer soon.
	enum class End { asked, in_order, lost, unknown };
	virtual End end_of(int rank, std::string &reason)
	{
		(void)rank, (void)reason;
		return End::unknown;
	}

	// Keeps something alive until the last context of this process has left the job (in-process peers hold pointers
	// into each other's segments).
	virtual void keep(std::shared_ptr<void> thing) = 0;

	// Leaves the job in order; the destructor does it too.
	virtual void leave() = 0;
	// Ends the job.
	[[noreturn]] virtual void abort(int code, const char *message) = 0;

protected:
	// Fills local_ranks_, local_rank_ and local_index_ from the host's ranks, honouring PT2P_RANKS_PER_NODE.
	void set_local_ranks(std::vector<int> host_ranks, int64_t ranks_per_node);
	// The name of each rank's host.
	virtual std::vector<std::string> host_of_each() { return std::vector<std::string>(static_cast<size_t>(size_)); }

	int rank_ = 0, size_ = 1, local_rank_ = 0, host_size_ = 1;
	int64_t ranks_per_node_ = 0; // pretended; 0: none are
	bool open_ = false;
	std::string id_;
	const Secret secret_ = random_secret();
	std::vector<int> local_ranks_{0}, local_index_{0};
	std::atomic<bool> events_pending_{false};
	std::function<void()> step_;
};

// Joins the launcher's job, or makes a job of one rank when nothing in the environment speaks of a launcher. Throws
// Error(PT2P_ERR_LAUNCHER) when launcher variables are set but no server answers.
std::unique_ptr<Job> join_job(const Config &config, const Topology &topology, Reporter &reporter);

// As join_job, for the launcher that the PMIX_ variables name.
std::unique_ptr<Job> join_pmix_job(const Config &config, Reporter &reporter);

// n jobs that are one another's peers inside this process. Rank i is at index i. `step`, when set, is called by a
// waiting rank in place of yielding (cooperative driving); it may throw nothing.
std::vector<std::unique_ptr<Job>> make_inprocess_jobs(int size, const Config &config,
                                                      std::function<void(int rank)> step);

// Declares `rank` lost to all others of the in-process job that `member` belongs to, as a launcher would; for tests of
// what survives. Does nothing for jobs of another kind.
void declare_lost(Job &member, int rank, const std::string &reason);

// For abort(): shows the message on standard error and flushes standard output if nobody holds it.
void announce_abort(int rank, const char *message);
// For abort(): ends this process without destructors. Codes outside 1 ... 255 become 1.
[[noreturn]] void end_process(int code);

} // namespace pt2p
