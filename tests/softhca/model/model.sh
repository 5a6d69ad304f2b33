#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Model mode: the whole library in virtual time, the same in every run. Run in the build tree.
. "${srcdir:-.}/tests/common.sh"
softhca=./softhca/softhca
cases=tests/conformance/conformance_inprocess
[ -x $cases ] && [ -x $softhca ] || skip "built without libibverbs or Catch2"
[ "$(uname -m)" = x86_64 ] || skip "model mode is for x86-64"
case $(nm -D softhca/.libs/libsofthca_time.so 2>/dev/null) in
*__asan* | *__tsan_init*) skip "sanitizers do not know fibres" ;;
esac

nodes="PT2P_RANKS_PER_NODE=1 PT2P_NET_DEVICE=each"
run()
{
	timeout -k 5 300 "$@" >"$work/out" 2>&1 || { cat "$work/out"; fail "$*"; }
	echo "ok: $*"
}

# All cases, over each transport, and forwarded.
run $softhca --model connectx5 --devices 3 $cases threads 3 PT2P_TRANSPORTS=self,rc $nodes
run $softhca --model connectib --devices 3 $cases threads 3 PT2P_TRANSPORTS=self,dct $nodes
run $softhca --model connectx6 --devices 4 $cases threads 4 PT2P_TRANSPORTS=self,rc,dct PT2P_GROUPS=nodes:2 PT2P_ROUTE=forward \
	PT2P_PROGRESS_THREAD=no $nodes
# A lossy wire. Time-outs take no real time.
run $softhca --model connectx5 --devices 2 --fault 'drop count=1000 rate=0.02 seed=3' $cases threads 2 PT2P_TRANSPORTS=self,rc $nodes \
	random_exact unexpected_flood
# A link that goes down and comes back: nothing moves for 3 ms.
run $softhca --model connectx5 --devices 2 --fault 'link_down device=1 after=100 count=1 ms=3' $cases threads 2 PT2P_TRANSPORTS=self,rc $nodes \
	random_exact unexpected_flood

# READs that are torn bring the right bytes where nothing changes them, and torn objects where something does.
run $softhca --model connectx5 --devices 2 --fault 'tear rate=0.5 seed=3' $cases threads 2 PT2P_TRANSPORTS=self,rc $nodes \
	random_exact put_get
run $softhca --model connectx5 --devices 1 --fault clear tests/softhca/verbs_tests '[tear]'

# Two runs are the same to the bit, whether or not the machine is busy.
same()
{
	timeout -k 5 100 $softhca --model connectx5 --devices 4 --json --report-file "$work/report.$1" \
		$cases threads 4 PT2P_TRANSPORTS=self,rc,dct PT2P_ROUTE=direct PT2P_RC_CONNECTIONS=2 $nodes random_exact put_get >"$work/out" 2>&1 || fail "run $1: $(cat "$work/out")"
	sed 's/"pid": [0-9]*//' "$work/report.$1" >"$work/counted.$1"
}
same 1
(while :; do :; done) &
busy=$!
same 2
kill $busy
cmp "$work/counted.1" "$work/counted.2" || fail "two runs differ"
grep -q '"wqes": [1-9]' "$work/counted.1" || fail "nothing was counted: $(cat "$work/counted.1")"

