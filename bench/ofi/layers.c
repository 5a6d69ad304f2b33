/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Windows of 8-byte messages from rank 0 to rank 1 whose receives are posted before, for bench/ofi/layers.
 *
 *     layers WINDOWS
 *
 * Rank 0 prints how long MPI_Init has taken, in seconds.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { WINDOW = 64, TAG = 5 };

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv)
{
	const double start = now();
	MPI_Init(&argc, &argv);
	const double seconds = now() - start;
	const long windows = argc == 2 ? atol(argv[1]) : 0;
	long in[WINDOW], out = 7;
	MPI_Request requests[WINDOW];
	int rank;
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (rank == 0)
		printf("%.3f\n", seconds);
	for (long k = 0; k < windows; ++k) {
		for (int i = 0; rank == 1 && i < WINDOW; ++i)
			MPI_Irecv(&in[i], sizeof in[i], MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &requests[i]);
		MPI_Barrier(MPI_COMM_WORLD);
		for (int i = 0; rank == 0 && i < WINDOW; ++i)
			MPI_Isend(&out, sizeof out, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, &requests[i]);
		/* All has arrived before rank 1 waits: a wait that polls would be counted, too. */
		if (rank == 0)
			MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
		MPI_Barrier(MPI_COMM_WORLD);
		if (rank == 1)
			MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
	}
	MPI_Finalize();
	return 0;
}
