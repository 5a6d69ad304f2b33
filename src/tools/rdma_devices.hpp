// SPDX-License-Identifier: BSD-3-Clause
// The RDMA devices of this host and what of them matters to libpt2p, in words for pt2p_info.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tools/json.hpp"
#include "tools/rdma_environment.hpp"
#include "tools/system_facts.hpp"

namespace pt2p {

struct RdmaPort {
	int number;
	std::vector<Fact> facts;
};

struct RdmaDevice {
	std::string name;
	uint32_t part = 0; // its vendor's number; 0: not known
	std::vector<Fact> facts;
	std::vector<RdmaPort> ports;
};

struct RdmaDevices {
	std::vector<RdmaDevice> devices;
	std::string why_none; // when there are none
	// Variables of libmlx5 that are set, and their values.
	std::vector<std::pair<const RdmaVariable *, std::string>> environment;
};

// Opens each of them; one that cannot be opened says so among its facts.
RdmaDevices read_rdma_devices();

void print_rdma_devices(const RdmaDevices &found);
// A list of devices, why there are none, and the variables that are set.
void write_rdma_devices(Json &json, const RdmaDevices &found);

} // namespace pt2p
