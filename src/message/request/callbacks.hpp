// Requests that nobody waits for: given up, or with a callback.
//
// Completed requests are kept in a queue and freed at the end of a turn, where callbacks run. So no callback runs
// within a call that starts an operation, within the code that completes one, or within another callback: a chain of
// them needs no stack.
#pragma once

#include <pthread.h>
#include <vector>

#include "message/request/requests.hpp"

namespace pt2p {

class Callbacks {
public:
	Callbacks(const Layers &layers, Requests &requests, Reporter &reporter)
	    : layers_(layers), requests_(requests), reporter_(reporter)
	{
	}
	void use(pt2p_context_t *context) { context_ = context; }

	// The program's handle is dead from now on. A callback is called once, in a later turn.
	void detach(Request &r, pt2p_callback_t callback = nullptr, void *argument = nullptr)
	{
		if (callback) {
			Details &d = requests_.callback_of(r);
			d.callback = callback;
			d.argument = argument;
			if (nested())
				r.make_special(Request::nested);
		}
		r.make_special(Request::detached);
		if (r.done())
			requests_.complete(r, r.status);
	}
	// Frees the detached requests that have completed, and calls their callbacks; returns how many.
	unsigned run();
	// Whether functions of the program may be called now, at the end of a turn.
	bool may_call() const { return !running_ && !held_ && layers_.progress->may_call_back(); }
	// Calls one, the handler of a call if `nested`. An exception that leaves it ends the program: there is no call that
	// could report it.
	template <class F>
	void call(bool nested, F &&function) noexcept
	{
		thread_ = pthread_self();
		running_ = true;
		nested_ = nested;
		{
			const Progress::Callback section(*layers_.progress);
			function();
		}
		running_ = false;
	}
	// Whether a thread is in a callback; whether this one is.
	bool running() const { return running_; }
	bool in_handler() const { return running_ && pthread_equal(thread_, layers_.progress->caller()); }
	// Whether it is in a handler of pt2p_serve.
	bool serves() const;
	// Whether what this thread starts is nested in a call that is served: by its handler, or by a callback of what that
	// has started.
	bool nested() const { return in_handler() ? nested_ : !serving_.empty() && serves(); }
	// While one exists, what this thread starts is. Made and ended with the guard held.
	class Serving {
	public:
		explicit Serving(Callbacks &callbacks) : callbacks_(callbacks) { callbacks.serving_.push_back(pthread_self()); }
		~Serving();
		Serving(const Serving &) = delete;
		Serving &operator=(const Serving &) = delete;

	private:
		Callbacks &callbacks_;
	};
	// While one exists, no callback is called.
	class Hold {
	public:
		explicit Hold(Callbacks &callbacks) : callbacks_(callbacks) { ++callbacks_.held_; }
		~Hold() { --callbacks_.held_; }
		Hold(const Hold &) = delete;
		Hold &operator=(const Hold &) = delete;

	private:
		Callbacks &callbacks_;
	};
	// pt2p_finalize has given up waiting: no callback can be asked for any more.
	void end() { ended_ = true; }
	bool ended() const { return ended_; }

private:
	[[gnu::noinline, gnu::cold]] void tell_failure(const Request &r, bool has_callback);

	const Layers &layers_;
	Requests &requests_;
	Reporter &reporter_;
	pt2p_context_t *context_ = nullptr;
	unsigned held_ = 0;
	bool running_ = false, ended_ = false;
	bool nested_ = false; // while running_
	pthread_t thread_{};  // the same
	std::vector<pthread_t> serving_;
};

} // namespace pt2p
