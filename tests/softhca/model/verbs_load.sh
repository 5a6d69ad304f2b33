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
*__asan* | *__tsan*)
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
fi
$softhca $load op=nonsense >/dev/null 2>&1 && fail "an operation that is none is taken"
echo "verbs_load: all passed"
