// The dct transport: dynamically connected queue pairs. One target takes everything that comes to this rank, a few
// initiators serve all peers: what a peer costs does not grow with what it is sent, and a rank has as many queue pairs in a
// job of ten thousand as in one of ten. What goes through them is in verbs/net.hpp, which initiator is chosen in pool.hpp.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "job/job.hpp"
#include "transports/dct/pool.hpp"
#include "transports/verbs/net.hpp"

namespace pt2p::dct {

class DctTransport;

// What is published.
struct Address {
	verbs::PortAddress port;
	uint32_t number;
	uint64_t key;
};

struct Peer final : verbs::Peer {
	DctTransport *transport = nullptr;
	verbs::AhOwner handle;
	size_t last = no_initiator;  // initiator that its work under way is in, while in_flight is not 0
	int64_t failing_since = 0;   // 0: it has not failed yet

	verbs::SendQueue *acquire() override;
	void cut() override;
};

class DctTransport final : public Transport, public verbs::QueueOwner {
public:
	DctTransport(const TransportEnvironment &environment, std::shared_ptr<verbs::Net> net);
	~DctTransport() override;

	const TransportTable &table() const override;
	std::string address() override;
	bool reaches(int rank, std::string_view address, std::string &why_not) override;
	Endpoint &connect(int rank, std::string_view address) override;
	Endpoint *loopback() override { return &connect(environment_.job.rank(), address()); }
	void check() override;
	bool arm() override { return net_->arm(this); }
	void disarm() override { net_->disarm(this); }
	int wake_fd() override { return net_->wake_fd(); }
	void cork(bool corked) override { net_->cork(corked); }
	void abandon(int rank, pt2p_status_t status, const std::string &reason) override;
	void leave() override { net_->leave(this); }
	std::string describe(int peer) override;
	Memory memory_per_peer() override;
	void *expose(void *memory, size_t length, uint64_t &key, std::string &why_not) override
	{
		return net_->expose(memory, length, key, why_not);
	}
	void withdraw(void *exposure) override { net_->withdraw(exposure); }
	void forget(void *memory, size_t length) override { net_->forget(memory, length); }

	void on_broken(verbs::SendQueue &queue, ibv_wc_status status) override;

	verbs::SendQueue *choose(Peer &peer);
	unsigned progress() { return net_->progress(this); }

private:
	void make_target();
	void make_initiator();
	bool start_initiator(ibv_qp *qp) const;
	void fail_target(Peer &peer, ibv_wc_status status);

	const TransportEnvironment environment_;
	const std::shared_ptr<verbs::Net> net_;
	const uint64_t key_; // of the target
	verbs::QpOwner target_;
	std::vector<std::unique_ptr<verbs::SendQueue>> initiators_;
	std::vector<InitiatorState> states_;
	uint64_t chosen_ = 0;
	std::vector<std::unique_ptr<Peer>> peers_; // by rank
};

} // namespace pt2p::dct
