#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The conformance cases through reliable connections, on devices in software: in-process, launched, on a wire that loses,
# doubles and reorders packets, and with every doorbell trapped. Run in the build tree.
. "${srcdir:-.}/tests/common.sh"
softhca=./softhca/softhca
[ -x $softhca ] || skip "built without libibverbs"

run()
{
	timeout -k 5 170 "$@" >"$work/out" 2>&1 || { tail -n 50 "$work/out"; fail "$*"; }
	grep -q '[1-9][0-9]* cases passed' "$work/out" || { cat "$work/out"; fail "$*: no case ran"; }
	echo "ok: $*"
}
cases=tests/conformance/conformance_inprocess
rc=PT2P_TRANSPORTS=self,rc
for ranks in 2 3 8; do
	run $softhca $cases threads $ranks $rc
done
run $softhca $cases cooperative 4 $rc
run $softhca $cases threads 2 $rc PT2P_RC_MESSAGE_BYTES=256 PT2P_RC_RECEIVES=16 PT2P_RC_SEND_DEPTH=4
run $softhca $cases threads 2 $rc PT2P_EAGER_MAX=0
run $softhca $cases threads 2 $rc PT2P_PROGRESS_THREAD=1
run $softhca --fault 'drop rate=0.01; duplicate rate=0.02; reorder rate=0.01' $cases threads 2 $rc PT2P_RC_TIMEOUT=8
run $softhca --exact $cases threads 2 $rc
one_sided='one_sided_ways put_get put_get_large signal_order signal_sum atomics fence many_one_sided mixed_requests
	one_sided_errors released_memory'
# shellcheck disable=SC2086 # several words
for setting in PT2P_RANKS_PER_NODE=1 PT2P_ONE_SIDED=owner 'PT2P_ONE_SIDED=owner PT2P_RC_MESSAGE_BYTES=256'; do
	run $softhca $cases threads 3 $rc $setting $one_sided
done
# shellcheck disable=SC2086
run $softhca $cases threads 4 PT2P_RANKS_PER_NODE=2 $one_sided

need_launcher
export PT2P_TRANSPORTS=self,rc
for ranks in 2 4; do
	run "$mpirun" --oversubscribe --bind-to none -n $ranks $softhca --fabric "$work/fabric" tests/conformance/conformance_mpi
done
echo "rc: all passed"
