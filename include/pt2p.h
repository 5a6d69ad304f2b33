/*
 * libpt2p: point-to-point communication between the ranks of a parallel job.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Conventions that hold for every function here:
 *
 *   - A function that can fail returns a pt2p_status_t. PT2P_OK is zero. After a failure
 *     pt2p_last_error(ctx) explains it: the peer, the operation, the bytes, the likely causes, the remedy. That
 *     text begins with the one of pt2p_strerror, so a program prints it alone.
 *   - Lengths are bytes and may exceed 4 GiB; a value above PTRDIFF_MAX (a negative number that was
 *     converted) is refused with PT2P_ERR_LENGTH.
 *   - Buffers stay the caller's. A buffer given to isend or irecv must stay valid and, for irecv, untouched
 *     until the request has completed.
 *   - Memory of other ranks is worked on by the one-sided functions of pt2p_onesided.h, which this header includes;
 *     pt2p_onesided(7) tells their order, their end and what is atomic.
 *   - Requests belong to the library. A request is finished, and its handle is dead, as soon as a wait or test
 *     function has reported it. Using a dead handle gives PT2P_ERR_REQUEST, never a crash.
 *   - Thread safety follows the level asked for in pt2p_options_t: with PT2P_THREAD_SINGLE only the thread that
 *     called pt2p_init may call; with PT2P_THREAD_SERIALIZED any thread, one at a time; with
 *     PT2P_THREAD_MULTIPLE any thread at any time. pt2p_strerror, pt2p_version and pt2p_last_error may always
 *     be called from any thread.
 *   - After fork() the contexts are the parent's. In the child every function fails with PT2P_ERR_FORKED and touches
 *     nothing.
 */
#ifndef PT2P_H
#define PT2P_H

#include <stddef.h>
#include <stdint.h>

#include <pt2p_status.h> /* pt2p_status_t: made by the build from base/report/status.def, installed beside this file */

#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

/** The version of this header; pt2p_version() tells that of the library. */
#define PT2P_VERSION_MAJOR 0
#define PT2P_VERSION_MINOR 1
#define PT2P_VERSION_PATCH 0

/** Receive from whichever rank a matching message comes from. */
#define PT2P_ANY_SOURCE (-1)
/** Mask under which every bit of the tag must agree. */
#define PT2P_TAG_EXACT UINT64_MAX
/** Mask under which every tag agrees. */
#define PT2P_TAG_ANY UINT64_C(0)
/** What pt2p_waitany and pt2p_testany store when no request of the list is active. */
#define PT2P_NO_INDEX SIZE_MAX

/** One participant's view of a job. Opaque. */
typedef struct pt2p_context pt2p_context_t;

/** A handle to an operation in flight. Opaque; NULL stands for "no request" in lists. */
typedef struct pt2p_request pt2p_request_t;

/** Which threads may call into a context. */
typedef enum pt2p_thread_level {
	PT2P_THREAD_SINGLE = 0,     /**< only the thread that called pt2p_init */
	PT2P_THREAD_SERIALIZED = 1, /**< any thread, never two at the same time */
	PT2P_THREAD_MULTIPLE = 2    /**< any thread, at any time */
} pt2p_thread_level_t;

/** Options of pt2p_init. Initialise with PT2P_OPTIONS_INIT and change what you need. */
typedef struct pt2p_options {
	size_t struct_size;               /**< sizeof(pt2p_options_t): lets the structure grow */
	pt2p_thread_level_t thread_level; /**< default PT2P_THREAD_SINGLE */
	const char *const *tunables;      /**< NULL, or "PT2P_NAME=value" strings ended by NULL; they override the
	                                       environment and are read only during the call */
} pt2p_options_t;

#define PT2P_OPTIONS_INIT { sizeof(pt2p_options_t), PT2P_THREAD_SINGLE, NULL }

/** What a finished operation did. */
typedef struct pt2p_result {
	pt2p_status_t status; /**< PT2P_OK, PT2P_ERR_TRUNCATED, PT2P_ERR_CANCELLED, PT2P_ERR_PEER_LOST, ... */
	int source;           /**< receive and probe: rank of the sender; send: this rank; one-sided: owner of the memory; call:
	                           the rank that serves it */
	uint64_t tag;         /**< tag of the message; one-sided: 0; call: the word of the reply */
	size_t length;        /**< bytes of the message or operation; when truncated, the bytes that would have been needed */
	uint64_t data;        /**< receive and probe: the word that the sender has sent beside the payload, see pt2p_send_options_t */
	int has_data;         /**< 1 when there is one, else 0, and data is 0 */
} pt2p_result_t;

