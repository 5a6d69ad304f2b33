#!/bin/sh
# Only what the tunable concerns.
srcdir=${srcdir:-.} exec sh "${srcdir:-.}/tests/conformance/launch.sh" 4 PT2P_ONE_SIDED=transport \
	one_sided_ways put_get put_get_large signal_order signal_sum atomics \
	fence many_one_sided mixed_requests one_sided_errors released_memory
