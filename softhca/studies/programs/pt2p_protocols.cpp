// Requests of threads on many nodes to one (M:1), of one node to many (1:M), or of all nodes to each other (M:M), each
// of which asks for a value by a key: by a call whose input and reply are sent or written, or by a READ of the value.
//
//   softhca --model connectx3 --devices 29 pt2p_protocols shape=M:1 nodes=28 threads=16 window=16 way=write/send
//   PT2P_TRANSPORTS=self,rc PT2P_NET_RINGS=512
//
// A thread is a rank, with a queue pair to each of its partners. M:1: `nodes` nodes with `threads` requesters each, and
// one with as many responders as `responders` says; requester n asks responder n modulo these. 1:M: requester k asks
// responder k of each of `nodes` nodes. M:M: requester k of each of `nodes` nodes asks responder k of each other one.
// `way`: INPUT/REPLY, each send, write, datagram or auto, the reply also read: the requester fetches it; or read, which
// is pt2p_get. Each requester keeps `window` requests under way to each partner, and asks again as soon as one has its
// value. The middle 70 % of `requests` are measured, those of all queue pairs: `Gb/s` of values, of all or, in M:M, of
// a node; `min_to_mean`: requests of the slowest requester; for each request `wqes` and `receives` of all devices,
// `requester`, `wqe` and `responder`: misses of the devices' caches, `rnr`: refusals for want of a receive.
// Every byte of every value is checked, and responders serve as many requests as there are.
#include <cstring>
#include <memory>

#include <pt2p_calls.h>
#include <pt2p_onesided.h>

#include "softhca/studies/programs/pt2p_job.hpp"

namespace {

using namespace study;

enum class Shape { many_to_one, one_to_many, many_to_many };

// How a request and its value get through the network.
struct Way {
	bool get = false; // the requester READs the value, and nobody serves
	pt2p_delivery_t input = PT2P_DELIVERY_AUTO, reply = PT2P_DELIVERY_AUTO;
};

struct Plan {
	Shape shape;
	size_t nodes, threads, responders, window, value, key, requests, warm;
	Way way;

	bool many_to_many() const { return shape == Shape::many_to_many; }
	size_t all_nodes() const { return nodes + !many_to_many(); }
	size_t ranks_per_node() const
	{
		return many_to_many() ? 2 * threads : shape == Shape::many_to_one ? std::max(threads, servers()) : threads;
	}
	size_t ranks() const { return all_nodes() * ranks_per_node(); }
	size_t servers() const { return std::min(responders, nodes * threads); } // M:1
	// Ranks that this one asks. In M:1 and 1:M the first node is the one.
	std::vector<int> partners(size_t rank) const
	{
		const size_t node = rank / ranks_per_node(), k = rank % ranks_per_node();
		std::vector<int> all;
		if (k >= threads)
			return all;
		if (shape == Shape::many_to_one && node > 0)
			all.push_back(static_cast<int>(((node - 1) * threads + k) % servers()));
		for (size_t other = 0; other < all_nodes(); ++other)
			if (other != node && (many_to_many() || (shape == Shape::one_to_many && node == 0)))
				all.push_back(static_cast<int>(other * ranks_per_node() + k + (many_to_many() ? threads : 0)));
		return all;
	}
	bool responds(size_t rank) const
	{
		const size_t node = rank / ranks_per_node(), k = rank % ranks_per_node();
		switch (shape) {
		case Shape::many_to_one: return node == 0 && k < servers();
		case Shape::one_to_many: return node > 0;
		case Shape::many_to_many: break;
		}
		return k >= threads;
	}
	// Queue pairs, seen from the requesters.
	size_t pairs() const { return many_to_many() ? nodes * (nodes - 1) * threads : nodes * threads; }
	size_t first() const { return requests / 10; }
	size_t last() const { return requests * 8 / 10; }
};

constexpr size_t items = 16; // values of a responder

unsigned char byte_of(int rank, size_t item, size_t i)
{
	return static_cast<unsigned char>(static_cast<size_t>(rank) * 31 + item * 13 + i * 7);
}

struct Request {
	uint64_t number;
	uint64_t item;
};

struct Counts {
	uint64_t wqes, receives, requester, wqe, responder, rnr;
};

struct Shared {
	const Plan &plan;
	const InprocessJob &job;
	std::vector<std::vector<unsigned char>> exports; // of the responders' values
	size_t done = 0, served = 0, ended = 0;
	size_t requesters = 0;
	bool measured = false;
	double since = 0, until = 0;
	Counts counts{};
	std::vector<double> latencies{};
	std::vector<size_t> each{};

