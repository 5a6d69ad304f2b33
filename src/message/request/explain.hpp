// Requests and messages in words, for explanations and the dump.
#pragma once

#include <string>

#include "message/extension.hpp"
#include "message/matching/matching.hpp"
#include "message/request/requests.hpp"

namespace pt2p {

// `loss`: why its peer is gone; empty: it is not.
std::string request_text(const Request &request, const std::string &loss);
// Of a message that pt2p_mprobe has given out.
std::string taken_text(const UnexpectedMessage &message);
// What pt2p_finalize leaves behind: requests, messages that were probed, and what extensions have under way. Empty:
// nothing.
std::string unfinished_text(const Requests &requests, const HandlePool<UnexpectedMessage> &messages,
                            const PeerLosses &losses, const Extensions &extensions);

} // namespace pt2p
