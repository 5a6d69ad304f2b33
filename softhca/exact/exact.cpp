#include "softhca/exact/exact.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <endian.h>
#include <mutex>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "softhca/exact/traps.hpp"
#include "softhca/kernel/context.hpp"
#include "softhca/kernel/real.hpp"
#include "softhca/nic/memory.hpp"
#include "softhca/nic/nic.hpp"

namespace softhca::exact {

namespace {

constexpr size_t wc_bytes = 64; // the largest store of write-combining

// A page of a command file that the program has mapped and whose stores are trapped.
struct Page {
	explicit Page(Nic &n) : nic(n) {}

	Nic &nic;
	Context *context = nullptr; // null: free
	uint8_t *address = nullptr; // in the program's mapping
	uint8_t *alias = nullptr;   // in this library's
	uint64_t offset = 0;        // in the file
	// The last doorbell of each of the four buffers.
	struct Doorbell {
		uint32_t qpn = 0;
		bool blueflame = false;
	} doorbell[4];
	// The last store, if it was of wc_bytes.
	size_t last_offset = 0;
	std::array<uint8_t, wc_bytes> last{};

	bool is_device_memory() const { return offset < uar_first_offset; }
};

// Pages are used again and never freed: a thread may be in a trap. The lock is taken after the NIC's, where both are
// needed. Nothing is called with it that leads to libc_hooks.cpp.
struct Pages {
	std::mutex mutex;
	std::deque<Page> all;
};
Pages &pages()
{
	static Pages &p = *new Pages;
	return p;
}

void forget(Page &page)
{
	page.context = nullptr;
	release_stores(page.address);
	real::munmap(page.alias, page_bytes);
}

// A user access region has doorbells from here on: two registers of two buffers each, which are used in turn. The first
// eight bytes of a buffer are the doorbell; what follows is a WQE (BlueFlame).
constexpr size_t buffers_offset = 0x800, buffer_bytes = 0x100, buffer_count = 4, arm_offset = 0x20, doorbell_bytes = 8;

// memcpy() may store the same 64 bytes twice, as its first and its last part. Write-combining makes one store of them;
// no two WQEs are the same.
bool stored_again(Page &page, size_t offset, size_t bytes)
{
	const size_t last_offset = std::exchange(page.last_offset, bytes == wc_bytes ? offset : 0);
	if (bytes != wc_bytes)
		return false;
	const auto last = page.last;
	std::memcpy(page.last.data(), page.alias + offset, bytes);
	return last_offset == offset && last == page.last;
}

void stored_to_uar(Page &page, size_t offset, size_t bytes)
{
	Nic &nic = page.context->nic();
	if (offset < buffers_offset || offset >= buffers_offset + buffer_count * buffer_bytes) {
		if (offset == arm_offset)
			nic.accounts().device(page.context->device()).add(Counter::arm_doorbells, 1);
		return;
	}
	if (stored_again(page, offset, bytes))
		return;
	Page::Doorbell &doorbell = page.doorbell[(offset - buffers_offset) / buffer_bytes];
	const bool starts = offset % buffer_bytes == 0;
	if (starts) {
		uint32_t which;
		std::memcpy(&which, page.alias + offset + sizeof which, sizeof which);
		doorbell = {be32toh(which) >> 8, false};
	}
	Qp *qp = nic.find(doorbell.qpn);
	if (!qp || &qp->context != page.context)
		return; // there is no such queue pair
	if (starts)
		nic.scheduler().ring(*qp);
	if (starts && bytes <= doorbell_bytes)
		return;
	nic.scheduler().blueflame(*qp, bytes, !doorbell.blueflame);
	if (!doorbell.blueflame) {
		doorbell.blueflame = true;
		qp->count(Counter::blueflames, 1);
		if (!starts)
			qp->count(Counter::blueflame_store_bytes, doorbell_bytes);
	}
	qp->count(Counter::blueflame_store_bytes, bytes);
}

void stored(void *argument, size_t offset, size_t bytes)
{
	Page &page = *static_cast<Page *>(argument);
	Nic &nic = page.nic;
	const std::lock_guard guard(nic.mutex);
	if (!page.context)
		return;
	if (page.is_device_memory()) {
		Counters &counters = nic.accounts().device(page.context->device());
		counters.add(Counter::dm_stores, 1);
		counters.add(Counter::dm_store_bytes, bytes);
		nic.scheduler().stored_to_device_memory(page.context->device(), bytes);
		return;
	}
	stored_to_uar(page, offset, bytes);
	nic.scheduler().progress();
}

void trap(Context &context, uint8_t *address, uint64_t offset)
{
	auto &all = pages().all;
	for (const Page &page : all)
		if (page.context == &context && (page.address == address || page.alias == address))
			return;
	const auto free = std::find_if(all.begin(), all.end(), [](const Page &page) { return !page.context; });
	Page &page = free != all.end() ? *free : all.emplace_back(context.nic());
	void *alias =
	    real::mmap(nullptr, page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, context.fd(), static_cast<off_t>(offset));
	if (alias == MAP_FAILED) {
		std::perror("softhca: exact mode: mmap");
		return;
	}
	std::fill(std::begin(page.doorbell), std::end(page.doorbell), Page::Doorbell{});
	page.last_offset = 0;
	page.last = {};
	page.context = &context;
	page.address = address;
	page.alias = static_cast<uint8_t *>(alias);
	page.offset = offset;
	if (!trap_stores(address, page_bytes, alias, stored, &page)) {
		std::perror("softhca: exact mode: cannot trap stores");
		real::munmap(alias, page_bytes);
		page.context = nullptr;
	}
}

} // namespace

bool wanted()
{
	// A sanitizer's runtime maps memory before libc has the environment: no answer to keep.
	if (!environ)
		return false;
	static const bool is = [] {
		const char *text = std::getenv("SOFTHCA_EXACT");
		return text && *text && std::strcmp(text, "0") != 0;
	}();
	return is;
}

void find_pages(Context &context)
{
	if (!wanted() || time_is_virtual()) // in virtual time, mmap() is always seen
		return;
	struct Found {
		uint8_t *address;
		uint64_t offset;
	};
	std::vector<Found> found;
	for_each_mapping([&](const Mapping &mapping) {
		if (mapping.inode == context.inode())
			for (uint64_t at = mapping.from, offset = mapping.offset; at < mapping.to;
			     at += page_bytes, offset += page_bytes)
				found.push_back({reinterpret_cast<uint8_t *>(static_cast<uintptr_t>(at)), offset});
		return true;
	});
	const std::lock_guard guard(pages().mutex);
	for (const Found &page : found)
		if (!context.is_own_mapping(page.address))
			trap(context, page.address, page.offset);
}

void mapped(Context &context, void *memory, size_t bytes, uint64_t offset)
{
	auto *address = static_cast<uint8_t *>(memory);
	const std::lock_guard nic_guard(context.nic().mutex);
	const std::lock_guard guard(pages().mutex);
	for (size_t at = 0; at < bytes; at += page_bytes)
		if (!context.is_own_mapping(address + at))
			trap(context, address + at, offset + at);
}

void unmapped(void *address, size_t bytes)
{
	const auto *from = static_cast<uint8_t *>(address);
	const std::lock_guard guard(pages().mutex);
	for (Page &page : pages().all)
		if (page.context && page.address >= from && page.address < from + bytes)
			forget(page);
}

void forget_pages(Context &context)
{
	const std::lock_guard guard(pages().mutex);
	for (Page &page : pages().all)
		if (page.context == &context)
			forget(page);
}

} // namespace softhca::exact
