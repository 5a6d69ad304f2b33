/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the two programs of bench/net/callgrind have in common: two ends in one process and one thread, messages that go
 * from one to the other and back, and each message's life cut into steps that are counted apart:
 *
 *     post       the receives are posted
 *     send       the sends are posted: up to the doorbell, and back to the program
 *     receive    with the messages in memory and their completions in the queue: until the program has them
 *     finish     the sends are given back, and a turn of progress takes their completions: with UCX, turns until
 *                one finds nothing, as each takes one completion
 *
 * Or calls of end 0 that end 1 replies to, with the steps:
 *
 *     send       the calls are made: up to the doorbell
 *     receive    with the calls in memory: until the handler has replied to them, the doorbell included
 *     finish     with the replies in memory: until the program has them, and the completions of both ends
 *
 * Between two steps the device in software is moved until it rests, so that no step waits for it. On a real device the
 * time is filled by polls that find nothing; these are not counted, on either side.
 *
 * Below valgrind, one profile is written for each step; elsewhere, what softhca has counted is printed.
 */
#ifndef NET_STEPS_H
#define NET_STEPS_H

#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#else
#define RUNNING_ON_VALGRIND 0
#define CALLGRIND_START_INSTRUMENTATION
#define CALLGRIND_TOGGLE_COLLECT
#define CALLGRIND_ZERO_STATS
#define CALLGRIND_DUMP_STATS_AT(name) ((void)(name))
#endif

#include "softhca/softhca.h"

enum { LARGEST_WINDOW = 64, SENT_FROM = 1000, WORDS = 4 };

static size_t message_bytes = 8; /* at most sizeof(int64_t[WORDS]) */
static uint64_t served;          /* calls that the handler has replied to */

/* Defined by the program that includes this; `end` is 0 or 1, slots are below LARGEST_WINDOW. */
static void post_receive(int end, int slot, void *to);
static void post_send(int end, int slot, const void *from);
static void end_receive(int end, int slot);
static void end_send(int end, int slot);
static void make_call(int slot, const void *input, void *reply); /* of end 0; both have message_bytes */
static void end_call(int slot);
static int turn(int end); /* one progress call; whether another one may find something */

__attribute__((noreturn, unused)) static void give_up(const char *what, const char *why)
{
	fprintf(stderr, "%s: %s\n", what, why);
	exit(1);
}

static uint64_t counter(const char *name)
{
	uint64_t value = 0;
	if (!softhca_counter || softhca_counter(name, 0, 0, &value) != 0)
		give_up(name, "not counted: this runs below softhca only");
	return value;
}

/* A completion queue of the bench: polling it when it is empty moves the device, once it has a queue pair. */
static struct ibv_cq *crank;

