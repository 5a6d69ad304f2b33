// What the launched job asks of PMIx, call by call: a bounded start and end, gets and censuses that answer on PMIx's
// thread, hosts, and what PMIx's codes mean.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <pmix.h>

#include "base/config/config.hpp"
#include "base/report/report.hpp"

namespace pt2p {

// A server that accepts a connection and never answers, or an address that swallows packets, must not hang the program.
constexpr std::chrono::seconds start_limit{30};
// PMIx_Finalize itself waits for the server for 2 s at most.
constexpr std::chrono::seconds end_limit{5};

inline std::string status_text(pmix_status_t status)
{
	const char *text = PMIx_Error_string(status);
	return format("PMIx status %s (%d)", text ? text : "unknown", status);
}

// What the environment says of the launcher, for explanations.
inline std::string launcher_facts()
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

// Makes a call of PMIx in a helper thread, so that it can be given up: false when it has not returned within `limit`;
// if it does later, `late` follows. The thread blocks all signals, and PMIx's own thread inherits that: the program's
// signals stay with the program's threads. Throws std::system_error when no thread can be made.
template <typename Call, typename Late>
bool call_within(std::chrono::seconds limit, Call call, Late late)
{
	struct State {
		std::mutex mutex;
		std::condition_variable changed;
		bool done = false, abandoned = false;
	};
	const auto state = std::make_shared<State>();
	sigset_t all, before;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	std::thread thread;
	try {
		thread = std::thread([state, call, late] {
			call();
			std::lock_guard lock(state->mutex);
			if (state->abandoned)
				late();
			state->done = true;
			state->changed.notify_all();
		});
	} catch (...) {
		pthread_sigmask(SIG_SETMASK, &before, nullptr);
		throw;
	}
	pthread_sigmask(SIG_SETMASK, &before, nullptr);

	std::unique_lock lock(state->mutex);
	if (!state->changed.wait_for(lock, limit, [&] { return state->done; })) {
		state->abandoned = true;
		thread.detach();
		return false;
	}
	lock.unlock();
	thread.join();
	return true;
}

// A call of PMIx_Finalize that was given up still holds PMIx's lock: no other call of PMIx would return.
inline std::atomic<bool> pmix_is_stuck{false};

inline pmix_proc_t start_pmix()
{
	struct Start {
		pmix_status_t status = PMIX_ERROR;
		pmix_proc_t me{};
	};
	if (pmix_is_stuck)
		throw Error(PT2P_ERR_LAUNCHER,
		            "PMIx_Finalize of an earlier context of this process has not come back, so the launcher "
		            "cannot be joined again");
	const auto start = std::make_shared<Start>();
	bool answered;
	try {
		answered = call_within(
		    start_limit, [start] { start->status = PMIx_Init(&start->me, nullptr, 0); },
		    [start] {
			    if (start->status == PMIX_SUCCESS)
				    PMIx_Finalize(nullptr, 0);
		    });
	} catch (const std::system_error &error) {
		throw Error(PT2P_ERR_SYSTEM, format("no thread to start PMIx with: %s", error.what()));
	}
	if (!answered)
		throw Error(PT2P_ERR_LAUNCHER, format("%s: set by a launcher, but its server has not answered PMIx_Init within "
		                                      "%lld s; if the variables are left over from another job, unset them",
		                                      launcher_facts().c_str(), static_cast<long long>(start_limit.count())));
	if (start->status != PMIX_SUCCESS)
		throw Error(PT2P_ERR_LAUNCHER, format("%s: set by a launcher, but PMIx_Init cannot reach its server: %s; if "
		                                      "the variables are left over from another job, unset them",
		                                      launcher_facts().c_str(), status_text(start->status).c_str()));
	return start->me;
}

// Leaves PMIx within a limited time: a process must not outlive its job because of it.
inline void end_pmix(Reporter &reporter)
{
	const auto status = std::make_shared<pmix_status_t>(PMIX_ERROR);
	const auto end = [status] { *status = PMIx_Finalize(nullptr, 0); };
	try {
		if (!call_within(end_limit, end, [] {})) {
			pmix_is_stuck = true;
			reporter.log(LogLevel::warning,
			             "PMIx_Finalize has not come back within %lld s: this rank leaves without it",
			             static_cast<long long>(end_limit.count()));
			return;
		}
	} catch (const std::system_error &) {
		end(); // without a thread
	}
	if (*status != PMIX_SUCCESS)
		reporter.log(LogLevel::info, "PMIx_Finalize: %s", status_text(*status).c_str());
}

// A get in flight. Shared with PMIx's thread, which may answer after the job has been left.
struct Answer {
	std::mutex mutex;
	std::condition_variable changed;
	bool done = false;
	pmix_status_t status = PMIX_ERROR;
	std::string blob;
	pmix_info_t peek[1]; // PMIx reads it until it answers
};

inline void on_answer(pmix_status_t status, pmix_value_t *value, void *data)
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

// Calls `see` with each process of an answer to a query for the table of processes.
template <typename See>
void each_process(const pmix_value_t &value, See see)
{
	if (value.type == PMIX_PROC_INFO && value.data.pinfo)
		see(*value.data.pinfo);
	if (value.type != PMIX_DATA_ARRAY || !value.data.darray)
		return;
	const pmix_data_array_t &array = *value.data.darray;
	for (size_t i = 0; i < array.size; i++)
		if (array.type == PMIX_INFO)
			each_process(static_cast<pmix_info_t *>(array.array)[i].value, see);
		else if (array.type == PMIX_PROC_INFO)
			see(static_cast<pmix_proc_info_t *>(array.array)[i]);
}

// The launcher's table of processes: which ranks have ended, and how. Asked for only when something waits, since not
// every launcher sends an event for a rank that dies (Open MPI 4.1 with --enable-recovery does not).
struct Census {
	explicit Census(const pmix_nspace_t job)
	{
		PMIX_QUERY_CONSTRUCT(&query);
		pmix_status_t status;
		PMIX_ARGV_APPEND(status, query.keys, PMIX_QUERY_PROC_TABLE);
		(void)status;
		PMIX_QUERY_QUALIFIERS_CREATE(&query, 1);
		PMIX_INFO_LOAD(&query.qualifiers[0], PMIX_NSPACE, job, PMIX_STRING);
	}
	~Census() { PMIX_QUERY_DESTRUCT(&query); }
	Census(const Census &) = delete;
	Census &operator=(const Census &) = delete;

