#include "message/matching/matching.hpp"

#include <new>

namespace pt2p {

namespace {

Pattern pattern_of(const PostedReceive &r) { return {r.mask, r.source == PT2P_ANY_SOURCE}; }

} // namespace

// ---- posted receives ------------------------------------------------------------------------------------------------

// The table for a pattern: its own, the first one that is empty, or a new one; in_list when others have them all.
size_t Matcher::table_for(const Pattern &pattern)
{
	size_t empty = in_list;
	for (size_t i = 0; i < wild_.size(); ++i) {
		if (wild_[i].pattern == pattern)
			return i;
		if (!wild_[i].count() && empty == in_list)
			empty = i;
	}
	if (empty == in_list) {
		if (wild_.size() == max_patterns)
			return in_list;
		empty = wild_.size();
		wild_.emplace_back();
	}
	wild_[empty].pattern = pattern;
	return empty;
}

void Matcher::file_wild(PostedReceive &receive) { file_wild(receive, table_for(pattern_of(receive))); }

void Matcher::file_wild(PostedReceive &receive, size_t table)
{
	receive.table = static_cast<uint8_t>(table);
	receive.tag &= receive.mask; // the key; nobody looks at the other bits
	if (table != in_list) {
		wild_[table].push(receive);
	} else {
		receive.previous = wild_tail_;
		receive.next = nullptr;
		(wild_tail_ ? wild_tail_->next : wild_head_) = &receive;
		wild_tail_ = &receive;
	}
	++wild_count_;
}

bool Matcher::post_like_others(PostedReceive &receive)
{
	if (lone_ || wild_.empty() || wild_.front().full() || !(wild_.front().pattern == pattern_of(receive)))
		return false;
	receive.order = next_order_++;
	file_wild(receive, 0);
	return true;
}

PostedReceive *Matcher::match_oldest(int source, uint64_t tag)
{
	PostedReceive *found = exact_.find(source, tag, compared_);
	for (const auto &table : wild_) {
		if (!table.count())
			continue;
		PostedReceive *r = table.find(table.pattern.source(source), tag & table.pattern.mask, compared_);
		if (r && (!found || r->order < found->order))
			found = r;
	}
	for (PostedReceive *r = wild_head_; r && (!found || r->order < found->order); r = r->next) {
		++compared_;
		if (r->takes(source, tag))
			found = r;
	}
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
	--wild_count_;
	if (receive.table != in_list) {
		wild_[receive.table].remove(receive);
		return;
	}
	(receive.previous ? receive.previous->next : wild_head_) = receive.next;
	(receive.next ? receive.next->previous : wild_tail_) = receive.previous;
}

// ---- unexpected messages --------------------------------------------------------------------------------------------

void Matcher::add(UnexpectedMessage &message)
{
	unexpected_.push(message);
	message.previous_arrival = arrival_tail_;
	message.next_arrival = nullptr;
	(arrival_tail_ ? arrival_tail_->next_arrival : arrival_head_) = &message;
	arrival_tail_ = &message;
	message.entries = nullptr;
	for (size_t i = 0; i < indexes_used_; ++i)
		if (!enter(message, i))
			drop_indexes();
}

// Walks as far as is cheap. When the one that is wanted may be further away, the pattern gets an index.
UnexpectedMessage *Matcher::find_wild(int source, uint64_t tag, uint64_t mask)
{
	const Pattern pattern{mask, source == PT2P_ANY_SOURCE};
	Index *index = index_for(pattern);
	size_t walked = 0;
	for (UnexpectedMessage *m = arrival_head_; m && !index; m = m->next_arrival) {
		++compared_;
		if (pattern.source(m->source) == source && ((m->tag ^ tag) & mask) == 0)
			return m;
		if (++walked == long_walk && indexes_used_ < max_indexes)
			index = make_index(pattern);
	}
	const IndexEntry *entry = index ? index->find(source, tag & mask, compared_) : nullptr;
	return entry ? entry->message : nullptr;
}

void Matcher::remove(UnexpectedMessage &message)
{
	unexpected_.remove(message);
	(message.previous_arrival ? message.previous_arrival->next_arrival : arrival_head_) = message.next_arrival;
	(message.next_arrival ? message.next_arrival->previous_arrival : arrival_tail_) = message.previous_arrival;
	message.previous_arrival = message.next_arrival = nullptr;
	if (__builtin_expect(!indexes_used_, 1))
		return;
	leave_indexes(message);
	// Other patterns may be asked for when many wait again.
	if (unexpected_.count() <= short_walk)
		drop_indexes();
}

Matcher::Index *Matcher::index_for(const Pattern &pattern)
{
	for (size_t i = 0; i < indexes_used_; ++i)
		if (indexes_[i].pattern == pattern)
			return &indexes_[i];
	return nullptr;
}

// Null when memory is short.
Matcher::Index *Matcher::make_index(const Pattern &pattern)
try {
	if (indexes_used_ == indexes_.size())
		indexes_.emplace_back();
	Index &index = indexes_[indexes_used_];
	index.pattern = pattern;
	const size_t i = indexes_used_++;
	for (UnexpectedMessage *m = arrival_head_; m; m = m->next_arrival)
		if (!enter(*m, i)) {
			drop_indexes();
			return nullptr;
		}
	compared_ += unexpected_.count();
	return &index;
} catch (const std::bad_alloc &) {
	return nullptr;
}

// False when memory is short: messages are then walked, as without an index.
bool Matcher::enter(UnexpectedMessage &message, size_t index)
try {
	const Pattern &pattern = indexes_[index].pattern;
	IndexEntry *e = entries_.take();
	e->tag = message.tag & pattern.mask;
	e->source = pattern.source(message.source);
	e->index = static_cast<uint8_t>(index);
	e->message = &message;
	indexes_[index].push(*e);
	e->sibling = message.entries;
	message.entries = e;
	return true;
} catch (const std::bad_alloc &) {
	return false;
}

void Matcher::drop_indexes()
{
	for (UnexpectedMessage *m = arrival_head_; m; m = m->next_arrival)
		leave_indexes(*m);
	indexes_used_ = 0;
}

void Matcher::leave_indexes(UnexpectedMessage &message)
{
	for (IndexEntry *e = message.entries, *after; e; e = after) {
		after = e->sibling;
		indexes_[e->index].remove(*e);
		entries_.give(e);
	}
	message.entries = nullptr;
}

} // namespace pt2p
