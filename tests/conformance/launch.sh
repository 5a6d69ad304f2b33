#!/bin/sh
# launch.sh RANKS [PT2P_NAME=value ...]: the conformance cases on a job of that many ranks.
. "${srcdir:-.}/tests/common.sh"
need_launcher
ranks=$1
shift
for t in "$@"; do
	export "${t?}"
done
launch 170 "$ranks" ./tests/conformance/conformance_mpi
status=$?
[ $status -ne 124 ] || echo "FAIL: did not end in time"
exit $status