/** One of several places that a message comes from or goes to; see pt2p_isendv. Laid out as POSIX's struct iovec. */
typedef struct pt2p_iovec {
	void *base;    /**< may be NULL when length is 0 */
	size_t length; /**< bytes */
} pt2p_iovec_t;

/**
 * Called once when an operation has completed, in place of a request; see pt2p_request_callback.
 *
 * result: what pt2p_wait would report; valid during the call. argument: the program's.
 */
typedef void (*pt2p_callback_t)(pt2p_context_t *ctx, const pt2p_result_t *result, void *argument);

/** Where this rank runs and among whom; filled by pt2p_query. */
typedef struct pt2p_info {
	int rank;                         /**< 0 ... size-1 */
	int size;                         /**< ranks in the job */
	int local_rank;                   /**< position among the ranks of this node */
	int local_size;                   /**< ranks on this node */
	int cpus;                         /**< logical CPUs this process may run on */
	int core;                         /**< core this process is bound to, -1 when it may run on several */
	int numa_node;                    /**< NUMA node of those CPUs, -1 when there are several or none */
	int oversubscribed;               /**< 1 when this host runs more ranks than it has CPUs for */
	pt2p_thread_level_t thread_level; /**< the level in force */
	char host[256];                   /**< name of the host */
} pt2p_info_t;

/** How a peer stands; see pt2p_peer_query. */
typedef enum pt2p_peer_state {
	PT2P_PEER_UNKNOWN = 0,  /**< never talked to, nothing bad heard */
	PT2P_PEER_ALIVE = 1,    /**< connected */
	PT2P_PEER_FINALIZED = 2,/**< has called pt2p_finalize */
	PT2P_PEER_LOST = 3      /**< aborted, killed or unreachable */
} pt2p_peer_state_t;

/** How messages to one rank travel; filled by pt2p_peer_query. */
typedef struct pt2p_peer_info {
	int rank;                 /**< the peer */
	int same_node;            /**< 1 when it shares this rank's node */
	pt2p_peer_state_t state;  /**< as far as this rank knows */
	char transport[16];       /**< "self", "shm", "rc", "dct", "relay" (other ranks may forward), or "" while not connected */
	char large[16];           /**< how large messages move: "single-copy" (self, shm), "pipelined" (shm), "zero-copy" (rc, dct),
	                               or "" while unknown */
	int forwarder;            /**< the rank that forwards short messages to the peer at present; -1: they go directly */
	char direct[16];          /**< the transport of messages that are not forwarded, or "" while not connected for them */
	/* What this rank has sent to the peer through a device. Messages of other ranks that it has forwarded there count. */
	uint64_t inlined;            /**< messages whose payload was in the work request */
	uint64_t from_device_memory; /**< messages whose payload was in memory of the device */
	uint64_t from_host_memory;   /**< messages whose payload the device read from this host's memory, large ones not counted */
	uint32_t signal_period;      /**< work requests that share a completion at present, for the commonest kind of payload; 0: none sent */
} pt2p_peer_info_t;

/** Version of the library, as "major.minor.patch". Static text. */
const char *pt2p_version(void);

/**
 * Joins the job that the launcher started, or makes a job of one rank when there is no launcher.
 *
 * options: NULL for the defaults with tunables from the environment and pt2p.conf, see pt2p_tunables(7).
 * ctx:     receives the context, owned by the caller until pt2p_finalize. NULL after a failure.
 *
 * A launched process may leave its job and join it again, and may hold several contexts of it; all ranks must then join
 * in the same order. pt2p_init_inprocess makes several ranks in one process.
 *
 * Errors: PT2P_ERR_ARGUMENT; PT2P_ERR_TUNABLE for an unknown or ill-valued tunable; PT2P_ERR_LAUNCHER when the
 * environment speaks of a launcher that does not answer; PT2P_ERR_FORKED in a child of a rank that was launched;
 * PT2P_ERR_SHARED_MEMORY or PT2P_ERR_NO_MEMORY when memory cannot be reserved. pt2p_last_error(NULL) explains.
 */
