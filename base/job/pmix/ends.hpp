// How ranks have ended, as far as the launcher tells: by its events, and by censuses where it sends none. Calls are
// under the lock of the job, unless they say otherwise.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "base/job/job.hpp"
#include "base/job/pmix/calls.hpp"

namespace pt2p {

class Ends {
public:
	using Clock = std::chrono::steady_clock;
	// A call that waits this long asks the launcher which ranks are alive at all, and again ever more rarely.
	static constexpr std::chrono::seconds first_census{1}, last_census{8};

	// `news` is set while next_event() has something.
	explicit Ends(std::atomic<bool> &news) : news_(news) {}
	void begin(const pmix_proc_t &me, int size);

	// News of the launcher.
	void lose(const pmix_proc_t &process, pmix_status_t status);
	void lose_server();
	// The next rank that has ended; `server_lost`: the launcher itself has gone since the last call.
	bool next_event(RankEvent &event, bool &server_lost);

	// Null: that rank has not ended, as far as is known.
	const RankEvent *find(int rank) const;
	bool server_lost() const { return server_lost_; }
	// Time when the launcher went, ns; 0: it is there. Without the lock.
	int64_t server_lost_at() const { return server_lost_at_.load(std::memory_order_relaxed); }

	// Reads a census that has come in, and asks for the next when it is due.
	void take_census(Clock::time_point now);
	// The same for a call that has only begun to wait: the first census is due after a while.
	void check(Clock::time_point now);
	// How a rank has ended that is seen to be gone.
	Job::End end_of(int rank, std::string &reason, Clock::time_point now);
	// Waits for a census in flight before PMIx_Finalize. Takes `mutex`, the lock of the job, itself.
	void end_census(std::mutex &mutex);

private:
	bool is_peer(const pmix_proc_t &process) const;
	void note_lost(int rank, const std::string &reason, bool in_order);

	std::atomic<bool> &news_;
	pmix_proc_t me_{};
	int size_ = 1;
	std::map<int, RankEvent> lost_;
	std::deque<RankEvent> events_;                // of these, not yet told
	std::map<int, Clock::time_point> ends_asked_; // since when
	std::set<int> ended_;                         // in order, by one census
	std::shared_ptr<Census> census_;              // in flight or not yet read
	Clock::time_point next_census_{}, last_census_{};
	std::chrono::seconds census_pause_{first_census};
	bool server_lost_ = false, server_lost_news_ = false;
	std::atomic<int64_t> server_lost_at_{0};
};

} // namespace pt2p
