#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# libibverbs' own examples on softhca: RC, shared receive queues and UD, between two processes and between two hosts.
# Run in the build tree. Exits with 77 where the tools are not installed.
. "${srcdir:-.}/tests/common.sh"
. "${srcdir:-.}/tests/softhca/tools/sides.sh"
for tool in ibv_rc_pingpong ibv_srq_pingpong ibv_ud_pingpong ibv_devinfo; do
	command -v $tool >/dev/null || skip "$tool is not installed (Debian: ibverbs-utils)"
done

# pair COMMAND...: runs it as a server, then as its client.
pair()
{
	serve "$@"
	client "$@" localhost
}

# ok COMMAND...: both ends finish, with the bytes that were sent.
ok()
{
	pair "$@"
	if [ $code -ne 0 ] || [ $server_code -ne 0 ] || grep -q 'invalid data' "$work/server" "$work/client" ||
		! grep -q 'usec/iter' "$work/server" || ! grep -q 'usec/iter' "$work/client"; then
		show
		fail "$*: exit codes $server_code (server) and $code (client)"
	fi
	echo "ok: ${here:+($here) }$*"
}

# refused PATTERN COMMAND...: the tool refuses at once, and says why.
refused()
{
	pattern=$1
	shift
	code=0
	timeout -k 5 20 $softhca "$@" >"$work/client" 2>&1 || code=$?
	: >"$work/server"
	if [ $code -ne 1 ] || ! grep -Eq "$pattern" "$work/client"; then
		show
		fail "$*: exit code $code instead of 1, or no line like $pattern"
	fi
	echo "ok: refused: $*"
}

timeout -k 5 60 $softhca ibv_devinfo -v >"$work/devinfo" || fail "ibv_devinfo"
for line in 'hca_id:.*mlx5_0' 'transport:.*InfiniBand \(0\)' 'vendor_id:.*0x02c9' 'vendor_part_id:.*4119' \
	'phys_port_cnt:.*1$' 'atomic_cap:.*ATOMIC_HCA' 'state:.*PORT_ACTIVE' 'max_mtu:.*4096' 'active_mtu:.*4096' \
	'link_layer:.*InfiniBand' 'GID\[ *0\]:.*fe80' 'max_dm_size|maximum available device memory'; do
	grep -Eq "$line" "$work/devinfo" || { cat "$work/devinfo"; fail "ibv_devinfo -v: no line like $line"; }
done
for limit in max_qp max_qp_wr max_sge max_cq max_cqe max_mr max_pd max_qp_rd_atom max_srq max_srq_wr max_pkeys; do
	value=$(sed -n "s/^[[:space:]]*$limit:[[:space:]]*//p" "$work/devinfo")
	[ "${value:-0}" -gt 0 ] || { cat "$work/devinfo"; fail "ibv_devinfo -v: $limit is ${value:-missing}"; }
done
echo "ok: ibv_devinfo -v"

for events in "" -e; do
	ok ibv_rc_pingpong -c -n 300 $events
	for size in 1 64 1000 4097 100000 1048576; do
		ok ibv_rc_pingpong -c -n 20 -r 10 -s $size $events
	done
	for mtu in 256 512 1024 2048 4096; do
		ok ibv_rc_pingpong -c -n 50 -s 10000 -m $mtu $events
	done
	ok ibv_rc_pingpong -c -n 100 -N $events
	ok ibv_rc_pingpong -c -n 100 -j $events
	ok ibv_rc_pingpong -c -n 100 -j -N -s 64 $events
	ok ibv_rc_pingpong -c -n 100 -g 0 $events
	ok ibv_srq_pingpong -c -n 50 $events
	ok ibv_srq_pingpong -c -n 100 -q 1 -s 100 -m 256 $events
	ok ibv_srq_pingpong -c -n 20 -q 32 -s 20000 -m 4096 $events
	ok ibv_srq_pingpong -c -n 50 -q 4 -r 8 -g 0 $events
	ok ibv_ud_pingpong -c -n 300 $events
	for size in 1 100 1024 2048 4096; do
		ok ibv_ud_pingpong -c -n 50 -s $size $events
	done
	ok ibv_ud_pingpong -c -n 50 -g 0 $events
done
ok ibv_rc_pingpong -t -n 200 # with -e it gives up when a completion comes between its request for an event and its poll
# Receives run out and are posted again.
ok ibv_rc_pingpong -c -n 1000 -r 2
ok ibv_ud_pingpong -c -n 500 -r 2

# Features that the device does not offer.
refused "device isn't ODP capable|[Oo]n.?[Dd]emand|ODP" ibv_rc_pingpong -o
refused "device isn't ODP capable|[Oo]n.?[Dd]emand|ODP" ibv_srq_pingpong -o

# Neither knows the other's process numbers, nor its mounts.
if unshare --pid --fork --mount --mount-proc true 2>/dev/null; then
	here="unshare --pid --fork --mount --mount-proc" there=$here
	ok ibv_rc_pingpong -c -n 200
	ok ibv_srq_pingpong -c -n 50 -e
	ok ibv_ud_pingpong -c -n 200
	here= there=
else
	echo "skipped: other process numbers and mounts: unshare --pid --mount is not allowed"
fi

# From one device of a host to another.
one_device=$softhca
softhca="./softhca/softhca --devices 2 --fabric $work/devices"
for tool in ibv_rc_pingpong ibv_srq_pingpong ibv_ud_pingpong; do
	serve $tool -c -n 50 -d mlx5_0
	client $tool -c -n 50 -d mlx5_1 localhost
	[ $code -eq 0 ] && [ $server_code -eq 0 ] || { show; fail "$tool between two devices"; }
	echo "ok: two devices: $tool"
done
softhca=$one_device

if unshare --uts true 2>/dev/null; then
	cat >"$work/on" <<-'END'
		hostname "$1" && shift && exec "$@"
	END
	here="unshare --uts sh $work/on here" there="unshare --uts sh $work/on there"
	for events in "" -e; do
		ok ibv_rc_pingpong -c -n 200 $events
		ok ibv_rc_pingpong -c -n 20 -r 10 -s 1048576 -m 4096 $events
		ok ibv_rc_pingpong -c -n 100 -j -N $events
		ok ibv_srq_pingpong -c -n 50 $events
		ok ibv_ud_pingpong -c -n 200 $events
		ok ibv_ud_pingpong -c -n 50 -g 0 $events
	done
	# Two hosts have two LIDs.
	[ "$(sed -n 's/.*local address:  LID \(0x[0-9a-f]*\).*/\1/p' "$work/server" "$work/client" | sort -u | wc -l)" -eq 2 ] ||
		{ show; fail "two hosts have one LID"; }
else
	echo "skipped: two hosts: unshare --uts is not allowed"
fi
echo "pingpong: all passed"
