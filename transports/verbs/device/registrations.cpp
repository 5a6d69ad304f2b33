#include "transports/verbs/device/registrations.hpp"

#include <algorithm>
#include <cerrno>
#include <unistd.h>

#include "base/report/report.hpp"

namespace pt2p::verbs {

namespace {

constexpr int for_all =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
constexpr int for_reading = IBV_ACCESS_REMOTE_READ;

} // namespace

Registrations::Registrations(const Device &device, Reporter &reporter, uint64_t kept)
    : device_(device), reporter_(reporter), kept_(kept)
{
}

Registration *Registrations::find(const void *memory, size_t length)
{
	const uintptr_t begin = reinterpret_cast<uintptr_t>(memory), end = begin + length;
	// A range that begins before that is too short to cover this one.
	for (auto i = all_.lower_bound(begin > longest_ ? begin - longest_ : 0); i != all_.end() && i->first <= begin;
	     ++i) {
		Registration &r = i->second;
		if (r.end_ < end || r.stale_)
			continue;
		if (r.users_++ == 0) {
			idle_bytes_ -= r.end_ - r.begin_;
			idle_.erase(r.idle_);
		}
		reporter_.add(Counter::registrations_reused);
		return &r;
	}
	return nullptr;
}

Registration *Registrations::acquire(const void *memory, size_t length, std::string &why_not)
{
	if (Registration *found = find(memory, length))
		return found;
	uintptr_t begin = reinterpret_cast<uintptr_t>(memory), end = begin + length;
	// What is cached is registered in whole pages, because neighbours are likely to be next.
	if (kept_) {
		const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
		begin = begin / page * page;
		end = (end + page - 1) / page * page;
	}
	auto *start = reinterpret_cast<void *>(begin);
	MrOwner mr(ibv_reg_mr(device_.pd.get(), start, end - begin, for_all));
	const bool writable = mr || errno != EFAULT;
	if (!writable) // it may be read-only
		mr.reset(ibv_reg_mr(device_.pd.get(), start, end - begin, for_reading));
	if (!mr && kept_ && !idle_.empty()) {
		// The limit of locked memory may be lower than the size of the cache.
		while (!idle_.empty())
			drop(idle_.back());
		mr.reset(ibv_reg_mr(device_.pd.get(), start, end - begin, for_all));
	}
	if (!mr) {
		why_not = failure("ibv_reg_mr", errno);
		return nullptr;
	}
	reporter_.add(Counter::registrations);
	const auto place = all_.emplace(begin, Registration());
	Registration &r = place->second;
	r.mr_ = std::move(mr);
	r.begin_ = begin;
	r.end_ = end;
	r.users_ = 1;
	r.writable_ = writable;
	r.self_ = place;
	longest_ = std::max(longest_, end - begin);
	return &r;
}

void Registrations::release(Registration *r)
{
	if (--r->users_)
		return;
	idle_.push_front(r);
	r->idle_ = idle_.begin();
	idle_bytes_ += r->end_ - r->begin_;
	if (r->stale_)
		drop(r);
	while (idle_bytes_ > kept_)
		drop(idle_.back());
}

void Registrations::forget(const void *memory, size_t length)
{
	const uintptr_t begin = reinterpret_cast<uintptr_t>(memory), end = begin + length;
	for (auto i = all_.lower_bound(begin > longest_ ? begin - longest_ : 0); i != all_.end() && i->first < end;) {
		Registration &r = (i++)->second;
		if (r.end_ <= begin)
			continue;
		r.stale_ = true;
		if (!r.users_)
			drop(&r);
	}
}

// Drops a registration without users.
void Registrations::drop(Registration *r)
{
	idle_bytes_ -= r->end_ - r->begin_;
	idle_.erase(r->idle_);
	all_.erase(r->self_);
}

} // namespace pt2p::verbs
