// Matching: which posted receive takes an arriving message, and which arrived message a receive takes.
//
//   posted receives                               unexpected messages
//
//   exact: hash of (source, tag) -> FIFO          hash of (source, tag) -> FIFO       found by exact receives
//   wild:  for each pattern a hash of             one list in arrival order; while    found by wild receives and
//          (source or any, tag & mask) -> FIFO    many wait, also an index for each   probes
//                                                 pattern that is asked for
//
// The pattern of a wild receive is its mask and whether it names a source. Programs use few patterns, and each has a
// table of its own. So the cost of a message does not grow with the number of receives, exact or wild, and the cost of
// a receive does not grow with the number of messages. Patterns beyond a small number share a list, which is walked.
//
// A receive that is posted alone, as in a blocking exchange, is in no table: it is compared directly. When a second one
// comes, both are put into tables.
//
// While all receives are wild and have one pattern, an arrival looks at one table alone.
//
// An arrival takes the oldest of the receives that the tables offer. A receive takes the oldest message that matches.
// So messages of one source and tag are received in the order in which they were sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/memory/pool.hpp"
#include "message/matching/bucket_table.hpp"
#include "pt2p.h"
#include "transports/transport.hpp"

namespace pt2p {

// What a receive asks for. It is a part of the request, and is linked into one list while posted.
struct PostedReceive {
	PostedReceive *previous = nullptr, *next = nullptr;
	uint64_t tag = 0;
	union {
		uint64_t mask = 0;
		uint64_t data; // once matched: of a message that has some
	};
	uint64_t order = 0; // position in posting order
	int source = 0;
	uint8_t table = 0; // wild, while filed: in which

	bool exact() const { return source != PT2P_ANY_SOURCE && mask == PT2P_TAG_EXACT; }
	bool takes(int from, uint64_t message_tag) const
	{
		return (source == from || source == PT2P_ANY_SOURCE) && ((message_tag ^ tag) & mask) == 0;
	}
};

struct UnexpectedMessage;

// A message in the index of a pattern, filed under the source and tag bits that the pattern compares.
struct IndexEntry {
	IndexEntry *previous = nullptr, *next = nullptr; // bucket
	uint64_t tag = 0;
	int source = 0;
	uint8_t index = 0;             // of the pattern
	IndexEntry *sibling = nullptr; // of the same message, for another pattern
	UnexpectedMessage *message = nullptr;
};

// A message that arrived before its receive; linked into its bucket and into the arrival list.
struct UnexpectedMessage {
	UnexpectedMessage *previous = nullptr, *next = nullptr; // bucket
	UnexpectedMessage *previous_arrival = nullptr, *next_arrival = nullptr;
	IndexEntry *entries = nullptr; // in the indexes
	uint64_t tag = 0;
	size_t length = 0;       // bytes of the message
	void *payload = nullptr; // eager: a copy, owned by the engine; null for an announced or an empty message
	RemoteMemory memory{};   // announced: where the payload is at the sender
	uint64_t exposed = 0;    // announced: whether and how it may be read there, see Announcement
	uint64_t token = 0;      // announced or synchronous: the sender's request
	uint64_t data = 0;       // beside the payload
	int source = 0;
	bool has_data = false;
	bool announced = false;
	bool synchronous = false; // the sender is told when a receive gets it
	bool taken = false;       // a matched probe has taken it: found by its handle only
	uint64_t handle = 0;      // see HandlePool
	UnexpectedMessage *next_free = nullptr;
};

// What a wild receive or probe does not compare.
struct Pattern {
	uint64_t mask = 0;
	bool any_source = false;

	int source(int s) const { return any_source ? PT2P_ANY_SOURCE : s; }
	bool operator==(const Pattern &) const = default;
};

class Matcher {
public:
	// Posts a receive that matches no unexpected message.
	void post(PostedReceive &receive)
	{
		if (!any_posted()) {
			lone_ = &receive;
			return;
		}
		if (lone_)
			file(*std::exchange(lone_, nullptr));
		file(receive);
	}
	// As post where it needs no call. False: it does, and nothing has happened.
	bool post_at_once(PostedReceive &receive)
	{
		if (!any_posted()) {
			lone_ = &receive;
			return true;
		}
		if (lone_ || !receive.exact() || exact_.full())
			return false;
		file(receive);
		return true;
	}
	// The same for a wild receive whose pattern has the first table.
	bool post_like_others(PostedReceive &receive);
	// The receive that a message from `source` with `tag` belongs to, unposted; null: the message is unexpected.
	PostedReceive *match(int source, uint64_t tag)
	{
		if (!any_wild())
			return match_exact(source, tag);
		return one_pattern() ? match_pattern(source, tag) : match_oldest(source, tag);
	}
	// As match, while no wild receive is posted beside others.
	bool any_wild() const { return wild_count_ != 0; }
	PostedReceive *match_exact(int source, uint64_t tag)
	{
		if (lone_)
			return lone_->takes(source, tag) ? std::exchange(lone_, nullptr) : nullptr;
		return exact_.count() ? exact_.take(source, tag) : nullptr;
	}
	void withdraw(PostedReceive &receive);