pt2p_status_t pt2p_init(const pt2p_options_t *options, pt2p_context_t **ctx);

/** How the contexts of an in-process job are driven. */
typedef enum pt2p_inprocess_mode {
	PT2P_INPROCESS_THREADS = 0,    /**< each context is driven by a thread of its own */
	PT2P_INPROCESS_COOPERATIVE = 1 /**< one thread drives all: a blocking call on one context steps the others */
} pt2p_inprocess_mode_t;

/**
 * Makes a job of `size` ranks inside this process, one context each: for tests and simulation.
 *
 * size:    1 ... 4096.
 * mode:    how the contexts are driven. In cooperative mode a blocking call progresses the sibling contexts while it
 *          waits, so an operation completes when its counterpart has already been posted without blocking.
 * options: as in pt2p_init, applied to every context.
 * ctx:     array of `size` contexts, rank i in ctx[i]; finalize each. All NULL after a failure.
 *
 * Errors: as pt2p_init.
 */
pt2p_status_t pt2p_init_inprocess(int size, pt2p_inprocess_mode_t mode, const pt2p_options_t *options,
                                  pt2p_context_t **ctx);

/**
 * Leaves the job and frees the context, whatever it returns (except PT2P_ERR_CONTEXT, PT2P_ERR_FORKED
 * and PT2P_ERR_IN_HANDLER).
 *
 * Sends and one-sided operations that have been started are driven to completion first, for at most PT2P_FINALIZE_TIME,
 * those that were given up or have a callback as well, and receives of that kind that have been matched. Receives that
 * were never matched, sends that could not be delivered, requests that nobody waited for, and messages of pt2p_mprobe
 * that nobody received are reported: the status is PT2P_ERR_UNFINISHED, and pt2p_last_error(NULL) counts them and names
 * the first. Callbacks that are left are called with that status. The call is local: it waits for no other rank beyond
 * those.
 *
 * Errors: PT2P_ERR_CONTEXT, PT2P_ERR_FORKED, PT2P_ERR_UNFINISHED; PT2P_ERR_IN_HANDLER in a callback or a handler of
 * calls: nothing has then been done.
 */
pt2p_status_t pt2p_finalize(pt2p_context_t *ctx);

/**
 * Ends the whole job through the launcher; peers learn of it. Does not return when the launcher kills the process;
 * without a launcher the process exits with `code`.
 *
 * code: exit code, 1 ... 255 (others are mapped to 1). message: shown in the log, may be NULL.
 */
void pt2p_abort(pt2p_context_t *ctx, int code, const char *message);

/** Rank of this context, 0 ... size-1; -1 when ctx is not a context. */
int pt2p_rank(const pt2p_context_t *ctx);

/** Number of ranks in the job; -1 when ctx is not a context. */
int pt2p_size(const pt2p_context_t *ctx);

/** Fills *info. Errors: PT2P_ERR_CONTEXT, PT2P_ERR_ARGUMENT. */
pt2p_status_t pt2p_query(const pt2p_context_t *ctx, pt2p_info_t *info);

/** How messages up to the eager limit get to a receiver through an RDMA device. */
typedef enum pt2p_delivery {
	PT2P_DELIVERY_AUTO = 0,  /**< sent, and written once there are many */
	PT2P_DELIVERY_SEND = 1,  /**< into receives that it has posted (SEND) */
	PT2P_DELIVERY_WRITE = 2, /**< short ones into a ring in its memory, which it looks at (WRITE) */
	PT2P_DELIVERY_READ = 3,  /**< announced: the receiver fetches them (READ); a blocking send waits for its receive */
	PT2P_DELIVERY_DATAGRAM = 4 /**< calls and replies only: by datagram, without a connection (SEND over UD) */
} pt2p_delivery_t;

/** Chooses how messages from this rank get to `rank` from now on, in place of the tunable PT2P_NET_DELIVERY. Each end of a
 *  channel chooses for what it sends, so the two directions are independent of each other. Messages keep their order
 *  when the way changes. Connects if need be. Has no effect where `rank` is reached without an RDMA device.
 *  Errors: PT2P_ERR_CONTEXT, PT2P_ERR_RANK, PT2P_ERR_ARGUMENT, and those of a first send to that rank. */
