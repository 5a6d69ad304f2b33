// Memory and one-sided operations at the C boundary.
#include <algorithm>
#include <cstring>

#include "api/calls.hpp"

using namespace pt2p;
using onesided::AtomicKind;
using onesided::AtomicRequest;
using onesided::Memory;
using onesided::OneSided;
using onesided::Operation;
using onesided::Remote;

namespace {

Memory *memory_of(pt2p_context_t *ctx, const pt2p_memory_t *mem)
{
	return ctx->onesided->memories().find(reinterpret_cast<uint64_t>(mem));
}

Remote *remote_of(pt2p_context_t *ctx, const pt2p_remote_t *remote)
{
	return ctx->onesided->find_remote(reinterpret_cast<uint64_t>(remote));
}

[[gnu::cold]] pt2p_status_t dead_handle(pt2p_context_t *ctx, const char *function, const char *name, const void *handle)
{
	return ctx->reporter.fail(PT2P_ERR_MEMORY, "%s: %s %s", function, name,
	                          handle ? "has been released or is not one of this context's" : "is NULL");
}

// PT2P_OK when the range lies in the memory.
pt2p_status_t check_range(pt2p_context_t *ctx, const char *function, const Remote &r, size_t offset, size_t length)
{
	if (__builtin_expect(r.holds(offset, length), 1))
		return PT2P_OK;
	return ctx->reporter.fail(PT2P_ERR_BOUNDS,
	                          "%s: %zu bytes from offset %zu on of memory of rank %d that has %llu bytes", function,
	                          length, offset, r.rank, static_cast<unsigned long long>(r.length));
}

// And when it is a word there.
pt2p_status_t check_word(pt2p_context_t *ctx, const char *function, const Remote &r, size_t offset, size_t width)
{
	const pt2p_status_t status = check_range(ctx, function, r, offset, width);
	if (status != PT2P_OK || (r.address + offset) % width == 0)
		return status;
	return ctx->reporter.fail(PT2P_ERR_BOUNDS,
	                          "%s: offset %zu of memory of rank %d is address %#llx there, which is not "
	                          "aligned to %zu bytes",
	                          function, offset, r.rank, static_cast<unsigned long long>(r.address + offset), width);
}

// The status for a range that goes beyond the end of the address space; PT2P_OK for one that does not.
pt2p_status_t check_address(pt2p_context_t *ctx, const char *function, const void *address, size_t length)
{
	if (__builtin_expect(length <= UINTPTR_MAX - reinterpret_cast<uintptr_t>(address), 1))
		return PT2P_OK;
	return ctx->reporter.fail(PT2P_ERR_ARGUMENT,
	                          "%s: %zu bytes from address %p on reach beyond the end of the address space", function,
	                          length, address);
}

pt2p_status_t transfer(pt2p_context_t *ctx, const char *function, Operation::Kind kind, void *buffer, size_t length,
                       pt2p_remote_t *remote, size_t offset, pt2p_request_t **req)
{
	if (req)
		*req = nullptr;
	Remote *r = remote_of(ctx, remote);
	if (!r)
		return dead_handle(ctx, function, "the remote memory", remote);
	if (length > PTRDIFF_MAX)
		return bad_length(ctx, function, length);
	if (!buffer && length)
		return null_argument(ctx, function, "buffer");
	if (const pt2p_status_t wraps = check_address(ctx, function, buffer, length); wraps != PT2P_OK)
		return wraps;
	const pt2p_status_t status = check_range(ctx, function, *r, offset, length);
	if (status != PT2P_OK)
		return status;
	return ctx->onesided->submit({function + sizeof "pt2p_" - 1, kind, r, offset, length, buffer}, req);
}

pt2p_status_t start_transfer(pt2p_context_t *ctx, const char *function, Operation::Kind kind, void *buffer,
                             size_t length, pt2p_remote_t *remote, size_t offset, pt2p_request_t **req)
{
	constexpr size_t max_combined = 4096; // bytes: another thread would have to copy more
	const auto start = [=] { return transfer(ctx, function, kind, buffer, length, remote, offset, req); };
	if (length <= max_combined)
		return start_among_threads(ctx, start);
	const Progress::Guard guard(*ctx->progress);
	return start();
}

pt2p_status_t transfer_with_callback(pt2p_context_t *ctx, const char *function, Operation::Kind kind, void *buffer,
                                     size_t length, pt2p_remote_t *remote, size_t offset, pt2p_callback_t done,
                                     void *argument)
{
	Progress::Guard guard(*ctx->progress);
	pt2p_status_t status = check_callback(ctx, function, done);
	if (status != PT2P_OK)
		return status;
	pt2p_request_t *req = nullptr;
	status = transfer(ctx, function, kind, buffer, length, remote, offset, &req);
	if (status == PT2P_OK)
		ctx->engine->callbacks().detach(*from_handle(ctx, req), done, argument);
	return status;
}

pt2p_status_t atomic(pt2p_context_t *ctx, const char *function, pt2p_remote_t *remote, size_t offset,
                     const AtomicRequest &request, void *result, pt2p_request_t **req)
{
	return start_among_threads(ctx, [&] {
		if (req)
			*req = nullptr;
		Remote *r = remote_of(ctx, remote);
		if (!r)
			return dead_handle(ctx, function, "the remote memory", remote);
		const pt2p_status_t status = check_word(ctx, function, *r, offset, request.width);
		if (status != PT2P_OK)
			return status;
		return ctx->onesided->submit({function + sizeof "pt2p_" - 1, Operation::Kind::atomic, r, offset, request.width,
		                              nullptr, request, result},
		                             req);
	});
}

const char *path_name(onesided::Path path)
{
	return path == onesided::Path::direct ? "direct" : path == onesided::Path::transport ? "transport" : "owner";
}

} // namespace

