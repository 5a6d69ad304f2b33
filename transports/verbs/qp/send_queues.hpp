// The send queues of a device. Finds the queue of a completion, and tells owners when their queues break.
#pragma once

#include <cstdint>
#include <vector>

#include "transports/verbs/qp/completions.hpp"

namespace pt2p::verbs {

class SendQueue;

class SendQueues {
public:
	explicit SendQueues(Completions &completions) : completions_(completions) {}

	void add(SendQueue &queue);
	// Its queue pair, which completed at `cq` and had this number, is destroyed.
	void remove(SendQueue &queue, const ibv_cq *cq, uint32_t number);
	// The queue pair with this number was reset: its remaining CQEs are skipped.
	void forget(const ibv_cq *cq, uint32_t number) { completions_.forget(cq, number); }

	// The queue with this number of its queue pair; null: there is none.
	SendQueue *find(uint32_t number) const;
	SendQueue *at(uint32_t index) const { return queues_[index]; }
	template <class F>
	void for_each(F &&f) const
	{
		for (size_t i = 0; i < queues_.size(); ++i) // `f` may add a queue
			if (SendQueue *queue = queues_[i])
				f(*queue);
	}
	template <class F>
	void for_each_working(F &&f) const
	{
		for_each([&](SendQueue &queue) {
			if (works(queue))
				f(queue);
		});
	}
	// Whether a queue has work for a rank that has not left.
	bool busy() const;

	// handle_broken() tells the owner, after all CQEs have been read.
	void report_broken(SendQueue &queue, ibv_wc_status status);
	void handle_broken();
	bool any_broken() const { return !broken_.empty(); }

	// Work request ids with libibverbs: those of send queues have the highest bit.
	static constexpr uint64_t is_send = UINT64_C(1) << 63;
	static uint64_t id(uint32_t index, uint32_t number) { return is_send | uint64_t{index} << 32 | number; }
	static uint32_t index_in(uint64_t id) { return id >> 32 & 0x7fffffff; }

private:
	static bool works(const SendQueue &queue);
	void make_hash();

	Completions &completions_;
	std::vector<SendQueue *> queues_; // by index; null: free
	std::vector<SendQueue *> hash_;   // by number of the queue pair; at least half empty
	struct Broken {
		SendQueue *queue;
		ibv_wc_status status;
	};
	std::vector<Broken> broken_;
};

} // namespace pt2p::verbs
