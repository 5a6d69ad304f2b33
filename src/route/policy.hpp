// What all ranks have to decide alike: which groups of nodes there are, whether messages are forwarded, and where rc is
// used and where dct.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "route/groups/groups.hpp"

namespace pt2p {

struct Config;
class Job;
class Reporter;

class RoutePolicy {
public:
	// Throws Error when PT2P_GROUPS cannot be read.
	RoutePolicy(const Config &config, Reporter &reporter, Job &job);

	// Null when neither PT2P_GROUPS nor PT2P_ROUTE asks for groups.
	const Groups *groups() const { return groups_.get(); }
	// Whether PT2P_ROUTE asks for forwarding, and some route has more than one hop.
	bool forwards() const { return forwards_; }
	// Ranks with the same rule make matching choices.
	std::string rule() const;
	// Why rc is not to connect to `rank` although dct reaches it as well; empty: rc is to connect.
	std::string why_not_rc(int rank) const;

private:
	const Config &config_;
	const int rank_, size_;
	std::unique_ptr<Groups> groups_;
	uint32_t checksum_ = 0; // of the groups
	bool forwards_ = false;
};

// Whether two ranks need the same rule for every transport: ranks of a node, or of a group, have to agree that they
// are.
bool decides_all(const std::string &rule);

} // namespace pt2p
