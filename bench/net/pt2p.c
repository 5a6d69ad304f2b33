/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The steps of bench/net/steps.h with libpt2p, through one transport. Run by bench/net/callgrind.
 *
 *     net_pt2p TRANSPORT MESSAGES [message|call]        of 32 bytes, with a reply of as many; default: messages of 8
 */
#define _GNU_SOURCE /* dladdr */
#include <dlfcn.h>
#include <infiniband/mlx5dv.h>

#include <pt2p.h>

#include "bench/net/steps.h"

static pt2p_context_t *context[2];
static pt2p_request_t *sends[LARGEST_WINDOW], *receives[LARGEST_WINDOW];

static void must(int end, const char *what, pt2p_status_t status)
{
	if (__builtin_expect(status != PT2P_OK, 0))
		give_up(what, pt2p_last_error(context[end]));
}

static void post_receive(int end, int slot, void *to)
{
	must(end, "pt2p_irecv", pt2p_irecv(context[end], to, message_bytes, 1 - end, 7, PT2P_TAG_EXACT, &receives[slot]));
}

static void post_send(int end, int slot, const void *from)
{
	must(end, "pt2p_isend", pt2p_isend(context[end], from, message_bytes, 1 - end, 7, &sends[slot]));
}

static void end_receive(int end, int slot) { must(end, "pt2p_wait", pt2p_wait(context[end], receives[slot], NULL)); }
static void end_send(int end, int slot) { must(end, "pt2p_wait", pt2p_wait(context[end], sends[slot], NULL)); }

static void make_call(int slot, const void *input, void *reply)
{
	must(0, "pt2p_icall", pt2p_icall(context[0], 1, 1, input, message_bytes, reply, message_bytes, NULL, &sends[slot]));
}

static void end_call(int slot) { end_send(0, slot); }

static void echo(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, void *argument)
{
	(void)argument;
	must(1, "pt2p_reply", pt2p_reply(ctx, call, 0, input, length));
	++served;
}

/* There is one completion queue for both. What one turn leaves in it, the next one finds before the receives. */
static int turn(int end)
{
	must(end, "pt2p_progress", pt2p_progress(context[end]));
	return 0;
}

/* libmlx5 comes without symbols. This prints which of its functions libibverbs reaches through its tables, so that a
   profile can be read. */
static void print_name(const char *name, const void *function)
{
	Dl_info where;
	if (function && dladdr(function, &where) && where.dli_fname && strstr(where.dli_fname, "libmlx5"))
		printf("function 0x%016zx %s\n", (size_t)((const char *)function - (const char *)where.dli_fbase), name);
}

