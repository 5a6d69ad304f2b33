// The device's clock: nanoseconds that only go forward, virtual where time is.
#pragma once

#include <cstdint>
#include <ctime>

#include "softhca/time/virtual_time.h"

namespace softhca {

using Time = uint64_t; // nanoseconds

inline Time read_clock()
{
	if (time_is_virtual())
		return softhca_time_now() / 1000; // reading it takes no time
	timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return static_cast<Time>(t.tv_sec) * 1'000'000'000 + static_cast<Time>(t.tv_nsec);
}

} // namespace softhca
