// Memory for queue pairs, work requests, completions, events: what tests do with two queue pairs that are connected.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <infiniband/verbs.h>
#include <span>
#include <string>
#include <vector>

#include "tests/softhca/traffic/queue_pairs.hpp"

// Pages of their own, registered; zero at first.
class Memory {
public:
	Memory(ibv_pd *pd, size_t bytes, int access = all_access);
	~Memory();
	Memory(const Memory &) = delete;
	Memory &operator=(const Memory &) = delete;

	uint8_t *at(size_t offset = 0) { return bytes_ + offset; }
	uint64_t address(size_t offset = 0) const { return reinterpret_cast<uintptr_t>(bytes_) + offset; }
	size_t size() const { return size_; }
	uint32_t key() const { return mr_->rkey; }
	ibv_sge piece(size_t offset, size_t length) const
	{
		return {address(offset), static_cast<uint32_t>(length), mr_->lkey};
	}
	ibv_sge whole() const { return piece(0, size_); }
	// Another pattern for each seed.
	void fill(unsigned seed);
	void clear();
	// Before its time.
	void deregister();
	uint64_t &word(size_t offset) { return *reinterpret_cast<uint64_t *>(bytes_ + offset); }

private:
	uint8_t *bytes_;
	size_t size_;
	ibv_mr *mr_;
};
// The pattern that fill() writes.
uint8_t pattern(unsigned seed, size_t offset);
// Compares byte by byte; the offset of the first difference, or `bytes`.
size_t same(const uint8_t *one, const uint8_t *other, size_t bytes);

// Work requests. The pieces must live until they are posted.
ibv_send_wr request(ibv_wr_opcode opcode, std::span<ibv_sge> pieces, uint64_t id = 0,
                    unsigned flags = IBV_SEND_SIGNALED);
ibv_send_wr rdma(ibv_wr_opcode opcode, std::span<ibv_sge> pieces, uint64_t address, uint32_t key, uint64_t id = 0,
                 unsigned flags = IBV_SEND_SIGNALED);
void post(ibv_qp *qp, ibv_send_wr &request);
// SEND, WRITE or READ of one piece.
void send(ibv_qp *qp, ibv_sge piece, uint64_t id = 0, unsigned flags = IBV_SEND_SIGNALED);
void write(ibv_qp *qp, ibv_sge piece, uint64_t address, uint32_t key, uint64_t id = 0,
           unsigned flags = IBV_SEND_SIGNALED);
void read(ibv_qp *qp, ibv_sge piece, uint64_t address, uint32_t key, uint64_t id = 0,
          unsigned flags = IBV_SEND_SIGNALED);
void receive(ibv_qp *qp, std::initializer_list<ibv_sge> pieces, uint64_t id = 0);

// The next `n` completions, whatever they say; fails when they do not come for 20 seconds.
std::vector<ibv_wc> wait(ibv_cq *cq, size_t n);
// The next one, which must have that status.
ibv_wc expect(ibv_cq *cq, ibv_wc_status status = IBV_WC_SUCCESS);
// A message of one byte from one to the other and back, to see that both still work.
void exchange(Device &device, Endpoint &one, Endpoint &other);

// Fails when the queue pair does not come into error: at once, or soon, as the other side may just be hearing of it.
void check_broken(Endpoint &end);
// Both sides work again, from whatever state.
void check_alive(Device &device, Pair &pair);

// The next asynchronous event, which must be of that type, acknowledged; what it is about.
ibv_async_event next_event(ibv_context *context, ibv_event_type type);
// Whether there is none now.
bool no_event(ibv_context *context);

// Fault rules for the time of its life, in place of all others.
class FaultRules {
public:
	explicit FaultRules(const std::string &rules);
	~FaultRules();
	FaultRules(const FaultRules &) = delete;
	FaultRules &operator=(const FaultRules &) = delete;
};

// What softhca has counted in this process: for one queue pair, or with 0 for all devices.
uint64_t counter(const char *name, uint32_t qp = 0);
