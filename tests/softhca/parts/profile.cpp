// The parts of the model of a device: links, caches, profiles.
#include <catch2/catch.hpp>

#include <stdexcept>
#include <string>

#include "softhca/model/mechanisms.hpp"
#include "softhca/model/profile.hpp"

using namespace softhca::model;

namespace {

std::string refusal(const std::string &profile)
{
	try {
		read_profile(profile);
	} catch (const std::runtime_error &error) {
		return error.what();
	}
	return "";
}

} // namespace

TEST_CASE("a link moves bytes one after the other", "[model]")
{
	Link link(1000); // a byte is a nanosecond
	CHECK(link.move(0, 100) == 100'000);
	CHECK(link.move(50'000, 10) == 110'000);
	CHECK(link.move(200'000, 10) == 210'000);
}

TEST_CASE("a link that is booked for later is free until then", "[model]")
{
	Link link(1000);
	CHECK(link.move(1'000'000, 100) == 1'100'000);
	CHECK(link.move(0, 100) == 100'000);
	// What does not fit goes on behind it.
	CHECK(link.move(950'000, 100) == 1'150'000);
	CHECK(link.move(940'000, 10) == 950'000);
	// Around two.
	CHECK(link.move(2'000'000, 100) == 2'100'000);
	CHECK(link.move(2'200'000, 100) == 2'300'000);
	CHECK(link.move(1'950'000, 200) == 2'350'000);
	CHECK(link.move(1'950'000, 1) == 2'351'000);
}

TEST_CASE("bytes that come over a link are there when the last is, or later when others are in the way", "[model]")
{
	Link link(1000);
	CHECK(link.arrive(500'000, 100) == 500'000);
	CHECK(link.arrive(550'000, 100) == 600'000);
	CHECK(link.arrive(50'000, 100) == 100'000);
}

TEST_CASE("a cache has everything until it is full", "[model]")
{
	RandomCache cache(64);
	for (int round = 0; round < 3; ++round)
		for (uint64_t key = 0; key < 64; ++key)
			CHECK(cache.use(key) == (round > 0));
	CHECK(cache.size() == 64);
	cache.forget(5);
	cache.forget(5);
	CHECK(!cache.has(5));
	CHECK(cache.size() == 63);
	CHECK(!cache.use(100));
	CHECK(cache.has(63)); // there was room
	CHECK(cache.size() == 64);
}

TEST_CASE("a cache hits at random, the same in every run", "[model]")
{
	// Keys in turn, twice as many as there is room for. A key is asked for again after 2 n others, of which a part h
	// hits. It survives (1 - 1/n) to the power of the misses among them: h = exp(-2 (1 - h)), which is 0.203.
	constexpr size_t n = 500;
	RandomCache cache(n), again(n);
	unsigned hits = 0, asked = 0;
	for (unsigned round = 0; round < 100; ++round)
		for (uint64_t key = 0; key < 2 * n; ++key) {
			const bool hit = cache.use(key);
			REQUIRE(again.use(key) == hit);
			if (round >= 10) {
				hits += hit;
				++asked;
			}
		}
	CHECK(hits / static_cast<double>(asked) == Approx(0.203).margin(0.01));
	CHECK(cache.size() == n);
}

TEST_CASE("a cache of WQEs evicts the oldest", "[model]")
{
	FifoCache cache(3);
	CHECK(!cache.use(1));
	CHECK(!cache.use(2));
	CHECK(!cache.use(3));
	CHECK(cache.use(1)); // makes it no younger
	CHECK(!cache.use(4));
	CHECK(!cache.has(1));
	CHECK(cache.has(2));
	cache.forget(2);
	CHECK(!cache.use(5));
	CHECK(cache.size() == 3);
	CHECK(cache.has(3));
	// What was evicted and has come again is young.
	cache.forget(3);
	CHECK(!cache.use(3));
	CHECK(!cache.use(6));
	CHECK(cache.has(3));
	CHECK(!cache.has(4));
	CHECK(cache.size() == 3);
}

TEST_CASE("profiles have names, and parameters can be changed", "[model]")
{
	CHECK(read_profile("connectx3").units == 1);
	CHECK(read_profile("connectib").wire_rate > read_profile("connectx3").wire_rate);
	const Profile changed = read_profile("connectx6,units=3,pcie_read=1e3");
	CHECK(changed.units == 3);
	CHECK(changed.pcie_read == 1000);
	CHECK(changed.latency == read_profile("connectx6").latency);
	CHECK(describe(changed).find("units") != std::string::npos);
}

TEST_CASE("an impossible profile is refused with the cause", "[model]")
{
	CHECK(refusal("connectx9").find("no profile connectx9") != std::string::npos);
	CHECK(refusal("").find("no profile") != std::string::npos);
	CHECK(refusal("connectx5,speed=3").find("no parameter speed") != std::string::npos);
	for (const char *bad : {"connectx5,units", "connectx5,units=", "connectx5,units=x", "connectx5,units=4x",
	                        "connectx5,units=-1", "connectx5,units=nan"})
		CHECK(refusal(bad).find("is to be a number") != std::string::npos);
	for (const char *bad :
	     {"connectx5,units=0", "connectx5,wire_rate=0", "connectx5,pcie_lanes=0", "connectx5,unit_overlap=0",
	      "connectx5,receive_burst=0", "connectx5,unit_stay=0", "connectx5,pcie_read_piece=0"})
		CHECK(refusal(bad).find("at least one") != std::string::npos);
	CHECK(refusal("connectx5,units=4") == "");
}
