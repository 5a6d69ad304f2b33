/*
 * libpt2p: one-sided operations on memory of other ranks. Part of pt2p.h, whose conventions hold here, too.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef PT2P_ONESIDED_H
#define PT2P_ONESIDED_H

#include <pt2p.h>

#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

/** Memory of this rank that other ranks may operate on. Opaque. */
typedef struct pt2p_memory pt2p_memory_t;

/** Memory of some rank, as this rank reaches it. Opaque. */
typedef struct pt2p_remote pt2p_remote_t;

/** No export of memory is longer, bytes. */
#define PT2P_EXPORT_MAX 1024

/** What the signal of pt2p_put_signal does to its word. */
typedef enum pt2p_signal {
	PT2P_SIGNAL_SET = 0, /**< stores the value */
	PT2P_SIGNAL_ADD = 1  /**< adds the value, modulo 2^64 */
} pt2p_signal_t;

/** Remote memory and the ways to it: "direct" (this rank's processor), "transport" (remote reads, writes and atomic
 *  operations of the transport) or "owner" (a message; done when the owner makes progress). Filled by pt2p_remote_query. */
typedef struct pt2p_remote_info {
	int rank;           /**< the owner */
	size_t length;      /**< bytes */
	int atomics_by_nic; /**< 1 when the owner's network device executes all atomic operations on it, 0: processors do */
	char put[16];       /**< way of pt2p_put, and of the payload of pt2p_put_signal */
	char get[16];       /**< way of pt2p_get */
	char atomic[16];    /**< way of atomic operations and of signals */
} pt2p_remote_info_t;

/**
 * Lets other ranks operate on memory of the program.
 *
 * address: start of the memory, which stays the program's. It must stay readable and writable until it is released.
 * length:  bytes, 1 ... PTRDIFF_MAX.
 * mem:     receives the handle, owned by the caller until pt2p_memory_release. NULL after a failure.
 *
 * Memory may be registered several times and may overlap other registered memory; atomic operations through different
 * handles are atomic with each other when pt2p_remote_query gives the same atomics_by_nic for them.
 *
 * Errors: PT2P_ERR_CONTEXT, PT2P_ERR_ARGUMENT, PT2P_ERR_LENGTH, PT2P_ERR_NO_MEMORY; PT2P_ERR_UNSUPPORTED when
 * PT2P_ATOMICS asks for what cannot be.
 */
pt2p_status_t pt2p_memory_register(pt2p_context_t *ctx, void *address, size_t length, pt2p_memory_t **mem);

/**
 * Makes memory that other ranks may operate on, zeroed, near this rank's CPUs, on huge pages where the system has them
 * to give. Ranks of the same node map it, so that their operations need no help of this rank.
 *
 * length:  bytes, 1 ... PTRDIFF_MAX.
 * mem:     receives the handle, owned by the caller until pt2p_memory_release. NULL after a failure.
 * address: receives where it is, aligned to a page. NULL after a failure.
 *
 * Errors: PT2P_ERR_CONTEXT, PT2P_ERR_ARGUMENT, PT2P_ERR_LENGTH; PT2P_ERR_SHARED_MEMORY or PT2P_ERR_NO_MEMORY when there
 * is not enough; PT2P_ERR_UNSUPPORTED as pt2p_memory_register.
 */
pt2p_status_t pt2p_memory_allocate(pt2p_context_t *ctx, size_t length, pt2p_memory_t **mem, void **address);

/**
 * Takes memory back, and frees what pt2p_memory_allocate made. Local: it does not wait for operations of other ranks,
 * so the program sees to it that none is under way or follows. Those that the owner is asked for fail with
 * PT2P_ERR_MEMORY; what becomes of others is not defined.
 *
 * Errors: PT2P_ERR_CONTEXT; PT2P_ERR_MEMORY when mem is NULL, released or of another context.
 */
pt2p_status_t pt2p_memory_release(pt2p_context_t *ctx, pt2p_memory_t *mem);

/**
 * Writes what another rank needs to operate on the memory: bytes that mean something to pt2p_memory_import only, to be
 * brought there by any means, such as a message. They are valid for every rank of the job until the memory is released.
 *
 * blob:     receives the bytes; NULL: *needed alone is filled.
 * capacity: bytes of the buffer; PT2P_EXPORT_MAX is always enough.
 * needed:   receives how many bytes they are. 0 after a failure other than PT2P_ERR_TRUNCATED.
 *
 * Errors: PT2P_ERR_CONTEXT, PT2P_ERR_ARGUMENT, PT2P_ERR_MEMORY; PT2P_ERR_TRUNCATED when the buffer is too small.
 */
pt2p_status_t pt2p_memory_export(pt2p_context_t *ctx, pt2p_memory_t *mem, void *blob, size_t capacity, size_t *needed);

