// Calls of many ranks to a service of one: throughput and latency by the way in which replies get back.
//
//   softhca --model connectx5 --devices 65 pt2p_calls callers=64 window=16 PT2P_TRANSPORTS=self,dct
//   PT2P_CALL_REPLY_BY=read
//
// Each of `callers` ranks, one on each node, has `window` calls under way to rank 0, of `input` bytes, and waits for
// the oldest. The handler computes for `handler` ns and replies with `reply` bytes; rank 0 does nothing else. Each has
// made `warm` calls before, and more until rank 0 has ended so many `trials` of how replies get back, but not more than
// `longest`. The last 70 % of `calls` are measured: `reads` for a call, `pushed` that the callers have asked for,
// `switches` of DC initiators from one target to another for a call, `server`: messages that rank 0 sends for a call,
// `tried`: calls of everybody before the trials had ended, `again`: trials that have ended since. Every byte of every
// reply is checked.
#include <cstring>

#include "softhca/studies/programs/pt2p_job.hpp"

namespace {

using namespace study;

struct Plan {
	size_t callers, window, calls, warm, trials, longest, input, reply;
	double handler;
	size_t each() const { return calls / callers; } // of one caller
	size_t all() const { return each() * callers; }
	size_t first() const { return all() / 10; }
	size_t last() const { return all() * 8 / 10; }
};

struct Counts {
	uint64_t reads, pushed, switches, server, trials;
};

struct Shared {
	const Plan &plan;
	const InprocessJob &job;
	size_t warmed = 0, done = 0, tried = 0; // calls
	size_t callers_warm = 0, callers_done = 0;
	double since = 0, until = 0;
	Counts counts{};
	std::vector<double> latencies;
	std::vector<unsigned char> bytes;

	Counts count() const
	{
		return {job.counter("results_read"), job.counter("results_pushed"), device_counter("dc_switches"),
		        job.counter("rc_messages", 0) + job.counter("dct_messages", 0), job.counter("results_trials", 0)};
	}
};

// The bytes of a reply depend on the first of the input.
unsigned char byte_of(uint64_t seed, size_t i) { return static_cast<unsigned char>(seed * 13 + i * 7); }

void handle(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, void *argument)
{
	auto &shared = *static_cast<Shared *>(argument);
	if (length != shared.plan.input)
		give_up("an input of %zu bytes", length);
	uint64_t seed;
	std::memcpy(&seed, input, sizeof seed);
	if (shared.plan.handler > 0)
		compute(shared.plan.handler);
	catch_up();
	for (size_t i = 0; i < shared.bytes.size(); ++i)
		shared.bytes[i] = byte_of(seed, i);
	check(ctx, pt2p_reply(ctx, call, seed, shared.bytes.data(), shared.bytes.size()), "reply");
}

void serve(pt2p_context_t *ctx, Shared &shared)
{
	pt2p_service_t *service;
	check(ctx, pt2p_service_open(ctx, 1, handle, &shared, nullptr, &service), "service");
	const auto serve_until = [&](const size_t &callers) {
		while (callers < shared.plan.callers) {
			check(ctx, pt2p_progress(ctx), "progress");
			std::this_thread::yield();
		}
		check(ctx, pt2p_barrier(ctx), "barrier");
	};
	check(ctx, pt2p_barrier(ctx), "barrier");
	serve_until(shared.callers_warm); // as below: within a barrier it would reply more quickly
	check(ctx, pt2p_barrier(ctx), "barrier");
	serve_until(shared.callers_done);
	check(ctx, pt2p_service_close(ctx, service), "close");
}

void call(pt2p_context_t *ctx, Shared &shared)
{
	const Plan &plan = shared.plan;
	check(ctx, pt2p_barrier(ctx), "barrier");
	struct Slot {
		pt2p_request_t *request = nullptr;
		std::vector<unsigned char> input, reply;
		uint64_t seed = 0;
		double start = 0;
	};
	std::vector<Slot> slots(plan.window);
	for (Slot &slot : slots) {
		slot.input.resize(plan.input);
		slot.reply.resize(plan.reply);
	}
	const auto finish = [&](Slot &slot) {
		if (!slot.request)
			return;
		pt2p_result_t result;
		check(ctx, pt2p_wait(ctx, slot.request, &result), "call");
		slot.request = nullptr;
		if (result.tag != slot.seed || result.length != plan.reply)
			give_up("a reply of %zu bytes with a wrong word", result.length);
		for (size_t i = 0; i < plan.reply; ++i)
			if (slot.reply[i] != byte_of(slot.seed, i))
				give_up("byte %zu of a reply is wrong", i);
		++shared.done;
		if (shared.done == plan.first()) {
			shared.since = now();
			shared.counts = shared.count();
			shared.latencies.clear();
		} else if (shared.done > plan.first() && shared.done <= plan.last()) {
			shared.latencies.push_back(now() - slot.start);
		}
		if (shared.done == plan.last()) {
			shared.until = now();
			const Counts end = shared.count();
			shared.counts = {end.reads - shared.counts.reads, end.pushed - shared.counts.pushed,
			                 end.switches - shared.counts.switches, end.server - shared.counts.server,
			                 end.trials - shared.counts.trials};
		}
	};
	const auto me = static_cast<uint64_t>(pt2p_rank(ctx));
	uint64_t made = 0;
	const auto make = [&](auto &&more) {
		for (size_t i = 0; more(i); ++i) {
			Slot &slot = slots[made % slots.size()];
			finish(slot);
			slot.seed = me << 32 | made++;
			std::memcpy(slot.input.data(), &slot.seed, sizeof slot.seed);
			slot.start = now();
			check(ctx,
			      pt2p_icall(ctx, 0, 1, slot.input.data(), plan.input, slot.reply.data(), plan.reply, nullptr,
			                 &slot.request),
			      "call");
			catch_up();
		}
		for (size_t i = 0; i < slots.size(); ++i)
			finish(slots[(made + i) % slots.size()]);
	};
	make([&](size_t i) {
		if (!shared.tried && i % 16 == 0 && shared.job.counter("results_trials", 0) >= plan.trials)
			shared.tried = std::max<size_t>(shared.warmed, 1);
		const bool more = i < plan.warm || (!shared.tried && i < plan.longest);
		shared.warmed += more;
		return more;
	});
	++shared.callers_warm;
	check(ctx, pt2p_barrier(ctx), "barrier");
	shared.done = 0;
	check(ctx, pt2p_barrier(ctx), "barrier");
	make([&](size_t i) { return i < plan.each(); });
	++shared.callers_done;
	check(ctx, pt2p_barrier(ctx), "barrier");
}

} // namespace

