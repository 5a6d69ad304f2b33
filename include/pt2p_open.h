/*
 * libpt2p: open contexts, for programs without a launcher: servers and clients that come and go. Part of pt2p.h, whose
 * conventions hold here, too.
 *
 * An open context has an address, and its peers are other open contexts. Each context numbers its peers by itself: its
 * own number is 0, and the others get theirs from 1 on as they are added or add this one. So the same peer has
 * different numbers at different contexts. All functions that take a rank take such a number.
 *
 *   - pt2p_size tells how many numbers there are (PT2P_OPEN_PEERS), whoever has them.
 *   - The number of a peer that has gone is given to another one after pt2p_peer_remove; without it, when three
 * quarters of the numbers have been given, the peer that went first, if all its messages have been received.
 *   - A send to a number that nobody has fails with PT2P_ERR_RANK, and so does a receive from it.
 *   - A peer that calls pt2p_finalize is PT2P_ERR_PEER_FINALIZED, one that is killed PT2P_ERR_PEER_LOST. Receives,
 * probes and pt2p_signal_wait from PT2P_ANY_SOURCE wait on, as others may come.
 *   - pt2p_barrier is not there (PT2P_ERR_UNSUPPORTED), and messages are never forwarded.
 *   - Processes of one user on one host trust each other. Contexts on several hosts need a secret in common,
 *     PT2P_OPEN_SECRET; what they have not both proved to know they do not tell.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef PT2P_OPEN_H
#define PT2P_OPEN_H

#include <pt2p.h>

#ifdef __cplusplus
extern "C" {
#endif
#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

/**
 * Makes an open context, which knows nobody yet. Looks for no launcher.
 *
 * options: as pt2p_init. PT2P_OPEN_LISTEN says where others find it.
 * ctx:     receives the context, owned by the caller until pt2p_finalize. NULL after a failure.
 *
 * A thread of the library answers those who add this context, also while the program makes no call. A process may have
 * several open contexts, and add one to another.
 *
 * Errors: as pt2p_init; PT2P_ERR_TUNABLE also when the address cannot be had, or the file of PT2P_OPEN_SECRET cannot be
 * read or may be used by others than its owner.
 */
pt2p_status_t pt2p_init_open(const pt2p_options_t *options, pt2p_context_t **ctx);

/** Writes the address of an open context, "host:port" with an IP address, into text, cut at `capacity` bytes and always
 * ended by a zero. *needed, when not NULL, receives the full size, zero included. The program brings it to those who
 * are to add this context. Errors: PT2P_ERR_CONTEXT, PT2P_ERR_ARGUMENT; PT2P_ERR_UNSUPPORTED for a context that is not
 * open. */
pt2p_status_t pt2p_address(pt2p_context_t *ctx, char *text, size_t capacity, size_t *needed);

/** As pt2p_address, for the peer with number `rank`: where it answers, as it has told itself. A callback may call it.
 * Errors: also PT2P_ERR_RANK when nobody has the number. */
pt2p_status_t pt2p_peer_address(pt2p_context_t *ctx, int rank, char *text, size_t capacity, size_t *needed);

/**
 * Gives the context at an address a number here, and this one a number there.
 *
 * address: "host:port", as pt2p_address wrote it or with the name of a host. rank: receives the number; not NULL.
 *
 * A peer that has a number already, because it was added before or has added this context, keeps it. The own address
 * has number 0. Waits for the answer of the peer's process, whose program need not make calls, for at most
 * PT2P_OPEN_TIME; other threads may use the context meanwhile. Nothing is connected for messages yet.
 *
 * Errors: PT2P_ERR_CONTEXT, PT2P_ERR_ARGUMENT for a malformed address or an unknown host; PT2P_ERR_UNSUPPORTED for a
 * context that is not open; PT2P_ERR_UNREACHABLE when nobody answers; PT2P_ERR_REFUSED when the peer belongs to another
 * user or does not have the secret; PT2P_ERR_NO_NUMBER; PT2P_ERR_IN_HANDLER.
 */
pt2p_status_t pt2p_peer_add(pt2p_context_t *ctx, const char *address, int *rank);

/**
 * Gives a peer up, also one that has left or is lost. What is under way with it fails with PT2P_ERR_PEER_FINALIZED;
 * messages to it that have not arrived may be lost, and those from it that nobody has received are discarded. The peer
 * sees this context leave.
 *
 * From now on the number may get another owner: later, when neither side uses it any more, which takes calls of both
 * that make progress. Until then its use fails with PT2P_ERR_PEER_FINALIZED. Memory that was imported from the peer
 * stays its own, and operations on it fail. The same peer may be added again.
 *
 * Errors: PT2P_ERR_CONTEXT; PT2P_ERR_RANK when no peer has that number; PT2P_ERR_UNSUPPORTED for a context that is not
 * open; PT2P_ERR_IN_HANDLER.
 */
pt2p_status_t pt2p_peer_remove(pt2p_context_t *ctx, int rank);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif

#endif