# Many ranks share a device, and their initiators change targets all the time. All leave at once or one after the other.
# Nothing is lost (softhca checks that), and no rank waits in pt2p_finalize for a target that is gone.
leave()
{
	by=$1 count=$2 each=$3 gap=$4
	shift 4
	timeout -k 5 20 $softhca --model connectx5 --devices "$count" tests/softhca/model/leaving nodes="$count" \
		ranks="$each" apart="$gap" PT2P_TRANSPORTS="$by" "$@" >"$work/out" 2>&1 || fail "leaving by $by $count $each $gap $*: $(cat "$work/out")"
	# Where messages are forwarded, the first rank waits until the last has acknowledged its goodbye.
	awk -v first="$((gap * count * each / 1000))" '{exit !($1 < 1000 + first)}' "$work/out" ||
		fail "pt2p_finalize by $by $count $each $gap $* takes $(cat "$work/out") us"
	echo "ok: pt2p_finalize by $by $count $each $gap $*: $(cat "$work/out") us"
}
for transports in self,shm,rc self,shm,dct self,rc,dct; do
	for apart in 0 1000 100000; do
		leave $transports 4 4 $apart
		leave $transports 2 8 $apart
		leave $transports 4 4 $apart PT2P_GROUPS=nodes:2 PT2P_ROUTE=forward
	done
	for depth in 4 8; do
		leave $transports 4 4 1000 PT2P_GROUPS=nodes:2 PT2P_ROUTE=forward PT2P_NET_SEND_DEPTH=$depth
	done
	leave $transports 3 4 100000 PT2P_GROUPS=nodes:2 PT2P_ROUTE=auto
done

run $softhca --model connectx5 --devices 1 tests/softhca/model/locks

# Losses are counted, and reported when no fault was asked for.
lossy="$work/lossy"
timeout 100 $softhca --fabric "$lossy" --model connectx5 --devices 2 --fault 'drop count=10 rate=0.02 seed=3' $cases threads 2 \
	PT2P_TRANSPORTS=self,rc $nodes random_exact >"$work/out" 2>&1 || fail "a lossy wire: $(cat "$work/out")"
./softhca/softhca_counters --lossless "$lossy" 2>"$work/out" && fail "losses are not seen"
grep -q 'mlx5_[01]: retransmissions [1-9]' "$work/out" || fail "losses: $(cat "$work/out")"
code=0
timeout 20 $softhca --fabric "$lossy" --model connectx5 true 2>"$work/out" || code=$?
[ $code = 3 ] || fail "a run with losses ends with $code"
grep -q 'no fault was asked for' "$work/out" || fail "losses: $(cat "$work/out")"
echo "ok: losses are seen"

# Ranks of one node: a store of one rank is visible to its neighbour after cpu_share, and the neighbour polls every
# cpu_poll (10 ns). It does so while it waits for its device, too, and while the first rank computes. Without a device,
# a poll comes after a yield (220 ns).
yield=220
seen()
{
	transports=$1 share=$2 least=$3 most=$4
	for i in 1 2; do
		timeout -k 5 100 $softhca --model connectx5,cpu_share="$share" --devices 1 tests/softhca/model/neighbours \
			PT2P_TRANSPORTS="$transports" >"$work/seen.$i" 2>&1 || fail "neighbours by $transports: $(cat "$work/seen.$i")"
	done
	cmp "$work/seen.1" "$work/seen.2" || fail "neighbours by $transports: two runs differ"
	awk -v least="$least" -v most="$most" '{exit !(NF == 2 && $1 >= least && $1 <= most && $2 >= least && $2 <= most)}' "$work/seen.1" ||
		fail "neighbours by $transports, cpu_share=$share: $(cat "$work/seen.1") ns, not $least to $most"
	echo "ok: neighbours by $transports, cpu_share=$share: $(cat "$work/seen.1") ns"
}
seen self,shm 80 0 $yield
for share in 20 80 500; do
	seen self,shm,rc $share $share $((share + 10))
done

# Options that are refused.
refused()
{
	text=$1
	shift
	code=0
	timeout 20 "$@" >"$work/out" 2>&1 || code=$?
	[ $code -ne 0 ] && [ $code -ne 124 ] || fail "$* ends with $code"
	grep -q "$text" "$work/out" || { cat "$work/out"; fail "$*: the message is not: $text"; }
	echo "ok: refused: $*"
}
probe="$cases threads 2 PT2P_TRANSPORTS=self,rc $nodes random_exact"
refused "there is no profile connectx9" $softhca --model connectx9 $probe
refused "no parameter colour" $softhca --model connectx5,colour=3 $probe
refused "is to be a number" $softhca --model connectx5,units=many $probe
refused "allowed: 1 to 256" $softhca --model connectx5 --devices 257 $probe
