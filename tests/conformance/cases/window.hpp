// What cases of one-sided operations have in common.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "tests/conformance/harness.hpp"

namespace conformance {

// Memory of every rank that all ranks reach. It is exported in the first half of a case, and imported in the second.
struct Window {
	Rank &r;
	bool allocated;
	size_t bytes;
	pt2p_memory_t *mem = nullptr;
	unsigned char *base = nullptr;
	Bytes own;
	Bytes blob;
	uint64_t tag;
	std::vector<pt2p_request_t *> sends;
	std::vector<pt2p_remote_t *> remotes;

	// shift: bytes by which registered memory misses a multiple of 8.
	Window(Rank &rank, bool allocate, size_t length, uint64_t number, size_t shift = 0)
	    : r(rank), allocated(allocate), bytes(length), tag(9000 + number)
	{
		if (allocated) {
			void *address = nullptr;
			EXPECT_OK(r.ctx, pt2p_memory_allocate(r.ctx, bytes, &mem, &address));
			base = static_cast<unsigned char *>(address);
			EXPECT(base != nullptr && reinterpret_cast<uintptr_t>(base) % 4096 == 0);
			EXPECT(std::all_of(base, base + bytes, [](unsigned char c) { return c == 0; }));
		} else {
			own.resize(bytes + 16);
			base = own.data() + (8 - reinterpret_cast<uintptr_t>(own.data()) % 8) % 8 + shift;
			EXPECT_OK(r.ctx, pt2p_memory_register(r.ctx, base, bytes, &mem));
		}
		size_t needed = 0;
		EXPECT_OK(r.ctx, pt2p_memory_export(r.ctx, mem, nullptr, 0, &needed));
		EXPECT(needed && needed <= PT2P_EXPORT_MAX);
		blob.resize(needed);
		EXPECT_OK(r.ctx, pt2p_memory_export(r.ctx, mem, blob.data(), needed, &needed));
		sends.resize(static_cast<size_t>(r.size));
		for (int i = 0; i < r.size; ++i)
			EXPECT_OK(r.ctx, pt2p_isend(r.ctx, blob.data(), blob.size(), i, tag, &sends[static_cast<size_t>(i)]));
	}
	void open()
	{
		Bytes in(PT2P_EXPORT_MAX);
		for (int i = 0; i < r.size; ++i) {
			pt2p_result_t result{};
			EXPECT_OK(r.ctx, pt2p_recv(r.ctx, in.data(), in.size(), i, tag, PT2P_TAG_EXACT, &result));
			remotes.push_back(nullptr);
			EXPECT_OK(r.ctx, pt2p_memory_import(r.ctx, i, in.data(), result.length, &remotes.back()));
		}
	}
	pt2p_remote_t *at(int rank) const { return remotes[static_cast<size_t>(rank)]; }
	// The word at an offset of this rank's own memory.
	uint64_t word(size_t offset) const
	{
		return __atomic_load_n(reinterpret_cast<uint64_t *>(base + offset), __ATOMIC_ACQUIRE);
	}
	void close()
	{
		EXPECT_OK(r.ctx, pt2p_waitall(r.ctx, sends.size(), sends.data(), nullptr));
		for (pt2p_remote_t *remote : remotes)
			EXPECT_OK(r.ctx, pt2p_remote_release(r.ctx, remote));
		EXPECT_OK(r.ctx, pt2p_memory_release(r.ctx, mem));
	}
};

using Windows = std::shared_ptr<std::vector<Window>>;

// Two windows, allocated and registered.
inline Windows make_windows(Rank &r, size_t bytes, size_t shift = 0)
{
	auto w = std::make_shared<std::vector<Window>>();
	w->reserve(2);
	w->emplace_back(r, true, bytes, 0);
	w->emplace_back(r, false, bytes, 1, shift);
	return w;
}

// When all ranks are done: checks this rank's memory, then releases it.
inline void at_the_end(Rank &r, Windows w, std::function<void(Window &)> look = {})
{
	r.last = [&r, w, look] {
		if (!r.cooperative)
			EXPECT_OK(r.ctx, pt2p_barrier(r.ctx));
		for (Window &window : *w) {
			if (look)
				look(window);
			window.close();
		}
	};
}

} // namespace conformance
