// Tests with several processes. A case with the tag [.side] is one side of a test that processes.sh starts:
//
//   SIDE       which one this is, from 0
//   SIDES      how many there are
//   EXCHANGE   a directory in which they leave files for each other
#include <catch2/catch.hpp>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "tests/softhca/traffic/traffic.hpp"

namespace {

using namespace std::chrono_literals;
constexpr auto patience = 20s;

unsigned number_of(const char *name)
{
	const char *value = getenv(name);
	REQUIRE(value);
	return static_cast<unsigned>(std::strtoul(value, nullptr, 10));
}
unsigned side() { return number_of("SIDE"); }

std::string exchange_path(const std::string &name)
{
	const char *directory = getenv("EXCHANGE");
	REQUIRE(directory);
	return std::string(directory) + "/" + name;
}

// Leaves numbers for the others.
void tell(const std::string &name, const std::vector<uint64_t> &numbers)
{
	const std::string path = exchange_path(name), temporary = path + ".new";
	{
		std::ofstream file(temporary);
		for (uint64_t n : numbers)
			file << n << '\n';
		REQUIRE(file.flush());
	}
	REQUIRE(std::rename(temporary.c_str(), path.c_str()) == 0);
}

// Waits for what another side has left.
std::vector<uint64_t> hear(const std::string &name)
{
	const std::string path = exchange_path(name);
	const auto until = std::chrono::steady_clock::now() + patience;
	while (access(path.c_str(), F_OK) != 0) {
		INFO(path);
		REQUIRE(std::chrono::steady_clock::now() < until);
		usleep(1000);
	}
	std::ifstream file(path);
	std::vector<uint64_t> numbers;
	for (uint64_t n; file >> n;)
		numbers.push_back(n);
	return numbers;
}

// Both sides call it with the number of the other.
void connect_to(Endpoint &end, unsigned other, const std::string &what = "")
{
	const auto name = [&](unsigned from, unsigned to) {
		return "qp." + what + std::to_string(from) + "." + std::to_string(to);
	};
	tell(name(side(), other), {lid_of(end.device.context), end.number(), end.settings.psn});
	const auto peer = hear(name(other, side()));
	REQUIRE(peer.size() == 3);
	end.to_init();
	end.to_rtr(static_cast<uint32_t>(peer[1]), static_cast<uint16_t>(peer[0]), static_cast<uint32_t>(peer[2]));
	end.to_rts();
}

// Waits until all sides have come here.
void meet(const std::string &name)
{
	tell(name + "." + std::to_string(side()), {});
	for (unsigned i = 0; i < number_of("SIDES"); ++i)
		hear(name + "." + std::to_string(i));
}

} // namespace

TEST_CASE("every process exchanges messages with every other", "[.side]")
{
	constexpr uint64_t messages = 200;
	constexpr size_t slot = 4096, slots = 8;
	const unsigned me = side(), sides = number_of("SIDES");
	const auto length = [](uint64_t i) { return 1 + i * 397 % slot; };
	Device device;
	struct Peer {
		Peer(Device &d, const Settings &s) : end(d, s), out(d.pd, slot * slots), in(d.pd, slot * slots) {}
		Endpoint end;
		Memory out, in;
		uint64_t sent = 0, completed = 0, received = 0;
	};
	Cq cq(device.context, 4096);
	Settings settings;
	settings.send_cq = settings.receive_cq = cq;
	settings.psn = 0xfffff0 + me;
	settings.timeout = 16;
	std::vector<std::unique_ptr<Peer>> peers(sides);
	for (unsigned i = 0; i < sides; ++i) {
		if (i == me)
			continue;
		peers[i] = std::make_unique<Peer>(device, settings);
		peers[i]->end.to_init();
		for (uint64_t k = 0; k < slots; ++k)
			receive(peers[i]->end.qp, {peers[i]->in.piece(k * slot, slot)}, 2 * i + 1);
		connect_to(peers[i]->end, i);
	}
	meet("connected");
	const auto send_next = [&](unsigned to) {
		Peer &peer = *peers[to];
		uint8_t *bytes = peer.out.at(peer.sent % slots * slot);
		for (size_t i = 0; i < length(peer.sent); ++i)
			bytes[i] = pattern(static_cast<unsigned>(peer.sent * 64 + me * 8 + to), i);
		send(peer.end.qp, peer.out.piece(peer.sent % slots * slot, length(peer.sent)), 2 * to);
		++peer.sent;
	};
	for (unsigned i = 0; i < sides; ++i)
		for (unsigned k = 0; k < slots && i != me; ++k)
			send_next(i);
	const uint64_t all = 2 * messages * (sides - 1);
	for (uint64_t done = 0; done < all; ++done) {
		const ibv_wc wc = expect(cq);
		const auto from = static_cast<unsigned>(wc.wr_id / 2);
		Peer &peer = *peers[from];
		if (wc.wr_id % 2 == 0) {
			++peer.completed;
			if (peer.sent < messages)
				send_next(from);
			continue;
		}
		const uint64_t i = peer.received++;
		REQUIRE(wc.byte_len == length(i));
		const uint8_t *bytes = peer.in.at(i % slots * slot);
		for (size_t k = 0; k < length(i); ++k)
			if (bytes[k] != pattern(static_cast<unsigned>(i * 64 + from * 8 + me), k))
				FAIL("byte " << k << " of message " << i << " from " << from);
		receive(peer.end.qp, {peer.in.piece(i % slots * slot, slot)}, 2 * from + 1);
	}
	meet("done");
}

