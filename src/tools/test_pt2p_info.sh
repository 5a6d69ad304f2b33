#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Checks pt2p_info: every section, JSON, exit statuses, and what it says about a wrong configuration. Run from the build
# tree, or with the program to test as the argument.
info=${1:-./pt2p_info}
case $info in /*) ;; *) info=$PWD/${info#./} ;; esac
softhca=$(dirname "$info")/softhca/softhca
for name in $(env | sed -n 's/^\(\(PT2P\|MLX5\)_[A-Za-z0-9_]*\)=.*/\1/p'); do
	unset "$name"
done
work=$(mktemp -d) || exit 99
trap 'rm -rf "$work"' EXIT
trap 'exit 99' HUP INT TERM
cd "$work" || exit 99
HOME=$work
PT2P_CONF=/dev/null
export HOME PT2P_CONF
failures=0
checks=0
below= # what pt2p_info is run below

# expect STATUS STREAM PATTERN ARGUMENT... : runs pt2p_info and looks for the pattern in what it wrote there.
expect() {
	wanted=$1 stream=$2 pattern=$3
	shift 3
	$below "$info" "$@" >out 2>err
	got=$?
	checks=$((checks + 1))
	if [ $got -ne "$wanted" ] || ! grep -q -e "$pattern" "$stream"; then
		echo "FAIL: $below pt2p_info $*: exit $got, wanted $wanted and \"$pattern\" in $stream:"
		cat out err
		failures=$((failures + 1))
	fi
}

expect 0 out '^libpt2p [0-9]*\.[0-9]*\.[0-9]*$'
for title in build topology transports 'what they depend on' 'RDMA device' 'tunables that differ'; do
	expect 0 out "^$title"
done
expect 0 out '^  none; pt2p_info --config lists all$'
expect 0 out '^  self  *usable'
expect 0 out '^  single copy (process_vm)  *\(allowed\|refused\)' --transports
expect 0 out '^RDMA device [a-z]\|^  no RDMA device.*softhca\|^  built without rdma-core' --devices
expect 0 out '^  compiler  *[a-z]' --build
expect 0 out '^  logical CPUs  *[1-9]' --topology
expect 0 out '^  messages_sent  *two-sided' --counters
expect 0 out '^libpt2p [0-9]' --version
expect 0 out '^usage: pt2p_info' --help
expect 0 out '^PT2P_EAGER_MAX  *16k  *16k  *default  *0 to 1m  *bytes  *longest' --config
expect 0 out '^    allowed  0 to 1m, bytes$' --config PT2P_EAGER_MAX
expect 0 out '^PT2P_SLEEP: ' --config EAGER_MAX SLEEP
expect 2 err 'did you mean PT2P_EAGER_MAX' --config PT2P_EGER_MAX
expect 2 err 'unknown option --colour' --colour
expect 2 err 'unknown option EAGER_MAX' EAGER_MAX
expect 2 err 'usage: pt2p_info' --

# Advice.
expect 0 out '^ 1\. rc read  *[0-9.]* M/s  a READ takes nothing' --advise m=28 s=16 bytes=365 device=connectx3
expect 0 out '^ [2-9]\. dct send/read .* 64 callers of a rank by dct: each reply would change the target' --advise m=64 device=connectx5
expect 0 out 'PT2P_TRANSPORTS=self,shm,rc PT2P_CALL_INPUT_BY=send PT2P_CALL_REPLY_BY=read$' --advise m=4 shape=1:m handler=2us device=connectx6
expect 0 out '^1 rank of each of 4 nodes asks all other nodes; input 36 bytes, reply 1024 bytes, handler 0 ns, 8 ' \
	--advise shape=m:m m=4 bytes=1k window=8 device=connectib
expect 0 out '"way": "rc read"' --json --advise device=connectx3
expect 2 err 'device=cx9: not known; there are connectx3, connectib' --advise device=cx9
expect 2 err 'm=many: not a number' --advise m=many device=connectx5
expect 2 err 'm=-1: not a number' --advise m=-1 device=connectx5
expect 2 err 'shape=star: m:1, 1:m or m:m' --advise shape=star
expect 2 err 'nodes=3: no such word; there are: m threads' --advise nodes=3
expect 2 err 'm: not NAME=VALUE' --advise m
expect 2 err 'handler=long: not a time' --advise handler=long
expect 2 err 'at least 2 nodes' --advise shape=m:m m=1 device=connectx5
expect 2 err 'window and initiators: 1 to' --advise window=0 device=connectx5