	void add(UnexpectedMessage &message);
	// The oldest unexpected message that such a receive takes; it stays. Null: none.
	UnexpectedMessage *find(int source, uint64_t tag, uint64_t mask)
	{
		if (!unexpected_.count())
			return nullptr;
		if (source != PT2P_ANY_SOURCE && mask == PT2P_TAG_EXACT)
			return unexpected_.find(source, tag);
		return find_wild(source, tag, mask);
	}
	void remove(UnexpectedMessage &message);

	size_t posted_exact() const { return exact_.count() + (lone_ && lone_->exact()); }
	size_t unexpected() const { return unexpected_.count(); }
	bool any_posted() const { return lone_ || exact_.count() || wild_count_; }

	// How many receives and messages have been compared for wild receives and probes, and for arrivals while such
	// receives are posted.
	uint64_t compared() const { return compared_; }

	// The callback may remove what it gets.
	template <class F>
	void for_each_unexpected(F &&function) const // in order of arrival
	{
		for (UnexpectedMessage *m = arrival_head_, *after; m; m = after) {
			after = m->next_arrival;
			function(*m);
		}
	}

private:
	template <class Node>
	struct PatternTable : BucketTable<Node> {
		Pattern pattern;
	};
	using Index = PatternTable<IndexEntry>;
	static constexpr size_t max_patterns = 8;               // of posted receives that have a table
	static constexpr uint8_t in_list = max_patterns;        // PostedReceive::table
	static constexpr size_t max_indexes = 4;                // of unexpected messages
	static constexpr size_t long_walk = 32, short_walk = 8; // messages: an index pays above, and no longer below

	// Whether all receives are in the first wild table: those of a program that leaves the same bits open in each one.
	bool one_pattern() const { return wild_.front().count() == wild_count_ && !exact_.count(); }
	PostedReceive *match_pattern(int source, uint64_t tag)
	{
		auto &table = wild_.front();
		PostedReceive *const found = table.take(table.pattern.source(source), tag & table.pattern.mask, compared_);
		wild_count_ -= found != nullptr;
		return found;
	}
	PostedReceive *match_oldest(int source, uint64_t tag);
	size_t table_for(const Pattern &pattern);
	UnexpectedMessage *find_wild(int source, uint64_t tag, uint64_t mask);
	Index *index_for(const Pattern &pattern);
	Index *make_index(const Pattern &pattern);
	void drop_indexes();
	bool enter(UnexpectedMessage &message, size_t index);
	void leave_indexes(UnexpectedMessage &message);
	void file(PostedReceive &receive)
	{
		receive.order = next_order_++;
		if (__builtin_expect(receive.exact(), 1))
			exact_.push(receive);
		else
			file_wild(receive);
	}
	void file_wild(PostedReceive &receive);
	void file_wild(PostedReceive &receive, size_t table);

	PostedReceive *lone_ = nullptr; // the only posted receive, in no table
	BucketTable<PostedReceive> exact_;
	size_t wild_count_ = 0; // filed, in tables and in the list
	std::vector<PatternTable<PostedReceive>> wild_;
	PostedReceive *wild_head_ = nullptr, *wild_tail_ = nullptr; // further patterns, in posting order
	uint64_t next_order_ = 0;
	BucketTable<UnexpectedMessage> unexpected_;
	UnexpectedMessage *arrival_head_ = nullptr, *arrival_tail_ = nullptr;
	std::vector<Index> indexes_; // the first `indexes_used_` hold every unexpected message
	size_t indexes_used_ = 0;
	Pool<IndexEntry> entries_;
	uint64_t compared_ = 0;
};

} // namespace pt2p
