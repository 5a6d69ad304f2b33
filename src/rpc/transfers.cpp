// Calls whose caller lends memory: what moves between it and this rank, and what waits for that.
#include <cstring>

#include "rpc/services.hpp"

namespace pt2p::rpc {

// How many bytes of a CALL are about its windows: their descriptions, and `give` if it is carried. SIZE_MAX: they are
// malformed. `length` bytes are there.
size_t Services::length_of_windows(unsigned windows, const unsigned char *bytes, size_t length, Carried &carried)
{
	const size_t lent = static_cast<size_t>(__builtin_popcount(windows & ~carried_bit)) * sizeof(LentMemory);
	if (!(windows & carried_bit))
		return lent;
	if (length < lent + sizeof carried)
		return SIZE_MAX;
	std::memcpy(&carried, bytes + lent, sizeof carried);
	if ((carried.give && windows & 1u << give_window) || (carried.take && windows & 1u << take_window))
		return SIZE_MAX;
	return lent + sizeof carried + carried.give;
}

// Returns what follows; null: there is no memory for what is carried.
const unsigned char *Services::note_windows(Incoming &in, unsigned windows, const unsigned char *bytes,
                                            const Carried &carried)
{
	in.reach = &windows_.reach();
	for (unsigned window = 0; window < window_count; ++window) {
		in.reach->lent[window] = {};
		if (windows & 1u << window) {
			std::memcpy(&in.reach->lent[window], bytes, sizeof(LentMemory));
			bytes += sizeof(LentMemory);
		}
	}
	if (windows & carried_bit) {
		bytes += sizeof carried;
		try {
			windows_.carry(*in.reach, carried);
		} catch (const std::bad_alloc &) {
			return nullptr;
		}
		if (carried.give)
			std::memcpy(in.reach->copy[give_window], bytes, carried.give);
		bytes += carried.give;
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
	windows_.end_at_once("call_pull", in.caller, offset, length, req);
	return PT2P_OK;
}

pt2p_status_t Services::push(Incoming &in, const void *from, size_t offset, size_t length, pt2p_request_t **req)
{
	return windows_.put(*in.reach, take_window, in.caller, from, offset, length, req);
}

// Sends the next bytes that the handler has pushed, the last ones with the reply; false: there is no room now. The
// order does not matter: the copy of the window is what it was at the end.
bool Services::send_pushed(Channel &c, Incoming &in)
{
	std::vector<Pushed> &pushed = in.reach->pushed;
	const Pushed part = pushed.back();
	const unsigned char *const bytes = in.reach->copy[take_window] + part.offset;
	unsigned char heads[sizeof(ReplyHead) + sizeof part + longest_carried];
	size_t length = sizeof(ReplyHead) + sizeof part + part.length;
	if (in.lent || pushed.size() > 1 || part.length > longest_carried || Peers::whole_after(c, 0) < length) {
		const auto piece =
		    static_cast<uint32_t>(std::min<size_t>(part.length, Peers::room_after(c, sizeof part.offset)));
		if (!peers_.send(c, id_pushed, in.number, part.offset, bytes, piece))
			return false;
		if (piece < part.length)
			pushed.back() = {part.offset + piece, part.length - piece};
		else
			pushed.pop_back();
		return true;
	}
	ReplyHead head = in.reply;
	head.pushed = 1;
	std::memcpy(heads, &head, sizeof head);
	std::memcpy(heads + sizeof head, &part, sizeof part);
	std::memcpy(heads + sizeof head + sizeof part, bytes, part.length);
	const size_t first = std::min<size_t>(in.reply.length, Peers::whole_after(c, length));
	if (!peers_.send(c, id_reply, in.number, heads, length, in.reply_bytes(), first))
		return false;
	pushed.clear();
	in.begun = true;
	in.moved = first;
	return true;
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
	case Incoming::State::replied: send_reply(in, in.reply_bytes()); break;
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