	void see(const pmix_proc_info_t &process)
	{
		// Open MPI 4.1 says "undefined" of a process that has ended in order; one that has not begun has no pid.
		if (process.state == PMIX_PROC_STATE_UNDEF && process.pid > 0)
			ends.emplace_back(process.proc, PMIX_PROC_STATE_TERMINATED);
		else if (process.state == PMIX_PROC_STATE_TERMINATED || process.state >= PMIX_PROC_STATE_ERROR)
			ends.emplace_back(process.proc, process.state);
	}

	std::mutex mutex;
	std::condition_variable changed;
	bool done = false;
	pmix_query_t query;
	std::vector<std::pair<pmix_proc_t, pmix_proc_state_t>> ends;
};

inline void on_census(pmix_status_t status, pmix_info_t info[], size_t ninfo, void *data, pmix_release_cbfunc_t release,
                      void *release_data)
{
	std::unique_ptr<std::shared_ptr<Census>> holder(static_cast<std::shared_ptr<Census> *>(data));
	{
		std::lock_guard lock((*holder)->mutex);
		for (size_t i = 0; status == PMIX_SUCCESS && i < ninfo; i++)
			each_process(info[i].value, [&](const pmix_proc_info_t &process) { (*holder)->see(process); });
		(*holder)->done = true;
		(*holder)->changed.notify_all();
	}
	if (release)
		release(release_data);
}

// The host of each rank, from what the launcher has given this process at its start: no message to its server.
// PMIx_Resolve_peers is no alternative: under Open MPI 4.1 it never returns for some hosts of a job.
inline pmix_status_t given_hosts(const pmix_proc_t &me, std::vector<std::string> &host_of)
{
	const bool yes = true;
	pmix_info_t here[1];
	PMIX_INFO_LOAD(&here[0], PMIX_OPTIONAL, &yes, PMIX_BOOL);
	pmix_status_t status = PMIX_SUCCESS;
	for (size_t rank = 0; rank < host_of.size() && status == PMIX_SUCCESS; rank++) {
		pmix_proc_t peer;
		PMIX_PROC_LOAD(&peer, me.nspace, static_cast<pmix_rank_t>(rank));
		pmix_value_t *value = nullptr;
		status = PMIx_Get(&peer, PMIX_HOSTNAME, here, 1, &value);
		if (status != PMIX_SUCCESS)
			break;
		if (value->type == PMIX_STRING && value->data.string)
			host_of[rank] = value->data.string;
		PMIX_VALUE_RELEASE(value);
	}
	return status;
}

// The same from the launcher's table of processes. A process that has left PMIx and joined it again has to ask for it.
inline pmix_status_t queried_hosts(const pmix_proc_t &me, std::vector<std::string> &host_of)
{
	Census request(me.nspace);
	pmix_info_t *results = nullptr;
	size_t count = 0;
	const pmix_status_t status = PMIx_Query_info(&request.query, 1, &results, &count);
	for (size_t i = 0; status == PMIX_SUCCESS && i < count; i++)
		each_process(results[i].value, [&](const pmix_proc_info_t &process) {
			if (process.proc.rank < host_of.size() && process.hostname)
				host_of[process.proc.rank] = process.hostname;
		});
	if (results)
		PMIX_INFO_FREE(results, count);
	return status;
}

inline const char *end_reason(pmix_proc_state_t state)
{
	switch (state) {
	case PMIX_PROC_STATE_TERMINATED: return "its process has ended";
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
inline bool not_yet(pmix_status_t status)
{
	return status == PMIX_ERR_NOT_FOUND || status == PMIX_ERR_TIMEOUT || status == PMIX_ERR_EXISTS_OUTSIDE_SCOPE;
}

struct LossCode {
	pmix_status_t code;
	const char *reason;
};

inline constexpr LossCode loss_codes[] = {
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

} // namespace pt2p
