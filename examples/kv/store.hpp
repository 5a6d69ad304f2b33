// SPDX-License-Identifier: BSD-3-Clause
//
// One partition of a key-value store. Its memory is fixed: nothing is allocated after the constructor. One thread uses
// it, so it has no locks.
//
// Items lie one behind the other in a circular log. A put appends. When the log has come round, the oldest item makes
// room: one that was deleted or replaced is dropped, others are appended again or evicted. A store that evicts appends
// again what was used since the item was written or last moved (second chance, an approximation of LRU), and evicts
// the others. A store that keeps everything appends all again, and refuses a put when memory is full.
//
// The index is a hash table with linear probing. Its slots have eight bytes, so a search seldom looks at more than one
// cache line, and a deletion closes the gap and leaves no mark behind.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

namespace kv {

inline constexpr size_t max_key = 255, max_value = 512 * 1024; // bytes

// The upper half chooses the partition, the lower half the place in its index.
inline uint64_t hash_of(std::string_view key)
{
	uint64_t hash = key.size() * 0x9e3779b97f4a7c15u;
	const auto add = [&hash](uint64_t word) {
		hash = (hash ^ word) * 0xd6e8feb86659fd93u;
		hash ^= hash >> 32;
	};
	for (; key.size() >= 8; key.remove_prefix(8)) {
		uint64_t word;
		std::memcpy(&word, key.data(), 8);
		add(word);
	}
	uint64_t rest = 0;
	std::copy(key.begin(), key.end(), reinterpret_cast<char *>(&rest));
	add(rest);
	return hash;
}

enum class Status : uint8_t {
	ok,
	not_found,
	full,           // there is no room for the item, and nothing may be evicted. What the key had before stays
	key_length,     // not 1 ... max_key
	value_too_long, // above Store::value_max()
	malformed       // of a request, see protocol.hpp
};

// What a store tells about itself.
struct Facts {
	uint64_t items, bytes, capacity, value_max; // bytes: of all items. They never exceed the capacity
	uint64_t gets, found, puts, erases, evicted;
};

class Store {
public:
	static constexpr size_t min_memory = 64 * 1024, max_memory = size_t(64) << 30;

	// memory: min_memory ... max_memory, for log and index together.
	Store(size_t memory, bool evicts)
	    : evicts_(evicts), slots_(std::bit_ceil(memory / (smallest + sizeof(Slot)))),
	      log_bytes_((memory - slots_.size() * sizeof(Slot)) / unit * unit),
	      log_(std::make_unique_for_overwrite<Unit[]>(log_bytes_ / unit))
	{
		facts_.value_max = std::min(max_value, log_bytes_ / 32);
		longest_ = bytes_for(max_key, facts_.value_max);
		// So much stays free that an item can move, also when it does not fit before the end of the log. When nothing
		// is evicted, an eighth more: then seven bytes at most are moved for each that is put, in the mean.
		facts_.capacity = log_bytes_ - (evicts ? 3 * longest_ : 4 * longest_ + log_bytes_ / 8);
	}
	Store(const Store &) = delete;

	// Valid until the next put or erase.
	std::optional<std::string_view> get(std::string_view key)
	{
		++facts_.gets;
		Slot &slot = slots_[find(key, low_hash(key))];
		if (slot.empty())
			return std::nullopt;
		++facts_.found;
		Item &item = at(slot);
		item.used = true;
		return item.value();
	}

	Status put(std::string_view key, std::string_view value)
	{
		++facts_.puts;
		if (key.empty() || key.size() > max_key)
			return Status::key_length;
		if (value.size() > facts_.value_max)
			return Status::value_too_long;
		const uint32_t hash = low_hash(key);
		const size_t bytes = bytes_for(key.size(), value.size());
		const size_t slot = find(key, hash);
		const size_t before = slots_[slot].empty() ? 0 : at(slots_[slot]).bytes;
		if (!evicts_ && facts_.bytes - before + bytes > facts_.capacity)
			return Status::full;
		if (before == bytes) {
			Item &item = at(slots_[slot]);
			item.set_value(value);
			item.used = true;
			return Status::ok;
		}
		if (before)
			drop(slot);
		while (log_bytes_ - in_use_ < bytes + 3 * longest_)
			reclaim();
		Item &item = append(bytes);
		item.hash = hash;
		item.live = true;
		item.used = false;
		item.key_length = static_cast<uint8_t>(key.size());
		std::copy(key.begin(), key.end(), item.data());
		item.set_value(value);
		slots_[find(key, hash)] = {hash, place_of(item)};
		facts_.bytes += bytes;
		++facts_.items;
		return Status::ok;
	}

	Status erase(std::string_view key)
	{
		++facts_.erases;
		const size_t slot = find(key, low_hash(key));
		if (slots_[slot].empty())
			return Status::not_found;
		drop(slot);
		return Status::ok;
	}

