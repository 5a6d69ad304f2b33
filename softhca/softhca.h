/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * softhca for programs that run on it: counters, faults and polls from inside. The functions are in libsofthca.so,
 * which softhca(1) preloads; they are weak here, so that a program can be linked without it and ask whether they are
 * there:
 *
 *     uint64_t n;
 *     if (softhca_counter && softhca_counter("doorbells", -1, 0, &n) == 0)
 *         printf("%llu doorbells\n", (unsigned long long)n);
 *
 * All functions are thread-safe.
 */
#ifndef SOFTHCA_H
#define SOFTHCA_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Reads a counter of this process. `name` is one of those that softhca_counters --list prints. With `qp_num` other than
 * 0, that of one queue pair, also after it has been destroyed; else that of device `device` (0 for mlx5_0), or with -1
 * of all devices together. Returns 0 and sets `value`, or -1 with errno: ENOENT (no such counter, device or queue
 * pair).
 */
int softhca_counter(const char *name, int device, uint32_t qp_num, uint64_t *value) __attribute__((weak));

/*
 * How many queue pairs this process has now on device `device`, or with -1 on all devices together.
 */
uint32_t softhca_queue_pairs(int device) __attribute__((weak));

/*
 * Adds fault rules to this process, in the language of softhca(1), separated by semicolons; the rule "clear" removes
 * all earlier ones. Returns 0, or -1 with errno EINVAL when a rule is malformed: then it adds none and writes the cause
 * to `why` (at most `size` bytes, ended by zero; may be null with 0).
 */
int softhca_fault(const char *rules, char *why, uint64_t size) __attribute__((weak));

/*
 * For programs that read completion queues without libibverbs, in virtual time (softhca --model): the program has
 * polled its queues of device `device` and has found something, or not (`found` 0). This charges a poll and the
 * completions since the last call; when nothing was found, the program waits until something changes. Does nothing in
 * real time, and for a device that is not open.
 */
void softhca_polled(int device, int found) __attribute__((weak));

/*
 * What a program has counted since it began: how often it has looked into memory that the device may write, without a
 * completion queue, and how many handlers it has called.
 */
typedef struct softhca_work {
	uint64_t looks, dispatches;
} softhca_work_t;

/*
 * For programs that count this, in virtual time: the model calls read(object) in each poll of the calling thread, and
 * charges what has been added since the last one. A null `read` ends it. Does nothing in real time.
 */
void softhca_count_work(softhca_work_t (*read)(void *object), void *object) __attribute__((weak));

#ifdef __cplusplus
}
#endif
#endif
