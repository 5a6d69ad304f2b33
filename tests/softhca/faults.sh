#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Faults asked for on the command line and by file, seen by programs. Run in the build tree.
. "${srcdir:-.}/tests/common.sh"
softhca=./softhca/softhca
[ -x tests/softhca/verbs_tests ] || skip "built without libibverbs or Catch2"

run()
{
	timeout -k 5 100 "$@" >"$work/out" 2>&1 || { cat "$work/out"; fail "$*"; }
	echo "ok: $*"
}
refuses()
{
	pattern=$1
	shift
	code=0
	timeout -k 5 20 "$@" >"$work/out" 2>&1 || code=$?
	[ $code = 2 ] && grep -q "$pattern" "$work/out" || { cat "$work/out"; fail "$*: ends with $code"; }
	echo "ok: $*"
}
refuses 'there are drop' $softhca --fault nonsense true
refuses '0 to 1' $softhca --fault 'drop rate=3' true
refuses 'needs a value' $softhca --fault
run $softhca --fault 'drop rate=0.1' --fault 'delay us=5' true
run $softhca tests/softhca/verbs_tests '[.fatal]'

command -v ibv_rc_pingpong >/dev/null || { echo "skipped: ibv_rc_pingpong is not installed"; exit 0; }
port=$((10000 + $(od -A n -N 2 -t u2 /dev/urandom) % 20000))
# pingpong ROUNDS : what to run.
pingpong()
{
	cat <<-EOF
	ibv_rc_pingpong -p $port -c -n $1 &
	sleep 1
	ibv_rc_pingpong -p $port -c -n $1 localhost || exit 1
	wait \$! || exit 1
	EOF
}
pingpong 200 >"$work/pingpong"
# The losses end before the programs do. A program whose last acknowledgement is lost misses it, on real wires, too.
for rule in 'drop rate=0.05 count=20' 'duplicate rate=0.2' 'reorder rate=0.05' 'delay rate=0.1 us=200'; do
	run $softhca --fault "$rule" --report --report-file "$work/report" sh "$work/pingpong"
	grep -q '^faults' "$work/report" || fail "$rule: no fault was counted"
done
# An acknowledgement that is delayed beyond the end of its sender arrives nevertheless.
pingpong 3 >"$work/pingpong"
for seed in 1 2 3 4 5 6; do
	run $softhca --fault "delay kind=acknowledge rate=0.4 us=30000 seed=$seed" sh "$work/pingpong"
done
# Rules in the file of the fabric, written while it is in use.
cat >"$work/by-file" <<EOF
echo 'refuse mr' >"\$SOFTHCA_FABRIC/faults"
ibv_rc_pingpong -p $port 2>&1 | grep -q "register MR"
EOF
run $softhca sh "$work/by-file"
echo "faults: all passed"
