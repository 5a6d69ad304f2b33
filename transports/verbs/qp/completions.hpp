// The completion queues of a rank: one, as a rule. A completion queue has room for all that the queue pairs at it can
// complete with, also when everything in them is flushed: an overrun would break them all. When there are more queue
// pairs than it has room for, those get another one, twice as large.
#pragma once

#include <memory>
#include <vector>

#include "transports/verbs/device/device.hpp"
#include "transports/verbs/mlx5/queues.hpp"

namespace pt2p::verbs {

struct CompletionQueue {
	CqExOwner verbs;
	std::unique_ptr<mlx5::CqBuffer> direct; // null: read by libibverbs
	uint32_t capacity, used;                // send queues

	ibv_cq *cq() const { return ibv_cq_ex_to_cq(verbs.get()); }
};

class Completions {
public:
	// Each queue has room for `receives`, and for `depth` for each send queue. Throws Error.
	Completions(const Device &device, bool direct, uint32_t receives, uint32_t depth);

	// For what only receives.
	ibv_cq *first() const { return queues_[0].cq(); }
	// One with room for another send queue, which is to be counted by add() as soon as it is there. Throws Error.
	ibv_cq *with_room();
	void add(const ibv_cq *cq) { ++of(cq).used; }
	void remove(const ibv_cq *cq) { --of(cq).used; }
	// After the queue pair with this number, which completed there, was reset or destroyed: what is left of its sends
	// is not handed out any more.
	void forget(const ibv_cq *cq, uint32_t number);

	// with_room() adds to them, and moves them.
	size_t count() const { return queues_.size(); }
	CompletionQueue &operator[](size_t i) { return queues_[i]; }

	// Sleeping. -1: cannot be done.
	int fd() const { return channel_ ? channel_->fd : -1; }
	ibv_comp_channel *channel() const { return channel_.get(); }
	// Asks for an event with the next completion of each; false: it cannot be done. Once is enough, until an event is
	// taken.
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
	ChannelOwner channel_; // null: there are none
	std::vector<CompletionQueue> queues_;
};

} // namespace pt2p::verbs
