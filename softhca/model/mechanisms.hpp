// What a device's work competes for: links and caches. Pure functions of times, in picoseconds.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <unordered_map>
#include <utility>
#include <vector>

namespace softhca::model {

using Picoseconds = uint64_t;

inline Picoseconds from_ns(double ns) { return static_cast<Picoseconds>(ns * 1000 + 0.5); }

// Bytes with the overhead of each piece.
inline double with_overhead(double bytes, double piece, double overhead)
{
	return bytes + std::ceil(bytes / piece) * overhead;
}

// Moves bytes, one at a time. Bytes may be given to it before they are there: until then the link is free for others,
// whose bytes go around those that have their time already.
class Link {
public:
	// megabytes (10^6) a second
	explicit Link(double rate) : ps_per_byte_(1e6 / rate) {}
	Picoseconds time(double bytes) const { return static_cast<Picoseconds>(bytes * ps_per_byte_ + 0.5); }
	// When the last of so many bytes has passed, if they are there at `now`.
	Picoseconds move(Picoseconds now, double bytes)
	{
		while (!busy_.empty() && busy_.front().until + remembered < now)
			busy_.pop_front();
		Picoseconds begin = now, end = now + time(bytes);
		auto first = std::upper_bound(busy_.begin(), busy_.end(), now,
		                              [](Picoseconds t, const Interval &busy) { return t < busy.from; });
		if (first != busy_.begin() && std::prev(first)->until >= now)
			--first;
		auto next = first;
		for (; next != busy_.end() && next->from < end; ++next) {
			// Waits for what is in the way.
			end += next->until - std::max(next->from, now);
			begin = std::min(begin, next->from);
		}
		Picoseconds until = end;
		if (next != busy_.end() && next->from == end)
			until = next++->until;
		if (first == next) {
			busy_.insert(first, {begin, until});
		} else {
			*first = {begin, until};
			busy_.erase(first + 1, next);
		}
		return end;
	}
	// The same for bytes whose last one is there at `now`, unless others were in the way.
	Picoseconds arrive(Picoseconds now, double bytes) { return move(now - std::min(now, time(bytes)), bytes); }

private:
	static constexpr Picoseconds remembered = 100'000'000; // no caller's time is older

	struct Interval {
		Picoseconds from, until;
	};

	double ps_per_byte_;
	std::deque<Interval> busy_; // in order, and apart from each other
};

// A cache that evicts at random, in the same way in every run.
class RandomCache {
public:
	explicit RandomCache(size_t entries, uint64_t seed = 1)
	    : max_(std::max<size_t>(entries, 1)), chance_(seed * 0x9e3779b97f4a7c15u | 1)
	{
	}

	bool has(uint64_t key) const { return places_.count(key) != 0; }
	// Whether it was there; afterwards it is.
	bool use(uint64_t key)
	{
		if (has(key))
			return true;
		if (keys_.size() < max_) {
			places_[key] = keys_.size();
			keys_.push_back(key);
			return false;
		}
		const size_t place = next() % max_;
		places_.erase(keys_[place]);
		keys_[place] = key;
		places_[key] = place;
		return false;
	}
	void forget(uint64_t key)
	{
		const auto found = places_.find(key);
		if (found == places_.end())
			return;
		const size_t place = found->second;
		places_.erase(found);
		if (keys_.back() != key) {
			keys_[place] = keys_.back();
			places_[keys_[place]] = place;
		}
		keys_.pop_back();
	}
	size_t size() const { return keys_.size(); }

private:
	uint64_t next() // xorshift64*, Vigna 2016
	{
		chance_ ^= chance_ >> 12;
		chance_ ^= chance_ << 25;
		chance_ ^= chance_ >> 27;
		return (chance_ * 0x2545f4914f6cdd1du) >> 32;
	}

	size_t max_;
	uint64_t chance_;
	std::vector<uint64_t> keys_;
	std::unordered_map<uint64_t, size_t> places_;
};

// A cache that evicts the oldest, however often it was used.
class FifoCache {
public:
	explicit FifoCache(size_t entries) : max_(std::max<size_t>(entries, 1)) {}

	bool has(uint64_t key) const { return numbers_.count(key) != 0; }
	// Whether it was there; afterwards it is.
	bool use(uint64_t key)
	{
		const auto [place, made] = numbers_.try_emplace(key, next_);
		if (!made)
			return true;
		order_.emplace_back(key, next_++);
		while (numbers_.size() > max_ || (!order_.empty() && !is_there(order_.front()))) {
			if (is_there(order_.front()))
				numbers_.erase(order_.front().first);
			order_.pop_front();
		}
		return false;
	}
	void forget(uint64_t key) { numbers_.erase(key); }
	size_t size() const { return numbers_.size(); }

private:
	// Neither forgotten, nor forgotten and used again.
	bool is_there(const std::pair<uint64_t, uint64_t> &one) const
	{
		const auto found = numbers_.find(one.first);
		return found != numbers_.end() && found->second == one.second;
	}

	size_t max_;
	uint64_t next_ = 0;
	std::unordered_map<uint64_t, uint64_t> numbers_;
	std::deque<std::pair<uint64_t, uint64_t>> order_;
};

} // namespace softhca::model
