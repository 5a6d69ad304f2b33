#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The launched conformance cases between hosts. A host has its own name spaces (network, host name, IPC) and its own
# softhca device. Within a host messages go through shared memory, between hosts through the network. mpirun enters a
# host with the script `agent` instead of ssh. Run in the build tree, as root.
. "${srcdir:-.}/tests/common.sh"
softhca=$PWD/softhca/softhca
[ -x "$softhca" ] || skip "built without libibverbs"
need_launcher
unshare -n -u -i -m true 2>/dev/null || skip "name spaces need root"
command -v ip >/dev/null || skip "ip is not installed (Debian: iproute2)"

# The name spaces end with their last process, and so with this shell.
if [ -z "${TEST_HOSTS:-}" ]; then
	TEST_HOSTS=$work/hosts
	export TEST_HOSTS
	mkdir -p "$TEST_HOSTS"
	unshare -n -m --propagation private sh "$0" "$@"
	exit $?
fi
hosts=$TEST_HOSTS
trap 'kill $(cat "$hosts"/h*) 2>/dev/null; rm -rf "$work"' EXIT
count=3
ip link set lo up
ip link add tcp type bridge
ip addr add 10.1.0.254/24 dev tcp
ip link set tcp up
echo "127.0.0.1 localhost" >"$hosts/names"
echo "10.1.0.254 h0" >>"$hosts/names"
for i in $(seq $count); do
	unshare -n -u -i sh -c "hostname h$i && exec sleep 600" &
	echo $! >"$hosts/h$i"
	until [ "$(nsenter -t $! -u hostname 2>/dev/null)" = "h$i" ]; do sleep 0.02; done
	ip link add "port$i" type veth peer name eth0 netns $!
	ip link set "port$i" master tcp up
	nsenter -t $! -n sh -e -c "ip link set lo up; ip addr add 10.1.0.$i/24 dev eth0; ip link set eth0 up"
	echo "10.1.0.$i h$i" >>"$hosts/names"
done
mount --bind "$hosts/names" /etc/hosts || fail "mount"

# between HOSTS RANKS TRANSPORT [variable ...]: the cases in $chosen. Messages between the hosts have to take that transport.
between()
{
	where=$1 ranks=$2 way=$3
	shift 3
	# shellcheck disable=SC2086 # several words
	timeout -k 5 $case_seconds "$mpirun" --oversubscribe --bind-to none --mca plm_rsh_agent "$srcdir/tests/conformance/agent" \
		--mca plm_rsh_no_tree_spawn 1 --mca oob_tcp_if_include 10.1.0.0/24 --mca btl self \
		-x PT2P_CONF -x PT2P_SUMMARY=1 --host "$where" -n "$ranks" \
		env "$@" "$softhca" --fabric "$work/fabric" "$PWD/tests/conformance/conformance_mpi" $chosen >"$work/out" 2>"$work/err"
	status=$?
	if [ $status -ne 0 ] || ! grep -q "^$ranks ranks: [1-9][0-9]* cases passed" "$work/out" || grep -q '^FAIL' "$work/out" "$work/err"; then
		tail -n 40 "$work/out" "$work/err"
		fail "$where, $ranks ranks, $*: status $status"
	fi
	grep -Eq "^ *$way: ranks? [0-9]" "$work/err" || { cat "$work/err"; fail "nothing went by $way"; }
	[ "$ranks" -le "$count" ] || grep -Eq '^ *shm: ranks? [0-9]' "$work/err" || fail "nothing went by shm"
	echo "ok: $where, $ranks ranks, by $way $*"
}
srcdir=$(cd "$srcdir" && pwd)
chosen=$whole
between h1:1,h2:1 2 dct PT2P_RC_CONNECTIONS=0
between h1:3,h2:3,h3:2 8 relay PT2P_RC_CONNECTIONS=12
# With sanitizers that is enough: it uses all transports.
if ! sanitized; then
	between h1:1,h2:1 2 rc
	between h1:2,h2:2 4 rc
	chosen=$most
	between h1:3,h2:3,h3:2 8 rc
	between h1:3,h2:3,h3:2 8 dct PT2P_RC_CONNECTIONS=4 PT2P_ROUTE=direct
	# Groups by the switches of the hosts.
	printf 'SwitchName=leaf1 Nodes=h[1,3]\nSwitchName=leaf2 Nodes=h2\nSwitchName=spine Switches=leaf[1-2]\n' >"$work/switches"
	between h1:3,h2:3,h3:2 8 dct PT2P_ROUTE=direct "PT2P_GROUPS=switches:$work/switches"
fi
echo "hosts: all passed"
