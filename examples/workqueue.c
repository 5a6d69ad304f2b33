/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A work queue without a manager. Rank 0 keeps a counter in its memory. Each rank takes the next task by adding one to
 * it, so a fast rank does more tasks. Results are put into rank 0's memory, each with a signal. When rank 0 has got a
 * signal for each task, it adds the results up and checks the total. A task counts the steps that numbers take to reach
 * 1 (Collatz).
 *
 *     mpirun -n 4 ./workqueue [tasks]
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <pt2p.h>

enum { TAG_EXPORT = 1, NUMBERS = 2000 /* in a task */ };

/* Offsets in rank 0's memory: two words, then the result of each task. The words are often changed, so each has its own
 * cache lines. */
enum { NEXT = 0, DONE = 128, RESULTS = 256 };

/* Ends the whole job when a call fails, and says why. */
#define CHECK(call)                                                                                                    \
	do {                                                                                                               \
		if ((call) != PT2P_OK) {                                                                                       \
			fprintf(stderr, "%s\n", pt2p_last_error(ctx));                                                             \
			pt2p_abort(ctx, 1, #call);                                                                                 \
		}                                                                                                              \
	} while (0)

static uint64_t do_task(uint64_t task)
{
	uint64_t steps = 0;
	for (uint64_t start = task * NUMBERS + 1; start <= (task + 1) * NUMBERS; ++start)
		for (uint64_t n = start; n != 1; n = n % 2 ? 3 * n + 1 : n / 2)
			++steps;
	return steps;
}

/* What every rank does, rank 0 too. Returns how many tasks it did. */
static uint64_t work(pt2p_context_t *ctx, pt2p_remote_t *queue, uint64_t tasks)
{
	for (uint64_t mine = 0;; ++mine) {
		uint64_t task;
		pt2p_request_t *req;
		CHECK(pt2p_fetch_add64(ctx, queue, NEXT, 1, &task, &req));
		CHECK(pt2p_wait(ctx, req, NULL));
		if (task >= tasks)
			return mine;
		const uint64_t result = do_task(task);
		CHECK(pt2p_put_signal(ctx, &result, sizeof result, queue, RESULTS + task * sizeof result, queue, DONE,
		                      PT2P_SIGNAL_ADD, 1, NULL));
		CHECK(pt2p_flush(ctx, 0)); /* `result` may be reused */
	}
}

static int run(pt2p_context_t *ctx, uint64_t tasks)
{
	const int me = pt2p_rank(ctx), ranks = pt2p_size(ctx);
	const size_t bytes = RESULTS + tasks * sizeof(uint64_t);
	pt2p_memory_t *memory = NULL;
	pt2p_remote_t *queue;
	void *address = NULL;
	char export[PT2P_EXPORT_MAX];
	size_t length;

	if (me == 0) {
		CHECK(pt2p_memory_allocate(ctx, bytes, &memory, &address));
		CHECK(pt2p_memory_export(ctx, memory, export, sizeof export, &length));
		for (int rank = 1; rank < ranks; ++rank)
			CHECK(pt2p_send(ctx, export, length, rank, TAG_EXPORT));
	} else {
		pt2p_result_t result;
		CHECK(pt2p_recv(ctx, export, sizeof export, 0, TAG_EXPORT, PT2P_TAG_EXACT, &result));
		length = result.length;
	}
	CHECK(pt2p_memory_import(ctx, 0, export, length, &queue));

	const uint64_t mine = work(ctx, queue, tasks);
	int failed = 0;
	if (me == 0) {
		const uint64_t *results = (const uint64_t *)((const char *)address + RESULTS);
		const uint64_t *done = (const uint64_t *)((const char *)address + DONE);
		uint64_t total = 0, expected = 0;
		CHECK(pt2p_signal_wait(ctx, done, tasks, PT2P_ANY_SOURCE));
		for (uint64_t task = 0; task < tasks; ++task) {
			total += results[task];
			expected += do_task(task);
		}
		failed = total != expected;
		printf("%llu steps in %llu tasks: %s\n", (unsigned long long)total, (unsigned long long)tasks,
		       failed ? "WRONG" : "verified");
	}
	printf("rank %d did %llu tasks\n", me, (unsigned long long)mine);
	CHECK(pt2p_remote_release(ctx, queue));
	CHECK(pt2p_barrier(ctx)); /* the memory must stay until no rank works on it */
	if (memory)
		CHECK(pt2p_memory_release(ctx, memory));
	return failed;
}

int main(int argc, char **argv)
{
	const long long tasks = argc > 1 ? atoll(argv[1]) : 500;
	pt2p_context_t *ctx;
	if (pt2p_init(NULL, &ctx) != PT2P_OK) {
		fprintf(stderr, "%s\n", pt2p_last_error(NULL));
		return 1;
	}
	int failed = 1;
	if (tasks < 1 || tasks > 1000000)
		fprintf(stderr, "usage: workqueue [1 ... 1000000]\n");
	else
		failed = run(ctx, (uint64_t)tasks);
	if (pt2p_finalize(ctx) != PT2P_OK) {
		fprintf(stderr, "%s\n", pt2p_last_error(NULL));
		failed = 1;
	}
	return failed;
}
