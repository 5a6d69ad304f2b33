// A key-value store whose clients call its partitions, as Jakiro of the RFP paper is measured: throughput and latency
// by the way in which results get back.
//
//   softhca --model connectx3,wire_rate=32 --devices 8 pt2p_store PT2P_TRANSPORTS=self,rc PT2P_CALL_REPLY_BY=read
//
// Node 0 has `servers` ranks, a partition each; each of `machines` other nodes has `threads` ranks that call, `window`
// calls at once. Of the operations, `get` percent read a value and the others write one, of `value` bytes ("mix": as of
// short texts, 1 to 899). Keys are of `keys` items, each with equal probability, or by a Zipf distribution if `zipf` is
// yes. The store takes `work` ns for an operation. Every value that is read is checked. After `warm` calls of each, in
// the mean, and a tenth of `calls`, 80 % of `calls` are measured, and what the server's device does for them
// (server_device.hpp). `limit`: what pt2p_report of the first server says most often, up to the colon.
#include "examples/kv/protocol.hpp"
#include "examples/kv/ycsb.hpp"
#include "softhca/studies/programs/server_device.hpp"

namespace {

using namespace study;

constexpr size_t longest = 4096;

struct Plan {
	size_t servers, machines, threads, window, calls, warm, keys, value;
	double get, work;
	bool mix, zipf;

	size_t callers() const { return machines * threads; }
	size_t per_node() const { return std::max(servers, threads); }
	size_t first() const { return warm * callers() + calls / 10; }
	size_t last() const { return warm * callers() + calls * 9 / 10; }
	size_t length(ycsb::Random &random) const { return mix ? ycsb::text_length(random) : value; }
};

struct Shared {
	const Plan &plan;
	const InprocessJob &job;
	kv::Layout layout;
	size_t done = 0, left = 0;
	double since = 0, until = 0;
	uint64_t reads = 0;
	ServerDevice device{};
	std::vector<double> latencies{};
};

struct Server {
	const Plan &plan;
	kv::Store store{64u << 20, false};
};

void handle(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, void *argument)
{
	auto &[plan, store] = *static_cast<Server *>(argument);
	kv::Head head;
	if (length < sizeof head + ycsb::key_length)
		give_up("an input of %zu bytes", length);
	std::memcpy(&head, input, sizeof head);
	const std::string_view rest(static_cast<const char *>(input) + sizeof head, length - sizeof head);
	const std::string_view key = rest.substr(0, head.key_length);
	kv::Status status = kv::Status::ok;
	std::string_view value;
	if (head.op == kv::Op::put)
		status = store.put(key, rest.substr(key.size()));
	else if (const auto found = store.get(key))
		value = *found;
	else
		status = kv::Status::not_found;
	catch_up();
	compute(plan.work);
	check(ctx, pt2p_reply(ctx, call, static_cast<uint64_t>(status), value.data(), value.size()), "reply");
}

void serve(pt2p_context_t *ctx, Shared &shared)
{
	const Plan &plan = shared.plan;
	Server server{plan};
	ycsb::Random random(7);
	for (uint64_t item = 0; item < plan.keys; ++item) {
		char key[ycsb::key_length], value[longest];
		ycsb::write_key(item, key);
		if (shared.layout.place(shared.layout.partition({key, sizeof key})).rank != pt2p_rank(ctx))
			continue;
		const size_t length = plan.length(random);
		ycsb::write_value(item, 1, {value, length});
		if (server.store.put({key, sizeof key}, {value, length}) != kv::Status::ok)
			give_up("the store is full");
	}
	pt2p_service_t *service;
	check(ctx, pt2p_service_open(ctx, 0, handle, &server, nullptr, &service), "service");
	check(ctx, pt2p_barrier(ctx), "barrier");
	while (shared.left < plan.callers()) {
		check(ctx, pt2p_progress(ctx), "progress");
		if (pt2p_rank(ctx) == 0)
			shared.device.look(ctx);
		std::this_thread::yield();
	}
	check(ctx, pt2p_barrier(ctx), "barrier");
	check(ctx, pt2p_service_close(ctx, service), "close");
}

struct Slot {
	pt2p_request_t *request = nullptr;
	char input[sizeof(kv::Head) + ycsb::key_length + longest], reply[longest];
	uint64_t item = 0;
	bool get = false;
	double start = 0;
};

void finish(pt2p_context_t *ctx, Shared &shared, Slot &slot)
{
	if (!slot.request)
		return;
	pt2p_result_t result;
	check(ctx, pt2p_wait(ctx, slot.request, &result), "call");
	slot.request = nullptr;
	if (result.tag != static_cast<uint64_t>(kv::Status::ok))
		give_up("status %d", static_cast<int>(result.tag));
	if (slot.get && !ycsb::right_value(slot.item, {slot.reply, result.length}))
		give_up("a value of %zu bytes is not that of its key", result.length);
	const size_t first = shared.plan.first(), last = shared.plan.last();
	++shared.done;
	if (shared.done == first) {
		shared.since = now();
		shared.device.begin();
		shared.reads = shared.job.counter("results_read");
	} else if (shared.done > first && shared.done <= last) {
		shared.latencies.push_back(now() - slot.start);
	}
	if (shared.done == last) {
		shared.until = now();
		shared.device.end();
		shared.reads = shared.job.counter("results_read") - shared.reads;
	}
}

void call(pt2p_context_t *ctx, Shared &shared, const ycsb::Zipf &zipf)
{
	const Plan &plan = shared.plan;
	ycsb::Random random(static_cast<uint64_t>(pt2p_rank(ctx)));
	std::vector<Slot> slots(plan.window);
	check(ctx, pt2p_barrier(ctx), "barrier");
	// Until all that is measured is done: who is quicker makes more calls, or the others would be fewer at the end.
	size_t i = 0;
	for (; shared.done < plan.last(); ++i) {
		Slot &slot = slots[i % slots.size()];
		finish(ctx, shared, slot);
		slot.item = plan.zipf ? zipf(random) : random.below(plan.keys);
		slot.get = random.fraction() * 100 < plan.get;
		const kv::Head head{slot.get ? kv::Op::get : kv::Op::put, ycsb::key_length};
		std::memcpy(slot.input, &head, sizeof head);
		char *const key = slot.input + sizeof head;
		ycsb::write_key(slot.item, std::span<char, ycsb::key_length>(key, ycsb::key_length));
		size_t length = 0;
		if (!slot.get) {
			length = plan.length(random);
			ycsb::write_value(slot.item, static_cast<uint8_t>(i), {key + ycsb::key_length, length});
		}
		const kv::Place place = shared.layout.place(shared.layout.partition({key, ycsb::key_length}));
		slot.start = now();
		check(ctx,
		      pt2p_icall(ctx, place.rank, place.service, slot.input, sizeof head + ycsb::key_length + length,
		                 slot.reply, sizeof slot.reply, nullptr, &slot.request),
		      "call");
		catch_up();
	}
	for (size_t k = 0; k < slots.size(); ++k)
		finish(ctx, shared, slots[(i + k) % slots.size()]);
	++shared.left;
	check(ctx, pt2p_barrier(ctx), "barrier");
}

} // namespace

