// Processes that join the wire, leave it, are killed or stopped at any point, and the slots that they take.
#include <catch2/catch.hpp>

#include <chrono>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "tests/softhca/parts/frames.hpp"

using namespace frames;

namespace {

std::string error_of(const std::string &directory)
{
	try {
		Wire wire(directory);
	} catch (const std::runtime_error &e) {
		return e.what();
	}
	return "";
}

} // namespace

TEST_CASE("processes that are killed lose no frames of the others and block nobody")
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
	for (unsigned slot = 0; slot < max_processes; ++slot)
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
	CHECK(send(wire, other.slot(), 64, 1, 0)); // other inboxes are not affected
	stopped.signal(SIGCONT);
	CHECK(stopped.wait() == 0);
	CHECK(send(wire, to, 64, 1, 0));
	CHECK(receive(wire).sender == 2);
	CHECK(receive(wire).sender == 1);
}

TEST_CASE("slots are given out in turn, and again when their owners have left or died")
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
	CHECK(wire.begin(max_processes, 64, frame) == Room::nobody);
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

	// All other slots are given out once, and given back.
	std::set<unsigned> seen;
	for (unsigned n = 0; n + 2 < max_processes; ++n)
		seen.insert(Wire(directory.path).slot());
	CHECK(seen.size() == max_processes - 2);
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
	// All other slots are taken, by one locked file under all names.
	const std::string file = directory.path + "/file";
	const int fd = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
	REQUIRE(flock(fd, LOCK_EX) == 0);
	Scribble table(directory.path + "/slots");
	for (unsigned n = 0; n < max_processes; ++n)
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

TEST_CASE("many processes join and leave at once")
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

TEST_CASE("a child of fork() that forgets the wire does not act for its parent")
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
