#include "message/request/details.hpp"

namespace pt2p {

Details *DetailsPool::take_list(const pt2p_iovec_t *segments, size_t count)
{
	Details *d = take();
	d->callback_only = false;
	take_buffer(d->list, count * sizeof(Segment));
	auto *list = static_cast<Segment *>(d->list.memory);
	size_t n = 0;
	for (size_t i = 0; i < count; ++i) {
		const auto address = reinterpret_cast<uint64_t>(segments[i].base);
		if (!segments[i].length)
			continue;
		if (n && list[n - 1].address + list[n - 1].length == address)
			list[n - 1].length += segments[i].length;
		else
			list[n++] = {address, segments[i].length, 0};
	}
	d->count = n;
	return d;
}

} // namespace pt2p
