// Frames between processes: order, wrap-around, full rings, sleep, and shared memory that somebody has scribbled over.
// wire_members.cpp tests how processes join and leave.
#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/softhca/parts/frames.hpp"

using namespace frames;

namespace {

// The layout of an inbox, for scribbling.
constexpr size_t tail_at = 128, head_at = 256, lock_at = 384, sleeper_at = 512, ring_at = 4096, ring_bytes = 512 << 10;

} // namespace

TEST_CASE("a process sends to itself, over many times the size of the ring")
{
	Directory directory;
	Wire wire(directory.path);
	CHECK(wire.alive(wire.slot()));
	CHECK(wire.incarnation(wire.slot()) != 0);
	CHECK(wire.front().empty());
	std::mt19937 random(1);
	uint32_t sent = 0, taken = 0;
	uint64_t bytes = 0;
	while (bytes < 50 * ring_bytes) {
		for (auto n = random() % 400; n > 0; --n) {
			const size_t size = random_size(random);
			uint8_t *frame;
			const Room room = wire.begin(wire.slot(), size, frame);
			if (room == Room::full)
				break;
			REQUIRE(room == Room::yes);
			REQUIRE(reinterpret_cast<uintptr_t>(frame) % 16 == 0);
			fill(frame, size, 7, sent++);
			wire.end();
			bytes += size;
		}
		for (auto n = random() % 400; n > 0 && !wire.front().empty(); --n) {
			Head head;
			REQUIRE(intact(wire.front(), head));
			REQUIRE(head.number == taken++);
			wire.pop();
		}
	}
	while (taken < sent)
		REQUIRE(receive(wire).number == taken++);
	CHECK(wire.front().empty());
	CHECK(wire.posted(wire.slot()) >= bytes);
	CHECK(wire.posted(wire.slot()) == wire.taken(wire.slot()));
}

TEST_CASE("frames of every size arrive as they are")
{
	Directory directory;
	Wire wire(directory.path);
	for (size_t size = 1; size <= max_frame_bytes; ++size) {
		uint8_t *frame;
		REQUIRE(wire.begin(wire.slot(), size, frame) == Room::yes);
		std::memset(frame, static_cast<int>(size % 251), size);
		CHECK(wire.front().empty()); // not before end()
		wire.end();
		const auto got = wire.front();
		REQUIRE(got.size() == size);
		REQUIRE(std::all_of(got.begin(), got.end(), [&](uint8_t byte) { return byte == size % 251; }));
		wire.pop();
	}
}

TEST_CASE("a full ring gives no room until frames are taken")
{
	Directory directory;
	Wire reader(directory.path), writer(directory.path);
	uint32_t sent = 0, taken = 0;
	for (int round = 0; round < 5; ++round) {
		uint8_t *frame;
		while (writer.begin(reader.slot(), 1000, frame) == Room::yes) {
			fill(frame, 1000, 1, sent++);
			writer.end();
		}
		CHECK(writer.begin(reader.slot(), 1000, frame) == Room::full);
		const uint64_t in_ring = writer.posted(reader.slot()) - writer.taken(reader.slot());
		CHECK(in_ring <= ring_bytes);
		CHECK(in_ring > ring_bytes - 2048);
		// There is room again before all frames are taken.
		while (writer.begin(reader.slot(), 1000, frame) == Room::full)
			REQUIRE(receive(reader).number == taken++);
		CHECK(taken < sent);
		fill(frame, 1000, 1, sent++);
		writer.end();
	}
	while (taken < sent)
		REQUIRE(receive(reader).number == taken++);
	CHECK(reader.front().empty());
}

TEST_CASE("four processes send to one, each in order")
{
	Directory directory;
	Wire reader(directory.path);
	constexpr uint32_t senders = 4, frames = 50000;
	std::vector<std::unique_ptr<Child>> children;
	for (uint32_t sender = 0; sender < senders; ++sender)
		children.push_back(std::make_unique<Child>([&] {
			const unsigned to = reader.slot();
			reader.abandon();
			Wire wire(directory.path);
			std::mt19937 random(sender);
			for (uint32_t n = 0; n < frames; ++n)
				if (!send(wire, to, random_size(random), sender, n))
					return 1;
			return 0;
		}));
	uint32_t next[senders] = {};
	for (uint32_t n = 0; n < senders * frames; ++n) {
		const Head head = receive(reader);
		REQUIRE(head.sender < senders);
		REQUIRE(head.number == next[head.sender]++);
	}
	CHECK(reader.front().empty());
	for (auto &child : children)
		CHECK(child->wait() == 0);
}

