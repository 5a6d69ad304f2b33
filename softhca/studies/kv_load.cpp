// A key-value store whose keys are spread over the ranks by their hash, under the load of YCSB: each rank is a server of its
// share and a client of all. Requests and answers are messages; a client has a window of requests under way.
//
//   softhca --model connectx5 --devices 16 kv_load nodes=16 workload=b PT2P_TRANSPORTS=self,rc
//
// workload: a, b, c: 50, 5, 0 % updates (c: reads only); keys are drawn as YCSB draws them, by a Zipf distribution with 0.99
// whose order is scrambled, or with keys=uniform all alike. Values of `bytes`; `work` ns of a server's processor for each
// request (assumed; what the library's calls take is the model's). partners: a client's keys are all on so many ranks, those
// that follow the one half way round; 0: on all. The last 70 % of `operations` are measured, or what comes after the first
// `warm` %. summary: a rank whose pt2p_summary is printed at the end.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <malloc.h>
#include <memory>

#include "softhca/studies/study.hpp"

namespace {

using namespace study;

// As YCSB has it (Cooper et al., SoCC 2010; Gray et al., SIGMOD 1994): ranks of 10^10 items, their hashes are the keys.
class Keys {
public:
	Keys(uint64_t seed, bool uniform) : state_(seed * 0x9e3779b97f4a7c15u | 1), uniform_(uniform) {}

	double fraction() { return static_cast<double>(next() >> 11) * 0x1p-53; }
	uint64_t key()
	{
		if (uniform_)
			return next();
		constexpr double items = 1e10, theta = 0.99, zeta = 26.46902820178302; // zeta: sum of 1/i^theta over the items
		static const double zeta_2 = 1 + std::pow(0.5, theta), alpha = 1 / (1 - theta),
		                    eta = (1 - std::pow(2 / items, 1 - theta)) / (1 - zeta_2 / zeta);
		const double u = fraction(), uz = u * zeta;
		if (uz < 1)
			return hash(0);
		if (uz < zeta_2)
			return hash(1);
		return hash(static_cast<uint64_t>(items * std::pow(eta * u - eta + 1, alpha)));
	}
	static uint64_t hash(uint64_t value) // FNV-1a, byte by byte
	{
		uint64_t h = 0xcbf29ce484222325u;
		for (int i = 0; i < 8; ++i, value >>= 8)
			h = (h ^ (value & 0xff)) * 0x100000001b3u;
		return h;
	}

private:
	uint64_t next() // xorshift64*
	{
		state_ ^= state_ >> 12;
		state_ ^= state_ << 25;
		state_ ^= state_ >> 27;
		return state_ * 0x2545f4914f6cdd1du;
	}
	uint64_t state_;
	const bool uniform_;
};

enum class Kind : uint32_t { read, update, answer };
struct Header {
	uint64_t key;
	Kind kind;
	uint32_t slot; // of the client's window
};

struct Load {
	size_t ranks, window, bytes, operations, partners;
	double updates, work;
	bool uniform;
};

// What all ranks see: they are fibres of one thread.
struct Shared {
	size_t done = 0, first = 0, drained = 0;
	double since = 0, until = 0;
	std::vector<uint32_t> latencies; // ns
	std::map<std::string, uint64_t> counters;
};
const char *const counted[] = {"doorbells", "cqes", "dc_connects", "dc_switches", "packets_sent", "wqe_reads", "payload_reads"};

void one_done(Shared &shared, const Load &load, double latency)
{
	++shared.done;
	if (shared.done == shared.first) {
		shared.since = now();
		for (const char *name : counted)
			shared.counters[name] = device_counter(name);
	} else if (shared.done > shared.first && shared.done <= load.operations && latency >= 0) {
		shared.latencies.push_back(static_cast<uint32_t>(latency));
	}
	if (shared.done == load.operations) {
		shared.until = now();
		for (const char *name : counted)
			shared.counters[name] = device_counter(name) - shared.counters[name];
	}
}

class Rank {
public:
	Rank(pt2p_context_t *ctx, const Load &load, Shared &shared)
	    : ctx_(ctx), load_(load), shared_(shared), me_(static_cast<size_t>(pt2p_rank(ctx))), keys_(me_ + 1, load.uniform),
	      message_bytes_(sizeof(Header) + load.bytes), receives_(load.window + 64), sends_(2 * load.window + 64),
	      memory_((receives_.size() + sends_.size()) * message_bytes_), started_(load.window)
	{
		for (size_t i = 0; i < load.window; ++i)
			free_.push_back(static_cast<uint32_t>(i));
	}

