// Small payload inside of the CQE. libmlx5 takes it from there.
#include <catch2/catch.hpp>

#include <cstdlib>
#include <cstring>
#include <endian.h>
#include <optional>

#include "tests/softhca/traffic/traffic.hpp"

namespace {

// Sets an environment variable that libmlx5 reads. The destructor restores it.
class Variable {
public:
	Variable(const char *name, const char *value) : name_(name)
	{
		if (const char *before = std::getenv(name))
			before_ = before;
		setenv(name, value, 1);
	}
	~Variable() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }
	Variable(const Variable &) = delete;
	Variable &operator=(const Variable &) = delete;

private:
	const char *name_;
	std::optional<std::string> before_;
};

// The CQEs in memory, before libmlx5 has polled them.
class Raw {
public:
	explicit Raw(ibv_cq *cq)
	{
		mlx5dv_obj objects{};
		objects.cq = {cq, &dv_};
		REQUIRE(mlx5dv_init_obj(&objects, MLX5DV_OBJ_CQ) == 0);
	}
	size_t entry_bytes() const { return dv_.cqe_size; }
	// The last 64 bytes of the n-th CQE in the first turn of the ring.
	const uint8_t *entry(uint32_t n) const
	{
		return static_cast<const uint8_t *>(dv_.buf) + (n + 1) * entry_bytes() - 64;
	}
	unsigned format(uint32_t n) const { return entry(n)[63] & 0xc; }
	const uint8_t *payload(uint32_t n) const { return entry(n) - (entry_bytes() - 64); }

private:
	mlx5dv_cq dv_{};
};

struct Counts {
	explicit Counts(uint32_t number) : qp(number) {}
	uint64_t scattered() const { return counter("scattered_cqes", qp) - scattered_before; }
	uint64_t bytes() const { return counter("scattered_bytes", qp) - bytes_before; }
	uint64_t writes() const { return counter("payload_writes", qp) - writes_before; }

	const uint32_t qp;
	const uint64_t scattered_before = counter("scattered_cqes", qp), bytes_before = counter("scattered_bytes", qp),
	               writes_before = counter("payload_writes", qp);
};

} // namespace

TEST_CASE("a message comes in the CQE when it fits there, and goes to its receive when not")
{
	const bool wide = GENERATE(false, true), shared = GENERATE(false, true);
	const Variable size("MLX5_CQE_SIZE", wide ? "128" : "64");
	const size_t room = wide ? 64 : 32;
	INFO("completions of " << (wide ? 128 : 64) << " bytes, " << (shared ? "shared" : "own") << " receives");
	Device device;
	Srq srq(device);
	Settings settings;
	if (shared)
		settings.srq = srq.srq;
	Pair pair(device, {}, settings);
	Memory near(device.pd, 4096), far(device.pd, 4096);
	const Raw raw(pair.b.receive_cq);
	REQUIRE(raw.entry_bytes() == (wide ? 128 : 64));
	uint32_t n = 0;
	constexpr size_t lengths[] = {1, 0, 22, 31, 32, 33, 63, 64, 65};
	for (size_t bytes : lengths) {
		INFO(bytes << " bytes");
		near.fill(n + 1);
		std::memset(far.at(), 0xee, 256);
		if (shared)
			srq.post(far.piece(7, 100), n);
		else
			receive(pair.b.qp, {far.piece(7, 100)}, n);
		const Counts counts(pair.b.number());
		ibv_sge piece = near.piece(3, bytes);
		ibv_send_wr wr = request(n % 2 ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND, {&piece, 1});
		wr.imm_data = htobe32(n);
		post(pair.a.qp, wr);
		expect(pair.a.send_cq);
		const bool inside = bytes && bytes <= room;
		CHECK(counts.scattered() == inside);
		CHECK(counts.bytes() == (inside ? bytes : 0));
		CHECK(counts.writes() == (bytes && !inside));
		CHECK(raw.format(n) == (!inside ? 0 : wide ? MLX5_INLINE_SCATTER_64 : MLX5_INLINE_SCATTER_32));
		if (inside) {
			// The memory of the receive does not change before the program polls.
			CHECK(far.at(7)[0] == 0xee);
			CHECK(same(raw.payload(n), near.at(3), bytes) == bytes);
		}
		const ibv_wc wc = expect(pair.b.receive_cq);
		CHECK(wc.wr_id == n);
		CHECK(wc.byte_len == bytes);
		CHECK(wc.opcode == IBV_WC_RECV);
		CHECK(wc.qp_num == pair.b.number());
		if (n % 2)
			CHECK(be32toh(wc.imm_data) == n);
		CHECK(same(far.at(7), near.at(3), bytes) == bytes);
		CHECK(far.at(6)[0] == 0xee);
		CHECK(far.at(7 + bytes)[0] == 0xee);
		++n;
	}
	CHECK(counter("scattered_cqes", pair.a.number()) == 0);
}

