// A sequencer: client threads draw numbers from a counter of one server node, and every history is checked.
//
//   softhca --model connectib --devices 6 pt2p_sequencer way=call cores=1 machines=5 threads=14 window=4
//   PT2P_TRANSPORTS=self,rc
//
// Each of `machines` nodes has `threads` ranks with `window` draws under way each; a rank waits for the oldest. The
// server's node has a rank for each of `cores`, and client k calls core k mod cores. way=atomic: fetch-and-add on a
// word of the first core's memory. way=call: a handler adds one to the counter, and the number is the word of its
// reply. way=turn: the handler keeps the call and sends its own rank a notice, whose handler comes after the other
// calls of the turn: it adds as many as were kept, and replies to all. The counter's cache line takes `line` ns from
// one core to another, cpu_line of the model.
//
// Those from 10 to 80 % of `calls` are measured, and what the server's device does for them (server_device.hpp).
// `limit`: what pt2p_report of the first core says most often, up to the colon.
#include "softhca/studies/programs/counter_history.hpp"
#include "softhca/studies/programs/server_device.hpp"

namespace {

using namespace study;

enum class Way { atomic, call, turn };

struct Plan {
	Way way;
	size_t cores, machines, threads, window, calls, warm;
	double line;
	size_t clients() const { return machines * threads; }
	size_t ranks_per_node() const { return std::max(cores, threads); }
	size_t ranks() const { return (machines + 1) * ranks_per_node(); }
	size_t each() const { return calls / clients(); } // of one client
	// Ranks that have nothing to do fill nodes up.
	bool is_core(size_t rank) const { return rank < cores; }
	bool is_client(size_t rank) const { return rank >= ranks_per_node() && rank % ranks_per_node() < threads; }
	size_t client(size_t rank) const { return (rank / ranks_per_node() - 1) * threads + rank % ranks_per_node(); }
};

struct Shared {
	const Plan &plan;
	uint64_t word = 0; // the counter
	int holder = 0;    // the core that has its cache line
	double line_there = 0;
	char blob[PT2P_EXPORT_MAX] = {};
	size_t blob_bytes = 0;
	History history{plan.clients(), plan.warm, plan.each()};
	ServerDevice device{};

