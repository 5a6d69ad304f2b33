// What all ranks have to decide alike: which groups of nodes there are, whether messages are forwarded, and where rc is
// used and where dct.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "route/forward/connection_budget.hpp"
#include "route/groups/groups.hpp"

namespace pt2p {

struct Config;
class Job;
class Reporter;

// DC initiators of a rank when PT2P_DCT_INITIATORS does not say: of `ranks` on its node. More make fewer changes of
// target, and all are contexts of the device, like connections.
int64_t initiators_for(const Config &config, int ranks);

class RoutePolicy {
public:
	// Throws Error when PT2P_GROUPS cannot be read.
	RoutePolicy(const Config &config, Reporter &reporter, Job &job);

	// Null when there are none: nobody asks for them, and all connections fit the device.
	const Groups *groups() const { return groups_.get(); }
	// Whether messages may be forwarded: PT2P_ROUTE allows it, and some route has more than one hop.
	bool forwards() const { return forwards_; }
	// Reliable connections that this rank may make: its share of the device's.
	int64_t share() const { return share_; }
	// For the summary: how messages go to ranks of other nodes, and why; empty: as the user has it.
	const std::string &choice() const { return choice_; }
	// Ranks with the same rule make matching choices.
	std::string rule() const;
	// Why rc is not to connect to `rank` although dct reaches it as well; empty: rc is to connect.
	// `keep_few_connections`: this rank has connections enough.
	std::string why_not_rc(int rank, bool keep_few_connections) const;

private:
	const Config &config_;
	const int rank_, size_;
	std::unique_ptr<Groups> groups_;
	uint32_t checksum_ = 0; // of the groups
	bool forwards_ = false, open_ = false;
	int64_t share_ = ConnectionBudget::unlimited;
	std::string choice_;
};

// Whether two ranks need the same rule for every transport: ranks of a node, or of a group, have to agree that they
// are.
bool decides_all(const std::string &rule);

} // namespace pt2p