// Side 0 survives, side 1 is killed, side 2 goes on.
TEST_CASE("a side that loses another gets errors, and goes on with those that are left", "[.side]")
{
	Device device;
	constexpr size_t bytes = 1 << 20;
	Memory memory(device.pd, bytes);
	Settings settings;
	settings.timeout = 12; // 17 ms
	settings.retries = 3;
	if (side() != 0) {
		Endpoint end(device, settings);
		connect_to(end, 0);
		tell("process." + std::to_string(side()), {static_cast<uint64_t>(getpid()), memory.address(), memory.key()});
		const std::string over = exchange_path("over");
		// Polls, so that the device moves, until the test ends or this side is killed.
		const auto until = std::chrono::steady_clock::now() + 3 * patience;
		while (access(over.c_str(), F_OK) != 0) {
			ibv_wc wc;
			ibv_poll_cq(end.send_cq, 1, &wc);
			REQUIRE(std::chrono::steady_clock::now() < until);
		}
		return;
	}
	Endpoint victim(device, settings), other(device, settings);
	connect_to(victim, 1);
	connect_to(other, 2);
	const auto who = hear("process.1"), third = hear("process.2");
	// A stream of WRITEs and READs to both. Then one of them is killed.
	const auto start = [&](Endpoint &end, const std::vector<uint64_t> &to, uint64_t id) {
		if (id % 2)
			write(end.qp, memory.whole(), to[1], static_cast<uint32_t>(to[2]), id);
		else
			read(end.qp, memory.whole(), to[1], static_cast<uint32_t>(to[2]), id);
	};
	for (uint64_t i = 0; i < 20; ++i)
		start(victim, who, i);
	expect(victim.send_cq);
	REQUIRE(kill(static_cast<pid_t>(who[0]), SIGKILL) == 0);
	const auto killed = std::chrono::steady_clock::now();
	for (uint64_t i = 0; i < 20; ++i) {
		start(other, third, i);
		expect(other.send_cq);
	}
	// Some may have completed before. Then one fails, and the rest is flushed.
	size_t failed = 0;
	for (const ibv_wc &wc : wait(victim.send_cq, 19)) {
		if (failed)
			CHECK(wc.status == IBV_WC_WR_FLUSH_ERR);
		else if (wc.status != IBV_WC_SUCCESS)
			CHECK(wc.status == IBV_WC_RETRY_EXC_ERR);
		failed += wc.status != IBV_WC_SUCCESS;
	}
	CHECK(failed > 0);
	CHECK(std::chrono::steady_clock::now() - killed < 10s);
	for (uint64_t i = 0; i < 20; ++i) {
		start(other, third, i);
		expect(other.send_cq);
	}
	tell("over", {});
}

// Side 0 is the target. The others come one after the other: each sends, and is killed. processes.sh takes care that
// the next one gets the same slot of the wire, and with it the same numbers.
TEST_CASE("a target recognizes an initiator with the same number in a new process as a new one", "[.side]")
{
	constexpr uint64_t messages = 5;
	Device device;
	Memory memory(device.pd, 4096);
	if (side() == 0) {
		const uint64_t initiators = number_of("SIDES") - 1;
		Srq srq(device);
		Cq cq(device.context);
		Dct dct(device, srq.srq, cq);
		for (uint64_t i = 0; i < initiators * messages; ++i)
			srq.post(memory.piece(i * 8, 8), i);
		tell("target", {lid_of(device.context), dct.number()});
		uint32_t number = 0;
		for (uint64_t i = 0; i < initiators * messages; ++i) {
			const ibv_wc wc = expect(cq);
			CHECK(wc.wr_id == i);
			CHECK(memory.word(i * 8) == i / messages * 100 + i % messages);
			number = number ? number : wc.src_qp;
			CHECK(wc.src_qp == number); // else the test shows nothing
		}
		return;
	}
	const auto target = hear("target");
	AddressHandle there(device, static_cast<uint16_t>(target[0]));
	Dci dci(device);
	for (uint64_t i = 0; i < messages; ++i) {
		memory.word(8 * i) = (side() - 1) * 100 + i;
		dci.begin();
		dci.set(i);
		ibv_wr_send(dci.ex);
		dci.address(static_cast<uint32_t>(target[1]), dc_key, there.ah);
		dci.data({memory.piece(8 * i, 8)});
		dci.complete();
		expect(dci.cq);
	}
	raise(SIGKILL);
}

TEST_CASE("a child that is forked leaves the parent's queue pairs alone, and may have its own")
{
	Device device;
	Pair pair(device);
	Memory memory(device.pd, 1 << 20);
	for (int round = 0; round < 4; ++round) {
		// Traffic is under way meanwhile.
		for (int i = 0; i < 8; ++i)
			write(pair.a.qp, memory.piece(0, 1 << 19), memory.address(1 << 19), memory.key());
		const pid_t child = fork();
		REQUIRE(child >= 0);
		if (child == 0) {
			int result = 0;
			if (round > 1) {
				try {
					Device own;
					Pair mine(own);
					for (int i = 0; i < 10; ++i)
						exchange(own, mine.a, mine.b);
				} catch (...) {
					result = 1;
				}
			}
			_exit(result);
		}
		for (const ibv_wc &wc : wait(pair.a.send_cq, 8))
			CHECK(wc.status == IBV_WC_SUCCESS);
		exchange(device, pair.a, pair.b);
		int status;
		REQUIRE(waitpid(child, &status, 0) == child);
		CHECK(status == 0);
		exchange(device, pair.a, pair.b);
	}
}
