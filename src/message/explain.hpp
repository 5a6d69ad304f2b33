// Requests and messages in words, for explanations and the dump.
#pragma once

#include <string>

#include "message/matching.hpp"
#include "message/request.hpp"

namespace pt2p {

// `loss`: why its peer is gone; empty: it is not.
std::string request_text(const Request &request, const std::string &loss);
// Of a message that pt2p_mprobe has given out.
std::string taken_text(const UnexpectedMessage &message);

} // namespace pt2p
