// The in-process job: n contexts of one process are one another's peers, and share a board.
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include <unistd.h>

#include "base/clock.hpp"
#include "base/config/config.hpp"
#include "base/job/job.hpp"
#include "base/report/report.hpp"

namespace pt2p {

namespace {

class InprocessJob;

struct Departure {
	int rank;
	int64_t at; // ns
};

struct Board {
	std::mutex mutex;
	std::condition_variable changed;
	std::vector<std::optional<std::string>> blobs; // by rank
	std::vector<std::string> lost;                 // by rank; empty: not lost
	std::vector<InprocessJob *> members;           // by rank; null: has left
	std::vector<std::shared_ptr<void>> kept;
	std::vector<Departure> departures; // in their order
	int present = 0;
};

// Late, as from a launcher: the rank itself tells those that know of it.
constexpr int64_t told_after = 1'000'000'000; // ns

class InprocessJob final : public Job {
public:
	InprocessJob(std::shared_ptr<Board> board, int rank, const std::string &id, const Config &config,
	             const std::function<void(int)> &step)
	    : board_(std::move(board))
	{
		rank_ = rank;
		size_ = static_cast<int>(board_->blobs.size());
		id_ = id;
		std::vector<int> all;
		for (int r = 0; r < size_; r++)
			all.push_back(r);
		set_local_ranks(std::move(all), config.ranks_per_node);
		if (step)
			step_ = [step, rank] { step(rank); };
		board_->members[static_cast<size_t>(rank)] = this;
		board_->present++;
	}
	~InprocessJob() override { leave(); }

	const char *kind() const override { return "in-process"; }

	void publish(const std::string &blob) override
	{
		{
			std::lock_guard lock(board_->mutex);
			board_->blobs[static_cast<size_t>(rank_)] = blob;
		}
		board_->changed.notify_all();
	}

	std::string lookup(int rank) override
	{
		std::string blob;
		if (step_) {
			// The peers run on this very thread: only stepping them makes them publish.
			while (!try_lookup(rank, blob))
				step_();
			return blob;
		}
		check_rank(rank);
		std::unique_lock lock(board_->mutex);
		board_->changed.wait(lock, [&] { return ready(rank, blob); });
		return blob;
	}

	bool try_lookup(int rank, std::string &blob) override
	{
		check_rank(rank);
		std::lock_guard lock(board_->mutex);
		return ready(rank, blob);
	}

	bool next_event(RankEvent &event) override
	{
		std::lock_guard lock(board_->mutex);
		if (events_.empty())
			return false;
		event = std::move(events_.front());
		events_.pop_front();
		if (events_.empty())
			events_pending_.store(false, std::memory_order_relaxed);
		return true;
	}

	void check() override
	{
		std::lock_guard lock(board_->mutex);
		for (const auto &left = board_->departures; told_ < left.size() && now_ns() - left[told_].at > told_after;
		     ++told_)
			add_event({left[told_].rank, "it has left the job", true});
	}

	void keep(std::shared_ptr<void> thing) override
	{
		std::lock_guard lock(board_->mutex);
		board_->kept.push_back(std::move(thing));
	}

	void leave() override
	{
		// Destroyed after the lock is released: what is kept may call back.
		std::vector<std::shared_ptr<void>> last;
		{
			std::lock_guard lock(board_->mutex);
			auto &self = board_->members[static_cast<size_t>(rank_)];
			if (!self)
				return;
			self = nullptr;
			board_->departures.push_back({rank_, now_ns()});
			if (--board_->present == 0)
				last.swap(board_->kept);
		}
		board_->changed.notify_all();
	}

	[[noreturn]] void abort(int code, const char *message) override
	{
		announce_abort(rank_, message);
		end_process(code);
	}

	void declare(int rank, const std::string &reason)
	{
		check_rank(rank);
		{
			std::lock_guard lock(board_->mutex);
			auto &lost = board_->lost[static_cast<size_t>(rank)];
			if (!lost.empty())
				return;
			lost = reason.empty() ? "declared lost" : reason;
			for (InprocessJob *member : board_->members)
				if (member && member->rank_ != rank)
					member->add_event({rank, lost});
		}
		board_->changed.notify_all();
	}

private:
	void check_rank(int rank) const
	{
		if (rank < 0 || rank >= size_)
			throw Error(PT2P_ERR_EXCHANGE, format("rank %d is not in this job of %d ranks", rank, size_));
	}

	// These two with the board's lock held.
	void add_event(RankEvent event)
	{
		events_.push_back(std::move(event));
		events_pending_.store(true, std::memory_order_relaxed);
	}
	bool ready(int rank, std::string &blob)
	{
		const auto r = static_cast<size_t>(rank);
		if (board_->blobs[r]) {
			blob = *board_->blobs[r];
			return true;
		}
		if (!board_->lost[r].empty())
			throw Error(PT2P_ERR_PEER_LOST,
			            format("rank %d was lost before it published its address: %s", rank, board_->lost[r].c_str()));
		if (!board_->members[r])
			throw Error(PT2P_ERR_PEER_FINALIZED, format("rank %d has left without publishing its address", rank));
		return false;
	}

	std::shared_ptr<Board> board_;
	std::deque<RankEvent> events_; // under the board's lock, as `told_`
	size_t told_ = 0;              // departures of which this rank has had an event
};

} // namespace

std::vector<std::unique_ptr<Job>> make_inprocess_jobs(int size, const Config &config,
                                                      std::function<void(int rank)> step)
{
	if (size < 1)
		throw Error(PT2P_ERR_ARGUMENT, format("an in-process job of %d ranks: it has one at least", size));
	auto board = std::make_shared<Board>();
	const auto n = static_cast<size_t>(size);
	board->blobs.resize(n);
	board->lost.resize(n);
	board->members.resize(n);
	static std::atomic<unsigned> count{0}; // tells the jobs of one process apart
	const std::string id = format("inprocess-%ld-%u", static_cast<long>(getpid()), count.fetch_add(1) + 1);
	std::vector<std::unique_ptr<Job>> jobs;
	for (int rank = 0; rank < size; rank++)
		jobs.push_back(std::make_unique<InprocessJob>(board, rank, id, config, step));
	return jobs;
}

void declare_lost(Job &member, int rank, const std::string &reason)
{
	if (auto *job = dynamic_cast<InprocessJob *>(&member))
		job->declare(rank, reason);
}

} // namespace pt2p
