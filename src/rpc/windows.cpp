#include "rpc/windows.hpp"

namespace pt2p::rpc {

using onesided::Operation;

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
	reach->failure = PT2P_OK;
	reaches_.give(reach);
	reach = nullptr;
}

} // namespace pt2p::rpc
