// The limit on locked memory: when it is the cause of a failure, and what the explanation says.
#include <catch2/catch.hpp>

#include "transports/verbs/device/memlock.hpp"

using namespace pt2p::verbs;

namespace {

constexpr uint64_t mib = 1 << 20, none = LockLimit::none;
constexpr const char *all_users = "         0          0 4294967295\n";

std::string status(const char *capabilities)
{
	return "Name:\trank\nVmPin:\t      12 kB\nCapInh:\t0000000000004000\nCapPrm:\t0000000000004000\nCapEff:\t" +
	       std::string(capabilities) + "\nCapBnd:\t000001ffffffffff\n";
}

bool says(const std::string &text, const char *what) { return text.find(what) != text.npos; }

} // namespace

TEST_CASE("the limit on locked memory is not mentioned when it does not matter")
{
	CHECK(lock_shortage({none, none, 0, false}, 100 * mib).empty());
	CHECK(lock_shortage({none, none, 0, false}, unknown_need).empty());
	CHECK(lock_shortage({64 * 1024, 64 * 1024, 0, true}, 100 * mib).empty());
	CHECK(lock_shortage({64 * 1024, 64 * 1024, 0, true}, unknown_need).empty());
	CHECK(lock_shortage({8 * mib, 8 * mib, 0, false}, 8 * mib).empty());
	CHECK(lock_shortage({8 * mib, 8 * mib, 3 * mib, false}, 5 * mib).empty());
}

TEST_CASE("a limit on locked memory that is too low is named, with what is needed and what helps")
{
	std::string text = lock_shortage({8 * mib, 8 * mib, 0, false}, 8 * mib + 1);
	CHECK(says(text, "may lock 8192 KiB"));
	CHECK(says(text, "needs 8193 KiB at start"));
	CHECK(says(text, "RLIMIT_MEMLOCK"));
	CHECK(says(text, "/etc/security/limits.d"));
	CHECK(says(text, "LimitMEMLOCK=infinity"));
	CHECK(says(text, "slurmd"));
	CHECK(says(text, "PT2P_NET_RECEIVES"));
	CHECK(!says(text, "has locked already"));
	CHECK(!says(text, "ulimit")); // would be refused
	CHECK(text.size() < 700);     // an explanation is cut at some 900
	// What a user can do alone comes first.
	text = lock_shortage({8 * mib, none, 0, false}, 9 * mib);
	CHECK(says(text, "ulimit -l unlimited"));
	text = lock_shortage({8 * mib, 16 * mib, 5 * mib, false}, 9 * mib);
	CHECK(says(text, "5120 KiB of which it has locked already"));
	CHECK(says(text, "ulimit -l 16384"));
	CHECK(text.size() < 700);
	CHECK(!says(lock_shortage({8 * mib, 16 * mib, 8 * mib, false}, 9 * mib), "ulimit"));
	CHECK(!says(lock_shortage({8 * mib, 16 * mib, 17 * mib, false}, 9 * mib), "ulimit"));
	// A call has failed. How much memory it would have locked is not known.
	text = lock_shortage({8 * mib, none, 0, false}, unknown_need);
	CHECK(says(text, "may lock 8192 KiB"));
	CHECK(!says(text, "needs"));
	CHECK(says(text, "ulimit -l unlimited"));
	CHECK(says(lock_shortage({0, 0, 0, false}, 1), "may lock 0 KiB"));
}

TEST_CASE("the capability, in the initial user name space, allows to lock without limit")
{
	CHECK(may_lock_all(status("0000000000004000"), all_users));
	CHECK(may_lock_all(status("000001ffffffffff"), all_users));
	CHECK(!may_lock_all(status("0000000000000000"), all_users));
	CHECK(!may_lock_all(status("000001ffffffbfff"), all_users));
	// In a container whose user is not root outside.
	CHECK(!may_lock_all(status("000001ffffffffff"), "         0       1000          1\n"));
	CHECK(!may_lock_all(status("000001ffffffffff"), "         0     100000      65536\n"));
	CHECK(!may_lock_all(status("000001ffffffffff"), ""));
	CHECK(!may_lock_all("", all_users));
	CHECK(!may_lock_all("\nCapEff:", all_users));
	const LockLimit here = lock_limit();
	CHECK(here.soft <= here.hard);
}
