// The job of a launcher that speaks PMIx: one put, one commit, lazy gets, no fence.
#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include <pmix.h>
#include <unistd.h>

#include "config/config.hpp"
#include "job/job.hpp"
#include "report/report.hpp"

namespace pt2p {

namespace {

// A server that accepts a connection and never answers, or an address that swallows packets, must not hang the program.
constexpr std::chrono::seconds start_limit{30};
constexpr std::chrono::milliseconds first_retry{1}, last_retry{200};
constexpr unsigned abort_limit = 10; // seconds
// Whoever waits this long asks the launcher which ranks are alive at all, and again ever more rarely.
constexpr std::chrono::seconds first_census{1}, last_census{8};

std::string status_text(pmix_status_t status)
{
	const char *text = PMIx_Error_string(status);
	return format("PMIx status %s (%d)", text ? text : "unknown", status);
}

// What the environment says of the launcher, for explanations.
std::string launcher_facts()
{
	std::string facts;
	for (const char *name : {"PMIX_NAMESPACE", "PMIX_RANK"})
		if (const char *value = environment(name))
			facts += format("%s%s=%s", facts.empty() ? "" : ", ", name, value);
	for (const char *name :
	     {"PMIX_SERVER_URI41", "PMIX_SERVER_URI4", "PMIX_SERVER_URI3", "PMIX_SERVER_URI21", "PMIX_SERVER_URI2"})
		if (const char *value = environment(name))
			return facts + format("%s%s=%s", facts.empty() ? "" : ", ", name, value);
	return facts + "; no PMIX_SERVER_URI variable is set";
}

// PMIx_Init of a helper thread, so that it can be given up. The thread blocks all signals, and PMIx's own thread
// inherits that: the program's signals stay with the program's threads.
struct Start {
	std::mutex mutex;
	std::condition_variable changed;
	bool done = false, abandoned = false;
	pmix_status_t status = PMIX_ERROR;
	pmix_proc_t me{};
};

pmix_proc_t start_pmix()
{
	auto start = std::make_shared<Start>();
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	std::thread thread;
	try {
		thread = std::thread([start] {
			pmix_proc_t me;
			const pmix_status_t status = PMIx_Init(&me, nullptr, 0);
			std::lock_guard lock(start->mutex);
			if (start->abandoned && status == PMIX_SUCCESS)
				PMIx_Finalize(nullptr, 0);
			start->status = status;
			start->me = me;
			start->done = true;
			start->changed.notify_all();
		});
	} catch (const std::system_error &error) {
		pthread_sigmask(SIG_SETMASK, &before, nullptr);
		throw Error(PT2P_ERR_SYSTEM, format("no thread to start PMIx with: %s", error.what()));
	}
	pthread_sigmask(SIG_SETMASK, &before, nullptr);

	std::unique_lock lock(start->mutex);
	if (!start->changed.wait_for(lock, start_limit, [&] { return start->done; })) {
		start->abandoned = true;
		thread.detach();
		throw Error(PT2P_ERR_LAUNCHER, format("%s: set by a launcher, but its server has not answered PMIx_Init within "
		                                      "%lld s; if the variables are left over from another job, unset them",
		                                      launcher_facts().c_str(), static_cast<long long>(start_limit.count())));
	}
	lock.unlock();
	thread.join();
	if (start->status != PMIX_SUCCESS)
		throw Error(PT2P_ERR_LAUNCHER, format("%s: set by a launcher, but PMIx_Init cannot reach its server: %s; if "
		                                      "the variables are left over from another job, unset them",
		                                      launcher_facts().c_str(), status_text(start->status).c_str()));
	return start->me;
}

// A get under way. Shared with PMIx's thread, which may answer after the job has been left.
struct Answer {
	std::mutex mutex;
	std::condition_variable changed;
	bool done = false;
	pmix_status_t status = PMIX_ERROR;
	std::string blob;
};

void on_answer(pmix_status_t status, pmix_value_t *value, void *data)
{
	std::unique_ptr<std::shared_ptr<Answer>> holder(static_cast<std::shared_ptr<Answer> *>(data));
	Answer &answer = **holder;
	std::lock_guard lock(answer.mutex);
	if (status == PMIX_SUCCESS && value && value->type == PMIX_BYTE_OBJECT)
		answer.blob.assign(value->data.bo.bytes, value->data.bo.size);
	else if (status == PMIX_SUCCESS)
		status = PMIX_ERR_TYPE_MISMATCH;
	answer.status = status;
	answer.done = true;
	answer.changed.notify_all();
}

// The launcher's table of processes: which ranks have ended, and how. Asked for only when something waits, since not
// every launcher sends an event for a rank that dies (Open MPI 4.1 with --enable-recovery does not).
struct Census {
	Census() { PMIX_QUERY_CONSTRUCT(&query); }
	~Census() { PMIX_QUERY_DESTRUCT(&query); }
	Census(const Census &) = delete;
	Census &operator=(const Census &) = delete;

