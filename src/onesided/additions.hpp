// Additions that other ranks ask this one for, to words that its device works on. Those that come while an addition to
// the same word is under way wait for it, and then go to the device as one: the sum is added once, and each rank gets
// the value that it would have got, had they come one after another. Software combining, as in Yew, Tzeng and Lawrie,
// "Distributing hot-spot addressing in large-scale multiprocessors", IEEE Transactions on Computers C-36(4), 1987.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "base/memory/fifo.hpp"
#include "base/memory/pool.hpp"

namespace pt2p::onesided {

struct Target;

// What one rank has asked for.
struct Addition {
	Addition *next = nullptr;
	Target *target = nullptr; // null: it does not wait any more
	uint64_t token = 0, operand = 0;
};

struct AddedWord {
	uint64_t memory = 0, offset = 0; // the owner's handle; bytes
	uint32_t width = 0;

	bool operator==(const AddedWord &) const = default;
};

class Additions {
public:
	// True: the device is free to begin with this word, and take() gives the addition back. False: it waits.
	bool add(const AddedWord &word, Target &target, uint64_t token, uint64_t operand)
	{
		Addition &a = *pool_.take();
		a = {nullptr, &target, token, operand};
		const auto [found, idle] = waiting_.try_emplace(word);
		found->second.push(a);
		return idle;
	}
	// All that wait for the word, and their sum.
	Fifo<Addition> take(const AddedWord &word, uint64_t &sum)
	{
		Fifo<Addition> taken, &waiting = waiting_.find(word)->second;
		for (sum = 0; !waiting.empty();) {
			Addition &a = waiting.pop();
			sum += a.operand;
			taken.push(a);
		}
		return taken;
	}
	// The device is done with the word. True: more wait, and it goes on with them.
	bool goes_on(const AddedWord &word)
	{
		const auto found = waiting_.find(word);
		if (!found->second.empty())
			return true;
		waiting_.erase(found);
		return false;
	}
	// Answers for additions that were taken: answer(target, token, value). `value` is what the word was before.
	template <class F>
	void answer(Fifo<Addition> &taken, uint64_t value, F &&answer)
	{
		while (!taken.empty()) {
			Addition &a = taken.pop();
			if (a.target)
				answer(*a.target, a.token, value);
			value += a.operand;
			pool_.give(&a);
		}
	}
	// Those of a rank that waits no more; calls forgotten() for each.
	template <class F>
	void forget(const Target &target, F &&forgotten)
	{
		for (auto &[word, waiting] : waiting_)
			forget(waiting, target, forgotten);
	}
	template <class F>
	static void forget(Fifo<Addition> &additions, const Target &target, F &&forgotten)
	{
		additions.for_each([&](Addition &a) {
			if (a.target == &target) {
				a.target = nullptr;
				forgotten();
			}
		});
	}

private:
	struct Hash {
		size_t operator()(const AddedWord &w) const
		{
			return static_cast<size_t>((w.memory ^ w.offset * UINT64_C(0x9e3779b97f4a7c15)) + w.width);
		}
	};
	std::unordered_map<AddedWord, Fifo<Addition>, Hash> waiting_; // an entry: the device works on the word
	Pool<Addition> pool_;
};

} // namespace pt2p::onesided
