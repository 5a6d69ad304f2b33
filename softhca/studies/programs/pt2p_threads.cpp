// Threads of client nodes that call servers, each of one rank on a node of its own: each thread with a context of its
// own (dedicated), all of a node with one context behind a spin lock of the program (lock), or with one context at
// thread level multiple (combined).
//
//   softhca --model connectx5 --devices 24 pt2p_threads clients=23 threads=16 share=combined PT2P_TRANSPORTS=self,rc
//
// Each thread has one call under way, of `input` bytes, to the same server always, which answers with `reply` bytes
// after `handler` ns. The last `dormant` nodes make one call each 200 us instead. The last `long` threads of a node
// send and get `long_bytes`. The middle 70 % of `calls` are measured: `jain`: fairness among the threads that call all
// the time (Jain, Chiu, Hawe, 1984); `idle_ns`: median latency of the dormant nodes; `degree`: calls that a thread
// executes for others in a batch; `long_k`: thousands of long calls a second, which no other column counts.
// HWLOC_SYNTHETIC has to give each rank as many cores as it has threads. Every byte of every reply is checked.
#include <cstring>
#include <memory>
#include <pthread.h>

#include "softhca/studies/programs/pt2p_job.hpp"

namespace {

using namespace study;

enum class Share { dedicated, lock, combined };

struct Plan {
	size_t servers, clients, threads, dormant, calls, input, reply, longs, long_bytes;
	double handler;
	Share share;
	size_t ranks_per_node() const { return share == Share::dedicated ? threads : 1; }
	size_t ranks() const { return (servers + clients) * ranks_per_node(); }
	bool serves(size_t rank) const { return rank % ranks_per_node() == 0 && rank / ranks_per_node() < servers; }
	int server(size_t thread) const { return static_cast<int>(thread % servers * ranks_per_node()); }
	size_t callers() const { return (clients - dormant) * threads; }
	bool is_long(size_t thread) const { return thread % threads >= threads - longs; }
};

struct Shared {
	const Plan &plan;
	const InprocessJob &job;
	size_t done = 0, ended = 0; // calls; threads
	size_t long_calls = 0;
	double since = 0, until = 0;
	uint64_t combined = 0, batches = 0;
	std::vector<double> latencies{}, idle{};
	std::vector<double> each; // calls that a thread has made in that time

