/*
 * libpt2p: calls, by which a rank asks another one to do something and gets a reply. Part of pt2p.h, whose conventions
 * hold here, too. pt2p_calls(7) has a first program and tells what a status says about execution.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef PT2P_CALLS_H
#define PT2P_CALLS_H

#include <pt2p.h>

#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

/** A call that this rank serves. Opaque. Goes stale with the reply: using it then gives PT2P_ERR_CALL, never a crash.
 */
typedef struct pt2p_call pt2p_call_t;

/** A service that this rank has opened. Opaque. */
typedef struct pt2p_service pt2p_service_t;

/**
 * Handles one call. It may reply at once, or let any thread reply later.
 *
 * call:  for pt2p_reply and pt2p_call_query.
 * input: what the caller sent, aligned to 16 bytes; NULL when length is 0. Valid until the handler returns, and until
 * the reply if pt2p_call_keep was called. NULL also when length is above input_max of the service: the handler gets the
 * bytes by pt2p_call_pull.
 *
 * The handler of a service without lanes runs within progress, in any thread that makes it, and must not wait: it may
 * start operations and calls, but functions that wait return PT2P_ERR_IN_HANDLER. One of a service with lanes runs in
 * pt2p_serve and may wait. An exception that leaves a handler ends the program.
 */
typedef void (*pt2p_handler_t)(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length,
                               void *argument);

/** Options of a service. Initialise with PT2P_SERVICE_OPTIONS_INIT and change what you need. */
typedef struct pt2p_service_options {
	size_t struct_size;       /**< sizeof(pt2p_service_options_t) */
	uint32_t lanes;           /**< 0: the handler runs within progress. 1 ... 65536: so many queues for pt2p_serve */
	size_t input_max;         /**< longest input that is there when the handler runs, bytes; it pulls longer ones */
	pt2p_delivery_t reply_by; /**< as in pt2p_call_options_t, where the caller leaves it at PT2P_DELIVERY_AUTO; not
	                             PT2P_DELIVERY_DATAGRAM, which is the caller's to choose */
} pt2p_service_options_t;

#define PT2P_SERVICE_OPTIONS_INIT                                                                                      \
	{                                                                                                                  \
		sizeof(pt2p_service_options_t), 0, 1048576, PT2P_DELIVERY_AUTO                                                 \
	}

/** Memory that a caller lends to the server while the call lasts. */
typedef struct pt2p_window {
	void *address;
	size_t length; /**< bytes; 0: there is no window */
} pt2p_window_t;

/** Options of a call. Initialise with PT2P_CALL_OPTIONS_INIT and change what you need. */
typedef struct pt2p_call_options {
	size_t struct_size; /**< sizeof(pt2p_call_options_t) */
	uint16_t lane;      /**< calls with one number are started in the order in which they arrive */
	int64_t deadline;   /**< ns from now on, waiting in queues here and there included; 0: PT2P_CALL_DEADLINE */
	/**
	 * How the input and the reply get through an RDMA device, if they fit in one message: PT2P_DELIVERY_SEND,
	 * PT2P_DELIVERY_WRITE, or PT2P_DELIVERY_AUTO, which is as messages. A reply also by PT2P_DELIVERY_READ: the server
	 * leaves it in its memory, and the caller fetches it, unless it is longer than PT2P_CALL_RESULT_BYTES less 32, or
	 * the call has a window or room. Both also by PT2P_DELIVERY_DATAGRAM, without a connection, if they fit in a
	 * datagram; calls are then sent again where something was lost, and executed once all the same. PT2P_DELIVERY_AUTO
	 * of a reply: the server finds out which of the ways is the quickest. No effect where no device is between.
	 */
	pt2p_delivery_t input_by, reply_by;
	pt2p_window_t give; /**< what pt2p_call_pull reads at the server. Not changed before the call has ended */
	pt2p_window_t take; /**< where pt2p_call_push writes. Not touched before the call has ended */
	/**
	 * Where to put a reply that is longer than capacity: returns memory for `length` bytes, the caller's to free, or
	 * NULL to cut the reply. Called once, at the end of a turn of progress; must not wait. NULL: such replies are cut.
	 */
	void *(*room)(void *argument, size_t length);
	pt2p_callback_t done; /**< called once when the call has ended, in place of a request; NULL: there is a request */
	void *argument;       /**< of room and done */
} pt2p_call_options_t;

