// Completion queues and counters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>

#include "ofi/provider.hpp"

namespace pt2p_ofi {

struct Domain;
struct Endpoint;

// A descriptor that is readable while something waits; for objects that were opened with a wait object.
class WaitDescriptor {
public:
	WaitDescriptor() = default;
	~WaitDescriptor();
	WaitDescriptor(const WaitDescriptor &) = delete;
	WaitDescriptor &operator=(const WaitDescriptor &) = delete;
	// 0 or a negative error.
	int open();
	bool is_open() const { return fd_ >= 0; }
	int fd() const { return fd_; }
	// Under the owner's lock: something waits from now on; nothing does.
	void signal();
	void clear();
	// Waits until it is readable, at most `timeout` ms; negative: for ever. False: it is not.
	bool wait(int timeout) const;

private:
	int fd_ = -1;
	bool signalled_ = false;
};

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
int open_poll(fid_domain *domain, fi_poll_attr *attributes, fid_poll **poll);
// For fi_trywait: 0: the program may wait for the descriptor of this queue or counter; else -FI_EAGAIN.
int try_wait(fid *object);

} // namespace pt2p_ofi
