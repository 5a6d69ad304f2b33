# SPDX-License-Identifier: BSD-3-Clause
# Runs a tool as a server and its client, on one fabric. Sourced after tests/common.sh. Their output is in $work/server
# and $work/client, their exit codes are in $server_code and $code.
# Leaks are not reported: these tools have some, and leaks cannot be found in another PID name space. Other tests look
# for leaks.
ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
export ASAN_OPTIONS
softhca="./softhca/softhca --fabric $work/fabric"
server= # its process, while there is one
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; rm -rf "$work"' EXIT
here= there= # what puts the two processes on two hosts

# Finds a TCP port that nobody uses, for $port. It is below those that the system gives out by itself. It is random, as
# other tests look for one at the same time.
free_port()
{
	while :; do
		port=$((10000 + $(od -A n -N 2 -t u2 /dev/urandom) % 20000))
		sockets | grep -q ":$(printf %04X $port) " || return 0
	done
}
sockets() { cat /proc/net/tcp /proc/net/tcp6 2>/dev/null; }

# serve COMMAND...: starts a server with -p and a port, and returns when it listens.
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
	# When the client fails, the server would wait for ever. When the server has served it, it ends by itself, a little
	# later.
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		[ $code -ne 0 ] && kill -0 $server 2>/dev/null || break
		sleep 0.5
	done
	[ $code -eq 0 ] || kill $server 2>/dev/null || :
	wait $server || server_code=$?
	server=
}
show() { sed 's/^/server: /' "$work/server"; sed 's/^/client: /' "$work/client"; }
