#include "channel/channel.hpp"

#include <algorithm>

namespace pt2p {

PendingSend &Channel::make(uint8_t id, uint64_t header, const void *data, size_t length, void *owner)
{
	PendingSend *item = pool_.take();
	item->id = id;
	item->header = header;
	item->data = static_cast<const unsigned char *>(data);
	item->length = length;
	item->gather = nullptr;
	item->urgent = false;
	item->owner = owner;
	++waiting_;
	return *item;
}

void Channel::append_message(PendingSend &item)
{
	messages_.push(item);
	++enqueued_;
}

void Channel::queue(uint8_t id, uint64_t header, const void *data, size_t length, void *owner)
{
	append_message(make(id, header, data, length, owner));
	refresh();
}

bool Channel::send_control(uint8_t id, uint64_t header, const void *data, size_t length)
{
	if (try_send(id, header, data, length) == Outcome::done)
		return false;
	PendingSend &item = make(id, header, nullptr, length, nullptr);
	if (length)
		std::memcpy(item.copy, data, std::min(length, sizeof item.copy));
	item.data = item.copy;
	append_message(item);
	refresh();
	return true;
}

bool Channel::send_urgent(uint8_t id, uint64_t header)
{
	if (try_send(id, header, nullptr, 0) == Outcome::done)
		return false;
	PendingSend &item = make(id, header, nullptr, 0, nullptr);
	item.urgent = true;
	messages_.insert_after(item, [](const PendingSend &other) { return other.urgent; });
	refresh();
	return true;
}

void Channel::stream(uint8_t id, uint64_t header, const void *data, size_t length, void *owner)
{
	streams_.push(make(id, header, data, length, owner));
}

void Channel::stream(uint8_t id, uint64_t header, Gather &gather, size_t length, void *owner)
{
	PendingSend &item = make(id, header, nullptr, length, owner);
	item.gather = &gather;
	streams_.push(item);
}

unsigned Channel::drive()
{
	unsigned sent = 0;
	while (PendingSend *item = messages_.front()) {
		if (send(item->id, item->header, item->data, item->length) != Outcome::done)
			return sent;
		++sent;
		dequeued_ += !item->urgent;
		messages_.pop();
		--waiting_;
		void *owner = item->owner;
		pool_.give(item);
		if (owner)
			client_.on_sent(owner);
	}
	refresh();
	return sent + drive_streams();
}

unsigned Channel::drive_streams()
{
	unsigned sent = 0;
	while (PendingSend *item = streams_.front()) {
		size_t piece = std::min(item->length, endpoint.longest_piece());
		const unsigned char *data = item->gather ? item->gather->next(piece, piece) : item->data;
		if (send(item->id, item->header, data, piece) != Outcome::done)
			break;
		++sent;
		if (item->gather)
			item->gather->taken(piece);
		else
			item->data += piece;
		item->length -= piece;
		if (item->length)
			continue;
		streams_.pop();
		--waiting_;
		void *owner = item->owner;
		pool_.give(item);
		if (owner)
			client_.on_sent(owner);
	}
	return sent;
}

Channel *Channel::lane(unsigned number)
{
	Endpoint *further = endpoint.lane(number);
	if (!further)
		return nullptr;
	if (!lanes_)
		lanes_ = std::make_unique<std::vector<std::unique_ptr<Channel>>>();
	if (lanes_->size() < number)
		lanes_->resize(number);
	std::unique_ptr<Channel> &channel = (*lanes_)[number - 1];
	if (!channel)
		channel = std::make_unique<Channel>(*further, eager_max_, pool_, client_);
	return channel.get();
}

void Channel::take_down()
{
	down_ = true;
	for_each_lane([](Channel &lane) { lane.down_ = true; });
	drop();
}

void Channel::drop()
{
	for_each_lane([](Channel &lane) { lane.drop(); });
	for (Fifo<PendingSend> *queue : {&messages_, &streams_})
		while (!queue->empty())
			pool_.give(&queue->pop());
	waiting_ = 0;
	dequeued_ = enqueued_;
	refresh();
}

} // namespace pt2p
