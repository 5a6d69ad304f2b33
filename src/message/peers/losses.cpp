#include "message/peers/losses.hpp"

#include <algorithm>

#include "base/assert.hpp"

namespace pt2p {

PeerLosses::Loss &PeerLosses::add(int rank, pt2p_status_t status, std::string_view reason)
{
	PT2P_ASSERT(!contain(rank));
	const bool loss = status == PT2P_ERR_PEER_LOST || status == PT2P_ERR_PROTOCOL || status == PT2P_ERR_EXCHANGE;
	return losses_[rank] = {status, std::string(reason), false, loss ? ++counted_ : 0};
}

pt2p_status_t PeerLosses::status_of(int rank, std::string &reason) const
{
	const Loss *loss = find(rank);
	if (!loss)
		return PT2P_OK;
	reason = loss->reason;
	return loss->status;
}

pt2p_status_t PeerLosses::receive_status(int source)
{
	if (source == PT2P_ANY_SOURCE && !open_)
		for (auto &[rank, loss] : losses_)
			if (loss.is_loss() && !loss.reported) {
				loss.reported = true;
				return any_source_lost(rank, loss);
			}
	return awaited_status(source, counted_);
}

pt2p_status_t PeerLosses::awaited_status(int source, unsigned since)
{
	if (losses_.empty())
		return PT2P_OK;
	if (source != PT2P_ANY_SOURCE) {
		const Loss *loss = find(source);
		return loss ? reporter_.fail(loss->status, "receive from rank %d: %s", source, loss->reason.c_str()) : PT2P_OK;
	}
	if (open_)
		return PT2P_OK;
	for (const auto &[rank, loss] : losses_)
		if (loss.number == since + 1) {
			told_ = std::max(told_, loss.number);
			return any_source_lost(rank, loss);
		}
	if (all_others())
		return reporter_.fail(PT2P_ERR_PEER_FINALIZED, "receive from any source: every other rank has left the job");
	return PT2P_OK;
}

pt2p_status_t PeerLosses::any_source_lost(int rank, const Loss &loss)
{
	return reporter_.fail(PT2P_ERR_PEER_LOST, "receive from any source: rank %d was lost: %s", rank,
	                      loss.reason.c_str());
}

} // namespace pt2p
