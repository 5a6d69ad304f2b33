#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The examples as users run them: grids with unequal blocks, more ranks than cores, other protocols, and failures that
# end the job with an explanation. tools.sh runs the common cases. Run in the build tree.
. "${srcdir:-.}/tests/common.sh"
need_launcher
# expect RANKS STATUS PATTERN [mpirun option ...] PROGRAM [argument ...] : the job ends with this status, and a line of
# its output matches. Status 1 stands for any failure, except that the job had to be killed.
expect()
{
	ranks=$1 wanted=$2 pattern=$3
	shift 3
	launch 60 "$ranks" "$@" >"$work/log" 2>&1
	got=$?
	checks=$((checks + 1))
	case $wanted.$got in
	0.0) ;;
	1.0 | 1.124 | 1.137) complain "$*, $ranks ranks: status $got" && return ;;
	1.*) ;;
	*) complain "$*, $ranks ranks: status $got" && return ;;
	esac
	grep -Eq -e "$pattern" "$work/log" || complain "$*, $ranks ranks: no line like \"$pattern\""
}

verified='^largest error .*: verified$'

# 8 ranks: a 2 x 2 x 2 grid with unequal blocks, blocks of one point, and the same picture as one rank makes.
expect 1 0 "$verified" ./examples/heat3d -n 21 -s 40 -o "$work/1.pgm"
expect 8 0 "$verified" ./examples/heat3d -n 21 -s 40 -o "$work/8.pgm"
checks=$((checks + 1))
cmp "$work/1.pgm" "$work/8.pgm" || complain "the picture of heat3d depends on the number of ranks"
checks=$((checks + 1))
[ "$(head -n 2 "$work/1.pgm" | tr '\n' ' ')" = 'P5 21 21 ' ] && [ "$(wc -c <"$work/1.pgm")" -eq $((13 + 21 * 21)) ] ||
	complain "the picture of heat3d is not a PGM of 21 x 21 points"
expect 8 0 'on 2 x 2 x 2 ranks' ./examples/heat3d -n 2 -s 3
expect 7 0 'on 7 x 1 x 1 ranks' ./examples/heat3d -n 9 -s 3
expect 2 0 '[0-9.]+ % of it in communication$' ./examples/heat3d -n 16 -s 10

# All messages are announced, and large ones go through the segment.
for option in PT2P_EAGER_MAX=0 PT2P_SHM_SINGLE_COPY=0 PT2P_SHM_COOPERATE_MIN=4096; do
	expect 4 0 "$verified" -x $option ./examples/heat3d -n 70 -s 5
	expect 2 0 '^all payloads came back whole$' -x $option ./examples/pingpong
done

expect 8 0 '^all payloads came back whole$' ./examples/pingpong
expect 8 0 '^9592 primes below 100000: verified$' ./examples/taskfarm 100000
expect 8 0 '^0 primes below 2: verified$' ./examples/taskfarm 2 # more workers than tasks
for option in PT2P_ONE_SIDED=auto PT2P_ONE_SIDED=transport PT2P_ONE_SIDED=owner; do
	expect 1 0 '^[0-9]+ steps in 500 tasks: verified$' -x $option ./examples/workqueue
	expect 4 0 '^[0-9]+ steps in 500 tasks: verified$' -x $option ./examples/workqueue
done
expect 8 0 '^134100 steps in 1 tasks: verified$' ./examples/workqueue 1 # more ranks than tasks

for window in 64 1; do
	expect 1 0 '^1000 numbers: verified$' -x PT2P_CALL_WINDOW=$window ./examples/counter
	expect 4 0 '^4000 numbers: verified$' -x PT2P_CALL_WINDOW=$window ./examples/counter
	expect 2 0 '^20000 numbers, [0-9.]+ M/s: verified$' -x PT2P_CALL_WINDOW=$window ./examples/sequencer 20000
	expect 4 0 '^6000 numbers, [0-9.]+ M/s: verified$' -x PT2P_CALL_WINDOW=$window ./examples/sequencer 2000
	for ranks in 1 2 8; do
		expect $ranks 0 '^724 solutions for 10 queens, [0-9]+ tasks, [0-9]+ stolen: verified$' \
			-x PT2P_CALL_WINDOW=$window ./examples/tasks 10
	done
done
expect 3 0 '^1 solutions for 1 queens, 1 tasks, 0 stolen: verified$' ./examples/tasks 1

for option in PT2P_ONE_SIDED=auto PT2P_ONE_SIDED=owner PT2P_SHM_SINGLE_COPY=0 PT2P_CALL_WINDOW=1; do
	expect 4 0 '^rank 3: 3000001 bytes written and read$' -x $option ./examples/files
	expect 2 0 '^rank 1: 1 bytes written and read$' -x $option ./examples/files 1
done

# Failures are explained by rank 0 and end every rank.
expect 8 1 '^usage: heat3d' ./examples/heat3d -n 1
expect 2 1 '^usage: tasks' ./examples/tasks 15
for program in heat3d pingpong taskfarm workqueue counter sequencer tasks files; do
	expect 2 1 'no transport reaches the peer' -x PT2P_TRANSPORTS=self ./examples/$program
	expect 2 1 'PT2P_EAGER_MAXX.*did you mean PT2P_EAGER_MAX' -x PT2P_EAGER_MAXX=1 ./examples/$program
done

echo "$checks checks, $failures failed"
[ $failures -eq 0 ]
