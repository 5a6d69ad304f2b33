// Memory that a device reads or writes is locked by the kernel, and how much a process may lock is limited
// (RLIMIT_MEMLOCK): on real devices the most common reason why nothing works. Nothing here needs libibverbs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pt2p::verbs {

struct LockLimit {
	static constexpr uint64_t none = UINT64_MAX;
	uint64_t soft, hard; // bytes; `none`: without end
	uint64_t locked;     // for devices, by this process so far
	bool exempt;         // the limit does not count for this process
};
// Of this process, now.
LockLimit lock_limit();
// Whether the texts of /proc/self/status and /proc/self/uid_map are those of a process that may lock without limit.
bool may_lock_all(std::string_view status, std::string_view uid_map);

// What is needed, when that is not known: a call has failed.
constexpr uint64_t unknown_need = 0;
// Why that much cannot be locked, and what to do about it; empty when it can.
std::string lock_shortage(const LockLimit &limit, uint64_t needed);

} // namespace pt2p::verbs
