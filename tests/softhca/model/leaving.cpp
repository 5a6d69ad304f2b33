// How long pt2p_finalize takes after all ranks have talked with all: the longest time of all ranks, in virtual
// microseconds. Each rank calls it `apart` ns after the one before. Run by model.sh.
#include "softhca/studies/programs/pt2p_job.hpp"

using namespace study;

namespace {

void talk(pt2p_context_t *ctx, int rounds)
{
	const int me = pt2p_rank(ctx), ranks = pt2p_size(ctx);
	uint64_t out = 1, in = 0;
	for (int i = 0; i < rounds; ++i)
		for (int distance = 1; distance < ranks; ++distance) {
			pt2p_request_t *request;
			check(ctx, pt2p_irecv(ctx, &in, sizeof in, (me + ranks - distance) % ranks, 1, PT2P_TAG_EXACT, &request),
			      "pt2p_irecv");
			check(ctx, pt2p_send(ctx, &out, sizeof out, (me + distance) % ranks, 1), "pt2p_send");
			check(ctx, pt2p_wait(ctx, request, nullptr), "pt2p_wait");
		}
}

} // namespace

int main(int argc, char **argv)
{
	const Settings settings(argc, argv, {{"nodes", "4"}, {"ranks", "4"}, {"apart", "0"}, {"rounds", "4"}});
	const size_t ranks = settings.count("nodes") * settings.count("ranks");
	InprocessJob job(ranks, settings.count("ranks"), settings.tunables);
	job.run([&](pt2p_context_t *ctx) { talk(ctx, static_cast<int>(settings.count("rounds"))); });
	const double apart = settings.number("apart");
	std::printf("%.1f\n", job.leave([&](pt2p_context_t *ctx) {
		compute(apart * pt2p_rank(ctx));
		catch_up();
	}) / 1000);
}