pt2p_status_t pt2p_set_delivery(pt2p_context_t *ctx, int rank, pt2p_delivery_t delivery);

/** Fills *info about `rank`. Connects nothing. Errors: PT2P_ERR_CONTEXT, PT2P_ERR_ARGUMENT, PT2P_ERR_RANK. */
pt2p_status_t pt2p_peer_query(pt2p_context_t *ctx, int rank, pt2p_peer_info_t *info);

/**
 * Sends `length` bytes and returns when the buffer may be reused. A short message is copied and may be delivered later;
 * the send of one above the eager limit (PT2P_EAGER_MAX) returns when a receive has matched it and has the bytes. Two
 * ranks that both send such a message before they receive wait for ever: use pt2p_sendrecv, or pt2p_isend.
 *
 * buffer: may be NULL when length is 0. dest: 0 ... size-1, this rank included. tag: any 64-bit value.
 * Messages from one rank to another are matched in the order in which they were sent.
 *
 * A blocking send of a large message to this rank itself needs the receive to be posted before.
 *
 * Errors: PT2P_ERR_CONTEXT, PT2P_ERR_ARGUMENT, PT2P_ERR_RANK, PT2P_ERR_LENGTH, PT2P_ERR_PEER_LOST,
 * PT2P_ERR_PEER_FINALIZED, PT2P_ERR_UNREACHABLE, PT2P_ERR_SHARED_MEMORY.
 */
pt2p_status_t pt2p_send(pt2p_context_t *ctx, const void *buffer, size_t length, int dest, uint64_t tag);

/** Sends a message if it can leave at once, and never waits: *sent is 1 and the buffer the caller's again, or *sent is 0 and nothing
 *  has happened, as for a long message, the first one to a rank, and one that there is no room for; pt2p_isend does it then.
 *  buffer, length, dest and tag as pt2p_send. Messages that it sends keep their order with those of pt2p_isend.
 *
 *  Errors: PT2P_ERR_CONTEXT, PT2P_ERR_ARGUMENT, PT2P_ERR_RANK, PT2P_ERR_LENGTH. A lost peer is not told of here. */
pt2p_status_t pt2p_try_send(pt2p_context_t *ctx, const void *buffer, size_t length, int dest, uint64_t tag, int *sent);
/** The same with a word of data beside the payload, which the receiver finds in pt2p_result_t.data. data: any 64-bit value. A message
 *  above 256 bytes does not leave at once. Errors as pt2p_try_send. */
pt2p_status_t pt2p_try_send_data(pt2p_context_t *ctx, const void *buffer, size_t length, int dest, uint64_t tag, uint64_t data,
                                 int *sent);

/**
 * Receives one message and returns when it is in the buffer.
 *
 * capacity: bytes of the buffer; a longer message is cut, consumed, and reported as PT2P_ERR_TRUNCATED with the needed
 * length in result->length.
 * source: 0 ... size-1 or PT2P_ANY_SOURCE. A message matches when (message tag & mask) == (tag & mask).
 * result: may be NULL.
 *
 * Errors: as pt2p_send, and PT2P_ERR_TRUNCATED. A receive from PT2P_ANY_SOURCE fails with PT2P_ERR_PEER_LOST once for
 * each rank that is lost, so that nobody waits for a message that cannot come; post it again to go on.
 */
pt2p_status_t pt2p_recv(pt2p_context_t *ctx, void *buffer, size_t capacity, int source, uint64_t tag, uint64_t mask,
                        pt2p_result_t *result);

/** Starts a send; arguments as pt2p_send. *req receives the request, NULL after a failure. */
pt2p_status_t pt2p_isend(pt2p_context_t *ctx, const void *buffer, size_t length, int dest, uint64_t tag,
                         pt2p_request_t **req);

/** Starts a receive; arguments as pt2p_recv. *req receives the request, NULL after a failure. */
pt2p_status_t pt2p_irecv(pt2p_context_t *ctx, void *buffer, size_t capacity, int source, uint64_t tag, uint64_t mask,
                         pt2p_request_t **req);

/**
 * Starts a send of data in several places: one message, as if they were one behind the other. The receiver need not
 * know.
 *
 * list, count: the segments, in order; list may be NULL when count is 0. At most 2^24. The list is copied, the data is
 * not: it stays valid as the buffer of pt2p_isend does. Segments of a send may overlap.
 *
 * Everything else as pt2p_isend. Errors: also PT2P_ERR_ARGUMENT for a base that is NULL or too many segments, and
 * PT2P_ERR_LENGTH for a sum above PTRDIFF_MAX.
 */
