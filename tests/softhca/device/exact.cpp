// In exact mode, everything that a program makes a NIC do is counted exactly. exact.sh runs this under softhca --exact.
#include <catch2/catch.hpp>

#include <atomic>
#include <cerrno>
#include <memory>
#include <thread>

#include "softhca/counters/counters.hpp"
#include "softhca/softhca.h"
#include "tests/softhca/traffic/traffic.hpp"

namespace {

// How a counter changes from here on.
class Change {
public:
	explicit Change(const char *name, uint32_t qp = 0) : name_(name), qp_(qp), before_(counter(name, qp)) {}
	uint64_t operator()() const { return counter(name_, qp_) - before_; }

private:
	const char *name_;
	uint32_t qp_;
	uint64_t before_;
};

constexpr uint64_t unit = 64; // a WQEBB, in bytes

} // namespace

TEST_CASE("every post of one inline message is one BlueFlame write, and nothing is fetched", "[.exact]")
{
	Device device;
	Memory memory(device.pd, 4096);
	Pair pair(device);
	Change rings("doorbells"), blueflames("blueflames"), bytes("blueflame_store_bytes"), reads("wqe_reads"),
	    payload("payload_reads"), inlined("inline_bytes"), of_queue_pair("doorbells", pair.a.number());
	constexpr unsigned n = 500;
	for (unsigned i = 0; i < n; ++i) {
		receive(pair.b.qp, {memory.piece(1024, 8)});
		send(pair.a.qp, memory.piece(0, 8), i, IBV_SEND_INLINE | IBV_SEND_SIGNALED);
		expect(pair.a.send_cq);
		expect(pair.b.receive_cq);
	}
	CHECK(rings() == n);
	CHECK(of_queue_pair() == n);
	CHECK(blueflames() == n);
	CHECK(bytes() == n * unit); // the control segment, 8 bytes and their length fit into one WQEBB
	CHECK(reads() == 0);
	CHECK(payload() == 0);
	CHECK(inlined() == n * 8);
}

TEST_CASE("a list of work requests is one doorbell, and one read fetches them", "[.exact]")
{
	Device device;
	Memory memory(device.pd, 4096);
	Pair pair(device);
	constexpr size_t n = 4; // one WQEBB each: 256 bytes from the start of the queue
	ibv_sge pieces[n];
	ibv_send_wr list[n];
	for (size_t i = 0; i < n; ++i) {
		pieces[i] = memory.piece(64 * i, 64);
		list[i] = rdma(IBV_WR_RDMA_WRITE, {&pieces[i], 1}, memory.address(2048 + 64 * i), memory.key(), i,
		               i + 1 == n ? unsigned{IBV_SEND_SIGNALED} : 0u);
		list[i].next = i + 1 == n ? nullptr : &list[i + 1];
	}
	Change rings("doorbells"), blueflames("blueflames"), wqes("wqes"), reads("wqe_reads"), bytes("wqe_read_bytes"),
	    payload("payload_read_bytes"), payload_reads("payload_reads"), cqes("cqes");
	post(pair.a.qp, list[0]);
	expect(pair.a.send_cq);
	CHECK(rings() == 1);
	CHECK(blueflames() == 0);
	CHECK(wqes() == n);
	CHECK(reads() == 1);
	CHECK(bytes() == n * unit);
	CHECK(payload() == n * 64);
	CHECK(payload_reads() == n);
	CHECK(cqes() == 1);
}

TEST_CASE("payload is counted in the PCIe transactions that its address and length take", "[.exact]")
{
	Device device;
	Memory from(device.pd, 8192), to(device.pd, 8192);
	Settings settings;
	settings.mtu = IBV_MTU_4096;
	Pair pair(device, settings);
	size_t offset, bytes;
	std::tie(offset, bytes) = GENERATE(table<size_t, size_t>({{0, 512}, {8, 512}, {100, 1}, {4000, 200}, {256, 4096}}));
	Change reads("payload_reads"), read_bytes("payload_read_bytes"), writes("payload_writes"),
	    write_bytes("payload_write_bytes");
	write(pair.a.qp, from.piece(offset, bytes), to.address(offset), to.key());
	expect(pair.a.send_cq);
	CHECK(reads() == softhca::pcie_reads(from.address(offset), bytes));
	CHECK(read_bytes() == bytes);
	CHECK(writes() == softhca::pcie_writes(to.address(offset), bytes));
	CHECK(write_bytes() == bytes);
}

TEST_CASE("stores to device memory are counted to the byte, and what is sent from there is not read from the host",
          "[.exact]")
{
	Device device;
	Memory to(device.pd, 4096);
	Pair pair(device);
	ibv_alloc_dm_attr attributes{};
	attributes.length = 1024;
	ibv_dm *dm = ibv_alloc_dm(device.context, &attributes);
	REQUIRE(dm);
	std::vector<uint8_t> bytes(512);
	for (size_t i = 0; i < bytes.size(); ++i)
		bytes[i] = pattern(3, i);
	Change stored("dm_store_bytes"), stores("dm_stores"), from_host("payload_read_bytes"), from_dm("dm_read_bytes");
	REQUIRE(ibv_memcpy_to_dm(dm, 64, bytes.data(), bytes.size()) == 0); // before it is registered, too
	ibv_mr *mr = ibv_reg_dm_mr(device.pd, dm, 0, 1024, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE);
	REQUIRE(mr);
	CHECK(stored() == bytes.size());
	CHECK(stores() >= bytes.size() / 64);
	CHECK(stores() <= bytes.size() / 4);
	ibv_sge piece{64, static_cast<uint32_t>(bytes.size()), mr->lkey};
	write(pair.a.qp, piece, to.address(), to.key());
	expect(pair.a.send_cq);
	CHECK(from_host() == 0);
	CHECK(from_dm() == bytes.size());
	CHECK(same(to.at(), bytes.data(), bytes.size()) == bytes.size());
	CHECK(ibv_dereg_mr(mr) == 0);
	CHECK(ibv_free_dm(dm) == 0);
}