	void run()
	{
		for (size_t i = 0; i < receives_.size(); ++i)
			post(i);
		check(ctx_, pt2p_barrier(ctx_), "barrier");
		bool drained = false;
		while (shared_.drained < load_.ranks) {
			catch_up();
			while (shared_.done < load_.operations && !free_.empty())
				if (!issue())
					break;
			for (int done = 1, n = 0; done && n < 16; ++n)
				done = serve();
			if (!drained && shared_.done >= load_.operations && free_.size() == load_.window) {
				drained = true;
				++shared_.drained;
			}
		}
		for (pt2p_request_t *receive : receives_) {
			check(ctx_, pt2p_cancel(ctx_, receive), "cancel");
			pt2p_wait(ctx_, receive, nullptr);
		}
		for (pt2p_request_t *send : sends_)
			if (send)
				check(ctx_, pt2p_wait(ctx_, send, nullptr), "send");
		check(ctx_, pt2p_barrier(ctx_), "barrier");
	}

private:
	unsigned char *receive_buffer(size_t i) { return memory_.data() + i * message_bytes_; }
	unsigned char *send_buffer(size_t i) { return memory_.data() + (receives_.size() + i) * message_bytes_; }
	void post(size_t i)
	{
		check(ctx_, pt2p_irecv(ctx_, receive_buffer(i), message_bytes_, PT2P_ANY_SOURCE, 0, PT2P_TAG_EXACT, &receives_[i]),
		      "receive");
	}
	void send(size_t to, const Header &header, size_t bytes)
	{
		const size_t i = next_send_++ % sends_.size();
		for (int done = !sends_[i]; !done;)
			check(ctx_, pt2p_test(ctx_, sends_[i], &done, nullptr), "send");
		std::memcpy(send_buffer(i), &header, sizeof header);
		check(ctx_, pt2p_isend(ctx_, send_buffer(i), sizeof header + bytes, static_cast<int>(to), 0, &sends_[i]), "send");
	}
	size_t owner_of(uint64_t key) const
	{
		const size_t hash = Keys::hash(key);
		return load_.partners ? (me_ + load_.ranks / 2 + 1 + hash % load_.partners) % load_.ranks : hash % load_.ranks;
	}
	// False after a key of this rank's own, so that the others get their turn.
	bool issue()
	{
		const uint64_t key = keys_.key();
		const size_t owner = owner_of(key);
		const bool update = keys_.fraction() < load_.updates;
		if (owner == me_) {
			compute(load_.work);
			one_done(shared_, load_, -1);
			return false;
		}
		const uint32_t slot = free_.back();
		free_.pop_back();
		started_[slot] = now();
		send(owner, {key, update ? Kind::update : Kind::read, slot}, update ? load_.bytes : 0);
		return true;
	}
	// Takes the next message, if there is one.
	bool serve()
	{
		const size_t i = next_receive_ % receives_.size();
		int done;
		pt2p_result_t result;
		check(ctx_, pt2p_test(ctx_, receives_[i], &done, &result), "receive");
		if (!done)
			return false;
		++next_receive_;
		Header header;
		std::memcpy(&header, receive_buffer(i), sizeof header);
		if (header.kind == Kind::answer) {
			one_done(shared_, load_, now() - started_[header.slot]);
			free_.push_back(header.slot);
		} else {
			compute(load_.work);
			const bool read = header.kind == Kind::read;
			header.kind = Kind::answer;
			send(static_cast<size_t>(result.source), header, read ? load_.bytes : 0);
		}
		post(i);
		return true;
	}