	void see(const pmix_proc_info_t &process)
	{
		if (process.state == PMIX_PROC_STATE_TERMINATED || process.state >= PMIX_PROC_STATE_ERROR)
			ends.emplace_back(process.proc, process.state);
	}
	void see(const pmix_value_t &value)
	{
		if (value.type == PMIX_PROC_INFO && value.data.pinfo)
			see(*value.data.pinfo);
		if (value.type != PMIX_DATA_ARRAY || !value.data.darray)
			return;
		const pmix_data_array_t &array = *value.data.darray;
		for (size_t i = 0; i < array.size; i++)
			if (array.type == PMIX_INFO)
				see(static_cast<pmix_info_t *>(array.array)[i].value);
			else if (array.type == PMIX_PROC_INFO)
				see(static_cast<pmix_proc_info_t *>(array.array)[i]);
	}

	std::mutex mutex;
	bool done = false;
	pmix_query_t query;
	std::vector<std::pair<pmix_proc_t, pmix_proc_state_t>> ends;
};

void on_census(pmix_status_t status, pmix_info_t info[], size_t ninfo, void *data, pmix_release_cbfunc_t release,
               void *release_data)
{
	std::unique_ptr<std::shared_ptr<Census>> holder(static_cast<std::shared_ptr<Census> *>(data));
	{
		std::lock_guard lock((*holder)->mutex);
		for (size_t i = 0; status == PMIX_SUCCESS && i < ninfo; i++)
			(*holder)->see(info[i].value);
		(*holder)->done = true;
	}
	if (release)
		release(release_data);
}

const char *end_reason(pmix_proc_state_t state)
{
	switch (state) {
	case PMIX_PROC_STATE_TERMINATED: return "ended";
	case PMIX_PROC_STATE_KILLED_BY_CMD: return "killed by the launcher";
	case PMIX_PROC_STATE_ABORTED: return "aborted or killed";
	case PMIX_PROC_STATE_FAILED_TO_START:
	case PMIX_PROC_STATE_FAILED_TO_LAUNCH: return "failed to start";
	case PMIX_PROC_STATE_ABORTED_BY_SIG: return "killed by a signal";
	case PMIX_PROC_STATE_TERM_WO_SYNC: return "ended without finalizing";
	case PMIX_PROC_STATE_SENSOR_BOUND_EXCEEDED: return "killed for exceeding a limit";
	case PMIX_PROC_STATE_CALLED_ABORT: return "aborted on its own request";
	case PMIX_PROC_STATE_TERM_NON_ZERO: return "ended with a non-zero exit code";
	default: return "failed, says the launcher";
	}
}

// The server does not know the value yet: ask again later.
bool not_yet(pmix_status_t status)
{
	return status == PMIX_ERR_NOT_FOUND || status == PMIX_ERR_TIMEOUT || status == PMIX_ERR_EXISTS_OUTSIDE_SCOPE;
}

struct LossCode {
	pmix_status_t code;
	const char *reason;
};

const LossCode loss_codes[] = {
	{PMIX_ERR_PROC_ABORTED, "aborted or killed"},
	{PMIX_ERR_PROC_REQUESTED_ABORT, "aborted on its own request"},
	{PMIX_ERR_PROC_ABORTED_BY_SIG, "killed by a signal"},
	{PMIX_ERR_PROC_KILLED_BY_CMD, "killed by the launcher"},
	{PMIX_ERR_PROC_TERM_WO_SYNC, "ended without finalizing"},
	{PMIX_ERR_EXIT_NONZERO_TERM, "ended with a non-zero exit code"},
	{PMIX_ERR_PROC_FAILED_TO_START, "failed to start"},
	{PMIX_ERR_PROC_SENSOR_BOUND_EXCEEDED, "killed for exceeding a limit"},
	{PMIX_EVENT_PROC_TERMINATED, "ended"},
	{PMIX_PROC_TERMINATED, "ended"},
	{PMIX_EVENT_NODE_DOWN, "its node went down"},
};

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
		set_local_ranks(read_local_peers(), config.ranks_per_node);

