// Which ranks are lost or have finalized, and who has been told.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "base/report/report.hpp"
#include "pt2p.h"

namespace pt2p {

class PeerLosses {
public:
	struct Loss {
		pt2p_status_t status;
		std::string reason;
		bool reported;   // to a receive from any source
		unsigned number; // it was the so many-th rank to be lost; 0: it has finalized

		// Whether messages may be missing. A rank that has finalized, or cannot be reached at all, sent what it had to
		// send. One whose address the launcher does not give any more may not have begun.
		bool is_loss() const { return number != 0; }
	};

	// `size`: ranks of the job. `open`: others may come, so what waits for any of them is not told of those that went.
	PeerLosses(Reporter &reporter, int size, bool open = false) : reporter_(reporter), size_(size), open_(open) {}

	size_t count() const { return losses_.size(); }
	bool contain(int rank) const { return !losses_.empty() && losses_.count(rank); }
	// Null: the rank is not lost.
	const Loss *find(int rank) const
	{
		const auto loss = losses_.find(rank);
		return loss == losses_.end() ? nullptr : &loss->second;
	}
	const std::map<int, Loss> &all() const { return losses_; }
	// Every other rank has left the job.
	bool all_others() const { return !open_ && static_cast<int>(losses_.size()) == size_ - 1; }
	// The rank must not be among them yet.
	Loss &add(int rank, pt2p_status_t status, std::string_view reason);
	// It will be somebody else.
	void forget(int rank)
	{
		losses_.erase(rank);
		unreached_.erase(rank);
	}
	// PT2P_OK, or how a rank was lost, with the reason.
	pt2p_status_t status_of(int rank, std::string &reason) const;

	// Whether a new receive from this source can end. One from any source fails once for each lost rank.
	pt2p_status_t receive_status(int source);
	// The same for a call that waits without a receive, as a probe does. From any source it fails once for each lost
	// rank, whatever receives have been told. With `since`, told() when the call began, all calls fail that are under
	// way then.
	pt2p_status_t awaited_status(int source, unsigned since);
	unsigned told() const { return told_; }

	// The last attempt to connect to that rank has failed, which is no loss; it has succeeded; why it has failed.
	void unreached(int rank, std::string_view reason) { unreached_[rank] = reason; }
	void reached(int rank) { unreached_.erase(rank); }
	const std::string *why_unreached(int rank) const
	{
		const auto why = unreached_.find(rank);
		return why == unreached_.end() ? nullptr : &why->second;
	}

private:
	pt2p_status_t any_source_lost(int rank, const Loss &loss);

	Reporter &reporter_;
	const int size_;
	const bool open_;
	std::map<int, Loss> losses_;
	std::map<int, std::string> unreached_;
	unsigned counted_ = 0, told_ = 0; // lost ranks; those that calls without a receive were told of
};

} // namespace pt2p
