// The launched job, by PMIx: one put, one commit, lazy gets, no fence.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <utility>

#include <pmix.h>
#include <unistd.h>

#include "base/clock.hpp"
#include "base/config/config.hpp"
#include "base/job/job.hpp"
#include "base/job/pmix/addresses.hpp"
#include "base/job/pmix/calls.hpp"
#include "base/job/pmix/ends.hpp"
#include "base/job/pmix/events.hpp"
#include "base/report/report.hpp"

namespace pt2p {

namespace {

constexpr unsigned abort_limit = 10; // seconds

class PmixJob final : public Job, private EventListener {
public:
	explicit PmixJob(Reporter &reporter) : reporter_(reporter) {}
	~PmixJob() override { leave(); }

	void join(const Config &config)
	{
		if (!environment("PMIX_NAMESPACE") || !environment("PMIX_RANK"))
			throw Error(PT2P_ERR_LAUNCHER, format("%s: set by a launcher, but %s is not; pass all PMIX_ variables on "
			                                      "to the program, or unset them",
			                                      launcher_facts().c_str(),
			                                      environment("PMIX_NAMESPACE") ? "PMIX_RANK" : "PMIX_NAMESPACE"));
		me_ = start_pmix();
		joined_ = true;
		id_ = me_.nspace;
		size_ = read_size();
		if (me_.rank >= static_cast<pmix_rank_t>(size_))
			throw Error(PT2P_ERR_LAUNCHER,
			            format("the launcher says that this is rank %u of %d", static_cast<unsigned>(me_.rank), size_));
		rank_ = static_cast<int>(me_.rank);
		const std::vector<int> on_host = read_local_peers();
		set_local_ranks(on_host, config.ranks_per_node);

		// The n-th job of this process meets the n-th of every other process. PMIx caches a value for ever, so each job
		// needs a key of its own.
		static std::atomic<unsigned> count{0};
		const unsigned number = count.fetch_add(1);
		addresses_.begin(me_, format("pt2p.address.%u", number), {on_host.begin(), on_host.end()}, number != 0);
		ends_.begin(me_, size_);
		if (const pmix_status_t status = listen(*this, token_); status < 0)
			reporter_.log(LogLevel::info, "the launcher gives no news of lost ranks: %s", status_text(status).c_str());
	}

	const char *kind() const override { return "launched"; }

	void publish(const std::string &blob) override
	{
		pmix_value_t value;
		PMIX_VALUE_CONSTRUCT(&value);
		value.type = PMIX_BYTE_OBJECT;
		value.data.bo.bytes = const_cast<char *>(blob.data());
		value.data.bo.size = blob.size();
		pmix_status_t status = PMIx_Put(PMIX_GLOBAL, addresses_.key().c_str(), &value);
		const char *call = "PMIx_Put";
		if (status == PMIX_SUCCESS) {
			call = "PMIx_Commit";
			status = PMIx_Commit();
		}
		if (status != PMIX_SUCCESS)
			throw Error(PT2P_ERR_EXCHANGE, format("%s of the %zu bytes of this rank's address: %s", call, blob.size(),
			                                      status_text(status).c_str()));
		std::lock_guard lock(mutex_);
		addresses_.set(rank_, blob);
	}

	std::string lookup(int rank) override
	{
		std::string blob;
		while (!try_lookup(rank, blob)) {
			std::shared_ptr<Answer> answer;
			auto retry = std::chrono::steady_clock::now();
			{
				std::lock_guard lock(mutex_);
				answer = addresses_.in_flight(rank, retry);
			}
			// Until the answer comes, or for a while, to look for news of the rank's end.
			if (answer) {
				std::unique_lock lock(answer->mutex);
				answer->changed.wait_for(lock, Addresses::max_pause, [&] { return answer->done; });
			} else {
				std::this_thread::sleep_until(retry);
			}
		}
		return blob;
	}

	bool try_lookup(int rank, std::string &blob) override
	{
		if (rank < 0 || rank >= size_)
			throw Error(PT2P_ERR_EXCHANGE, format("rank %d is not in this job of %d ranks", rank, size_));
		std::lock_guard lock(mutex_);
		if (addresses_.take(rank, blob))
			return true;
		const auto now = std::chrono::steady_clock::now();
		if (addresses_.waited(rank, now) >= Ends::first_census)
			ends_.take_census(now);
		if (const RankEvent *lost = ends_.find(rank))
			throw lost->in_order
			    ? Error(PT2P_ERR_PEER_FINALIZED,
			            format("it ended before its address arrived: %s", lost->reason.c_str()))
			    : Error(PT2P_ERR_PEER_LOST, format("it was lost before its address arrived: %s", lost->reason.c_str()));
		if (ends_.server_lost())
			throw Error(PT2P_ERR_EXCHANGE, format("the launcher is gone; the address of rank %d cannot be had", rank));
		addresses_.ask(rank, now);
		return false;
	}

