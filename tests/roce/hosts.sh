# SPDX-License-Identifier: BSD-3-Clause
# Hosts with an RDMA device each, inside of one kernel. Sourced by `guest`.
#
# rdma_rxe works in the first network name space only, since its sockets and routes are there. So all devices stay in
# it: rxeI is on rvI, one end of a virtual cable, and the other end rpI is a port of the bridge rdma. Routing rules make
# packets between devices go through the cables, although both addresses are local. A host has name spaces (net, uts,
# ipc, mount) that see one of the devices in /dev/infiniband, and an interface of the bridge tcp for mpirun.
#
#   host h1          host h2            addresses: h1 10.1.0.1, rv1 10.0.0.1
#   uverbs of rxe1   uverbs of rxe2
#       | rv1            | rv2
#       | rp1            | rp2
#       +---- rdma ------+

# A sleeping process holds the name spaces of a host.
in_host()
{
	host=$1
	shift
	nsenter -t "$(cat "$TEST_HOSTS/$host")" -n -u -i -m -- "$@"
}

# make_device I
make_device()
{
	ip link add "rv$1" mtu 4200 type veth peer name "rp$1" mtu 4200 # frames with room for 4096 bytes of payload
	ip link set "rp$1" master rdma up
	ip addr add "10.0.0.$1/24" dev "rv$1" noprefixroute
	# The last GID of the device cannot be reached. The library has to choose that of IPv4.
	ip addr add "fd00:$1::1/128" dev "rv$1" nodad
	for setting in accept_local=1 rp_filter=0 arp_ignore=1 arp_announce=2; do
		echo "${setting#*=}" >"/proc/sys/net/ipv4/conf/rv$1/${setting%=*}"
	done
	ip link set "rv$1" up
	ip route add 10.0.0.0/24 dev "rv$1" src "10.0.0.$1" table $((100 + $1))
	ip rule add pref 5 from "10.0.0.$1" to "10.0.0.$1" iif lo lookup local
	ip rule add pref 10 from "10.0.0.$1" iif lo lookup $((100 + $1))
	rdma link add "rxe$1" type rxe netdev "rv$1"
}

# make_host I
make_host()
{
	unshare -n -u -i -m --propagation private sleep infinity &
	echo $! >"$TEST_HOSTS/h$1"
	until [ "$(readlink "/proc/$!/ns/mnt")" != "$(readlink /proc/self/ns/mnt)" ]; do sleep 0.02; done
	ip link add "tp$1" type veth peer name eth0 netns $!
	ip link set "tp$1" master tcp up
	for uverbs in /sys/class/infiniband_verbs/uverbs*; do
		[ "$(cat "$uverbs/ibdev")" != "rxe$1" ] || break
	done
	numbers=$(cat "$uverbs/dev")
	in_host "h$1" sh -e -c '
		hostname "h$1"
		ip link set lo up
		ip addr add "10.1.0.$1/24" dev eth0
		ip link set eth0 up
		mount -t tmpfs tmpfs /dev/shm
		mount -t tmpfs tmpfs /dev/infiniband
		mknod "/dev/infiniband/$2" c "${3%:*}" "${3#*:}"' sh "$1" "${uverbs##*/}" "$numbers"
	echo "10.1.0.$1 h$1" >>/etc/hosts
}

# make_hosts COUNT
make_hosts()
{
	ip link set lo up
	for bridge in rdma tcp; do
		# The bridge has no addresses and no ARP, else it would answer for the devices' addresses, which are local, too.
		ip link add $bridge type bridge
		ip link set $bridge arp off addrgenmode none up
	done
	echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter
	# Packets between local addresses follow the rules of make_device, which come before the table of local addresses.
	ip rule add pref 100 lookup local
	ip rule del pref 0
	echo "127.0.0.1 localhost" >/etc/hosts
	for i in $(seq "$1"); do
		make_device "$i"
	done
	for i in $(seq "$1"); do
		make_host "$i"
	done
}

# What a device has counted: count I NAME
count() { cat "/sys/class/infiniband/rxe$1/ports/1/hw_counters/$2"; }
# Packets that came out of a cable into the bridge: crossed I
crossed() { cat "/sys/class/net/rp$1/statistics/rx_packets"; }