int main(int argc, char **argv)
{
	const Settings settings(argc, argv,
	                        {{"servers", "4"},
	                         {"machines", "7"},
	                         {"threads", "5"},
	                         {"window", "1"},
	                         {"calls", "60000"},
	                         {"warm", "0"},
	                         {"keys", "20000"},
	                         {"value", "32"},
	                         {"get", "95"},
	                         {"work", "0"},
	                         {"zipf", "no"},
	                         {"name", "?"}});
	const bool mix = settings.text("value") == "mix";
	const Plan plan{settings.count("servers"),
	                settings.count("machines"),
	                settings.count("threads"),
	                settings.count("window"),
	                settings.count("calls"),
	                settings.count("warm"),
	                settings.count("keys"),
	                mix ? 0 : settings.count("value"),
	                settings.number("get"),
	                settings.number("work"),
	                mix,
	                settings.text("zipf") == "yes"};
	if (!plan.servers || !plan.machines || !plan.threads || !plan.window || plan.value > longest ||
	    plan.calls / 10 < plan.callers() * plan.window)
		give_up(
		    "servers, machines, threads and window are at least 1, a value has at most %zu bytes, calls are ten times "
		    "as many as are under way",
		    longest);
	const InprocessJob job((plan.machines + 1) * plan.per_node(), plan.per_node(), settings.tunables);
	Shared shared{plan, job, {static_cast<int>(plan.servers), 1}};
	const ycsb::Zipf zipf(plan.keys);
	job.run([&](pt2p_context_t *ctx) {
		const size_t rank = static_cast<size_t>(pt2p_rank(ctx)), node = rank / plan.per_node();
		if (rank < plan.servers)
			return serve(ctx, shared);
		if (node && rank % plan.per_node() < plan.threads)
			return call(ctx, shared, zipf);
		check(ctx, pt2p_barrier(ctx), "barrier");
		check(ctx, pt2p_barrier(ctx), "barrier");
	});
	const Latencies latencies(shared.latencies);
	const auto measured = static_cast<double>(shared.latencies.size());
	const double took = shared.until - shared.since;
	std::printf("%s,%zu,%zu,%zu,%s,%.0f,%s,%.3f,%.0f,%.0f,%.3f", settings.text("name").c_str(), plan.servers,
	            plan.callers(), plan.window, settings.text("value").c_str(), plan.get, settings.text("zipf").c_str(),
	            measured / took * 1e3, latencies.mean, latencies.p99, static_cast<double>(shared.reads) / measured);
	shared.device.print(measured, took);
	std::printf(",%s\n", shared.device.limit().c_str());
}
