#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# What first contacts of 16 ranks of one node cost, counted: for each peer one look for its address at most, none of which asks
# the launcher's server, one file, two mappings, and nothing of /proc besides. Three tries: what takes very long asks the server,
# and looks whether its peers live.
. "${srcdir:-.}/tests/common.sh"
need_launcher
try=0
while [ $((try += 1)) -le 3 ]; do
	PT2P_TRANSPORTS=self,shm launch 100 16 ./tests/mpi/contact >"$work/out" 2>&1 || { cat "$work/out"; fail "status $?"; }
	if awk '/^contact / { ++ranks; if ($6 || $8 > $4 || $10 > $4 || $12 || $14 > 2 * $4) { ++dear; print } }
		END { exit ranks != 16 || dear }' "$work/out" >"$work/dear"; then
		echo "ok: $(head -n 1 "$work/out")"
		exit 0
	fi
done
cat "$work/dear"
fail "first contacts cost more than they have to"
