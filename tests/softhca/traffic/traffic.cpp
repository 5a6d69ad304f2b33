#include "tests/softhca/traffic/traffic.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

#include "softhca/softhca.h"

namespace {

using namespace std::chrono_literals;
constexpr auto patience = 20s;

} // namespace

Memory::Memory(ibv_pd *pd, size_t bytes, int access) : size_(bytes)
{
	void *pages = mmap(nullptr, size_ ? size_ : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REQUIRE(pages != MAP_FAILED);
	bytes_ = static_cast<uint8_t *>(pages);
	mr_ = ibv_reg_mr(pd, bytes_, size_, access);
	REQUIRE(mr_);
}

Memory::~Memory()
{
	if (mr_)
		CHECK(ibv_dereg_mr(mr_) == 0);
	munmap(bytes_, size_ ? size_ : 1);
}

void Memory::deregister()
{
	CHECK(ibv_dereg_mr(mr_) == 0);
	mr_ = nullptr;
}

uint8_t pattern(unsigned seed, size_t offset)
{
	const uint32_t mixed = (static_cast<uint32_t>(offset) + seed * 7919u + 1) * 2654435761u;
	return static_cast<uint8_t>(mixed >> 24);
}

void Memory::fill(unsigned seed)
{
	for (size_t i = 0; i < size_; ++i)
		bytes_[i] = pattern(seed, i);
}

void Memory::clear() { std::memset(bytes_, 0, size_); }

size_t same(const uint8_t *one, const uint8_t *other, size_t bytes)
{
	for (size_t i = 0; i < bytes; ++i)
		if (one[i] != other[i])
			return i;
	return bytes;
}

ibv_send_wr request(ibv_wr_opcode opcode, std::span<ibv_sge> pieces, uint64_t id, unsigned flags)
{
	ibv_send_wr wr{};
	wr.wr_id = id;
	wr.sg_list = pieces.data();
	wr.num_sge = static_cast<int>(pieces.size());
	wr.opcode = opcode;
	wr.send_flags = flags;
	return wr;
}

ibv_send_wr rdma(ibv_wr_opcode opcode, std::span<ibv_sge> pieces, uint64_t address, uint32_t key, uint64_t id,
                 unsigned flags)
{
	ibv_send_wr wr = request(opcode, pieces, id, flags);
	wr.wr.rdma.remote_addr = address;
	wr.wr.rdma.rkey = key;
	return wr;
}

void post(ibv_qp *qp, ibv_send_wr &wr)
{
	ibv_send_wr *bad;
	REQUIRE(ibv_post_send(qp, &wr, &bad) == 0);
}

void send(ibv_qp *qp, ibv_sge piece, uint64_t id, unsigned flags)
{
	ibv_send_wr wr = request(IBV_WR_SEND, {&piece, 1}, id, flags);
	post(qp, wr);
}

void write(ibv_qp *qp, ibv_sge piece, uint64_t address, uint32_t key, uint64_t id, unsigned flags)
{
	ibv_send_wr wr = rdma(IBV_WR_RDMA_WRITE, {&piece, 1}, address, key, id, flags);
	post(qp, wr);
}

void read(ibv_qp *qp, ibv_sge piece, uint64_t address, uint32_t key, uint64_t id, unsigned flags)
{
	ibv_send_wr wr = rdma(IBV_WR_RDMA_READ, {&piece, 1}, address, key, id, flags);
	post(qp, wr);
}

void receive(ibv_qp *qp, std::initializer_list<ibv_sge> pieces, uint64_t id)
{
	std::vector<ibv_sge> copy(pieces);
	ibv_recv_wr wr{}, *bad;
	wr.wr_id = id;
	wr.sg_list = copy.data();
	wr.num_sge = static_cast<int>(copy.size());
	REQUIRE(ibv_post_recv(qp, &wr, &bad) == 0);
}

std::vector<ibv_wc> wait(ibv_cq *cq, size_t n)
{
	std::vector<ibv_wc> all;
	auto until = std::chrono::steady_clock::now() + patience;
	while (all.size() < n) {
		ibv_wc some[16];
		const int got = ibv_poll_cq(cq, static_cast<int>(std::min<size_t>(16, n - all.size())), some);
		REQUIRE(got >= 0);
		all.insert(all.end(), some, some + got);
		const auto now = std::chrono::steady_clock::now();
		if (got)
			until = now + patience;
		else if (now > until)
			FAIL("only " << all.size() << " completions of " << n);
	}
	return all;
}

ibv_wc expect(ibv_cq *cq, ibv_wc_status status)
{
	const ibv_wc wc = wait(cq, 1)[0];
	INFO(ibv_wc_status_str(wc.status) << " instead of " << ibv_wc_status_str(status));
	REQUIRE(wc.status == status);
	return wc;
}

void exchange(Device &device, Endpoint &one, Endpoint &other)
{
	Memory memory(device.pd, 4096);
	Endpoint *sides[] = {&one, &other};
	for (int i = 0; i < 2; ++i) {
		memory.at()[0] = static_cast<uint8_t>(i + 1);
		receive(sides[1 - i]->qp, {memory.piece(64, 1)});
		send(sides[i]->qp, memory.piece(0, 1));
		expect(sides[i]->send_cq);
		expect(sides[1 - i]->receive_cq);
		REQUIRE(memory.at()[64] == i + 1);
	}
}

void check_broken(Endpoint &end)
{
	const auto until = std::chrono::steady_clock::now() + patience;
	while (end.state() != IBV_QPS_ERR && std::chrono::steady_clock::now() < until) {
		ibv_wc wc;
		REQUIRE(ibv_poll_cq(end.send_cq, 1, &wc) == 0);
	}
	CHECK(end.state() == IBV_QPS_ERR);
}

void check_alive(Device &device, Pair &pair)
{
	reconnect(pair.a, pair.b);
	exchange(device, pair.a, pair.b);
}

ibv_async_event next_event(ibv_context *context, ibv_event_type type)
{
	REQUIRE(fcntl(context->async_fd, F_SETFL, O_NONBLOCK) == 0);
	pollfd ready{context->async_fd, POLLIN, 0};
	REQUIRE(poll(&ready, 1, static_cast<int>(std::chrono::milliseconds(patience).count())) == 1);
	ibv_async_event event{};
	REQUIRE(ibv_get_async_event(context, &event) == 0);
	INFO(ibv_event_type_str(event.event_type) << " instead of " << ibv_event_type_str(type));
	CHECK(event.event_type == type);
	ibv_ack_async_event(&event);
	return event;
}

bool no_event(ibv_context *context)
{
	pollfd ready{context->async_fd, POLLIN, 0};
	return poll(&ready, 1, 0) == 0;
}

FaultRules::FaultRules(const std::string &rules)
{
	REQUIRE(softhca_fault);
	char why[256] = "";
	const int result = softhca_fault(("clear;" + rules).c_str(), why, sizeof why);
	INFO(why);
	REQUIRE(result == 0);
}

FaultRules::~FaultRules() { softhca_fault("clear", nullptr, 0); }

uint64_t counter(const char *name, uint32_t qp)
{
	REQUIRE(softhca_counter);
	uint64_t value = 0;
	const int result = softhca_counter(name, -1, qp, &value);
	INFO(name);
	REQUIRE(result == 0);
	return value;
}
