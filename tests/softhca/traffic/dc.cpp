// Dynamically connected queue pairs: initiators (DCI) and targets (DCT).
#include <catch2/catch.hpp>

#include <chrono>
#include <cstring>

#include "tests/softhca/traffic/traffic.hpp"

namespace {

// A target with its queues and memory.
struct Target {
	explicit Target(Device &device, const Settings &settings = {}, uint64_t key = dc_key)
	    : srq(device, 256), cq(device.context), memory(device.pd, 1 << 18), dct(device, srq.srq, cq, settings, key)
	{
	}
	uint32_t number() const { return dct.number(); }
	void receive(size_t offset, size_t bytes, uint64_t id = 0) { srq.post(memory.piece(offset, bytes), id); }

	Srq srq;
	Cq cq;
	Memory memory;
	Dct dct;
};

Settings small_packets()
{
	Settings settings;
	settings.mtu = IBV_MTU_256;
	return settings;
}

// An initiator with memory, and a target.
struct Pair {
	Device device;
	const Settings settings = small_packets();
	Target target{device, settings};
	Dci dci{device, settings};
	Memory near{device.pd, 1 << 18};

	Pair() { near.fill(1); }
};

void restart(Dci &dci)
{
	dci.to(IBV_QPS_RESET);
	dci.to_rts();
}

} // namespace

