// SPDX-License-Identifier: BSD-3-Clause
// What the transports depend on and the system decides, in words for pt2p_info.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pt2p {

// One line of a list of facts: a key for JSON, a label for people.
struct Fact {
	std::string key, label, value;
};

// 1536 as "1.5 KiB".
std::string bytes_text(uint64_t bytes);

// Single copy, /dev/shm, locked memory, RDMA devices. Forks to try the first: call it before threads are started.
std::vector<Fact> system_facts();

} // namespace pt2p
