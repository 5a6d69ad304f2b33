#include "message/request/callbacks.hpp"

#include <algorithm>

namespace pt2p {

bool Callbacks::serves() const
{
	return std::any_of(serving_.begin(), serving_.end(),
	                   [self = layers_.progress->caller()](pthread_t thread) { return pthread_equal(thread, self); });
}

Callbacks::Serving::~Serving()
{
	std::vector<pthread_t> &serving = callbacks_.serving_;
	const auto is_this = [self = pthread_self()](pthread_t thread) { return pthread_equal(thread, self); };
	*std::find_if(serving.begin(), serving.end(), is_this) = serving.back();
	serving.pop_back();
}

void Callbacks::tell_failure(const Request &r, bool has_callback)
{
	if (has_callback)
		return requests_.explain(r); // the callback may ask for it
	const std::string reason = requests_.take_reason(r);
	reporter_.log(LogLevel::info, "a request that was given up has failed: %s, rank %d, %zu bytes%s%s",
	              pt2p_strerror(r.status), r.peer, r.length, reason.empty() ? "" : ": ", reason.c_str());
}

// Requests that callbacks complete are freed in the next turn.
unsigned Callbacks::run()
{
	if (!may_call())
		return 0;
	unsigned n = 0;
	for (Fifo<Request> finished = requests_.take_finished(); !finished.empty(); ++n) {
		Request &r = finished.pop();
		const pt2p_result_t result = requests_.result_of(r);
		pt2p_callback_t callback = nullptr;
		void *argument = nullptr;
		if (r.special & Request::with_details) {
			callback = r.details->callback;
			argument = r.details->argument;
		}
		if (__builtin_expect(result.status != PT2P_OK, 0))
			tell_failure(r, callback != nullptr);
		const bool nested = r.special & Request::nested;
		requests_.release_details(r);
		requests_.release(&r);
		if (callback)
			call(nested, [&] { callback(context_, &result, argument); });
	}
	return n;
}

} // namespace pt2p