TEST_CASE_METHOD(Pair, "an initiator sends to a target, writes there and reads from there")
{
	for (size_t bytes : {size_t{0}, size_t{1}, size_t{256}, size_t{257}, size_t{100'000}}) {
		INFO(bytes << " bytes");
		target.memory.clear();
		target.receive(5, bytes, 7);
		dci.send(target.number(), near.piece(3, bytes), 8);
		CHECK(expect(dci.cq).wr_id == 8);
		const ibv_wc received = expect(target.cq);
		CHECK(received.wr_id == 7);
		CHECK(received.byte_len == bytes);
		CHECK(received.qp_num == target.number());
		CHECK(same(target.memory.at(5), near.at(3), bytes) == bytes);

		target.memory.clear();
		dci.write(target.number(), near.piece(9, bytes), target.memory.address(77), target.memory.key());
		expect(dci.cq);
		CHECK(same(target.memory.at(77), near.at(9), bytes) == bytes);

		target.memory.fill(static_cast<unsigned>(bytes));
		Memory back(device.pd, bytes + 1);
		dci.read(target.number(), back.piece(0, bytes), target.memory.address(11), target.memory.key());
		CHECK(expect(dci.cq).byte_len == bytes);
		CHECK(same(back.at(), target.memory.at(11), bytes) == bytes);
	}
}

TEST_CASE_METHOD(Pair, "an initiator sends and writes with immediate data")
{
	target.receive(0, 8, 21);
	target.receive(0, 300, 22);
	dci.begin();
	dci.set(1);
	ibv_wr_rdma_write_imm(dci.ex, target.memory.key(), target.memory.address(1000), htobe32(55));
	dci.address(target.number());
	dci.data({near.piece(0, 500)});
	dci.set(2);
	ibv_wr_send_imm(dci.ex, htobe32(66));
	dci.address(target.number());
	dci.data({near.piece(0, 100), near.piece(1000, 200)});
	dci.complete();
	CHECK(expect(dci.cq).wr_id == 1);
	CHECK(expect(dci.cq).wr_id == 2);
	ibv_wc wc = expect(target.cq);
	CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM);
	CHECK(wc.wr_id == 21);
	CHECK(wc.byte_len == 500);
	CHECK(be32toh(wc.imm_data) == 55);
	wc = expect(target.cq);
	CHECK(wc.opcode == IBV_WC_RECV);
	CHECK(wc.wr_id == 22);
	CHECK(wc.wc_flags == IBV_WC_WITH_IMM);
	CHECK(be32toh(wc.imm_data) == 66);
	CHECK(same(target.memory.at(100), near.at(1000), 200) == 200);
	CHECK(same(target.memory.at(1000), near.at(0), 500) == 500);
}

TEST_CASE_METHOD(Pair, "an initiator does atomic operations on a target's memory")
{
	target.memory.word(64) = 10;
	dci.begin();
	dci.set(3);
	ibv_wr_atomic_fetch_add(dci.ex, target.memory.key(), target.memory.address(64), 5);
	dci.address(target.number());
	dci.data({near.piece(0, 8)});
	dci.set(4);
	ibv_wr_atomic_cmp_swp(dci.ex, target.memory.key(), target.memory.address(64), 15, 99);
	dci.address(target.number());
	dci.data({near.piece(8, 8)});
	dci.complete();
	CHECK(expect(dci.cq).opcode == IBV_WC_FETCH_ADD);
	CHECK(expect(dci.cq).opcode == IBV_WC_COMP_SWAP);
	CHECK(near.word(0) == 10);
	CHECK(near.word(8) == 15);
	CHECK(target.memory.word(64) == 99);
}

TEST_CASE("an initiator serves two targets in turn, also with many requests in one list")
{
	Device device;
	Settings settings = small_packets();
	settings.send_wr = 256;
	Target one(device, settings), other(device, settings, dc_key + 7);
	Dci dci(device, settings);
	Memory near(device.pd, 4096);
	near.fill(1);
	constexpr uint64_t n = 100;
	for (uint64_t i = 0; i < n; ++i) {
		one.receive(i * 1024, 1024, i);
		other.receive(i * 1024, 1024, i);
	}
	for (uint64_t round = 0; round < n; round += 20) {
		dci.begin();
		for (uint64_t i = round; i < round + 20; ++i)
			for (Target *target : {&one, &other}) {
				dci.set(i);
				ibv_wr_send(dci.ex);
				dci.address(target->number(), target == &one ? dc_key : dc_key + 7);
				dci.data({near.piece(i, 900)});
			}
		dci.complete();
	}
	for (uint64_t i = 0; i < n; ++i)
		for (Target *target : {&one, &other}) {
			REQUIRE(expect(dci.cq).wr_id == i);
			REQUIRE(expect(target->cq).wr_id == i);
			REQUIRE(same(target->memory.at(i * 1024), near.at(i), 900) == 900);
		}
}

TEST_CASE("the long messages of several initiators to one target do not mix")
{
	Device device;
	const Settings settings = small_packets();
	Target target(device, settings);
	constexpr size_t initiators = 3, bytes = 20'000, rounds = 10;
	std::vector<std::unique_ptr<Dci>> dcis;
	std::vector<std::unique_ptr<Memory>> memories;
	for (size_t i = 0; i < initiators; ++i) {
		dcis.push_back(std::make_unique<Dci>(device, settings));
		memories.push_back(std::make_unique<Memory>(device.pd, bytes));
		memories.back()->fill(static_cast<unsigned>(i));
		memories.back()->at()[0] = static_cast<uint8_t>(i);
	}
	for (size_t round = 0; round < rounds; ++round) {
		for (size_t i = 0; i < initiators; ++i)
			target.receive(i * bytes, bytes, i);
		for (size_t i = 0; i < initiators; ++i) {
			dcis[i]->send(target.number(), memories[i]->whole());
			dcis[i]->write(target.number(), memories[i]->whole(), target.memory.address((3 + i) * bytes),
			               target.memory.key());
			dcis[i]->read(target.number(), memories[i]->piece(1, 100), target.memory.address((3 + i) * bytes + 1),
			              target.memory.key());
		}
		unsigned seen = 0;
		for (const ibv_wc &wc : wait(target.cq, initiators)) {
			REQUIRE(wc.status == IBV_WC_SUCCESS);
			REQUIRE(wc.byte_len == bytes);
			const uint8_t *message = target.memory.at(wc.wr_id * bytes);
			REQUIRE(message[0] < initiators);
			REQUIRE(same(message, memories[message[0]]->at(), bytes) == bytes);
			seen |= 1u << message[0];
		}
		REQUIRE(seen == (1u << initiators) - 1);
		for (size_t i = 0; i < initiators; ++i) {
			for (const ibv_wc &wc : wait(dcis[i]->cq, 3))
				REQUIRE(wc.status == IBV_WC_SUCCESS);
			REQUIRE(same(target.memory.at((3 + i) * bytes), memories[i]->at(), bytes) == bytes);
		}
	}
}

TEST_CASE("a wrong key is an error for the initiator and an event for the target, which still serves others")
{
	Device device;
	Target target(device);
	Dci good(device), bad(device);
	Memory memory(device.pd, 4096);
	target.receive(0, 100, 1);
	target.receive(0, 100, 2);
	bad.send(target.number(), memory.piece(0, 8), 5, dc_key ^ 1);
	bad.send(target.number(), memory.piece(0, 8), 6);
	CHECK(expect(bad.cq, IBV_WC_REM_ACCESS_ERR).wr_id == 5);
	CHECK(expect(bad.cq, IBV_WC_WR_FLUSH_ERR).wr_id == 6);
	CHECK(next_event(device.context, IBV_EVENT_QP_ACCESS_ERR).element.qp == target.dct.qp);
	good.send(target.number(), memory.piece(0, 8));
	expect(good.cq);
	CHECK(expect(target.cq).wr_id == 1);
	restart(bad);
	bad.send(target.number(), memory.piece(0, 8));
	expect(bad.cq);
	CHECK(expect(target.cq).wr_id == 2);
	CHECK(no_event(device.context));
}

TEST_CASE("an initiator's error at a target ends its own connection only")
{
	Device device;
	const Settings settings = small_packets();
	Settings closed = settings;
	closed.access = 0;
	Target target(device, settings), locked(device, closed);
	Dci bad(device, settings), good(device, settings);
	Memory memory(device.pd, 8192);
	const auto still_good = [&] {
		target.receive(0, 3000, 9);
		good.send(target.number(), memory.piece(0, 3000));
		expect(good.cq);
		CHECK(expect(target.cq).wr_id == 9);
		restart(bad);
		target.receive(0, 3000, 10);
		bad.send(target.number(), memory.piece(0, 3000));
		expect(bad.cq);
		CHECK(expect(target.cq).wr_id == 10);
		CHECK(no_event(device.context));
	};
	bad.write(target.number(), memory.piece(0, 3000), target.memory.address(), target.memory.key() + 1);
	expect(bad.cq, IBV_WC_REM_ACCESS_ERR);
	CHECK(next_event(device.context, IBV_EVENT_QP_ACCESS_ERR).element.qp == target.dct.qp);
	still_good();
	bad.read(target.number(), memory.piece(0, 3000), target.memory.address(), target.memory.key() + 1);
	expect(bad.cq, IBV_WC_REM_ACCESS_ERR);
	next_event(device.context, IBV_EVENT_QP_ACCESS_ERR);
	still_good();
	bad.read(target.number(), memory.piece(0, 10), target.memory.address(target.memory.size() - 9),
	         target.memory.key());
	expect(bad.cq, IBV_WC_REM_ACCESS_ERR);
	next_event(device.context, IBV_EVENT_QP_ACCESS_ERR);
	still_good();
	bad.write(locked.number(), memory.piece(0, 10), locked.memory.address(), locked.memory.key());
	expect(bad.cq, IBV_WC_REM_INV_REQ_ERR);
	CHECK(next_event(device.context, IBV_EVENT_QP_REQ_ERR).element.qp == locked.dct.qp);
	still_good();
	// A message that is too long for its receive. Only the last packet shows it.
	target.receive(0, 2999, 1);
	bad.send(target.number(), memory.piece(0, 3000), 2);
	CHECK(expect(bad.cq, IBV_WC_REM_INV_REQ_ERR).wr_id == 2);
	CHECK(expect(target.cq, IBV_WC_LOC_LEN_ERR).wr_id == 1);
	still_good();
	// A receive into memory that does not exist.
	target.srq.post({target.memory.address(), 3000, 0xbad}, 1);
	bad.send(target.number(), memory.piece(0, 3000), 2);
	CHECK(expect(bad.cq, IBV_WC_REM_OP_ERR).wr_id == 2);
	CHECK(expect(target.cq, IBV_WC_LOC_PROT_ERR).wr_id == 1);
	still_good();
	// Local errors of an initiator do not affect the target.
	bad.send(target.number(), {memory.address(), 10, 0xbad});
	expect(bad.cq, IBV_WC_LOC_PROT_ERR);
	still_good();
}

TEST_CASE("an initiator gives up when a target does not answer or has no receive")
{
	Device device;
	Settings settings = small_packets();
	settings.timeout = 8;
	settings.retries = 1;
	settings.rnr_retries = 2;
	Target target(device, settings);
	Dci dci(device, settings);
	Memory memory(device.pd, 8192);
	dci.send(target.number() + 999, memory.piece(0, 8), 1);
	dci.send(target.number(), memory.piece(0, 8), 2);
	CHECK(expect(dci.cq, IBV_WC_RETRY_EXC_ERR).wr_id == 1);
	CHECK(expect(dci.cq, IBV_WC_WR_FLUSH_ERR).wr_id == 2);
	dci.send(target.number(), memory.piece(0, 8), 3);
	CHECK(expect(dci.cq, IBV_WC_WR_FLUSH_ERR).wr_id == 3);
	restart(dci);
	dci.send(target.number(), memory.piece(0, 3000), 4);
	CHECK(expect(dci.cq, IBV_WC_RNR_RETRY_EXC_ERR).wr_id == 4);
	restart(dci);
	// A receive that is posted in time.
	settings.rnr_retries = 7;
	Dci patient(device, settings);
	patient.send(target.number(), memory.piece(0, 3000), 5);
	ibv_wc wc;
	for (int i = 0; i < 10; ++i)
		REQUIRE(ibv_poll_cq(patient.cq, 1, &wc) == 0);
	target.receive(0, 5000, 6);
	CHECK(expect(patient.cq).wr_id == 5);
	CHECK(expect(target.cq).wr_id == 6);
}

// The first packets of the new connection must not be taken for repeated packets of the old one.
TEST_CASE("a target knows a new connection from an old one of the same initiator")
{
	Device device;
	const Settings settings = small_packets();
	Target target(device, settings);
	Memory memory(device.pd, 4096);
	Dci dci(device, settings);
	for (unsigned round = 0; round < 10; ++round) {
		for (unsigned i = 0; i < 5; ++i) {
			target.receive(0, 1000, i);
			dci.send(target.number(), memory.piece(0, 1 + 100 * i), i);
		}
		for (unsigned i = 0; i < 5; ++i) {
			REQUIRE(expect(dci.cq).wr_id == i);
			const ibv_wc wc = expect(target.cq);
			REQUIRE(wc.wr_id == i);
			REQUIRE(wc.byte_len == 1 + 100 * i);
		}
		if (round % 2)
			dci.to(IBV_QPS_ERR);
		restart(dci);
	}
	// A message that breaks off: its receive is given back when the initiator connects again, or leaves.
	target.receive(0, 1 << 17, 50);
	Memory large(device.pd, 1 << 17);
	large.fill(1);
	dci.send(target.number(), large.whole(), 60);
	ibv_wc sent;
	const volatile uint8_t &first = *target.memory.at();
	for (unsigned tries = 0; ibv_poll_cq(dci.cq, 1, &sent) == 0 && first != large.at()[0]; ++tries)
		REQUIRE(tries < 10'000'000);
	restart(dci);
	const ibv_wc wc = wait(target.cq, 1)[0];
	CHECK(wc.wr_id == 50);
	CHECK((wc.status == IBV_WC_WR_FLUSH_ERR || wc.status == IBV_WC_SUCCESS));
}

TEST_CASE("a packet that arrives after its connection has ended is not executed again")
{
	Device device;
	Settings settings;
	settings.timeout = 8; // 1 ms
	Target target(device, settings), other(device, settings);
	Memory near(device.pd, 64);
	near.fill(1);
	for (const bool comes_back : {false, true}) {
		INFO((comes_back ? "the initiator has come back" : "the initiator has left"));
		Dci dci(device, settings);
		const FaultRules faults("delay count=1 kind=write ms=50");
		const uint64_t before = counter("packets_dropped");
		dci.write(target.number(), near.piece(0, 8), target.memory.address(), target.memory.key());
		expect(dci.cq); // of the packet that was sent again
		dci.write(other.number(), near.piece(0, 8), other.memory.address(), other.memory.key());
		expect(dci.cq);
		if (comes_back) {
			dci.write(target.number(), near.piece(8, 8), target.memory.address(8), target.memory.key());
			expect(dci.cq);
		}
		target.memory.word(0) = 7; // the program goes on with its memory
		const auto start = std::chrono::steady_clock::now();
		while (counter("packets_dropped") == before &&
		       std::chrono::steady_clock::now() - start < std::chrono::seconds(5)) {
			ibv_wc none;
			CHECK(ibv_poll_cq(dci.cq, 1, &none) == 0);
		}
		CHECK(counter("packets_dropped") > before);
		CHECK(target.memory.word(0) == 7);
	}
}

TEST_CASE("an initiator flushes its work requests, and a target can be destroyed while it is used")
{
	Device device;
	Settings settings = small_packets();
	settings.timeout = 8;
	settings.retries = 2;
	Target target(device, settings);
	Dci dci(device, settings);
	Memory memory(device.pd, 4096);
	for (uint64_t i = 0; i < 10; ++i)
		dci.send(target.number(), memory.piece(0, 8), i); // there are no receives
	dci.to(IBV_QPS_ERR);
	for (uint64_t i = 0; i < 10; ++i)
		CHECK(expect(dci.cq, IBV_WC_WR_FLUSH_ERR).wr_id == i);
	restart(dci);
	auto passing = std::make_unique<Target>(device, settings);
	passing->receive(0, 100);
	const uint32_t number = passing->number();
	dci.send(number, memory.piece(0, 8));
	expect(dci.cq);
	expect(passing->cq);
	passing.reset();
	dci.send(number, memory.piece(0, 8), 1);
	dci.send(target.number(), memory.piece(0, 8), 2);
	CHECK(expect(dci.cq, IBV_WC_RETRY_EXC_ERR).wr_id == 1);
	CHECK(expect(dci.cq, IBV_WC_WR_FLUSH_ERR).wr_id == 2);
}

TEST_CASE("an initiator has READs outstanding, up to its limit, and fences what follows")
{
	Device device;
	for (uint8_t most : {uint8_t{1}, uint8_t{16}}) {
		Settings settings = small_packets();
		settings.rd_atomic = most;
		Target one(device, settings), other(device, settings);
		one.memory.fill(1);
		other.memory.fill(2);
		Dci dci(device, settings);
		Memory memory(device.pd, 1 << 18);
		constexpr size_t n = 30, slot = 4096;
		for (size_t i = 0; i < n; ++i) {
			Target &target = i % 5 < 3 ? one : other;
			dci.read(target.number(), memory.piece(i * slot, 3000), target.memory.address(i), target.memory.key(), i);
		}
		for (size_t i = 0; i < n; ++i) {
			REQUIRE(expect(dci.cq).wr_id == i);
			Target &target = i % 5 < 3 ? one : other;
			REQUIRE(same(memory.at(i * slot), target.memory.at(i), 3000) == 3000);
		}
		dci.begin();
		dci.set(1, 0);
		ibv_wr_rdma_read(dci.ex, one.memory.key(), one.memory.address(17));
		dci.address(one.number());
		dci.data({memory.piece(0, 50'000)});
		dci.set(2, IBV_SEND_SIGNALED | IBV_SEND_FENCE);
		ibv_wr_rdma_write(dci.ex, other.memory.key(), other.memory.address(3));
		dci.address(other.number());
		dci.data({memory.piece(0, 50'000)});
		dci.complete();
		CHECK(expect(dci.cq).wr_id == 2);
		CHECK(same(other.memory.at(3), one.memory.at(17), 50'000) == 50'000);
	}
}