		// The n-th job of this process meets the n-th of every other: a value that was read once is cached by PMIx for
		// good, so each time needs a key of its own.
		static std::atomic<unsigned> count{0};
		key_ = format("pt2p.address.%u", count.fetch_add(1));
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
		auto pause = first_retry;
		while (!try_lookup(rank, blob)) {
			std::shared_ptr<Answer> answer;
			{
				std::lock_guard lock(mutex_);
				if (const auto found = asked_.find(rank); found != asked_.end())
					answer = found->second.answer;
			}
			// Woken by the answer, or after a while to look for news of the rank's end.
			if (answer) {
				std::unique_lock lock(answer->mutex);
				answer->changed.wait_for(lock, last_retry, [&] { return answer->done; });
			} else {
				std::this_thread::sleep_for(pause);
				pause = std::min(pause * 2, last_retry);
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
		if (request.answer && take(rank, request)) {
			asked_.erase(rank);
			blob = known_[rank];
			return true;
		}
		const auto now = std::chrono::steady_clock::now();
		if (request.since == std::chrono::steady_clock::time_point{})
			request.since = now;
		else if (now - request.since >= first_census)
			take_census(now);
		if (const auto lost = lost_.find(rank); lost != lost_.end())
			throw Error(PT2P_ERR_EXCHANGE,
			            format("rank %d was lost before its address arrived: %s", rank, lost->second.c_str()));
		if (server_lost_)
			throw Error(PT2P_ERR_EXCHANGE, format("the launcher is gone; the address of rank %d cannot be had", rank));
		if (!request.answer && now >= request.not_before)
			ask(rank, request);
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

	void keep(std::shared_ptr<void> thing) override { kept_.push_back(std::move(thing)); }

	void leave() override
	{
		if (!std::exchange(joined_, false))
			return;
		if (watching_)
			PMIx_Deregister_event_handler(watcher_, nullptr, nullptr);
		watching_ = false;
		const pmix_status_t status = PMIx_Finalize(nullptr, 0);
		if (status != PMIX_SUCCESS)
			reporter_.log(LogLevel::info, "PMIx_Finalize: %s", status_text(status).c_str());
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

private:
	struct Request {
		std::shared_ptr<Answer> answer; // null: not under way
		std::chrono::steady_clock::time_point since{}, not_before{};
		std::chrono::milliseconds pause = first_retry;
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

	// Starts a get; with mutex_ held. The server answers when the rank has committed.
	void ask(int rank, Request &request)
	{
		auto answer = std::make_shared<Answer>();
		auto holder = std::make_unique<std::shared_ptr<Answer>>(answer);
		pmix_proc_t peer;
		PMIX_PROC_LOAD(&peer, me_.nspace, static_cast<pmix_rank_t>(rank));
		const pmix_status_t status = PMIx_Get_nb(&peer, key_.c_str(), nullptr, 0, on_answer, holder.get());
		if (status == PMIX_SUCCESS) {
			(void)holder.release(); // on_answer's now
			request.answer = std::move(answer);
		} else {
			refuse(rank, request, status);
		}
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
		request.pause = std::min(request.pause * 2, last_retry);
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
				// One that ended in order may have published before, and the answer be on its way: not at first sight.
				if (state != PMIX_PROC_STATE_TERMINATED)
					note_lost(rank, end_reason(state));
				else if (!ended_.insert(rank).second)
					lost_.emplace(rank, end_reason(state));
			}
		}
		if (now < next_census_)
			return;
		census_ = std::make_shared<Census>();
		next_census_ = now + census_pause_;
		census_pause_ = std::min(census_pause_ * 2, last_census);
		pmix_status_t status;
		PMIX_ARGV_APPEND(status, census_->query.keys, PMIX_QUERY_PROC_TABLE);
		PMIX_QUERY_QUALIFIERS_CREATE(&census_->query, 1);
		PMIX_INFO_LOAD(&census_->query.qualifiers[0], PMIX_NSPACE, me_.nspace, PMIX_STRING);
		auto holder = std::make_unique<std::shared_ptr<Census>>(census_);
		status = PMIx_Query_info_nb(&census_->query, 1, on_census, holder.get());
		if (status == PMIX_SUCCESS)
			(void)holder.release(); // on_census's now
		else
			census_ = nullptr;
	}

	bool is_peer(const pmix_proc_t &proc) const
	{
		return PMIX_CHECK_NSPACE(proc.nspace, me_.nspace) && proc.rank < static_cast<pmix_rank_t>(size_) &&
		       proc.rank != me_.rank;
	}

	// With mutex_ held.
	void note_lost(int rank, const std::string &reason)
	{
		if (!lost_.emplace(rank, reason).second)
			return;
		events_.push_back({rank, reason});
		events_pending_.store(true, std::memory_order_relaxed);
	}

	void watch()
	{
		std::array<pmix_status_t, std::size(loss_codes) + 1> codes;
		for (size_t i = 0; i < std::size(loss_codes); i++)
			codes[i] = loss_codes[i].code;
		codes.back() = PMIX_ERR_LOST_CONNECTION;
		pmix_info_t info[1];
		void *self = this;
		PMIX_INFO_LOAD(&info[0], PMIX_EVENT_RETURN_OBJECT, self, PMIX_POINTER);
		// Without a callback the call waits and returns the number of the handler.
		const pmix_status_t status =
			PMIx_Register_event_handler(codes.data(), codes.size(), info, 1, on_event, nullptr, nullptr);
		PMIX_INFO_DESTRUCT(&info[0]);
		watching_ = status >= 0;
		watcher_ = static_cast<size_t>(std::max(status, 0));
		if (!watching_)
			reporter_.log(LogLevel::info, "the launcher gives no news of lost ranks: %s", status_text(status).c_str());
	}

	// Runs on PMIx's thread; leave() deregisters it, on that same thread, before this job goes.
	static void on_event(size_t, pmix_status_t status, const pmix_proc_t *source, pmix_info_t info[], size_t ninfo,
	                     pmix_info_t *, size_t, pmix_event_notification_cbfunc_fn_t done, void *data)
	{
		PmixJob *job = nullptr;
		const pmix_proc_t *affected = source;
		std::vector<pmix_proc_t> many;
		bool failed = true;
		for (size_t i = 0; i < ninfo; i++) {
			const pmix_value_t &value = info[i].value;
			if (PMIX_CHECK_KEY(&info[i], PMIX_EVENT_RETURN_OBJECT))
				job = static_cast<PmixJob *>(value.data.ptr);
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
		if (job && status == PMIX_ERR_LOST_CONNECTION)
			job->lose_server();
		else if (job && !in_order)
			for (const auto &proc : many)
				job->lose(proc, status);
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
		server_lost_news_ = true;
		events_pending_.store(true, std::memory_order_relaxed);
	}

	Reporter &reporter_;
	pmix_proc_t me_{};
	bool joined_ = false, watching_ = false;
	size_t watcher_ = 0;
	std::string key_;
	std::vector<std::shared_ptr<void>> kept_;

	std::mutex mutex_; // of what follows
	std::map<int, std::string> known_;
	std::map<int, Request> asked_;
	std::map<int, std::string> lost_;
	std::set<int> ended_;
	std::shared_ptr<Census> census_; // under way or not yet read
	std::chrono::steady_clock::time_point next_census_{};
	std::chrono::seconds census_pause_{first_census};
	std::deque<RankEvent> events_;
	bool server_lost_ = false, server_lost_news_ = false;
};

} // namespace

std::unique_ptr<Job> join_pmix_job(const Config &config, Reporter &reporter)
{
	auto job = std::make_unique<PmixJob>(reporter);
	job->join(config);
	return job;
}

} // namespace pt2p
