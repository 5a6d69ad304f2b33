// The completion queues of a rank; usually one. A completion queue can hold all completions of its queue pairs, even if
// everything in them is flushed, because an overrun breaks all of them. Further queue pairs get another completion
// queue, twice as large.
#pragma once

#include <algorithm>
#include <list>
#include <memory>

#include "transports/verbs/device/device.hpp"
#include "transports/verbs/mlx5/queues.hpp"

namespace pt2p::verbs {

struct CompletionQueue {
	CqExOwner verbs;
	std::unique_ptr<mlx5::CqBuffer> direct; // null: polled by libibverbs
	uint32_t capacity, used;                // send queues

	ibv_cq *cq() const { return ibv_cq_ex_to_cq(verbs.get()); }
};

class Completions {
public:
	// Each queue can hold `receives` completions, and `depth` for each send queue. Throws Error.
	Completions(const Device &device, bool direct, uint32_t receives, uint32_t depth);

	// For a queue pair that only receives.
	ibv_cq *first() const { return queues_.front().cq(); }
	// A queue with room for one more send queue; add() must follow when that exists. Throws Error.
	ibv_cq *with_room();
	void add(const ibv_cq *cq) { ++of(cq).used; }
	void remove(const ibv_cq *cq) { --of(cq).used; }
	// The queue pair with this number, which completed there, was reset or destroyed. CQEs of its sends are skipped.
	void forget(const ibv_cq *cq, uint32_t number);

	// with_room() may add a queue at the end, also while one goes through them.
	auto begin() { return queues_.begin(); }
	auto end() { return queues_.end(); }
	auto begin() const { return queues_.begin(); }
	auto end() const { return queues_.end(); }
	// Whether there is none to be read. False also if only libibverbs could tell.
	bool empty() const
	{
		return std::all_of(queues_.begin(), queues_.end(),
		                   [](const CompletionQueue &q) { return q.direct && q.direct->empty(); });
	}

	// For sleeping; -1: not possible.
	int fd() const { return channel_ ? channel_->fd : -1; }
	ibv_comp_channel *channel() const { return channel_.get(); }
	// Requests an event with the next completion of each queue; false: not possible. One request lasts until an event
	// is taken.
	bool arm();
	bool armed() const { return armed_; }
	// Takes the events that have come.
	void take_events();

private:
	void make(uint32_t capacity);
	CompletionQueue &of(const ibv_cq *cq);

	const Device &device_;
	const bool direct_;
	const uint32_t receives_, depth_;
	bool armed_ = false;
	ChannelOwner channel_; // null: events are not possible
	std::list<CompletionQueue> queues_;
};

} // namespace pt2p::verbs
