#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Run in the build tree. Contexts in one process, through shared memory and over softhca.
. "${srcdir:-.}/tests/common.sh"
timeout -k 5 200 tests/open/open_tests || fail "open_tests"
softhca=./softhca/softhca
[ -x $softhca ] || exit 0
for transport in rc dct; do
	PT2P_TRANSPORTS=self,$transport timeout -k 5 300 $softhca tests/open/open_tests || fail "open_tests over $transport"
done