TEST_CASE("device memory that is allocated and freed again and again is counted each time", "[.exact]")
{
	Device device;
	Change stored("dm_store_bytes");
	constexpr unsigned times = 20;
	const uint8_t bytes[100] = {1, 2, 3};
	for (unsigned i = 0; i < times; ++i) {
		ibv_alloc_dm_attr attributes{};
		attributes.length = 100 + 64 * (i % 3);
		ibv_dm *dm = ibv_alloc_dm(device.context, &attributes);
		REQUIRE(dm);
		REQUIRE(ibv_memcpy_to_dm(dm, 0, bytes, sizeof bytes) == 0);
		REQUIRE(ibv_free_dm(dm) == 0);
	}
	CHECK(stored() == times * sizeof bytes);
}

TEST_CASE("threads that post at the same time lose no doorbell", "[.exact]")
{
	Device device;
	constexpr unsigned threads = 4, posts = 500;
	Memory memory(device.pd, 4096);
	std::vector<std::unique_ptr<Pair>> pairs;
	for (unsigned i = 0; i < threads; ++i)
		pairs.push_back(std::make_unique<Pair>(device));
	Change rings("doorbells"), blueflames("blueflames");
	std::vector<std::thread> all;
	std::atomic<unsigned> good = 0;
	for (unsigned i = 0; i < threads; ++i)
		all.emplace_back([&, i] {
			Pair &pair = *pairs[i];
			for (unsigned n = 0; n < posts; ++n) {
				ibv_sge piece = memory.piece(8 * i, 8);
				ibv_send_wr wr = rdma(IBV_WR_RDMA_WRITE, {&piece, 1}, memory.address(1024 + 8 * i), memory.key(), n,
				                      IBV_SEND_SIGNALED | IBV_SEND_INLINE);
				ibv_send_wr *bad;
				if (ibv_post_send(pair.a.qp, &wr, &bad) != 0)
					return;
				ibv_wc wc;
				int got;
				while ((got = ibv_poll_cq(pair.a.send_cq, 1, &wc)) == 0)
					;
				if (got == 1 && wc.status == IBV_WC_SUCCESS)
					++good;
			}
		});
	for (std::thread &thread : all)
		thread.join();
	CHECK(good == threads * posts);
	CHECK(rings() == threads * posts);
	CHECK(blueflames() == threads * posts);
}

TEST_CASE("a DC initiator's connections and switches are counted", "[.exact]")
{
	Device device;
	Memory memory(device.pd, 4096);
	Srq srq(device);
	Cq cq(device.context);
	Dct first(device, srq.srq, cq), second(device, srq.srq, cq);
	Dci dci(device);
	Change connects("dc_connects"), switches("dc_switches");
	const auto write_to = [&](const Dct &dct) {
		dci.write(dct.number(), memory.piece(0, 8), memory.address(64), memory.key());
		expect(dci.cq);
	};
	write_to(first);
	write_to(first);
	CHECK(connects() == 1);
	CHECK(switches() == 0);
	for (int i = 0; i < 5; ++i) {
		write_to(second);
		write_to(first);
	}
	CHECK(connects() == 11);
	CHECK(switches() == 10);
}

TEST_CASE("arming a completion queue is not counted as a doorbell of a queue pair", "[.exact]")
{
	Device device;
	ibv_comp_channel *channel = ibv_create_comp_channel(device.context);
	REQUIRE(channel);
	{
		Cq cq(device.context, 16, channel);
		Settings settings;
		settings.send_cq = cq;
		Memory memory(device.pd, 64);
		Pair pair(device, settings);
		Change rings("doorbells"), arms("arm_doorbells");
		REQUIRE(ibv_req_notify_cq(cq, 0) == 0);
		CHECK(arms() == 1);
		CHECK(rings() == 0);
		write(pair.a.qp, memory.piece(0, 8), memory.address(8), memory.key());
		ibv_cq *which;
		void *mine;
		REQUIRE(ibv_get_cq_event(channel, &which, &mine) == 0);
		CHECK(which == cq.cq);
		ibv_ack_cq_events(cq, 1);
		expect(cq);
		CHECK(rings() == 1);
	}
	ibv_destroy_comp_channel(channel);
}

TEST_CASE("counters of a queue pair outlive it, and unknown counters and queue pairs are not found")
{
	Device device;
	Memory memory(device.pd, 64);
	uint32_t number;
	{
		Pair pair(device);
		number = pair.a.number();
		write(pair.a.qp, memory.piece(0, 8), memory.address(8), memory.key());
		expect(pair.a.send_cq);
		CHECK(counter("wqes", number) == 1);
		CHECK(counter("cqes", number) == 1);
	}
	CHECK(counter("wqes", number) == 1);
	CHECK(counter("wqes") >= 1);
	uint64_t value;
	CHECK(softhca_counter("nonsense", -1, 0, &value) == -1);
	CHECK(errno == ENOENT);
	CHECK(softhca_counter("wqes", 7, 0, &value) == -1);
	CHECK(softhca_counter("wqes", -1, 0xffffff, &value) == -1);
	CHECK(softhca_counter("wqes", -1, 0, nullptr) == -1);
	CHECK(softhca_counter(nullptr, -1, 0, &value) == -1);
}
