/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Rank 0 is the manager: it gives the next task to whichever worker is free. A task counts the primes in a range of
 * numbers; ranges of larger numbers take longer. The total is checked against a sieve. A single rank does the work
 * itself.
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

/* Ends the whole job when a call fails, and says why. */
#define CHECK(call)                                                                                                    \
	do {                                                                                                               \
		if ((call) != PT2P_OK) {                                                                                       \
			fprintf(stderr, "%s\n", pt2p_last_error(ctx));                                                             \
			pt2p_abort(ctx, 1, #call);                                                                                 \
		}                                                                                                              \
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
		/* Any tag of the manager's will do: the result tells whether this is a task or the end. */
		CHECK(pt2p_recv(ctx, &task, sizeof task, 0, 0, PT2P_TAG_ANY, &result));
		if (result.tag == TAG_STOP)
			return;
		const int64_t count = count_primes(task);
		CHECK(pt2p_send(ctx, &count, sizeof count, 0, TAG_DONE));
	}
}

static task_t next_task(int64_t *next, int64_t chunk, int64_t numbers)
{
	const task_t task = {*next, *next + chunk < numbers ? *next + chunk : numbers};
	*next = task.end;
	return task;
}

/* Sends a worker the next task, or lets it go when there is none. Returns whether it has one. */
static int serve(pt2p_context_t *ctx, int worker, int64_t *next, int64_t chunk, int64_t numbers)
{
	if (*next >= numbers) {
		CHECK(pt2p_send(ctx, NULL, 0, worker, TAG_STOP));
		return 0;
	}
	const task_t task = next_task(next, chunk, numbers);
	CHECK(pt2p_send(ctx, &task, sizeof task, worker, TAG_TASK));
	return 1;
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
	for (int worker = 1; worker <= workers; ++worker)
		busy += serve(ctx, worker, &next, chunk, numbers);
	while (busy > 0) { /* whoever is done gets the next task */
		int64_t count;
		pt2p_result_t result;
		CHECK(pt2p_recv(ctx, &count, sizeof count, PT2P_ANY_SOURCE, TAG_DONE, PT2P_TAG_EXACT, &result));
		total += count;
		++tasks_done[result.source];
		busy += serve(ctx, result.source, &next, chunk, numbers) - 1;
	}
	while (next < numbers) /* there are no workers */
		total += count_primes(next_task(&next, chunk, numbers));
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
