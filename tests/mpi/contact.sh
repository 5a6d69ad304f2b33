#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Counts what first contacts cost 16 ranks of one node: for each peer at most one lookup of its address, without the
# launcher's server, one file, two mappings, and nothing else of /proc. There are three tries: a rank that waits very
# long asks the server, and checks whether its peers live.
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
