// Both ends of a ring in one thread: everything that goes in comes out, in order, and a full ring refuses.
#include <catch2/catch.hpp>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "transports/shm/ring.hpp"
#include "transports/shm/single_copy.hpp"

using namespace pt2p::shm;

namespace {

struct Free {
	void operator()(void *p) const { std::free(p); }
};

struct Pair {
	Pair(uint32_t slots, uint32_t data, uint32_t room = 0) : memory(std::aligned_alloc(page, ring_bytes(slots, data)))
	{
		std::memset(memory.get(), 0, ring_bytes(slots, data));
		const Ring ring = Ring::at(memory.get(), slots);
		writer.open(ring, slots, data, room ? room : data);
		reader.open(ring, slots, data);
	}
	std::unique_ptr<void, Free> memory;
	Writer writer;
	Reader reader;
};

enum class Found { nothing, message, malformed };
struct Message {
	uint64_t word = 0, header = 0;
	const unsigned char *payload = nullptr;
	uint32_t length = 0;
};

// Looks at the next message, as the transport does.
Found look(const Reader &reader, Message &m)
{
	const Slot *slot = reader.next(m.word);
	if (!slot)
		return Found::nothing;
	m.header = slot->header;
	m.length = Word::length(m.word);
	m.payload = reader.payload(slot, m.length);
	return m.payload ? Found::message : Found::malformed;
}

} // namespace

TEST_CASE("random traffic through a ring arrives whole and in order")
{
	for (unsigned seed = 0; seed < 20; ++seed) {
		std::mt19937 random(seed);
		const uint32_t slots = 8u << random() % 4, data = 4096u << random() % 3;
		// Half of them begin with room for the longest message only, and get more now and then when they want it.
		const bool grows = seed % 2;
		Pair ring(slots, data, grows ? data / 4 : data);
		std::deque<std::vector<unsigned char>> in_flight;
		uint64_t sent = 0, received = 0, full = 0;
		while (received < 20000) {
			if (random() % 2) {
				const size_t n = random() % 3 ? random() % 130 : random() % (ring.writer.max_payload() + 1);
				std::vector<unsigned char> message(n);
				for (auto &byte : message)
					byte = static_cast<unsigned char>(random());
				const auto write = [&] {
					const auto id = static_cast<uint8_t>(sent % 7);
					return (n <= inline_max && ring.writer.write_short(id, sent, message.data(), n, 0)) ||
					       ring.writer.write(id, sent, message.data(), n, 0);
				};
				if (!write()) {
					// Never full when all has been read, except that the writer may have to learn of that first.
					if (in_flight.empty()) {
						ring.writer.head().starved = 1;
						ring.reader.relieve();
						REQUIRE(write());
						in_flight.push_back(std::move(message));
						++sent;
						continue;
					}
					if (grows && ring.writer.wants_room(n) && random() % 64 == 0)
						ring.writer.double_room();
					ring.writer.head().starved = 1;
					++full;
					continue;
				}
				ring.writer.head().starved = 0;
				in_flight.push_back(std::move(message));
				++sent;
			} else {
				Message m;
				const auto found = look(ring.reader, m);
				REQUIRE(found != Found::malformed);
				REQUIRE((found == Found::message) == !in_flight.empty());
				REQUIRE(ring.reader.ready() == !in_flight.empty());
				if (in_flight.empty()) {
					ring.reader.relieve();
					continue;
				}
				REQUIRE(m.header == received);
				REQUIRE(Word::id(m.word) == received % 7);
				REQUIRE(m.length == in_flight.front().size());
				REQUIRE((m.length == 0 || std::memcmp(m.payload, in_flight.front().data(), m.length) == 0));
				ring.reader.pop(m.word);
				ring.reader.publish_if_due();
				in_flight.pop_front();
				++received;
				if (random() % 4 == 0) { // an answer carries the consumer index
					ring.writer.acknowledge(static_cast<uint32_t>(received));
					ring.reader.piggybacked(ring.reader.position());
				}
			}
		}
		CHECK(full > 0);
		if (grows)
			CHECK(ring.writer.room() == data);
	}
}

namespace {

// A ring of 64 slots, and messages that count.
struct Counting {
	static constexpr uint32_t slots = 64;
	Pair ring{slots, 4096};
	Ring raw = Ring::at(ring.memory.get(), slots);
	uint64_t sent = 0, received = 0;

	bool send()
	{
		return (ring.writer.write_short(1, sent, &sent, sizeof sent, 0) ||
		        ring.writer.write(1, sent, &sent, sizeof sent, 0)) &&
		       ++sent;
	}
	// The slot that the reader looks at.
	uint32_t slot() const { return static_cast<uint32_t>(ring.reader.slot() - raw.slots); }
	void receive()
	{
		Message m;
		REQUIRE(look(ring.reader, m) == Found::message);
		REQUIRE(m.header == received++);
		REQUIRE(ring.reader.more() == (received != sent));
		ring.reader.pop(m.word);
	}
	void receive_all()
	{
		while (received != sent)
			receive();
		REQUIRE_FALSE(ring.reader.ready());
		ring.writer.acknowledge(static_cast<uint32_t>(received));
		ring.reader.piggybacked(received);
	}
	// One message, alone; its slot.
	uint32_t exchange()
	{
		REQUIRE(send());
		const uint32_t at = slot();
		receive_all();
		return at;
	}
};

} // namespace

