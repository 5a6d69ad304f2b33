#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# softhca across processes: many of them, one that is killed, several hosts, and one that sends anything.
. "${srcdir:-.}/tests/common.sh"
softhca=./softhca/softhca
tests=tests/softhca/verbs_tests
[ -x $tests ] || skip "built without libibverbs or Catch2"

# begin NAME N: a test with that many sides.
begin()
{
	EXCHANGE=$work/$1 SIDES=$2
	export EXCHANGE SIDES
	mkdir "$EXCHANGE"
	echo "$1 ..."
}
# side I TEST [COMMAND...]: runs one side, below COMMAND.
side()
{
	i=$1 test=$2 code=0
	shift 2
	SIDE=$i $softhca --fabric "$EXCHANGE/fabric" "$@" timeout -k 5 90 $tests "$test" >"$EXCHANGE/out.$i" 2>&1 || code=$?
	echo $code >"$EXCHANGE/code.$i"
}
# ended I CODE: checks how the side has ended.
ended()
{
	code=$(cat "$EXCHANGE/code.$1")
	[ "$code" = "$2" ] || { cat "$EXCHANGE"/out.*; fail "side $1 ends with $code instead of $2"; }
}
# together TEST: runs all sides at once. None may fail.
together()
{
	i=0
	while [ $i -lt "$SIDES" ]; do
		side $i "$1" &
		i=$((i + 1))
	done
	wait
	while [ $i -gt 0 ]; do
		i=$((i - 1))
		ended $i 0
	done
}

all='every process exchanges messages with every other'
begin crowd 8
together "$all"

begin killed 3
for i in 0 1 2; do
	side $i 'a side that loses another gets errors\, and goes on with those that are left' &
done
wait
ended 0 0
ended 1 137
ended 2 0

begin again 3
target='a target recognizes an initiator with the same number in a new process as a new one'
side 0 "$target" &
side 1 "$target"
ended 1 137
# Slots are given out in turn, so all others are given out before the first one again.
$softhca --fabric "$EXCHANGE/fabric" tests/softhca/hostile/fuzz --joins 1022 || fail "joins"
side 2 "$target"
ended 2 137
wait
ended 0 0

# A process with another host name (and another network, where that is possible) is on another host.
for spaces in --uts '--uts --net'; do
	# shellcheck disable=SC2086
	unshare $spaces true 2>/dev/null || continue
	begin "hosts$(echo "$spaces" | tr -d ' ')" 3
	side 0 "$all" &
	# shellcheck disable=SC2086
	side 1 "$all" unshare $spaces sh -c 'hostname second && exec "$@"' sh &
	# shellcheck disable=SC2086
	side 2 "$all" unshare $spaces sh -c 'hostname third && exec "$@"' sh &
	wait
	for i in 0 1 2; do
		ended $i 0
	done
	lids=$(for i in 0.1 1.0 2.0; do head -n 1 "$EXCHANGE/qp.$i"; done | sort -u | wc -l)
	[ "$lids" -ge 3 ] || fail "three hosts have the same LIDs"
done

echo "anything ..."
for seed in 1 70000; do
	timeout -k 5 90 $softhca tests/softhca/hostile/fuzz $seed 2 || fail "fuzz $seed"
done
echo "processes: all passed"
