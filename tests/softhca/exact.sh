#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Exact mode: what is counted, by the tests that look from inside and by the report of stock tools; and all other tests
# of verbs, which must not notice. Run in the build tree.
. "${srcdir:-.}/tests/common.sh"
softhca=./softhca/softhca
[ -x tests/softhca/verbs_tests ] || skip "built without libibverbs or Catch2"
[ "$(uname -m)" = x86_64 ] || skip "exact mode is for x86-64"

run()
{
	timeout -k 5 200 "$@" >"$work/out" 2>&1 || { cat "$work/out"; fail "$*"; }
	echo "ok: $*"
}
run $softhca --exact tests/softhca/verbs_tests '[.exact]'
run $softhca --exact tests/softhca/verbs_tests

timeout 20 $softhca sh -c './softhca/softhca_counters | grep -q "nothing was counted"' || fail "softhca_counters below softhca"
./softhca/softhca_counters --list | grep -q '^doorbells ' || fail "softhca_counters --list"
code=0
(unset SOFTHCA_FABRIC; ./softhca/softhca_counters 2>/dev/null) || code=$?
[ $code = 2 ] || fail "softhca_counters without a directory ends with $code"
code=0
./softhca/softhca_counters "$work/nowhere" 2>/dev/null || code=$?
[ $code = 1 ] || fail "softhca_counters for a directory that is not there ends with $code"

command -v ibv_rc_pingpong >/dev/null || { echo "skipped: ibv_rc_pingpong is not installed"; exit 0; }
port=$((10000 + $(od -A n -N 2 -t u2 /dev/urandom) % 20000))
cat >"$work/pingpong" <<EOF
ibv_rc_pingpong -p $port -s 8 -n 100 &
sleep 1
ibv_rc_pingpong -p $port -s 8 -n 100 localhost || exit 1
wait
EOF
run $softhca --exact --report --report-file "$work/report" sh "$work/pingpong"
value() { awk -v name="$1" '$1 == name { print $2 }' "$work/report"; }
# Each side sends 100 messages of 8 bytes, inline as the tool does when it can.
[ "$(value doorbells)" = 200 ] || fail "200 posts are $(value doorbells) doorbells: $(cat "$work/report")"
[ "$(value blueflames)" = 200 ] || fail "200 posts are $(value blueflames) BlueFlame writes"
[ "$(value wqes)" = 200 ] || fail "200 posts are $(value wqes) WQEs"
[ "$(value cqes)" = 400 ] || fail "200 messages are $(value cqes) completions"

run $softhca --json --report-file "$work/json" sh "$work/pingpong"
if command -v python3 >/dev/null; then
	python3 - "$work/json" <<EOF || fail "the JSON is not as described"
import json, sys
processes = json.load(open(sys.argv[1]))["processes"]
assert len(processes) == 2 and all(p["program"] == "ibv_rc_pingpong" for p in processes), processes
for p in processes:
    assert [q["kind"] for q in p["queue_pairs"]] == ["rc"], p
    assert p["queue_pairs"][0]["live"] is False
    assert p["devices"][0]["counters"]["wqes"] == 100 == p["queue_pairs"][0]["counters"]["wqes"]
EOF
fi
echo "exact mode: all passed"
