#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Run in the build tree.
. "${srcdir:-.}/tests/common.sh"
softhca=./softhca/softhca
[ -x $softhca ] || skip "built without libibverbs"
timeout -k 5 200 $softhca tests/net/net_tests || fail "net_tests"
timeout -k 5 100 $softhca tests/net/net_tests "[.often]" || fail "net_tests, often"
for transport in rc dct; do
	timeout -k 5 60 $softhca tests/net/net_tests "[.fatal_$transport]" || fail "net_tests, fatal, $transport"
done
# What a message costs is counted exactly when every doorbell is trapped.
timeout -k 5 100 $softhca --exact tests/net/net_tests '[.exact]' || fail "net_tests, exact mode"
# Refused from the start.
for rule in 'refuse dm' 'refuse qp after=3' 'refuse mr after=4'; do
	timeout -k 5 60 $softhca --fault "$rule" tests/net/net_tests '[.refused]' || fail "net_tests, $rule"
done
