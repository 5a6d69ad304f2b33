#include "rpc/windows.hpp"

#include <cstring>

namespace pt2p::rpc {

using onesided::Operation;

namespace {

// Moves bytes between the program's memory and a carried window.
void move_carried(Reach &reach, Window window, const onesided::OneSided::Work &work)
{
	if (!work.length)
		return;
	unsigned char *const there = reach.copy[window] + work.offset;
	if (work.kind == Operation::Kind::get) {
		std::memcpy(work.local, there, work.length);
		return;
	}
	std::memcpy(there, work.local, work.length);
	const Pushed part{static_cast<uint32_t>(work.offset), static_cast<uint32_t>(work.length)};
	if (!reach.pushed.empty() && reach.pushed.back().offset + reach.pushed.back().length == part.offset)
		reach.pushed.back().length += part.length;
	else
		reach.pushed.push_back(part);
}

} // namespace

void Windows::lend(Lent *&lent, Window window, const void *address, size_t length)
{
	if (!lent) {
		lent = lents_.take();
		*lent = {};
	}
	lent->memory[window] = &onesided_.memories().lend(const_cast<void *>(address), length);
}

void Windows::take_back(Lent *&lent)
{
	if (!lent)
		return;
	for (onesided::Memory *memory : lent->memory)
		if (memory)
			onesided_.memories().release(*memory);
	lents_.give(lent);
	lent = nullptr;
}

void Windows::carry(Reach &reach, Carried lengths)
{
	unsigned char *const copies = reach.copies.take(buffers_, size_t{lengths.give} + lengths.take);
	if (lengths.give) {
		reach.copy[give_window] = copies;
		reach.lent[give_window].length = lengths.give;
	}
	if (lengths.take) {
		reach.copy[take_window] = copies + lengths.give;
		reach.lent[take_window].length = lengths.take;
	}
}

pt2p_status_t Windows::get(Reach &reach, Window window, int peer, void *to, size_t offset, size_t length,
                           pt2p_request_t **req)
{
	return move(reach, window, peer, {"call_pull", Operation::Kind::get, nullptr, offset, length, to}, req);
}

pt2p_status_t Windows::put(Reach &reach, Window window, int peer, const void *from, size_t offset, size_t length,
                           pt2p_request_t **req)
{
	return move(reach, window, peer,
	            {"call_push", Operation::Kind::put, nullptr, offset, length, const_cast<void *>(from)}, req);
}

pt2p_status_t Windows::move(Reach &reach, Window window, int peer, onesided::OneSided::Work work, pt2p_request_t **req)
{
	if (reach.copy[window]) {
		move_carried(reach, window, work);
		end_at_once(work.name, peer, work.offset, work.length, req);
		return PT2P_OK;
	}
	onesided::Remote *&remote = reach.remote[window];
	if (!remote)
		remote = &onesided_.import(peer, reach.lent[window]);
	work.remote = remote;
	pt2p_request_t *own = nullptr;
	const pt2p_status_t status = onesided_.start(work, req ? req : &own);
	if (own)
		reach.transfers.push_back(own);
	return status;
}

void Windows::end_at_once(const char *name, int peer, size_t offset, size_t length, pt2p_request_t **req)
{
	if (!req)
		return;
	Request *r = engine_.start_one_sided(name, length, peer, offset);
	*req = to_handle(r);
	engine_.requests().complete(*r, PT2P_OK);
}

bool Windows::moving(Reach &reach)
{
	for (const onesided::Remote *remote : reach.remote)
		if (remote && remote->pending)
			return true;
	Requests &requests = engine_.requests();
	for (pt2p_request_t *transfer : reach.transfers)
		if (Request *r = requests.find(reinterpret_cast<uint64_t>(transfer))) {
			if (r->status != PT2P_OK)
				reach.failure = r->status;
			requests.discard(*r);
		}
	reach.transfers.clear();
	return false;
}

void Windows::let_go(Reach *&reach)
{
	if (!reach)
		return;
	moving(*reach);
	for (onesided::Remote *&remote : reach->remote) {
		if (remote)
			onesided_.forget(*remote);
		remote = nullptr;
	}
	std::fill(std::begin(reach->copy), std::end(reach->copy), nullptr);
	reach->copies.give(buffers_);
	reach->reply.give(buffers_);
	reach->has_reply = false;
	reach->pushed.clear();
	reach->failure = PT2P_OK;
	reaches_.give(reach);
	reach = nullptr;
}

} // namespace pt2p::rpc
