#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The conformance cases with a device in this process that does atomic operations: alone, beside shared memory on
# pretended nodes, and with atomic operations by processors nevertheless. Run in the build tree.
. "${srcdir:-.}/tests/common.sh"

run() { run_cases ./tests/conformance/conformance_device "$@"; }
run threads 2 PT2P_TRANSPORTS=self,device # all cases
run threads 3 PT2P_TRANSPORTS=self,device PT2P_CALL_WINDOW=1 calls
# shellcheck disable=SC2086 # several words
for setting in PT2P_RANKS_PER_NODE=1 PT2P_RANKS_PER_NODE=2 PT2P_ATOMICS=nic 'PT2P_RANKS_PER_NODE=1 PT2P_ATOMICS=cpu' \
	'PT2P_RANKS_PER_NODE=2 PT2P_ONE_SIDED=owner' 'PT2P_RANKS_PER_NODE=2 PT2P_ONE_SIDED=transport'; do
	run threads 4 $setting one_sided
	! sanitized || continue # see common.sh
	run threads 1 $setting one_sided
	run cooperative 5 $setting one_sided
done
echo "device: all passed"