pt2p_status_t pt2p_isendv(pt2p_context_t *ctx, const pt2p_iovec_t *list, size_t count, int dest, uint64_t tag,
                          pt2p_request_t **req);

/** What pt2p_isend_with can do beside sending. Initialise with PT2P_SEND_OPTIONS_INIT and change what you need. */
typedef struct pt2p_send_options {
	size_t struct_size;   /**< sizeof(pt2p_send_options_t): lets the structure grow */
	int synchronous;      /**< 1: completes when the matching receive has been started, as pt2p_issend */
	int buffered;         /**< 1: the data is the caller's again when the call returns: what cannot leave at once is copied */
	int has_data;         /**< 1: `data` goes along, for pt2p_result_t of the receiver */
	uint64_t data;        /**< a word beside the payload; it takes no part in matching */
	pt2p_callback_t done; /**< called once when the send has completed, in place of a request, see pt2p_request_callback;
	                           NULL: there is a request */
	void *argument;       /**< of done */
} pt2p_send_options_t;

#define PT2P_SEND_OPTIONS_INIT { sizeof(pt2p_send_options_t), 0, 0, 0, 0, NULL, NULL }

/** Starts a send with options, of data in several places or one. list and count as pt2p_isendv, everything else as pt2p_isend.
 *
 *  options: read only during the call; NULL: none, as pt2p_isendv.
 *  req:     receives the request, NULL after a failure. NULL itself with options->done; NULL without it when the send is
 *           buffered and nobody needs to know of its end, as with pt2p_request_free.
 *
 *  Errors: also PT2P_ERR_ARGUMENT for options of another size, for req and done that are both given, and for both NULL
 *  where the send is not buffered. */
pt2p_status_t pt2p_isend_with(pt2p_context_t *ctx, const pt2p_iovec_t *list, size_t count, int dest, uint64_t tag,
                              const pt2p_send_options_t *options, pt2p_request_t **req);

/** Starts a receive into several places, which are filled in order and must not overlap. A message that is longer than all of
 *  them is cut as one that is longer than a buffer. list and count as pt2p_isendv, everything else as pt2p_irecv. */
pt2p_status_t pt2p_irecvv(pt2p_context_t *ctx, const pt2p_iovec_t *list, size_t count, int source, uint64_t tag, uint64_t mask,
                          pt2p_request_t **req);

/** As pt2p_send with data in several places; see pt2p_isendv. */
pt2p_status_t pt2p_sendv(pt2p_context_t *ctx, const pt2p_iovec_t *list, size_t count, int dest, uint64_t tag);

/** As pt2p_recv into several places; see pt2p_irecvv. */
pt2p_status_t pt2p_recvv(pt2p_context_t *ctx, const pt2p_iovec_t *list, size_t count, int source, uint64_t tag, uint64_t mask,
                         pt2p_result_t *result);

/** A send and a receive at the same time, without deadlock whatever the order of the peers. Arguments as pt2p_send and
 *  pt2p_recv. The buffers must not overlap. Returns the failure of the send if it failed, else that of the receive.
 *  When the
 *  send cannot be started, no message is received; when it fails later, *result tells whether one was. */
pt2p_status_t pt2p_sendrecv(pt2p_context_t *ctx, const void *send_buffer, size_t send_length, int dest,
                            uint64_t send_tag, void *recv_buffer, size_t recv_capacity, int source, uint64_t recv_tag,
                            uint64_t recv_mask, pt2p_result_t *result);

/** Waits until a message that a receive with these arguments would match has arrived, and describes it in *result
 *  without receiving it. result may be NULL. Errors: as pt2p_recv; from PT2P_ANY_SOURCE, probes and pt2p_signal_wait
 *  are
 *  told once of each rank that is lost, whatever receives have been told. */
pt2p_status_t pt2p_probe(pt2p_context_t *ctx, int source, uint64_t tag, uint64_t mask, pt2p_result_t *result);

/** As pt2p_probe, without waiting: *found is 1 when there is such a message, else 0. */
pt2p_status_t pt2p_iprobe(pt2p_context_t *ctx, int source, uint64_t tag, uint64_t mask, int *found,
                          pt2p_result_t *result);

