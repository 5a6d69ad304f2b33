// SPDX-License-Identifier: BSD-3-Clause
// A rank that is killed, and what the survivors check.
//
// In these cases rank 1 is the victim: it kills itself with SIGKILL while traffic runs. Each survivor prints
//
//   survivor RANK: EXPLANATION
//
// and exits with 0 when the failure was PT2P_ERR_PEER_LOST, named the victim, came soon, and left the exchange with the
// other survivors alone.
#pragma once

#include "tests/fault/rank.hpp"

namespace fault {

inline bool is_victim() { return me == victim; }
// Whether this rank talks with that one where the victim talks with each survivor, and nobody else.
inline bool is_partner(int peer) { return is_victim() ? peer != me : peer == victim; }

// Kills this process from another thread, so that death meets the main thread anywhere in the library.
void die_in(int milliseconds);
[[noreturn]] void die();
// The victim receives a message with tag_after from each survivor.
void await_survivors();
// The victim answers until it dies.
[[noreturn]] void progress_until_death(int milliseconds);

// The survivors still exchange messages, short and large.
void talk_among_survivors();
// `status` ended the traffic with the victim at most `waited` seconds after the last success. Does not return: it
// checks that and the exchange among survivors, finalizes, and exits.
void survived(pt2p_status_t status, double waited);
// Waits for the requests of a round. `status`: whether they could be started; `last`: when the round before succeeded.
// Returns the time of this success. A loss ends the program.
double end_round(std::vector<pt2p_request_t *> &reqs, pt2p_status_t status, double last);

} // namespace fault
