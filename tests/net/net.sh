#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Run in the build tree.
. "${srcdir:-.}/tests/common.sh"
softhca=./softhca/softhca
[ -x $softhca ] || skip "built without libibverbs"
seconds=400
! sanitized || seconds=900
timeout -k 5 $seconds $softhca tests/net/net_tests || fail "net_tests"
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
# With 64 KiB of memory that may be locked, softhca works: no kernel locks anything. Where a registration is refused,
# the limit is named. Root has to give up the right to lock more.
cat >"$work/limited" <<'END'
ulimit -l 64
[ "$(id -u)" -ne 0 ] || set -- setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock "$@"
exec "$@"
END
if sh "$work/limited" true 2>/dev/null; then
	timeout -k 5 60 sh "$work/limited" $softhca tests/net/net_tests '[.refused]' || fail "net_tests, 64 KiB of locked memory"
	PT2P_TRANSPORTS=self,rc timeout -k 5 60 sh "$work/limited" $softhca ./pt2p_info >"$work/out" || fail "pt2p_info"
	grep -Eq '^ *rc +usable' "$work/out" || fail "rc is not usable on softhca with 64 KiB of locked memory"
	PT2P_TRANSPORTS=self,rc timeout -k 5 60 sh "$work/limited" $softhca --fault 'refuse mr' ./pt2p_info >"$work/out" ||
		fail "pt2p_info, refuse mr"
	grep -Eq '^ *rc +not usable: .*may lock 64 KiB.*limits\.d' "$work/out" || fail "the limit is not named: $(cat "$work/out")"
else
	echo "skipped: locked memory: the limit cannot be set"
fi