#define PT2P_CALL_OPTIONS_INIT                                                                                         \
	{                                                                                                                  \
		sizeof(pt2p_call_options_t), 0, 0, PT2P_DELIVERY_AUTO, PT2P_DELIVERY_AUTO, {NULL, 0}, {NULL, 0}, NULL, NULL,   \
		    NULL                                                                                                       \
	}

/** A call that this rank serves; filled by pt2p_call_query. */
typedef struct pt2p_call_info {
	int caller;        /**< rank */
	uint32_t service;  /**< its id */
	uint16_t lane;     /**< as the caller gave it */
	int notice;        /**< 1: there is no reply */
	int cancelled;     /**< 1: the caller has cancelled it, has given up waiting, or is gone */
	int64_t remaining; /**< until the deadline, ns, not below 0; INT64_MAX: there is none */
	size_t length;     /**< of the input, bytes */
	size_t give, take; /**< lengths of the caller's windows, bytes; 0: none */
} pt2p_call_info_t;

/** Calls of this rank to another one; filled by pt2p_calls_query. */
typedef struct pt2p_calls_info {
	size_t struct_size;   /**< sizeof(pt2p_calls_info_t), set by the program */
	uint32_t window;      /**< calls that may be there at once, beside nested ones (PT2P_CALL_WINDOW) */
	uint32_t in_flight;   /**< calls that are there, and have not ended */
	uint32_t waiting;     /**< calls and notices that wait here, for a place there or for room in the transport */
	uint32_t notices;     /**< notices on their way, or not taken there as far as this rank knows */
	uint32_t serving;     /**< calls of that rank that are here and have no reply */
	uint32_t fetch_bytes; /**< that one READ of a result brings; 0: results of that rank cannot be fetched so far */
	uint64_t fetched;     /**< results of that rank that this one has fetched */
	uint64_t reads;       /**< READs for that */
} pt2p_calls_info_t;

#define PT2P_CALLS_INFO_INIT                                                                                           \
	{                                                                                                                  \
		sizeof(pt2p_calls_info_t), 0, 0, 0, 0, 0, 0, 0, 0                                                              \
	}

/**
 * Opens a service: from now on other ranks, and this one, can call it. A call that arrives earlier fails with
 * PT2P_ERR_NO_SERVICE, so open services before a pt2p_barrier.
 *
 * id:       any number; a rank has one service with it at a time.
 * argument: passed to the handler.
 * options:  NULL: the default.
 * service:  receives the handle, owned by the caller until pt2p_service_close. NULL after a failure.
 *
 * Errors: PT2P_ERR_CONTEXT, PT2P_ERR_ARGUMENT (also for an id that is open), PT2P_ERR_NO_MEMORY.
 */
pt2p_status_t pt2p_service_open(pt2p_context_t *ctx, uint32_t id, pt2p_handler_t handler, void *argument,
                                const pt2p_service_options_t *options, pt2p_service_t **service);

/**
 * Closes a service: calls that wait, and those that come, fail with PT2P_ERR_NO_SERVICE. Returns when those that were
 * started have a reply and their handlers have returned. pt2p_finalize closes all services, and does not wait for ever.
 *
 * Errors: PT2P_ERR_CONTEXT, PT2P_ERR_ARGUMENT for a dead handle; PT2P_ERR_IN_HANDLER in a callback or any handler.
 */
pt2p_status_t pt2p_service_close(pt2p_context_t *ctx, pt2p_service_t *service);

/**
 * Handles calls that wait in a lane: calls the handler for each of them, in the order of their arrival. Any thread, at
 * PT2P_THREAD_MULTIPLE several at once, also for one lane.
 *
 * lane:    0 ... lanes-1.
 * most:    calls to handle before it returns, at least 1.
 * timeout: ns to wait while the lane is empty; 0: not at all, negative: for ever.
 * served:  NULL, or receives how many were handled.
 *
 * Errors: PT2P_ERR_CONTEXT; PT2P_ERR_ARGUMENT for a dead handle, also when it is closed meanwhile, or a lane that does
 * not exist; PT2P_ERR_IN_HANDLER.
 */
