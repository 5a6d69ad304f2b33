#!/bin/sh
# launch.sh RANKS [PT2P_NAME=value ...] [CASE ...]: the conformance cases on a job of that many ranks.
. "${srcdir:-.}/tests/common.sh"
need_launcher
ranks=$1
shift
cases=
for t in "$@"; do
	case $t in
	*=*) export "${t?}" ;;
	*) cases="$cases $t" ;;
	esac
done
# shellcheck disable=SC2086 # several words
launch 170 "$ranks" ./tests/conformance/conformance_mpi $cases
status=$?
[ $status -ne 124 ] || echo "FAIL: did not end in time"
exit $status
