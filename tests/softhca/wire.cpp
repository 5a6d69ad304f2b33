// Frames between processes: order, wrap-around, full rings, processes that are killed or stopped at any point, slots,
// and shared memory that somebody has scribbled over.
#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <sched.h>
#include <set>
#include <string>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "softhca/wire.hpp"

using namespace softhca;
using namespace std::chrono_literals;
using Room = Wire::Room;

namespace {

using Clock = std::chrono::steady_clock;

// The layout of an inbox, for scribbling.
constexpr size_t tail_at = 128, head_at = 256, lock_at = 384, sleeper_at = 512, ring_at = 4096, ring_bytes = 512 << 10;

// A fabric's directory, and a limit to the time that a test may take in it.
struct Directory {
	Directory()
	{
		std::string name = (access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp") + std::string("/wire-test.XXXXXX");
		REQUIRE(mkdtemp(name.data()));
		path = name;
		alarm(120);
	}
	~Directory()
	{
		alarm(0);
		std::filesystem::remove_all(path);
	}
	std::string path;
};

// A process that runs a function, whose result is its exit code.
class Child {
public:
	explicit Child(const std::function<int()> &function) : pid_(fork())
	{
		REQUIRE(pid_ >= 0);
		if (pid_ == 0) {
			alarm(120);
			int code = 99;
			try {
				code = function();
			} catch (...) {
			}
			_exit(code);
		}
	}
	~Child()
	{
		if (pid_ > 0)
			kill();
	}
	Child(const Child &) = delete;
	Child &operator=(const Child &) = delete;

