// What cases about calls share: services that count what they do, and are closed when no rank calls them any more.
#pragma once

#include <atomic>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "tests/conformance/harness.hpp"

namespace conformance {

// All ranks have done what is before it. In a cooperative job all first halves have.
inline void meet(const Rank &r)
{
	if (!r.cooperative)
		EXPECT_OK(r.ctx, pt2p_barrier(r.ctx));
}

// What handlers leave for their rank. They may run in its progress thread.
template <class T>
class Left {
public:
	void push_back(T item)
	{
		const std::lock_guard lock(mutex_);
		items_.push_back(std::move(item));
	}
	void pop_front()
	{
		const std::lock_guard lock(mutex_);
		items_.pop_front();
	}
	size_t size() const
	{
		const std::lock_guard lock(mutex_);
		return items_.size();
	}
	bool empty() const { return size() == 0; }
	// Stays where it is while others are added.
	T &operator[](size_t i)
	{
		const std::lock_guard lock(mutex_);
		return items_[i];
	}

private:
	mutable std::mutex mutex_;
	std::deque<T> items_;
};

// What a service of a case is given.
struct Served {
	Rank *rank = nullptr;
	pt2p_service_t *service = nullptr;
	std::atomic<uint64_t> sum = 0, calls = 0; // calls is counted last
	Left<pt2p_call_t *> kept;
	Left<int> statuses; // of calls of functions within a handler
};

using Handler = pt2p_handler_t;

template <class S = Served>
std::shared_ptr<S> open(Rank &r, uint32_t id, Handler handler, uint32_t lanes = 0, size_t input_max = size_t{1} << 20)
{
	auto s = std::make_shared<S>();
	s->rank = &r;
	pt2p_service_options_t options = PT2P_SERVICE_OPTIONS_INIT;
	options.lanes = lanes;
	options.input_max = input_max;
	EXPECT_OK(r.ctx, pt2p_service_open(r.ctx, id, handler, s.get(), &options, &s->service));
	return s;
}

// The services of a case are closed once no rank calls them any more.
inline void close_last(Rank &r, std::vector<std::shared_ptr<Served>> services)
{
	r.last = [&r, services] {
		for (const auto &s : services)
			EXPECT_OK(r.ctx, pt2p_service_close(r.ctx, s->service));
	};
}

template <class S = Served>
S &of(void *argument)
{
	return *static_cast<S *>(argument);
}

} // namespace conformance
