// The check of examples/kv: it accepts what is linearizable and rejects what is not.
#include <catch2/catch.hpp>

#include <numeric>
#include <vector>

#include "examples/kv/check.hpp"
#include "examples/kv/ycsb.hpp"

using kv::linearizable, kv::never, kv::Operation;
using History = std::vector<Operation>;

namespace {

Operation put(uint64_t value, int64_t began, int64_t ended) { return {Operation::put, value, began, ended}; }
Operation get(uint64_t value, int64_t began, int64_t ended) { return {Operation::get, value, began, ended}; }
Operation erase(bool found, int64_t began, int64_t ended) { return {Operation::erase, found, began, ended}; }

// By the definition: tries all orders that respect time, and all sets of operations that have not ended.
bool by_definition(const History &history, std::vector<bool> placed, uint64_t value)
{
	bool all = true;
	for (size_t i = 0; i < history.size(); ++i)
		all &= placed[i] || history[i].ended == never;
	if (all)
		return true;
	for (size_t i = 0; i < history.size(); ++i) {
		if (placed[i])
			continue;
		bool next = true;
		for (size_t j = 0; j < history.size(); ++j)
			next &= placed[j] || history[j].ended >= history[i].began;
		const Operation &o = history[i];
		const bool known = o.ended != never;
		if (!next || (o.kind == Operation::get && known && o.value != value) ||
		    (o.kind == Operation::erase && known && (o.value != 0) != (value != 0)))
			continue;
		placed[i] = true;
		if (by_definition(history, placed, o.kind == Operation::get ? value : o.kind == Operation::put ? o.value : 0))
			return true;
		placed[i] = false;
	}
	return false;
}
bool by_definition(const History &history) { return by_definition(history, std::vector<bool>(history.size()), 0); }

// What clients would see of a store that is right. Each of them has one operation at a time.
History right_history(ycsb::Random &random, size_t operations, size_t clients)
{
	std::vector<int64_t> free_at(clients);
	History history;
	uint64_t value = 0;
	int64_t time = 0; // at which the operation takes place
	for (size_t i = 0; i < operations; ++i) {
		const size_t client = random.below(clients);
		time = std::max(time, free_at[client]) + 1 + static_cast<int64_t>(random.below(3));
		Operation o{Operation::get, value, 0, 0};
		if (random.below(2)) {
			o = {Operation::put, i + 1, 0, 0};
			value = i + 1;
		} else if (random.below(5) == 0) {
			o = {Operation::erase, value != 0, 0, 0};
			value = 0;
		}
		o.began = std::max(free_at[client], time - static_cast<int64_t>(random.below(12)));
		o.ended = time + static_cast<int64_t>(random.below(12));
		free_at[client] = o.ended + 1;
		history.push_back(o);
	}
	return history;
}

} // namespace

TEST_CASE("kv check: histories that are linearizable")
{
	REQUIRE(linearizable({}));
	REQUIRE(linearizable(
	    {get(0, 0, 1), erase(false, 2, 3), put(7, 4, 5), get(7, 6, 7), erase(true, 8, 9), get(0, 10, 11)}));
	// Gets that overlap a put see the one value or the other.
	REQUIRE(linearizable({put(1, 0, 1), put(2, 2, 9), get(1, 3, 4), get(2, 5, 6)}));
	REQUIRE(linearizable({put(1, 0, 9), put(2, 0, 9), get(2, 1, 2), get(1, 3, 4)}));
	REQUIRE(linearizable({get(1, 0, 9), put(1, 2, 3)}));
	// Those that touch may have overlapped.
	REQUIRE(linearizable({put(1, 0, 5), get(0, 5, 6)}));
	// The end of some is not known.
	REQUIRE(linearizable({put(1, 0, never), get(0, 1, 2), get(1, 3, 4)}));
	REQUIRE(linearizable({put(1, 0, never), get(0, 1, 2), get(0, 3, 4)}));
	REQUIRE(linearizable({put(1, 0, 1), erase(false, 2, never), get(1, 3, 4), get(0, 5, 6), get(7, 5, never)}));
	// The one that comes last was started first, and the order is found only by going back.
	REQUIRE(linearizable({put(1, 0, 20), put(2, 0, 20), put(3, 0, 20), get(3, 1, 2), get(1, 3, 4), get(2, 5, 6)}));
}

