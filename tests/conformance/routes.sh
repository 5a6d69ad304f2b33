#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The conformance cases under each routing policy (PT2P_ROUTE), on pretended nodes and softhca. Run in the build tree.
. "${srcdir:-.}/tests/common.sh"
softhca=./softhca/softhca
[ -x $softhca ] || skip "built without libibverbs"

# Two groups of two nodes with two ranks; three groups of four, three and one; groups of one.
even='PT2P_TRANSPORTS=self,shm,rc,dct PT2P_RANKS_PER_NODE=2 PT2P_GROUPS=nodes:2'
uneven='PT2P_TRANSPORTS=self,rc,dct PT2P_RANKS_PER_NODE=1 PT2P_GROUPS=0-3;4-6;7'
ones='PT2P_TRANSPORTS=self,rc,dct PT2P_RANKS_PER_NODE=1 PT2P_GROUPS=nodes:1'
# shellcheck disable=SC2086 # several words
{
	run_cases $softhca $cases threads 8 $even PT2P_ROUTE=forward $whole
	run_cases $softhca $cases threads 8 $uneven PT2P_ROUTE=auto $whole
	# Settings that could deadlock: one initiator, few credits, small windows. And that could lose messages: a bad wire,
	# and time-outs that are too short.
	run_cases $softhca --fault "$lossy" $cases threads 8 $even PT2P_ROUTE=forward PT2P_NET_TIMEOUT=8 PT2P_DCT_INITIATORS=1 \
		PT2P_FORWARD_CREDITS=4 PT2P_FORWARD_WINDOW=4 several
	run_cases $softhca $cases threads 8 $uneven PT2P_ROUTE=forward PT2P_FORWARD_TIMEOUT=1ms PT2P_PROGRESS_THREAD=no several
	if ! sanitized; then
		run_cases $softhca $cases threads 8 $even PT2P_ROUTE=direct $most
		run_cases $softhca $cases threads 8 $even PT2P_ROUTE=auto PT2P_DCT_INITIATORS=1 $most
		run_cases $softhca $cases threads 8 $uneven PT2P_ROUTE=forward $most
		run_cases $softhca $cases threads 5 $ones PT2P_ROUTE=forward $most
		run_cases $softhca $cases cooperative 8 $even PT2P_ROUTE=forward several
		run_cases $softhca $cases threads 8 $even PT2P_ROUTE=forward PT2P_CALL_WINDOW=1 calls
		run_cases $softhca $cases threads 8 $even PT2P_ROUTE=forward PT2P_DCT_INITIATORS=1 PT2P_NET_MESSAGE_BYTES=256 PT2P_ONE_SIDED=owner \
			PT2P_NET_RECEIVES=16 PT2P_NET_SEND_DEPTH=4 several
		run_cases $softhca $cases threads 8 $even PT2P_ROUTE=forward PT2P_RENDEZVOUS=pieces PT2P_EAGER_MAX=0 PT2P_FORWARD_MAX=100 \
			several
	fi
	need_launcher
	run_cases "$mpirun" --oversubscribe --bind-to none -n 8 env $even PT2P_ROUTE=forward $softhca --fabric "$work/fabric" \
		tests/conformance/conformance_mpi
}
echo "routes: all passed"
