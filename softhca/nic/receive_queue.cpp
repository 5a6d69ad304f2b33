// Receive WQEs, of a queue pair's own queue and of shared ones.
#include <cstring>
#include <endian.h>
#include <rdma/ib_user_verbs.h>

#include "softhca/kernel/context.hpp"

namespace softhca {

void parse_receive(std::span<const uint8_t> segments, Receive &receive)
{
	constexpr size_t segment = 16;
	constexpr uint32_t end_key = 0x100; // ends a list that is shorter than the WQE
	receive.segment_count = 0;
	receive.length = 0;
	for (size_t at = 0; at + segment <= segments.size() && receive.segment_count < max_receive_segments;
	     at += segment) {
		uint32_t length, key;
		uint64_t address;
		std::memcpy(&length, &segments[at], sizeof length);
		std::memcpy(&key, &segments[at + 4], sizeof key);
		std::memcpy(&address, &segments[at + 8], sizeof address);
		if (be32toh(key) == end_key)
			break;
		// The top bit would mean inline data, which a receive cannot have.
		const DataSegment data{be64toh(address), be32toh(length) & 0x7fffffff, be32toh(key), false};
		receive.segments[receive.segment_count++] = data;
		receive.length += data.length;
	}
}

uint16_t Srq::available() const
{
	return static_cast<uint16_t>(be32toh(__atomic_load_n(doorbell, __ATOMIC_ACQUIRE)) - taken);
}

bool Srq::take(Receive &receive)
{
	if (!available())
		return false;
	const size_t index = next & (entries - 1);
	const uint8_t *wqe = buffer + index * stride;
	constexpr size_t link = 16; // bytes before the data segments; the next index is at 2
	parse_receive({wqe + link, stride - link}, receive);
	receive.index = static_cast<uint16_t>(index);
	uint16_t follower;
	std::memcpy(&follower, wqe + 2, sizeof follower);
	next = be16toh(follower);
	++taken;
	check_limit();
	return true;
}

void Srq::check_limit()
{
	if (!limit || available() >= limit)
		return;
	limit = 0; // one event for each time that it was asked for
	async_events += context->report(Event::srq_limit_reached, user_handle);
}

} // namespace softhca
