// Gives out places of a piece of memory in sizes that fit. The memory is blocks of equal size. A block is cut into 1,
// 2, 4 or 8 equal cells when its first cell is taken, and is whole again when the last one is given back.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pt2p::verbs {

class Cells {
public:
	static constexpr size_t unit = 64; // bytes; places are counted in it
	static constexpr uint32_t none = UINT32_MAX;

	// Blocks of so many bytes, a multiple of `unit`, in memory of `bytes`. 0: there are none. No cell may be taken.
	void cut(size_t bytes, size_t block_bytes)
	{
		block_units_ = static_cast<uint32_t>(block_bytes / unit);
		blocks_.assign(block_bytes ? bytes / block_bytes : 0, {});
		for (auto &open : open_)
			open.clear();
		whole_.clear();
		for (auto b = static_cast<uint32_t>(blocks_.size()); b--;)
			whole_.push_back(b);
		used_ = 0;
	}
	size_t max_bytes() const { return block_units_ * unit; }

	// A place for so many bytes, at most max_bytes(); none: all are taken.
	uint32_t take(size_t bytes)
	{
		const unsigned c = class_of(bytes);
		if (open_[c].empty() && !open(c))
			return none;
		const uint32_t b = open_[c].back();
		Block &block = blocks_[b];
		const auto cell = static_cast<unsigned>(std::countr_one(block.taken));
		block.taken = static_cast<uint8_t>(block.taken | 1u << cell);
		if (block.taken == all(c))
			open_[c].pop_back();
		used_ += cell_units(c);
		return b * block_units_ + cell * cell_units(c);
	}
	void give(uint32_t place)
	{
		const uint32_t b = place / block_units_;
		Block &block = blocks_[b];
		const unsigned c = block.cells_log;
		if (block.taken == all(c)) {
			block.at = static_cast<uint32_t>(open_[c].size());
			open_[c].push_back(b);
		}
		block.taken = static_cast<uint8_t>(block.taken & ~(1u << place % block_units_ / cell_units(c)));
		used_ -= cell_units(c);
		if (block.taken)
			return;
		open_[c][block.at] = open_[c].back();
		blocks_[open_[c].back()].at = block.at;
		open_[c].pop_back();
		whole_.push_back(b);
	}
	// Which part of the memory is taken.
	double used() const
	{
		return blocks_.empty() ? 1 : static_cast<double>(used_) / static_cast<double>(blocks_.size() * block_units_);
	}

private:
	struct Block {
		uint8_t cells_log = 0; // it is cut into 1 << cells_log cells
		uint8_t taken = 0;     // a bit for each cell
		uint32_t at = 0;       // in open_
	};
	static constexpr unsigned classes = 4;

	static uint8_t all(unsigned c) { return static_cast<uint8_t>((1u << (1u << c)) - 1); }
	uint32_t cell_units(unsigned c) const { return block_units_ >> c; }
	unsigned class_of(size_t bytes) const
	{
		unsigned c = classes - 1;
		while (c && cell_units(c) * unit < bytes)
			--c;
		return c;
	}
	bool open(unsigned c)
	{
		if (whole_.empty())
			return false;
		const uint32_t b = whole_.back();
		whole_.pop_back();
		blocks_[b] = {static_cast<uint8_t>(c), 0, static_cast<uint32_t>(open_[c].size())};
		open_[c].push_back(b);
		return true;
	}

	uint32_t block_units_ = 0;
	std::vector<Block> blocks_;
	std::vector<uint32_t> whole_;                     // blocks that are not cut
	std::array<std::vector<uint32_t>, classes> open_; // blocks with free cells, by cells_log
	size_t used_ = 0;                                 // units
};

} // namespace pt2p::verbs
