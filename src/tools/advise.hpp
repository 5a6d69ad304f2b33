// SPDX-License-Identifier: BSD-3-Clause
// pt2p_info --advise: which way of asking other ranks is the quickest for a load (rpc/laws/advice.hpp).
#pragma once

#include <string>
#include <vector>

namespace pt2p {

// Words are NAME=VALUE. Prints the ways in order, or what is wrong with a word on standard error. Returns the exit
// status.
int advise(const std::vector<std::string> &words, bool as_json);

} // namespace pt2p
