#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The programs of the studies, and scripts that use them, with a small load. They work, two runs are the same to the
# bit, nothing is lost (softhca checks that), and no operation takes too long. verbs_load.sh and ucx_load.sh run the
# other programs. Run in the build tree.
. "${srcdir:-.}/tests/common.sh"
softhca=./softhca/softhca studies=./softhca/studies
[ -x $studies/kv_load ] && [ -x $softhca ] || skip "built without libibverbs"
[ "$(uname -m)" = x86_64 ] || skip "model mode is for x86-64"
case $(nm -D softhca/.libs/libsofthca_time.so 2>/dev/null) in
*__asan* | *__tsan_init*) skip "sanitizers do not know fibres" ;;
esac

# twice CONDITION NODES PROGRAM SETTING...: the condition is awk's, on the figures, which are $1 and so on.
twice()
{
	condition=$1 devices=$2
	shift 2
	for run in one other; do
		timeout -k 5 60 $softhca --model "${profile:-connectx5}" --devices "$devices" "$@" >"$work/$run" 2>"$work/err" ||
			{ cat "$work/$run" "$work/err"; fail "$*"; }
		# The heap, kv_load's 13th figure, is not of the model. It depends on the length of the process's number, for
		# instance.
		awk -F, -v OFS=, 'NF == 19 { $13 = "" } { print }' "$work/$run" >"$work/$run.figures"
	done
	cmp "$work/one.figures" "$work/other.figures" || { cat "$work/one" "$work/other"; fail "two runs differ: $*"; }
	awk -F, "END { exit !($condition) }" "$work/one" || { cat "$work/one"; fail "$*: not $condition"; }
	echo "ok: $*"
}

# The middle operation and the slowest of 100 in ns, and operations of all nodes in M/s.
quick='NF == 19 && $8 > 1 && $10 > 1000 && $10 < 50000 && $11 < 500000'
# Several ranks share a device, whose initiators change targets with nearly every message.
for transports in self,shm,rc self,shm,dct self,rc,dct; do
	twice "$quick" 4 $studies/kv_load nodes=4 ranks=4 operations=1600 connect=yes PT2P_TRANSPORTS=$transports
done
profile=connectib
twice "$quick" 2 $studies/kv_load nodes=2 ranks=8 operations=1600 workload=a PT2P_TRANSPORTS=self,shm,dct
profile=connectx6
twice "$quick" 4 $studies/kv_load nodes=4 operations=1600 workload=c
# The routes there and back differ: forwarded messages are acknowledged by direct ones.
twice "$quick" 3 $studies/kv_load nodes=3 operations=400 PT2P_TRANSPORTS=self,dct PT2P_GROUPS=nodes:2 PT2P_ROUTE=forward
profile=
twice "$quick && \$19 > 0" 4 $studies/kv_load nodes=4 operations=1600 PT2P_GROUPS=nodes:2 PT2P_ROUTE=forward
# Ranks that are done forward what others wait for. The goodbyes of a rank that leaves are acknowledged, also with few
# credits.
profile=connectx3
twice "$quick" 2 $studies/kv_load nodes=2 ranks=6 operations=400 bytes=8 PT2P_TRANSPORTS=self,shm,rc PT2P_GROUPS=nodes:2 PT2P_ROUTE=forward
twice "$quick" 8 $studies/kv_load nodes=8 ranks=3 operations=400 bytes=8 PT2P_TRANSPORTS=self,shm,rc PT2P_GROUPS=nodes:2 \
	PT2P_ROUTE=forward PT2P_NET_SEND_DEPTH=4
profile=
# Nobody waits in vain for a neighbour, by whatever transport: an idle rank looks again after 32 us.
for settings in "halo bytes=8" "halo bytes=4096" "halo bytes=8 PT2P_ROUTE=forward PT2P_GROUPS=nodes:4" alltoall sparse; do
	# shellcheck disable=SC2086
	twice 'NF == 19 && $11 < 20000' 4 $studies/kv_load nodes=4 ranks=4 operations=3200 window=1 connect=yes traffic=$settings
