// The open job: no launcher; contexts have addresses, and number their peers by themselves.
#include <numeric>
#include <utility>

#include "base/config/config.hpp"
#include "base/job/open/connection_manager.hpp"
#include "base/job/open/open_job.hpp"
#include "base/job/open/peers.hpp"
#include "base/report/report.hpp"

namespace pt2p {

using namespace open_job;

struct OpenJob::Parts {
	Parts(const Config &config, Reporter &reporter, std::atomic<bool> &pending)
	    : peers(static_cast<int>(config.open_peers), pending), connections(config, reporter, peers)
	{
	}
	Peers peers;
	ConnectionManager connections;
	std::string blob; // of this context
	std::vector<std::shared_ptr<void>> kept;
};

OpenJob::OpenJob(const Config &config, Reporter &reporter)
    : reporter_(reporter), parts_(std::make_unique<Parts>(config, reporter, events_pending_))
{
	open_ = true;
	id_ = "open";
	size_ = static_cast<int>(config.open_peers);
	// Whether a peer is on this host shows in its address.
	std::vector<int> all(static_cast<size_t>(size_));
	std::iota(all.begin(), all.end(), 0);
	set_local_ranks(std::move(all), 0);
	host_size_ = 2; // somebody else is likely to be here
}

OpenJob::~OpenJob() { leave(); }

const std::string &OpenJob::address() const { return parts_->connections.address(); }

std::string OpenJob::address_of(int rank) const
{
	return rank == this->rank() ? address() : parts_->peers.address_of(rank);
}

int OpenJob::add(const std::string &address) { return parts_->connections.add(address); }

std::string OpenJob::remove(int rank, bool &was_live) { return parts_->peers.remove(rank, was_live); }

void OpenJob::disconnect(int rank) { parts_->connections.disconnect(rank); }

int OpenJob::rank_at(int peer) const { return parts_->peers.rank_at(peer); }

void OpenJob::publish(const std::string &blob)
{
	parts_->blob = blob;
	parts_->connections.start(blob);
}

std::string OpenJob::lookup(int rank)
{
	std::string blob;
	if (rank == 0)
		return parts_->blob;
	if (!parts_->peers.take_blob(rank, blob, true))
		throw Error(PT2P_ERR_RANK, "no peer of this context has that number; pt2p_peer_add gives peers their numbers");
	return blob;
}

bool OpenJob::try_lookup(int rank, std::string &blob)
{
	if (rank != 0)
		return parts_->peers.take_blob(rank, blob, false);
	blob = parts_->blob;
	return true;
}

bool OpenJob::nobody_has(int rank) const { return parts_->peers.is_free(rank); }

void OpenJob::handled(int rank)
{
	parts_->peers.set_handled(rank);
	parts_->connections.close_connection(rank);
}

bool OpenJob::next_to_forget(size_t &position, int &rank, bool &removed)
{
	return parts_->peers.next_to_forget(position, rank, removed);
}

void OpenJob::forgotten(int rank) { parts_->peers.free_number(rank); }

bool OpenJob::next_event(RankEvent &event) { return parts_->peers.next_event(event); }

void OpenJob::check() { reporter_.add(Counter::auth_refused, parts_->connections.take_refused()); }

Job::End OpenJob::end_of(int rank, std::string &reason) { return parts_->peers.end_of(rank, reason); }

void OpenJob::keep(std::shared_ptr<void> thing) { parts_->kept.push_back(std::move(thing)); }

void OpenJob::leave()
{
	parts_->connections.stop();
	parts_->kept.clear();
}

void OpenJob::abort(int code, const char *message)
{
	announce_abort(rank_, message);
	end_process(code);
}

} // namespace pt2p
