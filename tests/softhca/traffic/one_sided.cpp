// WRITE, READ and atomic operations, in ordinary and in device memory; the order in which bytes land.
#include <catch2/catch.hpp>

#include <atomic>
#include <cstring>
#include <numeric>
#include <thread>

#include "tests/softhca/traffic/traffic.hpp"

namespace {

// Memory of the device, with a key whose addresses begin at zero.
class DeviceMemory {
public:
	DeviceMemory(Device &device, size_t bytes)
	{
		ibv_alloc_dm_attr attributes{bytes, 3, 0};
		dm_ = ibv_alloc_dm(device.context, &attributes);
		REQUIRE(dm_);
		constexpr unsigned access = IBV_ACCESS_ZERO_BASED | static_cast<unsigned>(all_access);
		mr_ = ibv_reg_dm_mr(device.pd, dm_, 0, bytes, access);
		REQUIRE(mr_);
	}
	~DeviceMemory()
	{
		CHECK(ibv_dereg_mr(mr_) == 0);
		CHECK(ibv_free_dm(dm_) == 0);
	}
	DeviceMemory(const DeviceMemory &) = delete;
	DeviceMemory &operator=(const DeviceMemory &) = delete;

	ibv_sge piece(uint64_t offset, uint32_t length) const { return {offset, length, mr_->lkey}; }
	uint32_t key() const { return mr_->rkey; }
	void put(uint64_t offset, const uint8_t *bytes, size_t n) { REQUIRE(ibv_memcpy_to_dm(dm_, offset, bytes, n) == 0); }
	std::vector<uint8_t> get(uint64_t offset, size_t n)
	{
		std::vector<uint8_t> bytes(n);
		REQUIRE(ibv_memcpy_from_dm(bytes.data(), dm_, offset, n) == 0);
		return bytes;
	}

private:
	ibv_dm *dm_;
	ibv_mr *mr_;
};

void atomic(ibv_qp *qp, ibv_wr_opcode opcode, ibv_sge result, uint64_t address, uint32_t key, uint64_t operand,
            uint64_t swap = 0)
{
	ibv_send_wr wr = request(opcode, {&result, 1});
	wr.wr.atomic.remote_addr = address;
	wr.wr.atomic.rkey = key;
	wr.wr.atomic.compare_add = operand;
	wr.wr.atomic.swap = swap;
	post(qp, wr);
}

} // namespace

TEST_CASE("WRITE and READ move every length, and touch nothing else")
{
	Device device;
	constexpr size_t most = (3 << 20) + 8192;
	Memory near(device.pd, most), far(device.pd, most);
	for (ibv_mtu mtu : {IBV_MTU_256, IBV_MTU_1024, IBV_MTU_4096}) {
		Settings settings;
		settings.mtu = mtu;
		Pair pair(device, settings);
		const size_t m = size_t{128} << mtu;
		for (size_t bytes : {size_t{0}, size_t{1}, m - 1, m, m + 1, 10 * m + 5, (size_t{3} << 20) + 77}) {
			INFO(bytes << " bytes, packets of " << m);
			near.fill(static_cast<unsigned>(bytes));
			std::memset(far.at(), 0xee, bytes + 256);
			write(pair.a.qp, near.piece(3, bytes), far.address(101), far.key());
			const ibv_wc written = expect(pair.a.send_cq);
			CHECK(written.opcode == IBV_WC_RDMA_WRITE);
			CHECK(same(near.at(3), far.at(101), bytes) == bytes);
			CHECK(far.at(100)[0] == 0xee);
			CHECK(far.at(101 + bytes)[0] == 0xee);

			far.fill(static_cast<unsigned>(bytes) + 1);
			std::memset(near.at(), 0xdd, bytes + 256);
			read(pair.a.qp, near.piece(3, bytes), far.address(11), far.key());
			const ibv_wc got = expect(pair.a.send_cq);
			CHECK(got.opcode == IBV_WC_RDMA_READ);
			CHECK(got.byte_len == bytes);
			CHECK(same(near.at(3), far.at(11), bytes) == bytes);
			CHECK(near.at(2)[0] == 0xdd);
			CHECK(near.at(3 + bytes)[0] == 0xdd);
		}
	}
}

