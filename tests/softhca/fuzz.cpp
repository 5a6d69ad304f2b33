// Entries and packets that no program would make: the rings of queue pairs are filled with anything, and a second process
// on the wire (of this program, which the device cannot know) sends anything to them. The device has to survive it, to
// touch no memory but what keys allow, and to serve a new pair of queue pairs afterwards.
//
//   fuzz [SEED [SECONDS]]    below softhca; the same seed does the same, but for what depends on time
//   fuzz --joins N           only takes so many places on the wire, one after the other
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <endian.h>
#include <infiniband/mlx5dv.h>
#include <infiniband/verbs.h>
#include <random>
#include <sys/mman.h>
#include <vector>

#include "softhca/nic/packet.hpp"
#include "softhca/wire/wire.hpp"

namespace {

using namespace softhca;
using Clock = std::chrono::steady_clock;

[[noreturn]] void fail(const char *what)
{
	std::fprintf(stderr, "fuzz: %s\n", what);
	std::abort();
}
void check(bool ok, const char *what)
{
	if (!ok)
		fail(what);
}

std::minstd_rand engine;
uint32_t random_below(uint32_t n) { return n ? std::uniform_int_distribution<uint32_t>(0, n - 1)(engine) : 0; }
bool sometimes(uint32_t one_in) { return random_below(one_in) == 0; }
uint64_t random_word() { return static_cast<uint64_t>(engine()) << 42 ^ static_cast<uint64_t>(engine()) << 21 ^ engine(); }
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
	// Mostly where it may be, sometimes across its end, sometimes anywhere.
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
	Round(ibv_context *c, ibv_pd *p, Arena &a, bool patience = false) : context(c), pd(p), arena(a), patient(patience)
	{
		ibv_port_attr port;
		check(ibv_query_port(c, 1, &port) == 0, "no port");
		lid = port.lid;
		cq = ibv_create_cq(c, 4095, nullptr, nullptr, 0);
		check(cq, "no completion queue");
		ibv_srq_init_attr attributes{};
		attributes.attr.max_wr = 64;
		attributes.attr.max_sge = 2;
		srq = ibv_create_srq(p, &attributes);
		ibv_ah_attr path{};
		path.dlid = lid;
		path.port_num = 1;
		ah = ibv_create_ah(p, &path);
		check(srq && ah, "no shared receive queue or address handle");
		one = create(IBV_QPT_RC, nullptr);
		other = create(IBV_QPT_RC, nullptr);
		shared = create(IBV_QPT_RC, srq);
		datagrams = create(IBV_QPT_UD, nullptr);
		dct = create_dc(MLX5DV_DCTYPE_DCT);
		dci = create_dc(MLX5DV_DCTYPE_DCI);
		connect(one, other->qp_num);
		connect(other, one->qp_num);
		connect(shared, hostile_number);
		start_datagrams();
		start_dct();
		start_dci();
	}
	~Round()
	{
		for (ibv_qp *qp : {one, other, shared, datagrams, dct, dci})
			check(ibv_destroy_qp(qp) == 0, "a queue pair does not go");
		check(ibv_destroy_ah(ah) == 0 && ibv_destroy_srq(srq) == 0, "a shared receive queue does not go");
		check(ibv_destroy_cq(cq) == 0, "a completion queue does not go");
	}
	Round(const Round &) = delete;
	Round &operator=(const Round &) = delete;

