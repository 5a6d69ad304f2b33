#include "transports/verbs/device/measure.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "base/clock.hpp"
#include "base/report/report.hpp"

namespace pt2p::verbs {

namespace {

constexpr unsigned rounds = 25;

// A reliable connection of a queue pair with itself.
class Loop {
public:
	Loop(const Device &device, size_t bytes)
	    : memory_(device, 2 * bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE, -1), bytes_(bytes),
	      cq_(ibv_create_cq(device.context.get(), 2, nullptr, nullptr, 0))
	{
		if (!cq_)
			fail("ibv_create_cq", errno);
		ibv_qp_init_attr init{};
		init.qp_type = IBV_QPT_RC;
		init.send_cq = init.recv_cq = cq_.get();
		init.cap.max_send_wr = init.cap.max_recv_wr = init.cap.max_send_sge = init.cap.max_recv_sge = 1;
		qp_.reset(ibv_create_qp(device.pd.get(), &init));
		if (!qp_)
			fail("ibv_create_qp", errno);
		if (const int error = bring_up(device, qp_.get(),
		                               {.role = BringUp::Role::connection,
		                                .port = device.address,
		                                .number = qp_->qp_num,
		                                .timeout = 14,
		                                .retries = 6}))
			fail("ibv_modify_qp (loop)", error);
	}

	unsigned char *source() const { return memory_.at(0); }
	ibv_sge source_piece(size_t length) const
	{
		return {reinterpret_cast<uintptr_t>(source()), static_cast<uint32_t>(length), memory_.key()};
	}
	// Writes the piece and waits for the completion.
	void write(ibv_sge piece)
	{
		ibv_send_wr request{}, *bad;
		request.sg_list = &piece;
		request.num_sge = 1;
		request.opcode = IBV_WR_RDMA_WRITE;
		request.send_flags = IBV_SEND_SIGNALED;
		request.wr.rdma.remote_addr = reinterpret_cast<uintptr_t>(memory_.at(bytes_));
		request.wr.rdma.rkey = memory_.remote_key();
		if (const int error = ibv_post_send(qp_.get(), &request, &bad))
			fail("ibv_post_send (loop)", error);
		constexpr int64_t longest = 2'000'000'000;
		const int64_t end = now_ns() + longest;
		ibv_wc completion;
		int n;
		while ((n = ibv_poll_cq(cq_.get(), 1, &completion)) == 0)
			if (now_ns() > end)
				throw Error(PT2P_ERR_SYSTEM, "the device does not complete a write to itself");
		if (n < 0 || completion.status != IBV_WC_SUCCESS)
			throw Error(PT2P_ERR_SYSTEM,
			            format("a write of the device to itself: %s", ibv_wc_status_str(completion.status)));
	}

private:
	RegisteredMemory memory_; // source, then destination
	const size_t bytes_;
	CqOwner cq_;
	QpOwner qp_;
};

template <class Once>
int64_t median_time(const Once &once)
{
	std::array<int64_t, rounds> times;
	for (int64_t &time : times) {
		const int64_t start = now_ns();
		once();
		time = now_ns() - start;
	}
	std::nth_element(times.begin(), times.begin() + rounds / 2, times.end());
	return times[rounds / 2];
}

} // namespace

size_t measure_device_memory(const Device &device, DeviceMemory &memory, size_t max_bytes)
{
	Loop loop(device, max_bytes);
	const std::vector<unsigned char> payload(max_bytes, 0x5a);
	const uint32_t cell = memory.take(memory.max_bytes());
	size_t best = 0;
	for (size_t length = 64; length <= max_bytes; length *= 2) {
		const Piece piece{payload.data(), length};
		const int64_t on_device = median_time([&] {
			memory.write(cell, {&piece, 1});
			loop.write({memory.address(cell), static_cast<uint32_t>(length), memory.key()});
		});
		const int64_t on_host = median_time([&] {
			std::memcpy(loop.source(), payload.data(), length);
			loop.write(loop.source_piece(length));
		});
		if (on_device >= on_host)
			break;
		best = length;
	}
	memory.give(cell);
	return best;
}

} // namespace pt2p::verbs