TEST_CASE("sleep ends by a frame, by wake() and by time")
{
	Directory directory;
	Wire wire(directory.path);
	const unsigned to = wire.slot();
	CHECK(time_of([&] { wire.sleep(20ms, true); }) >= 20ms);
	CHECK(time_of([&] { wire.sleep(0ns, true); }) < 1s);
	CHECK(time_of([&] { wire.sleep(-5s, true); }) < 1s);

	auto frame_after = [&](std::chrono::milliseconds delay) {
		return [&, delay] {
			wire.abandon();
			Wire own(directory.path);
			std::this_thread::sleep_for(delay);
			return send(own, to, 64, 1, 0) ? 0 : 1;
		};
	};
	{
		Child sender(frame_after(50ms));
		CHECK(time_of([&] { wire.sleep(std::chrono::nanoseconds::max(), true); }) < 20s);
		CHECK(wire.front().size() == 64);
		CHECK(time_of([&] { wire.sleep(20s, true); }) < 10s); // there is one
		CHECK(time_of([&] { wire.sleep(20ms, false); }) >= 20ms);
		wire.pop();
		CHECK(sender.wait() == 0);
	}
	{
		Child sender(frame_after(10ms));
		CHECK(time_of([&] { wire.sleep(200ms, false); }) >= 200ms);
		CHECK(sender.wait() == 0);
		CHECK(wire.front().size() == 64);
		wire.pop();
	}
	for (const bool for_frames : {false, true}) {
		wire.wake(); // is remembered until one sleep
		CHECK(time_of([&] { wire.sleep(20s, for_frames); }) < 10s);
		CHECK(time_of([&] { wire.sleep(20ms, for_frames); }) >= 20ms);
		std::thread waker([&] {
			std::this_thread::sleep_for(50ms);
			wire.wake();
		});
		CHECK(time_of([&] { wire.sleep(20s, for_frames); }) < 10s);
		waker.join();
	}
}

TEST_CASE("no sleep misses a frame or a wake()")
{
	Directory directory;
	Wire wire(directory.path);
	constexpr uint32_t rounds = 5000;
	const unsigned to = wire.slot();
	Number turn;
	Child sender([&] {
		wire.abandon();
		Wire own(directory.path);
		for (uint32_t n = 0; n < rounds; ++n) {
			await(turn, n);
			send(own, to, 64, 1, n);
		}
		return 0;
	});
	const auto slept = time_of([&] {
		for (uint32_t n = 0; n < rounds; ++n) {
			while (wire.front().empty())
				wire.sleep(100s, true);
			wire.pop();
			*turn = n + 1;
		}
	});
	CHECK(slept < 100s);
	CHECK(sender.wait() == 0);

	std::atomic<uint32_t> asked = 0, answered = 0;
	std::thread waker([&] {
		for (uint32_t n = 1; n <= rounds; ++n) {
			asked = n;
			wire.wake();
			while (answered != n)
				std::this_thread::yield();
		}
	});
	for (uint32_t n = 1; n <= rounds; ++n) {
		while (asked != n)
			wire.sleep(100s, n % 2);
		answered = n;
	}
	waker.join();
}

TEST_CASE("threads share a wire under a lock, while one sleeps")
{
	Directory directory;
	Wire wire(directory.path);
	std::mutex mutex;
	constexpr uint32_t senders = 2, frames = 5000;
	std::vector<std::thread> threads;
	for (uint32_t sender = 0; sender < senders; ++sender)
		threads.emplace_back([&, sender] {
			for (uint32_t n = 0; n < frames;) {
				const std::lock_guard guard(mutex);
				uint8_t *frame;
				if (wire.begin(wire.slot(), 100, frame) != Room::yes)
					continue;
				fill(frame, 100, sender, n++);
				wire.end();
			}
		});
	uint32_t next[senders] = {};
	for (uint32_t taken = 0; taken < senders * frames;) {
		wire.sleep(10ms, true);
		const std::lock_guard guard(mutex);
		for (std::span<const uint8_t> frame; !(frame = wire.front()).empty(); wire.pop(), ++taken) {
			Head head;
			REQUIRE(intact(frame, head));
			REQUIRE(head.number == next[head.sender]++);
		}
	}
	for (std::thread &thread : threads)
		thread.join();
}