	pt2p_context_t *const ctx_;
	const Load &load_;
	Shared &shared_;
	const size_t me_;
	Keys keys_;
	const size_t message_bytes_;
	std::vector<pt2p_request_t *> receives_, sends_;
	std::vector<unsigned char> memory_;
	std::vector<double> started_;
	std::vector<uint32_t> free_;
	size_t next_receive_ = 0, next_send_ = 0;
};

size_t allocated()
{
	const struct mallinfo2 info = mallinfo2();
	return info.uordblks + info.hblkhd;
}

} // namespace

int main(int argc, char **argv)
{
	const Settings settings(argc, argv,
	                        {{"nodes", "4"},
	                         {"ranks", "1"},
	                         {"workload", "b"},
	                         {"keys", "zipf"},
	                         {"bytes", "128"},
	                         {"window", "16"},
	                         {"operations", "20000"},
	                         {"warm", "30"},
	                         {"partners", "0"},
	                         {"work", "50"},
	                         {"name", "?"},
	                         {"summary", "no"},
	                         {"header", "no"}});
	if (settings.text("header") != "no")
		std::puts("policy,nodes,ranks_per_node,workload,keys,bytes,window,Mops,mean_ns,p50_ns,p99_ns,queue_pairs_per_node,"
		          "bytes_per_node,"
		          "doorbells_per_op,cqes_per_op,packets_per_op,dc_connects_per_op,dc_switches_per_op,forwarded_per_op");
	const size_t nodes = settings.count("nodes"), per_node = settings.count("ranks");
	const std::string &workload = settings.text("workload");
	const Load load{nodes * per_node,           settings.count("window"),
	                settings.count("bytes"),    settings.count("operations"),
	                settings.count("partners"), workload == "a" ? 0.5 : workload == "b" ? 0.05 : 0,
	                settings.number("work"),    settings.text("keys") == "uniform"};
	{
		InprocessJob once(1, 1, settings.tunables); // what there is once for all contexts does not count
	}
	const size_t before = allocated();
	const InprocessJob job(load.ranks, per_node, settings.tunables);
	Shared shared;
	shared.first = load.operations * settings.count("warm") / 100;
	shared.latencies.reserve(load.operations);
	size_t memory = 0;
	job.run([&](pt2p_context_t *ctx) {
		auto rank = std::make_unique<Rank>(ctx, load, shared);
		rank->run();
		std::vector<char> text(1 << 16);
		if (settings.text("summary") == std::to_string(pt2p_rank(ctx)) &&
		    pt2p_summary(ctx, text.data(), text.size(), nullptr) == PT2P_OK)
			std::fputs(text.data(), stderr);
	});
	memory = allocated() - before - load.operations * sizeof(uint32_t);

	std::vector<uint32_t> &all = shared.latencies;
	std::sort(all.begin(), all.end());
	const auto of_all = [&](double part) {
		return all.empty() ? 0 : all[static_cast<size_t>(part * static_cast<double>(all.size() - 1))];
	};
	double sum = 0;
	for (const uint32_t latency : all)
		sum += latency;
	const auto measured = static_cast<double>(load.operations - shared.first),
	           all_operations = static_cast<double>(shared.done);
	const auto per_op = [&](const char *name) { return static_cast<double>(shared.counters[name]) / measured; };
	std::printf(
	    "%s,%zu,%zu,%s,%s,%zu,%zu,%.3f,%.0f,%u,%u,%.1f,%.0f,%.2f,%.2f,%.2f,%.3f,%.3f,%.3f\n", settings.text("name").c_str(),
	    nodes, per_node, workload.c_str(), settings.text("keys").c_str(), load.bytes, load.window,
	    measured / (shared.until - shared.since) * 1e3, sum / static_cast<double>(std::max<size_t>(all.size(), 1)), of_all(0.5),
	    of_all(0.99), static_cast<double>(queue_pairs()) / static_cast<double>(nodes),
	    static_cast<double>(memory) / static_cast<double>(nodes), per_op("doorbells"), per_op("cqes"), per_op("packets_sent"),
	    per_op("dc_connects"), per_op("dc_switches"), static_cast<double>(job.counter("forwarded")) / all_operations);
}
