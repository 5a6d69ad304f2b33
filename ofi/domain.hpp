// Domains and the memory that is registered in them.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include <rdma/fi_domain.h>

#include "ofi/provider.hpp"

namespace pt2p_ofi {

struct Endpoint;
struct Fabric;
struct Counter;
struct Mr;

struct Domain {
	fid_domain fid;
	Fabric *fabric;
	std::atomic<int> users{0}; // objects of the domain
	bool several_threads;      // may work on one object, or on objects that share one, at a time
	bool progress_by_thread;   // FI_PROGRESS_AUTO
	int mr_mode;
	uint64_t caps;

	// Memory by key. Requests of other ranks look for it, also from a progress thread.
	std::mutex mutex;
	std::map<uint64_t, Mr *> memories;
	uint64_t next_key = 1;

	// The endpoints, and the counters of each. Before the locks of queues and counters; handlers do not take it.
	std::mutex members;
	std::vector<Endpoint *> endpoints;
	std::vector<Counter *> memory_counters; // each once: what peers do to memory, by any endpoint

	// The counter is closed: no memory counts by it.
	void forget(Counter &counter);
	Mr *find(uint64_t key)
	{
		const auto found = memories.find(key);
		return found == memories.end() ? nullptr : found->second;
	}
};

struct Mr {
	fid_mr fid;
	Domain *domain;
	unsigned char *address;
	size_t length;
	uint64_t access;
	Counter *counter = nullptr; // of what peers do to it, as far as this says
	uint64_t counted = 0;       // FI_REMOTE_READ, FI_REMOTE_WRITE
	// With each context that other ranks reach it by, made when one asks first. Under the domain's mutex.
	std::map<pt2p_context_t *, pt2p_memory_t *> handles;
	// Who has asked, by which context. They are told when the memory is closed, as its key may be used again.
	std::set<std::pair<pt2p_context_t *, int>> asked;

	bool by_address() const { return domain->mr_mode & FI_MR_VIRT_ADDR; }
	// Address of its first byte as other ranks name it.
	uint64_t base() const { return by_address() ? reinterpret_cast<uint64_t>(address) : 0; }
};

int open_domain(fid_fabric *fabric, fi_info *info, fid_domain **domain, void *context);

} // namespace pt2p_ofi
