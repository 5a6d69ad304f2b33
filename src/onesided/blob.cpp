#include "onesided/blob.hpp"

#include <cstddef>
#include <cstring>

namespace pt2p::onesided {

namespace {

constexpr uint64_t magic = UINT64_C(0x7074'3270'6d65'6d33); // "pt2pmem3"
constexpr size_t max_keys = 8, max_node_id = 512, proof_bytes = sizeof(uint64_t);

// Keys, the node's identity and the proof follow.
struct Packed {
	uint64_t magic, job, handle, address, length, start_time, device, inode;
	int32_t rank, file;
	uint32_t pid;
	uint16_t agent, async_progress;
	uint32_t keys, node_id;
	char nic[8];
};
static_assert(sizeof(Packed) == 96);

} // namespace

std::string MemoryBlob::pack(const Secret &secret) const
{
	Packed p{magic,
	         job,
	         handle,
	         address,
	         length,
	         start_time,
	         device,
	         inode,
	         rank,
	         file,
	         pid,
	         static_cast<uint16_t>(agent),
	         async_progress,
	         static_cast<uint32_t>(keys.size()),
	         static_cast<uint32_t>(node_id.size()),
	         {}};
	std::memcpy(p.nic, nic, sizeof p.nic);
	std::string bytes(reinterpret_cast<const char *>(&p), sizeof p);
	bytes.append(reinterpret_cast<const char *>(keys.data()), keys.size() * sizeof(Key));
	bytes += node_id;
	const uint64_t proof = proof_of(secret, bytes.data(), bytes.size());
	return bytes.append(reinterpret_cast<const char *>(&proof), sizeof proof);
}

bool MemoryBlob::genuine(std::string_view bytes, const Secret &secret)
{
	uint64_t proof;
	const size_t front = bytes.size() - proof_bytes;
	std::memcpy(&proof, bytes.data() + front, sizeof proof);
	return proof == proof_of(secret, bytes.data(), front);
}

bool MemoryBlob::unpack(std::string_view bytes, MemoryBlob &b)
{
	Packed p;
	if (bytes.size() < sizeof p)
		return false;
	std::memcpy(&p, bytes.data(), sizeof p);
	if (p.magic != magic || p.keys > max_keys || p.node_id > max_node_id ||
	    p.agent > static_cast<uint16_t>(Agent::nic) || p.async_progress > 1 ||
	    bytes.size() != sizeof p + p.keys * sizeof(Key) + p.node_id + proof_bytes || p.length > PTRDIFF_MAX ||
	    p.address + p.length < p.address || p.nic[sizeof p.nic - 1])
		return false;
	b.job = p.job;
	b.rank = p.rank;
	b.agent = static_cast<Agent>(p.agent);
	b.async_progress = p.async_progress;
	b.handle = p.handle;
	b.address = p.address;
	b.length = p.length;
	b.pid = p.pid;
	b.file = p.file;
	b.start_time = p.start_time;
	b.device = p.device;
	b.inode = p.inode;
	std::memcpy(b.nic, p.nic, sizeof b.nic);
	b.keys.resize(p.keys);
	std::memcpy(b.keys.data(), bytes.data() + sizeof p, p.keys * sizeof(Key));
	for (const Key &key : b.keys)
		if (key.transport[sizeof key.transport - 1])
			return false;
	b.node_id = bytes.substr(sizeof p + p.keys * sizeof(Key), p.node_id);
	return true;
}

} // namespace pt2p::onesided
