// Atomic operations on one integer of 4 or 8 bytes, which libpt2p itself offers.
#pragma once

#include <rdma/fi_atomic.h>

#include "ofi/arithmetic.hpp"
#include "ofi/endpoint.hpp"

namespace pt2p_ofi {

struct Values {
	const fi_ioc *list = nullptr;
	size_t count = 0;
};

// What a program asks for, by whichever function.
struct Request {
	AtomicKind kind;
	Values operands, compares, results;
	fi_addr_t to;
	const fi_rma_ioc *targets;
	size_t target_count;
	fi_datatype type;
	fi_op op;
	void *context;
	uint64_t flags;
	bool reports;
};

// The bytes of the word; 0: libpt2p has no such operation.
size_t word_of(const Request &request);
// Starts the operation on a word of `size` bytes. False: it cannot be done this way, or not yet.
bool started_word(Endpoint &endpoint, Op *op, const Request &request, size_t size);

} // namespace pt2p_ofi