namespace {

// Two processes on a wire; the inbox of one of them can be scribbled over.
struct Scribbled {
	// Takes or drops what is left of a scribble. Then frames pass again.
	void recovers()
	{
		while (!reader.front().empty())
			reader.pop();
		REQUIRE(send(writer, to, 64, 1, 77));
		Head head;
		REQUIRE(intact(reader.front(), head));
		REQUIRE(head.number == 77);
		reader.pop();
		REQUIRE(reader.front().empty());
	}
	// Anything anywhere, but not in the lock: frames of a living process are not to wait for a lock that nobody has.
	void scribble(std::mt19937_64 &random)
	{
		switch (random() % 4) {
		case 0: inbox.put(tail_at, random() >> random() % 64); break;
		case 1: inbox.put(head_at, random() >> random() % 64); break;
		case 2: inbox.put(sleeper_at, random()); break;
		default: inbox.put(ring_at + random() % (ring_bytes / 8) * 8, random() >> random() % 64);
		}
	}
	Directory directory;
	Wire reader{directory.path}, writer{directory.path};
	const unsigned to = reader.slot();
	Scribble inbox{directory.path + "/inbox." + std::to_string(to)};
};

constexpr uint64_t odd_values[] = {0,          1,     8,      16,         4096,       ring_bytes, ring_bytes + 16,
                                   1ull << 40, ~0ull, ~15ull, 1ull << 63, 0x7fffffff, 0xffffffff, 8192,
                                   8193};

} // namespace

TEST_CASE_METHOD(Scribbled, "scribbled positions of an inbox crash nobody, and the inbox recovers")
{
	recovers();
	for (const size_t where : {tail_at, head_at})
		for (const uint64_t value : odd_values)
			for (const int before : {0, 3}) {
				for (int n = 0; n < before; ++n)
					REQUIRE(send(writer, to, 100, 1, 0));
				inbox.put(where, value);
				uint8_t *frame;
				if (writer.begin(to, max_frame_bytes, frame) == Room::yes) {
					REQUIRE(reinterpret_cast<uintptr_t>(frame) % 16 == 0);
					std::memset(frame, 0xff, max_frame_bytes);
					writer.end();
				}
				recovers();
			}
}

TEST_CASE_METHOD(Scribbled, "scribbled lengths in an inbox crash nobody, and the inbox recovers")
{
	recovers();
	for (const uint64_t value : odd_values)
		for (const int wrap : {0, 1}) {
			while (wrap && writer.posted(to) % ring_bytes < ring_bytes - 2000)
				recovers();
			const uint64_t at = writer.posted(to);
			for (int n = 0; n < 4; ++n)
				REQUIRE(send(writer, to, 700, 1, 0));
			inbox.put(ring_at + at % ring_bytes, value);
			recovers();
		}
}

TEST_CASE_METHOD(Scribbled, "a scribbled lock and sleeper of an inbox crash nobody, and the inbox recovers")
{
	recovers();
	for (const uint64_t value : odd_values) {
		inbox.put(lock_at, value);
		recovers();
		inbox.put(sleeper_at, value);
		recovers();
		reader.sleep(1ms, true);
	}
	inbox.put(lock_at, reader.incarnation(writer.slot()) * max_processes + writer.slot());
	recovers();
}

TEST_CASE_METHOD(Scribbled, "scribbles while frames are sent and taken crash nobody, and the inbox recovers")
{
	std::mt19937_64 random(3);
	recovers();
	Number end;
	Child scribbler([&] {
		while (!*end)
			for (int n = 0; n < 100; ++n)
				scribble(random);
		return 0;
	});
	const auto until = Clock::now() + 1s;
	volatile uint8_t sum = 0;
	while (Clock::now() < until) {
		uint8_t *frame;
		const size_t bytes = 1 + random() % max_frame_bytes;
		if (writer.begin(to, bytes, frame) == Room::yes) {
			std::memset(frame, 0xff, bytes);
			writer.end();
		}
		if (const auto got = reader.front(); !got.empty()) {
			REQUIRE(got.size() <= max_frame_bytes);
			sum = static_cast<uint8_t>(got.front() + got.back());
			reader.pop();
		}
		if (random() % 64 == 0)
			reader.sleep(1us, true);
	}
	(void)sum;
	*end = 1;
	CHECK(scribbler.wait() == 0);
	recovers();
}
