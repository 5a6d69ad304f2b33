/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A task system with work stealing. Each rank has a queue of tasks, and running a task may add more. A rank without
 * tasks calls others to steal some of theirs. The tasks count the solutions of the N queens puzzle: each places one
 * queen in the next row, in all ways that there are, and makes a task of each.
 *
 * Everything is done when rank 0 has all of the weight. The first task has it. A task divides its weight among the
 * tasks that it makes, and a rank without tasks reports what is left to rank 0. So weight is missing there while there
 * is a task anywhere, in whatever order reports arrive.
 *
 *     mpirun -n 4 ./tasks [queens]
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pt2p.h>

enum { STEAL = 1, REPORT = 2, STOP = 3 }; /* services */
enum { MAX_QUEENS = 14, MAX_TASKS = 1024, MAX_STOLEN = 32, ROWS_ALONE = 7 };

static const uint64_t all_weight = UINT64_C(1) << 60;
static const uint64_t solutions[MAX_QUEENS + 1] = {1, 1, 0, 0, 2, 10, 4, 40, 92, 352, 724, 2680, 14200, 73712, 365596};

/* A board with `rows` free rows: the columns and diagonals that are attacked in the first of them. */
typedef struct {
	uint64_t weight;
	uint32_t columns, left, right, rows;
} task_t;

typedef struct {
	uint64_t weight, solutions, tasks, stolen;
} report_t;

typedef struct {
	task_t tasks[MAX_TASKS]; /* the newest is the last */
	size_t count;
	uint32_t all_columns;
	report_t mine;  /* since the last report */
	report_t total; /* of all ranks, at rank 0 */
	int stopped;
} state_t;

/* Ends the whole job when a call fails, and says why. */
#define CHECK(call)                                                                                                    \
	do {                                                                                                               \
		if ((call) != PT2P_OK) {                                                                                       \
			fprintf(stderr, "%s\n", pt2p_last_error(ctx));                                                             \
			pt2p_abort(ctx, 1, #call);                                                                                 \
		}                                                                                                              \
	} while (0)

/* Gives half of the tasks away: the oldest, as these have the most work in them. */
static void on_steal(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, void *argument)
{
	state_t *s = argument;
	const size_t n = s->count / 2 < MAX_STOLEN ? s->count / 2 : MAX_STOLEN;
	(void)input, (void)length;
	CHECK(pt2p_reply(ctx, call, n, s->tasks, n * sizeof *s->tasks));
	s->count -= n;
	memmove(s->tasks, s->tasks + n, s->count * sizeof *s->tasks);
}

static void on_report(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, void *argument)
{
	report_t *total = &((state_t *)argument)->total;
	const report_t *more = input;
	(void)call, (void)length;
	total->weight += more->weight;
	total->solutions += more->solutions;
	total->tasks += more->tasks;
	total->stolen += more->stolen;
	if (total->weight == all_weight)
		for (int r = 0; r < pt2p_size(ctx); ++r)
			CHECK(pt2p_notify(ctx, r, STOP, NULL, 0, NULL));
}

static void on_stop(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, void *argument)
{
	(void)ctx, (void)call, (void)input, (void)length;
	((state_t *)argument)->stopped = 1;
}

/* Places a queen in all ways. What follows from each is a task; on small boards it is done at once. */
static void place(pt2p_context_t *ctx, state_t *s, task_t t)
{
	const uint32_t open = s->all_columns & ~(t.columns | t.left | t.right);
	const int alone = t.rows <= ROWS_ALONE || !open;
	const uint64_t share = alone ? 0 : (t.weight - 1) / (uint64_t)__builtin_popcount(open);
	s->mine.weight += t.weight;
	s->mine.solutions += t.rows == 0;
	for (uint32_t left = open; left; left &= left - 1) {
		const uint32_t queen = left & -left;
		const task_t next = {share, t.columns | queen, (t.left | queen) << 1, (t.right | queen) >> 1, t.rows - 1};
		s->mine.weight -= share;
		if (alone)
			place(ctx, s, next);
		else if (s->count < MAX_TASKS)
			s->tasks[s->count++] = next;
		else
			pt2p_abort(ctx, 1, "too many tasks");
	}
}

/* Tasks of some other rank, if it has any. */
static void steal(pt2p_context_t *ctx, state_t *s)
{
	const int victim = (pt2p_rank(ctx) + 1 + rand() % (pt2p_size(ctx) - 1)) % pt2p_size(ctx);
	task_t stolen[MAX_STOLEN];
	pt2p_result_t result;
	CHECK(pt2p_call(ctx, victim, STEAL, NULL, 0, stolen, sizeof stolen, NULL, &result));
	memcpy(s->tasks, stolen, result.length); /* the queue was empty, and has remained so */
	s->count = result.tag;
	s->mine.stolen += result.tag;
}

int main(int argc, char **argv)
{
	static state_t s;
	const int queens = argc > 1 ? atoi(argv[1]) : 12;
	pt2p_context_t *ctx = NULL;
	CHECK(pt2p_init(NULL, &ctx));
	if (queens < 1 || queens > MAX_QUEENS) {
		fprintf(stderr, "usage: tasks [1 ... %d]\n", MAX_QUEENS);
		pt2p_abort(ctx, 1, "no such board");
	}
	s.all_columns = (1u << queens) - 1;
	srand((unsigned)pt2p_rank(ctx));
	pt2p_service_t *service; /* pt2p_finalize closes them */
	CHECK(pt2p_service_open(ctx, STEAL, on_steal, &s, NULL, &service));
	CHECK(pt2p_service_open(ctx, REPORT, on_report, &s, NULL, &service));
	CHECK(pt2p_service_open(ctx, STOP, on_stop, &s, NULL, &service));
	CHECK(pt2p_barrier(ctx));
	if (pt2p_rank(ctx) == 0)
		s.tasks[s.count++] = (task_t){all_weight, 0, 0, 0, (uint32_t)queens};
	while (!s.stopped) {
		if (s.count) {
			++s.mine.tasks;
			place(ctx, &s, s.tasks[--s.count]);
		} else if (s.mine.weight) {
			CHECK(pt2p_notify(ctx, 0, REPORT, &s.mine, sizeof s.mine, NULL));
			memset(&s.mine, 0, sizeof s.mine);
		} else if (pt2p_size(ctx) > 1) {
			steal(ctx, &s);
		}
		CHECK(pt2p_progress(ctx)); /* here others steal */
	}
	CHECK(pt2p_barrier(ctx));
	const int good = pt2p_rank(ctx) != 0 || s.total.solutions == solutions[queens];
	if (pt2p_rank(ctx) == 0)
		printf("%llu solutions for %d queens, %llu tasks, %llu stolen: %s\n", (unsigned long long)s.total.solutions,
		       queens, (unsigned long long)s.total.tasks, (unsigned long long)s.total.stolen,
		       good ? "verified" : "WRONG");
	CHECK(pt2p_finalize(ctx));
	return !good;
}
