// Results that callers fetch: what a slot shows, its checksum, and the laws of looking.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "rpc/laws/fetch.hpp"
#include "rpc/results.hpp"

using namespace pt2p::rpc;
using namespace pt2p::rpc::laws;

TEST_CASE("CRC32C has the values of RFC 3720, with and without instructions, and can be taken in parts")
{
	unsigned char bytes[32] = {};
	for (const auto crc : {crc32c, crc32c_portable}) {
		CHECK(crc(0, bytes, 32) == 0x8a9136aa);
		std::memset(bytes, 0xff, sizeof bytes);
		CHECK(crc(0, bytes, 32) == 0x62a8ab43);
		for (unsigned i = 0; i < 32; ++i)
			bytes[i] = static_cast<unsigned char>(i);
		CHECK(crc(0, bytes, 32) == 0x46dd794e);
		CHECK(crc(0, "123456789", 9) == 0xe3069283);
		CHECK(crc(crc(0, "1234", 4), "56789", 5) == 0xe3069283);
		std::memset(bytes, 0, sizeof bytes);
	}
}

namespace {

constexpr size_t slot_bytes = 1024;

struct alignas(64) Slot {
	unsigned char bytes[slot_bytes] = {};
};

std::vector<unsigned char> payload_of(uint64_t number, size_t length)
{
	std::vector<unsigned char> payload(length);
	std::mt19937_64 random(number);
	for (unsigned char &byte : payload)
		byte = static_cast<unsigned char>(random());
	return payload;
}

void store(Slot &slot, uint64_t number, size_t length)
{
	const std::vector<unsigned char> payload = payload_of(number, length);
	store_result(slot.bytes, {number, ~number, static_cast<uint32_t>(length), 0, 5, 0}, payload.data());
}

} // namespace

TEST_CASE("a slot shows the result of a call once it is there, and to nobody else")
{
	for (size_t length = 0; length <= slot_bytes - sizeof(ResultHead); length += 31) {
		Slot slot;
		ResultHead head;
		CHECK(look_at(slot.bytes, slot_bytes, slot_bytes, 65536, head) == Look::absent);
		store(slot, 65536, length);
		const size_t whole = sizeof head + length;
		for (size_t have = 64; have <= slot_bytes; have += 64)
			CHECK(look_at(slot.bytes, have, slot_bytes, 65536, head) == (have < whole ? Look::partial : Look::there));
		CHECK(head.word == ~UINT64_C(65536));
		CHECK(head.length == length);
		CHECK(look_at(slot.bytes, slot_bytes, slot_bytes, 131072, head) == Look::absent);
	}
}

TEST_CASE("a result of which some lines are those of an earlier one is not there")
{
	std::mt19937_64 random(7);
	unsigned there = 0;
	for (uint64_t i = 1; i <= 20000; ++i) {
		Slot before, after, seen;
		const auto draw = [&] { return static_cast<size_t>(random() % (slot_bytes - sizeof(ResultHead) + 1)); };
		const size_t length = draw();
		store(before, i, draw());
		after = before;
		store(after, i + 1, length);
		for (size_t line = 0; line < slot_bytes; line += 64)
			std::memcpy(seen.bytes + line, (random() % 8 ? after : before).bytes + line, 64);
		ResultHead head;
		if (look_at(seen.bytes, slot_bytes, slot_bytes, i + 1, head) != Look::there)
			continue;
		++there;
		REQUIRE(head.length == length);
		const std::vector<unsigned char> payload = payload_of(i + 1, length);
		REQUIRE(std::equal(payload.begin(), payload.end(), seen.bytes + sizeof head));
	}
	CHECK(there > 1000);
	CHECK(there < 19000);
}

TEST_CASE("whatever a server leaves in a slot, nothing beyond the slot is taken")
{
	std::mt19937_64 random(3);
	unsigned wrong = 0;
	for (int i = 0; i < 20000; ++i) {
		Slot slot;
		for (unsigned char &byte : slot.bytes)
			byte = static_cast<unsigned char>(random());
		ResultHead head{65536, 0, static_cast<uint32_t>(random() >> (32 + random() % 32)), 0, 0, 0};
		std::memcpy(slot.bytes, &head, sizeof head);
		const size_t have = 64 * (1 + random() % 16);
		const Look look = look_at(slot.bytes, have, slot_bytes, 65536, head);
		if (look == Look::there)
			CHECK(sizeof head + head.length <= have);
		if (look == Look::partial)
			CHECK(sizeof head + head.length <= slot_bytes);
		wrong += look == Look::wrong;
	}
	CHECK(wrong > 1000);
}