TEST_CASE("READ scatters what it brings, WRITE gathers")
{
	Device device;
	Settings settings;
	settings.mtu = IBV_MTU_256;
	Pair pair(device, settings);
	Memory near(device.pd, 8192), far(device.pd, 8192);
	far.fill(1);
	ibv_sge pieces[] = {near.piece(0, 100), near.piece(200, 0), near.piece(1000, 1), near.piece(4000, 3000)};
	ibv_send_wr wr = rdma(IBV_WR_RDMA_READ, pieces, far.address(50), far.key());
	post(pair.a.qp, wr);
	CHECK(expect(pair.a.send_cq).byte_len == 3101);
	CHECK(same(near.at(), far.at(50), 100) == 100);
	CHECK(near.at(1000)[0] == far.at(150)[0]);
	CHECK(same(near.at(4000), far.at(151), 3000) == 3000);
	wr = rdma(IBV_WR_RDMA_WRITE, pieces, far.address(4500), far.key());
	post(pair.a.qp, wr);
	expect(pair.a.send_cq);
	CHECK(same(far.at(4500), far.at(50), 3101) == 3101);
}

TEST_CASE("WRITE with immediate data takes a receive, and tells how much was written")
{
	Device device;
	Pair pair(device);
	Memory near(device.pd, 1 << 16), far(device.pd, 1 << 16);
	near.fill(2);
	// The memory of the receive is not touched, and may be none.
	receive(pair.b.qp, {far.piece(0, 16)}, 1);
	receive(pair.b.qp, {}, 2);
	receive(pair.b.qp, {far.piece(0, 16)}, 3);
	uint64_t id = 0;
	for (size_t bytes : {size_t{30000}, size_t{0}, size_t{5}}) {
		ibv_sge piece = near.piece(7, bytes);
		ibv_send_wr wr = rdma(IBV_WR_RDMA_WRITE_WITH_IMM, {&piece, 1}, far.address(1000), far.key());
		wr.imm_data = htobe32(42 + static_cast<uint32_t>(bytes));
		post(pair.a.qp, wr);
		CHECK(expect(pair.a.send_cq).opcode == IBV_WC_RDMA_WRITE);
		const ibv_wc wc = expect(pair.b.receive_cq);
		CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM);
		CHECK(wc.wr_id == ++id);
		CHECK(wc.byte_len == bytes);
		CHECK(wc.wc_flags == IBV_WC_WITH_IMM);
		CHECK(be32toh(wc.imm_data) == 42 + bytes);
		CHECK(same(near.at(7), far.at(1000), bytes) == bytes);
	}
	for (size_t i = 0; i < 16; ++i)
		CHECK(far.at()[i] == 0);
}

TEST_CASE("READs are executed one at a time or sixteen at once, in order, and mixed with others")
{
	Device device;
	Memory near(device.pd, 1 << 20), far(device.pd, 1 << 20);
	far.fill(6);
	for (uint8_t most : {uint8_t{1}, uint8_t{2}, uint8_t{16}}) {
		Settings settings;
		settings.rd_atomic = settings.dest_rd_atomic = most;
		settings.send_wr = 256;
		settings.mtu = IBV_MTU_512;
		Pair pair(device, settings);
		near.clear();
		constexpr size_t n = 60, slot = 8192;
		const auto length = [](size_t i) { return 1 + i * 997 % (slot - 1); };
		for (size_t i = 0; i < n; ++i) {
			read(pair.a.qp, near.piece(i * slot, length(i)), far.address(i * slot), far.key(), 2 * i);
			// A WRITE does not wait for the READ before it.
			write(pair.a.qp, far.piece(i, 1), far.address(n * slot + i), far.key(), 2 * i + 1);
		}
		uint64_t id = 0;
		for (const ibv_wc &wc : wait(pair.a.send_cq, 2 * n)) {
			REQUIRE(wc.status == IBV_WC_SUCCESS);
			REQUIRE(wc.wr_id == id++);
		}
		for (size_t i = 0; i < n; ++i) {
			REQUIRE(same(near.at(i * slot), far.at(i * slot), length(i)) == length(i));
			REQUIRE(near.at(i * slot)[length(i)] == 0);
		}
		CHECK(same(far.at(n * slot), far.at(), n) == n);
	}
}

