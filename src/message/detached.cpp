// Requests that nobody waits for: given up, or with a callback. What has completed is kept in a row and freed at the end of
// a turn, so that a callback is called neither by what completes an operation nor by what starts one, and never by another
// callback: a chain of them needs no stack.
#include <utility>

#include "message/engine.hpp"

namespace pt2p {

Details *Engine::take_details()
{
	Details *d = details_.take();
	*d = {};
	return d;
}

Details &Engine::details_of(Request &r)
{
	if (!(r.special & Request::with_details)) {
		r.details = take_details();
		r.make_special(Request::with_details);
	}
	return *r.details;
}

void Engine::give_details(Details *d)
{
	for (Details::Buffer *b : {&d->list, &d->packed, &d->exposures, &d->bounce, &d->remote})
		give_buffer(*b);
	details_.give(d);
}

void Engine::take_buffer(Details::Buffer &b, size_t bytes) { b = {buffers_.take(bytes), bytes}; }

void Engine::give_buffer(Details::Buffer &b)
{
	if (b.memory)
		buffers_.give(b.memory, b.bytes);
	b = {};
}

void Engine::detach(Request &r, pt2p_callback_t callback, void *argument)
{
	if (callback) {
		Details &d = details_of(r);
		d.callback = callback;
		d.argument = argument;
	}
	r.make_special(Request::detached);
	if (r.done())
		settle(r);
}

// A request that is special has completed.
void Engine::settle(Request &r)
{
	if (!r.is_detached()) {
		give_details(r.details);
		r.special = 0;
		return;
	}
	r.state = Request::State::finished;
	finished_.push(r);
	has_work = true;
	progress_->nudge(); // nobody may be looking
}

// Those that are there now: what callbacks complete is for the next turn.
unsigned Engine::free_finished()
{
	if (handler_running_ || callbacks_held_)
		return 0;
	unsigned n = 0;
	Fifo<Request> finished = std::exchange(finished_, {});
	for (; !finished.empty(); ++n) {
		Request *r = &finished.pop();
		const pt2p_result_t result = result_of(*r);
		pt2p_callback_t callback = nullptr;
		void *argument = nullptr;
		if (r->special & Request::with_details) {
			callback = r->details->callback;
			argument = r->details->argument;
		}
		if (result.status != PT2P_OK && callback) {
			explain(*r); // the callback may ask for it
		} else if (result.status != PT2P_OK) {
			const std::string reason = take_reason(*r);
			reporter_.log(LogLevel::info, "a request that was given up has failed: %s, rank %d, %zu bytes%s%s",
			              pt2p_strerror(result.status), r->peer, r->length, reason.empty() ? "" : ": ", reason.c_str());
		}
		if (r->special & Request::with_details)
			give_details(r->details);
		r->special = 0;
		release(r);
		if (callback)
			call(callback, result, argument);
	}
	return n;
}

// An exception that leaves the callback ends the program here: there is no call that it could be told to.
void Engine::call(pt2p_callback_t callback, const pt2p_result_t &result, void *argument) noexcept
{
	handler_ = pthread_self();
	handler_running_ = true;
	{
		const Progress::Callback section(*progress_);
		callback(context_, &result, argument);
	}
	handler_running_ = false;
}

void Engine::end_detached()
{
	ending_ = true;
	std::set<int> peers; // transports still work on buffers that callbacks give back
	requests_.for_each([&](Request &r) {
		if (!r.is_detached() || r.state == Request::State::finished)
			return;
		if (r.state != Request::State::posted) {
			peers.insert(r.peer);
			return;
		}
		matcher_.withdraw(r);
		complete(r, PT2P_ERR_UNFINISHED);
	});
	for (int peer : peers)
		declare_down(peer, PT2P_ERR_UNFINISHED, "pt2p_finalize has ended what had not completed");
	while (!finished_.empty())
		free_finished();
}

} // namespace pt2p
