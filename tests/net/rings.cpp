// The device's queues, written and read without libmlx5.
#include <poll.h>
#include <vector>

#include "base/report/report.hpp"
#include "tests/net/job.hpp"
#include "transports/verbs/mlx5/queues.hpp"
#include "transports/verbs/net_transport.hpp"
#include "transports/verbs/qp/completions.hpp"

using namespace pt2p::verbs;

namespace {

const Device &device_of(const net::Job &job)
{
	for (auto &transport : job.ctx[0]->router->transports())
		if (!std::strcmp(transport->table().name, "rc"))
			return static_cast<NetTransport &>(*transport).device();
	FAIL("there is no rc");
	std::abort();
}

constexpr uint32_t receives = 15, message_bytes = 256, depth = 16;

// A queue pair that is connected to itself.
struct Loop {
	explicit Loop(const Device &d)
	    : device(d), completions(d, true, receives, depth),
	      memory(d, (receives + 1) * message_bytes, IBV_ACCESS_LOCAL_WRITE, -1)
	{
		ibv_srq_init_attr receiver{};
		receiver.attr.max_wr = receives;
		receiver.attr.max_sge = 1;
		srq.reset(ibv_create_srq(d.pd.get(), &receiver));
		REQUIRE(srq);
		in = std::make_unique<mlx5::SharedReceiveQueue>(srq.get(), receives, memory.at(0), message_bytes, memory.key());
		ibv_qp_init_attr_ex init{};
		init.qp_type = IBV_QPT_RC;
		init.comp_mask = IBV_QP_INIT_ATTR_PD;
		init.pd = d.domain;
		init.send_cq = init.recv_cq = completions.with_room();
		init.srq = srq.get();
		init.cap.max_send_wr = depth;
		init.cap.max_send_sge = 1;
		init.cap.max_inline_data = 160;
		qp.reset(ibv_create_qp_ex(d.context.get(), &init));
		REQUIRE(qp);
		out = std::make_unique<mlx5::SendWorkQueue>(qp.get(), registers, true);
		start();
	}
	void start() const
	{
		REQUIRE(bring_up(device, qp.get(),
		                 {.role = BringUp::Role::connection,
		                  .port = device.address,
		                  .number = qp->qp_num,
		                  .timeout = 14,
		                  .retries = 7}) == 0);
	}
	void stop() const { REQUIRE(set_state(qp.get(), IBV_QPS_RESET) == 0); }
	mlx5::CqBuffer &ring() { return *completions.begin()->direct; }

