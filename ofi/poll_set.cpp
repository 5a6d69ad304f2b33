// Poll sets: queues and counters that are looked at together.
#include <memory>
#include <utility>
#include <vector>

#include "ofi/completion.hpp"
#include "ofi/domain.hpp"

namespace pt2p_ofi {

namespace {

struct PollSet {
	fid_poll fid;
	Domain *domain;
	struct Member {
		::fid *object;
		uint64_t seen; // counter: its value at the last look
	};
	Lock lock;
	std::vector<Member> members;
};

// How many endpoints and poll sets use a queue or counter.
std::atomic<int> &users_of(::fid *object)
{
	return object->fclass == FI_CLASS_CQ ? object_of<Cq>(object)->users : object_of<Counter>(object)->users;
}

int close_poll(fid *f)
{
	PollSet *set = object_of<PollSet>(f);
	for (const PollSet::Member &member : set->members)
		--users_of(member.object);
	--set->domain->users;
	delete set;
	return 0;
}

// Whether a queue has completions, or a counter has changed.
bool is_ready(PollSet::Member &member)
{
	if (member.object->fclass == FI_CLASS_CQ) {
		Cq *cq = object_of<Cq>(member.object);
		cq->reporters.progress();
		const Locked locked(cq->lock);
		return !cq->empty();
	}
	Counter *counter = object_of<Counter>(member.object);
	counter->reporters.progress();
	const Locked locked(counter->lock);
	return std::exchange(member.seen, counter->value + counter->errors) != counter->value + counter->errors;
}

int poll_poll(fid_poll *f, void **contexts, int count)
{
	int n = 0;
	PollSet *set = object_of<PollSet>(f);
	const Locked locked(set->lock);
	for (PollSet::Member &member : set->members)
		if (is_ready(member) && n < count)
			contexts[n++] = member.object->context;
	return n;
}

int poll_add(fid_poll *f, fid *object, uint64_t)
{
	if (object->fclass != FI_CLASS_CQ && object->fclass != FI_CLASS_CNTR)
		return -FI_EINVAL;
	return guarded([&] {
		PollSet *set = object_of<PollSet>(f);
		const Locked locked(set->lock);
		set->members.push_back({object, 0});
		++users_of(object);
		return 0;
	});
}

int poll_del(fid_poll *f, fid *object, uint64_t)
{
	PollSet *set = object_of<PollSet>(f);
	const Locked locked(set->lock);
	const size_t erased =
	    std::erase_if(set->members, [object](const PollSet::Member &m) { return m.object == object; });
	if (erased)
		users_of(object) -= static_cast<int>(erased);
	return 0;
}

fi_ops poll_object_ops = object_ops(close_poll);
fi_ops_poll poll_ops = {.size = sizeof(fi_ops_poll), .poll = poll_poll, .poll_add = poll_add, .poll_del = poll_del};

} // namespace

int open_poll(fid_domain *d, fi_poll_attr *, fid_poll **out)
{
	return guarded([&] {
		auto set = std::make_unique<PollSet>();
		set->fid.fid = {FI_CLASS_POLL, nullptr, &poll_object_ops};
		set->fid.ops = &poll_ops;
		set->domain = object_of<Domain>(d);
		if (set->domain->several_threads)
			set->lock.enable();
		++set->domain->users;
		*out = &set.release()->fid;
		return 0;
	});
}

} // namespace pt2p_ofi
