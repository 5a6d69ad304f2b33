// Packets that are lost, duplicated, delayed or reordered change no result. The fault rules are set by the tests.
#include <catch2/catch.hpp>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "softhca/softhca.h"
#include "tests/softhca/traffic/traffic.hpp"

namespace {

Settings impatient()
{
	Settings settings;
	settings.timeout = 8; // 1 ms
	settings.mtu = IBV_MTU_256;
	return settings;
}

// Nothing is lost by a torn READ, but on a busy machine its pauses last.
Settings settings_for(const std::string &rules)
{
	Settings settings = impatient();
	if (rules.starts_with("tear"))
		settings.timeout = 0; // never
	return settings;
}

// SEND, WRITE, READ and atomics of several packets each, in flight together; every byte is looked at.
void mixed_traffic(Device &device, unsigned rounds, const Settings &settings)
{
	constexpr size_t bytes = 3000, page = 4096;
	Pair pair(device, settings);
	Memory from(device.pd, 4 * page), to(device.pd, 4 * page), results(device.pd, page);
	for (unsigned round = 0; round < rounds; ++round) {
		INFO("round " << round);
		from.fill(round);
		std::memset(to.at(), 0, 3 * page);
		std::memset(from.at(2 * page), 0, page);
		receive(pair.b.qp, {to.piece(0, page)});
		send(pair.a.qp, from.piece(0, bytes), 1, 0);
		write(pair.a.qp, from.piece(page, bytes), to.address(page), to.key(), 2, 0);
		// Reads back what has just been written.
		read(pair.a.qp, from.piece(2 * page, bytes), to.address(page), to.key(), 3, 0);
		ibv_sge piece = results.piece(8 * (round % 64), 8);
		ibv_send_wr atomic = request(IBV_WR_ATOMIC_FETCH_AND_ADD, {&piece, 1}, 4, IBV_SEND_SIGNALED);
		atomic.wr.atomic.remote_addr = to.address(3 * page);
		atomic.wr.atomic.rkey = to.key();
		atomic.wr.atomic.compare_add = 1;
		post(pair.a.qp, atomic);
		const ibv_wc wc = expect(pair.a.send_cq);
		REQUIRE(wc.wr_id == 4);
		REQUIRE(expect(pair.b.receive_cq).byte_len == bytes);
		REQUIRE(same(to.at(), from.at(), bytes) == bytes);
		REQUIRE(same(to.at(page), from.at(page), bytes) == bytes);
		REQUIRE(same(from.at(2 * page), to.at(page), bytes) == bytes);
		REQUIRE(results.word(8 * (round % 64)) == round); // each operation once
	}
	CHECK(to.word(3 * page) == rounds);
}

} // namespace

TEST_CASE("every kind of operation survives every kind of disorder")
{
	const std::string rules = GENERATE(
	    as<std::string>(), "drop rate=0.05 seed=1", "drop rate=0.05 seed=2", "duplicate rate=0.2", "reorder rate=0.1",
	    "delay rate=0.1 us=300", "drop kind=acknowledge rate=0.3", "drop kind=read_response rate=0.1",
	    "drop kind=atomic_response rate=0.3", "drop kind=read rate=0.3", "drop kind=refuse rate=0.5; drop rate=0.03",
	    "tear rate=0.5 us=30", "drop rate=0.03; duplicate rate=0.1; reorder rate=0.05; delay us=200 rate=0.05");
	INFO(rules);
	Device device;
	const uint64_t before = counter("faults");
	{
		const FaultRules faults(rules);
		mixed_traffic(device, 100, settings_for(rules));
	}
	CHECK(counter("faults") > before);
}