	// The first of so many numbers, for that core. An atomic addition, whose cache line moves from core to core.
	uint64_t draw(int core, size_t numbers)
	{
		catch_up(); // what others have drawn before now is there
		const uint64_t number = word;
		word += numbers;
		if (core != holder) {
			holder = core;
			line_there = std::max(line_there, now()) + plan.line;
			compute(line_there - now());
		}
		return number;
	}
	void finished(const Draw &draw)
	{
		switch (history.add(draw)) {
		case History::Measurement::begins: device.begin(); break;
		case History::Measurement::ends: device.end(); break;
		case History::Measurement::goes_on: break;
		}
	}
};

// A server rank.
struct Core {
	Shared &shared;
	std::vector<pt2p_call_t *> kept{};
};

enum Service : uint32_t { next = 1, hand_out = 2 };

void handle(pt2p_context_t *ctx, pt2p_call_t *call, const void *, size_t, void *argument)
{
	Core &core = *static_cast<Core *>(argument);
	if (core.shared.plan.way == Way::call)
		return check(ctx, pt2p_reply(ctx, call, core.shared.draw(pt2p_rank(ctx), 1), nullptr, 0), "reply");
	if (core.kept.empty())
		check(ctx, pt2p_notify(ctx, pt2p_rank(ctx), hand_out, nullptr, 0, nullptr), "notify");
	core.kept.push_back(call);
}

void reply_to_all(pt2p_context_t *ctx, pt2p_call_t *, const void *, size_t, void *argument)
{
	Core &core = *static_cast<Core *>(argument);
	uint64_t number = core.shared.draw(pt2p_rank(ctx), core.kept.size());
	for (pt2p_call_t *call : core.kept)
		check(ctx, pt2p_reply(ctx, call, number++, nullptr, 0), "reply");
	core.kept.clear();
}

void serve(pt2p_context_t *ctx, Shared &shared)
{
	const Plan &plan = shared.plan;
	Core core{shared};
	pt2p_service_t *service, *notices;
	pt2p_memory_t *memory = nullptr;
	check(ctx, pt2p_service_open(ctx, next, handle, &core, nullptr, &service), "service");
	check(ctx, pt2p_service_open(ctx, hand_out, reply_to_all, &core, nullptr, &notices), "service");
	if (plan.way == Way::atomic && pt2p_rank(ctx) == 0) {
		check(ctx, pt2p_memory_register(ctx, &shared.word, sizeof shared.word, &memory), "memory");
		check(ctx, pt2p_memory_export(ctx, memory, shared.blob, sizeof shared.blob, &shared.blob_bytes), "export");
	}
	check(ctx, pt2p_barrier(ctx), "barrier");
	while (!shared.history.over()) {
		check(ctx, pt2p_progress(ctx), "progress");
		if (pt2p_rank(ctx) == 0)
			shared.device.look(ctx);
		std::this_thread::yield();
	}
	check(ctx, pt2p_barrier(ctx), "barrier");
	if (memory)
		check(ctx, pt2p_memory_release(ctx, memory), "release");
	check(ctx, pt2p_service_close(ctx, service), "close");
	check(ctx, pt2p_service_close(ctx, notices), "close");
}

// Draws of one client.
class Client {
public:
	Client(pt2p_context_t *ctx, Shared &shared, size_t number)
	    : ctx_(ctx), shared_(shared), core_(static_cast<int>(number % shared.plan.cores)), slots_(shared.plan.window)
	{
		if (shared.plan.way == Way::atomic)
			check(ctx, pt2p_memory_import(ctx, 0, shared.blob, shared.blob_bytes, &remote_), "import");
	}
	// Until all numbers are drawn.
	void draw()
	{
		size_t i = 0;
		for (; shared_.history.begin(); ++i) {
			Slot &slot = slots_[i % slots_.size()];
			finish(slot);
			slot.draw.began = now();
			start(slot);
			catch_up();
		}
		for (size_t k = 0; k < slots_.size(); ++k)
			finish(slots_[(i + k) % slots_.size()]);
	}

private:
	struct Slot {
		pt2p_request_t *request = nullptr;
		Draw draw{};
	};
	void start(Slot &slot)
	{
		if (remote_)
			check(ctx_, pt2p_fetch_add64(ctx_, remote_, 0, 1, &slot.draw.number, &slot.request), "addition");
		else
			check(ctx_, pt2p_icall(ctx_, core_, next, nullptr, 0, nullptr, 0, nullptr, &slot.request), "call");
	}
	void finish(Slot &slot)
	{
		if (!slot.request)
			return;
		pt2p_result_t result;
		check(ctx_, pt2p_wait(ctx_, slot.request, &result), "wait");
		slot.request = nullptr;
		if (!remote_)
			slot.draw.number = result.tag;
		catch_up();
		slot.draw.ended = now();
		shared_.finished(slot.draw);
	}
	pt2p_context_t *const ctx_;
	Shared &shared_;
	const int core_;
	pt2p_remote_t *remote_ = nullptr;
	std::vector<Slot> slots_;
};

void run_client(pt2p_context_t *ctx, Shared &shared, size_t number)
{
	check(ctx, pt2p_barrier(ctx), "barrier");
	Client client(ctx, shared, number);
	client.draw();
	check(ctx, pt2p_barrier(ctx), "barrier");
}

void run(pt2p_context_t *ctx, Shared &shared)
{
	const auto rank = static_cast<size_t>(pt2p_rank(ctx));
	if (shared.plan.is_core(rank))
		return serve(ctx, shared);
	if (shared.plan.is_client(rank))
		return run_client(ctx, shared, shared.plan.client(rank));
	check(ctx, pt2p_barrier(ctx), "barrier");
	check(ctx, pt2p_barrier(ctx), "barrier");
}

} // namespace

int main(int argc, char **argv)
{
	const Settings settings(argc, argv,
	                        {{"way", "call"},
	                         {"cores", "1"},
	                         {"machines", "5"},
	                         {"threads", "14"},
	                         {"window", "4"},
	                         {"calls", "40000"},
	                         {"warm", "40"},
	                         {"line", "42"},
	                         {"name", "?"},
	                         {"header", "no"}});
	if (settings.text("header") != "no")
		std::printf("name,way,cores,machines,threads,window,M/s,mean_ns,p99_ns,%s,limit\n", ServerDevice::columns);
	const std::string &way = settings.text("way");
	const Plan plan{way == "atomic" ? Way::atomic
	                : way == "turn" ? Way::turn
	                                : Way::call,
	                settings.count("cores"),
	                settings.count("machines"),
	                settings.count("threads"),
	                settings.count("window"),
	                settings.count("calls"),
	                settings.count("warm"),
	                settings.number("line")};
	if (!plan.cores || plan.machines < 2 || !plan.threads || !plan.window || plan.each() < plan.window ||
	    (way != "atomic" && way != "call" && way != "turn"))
		give_up("way is atomic, call or turn; cores, threads and window are at least 1, machines at least 2, calls at "
		        "least as many as are under way");
	Shared shared{plan};
	{
		const InprocessJob job(plan.ranks(), plan.ranks_per_node(), settings.tunables);
		job.run([&](pt2p_context_t *ctx) { run(ctx, shared); });
	}
	shared.history.check(shared.word);
	std::printf("%s,%s,%zu,%zu,%zu,%zu,", settings.text("name").c_str(), way.c_str(), plan.cores, plan.machines,
	            plan.threads, plan.window);
	shared.history.print();
	shared.device.print(shared.history.measured(), shared.history.took());
	std::printf(",%s\n", shared.device.limit().c_str());
}
