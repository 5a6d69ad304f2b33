// Calls: a rank asks another one to do something, and gets a reply. pt2p_calls(7) tells the semantics, wire.hpp draws
// the messages and says why calls do not deadlock.
//
//   Calls      calls that this rank makes
//   Services   services of this rank, and the calls of others
//   Peers      what the two share: the state between this rank and another, and the way there
//   Windows    memory that is lent for a call
//   Results    replies that callers fetch
#pragma once

#include <cstdint>
#include <string>

#include "message/engine.hpp"
#include "rpc/calls.hpp"
#include "rpc/services.hpp"

namespace pt2p {
struct Config;
}

namespace pt2p::rpc {

class Rpc final : public Extension {
public:
	// `size`: ranks of the job.
	Rpc(const Config &config, Reporter &reporter, Engine &engine, onesided::OneSided &onesided, int size,
	    pt2p_context_t *context);

	// What calls have that say nothing.
	static CallDefaults standard(const Config &config);
	Calls &calls() { return calls_; }
	Peers &peers() { return peers_; }
	Services &services() { return services_; }

	void describe(int rank, pt2p_calls_info_t &info) const;

	// From the engine.
	const char *on_message(int peer, uint8_t id, uint64_t header, const void *data, size_t length) override;
	void on_complete(uint64_t operation, pt2p_status_t status, std::string_view) override
	{
		calls_.on_read(operation & ~range.operation_bit, status);
	}
	void on_datagram(int peer, uint8_t id, uint64_t header, const void *data, size_t length) override;
	void on_immediate(uint32_t word) override { calls_.on_immediate(word); }
	void tick(int64_t now) override { calls_.tick(now); }
	void check() override { calls_.examine_silent(); }
	void before_sleep() override { calls_.before_sleep(); }
	void on_peer_down(int peer, pt2p_status_t status) override;
	bool may_forget(int peer) override { return peers_.may_forget(peer); }
	void forget_peer(int peer) override { peers_.forget(peer); }
	void on_refused(int peer, pt2p_status_t status, std::string_view reason) override;
	unsigned drive() override;
	bool has_work() const override
	{
		return peers_.busy() || services_.has_calls() || services_.has_transfers() || calls_.awaits_deadlines() ||
		       calls_.has_replies() || calls_.fetches();
	}
	bool may_send_several() const override
	{
		return peers_.busy() || services_.has_several_calls() || services_.has_transfers() || calls_.has_replies();
	}
	bool pending() const override { return calls_.pending() || services_.pending(); }
	std::string pending_text() const override;
	std::string advice(uint32_t device_part, size_t local_ranks) const override;

private:
	Peers peers_;
	Windows windows_;
	Results results_;
	Calls calls_;
	Services services_;
};

} // namespace pt2p::rpc