TEST_CASE("a DC initiator that changes targets survives losses")
{
	Device device;
	const std::string rules = GENERATE(as<std::string>(), "drop rate=0.05", "duplicate rate=0.2", "reorder rate=0.1",
	                                   "drop kind=disconnect", "drop kind=acknowledge rate=0.3", "tear rate=0.5");
	INFO(rules);
	Memory memory(device.pd, 4 * 4096);
	Srq srq(device);
	Cq cq(device.context);
	const Settings settings = settings_for(rules);
	Dct one(device, srq.srq, cq, settings), other(device, srq.srq, cq, settings);
	Dci dci(device, settings);
	const FaultRules faults(rules);
	for (unsigned round = 0; round < 100; ++round) {
		INFO("round " << round);
		memory.fill(round);
		const Dct &target = round % 3 ? one : other;
		dci.write(target.number(), memory.piece(0, 2000), memory.address(4096), memory.key(), 1);
		dci.read(round % 2 ? one.number() : other.number(), memory.piece(8192, 1500), memory.address(12288),
		         memory.key(), 2);
		REQUIRE(expect(dci.cq).wr_id == 1);
		REQUIRE(expect(dci.cq).wr_id == 2);
		REQUIRE(same(memory.at(4096), memory.at(0), 2000) == 2000);
		REQUIRE(same(memory.at(8192), memory.at(12288), 1500) == 1500);
	}
}

TEST_CASE("when receives are hidden, the sender waits or gives up")
{
	Device device;
	Memory memory(device.pd, 4096);
	Settings settings = impatient();
	settings.rnr_retries = 2;
	Pair pair(device, settings);
	for (int i = 0; i < 2; ++i)
		receive(pair.b.qp, {memory.piece(1024, 64)});
	{
		const FaultRules faults("starve count=2");
		const uint64_t before = counter("rnr_naks_sent");
		const auto lost = [] {
			return counter("retransmissions") - counter("rnr_resent") + counter("packets_dropped") -
			       counter("rnr_dropped");
		};
		const uint64_t lost_before = lost(), resent_before = counter("rnr_resent");
		send(pair.a.qp, memory.piece(0, 64));
		expect(pair.a.send_cq);
		expect(pair.b.receive_cq);
		CHECK(counter("rnr_naks_sent") == before + 2);
		CHECK(counter("rnr_resent") == resent_before + 2);
		CHECK(lost() == lost_before);
	}
	const FaultRules faults("starve count=3");
	send(pair.a.qp, memory.piece(0, 64));
	expect(pair.a.send_cq, IBV_WC_RNR_RETRY_EXC_ERR);
}

TEST_CASE("a link that is down for a moment causes an event, and nothing is lost")
{
	Device device;
	Memory memory(device.pd, 4096);
	Settings settings = impatient();
	settings.timeout = 14; // 67 ms, seven times
	Pair pair(device, settings);
	const FaultRules faults("link_down ms=200 count=1");
	write(pair.a.qp, memory.piece(0, 64), memory.address(1024), memory.key());
	next_event(device.context, IBV_EVENT_PORT_ERR);
	ibv_port_attr port;
	REQUIRE(ibv_query_port(device.context, 1, &port) == 0);
	CHECK(port.state == IBV_PORT_DOWN);
	next_event(device.context, IBV_EVENT_PORT_ACTIVE);
	REQUIRE(ibv_query_port(device.context, 1, &port) == 0);
	CHECK(port.state == IBV_PORT_ACTIVE);
	expect(pair.a.send_cq);
}

TEST_CASE("a link that stays down ends in exhausted retries")
{
	Device device;
	Memory memory(device.pd, 4096);
	Settings settings = impatient();
	settings.retries = 3;
	Pair pair(device, settings);
	{
		const FaultRules faults("link_down ms=100000 count=1");
		const uint64_t before = counter("timeouts");
		write(pair.a.qp, memory.piece(0, 64), memory.address(1024), memory.key());
		expect(pair.a.send_cq, IBV_WC_RETRY_EXC_ERR);
		CHECK(counter("timeouts") == before + 4); // the first, and three more
	}
	next_event(device.context, IBV_EVENT_PORT_ERR);
	next_event(device.context, IBV_EVENT_PORT_ACTIVE);
	reconnect(pair.a, pair.b);
	exchange(device, pair.a, pair.b);
}