/**
 * As pt2p_send, but returns only when the receiver has started the receive that matches the message (a synchronous
 * send). A message of any length, 0 included, waits for that; the message may have been cut.
 *
 * A blocking synchronous send to this rank itself needs the receive to be posted before.
 *
 * Errors: as pt2p_send; PT2P_ERR_PEER_LOST and PT2P_ERR_PEER_FINALIZED also when dest goes before it has received.
 */
pt2p_status_t pt2p_ssend(pt2p_context_t *ctx, const void *buffer, size_t length, int dest, uint64_t tag);

/** Starts a synchronous send; arguments as pt2p_ssend. Its request completes when the matching receive has been started. *req
 *  receives the request, NULL after a failure. */
pt2p_status_t pt2p_issend(pt2p_context_t *ctx, const void *buffer, size_t length, int dest, uint64_t tag,
                          pt2p_request_t **req);

/** A message that a matched probe has found. Opaque. Received once, by pt2p_mrecv or pt2p_imrecv; its handle is then dead, and
 *  using it gives PT2P_ERR_REQUEST, never a crash. */
typedef struct pt2p_message pt2p_message_t;

/**
 * As pt2p_probe, and takes the message: no other receive or probe gets it any more, of whatever thread. *message
 * receives the handle to receive it with, NULL after a failure. The library keeps the message until then; pt2p_finalize
 * reports those that nobody has received. Errors: as pt2p_recv; PT2P_ERR_ARGUMENT when message is NULL.
 */
pt2p_status_t pt2p_mprobe(pt2p_context_t *ctx, int source, uint64_t tag, uint64_t mask, pt2p_message_t **message,
                          pt2p_result_t *result);

/** As pt2p_mprobe, without waiting: *message is NULL when there is no such message, and *result is then unchanged. */
pt2p_status_t pt2p_improbe(pt2p_context_t *ctx, int source, uint64_t tag, uint64_t mask, pt2p_message_t **message,
                           pt2p_result_t *result);

/** Receives a message that pt2p_mprobe or pt2p_improbe has taken, and returns when it is in the buffer. buffer, capacity and
 *  result: as pt2p_recv. A failure other than PT2P_ERR_REQUEST, PT2P_ERR_ARGUMENT and PT2P_ERR_LENGTH consumes the
 *  message. Errors: PT2P_ERR_REQUEST for NULL, a received or a foreign message; PT2P_ERR_ARGUMENT, PT2P_ERR_LENGTH;
 *  PT2P_ERR_TRUNCATED; PT2P_ERR_PEER_LOST or PT2P_ERR_PEER_FINALIZED when the sender has gone with the payload. */
pt2p_status_t pt2p_mrecv(pt2p_context_t *ctx, void *buffer, size_t capacity, pt2p_message_t *message,
                         pt2p_result_t *result);

/** Starts the receive of such a message; arguments as pt2p_mrecv. The handle of the message is dead when this returns PT2P_OK.
 *  *req receives the request, NULL after a failure. */
pt2p_status_t pt2p_imrecv(pt2p_context_t *ctx, void *buffer, size_t capacity, pt2p_message_t *message,
                          pt2p_request_t **req);

/** Waits until the request has completed; frees it. Returns result->status. result may be NULL.
 *  Errors: PT2P_ERR_REQUEST for NULL, a finished or a foreign handle; else the status of the operation. */
pt2p_status_t pt2p_wait(pt2p_context_t *ctx, pt2p_request_t *req, pt2p_result_t *result);

/** *done is 1 when the request has completed (it is then freed and *result filled), else 0. Makes progress.
 *  Returns the status of the operation when done. */
pt2p_status_t pt2p_test(pt2p_context_t *ctx, pt2p_request_t *req, int *done, pt2p_result_t *result);

/**
 * Waits for every request of the list. NULL entries are skipped; entries are set to NULL as they finish.
 *
 * results: NULL or an array of `count`; entries of NULL requests get PT2P_OK with length 0.
 * Returns PT2P_OK, or the first status by index that is not. A dead handle in the list is an error before anything is
 * waited for; requests before it that had completed are freed.
 */
pt2p_status_t pt2p_waitall(pt2p_context_t *ctx, size_t count, pt2p_request_t **reqs, pt2p_result_t *results);

