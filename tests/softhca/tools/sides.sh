# SPDX-License-Identifier: BSD-3-Clause
# Tools that run as a server and its client, on one fabric; sourced after tests/common.sh. What they say is in
# $work/server and $work/client, how they end in $server_code and $code.
# What these tools never free is no matter here, and leaks cannot be looked for in another PID name space; our own tests
# look for them.
ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
export ASAN_OPTIONS
softhca="./softhca/softhca --fabric $work/fabric"
server= # its process, while there is one
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; rm -rf "$work"' EXIT
here= there= # what puts the two processes on two hosts

# A TCP port that nobody uses, in $port: below those that the system gives out by itself, and not the one that a test that
# runs at the same time is about to use.
free_port()
{
	while :; do
		port=$((10000 + $(od -A n -N 2 -t u2 /dev/urandom) % 20000))
		sockets | grep -q ":$(printf %04X $port) " || return 0
	done
}
sockets() { cat /proc/net/tcp /proc/net/tcp6 2>/dev/null; }

# serve COMMAND...: starts a server, with -p and a port, and comes back when it listens.
serve()
{
	free_port
	timeout -k 5 60 $softhca $here "$@" -p $port >"$work/server" 2>&1 &
	server=$!
	until sockets | grep -q ":$(printf %04X $port) 0*:0000 0A "; do
		kill -0 $server 2>/dev/null || break
		sleep 0.02
	done
	code=0 server_code=0
}
# client COMMAND...: runs the client, and waits for both to end.
client()
{
	timeout -k 5 60 $softhca $there "$@" -p $port >"$work/client" 2>&1 || code=$?
	# A server that its client has left would wait for ever; one that has served it ends by itself, if not at once.
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		[ $code -ne 0 ] && kill -0 $server 2>/dev/null || break
		sleep 0.5
	done
	[ $code -eq 0 ] || kill $server 2>/dev/null || :
	wait $server || server_code=$?
	server=
}
show() { sed 's/^/server: /' "$work/server"; sed 's/^/client: /' "$work/client"; }