// ---- this rank's memory ---------------------------------------------------------------------------------------------

pt2p_status_t pt2p_memory_register(pt2p_context_t *ctx, void *address, size_t length, pt2p_memory_t **mem)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	if (!mem)
		return null_argument(ctx, __func__, "mem");
	*mem = nullptr;
	if (!address)
		return null_argument(ctx, __func__, "address");
	if (!length || length > PTRDIFF_MAX)
		return bad_length(ctx, __func__, length);
	if (const pt2p_status_t status = check_address(ctx, __func__, address, length); status != PT2P_OK)
		return status;
	*mem = reinterpret_cast<pt2p_memory_t *>(ctx->onesided->memories().add(address, length).handle);
	return PT2P_OK;
}
PT2P_CATCH

pt2p_status_t pt2p_memory_allocate(pt2p_context_t *ctx, size_t length, pt2p_memory_t **mem, void **address)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	if (!mem || !address)
		return null_argument(ctx, __func__, mem ? "address" : "mem");
	*mem = nullptr;
	*address = nullptr;
	if (!length || length > PTRDIFF_MAX)
		return bad_length(ctx, __func__, length);
	const Memory &m = ctx->onesided->memories().allocate(length);
	*mem = reinterpret_cast<pt2p_memory_t *>(m.handle);
	*address = m.address;
	return PT2P_OK;
}
PT2P_CATCH

pt2p_status_t pt2p_memory_release(pt2p_context_t *ctx, pt2p_memory_t *mem)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	Memory *m = memory_of(ctx, mem);
	if (!m)
		return dead_handle(ctx, __func__, "the memory", mem);
	ctx->onesided->memories().release(*m);
	return PT2P_OK;
}
PT2P_CATCH

pt2p_status_t pt2p_memory_export(pt2p_context_t *ctx, pt2p_memory_t *mem, void *blob, size_t capacity, size_t *needed)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	if (!needed)
		return null_argument(ctx, __func__, "needed");
	*needed = 0;
	const Memory *m = memory_of(ctx, mem);
	if (!m)
		return dead_handle(ctx, __func__, "the memory", mem);
	if (!blob && capacity)
		return null_argument(ctx, __func__, "blob");
	const std::string bytes = ctx->onesided->export_memory(*m);
	*needed = bytes.size();
	if (!blob)
		return PT2P_OK;
	if (capacity < bytes.size())
		return ctx->reporter.fail(PT2P_ERR_TRUNCATED, "%s: %zu bytes are needed, there is room for %zu", __func__,
		                          bytes.size(), capacity);
	std::memcpy(blob, bytes.data(), bytes.size());
	return PT2P_OK;
}
PT2P_CATCH

