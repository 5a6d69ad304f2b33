#include "message/matching.hpp"

namespace pt2p {

void Matcher::file_wild(PostedReceive &receive)
{
	receive.previous = wild_tail_;
	receive.next = nullptr;
	(wild_tail_ ? wild_tail_->next : wild_head_) = &receive;
	wild_tail_ = &receive;
}

PostedReceive *Matcher::match_oldest(int source, uint64_t tag)
{
	PostedReceive *exact = exact_.find(source, tag), *wild = wild_head_;
	while (wild && !wild->takes(source, tag))
		wild = wild->next;
	PostedReceive *found = !exact || (wild && wild->order < exact->order) ? wild : exact;
	if (found)
		withdraw(*found);
	return found;
}

void Matcher::withdraw(PostedReceive &receive)
{
	if (lone_ == &receive) {
		lone_ = nullptr;
		return;
	}
	if (receive.exact()) {
		exact_.remove(receive);
		return;
	}
	(receive.previous ? receive.previous->next : wild_head_) = receive.next;
	(receive.next ? receive.next->previous : wild_tail_) = receive.previous;
}

void Matcher::add(UnexpectedMessage &message)
{
	unexpected_.push(message);
	message.previous_arrival = arrival_tail_;
	message.next_arrival = nullptr;
	(arrival_tail_ ? arrival_tail_->next_arrival : arrival_head_) = &message;
	arrival_tail_ = &message;
}

UnexpectedMessage *Matcher::find_wild(int source, uint64_t tag, uint64_t mask) const
{
	for (UnexpectedMessage *m = arrival_head_; m; m = m->next_arrival)
		if ((source == m->source || source == PT2P_ANY_SOURCE) && ((m->tag ^ tag) & mask) == 0)
			return m;
	return nullptr;
}

void Matcher::remove(UnexpectedMessage &message)
{
	unexpected_.remove(message);
	(message.previous_arrival ? message.previous_arrival->next_arrival : arrival_head_) = message.next_arrival;
	(message.next_arrival ? message.next_arrival->previous_arrival : arrival_tail_) = message.previous_arrival;
	message.previous_arrival = message.next_arrival = nullptr;
}

} // namespace pt2p
