// Loads devices as the raw benchmarks of the literature did. Threads post one-sided operations, datagrams or messages
// as fast as their windows allow: one machine to many, many to one, or all to all; a device is a machine. Prints one
// line of CSV. Uses only libibverbs and mlx5dv: this measures the device's model, not libpt2p.
//
// verbs_load_plan.hpp: the command line. verbs_load_objects.hpp: queue pairs. verbs_load_loader.hpp: the side that
// posts. verbs_load_receiver.hpp: the side that receives. Here: who is connected to whom, and what is printed.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <pthread.h>
#include <string>
#include <vector>

#include "softhca/softhca.h"
#include "softhca/studies/programs/verbs_load_loader.hpp"

namespace {

using namespace verbs_load;

struct Machine {
	Machine(const Plan &plan, unsigned number) : port(number), memory(port, region_bytes), cq(port.cq(16))
	{
		for (size_t i = 0; i < region_bytes; ++i)
			memory.data[i] = plan.op == op_read ? pattern_at(i) : 0;
		if (plan.serves(number) && (plan.op == op_send || plan.transport == dc))
			for (unsigned i = 0; i < plan.receivers; ++i) {
				Receiver &r = *receivers.emplace_back(std::make_unique<Receiver>(plan, number));
				keys.push_back(memory.key_for(r.port));
				targets.push_back(plan.transport == dc   ? make_dct(r.port, r.cq, r.srq)
				                  : plan.transport == ud ? make_qp(r.port, plan, r.cq, r.srq, 1)
				                                         : nullptr);
				if (plan.op == op_send)
					for (unsigned n = 0; n < receive_depth; n += 64)
						r.post(n, 64);
			}
	}
	Port port;
	Memory memory; // what is read and written
	ibv_cq *cq;    // of queue pairs that are only sent to
	std::vector<std::unique_ptr<Receiver>> receivers;
	std::vector<ibv_qp *> targets;
	std::vector<Loader *> team; // that load others from here
	std::vector<uint32_t> keys;
};

// All machines, and all threads that load them.
class Load {
public:
	Load(const Plan &plan, bool polite) : plan_(plan), polite_(polite)
	{
		for (unsigned m = 0; m < plan.machines; ++m)
			machines_.push_back(std::make_unique<Machine>(plan, m));
		for (unsigned m = 0; m < plan.machines; ++m)
			for (unsigned t = 0; t < plan.threads && plan.loads(m); ++t)
				loaders_.push_back(
				    std::make_unique<Loader>(plan, progress_, m, t, polite, machines_[m]->memory, machines_[m]->team));
		for (unsigned m = 0; m < plan.machines; ++m)
			for (unsigned t = 0; t < plan.threads && plan.loads(m); ++t)
				connect(m, t);
	}

	void run()
	{
		progress_.posting = static_cast<unsigned>(loaders_.size());
		std::vector<pthread_t> threads;
		std::deque<Taking> taking;
		const auto start = [&](void *(*function)(void *), void *argument) {
			threads.emplace_back();
			must(pthread_create(&threads.back(), nullptr, function, argument), "pthread_create");
		};
		if (plan_.op == op_send)
			for (const auto &m : machines_)
				for (const auto &r : m->receivers)
					start(take, &taking.emplace_back(Taking{&plan_, &progress_, r.get(), polite_}));
		for (const auto &l : loaders_)
			start([](void *l) -> void * { return static_cast<Loader *>(l)->run(), nullptr; }, l.get());
		for (pthread_t t : threads)
			pthread_join(t, nullptr);
	}

	// Ends the program when a byte is wrong, or something was lost or done twice.
	void check() const
	{
		uint64_t sum = 0, posted = 0;
		for (const auto &m : machines_)
			for (size_t i = 0; i + sizeof sum <= region_bytes && plan_.op == op_atomic; i += line)
				sum += *reinterpret_cast<const uint64_t *>(m->memory.data + i);
		for (const auto &l : loaders_)
			posted += l->posted();
		const bool lost = plan_.op == op_send && plan_.transport != ud && progress_.received != posted;
		if (progress_.wrong || lost || (plan_.op == op_atomic && sum != posted))
			fail("wrong bytes: " + std::to_string(progress_.wrong) + " of " + std::to_string(posted) +
			     " operations, sum " + std::to_string(sum) + ", received " + std::to_string(progress_.received));
	}

