// A choice between two alternatives that differ in latency only: routes to a destination, places for a payload. A pure
// function of observations.
//
// From time to time a message is a sample, and its latency is observed. Every `others`-th sample takes the alternative
// that is not chosen, if that is in question. Each such sample is paired with the latest sample of the chosen
// alternative, so that both met the same load. The median of the last five pairs decides:
//
//   chosen > 1.25 x other     the other is chosen
//   else                      nothing changes
//
// A change needs three pairs since the last change. Until three pairs are known, every second sample takes the other
// alternative. A difference is therefore followed after at most (3 * others + 1) * every messages, and two changes are
// at least 3 * others * every messages apart.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace pt2p::tune {

struct EitherLaw {
	double worth = 1.25; // the other is chosen if the chosen one takes this much longer
	uint32_t every = 32; // messages from one sample to the next
	uint32_t others = 4; // samples from one of the other alternative to the next; 2 until enough is known
	static constexpr size_t known = 3, kept = 5; // pairs
};

// `A` enumerates the two. The first is chosen at the beginning.
template <class A>
class Either {
public:
	explicit Either(const EitherLaw &law = {}) : law_(law) {}

	struct Next {
		A what;
		bool sample;
	};
	// What the next message takes, and whether it is a sample. A caller that cannot observe the sample takes chosen().
	Next next(bool other_in_question) const
	{
		if (since_ + 1 < law_.every)
			return {chosen_, false};
		const bool turn = (samples_ + 1) % (seen_ >= EitherLaw::known ? law_.others : 2) == 0;
		return {turn && other_in_question ? other() : chosen_, true};
	}
	// The message has been sent.
	void sent(bool as_sample)
	{
		samples_ += as_sample;
		since_ = as_sample ? 0 : since_ + 1;
	}
	// The latency of a sample.
	void see(A what, int64_t latency)
	{
		latest_[index(what)] = std::max<int64_t>(latency, 1);
		if (what == chosen_) {
			fresh_ = true;
		} else if (std::exchange(fresh_, false)) {
			pairs_[seen_++ % EitherLaw::kept] = latest_;
			++since_change_;
		}
	}
	// Decides. True: the other alternative is chosen from now on.
	bool judge()
	{
		if (since_change_ < EitherLaw::known)
			return false;
		const size_t from = index(chosen_), to = 1 - from;
		if (median([&](const Pair &p) { return static_cast<double>(p[from]) / static_cast<double>(p[to]); }) <=
		    law_.worth)
			return false;
		chosen_ = other();
		fresh_ = false;
		since_change_ = 0;
		samples_ = 0;
		return true;
	}
	A chosen() const { return chosen_; }
	// The median of the last samples; 0: there is none.
	int64_t latency_of(A what) const
	{
		return seen_ ? median([&](const Pair &p) { return p[index(what)]; }) : latest_[index(what)];
	}

private:
	using Pair = std::array<int64_t, 2>;

	static size_t index(A what) { return static_cast<size_t>(what); }
	A other() const { return static_cast<A>(1 - index(chosen_)); }
	template <class F>
	auto median(F &&of) const
	{
		std::array<decltype(of(pairs_[0])), EitherLaw::kept> values;
		const size_t n = std::min(seen_, EitherLaw::kept);
		std::transform(pairs_.begin(), pairs_.begin() + n, values.begin(), of);
		std::nth_element(values.begin(), values.begin() + n / 2, values.begin() + n);
		return values[n / 2];
	}

	const EitherLaw law_;
	A chosen_{};
	bool fresh_ = false;               // the chosen one has a sample since the last pair
	uint32_t since_ = 0, samples_ = 0; // messages since the last sample; samples
	Pair latest_{};
	std::array<Pair, EitherLaw::kept> pairs_{};
	size_t seen_ = 0, since_change_ = 0; // pairs so far; pairs since the choice changed
};

} // namespace pt2p::tune