	const Facts &facts() const { return facts_; }
	size_t value_max() const { return facts_.value_max; }

private:
	static constexpr size_t unit = 16; // items begin at multiples of it
	struct alignas(unit) Unit {
		std::byte bytes[unit];
	};
	// In the log, followed by the key and the value. At the end of the log what is left is an item that is not live.
	struct Item {
		uint32_t hash, bytes, value_length; // bytes: of the whole item
		uint8_t key_length;
		bool live, used;

		char *data() { return reinterpret_cast<char *>(this + 1); }
		std::string_view key() { return {data(), key_length}; }
		std::string_view value() { return {data() + key_length, value_length}; }
		void set_value(std::string_view value)
		{
			value_length = static_cast<uint32_t>(value.size());
			std::copy(value.begin(), value.end(), data() + key_length);
		}
	};
	static_assert(sizeof(Item) == unit);
	struct Slot {
		uint32_t hash = 0, place = 0; // place: of the item, in units, from 1 on; 0: the slot is empty
		bool empty() const { return !place; }
	};
	static constexpr size_t smallest = 2 * unit; // item

	static size_t bytes_for(size_t key, size_t value) { return (sizeof(Item) + key + value + unit - 1) / unit * unit; }
	static uint32_t low_hash(std::string_view key) { return static_cast<uint32_t>(hash_of(key)); }

	Item &at(size_t offset) { return reinterpret_cast<Item &>(log_[offset / unit]); }
	Item &at(Slot slot) { return at((slot.place - size_t(1)) * unit); }
	uint32_t place_of(const Item &item) const
	{
		return static_cast<uint32_t>(reinterpret_cast<const Unit *>(&item) - log_.get()) + 1;
	}
	size_t next(size_t slot) const { return (slot + 1) & (slots_.size() - 1); }
	size_t home(uint32_t hash) const { return hash & (slots_.size() - 1); }

	// The slot of a key, or the empty one where it belongs. There is one, as there are more slots than items fit.
	size_t find(std::string_view key, uint32_t hash)
	{
		size_t slot = home(hash);
		while (!slots_[slot].empty() && !(slots_[slot].hash == hash && at(slots_[slot]).key() == key))
			slot = next(slot);
		return slot;
	}
	size_t slot_of(const Item &item) const
	{
		size_t slot = home(item.hash);
		for (const uint32_t place = place_of(item); slots_[slot].place != place;)
			slot = next(slot);
		return slot;
	}

	// Takes an item out of the index. Its bytes come back when it is the oldest.
	void drop(size_t gap)
	{
		Item &item = at(slots_[gap]);
		item.live = false;
		facts_.bytes -= item.bytes;
		--facts_.items;
		// Whoever has been pushed past the gap moves there.
		for (size_t slot = next(gap); !slots_[slot].empty(); slot = next(slot)) {
			const size_t mask = slots_.size() - 1;
			if (((slot - home(slots_[slot].hash)) & mask) >= ((slot - gap) & mask)) {
				slots_[gap] = slots_[slot];
				gap = slot;
			}
		}
		slots_[gap] = {};
	}

	// So many bytes at the head of the log, in one piece.
	Item &append(size_t bytes)
	{
		if (log_bytes_ - head_ < bytes) {
			Item &rest = at(head_);
			rest.bytes = static_cast<uint32_t>(log_bytes_ - head_);
			rest.live = false;
			in_use_ += rest.bytes;
			head_ = 0;
		}
		Item &item = at(head_);
		item.bytes = static_cast<uint32_t>(bytes);
		in_use_ += bytes;
		head_ = (head_ + bytes) % log_bytes_;
		return item;
	}

	// Takes the oldest item off the tail of the log. At least two of the longest are free at its head.
	void reclaim()
	{
		Item &oldest = at(tail_);
		const size_t bytes = oldest.bytes;
		if (oldest.live && (!evicts_ || oldest.used)) {
			Slot &slot = slots_[slot_of(oldest)];
			oldest.used = false;
			Item &moved = append(bytes);
			std::memcpy(static_cast<void *>(&moved), &oldest, bytes);
			slot.place = place_of(moved);
		} else if (oldest.live) {
			drop(slot_of(oldest));
			++facts_.evicted;
		}
		in_use_ -= bytes;
		tail_ = (tail_ + bytes) % log_bytes_;
	}

	const bool evicts_;
	std::vector<Slot> slots_; // a power of two
	const size_t log_bytes_;
	std::unique_ptr<Unit[]> log_;
	size_t longest_;                          // item, bytes
	size_t head_ = 0, tail_ = 0, in_use_ = 0; // in_use: from the tail to the head, with what is not live
	Facts facts_{};
};

} // namespace kv