	bool measures() const { return done > plan.calls / 10 && done <= plan.calls * 8 / 10; }
	void count(int sign)
	{
		const auto add = [&](uint64_t &sum, const char *name) {
			sum += static_cast<uint64_t>(sign) * job.counter(name);
		};
		add(combined, "calls_combined");
		add(batches, "calls_combined_batches");
	}
	void finished()
	{
		++done;
		if (done == plan.calls / 10) {
			since = now();
			count(-1);
		} else if (done == plan.calls * 8 / 10) {
			until = now();
			count(1);
		}
	}
};

unsigned char byte_of(uint64_t seed, size_t i) { return static_cast<unsigned char>(seed * 13 + i * 7); }

struct Server {
	Shared &shared;
	std::vector<unsigned char> bytes;
};

void handle(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, void *argument)
{
	auto &server = *static_cast<Server *>(argument);
	const Plan &plan = server.shared.plan;
	const bool is_long = plan.longs && length == plan.long_bytes;
	if (!is_long && length != plan.input)
		give_up("an input of %zu bytes", length);
	uint64_t seed;
	std::memcpy(&seed, input, sizeof seed);
	compute(plan.handler);
	catch_up();
	server.bytes.resize(is_long ? plan.long_bytes : plan.reply);
	for (size_t i = 0; i < server.bytes.size(); ++i)
		server.bytes[i] = byte_of(seed, i);
	check(ctx, pt2p_reply(ctx, call, seed, server.bytes.data(), server.bytes.size()), "reply");
}

void serve(pt2p_context_t *ctx, Shared &shared)
{
	Server server{shared, {}};
	pt2p_service_t *service;
	check(ctx, pt2p_service_open(ctx, 1, handle, &server, nullptr, &service), "service");
	check(ctx, pt2p_barrier(ctx), "barrier");
	check(ctx, pt2p_barrier(ctx), "barrier"); // all are connected
	const size_t all = shared.plan.clients * shared.plan.threads;
	while (shared.ended < all) {
		check(ctx, pt2p_progress(ctx), "progress");
		std::this_thread::yield();
	}
	check(ctx, pt2p_barrier(ctx), "barrier");
	check(ctx, pt2p_service_close(ctx, service), "close");
}

// One call, in the way of the plan.
class Caller {
public:
	Caller(pt2p_context_t *ctx, const Plan &plan, int server, pthread_spinlock_t *lock, bool is_long = false)
	    : ctx_(ctx), server_(server), lock_(lock), input_(is_long ? plan.long_bytes : plan.input),
	      reply_(is_long ? plan.long_bytes : plan.reply)
	{
	}
	// Its latency, ns.
	double call(uint64_t seed)
	{
		std::memcpy(input_.data(), &seed, sizeof seed);
		const double start = now();
		pt2p_result_t result;
		if (lock_)
			call_locked(result);
		else
			check(ctx_,
			      pt2p_call(ctx_, server_, 1, input_.data(), input_.size(), reply_.data(), reply_.size(), nullptr,
			                &result),
			      "call");
		catch_up();
		if (result.tag != seed || result.length != reply_.size())
			give_up("a reply of %zu bytes with a wrong word", result.length);
		for (size_t i = 0; i < reply_.size(); ++i)
			if (reply_[i] != byte_of(seed, i))
				give_up("byte %zu of a reply is wrong", i);
		return now() - start;
	}

private:
	void call_locked(pt2p_result_t &result)
	{
		pt2p_request_t *request;
		pthread_spin_lock(lock_);
		check(
		    ctx_,
		    pt2p_icall(ctx_, server_, 1, input_.data(), input_.size(), reply_.data(), reply_.size(), nullptr, &request),
		    "call");
		pthread_spin_unlock(lock_);
		for (int done = 0; !done;) {
			pthread_spin_lock(lock_);
			check(ctx_, pt2p_test(ctx_, request, &done, &result), "test");
			pthread_spin_unlock(lock_);
		}
	}
	pt2p_context_t *const ctx_;
	const int server_;
	pthread_spinlock_t *const lock_;
	std::vector<unsigned char> input_, reply_;
};

void run_thread(pt2p_context_t *ctx, Shared &shared, pthread_spinlock_t *lock, size_t number)
{
	const bool is_long = shared.plan.is_long(number);
	Caller caller(ctx, shared.plan, shared.plan.server(number), lock, is_long);
	const bool dormant = number >= shared.plan.callers();
	uint64_t made = 0;
	while (shared.done < shared.plan.calls) {
		const double latency = caller.call(number << 32 | made++);
		if (dormant) {
			if (shared.measures())
				shared.idle.push_back(latency);
			usleep(200);
			continue;
		}
		if (is_long) {
			shared.long_calls += shared.measures();
			continue;
		}
		shared.finished();
		if (shared.measures()) {
			shared.latencies.push_back(latency);
			++shared.each[number];
		}
	}
	++shared.ended;
}

void call(pt2p_context_t *ctx, Shared &shared)
{
	const Plan &plan = shared.plan;
	const auto rank = static_cast<size_t>(pt2p_rank(ctx));
	const bool calls = rank >= plan.servers * plan.ranks_per_node(); // not on a server's node
	check(ctx, pt2p_barrier(ctx), "barrier");
	for (size_t s = 0; calls && s < plan.servers; ++s)
		Caller(ctx, plan, plan.server(s), nullptr).call(0);
	check(ctx, pt2p_barrier(ctx), "barrier");
	if (calls) {
		const size_t first =
		    plan.share == Share::dedicated ? rank - plan.servers * plan.threads : (rank - plan.servers) * plan.threads;
		pthread_spinlock_t lock;
		pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE);
		std::vector<std::thread> threads;
		for (size_t t = 0; t < (plan.share == Share::dedicated ? 1 : plan.threads); ++t)
			threads.emplace_back(run_thread, ctx, std::ref(shared), plan.share == Share::lock ? &lock : nullptr,
			                     first + t);
		for (std::thread &t : threads)
			t.join();
	}
	check(ctx, pt2p_barrier(ctx), "barrier");
}

} // namespace