/* Before anything else. It stays until the process ends. */
static void open_crank(void)
{
	int devices = 0;
	struct ibv_device **list = ibv_get_device_list(&devices);
	struct ibv_context *context = list && devices ? ibv_open_device(list[0]) : NULL;
	crank = context ? ibv_create_cq(context, 1, NULL, NULL, 0) : NULL;
	struct ibv_pd *pd = crank ? ibv_alloc_pd(context) : NULL;
	struct ibv_qp_init_attr unused = {
	    .send_cq = crank, .recv_cq = crank, .cap = {1, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC};
	if (!pd || !ibv_create_qp(pd, &unused))
		give_up("softhca", "no device, or no queue pair on it");
	ibv_free_device_list(list);
}

static uint64_t device_activity(void)
{
	return counter("wqes") + counter("receives") + counter("cqes") + counter("packets_sent") +
	       counter("packets_received");
}

/* Moves the device until it rests. It takes more than one poll: the device does a bounded amount of work in each, and
   looks at the doorbells of some queue pairs only. */
static void settle(void)
{
	enum { looks = 8 };
	uint64_t before = device_activity();
	for (int quiet = 0; quiet < looks; ++quiet) {
		struct ibv_wc none;
		ibv_poll_cq(crank, 1, &none);
		const uint64_t after = device_activity();
		if (after != before)
			quiet = 0;
		before = after;
	}
}

enum step { POST, SEND, RECEIVE, FINISH, STEPS };
static const char *const step_names[STEPS] = {"post", "send", "receive", "finish"};

/* Turns the counting on or off, if this step is to be counted. */
#define COUNT(step)                                                                                                    \
	do {                                                                                                               \
		if (counted == (step))                                                                                         \
			CALLGRIND_TOGGLE_COLLECT;                                                                                  \
	} while (0)

/* Exchanges so many windows, in turn in both directions. `counted` is the step to count, or -1. */
static void exchange_messages(int window, long windows, int counted)
{
	static int64_t sent[LARGEST_WINDOW][WORDS], received[LARGEST_WINDOW][WORDS];
	for (long w = 0; w < windows; ++w) {
		const int from = (int)(w % 2), to = 1 - from;
		for (int i = 0; i < window; ++i) {
			sent[i][0] = SENT_FROM + w * LARGEST_WINDOW + i;
			received[i][0] = 0;
		}
		COUNT(POST);
		for (int i = 0; i < window; ++i)
			post_receive(to, i, received[i]);
		COUNT(POST);
		const uint64_t arrived = counter("receives");
		COUNT(SEND);
		for (int i = 0; i < window; ++i)
			post_send(from, i, sent[i]);
		COUNT(SEND);
		settle();
		/* What the sender held back for lack of room goes now. */
		for (long patience = 1000000; counter("receives") < arrived + (uint64_t)window; --patience) {
			if (!patience)
				give_up("settle", "the messages do not arrive");
			turn(from);
			settle();
		}
		COUNT(RECEIVE);
		for (int i = 0; i < window; ++i)
			end_receive(to, i);
		COUNT(RECEIVE);
		settle();
		COUNT(FINISH);
		for (int i = 0; i < window; ++i)
			end_send(from, i);
		while (turn(from))
			;
		COUNT(FINISH);
		for (int i = 0; i < window; ++i)
			if (received[i][0] != sent[i][0])
				give_up("exchange", "a message has another content");
	}
}

/* Makes so many windows of calls. Each turn that an end makes is counted. */
static void exchange_calls(int window, long windows, int counted)
{
	static int64_t input[LARGEST_WINDOW][WORDS], reply[LARGEST_WINDOW][WORDS];
	for (long w = 0; w < windows; ++w) {
		for (int i = 0; i < window; ++i) {
			input[i][0] = SENT_FROM + w * LARGEST_WINDOW + i;
			reply[i][0] = 0;
		}
		const uint64_t before = served;
		COUNT(SEND);
		for (int i = 0; i < window; ++i)
			make_call(i, input[i], reply[i]);
		COUNT(SEND);
		settle();
		for (long patience = 1000000;; --patience) {
			COUNT(RECEIVE);
			turn(1);
			COUNT(RECEIVE);
			settle();
			if (served >= before + (uint64_t)window)
				break;
			if (!patience)
				give_up("exchange", "the calls do not arrive");
			COUNT(SEND);
			turn(0);
			COUNT(SEND);
			settle();
		}
		COUNT(FINISH);
		for (int i = 0; i < window; ++i)
			end_call(i);
		COUNT(FINISH);
		settle();
		COUNT(FINISH);
		for (int end = 0; end < 2; ++end)
			while (turn(end))
				;
		COUNT(FINISH);
		for (int i = 0; i < window; ++i)
			if (reply[i][0] != input[i][0])
				give_up("exchange", "a reply has another content");
	}
}

/* What the last argument, "message" or "call", asks for, and how long these are; nothing: messages of 8 bytes. */
static int calls_asked_for(const char *what)
{
	if (what)
		message_bytes = sizeof(int64_t[WORDS]);
	return what && strcmp(what, "call") == 0;
}

/* The whole measurement: `messages`, or calls, for each window and step. */
static void measure(int calls, long messages)
{
	void (*const exchange)(int, long, int) = calls ? exchange_calls : exchange_messages;
	static const int window_sizes[] = {1, LARGEST_WINDOW};
	static const char *const counters[] = {"wqes",      "doorbells",     "blueflames",    "cqes",
	                                       "wqe_reads", "payload_reads", "payload_writes"};
	enum { COUNTERS = sizeof counters / sizeof *counters };
	CALLGRIND_START_INSTRUMENTATION;
	for (int s = 0; s < 2; ++s) {
		const int window = window_sizes[s];
		const long windows = (messages / window + 1) / 2 * 2;
		exchange(window, windows, -1); /* warms up */
		if (RUNNING_ON_VALGRIND) {
			for (int step = 0; step < STEPS; ++step) {
				char name[32];
				snprintf(name, sizeof name, "%d %s %ld", window, step_names[step], windows * window);
				CALLGRIND_ZERO_STATS;
				exchange(window, windows, step);
				CALLGRIND_DUMP_STATS_AT(name);
			}
			continue;
		}
		uint64_t before[COUNTERS];
		settle();
		for (int i = 0; i < COUNTERS; ++i)
			before[i] = counter(counters[i]);
		exchange(window, windows, -1);
		settle();
		for (int i = 0; i < COUNTERS; ++i)
			printf("%d %s %.4f\n", window, counters[i],
			       (double)(counter(counters[i]) - before[i]) / (double)(windows * window));
	}
}

#endif
