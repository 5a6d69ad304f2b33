// Results that callers fetch: what a slot shows, its checksum, and the laws of looking.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstring>
#include <queue>
#include <random>
#include <utility>
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
	store_result(slot.bytes, {number, ~number, static_cast<uint32_t>(length), 0, 0, 5, 0}, payload.data());
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
		const auto length = static_cast<uint32_t>(random() >> (33 + random() % 31));
		ResultHead head{65536, 0, length & 0x7fffffff, 0, 0, 0, 0};
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
				else
					looks.late(left, now);
				break;
			}
			const int64_t wait = looks.next(n);
			if (wait < 0) {
				++pushed;
				now = std::max(now, there) + round_trip;
				looks.late(left, now);
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
		CHECK(settled.reads < 1.05);
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

TEST_CASE("a caller does not look for ever, and looks in vain of one moment count once")
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
	once.late(10, 9000);
	for (int64_t i = 0; i < 64; ++i)
		often.late(10 + i, 9000 + i);
	CHECK(often.first() == once.first());
	for (int64_t i = 1; i < 1000; ++i)
		often.late(i * 100000, i * 100000 + 50000);
	CHECK(often.first() > 45000 - law.round_trip);
	CHECK(often.first() < 60000 - law.round_trip);
	often.early(5000);
	CHECK(often.first() == 5000);
}

TEST_CASE("one call that took very long does not make the next ones wait")
{
	Looks looks;
	int64_t now = 1000;
	const auto ready = [](std::mt19937_64 &) { return 1000; };
	measure(looks, now, 2000, ready);
	const int64_t before = looks.first();
	looks.late(now, now + 50000000);
	CHECK(looks.first() < 2 * before + 1000);
}

namespace {

// Calls of several callers, each with one at a time, to a server that handles one at a time and sees what has arrived
// in between only when the handlers of that turn have run. READs for a call, and the latency divided by that of
// replies.
struct Shared {
	double reads = 0, latency = 0;
};
Shared share(unsigned callers, double handler, bool fetch)
{
	enum Kind { arrives, done, looks, reads_there, seen };
	struct Event {
		double time;
		Kind kind;
		unsigned caller;
		uint64_t call;
		bool there;
		bool operator<(const Event &other) const { return time > other.time; }
	};
	struct Caller {
		Looks looks;
		uint64_t call = 0;
		double left = 0, took = 0;
		unsigned tries = 0;
		bool ready = false, pushed = false;
	};
	constexpr double way = 1000;
	std::mt19937_64 random(3);
	const auto jitter = [&](double of) { return 1 + of * std::uniform_real_distribution<double>(-0.5, 0.5)(random); };
	std::priority_queue<Event> events;
	std::vector<Caller> all(callers);
	std::vector<unsigned> inbox;
	double now = 0, busy_until = 0, sum = 0;
	uint64_t calls = 0, reads = 0;
	const uint64_t warm = 500 * callers, total = 1500 * callers;
	const auto start = [&](unsigned i) {
		Caller &c = all[i];
		c.left = now;
		++c.call;
		c.tries = 0;
		c.ready = c.pushed = false;
		events.push({now + way * jitter(0.1), arrives, i, c.call, false});
		if (fetch)
			events.push({now + static_cast<double>(c.looks.first()), looks, i, c.call, false});
	};
	const auto turn = [&] {
		const double seen_at = now;
		double at = now;
		for (const unsigned i : std::exchange(inbox, {})) {
			at += 60 + handler * jitter(0.2);
			all[i].took = at - seen_at;
			events.push({at, done, i, all[i].call, false});
		}
		busy_until = at;
	};
	const auto end = [&](unsigned i) {
		if (++calls > warm)
			sum += now - all[i].left;
		else
			reads = 0;
		start(i);
	};
	for (unsigned i = 0; i < callers; ++i)
		start(i);
	while (calls < total) {
		const Event e = events.top();
		events.pop();
		now = e.time;
		Caller &c = all[e.caller];
		if (e.call != c.call)
			continue;
		switch (e.kind) {
		case arrives:
			inbox.push_back(e.caller);
			if (now >= busy_until)
				turn();
			break;
		case done:
			c.ready = true;
			if (!fetch || c.pushed)
				events.push({now + 80 + way * jitter(0.1), seen, e.caller, e.call, true});
			if (now >= busy_until && !inbox.empty())
				turn();
			break;
		case looks:
			++reads;
			events.push({now + way * jitter(0.1), reads_there, e.caller, e.call, false});
			break;
		case reads_there: events.push({now + way * jitter(0.1), seen, e.caller, e.call, c.ready}); break;
		case seen:
			if (e.there) {
				if (fetch) {
					c.looks.served(static_cast<int64_t>(c.took));
					c.looks.read_took(2000);
					if (c.tries)
						c.looks.late(static_cast<int64_t>(c.left), static_cast<int64_t>(now));
					else
						c.looks.hit();
				}
				end(e.caller);
			} else if (const int64_t wait = c.looks.next(++c.tries); wait >= 0) {
				events.push({now + static_cast<double>(wait), looks, e.caller, e.call, false});
			} else {
				c.pushed = true;
				if (c.ready)
					events.push({now + 2 * way, seen, e.caller, e.call, true});
			}
			break;
		}
	}
	const auto measured = static_cast<double>(calls - warm);
	return {static_cast<double>(reads) / measured, sum / measured};
}

} // namespace

TEST_CASE("callers that wait for each other's handlers look about once, and have their results as soon as replies")
{
	for (const unsigned callers : {1, 4, 16})
		for (const double handler : {0, 1000, 10000, 100000}) {
			INFO(callers << " callers, handlers of " << handler << " ns");
			const Shared fetched = share(callers, handler, true), sent = share(callers, handler, false);
			CHECK(fetched.reads < 1.07);
			CHECK(fetched.latency < 1.12 * sent.latency);
		}
}

TEST_CASE("a caller whose calls mostly end pushed does not fetch for a while, and longer if that does not help")
{
	Escape escape;
	std::vector<unsigned> pauses;
	for (unsigned call = 0, paused = 0; call < 20000; ++call) {
		if (!escape.fetches()) {
			++paused;
			continue;
		}
		if (paused)
			pauses.push_back(std::exchange(paused, 0));
		escape.ended(true);
	}
	REQUIRE(pauses.size() > 6);
	CHECK(pauses[0] == EscapeLaw{}.first_pause);
	for (size_t i = 1; i < pauses.size(); ++i)
		CHECK(pauses[i] == std::min(2 * pauses[i - 1], EscapeLaw{}.longest_pause));
	// Some of the calls alone are no reason.
	Escape some;
	unsigned fetched = 0;
	for (unsigned call = 0; call < 10000; ++call)
		if (some.fetches()) {
			++fetched;
			some.ended(call % 4 == 0);
		}
	CHECK(fetched == 10000);
}

TEST_CASE("calls that left before the slack has grown say nothing about it")
{
	Looks looks;
	CHECK(looks.judges(1000));
	looks.late(1000, 100000);
	CHECK_FALSE(looks.judges(99999));
	CHECK(looks.judges(100000));
}
