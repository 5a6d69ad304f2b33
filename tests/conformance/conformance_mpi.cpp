// The conformance cases in a launched job (or alone). Arguments: names of cases. Without arguments: all.
#include <cstdlib>
#include <cstring>

#include <unistd.h>

#include "harness.hpp"

int main(int argc, char **argv)
{
	using namespace conformance;
	pt2p_context_t *ctx = nullptr;
	if (pt2p_init(nullptr, &ctx) != PT2P_OK) {
		fprintf(stderr, "FAIL pt2p_init: %s\n", pt2p_last_error(nullptr));
		return 1;
	}
	Rank r;
	r.ctx = ctx;
	r.me = pt2p_rank(ctx);
	r.size = pt2p_size(ctx);
	std::vector<std::string> tunables;
	for (char **e = environ; *e; ++e)
		if (!strncmp(*e, "PT2P_", 5))
			tunables.push_back(*e);
	learn_tunables(r, tunables);
	unsigned run = 0;
	for (const Case &c : choose_cases({argv + 1, argv + argc})) {
		watch(c.name, {r});
		try {
			if (Finish finish = c.run(r))
				finish();
			r.run_last();
			EXPECT_OK(ctx, pt2p_barrier(ctx));
		} catch (const std::exception &e) {
			fprintf(stderr, "FAIL rank %d of %d, case %s: %s\n", r.me, r.size, c.name, e.what());
			fflush(nullptr);
			_exit(1);
		}
		++run;
	}
	unwatch();
	if (pt2p_finalize(ctx) != PT2P_OK) {
		fprintf(stderr, "FAIL rank %d: pt2p_finalize: %s\n", r.me, pt2p_last_error(nullptr));
		return 1;
	}
	if (r.me == 0)
		printf("%d ranks: %u cases passed\n", r.size, run);
	return 0;
}
