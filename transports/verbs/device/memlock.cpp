#include "transports/verbs/device/memlock.hpp"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <sstream>
#include <sys/resource.h>

namespace pt2p::verbs {

namespace {

std::string content(const char *path)
{
	std::ifstream file(path);
	return {std::istreambuf_iterator<char>(file), {}};
}

// The number after a name in /proc/self/status; 0: it is not there.
uint64_t number_after(std::string_view text, std::string_view name, int base)
{
	const size_t at = text.find(name);
	if (at == text.npos)
		return 0;
	text.remove_prefix(at + name.size());
	text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
	uint64_t value = 0;
	std::from_chars(text.data(), text.data() + text.size(), value, base);
	return value;
}

std::string kib(uint64_t bytes)
{
	return bytes == LockLimit::none ? "unlimited" : std::to_string(bytes / 1024 + (bytes % 1024 != 0)) + " KiB";
}

uint64_t bytes_of(rlim_t limit) { return limit == RLIM_INFINITY ? LockLimit::none : uint64_t{limit}; }

} // namespace

bool may_lock_all(std::string_view status, std::string_view uid_map)
{
	constexpr unsigned ipc_lock = 14; // CAP_IPC_LOCK
	// Capabilities in a user namespace, as of a container without privilege, are not enough. The kernel asks for those
	// of the initial namespace, in which every user is mapped to itself.
	std::istringstream map{std::string(uid_map)};
	uint64_t inside = 1, outside = 1, count = 0;
	map >> inside >> outside >> count;
	const bool first = inside == 0 && outside == 0 && count == UINT32_MAX;
	return first && (number_after(status, "\nCapEff:", 16) >> ipc_lock & 1);
}

LockLimit lock_limit()
{
	const std::string status = content("/proc/self/status");
	rlimit limit;
	if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0)
		limit.rlim_cur = limit.rlim_max = RLIM_INFINITY;
	return {bytes_of(limit.rlim_cur), bytes_of(limit.rlim_max), number_after(status, "\nVmPin:", 10) * 1024,
	        may_lock_all(status, content("/proc/self/uid_map"))};
}

std::string lock_shortage(const LockLimit &limit, uint64_t needed)
{
	if (limit.exempt || limit.soft == LockLimit::none)
		return {};
	const auto enough = [&](uint64_t bytes) { return bytes > limit.locked && bytes - limit.locked >= needed; };
	if (needed != unknown_need && enough(limit.soft))
		return {};
	std::string text = "this process may lock " + kib(limit.soft) + " of memory (RLIMIT_MEMLOCK)";
	if (limit.locked)
		text += ", " + kib(limit.locked) + " of which it has locked already";
	if (needed != unknown_need)
		text += ", and needs " + kib(needed) + " at start";
	// A user can raise the soft limit up to the hard limit; only root can raise the hard limit.
	const bool by_user = limit.hard > limit.soft && enough(limit.hard);
	text += ". To raise the limit, ";
	if (by_user)
		text += "ulimit -l " + (limit.hard == LockLimit::none ? "unlimited" : std::to_string(limit.hard / 1024)) +
		        " in the shell that starts the job, or for good ";
	text += "put \"* - memlock unlimited\" into a file in /etc/security/limits.d, and LimitMEMLOCK=infinity into the "
	        "unit of "
	        "what starts ranks: sshd, slurmd and other daemons hand on the limit that they were started with";
	text += ". Smaller PT2P_NET_RECEIVES, PT2P_NET_SEND_DEPTH and PT2P_NET_MESSAGE_BYTES need less";
	return text;
}

} // namespace pt2p::verbs
