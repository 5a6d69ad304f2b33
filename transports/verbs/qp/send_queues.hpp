// The send queues of a device: found by the completion of a work request, and told to their owners when they break.
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
	// Its queue pair, which completed at `cq` and had this number, is gone.
	void remove(SendQueue &queue, const ibv_cq *cq, uint32_t number);
	// The queue pair with this number has been reset: what is left of its completions is not handed out any more.
	void forget(const ibv_cq *cq, uint32_t number) { completions_.forget(cq, number); }

	// Of the queue pair with this number. Null: it is not there any more.
	SendQueue *find(uint32_t number) const;
	SendQueue *at(uint32_t index) const { return queues_[index]; }
	template <class F>
	void for_each_working(F &&f) const
	{
		for (size_t i = 0; i < queues_.size(); ++i) // what is told in between may make another
			if (SendQueue *queue = queues_[i]; queue && works(*queue))
				f(*queue);
	}
	// Whether one has work for somebody who is there to take it.
	bool busy() const;

	// Its owner is told by handle_broken(), when everything that is there has been read.
	void report_broken(SendQueue &queue, ibv_wc_status status);
	void handle_broken();
	bool any_broken() const { return !broken_.empty(); }

	// Ids of work requests that are posted by libibverbs: those of send queues have the highest bit.
	static constexpr uint64_t is_send = UINT64_C(1) << 63;
	static uint64_t id(uint32_t index, uint32_t number) { return is_send | uint64_t{index} << 32 | number; }
	static uint32_t index_in(uint64_t id) { return id >> 32 & 0x7fffffff; }

private:
	static bool works(const SendQueue &queue);
	void make_hash();

	Completions &completions_;
	std::vector<SendQueue *> queues_; // by index; null: free
	std::vector<SendQueue *> hash_;   // by the numbers of their queue pairs; half empty at least
	struct Broken {
		SendQueue *queue;
		ibv_wc_status status;
	};
	std::vector<Broken> broken_;
};

} // namespace pt2p::verbs