TEST_CASE("a fenced work request waits for the READ before it")
{
	Device device;
	Settings settings;
	settings.mtu = IBV_MTU_256;
	settings.send_wr = 128;
	Pair pair(device, settings);
	constexpr size_t bytes = 100'000;
	Memory near(device.pd, bytes), far(device.pd, bytes), copy(device.pd, bytes);
	for (unsigned round = 0; round < 20; ++round) {
		far.fill(round);
		near.clear();
		copy.clear();
		read(pair.a.qp, near.whole(), far.address(), far.key(), 1, 0);
		// Sends what the READ before it brings.
		write(pair.a.qp, near.whole(), copy.address(), copy.key(), 2, IBV_SEND_SIGNALED | IBV_SEND_FENCE);
		CHECK(expect(pair.a.send_cq).wr_id == 2);
		REQUIRE(same(copy.at(), far.at(), bytes) == bytes);
	}
}

TEST_CASE("atomic operations return what was there, and change it once")
{
	Device device;
	Pair pair(device);
	Memory near(device.pd, 64), far(device.pd, 64);
	far.word(8) = 100;
	far.word(0) = far.word(16) = 0x5555555555555555;
	atomic(pair.a.qp, IBV_WR_ATOMIC_FETCH_AND_ADD, near.piece(0, 8), far.address(8), far.key(), 23);
	ibv_wc wc = expect(pair.a.send_cq);
	CHECK(wc.opcode == IBV_WC_FETCH_ADD);
	CHECK(wc.byte_len == 8);
	CHECK(near.word(0) == 100);
	CHECK(far.word(8) == 123);
	atomic(pair.a.qp, IBV_WR_ATOMIC_FETCH_AND_ADD, near.piece(0, 8), far.address(8), far.key(), ~UINT64_C(0));
	expect(pair.a.send_cq);
	CHECK(near.word(0) == 123);
	CHECK(far.word(8) == 122);
	atomic(pair.a.qp, IBV_WR_ATOMIC_CMP_AND_SWP, near.piece(0, 8), far.address(8), far.key(), 121, 7);
	wc = expect(pair.a.send_cq);
	CHECK(wc.opcode == IBV_WC_COMP_SWAP);
	CHECK(near.word(0) == 122);
	CHECK(far.word(8) == 122);
	atomic(pair.a.qp, IBV_WR_ATOMIC_CMP_AND_SWP, near.piece(32, 8), far.address(8), far.key(), 122, UINT64_C(1) << 63);
	expect(pair.a.send_cq);
	CHECK(near.word(32) == 122);
	CHECK(far.word(8) == UINT64_C(1) << 63);
	CHECK(far.word(0) == 0x5555555555555555);
	CHECK(far.word(16) == 0x5555555555555555);

	// Many at once, more than may be outstanding.
	far.word(8) = 0;
	for (unsigned i = 0; i < 60; ++i)
		atomic(pair.a.qp, IBV_WR_ATOMIC_FETCH_AND_ADD, near.piece(0, 8), far.address(8), far.key(), 1);
	for (const ibv_wc &each : wait(pair.a.send_cq, 60))
		REQUIRE(each.status == IBV_WC_SUCCESS);
	CHECK(far.word(8) == 60);
	CHECK(near.word(0) == 59);
}

