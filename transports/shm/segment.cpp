#include "transports/shm/segment.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

#include "base/config/config.hpp"
#include "base/job/topology.hpp"
#include "base/report/report.hpp"
#include "transports/shm/ring.hpp"

namespace pt2p::shm {

namespace {

// The fixed part of an address blob; the node identity follows.
struct Packed {
	uint64_t magic;
	uint32_t version, pid;
	int32_t fd;
	uint32_t unused;
	uint64_t start_time, base, probe, probe_value;
	Secret secret;
	Shape shape;
};

bool possible(const Shape &s)
{
	return s.ranks && s.ranks <= 1u << 20 && std::has_single_bit(s.slots) && std::has_single_bit(s.data_bytes) &&
	       std::has_single_bit(s.room) && s.room <= s.data_bytes;
}

size_t ring_offset(const Shape &shape, uint32_t index)
{
	return header_bytes(shape.ranks) + index * ring_bytes(shape.slots, shape.data_bytes);
}

} // namespace

Shape shape_of(const Config &config, uint32_t ranks)
{
	Shape s;
	s.ranks = ranks;
	s.slots = std::bit_ceil(static_cast<uint32_t>(config.shm_ring_slots));
	s.data_bytes = std::bit_ceil(static_cast<uint32_t>(config.shm_ring_bytes));
	const size_t unasked = std::min<size_t>(config.eager_max, Writer::max_payload(s.data_bytes));
	s.room = std::min(s.data_bytes, std::bit_ceil(static_cast<uint32_t>(std::max(unasked, page))));
	return s;
}

size_t longest_payload(const Shape &shape)
{
	return std::min<size_t>(Writer::max_payload(shape.data_bytes), shape.room);
}

std::string Address::pack() const
{
	const Packed p{segment_magic, layout_version, pid, fd, 0, start_time, base, probe, probe_value, secret, shape};
	return std::string(reinterpret_cast<const char *>(&p), sizeof p) + node_id;
}

bool Address::unpack(std::string_view blob, Address &address)
{
	Packed p;
	if (blob.size() < sizeof p)
		return false;
	std::memcpy(&p, blob.data(), sizeof p);
	if (p.magic != segment_magic || p.version != layout_version || !possible(p.shape))
		return false;
	address.pid = p.pid;
	address.fd = p.fd;
	address.start_time = p.start_time;
	address.base = p.base;
	address.probe = p.probe;
	address.probe_value = p.probe_value;
	address.secret = p.secret;
	address.shape = p.shape;
	address.node_id = blob.substr(sizeof p);
	return true;
}

OwnSegment::OwnSegment(const Config &config, const Secret &secret, uint32_t ranks, int numa_node)
    : shape_(shape_of(config, ranks)), secret_(secret), fd_(make_shared_file(config.shm_backing, "pt2p-segment"))
{
	const size_t total = ring_offset(shape_, ranks);
	reserve(fd_.get(), 0, header_bytes(ranks), "the segment of this rank");
	if (ftruncate(fd_.get(), static_cast<off_t>(total)) != 0)
		throw Error(PT2P_ERR_SHARED_MEMORY, format("cannot give the shared segment its size of %zu bytes: %s", total,
		                                           errno_text(errno).c_str()));
	map_ = Mapping(fd_.get(), 0, total);
	place_on_numa_node(map_.memory(), total, numa_node);
	SegmentHeader *h = header();
	h->state = state_alive;
	h->proof = owner_proof(secret_);
}

Ring OwnSegment::ring(uint32_t index) const
{
	return Ring::at(static_cast<unsigned char *>(map_.memory()) + ring_offset(shape_, index), shape_.slots);
}

void OwnSegment::clear(uint32_t index) const
{
	directory(header())[index].store(0);
	doorbells(header(), shape_.ranks)[index / 64].fetch_and(~(UINT64_C(1) << (index % 64)));
	const size_t offset = ring_offset(shape_, index), bytes = ring_bytes(shape_.slots, shape_.data_bytes);
	// Its memory goes back to the system, and reads as zeros.
	if (fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
	              static_cast<off_t>(bytes)) != 0)
		std::memset(static_cast<unsigned char *>(map_.memory()) + offset, 0, bytes);
}

PeerSegment::PeerSegment(const Address &address, bool within_process) : shape_(address.shape), secret_(address.secret)
{
	if (within_process && address.pid == static_cast<uint32_t>(getpid())) {
		same_process_ = true;
		shared_fd_ = address.fd;
		header_ = reinterpret_cast<SegmentHeader *>(address.base);
	} else {
		// A file that is shorter than its header has no page to read there.
		fd_ = open_file_of(address.pid, address.start_time, address.fd, header_bytes(shape_.ranks));
		header_map_ = Mapping(fd_.get(), 0, header_bytes(shape_.ranks));
		header_ = static_cast<SegmentHeader *>(header_map_.memory());
	}
	if (header_->proof != owner_proof(secret_))
		throw Error(PT2P_ERR_PROTOCOL,
		            format("process %u has no longer the shared segment that it published", address.pid));
}

Ring PeerSegment::open_ring(uint32_t index, uint32_t &room)
{
	if (index >= shape_.ranks)
		throw Error(PT2P_ERR_PROTOCOL,
		            format("its shared segment has room for %u ranks of its node, and this rank is number %u "
		                   "there: the two count the ranks of the node differently",
		                   shape_.ranks, index));
	const size_t offset = ring_offset(shape_, index), stride = ring_bytes(shape_.slots, shape_.data_bytes);
	void *base;
	if (same_process_) {
		base = reinterpret_cast<unsigned char *>(header_) + offset;
	} else {
		ring_map_ = Mapping(fd_.get(), offset, stride);
		base = ring_map_.memory();
	}
	room = shape_.room;
	// Nobody else can take what this process may still use: what is never written need not be there.
	if (same_process_ && !has_limit(shared_fd_))
		room = shape_.data_bytes;
	else if (const int error = populate(base, ring_bytes(shape_.slots, room))) {
		// A kernel that cannot do that cannot let the ring grow later either.
		if (error == EINVAL)
			room = shape_.data_bytes;
		reserve(same_process_ ? shared_fd_ : fd_.get(), offset, ring_bytes(shape_.slots, room),
		        "a ring in a peer's segment");
	}
	fd_ = FileDescriptor();
	return Ring::at(base, shape_.slots);
}

bool PeerSegment::grow(const Ring &ring, uint32_t room) { return !populate(ring.head, ring_bytes(shape_.slots, room)); }

void PeerSegment::show(uint32_t index, bool open)
{
	facts_ = static_cast<uint16_t>(open ? facts_ | Entry::open
	                                    : (facts_ & Entry::open) | ((facts_ + 1) & Entry::failures_mask));
	directory(header_)[index].store(entry_of(secret_, index, facts_), std::memory_order_release);
}

} // namespace pt2p::shm
