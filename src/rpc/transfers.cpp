// Calls whose caller lends memory: what moves between it and this rank, and what waits for that.
#include <cstring>

#include "rpc/services.hpp"

namespace pt2p::rpc {

// Returns what follows their descriptions.
const unsigned char *Services::note_windows(Incoming &in, unsigned windows, const unsigned char *bytes)
{
	in.reach = &windows_.reach();
	for (unsigned window = 0; window < window_count; ++window) {
		in.reach->lent[window] = {};
		if (windows & 1u << window) {
			std::memcpy(&in.reach->lent[window], bytes, sizeof(LentMemory));
			bytes += sizeof(LentMemory);
		}
	}
	if (in.has(input_window))
		in.received = in.length;
	return bytes;
}

pt2p_status_t Services::pull(Incoming &in, Window window, void *to, size_t offset, size_t length, pt2p_request_t **req)
{
	if (in.has(window))
		return windows_.get(*in.reach, window, in.caller, to, offset, length, req);
	// An input that came in pieces.
	if (length)
		std::memcpy(to, in.input.data() + offset, length);
	if (req) {
		Request *r = engine_.start_one_sided("call_pull", length, in.caller, offset);
		*req = to_handle(r);
		engine_.requests().complete(*r, PT2P_OK);
	}
	return PT2P_OK;
}

pt2p_status_t Services::push(Incoming &in, const void *from, size_t offset, size_t length, pt2p_request_t **req)
{
	return windows_.put(*in.reach, take_window, in.caller, from, offset, length, req);
}

void Services::settle_later(Incoming &in)
{
	if (in.settling)
		return;
	in.settling = true;
	settling_.push(in);
	engine_.wake_extensions();
}

unsigned Services::drive_transfers()
{
	unsigned n = 0;
	// Each once; what one does may end others.
	for (size_t left = settling_.size(); left && !settling_.empty(); --left) {
		Incoming &in = settling_.pop();
		if (windows_.moving(*in.reach)) {
			settling_.push(in);
			continue;
		}
		in.settling = false;
		settle(in);
		++n;
	}
	return n;
}

// Nothing moves between the caller's memory and this rank's.
void Services::settle(Incoming &in)
{
	switch (in.state) {
	case Incoming::State::coming:
		if (in.refusal != PT2P_OK)
			refuse(in, static_cast<pt2p_status_t>(in.refusal));
		else if (in.reach->failure != PT2P_OK)
			refuse(in, PT2P_ERR_SYSTEM);
		else if (in.fetched)
			queue(in);
		else
			fetch_input(in);
		break;
	case Incoming::State::running: give_slot_back(in); break; // it is late
	case Incoming::State::replied: send_reply(in, in.data.data()); break;
	default: break;
	}
}

void Services::fetch_input(Incoming &in)
{
	unsigned char *input;
	try {
		input = in.input.take(buffers_, in.length);
	} catch (const std::bad_alloc &) {
		return refuse(in, PT2P_ERR_NO_MEMORY);
	}
	in.fetched = true;
	settle_later(in);
	const uint64_t handle = in.handle;
	Reach &reach = *in.reach;
	const pt2p_status_t status = windows_.get(reach, input_window, in.caller, input, 0, in.length, nullptr);
	if (status != PT2P_OK && pool_.find(handle)) // else the caller is lost, and the call is over
		reach.failure = status;
}

} // namespace pt2p::rpc
