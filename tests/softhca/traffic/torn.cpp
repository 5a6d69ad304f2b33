// READs whose answers a fault rule tears: the memory is read in pieces, and what changes it meanwhile is in some of
// them and not in others. Without such a rule a READ of one packet sees a WRITE of one packet whole or not at all, as
// the device executes either in one step. These cases also run in virtual time (model.sh).
#include <catch2/catch.hpp>

#include <algorithm>
#include <set>
#include <vector>

#include "tests/softhca/traffic/traffic.hpp"

namespace {

constexpr size_t object = 1024, line = 64, lines = object / line;

Settings settings_of(ibv_mtu mtu)
{
	Settings settings;
	settings.mtu = mtu;
	settings.timeout = 0; // never: on a busy machine pauses last, and a READ that is repeated is torn again
	return settings;
}

// What a reader has seen of an object, all of whose lines have the number of its version.
struct Seen {
	unsigned torn = 0, rising = 0, falling = 0; // of these, whose first line is older than the last, or newer
	void look(Memory &memory, size_t offset)
	{
		std::set<uint64_t> versions;
		for (size_t i = 0; i < lines; ++i)
			versions.insert(memory.word(offset + i * line));
		const uint64_t first = memory.word(offset), last = memory.word(offset + object - line);
		torn += versions.size() > 1;
		rising += first < last;
		falling += first > last;
	}
};

void set_version(Memory &memory, size_t offset, uint64_t version)
{
	for (size_t i = 0; i < lines; ++i)
		memory.word(offset + i * line) = version;
}

// Reads an object while another queue pair writes one version of it after the other.
Seen read_while_written(Device &device, ibv_mtu mtu, unsigned rounds)
{
	Pair reader(device, settings_of(mtu)), writer(device, settings_of(IBV_MTU_1024));
	Memory memory(device.pd, 4096);
	Seen seen;
	uint64_t version = 0;
	for (unsigned round = 0; round < rounds; ++round) {
		read(reader.a.qp, memory.piece(2048, object), memory.address(0), memory.key());
		ibv_wc wc{};
		do {
			set_version(memory, 1024, ++version);
			write(writer.a.qp, memory.piece(1024, object), memory.address(0), memory.key());
			expect(writer.a.send_cq);
		} while (ibv_poll_cq(reader.a.send_cq, 1, &wc) == 0);
		REQUIRE(wc.status == IBV_WC_SUCCESS);
		seen.look(memory, 2048);
	}
	return seen;
}

} // namespace

TEST_CASE("a READ is torn where a rule says so, in any order, and nowhere else", "[tear]")
{
	Device device;
	// In one packet, and in four: pieces are taken in any order across packets, too.
	const ibv_mtu mtu = GENERATE(IBV_MTU_1024, IBV_MTU_256);
	const uint64_t before = counter("faults");
	const Seen whole = read_while_written(device, mtu, 100);
	CHECK(whole.torn == 0);
	CHECK(counter("faults") == before);
	const FaultRules faults("tear us=20");
	const Seen torn = read_while_written(device, mtu, 100);
	CHECK(torn.torn > 50);
	CHECK(torn.rising > 5);
	CHECK(torn.falling > 5);
	CHECK(counter("faults") == before + 100);
}

TEST_CASE("the program that is read from goes on between the pieces", "[tear]")
{
	Device device;
	Pair reader(device, settings_of(IBV_MTU_1024));
	Memory memory(device.pd, 4096);
	const FaultRules faults("tear us=20");
	Seen seen;
	uint64_t version = 0;
	for (unsigned round = 0; round < 20; ++round) {
		read(reader.a.qp, memory.piece(2048, object), memory.address(0), memory.key());
		ibv_wc wc{};
		while (ibv_poll_cq(reader.a.send_cq, 1, &wc) == 0)
			set_version(memory, 0, ++version);
		REQUIRE(wc.status == IBV_WC_SUCCESS);
		seen.look(memory, 2048);
	}
	CHECK(seen.torn > 10);
}

TEST_CASE("a torn READ is chosen by rate, count and queue pairs; one within a line stays whole", "[tear]")
{
	Device device;
	Pair pair(device, settings_of(IBV_MTU_1024));
	Memory memory(device.pd, 4096);
	const auto reads = [&](const std::string &rules, size_t bytes) {
		const FaultRules faults(rules);
		const uint64_t before = counter("faults");
		for (int i = 0; i < 20; ++i) {
			read(pair.a.qp, memory.piece(2048, bytes), memory.address(0), memory.key());
			expect(pair.a.send_cq);
		}
		return counter("faults") - before;
	};
	const std::string answers = std::to_string(pair.b.number()), asks = std::to_string(pair.a.number());
	CHECK(reads("tear count=3", object) == 3);
	CHECK(reads("tear qp=" + answers + " to=" + asks, object) == 20);
	CHECK(reads("tear qp=" + asks, object) == 0);
	CHECK(reads("tear to=" + answers, object) == 0);
	CHECK(reads("tear rate=0", object) == 0);
	CHECK(reads("tear", line) == 0);
	CHECK(reads("tear", line + 1) == 20);
}

TEST_CASE("a queue pair that has begun a torn READ can go, and so can the memory", "[tear]")
{
	Device device;
	const FaultRules faults("tear ms=500");
	{
		Pair pair(device, settings_of(IBV_MTU_1024));
		Memory memory(device.pd, 4096);
		read(pair.a.qp, memory.piece(2048, object), memory.address(0), memory.key());
		ibv_wc wc{};
		for (int i = 0; i < 5; ++i)
			REQUIRE(ibv_poll_cq(pair.a.send_cq, 1, &wc) == 0);
		pair.b.destroy();
	}
	Pair pair(device, settings_of(IBV_MTU_1024));
	Memory to(device.pd, 4096), from(device.pd, 4096);
	read(pair.a.qp, to.piece(0, object), from.address(0), from.key());
	ibv_wc wc{};
	for (int i = 0; i < 5; ++i)
		REQUIRE(ibv_poll_cq(pair.a.send_cq, 1, &wc) == 0);
	from.deregister();
	expect(pair.a.send_cq, IBV_WC_REM_ACCESS_ERR);
}
