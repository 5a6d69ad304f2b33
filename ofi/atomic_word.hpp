// Atomic operations on one integer of 4 or 8 bytes, which libpt2p itself offers.
#pragma once

#include <rdma/fi_atomic.h>

#include "ofi/arithmetic.hpp"
#include "ofi/endpoint.hpp"

namespace pt2p_ofi {

// Values in segments.
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

// Starts the operation if it is one of a word that libpt2p can change. False: it is not, or that is not known yet.
// error: of libfabric, if it is one and cannot be started.
bool start_word(Endpoint &endpoint, const Request &request, ssize_t &error);

} // namespace pt2p_ofi
