#include "softhca/exact/first_stores.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <sys/mman.h>
#include <vector>

#include "softhca/exact/traps.hpp"

namespace softhca {

namespace {

struct Region {
	size_t bytes;
	bool writable;
};

// A large region is watched in pieces, as the kernel touches each page of what is protected.
constexpr size_t piece = 65536;

struct Watch {
	std::map<uintptr_t, Region> regions; // by their start
	std::vector<uintptr_t> writable;     // of these, since watch_again()
	void (*seen)() = nullptr;
};
Watch &watch()
{
	static Watch &w = *new Watch; // never destroyed: stores go on until the process has ended
	return w;
}

int protect(uintptr_t start, size_t bytes, int protection)
{
	return mprotect(reinterpret_cast<void *>(start), bytes, protection);
}

// Whether a fault was one; then the instruction can go on.
bool is_first_store(uintptr_t fault)
{
	Watch &w = watch();
	auto i = w.regions.upper_bound(fault);
	if (i == w.regions.begin() || fault - (--i)->first >= i->second.bytes || i->second.writable)
		return false;
	if (protect(i->first, i->second.bytes, PROT_READ | PROT_WRITE) != 0)
		return false;
	i->second.writable = true;
	w.writable.push_back(i->first);
	w.seen();
	return true;
}

} // namespace

bool watch_first_stores(void *region, size_t bytes, void (*seen)())
{
	const auto start = reinterpret_cast<uintptr_t>(region);
	forget_first_stores(region, bytes); // mapped over what was there
	if (!show_faults(is_first_store) || protect(start, bytes, PROT_READ) != 0)
		return false;
	for (size_t at = 0; at < bytes; at += piece)
		watch().regions[start + at] = {std::min(piece, bytes - at), false};
	watch().seen = seen;
	return true;
}

// Of a region of which only a part goes, the rest is writable from now on, and not watched.
void forget_first_stores(void *start, size_t bytes)
{
	Watch &w = watch();
	const auto begin = reinterpret_cast<uintptr_t>(start), end = begin + bytes;
	auto i = w.regions.upper_bound(begin);
	if (i != w.regions.begin() && std::prev(i)->first + std::prev(i)->second.bytes > begin)
		--i;
	while (i != w.regions.end() && i->first < end) {
		const auto [at, region] = *i;
		if (region.writable)
			std::erase(w.writable, at);
		else if (at < begin || at + region.bytes > end)
			protect(at, region.bytes, PROT_READ | PROT_WRITE);
		i = w.regions.erase(i);
	}
}

void watch_again()
{
	Watch &w = watch();
	for (const uintptr_t start : w.writable) {
		Region &region = w.regions.at(start);
		region.writable = false;
		protect(start, region.bytes, PROT_READ);
	}
	w.writable.clear();
}

} // namespace softhca