	// Of what was measured: operations in a microsecond, and all latencies in ns, the shortest first.
	double rate() const { return 1000.0 * plan_.ops / static_cast<double>(progress_.end - progress_.begin); }
	std::vector<uint32_t> latencies() const
	{
		std::vector<uint32_t> all;
		for (const auto &l : loaders_)
			all.insert(all.end(), l->latencies.begin(), l->latencies.end());
		std::sort(all.begin(), all.end());
		return all;
	}

private:
	Loader &loader(unsigned machine, unsigned thread) const
	{
		return *loaders_[(plan_.pattern == in ? machine - 1 : machine) * plan_.threads + thread];
	}
	// A thread with all machines that it loads.
	void connect(unsigned m, unsigned t)
	{
		std::vector<unsigned> others;
		for (unsigned k = 0; k < plan_.machines; ++k)
			if (plan_.serves(k) && (k != m || plan_.target == any))
				others.push_back(k);
		for (const unsigned k : others)
			loader(m, t).add(peer(k, m, t));
		const bool has_queue_pairs = plan_.share != shares_queue || t == 0;
		for (unsigned i = 0; i < plan_.qps && plan_.transport == rc && has_queue_pairs; ++i)
			connect_queue_pair(m, t, i, others);
	}
	// Machine k, for that thread of machine m.
	Peer peer(unsigned k, unsigned m, unsigned t) const
	{
		const Machine &machine = *machines_[k];
		const size_t i = machine.targets.empty() ? 0 : (m * plan_.threads + t) % machine.targets.size();
		if (!machine.targets.empty() && machine.targets[i])
			return {k, machine.port.lid, machine.targets[i]->qp_num, machine.keys[i], &machine.memory};
		const uint32_t key = plan_.pattern == all ? loader(k, t).key() : machine.memory.mr->rkey;
		return {k, machine.port.lid, 0, key, &machine.memory};
	}
	void connect_queue_pair(unsigned m, unsigned t, unsigned i, const std::vector<unsigned> &others)
	{
		const unsigned other = others[i % others.size()];
		Machine &server = *machines_[other];
		ibv_qp *mine = loader(m, t).qp(i), *theirs;
		if (plan_.pattern == all && plan_.op != op_send) {
			// The same queue pairs carry both directions, as in a program that has one connection to each peer.
			const unsigned back = m < other ? m : m - 1; // the index in their list
			const unsigned there = static_cast<unsigned>(i / others.size() * others.size()) + back;
			if (there >= plan_.qps)
				fail("all for all: queue pairs of a thread are to be a multiple of the other machines");
			theirs = loader(other, t).qp(there);
		} else {
			Receiver *r = server.receivers.empty() ? nullptr : server.receivers[t % server.receivers.size()].get();
			theirs = make_qp(r ? r->port : server.port, plan_, r ? r->cq : server.cq, r ? r->srq : nullptr, 1);
			to_ready(theirs, plan_, rc, loader(m, t).port().lid, mine->qp_num);
		}
		to_ready(mine, plan_, rc, server.port.lid, theirs->qp_num);
	}

	const Plan &plan_;
	const bool polite_;
	Progress progress_;
	std::vector<std::unique_ptr<Machine>> machines_;
	std::vector<std::unique_ptr<Loader>> loaders_;
};

constexpr const char *counted[] = {"wqe_reads",     "wqe_misses", "requester_misses", "responder_misses",
                                   "payload_reads", "cqes",       "dc_connects"};

// Of all devices; 0 on others than softhca's.
double counter(const char *name)
{
	uint64_t value = 0;
	if (softhca_counter)
		softhca_counter(name, -1, 0, &value);
	return static_cast<double>(value);
}

void print_names(const Options &options)
{
	for (const auto &[name, value] : options.values)
		if (options.is_of_load(name))
			std::printf("%s,", name.c_str());
	std::printf("rate,rate_per_machine,mean_ns,median_ns,p99_ns");
	for (const char *name : counted)
		std::printf(",%s_per_op", name);
	std::printf("\n");
}

void print(const Options &options, const Plan &plan, const Load &load)
{
	for (const auto &[name, value] : options.values)
		if (options.is_of_load(name))
			std::printf("%s,", value.c_str());
	const std::vector<uint32_t> latencies = load.latencies();
	const auto percentile = [&](double part) -> double {
		const auto at = static_cast<size_t>(part * static_cast<double>(latencies.size()));
		return latencies.empty() ? 0 : latencies[std::min(latencies.size() - 1, at)];
	};
	double mean = 0;
	for (const uint32_t ns : latencies)
		mean += ns / static_cast<double>(latencies.size());
	std::printf("%.4g,%.4g,%.0f,%.0f,%.0f", load.rate(),
	            plan.pattern == all ? load.rate() / plan.machines : load.rate(), mean, percentile(0.5),
	            percentile(0.99));
	const double entries = std::max(counter("wqes"), 1.0);
	for (const char *name : counted)
		std::printf(",%.3f", counter(name) / entries);
	std::printf("\n");
}

} // namespace

int main(int argc, char **argv)
{
	const Options options(argc, argv);
	const Plan plan(options);
	const char *model = std::getenv("SOFTHCA_MODEL");
	// In virtual time a poll that finds nothing yields.
	Load load(plan, !(model && *model));
	load.run();
	if (plan.check)
		load.check();
	if (options.number("header"))
		print_names(options);
	print(options, plan, load);
	return 0;
}
