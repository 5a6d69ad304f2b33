// Which DC initiator a message goes through.
//
// An initiator works for one target at a time: when the next work request is for another, it waits until everything for the
// old one is acknowledged, then connects anew. The policy, in this order:
//   1. A target with work under way stays with its initiator, so that its messages arrive in order without any help; unless
//      others have work there as well, and another initiator has nothing to do: two targets that share an initiator make it
//      connect anew again and again. The receiver then puts the messages in order.
//   2. The initiator that served the target last: it may still be connected.
//   3. An initiator with nothing under way; of these the one that has been idle longest, so that connections last.
//   4. The one with the least under way that has room. The device works for its targets in turn, so with a single initiator
//      everything still gets its turn: nothing waits for anything but completions, which need no help of this or another
//      rank's program.
// None has room: the message waits in its channel until a completion has been read.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pt2p::dct {

// What the policy knows of an initiator.
struct InitiatorState {
	const void *target = nullptr; // that it served last
	uint32_t outstanding = 0;     // work requests
	bool room = true;
	uint64_t used = 0;            // when it was last chosen; larger: later
};

constexpr size_t no_initiator = SIZE_MAX;

// Of those that have nothing under way and room, the one that has been idle longest; no_initiator: there is none.
inline size_t idle_initiator(const std::vector<InitiatorState> &all)
{
	size_t idle = no_initiator;
	for (size_t i = 0; i < all.size(); ++i)
		if (all[i].room && !all[i].outstanding && (idle == no_initiator || all[i].used < all[idle].used))
			idle = i;
	return idle;
}

// The initiator for `target`, which has work under way in `current` (no_initiator: nowhere) and may leave it or not.
// no_initiator: none has room.
inline size_t choose_initiator(const std::vector<InitiatorState> &all, const void *target, size_t current, bool may_leave)
{
	if (current != no_initiator) {
		if (const size_t idle = may_leave ? idle_initiator(all) : no_initiator; idle != no_initiator)
			return idle;
		return all[current].room ? current : no_initiator;
	}
	const size_t idle = idle_initiator(all);
	size_t least = no_initiator;
	for (size_t i = 0; i < all.size(); ++i) {
		const InitiatorState &s = all[i];
		if (!s.room)
			continue;
		if (s.target == target)
			return i;
		if (least == no_initiator || s.outstanding < all[least].outstanding)
			least = i;
	}
	return idle != no_initiator ? idle : least;
}

// The one for a part of bulk data for `target`, whose messages are in `current`. Parts need no order among themselves: as long as
// fewer than `most` initiators work for the target, an idle one joins them, best of all one that served the target last; else the
// one of them with the least under way. `working`: how many work for it then, as far as is known of initiators that were
// shared with other targets meanwhile.
inline size_t choose_for_part(const std::vector<InitiatorState> &all, const void *target, size_t current, uint32_t most,
                              uint32_t &working)
{
	size_t idle = no_initiator, least = no_initiator;
	working = 0;
	for (size_t i = 0; i < all.size(); ++i) {
		const InitiatorState &s = all[i];
		const bool works = i == current || (s.target == target && s.outstanding);
		working += works;
		if (!s.room)
			continue;
		if (works) {
			if (least == no_initiator || s.outstanding < all[least].outstanding)
				least = i;
		} else if (!s.outstanding) {
			if (idle == no_initiator || (s.target == target) > (all[idle].target == target) ||
			    ((s.target == target) == (all[idle].target == target) && s.used < all[idle].used))
				idle = i;
		}
	}
	if (working >= most || idle == no_initiator || (least != no_initiator && !all[least].outstanding))
		return least;
	++working;
	return idle;
}

} // namespace pt2p::dct
