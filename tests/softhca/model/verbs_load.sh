#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The program that loads the device's model moves the right bytes, live and in virtual time, where two runs are the same
# to the bit. Run in the build tree.
. "${srcdir:-.}/tests/common.sh"
softhca=./softhca/softhca load=./softhca/studies/verbs_load
[ -x $load ] || skip "built without libibverbs"
# Sanitizers do not know fibres, and the program does not free its objects.
model=yes
case $(nm -D softhca/.libs/libsofthca_time.so 2>/dev/null) in
*__asan* | *__tsan_init*)
	model=no
	export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
	;;
esac

small="machines=3 threads=2 qps=2 window=8 bytes=40 ops=200 check=1"
for what in "op=read transport=rc" "op=write transport=rc inline=1" "op=send transport=rc" "op=atomic transport=rc" \
	"op=send transport=ud" "op=read transport=dc" "op=write transport=dc" "op=send transport=dc"; do
	for how in "pattern=in" "pattern=all period=4 postlist=4"; do
		# shellcheck disable=SC2086
		timeout -k 5 60 $softhca --devices 3 $load $what $how $small >"$work/out" || fail "$what $how, live"
		[ $model = yes ] || continue
		# shellcheck disable=SC2086
		timeout -k 5 60 $softhca --model connectib --devices 3 $load $what $how $small >"$work/one" || fail "$what $how, model"
		# shellcheck disable=SC2086
		timeout -k 5 60 $softhca --model connectib --devices 3 $load $what $how $small >"$work/other" || fail "$what $how, model"
		cmp "$work/one" "$work/other" || fail "$what $how: two runs of the model differ"
		echo "ok: $what $how"
	done