	ibv_qp *create(ibv_qp_type type, ibv_srq *with)
	{
		ibv_qp_init_attr a{};
		a.qp_type = type;
		a.send_cq = a.recv_cq = cq;
		a.srq = with;
		a.cap = {64, with ? 0u : 32u, 4, with ? 0u : 2u, 64};
		ibv_qp *qp = ibv_create_qp(pd, &a);
		check(qp, "no queue pair");
		return qp;
	}
	ibv_qp *create_dc(mlx5dv_dc_type type)
	{
		ibv_qp_init_attr_ex a{};
		a.qp_type = IBV_QPT_DRIVER;
		a.comp_mask = IBV_QP_INIT_ATTR_PD;
		a.pd = pd;
		a.send_cq = a.recv_cq = cq;
		mlx5dv_qp_init_attr driver{};
		driver.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_DC;
		driver.dc_init_attr.dc_type = type;
		if (type == MLX5DV_DCTYPE_DCT) {
			a.srq = srq;
			driver.dc_init_attr.dct_access_key = dc_key;
		} else {
			a.cap.max_send_wr = 64;
			a.cap.max_send_sge = 4;
			a.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
			a.send_ops_flags = IBV_QP_EX_WITH_SEND;
			driver.comp_mask |= MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS;
			driver.create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE;
		}
		ibv_qp *qp = mlx5dv_create_qp(context, &a, &driver);
		check(qp, "no dynamically connected queue pair");
		return qp;
	}
	void step(ibv_qp *qp, ibv_qp_state to, int mask)
	{
		attributes.qp_state = to;
		check(ibv_modify_qp(qp, &attributes, IBV_QP_STATE | mask) == 0, "a step is refused");
	}
	ibv_qp_attr &defaults()
	{
		attributes = {};
		attributes.port_num = 1;
		attributes.qp_access_flags = static_cast<unsigned>(all_access);
		attributes.path_mtu = mtu;
		attributes.max_dest_rd_atomic = attributes.max_rd_atomic = 16;
		attributes.min_rnr_timer = 1;
		attributes.timeout = patient ? 17 : 8;
		attributes.retry_cnt = patient ? 7 : 1;
		attributes.rnr_retry = 1;
		attributes.qkey = 0x11;
		attributes.ah_attr.dlid = lid;
		attributes.ah_attr.port_num = 1;
		return attributes;
	}
	static constexpr int rtr = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_MIN_RNR_TIMER;
	static constexpr int rts = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
	void connect(ibv_qp *qp, uint32_t destination)
	{
		defaults().dest_qp_num = destination;
		step(qp, IBV_QPS_RESET, 0);
		step(qp, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
		step(qp, IBV_QPS_RTR, rtr | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC);
		step(qp, IBV_QPS_RTS, rts);
	}
	void start_datagrams()
	{
		defaults();
		step(datagrams, IBV_QPS_RESET, 0);
		step(datagrams, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY);
		step(datagrams, IBV_QPS_RTR, 0);
		step(datagrams, IBV_QPS_RTS, IBV_QP_SQ_PSN);
	}
	void start_dct()
	{
		defaults();
		step(dct, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
		step(dct, IBV_QPS_RTR, rtr);
	}
	void start_dci()
	{
		defaults();
		step(dci, IBV_QPS_RESET, 0);
		step(dci, IBV_QPS_INIT, IBV_QP_PKEY_INDEX | IBV_QP_PORT);
		step(dci, IBV_QPS_RTR, IBV_QP_PATH_MTU);
		step(dci, IBV_QPS_RTS, rts);
	}
	// Some completions, and time for the device.
	void poll(unsigned times)
	{
		ibv_wc wcs[64];
		while (times--)
			check(ibv_poll_cq(cq, 64, wcs) >= 0, "polling fails");
	}
	void post_receives()
	{
		for (int i = 0; i < 4; ++i) {
			ibv_sge pieces[] = {{arena.address(), random_below(5000), arena.key()},
			                    {arena.address(), random_below(500), arena.key()}};
			ibv_recv_wr wr{}, *bad;
			wr.sg_list = pieces;
			wr.num_sge = static_cast<int>(random_below(3));
			for (ibv_qp *qp : {one, other, datagrams})
				ibv_post_recv(qp, &wr, &bad); // when the ring is full, it is
			if (!srq_spoiled)
				ibv_post_srq_recv(srq, &wr, &bad);
		}
	}

	static uint32_t hostile_number; // the queue pair that the process on the wire plays
	ibv_context *context;
	ibv_pd *pd;
	Arena &arena;
	const bool patient;
	const ibv_mtu mtu = sometimes(2) ? IBV_MTU_256 : IBV_MTU_4096;
	uint16_t lid;
	ibv_cq *cq;
	ibv_srq *srq;
	bool srq_spoiled = false; // its list is broken: libmlx5 would follow it
	ibv_ah *ah;
	ibv_qp *one, *other, *shared, *datagrams, *dct, *dci;
	ibv_qp_attr attributes{};
};
uint32_t Round::hostile_number = 0;

// ---- rings

void put16(uint8_t *&at, uint16_t v) { v = htobe16(v), std::memcpy(at, &v, sizeof v), at += sizeof v; }
void put32(uint8_t *&at, uint32_t v) { v = htobe32(v), std::memcpy(at, &v, sizeof v), at += sizeof v; }
void put64(uint8_t *&at, uint64_t v) { v = htobe64(v), std::memcpy(at, &v, sizeof v), at += sizeof v; }

// An entry as libmlx5 would write it; its number of segments.
uint32_t make_entry(const Round &round, ibv_qp *qp, bool address, uint16_t index, uint8_t *entry)
{
	constexpr uint8_t opcodes[] = {0x00, 0x08, 0x09, 0x0a, 0x0b, 0x10, 0x11, 0x12};
	const uint8_t opcode = one_of(opcodes);
	uint8_t *at = entry + 16;
	if (address) {
		put64(at, qp == round.dci ? dc_key : UINT64_C(0x11) << 32);
		ibv_qp *targets[] = {round.dct, round.dct, round.datagrams, round.one};
		put32(at, one_of(targets)->qp_num | 0x80000000);
		put16(at, 0);
		put16(at, round.lid);
		std::memset(at, 0, 32);
		at += 32;
	}
	if (opcode == 0x08 || opcode == 0x09 || opcode >= 0x10) {
		put64(at, round.arena.address() & (opcode > 0x10 ? ~UINT64_C(7) : ~UINT64_C(0)));
		put32(at, round.arena.key());
		put32(at, 0);
	}
	if (opcode > 0x10) {
		put64(at, random_below(3));
		put64(at, random_below(3));
		put32(at, 8);
		put32(at, round.arena.key());
		put64(at, round.arena.address());
	} else if (opcode) {
		for (uint32_t n = random_below(4); n; --n) {
			if (sometimes(4)) { // in the entry
				const uint32_t bytes = random_below(29);
				put32(at, bytes | 0x80000000);
				at += (bytes + 4 + 15) / 16 * 16 - 4;
			} else {
				put32(at, sometimes(20) ? static_cast<uint32_t>(random_word()) : random_below(9000));
				put32(at, round.arena.key());
				put64(at, round.arena.address());
			}
		}
	}
	const auto segments = static_cast<uint32_t>(at - entry) / 16;
	at = entry;
	put32(at, static_cast<uint32_t>(index) << 8 | opcode);
	put32(at, qp->qp_num << 8 | segments);
	const uint32_t flags = (sometimes(2) ? 8u : 0u) | (sometimes(4) ? 2u : 0u) | (sometimes(8) ? 0x80u : 0u);
	put32(at, flags);
	put32(at, static_cast<uint32_t>(random_word()));
	return segments;
}

// Fills a piece of the send queue and rings.
void fuzz_ring(Round &round, ibv_qp *qp, bool address)
{
	mlx5dv_qp dv{};
	mlx5dv_obj object{};
	object.qp.in = qp;
	object.qp.out = &dv;
	check(mlx5dv_init_obj(&object, MLX5DV_OBJ_QP) == 0, "no direct access");
	auto *ring = static_cast<uint8_t *>(dv.sq.buf);
	const size_t ring_bytes = static_cast<size_t>(dv.sq.wqe_cnt) * dv.sq.stride;
	auto producer = static_cast<uint16_t>(be32toh(dv.dbrec[1]));
	for (uint32_t n = 1 + random_below(12); n; --n) {
		uint8_t entry[1024] = {};
		uint32_t segments = make_entry(round, qp, address, producer, entry);
		if (sometimes(12))
			for (uint8_t &byte : entry)
				byte = static_cast<uint8_t>(engine());
		if (sometimes(3))
			for (uint32_t flips = 1 + random_below(3); flips; --flips)
				entry[random_below(segments * 16)] ^= static_cast<uint8_t>(1u << random_below(8));
		const uint32_t units = std::max(1u, (segments + 3) / 4);
		for (size_t i = 0; i < units * 64; ++i)
			ring[(static_cast<size_t>(producer) * 64 + i) % ring_bytes] = entry[i];
		producer = static_cast<uint16_t>(producer + units);
	}
	if (sometimes(30))
		producer = static_cast<uint16_t>(random_word());
	__atomic_store_n(&dv.dbrec[1], htobe32(producer), __ATOMIC_RELEASE);
	// The receive queue as well.
	if (dv.rq.wqe_cnt && sometimes(4)) {
		auto *receives = static_cast<uint8_t *>(dv.rq.buf);
		for (size_t i = random_below(dv.rq.wqe_cnt * dv.rq.stride), n = random_below(64);
		     n && i < static_cast<size_t>(dv.rq.wqe_cnt) * dv.rq.stride; ++i, --n)
			receives[i] = static_cast<uint8_t>(engine());
		if (sometimes(4))
			__atomic_store_n(&dv.dbrec[0], static_cast<uint32_t>(random_word()), __ATOMIC_RELEASE);
	}
}

void fuzz_srq(Round &round)
{
	mlx5dv_srq dv{};
	mlx5dv_obj object{};
	object.srq.in = round.srq;
	object.srq.out = &dv;
	check(mlx5dv_init_obj(&object, MLX5DV_OBJ_SRQ) == 0, "no direct access");
	auto *ring = static_cast<uint8_t *>(dv.buf);
	round.srq_spoiled = true;
	for (uint32_t n = random_below(20); n; --n)
		ring[random_below((dv.tail + 1) * dv.stride)] = static_cast<uint8_t>(engine());
	if (sometimes(3))
		__atomic_store_n(dv.dbrec, static_cast<uint32_t>(random_word()), __ATOMIC_RELEASE);
}

// ---- packets

void fuzz_packets(Round &round, Wire &wire)
{
	ibv_qp *targets[] = {round.one, round.other, round.shared, round.shared, round.datagrams, round.dct, round.dct, round.dci};
	constexpr uint32_t lengths[] = {0, 1, 8, 255, 256, 257, 4095, 4096};
	static uint32_t psn = 0; // often the one that is expected
	for (uint32_t n = 1 + random_below(30); n; --n) {
		ibv_qp *to = one_of(targets);
		std::vector<uint8_t> bytes(sizeof(Packet) + max_mtu);
		Packet p{};
		p.kind = static_cast<PacketKind>(random_below(sometimes(10) ? 256 : 10));
		p.flags = static_cast<uint8_t>(engine());
		if (sometimes(2))
			p.flags |= packet_first | packet_last;
		p.reason = static_cast<Refusal>(random_below(sometimes(10) ? 256 : 6));
		p.timer = static_cast<uint8_t>(sometimes(4) ? engine() : 1);
		p.source_lid = p.destination_lid = round.lid;
		p.destination = to->qp_num;
		p.source = to == round.one ? round.other->qp_num : to == round.other ? round.one->qp_num : Round::hostile_number;
		psn = sometimes(20) ? 0 : psn + random_below(2);
		p.psn = sometimes(5) ? static_cast<uint32_t>(random_word()) : sometimes(2) ? psn : random_below(4);
		p.immediate = static_cast<uint32_t>(random_word());
		p.remote_address = round.arena.address();
		p.remote_key = round.arena.key();
		p.key = to == round.dct ? dc_key : 0x11;
		p.operand = random_below(3);
		p.compare = random_below(3);
		p.connection = random_below(3);
		p.payload = sometimes(20) ? static_cast<uint32_t>(random_word()) : one_of(lengths);
		p.length = sometimes(10)  ? static_cast<uint32_t>(random_word())
		           : sometimes(3) ? p.payload + random_below(9000)
		                          : p.payload;
		std::memcpy(bytes.data(), &p, sizeof p);
		for (size_t i = sizeof p; i < sizeof p + 64; ++i)
			bytes[i] = static_cast<uint8_t>(engine());
		if (sometimes(4))
			for (uint32_t flips = 1 + random_below(3); flips; --flips)
				bytes[random_below(sizeof p)] ^= static_cast<uint8_t>(1u << random_below(8));
		size_t size = sizeof p + std::min<size_t>(p.payload, max_mtu);
		if (sometimes(8))
			size = 1 + random_below(static_cast<uint32_t>(bytes.size()));
		uint8_t *frame;
		const unsigned slot = to->qp_num >> 14;
		while (wire.begin(slot, size, frame) == Wire::Room::full)
			round.poll(1);
		std::memcpy(frame, bytes.data(), size);
		wire.end();
	}
	// What is sent to us is not looked at.
	while (!wire.front().empty())
		wire.pop();
}

// A pair that has nothing to do with what was before exchanges a message.
void prove_alive(ibv_context *context, ibv_pd *pd, Arena &arena)
{
	Round round(context, pd, arena, true);
	uint8_t *from = arena.bytes + area, *to = from + 8192;
	for (size_t i = 0; i < 5000; ++i)
		from[i] = static_cast<uint8_t>(i * 7);
	std::memset(to, 0, 5000);
	ibv_sge source{reinterpret_cast<uintptr_t>(from), 5000, arena.open->lkey},
	    destination{reinterpret_cast<uintptr_t>(to), 5000, arena.open->lkey};
	ibv_recv_wr receive{}, *bad_receive;
	receive.sg_list = &destination;
	receive.num_sge = 1;
	check(ibv_post_recv(round.other, &receive, &bad_receive) == 0, "no receive can be posted");
	ibv_send_wr send{}, *bad_send;
	send.sg_list = &source;
	send.num_sge = 1;
	send.opcode = IBV_WR_SEND;
	send.send_flags = IBV_SEND_SIGNALED;
	check(ibv_post_send(round.one, &send, &bad_send) == 0, "no send can be posted");
	const auto until = Clock::now() + std::chrono::seconds(20);
	for (int done = 0; done < 2;) {
		ibv_wc wc;
		const int n = ibv_poll_cq(round.cq, 1, &wc);
		check(n >= 0 && Clock::now() < until, "a message does not arrive any more");
		if (n)
			check(wc.status == IBV_WC_SUCCESS, ibv_wc_status_str(wc.status));
		done += n;
	}
	check(std::memcmp(from, to, 5000) == 0, "a message arrives damaged");
}

} // namespace

int main(int argc, char **argv)
{
	const char *fabric = std::getenv("SOFTHCA_FABRIC");
	check(fabric, "run it below softhca");
	if (argc > 2 && std::strcmp(argv[1], "--joins") == 0) {
		for (unsigned long n = std::strtoul(argv[2], nullptr, 0); n; --n)
			Wire joined(fabric);
		return 0;
	}
	const auto seed = static_cast<uint32_t>(argc > 1 ? std::strtoul(argv[1], nullptr, 0) : 1);
	const double seconds = argc > 2 ? std::strtod(argv[2], nullptr) : 3;
	ibv_device **devices = ibv_get_device_list(nullptr);
	check(devices && devices[0], "no device");
	ibv_context *context = ibv_open_device(devices[0]);
	check(context, "the device cannot be opened");
	ibv_free_device_list(devices);
	ibv_pd *pd = ibv_alloc_pd(context);
	check(pd, "no protection domain");
	Arena arena(pd);
	prove_alive(context, pd, arena); // the device has its place on the wire now
	Wire wire(fabric);
	Round::hostile_number = wire.slot() << 14 | 16;
	const auto until = Clock::now() + std::chrono::duration<double>(seconds);
	unsigned rounds = 0;
	for (; Clock::now() < until; ++rounds) {
		engine.seed(seed + rounds);
		{
			Round round(context, pd, arena);
			for (uint32_t n = 20; n; --n) {
				round.post_receives();
				const bool rings = random_below(2), packets = !rings || sometimes(4);
				if (rings) {
					fuzz_ring(round, round.one, false);
					fuzz_ring(round, round.datagrams, true);
					fuzz_ring(round, round.dci, true);
					if (sometimes(10))
						fuzz_srq(round);
				}
				if (packets)
					fuzz_packets(round, wire);
				round.poll(1 + random_below(60));
				if (sometimes(3))
					round.connect(round.one, round.other->qp_num);
				if (sometimes(3))
					round.connect(round.other, round.one->qp_num);
				if (sometimes(3))
					round.connect(round.shared, Round::hostile_number);
				if (sometimes(3))
					round.start_datagrams();
				if (sometimes(3))
					round.start_dci();
			}
		}
		arena.check_guards();
		prove_alive(context, pd, arena);
	}
	check(ibv_dereg_mr(arena.open) == 0 && ibv_dereg_mr(arena.constant) == 0, "a region does not go");
	check(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0, "the device does not close");
	munmap(arena.bytes, 4 * area);
	std::printf("fuzz: %u rounds from seed %u\n", rounds, seed);
	return 0;
}
