// Whose turn is next: fibres in the order of their times, those of the same time in the order in which they were put.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace softhca::time {

struct Turn {
	uint64_t time = 0, order = 0;
	size_t place = SIZE_MAX; // in the heap; SIZE_MAX: not there

	bool before(const Turn &other) const { return time != other.time ? time < other.time : order < other.order; }
};

// A binary heap of what derives from Turn. Each is in it at most once, and can be moved.
template <class T>
class Turns {
public:
	T *first() const { return heap_.empty() ? nullptr : heap_.front(); }
	// Puts it there, or moves it.
	void put(T &what, uint64_t time, uint64_t order)
	{
		what.time = time;
		what.order = order;
		if (what.place == SIZE_MAX) {
			what.place = heap_.size();
			heap_.push_back(&what);
		}
		up(what.place);
		down(what.place);
	}
	void take_first()
	{
		heap_.front()->place = SIZE_MAX;
		T *const last = heap_.back();
		heap_.pop_back();
		if (heap_.empty())
			return;
		set(0, last);
		down(0);
	}

private:
	void set(size_t place, T *what)
	{
		heap_[place] = what;
		what->place = place;
	}
	void up(size_t place)
	{
		T *const what = heap_[place];
		for (; place && what->before(*heap_[(place - 1) / 2]); place = (place - 1) / 2)
			set(place, heap_[(place - 1) / 2]);
		set(place, what);
	}
	void down(size_t place)
	{
		T *const what = heap_[place];
		for (;;) {
			size_t child = 2 * place + 1;
			if (child + 1 < heap_.size() && heap_[child + 1]->before(*heap_[child]))
				++child;
			if (child >= heap_.size() || !heap_[child]->before(*what))
				break;
			set(place, heap_[child]);
			place = child;
		}
		set(place, what);
	}

	std::vector<T *> heap_;
};

} // namespace softhca::time
