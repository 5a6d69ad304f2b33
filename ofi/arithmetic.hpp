// The arithmetic of atomic operations, on memory of this process.
#pragma once

#include <cstddef>

#include <rdma/fi_domain.h>

namespace pt2p_ofi {

enum class AtomicKind : uint32_t { write, fetch, compare };

// Bytes of one value; 0: there is no such type.
size_t size_of(fi_datatype type);
// Whether an operation of this kind works on the type.
bool offered(AtomicKind kind, fi_datatype type, fi_op op);
// Changes `count` values at `target`. What was there before goes to `results`, if not null. offered() must be true, and
// `target` aligned as the type needs.
void apply(fi_datatype type, fi_op op, void *target, const void *operands, const void *compares, void *results,
           size_t count);

} // namespace pt2p_ofi
