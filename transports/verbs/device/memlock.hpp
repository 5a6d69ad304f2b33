// The kernel locks memory that a device reads or writes, and limits how much a process may lock (RLIMIT_MEMLOCK). On
// real devices this is the most common cause of failure. Nothing here needs libibverbs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pt2p::verbs {

struct LockLimit {
	static constexpr uint64_t none = UINT64_MAX;
	uint64_t soft, hard; // bytes; `none`: unlimited
	uint64_t locked;     // bytes that this process has locked for devices
	bool exempt;         // the limit does not apply to this process
};
// Of this process, now.
LockLimit lock_limit();
// Whether a process with these texts of /proc/self/status and /proc/self/uid_map may lock without limit.
bool may_lock_all(std::string_view status, std::string_view uid_map);

// The need is unknown: a call has failed.
constexpr uint64_t unknown_need = 0;
// Why `needed` bytes cannot be locked, and what helps; empty: they can.
std::string lock_shortage(const LockLimit &limit, uint64_t needed);

} // namespace pt2p::verbs