TEST_CASE("a queue pair can be broken at a chosen work request")
{
	Device device;
	Memory memory(device.pd, 4096);
	Pair pair(device);
	{
		const FaultRules faults("break after=2 qp=" + std::to_string(pair.a.number()));
		for (uint64_t i = 0; i < 2; ++i) {
			write(pair.a.qp, memory.piece(0, 64), memory.address(1024), memory.key(), i);
			expect(pair.a.send_cq);
		}
		for (uint64_t i = 0; i < 2; ++i) {
			write(pair.a.qp, memory.piece(0, 64), memory.address(1024), memory.key(), i);
			expect(pair.a.send_cq, IBV_WC_WR_FLUSH_ERR);
		}
		CHECK(next_event(device.context, IBV_EVENT_QP_FATAL).element.qp == pair.a.qp);
	}
	reconnect(pair.a, pair.b);
	exchange(device, pair.a, pair.b);
}

TEST_CASE("objects are refused with an error that says so")
{
	Device device;
	char page[64];
	{
		const FaultRules faults("refuse mr count=1; refuse dm count=1; refuse qp count=1");
		CHECK(ibv_reg_mr(device.pd, page, sizeof page, local_write) == nullptr);
		CHECK(errno == ENOMEM);
		ibv_alloc_dm_attr attributes{};
		attributes.length = 64;
		CHECK(ibv_alloc_dm(device.context, &attributes) == nullptr);
		CHECK(errno == ENOMEM);
		Cq cq(device.context);
		ibv_qp_init_attr attr{};
		attr.send_cq = attr.recv_cq = cq;
		attr.qp_type = IBV_QPT_RC;
		attr.cap = {1, 1, 1, 1, 0};
		CHECK(ibv_create_qp(device.pd, &attr) == nullptr);
		CHECK(errno == ENOMEM);
	}
	ibv_mr *mr = ibv_reg_mr(device.pd, page, sizeof page, local_write);
	REQUIRE(mr);
	CHECK(ibv_dereg_mr(mr) == 0);
}

TEST_CASE("fault rules that cannot be understood are refused with the cause")
{
	REQUIRE(softhca_fault);
	char why[64];
	CHECK(softhca_fault("drop rate=7", why, sizeof why) == -1);
	CHECK(errno == EINVAL);
	CHECK(std::strstr(why, "0 to 1"));
	CHECK(softhca_fault("nonsense", nullptr, 0) == -1);
	CHECK(softhca_fault(nullptr, why, sizeof why) == -1);
}

TEST_CASE("one lost packet is sent again, whichever it is")
{
	Device device;
	Settings settings;
	settings.mtu = IBV_MTU_256;
	settings.timeout = 12; // 17 ms
	settings.retries = 2;
	settings.psn = 0xffffe0;
	constexpr size_t bytes = 5000;
	Memory near(device.pd, 4 * bytes), far(device.pd, 4 * bytes);
	for (const char *kind :
	     {"send", "write", "read", "atomic", "read_response", "atomic_response", "acknowledge", "refuse"})
		for (unsigned after : {0u, 1u, 2u, 7u, 18u, 19u, 20u}) {
			INFO(kind << " after " << after);
			Pair pair(device, settings);
			const FaultRules rules("drop count=1 kind=" + std::string(kind) + " after=" + std::to_string(after));
			near.fill(after);
			far.clear();
			send(pair.a.qp, near.piece(0, bytes), 0);
			for (uint64_t i = 1; i < 4; ++i) {
				ibv_sge piece = near.piece(i, 8);
				ibv_send_wr wr = request(IBV_WR_ATOMIC_FETCH_AND_ADD, {&piece, 1}, i);
				wr.wr.atomic.remote_addr = far.address(3 * bytes / 8 * 8);
				wr.wr.atomic.rkey = far.key();
				wr.wr.atomic.compare_add = 1;
				if (i == 1)
					write(pair.a.qp, near.piece(bytes, bytes), far.address(bytes), far.key(), 10);
				if (i == 2)
					read(pair.a.qp, near.piece(2 * bytes, bytes), far.address(bytes), far.key(), 11);
				post(pair.a.qp, wr);
			}
			receive(pair.b.qp, {far.piece(0, bytes)});
			for (uint64_t id : {0, 10, 1, 11, 2, 3})
				REQUIRE(expect(pair.a.send_cq).wr_id == id);
			REQUIRE(expect(pair.b.receive_cq).byte_len == bytes);
			for (size_t i = 16; i < bytes; ++i) // the atomic operation has overwritten the first bytes
				REQUIRE(far.at()[i] == pattern(after, i));
			REQUIRE(same(far.at(bytes), near.at(bytes), bytes) == bytes);
			REQUIRE(same(near.at(2 * bytes), near.at(bytes), bytes) == bytes);
			REQUIRE(far.word(3 * bytes / 8 * 8) == 3);
		}
}

