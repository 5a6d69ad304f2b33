#include "base/job/pmix/addresses.hpp"

#include <algorithm>
#include <utility>

namespace pt2p {

namespace {

// Before the server is asked for a rank of this host, the launcher's shared memory is searched: that spares the server,
// and the 40 ms that two messages in a row to it can take. The search lasts longer when the process has joined before,
// since Open MPI 4.1 answers for a rank that has been there before only after 2 s.
constexpr std::chrono::milliseconds first_peeks{40}, later_peeks{1000};
constexpr std::chrono::milliseconds max_peek_pause{8};

} // namespace

void Addresses::begin(const pmix_proc_t &me, std::string key, std::set<int> on_host, bool again)
{
	me_ = me;
	key_ = std::move(key);
	on_host_ = std::move(on_host);
	peek_time_ = again ? later_peeks : first_peeks;
}

bool Addresses::take(int rank, std::string &blob)
{
	if (const auto found = known_.find(rank); found != known_.end()) {
		blob = found->second;
		return true;
	}
	Request &request = asked_[rank];
	const bool ahead = std::exchange(request.ahead, false);
	if (request.answer && receive(rank, request)) {
		asked_.erase(rank);
		blob = known_[rank];
		return true;
	}
	if (ahead && !request.answer) // what was not there some time ago may be there now
		request = {};
	return false;
}

Addresses::Clock::duration Addresses::waited(int rank, Clock::time_point now)
{
	Request &request = asked_[rank];
	if (request.since == Clock::time_point{})
		request.since = now;
	return now - request.since;
}

void Addresses::ask(int rank, Clock::time_point now)
{
	Request &request = asked_[rank];
	if (request.answer || now < request.not_before)
		return;
	start(rank, request, now);
	if (request.peeks && request.since == now)
		peek_ahead(rank, now);
}

std::shared_ptr<Answer> Addresses::in_flight(int rank, Clock::time_point &retry) const
{
	const auto found = asked_.find(rank);
	if (found == asked_.end())
		return nullptr;
	retry = found->second.not_before;
	return found->second.answer;
}

// The server answers when the rank has committed; a peek answers at once.
void Addresses::start(int rank, Request &request, Clock::time_point now)
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
		postpone(rank, request, status);
	}
}

// A caller that asks for one rank after another is likely to go on. So this looks for the next ranks, ever more of
// them: several peeks in a row wake PMIx's thread once.
void Addresses::peek_ahead(int rank, Clock::time_point now)
{
	const int me = static_cast<int>(me_.rank);
	auto next = on_host_.upper_bound(rank);
	for (size_t looked = 0; looked < ahead_ && looked < on_host_.size(); ++looked, ++next) {
		if (next == on_host_.end())
			next = on_host_.begin();
		if (*next == me || known_.count(*next) || asked_.count(*next))
			continue;
		Request request;
		request.since = now;
		try {
			start(*next, request, now);
		} catch (const Error &) {
			return; // reported to the caller that asks for that rank
		}
		request.since = {};
		request.ahead = true;
		asked_.emplace(*next, std::move(request));
	}
	ahead_ = 2 * ahead_ + 1;
}

// Takes the answer of a get if it is there. Returns whether the address is known now.
bool Addresses::receive(int rank, Request &request)
{
	const std::shared_ptr<Answer> answer = request.answer;
	std::lock_guard lock(answer->mutex);
	if (!answer->done)
		return false;
	request.answer = nullptr;
	if (answer->status != PMIX_SUCCESS) {
		postpone(rank, request, answer->status);
		return false;
	}
	known_[rank] = std::move(answer->blob);
	return true;
}

void Addresses::postpone(int rank, Request &request, pmix_status_t status)
{
	if (!not_yet(status))
		throw Error(PT2P_ERR_EXCHANGE,
		            format("PMIx_Get of the address of rank %d: %s", rank, status_text(status).c_str()));
	request.not_before = Clock::now() + request.pause;
	request.pause = std::min(request.pause * 2, request.peeks ? max_peek_pause : max_pause);
}

} // namespace pt2p