pt2p_status_t pt2p_serve(pt2p_context_t *ctx, pt2p_service_t *service, uint32_t lane, size_t most, int64_t timeout,
                         size_t *served);

/**
 * Calls a service of a rank: its handler gets the input, and what it replies with comes here.
 *
 * input:    the caller's, and not to be changed until the call has ended. NULL when length is 0.
 * reply:    where the bytes of the reply go; not to be touched until the call has ended. NULL when capacity is 0.
 * options:  NULL: the default.
 * req:      receives the request for pt2p_wait and its relatives, pt2p_cancel included. NULL with options->done, and
 * after a failure.
 *
 * The result has the serving rank as source, the reply's word as tag, and the bytes of the reply as length. A longer
 * reply than capacity is cut and gives PT2P_ERR_TRUNCATED, unless options->room finds a place for it. Calls are not
 * ordered, neither with each other nor with messages. A call that has ended well was executed once. One that fails was
 * executed once or not at all; pt2p_calls(7) tells which status says what. A rank has at most PT2P_CALL_WINDOW calls at
 * a server; others wait here, except for those that a handler makes (pt2p_calls(7)).
 *
 * Memory that the server can reach stays as it is once the call has ended: a call with windows, or with 64 KiB of input
 * and more, whose deadline passes ends only when the server has let go of that memory, or is lost.
 *
 * Errors: PT2P_ERR_CONTEXT, PT2P_ERR_ARGUMENT, PT2P_ERR_RANK, PT2P_ERR_LENGTH, those of a first send to that rank. Of
 * the call: PT2P_ERR_TRUNCATED, PT2P_ERR_NO_SERVICE, PT2P_ERR_BUSY, PT2P_ERR_DEADLINE, PT2P_ERR_CANCELLED,
 * PT2P_ERR_LENGTH (an input above input_max of the service, with a give window), PT2P_ERR_ABANDONED, PT2P_ERR_SYSTEM
 * (bytes could not be moved at the server), PT2P_ERR_PEER_LOST, PT2P_ERR_PEER_FINALIZED.
 */
pt2p_status_t pt2p_icall(pt2p_context_t *ctx, int rank, uint32_t service, const void *input, size_t length, void *reply,
                         size_t capacity, const pt2p_call_options_t *options, pt2p_request_t **req);

/** As pt2p_icall, and waits. result: NULL, or receives what pt2p_wait would store. Errors: also PT2P_ERR_IN_HANDLER. */
pt2p_status_t pt2p_call(pt2p_context_t *ctx, int rank, uint32_t service, const void *input, size_t length, void *reply,
                        size_t capacity, const pt2p_call_options_t *options, pt2p_result_t *result);

/**
 * What calls to a rank have from now on where their options are left as initialised, or NULL: deadline, input_by and
 * reply_by. The other options must be as initialised.
 *
 * rank:    PT2P_ANY_SOURCE: all ranks that have no options of their own.
 * options: NULL: as at the beginning.
 *
 * Errors: PT2P_ERR_CONTEXT, PT2P_ERR_ARGUMENT, PT2P_ERR_RANK, PT2P_ERR_NO_MEMORY.
 */
pt2p_status_t pt2p_set_calls(pt2p_context_t *ctx, int rank, const pt2p_call_options_t *options);

/**
 * A call without a reply. The input is copied, and the caller's again on return. Nothing tells whether it was executed:
 * it is dropped where pt2p_icall would fail (the counter calls_refused of the server counts those). pt2p_finalize sends
 * what waits.
 *
 * options: without windows, room and done.
 *
 * Errors: as pt2p_icall at once.
 */
pt2p_status_t pt2p_notify(pt2p_context_t *ctx, int rank, uint32_t service, const void *input, size_t length,
                          const pt2p_call_options_t *options);

