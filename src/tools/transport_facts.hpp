// SPDX-License-Identifier: BSD-3-Clause
// Which transports work on this host.
#pragma once

#include <string>
#include <vector>

namespace pt2p {

struct Config;
struct Topology;

struct TransportFact {
	std::string name;
	bool usable = false, chosen = true;
	std::string why_not, capabilities;
};

// Opens every transport in a job of two ranks inside this process, as one of several ranks of this host would.
std::vector<TransportFact> transport_facts(const Config &config, const Topology &topology);

} // namespace pt2p
