// SPDX-License-Identifier: BSD-3-Clause
//
// Whether what clients have seen of one key can be explained by operations that took place one after the other, each
// at some moment between its begin and its end (linearizability, Herlihy and Wing). The search is Wing and Gong's:
// of the operations that could be next, it tries each, and goes back where one cannot. As Lowe proposed, it remembers
// which sets of operations have led to which value, and does not go there twice.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace kv {

struct Operation {
	enum Kind : uint32_t { get, put, erase } kind;
	// put: what it wrote, not 0. get: what it has got; erase: not 0 when there was something. 0: there was nothing.
	uint64_t value;
	int64_t began, ended; // by one clock
};
inline constexpr int64_t never = INT64_MAX; // ended: nobody knows whether it took place, nor what it would have said

class LinearizabilitySearch {
public:
	explicit LinearizabilitySearch(const std::vector<Operation> &history) : done_(history.size() / 64 + 1)
	{
		for (const Operation &operation : history) {
			if (operation.ended == never && operation.kind == Operation::get)
				continue;
			events_.push_back({&operation, operation.began, true});
			if (operation.ended != never)
				events_.push_back({&operation, operation.ended, false});
		}
		// Operations that end in the moment in which another begins may have overlapped it.
		std::stable_sort(events_.begin(), events_.end(), [](const Event &a, const Event &b) {
			return a.time != b.time ? a.time < b.time : a.begin && !b.begin;
		});
		std::vector<size_t> begins(history.size());
		size_t begun = 0;
		for (size_t i = 0; i < events_.size(); ++i) {
			Event &event = events_[i];
			event.previous = i ? i - 1 : none;
			event.next = i + 1 < events_.size() ? i + 1 : none;
			size_t &begin = begins[static_cast<size_t>(event.what - history.data())];
			if (event.begin) {
				event.operation = begun++;
				begin = i;
			} else {
				events_[begin].end = i;
			}
		}
		first_ = events_.empty() ? none : 0;
	}

	bool run()
	{
		for (size_t at = first_; at != none;) {
			Event &event = events_[at];
			if (!event.begin) { // an operation has ended that is not placed: what was placed last was wrong
				Placed last;
				do {
					if (placed_.empty())
						return false;
					last = placed_.back();
					placed_.pop_back();
					value_ = last.value_before;
					flip(events_[last.event].operation);
					put_back(last.event);
				} while (last.free);
				at = events_[last.event].next;
				continue;
			}
			if (const size_t free = at == first_ ? without_effect() : none; free != none) {
				flip(events_[free].operation);
				take_out(free);
				placed_.push_back({free, value_, true});
				at = first_;
				continue;
			}
			const uint64_t before = value_;
			if (possible(*event.what)) {
				flip(event.operation);
				take_out(at);
				if (seen_.insert(situation()).second) {
					placed_.push_back({at, before, false});
					at = first_;
					continue;
				}
				put_back(at);
				flip(event.operation);
				value_ = before;
			}
			at = event.next;
		}
		return true; // those that are left have never ended
	}

private:
	static constexpr size_t none = SIZE_MAX;
	struct Event { // in a list in the order of time
		const Operation *what;
		int64_t time;
		bool begin;
		size_t previous = none, next = none;
		size_t operation = none, end = none; // where one begins: its number in the order of begins, and its end
	};
	struct Placed {
		size_t event;
		uint64_t value_before;
		bool free; // it has no effect, so that nothing else need be tried in its place
	};

	// An operation that could be next, says what is so now, and changes nothing: to place it is never wrong.
	size_t without_effect() const
	{
		for (size_t at = first_; at != none && events_[at].begin; at = events_[at].next) {
			const Operation &o = *events_[at].what;
			if (o.ended != never &&
			    (o.kind == Operation::get ? o.value == value_ : o.kind == Operation::erase && !o.value && !value_))
				return at;
		}
		return none;
	}

	// Lets it take place now, if the value allows what it said.
	bool possible(const Operation &operation)
	{
		const bool known = operation.ended != never;
		switch (operation.kind) {
		case Operation::get: return operation.value == value_;
		case Operation::put: value_ = operation.value; return true;
		case Operation::erase:
			if (known && (operation.value != 0) != (value_ != 0))
				return false;
			value_ = 0;
			return true;
		}
		return false;
	}
	void flip(size_t operation)
	{
		done_[operation / 64] ^= uint64_t(1) << operation % 64;
		last_ = std::max(last_, operation);
	}
	// The value and what is placed: all operations that began before the first that is left, and some after it.
	std::string situation() const
	{
		const size_t left = first_ == none ? none : events_[first_].operation;
		const size_t from = std::min(left, last_) / 64, to = last_ / 64 + 1;
		const auto text = [](const uint64_t *words, size_t n) {
			return std::string_view(reinterpret_cast<const char *>(words), n * sizeof *words);
		};
		const uint64_t head[] = {value_, left};
		std::string all(text(head, 2));
		all.append(text(done_.data() + from, to - from));
		all.erase(all.find_last_not_of('\0') + 1);
		return all;
	}
	void unlink(size_t at)
	{
		const Event &event = events_[at];
		(event.previous == none ? first_ : events_[event.previous].next) = event.next;
		if (event.next != none)
			events_[event.next].previous = event.previous;
	}
	void link(size_t at)
	{
		const Event &event = events_[at];
		(event.previous == none ? first_ : events_[event.previous].next) = at;
		if (event.next != none)
			events_[event.next].previous = at;
	}
	void take_out(size_t at)
	{
		unlink(at);
		if (events_[at].end != none)
			unlink(events_[at].end);
	}
	void put_back(size_t at)
	{
		if (events_[at].end != none)
			link(events_[at].end);
		link(at);
	}

	std::vector<Event> events_;
	size_t first_;
	uint64_t value_ = 0;         // of the key, after what is placed
	std::vector<uint64_t> done_; // a bit for each operation that is placed
	size_t last_ = 0;            // that was ever placed
	std::vector<Placed> placed_;
	std::unordered_set<std::string> seen_;
};

// history: all operations on one key that had no value at first.
inline bool linearizable(const std::vector<Operation> &history) { return LinearizabilitySearch(history).run(); }

// What was known at some moment.
inline std::vector<Operation> until(const std::vector<Operation> &history, int64_t moment)
{
	std::vector<Operation> known;
	for (Operation operation : history)
		if (operation.began <= moment) {
			if (operation.ended > moment)
				operation.ended = never;
			known.push_back(operation);
		}
	return known;
}

// The shortest beginning of a history that is not linearizable. Its last operation that has ended is the first that
// cannot be explained.
inline std::vector<Operation> shortest_failure(const std::vector<Operation> &history)
{
	std::vector<int64_t> ends;
	for (const Operation &operation : history)
		if (operation.ended != never)
			ends.push_back(operation.ended);
	std::sort(ends.begin(), ends.end());
	const auto first =
	    std::partition_point(ends.begin(), ends.end(), [&](int64_t end) { return linearizable(until(history, end)); });
	return first == ends.end() ? history : until(history, *first);
}

} // namespace kv
