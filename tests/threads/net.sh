#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Threads over rc and dct on softhca, for make check-threads. Run in the build tree.
#
# One-sided operations go through the device, too. If ranks accessed each other's memory directly and took turns by
# messages over the device, ThreadSanitizer would report races, as it does not see the device. The runs without a device
# test direct accesses.
. "${srcdir:-.}/tests/common.sh"
softhca=./softhca/softhca
[ -x $softhca ] || skip "built without libibverbs"
TSAN_OPTIONS=suppressions=$srcdir/tests/tsan.supp
export TSAN_OPTIONS

run()
{
	timeout -k 5 170 "$@" >"$work/out" 2>&1 || { tail -n 200 "$work/out"; fail "$*"; }
	echo "ok: $*"
}
for transport in rc dct; do
	PT2P_TRANSPORTS=self,$transport
	export PT2P_TRANSPORTS
	run $softhca tests/threads/threads 8
	run $softhca tests/threads/call_races 200
	unset PT2P_TRANSPORTS
	for cases in '' 'PT2P_PROGRESS_THREAD=1 random_exact put_get signal_order barrier'; do
		# shellcheck disable=SC2086 # several words
		run $softhca tests/conformance/conformance_inprocess threads 2 PT2P_TRANSPORTS=self,$transport \
			PT2P_ONE_SIDED=transport $cases
	done
done
# Calls over several lanes of an endpoint.
run $softhca tests/conformance/conformance_inprocess threads 3 PT2P_TRANSPORTS=self,rc PT2P_ONE_SIDED=transport \
	PT2P_NET_LANES=3 calls
run env PT2P_TRANSPORTS=self,rc PT2P_NET_LANES=3 $softhca tests/threads/call_races 200
# By datagram.
run env PT2P_TRANSPORTS=self,rc,ud PT2P_CALL_INPUT_BY=datagram $softhca tests/threads/call_races 200
# Ranks whose progress threads forward messages.
run $softhca tests/conformance/conformance_inprocess threads 4 PT2P_TRANSPORTS=self,rc,dct PT2P_RANKS_PER_NODE=1 \
	PT2P_GROUPS=nodes:2 PT2P_ROUTE=auto both_directions random_exact put_get signal_order barrier
run $softhca tests/conformance/conformance_inprocess threads 4 PT2P_TRANSPORTS=self,rc,dct PT2P_RANKS_PER_NODE=1 \
	PT2P_GROUPS=nodes:2 PT2P_ROUTE=forward PT2P_FORWARD_TIMEOUT=5ms both_directions random_exact put_get barrier
