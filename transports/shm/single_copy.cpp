#include "transports/shm/single_copy.hpp"

#include <algorithm>
#include <cerrno>
#include <sys/uio.h>

namespace pt2p::shm {

uint32_t piece_size(uint64_t length)
{
	// Pieces of at least 16 KiB and at most 256 KiB, eight to a message between, and never more than the counter holds.
	uint64_t piece = std::clamp<uint64_t>(round_up(length / 8, page), 16 * 1024, 256 * 1024);
	while (length / piece >= UINT32_MAX)
		piece *= 2;
	return static_cast<uint32_t>(piece);
}

void open_claim(Claim &claim, uint32_t generation)
{
	claim.finished.store(0, std::memory_order_relaxed);
	claim.failed.store(0, std::memory_order_relaxed);
	claim.next.store(static_cast<uint64_t>(generation) << 32, std::memory_order_release);
}

uint32_t take_pieces(Claim &claim, uint32_t generation, uint32_t pieces, uint32_t want, uint32_t &first)
{
	uint64_t next = claim.next.load(std::memory_order_acquire);
	uint32_t n;
	do {
		if (next >> 32 != generation || static_cast<uint32_t>(next) >= pieces)
			return 0;
		n = std::min(want, pieces - static_cast<uint32_t>(next));
	} while (!claim.next.compare_exchange_weak(next, next + n, std::memory_order_acq_rel));
	first = static_cast<uint32_t>(next);
	return n;
}

namespace {

using Copy = ssize_t (*)(pid_t, const iovec *, unsigned long, const iovec *, unsigned long, unsigned long);

int copy_all(Copy copy, pid_t process, unsigned char *local, uint64_t remote, size_t bytes)
{
	while (bytes) {
		// The kernel moves less than 2 GiB at once.
		const size_t n = std::min<size_t>(bytes, size_t{1} << 30);
		const iovec here{local, n}, there{reinterpret_cast<void *>(remote), n};
		const ssize_t moved = copy(process, &here, 1, &there, 1, 0);
		if (moved < 0) {
			if (errno == EINTR)
				continue;
			return errno;
		}
		if (moved == 0)
			return EFAULT;
		local += moved;
		remote += static_cast<uint64_t>(moved);
		bytes -= static_cast<size_t>(moved);
	}
	return 0;
}

} // namespace

int read_from(pid_t process, void *local, uint64_t remote, size_t bytes)
{
	return copy_all(process_vm_readv, process, static_cast<unsigned char *>(local), remote, bytes);
}

int read_runs(pid_t process, const Run *runs, size_t count)
{
	iovec here[TransportTable::max_runs], there[TransportTable::max_runs];
	size_t bytes = 0;
	for (size_t i = 0; i < count; ++i) {
		here[i] = {runs[i].local, runs[i].length};
		there[i] = {reinterpret_cast<void *>(runs[i].from.address), runs[i].length};
		bytes += runs[i].length;
	}
	ssize_t moved;
	do {
		moved = process_vm_readv(process, here, count, there, count, 0);
	} while (moved < 0 && errno == EINTR);
	return moved < 0 ? errno : static_cast<size_t>(moved) == bytes ? 0 : EFAULT;
}

int write_to(pid_t process, uint64_t remote, const void *local, size_t bytes)
{
	return copy_all(process_vm_writev, process, static_cast<unsigned char *>(const_cast<void *>(local)), remote, bytes);
}

} // namespace pt2p::shm
