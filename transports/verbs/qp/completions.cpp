#include "transports/verbs/qp/completions.hpp"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>

#include "base/report/report.hpp"

namespace pt2p::verbs {

namespace {

constexpr uint32_t first_capacity = 8; // send queues

CqExOwner make_cq(const Device &device, uint32_t entries, ibv_comp_channel *channel)
{
	ibv_cq_init_attr_ex init{};
	init.cqe = entries;
	init.channel = channel;
	init.wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM;
	if (device.domain != device.pd.get()) {
		init.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
		init.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
		init.parent_domain = device.domain;
		if (ibv_cq_ex *cq = ibv_create_cq_ex(device.context.get(), &init))
			return CqExOwner(cq);
		init.comp_mask = init.flags = 0;
	}
	CqExOwner cq(ibv_create_cq_ex(device.context.get(), &init));
	if (!cq)
		fail("ibv_create_cq_ex", errno);
	return cq;
}

ChannelOwner make_channel(const Device &device)
{
	ChannelOwner channel(ibv_create_comp_channel(device.context.get()));
	if (channel && fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK) != 0)
		channel.reset();
	return channel;
}

} // namespace

Completions::Completions(const Device &device, bool direct, uint32_t receives, uint32_t depth)
    : device_(device), direct_(direct), receives_(receives), depth_(depth), channel_(make_channel(device))
{
	make(first_capacity);
}

void Completions::make(uint32_t capacity)
{
	const uint64_t max = static_cast<uint64_t>(device_.limits.max_cqe);
	if (receives_ + uint64_t{depth_} * capacity > max)
		capacity = max > receives_ ? static_cast<uint32_t>((max - receives_) / depth_) : 0;
	if (!capacity)
		throw Error(PT2P_ERR_TUNABLE,
		            format("PT2P_NET_SEND_DEPTH=%u and PT2P_NET_RECEIVES=%u are together more than the %d "
		                   "completions that a queue of %s has room for: make one of them smaller",
		                   depth_, receives_, device_.limits.max_cqe, device_.name.c_str()));
	CompletionQueue queue{make_cq(device_, receives_ + depth_ * capacity, channel_.get()), nullptr, capacity, 0};
	if (direct_)
		queue.direct = std::make_unique<mlx5::CqBuffer>(queue.cq());
	queues_.push_back(std::move(queue));
	armed_ = false;
}

ibv_cq *Completions::with_room()
{
	const auto found = std::find_if(queues_.begin(), queues_.end(), [](const auto &q) { return q.used < q.capacity; });
	if (found != queues_.end())
		return found->cq();
	make(2 * queues_.back().capacity);
	return queues_.back().cq();
}

CompletionQueue &Completions::of(const ibv_cq *cq)
{
	return *std::find_if(queues_.begin(), queues_.end(), [cq](const auto &q) { return q.cq() == cq; });
}

void Completions::forget(const ibv_cq *cq, uint32_t number)
{
	if (const CompletionQueue &queue = of(cq); queue.direct) // libibverbs does this itself
		queue.direct->skip(number);
}

bool Completions::arm()
{
	if (!channel_)
		return false;
	for (CompletionQueue &q : queues_) {
		if (q.direct)
			q.direct->arm();
		else if (ibv_req_notify_cq(q.cq(), 0) != 0)
			return false;
	}
	return armed_ = true;
}

void Completions::take_events()
{
	ibv_cq *of;
	void *context;
	while (channel_ && ibv_get_cq_event(channel_.get(), &of, &context) == 0) {
		ibv_ack_cq_events(of, 1);
		for (CompletionQueue &q : queues_)
			if (q.direct && q.cq() == of)
				q.direct->event_taken();
		armed_ = false;
	}
}

} // namespace pt2p::verbs