TEST_CASE("kv check: histories that are not")
{
	REQUIRE_FALSE(linearizable({get(1, 0, 1)}));                                           // from nowhere
	REQUIRE_FALSE(linearizable({put(1, 0, 1), get(0, 2, 3)}));                             // lost
	REQUIRE_FALSE(linearizable({put(1, 0, 1), put(2, 2, 3), get(1, 4, 5)}));               // stale
	REQUIRE_FALSE(linearizable({get(1, 0, 1), put(1, 2, 3)}));                             // from the future
	REQUIRE_FALSE(linearizable({put(1, 0, 1), put(2, 2, 9), get(2, 3, 4), get(1, 5, 6)})); // back to the old one
	REQUIRE_FALSE(linearizable({put(1, 0, 9), put(2, 0, 9), get(2, 1, 2), get(1, 3, 4), get(2, 5, 6)}));
	REQUIRE_FALSE(linearizable({put(1, 0, 1), erase(true, 2, 3), get(1, 4, 5)}));      // back from the dead
	REQUIRE_FALSE(linearizable({put(1, 0, 1), erase(false, 2, 3)}));                   // has not found it
	REQUIRE_FALSE(linearizable({erase(true, 0, 1)}));                                  // has found nothing
	REQUIRE_FALSE(linearizable({put(1, 0, 1), erase(true, 2, 9), erase(true, 2, 9)})); // found it twice
	REQUIRE_FALSE(linearizable({put(1, 0, never), get(1, 1, 2), get(0, 3, 4)}));       // done, and then not
	// Two who disagree on the order of two puts.
	REQUIRE_FALSE(linearizable({put(1, 0, 9), put(2, 0, 9), get(1, 10, 11), get(2, 12, 13)}));
}

TEST_CASE("kv check: agrees with the definition on random histories")
{
	ycsb::Random random(11);
	int good = 0, bad = 0;
	for (int i = 0; i < 4000; ++i) {
		History history = right_history(random, 7, 3);
		REQUIRE(linearizable(history));
		// Something is seen that was not so, perhaps, and an end becomes unknown.
		for (int changes = static_cast<int>(random.below(3)); changes-- > 0;) {
			Operation &o = history[random.below(history.size())];
			if (random.below(4) == 0)
				o.ended = never;
			else if (o.kind == Operation::get)
				o.value = random.below(8);
			else if (o.kind == Operation::erase)
				o.value = !o.value;
			else
				std::swap(o.value, history[random.below(history.size())].value);
		}
		const bool expected = by_definition(history);
		REQUIRE(linearizable(history) == expected);
		++(expected ? good : bad);
	}
	REQUIRE(good > 500);
	REQUIRE(bad > 500);
}

TEST_CASE("kv check: long histories of several clients, and the first operation that is wrong")
{
	ycsb::Random random(2);
	History history = right_history(random, 5000, 6);
	REQUIRE(linearizable(history));
	// In the middle, a get sees a value that was replaced long ago.
	size_t wrong = 2500;
	while (history[wrong].kind != Operation::get)
		++wrong;
	const auto old =
	    std::find_if(history.begin() + 100, history.end(), [](const Operation &o) { return o.kind == Operation::put; });
	history[wrong].value = old->value;
	REQUIRE_FALSE(linearizable(history));
	const History failure = kv::shortest_failure(history);
	REQUIRE(failure.size() < 2600);
	int64_t last = 0;
	for (const Operation &o : failure)
		if (o.ended != never)
			last = std::max(last, o.ended);
	REQUIRE(last == history[wrong].ended);
}