TEST_CASE("four threads add to a counter over four queue pairs, and no addition is lost")
{
	constexpr unsigned threads = 4, each = 300;
	Device device;
	Memory counter(device.pd, 8);
	struct Worker {
		explicit Worker(Device &d) : pair(d), result(d.pd, each * 8) {}
		Pair pair;
		Memory result;
		std::atomic<bool> ok = false;
	};
	std::vector<std::unique_ptr<Worker>> workers;
	for (unsigned i = 0; i < threads; ++i)
		workers.push_back(std::make_unique<Worker>(device));
	{
		std::vector<std::jthread> running;
		for (auto &worker : workers)
			running.emplace_back([&w = *worker, &counter] {
				for (unsigned i = 0; i < each; ++i) {
					ibv_sge piece = w.result.piece(i * 8, 8);
					ibv_send_wr wr = request(IBV_WR_ATOMIC_FETCH_AND_ADD, {&piece, 1}), *bad;
					wr.wr.atomic.remote_addr = counter.address();
					wr.wr.atomic.rkey = counter.key();
					wr.wr.atomic.compare_add = 1;
					if (ibv_post_send(w.pair.a.qp, &wr, &bad) != 0)
						return;
					ibv_wc wc;
					for (unsigned tries = 0; ibv_poll_cq(w.pair.a.send_cq, 1, &wc) == 0; ++tries)
						if (tries > 10'000'000)
							return;
					if (wc.status != IBV_WC_SUCCESS)
						return;
				}
				w.ok = true;
			});
	}
	std::vector<bool> seen(threads * each);
	for (auto &worker : workers) {
		REQUIRE(worker->ok);
		for (unsigned i = 0; i < each; ++i) {
			const uint64_t value = worker->result.word(i * 8);
			REQUIRE(value < seen.size());
			REQUIRE_FALSE(seen[value]); // no other thread got the same
			seen[value] = true;
			if (i)
				REQUIRE(value > worker->result.word(i * 8 - 8));
		}
	}
	CHECK(counter.word(0) == threads * each);
}

TEST_CASE("device memory is source and destination of everything, by a key that begins at zero")
{
	Device device;
	Settings settings;
	settings.mtu = IBV_MTU_256;
	Pair pair(device, settings);
	constexpr size_t bytes = 5000;
	Memory memory(device.pd, 2 * bytes);
	DeviceMemory dm(device, 2 * bytes), other(device, 2 * bytes);
	std::vector<uint8_t> wanted(bytes);
	for (size_t i = 0; i < bytes; ++i)
		wanted[i] = pattern(8, i);
	dm.put(64, wanted.data(), bytes);

	receive(pair.b.qp, {memory.piece(0, bytes)});
	send(pair.a.qp, dm.piece(64, bytes));
	expect(pair.a.send_cq);
	expect(pair.b.receive_cq);
	CHECK(same(memory.at(), wanted.data(), bytes) == bytes);

	memory.clear();
	write(pair.a.qp, dm.piece(65, bytes - 1), memory.address(10), memory.key());
	expect(pair.a.send_cq);
	CHECK(same(memory.at(10), wanted.data() + 1, bytes - 1) == bytes - 1);

	write(pair.a.qp, dm.piece(64, bytes), 128, other.key());
	expect(pair.a.send_cq);
	CHECK(other.get(128, bytes) == wanted);

	memory.fill(9);
	write(pair.a.qp, memory.piece(0, bytes), 0, dm.key());
	expect(pair.a.send_cq);
	CHECK(same(dm.get(0, bytes).data(), memory.at(), bytes) == bytes);

	memory.clear();
	read(pair.a.qp, memory.piece(0, bytes), 128, other.key());
	expect(pair.a.send_cq);
	CHECK(same(memory.at(), wanted.data(), bytes) == bytes);
	read(pair.a.qp, dm.piece(bytes, bytes), 128, other.key()); // from device memory to device memory
	expect(pair.a.send_cq);
	CHECK(dm.get(bytes, bytes) == wanted);

	const uint64_t start = 1000;
	dm.put(256, reinterpret_cast<const uint8_t *>(&start), 8);
	atomic(pair.a.qp, IBV_WR_ATOMIC_FETCH_AND_ADD, other.piece(8, 8), 256, dm.key(), 5);
	expect(pair.a.send_cq);
	uint64_t value;
	std::memcpy(&value, other.get(8, 8).data(), 8);
	CHECK(value == 1000);
	std::memcpy(&value, dm.get(256, 8).data(), 8);
	CHECK(value == 1005);

	// One byte beyond its end.
	write(pair.a.qp, memory.piece(0, 2), 2 * bytes - 1, dm.key());
	expect(pair.a.send_cq, IBV_WC_REM_ACCESS_ERR);
	next_event(device.context, IBV_EVENT_QP_ACCESS_ERR);
}