TEST_CASE("a message in the CQE is scattered to the pieces of its receive, and fails when it is too long for them")
{
	Device device;
	Pair pair(device);
	Memory near(device.pd, 4096), far(device.pd, 4096);
	near.fill(1);
	receive(pair.b.qp, {far.piece(0, 5), far.piece(100, 0), far.piece(200, 1), far.piece(300, 1000)}, 1);
	receive(pair.b.qp, {far.piece(1000, 3), far.piece(1100, 4)}, 2);
	send(pair.a.qp, near.piece(0, 30));
	expect(pair.a.send_cq);
	CHECK(expect(pair.b.receive_cq).byte_len == 30);
	CHECK(same(far.at(), near.at(), 5) == 5);
	CHECK(far.at(200)[0] == near.at(5)[0]);
	CHECK(same(far.at(300), near.at(6), 24) == 24);
	CHECK(counter("scattered_cqes", pair.b.number()) == 1);
	send(pair.a.qp, near.piece(0, 8));
	CHECK(expect(pair.b.receive_cq, IBV_WC_LOC_LEN_ERR).wr_id == 2);
	expect(pair.a.send_cq, IBV_WC_REM_INV_REQ_ERR);
	CHECK(far.at(1000)[0] == 0);
	CHECK(counter("scattered_cqes", pair.b.number()) == 1);
	check_alive(device, pair);
}

TEST_CASE("payload of a WRITE with immediate data goes to its address, and datagrams go to their receives")
{
	Device device;
	Memory near(device.pd, 4096), far(device.pd, 4096);
	near.fill(1);
	{
		Pair pair(device);
		receive(pair.b.qp, {far.piece(0, 64)});
		ibv_sge piece = near.piece(0, 8);
		ibv_send_wr wr = rdma(IBV_WR_RDMA_WRITE_WITH_IMM, {&piece, 1}, far.address(1000), far.key());
		post(pair.a.qp, wr);
		expect(pair.a.send_cq);
		const ibv_wc wc = expect(pair.b.receive_cq);
		CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM);
		CHECK(wc.byte_len == 8);
		CHECK(same(far.at(1000), near.at(), 8) == 8);
		CHECK(far.at(0)[0] == 0);
		CHECK(counter("scattered_cqes", pair.b.number()) == 0);
	}
	Datagrams one(device), other(device);
	AddressHandle here(device, lid_of(device.context));
	receive(other.qp, {far.piece(0, 100)});
	ibv_sge piece = near.piece(0, 8);
	ibv_send_wr wr = request(IBV_WR_SEND, {&piece, 1});
	wr.wr.ud.ah = here.ah;
	wr.wr.ud.remote_qpn = other.number();
	wr.wr.ud.remote_qkey = other.settings.qkey;
	post(one.qp, wr);
	CHECK(expect(other.receive_cq).src_qp == one.number());
	CHECK(same(far.at(40), near.at(), 8) == 8);
	CHECK(counter("scattered_cqes", other.number()) == 0);
}

