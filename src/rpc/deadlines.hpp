// Deadlines of calls: a wheel of lists. Adding and removing one takes constant time, whatever is pending, and nothing
// is allocated.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pt2p::rpc {

// The time when so many nanoseconds have passed. What lasts longer than the clock can tell never ends.
inline int64_t time_after(int64_t now, int64_t span) { return span < INT64_MAX - now ? now + span : INT64_MAX; }

// Something with a deadline. It unlinks itself when it is removed.
struct Deadline {
	Deadline *earlier = nullptr, *later = nullptr; // in its list; `earlier` is null outside of one
	int64_t at = 0;                                // of now_ns()
};

class Deadlines {
public:
	Deadlines()
	{
		for (Deadline &list : lists_)
			list.earlier = list.later = &list;
	}
	Deadlines(const Deadlines &) = delete;
	Deadlines &operator=(const Deadlines &) = delete;

	bool empty() const { return count_ == 0; }
	void add(Deadline &d, int64_t at, int64_t now)
	{
		if (!count_++)
			turn_ = now >> shift;
		d.at = at;
		// What is over already belongs to the list that is looked at next.
		Deadline &list = lists_[static_cast<size_t>(at >> shift > turn_ ? at >> shift : turn_) % lists];
		d.later = &list;
		d.earlier = list.earlier;
		d.earlier->later = &d;
		list.earlier = &d;
	}
	// Nothing happens when it is in no list.
	void remove(Deadline &d)
	{
		if (!d.earlier)
			return;
		d.earlier->later = d.later;
		d.later->earlier = d.earlier;
		d.earlier = nullptr;
		--count_;
	}
	// Removes one that has passed; null: there is none. The lists are passed in turn, so it takes several calls.
	Deadline *next_passed(int64_t now)
	{
		const int64_t end = now >> shift;
		if (end - turn_ >= static_cast<int64_t>(lists))
			turn_ = end - static_cast<int64_t>(lists) + 1; // each list is looked at once
		for (; count_; ++turn_) {
			Deadline &list = lists_[static_cast<size_t>(turn_) % lists];
			for (Deadline *d = list.later; d != &list; d = d->later)
				if (d->at <= now) {
					remove(*d);
					return d;
				}
			if (turn_ >= end)
				break;
		}
		return nullptr;
	}

private:
	static constexpr unsigned shift = 17; // 131 us for a list
	static constexpr size_t lists = 512;  // 67 ms; later ones share lists with these

	Deadline lists_[lists];
	int64_t turn_ = 0; // all lists before that of this turn are passed
	size_t count_ = 0;
};

} // namespace pt2p::rpc
