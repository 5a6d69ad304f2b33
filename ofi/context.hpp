// Contexts of libpt2p, and what is known of the memory of peers, which belongs to a context.
//
// An endpoint has a context of its own, so an address and a matching space of its own. Nobody can address an endpoint
// that only starts operations on remote memory. It shares the context of an endpoint of its domain that peers can
// address. So it needs no counterpart, and each process may open and close such endpoints as it likes.
#pragma once

#include <atomic>
#include <vector>

#include "ofi/domain.hpp"
#include "ofi/remote_memory.hpp"

namespace pt2p_ofi {

struct Endpoint;

struct Context {
	Domain *domain;
	pt2p_context_t *handle;
	Endpoint *owner; // the endpoint that was opened with it, and is closed last
	bool has_thread; // one that makes progress
	int users = 1;   // endpoints; with the lock of the domain's members
	// Nobody gets memory by it any more, and operations that fail are not reported. Set with the domain's mutex.
	std::atomic<bool> closing{false};

	Lock lock; // of all below
	RemoteMemories remotes;
	std::vector<pt2p_remote_t *> released; // of memory that its owner has closed

	// handler: gets the context as argument. 0, or a negative error.
	int open_service(uint32_t id, pt2p_handler_t handler);
	// What it takes to reach the memory with this key; the handle is null if that is not known. The owner has then been
	// asked. Without the lock.
	Reach reach_of(int rank, uint64_t key);
};

// The services of a context.
int open_rma_services(Context &context);
int open_atomic_service(Context &context);
// An operation of a peer on memory with this key has ended (FI_RMA_EVENT).
void count_remote(Context &context, uint64_t key, bool write);

} // namespace pt2p_ofi
