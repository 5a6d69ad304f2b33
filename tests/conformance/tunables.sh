#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Messages and one-sided operations with each numeric tunable at the ends of its range, then with several at their ends
# together, over softhca or shared memory. And the errors when ranks differ in a tunable that they have to share. The
# list is pt2p_info's, so a new tunable is in it. Run in the build tree.
. "${srcdir:-.}/tests/common.sh"
softhca=./softhca/softhca
[ -x $softhca ] || skip "built without libibverbs"
need_launcher
moves='both_directions random_exact long_row put_get many_one_sided'
! sanitized || moves='random_exact put_get' # see common.sh

# Name, minimum and maximum of each tunable that has them.
./pt2p_info --config | awk '$6 == "to" { print $1, $5, $7 }' >"$work/ranges"
[ "$(wc -l <"$work/ranges")" -ge 30 ] || fail "pt2p_info --config lists too few ranges"

# The settings and the number of ranks with which the tunable has an effect.
beside()
{
	case $1 in
	PT2P_FORWARD_*) echo 4 PT2P_RANKS_PER_NODE=1 PT2P_GROUPS=nodes:2 PT2P_ROUTE=forward ;;
	PT2P_CALL_RESULT*) echo 2 PT2P_CALL_REPLY_BY=read ;;
	PT2P_NET_RING*) echo 2 PT2P_NET_DELIVERY=write ;;
	PT2P_REGISTRATION_*) echo 2 PT2P_REGISTRATION_CACHE=all ;;
	PT2P_TUNE_RAISE_BELOW) echo 2 PT2P_TUNE=on PT2P_TUNE_CUT_ABOVE=100000000 ;;
	PT2P_TUNE_CUT_ABOVE) echo 2 PT2P_TUNE=on PT2P_TUNE_RAISE_BELOW=0 ;;
	PT2P_TUNE_*) echo 2 PT2P_TUNE=paper ;;
	*) echo 2 ;;
	esac
}
# The cases in which it has an effect.
moves_for()
{
	case $1 in
	PT2P_CALL_WINDOW | PT2P_CALL_RE*) echo calls ;;
	# Others let more calls wait than its minimum, or expect that there is no deadline.
	PT2P_CALL_*) echo call_header_only call_nested many_calls call_history ;;
	*) echo $moves ;;
	esac
}
several_transports='rc dct'
! sanitized || several_transports=dct # see common.sh
# shellcheck disable=SC2086 # several words
while read -r name least largest; do
	case $name in
	PT2P_FORWARD_*) ways=rc,dct ;;
	PT2P_SHM_*) ways=shm ;;
	*) ways=$several_transports ;;
	esac
	for way in $ways; do
		for value in $least $largest; do
			run_cases $softhca $cases threads $(beside $name) PT2P_TRANSPORTS=self,$way $name=$value $(moves_for $name) \
				</dev/null
		done
	done
done <"$work/ranges"

# All tunables that limit what a device gets, at their minimum, and next to their ends, at numbers that are not special.
# shellcheck disable=SC2086
for way in $several_transports; do
	for setting in 'PT2P_NET_MESSAGE_BYTES=256 PT2P_NET_RECEIVES=16 PT2P_NET_SEND_DEPTH=4 PT2P_NET_RING_SLOTS=4
		PT2P_NET_RING_SLOT_BYTES=64 PT2P_NET_INLINE=16 PT2P_NET_DEVICE_MEMORY=0 PT2P_DCT_INITIATORS=1 PT2P_NET_DELIVERY=write' \
		'PT2P_NET_MESSAGE_BYTES=320 PT2P_NET_RECEIVES=17 PT2P_NET_SEND_DEPTH=5 PT2P_NET_INLINE=17 PT2P_NET_DEVICE_MEMORY=1
		PT2P_NET_SIGNAL_PERIOD=6 PT2P_NET_RINGS=1' \
		'PT2P_NET_MESSAGE_BYTES=256 PT2P_NET_RING_SLOT_BYTES=256 PT2P_NET_RING_SLOTS=4096 PT2P_NET_DELIVERY=write PT2P_NET_DIRECT=0' \
		'PT2P_NET_SEND_DEPTH=4 PT2P_NET_DOORBELL_BATCH=64 PT2P_NET_QUEUE_PAIRS=16 PT2P_EAGER_MAX=1m'; do
		run_cases $softhca $cases threads 2 PT2P_TRANSPORTS=self,$way $setting $moves
	done
done

# differ PATTERN SETTING SETTING: what ranks with these settings say. With an empty pattern, they move their data.
# shellcheck disable=SC2086
differ()
{
	pattern=$1
	set -- -n 1 env $2 $softhca --fabric "$work/fabric" tests/conformance/conformance_mpi $moves : \
		-n 1 env $3 $softhca --fabric "$work/fabric" tests/conformance/conformance_mpi $moves
	if timeout -k 5 60 "$mpirun" --oversubscribe --bind-to none "$@" >"$work/out" 2>&1; then
		[ -z "$pattern" ] || fail "$*: nothing was said"
	else
		[ -n "$pattern" ] && grep -Eq "$pattern" "$work/out" || failed "$*"
	fi
	rm -rf "$work/fabric"
	echo "ok: $*"
}
for way in $several_transports; do
	export PT2P_TRANSPORTS=self,$way
	differ 'rank [01]: .*that rank has PT2P_NET_MESSAGE_BYTES=(256 and this one 8192|8192 and this one 256): all ranks must' \
		PT2P_NET_MESSAGE_BYTES=256 PT2P_NET_MESSAGE_BYTES=8192
	differ '' 'PT2P_NET_DELIVERY=write PT2P_NET_RING_SLOTS=4' 'PT2P_NET_DELIVERY=write PT2P_NET_RING_SLOT_BYTES=4096'
	differ '' 'PT2P_NET_QUEUE_PAIRS=16 PT2P_RENDEZVOUS=read' 'PT2P_RENDEZVOUS=write PT2P_EAGER_MAX=0 PT2P_NET_SEND_DEPTH=4'
	differ '' 'PT2P_NET_DIRECT=0 PT2P_RENDEZVOUS=pieces PT2P_NET_RECEIVES=16' 'PT2P_TUNE=on PT2P_NET_INLINE=16'
done
export PT2P_TRANSPORTS=self,shm
differ '' 'PT2P_SHM_RING_SLOTS=8 PT2P_SHM_RING_BYTES=4096 PT2P_SHM_SINGLE_COPY=0' 'PT2P_SHM_BACKING=devshm PT2P_EAGER_MAX=1m'
differ 'has PT2P_RC_CONNECTIONS=1024, PT2P_RANKS_PER_NODE=2 and this rank, [01], has PT2P_RC_CONNECTIONS=1024: all ranks must|no other rank on' \
	PT2P_RANKS_PER_NODE=2 PT2P_RANKS_PER_NODE=0
echo "tunables: all passed"