TEST_CASE("a DC target's CQEs carry payload when they have 128 bytes, and the sender's number")
{
	const bool wide = GENERATE(false, true);
	const Variable size("MLX5_CQE_SIZE", wide ? "128" : "64");
	Device device;
	Srq srq(device);
	Cq cq(device.context);
	Memory near(device.pd, 4096), far(device.pd, 4096);
	near.fill(1);
	Dct dct(device, srq.srq, cq);
	Dci dci(device), another(device);
	for (size_t bytes : {size_t{8}, size_t{32}, size_t{33}, size_t{64}, size_t{65}}) {
		INFO(bytes << " bytes, completions of " << (wide ? 128 : 64));
		for (Dci *from : {&dci, &another}) {
			far.clear();
			srq.post(far.piece(0, 100));
			const Counts counts(dct.number());
			from->send(dct.number(), near.piece(bytes, bytes));
			expect(from->cq);
			const bool inside = wide && bytes <= 64;
			CHECK(counts.scattered() == inside);
			CHECK(counts.writes() == !inside);
			const ibv_wc wc = expect(cq);
			CHECK(wc.byte_len == bytes);
			CHECK(wc.src_qp == from->qp->qp_num);
			CHECK(same(far.at(), near.at(bytes), bytes) == bytes);
		}
	}
	// The responses to an initiator do not come in the CQE: libmlx5 could not take them from there.
	const Counts counts(dci.qp->qp_num);
	dci.read(dct.number(), far.piece(200, 8), near.address(100), near.key());
	expect(dci.cq);
	CHECK(same(far.at(200), near.at(100), 8) == 8);
	CHECK(counts.scattered() == 0);
}

TEST_CASE("CQEs carry no payload when the environment or the queue pair's flags say so")
{
	Device device;
	Memory near(device.pd, 4096), far(device.pd, 4096);
	near.fill(1);
	std::optional<Variable> off;
	Settings settings;
	settings.signal_all = true;
	if (GENERATE(false, true))
		off.emplace("MLX5_SCATTER_TO_CQE", "0");
	else
		settings.create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE;
	Pair pair(device, settings);
	const Counts sender(pair.a.number()), receiver(pair.b.number());
	receive(pair.b.qp, {far.piece(0, 100)});
	send(pair.a.qp, near.piece(0, 8));
	expect(pair.a.send_cq);
	CHECK(same(far.at(), near.at(), 8) == 8); // before it is polled
	expect(pair.b.receive_cq);
	read(pair.a.qp, far.piece(200, 8), near.address(16), near.key());
	expect(pair.a.send_cq);
	CHECK(same(far.at(200), near.at(16), 8) == 8);
	CHECK(receiver.scattered() == 0);
	CHECK(receiver.writes() == 1);
	CHECK(sender.scattered() == 0);
	CHECK(sender.writes() == 1);
}

namespace {

// Atomic operations. When `inside`, their responses come in the CQE. The first one's is the n-th CQE of the queue.
void check_atomics(Pair &pair, Memory &near, Memory &far, const Raw &raw, uint32_t n, bool inside, bool wide)
{
	for (ibv_wr_opcode opcode : {IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP}) {
		far.word(512) = 0x0102030405060708;
		const Counts counts(pair.a.number());
		ibv_sge piece = near.piece(512, 8);
		ibv_send_wr wr = request(opcode, {&piece, 1});
		wr.wr.atomic.remote_addr = far.address(512);
		wr.wr.atomic.rkey = far.key();
		wr.wr.atomic.compare_add = 0x0102030405060708;
		wr.wr.atomic.swap = 0x0204060a080c0e10;
		post(pair.a.qp, wr);
		expect(pair.a.send_cq);
		const uint64_t &found = inside ? *reinterpret_cast<const uint64_t *>(raw.payload(n)) : near.word(512);
		CHECK(found == 0x0102030405060708);
		++n;
		CHECK((wide || near.word(512) == found));
		CHECK(counts.scattered() == inside);
	}
}

} // namespace