/**
 * Gives this rank access to memory that `rank` has exported. Connects nothing: whether the rank is reached shows with
 * the first operation.
 *
 * rank:   the owner, 0 ... size-1, this rank included.
 * blob:   what pt2p_memory_export wrote there, `length` bytes; read only during the call, and copied.
 * remote: receives the handle, owned by the caller until pt2p_remote_release. NULL after a failure.
 *
 * Errors: PT2P_ERR_CONTEXT, PT2P_ERR_RANK; PT2P_ERR_ARGUMENT, also for bytes that are no export of `rank` in this job,
 * or have changed since; PT2P_ERR_MEMORY when it shows that the memory has been released; PT2P_ERR_EXCHANGE when `rank`
 * never came.
 */
pt2p_status_t pt2p_memory_import(pt2p_context_t *ctx, int rank, const void *blob, size_t length,
                                 pt2p_remote_t **remote);

/** Gives the access up, once this context's operations on it are done: it waits for them. The memory itself stays.
 *  Errors: PT2P_ERR_CONTEXT; PT2P_ERR_MEMORY when remote is NULL, released or of another context. */
pt2p_status_t pt2p_remote_release(pt2p_context_t *ctx, pt2p_remote_t *remote);

/** Fills *info about remote memory; connects to its owner if that is needed to know.
 *  Errors: PT2P_ERR_CONTEXT, PT2P_ERR_ARGUMENT, PT2P_ERR_MEMORY, and those of a first send to that rank. */
pt2p_status_t pt2p_remote_query(pt2p_context_t *ctx, pt2p_remote_t *remote, pt2p_remote_info_t *info);

/**
 * Stores where remote memory lies in this process: *address is its first byte, or NULL where it is not mapped. It is in
 * this rank's own memory, and in memory that a rank of this node has allocated, unless PT2P_ONE_SIDED says otherwise.
 *
 * The address is valid until pt2p_remote_release, and must not be used once the owner has released the memory. Loads
 * and stores there are those of a processor on shared memory, and ordered as such: with acquire and release order
 * between ranks. One-sided operations of this rank are done when its flush has returned, those of others when their
 * signal is seen. Atomic instructions are atomic with the library's atomic operations when pt2p_remote_query tells that
 * atomics_by_nic is 0.
 *
 * Errors: PT2P_ERR_CONTEXT, PT2P_ERR_ARGUMENT, PT2P_ERR_MEMORY.
 */
pt2p_status_t pt2p_remote_address(pt2p_context_t *ctx, pt2p_remote_t *remote, void **address);

/** Tells the library that `length` bytes at `address`, such as message buffers, are about to be unmapped or have been:
 *  what it remembers of them, registrations with a network device above all, is dropped. Needed only where the program
 *  unmaps memory itself (munmap, shmdt); no operation may use the bytes.
 *  Errors: PT2P_ERR_CONTEXT, PT2P_ERR_LENGTH; PT2P_ERR_ARGUMENT, also when some of it is registered: release that first. */
pt2p_status_t pt2p_memory_gone(pt2p_context_t *ctx, void *address, size_t length);

/**
 * Starts a write of `length` bytes to remote memory.
 *
 * buffer: stays valid and unchanged until the operation is done. May be NULL when length is 0.
 * offset: bytes from the start of the remote memory; offset + length must lie within.
 * req:    receives a request for the wait and test functions, which completes when the bytes are in the remote memory;
 *         NULL after a failure. With req NULL itself, pt2p_flush tells of the end.
 *
 * The result of the request names the owner as source, 0 as tag, and the length. Operations are not ordered among each
 * other unless pt2p_fence says so.
 *
 * Errors: PT2P_ERR_CONTEXT, PT2P_ERR_ARGUMENT, PT2P_ERR_LENGTH, PT2P_ERR_MEMORY, PT2P_ERR_BOUNDS, and those of
 * pt2p_send. The request or pt2p_flush may tell PT2P_ERR_PEER_LOST, PT2P_ERR_PEER_FINALIZED, PT2P_ERR_PROTOCOL,
 * PT2P_ERR_MEMORY, and PT2P_ERR_SYSTEM when the memory is not there any more.
 */
pt2p_status_t pt2p_put(pt2p_context_t *ctx, const void *buffer, size_t length, pt2p_remote_t *remote, size_t offset,
                       pt2p_request_t **req);

/** Starts a read of `length` bytes of remote memory into `buffer`, which stays valid and untouched until the operation is
 *  done. Everything else as pt2p_put. */
pt2p_status_t pt2p_get(pt2p_context_t *ctx, void *buffer, size_t length, pt2p_remote_t *remote, size_t offset,
                       pt2p_request_t **req);

/** As pt2p_put with a callback in place of the request. When the start fails, the callback is not called. */
pt2p_status_t pt2p_put_callback(pt2p_context_t *ctx, const void *buffer, size_t length, pt2p_remote_t *remote, size_t offset,
                                pt2p_callback_t done, void *argument);

