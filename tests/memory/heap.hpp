// SPDX-License-Identifier: BSD-3-Clause
// The heap as this program uses it. heap.cpp replaces operator new, so that the bytes are counted.
#pragma once

#include <cstddef>

namespace heap {

size_t live(); // bytes of operator new that have not been freed, as malloc rounds them

} // namespace heap