TEST_CASE("the response to a READ comes in the CQE when it fits there and a CQE is certain")
{
	const bool wide = GENERATE(false, true);
	const Variable size("MLX5_CQE_SIZE", wide ? "128" : "64");
	const size_t room = wide ? 64 : 32;
	Device device;
	Memory near(device.pd, 4096), far(device.pd, 4096);
	far.fill(1);
	// In CQEs of 128 bytes, libmlx5 takes responses from one byte before their place (rdma-core before 64.0; fixed by
	// "mlx5: Fix inline-scatter source address on 128B CQE REQ completions"). There only the CQE can be checked.
	enum Way { not_asked_for, by_flag, by_signal };
	for (Way way : {not_asked_for, by_flag, by_signal}) {
		Settings settings;
		settings.signal_all = way == by_signal;
		settings.create_flags = way == by_flag ? MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE : 0;
		Pair pair(device, settings);
		const Raw raw(pair.a.send_cq);
		// A completion without payload comes first, so that libmlx5's byte before the place is within the queue.
		write(pair.a.qp, far.piece(0, 8), far.address(0), far.key());
		expect(pair.a.send_cq);
		uint32_t n = 1;
		for (size_t bytes : {size_t{1}, size_t{32}, size_t{33}, size_t{64}, size_t{65}, size_t{0}}) {
			INFO(bytes << " bytes, completions of " << (wide ? 128 : 64) << ", way " << way);
			near.clear();
			const Counts counts(pair.a.number());
			ibv_sge pieces[] = {near.piece(0, bytes / 3), near.piece(100, bytes - bytes / 3)};
			ibv_send_wr wr = rdma(IBV_WR_RDMA_READ, pieces, far.address(11), far.key());
			post(pair.a.qp, wr);
			const ibv_wc wc = expect(pair.a.send_cq);
			CHECK(wc.opcode == IBV_WC_RDMA_READ);
			CHECK(wc.byte_len == bytes);
			const bool inside = way != not_asked_for && bytes && bytes <= room;
			CHECK(counts.scattered() == inside);
			CHECK((counts.writes() != 0) == (bytes && !inside));
			CHECK(raw.format(n) == (!inside ? 0 : wide ? MLX5_INLINE_SCATTER_64 : MLX5_INLINE_SCATTER_32));
			CHECK((!inside || same(raw.payload(n), far.at(11), bytes) == bytes));
			++n;
			if (wide && inside)
				continue;
			CHECK(same(near.at(), far.at(11), bytes / 3) == bytes / 3);
			CHECK(same(near.at(100), far.at(11 + bytes / 3), bytes - bytes / 3) == bytes - bytes / 3);
			CHECK(near.at(100 + bytes - bytes / 3)[0] == 0);
		}
		check_atomics(pair, near, far, raw, n, way != not_asked_for, wide);
		if (way == by_signal)
			continue;
		// Without a CQE, the response goes to memory.
		const Counts counts(pair.a.number());
		read(pair.a.qp, near.piece(700, 8), far.address(64), far.key(), 0, 0);
		read(pair.a.qp, near.piece(800, 8), far.address(72), far.key());
		expect(pair.a.send_cq);
		CHECK(counts.scattered() == (way == by_flag));
		CHECK(same(near.at(700), far.at(64), 8) == 8);
		CHECK((wide || same(near.at(800), far.at(72), 8) == 8));
	}
}

