/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The patterns of pt2p_perf over MPI, measured in the same way: rank 0 with rank 1.
 *
 *     mpi_pt2pt SECONDS lat|bw|rate BYTES [lat|bw|rate BYTES ...]
 *
 * Prints one line for each point: test, bytes, median over the repetitions (us, MB/s, millions a second).
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 64, REPETITIONS = 51, TAG_PAYLOAD = 5, TAG_ACK = 3, TAG_READY = 2, TAG_COUNT = 1 };

static char *out, *in;
static int rank;

static void signal_to(int peer, int tag) { MPI_Send(NULL, 0, MPI_BYTE, peer, tag, MPI_COMM_WORLD); }

static void await_from(int peer, int tag) { MPI_Recv(NULL, 0, MPI_BYTE, peer, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE); }

/* Returns the seconds for so many round trips. */
static double latency(int bytes, long iterations)
{
	const int peer = 1 - rank;
	if (rank == 1)
		signal_to(0, TAG_READY);
	else
		await_from(1, TAG_READY);
	const double start = MPI_Wtime();
	for (long i = 0; i < iterations; ++i) {
		if (rank == 0)
			MPI_Send(out, bytes, MPI_BYTE, peer, TAG_PAYLOAD, MPI_COMM_WORLD);
		MPI_Recv(in, bytes, MPI_BYTE, peer, TAG_PAYLOAD, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		if (rank == 1)
			MPI_Send(out, bytes, MPI_BYTE, peer, TAG_PAYLOAD, MPI_COMM_WORLD);
	}
	return MPI_Wtime() - start;
}

static void post(int bytes, MPI_Request *requests)
{
	for (int w = 0; w < WINDOW; ++w)
		MPI_Irecv(in, bytes, MPI_BYTE, 0, TAG_PAYLOAD, MPI_COMM_WORLD, &requests[w]);
}

/* Returns the seconds for so many windows: sends to receives that are posted before, answered by 0 bytes. */
static double windows(int bytes, long iterations)
{
	MPI_Request requests[WINDOW];
	if (rank == 1) {
		post(bytes, requests);
		signal_to(0, TAG_READY);
		for (long i = 0; i < iterations; ++i) {
			MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
			if (i + 1 < iterations)
				post(bytes, requests);
			signal_to(0, TAG_ACK);
		}
		return 0;
	}
	await_from(1, TAG_READY);
	const double start = MPI_Wtime();
	for (long i = 0; i < iterations; ++i) {
		for (int w = 0; w < WINDOW; ++w)
			MPI_Isend(out, bytes, MPI_BYTE, 1, TAG_PAYLOAD, MPI_COMM_WORLD, &requests[w]);
		MPI_Waitall(WINDOW, requests, MPI_STATUSES_IGNORE);
		await_from(1, TAG_ACK);
	}
	return MPI_Wtime() - start;
}

static double burst(int lat, int bytes, long iterations)
{
	MPI_Bcast(&iterations, 1, MPI_LONG, 0, MPI_COMM_WORLD);
	if (iterations == 0)
		return 0;
	return lat ? latency(bytes, iterations) : windows(bytes, iterations);
}

static int ascending(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* Rank 0 decides how many iterations each burst has. Rank 1 follows until that is 0. */
static void measure(const char *test, int bytes, double time)
{
	const int lat = strcmp(test, "lat") == 0;
	if (rank == 1) {
		for (;;) {
			long iterations;
			MPI_Bcast(&iterations, 1, MPI_LONG, 0, MPI_COMM_WORLD);
			if (iterations == 0)
				return;
			if (lat)
				latency(bytes, iterations);
			else
				windows(bytes, iterations);
		}
	}
	const double target = time / REPETITIONS;
	double seconds = 0;
	long n = 1;
	burst(lat, bytes, n);
	for (int tries = 0; tries < 40; ++tries) {
		seconds = burst(lat, bytes, n);
		const double wanted = target / (seconds > 1e-9 ? seconds : 1e-9);
		if (wanted < 1.5)
			break;
		n = (long)((double)n * (wanted < 10 ? wanted : 10)) + 1;
	}
	double values[REPETITIONS];
	int repetitions = (int)(2 * time / (seconds > 1e-9 ? seconds : 1e-9));
	repetitions = repetitions < 5 ? 5 : repetitions > REPETITIONS ? REPETITIONS : repetitions;
	for (int r = 0; r < repetitions; ++r) {
		const double each = burst(lat, bytes, n) / (double)n;
		if (lat)
			values[r] = each / 2 * 1e6;
		else if (strcmp(test, "bw") == 0)
			values[r] = (double)bytes * WINDOW / each / 1e6;
		else
			values[r] = WINDOW / each / 1e6;
	}
	burst(lat, bytes, 0);
	qsort(values, (size_t)repetitions, sizeof *values, ascending);
	printf("%s %d %.6f\n", test, bytes, values[repetitions / 2]);
}

int main(int argc, char **argv)
{
	int size;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (size != 2 || argc < 4 || argc % 2 != 0) {
		fprintf(stderr, "usage: mpirun -n 2 mpi_pt2pt SECONDS lat|bw|rate BYTES ...\n");
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	int most = 4096;
	for (int i = 3; i < argc; i += 2)
		most = atoi(argv[i]) > most ? atoi(argv[i]) : most;
	out = aligned_alloc(4096, (size_t)(most + 4095) / 4096 * 4096);
	in = aligned_alloc(4096, (size_t)(most + 4095) / 4096 * 4096);
	if (!out || !in)
		MPI_Abort(MPI_COMM_WORLD, 1);
	memset(out, 1, (size_t)most);
	memset(in, 1, (size_t)most);
	for (int i = 2; i < argc; i += 2)
		measure(argv[i], atoi(argv[i + 1]), atof(argv[1]));
	free(out);
	free(in);
	MPI_Finalize();
	return 0;
}
