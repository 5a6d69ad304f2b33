/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Computes and exchanges messages of 32 KiB with both neighbours on a ring, for bench/ofi/oversubscribed. The work is
 * the same for any number of ranks, which share it.
 *
 *     halo STEPS
 *
 * Rank 0 prints the seconds of all steps, and the result of the computation, which checks the exchange.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { DOUBLES = 4096, SWEEPS = 1000, EXCHANGES = 6, TAG = 5 };

static double in[DOUBLES], out[DOUBLES];

int main(int argc, char **argv)
{
	const long steps = argc == 2 ? atol(argv[1]) : 0;
	int rank, size;
	double sum = 0, total;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	for (int i = 0; i < DOUBLES; ++i)
		out[i] = rank + i;
	MPI_Barrier(MPI_COMM_WORLD);
	const double start = MPI_Wtime();
	for (long step = 0; step < steps; ++step) {
		for (int sweep = 0; sweep < SWEEPS / size; ++sweep)
			for (int i = 1; i < DOUBLES; ++i)
				out[i] = 0.5 * (out[i] + out[i - 1]);
		for (int k = 0; k < EXCHANGES; ++k) {
			const int step_right = k % 2 ? size - 1 : 1;
			MPI_Request request;
			MPI_Irecv(in, DOUBLES, MPI_DOUBLE, (rank + size - step_right) % size, TAG, MPI_COMM_WORLD, &request);
			MPI_Send(out, DOUBLES, MPI_DOUBLE, (rank + step_right) % size, TAG, MPI_COMM_WORLD);
			MPI_Wait(&request, MPI_STATUS_IGNORE);
			out[0] = in[DOUBLES - 1];
			sum += in[DOUBLES - 1 - k];
		}
	}
	const double seconds = MPI_Wtime() - start;
	MPI_Reduce(&sum, &total, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
	if (rank == 0)
		printf("%.4f %.17g\n", seconds, total);
	MPI_Finalize();
	return 0;
}