	// Encodes a SEND of so many bytes, each of this value.
	uint16_t encode(uint32_t length, unsigned char value, bool signalled = true) const
	{
		mlx5::WqeEncoder wqe(out->begin());
		std::memset(wqe.inline_payload(length), value, length);
		return out->end(MLX5_OPCODE_SEND, signalled, wqe.bytes());
	}
	// The next completion. Null: there is none.
	const mlx5_cqe64 *next()
	{
		uint8_t kind;
		return ring().next(kind);
	}
	// Waits for it. Fails after a while.
	const mlx5_cqe64 *wait()
	{
		for (int i = 0; i < 20'000; ++i) {
			if (const mlx5_cqe64 *c = next())
				return c;
			pollfd nobody{-1, 0, 0};
			poll(&nobody, 1, i < 10'000 ? 0 : 1);
		}
		FAIL("nothing was completed");
		return nullptr;
	}

	const Device &device;
	Completions completions;
	RegisteredMemory memory;
	SrqOwner srq;
	std::vector<std::unique_ptr<mlx5::DoorbellRegister>> registers;
	QpOwner qp;
	std::unique_ptr<mlx5::SendWorkQueue> out;
	std::unique_ptr<mlx5::SharedReceiveQueue> in;
};

} // namespace

TEST_CASE("WQEs of all sizes go round a send queue many times, alone and in batches")
{
	net::Job job("rc");
	Loop loop(device_of(job));
	uint32_t sent = 0;
	std::vector<uint16_t> numbers;
	std::vector<uint32_t> lengths;
	for (uint32_t round = 0; round < 200; ++round) {
		const uint32_t batch = 1 + round % 5;
		numbers.clear();
		lengths.clear();
		for (uint32_t i = 0; i < batch; ++i, ++sent) {
			lengths.push_back(1 + sent * 7 % 160); // one WQEBB to three
			numbers.push_back(loop.encode(lengths.back(), static_cast<unsigned char>(sent), i + 1 == batch));
		}
		loop.out->ring_doorbell(batch == 1);
		uint32_t received = 0;
		for (bool complete = false; !complete || received < batch;) {
			const mlx5_cqe64 &c = *loop.wait();
			REQUIRE(loop.ring().has_more_than(0));
			REQUIRE(!loop.ring().has_more_than(batch - received + !complete)); // all that are to come
			if (mlx5::opcode(c.op_own) == MLX5_CQE_REQ) {
				REQUIRE(mlx5::queue_pair(c) == loop.qp->qp_num);
				REQUIRE(be16toh(c.wqe_counter) == numbers.back());
				complete = true;
			} else {
				REQUIRE(mlx5::opcode(c.op_own) == MLX5_CQE_RESP_SEND);
				REQUIRE(be32toh(c.byte_cnt) == lengths[received]);
				const unsigned char *message = mlx5::scattered(c, c.op_own);
				message = message ? message : loop.memory.at(size_t{be16toh(c.wqe_counter)} * message_bytes);
				const std::vector<unsigned char> wanted(lengths[received],
				                                        static_cast<unsigned char>(sent - batch + received));
				REQUIRE(std::memcmp(message, wanted.data(), wanted.size()) == 0);
				loop.in->give(c.wqe_counter);
				++received;
			}
			loop.ring().pop();
		}
		loop.ring().publish();
		loop.in->publish();
	}
}

TEST_CASE("completions of a queue pair that was reset are skipped, and it starts afresh")
{
	net::Job job("rc");
	Loop loop(device_of(job));
	for (int round = 0; round < 3; ++round) {
		for (unsigned char i = 0; i < 4; ++i)
			REQUIRE(loop.encode(8, i) == i);
		loop.out->ring_doorbell(false);
		// Completions of four sends and four receives are there and not read.
		uint64_t cqes = 0;
		for (int i = 0; i < 2000 && cqes < 8u * static_cast<unsigned>(round + 1); ++i) {
			REQUIRE(softhca_counter("cqes", 0, loop.qp->qp_num, &cqes) == 0);
			pollfd nobody{-1, 0, 0};
			poll(&nobody, 1, 1);
		}
		loop.stop();
		loop.out->reset();
		loop.completions.forget(loop.qp->send_cq, loop.qp->qp_num);
		unsigned received = 0, passed = 0;
		while (const mlx5_cqe64 *c = loop.next()) {
			if (mlx5::opcode(c->op_own) == MLX5_CQE_RESP_SEND) {
				++received;
				loop.in->give(c->wqe_counter);
			} else {
				REQUIRE(mlx5::opcode(c->op_own) == mlx5::CqBuffer::skipped);
				++passed;
			}
			loop.ring().pop();
		}
		loop.ring().publish();
		loop.in->publish();
		REQUIRE(received == 4);
		REQUIRE(passed == 4);
		loop.start();
	}
}

TEST_CASE("arming a completion queue gives one event")
{
	net::Job job("rc");
	Loop loop(device_of(job));
	pollfd channel{loop.completions.fd(), POLLIN, 0};
	for (unsigned char i = 0; i < 6; ++i) {
		REQUIRE(poll(&channel, 1, 0) == 0);
		REQUIRE(loop.completions.arm());
		REQUIRE(loop.completions.armed());
		loop.encode(8, i);
		loop.out->ring_doorbell(true);
		REQUIRE(poll(&channel, 1, 5000) == 1);
		loop.completions.take_events();
		REQUIRE(!loop.completions.armed());
		for (int n = 0; n < 2; ++n) { // of the send and of the receive
			const mlx5_cqe64 &c = *loop.wait();
			if (mlx5::opcode(c.op_own) == MLX5_CQE_RESP_SEND)
				loop.in->give(c.wqe_counter);
			loop.ring().pop();
		}
		loop.ring().publish();
		loop.in->publish();
	}
}
