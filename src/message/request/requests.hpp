// The requests of a context: how they are found, how they complete, and how they are freed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "base/memory/fifo.hpp"
#include "base/memory/pool.hpp"
#include "message/layers.hpp"
#include "message/peers/losses.hpp"
#include "message/request/exposures.hpp"
#include "message/request/request.hpp"
#include "progress/progress.hpp"

namespace pt2p {

class Requests {
public:
	// `client` is told of work for the next turn.
	Requests(const Layers &layers, const PeerLosses &losses, Exposures &exposures, DetailsPool &details,
	         Reporter &reporter, ProgressClient &client, int rank);
	~Requests();
	Requests(const Requests &) = delete;
	Requests &operator=(const Requests &) = delete;

	Request *take() { return pool_.take(); }
	// What take() would give without allocating, or null; and takes it.
	Request *peek() const { return pool_.peek(); }
	void take(Request &first) { pool_.take(first); }
	void release(Request *request)
	{
		request->state = Request::State::free;
		pool_.give(request);
	}

	// The request that the program knows by this handle.
	Request *find(uint64_t handle) const
	{
		Request *r = pool_.find(handle);
		return r && r->active() && !r->is_detached() ? r : nullptr;
	}
	// The same in any state.
	Request *find_any(uint64_t handle) const { return pool_.find(handle); }
	// The same if it has completed.
	Request *find_done(uint64_t handle) const
	{
		Request *r = pool_.find(handle);
		return r && r->done() ? r : nullptr;
	}
	// The request that a transport names, if it moves.
	Request *find_moving(uint64_t handle) const
	{
		Request *r = pool_.find(handle);
		return r && r->state == Request::State::moving ? r : nullptr;
	}
	// The request that a peer's message names, if it is what the message takes it for.
	Request *find_moving(uint64_t token, int peer, bool is_send) const
	{
		Request *r = find_moving(token);
		return r && r->is_send == is_send && r->peer == peer ? r : nullptr;
	}
	template <class F>
	void for_each(F &&function) const
	{
		pool_.for_each(function);
	}

	void complete(Request &request, pt2p_status_t status)
	{
		if (__builtin_expect(request.exposed, 0))
			exposures_.withdraw(request);
		request.state = Request::State::done;
		request.status = status;
		if (__builtin_expect(request.special, 0))
			settle(request);
	}
	// With a reason, which explain() tells.
	void complete(Request &request, pt2p_status_t status, std::string_view reason)
	{
		if (__builtin_expect(!reason.empty(), 0))
			keep_reason(request, reason);
		complete(request, status);
	}
	void keep_reason(const Request &request, std::string_view reason) { reasons_[request.handle] = reason; }
	std::string take_reason(const Request &request);
	size_t reasons() const { return reasons_.size(); }

	// What the program gets to know of a request that has completed.
	pt2p_result_t result_of(const Request &r) const
	{
		const int has_data = r.of_message / Request::with_data;
		return {r.status, r.is_send ? rank_ : r.peer, r.message_tag, r.length, has_data ? r.data : 0, has_data};
	}
	// Hands the outcome of a request over and frees it; records an explanation when it failed.
	pt2p_status_t collect(Request *request, pt2p_result_t *result)
	{
		if (result)
			*result = result_of(*request);
		const pt2p_status_t status = request->status;
		if (__builtin_expect(status != PT2P_OK, 0))
			explain(*request);
		release(request);
		return status;
	}
	// Frees a request that has completed and that nobody is told of.
	void discard(Request &request)
	{
		take_reason(request);
		release(&request);
	}
	// Records why a request has failed.
	[[gnu::noinline, gnu::cold]] void explain(const Request &request);

	Details &details_of(Request &request);
	// The same, of which the caller uses nothing but the callback.
	Details &callback_of(Request &r)
	{
		if (!(r.special & Request::with_details)) {
			r.details = details_.take();
			r.make_special(Request::with_details);
		}
		return *r.details;
	}
	void release_details(Request &r)
	{
		if (r.special & Request::with_details)
			details_.give(r.details);
		r.special = 0;
	}
	DetailsPool &details() { return details_; }

	// A detached request has completed; its status is set.
	void finish(Request &r)
	{
		r.state = Request::State::finished;
		finished_.push(r);
		client_.has_finished = true;
		layers_.progress->nudge(); // no thread may be looking
	}
	bool any_finished() const { return !finished_.empty(); }
	Fifo<Request> take_finished()
	{
		client_.has_finished = false;
		return std::exchange(finished_, {});
	}

private:
	[[gnu::noinline, gnu::cold]] void settle(Request &request);

	const Layers &layers_;
	const PeerLosses &losses_;
	Exposures &exposures_;
	DetailsPool &details_;
	Reporter &reporter_;
	ProgressClient &client_;
	const int rank_;
	HandlePool<Request> pool_;
	std::map<uint64_t, std::string>
	    reasons_;            // of requests that have failed, by handle, where more is known than the status
	Fifo<Request> finished_; // in order of completion
};

} // namespace pt2p
