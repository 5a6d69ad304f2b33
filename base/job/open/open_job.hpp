// The open job, for contexts that add peers by their addresses.
#pragma once

#include <memory>
#include <string>

#include "base/job/job.hpp"

namespace pt2p {

class OpenJob final : public Job {
public:
	// Takes an address. Throws Error.
	OpenJob(const Config &config, Reporter &reporter);
	~OpenJob() override;

	// "host:port", by which others add this context.
	const std::string &address() const;
	// The same of a peer; empty: nobody has that number.
	std::string address_of(int rank) const;
	// The number of the peer with that address. Waits for its answer; throws Error. Any thread may call it.
	int add(const std::string &address);
	// Ends a peer. What is wrong with that; empty: nothing, and `was_live` tells whether it was still there. Then
	// disconnect() says goodbye to it, once nothing goes to it any more.
	std::string remove(int rank, bool &was_live);
	void disconnect(int rank);

	const char *kind() const override { return "open"; }
	int rank_at(int peer) const override;
	void publish(const std::string &blob) override; // and lets peers in
	std::string lookup(int rank) override;
	bool try_lookup(int rank, std::string &blob) override;
	bool nobody_has(int rank) const override;
	void handled(int rank) override;
	bool next_to_forget(size_t &position, int &rank, bool &removed) override;
	void forgotten(int rank) override;
	bool next_event(RankEvent &event) override;
	void check() override;
	End end_of(int rank, std::string &reason) override;
	void keep(std::shared_ptr<void> thing) override;
	void leave() override;
	[[noreturn]] void abort(int code, const char *message) override;

private:
	struct Parts;
	Reporter &reporter_;
	std::unique_ptr<Parts> parts_;
};

} // namespace pt2p
