// A queue of items that are linked through a member `next`: first in, first out. It takes no memory of its own.
#pragma once

#include <cstddef>

namespace pt2p {

template <class T>
class Fifo {
public:
	bool empty() const { return !first_; }
	// Null when it is empty.
	T *front() const { return first_; }
	size_t size() const
	{
		size_t n = 0;
		for_each([&n](const T &) { ++n; });
		return n;
	}
	void push(T &item)
	{
		item.next = nullptr;
		if (first_)
			last_->next = &item;
		else
			first_ = &item;
		last_ = &item;
	}
	void push_front(T &item)
	{
		item.next = first_;
		first_ = &item;
		if (!item.next)
			last_ = &item;
	}
	// Inserts behind the first items for which `before` holds.
	template <class F>
	void insert_after(T &item, F &&before)
	{
		T *previous = nullptr;
		for (T *at = first_; at && before(*at); at = next_of(*at))
			previous = at;
		if (!previous)
			return push_front(item);
		item.next = previous->next;
		previous->next = &item;
		if (!item.next)
			last_ = &item;
	}
	// Not of an empty one.
	T &pop()
	{
		T &item = *first_;
		first_ = next_of(item);
		return item;
	}
	void clear() { first_ = nullptr; }
	template <class F>
	void for_each(F &&function) const
	{
		for (T *item = first_; item;) {
			T *next = next_of(*item); // the item may be gone afterwards
			function(*item);
			item = next;
		}
	}
	// Takes one item out, if it is there.
	void remove(T &item)
	{
		T *previous = nullptr;
		for (T *at = first_; at; previous = at, at = next_of(*at)) {
			if (at != &item)
				continue;
			if (previous)
				previous->next = item.next;
			else
				first_ = next_of(item);
			if (last_ == &item)
				last_ = previous;
			return;
		}
	}
	// Takes out the items for which `wanted` holds; it is asked once for each, in order.
	template <class F>
	void remove_if(F &&wanted)
	{
		T *item = first_;
		clear();
		while (item) {
			T *next = next_of(*item);
			if (!wanted(*item))
				push(*item);
			item = next;
		}
	}

private:
	// The member may be declared in a base of T.
	static T *next_of(const T &item) { return static_cast<T *>(item.next); }

	T *first_ = nullptr, *last_ = nullptr;
};

} // namespace pt2p
