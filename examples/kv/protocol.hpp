// SPDX-License-Identifier: BSD-3-Clause
//
// What clients and servers of the store say to each other. Each partition is a service (pt2p_calls(7)). The input of a
// call is a Head, the key and the value. The word of the reply is a Status; the bytes of the reply are the value that
// was asked for.
//
// get_many asks one partition for several keys. Its input is a Head and the keys, each behind its length in a byte. The
// reply has for each key a 32-bit length and the value; the length of a key that is not there is `missing`.
#pragma once

#include <string_view>

#include "store.hpp"

namespace kv {

enum class Op : uint8_t { get, put, erase, get_many, facts };

struct Head {
	Op op;
	uint8_t key_length;
};

inline constexpr uint32_t missing = UINT32_MAX;

struct Place {
	int rank;
	uint32_t service;
};

// Which partition a key belongs to. The first `servers` ranks have `partitions` each.
struct Layout {
	int servers;
	uint32_t partitions;

	size_t count() const { return static_cast<size_t>(servers) * partitions; }
	size_t partition(std::string_view key) const { return (hash_of(key) >> 32) * count() >> 32; }
	Place place(size_t partition) const
	{
		return {static_cast<int>(partition / partitions), static_cast<uint32_t>(partition % partitions)};
	}
};

} // namespace kv
