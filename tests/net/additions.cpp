// Additions that the owner of a word adds up while its device works on the word.
#include "tests/net/window.hpp"

#include <algorithm>
#include <chrono>

using namespace net;
using namespace std::chrono_literals;

namespace {

struct Added {
	uint64_t before = 0, operand = 0;
	pt2p_request_t *request = nullptr;
};

// A word of the last rank, which all others ask for: PT2P_ONE_SIDED=owner leaves them no other way.
struct Shared {
	explicit Shared(const char *transport, int ranks = 4)
	    : job(transport, ranks, apart({"PT2P_ONE_SIDED=owner"})), owner(ranks - 1)
	{
		pt2p_context_t *mine = job.ctx[Job::index(owner)];
		REQUIRE(pt2p_memory_register(mine, words, sizeof words, &memory) == PT2P_OK);
		char blob[PT2P_EXPORT_MAX];
		size_t needed = 0;
		REQUIRE(pt2p_memory_export(mine, memory, blob, sizeof blob, &needed) == PT2P_OK);
		for (int rank = 0; rank < ranks; ++rank) {
			REQUIRE(pt2p_memory_import(job.ctx[Job::index(rank)], owner, blob, needed, &remotes.emplace_back()) ==
			        PT2P_OK);
			pt2p_remote_info_t info{};
			REQUIRE(pt2p_remote_query(job.ctx[Job::index(rank)], remotes.back(), &info) == PT2P_OK);
			REQUIRE(info.atomics_by_nic == 1);
		}
	}

	void add(int rank, bool wide, size_t offset, Added &a)
	{
		pt2p_context_t *ctx = job.ctx[Job::index(rank)];
		pt2p_remote_t *remote = remotes[Job::index(rank)];
		if (wide)
			REQUIRE(pt2p_fetch_add64(ctx, remote, offset, a.operand, &a.before, &a.request) == PT2P_OK);
		else
			REQUIRE(pt2p_fetch_add32(ctx, remote, offset, static_cast<uint32_t>(a.operand),
			                         reinterpret_cast<uint32_t *>(&a.before), &a.request) == PT2P_OK);
	}
	// Adds 1 to the first word that often, by ranks 0 to 2 in turn. The owner has begun with the first of them.
	std::vector<Added> &add_ones(size_t count)
	{
		ones.resize(count);
		for (size_t i = 0; i < count; ++i) {
			ones[i].operand = 1;
			add(static_cast<int>(i % 3), true, 0, ones[i]);
		}
		while (!job.counter(owner, "one_sided_served"))
			job.progress();
		return ones;
	}
	// Waits as long as it takes, with all ranks' turns; the status of each.
	pt2p_status_t wait(int rank, Added &a)
	{
		int done = 0;
		pt2p_status_t status = PT2P_OK;
		while (!done) {
			job.progress();
			status = pt2p_test(job.ctx[Job::index(rank)], a.request, &done, nullptr);
		}
		return status;
	}

	std::vector<Added> ones; // outlives the job, which writes to it
	Job job;
	const int owner;
	alignas(8) uint64_t words[4] = {};
	pt2p_memory_t *memory = nullptr;
	std::vector<pt2p_remote_t *> remotes;
};

} // namespace

TEST_CASE("additions that meet at the owner are added once, and each rank gets a value of its own")
{
	const char *transport = GENERATE("rc", "dct");
	const bool wide = GENERATE(true, false);
	const size_t offset = wide ? 8 : 12;
	Shared s(transport);
	const uint64_t mask = wide ? UINT64_MAX : UINT32_MAX, first = mask - 1000; // it wraps
	std::memcpy(reinterpret_cast<unsigned char *>(s.words) + offset, &first, wide ? 8 : 4);
	std::vector<Added> all(300);
	std::mt19937 random(1);
	for (size_t i = 0; i < all.size();) {
		const size_t begin = i;
		for (; i < std::min(begin + 60, all.size()); ++i) {
			all[i].operand = 1 + random() % 100;
			s.add(static_cast<int>(i % 4), wide, offset, all[i]);
			if (i % 17 == 0)
				s.job.progress();
		}
		for (size_t j = begin; j < i; ++j)
			REQUIRE(s.wait(static_cast<int>(j % 4), all[j]) == PT2P_OK);
	}
	std::sort(all.begin(), all.end(), [=](const Added &a, const Added &b) {
		return ((a.before - first) & mask) < ((b.before - first) & mask);
	});
	uint64_t value = first;
	for (const Added &a : all) {
		REQUIRE(a.before == value);
		value = (value + a.operand) & mask;
	}
	uint64_t last = 0;
	std::memcpy(&last, reinterpret_cast<unsigned char *>(s.words) + offset, wide ? 8 : 4);
	CHECK(last == value);
	CHECK(s.words[0] == 0);
	CHECK((wide || static_cast<uint32_t>(s.words[1]) == 0));
	CHECK(s.words[2] == 0);
	CHECK(s.job.counter(s.owner, "atomics_together") > 100);
}

