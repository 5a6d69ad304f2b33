/* SPDX-License-Identifier: BSD-3-Clause
 * One of two ranks of a launched job, for processes.sh: member exchange|killed|survives FOLDER RANK
 *
 * The ranks tell each other their addresses by files in the folder. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>

#define NEED(call)                                                                                                     \
	do {                                                                                                               \
		const long result_ = (long)(call);                                                                             \
		if (result_) {                                                                                                 \
			fprintf(stderr, "rank %d: %s: %ld\n", rank, #call, result_);                                               \
			exit(1);                                                                                                   \
		}                                                                                                              \
	} while (0)

static int rank;
static struct fid_domain *domain;
static struct fid_av *av;
static struct fid_cq *cq;
static struct fid_ep *ep;

/* Writes the own address, complete when it gets its name, and waits for the other one's. */
static void exchange(const char *folder, void *mine, void *theirs, size_t length)
{
	char name[512], made[600];
	snprintf(name, sizeof name, "%s/address.%d", folder, rank);
	snprintf(made, sizeof made, "%s.new", name);
	FILE *f = fopen(made, "wb");
	NEED(!f || fwrite(mine, 1, length, f) != length || fclose(f) || rename(made, name));
	snprintf(name, sizeof name, "%s/address.%d", folder, !rank);
	for (int i = 0; i < 3000 && !(f = fopen(name, "rb")); ++i)
		usleep(10000);
	NEED(!f || fread(theirs, 1, length, f) != length || fclose(f));
}

/* The next completion; its error, if it is one. */
static int completion(struct fi_cq_tagged_entry *entry, fi_addr_t *source)
{
	struct fi_cq_err_entry error = {0};
	ssize_t n;
	while ((n = fi_cq_readfrom(cq, entry, 1, source)) == -FI_EAGAIN)
		;
	if (n == 1)
		return 0;
	NEED(fi_cq_readerr(cq, &error, 0) != 1);
	entry->op_context = error.op_context;
	return error.err;
}

/* Endpoints that only read and write are opened by one rank alone, again and again. */
static void write_alone(const struct fi_info *as, fi_addr_t other)
{
	struct fi_info *info = fi_dupinfo(as);
	struct fid_ep *writer;
	struct fi_cq_tagged_entry entry;
	NEED(!info);
	info->caps = FI_RMA | FI_READ | FI_WRITE;
	for (uint64_t out = 1; out <= 20; ++out) {
		uint64_t in = 0;
		NEED(fi_endpoint(domain, info, &writer, NULL));
		NEED(fi_ep_bind(writer, &av->fid, 0));
		NEED(fi_ep_bind(writer, &cq->fid, FI_TRANSMIT | FI_RECV));
		NEED(fi_enable(writer));
		NEED(fi_write(writer, &out, sizeof out, NULL, other, 0, 1, NULL));
		NEED(completion(&entry, NULL));
		NEED(fi_read(writer, &in, sizeof in, NULL, other, 0, 1, NULL));
		NEED(completion(&entry, NULL));
		NEED(in != out);
		NEED(fi_close(&writer->fid));
	}
	fi_freeinfo(info);
}

int main(int argc, char **argv)
{
	struct fi_info *hints = fi_allocinfo(), *info;
	struct fid_fabric *fabric;
	struct fid_mr *mr;
	struct fi_cq_attr cq_attr = {.format = FI_CQ_FORMAT_TAGGED};
	struct fi_av_attr av_attr = {.type = FI_AV_TABLE};
	struct fi_cq_tagged_entry entry;
	fi_addr_t other = FI_ADDR_NOTAVAIL, source = FI_ADDR_NOTAVAIL;
	unsigned char mine[64], theirs[64];
	size_t length = sizeof mine;
	if (argc < 3)
		return 2;
	rank = atoi(getenv("OMPI_COMM_WORLD_RANK") ? getenv("OMPI_COMM_WORLD_RANK") : "0");
	hints->fabric_attr->prov_name = strdup("pt2p");
	hints->caps = FI_TAGGED | FI_SOURCE | FI_DIRECTED_RECV | FI_RMA;
	hints->ep_attr->type = FI_EP_RDM;
	NEED(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info));
	/* Ranks are the addresses, unless the user does not want it (FI_PT2P_OPEN=yes). */
	NEED(info->addr_format != (getenv("FI_PT2P_OPEN") ? FI_SOCKADDR_IN : FI_FORMAT_UNSPEC));
	NEED(fi_fabric(info->fabric_attr, &fabric, NULL));
	NEED(fi_domain(fabric, info, &domain, NULL));
	NEED(fi_cq_open(domain, &cq_attr, &cq, NULL));
	NEED(fi_av_open(domain, &av_attr, &av, NULL));
	NEED(fi_endpoint(domain, info, &ep, NULL));
	NEED(fi_ep_bind(ep, &av->fid, 0));
	NEED(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV));
	NEED(fi_enable(ep));
	NEED(fi_getname(&ep->fid, mine, &length));
	static uint64_t place;
	NEED(fi_mr_reg(domain, &place, sizeof place, FI_REMOTE_READ | FI_REMOTE_WRITE, 0, 1, 0, &mr, NULL));
	exchange(argv[2], mine, theirs, length);
	NEED(fi_av_insert(av, theirs, 1, &other, 0, NULL) != 1);

	static unsigned char in[2000000], out[2000000];
	for (size_t n = 1; n <= sizeof out; n *= 10) {
		int left = 2;
		memset(out, rank + (int)(n % 97), n);
		NEED(fi_trecv(ep, in, n, NULL, other, n, 0, in));
		NEED(fi_tsend(ep, out, n, NULL, other, n, out));
		while (left--) {
			NEED(completion(&entry, &source));
			NEED(entry.op_context == in && (source != other || entry.len != n || entry.tag != n));
		}
		NEED(in[0] != !rank + (int)(n % 97) || in[n - 1] != in[0]);
	}
	char go = 0;
	if (rank) {
		NEED(fi_trecv(ep, &go, 1, NULL, other, 0, 0, NULL));
		NEED(completion(&entry, &source));
		NEED(place != 20);
	} else {
		write_alone(info, other);
		NEED(fi_tinject(ep, &go, 1, other, 0));
	}
	if (strcmp(argv[1], "exchange")) {
		char name[512];
		if (rank) { /* waits to be killed */
			snprintf(name, sizeof name, "%s/pid", argv[2]);
			FILE *f = fopen(name, "w");
			NEED(!f || fprintf(f, "%d\n", (int)getpid()) < 0 || fclose(f));
			NEED(fi_trecv(ep, in, 1, NULL, other, 1, 0, in));
			for (;;)
				completion(&entry, &source);
		}
		NEED(fi_trecv(ep, in, 1, NULL, other, 1, 0, in));
		const int error = completion(&entry, &source);
		NEED(entry.op_context != in || (error != FI_ECONNRESET && error != FI_ESHUTDOWN));
		snprintf(name, sizeof name, "%s/noticed", argv[2]);
		FILE *f = fopen(name, "w");
		NEED(!f || fprintf(f, "%d\n", error) < 0 || fclose(f));
	}
	NEED(fi_close(&mr->fid));
	NEED(fi_close(&ep->fid));
	NEED(fi_close(&av->fid));
	NEED(fi_close(&cq->fid));
	NEED(fi_close(&domain->fid));
	NEED(fi_close(&fabric->fid));
	fi_freeinfo(info);
	fi_freeinfo(hints);
	printf("rank %d: ok\n", rank);
	return 0;
}