PT2P_EAGER_MAX=32k
export PT2P_EAGER_MAX
expect 0 out '^  PT2P_EAGER_MAX  = 32k  (default 16k, from environment)$'
expect 0 out '^PT2P_EAGER_MAX  *32k  *16k  *environment ' --config
PT2P_EAGER_MAX=lots
expect 1 err 'PT2P_EAGER_MAX = "lots" in the environment: not a number of bytes; allowed: 0 to 1m bytes'
expect 1 out '^PT2P_EAGER_MAX  *16k' --config
expect 0 out '^libpt2p\|^usage' --help
unset PT2P_EAGER_MAX
PT2P_EGER_MAX=1
export PT2P_EGER_MAX
expect 1 err 'did you mean PT2P_EAGER_MAX'
unset PT2P_EGER_MAX
unset PT2P_CONF
echo 'PT2P_TRANSPORTS = self' >pt2p.conf
expect 0 out '^PT2P_TRANSPORTS  *self  *all  *./pt2p.conf:1 ' --config
expect 0 out '^  shm .*left out by PT2P_TRANSPORTS' --transports
rm pt2p.conf

# Every section as JSON, read by whatever is there that reads JSON.
for sections in '' --config '--config SLEEP' '--build --topology' --transports --devices --counters --version; do
	# shellcheck disable=SC2086 # several words
	expect 0 out '^  "version": "[0-9]' --json $sections
	if command -v python3 >/dev/null 2>&1; then
		checks=$((checks + 1))
		python3 -m json.tool out >/dev/null || {
			echo "FAIL: pt2p_info --json $sections is not JSON"
			failures=$((failures + 1))
		}
	fi
done

# What is set for libmlx5, with a word on what it does; only what is set.
expect 0 out '^  "rdma_environment": \[\],*$' --json --devices
MLX5_CQE_SIZE=128
MLX5_SHUT_UP_BF=0
export MLX5_CQE_SIZE MLX5_SHUT_UP_BF
expect 0 out '^set for libmlx5, below libpt2p$' --devices
expect 0 out '^  MLX5_CQE_SIZE = 128 (default: 64)$' --devices
expect 0 out '^    Bytes of a completion' --devices
expect 0 out '^  MLX5_SHUT_UP_BF = 0 (default: 0)$'
expect 0 out '"name": "MLX5_CQE_SIZE",' --json --devices
expect 0 out '"value": "128",' --json --devices
unset MLX5_CQE_SIZE MLX5_SHUT_UP_BF
"$info" --devices | grep -q MLX5_ && {
	echo "FAIL: pt2p_info tells of variables that are not set"
	failures=$((failures + 1))
}

# The devices of softhca, with what they can and what they are denied.
if [ -x "$softhca" ]; then
	below=$softhca
	expect 0 out '^RDMA device mlx5_0$'
	for fact in 'firmware  *[0-9][0-9]*\.' 'NUMA node  *0$' 'inline data  *[1-9][0-9]* bytes$' 'DC transport  *yes$' \
		'device memory  *256.0 KiB$' 'shared receive queues  *[1-9]' 'READs and atomics at once  *16 out, 16 in' \
		'port mlx5_0:1$' 'state  *active$' 'link layer  *InfiniBand$' 'MTU  *4096 bytes' 'GIDs  *0: fe80::'; do
		expect 0 out "^  $fact" --devices
	done
	expect 0 out '; connectx5 (as mlx5_0)$' --advise m=8
	below="$softhca --devices 2"
	expect 0 out '^RDMA device mlx5_1$' --devices
	if command -v python3 >/dev/null 2>&1; then
		checks=$((checks + 1))
		$below "$info" --json --devices >out
		python3 - out <<'END' || { echo "FAIL: pt2p_info --json --devices"; failures=$((failures + 1)); }
import json, sys
found = json.load(open(sys.argv[1]))
assert [d["name"] for d in found["rdma_devices"]] == ["mlx5_0", "mlx5_1"], found
assert all(d["dc"] == "yes" and d["ports"][0]["state"] == "active" for d in found["rdma_devices"]), found
assert found["why_no_rdma_devices"] == "" and found["rdma_environment"] == [], found
END
	fi
	below=$softhca
	MLX5_CQE_SIZE=100 expect 0 out '^  DC transport  *unknown: Invalid argument (EINVAL)$' --devices
	SOFTHCA_FAULTS='refuse qp' expect 0 out '^  DC transport  *no: an initiator cannot be made: ' --devices
	SOFTHCA_FAULTS='refuse qp' expect 0 out '^  inline data  *unknown: ' --devices
	below=
fi

# A full disk is not silence.
if [ -w /dev/full ]; then
	checks=$((checks + 1))
	if "$info" >/dev/full 2>err; then
		echo "FAIL: pt2p_info did not notice that its output was lost"
		failures=$((failures + 1))
	fi
fi

echo "$checks checks, $failures failed"
[ $failures -eq 0 ]