/** Waits for one request of the list, frees it, sets its entry to NULL and stores its position in *index
 *  (PT2P_NO_INDEX when all entries are NULL). Returns its status. */
pt2p_status_t pt2p_waitany(pt2p_context_t *ctx, size_t count, pt2p_request_t **reqs, size_t *index,
                           pt2p_result_t *result);

/** As pt2p_waitany without waiting; *index is PT2P_NO_INDEX when none has completed. */
pt2p_status_t pt2p_testany(pt2p_context_t *ctx, size_t count, pt2p_request_t **reqs, size_t *index,
                           pt2p_result_t *result);

/** *done is 1 when all requests have completed; they are then freed and set to NULL. Else *done is 0 and none is
 *  freed. Returns as pt2p_waitall when done. */
pt2p_status_t pt2p_testall(pt2p_context_t *ctx, size_t count, pt2p_request_t **reqs, int *done,
                           pt2p_result_t *results);

/**
 * Waits until at least one request of the list has completed, and reports all that have: they are freed and their
 * entries set to NULL. NULL entries are skipped.
 *
 * completed: receives how many; 0 when all entries are NULL. indices: array of `count`; the first *completed receive
 * the positions, ascending. results: NULL or an array of `count`; results[k] is that of the request at indices[k].
 *
 * Returns PT2P_OK, or the first status by index that is not; the results tell which. A dead handle in the list is an
 * error before anything is waited for: nothing has then been reported.
 */
pt2p_status_t pt2p_waitsome(pt2p_context_t *ctx, size_t count, pt2p_request_t **reqs, size_t *completed, size_t *indices,
                            pt2p_result_t *results);

/** As pt2p_waitsome without waiting; *completed is 0 when none has completed. */
pt2p_status_t pt2p_testsome(pt2p_context_t *ctx, size_t count, pt2p_request_t **reqs, size_t *completed, size_t *indices,
                            pt2p_result_t *results);

/** Looks at a request without freeing it: *done is 1 when it has completed, *result is then what pt2p_wait will report, its
 *  status included; else *done is 0. result may be NULL. Makes progress. Returns PT2P_OK whatever the status of the
 *  operation. Errors: PT2P_ERR_CONTEXT, PT2P_ERR_ARGUMENT, PT2P_ERR_REQUEST. */
pt2p_status_t pt2p_request_query(pt2p_context_t *ctx, pt2p_request_t *req, int *done, pt2p_result_t *result);

/**
 * Gives a request up: the operation goes on and its request is freed when it has completed. The handle is dead at once,
 * and the buffer stays the library's until then, which shows by other means, such as an answer. Whether the operation
 * fails is told to nobody. A receive that is given up and never matched counts as unfinished in pt2p_finalize.
 *
 * Errors: PT2P_ERR_CONTEXT, PT2P_ERR_REQUEST.
 */
pt2p_status_t pt2p_request_free(pt2p_context_t *ctx, pt2p_request_t *req);

/**
 * Gives a request up and has `done` called when it has completed; the handle is dead at once. For requests of every
 * kind.
 *
 * The callback is called exactly once, from within a call that waits or tests, from pt2p_progress, pt2p_finalize or,
 * with PT2P_PROGRESS_THREAD=yes, the progress thread. It is never called from within the call that starts the operation
 * or another operation, also when it has completed already, and never from within another callback. The callbacks of a
 * context are called one at a time, in the order of completion, with no lock of the library held.
 *
 * A callback may start operations, with and without callbacks, give requests up, test and query. What waits,
 * pt2p_progress and pt2p_finalize return PT2P_ERR_IN_HANDLER at once. An exception that leaves it ends the program.
 *
 * done: not NULL. argument: passed on.
 *
 * Errors: PT2P_ERR_CONTEXT, PT2P_ERR_ARGUMENT, PT2P_ERR_REQUEST; PT2P_ERR_UNFINISHED in a callback that pt2p_finalize
 * calls after it has given up waiting. After an error the callback is not called and the request is as it was.
 */
pt2p_status_t pt2p_request_callback(pt2p_context_t *ctx, pt2p_request_t *req, pt2p_callback_t done, void *argument);

/** As pt2p_isend with a callback in place of the request. When the start fails, the callback is not called. */
pt2p_status_t pt2p_isend_callback(pt2p_context_t *ctx, const void *buffer, size_t length, int dest, uint64_t tag,
                                  pt2p_callback_t done, void *argument);

