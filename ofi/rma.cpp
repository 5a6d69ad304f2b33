// Reads and writes of remote memory.
//
// libpt2p reaches memory of another rank with what its owner exports. A program of libfabric has a key alone. So the
// owner is asked for the export when a key is used first (service_of_keys), and the operations wait for its answer.
#include <algorithm>
#include <cstring>

#include <rdma/fi_rma.h>

#include "ofi/endpoint.hpp"

namespace pt2p_ofi {

namespace {

constexpr uint32_t service_of_keys = 0x6f666901, service_of_notices = 0x6f666902, service_of_ends = 0x6f666904;

// The answer for a key; the export follows.
struct KeyAnswer {
	uint64_t base, length, access, events;
};
constexpr size_t answer_size = sizeof(KeyAnswer) + PT2P_EXPORT_MAX;

// What a rank is told of an operation on its memory that has ended: of writes with data, and with FI_RMA_EVENT of all.
struct Notice {
	uint64_t data, length, key;
	uint32_t write, has_data;
};

// ---- the owner ------------------------------------------------------------------------------------------------------

// The handle of the memory in this context; null: none can be made.
pt2p_memory_t *handle_of(pt2p_context_t *ctx, Mr &mr)
{
	pt2p_memory_t *&handle = mr.handles[ctx];
	if (!handle && pt2p_memory_register(ctx, mr.address, mr.length, &handle) != PT2P_OK) {
		failed(PT2P_ERR_MEMORY, ctx, FI_LOG_MR);
		mr.handles.erase(ctx);
		return nullptr;
	}
	return handle;
}

void answer_key(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, void *argument)
{
	const Context &context = *static_cast<Context *>(argument);
	unsigned char answer[answer_size];
	size_t bytes = 0;
	uint64_t key;
	if (length == sizeof key) {
		std::memcpy(&key, input, sizeof key);
		const std::lock_guard guard(context.domain->mutex);
		Mr *mr = context.closing ? nullptr : context.domain->find(key);
		pt2p_memory_t *handle = mr && mr->length ? handle_of(ctx, *mr) : nullptr;
		if (handle && pt2p_memory_export(ctx, handle, answer + sizeof(KeyAnswer), PT2P_EXPORT_MAX, &bytes) == PT2P_OK) {
			const KeyAnswer facts{mr->base(), mr->length, mr->access, context.owner->caps & FI_RMA_EVENT ? 1u : 0u};
			std::memcpy(answer, &facts, sizeof facts);
			bytes += sizeof facts;
			pt2p_call_info_t info;
			if (pt2p_call_query(ctx, call, &info) == PT2P_OK)
				mr->asked.emplace(ctx, info.caller);
		}
	}
	pt2p_reply(ctx, call, 0, answer, bytes);
}

void take_notice(pt2p_context_t *, pt2p_call_t *, const void *input, size_t length, void *argument)
{
	Context &context = *static_cast<Context *>(argument);
	Notice notice;
	if (length != sizeof notice)
		return;
	std::memcpy(&notice, input, sizeof notice);
	count_remote(context, notice.key, notice.write);
	Cq *cq = context.owner->rx_cq;
	if (notice.has_data && cq)
		cq->push({nullptr, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA, notice.length, nullptr, notice.data, 0});
}

// The owner has closed the memory: what is known of the key no longer holds.
void take_end(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, void *argument)
{
	Context &context = *static_cast<Context *>(argument);
	uint64_t key;
	pt2p_call_info_t info;
	if (length != sizeof key || pt2p_call_query(ctx, call, &info) != PT2P_OK)
		return;
	std::memcpy(&key, input, sizeof key);
	const Locked locked(context.lock);
	const RemoteMemory *memory = context.remotes.find(info.caller, key);
	if (!memory || !memory->reach.handle)
		return;
	context.released.push_back(memory->reach.handle);
	context.remotes.remove(info.caller, key);
}

// ---- operations -----------------------------------------------------------------------------------------------------

void end_part(Op *op, pt2p_status_t status);

void part_ended(pt2p_context_t *, const pt2p_result_t *result, void *argument)
{
	end_part(static_cast<Op *>(argument), result->status);
}

void finish(Op *op)
{
	Endpoint &e = *op->endpoint;
	if (op->status == PT2P_OK)
		e.succeed(op);
	else
		e.fail(op, {op->status, -1, 0, 0, 0, 0}, e.tx_cq);
}

// The owner of the memory is told that the operation has ended.
void tell(Op *op)
{
	Endpoint &e = *op->endpoint;
	const Notice notice{op->data, op->length, op->key, op->flags & FI_WRITE ? 1u : 0u,
	                    op->flags & FI_REMOTE_CQ_DATA ? 1u : 0u};
	const pt2p_status_t status = pt2p_notify(e.ctx, op->rank, service_of_notices, &notice, sizeof notice, nullptr);
	// An owner that has left after the operation need not hear of it.
	if (status != PT2P_ERR_PEER_FINALIZED)
		op->status = status;
}

void end_part(Op *op, pt2p_status_t status)
{
	{
		const Locked locked(op->endpoint->lock);
		if (op->status == PT2P_OK)
			op->status = status;
		if (--op->parts)
			return;
	}
	if (op->status == PT2P_OK && (op->tells || op->flags & FI_REMOTE_CQ_DATA))
		tell(op);
	op->flags &= ~FI_REMOTE_CQ_DATA;
	finish(op);
}

// done: gets the operation as argument.
[[gnu::always_inline]] inline pt2p_status_t transfer(Endpoint &e, Op *op, const Reach &memory, const Part &part,
                                                     RmaKind kind, pt2p_callback_t done)
{
	const uint64_t offset = part.remote - memory.base;
	const pt2p_status_t status =
	    kind == RmaKind::read ? pt2p_get_callback(e.ctx, part.local, part.length, memory.handle, offset, done, op)
	                          : pt2p_put_callback(e.ctx, part.local, part.length, memory.handle, offset, done, op);
	if (__builtin_expect(status != PT2P_OK, 0))
		failed(status, e.ctx, FI_LOG_EP_DATA);
	return status;
}

void start_part(Endpoint &e, Op *op, const Reach &memory, const Part &part, RmaKind kind)
{
	if (memory.events) {
		const Locked locked(e.lock);
		op->tells = true;
	}
	if (!memory.allows(kind))
		return end_part(op, PT2P_ERR_MEMORY);
	if (!memory.holds(part.remote, part.length))
		return end_part(op, PT2P_ERR_BOUNDS);
	const pt2p_status_t status = transfer(e, op, memory, part, kind, part_ended);
	if (status != PT2P_OK)
		end_part(op, status);
}

// A question for a key, and its answer.
struct Question {
	Context *context;
	int rank;
	uint64_t key;
	unsigned char answer[answer_size];
};

void key_answered(pt2p_context_t *ctx, const pt2p_result_t *result, void *argument)
{
	const std::unique_ptr<Question> q(static_cast<Question *>(argument));
	Context &context = *q->context;
	pt2p_status_t status = result->status;
	KeyAnswer facts{};
	pt2p_remote_t *handle = nullptr;
	if (status == PT2P_OK && result->length <= sizeof facts)
		status = PT2P_ERR_MEMORY; // the owner knows no such key
	if (status == PT2P_OK) {
		std::memcpy(&facts, q->answer, sizeof facts);
		status = pt2p_memory_import(ctx, q->rank, q->answer + sizeof facts, result->length - sizeof facts, &handle);
	}
	const Reach reach{handle, facts.base, facts.length, facts.access, facts.events != 0};
	std::vector<RemoteMemory::Waiting> waiting;
	{
		const Locked locked(context.lock);
		RemoteMemory &memory = *context.remotes.find_or_make(q->rank, q->key).first;
		waiting = std::move(memory.waiting);
		memory.reach = reach;
		if (status != PT2P_OK)
			context.remotes.remove(q->rank, q->key); // it may exist when it is asked for again
	}
	for (const RemoteMemory::Waiting &w : waiting)
		if (status == PT2P_OK)
			start_part(*w.op->endpoint, w.op, reach, w.part, w.kind);
		else
			end_part(w.op, status);
}

pt2p_status_t ask(Context &context, int rank, uint64_t key)
{
	auto q = std::make_unique<Question>();
	q->context = &context;
	q->rank = rank;
	q->key = key;
	pt2p_call_options_t options = PT2P_CALL_OPTIONS_INIT;
	options.done = key_answered;
	options.argument = q.get();
	const pt2p_status_t status = pt2p_icall(context.handle, rank, service_of_keys, &q->key, sizeof q->key, q->answer,
	                                        sizeof q->answer, &options, nullptr);
	if (status == PT2P_OK)
		q.release();
	return status;
}

// What it takes to reach the memory. If that is not known, the owner is asked, and what waits, if anything, waits for
// the answer.
Reach reach_or_wait(Context &context, int rank, uint64_t key, const RemoteMemory::Waiting *waits)
{
	bool asks;
	{
		const Locked locked(context.lock);
		const auto [memory, made] = context.remotes.find_or_make(rank, key);
		if (memory->reach.handle)
			return memory->reach;
		if (waits)
			memory->waiting.push_back(*waits);
		asks = made;
	}
	const pt2p_status_t status = asks ? ask(context, rank, key) : PT2P_OK;
	if (status == PT2P_OK)
		return {};
	failed(status, context.handle, FI_LOG_EP_DATA);
	std::vector<RemoteMemory::Waiting> waiting;
	{
		const Locked locked(context.lock);
		waiting = std::move(context.remotes.find_or_make(rank, key).first->waiting);
		context.remotes.remove(rank, key);
	}
	for (const RemoteMemory::Waiting &w : waiting)
		end_part(w.op, status);
	return {};
}

void start_or_wait(Endpoint &e, Op *op, const Part &part, RmaKind kind)
{
	const RemoteMemory::Waiting waits{op, part, kind};
	const Reach reach = reach_or_wait(*e.context, op->rank, part.key, &waits);
	if (reach.handle)
		start_part(e, op, reach, part, kind);
}

// Gives up the memory that its owner has closed, which a handler cannot do.
void release(Context &context)
{
	std::vector<pt2p_remote_t *> handles;
	{
		const Locked locked(context.lock);
		handles.swap(context.released);
	}
	for (pt2p_remote_t *handle : handles)
		pt2p_remote_release(context.handle, handle);
}

// Cuts local and remote segments into parts that are contiguous on both sides. Returns how many; 0: the lengths differ.
// Without any bytes it is one empty part.
size_t cut(const iovec *here, size_t here_count, const fi_rma_iov *there, size_t there_count,
           Part (&parts)[2 * max_segments])
{
	size_t n = 0, h = 0, t = 0, from_h = 0, from_t = 0;
	for (;;) {
		while (h < here_count && from_h == here[h].iov_len)
			++h, from_h = 0;
		while (t < there_count && from_t == there[t].len)
			++t, from_t = 0;
		if (h == here_count || t == there_count)
			break;
		const size_t length = std::min(here[h].iov_len - from_h, there[t].len - from_t);
		parts[n++] = {static_cast<unsigned char *>(here[h].iov_base) + from_h, length, there[t].addr + from_t,
		              there[t].key};
		from_h += length;
		from_t += length;
	}
	if (h != here_count || t != there_count)
		return 0;
	if (!n && there_count)
		parts[n++] = {nullptr, 0, there->addr, there->key};
	return n;
}

void begin(Op *op, size_t length, size_t parts, uint64_t key, uint64_t data)
{
	op->length = length;
	op->parts = static_cast<uint32_t>(parts);
	op->status = PT2P_OK;
	op->key = key;
	op->data = data;
	op->tells = false;
}

ssize_t start(Endpoint &e, const fi_msg_rma &msg, RmaKind kind, uint64_t flags, bool reports)
{
	if (msg.iov_count > max_segments || msg.rma_iov_count > max_segments)
		return -FI_EINVAL;
	Part parts[2 * max_segments];
	const size_t count = cut(msg.msg_iov, msg.iov_count, msg.rma_iov, msg.rma_iov_count, parts);
	if (!count)
		return -FI_EINVAL;
	const size_t length = length_of(msg.msg_iov, msg.iov_count);
	const bool write = kind == RmaKind::write;
	if (flags & FI_INJECT && (length > inject_size || !write))
		return -FI_EMSGSIZE;
	ssize_t error = flags & FI_FENCE ? e.fence(msg.addr) : 0;
	if (error)
		return error;
	Op *op =
	    e.take_for(msg.addr, error, msg.context, FI_RMA | (write ? FI_WRITE | (flags & FI_REMOTE_CQ_DATA) : FI_READ),
	               write ? e.write_counter : e.read_counter, reports);
	if (!op)
		return error;
	begin(op, length, count, msg.rma_iov->key, msg.data);
	if (flags & FI_INJECT) {
		unsigned char *copy = op->allocate(inject_size);
		for (size_t i = 0; i < count; copy += parts[i++].length) {
			if (parts[i].length)
				std::memcpy(copy, parts[i].local, parts[i].length);
			parts[i].local = copy;
		}
	}
	release(*e.context);
	for (size_t i = 0; i < count; ++i)
		start_or_wait(e, op, parts[i], kind);
	return 0;
}

struct Call {
	const iovec *segments;
	size_t count;
	fi_addr_t peer;
	uint64_t address, key;
	void *context;
	uint64_t data;
};

// All remote bytes at one address.
ssize_t start(Endpoint &e, const Call &c, RmaKind kind, uint64_t flags, bool reports)
{
	const fi_rma_iov there{c.address, length_of(c.segments, c.count), c.key};
	const fi_msg_rma msg{c.segments, nullptr, c.count, c.peer, &there, 1, c.context, c.data};
	return guarded([&] { return static_cast<int>(start(e, msg, kind, flags, reports)); });
}

// Without flags of its own a call has those of the endpoint; only these mean something here.
uint64_t default_flags(const Endpoint &e) { return e.tx_flags & (FI_INJECT | FI_DELIVERY_COMPLETE); }

// The short path: a contiguous buffer and no flags, memory that is known, and one thread at a time. Of the operation
// only what a success needs is set.
[[gnu::noinline]] ssize_t start_otherwise(Endpoint &e, void *buffer, size_t length, fi_addr_t peer, uint64_t address,
                                          uint64_t key, void *context, RmaKind kind)
{
	const iovec segment{buffer, length};
	return start(e, {&segment, 1, peer, address, key, context, 0}, kind, kind == RmaKind::write ? default_flags(e) : 0,
	             e.tx_reports);
}

[[gnu::always_inline]] inline ssize_t start_plain(Endpoint &e, void *buffer, size_t length, fi_addr_t peer,
                                                  uint64_t address, uint64_t key, void *context, RmaKind kind)
{
	const bool write = kind == RmaKind::write;
	const int rank = __builtin_expect(e.quick_rma, 1) ? e.known_rank(peer) : -1;
	RemoteMemory *memory = nullptr;
	if (__builtin_expect(rank >= 0 && e.free_ops && e.context->released.empty(), 1))
		memory = e.context->remotes.find(rank, key);
	if (__builtin_expect(!memory || !memory->reach.takes(address, length, kind), 0))
		return start_otherwise(e, buffer, length, peer, address, key, context, kind);
	Op *op =
	    e.take(context, FI_RMA | (write ? FI_WRITE : FI_READ), write ? e.write_counter : e.read_counter, e.tx_reports);
	op->rank = rank;
	const pt2p_status_t status = transfer(
	    e, op, memory->reach, {static_cast<unsigned char *>(buffer), length, address, key}, kind, Endpoint::ended);
	if (__builtin_expect(status != PT2P_OK, 0))
		e.fail(op, {status, -1, 0, 0, 0, 0}, e.tx_cq);
	return 0;
}

ssize_t rma_read(fid_ep *f, void *buffer, size_t length, void *, fi_addr_t from, uint64_t address, uint64_t key,
                 void *context)
{
	return start_plain(endpoint_of(f), buffer, length, from, address, key, context, RmaKind::read);
}

ssize_t rma_readv(fid_ep *f, const iovec *segments, void **, size_t count, fi_addr_t from, uint64_t address,
                  uint64_t key, void *context)
{
	Endpoint &e = endpoint_of(f);
	return start(e, {segments, count, from, address, key, context, 0}, RmaKind::read, 0, e.tx_reports);
}

ssize_t rma_readmsg(fid_ep *f, const fi_msg_rma *msg, uint64_t flags)
{
	Endpoint &e = endpoint_of(f);
	return guarded(
	    [&] { return static_cast<int>(start(e, *msg, RmaKind::read, flags & ~FI_INJECT, e.reports_send(flags))); });
}

ssize_t rma_write(fid_ep *f, const void *buffer, size_t length, void *, fi_addr_t to, uint64_t address, uint64_t key,
                  void *context)
{
	return start_plain(endpoint_of(f), const_cast<void *>(buffer), length, to, address, key, context, RmaKind::write);
}

ssize_t rma_writev(fid_ep *f, const iovec *segments, void **, size_t count, fi_addr_t to, uint64_t address,
                   uint64_t key, void *context)
{
	Endpoint &e = endpoint_of(f);
	return start(e, {segments, count, to, address, key, context, 0}, RmaKind::write, default_flags(e), e.tx_reports);
}

ssize_t rma_writemsg(fid_ep *f, const fi_msg_rma *msg, uint64_t flags)
{
	Endpoint &e = endpoint_of(f);
	return guarded([&] { return static_cast<int>(start(e, *msg, RmaKind::write, flags, e.reports_send(flags))); });
}

ssize_t rma_inject(fid_ep *f, const void *buffer, size_t length, fi_addr_t to, uint64_t address, uint64_t key)
{
	const iovec segment{const_cast<void *>(buffer), length};
	return start(endpoint_of(f), {&segment, 1, to, address, key, nullptr, 0}, RmaKind::write, FI_INJECT, false);
}

ssize_t rma_writedata(fid_ep *f, const void *buffer, size_t length, void *, uint64_t data, fi_addr_t to,
                      uint64_t address, uint64_t key, void *context)
{
	Endpoint &e = endpoint_of(f);
	const iovec segment{const_cast<void *>(buffer), length};
	return start(e, {&segment, 1, to, address, key, context, data}, RmaKind::write,
	             default_flags(e) | FI_REMOTE_CQ_DATA, e.tx_reports);
}

ssize_t rma_injectdata(fid_ep *f, const void *buffer, size_t length, uint64_t data, fi_addr_t to, uint64_t address,
                       uint64_t key)
{
	const iovec segment{const_cast<void *>(buffer), length};
	return start(endpoint_of(f), {&segment, 1, to, address, key, nullptr, data}, RmaKind::write,
	             FI_INJECT | FI_REMOTE_CQ_DATA, false);
}

} // namespace

void count_remote(Context &context, uint64_t key, bool write)
{
	const Endpoint &owner = *context.owner;
	if (!(owner.caps & FI_RMA_EVENT))
		return;
	const std::lock_guard guard(context.domain->mutex);
	if (Counter *counter = write ? owner.remote_write_counter : owner.remote_read_counter)
		counter->add(1);
	Mr *mr = context.domain->find(key);
	if (mr && mr->counter && mr->counted & (write ? FI_REMOTE_WRITE : FI_REMOTE_READ))
		mr->counter->add(1);
}

Reach Context::reach_of(int rank, uint64_t key) { return reach_or_wait(*this, rank, key, nullptr); }

void tell_end(pt2p_context_t *ctx, int rank, uint64_t key)
{
	if (pt2p_notify(ctx, rank, service_of_ends, &key, sizeof key, nullptr) != PT2P_OK)
		PT2P_OFI_INFO(FI_LOG_MR, "rank %d does not learn that memory is closed: %s\n", rank, pt2p_last_error(ctx));
}

int open_rma_services(Context &context)
{
	const std::pair<uint32_t, pt2p_handler_t> all[] = {
	    {service_of_keys, answer_key}, {service_of_notices, take_notice}, {service_of_ends, take_end}};
	for (const auto &[id, handler] : all)
		if (const int error = context.open_service(id, handler))
			return error;
	return 0;
}

fi_ops_rma rma_ops = {.size = sizeof(fi_ops_rma),
                      .read = rma_read,
                      .readv = rma_readv,
                      .readmsg = rma_readmsg,
                      .write = rma_write,
                      .writev = rma_writev,
                      .writemsg = rma_writemsg,
                      .inject = rma_inject,
                      .writedata = rma_writedata,
                      .injectdata = rma_injectdata};

} // namespace pt2p_ofi
