#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# The job layer below real launchers: runs tests/mpi/job_probe in all its modes. Exits with 77 without Open MPI's
# mpirun.
. "${srcdir:-.}/tests/common.sh"
need_launcher
probe=${JOB_PROBE:-./tests/mpi/job_probe}
failed=0

# expect CODE NAME COMMAND...
expect()
{
	code=$1 name=$2
	shift 2
	timeout -k 5 60 "$@"
	got=$?
	if [ $got -eq "$code" ]; then
		echo "ok: $name"
	else
		echo "FAILED: $name: exit code $got instead of $code"
		failed=1
	fi
}

launched()
{
	code=$1 ranks=$2
	shift 2
	expect "$code" "$* with $ranks ranks" "$mpirun" --oversubscribe -n "$ranks" "$probe" "$@"
}

launched_surviving()
{
	ranks=$1
	shift
	expect 0 "$* with $ranks ranks" "$mpirun" --oversubscribe --enable-recovery -n "$ranks" "$probe" "$@"
}

for ranks in 1 2 4; do
	launched 0 $ranks exchange
done
launched 0 4 nodes 2
launched 0 3 nodes 1
launched 0 2 twice
launched 0 2 news
for _ in 1 2; do
	launched 0 4 leaving
done
launched 0 3 leaving lookups
launched 7 2 abort
launched_surviving 3 dead
launched_surviving 2 killed

# Variables of launchers, without a launcher.
expect 0 "alone" "$probe" alone
expect 0 "server that refuses" env PMIX_NAMESPACE=none PMIX_RANK=0 \
	PMIX_SERVER_URI41='none.0;tcp4://127.0.0.1:1' "$probe" refuse
expect 0 "no server named" env PMIX_NAMESPACE=none PMIX_RANK=0 "$probe" refuse
expect 0 "variables of mpirun without PMIx" env OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 "$probe" refuse
expect 0 "variables of PMI" env PMI_SIZE=2 PMI_RANK=0 "$probe" refuse
expect 0 "variables of Slurm" env SLURM_NTASKS=2 SLURM_PROCID=0 "$probe" refuse
if command -v mpiexec.hydra >/dev/null; then
	expect 0 "MPICH's launcher, two ranks" mpiexec.hydra -n 2 "$probe" refuse
	expect 0 "MPICH's launcher, one rank" mpiexec.hydra -n 1 "$probe" alone
fi
exit $failed