/** As pt2p_irecv with a callback in place of the request. When the start fails, the callback is not called. */
pt2p_status_t pt2p_irecv_callback(pt2p_context_t *ctx, void *buffer, size_t capacity, int source, uint64_t tag, uint64_t mask,
                                  pt2p_callback_t done, void *argument);

/** As pt2p_cancel for a receive that pt2p_irecv_callback or pt2p_request_callback has given a callback: the oldest one with this
 *  `done` and `argument` that no message has matched. Its callback is called with PT2P_ERR_CANCELLED. It looks at all receives.
 *  Errors: PT2P_ERR_CONTEXT, PT2P_ERR_ARGUMENT; PT2P_ERR_REQUEST when there is no such receive. */
pt2p_status_t pt2p_cancel_callback(pt2p_context_t *ctx, pt2p_callback_t done, void *argument);

/** Withdraws a receive that no message has matched yet, or a call that has not been started: it completes with
 *  PT2P_ERR_CANCELLED, and still has to be waited for. A receive that has been matched, or a call that was started, completes
 *  as if nothing had been asked; the handler of the call can find out that it is not wanted. Errors: PT2P_ERR_REQUEST for a
 *  dead handle, PT2P_ERR_ARGUMENT for a send or a one-sided operation. */
pt2p_status_t pt2p_cancel(pt2p_context_t *ctx, pt2p_request_t *req);

/** Returns when every rank of the job has entered. Errors: PT2P_ERR_CONTEXT; PT2P_ERR_PEER_LOST or
 *  PT2P_ERR_PEER_FINALIZED, naming a rank that can no longer arrive. */
pt2p_status_t pt2p_barrier(pt2p_context_t *ctx);

/** Moves communication forward without waiting for anything. Errors: PT2P_ERR_CONTEXT. */
pt2p_status_t pt2p_progress(pt2p_context_t *ctx);

/** Short text of a status, such as "rank out of range". Static; never NULL. */
const char *pt2p_strerror(pt2p_status_t status);

/** Explanation of the calling thread's latest failure on ctx, or, with NULL, of its latest failure without a context
 *  (pt2p_init, pt2p_finalize), as "text of pt2p_strerror: what happened. Remedy: what helps". Valid until that thread's
 *  next failure; "" when there was none. */
const char *pt2p_last_error(const pt2p_context_t *ctx);

/** Number of counters; they are numbered 0 ... count-1. */
int pt2p_counter_count(void);

/** Name of a counter, such as "messages_sent"; NULL when out of range. Static. */
const char *pt2p_counter_name(int counter);

/** One line on what a counter counts; NULL when out of range. Static. */
const char *pt2p_counter_help(int counter);

/** Stores the counter's value since pt2p_init. Errors: PT2P_ERR_CONTEXT, PT2P_ERR_ARGUMENT. */
pt2p_status_t pt2p_counter_read(const pt2p_context_t *ctx, int counter, uint64_t *value);

/** Writes a readable summary (ranks, hosts, which way messages went and why, counters, bytes of memory for each peer) into
 *  text, cut at `capacity` bytes and always ended by a zero. *needed, when not NULL, receives the full size, zero
 *  included. Errors: PT2P_ERR_CONTEXT, PT2P_ERR_ARGUMENT. */
pt2p_status_t pt2p_summary(pt2p_context_t *ctx, char *text, size_t capacity, size_t *needed);

/** As pt2p_summary, but a report on each busy channel through a network device: transmission efficiency, parallelism and
 *  load balance in numbers, what limits it, and which tunable would change that; pt2p_tpl(7) explains it. Errors:
 *  PT2P_ERR_CONTEXT, PT2P_ERR_ARGUMENT. */
pt2p_status_t pt2p_report(pt2p_context_t *ctx, char *text, size_t capacity, size_t *needed);

/** Writes what this context is waiting for (pending requests, peers, unexpected messages) to standard error: what the
 *  stall watchdog prints, on demand. Errors: PT2P_ERR_CONTEXT. */
pt2p_status_t pt2p_dump(pt2p_context_t *ctx);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#include <pt2p_calls.h>
#include <pt2p_onesided.h>
#include <pt2p_open.h>

#endif