done
# With one queue pair on each machine, some of the completion queues that are polled belong to no queue pair.
timeout -k 5 60 $softhca --devices 3 $load op=send pattern=all machines=3 ops=200 check=1 >"$work/out" || fail "idle receivers, live"
if [ $model = yes ]; then
	timeout -k 5 60 $softhca --model connectib --devices 3 $load op=send pattern=all machines=3 ops=200 check=1 >"$work/out" ||
		fail "idle receivers, model"
	# latency TARGET PARAMETERS [WINDOW]: mean of READs by one DC initiator, ns
	latency()
	{
		timeout -k 5 60 $softhca --model "connectx5$2" --devices 3 $load header=1 op=read transport=dc pattern=out machines=3 \
			target="$1" window="${3:-1}" ops=400 | awk -F , 'NR == 1 { for (i = 1; i <= NF; ++i) if ($i == "mean_ns") column = i } NR == 2 { print $column }'
	}
	same=$(latency same '') turn=$(latency turn '') same_idle=$(latency same ,dc_idle=0) turn_idle=$(latency turn ,dc_idle=0)
	# An initiator that disconnects by itself connects for each request, but never has an old target to tell.
	[ "$same" -lt "$same_idle" ] && [ "$same_idle" -eq "$turn_idle" ] && [ "$turn_idle" -lt "$turn" ] ||
		fail "READ by DC: $same ns to one target, $turn in turn; with dc_idle=0 $same_idle and $turn_idle"
	echo "ok: dc_idle"
	# An initiator that has more to do goes on when it has the last answer. The program has to wait until the answer is
	# visible.
	[ "$(latency turn ,pcie_write=200 8)" -eq "$(latency turn ,pcie_write=0 8)" ] &&
		[ "$(latency turn ,pcie_write=200)" -gt "$(latency turn ,pcie_write=0)" ] || fail "READ by DC: an answer is waited for too long"
	echo "ok: DC goes on"
	# field COLUMN PROFILE OPTION...
	devices=6
	field()
	{
		column=$1 profile=$2
		shift 2
		timeout -k 5 60 $softhca --model "$profile" --devices "$devices" $load header=1 "$@" >"$work/out" || fail "$*"
		awk -F , -v name="$column" 'NR == 1 { for (i = 1; i <= NF; ++i) if ($i == name) column = i } NR == 2 { print $column }' "$work/out"
	}
	# The rate of the first is higher than that of the second by so many per cent and no more than so many.
	falls()
	{
		awk -v a="$1" -v b="$2" -v least="$3" -v most="$4" \
			"BEGIN { fall = 100 * (1 - b / a); exit !(fall >= least && fall <= most) }" ||
			fail "$5: from $1 to $2"
		echo "ok: $5: from $1 to $2 M/s"
	}
	# Published: 89.5 and 63.0 (SMART).
	burst="op=write bytes=8 threads=96 burst=1 work=130"
	# shellcheck disable=SC2086
	falls "$(field rate connectx6 $burst window=8)" "$(field rate connectx6 $burst window=24)" 20 45 "WRITEs beyond the WQE cache"
	# Published: 47.7 and 36.8 (RB).
	swarm="pattern=all machines=6 threads=11 qps=5 window=64 choose=random"
	# shellcheck disable=SC2086
	falls "$(field rate_per_machine connectib $swarm period=8)" "$(field rate_per_machine connectib $swarm period=16)" 5 30 "READs with signal periods of 8 and 16"
	# Published: 122 and 82 (K16). A message with payload takes its share of a read of receives, and no more.
	inward="op=send transport=ud inline=1 pattern=in machines=6 threads=8 qps=2 window=16 period=16 postlist=16 receivers=28"
	# shellcheck disable=SC2086
	with=$(field rate connectib $inward bytes=16)
	# shellcheck disable=SC2086
	falls "$(field rate connectib $inward bytes=0)" "$with" 20 45 "datagrams without payload and with 16 bytes"
	# shellcheck disable=SC2086
	falls "$(field rate connectib,receive_burst=1000 $inward bytes=16)" "$with" 20 45 "the same where a read of receives lasts for 1000"
	one=$(field median_ns connectib op=send bytes=16) share=$(field median_ns connectib,receive_burst=1 op=send bytes=16)
	[ "$((share - one))" -gt 300 ] && [ "$((share - one))" -lt 420 ] ||
		fail "SEND: $one ns, $share with a read for each receive"
	# Published: WRITEs of 36 bytes 9.6 M/s or more, SENDs at most 8.2, from 448 queue pairs (S0).
	many="bytes=36 inline=1 pattern=in machines=29 threads=16 window=16"
	devices=29
	# shellcheck disable=SC2086
	falls "$(field rate connectx3 op=write $many)" "$(field rate connectx3 op=send $many)" 40 65 "WRITEs and SENDs to one ConnectX-3"
	# Published: 28 Gb/s of WRITEs, 9.6 M/s, over 448 queue pairs, and 0.7 M/s of READs. A unit reads the context once for
	# many WRITEs and once for their acknowledgement, but not for READs.
	over="machines=29 threads=16 qps=28"
	for stay in '' ,unit_stay=1; do
		# shellcheck disable=SC2086
		rate=$(field rate connectx3$stay op=write bytes=365 $over window=3584 ops=60000)
		misses=$(awk -F , 'NR == 1 { for (i = 1; i <= NF; ++i) if ($i == "requester_misses_per_op") column = i } NR == 2 { print $column }' "$work/out")
		# shellcheck disable=SC2086
		reads=$(field rate connectx3$stay op=read bytes=365 $over window=448 ops=5000)
		# shellcheck disable=SC2086
		few=$(field rate connectx3$stay op=write bytes=365 $over window=28 ops=5000)
		echo "over 448 queue pairs$stay: WRITEs $rate M/s, one at a time $few, READs $reads; $misses misses of contexts for a WRITE"
		awk -v stay="$stay" -v rate="$rate" -v few="$few" -v reads="$reads" -v misses="$misses" 'BEGIN {
			exit !(few < 1.2 && reads > 0.5 && reads < 1 && (stay ? rate < 1.3 && misses > 0.8 : rate > 8.5 && rate < 11 && misses < 0.1))
		}' || fail "WRITEs and READs over many queue pairs"
	done
	devices=6
	# Nothing is lost when a message that would have asked for an acknowledgement of many is.
	for fault in 'drop rate=0.02 seed=2' 'reorder rate=0.05; duplicate rate=0.05' 'starve rate=0.1'; do
		for op in write send read; do
			# shellcheck disable=SC2086
			timeout -k 5 60 $softhca --model connectx3,requester_cache=1,wqe_cache=2 --fault "$fault" --devices 3 $load op=$op \
				pattern=all period=4 postlist=4 $small >"$work/out" || fail "few contexts, $op, $fault"
		done
	done
	# Published: 1.90, 0.58, 0.34 and 0.25 M/s of 1, 8, 32 and 96 threads with one queue pair; of queue pairs of their own
	# 111 of 96, and 19 where they share doorbell registers (SMART).
	devices=2
	load_of="op=read bytes=8 window=8 burst=1 work=130"
	# shellcheck disable=SC2086
	one=$(field rate connectx6 $load_of threads=1 share=queue ops=2000) eight=$(field rate connectx6 $load_of threads=8 share=queue ops=4000)
	# shellcheck disable=SC2086
	many=$(field rate connectx6 $load_of threads=32 share=queue ops=4000)
	falls "$one" "$eight" 65 75 "one queue pair for 1 and 8 threads"
	falls "$eight" "$many" 30 50 "one queue pair for 8 and 32 threads"
	# shellcheck disable=SC2086
	falls "$eight" "$(field rate connectx6,cpu_handoff=0,cpu_line=0 $load_of threads=8 share=queue ops=4000)" -3000 -300 "the same where nothing moves"
	# shellcheck disable=SC2086
	falls "$(field rate connectx6,cpu_share=1e15 $load_of threads=96)" "$(field rate connectx6,cpu_share=1e15 $load_of threads=96 share=context)" 40 85 \
		"doorbell registers of 96 threads"
	for share in context queue; do
		for op in read write send; do
			# shellcheck disable=SC2086
			timeout -k 5 60 $softhca --model connectx6 --devices 3 $load op=$op share=$share $small >"$work/out" || fail "share=$share op=$op"
		done
	done
	devices=6
	# The program's own time takes as long as it says.
	falls "$(field rate connectx5 op=write work=0)" "$(field rate connectx5 op=write work=2000)" 40 70 "2 us of the program for each operation"
fi
timeout -k 5 60 $softhca --devices 2 $load op=read burst=1 window=8 ops=200 check=1 >"$work/out" || fail "bursts, live"
$softhca $load burst=1 window=4 postlist=4 2>/dev/null && fail "bursts in lists are taken"
$softhca $load op=nonsense >/dev/null 2>&1 && fail "an operation that is none is taken"
echo "verbs_load: all passed"
