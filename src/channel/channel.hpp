// A channel: the send side towards one peer. It queues, in order, what the transport has no room for.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "base/assert.hpp"
#include "base/memory/fifo.hpp"
#include "base/memory/pool.hpp"
#include "base/memory/segments.hpp"
#include "transports/transport.hpp"

namespace pt2p {

// Something that waits to be sent: a message, or the rest of a stream.
struct PendingSend {
	PendingSend *next;
	uint8_t id;
	uint64_t header;
	const unsigned char *data; // of the caller, or `copy`
	size_t length;
	Gather *gather;         // of a stream whose data is in segments, or null
	bool urgent;            // overtakes messages that are not urgent
	void *owner;            // gets on_sent(); null: nobody does
	unsigned char copy[48]; // of a control message
};

class ChannelClient {
public:
	// The transport has taken all bytes; the buffer is free.
	virtual void on_sent(void *owner) = 0;

protected:
	~ChannelClient() = default;
};

// Messages keep their order. Streams (large data in pieces) go beside them, so that a short message does not wait
// behind a long stream.
class Channel {
public:
	Channel(Endpoint &endpoint, size_t eager_max, Pool<PendingSend> &pool, ChannelClient &client)
	    : endpoint(endpoint), peer(endpoint.peer), eager_max_(eager_max), pool_(pool), client_(client)
	{
		refresh();
	}

	Endpoint &endpoint;
	const int peer;
	bool eager_refused = false; // this rank asked the peer for announcements only
	bool listed = false;        // among the channels with work

	// Whether an eager message of this length may go now: one comparison for all that can be in its way.
	bool free_for(size_t length) const { return static_cast<int64_t>(length) <= at_once_; }
	// The channel over that lane of the endpoint, by number from 1; null: it is not connected now.
	Channel *lane(unsigned number);

	// Passes a message to the transport; after free_for().
	Outcome send(uint8_t id, uint64_t header, const void *data, size_t length)
	{
		PT2P_ASSERT(length <= endpoint.max_send);
		return endpoint.table->send(endpoint, id, header, data, length);
	}
	// Sends, or answers no_resource when the transport has no room or others wait before it.
	Outcome try_send(uint8_t id, uint64_t header, const void *data, size_t length)
	{
		return !messages_.empty() ? Outcome::no_resource : send(id, header, data, length);
	}

	// Longest payload to send unasked, bytes.
	size_t eager_limit() const { return eager_limit(endpoint.eager_factor); }
	// Longest eager message to queue when the transport has no resources, bytes. A longer one is announced.
	size_t queued_eager_limit() const { return std::min(eager_limit(1), endpoint.max_in_stream); }
	// The peer asked for announcements only, or no longer does.
	void stop_eager(bool stopped)
	{
		eager_stopped_ = stopped;
		refresh();
	}
	// The peer is lost or has finalized: discards everything that waits.
	void take_down();
	bool down() const { return down_; }
	// Discards everything that waits; what follows may go.
	void drop();
	// A position in the queue; whether all messages up to it have left, urgent ones aside.
	uint64_t end_of_queue() const { return enqueued_; }
	bool passed(uint64_t position) const { return down_ || dequeued_ >= position; }

	// Queues a message whose buffer stays valid until on_sent(owner).
	void queue(uint8_t id, uint64_t header, const void *data, size_t length, void *owner);
	// Calls the function with each message that waits, in order; it may rewrite the message.
	template <class F>
	void for_each_queued(F &&function)
	{
		messages_.for_each(function);
	}
	// Sends or queues a control message of at most 48 bytes; true when it was queued.
	bool send_control(uint8_t id, uint64_t header, const void *data, size_t length);
	// Sends or queues a control message without payload, ahead of all that waits but other urgent messages; true when
	// it was queued.
	bool send_urgent(uint8_t id, uint64_t header);
	// Starts a stream of pieces with this id and header.
	void stream(uint8_t id, uint64_t header, const void *data, size_t length, void *owner);
	// The same, with `length` bytes in segments.
	void stream(uint8_t id, uint64_t header, Gather &gather, size_t length, void *owner);

	// The endpoint's limits have changed.
	void refresh() { at_once_ = down_ || !messages_.empty() ? -1 : static_cast<int64_t>(eager_limit()); }

	bool has_work() const { return !messages_.empty() || !streams_.empty(); }
	// Sends what there is room for; returns how many messages left.
	unsigned drive();
	size_t waiting() const { return waiting_; }
	// Whether it, or a lane of it, is among the channels with work.
	bool is_listed() const
	{
		return listed || (lanes_ && std::any_of(lanes_->begin(), lanes_->end(),
		                                        [](const auto &lane) { return lane && lane->is_listed(); }));
	}

private:
	// The further ones.
	template <class F>
	void for_each_lane(F &&function)
	{
		if (lanes_)
			for (auto &lane : *lanes_)
				if (lane)
					function(*lane);
	}
	size_t eager_limit(size_t factor) const
	{
		return eager_stopped_ ? 0 : std::min({eager_max_ * factor, endpoint.max_unasked, endpoint.max_send});
	}
	PendingSend &make(uint8_t id, uint64_t header, const void *data, size_t length, void *owner);
	void append_message(PendingSend &item);
	unsigned drive_streams();

	int64_t at_once_; // longest payload that may go now, bytes; negative: nothing may
	const size_t eager_max_;
	bool eager_stopped_ = false, down_ = false;
	Fifo<PendingSend> messages_, streams_;
	size_t waiting_ = 0;
	uint64_t enqueued_ = 0, dequeued_ = 0; // messages that had to wait, so far
	Pool<PendingSend> &pool_;
	ChannelClient &client_;
	std::unique_ptr<std::vector<std::unique_ptr<Channel>>> lanes_; // by number, from 1; null: only the first is used
};

} // namespace pt2p