done
twice "$quick" 4 $studies/kv_load nodes=4 ranks=2 operations=800 traffic=incast

for settings in "targets=2 sizes=fixed" "sizes=jump bytes=1024" "targets=2 sizes=random bytes=1024 PT2P_TUNE=on"; do
	# shellcheck disable=SC2086
	twice '$6 > 1' 3 $studies/pt2p_stream senders=2 messages=1000 PT2P_TRANSPORTS=self,dct $settings
done
# A barrier asks for the confirmations that it needs, so the streams begin together.
twice '$6 > 40' 2 $studies/pt2p_stream senders=64 messages=1000 bytes=8
# What the tuner reaches on a known device: L/N from 1.8 (1 + 2/W) to 2.5 (1 + 2/W), and as the signal period an eighth of
# the window W. With few queues W is what keeps a unit of the device busy, and with 64 of them what its WQE cache holds.
# Columns: $6 M/s, $12 and $13 mean period and L/N of the first rank's second half.
direct="PT2P_NET_DELIVERY=send PT2P_TRANSPORTS=self,rc PT2P_ROUTE=direct PT2P_RC_CONNECTIONS=65536"
tuned()
{
	twice "$1" 2 $studies/pt2p_stream senders="$2" messages=3000 bytes=8 $direct trace="$work/trace" \
		PT2P_TUNE_TRACE="$work/trace" PT2P_TUNE="$3"
}
tuned '$6 > 4.7 && $12 >= 3 && $12 <= 10 && $13 > 1.6 && $13 < 2.6' 1 on
tuned '$6 > 74 && $12 >= 2 && $12 <= 7 && $13 > 1.6 && $13 < 2.6' 16 on
tuned '$6 > 75 && $12 >= 1 && $12 <= 2.5 && $13 > 1.6 && $13 < 2.8' 64 on
# The receiver's units bound these two: each message keeps one busy for its share of a read of receives. Where receives
# cost next to nothing, the sender's do.
profile=connectx5,receive_burst=1000
tuned '$6 > 7.5 && $12 >= 5 && $12 <= 10 && $13 > 1.6 && $13 < 2.6' 1 on
tuned '$6 > 98 && $12 >= 2 && $12 <= 7 && $13 > 1.6 && $13 < 2.6' 16 on
profile=
# Where queues are full, messages go by host memory, which gets a twentieth more through (a tenth, did receives not bound
# it). One message at a time goes by device memory, which is quicker ($8: nanoseconds).
twice '$6 > 19.5' 2 $studies/pt2p_stream senders=4 messages=3000 bytes=512 $direct
twice '$6 < 19' 2 $studies/pt2p_stream senders=4 messages=3000 bytes=512 $direct PT2P_NET_STAGING=device
twice '$8 < 1450' 2 $studies/pt2p_stream latency=yes messages=1000 bytes=512 $direct
twice '$8 > 1600' 2 $studies/pt2p_stream latency=yes messages=1000 bytes=512 $direct PT2P_NET_STAGING=host
tuned '$6 > 7.4 && $12 >= 7 && $12 <= 20 && $13 > 1.8 && $13 < 2.5' 4 paper
twice '$8 > 500 && $8 < 10000' 2 $studies/pt2p_stream latency=yes messages=1000 PT2P_TRANSPORTS=self,rc

# Additions to one word: 2.5 M/s by the device alone, and several times as many where the owner can be asked to add them up.
# To many words the device alone is quickest. Columns: $6 M/s, $8 share of the additions that the owner was asked for.
atomics="$studies/pt2p_atomics operations=15000 PT2P_PROGRESS_THREAD=yes PT2P_SLEEP=yes"
twice '$6 > 2.3 && $6 < 2.7 && $8 == 0' 16 $atomics window=16 PT2P_ATOMICS=nic
twice '$6 > 8.5 && $8 > 0.6' 16 $atomics window=16
twice '$6 > 28 && $8 < 0.1' 16 $atomics window=16 words=64
twice '$6 > 2.3 && $8 == 0' 16 $atomics window=16 PT2P_PROGRESS_THREAD=no
# The owner's calls wait for its progress thread, and the thread passes the lock on.
twice '$6 > 10' 16 $atomics window=16 words=4 busy=20000

