// The job of a launcher that speaks PMIx: one put, one commit, lazy gets, no fence.
#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include <pmix.h>
#include <unistd.h>

#include "base/clock.hpp"
#include "base/config/config.hpp"
#include "base/job/job.hpp"
#include "base/job/pmix_calls.hpp"
#include "base/report/report.hpp"

namespace pt2p {

namespace {

constexpr std::chrono::milliseconds first_retry{1}, last_retry{200};
// A rank of this host is looked for in the launcher's shared memory before its server is asked: that spares the server,
// and the 40 ms that two messages in a row to it can take. For so long; longer when the process has joined before,
// since Open MPI 4.1 answers for a rank that has been there before only after 2 s.
constexpr std::chrono::milliseconds peek_first{40}, peek_again{1000}, last_peek{8};
constexpr unsigned abort_limit = 10; // seconds
// Whoever waits this long asks the launcher which ranks are alive at all, and again ever more rarely.
constexpr std::chrono::seconds first_census{1}, last_census{8};
// A rank that is seen to be gone is asked for in shorter intervals, and the launcher believed to know of no crash after a while.
constexpr std::chrono::milliseconds hurried_census{200}, end_patience{3000};
constexpr std::chrono::seconds census_limit{2}; // longest that a rank that leaves waits for the answer

class PmixJob final : public Job {
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
			throw Error(PT2P_ERR_LAUNCHER, format("the launcher says that this is rank %u of %d",
			                                      static_cast<unsigned>(me_.rank), size_));
		rank_ = static_cast<int>(me_.rank);
		const std::vector<int> on_host = read_local_peers();
		on_host_.insert(on_host.begin(), on_host.end());
		set_local_ranks(on_host, config.ranks_per_node);

		// The n-th job of this process meets the n-th of every other: a value that was read once is cached by PMIx for
		// good, so each time needs a key of its own.
		static std::atomic<unsigned> count{0};
		const unsigned number = count.fetch_add(1);
		key_ = format("pt2p.address.%u", number);
		peek_time_ = number ? peek_again : peek_first;
		watch();
	}

	const char *kind() const override { return "launched"; }

	void publish(const std::string &blob) override
	{
		pmix_value_t value;
		PMIX_VALUE_CONSTRUCT(&value);
		value.type = PMIX_BYTE_OBJECT;
		value.data.bo.bytes = const_cast<char *>(blob.data());
		value.data.bo.size = blob.size();
		pmix_status_t status = PMIx_Put(PMIX_GLOBAL, key_.c_str(), &value);
		const char *call = "PMIx_Put";
		if (status == PMIX_SUCCESS) {
			call = "PMIx_Commit";
			status = PMIx_Commit();
		}
		if (status != PMIX_SUCCESS)
			throw Error(PT2P_ERR_EXCHANGE, format("%s of the %zu bytes of this rank's address: %s", call, blob.size(),
			                                      status_text(status).c_str()));
		std::lock_guard lock(mutex_);
		known_[rank_] = blob;
	}

