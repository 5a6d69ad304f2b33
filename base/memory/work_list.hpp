// Items that have work: each is listed once, and leaves when it has none.
#pragma once

#include <cstddef>
#include <vector>

namespace pt2p {

// T has the members `bool listed` and `bool has_work() const`.
template <class T>
class WorkList {
public:
	bool empty() const { return items_.empty(); }
	void add(T &item)
	{
		if (!item.listed) {
			item.listed = true;
			items_.push_back(&item);
		}
	}
	// Calls `drive` with each item, which may add others; returns the sum of what that returns.
	template <class F>
	unsigned drive(F &&drive)
	{
		unsigned n = 0;
		for (size_t i = 0; i < items_.size();) {
			T &item = *items_[i];
			n += drive(item);
			if (item.has_work()) {
				++i;
				continue;
			}
			item.listed = false;
			items_[i] = items_.back();
			items_.pop_back();
		}
		return n;
	}

private:
	std::vector<T *> items_;
};

} // namespace pt2p