// As ibv_reg_mr(3) says: "Use byte offset from beginning of MR to access this MR, instead of a pointer address".
TEST_CASE("a zero-based region of ordinary memory is addressed by offsets")
{
	Device device;
	Pair pair(device);
	Memory near(device.pd, 4096), place(device.pd, 4096);
	near.fill(4);
	constexpr int access = all_access | IBV_ACCESS_ZERO_BASED;
	ibv_mr *mr = ibv_reg_mr(device.pd, place.at(), place.size(), access);
	REQUIRE(mr);
	write(pair.a.qp, near.piece(0, 1000), 96, mr->rkey);
	const ibv_wc wc = wait(pair.a.send_cq, 1)[0];
	CHECK(wc.status == IBV_WC_SUCCESS);
	if (wc.status == IBV_WC_SUCCESS) {
		CHECK(same(place.at(96), near.at(), 1000) == 1000);
		receive(pair.b.qp, {ibv_sge{2000, 100, mr->lkey}});
		send(pair.a.qp, ibv_sge{96, 100, mr->lkey});
		expect(pair.a.send_cq);
		expect(pair.b.receive_cq);
		CHECK(same(place.at(2000), near.at(), 100) == 100);
	}
	CHECK(ibv_dereg_mr(mr) == 0);
}

TEST_CASE("a region under another address is used by that address")
{
	Device device;
	Pair pair(device);
	Memory near(device.pd, 4096), place(device.pd, 4096);
	near.fill(4);
	constexpr uint64_t base = UINT64_C(0x123456789000);
	ibv_mr *mr = ibv_reg_mr_iova(device.pd, place.at(), place.size(), base, all_access);
	REQUIRE(mr);
	write(pair.a.qp, near.piece(0, 1000), base + 96, mr->rkey);
	expect(pair.a.send_cq);
	CHECK(same(place.at(96), near.at(), 1000) == 1000);
	CHECK(ibv_dereg_mr(mr) == 0);
}

TEST_CASE("bytes land in ascending order, the last one last")
{
	Device device;
	Settings settings;
	settings.mtu = IBV_MTU_4096;
	Pair pair(device, settings);
	constexpr size_t bytes = 9000;
	Memory near(device.pd, bytes), far(device.pd, bytes + 16);
	constexpr unsigned rounds = 300;
	std::atomic<unsigned> watched = 0; // rounds whose last byte has been seen
	std::atomic<size_t> wrong = 0;
	const auto load = [&](size_t i) { return __atomic_load_n(far.at(3 + i), __ATOMIC_ACQUIRE); };
	std::jthread watcher([&](const std::stop_token &stop) {
		for (unsigned round = 1; round <= rounds; ++round) {
			const auto now = static_cast<uint8_t>(round);
			// Looks from the end: what is there must have everything before it. Then from the last byte.
			while (load(bytes - 1) != now) {
				if (stop.stop_requested())
					return;
				for (size_t i = bytes - 1; i > 250; i -= 250) {
					if (load(i) != now)
						continue;
					for (size_t before = 0; before < i; ++before)
						wrong += load(before) != now;
					break;
				}
			}
			for (size_t i = 0; i < bytes; ++i)
				wrong += load(i) != now;
			watched = round;
		}
	});
	for (unsigned round = 1; round <= rounds; ++round) {
		std::memset(near.at(), static_cast<uint8_t>(round), bytes);
		if (round % 2) {
			write(pair.a.qp, near.piece(0, bytes), far.address(3), far.key());
		} else {
			receive(pair.b.qp, {far.piece(3, 5000), far.piece(5003, 4000)});
			send(pair.a.qp, near.piece(0, bytes));
			expect(pair.b.receive_cq);
		}
		expect(pair.a.send_cq);
		for (unsigned tries = 0; watched < round; ++tries) {
			REQUIRE(tries < 100'000'000);
			std::this_thread::yield();
		}
	}
	CHECK(wrong == 0);
}