TEST_CASE("a lost response is asked for once, however many come after it")
{
	Device device;
	Settings settings;
	settings.mtu = IBV_MTU_256;
	settings.retries = 1;
	constexpr size_t bytes = 1000 * 256;
	Memory near(device.pd, bytes), far(device.pd, bytes);
	far.fill(1);
	for (unsigned after : {0u, 5u, 100u, 700u}) {
		INFO("after " << after);
		Pair pair(device, settings);
		const FaultRules rules("drop count=1 kind=read_response after=" + std::to_string(after));
		near.clear();
		read(pair.a.qp, near.whole(), far.address(), far.key());
		expect(pair.a.send_cq);
		CHECK(same(near.at(), far.at(), bytes) == bytes);
		CHECK(counter("retransmissions", pair.a.number()) == 1);
	}
}

TEST_CASE("READs that arrive twice do not count as more than are allowed")
{
	Device device;
	Settings settings;
	settings.mtu = IBV_MTU_256;
	settings.rd_atomic = settings.dest_rd_atomic = 4;
	Pair pair(device, settings);
	const FaultRules rules("duplicate kind=read");
	constexpr size_t n = 50, bytes = 30 * 256; // four fit into what may be outstanding
	Memory near(device.pd, bytes), far(device.pd, bytes);
	far.fill(1);
	ibv_sge piece = near.whole();
	std::vector<ibv_send_wr> reads; // in one list, so that many arrive at once
	for (uint64_t i = 0; i < n; ++i)
		reads.push_back(rdma(IBV_WR_RDMA_READ, {&piece, 1}, far.address(), far.key(), i));
	for (size_t i = 1; i < n; ++i)
		reads[i - 1].next = &reads[i];
	post(pair.a.qp, reads[0]);
	for (uint64_t i = 0; i < n; ++i)
		REQUIRE(expect(pair.a.send_cq).wr_id == i);
	CHECK(same(near.at(), far.at(), bytes) == bytes);
	CHECK(counter("faults", pair.a.number()) == n);
}

// In a process of its own: the device stays broken.
TEST_CASE("a device that fails raises events for everybody, and can be closed", "[.fatal]")
{
	Device device;
	Memory memory(device.pd, 4096);
	Pair pair(device);
	const FaultRules faults("fatal after=1");
	write(pair.a.qp, memory.piece(0, 64), memory.address(1024), memory.key());
	expect(pair.a.send_cq);
	write(pair.a.qp, memory.piece(0, 64), memory.address(1024), memory.key());
	expect(pair.a.send_cq, IBV_WC_WR_FLUSH_ERR);
	next_event(device.context, IBV_EVENT_DEVICE_FATAL);
	CHECK(ibv_alloc_pd(device.context) == nullptr);
	CHECK(errno == EIO);
	ibv_qp_attr attr{};
	attr.qp_state = IBV_QPS_RESET;
	CHECK(ibv_modify_qp(pair.a.qp, &attr, IBV_QP_STATE) == EIO);
}
