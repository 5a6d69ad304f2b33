// Matching: which posted receive takes an arriving message, and which arrived message a receive takes.
//
//   posted receives                               unexpected messages
//
//   exact: hash of (source, tag) -> FIFO          hash of (source, tag) -> FIFO   found by exact receives
//   wild:  one list in posting order              one list in arrival order       walked by wild receives and probes
//
// A receive that is posted alone, as in a blocking exchange, is in neither: it is compared directly, and filed when a second
// one comes.
//
// An arrival takes the older of the first exact and the first fitting wild receive; a receive takes the oldest fitting
// message. With that, messages of one source and tag are received in the order in which they were sent. Cost for exact
// receives does not grow with their number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "pt2p.h"
#include "transports/transport.hpp"

namespace pt2p {

// What a receive asks for. Lives inside the request; linked into one list while posted.
struct PostedReceive {
	PostedReceive *previous = nullptr, *next = nullptr;
	uint64_t tag = 0, mask = 0;
	uint64_t order = 0; // position in posting order
	int source = 0;

	bool exact() const { return source != PT2P_ANY_SOURCE && mask == PT2P_TAG_EXACT; }
	bool takes(int from, uint64_t message_tag) const
	{
		return (source == from || source == PT2P_ANY_SOURCE) && ((message_tag ^ tag) & mask) == 0;
	}
};

// A message that arrived before its receive; linked into its bucket and into the arrival list.
struct UnexpectedMessage {
	UnexpectedMessage *previous = nullptr, *next = nullptr;             // bucket
	UnexpectedMessage *previous_arrival = nullptr, *next_arrival = nullptr;
	uint64_t tag = 0;
	size_t length = 0;        // bytes of the message
	void *payload = nullptr;  // eager: a copy, owned by the engine; null for an announced or an empty message
	RemoteMemory memory{};    // announced: where the payload is at the sender
	uint64_t exposed = 0;     // announced: whether and how it may be read there, see Announcement
	uint64_t token = 0;       // announced: the sender's request
	int source = 0;
	bool announced = false;
};

// A hash table of FIFO lists with (source, tag) keys; doubles when it holds more nodes than buckets.
template <class Node>
class BucketTable {
public:
	BucketTable() { allocate(64); }

	void push(Node &node)
	{
		if (__builtin_expect(full(), 0))
			grow();
		append(bucket(node.source, node.tag), node);
		++count_;
	}
	Node *find(int source, uint64_t tag) const
	{
		for (Node *n = bucket(source, tag).head; n; n = n->next)
			if (n->tag == tag && n->source == source)
				return n;
		return nullptr;
	}
	// The first with that key, removed; null: none.
	Node *take(int source, uint64_t tag)
	{
		Bucket &b = bucket(source, tag);
		for (Node *n = b.head; n; n = n->next)
			if (n->tag == tag && n->source == source) {
				unlink(b, *n);
				return n;
			}
		return nullptr;
	}
	void remove(Node &node) { unlink(bucket(node.source, node.tag), node); }
	size_t count() const { return count_; }
	bool full() const { return count_ >= size_; } // the next push allocates
	template <class F>
	void for_each(F &&function) const // the callback may remove the node it gets
	{
		for (size_t i = 0; i < size_; ++i)
			for (Node *n = buckets_[i].head, *after; n; n = after) {
				after = n->next;
				function(*n);
			}
	}

private:
	struct Bucket {
		Node *head = nullptr, *tail = nullptr;
	};

	Bucket &bucket(int source, uint64_t tag) const
	{
		// Multiplicative hashing (Knuth, The Art of Computer Programming 3, 6.4); the top bits are the well-mixed ones.
		const uint64_t key = (tag ^ static_cast<uint64_t>(source) * UINT64_C(0xc2b2ae3d27d4eb4f)) *
		                     UINT64_C(0x9e3779b97f4a7c15);
		return buckets_[key >> shift_];
	}
	static void append(Bucket &b, Node &node)
	{
		node.previous = b.tail;
		node.next = nullptr;
		(b.tail ? b.tail->next : b.head) = &node;
		b.tail = &node;
	}
	void unlink(Bucket &b, Node &node)
	{
		(node.previous ? node.previous->next : b.head) = node.next;
		(node.next ? node.next->previous : b.tail) = node.previous;
		--count_;
	}
	void allocate(size_t size)
	{
		buckets_ = std::make_unique<Bucket[]>(size);
		size_ = size;
		shift_ = 64 - static_cast<unsigned>(__builtin_ctzll(size));
	}
	[[gnu::noinline]] void grow()
	{
		const auto old = std::move(buckets_);
		const size_t old_size = size_;
		allocate(2 * old_size);
		for (size_t i = 0; i < old_size; ++i)
			for (Node *n = old[i].head, *after; n; n = after) {
				after = n->next;
				append(bucket(n->source, n->tag), *n);
			}
	}

	std::unique_ptr<Bucket[]> buckets_;
	size_t size_ = 0, count_ = 0;
	unsigned shift_ = 0;
};

class Matcher {
public:
	// Posts a receive that no unexpected message fits.
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
	// As post, when it takes no call: false, and nothing done, when it does.
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
	// The receive that a message from `source` with `tag` belongs to, unposted; null: the message is unexpected.
	PostedReceive *match(int source, uint64_t tag)
	{
		return wild_head_ ? match_oldest(source, tag) : match_exact(source, tag);
	}
	// As match, while no wild receive is posted beside others.
	bool any_wild() const { return wild_head_ != nullptr; }
	PostedReceive *match_exact(int source, uint64_t tag)
	{
		if (lone_)
			return lone_->takes(source, tag) ? std::exchange(lone_, nullptr) : nullptr;
		return exact_.count() ? exact_.take(source, tag) : nullptr;
	}
	void withdraw(PostedReceive &receive);

	void add(UnexpectedMessage &message);
	// The oldest unexpected message that such a receive takes; it stays. Null: none.
	UnexpectedMessage *find(int source, uint64_t tag, uint64_t mask) const
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
	bool any_posted() const { return lone_ || exact_.count() || wild_head_; }

	// In no particular order; the callback may withdraw or remove what it gets.
	template <class F>
	void for_each_posted(F &&function) const
	{
		if (lone_)
			function(*lone_);
		exact_.for_each(function);
		for (PostedReceive *r = wild_head_, *after; r; r = after) {
			after = r->next;
			function(*r);
		}
	}
	template <class F>
	void for_each_unexpected(F &&function) const // in order of arrival
	{
		for (UnexpectedMessage *m = arrival_head_, *after; m; m = after) {
			after = m->next_arrival;
			function(*m);
		}
	}

private:
	UnexpectedMessage *find_wild(int source, uint64_t tag, uint64_t mask) const;
	PostedReceive *match_oldest(int source, uint64_t tag);
	void file(PostedReceive &receive)
	{
		receive.order = next_order_++;
		if (__builtin_expect(receive.exact(), 1))
			exact_.push(receive);
		else
			file_wild(receive);
	}
	void file_wild(PostedReceive &receive);

	PostedReceive *lone_ = nullptr; // the only posted receive, in no table
	BucketTable<PostedReceive> exact_;
	PostedReceive *wild_head_ = nullptr, *wild_tail_ = nullptr;
	uint64_t next_order_ = 0;
	BucketTable<UnexpectedMessage> unexpected_;
	UnexpectedMessage *arrival_head_ = nullptr, *arrival_tail_ = nullptr;
};

} // namespace pt2p
