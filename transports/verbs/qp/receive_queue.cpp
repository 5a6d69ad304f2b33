#include "transports/verbs/qp/receive_queue.hpp"

#include <algorithm>
#include <cerrno>
#include <vector>

#include "base/config/config.hpp"

namespace pt2p::verbs {

namespace {

SrqOwner make_srq(const Device &device, const Config &config)
{
	ibv_srq_init_attr init{};
	init.attr.max_wr = static_cast<uint32_t>(config.net_receives);
	init.attr.max_sge = 1;
	SrqOwner srq(ibv_create_srq(device.pd.get(), &init));
	if (!srq)
		fail_queue(device, "ibv_create_srq", errno, "PT2P_NET_RECEIVES", config.net_receives, device.limits.max_srq_wr);
	return srq;
}

} // namespace

// One buffer more than receives: see mlx5::SharedReceiveQueue.
ReceiveQueue::ReceiveQueue(const Device &device, const Config &config, bool direct, int numa_node)
    : buffer_bytes_(config.net_message_bytes), srq_(make_srq(device, config)),
      buffers_(device, static_cast<size_t>(config.net_receives + 1) * buffer_bytes_, IBV_ACCESS_LOCAL_WRITE, numa_node)
{
	const auto count = static_cast<size_t>(config.net_receives);
	if (direct) {
		direct_.emplace(srq(), static_cast<uint32_t>(count), buffers_.at(0), static_cast<uint32_t>(buffer_bytes_),
		                buffers_.key());
		return;
	}
	std::vector<uint64_t> all(count);
	for (size_t i = 0; i < count; ++i)
		all[i] = i;
	for (size_t at = 0; at < count; at += max_batch)
		post(&all[at], static_cast<unsigned>(std::min<size_t>(max_batch, count - at)));
}

void ReceiveQueue::post(const uint64_t *numbers, unsigned count)
{
	ibv_recv_wr requests[max_batch];
	ibv_sge pieces[max_batch];
	for (unsigned i = 0; i < count; ++i) {
		pieces[i] = {reinterpret_cast<uintptr_t>(buffer(numbers[i])), static_cast<uint32_t>(buffer_bytes_),
		             buffers_.key()};
		requests[i] = {numbers[i], i + 1 < count ? &requests[i + 1] : nullptr, &pieces[i], 1};
	}
	ibv_recv_wr *bad;
	if (count)
		ibv_post_srq_recv(srq_.get(), requests, &bad);
}

} // namespace pt2p::verbs
