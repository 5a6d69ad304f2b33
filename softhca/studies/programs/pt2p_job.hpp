// An in-process job of libpt2p in virtual time.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <pt2p.h>

#include "softhca/studies/programs/study.hpp"

namespace study {

inline void check(pt2p_context_t *ctx, pt2p_status_t status, const char *what)
{
	if (status != PT2P_OK)
		give_up("rank %d: %s: %s", pt2p_rank(ctx), what, pt2p_last_error(ctx));
}

// What a rank does beside posting and polling, as the library counts it; the model charges it. In the thread of the
// rank, and only where no lock is held in a poll: a counter is read under the lock, too.
class CountedWork {
public:
	explicit CountedWork(pt2p_context_t *ctx) : ctx_(ctx)
	{
		for (int i = 0; i < pt2p_counter_count(); ++i) {
			const std::string name = pt2p_counter_name(i);
			if (name == "net_ring_looks")
				looks_ = i;
			else if (name == "calls_served")
				dispatches_ = i;
		}
		softhca_count_work(
		    [](void *object) -> softhca_work_t {
			    const auto &self = *static_cast<CountedWork *>(object);
			    return {self.read(self.looks_), self.read(self.dispatches_)};
		    },
		    this);
	}
	CountedWork(const CountedWork &) = delete;
	CountedWork &operator=(const CountedWork &) = delete;
	~CountedWork() { softhca_count_work(nullptr, nullptr); }

private:
	uint64_t read(int counter) const
	{
		uint64_t value = 0;
		check(ctx_, pt2p_counter_read(ctx_, counter, &value), "pt2p_counter_read");
		return value;
	}
	pt2p_context_t *ctx_;
	int looks_ = -1, dispatches_ = -1;
};

// A job of that many ranks, so many on each node, each node with a device of its own.
class InprocessJob {
public:
	// By default a thread of its own drives a context, not the one that makes it. `counts`: CountedWork is charged.
	InprocessJob(size_t ranks, size_t ranks_per_node, const std::vector<std::string> &tunables,
	             pt2p_thread_level_t thread_level = PT2P_THREAD_SERIALIZED, bool counts = true)
	    : contexts_(ranks)
	{
		std::vector<std::string> all = {"PT2P_RANKS_PER_NODE=" + std::to_string(ranks_per_node), "PT2P_NET_DEVICE=each",
		                                "PT2P_PROGRESS_THREAD=no", "PT2P_SLEEP=no"};
		all.insert(all.end(), tunables.begin(), tunables.end());
		counts_ = counts && std::find(all.begin(), all.end(), "PT2P_PROGRESS_THREAD=yes") == all.end();
		std::vector<const char *> list;
		for (const std::string &t : all)
			list.push_back(t.c_str());
		list.push_back(nullptr);
		pt2p_options_t options = PT2P_OPTIONS_INIT;
		options.tunables = list.data();
		options.thread_level = thread_level;
		if (pt2p_init_inprocess(static_cast<int>(ranks), PT2P_INPROCESS_THREADS, &options, contexts_.data()) != PT2P_OK)
			give_up("pt2p_init_inprocess: %s", pt2p_last_error(nullptr));
	}
	InprocessJob(const InprocessJob &) = delete;
	InprocessJob &operator=(const InprocessJob &) = delete;
	~InprocessJob()
	{
		constexpr double longest = 50e6; // ns; a wait in vain takes longer
		if (contexts_.empty())
			return;
		if (const double took = leave(); took > longest)
			give_up("pt2p_finalize took %.0f ms of virtual time", took / 1e6);
	}
	// All finalize at the same time: each waits until the others have confirmed what they have forwarded, which they do
	// when they are called. Each rank does `before` first. Returns the longest time that one took, in virtual ns.
	double leave(const std::function<void(pt2p_context_t *)> &before = [](pt2p_context_t *) {})
	{
		double longest = 0;
		std::vector<std::thread> threads;
		for (pt2p_context_t *ctx : contexts_)
			threads.emplace_back([&, ctx] {
				before(ctx);
				const double start = now();
				if (pt2p_finalize(ctx) != PT2P_OK)
					give_up("pt2p_finalize: %s", pt2p_last_error(nullptr));
				longest = std::max(longest, now() - start);
			});
		for (std::thread &t : threads)
			t.join();
		contexts_.clear();
		return longest;
	}
	// Runs each rank in a thread of its own, until all have returned. A rank that has returned makes progress until
	// then: others may still need its answers, or that it forwards their messages.
	void run(const std::function<void(pt2p_context_t *)> &rank) const
	{
		std::vector<std::thread> threads;
		std::atomic<size_t> running = contexts_.size();
		for (pt2p_context_t *ctx : contexts_)
			threads.emplace_back([&, ctx] {
				std::optional<CountedWork> work;
				if (counts_)
					work.emplace(ctx);
				rank(ctx);
				--running;
				while (running.load()) {
					check(ctx, pt2p_progress(ctx), "pt2p_progress");
					std::this_thread::yield();
				}
			});
		for (std::thread &t : threads)
			t.join();
	}
	// Of all ranks together, or of one.
	uint64_t counter(const std::string &name, int rank = -1) const
	{
		uint64_t sum = 0;
		for (int i = 0; i < pt2p_counter_count(); ++i)
			for (pt2p_context_t *ctx : contexts_)
				if (uint64_t value; name == pt2p_counter_name(i) && (rank < 0 || pt2p_rank(ctx) == rank) &&
				                    pt2p_counter_read(ctx, i, &value) == PT2P_OK)
					sum += value;
		return sum;
	}

private:
	std::vector<pt2p_context_t *> contexts_;
	bool counts_ = true;
};

} // namespace study
