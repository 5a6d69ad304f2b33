// From the command line to a line of figures, for programs that have a Messenger.
//
// traffic: kv, a key-value store (kv.hpp); incast, one whose keys are all on the first rank; halo, alltoall, sparse
// (rounds.hpp). connect=yes: each client of a store first asks each server once, and exchanges in rounds begin with
// `settling` messages of each rank; else connections are made with the first message that needs them, and a short load
// of many nodes mostly connects. `rounds`: so many instead of `operations`. The last 70 % of `operations` are measured,
// or those after the first `warm` %; of an incast all. A rank has at most `receives` posted and `sends` in flight; ?:
// more than enough.
#pragma once

#include <algorithm>
#include <malloc.h>
#include <memory>

#include "softhca/studies/programs/kv.hpp"
#include "softhca/studies/programs/rounds.hpp"

namespace study {

// Everything from the command line to a line of figures. `more` are the messenger's own settings.
class Study {
public:
	Study(int argc, char **argv, const std::map<std::string, std::string> &more) : settings(argc, argv, defaults(more))
	{
		if (settings.text("header") != "no")
			std::puts(
			    "policy,nodes,ranks_per_node,workload,keys,bytes,window,Mops,mean_ns,p50_ns,p99_ns,queue_pairs_per_"
			    "node,"
			    "bytes_per_node,"
			    "doorbells_per_op,cqes_per_op,packets_per_op,dc_connects_per_op,dc_switches_per_op,forwarded_per_op");
		const std::string &workload = settings.text("workload"), &traffic = settings.text("traffic");
		load.ranks = nodes() * per_node();
		load.window = settings.count("window");
		load.receives = settings.text("receives") == "?" ? load.window + 64 : settings.count("receives");
		load.sends = settings.text("sends") == "?" ? 2 * load.window + 64 : settings.count("sends");
		load.bytes = settings.count("bytes");
		load.operations = settings.count("operations");
		load.partners = settings.count("partners");
		load.incast = traffic == "incast";
		load.updates = workload == "a" ? 0.5 : workload == "b" ? 0.05 : 0;
		load.work = settings.number("work");
		load.uniform = settings.text("keys") == "uniform";
		const size_t partners = in_rounds() ? rounds::partners(traffic, 0, load.ranks).size() : 0;
		if (partners) { // neighbours are about a window ahead
			const size_t most = 2 * load.window * partners + 64;
			load.receives = std::min<size_t>(most, 4096);
			load.sends = std::min<size_t>(most, 1024);
			if (const size_t wanted = settings.count("rounds"))
				load.operations = wanted * partners * load.ranks;
		}
		load.connect = settings.text("connect") == "yes";
		if (load.incast) // equal parts
			load.operations -= load.operations % (load.ranks - 1);
		shared_.first = load.incast ? 1 : load.operations * settings.count("warm") / 100;
		if (partners && load.connect) {
			const size_t before = (settling / partners + 1) * partners * load.ranks;
			load.operations += before;
			shared_.first += before;
		}
	}
	size_t nodes() const { return settings.count("nodes"); }
	size_t per_node() const { return settings.count("ranks"); }

	// Memory is counted from here on.
	void begin() { before_ = allocated(); }
	void run(size_t rank, Messenger &messenger)
	{
		shared_.latencies.reserve(load.operations);
		if (in_rounds())
			std::make_unique<rounds::Rank>(settings.text("traffic"), rank, messenger, load, shared_)->run();
		else
			std::make_unique<kv::Rank>(rank, messenger, load, shared_)->run();
	}
	void end() { memory_ = allocated() - before_ - load.operations * sizeof(uint32_t); }

	void print(uint64_t forwarded)
	{
		std::vector<uint32_t> &all = shared_.latencies;
		std::sort(all.begin(), all.end());
		const auto of_all = [&](double part) {
			return all.empty() ? 0 : all[static_cast<size_t>(part * static_cast<double>(all.size() - 1))];
		};
		double sum = 0;
		for (const uint32_t latency : all)
			sum += latency;
		const auto measured = static_cast<double>(load.operations - shared_.first), each = static_cast<double>(nodes());
		const auto per_op = [&](const char *name) { return static_cast<double>(shared_.counters[name]) / measured; };
		std::printf("%s,%zu,%zu,%s,%s,%zu,%zu,%.3f,%.0f,%u,%u,%.1f,%.0f,%.2f,%.2f,%.2f,%.3f,%.3f,%.3f\n",
		            settings.text("name").c_str(), nodes(), per_node(), settings.text("workload").c_str(),
		            settings.text("keys").c_str(), load.bytes, load.window,
		            measured / (shared_.until - shared_.since) * 1e3,
		            sum / static_cast<double>(std::max<size_t>(all.size(), 1)), of_all(0.5), of_all(0.99),
		            softhca_queue_pairs(-1) / each, static_cast<double>(memory_) / each, per_op("doorbells"),
		            per_op("cqes"), per_op("packets_sent"), per_op("dc_connects"), per_op("dc_switches"),
		            static_cast<double>(forwarded) / static_cast<double>(shared_.done));
	}

	const Settings settings;
	Load load{};

private:
	static constexpr size_t settling = 1000;
	bool in_rounds() const { return settings.text("traffic") != "kv" && settings.text("traffic") != "incast"; }
	static std::map<std::string, std::string> defaults(std::map<std::string, std::string> all)
	{
		all.insert({{"nodes", "4"},
		            {"ranks", "1"},
		            {"traffic", "kv"},
		            {"workload", "b"},
		            {"keys", "zipf"},
		            {"connect", "no"},
		            {"bytes", "128"},
		            {"window", "16"},
		            {"receives", "?"},
		            {"sends", "?"},
		            {"operations", "20000"},
		            {"rounds", "0"},
		            {"warm", "30"},
		            {"partners", "0"},
		            {"work", "50"},
		            {"name", "?"},
		            {"header", "no"}});
		return all;
	}
	static size_t allocated()
	{
		const struct mallinfo2 info = mallinfo2();
		return info.uordblks + info.hblkhd;
	}

	Shared shared_;
	size_t before_ = 0, memory_ = 0;
};

} // namespace study
