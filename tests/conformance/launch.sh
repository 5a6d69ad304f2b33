#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The conformance cases on launched jobs. launch.sh RANKS [PT2P_NAME=value ...] [CASE ...] runs one job; without
# arguments, all of the table below run. Run in the build tree.
. "${srcdir:-.}/tests/common.sh"
need_launcher

# For a tunable of one-sided operations, only the cases with them.
table="
1
2
2 PT2P_SHM_BACKING=devshm
2 PT2P_EAGER_MAX=0
2 PT2P_SHM_SINGLE_COPY=0
2 PT2P_PROGRESS_THREAD=1
2 PT2P_SHM_RING_SLOTS=8 PT2P_SHM_RING_BYTES=4096
2 PT2P_UNEXPECTED_MAX=0
4
4 PT2P_ONE_SIDED=owner one_sided
4 PT2P_ONE_SIDED=transport one_sided
4 PT2P_CALL_WINDOW=1 calls
4 PT2P_SPIN_TIME=0 PT2P_YIELD_TIME=0
4 PT2P_SHM_RING_SLOTS=8 PT2P_SHM_RING_BYTES=4096 PT2P_SHM_SINGLE_COPY=0
8
"
# With sanitizers that is enough: conformance_inprocess has the same memory accesses.
! sanitized || table="
2
4 PT2P_SHM_RING_SLOTS=8 PT2P_SHM_RING_BYTES=4096 PT2P_SHM_SINGLE_COPY=0 $most
8 $most
"

one_job()
{
	ranks=$1
	shift
	settings= cases=
	for word in "$@"; do
		case $word in
		*=*) settings="$settings $word" ;;
		*) cases="$cases $word" ;;
		esac
	done
	status=0
	# shellcheck disable=SC2086 # several words
	launch $case_seconds "$ranks" env $settings ./tests/conformance/conformance_mpi $cases </dev/null >"$work/out" 2>&1 || status=$?
	if [ $status -ne 0 ] || ! grep -q "^$ranks ranks\{0,1\}: [1-9][0-9]* cases passed" "$work/out"; then
		[ $status -ne 124 ] || echo "it did not end in time" >>"$work/out"
		failed "$ranks ranks$settings$cases: status $status"
	fi
	echo "ok: $ranks ranks$settings"
}

if [ $# -gt 0 ]; then
	one_job "$@"
	exit
fi
echo "$table" | while read -r job; do
	# shellcheck disable=SC2086 # several words
	[ -z "$job" ] || one_job $job || exit
done || exit
echo "launch: all passed"
