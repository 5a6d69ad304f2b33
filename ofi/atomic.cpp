// Atomic operations. A service of the owner executes most of them, and libpt2p those that it offers itself
// (atomic_word.cpp). Both use the processors of the owner's host, so each is atomic with every other one.
#include "ofi/atomic.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include "ofi/atomic_word.hpp"
#include "ofi/endpoint.hpp"

namespace pt2p_ofi {

namespace {

constexpr uint32_t service_of_atomics = 0x6f666903;
constexpr size_t max_bytes = 4096; // of the values of one operation

// The call. A Target for each remote segment follows, then the operands, then what they are compared with.
struct Header {
	uint32_t kind, type, op, targets;
	uint64_t count; // values
};
struct Target {
	uint64_t address, key, count;
};
static_assert(sizeof(fi_rma_ioc) == sizeof(Target));

bool has_operands(fi_op op) { return op != FI_ATOMIC_READ; }

// ---- the owner ------------------------------------------------------------------------------------------------------

// PT2P_OK, or why the values cannot be changed. With the domain's mutex.
pt2p_status_t locate(Domain &domain, const Target &t, size_t size, AtomicKind kind, fi_op op, unsigned char *&at)
{
	Mr *mr = domain.find(t.key);
	if (!mr)
		return PT2P_ERR_MEMORY;
	const bool reads = kind != AtomicKind::write, writes = op != FI_ATOMIC_READ;
	if (mr->access && ((reads && !(mr->access & FI_REMOTE_READ)) || (writes && !(mr->access & FI_REMOTE_WRITE))))
		return PT2P_ERR_MEMORY;
	const uint64_t offset = t.address - mr->base();
	if (t.address < mr->base() || offset > mr->length || t.count > (mr->length - offset) / size)
		return PT2P_ERR_BOUNDS;
	at = mr->address + offset;
	return PT2P_OK;
}

pt2p_status_t execute(Domain &domain, const unsigned char *input, size_t length, unsigned char *results, size_t &bytes)
{
	Header h;
	if (length < sizeof h)
		return PT2P_ERR_PROTOCOL;
	std::memcpy(&h, input, sizeof h);
	const auto type = static_cast<fi_datatype>(h.type);
	const auto op = static_cast<fi_op>(h.op);
	const auto kind = static_cast<AtomicKind>(h.kind);
	const size_t size = size_of(type);
	if (h.kind > 2 || !offered(kind, type, op) || h.targets > max_segments || h.count > max_bytes / size)
		return PT2P_ERR_PROTOCOL;
	const size_t values = h.count * size, head = sizeof h + h.targets * sizeof(Target);
	const size_t lists = (has_operands(op) ? 1u : 0u) + (kind == AtomicKind::compare ? 1u : 0u);
	if (length != head + lists * values)
		return PT2P_ERR_PROTOCOL;
	const unsigned char *operands = has_operands(op) ? input + head : nullptr;
	const unsigned char *compares = kind == AtomicKind::compare ? input + head + values : nullptr;
	const std::lock_guard guard(domain.mutex);
	unsigned char *places[max_segments];
	Target targets[max_segments];
	uint64_t count = 0;
	for (size_t i = 0; i < h.targets; ++i) {
		std::memcpy(&targets[i], input + sizeof h + i * sizeof(Target), sizeof(Target));
		const pt2p_status_t status = locate(domain, targets[i], size, kind, op, places[i]);
		if (status != PT2P_OK)
			return status;
		count += targets[i].count;
	}
	if (count != h.count)
		return PT2P_ERR_PROTOCOL;
	size_t at = 0;
	for (size_t i = 0; i < h.targets; at += targets[i++].count * size)
		apply(type, op, places[i], operands ? operands + at : nullptr, compares ? compares + at : nullptr,
		      kind == AtomicKind::write ? nullptr : results + at, targets[i].count);
	bytes = kind == AtomicKind::write ? 0 : values;
	return PT2P_OK;
}

void serve(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, void *argument)
{
	alignas(16) unsigned char results[max_bytes];
	size_t bytes = 0;
	Context &context = *static_cast<Context *>(argument);
	const pt2p_status_t status =
	    execute(*context.domain, static_cast<const unsigned char *>(input), length, results, bytes);
	Header h;
	Target first;
	if (status == PT2P_OK && length >= sizeof h + sizeof first) {
		std::memcpy(&h, input, sizeof h);
		std::memcpy(&first, static_cast<const unsigned char *>(input) + sizeof h, sizeof first);
		count_remote(context, first.key, h.op != FI_ATOMIC_READ);
	}
	pt2p_reply(ctx, call, static_cast<uint64_t>(status), results, bytes);
}

// ---- the caller -----------------------------------------------------------------------------------------------------

// What is needed until the answer comes, in the memory of the operation.
struct Question {
	size_t result_bytes;
	fi_ioc results[max_segments];
	size_t result_count;
	size_t size; // of a value
	unsigned char answer[max_bytes];
	unsigned char call[sizeof(Header) + max_segments * sizeof(Target) + 2 * max_bytes];
};

void answered(pt2p_context_t *, const pt2p_result_t *result, void *argument)
{
	Op *op = static_cast<Op *>(argument);
	const Question *q = reinterpret_cast<const Question *>(op->memory.get());
	Endpoint &e = *op->endpoint;
	pt2p_status_t status = result->status;
	if (status == PT2P_OK)
		status = static_cast<pt2p_status_t>(result->tag);
	if (status == PT2P_OK && result->length != q->result_bytes)
		status = PT2P_ERR_PROTOCOL;
	if (status != PT2P_OK)
		return e.fail(op, {status, -1, 0, 0, 0, 0}, e.tx_cq);
	size_t at = 0;
	for (size_t i = 0; i < q->result_count; at += q->results[i++].count * q->size)
		std::memcpy(q->results[i].addr, q->answer + at, q->results[i].count * q->size);
	e.succeed(op);
}

size_t sum(const Values &s)
{
	size_t n = 0;
	for (size_t i = 0; i < s.count; ++i)
		n += s.list[i].count;
	return n;
}

unsigned char *put(unsigned char *to, const Values &s, size_t size)
{
	for (size_t i = 0; i < s.count; to += s.list[i++].count * size)
		if (s.list[i].count)
			std::memcpy(to, s.list[i].addr, s.list[i].count * size);
	return to;
}

// ---- starting -------------------------------------------------------------------------------------------------------

// By the owner's service.
ssize_t start_call(Endpoint &e, const Request &r)
{
	if (!offered(r.kind, r.type, r.op))
		return -FI_EOPNOTSUPP;
	const size_t size = size_of(r.type);
	size_t count = 0;
	for (size_t i = 0; i < r.target_count; ++i)
		count += r.targets[i].count;
	const bool operands = has_operands(r.op), compares = r.kind == AtomicKind::compare,
	           fetches = r.kind != AtomicKind::write;
	if (r.target_count > max_segments || r.operands.count > max_segments || r.compares.count > max_segments ||
	    r.results.count > max_segments || !count || count > max_bytes / size ||
	    (operands && sum(r.operands) != count) || (compares && sum(r.compares) != count) ||
	    (fetches && sum(r.results) < count))
		return -FI_EINVAL;
	ssize_t error = 0;
	Op *op = e.take_for(r.to, error, r.context, FI_ATOMIC | (fetches ? FI_READ : FI_WRITE),
	                    fetches ? e.read_counter : e.write_counter, r.reports);
	if (!op)
		return error;
	op->length = count * size;
	auto *q = new (op->allocate(sizeof(Question))) Question;
	q->size = size;
	q->result_bytes = fetches ? count * size : 0;
	q->result_count = 0;
	for (size_t left = fetches ? count : 0; left; ++q->result_count) { // no more than there are
		const fi_ioc &place = r.results.list[q->result_count];
		q->results[q->result_count] = {place.addr, std::min(place.count, left)};
		left -= q->results[q->result_count].count;
	}
	const Header h{static_cast<uint32_t>(r.kind), static_cast<uint32_t>(r.type), static_cast<uint32_t>(r.op),
	               static_cast<uint32_t>(r.target_count), count};
	std::memcpy(q->call, &h, sizeof h);
	unsigned char *end = q->call + sizeof h;
	for (size_t i = 0; i < r.target_count; ++i, end += sizeof(Target)) {
		const Target t{r.targets[i].addr, r.targets[i].key, r.targets[i].count};
		std::memcpy(end, &t, sizeof t);
	}
	if (operands)
		end = put(end, r.operands, size);
	if (compares)
		end = put(end, r.compares, size);
	pt2p_call_options_t options = PT2P_CALL_OPTIONS_INIT;
	options.done = answered;
	options.argument = op;
	const pt2p_status_t status =
	    pt2p_icall(e.ctx, op->rank, service_of_atomics, q->call, static_cast<size_t>(end - q->call), q->answer,
	               sizeof q->answer, &options, nullptr);
	return e.started(op, status);
}

ssize_t start(Endpoint &e, const Request &r)
{
	ssize_t error = r.flags & FI_FENCE ? e.fence(r.to) : 0;
	if (error || start_word(e, r, error))
		return error;
	return start_call(e, r);
}

ssize_t start_guarded(Endpoint &e, const Request &r)
{
	return guarded([&] { return static_cast<int>(start(e, r)); });
}

// Of a call with flags of its own.
ssize_t start_message(Endpoint &e, AtomicKind kind, const fi_msg_atomic &m, Values compares, Values results,
                      uint64_t flags)
{
	return start_guarded(e, {kind,
	                         {m.msg_iov, m.iov_count},
	                         compares,
	                         results,
	                         m.addr,
	                         m.rma_iov,
	                         m.rma_iov_count,
	                         m.datatype,
	                         m.op,
	                         m.context,
	                         flags,
	                         e.reports_send(flags)});
}

// ---- the table ------------------------------------------------------------------------------------------------------

ssize_t atomic_writev(fid_ep *f, const fi_ioc *iov, void **, size_t count, fi_addr_t to, uint64_t address, uint64_t key,
                      fi_datatype type, fi_op op, void *context)
{
	Endpoint &e = endpoint_of(f);
	const fi_rma_ioc target{address, sum({iov, count}), key};
	return start_guarded(e,
	                     {AtomicKind::write, {iov, count}, {}, {}, to, &target, 1, type, op, context, 0, e.tx_reports});
}

ssize_t atomic_write(fid_ep *f, const void *buffer, size_t count, void *, fi_addr_t to, uint64_t address, uint64_t key,
                     fi_datatype type, fi_op op, void *context)
{
	const fi_ioc iov{const_cast<void *>(buffer), count};
	return atomic_writev(f, &iov, nullptr, 1, to, address, key, type, op, context);
}

ssize_t atomic_writemsg(fid_ep *f, const fi_msg_atomic *m, uint64_t flags)
{
	return start_message(endpoint_of(f), AtomicKind::write, *m, {}, {}, flags);
}

ssize_t atomic_inject(fid_ep *f, const void *buffer, size_t count, fi_addr_t to, uint64_t address, uint64_t key,
                      fi_datatype type, fi_op op)
{
	const fi_ioc iov{const_cast<void *>(buffer), count};
	const fi_rma_ioc target{address, count, key};
	return start_guarded(endpoint_of(f),
	                     {AtomicKind::write, {&iov, 1}, {}, {}, to, &target, 1, type, op, nullptr, FI_INJECT, false});
}

ssize_t atomic_readwritev(fid_ep *f, const fi_ioc *iov, void **, size_t count, fi_ioc *results, void **,
                          size_t result_count, fi_addr_t to, uint64_t address, uint64_t key, fi_datatype type, fi_op op,
                          void *context)
{
	Endpoint &e = endpoint_of(f);
	const Values operands{iov, count}, places{results, result_count};
	const fi_rma_ioc target{address, has_operands(op) ? sum(operands) : sum(places), key};
	return start_guarded(e,
	                     {AtomicKind::fetch, operands, {}, places, to, &target, 1, type, op, context, 0, e.tx_reports});
}

ssize_t atomic_readwrite(fid_ep *f, const void *buffer, size_t count, void *, void *result, void *, fi_addr_t to,
                         uint64_t address, uint64_t key, fi_datatype type, fi_op op, void *context)
{
	const fi_ioc iov{const_cast<void *>(buffer), count};
	fi_ioc place{result, count};
	return atomic_readwritev(f, &iov, nullptr, 1, &place, nullptr, 1, to, address, key, type, op, context);
}

ssize_t atomic_readwritemsg(fid_ep *f, const fi_msg_atomic *m, fi_ioc *results, void **, size_t result_count,
                            uint64_t flags)
{
	return start_message(endpoint_of(f), AtomicKind::fetch, *m, {}, {results, result_count}, flags);
}

ssize_t atomic_compwritev(fid_ep *f, const fi_ioc *iov, void **, size_t count, const fi_ioc *compares, void **,
                          size_t compare_count, fi_ioc *results, void **, size_t result_count, fi_addr_t to,
                          uint64_t address, uint64_t key, fi_datatype type, fi_op op, void *context)
{
	Endpoint &e = endpoint_of(f);
	const fi_rma_ioc target{address, sum({iov, count}), key};
	return start_guarded(e, {AtomicKind::compare,
	                         {iov, count},
	                         {compares, compare_count},
	                         {results, result_count},
	                         to,
	                         &target,
	                         1,
	                         type,
	                         op,
	                         context,
	                         0,
	                         e.tx_reports});
}

ssize_t atomic_compwrite(fid_ep *f, const void *buffer, size_t count, void *, const void *compare, void *, void *result,
                         void *, fi_addr_t to, uint64_t address, uint64_t key, fi_datatype type, fi_op op,
                         void *context)
{
	const fi_ioc iov{const_cast<void *>(buffer), count}, with{const_cast<void *>(compare), count};
	fi_ioc place{result, count};
	return atomic_compwritev(f, &iov, nullptr, 1, &with, nullptr, 1, &place, nullptr, 1, to, address, key, type, op,
	                         context);
}

ssize_t atomic_compwritemsg(fid_ep *f, const fi_msg_atomic *m, const fi_ioc *compares, void **, size_t compare_count,
                            fi_ioc *results, void **, size_t result_count, uint64_t flags)
{
	return start_message(endpoint_of(f), AtomicKind::compare, *m, {compares, compare_count}, {results, result_count},
	                     flags);
}

int valid(AtomicKind kind, fi_datatype type, fi_op op, size_t *count)
{
	if (!offered(kind, type, op))
		return -FI_EOPNOTSUPP;
	*count = max_bytes / size_of(type);
	return 0;
}

int write_valid(fid_ep *, fi_datatype type, fi_op op, size_t *count)
{
	return valid(AtomicKind::write, type, op, count);
}
int fetch_valid(fid_ep *, fi_datatype type, fi_op op, size_t *count)
{
	return valid(AtomicKind::fetch, type, op, count);
}
int compare_valid(fid_ep *, fi_datatype type, fi_op op, size_t *count)
{
	return valid(AtomicKind::compare, type, op, count);
}

} // namespace

int query_atomic(fid_domain *, fi_datatype type, fi_op op, fi_atomic_attr *attributes, uint64_t flags)
{
	if (flags & ~(FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC) || flags == (FI_FETCH_ATOMIC | FI_COMPARE_ATOMIC))
		return -FI_EBADFLAGS;
	const AtomicKind kind = flags & FI_FETCH_ATOMIC     ? AtomicKind::fetch
	                        : flags & FI_COMPARE_ATOMIC ? AtomicKind::compare
	                                                    : AtomicKind::write;
	attributes->size = size_of(type);
	return valid(kind, type, op, &attributes->count);
}

int open_atomic_service(Context &context) { return context.open_service(service_of_atomics, serve); }

fi_ops_atomic atomic_ops = {.size = sizeof(fi_ops_atomic),
                            .write = atomic_write,
                            .writev = atomic_writev,
                            .writemsg = atomic_writemsg,
                            .inject = atomic_inject,
                            .readwrite = atomic_readwrite,
                            .readwritev = atomic_readwritev,
                            .readwritemsg = atomic_readwritemsg,
                            .compwrite = atomic_compwrite,
                            .compwritev = atomic_compwritev,
                            .compwritemsg = atomic_compwritemsg,
                            .writevalid = write_valid,
                            .readwritevalid = fetch_valid,
                            .compwritevalid = compare_valid};

} // namespace pt2p_ofi
