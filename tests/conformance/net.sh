#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The conformance cases over rc and dct on softhca: in-process, launched, on a wire that loses, duplicates and reorders
# packets, with queue pairs that break, with a single DC initiator, and with every doorbell trapped. Run in the build tree.
# Arguments: only these transports.
. "${srcdir:-.}/tests/common.sh"
softhca=./softhca/softhca
[ -x $softhca ] || skip "built without libibverbs"

# shellcheck disable=SC2086 # several words
all_cases()
{
	only=PT2P_TRANSPORTS=self,$1
	run_cases $softhca $cases threads 2 $only
	run_cases $softhca $cases threads 8 $only $whole
	run_cases $softhca $cases cooperative 4 $only $whole
	run_cases $softhca $cases threads 3 $only PT2P_CALL_WINDOW=1 calls
	run_cases $softhca $cases threads 3 $only PT2P_CALL_REPLY_BY=read calls
	run_cases $softhca --fault 'tear rate=0.5' $cases threads 2 $only PT2P_CALL_REPLY_BY=read PT2P_CALL_RESULT_BYTES=8192 calls
	# From here on dct stands for both: the tunables are about code that they share.
	if [ "$1" = rc ]; then
		! sanitized || return 0
		for lanes in 2 4; do
			run_cases $softhca $cases threads 3 $only PT2P_NET_LANES=$lanes calls
			run_cases $softhca $cases cooperative 4 $only PT2P_NET_LANES=$lanes PT2P_NET_SEND_DEPTH=4 calls
		done
		run_cases $softhca --fault "$lossy" $cases threads 3 $only PT2P_NET_LANES=2 PT2P_NET_TIMEOUT=8 calls
		run_cases $softhca --fault "$breaks" $cases threads 3 $only PT2P_NET_LANES=2 calls
		run_cases $softhca --fault "$breaks" $cases threads 3 $only several
		datagrams=PT2P_TRANSPORTS=self,rc,ud
		run_cases $softhca $cases threads 3 $datagrams PT2P_CALL_INPUT_BY=datagram PT2P_NET_DIRECT=0 calls
		run_cases $softhca --fault "$lossy" $cases threads 3 $datagrams PT2P_CALL_INPUT_BY=datagram PT2P_UD_QUEUES=3 PT2P_NET_TIMEOUT=8 calls
		run_cases $softhca --fault "$very_lossy" $cases threads 3 $datagrams PT2P_CALL_INPUT_BY=datagram PT2P_NET_TIMEOUT=8 calls
		run_cases $softhca --fault "$very_lossy" $cases cooperative 4 $datagrams PT2P_CALL_INPUT_BY=datagram PT2P_CALL_HEADER_ONLY=0 PT2P_CALL_WINDOW=1 PT2P_NET_TIMEOUT=8 calls
		run_cases $softhca --fault "$very_lossy" $cases threads 3 $datagrams PT2P_CALL_REPLY_BY=datagram PT2P_NET_DELIVERY=write PT2P_NET_TIMEOUT=8 calls
		run_cases $softhca $cases threads 2 $only PT2P_CALL_REPLY_BY=read PT2P_CALL_WINDOW=1 calls
		run_cases $softhca $cases threads 2 $only PT2P_CALL_REPLY_BY=read PT2P_SPIN_TIME=0 PT2P_YIELD_TIME=0 calls
		run_cases $softhca --fault "$lossy" $cases threads 2 $only PT2P_CALL_REPLY_BY=read PT2P_NET_TIMEOUT=8 calls
		run_cases $softhca --fault "$lossy" $cases threads 2 $only PT2P_NET_TIMEOUT=8 PT2P_TUNE=on $most
		run_cases $softhca $cases threads 2 $only PT2P_NET_MESSAGE_BYTES=256 PT2P_NET_RECEIVES=16 PT2P_NET_SEND_DEPTH=4 $most
		run_cases $softhca $cases threads 2 $only PT2P_NET_DELIVERY=read PT2P_TUNE=paper $most
		run_cases $softhca $cases threads 3 $only PT2P_NET_DIRECT=0 PT2P_NET_QUEUE_PAIRS=3 $most
		return 0
	fi
	run_cases $softhca $cases threads 2 $only PT2P_NET_MESSAGE_BYTES=256 PT2P_NET_RECEIVES=16 PT2P_NET_SEND_DEPTH=4 $most
	run_cases $softhca $cases threads 2 $only PT2P_EAGER_MAX=0 PT2P_PROGRESS_THREAD=1 PT2P_TUNE=on $most
	run_cases $softhca $cases threads 2 $only PT2P_SPIN_TIME=0 PT2P_YIELD_TIME=0 PT2P_RENDEZVOUS=pieces PT2P_NET_DEVICE_MEMORY=0 $most
	run_cases $softhca $cases threads 3 $only PT2P_RENDEZVOUS=write PT2P_NET_DELIVERY=write PT2P_NET_DOORBELL_BATCH=8 $most
	run_cases $softhca $cases threads 3 $only PT2P_REGISTRATION_CACHE=all PT2P_NET_DELIVERY=auto PT2P_NET_RINGS=1 PT2P_NET_RING_SLOTS=4 $most
	run_cases $softhca $cases threads 2 $only PT2P_NET_DELIVERY=read PT2P_TUNE=paper $most
	run_cases $softhca --fault "$lossy" $cases threads 2 $only PT2P_NET_TIMEOUT=8 PT2P_TUNE=on $most
	run_cases $softhca --exact $cases threads 2 $only $most
	run_cases env MLX5_CQE_SIZE=128 $softhca $cases threads 2 $only $most # with up to 64 bytes of payload in a completion
	# With libibverbs, as on devices of other makers. And with more queue pairs than a completion queue has room for.
	run_cases $softhca $cases threads 3 $only PT2P_NET_DIRECT=0 PT2P_TUNE=paper $most
	run_cases $softhca $cases threads 12 $only PT2P_DCT_INITIATORS=12 several
	run_cases $softhca $cases threads 3 $only PT2P_NET_QUEUE_PAIRS=3 $most
}
# shellcheck disable=SC2086 # several words
one_sided_cases()
{
	for setting in 'PT2P_ONE_SIDED=owner PT2P_NET_MESSAGE_BYTES=256' \
		'PT2P_ATOMICS=nic PT2P_RANKS_PER_NODE=1 PT2P_NET_SEND_DEPTH=4'; do
		run_cases $softhca $cases threads 3 PT2P_TRANSPORTS=self,$1 $setting one_sided
	done
	run_cases $softhca $cases threads 4 PT2P_TRANSPORTS=self,shm,$1 PT2P_RANKS_PER_NODE=2 one_sided
	# Nothing is registered after the start.
	run_cases $softhca --fault 'refuse mr after=24' $cases threads 3 PT2P_TRANSPORTS=self,$1 PT2P_RANKS_PER_NODE=1 one_sided
}
# A single initiator, which could deadlock. Sanitizers cannot find that, so with them only the first run, in which most
# breaks.
few_cases()
{
	only="PT2P_TRANSPORTS=self,dct PT2P_DCT_INITIATORS=1"
	# shellcheck disable=SC2086 # several words
	{
		run_cases $softhca --fault "$lossy" $cases threads 2 $only PT2P_NET_TIMEOUT=8 $whole
		! sanitized || return 0
		run_cases $softhca $cases threads 3 $only
		run_cases $softhca $cases threads 8 $only PT2P_NET_SEND_DEPTH=4 $most
		run_cases $softhca $cases cooperative 4 $only $most
	}
}

need_launcher
launched='2 8'
! sanitized || launched=2 # see common.sh
for transport in ${*:-rc dct}; do
	all_cases $transport
	[ $transport = rc ] || few_cases
	one_sided_cases $transport
	export PT2P_TRANSPORTS=self,$transport
	for ranks in $launched; do
		run_cases "$mpirun" --oversubscribe --bind-to none -n $ranks $softhca --fabric "$work/fabric" tests/conformance/conformance_mpi
	done
	timeout -k 5 $case_seconds $softhca tests/threads/threads 3 >"$work/out" 2>&1 || { tail -n 50 "$work/out"; fail "threads, $transport"; }
	echo "ok: threads, $transport"
	timeout -k 5 $case_seconds $softhca tests/threads/call_races 500 >"$work/out" 2>&1 || failed "call_races, $transport"
	echo "ok: call_races, $transport"
	if ! sanitized; then
		timeout -k 5 60 $softhca tests/memory/allocations >"$work/out" 2>&1 || failed "allocations, $transport"
		echo "ok: allocations, $transport"
	fi
	unset PT2P_TRANSPORTS
done
echo "net: all passed"
