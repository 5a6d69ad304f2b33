#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# pt2p_perf and the examples, launched. Every payload is verified, JSON parses, bad options are refused, and the
# examples verify their results. Run in the build tree. Exits with 77 without Open MPI's mpirun.
. "${srcdir:-.}/tests/common.sh"
need_launcher
checks=0
failures=0

# expect STATUS PATTERN COMMAND... : the command ends with this status, and a line of its output or its errors matches.
expect()
{
	wanted=$1 pattern=$2
	shift 2
	timeout -k 5 60 "$@" >"$work/out" 2>"$work/err"
	got=$?
	checks=$((checks + 1))
	if [ $got -ne "$wanted" ] || ! cat "$work/out" "$work/err" | grep -Eq -e "$pattern"; then
		echo "FAILED: $*: status $got, wanted $wanted and a line like \"$pattern\":"
		tail -n 20 "$work/out" "$work/err"
		failures=$((failures + 1))
	fi
}

# expect_ranks N STATUS PATTERN COMMAND...
expect_ranks()
{
	ranks=$1 wanted=$2 pattern=$3
	shift 3
	expect "$wanted" "$pattern" "$mpirun" --oversubscribe -n "$ranks" "$@"
}

complain()
{
	echo "FAILED: $*"
	cat "$work/out" "$work/err"
	failures=$((failures + 1))
}

# Payloads: every test, sizes around the limits of the protocols, alone, in pairs, and with an odd rank.
checked='--check --time 0.01 --repetitions 3 --window 8'
for ranks in 1 2 3 4; do
	# shellcheck disable=SC2086 # several words
	expect_ranks $ranks 0 '^windows +1m ' ./pt2p_perf $checked --sizes 0,1,8,112,113,1k,8191,8192,8193,32k,65537,1m
done
# shellcheck disable=SC2086
expect_ranks 2 0 '^bibw +256k ' ./pt2p_perf $checked --sizes 1:256k --test bibw
expect_ranks 2 1 'check: message .* wrong payload' ./pt2p_perf --check --spoil --iterations 2 --sizes 8
expect_ranks 2 1 'check: message .* wrong payload' ./pt2p_perf --check --spoil --iterations 2 --test bw --sizes 64k
expect 1 'check: message .* wrong payload' ./pt2p_perf --check --spoil
for test in echo call callrate windows; do
	expect_ranks 2 1 'check: message .* wrong payload' ./pt2p_perf --check --spoil --iterations 2 --test $test
done
for ranks in 1 2 4; do
	# shellcheck disable=SC2086
	expect_ranks $ranks 0 '^windows +64k ' ./pt2p_perf $checked --one-server --sizes 0,32,64k
done
# shellcheck disable=SC2086
expect_ranks 3 0 '2 callers of rank 2' ./pt2p_perf $checked --one-server --test call --sizes 4m

# The table and JSON, with the bare hand-off or the reason why there is none.
expect_ranks 2 0 '^lat +8 .* us +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+$|^# no bare hand-off: ' \
	./pt2p_perf --test lat --sizes 8 --baseline --time 0.02
expect 0 '^# no bare hand-off: it takes two ranks' ./pt2p_perf --test lat --sizes 8 --baseline --time 0.02
expect_ranks 2 0 '"median"' ./pt2p_perf --json --baseline --time 0.01 --repetitions 3 --sizes 8,64k
if command -v python3 >/dev/null 2>&1; then
	checks=$((checks + 1))
	python3 - "$work/out" <<'END' || complain "pt2p_perf --json"
import json, sys
report = json.load(open(sys.argv[1]))
assert report["ranks"] == 2 and report["pairs"] == 1 and report["ways"], report
points = [(p["test"], p["bytes"]) for p in report["points"]]
assert points == [(t, b) for t in ("lat", "bw", "bibw", "rate", "echo", "call", "callrate", "windows") for b in (8, 65536)], points
assert all(0 < p["lowest"] <= p["median"] <= p["highest"] for p in report["points"]), report
assert "no_baseline" in report or all(p["ratio"] > 0 and p["bare"] > 0 for p in report["points"] if p["test"] == "lat")
END
fi
expect_ranks 2 0 '^  latency, 8 bytes +[0-9.]+ us ' ./pt2p_perf --demo --time 0.02

