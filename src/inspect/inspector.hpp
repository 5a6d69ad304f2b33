// The texts in which a context describes itself: the summary (PT2P_SUMMARY), the report on its channels (PT2P_REPORT),
// and the dump of a rank that waits. The inspector reads the state of the layers below and changes nothing.
#pragma once

#include <string>

#include <pt2p.h>

namespace pt2p {

class Engine;
class Extension;
class Job;
class Reporter;
class Router;

class Inspector {
public:
	// All outlive it.
	Inspector(const Engine &engine, const Router &router, const Job &job, const Reporter &reporter);

	std::string summary() const;
	// Of the channels that have sent anything; the busiest first.
	std::string report() const;
	// Fills in how messages to info.rank travel.
	void inspect(pt2p_peer_info_t &info) const;
	// What this rank waits for; `reason`: why the dump is written.
	std::string dump(const char *reason) const;

private:
	std::string channels_through_devices() const;
	std::string advice() const;

	const Engine &engine_;
	const Router &router_;
	const Job &job_;
	const Reporter &reporter_;
	const int rank_, size_;
};

} // namespace pt2p