	void signal(int number) const { ::kill(pid_, number); }
	int wait()
	{
		int status = 0;
		waitpid(std::exchange(pid_, -1), &status, 0);
		return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
	}
	void kill()
	{
		signal(SIGKILL);
		wait();
	}
	void wait_until_stopped() const
	{
		int status;
		waitpid(pid_, &status, WUNTRACED);
	}

private:
	pid_t pid_;
};

// What processes tell each other beside the wire.
template <class T>
struct Shared {
	Shared() : at(static_cast<T *>(mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)))
	{
		REQUIRE(at != MAP_FAILED);
	}
	~Shared() { munmap(at, sizeof(T)); }
	Shared(const Shared &) = delete;
	Shared &operator=(const Shared &) = delete;
	T *operator->() const { return at; }
	T &operator*() const { return *at; }
	T *at;
};
using Number = Shared<std::atomic<uint64_t>>;

void await(const Number &number, uint64_t value)
{
	while (*number < value)
		sched_yield();
}

// A file that is scribbled over.
struct Scribble {
	explicit Scribble(const std::string &path)
	{
		const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
		REQUIRE(fd >= 0);
		bytes = static_cast<size_t>(lseek(fd, 0, SEEK_END));
		at = static_cast<uint8_t *>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
		close(fd);
		REQUIRE(static_cast<void *>(at) != MAP_FAILED);
	}
	~Scribble() { munmap(at, bytes); }
	Scribble(const Scribble &) = delete;
	Scribble &operator=(const Scribble &) = delete;
	void put(size_t offset, uint64_t value) const
	{
		std::atomic_ref(*reinterpret_cast<uint64_t *>(at + offset)) = value;
	}
	uint8_t *at;
	size_t bytes;
};

// A frame that can be checked: who, which, a sum, then bytes that follow from both.
struct Head {
	uint32_t sender, number;
	uint64_t sum;
};

void fill(uint8_t *frame, size_t bytes, uint32_t sender, uint32_t number)
{
	uint64_t sum = bytes;
	for (size_t i = sizeof(Head); i < bytes; ++i) {
		frame[i] = static_cast<uint8_t>(sender * 31 + number + i * 7);
		sum = sum * 3 + frame[i];
	}
	const Head head{sender, number, sum};
	std::memcpy(frame, &head, sizeof head);
}

bool intact(std::span<const uint8_t> frame, Head &head)
{
	if (frame.size() < sizeof head)
		return false;
	std::memcpy(&head, frame.data(), sizeof head);
	uint64_t sum = frame.size();
	for (size_t i = sizeof head; i < frame.size(); ++i)
		sum = sum * 3 + frame[i];
	return sum == head.sum;
}

// Sends one frame, waiting for room; false when nobody is there.
bool send(Wire &wire, unsigned slot, size_t bytes, uint32_t sender, uint32_t number)
{
	uint8_t *frame;
	Room room;
	while ((room = wire.begin(slot, bytes, frame)) == Room::full)
		sched_yield();
	if (room == Room::nobody)
		return false;
	fill(frame, bytes, sender, number);
	wire.end();
	return true;
}

// Takes one frame, waiting for it.
Head receive(Wire &wire)
{
	Head head{};
	for (std::span<const uint8_t> frame; (frame = wire.front()).empty();)
		wire.sleep(1ms, true);
	REQUIRE(intact(wire.front(), head));
	wire.pop();
	return head;
}

size_t random_size(std::mt19937 &random)
{
	// Mostly small ones.
	const size_t most = random() % 8 ? 256 : most_frame_bytes;
	return sizeof(Head) + random() % (most - sizeof(Head) + 1);
}

std::string error_of(const std::string &directory)
{
	try {
		Wire wire(directory);
	} catch (const std::runtime_error &e) {
		return e.what();
	}
	return "";
}

template <class F>
std::chrono::nanoseconds time_of(F f)
{
	const auto start = Clock::now();
	f();
	return Clock::now() - start;
}

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
	for (size_t size = 1; size <= most_frame_bytes; ++size) {
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
		// Room comes before all is taken.
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

TEST_CASE("processes that are killed lose nothing of the others and hold up nobody")
{
	Directory directory;
	Wire reader(directory.path);
	const unsigned to = reader.slot();
	constexpr uint32_t survivors = 2, frames = 20000, victims = 30;
	Number enough; // survivors go on until all victims are dead
	auto survivor = [&](uint32_t sender) {
		reader.abandon();
		Wire wire(directory.path);
		std::mt19937 random(sender);
		for (uint32_t n = 0; n < frames || !*enough; ++n)
			if (!send(wire, to, random_size(random), sender, n))
				return 1;
		return send(wire, to, 100, sender, UINT32_MAX) ? 0 : 1;
	};
	Child first([&] { return survivor(0); }), second([&] { return survivor(1); });

	std::mt19937 random(5);
	std::map<uint32_t, uint32_t> next;
	unsigned done = 0, dead = 0;
	std::unique_ptr<Child> victim;
	Clock::time_point end;
	while (done < survivors) {
		if (victim && Clock::now() >= end) {
			victim.reset();
			++dead;
		}
		if (!victim && dead < victims) {
			// Killed at any time from the first moment on.
			victim = std::make_unique<Child>([&, sender = 100 + dead] {
				reader.abandon();
				Wire wire(directory.path);
				for (uint32_t n = 0;; ++n)
					send(wire, to, 16 + n % 2000, sender, n);
				return 0;
			});
			end = Clock::now() + std::chrono::microseconds(random() % 20000);
		}
		if (dead == victims)
			*enough = 1;
		const auto frame = reader.front();
		if (frame.empty()) {
			reader.sleep(1ms, true);
			continue;
		}
		Head head;
		REQUIRE(intact(frame, head));
		reader.pop();
		if (head.number == UINT32_MAX)
			++done;
		else
			REQUIRE(head.number == next[head.sender]++);
	}
	CHECK(reader.front().empty());
	CHECK(first.wait() == 0);
	CHECK(second.wait() == 0);
	CHECK(next[0] >= frames);
	CHECK(next[1] >= frames);
	CHECK(next.size() > survivors); // some victims have sent, too
	for (unsigned slot = 0; slot < most_processes; ++slot)
		REQUIRE(reader.alive(slot) == (slot == to));
}

TEST_CASE("a process that dies in the middle of a frame loses only that frame")
{
	Directory directory;
	Wire wire(directory.path);
	const unsigned to = wire.slot();
	REQUIRE(send(wire, to, 64, 1, 0));
	Child victim([&] {
		wire.abandon();
		Wire own(directory.path);
		uint8_t *frame;
		own.begin(to, 4000, frame);
		std::memset(frame, 0xff, 4000);
		raise(SIGKILL);
		return 0;
	});
	CHECK(victim.wait() == 1000 + SIGKILL);
	CHECK(time_of([&] { REQUIRE(send(wire, to, 64, 1, 1)); }) < 1s);
	CHECK(receive(wire).number == 0);
	CHECK(receive(wire).number == 1);
	CHECK(wire.front().empty());
}

TEST_CASE("a process that is stopped in the middle of a frame makes the inbox look full")
{
	Directory directory;
	Wire wire(directory.path), other(directory.path);
	const unsigned to = wire.slot();
	Child stopped([&] {
		wire.abandon();
		other.abandon();
		Wire own(directory.path);
		uint8_t *frame;
		if (own.begin(to, 100, frame) != Room::yes)
			return 1;
		raise(SIGSTOP);
		fill(frame, 100, 2, 0);
		own.end();
		return 0;
	});
	stopped.wait_until_stopped();
	uint8_t *frame;
	Room room = Room::yes;
	CHECK(time_of([&] { room = wire.begin(to, 64, frame); }) < 1s);
	CHECK(room == Room::full);
	CHECK(send(wire, other.slot(), 64, 1, 0)); // other inboxes are not concerned
	stopped.signal(SIGCONT);
	CHECK(stopped.wait() == 0);
	CHECK(send(wire, to, 64, 1, 0));
	CHECK(receive(wire).sender == 2);
	CHECK(receive(wire).sender == 1);
}

TEST_CASE("slots are given in turn, and again when their owners have left or died")
{
	Directory directory;
	Wire wire(directory.path);
	unsigned left;
	{
		Wire other(directory.path);
		left = other.slot();
		CHECK(left != wire.slot());
		CHECK(wire.alive(left));
		CHECK(wire.incarnation(left) != 0);
		CHECK(send(wire, left, 64, 1, 0));
		CHECK(std::filesystem::exists(directory.path + "/inbox." + std::to_string(left)));
	}
	uint8_t *frame;
	CHECK(wire.begin(left, 64, frame) == Room::nobody);
	CHECK_FALSE(wire.alive(left));
	CHECK_FALSE(std::filesystem::exists(directory.path + "/inbox." + std::to_string(left)));
	CHECK(wire.begin(most_processes, 64, frame) == Room::nobody);
	CHECK(wire.begin(900, 64, frame) == Room::nobody);
	CHECK(wire.incarnation(900) == 0);
	CHECK_FALSE(wire.alive(900));

	Number slot;
	Child victim([&] {
		wire.abandon();
		Wire own(directory.path);
		*slot = own.slot();
		pause();
		return 0;
	});
	await(slot, 1);
	const auto died = static_cast<unsigned>(*slot);
	CHECK(died != left);
	CHECK(wire.alive(died));
	REQUIRE(send(wire, died, 64, 1, 0));
	const uint64_t incarnation = wire.incarnation(died);
	victim.kill();
	CHECK(wire.begin(died, 64, frame) == Room::yes); // not known yet
	wire.end();
	CHECK(wire.posted(died) == 160);
	CHECK_FALSE(wire.alive(died));
	CHECK(wire.begin(died, 64, frame) == Room::nobody);
	CHECK(wire.incarnation(died) == incarnation);

	// Once around; nobody else keeps the slot.
	std::set<unsigned> seen;
	for (unsigned n = 0; n + 2 < most_processes; ++n)
		seen.insert(Wire(directory.path).slot());
	CHECK(seen.size() == most_processes - 2);
	CHECK_FALSE(seen.count(died));
	CHECK_FALSE(seen.count(wire.slot()));
	Wire before(directory.path), next(directory.path);
	INFO(before.slot() << " " << next.slot());
	Wire &owner = before.slot() == died ? before : next;
	REQUIRE(owner.slot() == died);
	CHECK(wire.incarnation(died) != incarnation);
	CHECK(wire.alive(died));
	REQUIRE(send(wire, died, 64, 1, 5));
	CHECK(receive(owner).number == 5);
	CHECK(owner.front().empty());
}

TEST_CASE("the slot of a process that has died unnoticed is taken over")
{
	Directory directory;
	Number slot;
	Child victim([&] {
		Wire own(directory.path);
		*slot = own.slot() + 1;
		pause();
		return 0;
	});
	await(slot, 1);
	victim.kill();
	// All others are taken: one locked file under all names.
	const std::string file = directory.path + "/file";
	const int fd = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	REQUIRE(flock(fd, LOCK_EX) == 0);
	Scribble table(directory.path + "/slots");
	for (unsigned n = 0; n < most_processes; ++n)
		if (n + 1 != *slot) {
			std::filesystem::create_hard_link(file, directory.path + "/inbox." + std::to_string(n));
			table.put(n * 8, 3);
		}
	Wire wire(directory.path);
	CHECK(wire.slot() + 1 == *slot);
	CHECK(wire.incarnation(wire.slot()) == 2);
	// And one more.
	const std::string error = error_of(directory.path);
	CHECK_THAT(error, Catch::Contains("1024 slots are taken") && Catch::Contains("fewer processes"));
	close(fd);
	CHECK(error_of(directory.path) == "");
}

TEST_CASE("many join and leave at once")
{
	Directory directory;
	std::vector<std::unique_ptr<Child>> children;
	for (int n = 0; n < 8; ++n)
		children.push_back(std::make_unique<Child>([&] {
			for (int i = 0; i < 100; ++i) {
				Wire wire(directory.path);
				if (!wire.alive(wire.slot()) || !send(wire, wire.slot(), 64, 1, 0) || wire.front().size() != 64)
					return 1;
			}
			return 0;
		}));
	for (auto &child : children)
		CHECK(child->wait() == 0);
	for (const auto &entry : std::filesystem::directory_iterator(directory.path))
		CHECK(entry.path().filename() == "slots");
}

TEST_CASE("a child of fork() that forgets the wire does not stand for its parent")
{
	Directory directory;
	Wire wire(directory.path);
	Number slot, forked, end;
	Child parent([&] {
		wire.abandon();
		Wire own(directory.path);
		send(own, own.slot(), 64, 1, 0);
		*slot = own.slot();
		if (fork() == 0) {
			own.abandon();
			*forked = 1;
			await(end, 1);
			_exit(0);
		}
		pause();
		return 0;
	});
	await(forked, 1);
	CHECK(wire.alive(static_cast<unsigned>(*slot)));
	CHECK(std::filesystem::exists(directory.path + "/inbox." + std::to_string(*slot)));
	parent.kill();
	CHECK_FALSE(wire.alive(static_cast<unsigned>(*slot)));
	*end = 1;
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
		wire.wake(); // is remembered, once
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

TEST_CASE("no frame and no wake() is slept through")
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

TEST_CASE("shared memory that is scribbled over crashes nobody, and the inbox recovers")
{
	Directory directory;
	Wire reader(directory.path), writer(directory.path);
	const unsigned to = reader.slot();
	Scribble inbox(directory.path + "/inbox." + std::to_string(to));
	std::mt19937_64 random(3);
	auto recovers = [&] {
		// What is left of the scribble is taken, or dropped; then frames pass again.
		while (!reader.front().empty())
			reader.pop();
		REQUIRE(send(writer, to, 64, 1, 77));
		Head head;
		REQUIRE(intact(reader.front(), head));
		REQUIRE(head.number == 77);
		reader.pop();
		REQUIRE(reader.front().empty());
	};
	recovers();
	const uint64_t values[] = {0,    1,    8,          16,         4096,       ring_bytes, ring_bytes + 16, 1ull << 40,
	                           ~0ull, ~15ull, 1ull << 63, 0x7fffffff, 0xffffffff, 8192,       8193};
	SECTION("positions")
	{
		for (const size_t where : {tail_at, head_at})
			for (const uint64_t value : values)
				for (const int before : {0, 3}) {
					for (int n = 0; n < before; ++n)
						REQUIRE(send(writer, to, 100, 1, 0));
					inbox.put(where, value);
					uint8_t *frame;
					if (writer.begin(to, most_frame_bytes, frame) == Room::yes) {
						REQUIRE(reinterpret_cast<uintptr_t>(frame) % 16 == 0);
						std::memset(frame, 0xff, most_frame_bytes);
						writer.end();
					}
					recovers();
				}
	}
	SECTION("lengths")
	{
		for (const uint64_t value : values)
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
	SECTION("lock and sleeper")
	{
		for (const uint64_t value : values) {
			inbox.put(lock_at, value);
			recovers();
			inbox.put(sleeper_at, value);
			recovers();
			reader.sleep(1ms, true);
		}
		inbox.put(lock_at, reader.incarnation(writer.slot()) * most_processes + writer.slot());
		recovers();
	}
	SECTION("everything, while frames are sent and taken")
	{
		Number end;
		Child scribbler([&] {
			// The frames of a living process are not to wait for a lock that nobody has.
			while (!*end)
				for (int n = 0; n < 100; ++n)
					switch (random() % 4) {
					case 0:
						inbox.put(tail_at, random() >> random() % 64);
						break;
					case 1:
						inbox.put(head_at, random() >> random() % 64);
						break;
					case 2:
						inbox.put(sleeper_at, random());
						break;
					default:
						inbox.put(ring_at + random() % (ring_bytes / 8) * 8, random() >> random() % 64);
					}
			return 0;
		});
		const auto until = Clock::now() + 1s;
		volatile uint8_t sum = 0;
		while (Clock::now() < until) {
			uint8_t *frame;
			const size_t bytes = 1 + random() % most_frame_bytes;
			if (writer.begin(to, bytes, frame) == Room::yes) {
				std::memset(frame, 0xff, bytes);
				writer.end();
			}
			if (const auto got = reader.front(); !got.empty()) {
				REQUIRE(got.size() <= most_frame_bytes);
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
}

TEST_CASE("a directory that cannot be used is named in the error")
{
	Directory directory;
	CHECK_THAT(error_of(directory.path + "/missing"),
	           Catch::Contains(directory.path + "/missing/slots: No such file") && Catch::Contains("must exist"));
	if (geteuid() == 0)
		return; // may write everywhere
	REQUIRE(chmod(directory.path.c_str(), 0500) == 0);
	CHECK_THAT(error_of(directory.path), Catch::Contains("Permission denied") && Catch::Contains("allowed to write"));
	REQUIRE(chmod(directory.path.c_str(), 0700) == 0);
}