TEST_CASE("a ring uses few slots while messages come one by one, and all of them in a stream")
{
	Counting c;
	unsigned beyond = 0;
	for (unsigned i = 0; i < 1000 * 16; ++i)
		beyond += c.exchange() >= 16;
	CHECK(beyond > 0); // a full lap now and then
	CHECK(beyond < 1000);
	for (int k = 0; k < 3; ++k) {
		// The ring takes 16 messages at least, and once it knows what has been read, as many as it has slots.
		unsigned n = 0;
		while (c.send())
			++n;
		CHECK(n >= 16);
		c.receive_all();
	}
	unsigned n = 0;
	while (c.send())
		++n;
	CHECK(n == Counting::slots);
}

TEST_CASE("what stays in the slots beyond a short lap is never taken for a message, however many laps lie between")
{
	for (unsigned laps = 120; laps < 270; ++laps) {
		Counting c;
		for (int twice = 0; twice < 2; ++twice) {
			while (c.exchange() != 15)
				;
			for (unsigned i = 0; i < laps * 16; ++i)
				c.exchange();
			// A stream up to slot 15, so that the reader looks at slot 16 next.
			while (c.exchange() % 16 != 7)
				;
			for (int i = 0; i < 8; ++i)
				REQUIRE(c.send());
			c.receive_all();
		}
	}
}

TEST_CASE("a word that ends its lap too early, or not at all, stays within the ring")
{
	Pair ring(8, 4096);
	const Ring raw = Ring::at(ring.memory.get(), 8);
	Message m;
	uint8_t lap = 1;
	const auto forge = [&](uint32_t slot, uint64_t wrap) {
		raw.slots[slot].word = Word::pack(lap, 1, 0, 0) | wrap;
		REQUIRE(look(ring.reader, m) == Found::message);
		REQUIRE(ring.reader.slot() == &raw.slots[slot]);
		ring.reader.pop(m.word);
	};
	for (uint32_t i = 0; i < 8; ++i)
		forge(i, 0);
	++lap;
	for (uint32_t i = 0; i < 3; ++i)
		forge(i, i == 2 ? Word::wrap : 0);
	++lap;
	forge(0, Word::wrap);
	++lap;
	forge(0, 0);
}

TEST_CASE("a ring that gets no more room carries messages as long as its room, one at a time")
{
	Pair ring(8, 65536, 4096);
	std::vector<unsigned char> message(4096);
	for (int i = 0; i < 50; ++i) {
		const size_t n = i % 3 == 2 ? 4096 : 1000 + 100 * static_cast<size_t>(i % 7);
		std::fill(message.begin(), message.end(), static_cast<unsigned char>(i));
		REQUIRE(ring.writer.write(1, 0, message.data(), n, 0));
		Message m;
		REQUIRE(look(ring.reader, m) == Found::message);
		REQUIRE(m.length == n);
		REQUIRE(std::memcmp(m.payload, message.data(), n) == 0);
		ring.reader.pop(m.word);
		ring.reader.publish();
	}
	CHECK(ring.writer.room() == 4096);
}

TEST_CASE("a message that is longer than the room leaves the ring as it was")
{
	Pair ring(8, 65536, 4096);
	const std::vector<unsigned char> longer(8192, 1), first(4096, 2), second(4096, 3);
	CHECK(!ring.writer.write(1, 0, longer.data(), longer.size(), 0));
	REQUIRE(ring.writer.write(1, 0, first.data(), first.size(), 0));
	CHECK(!ring.writer.write(1, 0, second.data(), second.size(), 0));
	Message m;
	REQUIRE(look(ring.reader, m) == Found::message);
	CHECK(std::equal(first.begin(), first.end(), m.payload));
}

TEST_CASE("small payloads keep to the beginning of the data area, and ask for no more than that")
{
	constexpr uint32_t kib = 1024, data = 256 * kib;
	struct Expected {
		uint32_t length, used;
	};
	for (const auto &[length, used] : std::initializer_list<Expected>{{128, 4 * kib},
	                                                                  {kib, 8 * kib},
	                                                                  {2 * kib, 12 * kib},
	                                                                  {4 * kib, 16 * kib},
	                                                                  {5 * kib, 20 * kib},
	                                                                  {9 * kib, data}}) {
		Pair ring(64, data, 16 * kib);
		const std::vector<unsigned char> message(length, 1);
		const Ring raw = Ring::at(ring.memory.get(), 64);
		uint64_t sent = 0, furthest = 0;
		for (int i = 0; i < 1000; ++i) {
			while (!ring.writer.write(1, sent, message.data(), length, 0)) {
				if (ring.writer.wants_room(length)) {
					ring.writer.double_room();
					continue;
				}
				Message m;
				REQUIRE(look(ring.reader, m) == Found::message);
				furthest = std::max(furthest, static_cast<uint64_t>(m.payload - raw.data) + length);
				ring.reader.pop(m.word);
				ring.reader.publish();
			}
			++sent;
		}
		CHECK(ring.writer.room() == std::bit_ceil(std::max(used, 16 * kib)));
		CHECK(furthest <= used);
		CHECK(furthest > used - 2 * length);
	}
}

