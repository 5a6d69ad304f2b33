// Chooses the DC initiator of a message, and decides when the message may be posted.
//
// An initiator works for one target at a time. If the next work request is for another target, the initiator waits
// until everything for the old one is acknowledged, and then connects anew. Messages between two changes share the cost
// of a change, so targets wait until many of their messages can go together. But an initiator should never idle
// meanwhile:
//   1. At most two targets have work in an initiator: the one that it works for, and the next, so that the device
//      goes on without this rank's program. Only the last target may add messages.
//   2. Any other target waits. When the work for the first of two is complete, another may take a place behind the
//      second.
//   3. A target whose work has another's behind it adds nothing until it is complete, so its messages arrive in
//      order.
//   4. A target prefers an initiator without work: the one that served it last, which may still be connected, or the
//      one that has been idle longest, so that connections last. Otherwise it takes the one with the least in flight.
//
// No target starves: places are given in the order of arrival. While any target waits, the last one in an initiator
// adds at most `quota` work requests, counted from when it took its place. Then it lets its work complete and joins the
// end of the line. With n targets in the line and one initiator, the last of them gets its place after n quotas and
// what two targets had in flight.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pt2p::dct {

constexpr uint32_t max_targets = 2; // with work in one initiator
constexpr uint32_t quota = 32;      // work requests

// What the policy knows of an initiator.
struct InitiatorState {
	void *target = nullptr;   // the one that took a place last
	uint32_t outstanding = 0; // work requests
	bool room = true;
	uint64_t used = 0;    // when new work was last seen; larger: later
	uint32_t targets = 0; // with work in flight
	uint32_t posted = 0;  // work requests in total
	uint32_t begun = 0;   // of these, before the last target took its place
};

constexpr size_t no_initiator = SIZE_MAX;

// How many more targets can take a place.
inline size_t free_places(const std::vector<InitiatorState> &all)
{
	size_t places = 0;
	for (const InitiatorState &s : all)
		places += s.room && s.targets < max_targets ? max_targets - s.targets : 0;
	return places;
}

// Whether the target that took the last place may add work.
inline bool goes_on(const InitiatorState &s, bool others_wait)
{
	return s.room && (!others_wait || (s.outstanding && s.posted - s.begun < quota));
}

// The initiator in which a target without work in flight takes a place; no_initiator: none is free.
inline size_t choose_initiator(const std::vector<InitiatorState> &all, const void *target)
{
	const auto better = [target](const InitiatorState &a, const InitiatorState &b) {
		if (a.targets != b.targets)
			return a.targets < b.targets;
		if (a.targets)
			return a.outstanding < b.outstanding;
		return (a.target == target) != (b.target == target) ? a.target == target : a.used < b.used;
	};
	size_t best = no_initiator;
	for (size_t i = 0; i < all.size(); ++i)
		if (all[i].room && all[i].targets < max_targets && (best == no_initiator || better(all[i], all[best])))
			best = i;
	return best;
}

// A target that may wait in the line.
struct Waiting {
	bool waits = false;
	uint64_t asked = 0; // the turn in which it asked last
};

// Targets that wait for a place, in the order of arrival. They ask again in each turn of progress(). A target that does
// not ask while a place is kept for it is forgotten, as its message went another way or it is lost: a place is kept for
// one turn.
class Line {
public:
	bool empty() const { return all_.empty(); }
	// Whether this target may take one of the free places, which go to the first in the line; else it joins the line.
	bool admit(Waiting &target, size_t places, uint64_t turn)
	{
		keep(places, turn);
		const auto end = all_.begin() + static_cast<ptrdiff_t>(std::min(places, all_.size()));
		const auto own = target.waits ? std::find(all_.begin(), end, &target) : end;
		if (own != end) {
			if (own == all_.begin())
				kept_ = false;
			all_.erase(own);
			target.waits = false;
			return true;
		}
		// With a small window, the first of two new targets would leave no room for one in the line.
		if (!target.waits && all_.empty() && places)
			return true;
		if (!target.waits)
			all_.push_back(&target);
		target.waits = true;
		target.asked = turn;
		return false;
	}
	// A target that was admitted could not use its place: it becomes the first in the line.
	void put_first(Waiting &target, uint64_t turn)
	{
		all_.insert(all_.begin(), &target);
		target.waits = true;
		target.asked = turn;
	}
	// A target was kept from the free places.
	void keep(size_t places, uint64_t turn)
	{
		if (!places || all_.empty()) {
			kept_ = false;
		} else if (!kept_) {
			kept_ = true;
			since_ = turn;
		} else if (turn > since_ + 1) {
			kept_ = false;
			std::erase_if(all_, [this](Waiting *w) {
				if (w->asked <= since_)
					w->waits = false;
				return !w->waits;
			});
		}
	}
	void leave(Waiting &target)
	{
		if (target.waits)
			std::erase(all_, &target);
		target.waits = false;
	}

private:
	std::vector<Waiting *> all_;
	bool kept_ = false;  // places are kept for the first in the line
	uint64_t since_ = 0; // since this turn
};

// The initiator for a part of bulk data for `target`, whose messages are in `current`. Parts need no order. While fewer
// than `max_initiators` work for the target, an idle one joins them, preferably one that served the target last;
// otherwise the one of them with the least in flight. `working`: how many then work for the target, as far as is known
// of initiators that other targets share.
inline size_t choose_for_part(const std::vector<InitiatorState> &all, const void *target, size_t current,
                              uint32_t max_initiators, uint32_t &working)
{
	size_t idle = no_initiator, least_loaded = no_initiator;
	working = 0;
	for (size_t i = 0; i < all.size(); ++i) {
		const InitiatorState &s = all[i];
		const bool works = i == current || (s.target == target && s.outstanding);
		working += works;
		if (!s.room)
			continue;
		if (works) {
			if (least_loaded == no_initiator || s.outstanding < all[least_loaded].outstanding)
				least_loaded = i;
		} else if (!s.outstanding) {
			if (idle == no_initiator || (s.target == target) > (all[idle].target == target) ||
			    ((s.target == target) == (all[idle].target == target) && s.used < all[idle].used))
				idle = i;
		}
	}
	if (working >= max_initiators || idle == no_initiator ||
	    (least_loaded != no_initiator && !all[least_loaded].outstanding))
		return least_loaded;
	++working;
	return idle;
}

} // namespace pt2p::dct