/**
 * Replies to a call: once, from any thread, within the handler or any time later.
 *
 * word: arrives as the result's tag; a reply that is only a number needs no bytes.
 * data: copied, so it is the caller's on return. NULL when length is 0. What pt2p_reply_room gave is not copied.
 *
 * The reply leaves when everything that was pulled and pushed has ended.
 *
 * A reply to a caller that has given up or is gone is dropped, and is no error. Errors: PT2P_ERR_CONTEXT; PT2P_ERR_CALL
 * for a call that has a reply, was a notice, or never was; PT2P_ERR_ARGUMENT, PT2P_ERR_LENGTH, PT2P_ERR_NO_MEMORY: the
 * call then still needs a reply.
 */
pt2p_status_t pt2p_reply(pt2p_context_t *ctx, pt2p_call_t *call, uint64_t word, const void *data, size_t length);

/**
 * Gives memory for a reply, to be filled and passed to pt2p_reply as its data.
 *
 * length: bytes; the reply may be shorter.
 * room:   receives the memory, aligned to 16 bytes. The library's; valid until the reply, or the next call of this.
 *
 * Errors: PT2P_ERR_CONTEXT, PT2P_ERR_ARGUMENT, PT2P_ERR_CALL, PT2P_ERR_LENGTH, PT2P_ERR_NO_MEMORY.
 */
pt2p_status_t pt2p_reply_room(pt2p_context_t *ctx, pt2p_call_t *call, size_t length, void **room);

/**
 * Ends a call without a reply: the caller gets PT2P_ERR_ABANDONED. In place of pt2p_reply, and with its errors.
 */
pt2p_status_t pt2p_call_abandon(pt2p_context_t *ctx, pt2p_call_t *call);

/**
 * Reads from the caller's window `give`, or from an input that is longer than input_max of the service.
 *
 * to:     not touched until the request has completed.
 * offset: in the window, or in the input, bytes.
 * req:    receives the request. NULL: the reply waits for the end, and if the transfer fails the call does, with
 * PT2P_ERR_SYSTEM.
 *
 * Any number of transfers may be in flight. They are not ordered. Any thread, also within the handler.
 *
 * Errors: PT2P_ERR_CONTEXT; PT2P_ERR_ARGUMENT, also when there is nothing to pull from; PT2P_ERR_CALL;
 * PT2P_ERR_BOUNDS; PT2P_ERR_DEADLINE when the caller has given up; PT2P_ERR_PEER_LOST, PT2P_ERR_PEER_FINALIZED. The
 * call still needs a reply.
 */
pt2p_status_t pt2p_call_pull(pt2p_context_t *ctx, pt2p_call_t *call, void *to, size_t offset, size_t length,
                             pt2p_request_t **req);

/** Writes to the caller's window `take`; as pt2p_call_pull. from: not changed until the request has completed. */
pt2p_status_t pt2p_call_push(pt2p_context_t *ctx, pt2p_call_t *call, const void *from, size_t offset, size_t length,
                             pt2p_request_t **req);

/**
 * Keeps the input of a call until the reply, for a handler that returns before it. Copies nothing.
 *
 * input: NULL, or receives where it is.
 *
 * Errors: PT2P_ERR_CONTEXT, PT2P_ERR_CALL.
 */
pt2p_status_t pt2p_call_keep(pt2p_context_t *ctx, pt2p_call_t *call, const void **input);

/** Fills *info about a call that has no reply yet. Errors: PT2P_ERR_CONTEXT, PT2P_ERR_ARGUMENT, PT2P_ERR_CALL. */
pt2p_status_t pt2p_call_query(pt2p_context_t *ctx, pt2p_call_t *call, pt2p_call_info_t *info);

/**
 * Fills *info about the calls between this rank and another. Initialise it with PT2P_CALLS_INFO_INIT.
 * Errors: PT2P_ERR_CONTEXT, PT2P_ERR_ARGUMENT, PT2P_ERR_RANK.
 */
pt2p_status_t pt2p_calls_query(pt2p_context_t *ctx, int rank, pt2p_calls_info_t *info);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
