// Atomic operations on remote memory.
#pragma once

#include <rdma/fi_atomic.h>

#include "ofi/provider.hpp"

namespace pt2p_ofi {

int query_atomic(fid_domain *domain, fi_datatype type, fi_op op, fi_atomic_attr *attributes, uint64_t flags);

} // namespace pt2p_ofi
