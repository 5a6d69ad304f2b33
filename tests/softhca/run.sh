#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# softhca below unmodified rdma-core: the command itself, stock tools, and the tests of this folder. Run in the build
# tree. Exits with 77 where rdma-core's tools are not installed.
. "${srcdir:-.}/tests/common.sh"
command -v ibv_devinfo >/dev/null || skip "ibv_devinfo is not installed (Debian: ibverbs-utils)"
softhca=./softhca/softhca

# expect CODE PATTERN COMMAND...: the exit code, and a line of what it prints.
expect()
{
	wanted=$1 pattern=$2
	shift 2
	code=0
	timeout -k 5 60 "$@" >"$work/out" 2>&1 || code=$?
	if [ "$code" -ne "$wanted" ] || ! grep -Eq -- "$pattern" "$work/out"; then
		cat "$work/out"
		fail "$*: exit code $code instead of $wanted, or no line like $pattern"
	fi
	echo "ok: $*"
}

expect 0 '^usage: softhca' $softhca --help
expect 0 '^softhca .*[0-9]+\.[0-9]+' $softhca --version
expect 2 'unknown option --nonsense' $softhca --nonsense true
expect 2 'no command' $softhca
expect 2 'allowed: 1 to 8' $softhca --devices 9 true
expect 2 'needs a value' $softhca --devices
expect 3 '^here$' $softhca sh -c 'echo here; exit 3'
echo typed | $softhca cat | grep -q '^typed$' || fail "standard input does not reach the command"
expect 0 'transport:.*InfiniBand' $softhca ibv_devinfo -v
grep -Eq 'state:.*PORT_ACTIVE' "$work/out" || fail "ibv_devinfo shows no active port"
$softhca --devices 3 ibv_devices >"$work/out" || fail "ibv_devices"
[ "$(grep -c mlx5_ "$work/out")" = 3 ] || fail "--devices 3 shows $(grep -c mlx5_ "$work/out")"

# Two hosts of one fabric have different LIDs; two commands of one host see the same device.
lid() { sed -n 's/.*port_lid:[^0-9]*\([0-9]*\).*/\1/p'; }
one=$($softhca --fabric "$work/fabric" ibv_devinfo | lid)
again=$($softhca --fabric "$work/fabric" ibv_devinfo | lid)
[ -n "$one" ] && [ "$one" = "$again" ] || fail "one host shows LIDs $one and $again"
# The first process has decided how many devices the host has.
[ "$($softhca --fabric "$work/fabric" --devices 2 ibv_devices | grep -c mlx5_)" = 1 ] || fail "devices appear later"
if unshare --uts true 2>/dev/null; then
	other=$($softhca --fabric "$work/fabric" unshare --uts sh -c 'hostname other && ibv_devinfo' | lid)
	[ -n "$other" ] && [ "$one" != "$other" ] || fail "two hosts show LIDs $one and $other"
	echo "ok: hosts $one and $other"
fi

# Processes that start together make one sysfs tree.
for i in 1 2 3 4 5 6 7 8; do
	$softhca --fabric "$work/crowd" ibv_devinfo >"$work/crowd.$i" 2>&1 || : >"$work/crowd.failed" &
done
wait
[ ! -e "$work/crowd.failed" ] || fail "processes that start together get in each other's way: $(cat "$work"/crowd.?)"
[ "$(cat "$work"/crowd.? | lid | sort -u | wc -l)" = 1 ] || fail "processes of one host show several LIDs"
ls "$work/crowd" | grep -q new && fail "half-made trees stay behind: $(ls "$work/crowd")"

# Signals reach the command, and nothing stays behind.
code=0
timeout -s TERM 1 $softhca sh -c 'echo "$SOFTHCA_FABRIC" >"$0"; exec sleep 30' "$work/where" || code=$?
[ "$code" -eq 124 ] || fail "a signal does not end the command: $code"
fabric=$(cat "$work/where")
[ -n "$fabric" ] && [ ! -e "$fabric" ] || fail "a fabric stays behind: $fabric"

if [ -x tests/softhca/verbs_tests ]; then
	expect 0 'All tests passed' $softhca tests/softhca/verbs_tests
	expect 0 'All tests passed' $softhca --devices 4 tests/softhca/verbs_tests '*identity*'
else
	echo "skipped: tests of verbs: built without libibverbs or Catch2"
fi
echo "softhca: all passed"
