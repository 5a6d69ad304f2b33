#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# pt2p_perf and every example over each RDMA transport on softhca, chosen by PT2P_TRANSPORTS alone. Payloads and results
# are verified. Then shared memory and RDMA in one job. Run in the build tree. Exits with 77 without Open MPI's mpirun
# or without softhca.
. "${srcdir:-.}/tests/common.sh"
need_launcher
softhca=./softhca/softhca
[ -x $softhca ] || skip "built without libibverbs"
checks=0
failures=0
seconds=60
! sanitized || seconds=170

complain()
{
	echo "FAILED: $*"
	tail -n 20 "$work/out" "$work/err"
	failures=$((failures + 1))
}

# expect RANKS STATUS PATTERN PROGRAM [argument ...] : the job ends with this status, and a line of its output or errors
# matches.
expect()
{
	ranks=$1 wanted=$2 pattern=$3
	shift 3
	# softhca would bring AddressSanitizer into mpirun, too, which has leaks. So leaks are looked for in the ranks only.
	ASAN_OPTIONS=${ASAN_OPTIONS-}:detect_leaks=0 timeout -k 5 $seconds $softhca "$mpirun" --oversubscribe --bind-to none \
		-x "ASAN_OPTIONS=${ASAN_OPTIONS-}:" -n "$ranks" "$@" >"$work/out" 2>"$work/err"
	got=$?
	checks=$((checks + 1))
	if [ $got -ne "$wanted" ] || ! cat "$work/out" "$work/err" | grep -Eq -e "$pattern"; then
		complain "PT2P_TRANSPORTS=$PT2P_TRANSPORTS, $ranks ranks: $*: status $got, wanted $wanted and a line like \"$pattern\""
	fi
}

# The transports that pt2p_info lists as usable, except for those within a node.
transports=
for candidate in $($softhca ./pt2p_info --transports | sed -n 's/^  \([a-z]*\)  *usable (.*/\1/p'); do
	case $candidate in self | shm) ;; *) transports="$transports $candidate" ;; esac
done
[ -n "$transports" ] || fail "pt2p_info lists no transport of RDMA on softhca"

# Each transport alone. With sanitizers, the jobs further down are enough (see common.sh).
alone=$transports repetitions=3
! sanitized || alone='' repetitions=1
checked="--check --time 0.01 --repetitions $repetitions --window 8"
for transport in $alone; do
	PT2P_TRANSPORTS=self,$transport
	export PT2P_TRANSPORTS
	before=$failures
	# Sizes around the limits of the protocols: inline, one buffer, eager.
	for ranks in 2 3 4; do
		# shellcheck disable=SC2086 # several words
		expect $ranks 0 '^windows +1m ' ./pt2p_perf $checked --sizes 0,1,8,48,49,1k,8176,8177,16384,16385,65537,1m
	done
	expect 1 0 '^lat +8 ' ./pt2p_perf --check --time 0.01 --test lat --sizes 8
	expect 2 1 'check: message .* wrong payload' ./pt2p_perf --check --spoil --iterations 2 --sizes 8
	expect 2 1 'check: message .* wrong payload' ./pt2p_perf --check --spoil --iterations 2 --test bw --sizes 64k
	# shellcheck disable=SC2086
	expect 3 0 '^windows +4k ' ./pt2p_perf $checked --one-server --sizes 0,32,4k
	# The summary says which transport they took.
	expect 2 0 "^# rank 0 to 1: $transport(,|\$)" ./pt2p_perf --test lat --sizes 8 --time 0.01
	expect 2 0 "\"way\": \"$transport[\",]" ./pt2p_perf --json --test lat,bw --sizes 8,64k --time 0.01
	expect 2 0 "^  rank 0 to 1 +$transport(,|\$)" ./pt2p_perf --demo --time 0.01

	# What limits the channels, and the tuner's trace: at least a line for each kind of payload, and a picture. Device
	# memory is set and not tried: where it is slower, there would be only its trials. The queue has less room than the
	# program would use, so that periods end on a busy machine, too. L is observed only at the end of a period.
	PT2P_REPORT=1 PT2P_NET_STAGING=device PT2P_NET_SEND_DEPTH=16
	export PT2P_REPORT PT2P_NET_STAGING PT2P_NET_SEND_DEPTH
	expect 2 0 "^rank 0 to 1 by $transport\$" ./pt2p_perf --test rate --sizes 8,512,4000,1m --time 0.05 --tune-trace "$work/trace"
	unset PT2P_REPORT PT2P_NET_STAGING PT2P_NET_SEND_DEPTH
	checks=$((checks + 1))
	[ "$(sed 1q "$work/trace")" = time_ns,peer,kind,period,N_ns,L_ns,ratio ] || complain "the columns of a trace"
	for kind in inline 'device memory' buffer; do
		checks=$((checks + 1))
		awk -F, -v kind="$kind" 'NF == 7 && $2 == 1 && $3 == kind && $4 > 0 && $5 > 0 && $6 > 0 && $7 > 0 { n++ } END { exit !n }' \
			"$work/trace" || complain "the trace has no line on $kind"
	done
	checks=$((checks + 1))
	grep -q '^[0-9]*,0,bulk,' "$work/trace.1" || complain "the trace of rank 1, which reads large messages, has no line on bulk"
	./pt2p_perf --tune-draw "$work/trace" --output - >"$work/out" 2>"$work/err" || complain "pt2p_perf --tune-draw"
	if command -v python3 >/dev/null 2>&1; then
		checks=$((checks + 1))
		python3 - "$work/out" <<'END' || complain "the picture of a trace"
