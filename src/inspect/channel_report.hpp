// A channel's facts in words.
#pragma once

#include <string>

#include "transports/channel_facts.hpp"

namespace pt2p {

// The dimension that limits the channel, why, and which tunable would change that: one or two sentences.
std::string what_limits(const ChannelFacts &facts);
// All of it: a few lines, each with two blanks before and a newline behind.
std::string describe(const ChannelFacts &facts);

} // namespace pt2p