# Many callers of one server by DC: each reply that is sent changes the target of an initiator, and a result that is fetched
# does not. Columns: $7 M/s, $10 READs for a call, $12 changes of target, $13 messages of the server.
fan_in="$studies/pt2p_calls callers=32 window=1 calls=12800 PT2P_TRANSPORTS=self,dct PT2P_DCT_INITIATORS=4"
twice '$7 < 3 && $12 > 0.9 && $13 > 0.99' 33 $fan_in PT2P_CALL_REPLY_BY=send
twice '$7 > 5 && $10 < 1.02 && $12 < 0.05 && $13 < 0.01' 33 $fan_in PT2P_CALL_REPLY_BY=read
# The server finds that out, and its callers follow.
twice '$7 > 5 && $10 < 1.05 && $12 < 0.05 && $13 < 0.05' 33 $fan_in warm=1600
# A store whose results are fetched, as the RFP paper measures it, and one that replies. Columns: $8 M/s, $11 READs for a call.
profile=connectx3,wire_rate=32
store="$studies/pt2p_store calls=8000 PT2P_TRANSPORTS=self,shm,rc PT2P_NET_DELIVERY=write PT2P_NET_RINGS=512"
twice '$8 > 5.2 && $11 < 1.05' 8 $store PT2P_CALL_REPLY_BY=read
twice '$8 < 3.2 && $11 == 0' 8 $store PT2P_CALL_REPLY_BY=write
profile=
# A store in the way of HERD: replies by datagram share doorbells, and those to one client work requests. Columns: $12 work
# requests and $13 doorbells of the server for a call. The program checks every value.
profile=connectib
herd="$studies/pt2p_store servers=1 machines=24 threads=1 window=4 calls=4800 get=50 PT2P_TRANSPORTS=self,rc,ud PT2P_NET_DELIVERY=write PT2P_CALL_REPLY_BY=datagram"
twice 'NF == 20 && $12 > 0.99 && $13 > 0.99' 25 $herd PT2P_NET_BATCHING=off
twice '$12 > 0.99 && $13 < 0.3' 25 $herd PT2P_NET_BATCHING=doorbells
twice '$12 < 0.8 && $13 < 0.3' 25 $herd
# A sequencer: by the device, by calls to a core, and by two cores that share the counter. The program checks every
# history. Columns: $7 M/s, $10 work requests of the server for a call, $14 bytes on PCIe to its device.
profile=connectib
sequencer="$studies/pt2p_sequencer calls=8000 PT2P_TRANSPORTS=self,rc"
twice 'NF == 18 && $7 > 2.3 && $7 < 2.7 && $10 == 0' 9 $sequencer way=atomic machines=8 threads=1 PT2P_ATOMICS=nic
sequencer="$sequencer PT2P_CALL_REPLY_BY=send"
twice '$7 > 4 && $7 < 9 && $10 > 0.99 && $14 > 100' 25 $sequencer machines=24 threads=1 window=1
twice '$7 > 13 && $10 < 0.5' 25 $sequencer machines=24 threads=1 window=16 PT2P_NET_DELIVERY=write
cores="$sequencer way=turn cores=2 machines=12 threads=2 window=16 PT2P_NET_DELIVERY=write"
twice '$7 > 18 && $18 !~ /PCIe/' 13 $cores
# Where PCIe is too slow, the report says so.
profile=connectib,pcie_lanes=1
twice '$7 < 13 && $18 ~ /efficiency \(PCIe\)/' 13 $cores
profile=

