/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A manager (rank 0) hands out tasks to whichever worker is free. A task counts the primes in a range of numbers, which
 * costs more the larger they are; the total is checked against a sieve. A single rank does the work itself.
 *
 *     mpirun -n 4 ./taskfarm [numbers]
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <pt2p.h>

enum { TAG_TASK = 1, TAG_STOP = 2, TAG_DONE = 3 };

typedef struct {
	int64_t first, end; /* numbers first ... end-1 */
} task_t;

#define CHECK(call) \
	do { \
		if ((call) != PT2P_OK) { \
			fprintf(stderr, "%s\n", pt2p_last_error(ctx)); \
			pt2p_abort(ctx, 1, #call); \
		} \
	} while (0)

static int64_t count_primes(task_t task)
{
	int64_t count = 0;
	for (int64_t n = task.first < 2 ? 2 : task.first; n < task.end; ++n) {
		int64_t d = 2;
		while (d * d <= n && n % d != 0)
			++d;
		count += d * d > n;
	}
	return count;
}

static int64_t sieve(int64_t end)
{
	int64_t count = 0;
	char *composite = calloc((size_t)end, 1);
	if (!composite)
		return -1;
	for (int64_t n = 2; n < end; ++n) {
		if (composite[n])
			continue;
		++count;
		for (int64_t m = n * n; m < end; m += n)
			composite[m] = 1;
	}
	free(composite);
	return count;
}

static void work(pt2p_context_t *ctx)
{
	for (;;) {
		task_t task;
		pt2p_result_t result;
		/* Task or stop: any tag of the manager will do, the result tells which it was. */
		CHECK(pt2p_recv(ctx, &task, sizeof task, 0, 0, PT2P_TAG_ANY, &result));
		if (result.tag == TAG_STOP)
			return;
		const int64_t count = count_primes(task);
		CHECK(pt2p_send(ctx, &count, sizeof count, 0, TAG_DONE));
	}
}

static int64_t manage(pt2p_context_t *ctx, int64_t numbers)
{
	const int workers = pt2p_size(ctx) - 1;
	const int64_t chunk = numbers / (64 * (workers + 1)) + 1;
	int64_t next = 0, total = 0;
	int64_t *tasks_done = calloc((size_t)workers + 1, sizeof *tasks_done);
	if (!tasks_done)
		pt2p_abort(ctx, 1, "no memory");

	int busy = 0;
	int worker = 1; /* first everybody gets a task, then whoever is done gets the next one */
	while (busy > 0 || worker <= workers || (workers == 0 && next < numbers)) {
		const task_t task = {next, next + chunk < numbers ? next + chunk : numbers};
		if (workers == 0) {
			total += count_primes(task);
			next = task.end;
			continue;
		}
		int to;
		if (worker <= workers) {
			to = worker++;
		} else {
			int64_t count;
			pt2p_result_t result;
			CHECK(pt2p_recv(ctx, &count, sizeof count, PT2P_ANY_SOURCE, TAG_DONE, PT2P_TAG_EXACT, &result));
			total += count;
			to = result.source;
			++tasks_done[to];
			--busy;
		}
		if (next < numbers) {
			CHECK(pt2p_send(ctx, &task, sizeof task, to, TAG_TASK));
			next = task.end;
			++busy;
		} else {
			CHECK(pt2p_send(ctx, NULL, 0, to, TAG_STOP));
		}
	}
	for (int w = 1; w <= workers; ++w)
		printf("worker %d did %lld tasks\n", w, (long long)tasks_done[w]);
	free(tasks_done);
	return total;
}

int main(int argc, char **argv)
{
	const int64_t numbers = argc > 1 ? atoll(argv[1]) : 1000000;
	pt2p_context_t *ctx;
	if (pt2p_init(NULL, &ctx) != PT2P_OK) {
		fprintf(stderr, "%s\n", pt2p_last_error(NULL));
		return 1;
	}
	int failed = 0;
	if (numbers < 1 || numbers > 1000000000) {
		fprintf(stderr, "usage: taskfarm [1 ... 1000000000]\n");
		failed = 1;
	} else if (pt2p_rank(ctx) == 0) {
		const int64_t total = manage(ctx, numbers), expected = sieve(numbers);
		failed = total != expected;
		printf("%lld primes below %lld: %s\n", (long long)total, (long long)numbers, failed ? "WRONG" : "verified");
	} else {
		work(ctx);
	}
	if (pt2p_finalize(ctx) != PT2P_OK) {
		fprintf(stderr, "%s\n", pt2p_last_error(NULL));
		failed = 1;
	}
	return failed;
}