TEST_CASE("payload in CQEs survives losses, repetitions and WQEs that wrap")
{
	Device device;
	Memory near(device.pd, 8192), far(device.pd, 8192);
	Settings settings;
	settings.signal_all = true;
	settings.timeout = 8; // 1 ms
	settings.send_wr = 8;
	settings.receive_wr = 8;
	Pair pair(device, settings);
	far.fill(3);
	const FaultRules lossy("drop rate=0.1 seed=5; duplicate rate=0.1 seed=6");
	const Counts counts(pair.a.number());
	for (unsigned i = 0; i < 100; ++i) {
		near.clear();
		receive(pair.b.qp, {near.piece(1000, 100)}, i);
		// One WQE takes one WQEBB, the other two, so they begin everywhere in the queue.
		ibv_sge few = near.piece(0, 16),
		        many[] = {near.piece(100, 3), near.piece(200, 2), near.piece(300, 1), near.piece(400, 9)};
		ibv_send_wr wr = rdma(IBV_WR_RDMA_READ, {&few, 1}, far.address(i), far.key(), 3 * i);
		post(pair.a.qp, wr);
		wr = rdma(IBV_WR_RDMA_READ, many, far.address(i + 50), far.key(), 3 * i + 1);
		post(pair.a.qp, wr);
		send(pair.a.qp, far.piece(i, 32), 3 * i + 2);
		for (unsigned j = 0; j < 3; ++j)
			REQUIRE(expect(pair.a.send_cq).wr_id == 3 * i + j);
		REQUIRE(expect(pair.b.receive_cq).wr_id == i);
		REQUIRE(same(near.at(), far.at(i), 16) == 16);
		REQUIRE(same(near.at(100), far.at(i + 50), 3) == 3);
		REQUIRE(same(near.at(200), far.at(i + 53), 2) == 2);
		REQUIRE(same(near.at(300), far.at(i + 55), 1) == 1);
		REQUIRE(same(near.at(400), far.at(i + 56), 9) == 9);
		REQUIRE(same(near.at(1000), far.at(i), 32) == 32);
	}
	CHECK(counts.scattered() == 200);
	CHECK(counter("scattered_cqes", pair.b.number()) == 100);
}

TEST_CASE("payload in CQEs is kept when the queue is resized, and the newer interface for polling delivers it")
{
	const bool wide = GENERATE(false, true);
	const Variable size("MLX5_CQE_SIZE", wide ? "128" : "64");
	Device device;
	Memory near(device.pd, 4096), far(device.pd, 4096);
	near.fill(1);
	constexpr unsigned n = 10;
	SECTION("another size")
	{
		Cq cq(device.context, 16);
		Settings settings;
		settings.receive_cq = cq;
		Pair pair(device, {}, settings);
		for (unsigned i = 0; i < n; ++i) {
			receive(pair.b.qp, {far.piece(100 * i, 50)}, i);
			send(pair.a.qp, near.piece(i, 30));
			expect(pair.a.send_cq);
		}
		REQUIRE(ibv_resize_cq(cq, 100) == 0);
		for (unsigned i = 0; i < n; ++i) {
			CHECK(expect(cq).wr_id == i);
			CHECK(same(far.at(100 * i), near.at(i), 30) == 30);
		}
		CHECK(counter("scattered_cqes", pair.b.number()) == n);
	}
	SECTION("the other way")
	{
		ibv_cq_init_attr_ex attributes{};
		attributes.cqe = 64;
		attributes.wc_flags = IBV_WC_EX_WITH_BYTE_LEN;
		ibv_cq_ex *cq = ibv_create_cq_ex(device.context, &attributes);
		REQUIRE(cq);
		{
			Settings settings;
			settings.receive_cq = settings.send_cq = ibv_cq_ex_to_cq(cq);
			settings.signal_all = true;
			Pair pair(device, settings);
			receive(pair.b.qp, {far.piece(0, 50)}, 7);
			send(pair.a.qp, near.piece(0, 30), 8);
			read(pair.a.qp, far.piece(100, 20), near.address(50), near.key(), 9);
			unsigned seen = 0;
			ibv_poll_cq_attr none{};
			for (int left = 3; left;) {
				if (ibv_start_poll(cq, &none) != 0)
					continue;
				CHECK(cq->status == IBV_WC_SUCCESS);
				seen |= 1u << cq->wr_id;
				ibv_end_poll(cq);
				--left;
			}
			CHECK(seen == 0x380);
			CHECK(same(far.at(0), near.at(0), 30) == 30);
			CHECK((wide || same(far.at(100), near.at(50), 20) == 20)); // see above
			CHECK(counter("scattered_cqes", pair.a.number()) == 1);
			CHECK(counter("scattered_cqes", pair.b.number()) == 1);
		}
		CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) == 0);
	}
}