pt2p_status_t pt2p_memory_gone(pt2p_context_t *ctx, void *address, size_t length)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	if (!address && length)
		return null_argument(ctx, __func__, "address");
	if (length > PTRDIFF_MAX)
		return bad_length(ctx, __func__, length);
	if (const pt2p_status_t status = check_address(ctx, __func__, address, length); status != PT2P_OK)
		return status;
	if (const Memory *m = ctx->onesided->memories().overlapping(address, length))
		return ctx->reporter.fail(PT2P_ERR_ARGUMENT, "%s: %zu bytes at %p are registered: release them first", __func__,
		                          m->length, static_cast<void *>(m->address));
	ctx->onesided->gone(address, length);
	return PT2P_OK;
}
PT2P_CATCH

// ---- memory of other ranks ------------------------------------------------------------------------------------------

pt2p_status_t pt2p_memory_import(pt2p_context_t *ctx, int rank, const void *blob, size_t length, pt2p_remote_t **remote)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	if (!remote)
		return null_argument(ctx, __func__, "remote");
	*remote = nullptr;
	if (!is_rank(ctx, rank))
		return bad_rank(ctx, __func__, "the rank", rank);
	if (!blob)
		return null_argument(ctx, __func__, "blob");
	const Remote &r = ctx->onesided->import(rank, {static_cast<const char *>(blob), length});
	*remote = reinterpret_cast<pt2p_remote_t *>(r.handle);
	return PT2P_OK;
}
PT2P_CATCH

pt2p_status_t pt2p_remote_release(pt2p_context_t *ctx, pt2p_remote_t *remote)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	PT2P_NOT_IN_HANDLER(ctx);
	Remote *r = remote_of(ctx, remote);
	if (!r)
		return dead_handle(ctx, __func__, "the remote memory", remote);
	ctx->onesided->release(*r);
	return PT2P_OK;
}
PT2P_CATCH

pt2p_status_t pt2p_remote_query(pt2p_context_t *ctx, pt2p_remote_t *remote, pt2p_remote_info_t *info)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	if (!info)
		return null_argument(ctx, __func__, "info");
	*info = {};
	Remote *r = remote_of(ctx, remote);
	if (!r)
		return dead_handle(ctx, __func__, "the remote memory", remote);
	const pt2p_status_t status = ctx->onesided->choose_paths(*r);
	if (status != PT2P_OK)
		return status;
	info->rank = r->rank;
	info->length = r->length;
	info->atomics_by_nic = r->agent == onesided::Agent::nic;
	const auto copy = [](char(&to)[16], const char *text) { std::memcpy(to, text, std::strlen(text) + 1); };
	copy(info->put, path_name(r->put_path));
	copy(info->get, path_name(r->get_path));
	copy(info->atomic, path_name(r->atomic_path));
	return PT2P_OK;
}
PT2P_CATCH

pt2p_status_t pt2p_remote_address(pt2p_context_t *ctx, pt2p_remote_t *remote, void **address)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	if (!address)
		return null_argument(ctx, __func__, "address");
	*address = nullptr;
	const Remote *r = remote_of(ctx, remote);
	if (!r)
		return dead_handle(ctx, __func__, "the remote memory", remote);
	*address = r->rank == ctx->job->rank() ? reinterpret_cast<void *>(r->address) : r->base;
	return PT2P_OK;
}
PT2P_CATCH

// ---- operations -----------------------------------------------------------------------------------------------------

pt2p_status_t pt2p_put(pt2p_context_t *ctx, const void *buffer, size_t length, pt2p_remote_t *remote, size_t offset,
                       pt2p_request_t **req)
try {
	PT2P_CHECK_CONTEXT(ctx);
	return start_transfer(ctx, __func__, Operation::Kind::put, const_cast<void *>(buffer), length, remote, offset, req);
}
PT2P_CATCH