TEST_CASE("additions at the owner are atomic with the other operations of its device")
{
	Shared s("rc");
	std::vector<Added> all(60);
	uint64_t swapped = 0, result = 0;
	for (Added &a : all) {
		a.operand = 1;
		s.add(static_cast<int>(&a - all.data()) % 3, true, 0, a);
		// Adds 1000 by compare-and-swaps.
		Added c;
		REQUIRE(pt2p_compare_swap64(s.job.ctx[3], s.remotes[3], 0, result, result + 1000, &c.before, &c.request) ==
		        PT2P_OK);
		REQUIRE(s.wait(3, c) == PT2P_OK);
		swapped += c.before == result;
		result = c.before == result ? result + 1000 : c.before;
	}
	for (Added &a : all)
		REQUIRE(s.wait(static_cast<int>(&a - all.data()) % 3, a) == PT2P_OK);
	CHECK(swapped > 0);
	CHECK(s.words[0] == all.size() + 1000 * swapped);
}

TEST_CASE("additions that wait when their memory is released fail, the others do not")
{
	Shared s("rc");
	std::vector<Added> &all = s.add_ones(60);
	REQUIRE(pt2p_memory_release(s.job.ctx[3], s.memory) == PT2P_OK);
	unsigned done = 0, missed = 0;
	for (Added &a : all) {
		const pt2p_status_t status = s.wait(static_cast<int>(&a - all.data()) % 3, a);
		done += status == PT2P_OK;
		missed += status == PT2P_ERR_MEMORY;
		CHECK((status == PT2P_OK || status == PT2P_ERR_MEMORY || status == PT2P_ERR_SYSTEM));
	}
	CHECK(missed > 0);
	CHECK(s.words[0] >= done);
}

TEST_CASE("additions of a rank that is lost are done or not, and those of others are answered")
{
	Shared s("rc");
	std::vector<Added> &all = s.add_ones(60);
	s.job.ctx[3]->engine->channels().declare_down(1, PT2P_ERR_PEER_LOST, "the test says so");
	for (size_t i = 0; i < all.size(); ++i)
		if (i % 3 != 1)
			REQUIRE(s.wait(static_cast<int>(i % 3), all[i]) == PT2P_OK);
	CHECK(s.words[0] >= 40);
	CHECK(s.words[0] <= 60);
	Added more{0, 5, nullptr};
	s.add(2, true, 8, more);
	REQUIRE(s.wait(2, more) == PT2P_OK);
	CHECK(s.words[1] == 5);
}

TEST_CASE("only an owner with a progress thread is asked for additions that a device could do")
{
	const bool thread = GENERATE(false, true);
	Job job("rc", 2, apart({thread ? "PT2P_PROGRESS_THREAD=yes" : "PT2P_PROGRESS_THREAD=no"}),
	        thread ? PT2P_INPROCESS_THREADS : PT2P_INPROCESS_COOPERATIVE);
	Window w(job, 1, 64);
	const auto end = std::chrono::steady_clock::now() + (thread ? 20s : 1s);
	uint64_t sum = 0;
	std::vector<pt2p_request_t *> requests(64);
	while (std::chrono::steady_clock::now() < end && !job.counter(0, "one_sided_by_owner")) {
		for (pt2p_request_t *&r : requests)
			REQUIRE(pt2p_fetch_add64(job.ctx[0], w.remote, 0, 1, nullptr, &r) == PT2P_OK);
		REQUIRE(pt2p_waitall(job.ctx[0], requests.size(), requests.data(), nullptr) == PT2P_OK);
		sum += requests.size();
	}
	CHECK((job.counter(0, "one_sided_by_owner") > 0) == thread);
	uint64_t value = 0;
	std::memcpy(&value, w.bytes.data(), sizeof value);
	CHECK(value == sum);
}
