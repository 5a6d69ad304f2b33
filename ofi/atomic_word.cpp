#include "ofi/atomic_word.hpp"

#include <cstring>

namespace pt2p_ofi {

namespace {

bool is_aligned(const void *address, size_t size) { return reinterpret_cast<uintptr_t>(address) % size == 0; }

bool is_one(const Values &s) { return s.count == 1 && s.list->count == 1; }

// The bytes of the word; 0: libpt2p has no such operation.
inline size_t word_of(const Request &r)
{
	const bool large = r.type == FI_INT64 || r.type == FI_UINT64;
	const size_t size = large ? 8 : 4;
	if (r.operands.count > max_segments || r.target_count != 1 || r.targets->count != 1 ||
	    !(large || r.type == FI_INT32 || r.type == FI_UINT32) ||
	    (r.kind != AtomicKind::write && !(is_one(r.results) && is_aligned(r.results.list->addr, size))))
		return 0;
	bool has;
	if (r.kind == AtomicKind::compare)
		has = r.op == FI_CSWAP && is_one(r.operands) && is_one(r.compares);
	else if (r.op == FI_ATOMIC_READ)
		has = r.kind == AtomicKind::fetch;
	else
		has = (r.op == FI_SUM || r.op == FI_ATOMIC_WRITE) && is_one(r.operands);
	return has ? size : 0;
}

// Who executes libpt2p's atomic operations on the memory.
[[gnu::cold]] Reach::Agent learn_agent(Context &context, int rank, uint64_t key, const Reach &reach)
{
	pt2p_remote_info_t info;
	const pt2p_status_t status = pt2p_remote_query(context.handle, reach.handle, &info);
	const auto agent = status == PT2P_OK && !info.atomics_by_nic ? Reach::Agent::processors : Reach::Agent::device;
	const Locked locked(context.lock);
	if (RemoteMemory *memory = context.remotes.find(rank, key); memory && memory->reach.handle == reach.handle)
		memory->reach.agent = agent;
	return agent;
}

template <class Word, class Add, class Swap, class CompareSwap>
pt2p_status_t change(const Request &r, Add add, Swap swap, CompareSwap compare_swap)
{
	const auto value = [](const Values &s) {
		Word word;
		std::memcpy(&word, s.list->addr, sizeof word);
		return word;
	};
	auto *result = r.kind == AtomicKind::write ? nullptr : static_cast<Word *>(r.results.list->addr);
	switch (static_cast<int>(r.op)) {
	case FI_SUM: return add(value(r.operands), result);
	case FI_ATOMIC_READ: return add(0, result);
	case FI_CSWAP: return compare_swap(value(r.compares), value(r.operands), result);
	default: return swap(value(r.operands), result);
	}
}

} // namespace

bool start_word(Endpoint &e, const Request &r, ssize_t &error)
{
	const size_t size = word_of(r);
	if (!size)
		return false;
	const int rank = e.rank_at(r.to);
	if (rank < 0) {
		error = rank;
		return true;
	}
	const fi_rma_ioc &target = *r.targets;
	Context &context = *e.context;
	const Reach reach = context.reach_of(rank, target.key);
	const bool fetches = r.kind != AtomicKind::write;
	// A read is an addition of 0, so it, too, needs memory that can be written.
	if (!reach.handle || reach.events || !reach.holds(target.addr, size) || (fetches && !reach.allows(RmaKind::read)) ||
	    !(r.op == FI_ATOMIC_READ ? reach.access & FI_REMOTE_WRITE : reach.allows(RmaKind::write)))
		return false;
	const auto agent = __builtin_expect(reach.agent == Reach::Agent::unknown, 0)
	                       ? learn_agent(context, rank, target.key, reach)
	                       : reach.agent;
	if (agent != Reach::Agent::processors)
		return false;
	Op *op = e.take_with(rank, r.context, FI_ATOMIC | (fetches ? FI_READ : FI_WRITE),
	                     fetches ? e.read_counter : e.write_counter, r.reports);
	pt2p_context_t *ctx = e.ctx;
	pt2p_remote_t *handle = reach.handle;
	const uint64_t offset = target.addr - reach.base;
	pt2p_request_t *req = nullptr;
	const pt2p_status_t status =
	    size == 4 ? change<uint32_t>(
	                    r, [&](uint32_t v, uint32_t *to) { return pt2p_fetch_add32(ctx, handle, offset, v, to, &req); },
	                    [&](uint32_t v, uint32_t *to) { return pt2p_swap32(ctx, handle, offset, v, to, &req); },
	                    [&](uint32_t with, uint32_t v, uint32_t *to) {
		                    return pt2p_compare_swap32(ctx, handle, offset, with, v, to, &req);
	                    })
	              : change<uint64_t>(
	                    r, [&](uint64_t v, uint64_t *to) { return pt2p_fetch_add64(ctx, handle, offset, v, to, &req); },
	                    [&](uint64_t v, uint64_t *to) { return pt2p_swap64(ctx, handle, offset, v, to, &req); },
	                    [&](uint64_t with, uint64_t v, uint64_t *to) {
		                    return pt2p_compare_swap64(ctx, handle, offset, with, v, to, &req);
	                    });
	if (status == PT2P_OK && pt2p_request_callback(ctx, req, Endpoint::ended, op) == PT2P_OK)
		return true;
	// Most likely the word is not aligned: the owner does it all the same, or says what is wrong.
	e.give(op);
	return false;
}

} // namespace pt2p_ofi
