// The hash table of matching.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace pt2p {

// A hash table of FIFO lists with (source, tag) keys; doubles when it holds more nodes than buckets. A node has the
// members `Node *previous, *next`, `int source` and `uint64_t tag`, which the table does not own.
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
	// The first with that key; null: none. `compared` grows by the nodes that were looked at.
	Node *find(int source, uint64_t tag, uint64_t &compared) const
	{
		for (Node *n = bucket(source, tag).head; n; n = n->next) {
			++compared;
			if (n->tag == tag && n->source == source)
				return n;
		}
		return nullptr;
	}
	Node *find(int source, uint64_t tag) const
	{
		uint64_t compared = 0;
		return find(source, tag, compared);
	}
	// The same, removed.
	Node *take(int source, uint64_t tag, uint64_t &compared)
	{
		Bucket &b = bucket(source, tag);
		for (Node *n = b.head; n; n = n->next) {
			++compared;
			if (n->tag == tag && n->source == source) {
				unlink(b, *n);
				return n;
			}
		}
		return nullptr;
	}
	Node *take(int source, uint64_t tag)
	{
		uint64_t compared = 0;
		return take(source, tag, compared);
	}
	void remove(Node &node) { unlink(bucket(node.source, node.tag), node); }
	size_t count() const { return count_; }
	bool full() const { return count_ >= size_; } // the next push allocates

private:
	struct Bucket {
		Node *head = nullptr, *tail = nullptr;
	};

	Bucket &bucket(int source, uint64_t tag) const
	{
		// Multiplicative hashing (Knuth, The Art of Computer Programming 3, 6.4); the top bits are the well-mixed ones.
		const uint64_t key =
		    (tag ^ static_cast<uint64_t>(source) * UINT64_C(0xc2b2ae3d27d4eb4f)) * UINT64_C(0x9e3779b97f4a7c15);
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

} // namespace pt2p