/** As pt2p_get with a callback in place of the request. When the start fails, the callback is not called. */
pt2p_status_t pt2p_get_callback(pt2p_context_t *ctx, void *buffer, size_t length, pt2p_remote_t *remote, size_t offset,
                                pt2p_callback_t done, void *argument);

/**
 * Starts a write, and after it an atomic change of a 64-bit word in memory of the same rank: whoever reads the new
 * value of the word, with acquire order, reads the payload as well.
 *
 * signal:        remote memory of the same rank, may be the same handle.
 * signal_offset: of the word; its address at the owner must be a multiple of 8.
 * how, value:    what happens to the word. It is atomic with the atomic operations on that memory.
 *
 * Everything else as pt2p_put; PT2P_ERR_ARGUMENT also when the two are memory of different ranks.
 */
pt2p_status_t pt2p_put_signal(pt2p_context_t *ctx, const void *buffer, size_t length, pt2p_remote_t *remote,
                              size_t offset, pt2p_remote_t *signal, size_t signal_offset, pt2p_signal_t how,
                              uint64_t value, pt2p_request_t **req);

/**
 * Starts an atomic addition to a 32-bit word of remote memory, modulo 2^32.
 *
 * offset: of the word in bytes; its address at the owner must be a multiple of its size.
 * result: receives what was there before, when the operation is done; stays valid until then. May be NULL.
 * req:    as pt2p_put.
 *
 * Errors: as pt2p_put; PT2P_ERR_BOUNDS also for a word that is not aligned.
 */
pt2p_status_t pt2p_fetch_add32(pt2p_context_t *ctx, pt2p_remote_t *remote, size_t offset, uint32_t operand,
                               uint32_t *result, pt2p_request_t **req);

/** As pt2p_fetch_add32 for a 64-bit word. */
pt2p_status_t pt2p_fetch_add64(pt2p_context_t *ctx, pt2p_remote_t *remote, size_t offset, uint64_t operand,
                               uint64_t *result, pt2p_request_t **req);

/** Starts an atomic exchange: the word becomes `desired`. Everything else as pt2p_fetch_add32. */
pt2p_status_t pt2p_swap32(pt2p_context_t *ctx, pt2p_remote_t *remote, size_t offset, uint32_t desired,
                          uint32_t *result, pt2p_request_t **req);

/** As pt2p_swap32 for a 64-bit word. */
pt2p_status_t pt2p_swap64(pt2p_context_t *ctx, pt2p_remote_t *remote, size_t offset, uint64_t desired,
                          uint64_t *result, pt2p_request_t **req);

/** Starts an atomic compare-and-swap: the word becomes `desired` if it is `expected`; *result tells what it was, so the swap
 *  has happened when *result is `expected`. Everything else as pt2p_fetch_add32. */
pt2p_status_t pt2p_compare_swap32(pt2p_context_t *ctx, pt2p_remote_t *remote, size_t offset, uint32_t expected,
                                  uint32_t desired, uint32_t *result, pt2p_request_t **req);

/** As pt2p_compare_swap32 for a 64-bit word. */
pt2p_status_t pt2p_compare_swap64(pt2p_context_t *ctx, pt2p_remote_t *remote, size_t offset, uint64_t expected,
                                  uint64_t desired, uint64_t *result, pt2p_request_t **req);

/** Waits until all one-sided operations of this context on memory of `rank` are done there. Returns the first failure of
 *  those that had no request, since the last flush. Errors: PT2P_ERR_CONTEXT, PT2P_ERR_RANK, and those of pt2p_put's
 *  requests. */
pt2p_status_t pt2p_flush(pt2p_context_t *ctx, int rank);

/** As pt2p_flush for all ranks. Returns one failure when there are several. */
pt2p_status_t pt2p_flush_all(pt2p_context_t *ctx);

/**
 * Waits until a 64-bit word of this rank's memory, compared as an unsigned number, is at least `value`: for the signals
 * of pt2p_put_signal. What was written before the signal can be read when it returns.
 *
 * word:   aligned to 8 bytes.
 * source: the rank whose signal is awaited, or PT2P_ANY_SOURCE: the wait fails when that rank is lost or has
 *         finalized, as a receive does.
 *
 * Errors: PT2P_ERR_CONTEXT, PT2P_ERR_ARGUMENT, PT2P_ERR_RANK, PT2P_ERR_PEER_LOST, PT2P_ERR_PEER_FINALIZED,
 * PT2P_ERR_PROTOCOL.
 */
pt2p_status_t pt2p_signal_wait(pt2p_context_t *ctx, const uint64_t *word, uint64_t value, int source);

/** Orders without waiting: operations of this context on memory of `rank` that start later take effect after all that have
 *  started before. Errors: PT2P_ERR_CONTEXT, PT2P_ERR_RANK. */
pt2p_status_t pt2p_fence(pt2p_context_t *ctx, int rank);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
