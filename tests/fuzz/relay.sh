#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Run in the build tree.
. "${srcdir:-.}/tests/common.sh"
[ -x softhca/softhca ] || skip "built without libibverbs"
timeout -k 5 100 softhca/softhca tests/fuzz/relay "$@" || fail "relay"