import sys, xml.etree.ElementTree as xml
page = xml.parse(sys.argv[1]).getroot()
svg = "{http://www.w3.org/2000/svg}"
width, height = float(page.get("width")), float(page.get("height"))
dots = list(page.iter(svg + "circle"))
assert dots and all(0 <= float(d.get("cx")) <= width and 0 <= float(d.get("cy")) <= height for d in dots)
names = " ".join(t.text for t in page.iter(svg + "text"))
assert all("rank 1, " + kind in names for kind in ("inline", "device memory", "buffer")), names
END
	fi

	for ranks in 1 2 4 8; do
		expect $ranks 0 '^largest error .*: verified$' ./examples/heat3d -n 21 -s 40 -o "$work/$ranks.pgm"
		checks=$((checks + 1))
		cmp "$work/1.pgm" "$work/$ranks.pgm" || complain "the picture of heat3d depends on the number of ranks"
	done
	expect 4 0 '^largest error .*: verified$' ./examples/heat3d -n 70 -s 5
	for ranks in 2 3 8; do
		expect $ranks 0 '^all payloads came back whole$' ./examples/pingpong
		expect $ranks 0 '^9592 primes below 100000: verified$' ./examples/taskfarm 100000
		expect $ranks 0 '^724 solutions for 10 queens, .*: verified$' ./examples/tasks 10
		expect $ranks 0 '^[0-9]+ numbers, [0-9.]+ M/s: verified$' ./examples/sequencer 1000
	done
	expect 3 0 '^rank 2: 1000000 bytes written and read$' ./examples/files 1000000
	PT2P_EAGER_MAX=0
	export PT2P_EAGER_MAX
	expect 2 0 '^all payloads came back whole$' ./examples/pingpong
	expect 4 0 '^largest error .*: verified$' ./examples/heat3d -n 21 -s 20
	unset PT2P_EAGER_MAX
	[ $failures -ne "$before" ] || echo "ok: pt2p_perf and the examples with $PT2P_TRANSPORTS"
done

# Two pretended nodes of two ranks: shared memory within, RDMA between.
for transport in $transports; do
	PT2P_TRANSPORTS=self,shm,$transport PT2P_RANKS_PER_NODE=2
	export PT2P_TRANSPORTS PT2P_RANKS_PER_NODE
	before=$failures
	# shellcheck disable=SC2086
	expect 4 0 "^# rank 0 to 2: $transport(,|\$)" ./pt2p_perf $checked --sizes 0,8,1k,64k,1m
	expect 4 0 '^largest error .*: verified$' ./examples/heat3d -n 21 -s 40
	expect 4 0 '^9592 primes below 100000: verified$' ./examples/taskfarm 100000
	expect 4 0 '^all payloads came back whole$' ./examples/pingpong
	[ $failures -ne "$before" ] || echo "ok: pt2p_perf and the examples with $PT2P_TRANSPORTS, two ranks a node"
done

# Groups of nodes with one rank each. All ranks must have the same groups, else they report it.
case "$transports" in *dct*)
	PT2P_TRANSPORTS=self,shm,rc,dct PT2P_RANKS_PER_NODE=1
	export PT2P_TRANSPORTS PT2P_RANKS_PER_NODE
	before=$failures
	printf '0,2 # a rack\n1\n' >"$work/groups"
	short='./pt2p_perf --test lat --sizes 8 --time 0.01'
	# shellcheck disable=SC2086
	for groups in nodes:1 '0;1-2' "file:$work/groups"; do
		expect 3 0 '^# rank 0 to 1: dct(,|$)' env PT2P_ROUTE=direct "PT2P_GROUPS=$groups" $short
	done
	# shellcheck disable=SC2086
	expect 1 1 'rank [01] has PT2P_ROUTE=auto and [12] groups .* and this rank, [01], has PT2P_ROUTE=auto and [12] groups' \
		env PT2P_GROUPS=nodes:2 $short : -n 1 env PT2P_GROUPS=nodes:1 $short
	# shellcheck disable=SC2086
	expect 1 1 'rank [01] has PT2P_(RC_CONNECTIONS=1024|ROUTE=).* and this rank, [01], has PT2P_(RC_CONNECTIONS=1024|ROUTE=).*: all ranks' \
		env PT2P_GROUPS=nodes:2 $short : -n 1 $short
	expect 2 1 'PT2P_GROUPS="0": node 1 \(.+\) is in no group' env PT2P_GROUPS=0 ./pt2p_perf
	# From 0: across to 4, inside of the group to 2, on the node to 1.
	expect 8 0 '^ +0 +\. +shm +rc +by 2 +dct +by 4 +by 4 +by 4$' \
		env PT2P_RANKS_PER_NODE=2 PT2P_GROUPS=nodes:2 PT2P_ROUTE=forward ./pt2p_perf --routes
	[ $failures -ne "$before" ] || echo "ok: groups of nodes"
	;;
esac

echo "$checks checks, $failures failed"
[ $failures -eq 0 ]
