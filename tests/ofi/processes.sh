#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Run in the build tree. Endpoints in two processes: without a launcher, and as ranks of a job.
. "${srcdir:-.}/tests/common.sh"
FI_PROVIDER_PATH=$PWD/.libs
export FI_PROVIDER_PATH

# wait_for FILE: until there is something in it.
wait_for()
{
	turns=0
	until [ -s "$1" ]; do
		turns=$((turns + 1))
		[ $turns -lt 300 ] || return 1
		sleep 0.1
	done
}

# fi_pingpong is a program of libfabric. Its processes find each other by a port of TCP. It cannot load a library with sanitizers.
pingpong=
sanitized || pingpong=$(command -v fi_pingpong)
if [ -n "$pingpong" ]; then
	port=$((20000 + $$ % 20000))
	timeout -k 5 60 "$pingpong" -p pt2p -e rdm -B $port -I 20 -c >"$work/server" 2>&1 &
	server=$!
	turns=0
	until timeout -k 5 60 "$pingpong" -p pt2p -e rdm -P $port -I 20 -c 127.0.0.1 >"$work/client" 2>&1; do
		turns=$((turns + 1))
		kill -0 $server 2>/dev/null && [ $turns -lt 50 ] || {
			cat "$work/server" "$work/client"
			fail "fi_pingpong: the client"
		}
		sleep 0.2
	done
	wait $server || { cat "$work/server"; fail "fi_pingpong: the server"; }
	grep -Eq '^(64|1024|1k) ' "$work/client" || { cat "$work/client"; fail "fi_pingpong has measured nothing"; }
	echo "fi_pingpong: as it should be"
fi

need_launcher
member=tests/ofi/member
mkdir "$work/exchange" "$work/internet" "$work/kill"
launch 60 2 $member exchange "$work/exchange" >"$work/out" 2>&1 || failed "two ranks"
[ "$(grep -c ': ok' "$work/out")" -eq 2 ] || failed "two ranks: one has not ended"
echo "two ranks: as it should be"
FI_PT2P_OPEN=yes launch 60 2 $member exchange "$work/internet" >"$work/out" 2>&1 || failed "two ranks with Internet addresses"
[ "$(grep -c ': ok' "$work/out")" -eq 2 ] || failed "two ranks with Internet addresses: one has not ended"
echo "two ranks with Internet addresses: as it should be"

# mpirun ends the job when a rank is killed, so the other one tells by a file what it has seen. A job that is told to go
# on is one without PMIx's own notice.
launch 60 2 --mca orte_enable_recovery 1 $member killed "$work/kill" >"$work/out" 2>&1 &
job=$!
wait_for "$work/kill/pid" || failed "the rank that is to be killed has not come so far"
sleep 0.5
kill -9 "$(cat "$work/kill/pid")"
wait_for "$work/kill/noticed"
noticed=$?
wait $job
if [ $noticed -ne 0 ]; then
	launcher_stuck "$work/out" && skip "the launcher is stuck"
	failed "the loss of a rank is not noticed"
fi
echo "a rank that is killed: noticed, error $(cat "$work/kill/noticed")"