	Counts count() const
	{
		return {device_counter("wqes"),       device_counter("receives"),         device_counter("requester_misses"),
		        device_counter("wqe_misses"), device_counter("responder_misses"), device_counter("rnr_naks_sent")};
	}
	bool measures() const { return measured && done > plan.first() && done <= plan.last(); }
	void finished()
	{
		++done;
		if (!measured)
			return;
		if (done == plan.first()) {
			since = now();
			counts = count();
		} else if (done == plan.last()) {
			until = now();
			const Counts end = count();
			counts = {end.wqes - counts.wqes, end.receives - counts.receives,   end.requester - counts.requester,
			          end.wqe - counts.wqe,   end.responder - counts.responder, end.rnr - counts.rnr};
		}
	}
};

class Responder {
public:
	Responder(pt2p_context_t *ctx, Shared &shared) : shared_(shared)
	{
		const Plan &plan = shared.plan;
		void *values;
		check(ctx, pt2p_memory_allocate(ctx, items * plan.value, &memory_, &values), "allocate");
		values_ = static_cast<unsigned char *>(values);
		for (size_t item = 0; item < items; ++item)
			for (size_t i = 0; i < plan.value; ++i)
				values_[item * plan.value + i] = byte_of(pt2p_rank(ctx), item, i);
		std::vector<unsigned char> &blob = shared.exports[static_cast<size_t>(pt2p_rank(ctx))];
		blob.resize(PT2P_EXPORT_MAX);
		size_t length;
		check(ctx, pt2p_memory_export(ctx, memory_, blob.data(), blob.size(), &length), "export");
		blob.resize(length);
		check(ctx, pt2p_service_open(ctx, 1, handle, this, nullptr, &service_), "service");
	}
	// Until nobody asks any more.
	void run(pt2p_context_t *ctx, size_t requesters)
	{
		while (shared_.ended < requesters) {
			check(ctx, pt2p_progress(ctx), "progress");
			std::this_thread::yield();
		}
	}
	void close(pt2p_context_t *ctx)
	{
		check(ctx, pt2p_service_close(ctx, service_), "close");
		check(ctx, pt2p_memory_release(ctx, memory_), "release");
	}

private:
	static void handle(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, void *argument)
	{
		auto &self = *static_cast<Responder *>(argument);
		const Plan &plan = self.shared_.plan;
		Request request;
		if (length != plan.key)
			give_up("a key of %zu bytes", length);
		std::memcpy(&request, input, sizeof request);
		for (size_t i = sizeof request; i < length; ++i)
			if (static_cast<const unsigned char *>(input)[i] != byte_of(pt2p_rank(ctx), request.item, i))
				give_up("byte %zu of a key is wrong", i);
		catch_up();
		++self.shared_.served;
		check(ctx, pt2p_reply(ctx, call, request.number, self.values_ + request.item * plan.value, plan.value),
		      "reply");
	}
	Shared &shared_;
	pt2p_memory_t *memory_ = nullptr;
	pt2p_service_t *service_ = nullptr;
	unsigned char *values_ = nullptr;
};

class Requester {
public:
	Requester(pt2p_context_t *ctx, Shared &shared, const std::vector<int> &partners)
	    : ctx_(ctx), shared_(shared), slots_(partners.size() * shared.plan.window)
	{
		const Plan &plan = shared.plan;
		void *values;
		check(ctx, pt2p_memory_allocate(ctx, slots_.size() * plan.value, &memory_, &values), "allocate");
		for (const int partner : partners) {
			remotes_.push_back(nullptr);
			const auto &blob = shared.exports[static_cast<size_t>(partner)];
			check(ctx, pt2p_memory_import(ctx, partner, blob.data(), blob.size(), &remotes_.back()), "import");
		}
		for (size_t i = 0; i < slots_.size(); ++i) {
			Slot &slot = slots_[i];
			slot.requester = this;
			slot.partner = partners[i % partners.size()];
			slot.remote = remotes_[i % partners.size()];
			slot.value = static_cast<unsigned char *>(values) + i * plan.value;
			slot.key.resize(plan.key);
		}
	}
	// Asks so many times at least, of each partner, or until enough have been measured.
	void run(bool measured)
	{
		const Plan &plan = shared_.plan;
		const size_t warm = plan.warm * slots_.size() / plan.window;
		size_t begun = 0;
		const auto more = [&] { return measured ? shared_.done < plan.requests : begun < warm; };
		for (Slot &slot : slots_)
			if (more())
				ask(slot), ++begun;
		while (under_way_) {
			check(ctx_, pt2p_progress(ctx_), "progress");
			while (!ready_.empty()) {
				Slot &slot = *ready_.back();
				ready_.pop_back();
				catch_up();
				finish(slot);
				if (more())
					ask(slot), ++begun;
			}
			std::this_thread::yield();
		}
	}
	void close()
	{
		for (pt2p_remote_t *remote : remotes_)
			check(ctx_, pt2p_remote_release(ctx_, remote), "release");
		check(ctx_, pt2p_memory_release(ctx_, memory_), "release");
	}

private:
	struct Slot {
		Requester *requester = nullptr;
		int partner = 0;
		pt2p_remote_t *remote = nullptr;
		unsigned char *value = nullptr;
		std::vector<unsigned char> key;
		Request request{};
		pt2p_result_t result{};
		double start = 0;
	};
	void ask(Slot &slot)
	{
		const Plan &plan = shared_.plan;
		slot.request.number = static_cast<uint64_t>(pt2p_rank(ctx_)) << 40 | made_++;
		slot.request.item = (slot.request.item + 1) % items; // another than last time
		++under_way_;
		slot.start = now();
		if (plan.way.get) {
			check(ctx_,
			      pt2p_get_callback(ctx_, slot.value, plan.value, slot.remote, slot.request.item * plan.value, done,
			                        &slot),
			      "get");
			return;
		}
		std::memcpy(slot.key.data(), &slot.request, sizeof slot.request);
		for (size_t i = sizeof slot.request; i < plan.key; ++i)
			slot.key[i] = byte_of(slot.partner, slot.request.item, i);
		pt2p_call_options_t options = PT2P_CALL_OPTIONS_INIT;
		options.input_by = plan.way.input;
		options.reply_by = plan.way.reply;
		options.done = done;
		options.argument = &slot;
		check(ctx_,
		      pt2p_icall(ctx_, slot.partner, 1, slot.key.data(), plan.key, slot.value, plan.value, &options, nullptr),
		      "call");
	}
	static void done(pt2p_context_t *, const pt2p_result_t *result, void *argument)
	{
		auto &slot = *static_cast<Slot *>(argument);
		slot.result = *result;
		slot.requester->ready_.push_back(&slot);
	}
	void finish(Slot &slot)
	{
		const Plan &plan = shared_.plan;
		--under_way_;
		const pt2p_result_t &result = slot.result;
		if (result.status != PT2P_OK || result.length != plan.value || result.source != slot.partner ||
		    (!plan.way.get && result.tag != slot.request.number))
			give_up("a request ended with status %d and %zu bytes", static_cast<int>(result.status), result.length);
		for (size_t i = 0; i < plan.value; ++i)
			if (slot.value[i] != byte_of(slot.partner, slot.request.item, i))
				give_up("byte %zu of a value is wrong", i);
		shared_.finished();
		if (shared_.measures()) {
			shared_.latencies.push_back(now() - slot.start);
			++shared_.each[static_cast<size_t>(pt2p_rank(ctx_))];
		}
	}
	pt2p_context_t *const ctx_;
	Shared &shared_;
	std::vector<Slot> slots_;
	std::vector<Slot *> ready_;
	std::vector<pt2p_remote_t *> remotes_;
	pt2p_memory_t *memory_ = nullptr;
	uint64_t made_ = 0;
	size_t under_way_ = 0;
};

void run(pt2p_context_t *ctx, Shared &shared)
{
	const Plan &plan = shared.plan;
	const auto rank = static_cast<size_t>(pt2p_rank(ctx));
	std::optional<Responder> responder;
	if (plan.responds(rank))
		responder.emplace(ctx, shared);
	check(ctx, pt2p_barrier(ctx), "barrier");
	const std::vector<int> partners = plan.partners(rank);
	std::optional<Requester> requester;
	if (!partners.empty())
		requester.emplace(ctx, shared, partners);
	for (const bool measured : {false, true}) {
		check(ctx, pt2p_barrier(ctx), "barrier");
		if (requester) {
			requester->run(measured);
			++shared.ended;
		} else if (responder) {
			responder->run(ctx, shared.requesters);
		}
		check(ctx, pt2p_barrier(ctx), "barrier");
		if (!rank) {
			if (!plan.way.get && shared.served != shared.done)
				give_up("%zu requests were served, and %zu have ended", shared.served, shared.done);
			shared.done = shared.served = shared.ended = 0;
			shared.measured = true;
		}
	}
	if (requester)
		requester->close();
	check(ctx, pt2p_barrier(ctx), "barrier");
	if (responder)
		responder->close(ctx);
}

pt2p_delivery_t delivery_of(const std::string &word, bool reply)
{
	const std::map<std::string, pt2p_delivery_t> all = {{"auto", PT2P_DELIVERY_AUTO},
	                                                    {"send", PT2P_DELIVERY_SEND},
	                                                    {"write", PT2P_DELIVERY_WRITE},
	                                                    {"read", PT2P_DELIVERY_READ},
	                                                    {"datagram", PT2P_DELIVERY_DATAGRAM}};
	const auto found = all.find(word);
	if (found == all.end() || (!reply && found->second == PT2P_DELIVERY_READ))
		give_up("way: %s?", word.c_str());
	return found->second;
}

Way way_of(const std::string &text)
{
	if (text == "read")
		return {.get = true};
	const size_t slash = text.find('/');
	if (slash == std::string::npos)
		give_up("way is INPUT/REPLY, or read");
	return {.get = false,
	        .input = delivery_of(text.substr(0, slash), false),
	        .reply = delivery_of(text.substr(slash + 1), true)};
}

} // namespace