# Options.
expect 0 '^usage: ' ./pt2p_perf --help
expect 2 '^pt2p_perf: unknown option --colour$' ./pt2p_perf --colour
expect 2 '^usage: ' ./pt2p_perf --colour
for wrong in --test=late --sizes=8x --sizes=4k:1k --sizes= --window=0 --window=-1 --iterations=0 --time=0 --time=x \
	--repetitions=0 --sizes=99999999g; do
	expect 2 'does not understand' ./pt2p_perf $wrong
done
expect 2 'needs a value' ./pt2p_perf --sizes
expect 2 'only with --check' ./pt2p_perf --spoil
expect 2 'only with the tests call, callrate and windows' ./pt2p_perf --one-server --test lat,call
expect 2 'needs a value' ./pt2p_perf --tune-trace
expect 0 'nothing went through a network device' ./pt2p_perf --test lat --sizes 8 --time 0.01 --tune-trace "$work/trace"
expect 1 'No such file' ./pt2p_perf --tune-draw "$work/missing"
printf 'a,b\n' >"$work/trace"
expect 1 'this is no trace' ./pt2p_perf --tune-draw "$work/trace"
printf 'time_ns,peer,kind,period,N_ns,L_ns,ratio\n' >"$work/trace"
expect 1 'nothing was observed' ./pt2p_perf --tune-draw "$work/trace"
printf '10,1,inline,1,100,,\nx\n' >>"$work/trace"
expect 1 'line 3 is damaged: x' ./pt2p_perf --tune-draw "$work/trace"
printf 'time_ns,peer,kind,period,N_ns,L_ns,ratio\n10,1,inline,1,100,200,2\n' >"$work/trace"
expect 0 '/trace\.svg$' ./pt2p_perf --tune-draw "$work/trace"
expect 0 '^1$' grep -c '</svg>' "$work/trace.svg"
expect 1 'No such file' ./pt2p_perf --tune-draw "$work/trace" --output "$work/missing/picture"
expect_ranks 3 0 '^pairs of ranks: 6 by shm$' ./pt2p_perf --routes
expect 0 '^pairs of ranks: none$' ./pt2p_perf --routes
expect 2 'makes no sense with --json' ./pt2p_perf --routes --json
expect 2 'only with --tune-draw' ./pt2p_perf --output "$work/picture"
expect_ranks 2 2 'unknown option 8' ./pt2p_perf 8
checks=$((checks + 1))
[ "$(grep -c '^usage: ' "$work/err")" -eq 1 ] || complain "one rank prints the help, not every rank"

# The examples verify their own results.
for ranks in 1 2 4 6; do
	expect_ranks $ranks 0 '^largest error .*: verified$' ./examples/heat3d -n 21 -s 50 -o "$work/$ranks.pgm"
	checks=$((checks + 1))
	cmp "$work/1.pgm" "$work/$ranks.pgm" || complain "the picture of heat3d depends on the number of ranks"
	expect_ranks $ranks 0 '^9592 primes below 100000: verified$' ./examples/taskfarm 100000
done
expect_ranks 2 0 '^all payloads came back whole$' ./examples/pingpong
expect_ranks 3 0 '^all payloads came back whole$' ./examples/pingpong
expect 1 'needs two ranks' ./examples/pingpong
expect 2 '^usage: ' ./examples/heat3d -n 0
expect 1 'cannot write' ./examples/heat3d -n 8 -s 1 -o "$work/none/slice.pgm"
expect 1 '^usage: ' ./examples/taskfarm none

echo "$checks checks, $failures failed"
[ $failures -eq 0 ]
