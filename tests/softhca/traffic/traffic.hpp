// Memory, work requests, completions, events: what tests do with two connected queue pairs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <infiniband/verbs.h>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "tests/softhca/traffic/queue_pairs.hpp"

// Registered pages that hold nothing else. They are zero at first.
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
	// Writes a pattern that depends on the seed.
	void fill(unsigned seed);
	void clear();
	// Deregisters the memory before the destructor does.
	void deregister();
	uint64_t &word(size_t offset) { return *reinterpret_cast<uint64_t *>(bytes_ + offset); }

private:
	uint8_t *bytes_;
	size_t size_;
	ibv_mr *mr_;
};
// The pattern that fill() writes.
uint8_t pattern(unsigned seed, size_t offset);
// Returns the offset of the first byte that differs, or `bytes`.
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

// Returns the next `n` completions, whatever their status. Fails when none comes for 20 seconds.
std::vector<ibv_wc> wait(ibv_cq *cq, size_t n);
// Returns the next completion, which must have that status.
ibv_wc expect(ibv_cq *cq, ibv_wc_status status = IBV_WC_SUCCESS);
// Sends a message of one byte to the other and back, to see that both work.
void exchange(Device &device, Endpoint &one, Endpoint &other);

// Fails when the queue pair does not get into the state ERROR soon. It may take a moment until it hears of the other
// side's error.
void check_broken(Endpoint &end);
// Connects both sides again, from any state, and exchanges messages.
void check_alive(Device &device, Pair &pair);

// Acknowledges the next asynchronous event, which must be of that type, and returns it.
ibv_async_event next_event(ibv_context *context, ibv_event_type type);
// Whether no event is there now.
bool no_event(ibv_context *context);

// Replaces all fault rules. The destructor removes them.
class FaultRules {
public:
	explicit FaultRules(const std::string &rules);
	~FaultRules();
	FaultRules(const FaultRules &) = delete;
	FaultRules &operator=(const FaultRules &) = delete;
};

// A counter of softhca in this process: of one queue pair, or with 0 of all devices.
uint64_t counter(const char *name, uint32_t qp = 0);
