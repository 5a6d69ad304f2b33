#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The key-value load with UCX in virtual time. Each value belongs to its key (the load checks that), UCX uses the
# transports that it is told to, and two runs are the same. Run in the build tree.
. "${srcdir:-.}/tests/common.sh"
softhca=./softhca/softhca load=./softhca/studies/ucx_load
[ -x $load ] || skip "no ucx_load: configure has not found UCX (Debian: libucx-dev)"
case $(nm -D softhca/.libs/libsofthca_time.so 2>/dev/null) in
*__asan* | *__tsan_init*) skip "sanitizers do not know fibres" ;;
esac
export UCX_MEM_EVENTS=n UCX_TLS UCX_DC_MLX5_NUM_DCI=2 UCX_WARN_UNUSED_ENV_VARS=n

# run TO SETTING...: the figures without bytes_per_node, which are those of the real allocator
run()
{
	to=$1
	shift
	timeout -k 5 100 $softhca --model connectx5 --devices 4 $load header=yes nodes=4 workload=a operations=2000 "$@" >"$work/out" 2>&1 ||
		{ cat "$work/out"; fail "ucx_load with $UCX_TLS"; }
	awk -F , -v OFS=, 'NR == 1 { for (i = 1; i <= NF; ++i) column[$i] = i } { $column["bytes_per_node"] = ""; print }' "$work/out" >"$to"
}
# column FILE NAME
column() { awk -F , -v name="$2" 'NR == 1 { for (i = 1; i <= NF; ++i) if ($i == name) c = i } NR == 2 { print $c }' "$1"; }

for UCX_TLS in rc_x,self dc_x,self; do
	run "$work/one"
	run "$work/other"
	cmp "$work/one" "$work/other" || fail "two runs with $UCX_TLS differ"
	run "$work/unexpected" receives=1 sends=1
	# One for each of three peers, or two initiators and a target. And one for datagrams, by which UCX connects.
	[ "$(column "$work/one" queue_pairs_per_node)" = 4.0 ] || { cat "$work/one"; fail "$UCX_TLS: other queue pairs than expected"; }
	# Two initiators for three targets.
	switches=$(column "$work/one" dc_switches_per_op)
	case $UCX_TLS:$switches in
	rc_x*:0.000) ;;
	rc_x*:* | dc_x*:0.000) fail "$UCX_TLS: $switches changes of target for an operation" ;;
	esac
	echo "ok: $UCX_TLS"
done
# Ranks of a node reach each other through shared memory, and only they.
for UCX_TLS in rc_x,self rc_x,self,posix; do
	run "$work/$UCX_TLS" ranks=2
done
[ "$(column "$work/rc_x,self" queue_pairs_per_node)" = 16.0 ] || fail "other queue pairs than expected: $(cat "$work/rc_x,self")"
awk -v all="$(column "$work/rc_x,self" packets_per_op)" -v far="$(column "$work/rc_x,self,posix" packets_per_op)" \
	'BEGIN { exit !(far < 0.95 * all && far > 0.7 * all) }' || fail "$(cat "$work/rc_x,self" "$work/rc_x,self,posix")"
echo "ok: two ranks on each node"
echo "ucx_load: all passed"