pt2p_status_t pt2p_put_callback(pt2p_context_t *ctx, const void *buffer, size_t length, pt2p_remote_t *remote,
                                size_t offset, pt2p_callback_t done, void *argument)
try {
	PT2P_CHECK_CONTEXT(ctx);
	return transfer_with_callback(ctx, __func__, Operation::Kind::put, const_cast<void *>(buffer), length, remote,
	                              offset, done, argument);
}
PT2P_CATCH

pt2p_status_t pt2p_get(pt2p_context_t *ctx, void *buffer, size_t length, pt2p_remote_t *remote, size_t offset,
                       pt2p_request_t **req)
try {
	PT2P_CHECK_CONTEXT(ctx);
	return start_transfer(ctx, __func__, Operation::Kind::get, buffer, length, remote, offset, req);
}
PT2P_CATCH

pt2p_status_t pt2p_get_callback(pt2p_context_t *ctx, void *buffer, size_t length, pt2p_remote_t *remote, size_t offset,
                                pt2p_callback_t done, void *argument)
try {
	PT2P_CHECK_CONTEXT(ctx);
	return transfer_with_callback(ctx, __func__, Operation::Kind::get, buffer, length, remote, offset, done, argument);
}
PT2P_CATCH

pt2p_status_t pt2p_put_signal(pt2p_context_t *ctx, const void *buffer, size_t length, pt2p_remote_t *remote,
                              size_t offset, pt2p_remote_t *signal, size_t signal_offset, pt2p_signal_t how,
                              uint64_t value, pt2p_request_t **req)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	if (req)
		*req = nullptr;
	Remote *r = remote_of(ctx, remote), *s = remote_of(ctx, signal);
	if (!r)
		return dead_handle(ctx, __func__, "the remote memory", remote);
	if (!s)
		return dead_handle(ctx, __func__, "the remote memory of the signal", signal);
	if (r->rank != s->rank)
		return ctx->reporter.fail(PT2P_ERR_ARGUMENT,
		                          "%s: the memory is one of rank %d, that of the signal one of rank %d", __func__,
		                          r->rank, s->rank);
	// A C caller may have stored anything.
	unsigned number;
	static_assert(sizeof number == sizeof how);
	std::memcpy(&number, &how, sizeof number);
	if (number > PT2P_SIGNAL_ADD)
		return ctx->reporter.fail(
		    PT2P_ERR_ARGUMENT, "%s: how is %u, which is neither PT2P_SIGNAL_SET nor PT2P_SIGNAL_ADD", __func__, number);
	if (length > PTRDIFF_MAX)
		return bad_length(ctx, __func__, length);
	if (!buffer && length)
		return null_argument(ctx, __func__, "buffer");
	pt2p_status_t status = check_range(ctx, __func__, *r, offset, length);
	if (status == PT2P_OK)
		status = check_word(ctx, __func__, *s, signal_offset, 8);
	if (status != PT2P_OK)
		return status;
	const AtomicKind kind = number == PT2P_SIGNAL_ADD ? AtomicKind::add : AtomicKind::swap;
	return ctx->onesided->submit({"put_signal",
	                              Operation::Kind::put,
	                              r,
	                              offset,
	                              length,
	                              const_cast<void *>(buffer),
	                              {kind, 8, value, 0},
	                              nullptr,
	                              s,
	                              signal_offset},
	                             req);
}
PT2P_CATCH

pt2p_status_t pt2p_fetch_add32(pt2p_context_t *ctx, pt2p_remote_t *remote, size_t offset, uint32_t operand,
                               uint32_t *result, pt2p_request_t **req)
try {
	PT2P_CHECK_CONTEXT(ctx);
	return atomic(ctx, __func__, remote, offset, {AtomicKind::add, 4, operand, 0}, result, req);
}
PT2P_CATCH

pt2p_status_t pt2p_fetch_add64(pt2p_context_t *ctx, pt2p_remote_t *remote, size_t offset, uint64_t operand,
                               uint64_t *result, pt2p_request_t **req)