	bool next_event(RankEvent &event) override
	{
		bool server_lost = false, any = false;
		{
			std::lock_guard lock(mutex_);
			any = ends_.next_event(event, server_lost);
		}
		if (server_lost)
			reporter_.log(LogLevel::warning, "the connection to the launcher is lost: no more news of other ranks");
		return any;
	}

	void check() override
	{
		std::lock_guard lock(mutex_);
		ends_.check(std::chrono::steady_clock::now());
	}

	End end_of(int rank, std::string &reason) override
	{
		std::lock_guard lock(mutex_);
		return ends_.end_of(rank, reason, std::chrono::steady_clock::now());
	}

	int64_t without_launcher() override
	{
		const int64_t since = ends_.server_lost_at();
		return since ? now_ns() - since : 0;
	}

	void keep(std::shared_ptr<void> thing) override { kept_.push_back(std::move(thing)); }

	void leave() override
	{
		if (!std::exchange(joined_, false))
			return;
		unlisten(token_);
		ends_.end_census(mutex_);
		end_pmix(reporter_);
		kept_.clear();
	}

	[[noreturn]] void abort(int code, const char *message) override
	{
		announce_abort(rank_, message);
		// The end must come even when the launcher does not answer.
		std::signal(SIGALRM, SIG_DFL);
		sigset_t set;
		sigemptyset(&set);
		sigaddset(&set, SIGALRM);
		pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
		alarm(abort_limit);
		PMIx_Abort(code >= 1 && code <= 255 ? code : 1, message ? message : "pt2p_abort", nullptr, 0);
		end_process(code);
	}

protected:
	std::vector<std::string> host_of_each() override
	{
		std::vector<std::string> host_of(static_cast<size_t>(size_));
		pmix_status_t status = given_hosts(me_, host_of);
		if (status != PMIX_SUCCESS)
			status = queried_hosts(me_, host_of);
		const auto none = std::find(host_of.begin(), host_of.end(), "");
		if (none != host_of.end())
			throw Error(PT2P_ERR_LAUNCHER,
			            format("the launcher does not tell the host of rank %td (%s), so there can be "
			                   "no groups of nodes: unset PT2P_GROUPS, and set PT2P_ROUTE=direct",
			                   none - host_of.begin(), status_text(status).c_str()));
		return host_of;
	}

private:
	pmix_value_t *read_job_value(const char *key, pmix_status_t &status)
	{
		pmix_proc_t everyone;
		PMIX_PROC_LOAD(&everyone, me_.nspace, PMIX_RANK_WILDCARD);
		pmix_value_t *value = nullptr;
		status = PMIx_Get(&everyone, key, nullptr, 0, &value);
		return status == PMIX_SUCCESS ? value : nullptr;
	}

	int read_size()
	{
		pmix_status_t status;
		pmix_value_t *value = read_job_value(PMIX_JOB_SIZE, status);
		if (!value)
			throw Error(PT2P_ERR_LAUNCHER,
			            format("the launcher does not tell the number of ranks: %s", status_text(status).c_str()));
		const uint32_t size = value->type == PMIX_UINT32 ? value->data.uint32 : 0;
		PMIX_VALUE_RELEASE(value);
		if (size < 1 || size > INT32_MAX)
			throw Error(PT2P_ERR_LAUNCHER, "the launcher tells an impossible number of ranks");
		return static_cast<int>(size);
	}

	// "0,1,2", with ranges ("0-2") in case a launcher writes them.
	std::vector<int> read_local_peers()
	{
		std::vector<int> ranks;
		pmix_status_t status;
		pmix_value_t *value = read_job_value(PMIX_LOCAL_PEERS, status);
		if (!value || value->type != PMIX_STRING || !value->data.string) {
			reporter_.log(LogLevel::warning,
			              "the launcher does not tell which ranks share this host (%s): assuming none",
			              status_text(status).c_str());
		} else {
			for (const char *p = value->data.string; *p;) {
				char *end;
				const long first = std::strtol(p, &end, 10);
				if (end == p)
					break;
				long last = first;
				if (*end == '-')
					last = std::strtol(end + 1, &end, 10);
				for (long r = std::max(first, 0L); r <= last && r < size_; r++)
					ranks.push_back(static_cast<int>(r));
				p = *end == ',' ? end + 1 : end;
			}
		}
		if (value)
			PMIX_VALUE_RELEASE(value);
		return ranks;
	}

	// On PMIx's thread.
	void on_lost(const pmix_proc_t &process, pmix_status_t status) override
	{
		std::lock_guard lock(mutex_);
		ends_.lose(process, status);
	}
	void on_server_lost() override
	{
		std::lock_guard lock(mutex_);
		ends_.lose_server();
	}

	Reporter &reporter_;
	pmix_proc_t me_{};
	bool joined_ = false;
	uintptr_t token_ = 0;
	std::vector<std::shared_ptr<void>> kept_;

	std::mutex mutex_; // of what follows
	Addresses addresses_;
	Ends ends_{events_pending_};
};

} // namespace

std::unique_ptr<Job> join_pmix_job(const Config &config, Reporter &reporter)
{
	auto job = std::make_unique<PmixJob>(reporter);
	job->join(config);
	return job;
}

} // namespace pt2p