int main(int argc, char **argv)
{
	const Settings settings(argc, argv,
	                        {{"callers", "16"},
	                         {"window", "16"},
	                         {"calls", "30000"},
	                         {"warm", "100"},
	                         {"trials", "0"},
	                         {"longest", "100000"},
	                         {"input", "16"},
	                         {"reply", "32"},
	                         {"handler", "0"},
	                         {"name", "?"},
	                         {"header", "no"}});
	if (settings.text("header") != "no")
		std::puts(
		    "name,callers,window,input,reply,handler_ns,M/s,mean_ns,p99_ns,reads,pushed,switches,server,tried,again");
	const Plan plan{settings.count("callers"), settings.count("window"), settings.count("calls"),
	                settings.count("warm"),    settings.count("trials"), settings.count("longest"),
	                settings.count("input"),   settings.count("reply"),  settings.number("handler")};
	if (!plan.callers || !plan.window || plan.each() < plan.window || plan.input < sizeof(uint64_t))
		give_up("callers and window are at least 1, input at least 8, calls at least callers x window");
	const InprocessJob job(plan.callers + 1, 1, settings.tunables);
	Shared shared{plan, job, 0, 0, 0, 0, 0, 0, 0, {}, {}, std::vector<unsigned char>(plan.reply)};
	job.run([&](pt2p_context_t *ctx) { pt2p_rank(ctx) ? call(ctx, shared) : serve(ctx, shared); });
	const Latencies latencies(shared.latencies);
	const auto measured = static_cast<double>(shared.latencies.size());
	const auto each = [measured](uint64_t count) { return static_cast<double>(count) / measured; };
	std::printf("%s,%zu,%zu,%zu,%zu,%.0f,%.4g,%.0f,%.0f,%.3f,%.3f,%.3f,%.3f,%zu,%zu\n", settings.text("name").c_str(),
	            plan.callers, plan.window, plan.input, plan.reply, plan.handler,
	            measured / (shared.until - shared.since) * 1e3, latencies.mean, latencies.p99,
	            each(shared.counts.reads), each(shared.counts.pushed), each(shared.counts.switches),
	            each(shared.counts.server), shared.tried, static_cast<size_t>(shared.counts.trials));
}
