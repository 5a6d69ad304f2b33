// Memory of a rank for one-sided operations of another.
#pragma once

#include <random>

#include "tests/net/job.hpp"

namespace net {

using Bytes = std::vector<unsigned char>;

// Memory of a rank that rank 0 reaches.
struct Window {
	Window(Job &j, int rank, size_t length) : job(j), owner(rank), bytes(length)
	{
		REQUIRE(pt2p_memory_register(job.ctx[Job::index(rank)], bytes.data(), length, &memory) == PT2P_OK);
		char blob[PT2P_EXPORT_MAX];
		size_t needed = 0;
		REQUIRE(pt2p_memory_export(job.ctx[Job::index(rank)], memory, blob, sizeof blob, &needed) == PT2P_OK);
		REQUIRE(pt2p_memory_import(job.ctx[0], rank, blob, needed, &remote) == PT2P_OK);
	}

	Job &job;
	const int owner;
	Bytes bytes;
	pt2p_memory_t *memory = nullptr;
	pt2p_remote_t *remote = nullptr;
};

inline Bytes random_bytes(size_t length, unsigned seed)
{
	Bytes bytes(length);
	std::mt19937 random(seed);
	for (auto &b : bytes)
		b = static_cast<unsigned char>(random());
	return bytes;
}

// Each rank on a node of its own, else a put would be a memcpy.
inline std::vector<std::string> apart(std::vector<std::string> more = {})
{
	more.push_back("PT2P_RANKS_PER_NODE=1");
	return more;
}

} // namespace net
