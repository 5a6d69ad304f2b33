#include "base/job/pmix/ends.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/clock.hpp"

namespace pt2p {

namespace {

// A rank that is seen to be gone is asked for at shorter intervals. After a while without an event of a crash, it has
// ended in order.
constexpr std::chrono::milliseconds hurried_census{200}, end_patience{3000};
constexpr std::chrono::seconds census_limit{2}; // longest that a rank that leaves waits for the answer

} // namespace

void Ends::begin(const pmix_proc_t &me, int size)
{
	me_ = me;
	size_ = size;
}

bool Ends::is_peer(const pmix_proc_t &process) const
{
	return PMIX_CHECK_NSPACE(process.nspace, me_.nspace) && process.rank < static_cast<pmix_rank_t>(size_) &&
	       process.rank != me_.rank;
}

void Ends::note_lost(int rank, const std::string &reason, bool in_order)
{
	const RankEvent event{rank, reason, in_order};
	if (!lost_.emplace(rank, event).second)
		return;
	events_.push_back(event);
	news_.store(true, std::memory_order_relaxed);
}

void Ends::lose(const pmix_proc_t &process, pmix_status_t status)
{
	if (!is_peer(process))
		return;
	const auto *code =
	    std::find_if(std::begin(loss_codes), std::end(loss_codes), [=](const LossCode &c) { return c.code == status; });
	note_lost(static_cast<int>(process.rank), code != std::end(loss_codes) ? code->reason : status_text(status), false);
}

void Ends::lose_server()
{
	if (std::exchange(server_lost_, true))
		return;
	server_lost_at_.store(now_ns(), std::memory_order_relaxed);
	server_lost_news_ = true;
	news_.store(true, std::memory_order_relaxed);
}

bool Ends::next_event(RankEvent &event, bool &server_lost)
{
	server_lost = std::exchange(server_lost_news_, false);
	const bool any = !events_.empty();
	if (any) {
		event = std::move(events_.front());
		events_.pop_front();
	}
	news_.store(!events_.empty(), std::memory_order_relaxed);
	return any;
}

const RankEvent *Ends::find(int rank) const
{
	const auto found = lost_.find(rank);
	return found == lost_.end() ? nullptr : &found->second;
}

void Ends::take_census(Clock::time_point now)
{
	if (const auto census = census_) {
		std::lock_guard lock(census->mutex);
		if (!census->done)
			return;
		census_ = nullptr;
		for (const auto &[process, state] : census->ends) {
			if (!is_peer(process))
				continue;
			const int rank = static_cast<int>(process.rank);
			// Of a rank that ended in order, the address may be on its way, and what it has sent: not at first sight.
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

void Ends::check(Clock::time_point now)
{
	if (next_census_ == Clock::time_point{})
		next_census_ = now + first_census;
	take_census(now);
}

Job::End Ends::end_of(int rank, std::string &reason, Clock::time_point now)
{
	const auto asked = ends_asked_.try_emplace(rank, now).first->second;
	next_census_ = std::min(next_census_, last_census_ + hurried_census);
	const auto pause = census_pause_; // of those that nobody hurries
	take_census(now);
	census_pause_ = pause;
	if (const RankEvent *lost = find(rank)) {
		reason = lost->reason;
		return lost->in_order ? Job::End::in_order : Job::End::lost;
	}
	if (server_lost_)
		return Job::End::unknown;
	// A launcher that answers no such question has sent an event of a crash.
	return now - asked >= end_patience ? Job::End::in_order : Job::End::asked;
}

// PMIx's thread takes PMIx's lock for a query that has just begun, and PMIx_Finalize waits for that thread with the
// lock held. A get takes no lock, and may never be answered: PMIx drops it.
void Ends::end_census(std::mutex &mutex)
{
	std::unique_lock lock(mutex);
	const auto census = std::exchange(census_, nullptr);
	const bool answers = !server_lost_; // PMIx forgets queries when the connection breaks
	lock.unlock();
	if (!census || !answers)
		return;
	std::unique_lock waiting(census->mutex);
	census->changed.wait_for(waiting, census_limit, [&] { return census->done; });
}

} // namespace pt2p
