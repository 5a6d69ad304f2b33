// Additions of many ranks to words of one: throughput and latency by the way that they take.
//
//   softhca --model connectx5 --devices 16 pt2p_atomics callers=15 words=1 window=16 PT2P_ATOMICS=nic
//
// Each of `callers` ranks, one on each node, has `window` additions under way to `words` words of rank 0, which it
// takes in turn. Rank 0 polls, or computes for `busy` ns between two calls. The last 70 % of `operations` are measured.
// The result is checked. `asked`: share of the additions that the owner was asked for; `together`: share that the owner
// has combined with others.
#include <cstring>

#include "softhca/studies/programs/pt2p_job.hpp"

namespace {

using namespace study;

struct Plan {
	size_t callers, words, window, operations;
	double busy;
	size_t each() const { return operations / callers; } // of one caller
	size_t all() const { return each() * callers; }
};

struct Shared {
	std::vector<uint64_t> words;
	char blob[PT2P_EXPORT_MAX];
	size_t blob_bytes = 0, done = 0, callers_done = 0;
	double since = 0, until = 0, latency = 0;
};

void own(pt2p_context_t *ctx, const Plan &plan, Shared &shared)
{
	pt2p_memory_t *memory;
	check(ctx, pt2p_memory_register(ctx, shared.words.data(), shared.words.size() * 8, &memory), "memory");
	check(ctx, pt2p_memory_export(ctx, memory, shared.blob, sizeof shared.blob, &shared.blob_bytes), "export");
	check(ctx, pt2p_barrier(ctx), "barrier");
	while (plan.busy > 0 && shared.callers_done < plan.callers) {
		compute(plan.busy);
		catch_up();
		check(ctx, pt2p_progress(ctx), "progress");
	}
	check(ctx, pt2p_barrier(ctx), "barrier");
	check(ctx, pt2p_memory_release(ctx, memory), "release");
}

void call(pt2p_context_t *ctx, const Plan &plan, Shared &shared)
{
	check(ctx, pt2p_barrier(ctx), "barrier");
	pt2p_remote_t *remote;
	check(ctx, pt2p_memory_import(ctx, 0, shared.blob, shared.blob_bytes, &remote), "import");
	struct Slot {
		pt2p_request_t *request = nullptr;
		uint64_t before = 0;
		double start = 0;
	};
	std::vector<Slot> slots(plan.window);
	const size_t first = plan.all() - plan.all() * 7 / 10;
	const auto finish = [&](Slot &slot) {
		if (!slot.request)
			return;
		check(ctx, pt2p_wait(ctx, slot.request, nullptr), "addition");
		slot.request = nullptr;
		if (++shared.done == first)
			shared.since = now();
		if (shared.done > first)
			shared.latency += now() - slot.start;
		shared.until = now();
	};
	const auto me = static_cast<size_t>(pt2p_rank(ctx));
	for (size_t i = 0; i < plan.each(); ++i) {
		Slot &slot = slots[i % slots.size()];
		finish(slot);
		slot.start = now();
		check(ctx, pt2p_fetch_add64(ctx, remote, (me + i) % plan.words * 8, 1, &slot.before, &slot.request),
		      "addition");
		catch_up();
	}
	for (Slot &slot : slots)
		finish(slot);
	++shared.callers_done;
	check(ctx, pt2p_barrier(ctx), "barrier");
}

} // namespace

int main(int argc, char **argv)
{
	const Settings settings(argc, argv,
	                        {{"callers", "15"},
	                         {"words", "1"},
	                         {"window", "1"},
	                         {"operations", "30000"},
	                         {"busy", "0"},
	                         {"name", "?"},
	                         {"header", "no"}});
	if (settings.text("header") != "no")
		std::puts("name,callers,words,window,busy_ns,M/s,mean_ns,asked,together");
	const Plan plan{settings.count("callers"), settings.count("words"), settings.count("window"),
	                settings.count("operations"), settings.number("busy")};
	if (!plan.callers || !plan.words || !plan.window || plan.each() < plan.window)
		give_up("callers, words and window are at least 1, operations at least callers x window");
	Shared shared;
	shared.words.resize(plan.words);
	const InprocessJob job(plan.callers + 1, 1, settings.tunables);
	job.run([&](pt2p_context_t *ctx) { pt2p_rank(ctx) ? call(ctx, plan, shared) : own(ctx, plan, shared); });
	uint64_t sum = 0;
	for (const uint64_t word : shared.words)
		sum += word;
	if (sum != plan.all())
		give_up("%zu additions of 1 have made %llu", plan.all(), static_cast<unsigned long long>(sum));
	const double measured = static_cast<double>(plan.all() * 7 / 10), n = static_cast<double>(plan.all());
	std::printf("%s,%zu,%zu,%zu,%.0f,%.2f,%.0f,%.2f,%.2f\n", settings.text("name").c_str(), plan.callers, plan.words,
	            plan.window, plan.busy, measured / (shared.until - shared.since) * 1e3, shared.latency / measured,
	            static_cast<double>(job.counter("one_sided_by_owner")) / n,
	            static_cast<double>(job.counter("atomics_together")) / n);
}
