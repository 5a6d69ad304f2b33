#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The suites of open contexts and of the libfabric provider under ThreadSanitizer, for make check-threads. Run in the
# build tree. Helper threads and threads that make progress are in all cases, so nearly all run.
#
# Left out: cases that fork, as ThreadSanitizer does not follow threads into a child; cases that measure memory, of which
# it needs much; and one where a value that another context has written through shared memory is read, as it does not see
# the order between two mappings of one memory.
. "${srcdir:-.}/tests/common.sh"
FI_PROVIDER_PATH=$PWD/.libs
PT2P_FINALIZE_TIME=300ms
export FI_PROVIDER_PATH PT2P_FINALIZE_TIME
run()
{
	timeout -k 5 250 "$@" >"$work/out" 2>&1 || { tail -n 200 "$work/out"; fail "$*"; }
	echo "ok: $1: $(grep -E '^All tests passed' "$work/out")"
}
[ -x tests/open/open_tests ] || skip "built without Catch2"
run tests/open/open_tests '~a server with few numbers*' '~contexts that come and go*' '~a forked child*' '~another user*'
[ ! -x tests/ofi/ofi_tests ] || run tests/ofi/ofi_tests '~threads add to one value*'
