// Which lane of an endpoint the calls of each thread take: the thread scheduler of FLOCK (Monga, Kashyap, Min, SOSP
// 2021), as a pure function of what the threads have sent. The source names the idea; the numbers here are ours.
//
// A call costs as much as `fixed` bytes and its own. Threads whose calls cost much more than those of others are long.
// Short and long threads never share a lane while there are two, as a short call would wait behind long ones. Within
// each kind, calls are balanced over the lanes of the kind, the longest load first.
//
// A lane costs the memory of a queue pair at both ends, and calls that take different lanes share no work request. So
// `fixed` is so large that calls of 2 KiB each way do not count as long beside short ones: study-lanes shows that a
// second lane then gains little, and loses where the server is the limit.
//
// Without a fixed number of lanes there are two while there are both kinds, else one.
//
// A thread keeps its lane unless something was wrong in two periods one after the other: the kinds shared a lane, or a
// lane had over 25 % more to do than it needs to. So a burst of one period moves nobody.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pt2p::rpc::laws {

// A thread in a period.
struct ThreadLoad {
	uint64_t calls = 0, bytes = 0;             // 0 calls: it keeps its lane, and does not count
	double recent_calls = 0, recent_bytes = 0; // the law's: half of the period before, a quarter of that before it, ...
	uint8_t lane = 0;                          // that it has, and is given
};

class Lanes {
public:
	static constexpr unsigned max = 4;

	// `fixed_number`: of lanes; 0: one, or two if needed.
	explicit Lanes(unsigned fixed_number) : number_(fixed_number) {}

	// A period has ended. True: threads have other lanes now.
	bool decide(const std::vector<ThreadLoad *> &threads)
	{
		active_.clear();
		for (ThreadLoad *t : threads)
			if (t->calls) {
				t->recent_calls = t->recent_calls / 2 + static_cast<double>(t->calls);
				t->recent_bytes = t->recent_bytes / 2 + static_cast<double>(t->bytes);
				active_.push_back({t, cost(*t), load(*t), 0});
			}
		if (active_.empty())
			return false;
		divide();
		assign();
		wrong_ = is_wrong() ? wrong_ + 1 : 0;
		if (wrong_ < patience)
			return false;
		wrong_ = 0;
		bool moved = false;
		for (const Active &a : active_) {
			moved |= a.thread->lane != a.wanted;
			a.thread->lane = a.wanted;
		}
		return moved;
	}
	// Whether there are short and long threads.
	bool mixed() const { return mixed_; }

private:
	static constexpr double fixed = 2048; // bytes, there and back
	// The longest calls cost so many times the shortest: then there are two kinds; there are until it is less.
	static constexpr double mixes_from = 4, mixes_until = 2;
	static constexpr double tolerance = 1.25;
	static constexpr unsigned patience = 2; // periods

	struct Active {
		ThreadLoad *thread;
		double cost, load;
		uint8_t wanted;
	};
	using Loads = std::array<double, max>;

	static double cost(const ThreadLoad &t) { return fixed + t.recent_bytes / t.recent_calls; }
	static double load(const ThreadLoad &t) { return static_cast<double>(t.calls) * cost(t); }

	// Orders the threads by the cost of a call, and finds where the long ones begin: behind the widest gap.
	void divide()
	{
		std::sort(active_.begin(), active_.end(), [](const Active &a, const Active &b) { return a.cost < b.cost; });
		const double ratio = active_.back().cost / active_.front().cost;
		mixed_ = ratio >= (mixed_ ? mixes_until : mixes_from);
		longs_ = active_.size();
		double widest = 1;
		for (size_t i = 1; mixed_ && i < active_.size(); ++i)
			if (const double gap = active_[i].cost / active_[i - 1].cost; gap > widest) {
				widest = gap;
				longs_ = i;
			}
		const unsigned lanes = number_ ? number_ : mixed_ ? 2 : 1;
		short_lanes_ = lanes;
		lanes_ = lanes;
		if (!mixed_ || lanes == 1)
			return;
		// Each kind has lanes in proportion to its load.
		double all = 0, shorts = 0;
		for (size_t i = 0; i < active_.size(); ++i) {
			all += active_[i].load;
			shorts += i < longs_ ? active_[i].load : 0;
		}
		short_lanes_ = std::clamp(static_cast<unsigned>(shorts / all * lanes + 0.5), 1u, lanes - 1);
	}

	// Of the thread at this place: the lanes of its kind.
	bool separate() const { return mixed_ && lanes_ > 1; }
	unsigned first_lane(size_t at) const { return separate() && at >= longs_ ? short_lanes_ : 0; }
	unsigned end_lane(size_t at) const { return separate() && at < longs_ ? short_lanes_ : lanes_; }

	// Longest load first, each to the lane with the least; of equal ones, to the lane that it has.
	void assign()
	{
		order_.resize(active_.size());
		for (size_t i = 0; i < order_.size(); ++i)
			order_[i] = i;
		std::stable_sort(order_.begin(), order_.end(),
		                 [this](size_t a, size_t b) { return active_[a].load > active_[b].load; });
		best_ = {};
		for (const size_t at : order_) {
			Active &a = active_[at];
			unsigned lane = std::clamp<unsigned>(a.thread->lane, first_lane(at), end_lane(at) - 1);
			for (unsigned l = first_lane(at); l < end_lane(at); ++l)
				if (best_[l] < best_[lane])
					lane = l;
			best_[lane] += a.load;
			a.wanted = static_cast<uint8_t>(lane);
		}
	}

	bool is_wrong() const
	{
		Loads now{};
		for (size_t at = 0; at < active_.size(); ++at) {
			const unsigned lane = active_[at].thread->lane;
			if (lane < first_lane(at) || lane >= end_lane(at))
				return true;
			now[lane] += active_[at].load;
		}
		const auto most = [](const Loads &loads, unsigned from, unsigned end) {
			return *std::max_element(loads.begin() + from, loads.begin() + end);
		};
		const unsigned ends = separate() ? short_lanes_ : lanes_;
		return most(now, 0, ends) > tolerance * most(best_, 0, ends) ||
		       (ends < lanes_ && most(now, ends, lanes_) > tolerance * most(best_, ends, lanes_));
	}

	const unsigned number_;
	bool mixed_ = false;
	unsigned wrong_ = 0; // periods one after the other
	unsigned lanes_ = 1, short_lanes_ = 1;
	size_t longs_ = 0; // the first long thread
	std::vector<Active> active_;
	std::vector<size_t> order_;
	Loads best_{};
};

} // namespace pt2p::rpc::laws
