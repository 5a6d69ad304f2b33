#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# Run in the build tree. A program of Open MPI over the provider: in shared memory, over rc, dct and forwarders of softhca, and
# with packets lost.
. "${srcdir:-.}/tests/common.sh"
need_launcher
mpicc=$(command -v mpicc.openmpi || command -v mpicc) || skip "mpicc is not installed (Debian: libopenmpi-dev)"
ompi_info 2>/dev/null | grep -q 'MCA mtl: ofi' || skip "Open MPI: built without libfabric"
! sanitized || skip "Open MPI cannot load a library with sanitizers"
"$mpicc" -std=c11 -O -o "$work/program" "$srcdir/tests/ofi/mpi.c" || fail "mpicc"
FI_PROVIDER_PATH=$PWD/.libs
export FI_PROVIDER_PATH

# run RANKS COMMAND...: COMMAND goes before mpirun. Arguments of the program: $arguments.
run()
{
	ranks=$1
	shift
	PT2P_SUMMARY=1 timeout -k 5 170 env "$@" "$mpirun" --oversubscribe --bind-to none -n "$ranks" --mca pml cm \
		--mca mtl ofi --mca mtl_ofi_provider_include pt2p "$work/program" $arguments >"$work/out" 2>&1
}

# over WHAT RANKS COMMAND...: it must succeed. The summary proves that libpt2p is in use.
over()
{
	what=$1
	shift
	run "$@" || failed "$what"
	grep -q '^ok$' "$work/out" || failed "$what: rank 0 has not ended"
	grep -q '^libpt2p .*rank 0 of' "$work/out" || failed "$what: it has not used libpt2p"
	echo "ok: $what, $ranks ranks"
}

arguments=
over "shared memory" 3 PT2P_CONF=/dev/null
arguments=spawn
over "MPI_Comm_spawn" 2 PT2P_CONF=/dev/null FI_PT2P_OPEN=yes
run 2 PT2P_CONF=/dev/null
result=$?
[ $result -ne 0 ] && [ $result -ne 124 ] || failed "MPI_Comm_spawn between jobs that cannot reach each other: result $result"
echo "ok: MPI_Comm_spawn reports that the jobs cannot reach each other"
arguments=lose
run 3 PT2P_CONF=/dev/null FI_LOG_LEVEL=warn OMPI_MCA_orte_enable_recovery=1
[ $? -ne 124 ] && grep -q 'pt2p.*peer lost.*rank 1' "$work/out" || failed "a rank that is killed"
echo "ok: a rank that is killed is named, and the others end"
arguments=
[ -x softhca/softhca ] || skip "the rest: built without rdma-core"
over rc 3 PT2P_TRANSPORTS=self,rc softhca/softhca
over dct 3 PT2P_TRANSPORTS=self,dct softhca/softhca
over "forwarders" 4 PT2P_RANKS_PER_NODE=2 PT2P_ROUTE=forward PT2P_GROUPS=nodes:1 softhca/softhca
over "rc with losses" 2 PT2P_TRANSPORTS=self,rc PT2P_NET_TIMEOUT=8 softhca/softhca --fault "$lossy"
