#include "transports/verbs/wireup.hpp"

#include <cerrno>
#include <cstring>

namespace pt2p::verbs {

namespace {

constexpr uint32_t qkey = 0x70743270;
constexpr uint64_t is_send = UINT64_C(1) << 32; // flag in a work request's id, above the slot

} // namespace

Wireup::Wireup(const Device &device, ibv_comp_channel *channel, int numa_node)
    : device_(device), memory_(device, 2 * slots * slot_bytes, IBV_ACCESS_LOCAL_WRITE, numa_node),
      cq_(ibv_create_cq(device.context.get(), 2 * slots, nullptr, channel, 0))
{
	if (!cq_)
		fail("ibv_create_cq", errno);
	ibv_qp_init_attr init{};
	init.send_cq = init.recv_cq = cq_.get();
	init.qp_type = IBV_QPT_UD;
	init.cap.max_send_wr = init.cap.max_recv_wr = slots;
	init.cap.max_send_sge = init.cap.max_recv_sge = 1;
	qp_.reset(ibv_create_qp(device.pd.get(), &init));
	if (!qp_)
		fail("ibv_create_qp (UD)", errno);
	if (const int error = start())
		fail("ibv_modify_qp (UD)", error);
}

int Wireup::start()
{
	const int error = bring_up(device_, qp_.get(), {.role = BringUp::Role::datagrams, .q_key = qkey});
	for (uint32_t slot = 0; !error && slot < slots; ++slot)
		post_receive(slot);
	return error;
}

// The queue pair was in error, and no connection could be made. Datagrams in flight are lost, as datagrams may be. The
// queue pair keeps its number.
void Wireup::start_again()
{
	broken_ = false;
	for (AhOwner &handle : handles_)
		handle.reset();
	done_ = sent_;
	if (set_state(qp_.get(), IBV_QPS_RESET) == 0) // else the device has failed
		start();
}

void Wireup::post_receive(uint32_t slot)
{
	ibv_sge piece{reinterpret_cast<uintptr_t>(memory_.at(slot * slot_bytes)), slot_bytes, memory_.key()};
	ibv_recv_wr request{slot, nullptr, &piece, 1}, *bad;
	ibv_post_recv(qp_.get(), &request, &bad);
}

void Wireup::send(const WireupAddress &to, WireupMessage &message, const Secret &secret)
{
	if (sent_ - done_ == slots)
		return; // as if it had been lost
	const uint32_t slot = sent_ % slots;
	ibv_ah_attr path = device_.path_to(to.port);
	handles_[slot].reset(ibv_create_ah(device_.pd.get(), &path));
	if (!handles_[slot])
		return;
	message.number = ++number_;
	message.proof = message.proof_by(secret);
	unsigned char *memory = memory_.at((slots + slot) * slot_bytes);
	std::memcpy(memory, &message, sizeof message);
	ibv_sge piece{reinterpret_cast<uintptr_t>(memory), sizeof message, memory_.key()};
	ibv_send_wr request{}, *bad;
	request.wr_id = is_send | slot;
	request.sg_list = &piece;
	request.num_sge = 1;
	request.opcode = IBV_WR_SEND;
	request.send_flags = IBV_SEND_SIGNALED;
	request.wr.ud.ah = handles_[slot].get();
	request.wr.ud.remote_qpn = to.number;
	request.wr.ud.remote_qkey = qkey;
	if (ibv_post_send(qp_.get(), &request, &bad) == 0)
		++sent_;
}

bool Wireup::take(WireupMessage &message)
{
	ibv_wc completion;
	while (ibv_poll_cq(cq_.get(), 1, &completion) > 0) {
		const auto slot = static_cast<uint32_t>(completion.wr_id);
		broken_ |= completion.status != IBV_WC_SUCCESS;
		if (completion.wr_id & is_send) {
			++done_;
			handles_[slot].reset();
			continue;
		}
		if (completion.status != IBV_WC_SUCCESS)
			continue;
		const bool whole = completion.byte_len == route_header + sizeof message;
		if (whole)
			std::memcpy(&message, memory_.at(slot * slot_bytes + route_header), sizeof message);
		post_receive(slot);
		if (whole)
			return true;
		++strange_;
	}
	if (broken_)
		start_again();
	return false;
}

} // namespace pt2p::verbs
