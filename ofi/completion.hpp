// Completion queues and counters.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>

#include "ofi/waiting.hpp"

namespace pt2p_ofi {

struct Domain;

// The endpoints that report to a queue or counter: it makes their progress.
class Reporters {
public:
	// Once for each endpoint; several may share a context.
	void add(pt2p_context_t *context);
	void remove(pt2p_context_t *context);
	void progress()
	{
		const Locked locked(lock_);
		progress_all();
	}
	// The same where the lock is not enabled.
	[[gnu::noinline]] void progress_all()
	{
		for (const auto &[context, endpoints] : contexts_)
			pt2p_progress(context);
	}
	void enable_locks() { lock_.enable(); }

private:
	Lock lock_;
	std::vector<std::pair<pt2p_context_t *, int>> contexts_; // and how many endpoints
};

// As the largest format has it; each smaller one is the beginning of it.
struct alignas(64) Completion {
	fi_cq_tagged_entry entry;
	fi_addr_t source;
};

// Completions in the order in which they came. It grows so that there is always room for one more: none is lost.
class CompletionRing {
public:
	// size: a power of two. Once, before all else.
	void allocate(size_t size)
	{
		entries_ = std::make_unique<Completion[]>(size);
		mask_ = size - 1;
	}
	bool empty() const { return begin_ == end_; }
	// The growth comes last, so that nothing has to be kept over it.
	void push(const fi_cq_tagged_entry &entry, fi_addr_t source) noexcept
	{
		entries_[end_ & mask_] = {entry, source};
		if (__builtin_expect(++end_ - begin_ > mask_, 0))
			grow();
	}
	// Valid until the next push.
	const Completion &pop() { return entries_[begin_++ & mask_]; }

private:
	[[gnu::cold]] void grow() noexcept;

	std::unique_ptr<Completion[]> entries_;
	size_t mask_ = 0, begin_ = 0, end_ = 0; // the last two: taken modulo the size
};

constexpr size_t max_error_text = 1024; // with its end

struct Error {
	fi_cq_err_entry entry;
	fi_addr_t source;
	std::string text; // of the library
};

struct Cq {
	fid_cq fid;
	Domain *domain;
	std::atomic<int> users{0}; // endpoints and poll sets
	bool may_wait;             // it has a wait object
	Reporters reporters;
	Lock lock; // of all below
	CompletionRing completions;
	std::deque<Error> errors;
	WaitDescriptor wait;
	bool woken = false;         // by fi_cq_signal
	char shown[max_error_text]; // text of the error that was read last

	bool empty() const { return completions.empty() && errors.empty(); }
	void push(const fi_cq_tagged_entry &e, fi_addr_t source = FI_ADDR_NOTAVAIL) noexcept
	{
		if (__builtin_expect(!lock.enabled(), 1))
			completions.push(e, source);
		else
			push_locked(e.op_context, e.flags, e.len, e.buf, e.data, e.tag, source);
	}
	// The program has found nothing: the descriptor says so, although fi_trywait has not been called.
	void note_empty();
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
	void enable_locks()
	{
		lock.enable();
		reporters.enable_locks();
	}

private:
	// With a lock, or a wait object. Not by reference: the short path has the entry in registers.
	[[gnu::noinline]] void push_locked(void *context, uint64_t flags, size_t length, void *buffer, uint64_t data,
	                                   uint64_t tag, fi_addr_t source) noexcept;
};

struct Counter {
	fid_cntr fid;
	Domain *domain;
	Reporters reporters;
	WaitDescriptor wait;
	bool may_wait;
	Lock lock;
	uint64_t value = 0, errors = 0;
	uint64_t seen = 0;         // their sum when the program read it last
	uint64_t errors_told = 0;  // how many errors the program has read of
	std::atomic<int> users{0}; // endpoints that it is bound to, and poll sets

	void add(uint64_t n) noexcept
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