int main(int argc, char **argv)
{
	const Settings settings(argc, argv,
	                        {{"shape", "M:1"},
	                         {"nodes", "28"},
	                         {"threads", "16"},
	                         {"responders", "16"},
	                         {"window", "16"},
	                         {"value", "365"},
	                         {"key", "36"},
	                         {"way", "read"},
	                         {"requests", "50000"},
	                         {"warm", "0"},
	                         {"name", "?"},
	                         {"header", "no"}});
	if (settings.text("header") != "no")
		std::puts(
		    "name,shape,nodes,threads,window,value,way,Gb/s,M/s,mean_ns,p99_ns,min_to_mean,wqes,receives,requester,wqe,"
		    "responder,rnr");
	const std::string &shape = settings.text("shape"), &way = settings.text("way");
	if (shape != "M:1" && shape != "1:M" && shape != "M:M")
		give_up("shape is M:1, 1:M or M:M");
	Plan plan{.shape = shape == "M:1"   ? Shape::many_to_one
	                   : shape == "1:M" ? Shape::one_to_many
	                                    : Shape::many_to_many,
	          .nodes = settings.count("nodes"),
	          .threads = settings.count("threads"),
	          .responders = settings.count("responders"),
	          .window = settings.count("window"),
	          .value = settings.count("value"),
	          .key = settings.count("key"),
	          .requests = settings.count("requests"),
	          .warm = settings.count("warm"),
	          .way = way_of(way)};
	if (plan.nodes < 1u + plan.many_to_many() || !plan.threads || !plan.responders || !plan.window || !plan.value ||
	    plan.key < sizeof(Request) || plan.requests < 10)
		give_up("one of nodes, threads, responders, window, value, key and requests is too small");
	plan.warm = std::max(plan.warm, plan.window);
	const InprocessJob job(plan.ranks(), plan.ranks_per_node(), settings.tunables);
	Shared shared{.plan = plan, .job = job, .exports = std::vector<std::vector<unsigned char>>(plan.ranks())};
	shared.each.resize(plan.ranks());
	for (size_t rank = 0; rank < plan.ranks(); ++rank)
		shared.requesters += !plan.partners(rank).empty();
	job.run([&](pt2p_context_t *ctx) { run(ctx, shared); });
	const Latencies latencies(shared.latencies);
	const auto measured = static_cast<double>(plan.last() - plan.first());
	size_t min_requests = plan.requests;
	for (size_t rank = 0; rank < plan.ranks(); ++rank)
		if (!plan.partners(rank).empty())
			min_requests = std::min(min_requests, shared.each[rank]);
	const double rate = measured / (shared.until - shared.since) * 1e3; // M/s
	const auto each = [measured](uint64_t count) { return static_cast<double>(count) / measured; };
	std::printf(
	    "%s,%s,%zu,%zu,%zu,%zu,%s,%.2f,%.3f,%.0f,%.0f,%.2f,%.3f,%.3f,%.3f,%.3f,%.3f,%.4f\n",
	    settings.text("name").c_str(), shape.c_str(), plan.nodes, plan.threads, plan.window, plan.value, way.c_str(),
	    rate * static_cast<double>(plan.value) * 8e-3 / (plan.many_to_many() ? static_cast<double>(plan.nodes) : 1),
	    rate, latencies.mean, latencies.p99, static_cast<double>(min_requests * shared.requesters) / measured,
	    each(shared.counts.wqes), each(shared.counts.receives), each(shared.counts.requester), each(shared.counts.wqe),
	    each(shared.counts.responder), each(shared.counts.rnr));
}