/* Connected to itself, so that it can send. Until then, the function that ends a work request is one that refuses. */
static void connect_to_itself(struct ibv_qp *qp)
{
	struct ibv_port_attr port;
	if (ibv_query_port(qp->context, 1, &port) != 0)
		give_up("net_pt2p", "no port");
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
	int error = ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = IBV_MTU_1024;
	attr.dest_qp_num = qp->qp_num;
	attr.ah_attr.dlid = port.lid;
	attr.ah_attr.port_num = 1;
	error |= ibv_modify_qp(qp, &attr,
	                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
	                           IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	attr.qp_state = IBV_QPS_RTS;
	error |= ibv_modify_qp(qp, &attr,
	                       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
	                           IBV_QP_MAX_QP_RD_ATOMIC);
	if (error)
		give_up("net_pt2p", "a queue pair cannot be connected");
}

static void print_names(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *opened = list && list[0] ? ibv_open_device(list[0]) : NULL;
	if (!opened)
		give_up("net_pt2p", "no device");
	/* Before the first queue pair: softhca then puts functions of its own in front. */
	print_name("poll_cq", (const void *)opened->ops.poll_cq);
	print_name("post_recv", (const void *)opened->ops.post_recv);
	print_name("post_srq_recv", (const void *)opened->ops.post_srq_recv);
	/* The functions of an extended queue depend on what it was created with. */
	for (int alone = 0; alone < 2; ++alone) {
		struct ibv_cq_init_attr_ex attr = {.cqe = 1, .wc_flags = IBV_WC_STANDARD_FLAGS};
		if (alone) {
			attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
			attr.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
		}
		struct ibv_cq_ex *cq = ibv_create_cq_ex(opened, &attr);
		if (!cq)
			continue;
		print_name("start_poll", (const void *)cq->start_poll);
		print_name("next_poll", (const void *)cq->next_poll);
		print_name("end_poll", (const void *)cq->end_poll);
		print_name("read_opcode", (const void *)cq->read_opcode);
		print_name("read_byte_len", (const void *)cq->read_byte_len);
		print_name("read_qp_num", (const void *)cq->read_qp_num);
		ibv_destroy_cq(ibv_cq_ex_to_cq(cq));
	}
	struct ibv_qp_init_attr_ex wanted = {.cap = {1, 1, 1, 1, 0},
	                                     .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
	                                     .send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE};
	wanted.send_cq = wanted.recv_cq = ibv_create_cq(opened, 1, NULL, NULL, 0);
	wanted.pd = ibv_alloc_pd(opened);
	struct mlx5dv_qp_init_attr initiator = {.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC,
	                                        .dc_init_attr = {.dc_type = MLX5DV_DCTYPE_DCI}};
	for (int dc = 0; dc < 2; ++dc) {
		wanted.qp_type = dc ? IBV_QPT_DRIVER : IBV_QPT_RC;
		struct ibv_qp *qp = dc ? mlx5dv_create_qp(opened, &wanted, &initiator) : ibv_create_qp_ex(opened, &wanted);
		if (!qp)
			continue;
		if (!dc)
			connect_to_itself(qp);
		const struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
		print_name("wr_start", (const void *)ex->wr_start);
		print_name("wr_send", (const void *)ex->wr_send);
		print_name("wr_rdma_write", (const void *)ex->wr_rdma_write);
		print_name("wr_set_sge", (const void *)ex->wr_set_sge);
		print_name("wr_set_inline_data", (const void *)ex->wr_set_inline_data);
		print_name("wr_set_inline_data_list", (const void *)ex->wr_set_inline_data_list);
		if (!dc)
			print_name("wr_complete, the doorbell", (const void *)ex->wr_complete);
		else
			print_name("wr_set_dc_addr",
			           (const void *)mlx5dv_qp_ex_from_ibv_qp_ex(ibv_qp_to_qp_ex(qp))->wr_set_dc_addr);
		ibv_destroy_qp(qp);
	}
	ibv_destroy_cq(wanted.send_cq);
	ibv_dealloc_pd(wanted.pd);
	ibv_close_device(opened);
	ibv_free_device_list(list);
}

int main(int argc, char **argv)
{
	const long messages = argc == 3 || argc == 4 ? atol(argv[2]) : 0;
	if (messages < 1) {
		fprintf(stderr, "usage: net_pt2p TRANSPORT MESSAGES [message|call]\n");
		return 2;
	}
	const int calls = calls_asked_for(argv[3]);
	print_names();
	open_crank();
	char list[64];
	snprintf(list, sizeof list, "PT2P_TRANSPORTS=self,%s", argv[1]);
	const char *tunables[] = {list, NULL};
	pt2p_options_t options = PT2P_OPTIONS_INIT;
	options.tunables = tunables;
	must(0, "pt2p_init_inprocess", pt2p_init_inprocess(2, PT2P_INPROCESS_COOPERATIVE, &options, context));
	/* The connection is made by the first message. */
	const int64_t sent[WORDS] = {SENT_FROM};
	int64_t received[WORDS];
	post_receive(1, 0, received);
	post_send(0, 0, sent);
	end_receive(1, 0);
	end_send(0, 0);
	pt2p_peer_info_t peer;
	must(0, "pt2p_peer_query", pt2p_peer_query(context[0], 1, &peer));
	if (strcmp(peer.transport, argv[1]) != 0)
		give_up("net_pt2p: the messages go by", peer.transport);
	pt2p_service_t *service;
	must(1, "pt2p_service_open", pt2p_service_open(context[1], 1, echo, NULL, NULL, &service));
	measure(calls, messages);
	must(0, "pt2p_finalize", pt2p_finalize(context[0]));
	must(1, "pt2p_finalize", pt2p_finalize(context[1]));
	return 0;
}
