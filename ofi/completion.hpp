// Completion queues and counters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>

#include "ofi/waiting.hpp"

namespace pt2p_ofi {

struct Domain;
struct Endpoint;

// The endpoints that report to a queue or counter: it makes their progress.
class Reporters {
public:
	void add(Endpoint *endpoint);
	void remove(const Endpoint *endpoint);
	void progress();
	bool empty() const { return endpoints_.empty(); }
	void enable_locks() { lock_.enable(); }

private:
	Lock lock_;
	std::vector<Endpoint *> endpoints_;
};

struct Completion {
	fi_cq_tagged_entry entry;
	fi_addr_t source;
};

struct Error {
	fi_cq_err_entry entry;
	fi_addr_t source;
	std::string text; // of the library
};

struct Cq {
	fid_cq fid;
	Domain *domain;
	size_t entry_size;
	Reporters reporters;
	WaitDescriptor wait;
	bool may_wait; // it has a wait object
	Lock lock;
	// A ring, whose size is a power of two. It grows when it is full: no completion is lost.
	std::vector<Completion> ring;
	size_t begin = 0, end = 0; // taken modulo the size
	std::deque<Error> errors;
	std::string shown; // text of the error that was read last
	bool woken = false;

	// A place for a completion, and its end. With `lock` held in between.
	Completion &next()
	{
		if (__builtin_expect(end - begin == ring.size(), 0))
			grow();
		return ring[end++ & (ring.size() - 1)];
	}
	void push(const fi_cq_tagged_entry &entry, fi_addr_t source)
	{
		const Locked locked(lock);
		next() = {entry, source};
		if (__builtin_expect(may_wait, 0))
			wait.signal();
	}
	void push_error(const fi_cq_err_entry &entry, fi_addr_t source, const char *text);
	// err: positive.
	void push_error(void *context, uint64_t flags, int err, const char *text, uint64_t tag = 0)
	{
		fi_cq_err_entry entry{};
		entry.op_context = context;
		entry.flags = flags;
		entry.err = err;
		entry.tag = tag;
		push_error(entry, FI_ADDR_NOTAVAIL, text);
	}
	void grow();
	ssize_t read(void *buffer, size_t count, fi_addr_t *sources);
	ssize_t take(void *buffer, size_t count, fi_addr_t *sources); // what is there already
	void enable_locks()
	{
		lock.enable();
		reporters.enable_locks();
	}
};

struct Counter {
	fid_cntr fid;
	Domain *domain;
	Reporters reporters;
	WaitDescriptor wait;
	bool may_wait;
	Lock lock;
	uint64_t value = 0, errors = 0;
	uint64_t seen = 0; // their sum when the program read it last
	int bound = 0;     // endpoints that it counts operations of, on their demand

	void add(uint64_t n)
	{
		const Locked locked(lock);
		value += n;
		if (__builtin_expect(may_wait, 0))
			wait.signal();
	}
	void add_error(uint64_t n);
	void enable_locks()
	{
		lock.enable();
		reporters.enable_locks();
	}
};

int open_cq(fid_domain *domain, fi_cq_attr *attributes, fid_cq **cq, void *context);
int open_counter(fid_domain *domain, fi_cntr_attr *attributes, fid_cntr **counter, void *context);
} // namespace pt2p_ofi
