/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Operations of 8 bytes between two endpoints of one process, by libfabric's interface over libpt2p's provider.
 *
 *     provider ITERATIONS OPERATION
 *
 * OPERATION: tagged, inject, data (inject with a word of data), msg: a receive is posted, then the message is sent,
 * then the completions are read. window: as Open MPI's receives and sends, 16 at a time: a bit of the tag is not
 * compared, each message carries a word of data, and completions are read together. write, read: one of remote memory,
 * and its completion. add: an atomic one of libpt2p. multiply: an atomic one that the owner's service executes.
 */
#define _POSIX_C_SOURCE 200809L
#include <rdma/fabric.h>
#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TAG = 5, KEY = 5, WINDOW = 16 };

struct end {
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_ep *ep;
	fi_addr_t peer;
	char name[64];
};

static struct fid_fabric *fabric;
static struct fi_info *info;
static uint64_t memory[8];

static void must(ssize_t result, const char *what)
{
	if (result >= 0)
		return;
	fprintf(stderr, "provider: %s: %s\n", what, fi_strerror((int)-result));
	exit(1);
}

static void open_end(struct end *e)
{
	struct fi_cq_attr cq = {.format = FI_CQ_FORMAT_TAGGED};
	struct fi_av_attr av = {.type = FI_AV_TABLE};
	size_t length = sizeof e->name;
	must(fi_domain(fabric, info, &e->domain, NULL), "fi_domain");
	must(fi_cq_open(e->domain, &cq, &e->cq, NULL), "fi_cq_open");
	must(fi_av_open(e->domain, &av, &e->av, NULL), "fi_av_open");
	must(fi_endpoint(e->domain, info, &e->ep, NULL), "fi_endpoint");
	must(fi_ep_bind(e->ep, &e->av->fid, 0), "fi_ep_bind");
	must(fi_ep_bind(e->ep, &e->cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
	must(fi_enable(e->ep), "fi_enable");
	must(fi_getname(&e->ep->fid, e->name, &length), "fi_getname");
}

static void insert(struct end *e, const struct end *peer)
{
	must(fi_av_insert(e->av, peer->name, 1, &e->peer, 0, NULL) == 1 ? 0 : -FI_EINVAL, "fi_av_insert");
}

/* Until a completion comes; `other`: an endpoint that makes progress meanwhile, or NULL. */
static void complete(struct end *e, struct end *other)
{
	struct fi_cq_tagged_entry entry;
	ssize_t n;
	while ((n = fi_cq_read(e->cq, &entry, 1)) == -FI_EAGAIN)
		if (other)
			fi_cq_read(other->cq, &entry, 1);
	must(n, "fi_cq_read");
}

enum operation { TAGGED, INJECT, DATA, MSG, WINDOWS, WRITE, READ, ADD, MULTIPLY, OPERATIONS };
static const char *const names[] = {"tagged", "inject", "data", "msg", "window", "write", "read", "add", "multiply"};

/* So many completions. */
static void complete_all(struct end *e, int count)
{
	struct fi_cq_tagged_entry entries[WINDOW];
	while (count > 0) {
		const ssize_t n = fi_cq_read(e->cq, entries, WINDOW);
		if (n != -FI_EAGAIN) {
			must(n, "fi_cq_read");
			count -= (int)n;
		}
	}
}

static void window(struct end *a, struct end *b)
{
	static uint64_t in[WINDOW], out = 7;
	const uint64_t open = UINT64_C(1) << 50;
	for (int i = 0; i < WINDOW; ++i)
		must(fi_trecv(b->ep, &in[i], sizeof in[i], NULL, b->peer, TAG, open, &in[i]), "fi_trecv");
	for (int i = 0; i < WINDOW; ++i)
		must(fi_tsenddata(a->ep, &out, sizeof out, NULL, 77, a->peer, TAG, &out), "fi_tsenddata");
	complete_all(a, WINDOW);
	complete_all(b, WINDOW);
}

static void operate(enum operation what, struct end *a, struct end *b)
{
	static uint64_t in, out = 7;
	switch (what) {
	case MSG:
		must(fi_recv(b->ep, &in, sizeof in, NULL, b->peer, &in), "fi_recv");
		must(fi_send(a->ep, &out, sizeof out, NULL, a->peer, &out), "fi_send");
		break;
	case TAGGED:
	case INJECT:
	case DATA:
		must(fi_trecv(b->ep, &in, sizeof in, NULL, b->peer, TAG, 0, &in), "fi_trecv");
		if (what == TAGGED)
			must(fi_tsend(a->ep, &out, sizeof out, NULL, a->peer, TAG, &out), "fi_tsend");
		else if (what == INJECT)
			must(fi_tinject(a->ep, &out, sizeof out, a->peer, TAG), "fi_tinject");
		else
			must(fi_tinjectdata(a->ep, &out, sizeof out, 77, a->peer, TAG), "fi_tinjectdata");
		break;
	case WINDOWS: window(a, b); return;
	case WRITE: must(fi_write(a->ep, &out, sizeof out, NULL, a->peer, 0, KEY, &out), "fi_write"); break;
	case READ: must(fi_read(a->ep, &in, sizeof in, NULL, a->peer, 0, KEY, &in), "fi_read"); break;
	case ADD: must(fi_atomic(a->ep, &out, 1, NULL, a->peer, 0, KEY, FI_UINT64, FI_SUM, &out), "fi_atomic"); break;
	case MULTIPLY: must(fi_atomic(a->ep, &out, 1, NULL, a->peer, 0, KEY, FI_UINT64, FI_PROD, &out), "fi_atomic"); break;
	default: break;
	}
	if (what != INJECT && what != DATA)
		complete(a, what >= WRITE ? b : NULL);
	if (what < WRITE)
		complete(b, NULL);
}

int main(int argc, char **argv)
{
	const long iterations = argc == 3 ? atol(argv[1]) : 0;
	enum operation what = 0;
	while (argc == 3 && what < OPERATIONS && strcmp(names[what], argv[2]) != 0)
		++what;
	if (iterations <= 0 || what == OPERATIONS) {
		fprintf(stderr, "usage: provider ITERATIONS tagged|inject|data|msg|window|write|read|add|multiply\n");
		return 2;
	}
	struct fi_info *hints = fi_allocinfo();
	hints->caps = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_DIRECTED_RECV;
	hints->ep_attr->type = FI_EP_RDM;
	hints->fabric_attr->prov_name = strdup("pt2p");
	hints->domain_attr->threading = FI_THREAD_DOMAIN;
	must(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info), "fi_getinfo");
	must(fi_fabric(info->fabric_attr, &fabric, NULL), "fi_fabric");
	struct end a = {0}, b = {0};
	open_end(&a);
	open_end(&b);
	insert(&a, &b);
	insert(&b, &a);
	struct fid_mr *mr;
	must(fi_mr_reg(b.domain, memory, sizeof memory, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, KEY, 0, &mr, NULL),
	     "fi_mr_reg");
	for (long i = 0; i < iterations; i += what == WINDOWS ? WINDOW : 1)
		operate(what, &a, &b);
	return 0;
}