TEST_CASE("a READ brings the fewest lines that hold 95 % of the latest results")
{
	FetchBytes f;
	CHECK(f.bytes() == 64);
	f.add(300);
	CHECK(f.bytes() == 320);
	for (int i = 0; i < 2000; ++i)
		f.add(40);
	CHECK(f.bytes() == 64);
	for (int i = 0; i < 4000; ++i) // 4 % are long
		f.add(i % 25 ? 100 : 800);
	CHECK(f.bytes() == 128);
	for (int i = 0; i < 4000; ++i) // 10 % are
		f.add(i % 10 ? 100 : 800);
	CHECK(f.bytes() == 832);
	f.add(1 << 30);
	CHECK(f.bytes() <= FetchBytes::line * FetchBytes::max_lines);
	for (int i = 0; i < 3000; ++i)
		f.add(0);
	CHECK(f.bytes() == 64);
}

namespace {

// Calls one after another whose results are ready after `ready(random)` ns. READs for a call, and the mean time from
// then until the caller has the result, ns.
struct Measured {
	double reads, late;
	unsigned pushed;
};
template <class Ready>
Measured measure(Looks &looks, int64_t &now, unsigned calls, Ready &&ready)
{
	constexpr int64_t round_trip = 2000;
	std::mt19937_64 random(5);
	uint64_t reads = 0;
	double late = 0;
	unsigned pushed = 0;
	for (unsigned i = 0; i < calls; ++i) {
		const int64_t left = now, took = ready(random), there = left + round_trip / 2 + took;
		now += looks.first();
		for (unsigned n = 1;; ++n) {
			++reads;
			const bool found = now + round_trip / 2 >= there;
			now += round_trip;
			if (found) {
				looks.served(took);
				looks.read_took(round_trip);
				if (n == 1)
					looks.hit();
				break;
			}
			if (n == 1)
				looks.missed(left, now);
			const int64_t wait = looks.next(n);
			if (wait < 0) {
				++pushed;
				now = std::max(now, there) + round_trip;
				break;
			}
			now += wait;
		}
		late += static_cast<double>(now - there);
	}
	return {static_cast<double>(reads) / calls, late / calls, pushed};
}

} // namespace

TEST_CASE("one look is enough where services take about as long each time, and it is not late")
{
	for (const int64_t service : {200, 3000, 100000}) {
		INFO("service of " << service << " ns");
		Looks looks;
		int64_t now = 1000;
		const auto ready = [service](std::mt19937_64 &random) {
			return service + static_cast<int64_t>(random() % static_cast<uint64_t>(service / 10));
		};
		measure(looks, now, 2000, ready);
		const Measured settled = measure(looks, now, 10000, ready);
		CHECK(settled.reads < 1.012);
		CHECK(settled.late < 1000 + 1000 + static_cast<double>(service) / 8);
		CHECK(settled.pushed == 0);
	}
}

TEST_CASE("looks follow a change of the service time")
{
	Looks looks;
	int64_t now = 1000;
	measure(looks, now, 2000, [](std::mt19937_64 &) { return 1000; });
	measure(looks, now, 200, [](std::mt19937_64 &) { return 50000; });
	const Measured slow = measure(looks, now, 2000, [](std::mt19937_64 &) { return 50000; });
	CHECK(slow.reads < 1.05);
	measure(looks, now, 2000, [](std::mt19937_64 &) { return 1000; });
	const Measured quick = measure(looks, now, 2000, [](std::mt19937_64 &) { return 1000; });
	CHECK(quick.reads < 1.05);
	CHECK(quick.late < 10000);
}

TEST_CASE("a caller does not look for ever, and misses of one moment count once")
{
	const LookLaw law;
	Looks looks(law);
	int64_t sum = 0;
	unsigned n = 1;
	for (int64_t wait; (wait = looks.next(n)) >= 0; ++n) {
		CHECK(wait > 0);
		sum += wait;
	}
	CHECK(n == law.looks);
	CHECK(sum < 20 * law.round_trip);
	Looks once(law), often(law);
	once.missed(10, 1000);
	for (int64_t i = 0; i < 64; ++i)
		often.missed(10 + i, 1000 + i);
	CHECK(often.first() == once.first());
	for (int64_t i = 1; i < 1000; ++i)
		often.missed(i * 10000, i * 10000 + 5000);
	CHECK(often.first() <= law.max_slack * law.round_trip);
	often.early(5000);
	CHECK(often.first() == 5000);
}
