// Where the payload of a message waits for the device: in buffers of host memory, which the device reads by DMA, or in
// cells of the device's own memory, which the processor writes. From device memory, the device reads nothing over PCIe.
//
// A place is taken when a message is posted, and freed when its completion is known. Completions of different queue
// pairs come in any order, so free places are a list and not a ring.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transports/verbs/device/cells.hpp"
#include "transports/verbs/device/device.hpp"

namespace pt2p::verbs {

// A part of a message.
struct Piece {
	const void *bytes;
	size_t length;
};

// Which of a number of places of one size are free.
class FreeList {
public:
	static constexpr uint32_t none = Cells::none; // a message is in a place of one or the other

	void fill(uint32_t count)
	{
		free_.clear();
		for (uint32_t place = count; place--;)
			free_.push_back(place);
	}
	uint32_t take()
	{
		if (free_.empty())
			return none;
		const uint32_t place = free_.back();
		free_.pop_back();
		return place;
	}
	void give(uint32_t place) { free_.push_back(place); }
	size_t count() const { return free_.size(); }

private:
	std::vector<uint32_t> free_;
};

// How much of a memory for messages is taken, from a half and from three quarters on. Places come back with
// completions. So the scarcer they are, the more work requests ask for one.
enum class Shortage : uint8_t { none, scarce, severe };

constexpr Shortage shortage_at(double used)
{
	return used < 0.5 ? Shortage::none : used < 0.75 ? Shortage::scarce : Shortage::severe;
}

// Memory on the device: one allocation, mapped for writing and never read back.
class DeviceMemory {
public:
	// At most `bytes`, for messages of up to `max_bytes` (a multiple of 64). It has no cells if the device has no
	// memory, or none left; `why_not` then says why.
	DeviceMemory(const Device &device, size_t bytes, size_t max_bytes, std::string &why_not);

	// Longest message.
	size_t max_bytes() const { return cells_.max_bytes(); }
	// Sets it; 0: the memory is not used any more. No cell may be taken.
	void cut(size_t max_bytes) { cells_.cut(bytes_, max_bytes); }
	// A cell for a message of so many bytes; none: there is none.
	uint32_t take(size_t bytes) { return cells_.take(bytes); }
	void give(uint32_t cell) { cells_.give(cell); }
	Shortage shortage() const { return shortage_at(cells_.used()); }
	bool usable() const { return mr_ != nullptr; }
	uint32_t key() const { return mr_->lkey; }
	static uint64_t address(uint32_t cell) { return uint64_t{cell} * Cells::unit; }
	// Writes the pieces of a message into a cell, one after the other. The device sees them when the call returns.
	// Stores are of 8 bytes, so up to 7 bytes behind the message change, too.
	void write(uint32_t cell, std::span<const Piece> pieces);

private:
	DmOwner dm_;
	MrOwner mr_; // addresses count from the beginning of the allocation
	volatile uint64_t *words_ = nullptr;
	size_t bytes_ = 0;
	Cells cells_;
};

} // namespace pt2p::verbs
