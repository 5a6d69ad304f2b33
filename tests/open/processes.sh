#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Run in the build tree. A server in a process of its own, and clients that come, leave and are killed: through shared memory,
# over TCP, and over softhca.
. "${srcdir:-.}/tests/common.sh"
member=tests/open/member

scenario() {
	: >"$work/out"
	timeout -k 5 120 $member serve >"$work/out" 2>"$work/err" &
	server=$!
	turns=0
	until [ -s "$work/out" ]; do
		turns=$((turns + 1))
		[ $turns -lt 300 ] || fail "$1: the server does not start: $(cat "$work/err")"
		sleep 0.1
	done
	address=$(head -n 1 "$work/out")
	clients=
	for i in 1 2 3; do
		timeout -k 5 60 $member plain "$address" &
		clients="$clients $!"
	done
	for client in $clients; do
		wait "$client" || fail "$1: a client of three fails"
	done
	timeout -k 5 60 $member watched "$address" || fail "$1: a client that finalizes"
	timeout -k 5 60 $member killed "$address" 2>/dev/null
	[ $? -ne 1 ] || fail "$1: the client that is to be killed fails before"
	timeout -k 5 60 $member plain "$address" || fail "$1: a client after the one that was killed"
	timeout -k 5 60 $member end "$address" || fail "$1: the client that ends the server"
	wait $server || fail "$1: the server fails: $(cat "$work/err")"
	sed -n 's/^[0-9]* //p' "$work/out" | tr '\n' ' ' >"$work/ends"
	[ "$(cat "$work/ends")" = "finalized lost " ] || fail "$1: the server saw: $(cat "$work/out")"
	echo "$1: as it should be"
}

[ $# -eq 0 ] || { scenario "$1"; exit 0; }
scenario "shared memory"
# The example.
board=examples/board
timeout -k 5 60 $board >"$work/board" 2>&1 &
server=$!
turns=0
until [ -s "$work/board" ]; do
	turns=$((turns + 1))
	[ $turns -lt 300 ] || fail "the board does not start"
	sleep 0.1
done
address=$(head -n 1 "$work/board")
timeout -k 5 20 $board "$address" 7 "a note" || fail "a note cannot be pinned"
[ "$(timeout -k 5 20 $board "$address" 7)" = "a note" ] || fail "the note is not there"
timeout -k 5 20 $board "$address" 100 2>"$work/err" && fail "a place that is not there"
grep -q "the places are 0 to 99" "$work/err" || fail "the board says: $(cat "$work/err")"
kill $server
wait $server 2>/dev/null
timeout -k 5 20 $board "$address" 7 2>"$work/err" && fail "a board that is gone"
grep -q "nobody listens" "$work/err" || fail "without the board: $(cat "$work/err")"
head -c 32 /dev/urandom >"$work/secret" && chmod 600 "$work/secret"
export PT2P_OPEN_SECRET="$work/secret" PT2P_OPEN_SOCKETS=tcp
scenario "shared memory, introduced over TCP"
[ -x ./softhca/softhca ] || exit 0
for transport in rc dct; do
	PT2P_TRANSPORTS=self,$transport ./softhca/softhca sh "$0" $transport || exit 1
done