# Five message protocols over three kinds of traffic. Columns: $8 Gb/s of values, $13 WQEs and $14 receives for each.
protocols="$studies/pt2p_protocols threads=2 requests=4000 PT2P_TRANSPORTS=self,rc PT2P_NET_RINGS=512 PT2P_NET_RING_SLOT_BYTES=512"
twice '$8 > 25 && $13 < 1.1 && $14 == 0' 4 $protocols shape=M:1 nodes=3 way=read
twice '$8 > 10 && $14 > 0.9 && $14 < 1.1' 4 $protocols shape=1:M nodes=3 way=send/write window=8
twice '$8 > 5 && $13 < 2.2 && $14 < 0.1' 3 $protocols shape=M:M nodes=3 way=write/write window=4
twice '$8 > 0.1 && $13 > 1.7' 4 $studies/pt2p_protocols shape=M:1 nodes=3 threads=2 requests=4000 PT2P_TRANSPORTS=self,rc,ud way=datagram/datagram

# The advisor's judge: READ is named and best, of the calls the one that is named is not; and a cell is run by all ways.
advise="${srcdir:-.}/softhca/studies/advise"
cat >"$work/advise.csv" <<-END
	set,profile,shape,nodes,threads,servers,window,value,transport,way,M/s
	used,connectx5,M:1,28,1,1,1,36,rc,read,14
	used,connectx5,M:1,28,1,1,1,36,rc,send/read,3
	used,connectx5,M:1,28,1,1,1,36,rc,write/write,3
	used,connectx5,M:1,28,1,1,1,36,rc,datagram/datagram,4
END
sh "$advise" --judge . "$work/advise.csv" >"$work/judged" || fail "advise --judge"
grep -q '^used, all ways .* 1 of 1 cells' "$work/judged" && grep -q '^used, calls only .* 0 of 1 cells .*worst 0.75$' "$work/judged" ||
	{ cat "$work/judged"; fail "advise --judge"; }
echo "used connectx5 M:1 2 1 1 1 36" >"$work/cells"
CELLS=$work/cells REQUESTS=1000 sh "$advise" . >"$work/advise.csv" || fail "advise"
[ "$(awk -F, 'NR > 1 && NF == 11 && $11 > 0' "$work/advise.csv" | wc -l)" = 9 ] || { cat "$work/advise.csv"; fail "advise: a way is missing"; }

# Threads of a node with one context: behind a lock of the program, and combined. Columns: $6 M/s, $9 fairness, $11 calls in a batch.
threads="$studies/pt2p_threads servers=4 clients=4 threads=16 calls=4000 PT2P_TRANSPORTS=self,rc"
HWLOC_SYNTHETIC='core:384 pu:1'
export HWLOC_SYNTHETIC
twice '$6 < 2 && $9 > 0.9' 8 $threads share=lock
twice '$6 > 11 && $9 > 0.9 && $11 > 1.5' 8 $threads share=combined
unset HWLOC_SYNTHETIC

# Scripts, and their pictures.
NODES=2 RANKS=2 OPERATIONS=20 timeout -k 5 60 sh "${srcdir:-.}/softhca/studies/demo" . >"$work/demo" || fail "demo: $(cat "$work/demo")"
grep -Eq '^libpt2p by default +[0-9]+ #+ +[0-9.]+ us +[0-9]+ +[0-9]+ MB$' "$work/demo" || { cat "$work/demo"; fail "demo: no figure of the default"; }
NODES=4 COUNTS='1 2' PEERS=256 OPERATIONS=100 timeout -k 5 60 sh "${srcdir:-.}/softhca/studies/groups" . >"$work/groups.csv" ||
	fail "groups: $(cat "$work/groups.csv")"
[ "$(wc -l <"$work/groups.csv")" = 4 ] || { cat "$work/groups.csv"; fail "groups: other lines than expected"; }
$studies/draw "$work/groups.csv" x=groups y=Mops by=choice title=T xlabel=X ylabel=Y >"$work/groups.svg" || fail "draw"
grep -q '</svg>' "$work/groups.svg" || fail "draw made no picture"
echo "studies: all passed"