try {
	PT2P_CHECK_CONTEXT(ctx);
	return atomic(ctx, __func__, remote, offset, {AtomicKind::add, 8, operand, 0}, result, req);
}
PT2P_CATCH

pt2p_status_t pt2p_swap32(pt2p_context_t *ctx, pt2p_remote_t *remote, size_t offset, uint32_t desired, uint32_t *result,
                          pt2p_request_t **req)
try {
	PT2P_CHECK_CONTEXT(ctx);
	return atomic(ctx, __func__, remote, offset, {AtomicKind::swap, 4, desired, 0}, result, req);
}
PT2P_CATCH

pt2p_status_t pt2p_swap64(pt2p_context_t *ctx, pt2p_remote_t *remote, size_t offset, uint64_t desired, uint64_t *result,
                          pt2p_request_t **req)
try {
	PT2P_CHECK_CONTEXT(ctx);
	return atomic(ctx, __func__, remote, offset, {AtomicKind::swap, 8, desired, 0}, result, req);
}
PT2P_CATCH

pt2p_status_t pt2p_compare_swap32(pt2p_context_t *ctx, pt2p_remote_t *remote, size_t offset, uint32_t expected,
                                  uint32_t desired, uint32_t *result, pt2p_request_t **req)
try {
	PT2P_CHECK_CONTEXT(ctx);
	return atomic(ctx, __func__, remote, offset, {AtomicKind::compare_swap, 4, desired, expected}, result, req);
}
PT2P_CATCH

pt2p_status_t pt2p_compare_swap64(pt2p_context_t *ctx, pt2p_remote_t *remote, size_t offset, uint64_t expected,
                                  uint64_t desired, uint64_t *result, pt2p_request_t **req)
try {
	PT2P_CHECK_CONTEXT(ctx);
	return atomic(ctx, __func__, remote, offset, {AtomicKind::compare_swap, 8, desired, expected}, result, req);
}
PT2P_CATCH

// ---- order and end --------------------------------------------------------------------------------------------------

pt2p_status_t pt2p_flush(pt2p_context_t *ctx, int rank)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	PT2P_NOT_IN_HANDLER(ctx);
	return is_rank(ctx, rank) ? ctx->onesided->flush(rank) : bad_rank(ctx, __func__, "the rank", rank);
}
PT2P_CATCH

pt2p_status_t pt2p_flush_all(pt2p_context_t *ctx)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	PT2P_NOT_IN_HANDLER(ctx);
	return ctx->onesided->flush_all();
}
PT2P_CATCH

pt2p_status_t pt2p_fence(pt2p_context_t *ctx, int rank)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	if (!is_rank(ctx, rank))
		return bad_rank(ctx, __func__, "the rank", rank);
	ctx->onesided->fence(rank);
	return PT2P_OK;
}
PT2P_CATCH

pt2p_status_t pt2p_signal_wait(pt2p_context_t *ctx, const uint64_t *word, uint64_t value, int source)
try {
	PT2P_CHECK_CONTEXT(ctx);
	Progress::Guard guard(*ctx->progress);
	PT2P_NOT_IN_HANDLER(ctx);
	if (!word)
		return null_argument(ctx, __func__, "word");
	if (reinterpret_cast<uintptr_t>(word) % 8)
		return ctx->reporter.fail(PT2P_ERR_ARGUMENT, "%s: the word at %p is not aligned to 8 bytes", __func__,
		                          static_cast<const void *>(word));
	if (source != PT2P_ANY_SOURCE && !is_rank(ctx, source))
		return bad_rank(ctx, __func__, "source", source);
	pt2p_status_t status = PT2P_OK;
	const unsigned losses = ctx->engine->losses().told();
	const auto finished = [&] {
		if (__atomic_load_n(word, __ATOMIC_ACQUIRE) >= value)
			return true;
		status = awaited_status(ctx, source, losses);
		return status != PT2P_OK;
	};
	if (!finished()) {
		const AwaitedPeers::Awaiting awaiting(ctx->engine->awaited(), source);
		ctx->progress->wait_on_memory(finished);
	}
	return status;
}
PT2P_CATCH
