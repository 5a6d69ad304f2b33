// What one round of the fuzzer uses: queue pairs of all kinds, and memory with guards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <random>
#include <sys/mman.h>

namespace softhca {
class Wire;
}

namespace hostile {

[[noreturn]] void fail(const char *what);
void check(bool ok, const char *what);

// Seeded anew for each round.
extern std::minstd_rand engine;
inline uint32_t random_below(uint32_t n) { return n ? std::uniform_int_distribution<uint32_t>(0, n - 1)(engine) : 0; }
inline bool sometimes(uint32_t one_in) { return random_below(one_in) == 0; }
inline uint64_t random_word()
{
	return static_cast<uint64_t>(engine()) << 42 ^ static_cast<uint64_t>(engine()) << 21 ^ engine();
}
template <class T, size_t n>
T one_of(const T (&list)[n])
{
	return list[random_below(n)];
}

constexpr int all_access =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
constexpr size_t area = 1 << 16;
constexpr uint64_t dc_key = 0x1234;

// Memory that may be written, between memory that may not.
struct Arena {
	explicit Arena(ibv_pd *pd)
	{
		void *pages = mmap(nullptr, 4 * area, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		check(pages != MAP_FAILED, "no memory");
		bytes = static_cast<uint8_t *>(pages);
		for (size_t i = 0; i < 4 * area; ++i)
			bytes[i] = guard(i);
		open = ibv_reg_mr(pd, bytes + area, area, all_access);
		constexpr int reading = IBV_ACCESS_REMOTE_READ;
		constant = ibv_reg_mr(pd, bytes + 2 * area, area, reading);
		check(open && constant, "no memory regions");
	}
	static uint8_t guard(size_t i) { return static_cast<uint8_t>(i * 2654435761u >> 13); }
	void check_guards() const
	{
		for (size_t i = 0; i < 4 * area; ++i)
			if ((i < area || i >= 2 * area) && bytes[i] != guard(i))
				fail("memory that no key allows to write has changed");
	}
	// Mostly within the memory that may be written, sometimes across its end, sometimes anywhere.
	uint64_t address() const
	{
		if (sometimes(10))
			return random_word();
		return reinterpret_cast<uintptr_t>(bytes) + (sometimes(4) ? random_below(4 * area) : area + random_below(area));
	}
	uint32_t key() const
	{
		return sometimes(8) ? static_cast<uint32_t>(random_word()) : sometimes(6) ? constant->lkey : open->lkey;
	}
	uint8_t *bytes;
	ibv_mr *open, *constant;
};

// Everything that one round uses.
struct Round {
	Round(ibv_context *c, ibv_pd *p, Arena &a, bool patience = false);
	~Round();
	Round(const Round &) = delete;
	Round &operator=(const Round &) = delete;

	ibv_qp *create(ibv_qp_type type, ibv_srq *with);
	ibv_qp *create_dc(mlx5dv_dc_type type);
	void step(ibv_qp *qp, ibv_qp_state to, int mask);
	ibv_qp_attr &defaults();
	static constexpr int rtr = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_MIN_RNR_TIMER;
	static constexpr int rts =
	    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
	void connect(ibv_qp *qp, uint32_t destination);
	void start_datagrams();
	void start_dct();
	void start_dci();
	// Takes completions, and so gives the device time.
	void poll(unsigned times);
	void post_receives();

	static uint32_t hostile_number; // the queue pair that the process on the wire plays
	ibv_context *context;
	ibv_pd *pd;
	Arena &arena;
	const bool patient;
	const ibv_mtu mtu = sometimes(2) ? IBV_MTU_256 : IBV_MTU_4096;
	uint16_t lid;
	ibv_cq *cq;
	ibv_srq *srq;
	bool srq_spoiled = false; // its free list has been overwritten; libmlx5 would follow it
	ibv_ah *ah;
	ibv_qp *one, *other, *shared, *datagrams, *dct, *dci;
	ibv_qp_attr attributes{};
};

// Fills a piece of the send queue with work requests that are nearly right, and rings the doorbell. `address`: each
// names its destination.
void fuzz_send_queue(Round &round, ibv_qp *qp, bool address);
void fuzz_srq(Round &round);
// Sends packets that are nearly right to all queue pairs.
void fuzz_packets(Round &round, softhca::Wire &wire);

} // namespace hostile