	std::string lookup(int rank) override
	{
		std::string blob;
		while (!try_lookup(rank, blob)) {
			std::shared_ptr<Answer> answer;
			auto retry = std::chrono::steady_clock::now();
			{
				std::lock_guard lock(mutex_);
				if (const auto found = asked_.find(rank); found != asked_.end()) {
					answer = found->second.answer;
					retry = found->second.not_before;
				}
			}
			// Woken by the answer, or after a while to look for news of the rank's end.
			if (answer) {
				std::unique_lock lock(answer->mutex);
				answer->changed.wait_for(lock, last_retry, [&] { return answer->done; });
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
		if (const auto found = known_.find(rank); found != known_.end()) {
			blob = found->second;
			return true;
		}
		Request &request = asked_[rank];
		const bool ahead = std::exchange(request.ahead, false);
		if (request.answer && take(rank, request)) {
			asked_.erase(rank);
			blob = known_[rank];
			return true;
		}
		const auto now = std::chrono::steady_clock::now();
		if (ahead && !request.answer) // what was not there some time ago may be there now
			request = {};
		if (request.since == std::chrono::steady_clock::time_point{})
			request.since = now;
		else if (now - request.since >= first_census)
			take_census(now);
		if (const auto lost = lost_.find(rank); lost != lost_.end())
			throw lost->second.in_order
				? Error(PT2P_ERR_PEER_FINALIZED, format("it ended before its address arrived: %s", lost->second.reason.c_str()))
				: Error(PT2P_ERR_PEER_LOST, format("it was lost before its address arrived: %s", lost->second.reason.c_str()));
		if (server_lost_)
			throw Error(PT2P_ERR_EXCHANGE, format("the launcher is gone; the address of rank %d cannot be had", rank));
		if (!request.answer && now >= request.not_before) {
			ask(rank, request, now);
			if (request.peeks && request.since == now)
				peek_ahead(rank, now);
		}
		return false;
	}

	bool next_event(RankEvent &event) override
	{
		bool server_lost = false, any = false;
		{
			std::lock_guard lock(mutex_);
			server_lost = std::exchange(server_lost_news_, false);
			if (!events_.empty()) {
				event = std::move(events_.front());
				events_.pop_front();
				any = true;
			}
			events_pending_.store(!events_.empty(), std::memory_order_relaxed);
		}
		if (server_lost)
			reporter_.log(LogLevel::warning, "the connection to the launcher is lost: no more news of other ranks");
		return any;
	}

	void check() override
	{
		std::lock_guard lock(mutex_);
		const auto now = std::chrono::steady_clock::now();
		if (next_census_ == std::chrono::steady_clock::time_point{})
			next_census_ = now + first_census;
		take_census(now);
	}

	End end_of(int rank, std::string &reason) override
	{
		std::lock_guard lock(mutex_);
		const auto now = std::chrono::steady_clock::now();
		const auto asked = ends_asked_.try_emplace(rank, now).first->second;
		next_census_ = std::min(next_census_, last_census_ + hurried_census);
		const auto pause = census_pause_; // of those that nobody hurries
		take_census(now);
		census_pause_ = pause;
		if (const auto lost = lost_.find(rank); lost != lost_.end()) {
			reason = lost->second.reason;
			return lost->second.in_order ? End::in_order : End::lost;
		}
		if (server_lost_)
			return End::unknown;
		// A launcher that answers no such question has sent an event of a crash.
		return now - asked >= end_patience ? End::in_order : End::asked;
	}

	int64_t without_launcher() override
	{
		const int64_t since = server_lost_at_.load(std::memory_order_relaxed);
		return since ? now_ns() - since : 0;
	}

	void keep(std::shared_ptr<void> thing) override { kept_.push_back(std::move(thing)); }

	void leave() override
	{
		if (!std::exchange(joined_, false))
			return;
		watched().remove(token_);
		end_census();
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
			throw Error(PT2P_ERR_LAUNCHER, format("the launcher does not tell the host of rank %td (%s), so there can be "
			                                      "no groups of nodes: unset PT2P_GROUPS and PT2P_ROUTE",
			                                      none - host_of.begin(), status_text(status).c_str()));
		return host_of;
	}

private:
	struct Request {
		std::shared_ptr<Answer> answer; // null: not under way
		std::chrono::steady_clock::time_point since{}, not_before{};
		std::chrono::milliseconds pause = first_retry;
		bool peeks = false; // only looks into shared memory
		bool ahead = false; // nobody has asked for it yet
	};

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
			throw Error(PT2P_ERR_LAUNCHER, format("the launcher does not tell the number of ranks: %s",
			                                      status_text(status).c_str()));
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

	// Starts a get; with mutex_ held. The server answers when the rank has committed; a peek answers at once.
	void ask(int rank, Request &request, std::chrono::steady_clock::time_point now)
	{
		auto answer = std::make_shared<Answer>();
		auto holder = std::make_unique<std::shared_ptr<Answer>>(answer);
		request.peeks = on_host_.count(rank) && now - request.since < peek_time_;
		const bool yes = true;
		PMIX_INFO_LOAD(&answer->peek[0], PMIX_OPTIONAL, &yes, PMIX_BOOL);
		pmix_proc_t peer;
		PMIX_PROC_LOAD(&peer, me_.nspace, static_cast<pmix_rank_t>(rank));
		const pmix_status_t status = PMIx_Get_nb(&peer, key_.c_str(), request.peeks ? answer->peek : nullptr,
		                                         request.peeks ? 1 : 0, on_answer, holder.get());
		if (status == PMIX_SUCCESS) {
			(void)holder.release(); // on_answer's now
			request.answer = std::move(answer);
		} else {
			refuse(rank, request, status);
		}
	}

	// Whoever asks for one rank after another is likely to go on: looks for those that follow, ever more of them, as several
	// peeks in a row wake PMIx's thread once. With mutex_ held.
	void peek_ahead(int rank, std::chrono::steady_clock::time_point now)
	{
		auto next = on_host_.upper_bound(rank);
		for (size_t looked = 0; looked < ahead_ && looked < on_host_.size(); ++looked, ++next) {
			if (next == on_host_.end())
				next = on_host_.begin();
			if (*next == rank_ || known_.count(*next) || asked_.count(*next))
				continue;
			Request request;
			request.since = now;
			try {
				ask(*next, request, now);
			} catch (const Error &) {
				return; // whoever asks for that rank will be told
			}
			request.since = {};
			request.ahead = true;
			asked_.emplace(*next, std::move(request));
		}
		ahead_ = 2 * ahead_ + 1;
	}

	// Takes a get's answer if it is there; with mutex_ held. Returns whether the blob is in known_ now.
	bool take(int rank, Request &request)
	{
		const std::shared_ptr<Answer> answer = request.answer;
		std::lock_guard lock(answer->mutex);
		if (!answer->done)
			return false;
		request.answer = nullptr;
		if (answer->status != PMIX_SUCCESS) {
			refuse(rank, request, answer->status);
			return false;
		}
		known_[rank] = std::move(answer->blob);
		return true;
	}

	void refuse(int rank, Request &request, pmix_status_t status)
	{
		if (!not_yet(status))
			throw Error(PT2P_ERR_EXCHANGE, format("PMIx_Get of the address of rank %d: %s", rank,
			                                      status_text(status).c_str()));
		request.not_before = std::chrono::steady_clock::now() + request.pause;
		request.pause = std::min(request.pause * 2, request.peeks ? last_peek : last_retry);
	}

	// Reads a census that has come in and asks for the next when it is due; with mutex_ held.
	void take_census(std::chrono::steady_clock::time_point now)
	{
		if (const auto census = census_) {
			std::lock_guard lock(census->mutex);
			if (!census->done)
				return;
			census_ = nullptr;
			for (const auto &[proc, state] : census->ends) {
				if (!is_peer(proc))
					continue;
				const int rank = static_cast<int>(proc.rank);
				// One that ended in order may have published before, and the answer be on its way; and so may be what it
				// has sent: not at first sight.
				const bool in_order = state == PMIX_PROC_STATE_TERMINATED;
				if (!in_order || !ended_.insert(rank).second)
					note_lost(rank, end_reason(state), in_order);
			}
		}
		if (now < next_census_ || server_lost_)
			return;
		census_ = std::make_shared<Census>(me_.nspace);
		last_census_ = now;
		next_census_ = now + census_pause_;
		census_pause_ = std::min(census_pause_ * 2, last_census);
		auto holder = std::make_unique<std::shared_ptr<Census>>(census_);
		const pmix_status_t status = PMIx_Query_info_nb(&census_->query, 1, on_census, holder.get());
		if (status == PMIX_SUCCESS)
			(void)holder.release(); // on_census's now
		else
			census_ = nullptr;
	}

	// PMIx's thread takes PMIx's lock for a query that has just begun, and PMIx_Finalize waits for that thread with the lock
	// held. What is asked for by PMIx_Get_nb takes no lock, and may never be answered: PMIx drops it.
	void end_census()
	{
		std::unique_lock lock(mutex_);
		const auto census = std::exchange(census_, nullptr);
		const bool answers = !server_lost_; // PMIx forgets queries when the connection breaks
		lock.unlock();
		if (!census || !answers)
			return;
		std::unique_lock waiting(census->mutex);
		census->changed.wait_for(waiting, census_limit, [&] { return census->done; });
	}

	bool is_peer(const pmix_proc_t &proc) const
	{
		return PMIX_CHECK_NSPACE(proc.nspace, me_.nspace) && proc.rank < static_cast<pmix_rank_t>(size_) &&
		       proc.rank != me_.rank;
	}

	// With mutex_ held.
	void note_lost(int rank, const std::string &reason, bool in_order = false)
	{
		const RankEvent event{rank, reason, in_order};
		if (!lost_.emplace(rank, event).second)
			return;
		events_.push_back(event);
		events_pending_.store(true, std::memory_order_relaxed);
	}

	void watch()
	{
		std::array<pmix_status_t, std::size(loss_codes) + 1> codes;
		for (size_t i = 0; i < std::size(loss_codes); i++)
			codes[i] = loss_codes[i].code;
		codes.back() = PMIX_ERR_LOST_CONNECTION;
		token_ = watched().add(this);
		pmix_info_t info[1];
		void *token = reinterpret_cast<void *>(token_);
		PMIX_INFO_LOAD(&info[0], PMIX_EVENT_RETURN_OBJECT, token, PMIX_POINTER);
		// Without a callback the call waits and returns the number of the handler.
		const pmix_status_t status =
			PMIx_Register_event_handler(codes.data(), codes.size(), info, 1, on_event, nullptr, nullptr);
		PMIX_INFO_DESTRUCT(&info[0]);
		if (status < 0)
			reporter_.log(LogLevel::info, "the launcher gives no news of lost ranks: %s", status_text(status).c_str());
	}

	// The jobs that events may go to. The handler stays registered until PMIx_Finalize, since to deregister it is one
	// more message to the server, slow as said above; so PMIx holds a number, looked up here, and not a pointer.
	class Watched {
	public:
		uintptr_t add(PmixJob *job)
		{
			std::lock_guard lock(mutex_);
			jobs_[++last_] = job;
			return last_;
		}
		void remove(uintptr_t token)
		{
			std::lock_guard lock(mutex_);
			jobs_.erase(token);
		}
		template <typename Action> void with(uintptr_t token, Action action)
		{
			std::lock_guard lock(mutex_);
			if (const auto found = jobs_.find(token); found != jobs_.end())
				action(*found->second);
		}

	private:
		std::mutex mutex_;
		uintptr_t last_ = 0;
		std::map<uintptr_t, PmixJob *> jobs_;
	};
	static Watched &watched()
	{
		// Never destroyed: PMIx's thread may outlive the destructors of static objects.
		static auto *jobs = new Watched;
		return *jobs;
	}

	// Runs on PMIx's thread.
	static void on_event(size_t, pmix_status_t status, const pmix_proc_t *source, pmix_info_t info[], size_t ninfo,
	                     pmix_info_t *, size_t, pmix_event_notification_cbfunc_fn_t done, void *data)
	{
		uintptr_t token = 0;
		const pmix_proc_t *affected = source;
		std::vector<pmix_proc_t> many;
		bool failed = true;
		for (size_t i = 0; i < ninfo; i++) {
			const pmix_value_t &value = info[i].value;
			if (PMIX_CHECK_KEY(&info[i], PMIX_EVENT_RETURN_OBJECT))
				token = reinterpret_cast<uintptr_t>(value.data.ptr);
			else if (PMIX_CHECK_KEY(&info[i], PMIX_EVENT_AFFECTED_PROC) && value.type == PMIX_PROC)
				affected = value.data.proc;
			else if (PMIX_CHECK_KEY(&info[i], PMIX_EVENT_AFFECTED_PROCS) && value.type == PMIX_DATA_ARRAY &&
			         value.data.darray && value.data.darray->type == PMIX_PROC)
				many.assign(static_cast<pmix_proc_t *>(value.data.darray->array),
				            static_cast<pmix_proc_t *>(value.data.darray->array) + value.data.darray->size);
			else if (PMIX_CHECK_KEY(&info[i], PMIX_EXIT_CODE) && value.type == PMIX_INT)
				failed = value.data.integer != 0;
		}
		if (many.empty() && affected)
			many.push_back(*affected);
		// A rank that ends in order says so itself; the launcher's word counts only when it tells of a failure.
		const bool in_order = (status == PMIX_EVENT_PROC_TERMINATED || status == PMIX_PROC_TERMINATED) && !failed;
		watched().with(token, [&](PmixJob &job) {
			if (status == PMIX_ERR_LOST_CONNECTION)
				job.lose_server();
			else if (!in_order)
				for (const auto &proc : many)
					job.lose(proc, status);
		});
		// Handlers of others in this process come next.
		if (done)
			done(PMIX_SUCCESS, nullptr, 0, nullptr, nullptr, data);
	}

	void lose(const pmix_proc_t &proc, pmix_status_t status)
	{
		if (!is_peer(proc))
			return;
		const auto *code = std::find_if(std::begin(loss_codes), std::end(loss_codes),
		                                [=](const LossCode &c) { return c.code == status; });
		const std::string reason = code != std::end(loss_codes) ? code->reason : status_text(status);
		std::lock_guard lock(mutex_);
		note_lost(static_cast<int>(proc.rank), reason);
	}

	void lose_server()
	{
		std::lock_guard lock(mutex_);
		if (std::exchange(server_lost_, true))
			return;
		server_lost_at_.store(now_ns(), std::memory_order_relaxed);
		server_lost_news_ = true;
		events_pending_.store(true, std::memory_order_relaxed);
	}

	Reporter &reporter_;
	pmix_proc_t me_{};
	bool joined_ = false;
	uintptr_t token_ = 0;
	std::set<int> on_host_; // ranks whose addresses come to be in shared memory, whatever nodes are pretended
	std::chrono::milliseconds peek_time_{};
	std::string key_;
	std::vector<std::shared_ptr<void>> kept_;

	std::mutex mutex_; // of what follows
	std::map<int, std::string> known_;
	std::map<int, Request> asked_;
	size_t ahead_ = 0; // ranks to look for beside one that is asked for
	std::map<int, RankEvent> lost_;
	std::map<int, std::chrono::steady_clock::time_point> ends_asked_; // since when
	std::set<int> ended_;
	std::shared_ptr<Census> census_; // under way or not yet read
	std::chrono::steady_clock::time_point next_census_{}, last_census_{};
	std::chrono::seconds census_pause_{first_census};
	std::deque<RankEvent> events_;
	bool server_lost_ = false, server_lost_news_ = false;
	std::atomic<int64_t> server_lost_at_{0};
};

} // namespace

std::unique_ptr<Job> join_pmix_job(const Config &config, Reporter &reporter)
{
	auto job = std::make_unique<PmixJob>(reporter);
	job->join(config);
	return job;
}

} // namespace pt2p
