#include "transports/shm/segment.hpp"

#include <bit>
#include <cerrno>
#include <cstring>
#include <unistd.h>

#include "config/config.hpp"
#include "job/topology.hpp"
#include "report/report.hpp"

namespace pt2p::shm {

namespace {

uint32_t power_of_two(uint64_t n)
{
	uint32_t p = 1;
	while (p < n)
		p *= 2;
	return p;
}

// The fixed part of an address blob; the node identity follows.
struct Packed {
	uint64_t magic;
	uint32_t version, pid;
	int32_t fd;
	uint32_t unused;
	uint64_t start_time, base, probe, probe_value;
};

} // namespace

std::string Address::pack() const
{
	const Packed p{segment_magic, layout_version, pid, fd, 0, start_time, base, probe, probe_value};
	return std::string(reinterpret_cast<const char *>(&p), sizeof p) + node_id;
}

bool Address::unpack(std::string_view blob, Address &address)
{
	Packed p;
	if (blob.size() < sizeof p)
		return false;
	std::memcpy(&p, blob.data(), sizeof p);
	if (p.magic != segment_magic || p.version != layout_version)
		return false;
	address.pid = p.pid;
	address.fd = p.fd;
	address.start_time = p.start_time;
	address.base = p.base;
	address.probe = p.probe;
	address.probe_value = p.probe_value;
	address.node_id = blob.substr(sizeof p);
	return true;
}

uint32_t OwnSegment::data_bytes(const Config &config) { return power_of_two(config.shm_ring_bytes); }

OwnSegment::OwnSegment(const Config &config, uint32_t ranks, int numa_node)
    : ranks_(ranks), slots_(power_of_two(static_cast<uint64_t>(config.shm_ring_slots))),
      data_bytes_(data_bytes(config)), fd_(make_shared_file(config.shm_backing, "pt2p-segment"))
{
	const size_t rings_offset = header_bytes(ranks), stride = ring_bytes(slots_, data_bytes_);
	const size_t total = rings_offset + ranks * stride;
	reserve(fd_.get(), 0, rings_offset, "the segment of this rank");
	if (ftruncate(fd_.get(), static_cast<off_t>(total)) != 0)
		throw Error(PT2P_ERR_SHARED_MEMORY,
		            format("cannot give the shared segment its size of %zu bytes: %s", total, errno_text(errno).c_str()));
	map_ = Mapping(fd_.get(), 0, total);
	place_on_numa_node(map_.memory(), total, numa_node);
	SegmentHeader *h = header();
	h->version = layout_version;
	h->ranks = ranks;
	h->slots = slots_;
	h->data_bytes = data_bytes_;
	h->rings_offset = rings_offset;
	h->ring_stride = stride;
	h->state = state_alive;
	h->magic = segment_magic;
}

Ring OwnSegment::ring(uint32_t n) const
{
	const size_t offset = header_bytes(ranks_) + n * ring_bytes(slots_, data_bytes_);
	return Ring::at(static_cast<unsigned char *>(map_.memory()) + offset, slots_);
}

PeerSegment::PeerSegment(const Address &address)
{
	if (address.pid == static_cast<uint32_t>(getpid())) {
		same_process_ = true;
		shared_fd_ = address.fd;
		header_ = reinterpret_cast<SegmentHeader *>(address.base);
		ranks_ = header_->ranks;
		slots_ = header_->slots;
		data_bytes_ = header_->data_bytes;
		return;
	}
	fd_ = open_file_of(address.pid, address.start_time, address.fd);
	// The first page tells how large the header is.
	Mapping first(fd_.get(), 0, page);
	const auto *h = static_cast<const SegmentHeader *>(first.memory());
	ranks_ = h->ranks;
	slots_ = h->slots;
	data_bytes_ = h->data_bytes;
	if (h->magic != segment_magic || h->version != layout_version || ranks_ > 1u << 20 ||
	    h->rings_offset != header_bytes(ranks_) || h->ring_stride != ring_bytes(slots_, data_bytes_) ||
	    !std::has_single_bit(slots_) || !std::has_single_bit(data_bytes_))
		throw Error(PT2P_ERR_PROTOCOL, format("the shared segment of process %u is not one of this version", address.pid));
	header_map_ = Mapping(fd_.get(), 0, header_bytes(ranks_));
	header_ = static_cast<SegmentHeader *>(header_map_.memory());
}

Ring PeerSegment::open_ring(uint32_t index)
{
	SegmentHeader *h = header_;
	if (index >= ranks_)
		throw Error(PT2P_ERR_PROTOCOL, format("the peer's segment has room for %u ranks, this is number %u", ranks_, index));
	const uint32_t n = h->rings_taken.fetch_add(1, std::memory_order_relaxed);
	if (n >= ranks_)
		throw Error(PT2P_ERR_PROTOCOL, "the peer's segment has no ring left");
	const size_t stride = ring_bytes(slots_, data_bytes_), offset = header_bytes(ranks_) + n * stride;
	Ring ring;
	if (same_process_) {
		reserve(shared_fd_, offset, stride, "a ring in a peer's segment");
		ring = Ring::at(reinterpret_cast<unsigned char *>(h) + offset, slots_);
	} else {
		reserve(fd_.get(), offset, stride, "a ring in a peer's segment");
		ring_map_ = Mapping(fd_.get(), offset, stride);
		ring = Ring::at(ring_map_.memory(), slots_);
		fd_ = FileDescriptor();
	}
	// The reader polls it only once it has seen the doorbell.
	ring.head->attention.store(1, std::memory_order_relaxed);
	directory(h)[index].store(n + 1, std::memory_order_release);
	return ring;
}

} // namespace pt2p::shm