int main(int argc, char **argv)
{
	const Settings settings(argc, argv,
	                        {{"servers", "1"},
	                         {"clients", "23"},
	                         {"threads", "16"},
	                         {"dormant", "0"},
	                         {"calls", "30000"},
	                         {"input", "64"},
	                         {"reply", "64"},
	                         {"long", "0"},
	                         {"long_bytes", "4096"},
	                         {"handler", "10"},
	                         {"share", "combined"},
	                         {"name", "?"},
	                         {"header", "no"}});
	if (settings.text("header") != "no")
		std::puts("name,share,servers,clients,threads,M/s,median_ns,p99_ns,jain,idle_ns,degree,long_k");
	const std::string &share = settings.text("share");
	const Plan plan{settings.count("servers"),
	                settings.count("clients"),
	                settings.count("threads"),
	                settings.count("dormant"),
	                settings.count("calls"),
	                settings.count("input"),
	                settings.count("reply"),
	                settings.count("long"),
	                settings.count("long_bytes"),
	                settings.number("handler"),
	                share == "dedicated" ? Share::dedicated
	                : share == "lock"    ? Share::lock
	                                     : Share::combined};
	if (!plan.servers || plan.clients <= plan.dormant || plan.threads <= plan.longs || plan.calls < 10 ||
	    plan.input < sizeof(uint64_t) || plan.long_bytes <= plan.input ||
	    (share != "dedicated" && share != "lock" && share != "combined"))
		give_up("servers at least 1, more clients than are dormant, more threads than are long, calls at least 10, "
		        "input at "
		        "least 8 and less than long_bytes; share is dedicated, lock or combined");
	const InprocessJob job(plan.ranks(), plan.ranks_per_node(), settings.tunables,
	                       plan.share == Share::combined ? PT2P_THREAD_MULTIPLE : PT2P_THREAD_SERIALIZED, false);
	Shared shared{.plan = plan, .job = job, .each = std::vector<double>(plan.callers())};
	job.run([&](pt2p_context_t *ctx) {
		plan.serves(static_cast<size_t>(pt2p_rank(ctx))) ? serve(ctx, shared) : call(ctx, shared);
	});
	double sum = 0, squares = 0;
	for (const double n : shared.each) // those of long threads are 0
		sum += n, squares += n * n;
	const auto counted = static_cast<double>(shared.each.size() - (plan.clients - plan.dormant) * plan.longs);
	const Latencies latencies(shared.latencies);
	const auto measured = static_cast<double>(plan.calls * 8 / 10 - plan.calls / 10);
	std::printf("%s,%s,%zu,%zu,%zu,%.2f,%.0f,%.0f,%.3f,%.0f,%.2f,%.1f\n", settings.text("name").c_str(), share.c_str(),
	            plan.servers, plan.clients, plan.threads, measured / (shared.until - shared.since) * 1e3,
	            latencies.median, latencies.p99, sum * sum / (squares * counted), Latencies(shared.idle).median,
	            shared.batches ? static_cast<double>(shared.combined) / static_cast<double>(shared.batches) : 0.0,
	            static_cast<double>(shared.long_calls) / (shared.until - shared.since) * 1e6);
}