TEST_CASE("payloads that are alone in flight share the place of two")
{
	constexpr uint32_t kib = 1024, data = 256 * kib;
	for (const uint32_t length : {128u, kib, 3 * kib, 16 * kib, 64 * kib}) {
		Pair ring(64, data);
		const std::vector<unsigned char> message(length, 1);
		const Ring raw = Ring::at(ring.memory.get(), 64);
		uint64_t furthest = 0;
		for (uint32_t i = 1; i <= 1000; ++i) {
			REQUIRE(ring.writer.write(1, i, message.data(), length, 0));
			Message m;
			REQUIRE(look(ring.reader, m) == Found::message);
			furthest = std::max(furthest, static_cast<uint64_t>(m.payload - raw.data) + length);
			ring.reader.pop(m.word);
			ring.reader.piggybacked(i);
			ring.writer.acknowledge(i);
		}
		CHECK(furthest == std::max(4 * kib, 2 * length));
	}
}

TEST_CASE("a full ring refuses, and a starved writer gets every slot back that is read")
{
	Pair ring(8, 4096);
	for (int i = 0; i < 8; ++i)
		REQUIRE(ring.writer.write(1, 0, &i, sizeof i, 0));
	CHECK_FALSE(ring.writer.write(1, 0, nullptr, 0, 0));
	Message m;
	REQUIRE(look(ring.reader, m) == Found::message);
	ring.reader.pop(m.word);
	CHECK_FALSE(ring.writer.write(1, 0, nullptr, 0, 0)); // too few to return the index
	ring.writer.head().starved = 1;
	ring.reader.relieve();
	CHECK(ring.writer.write(1, 0, nullptr, 0, 0));
}

TEST_CASE("impossible acknowledgements are ignored")
{
	Pair ring(8, 4096);
	for (int i = 0; i < 8; ++i)
		REQUIRE(ring.writer.write(1, 0, &i, sizeof i, 0));
	for (uint32_t credit : {9u, 100u, 0xffffffu, 0x800000u})
		ring.writer.acknowledge(credit);
	CHECK_FALSE(ring.writer.write(1, 0, nullptr, 0, 0));
	ring.writer.head().consumed = 1000; // a broken reader
	CHECK_FALSE(ring.writer.write(1, 0, nullptr, 0, 0));
	ring.writer.acknowledge(3);
	CHECK(ring.writer.write(1, 0, nullptr, 0, 0));
}

TEST_CASE("offsets and lengths outside the data area are malformed")
{
	Pair ring(8, 4096);
	const Ring raw = Ring::at(ring.memory.get(), 8);
	Message m;
	const auto forge = [&](uint32_t length, uint32_t offset) {
		std::memcpy(raw.slots[0].payload, &offset, sizeof offset);
		raw.slots[0].word = Word::pack(1, 1, length, 0);
		return look(ring.reader, m);
	};
	CHECK(forge(113, 0) == Found::message);
	CHECK(forge(1024, 3072) == Found::message);
	CHECK(forge(1024, 3073) == Found::malformed);
	CHECK(forge(1025, 0) == Found::malformed);
	CHECK(forge(0x7fffff, 0) == Found::malformed);
	CHECK(forge(113, 0xffffffff) == Found::malformed);
}

TEST_CASE("pieces of a shared transfer are taken once, and never with an old generation")
{
	Claim claim{};
	open_claim(claim, 5);
	uint32_t first = 0;
	CHECK(take_pieces(claim, 4, 10, 1, first) == 0);
	CHECK(take_pieces(claim, 5, 10, 4, first) == 4);
	CHECK(first == 0);
	CHECK(take_pieces(claim, 5, 10, 1, first) == 1);
	CHECK(first == 4);
	CHECK(take_pieces(claim, 5, 10, 100, first) == 5);
	CHECK(first == 5);
	CHECK(take_pieces(claim, 5, 10, 1, first) == 0);
	open_claim(claim, 6);
	CHECK(take_pieces(claim, 5, 10, 1, first) == 0);
	for (uint64_t length :
	     {uint64_t{32768}, uint64_t{65536}, uint64_t{1} << 20, uint64_t{5} << 32, uint64_t{1} << 62}) {
		const uint64_t piece = piece_size(length);
		CHECK(piece * piece_count(length, static_cast<uint32_t>(piece)) >= length);
	}
}
