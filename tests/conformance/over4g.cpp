// A message of 4 GiB and 4 KiB between two launched ranks, checked at both ends and at the 4 GiB boundary. `truncated`:
// the same message into a buffer that is one page too short.
#include <cstring>

#include <sys/mman.h>
#include <unistd.h>

#include "harness.hpp"

int main(int argc, char **argv)
{
	using namespace conformance;
	const bool truncated = argc > 1 && !strcmp(argv[1], "truncated");
	const size_t four_gib = size_t{1} << 32, length = four_gib + 4096;
	const size_t capacity = truncated ? four_gib : length;
	pt2p_context_t *ctx = nullptr;
	if (pt2p_init(nullptr, &ctx) != PT2P_OK) {
		fprintf(stderr, "FAIL pt2p_init: %s\n", pt2p_last_error(nullptr));
		return 1;
	}
	const int me = pt2p_rank(ctx);
	try {
		EXPECT_EQ(pt2p_size(ctx), 2);
		void *memory =
		    mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		EXPECT(memory != MAP_FAILED);
		madvise(memory, length, MADV_HUGEPAGE);
		auto *bytes = static_cast<unsigned char *>(memory);
		// The first and last MiB and one page in each 64 MiB carry a pattern; the rest is zero.
		std::vector<std::pair<size_t, size_t>> pieces = {{0, 1 << 20}, {four_gib - 4096, 8192}};
		for (size_t at = 64 << 20; at < four_gib; at += 64 << 20)
			pieces.emplace_back(at, 4096);
		watch("over4g", {}, 150);
		if (me == 0) {
			for (const auto &[at, n] : pieces)
				fill(bytes + at, n, at);
			EXPECT_OK(ctx, pt2p_send(ctx, bytes, length, 1, 4));
			uint64_t ok = 0;
			EXPECT_OK(ctx, pt2p_recv(ctx, &ok, sizeof ok, 1, 5, PT2P_TAG_EXACT, nullptr));
			EXPECT_EQ(ok, uint64_t{1});
		} else {
			pt2p_result_t result{};
			EXPECT_STATUS(ctx, pt2p_recv(ctx, bytes, capacity, 0, 4, PT2P_TAG_EXACT, &result),
			              truncated ? PT2P_ERR_TRUNCATED : PT2P_OK);
			EXPECT_EQ(result.length, length);
			for (const auto &[at, n] : pieces)
				EXPECT_PAYLOAD(bytes + at, at + n > capacity ? capacity - at : n, at);
			if (truncated)
				for (size_t i = capacity; i < length; ++i)
					EXPECT_EQ(int{bytes[i]}, 0);
			const uint64_t ok = 1;
			EXPECT_OK(ctx, pt2p_send(ctx, &ok, sizeof ok, 0, 5));
		}
		unwatch();
		munmap(memory, length);
	} catch (const std::exception &e) {
		fprintf(stderr, "FAIL rank %d: %s\n", me, e.what());
		fflush(nullptr);
		_exit(1);
	}
	if (pt2p_finalize(ctx) != PT2P_OK) {
		fprintf(stderr, "FAIL rank %d: pt2p_finalize: %s\n", me, pt2p_last_error(nullptr));
		return 1;
	}
	return 0;
}
