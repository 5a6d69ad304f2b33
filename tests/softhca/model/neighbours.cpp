// What a message through shared memory takes in virtual time, in nanoseconds, also for a rank that waits for its
// device. Prints the mean of half a round trip, and the mean for a message whose sender then computes for 10 us. The
// node's other ranks only wait for the end. Run by model.sh.
#include "softhca/studies/programs/pt2p_job.hpp"

using namespace study;

namespace {

constexpr int rounds = 1000;
constexpr double computing = 10'000; // ns

struct Times {
	double answered = 0, sent = 0, seen = 0; // sums, ns
};

void transfer(pt2p_context_t *ctx, bool send, uint64_t tag)
{
	uint64_t text = tag;
	const int other = 1 - pt2p_rank(ctx);
	if (send)
		check(ctx, pt2p_send(ctx, &text, sizeof text, other, tag), "pt2p_send");
	else
		check(ctx, pt2p_recv(ctx, &text, sizeof text, other, tag, PT2P_TAG_EXACT, nullptr), "pt2p_recv");
}

void play(pt2p_context_t *ctx, Times &times)
{
	const bool first = pt2p_rank(ctx) == 0;
	for (int i = -rounds / 10; i < rounds; ++i) {
		const double start = now();
		transfer(ctx, first, 1);
		transfer(ctx, !first, 1);
		if (first && i >= 0)
			times.answered += now() - start;
	}
	for (int i = 0; i < rounds; ++i) {
		transfer(ctx, first, 2);
		(first ? times.sent : times.seen) += now();
		if (first)
			compute(computing);
		transfer(ctx, !first, 3);
	}
}

} // namespace

int main(int argc, char **argv)
{
	const Settings settings(argc, argv, {{"ranks", "2"}});
	const size_t ranks = settings.count("ranks");
	const InprocessJob job(ranks, ranks, settings.tunables);
	Times times;
	job.run([&](pt2p_context_t *ctx) {
		check(ctx, pt2p_barrier(ctx), "pt2p_barrier");
		if (pt2p_rank(ctx) < 2)
			play(ctx, times);
		check(ctx, pt2p_barrier(ctx), "pt2p_barrier");
	});
	std::printf("%.3f %.3f\n", times.answered / rounds / 2, (times.seen - times.sent) / rounds);
}
