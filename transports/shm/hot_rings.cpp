#include "transports/shm/hot_rings.hpp"

#include <algorithm>

namespace pt2p::shm {

void HotRings::add(ShmEndpoint &peer)
{
	if (peer.hot)
		return;
	peer.hot = true;
	peer.in.head().attention.store(0, std::memory_order_relaxed);
	hot_.push_back(&peer);
}

void HotRings::remove(ShmEndpoint &peer)
{
	std::erase(hot_, &peer);
	peer.hot = false;
}

void HotRings::sweep()
{
	const auto idle = std::stable_partition(hot_.begin(), hot_.end(), [](ShmEndpoint *p) {
		const bool busy = p->in.position() != p->in.seen_at_sweep;
		p->in.seen_at_sweep = p->in.position();
		return busy;
	});
	for (auto i = idle; i != hot_.end(); ++i)
		(*i)->in.head().attention.store(1, std::memory_order_relaxed);
	if (idle != hot_.end())
		membarrier_.all_cores_fence();
	const auto dozing = std::stable_partition(idle, hot_.end(), [](ShmEndpoint *p) { return p->in.ready(); });
	for (auto i = idle; i != dozing; ++i)
		(*i)->in.head().attention.store(0, std::memory_order_relaxed);
	for (auto i = dozing; i != hot_.end(); ++i) {
		(*i)->in.settle();
		(*i)->hot = false;
	}
	hot_.erase(dozing, hot_.end());
}

bool HotRings::sleep(SegmentHeader &own)
{
	own.sleeping.store(1);
	for (ShmEndpoint *p : hot_)
		p->in.head().attention.store(1);
	membarrier_.all_cores_fence();
	bool ready = own.doorbell_summary.load() != 0;
	for (ShmEndpoint *p : hot_)
		ready |= p->in.ready();
	if (ready) {
		own.sleeping.store(0, std::memory_order_relaxed);
		for (ShmEndpoint *p : hot_)
			p->in.head().attention.store(0, std::memory_order_relaxed);
		return false;
	}
	for (ShmEndpoint *p : hot_) {
		p->in.settle();
		p->hot = false;
	}
	hot_.clear();
	return true;
}

} // namespace pt2p::shm
