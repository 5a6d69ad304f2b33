// Fault rules: how they are read, and what they decide.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "softhca/wire/faults.hpp"

using namespace softhca;

namespace {

Packet packet_of(PacketKind kind, uint32_t source = 0x4010)
{
	Packet packet{};
	packet.kind = kind;
	packet.source = source;
	packet.destination = 0x8010;
	return packet;
}

// What becomes of `n` packets: a letter for each (pass, drop, twice, after the next, later).
std::string fates(Faults &faults, unsigned n, uint32_t source = 0x4010, PacketKind kind = PacketKind::send)
{
	std::string text;
	Time delay = 0;
	while (n--)
		text += "pdtal"[static_cast<unsigned>(faults.packet(packet_of(kind, source), 0, 1, delay))];
	return text;
}

} // namespace

TEST_CASE("rules that cannot be understood say why, and change nothing")
{
	Faults faults;
	CHECK(faults.add("explode").find("there are drop") != std::string::npos);
	CHECK(faults.add("drop rate=2").find("0 to 1") != std::string::npos);
	CHECK(faults.add("drop rate=").find("0 to 1") != std::string::npos);
	CHECK(faults.add("drop rate=nan").find("0 to 1") != std::string::npos);
	CHECK(faults.add("drop kind=letter").find("read_response") != std::string::npos);
	CHECK(faults.add("drop colour=3").find("there are rate") != std::string::npos);
	CHECK(faults.add("drop fast").find("name=value") != std::string::npos);
	CHECK(faults.add("drop count=many").find("not a number") != std::string::npos);
	CHECK(faults.add("drop qp=0x1000000").find("no setting") != std::string::npos);
	CHECK(faults.add("delay").find("us=") != std::string::npos);
	CHECK(faults.add("tear us=soon").find("not a number") != std::string::npos);
	CHECK(faults.add("refuse").find("mr, dm, qp") != std::string::npos);
	CHECK(faults.add("drop; explode").find("explode") != std::string::npos);
	CHECK(faults.none());
	CHECK(faults.add(" # only a comment\n;;\n") == "");
	CHECK(faults.none());
	CHECK(faults.add("drop rate=0.5 kind=read qp=0x10 to=16 device=1 after=1 count=2 seed=3; delay ms=1 # why") == "");
	CHECK_FALSE(faults.none());
	CHECK(faults.add("clear") == "");
	CHECK(faults.none());
}

TEST_CASE("after and count choose the packets that are hit")
{
	Faults faults;
	REQUIRE(faults.add("drop after=2 count=3") == "");
	CHECK(fates(faults, 8) == "ppdddppp");
}

TEST_CASE("a rule is for the packets that it names")
{
	Faults faults;
	REQUIRE(faults.add("drop kind=acknowledge qp=0x4010") == "");
	CHECK(fates(faults, 2) == "pp");
	CHECK(fates(faults, 2, 0x4010, PacketKind::acknowledge) == "dd");
	CHECK(fates(faults, 2, 0x4011, PacketKind::acknowledge) == "pp");
	REQUIRE(faults.add("clear; drop to=0x8011") == "");
	CHECK(fates(faults, 2) == "pp");
	REQUIRE(faults.add("clear; duplicate to=0x8010") == "");
	CHECK(fates(faults, 2) == "tt");
	REQUIRE(faults.add("clear; drop device=1") == "");
	CHECK(fates(faults, 2) == "pp");
}

TEST_CASE("decisions can be repeated, and do not depend on other queue pairs")
{
	Faults one, other, third;
	REQUIRE(one.add("drop rate=0.3 seed=5") == "");
	REQUIRE(other.add("drop rate=0.3 seed=5") == "");
	REQUIRE(third.add("drop rate=0.3 seed=6") == "");
	const std::string wanted = fates(one, 1000);
	std::string interleaved;
	for (int i = 0; i < 1000; ++i) {
		fates(other, 3, 0x5555);
		interleaved += fates(other, 1);
	}
	CHECK(interleaved == wanted);
	CHECK(fates(third, 1000) != wanted);
	const auto dropped = std::count(wanted.begin(), wanted.end(), 'd');
	CHECK((dropped > 230 && dropped < 370));
}

TEST_CASE("a link is down for a time")
{
	Faults faults;
	REQUIRE(faults.add("link_down ms=2 after=1 count=1") == "");
	Time delay;
	const Packet packet = packet_of(PacketKind::write);
	CHECK(faults.packet(packet, 0, 1'000'000, delay) == Faults::Fate::pass);
	CHECK_FALSE(faults.down(0, 1'000'000));
	CHECK(faults.packet(packet, 0, 1'000'000, delay) == Faults::Fate::drop);
	CHECK(faults.down(0, 1'000'000));
	CHECK(faults.packet(packet, 0, 2'999'999, delay) == Faults::Fate::drop);
	CHECK(faults.packet(packet, 0, 3'000'000, delay) == Faults::Fate::pass);
	CHECK_FALSE(faults.down(0, 3'000'000));
}

TEST_CASE("a torn READ takes each byte once, in pieces that meet between cache lines, in an order of the seed")
{
	std::set<std::vector<uint32_t>> orders;
	std::set<size_t> counts;
	for (uint64_t seed = 0; seed < 200; ++seed)
		for (const uint32_t bytes : {0u, 1u, 64u, 65u, 128u, 1000u, 4096u, 1u << 20}) {
			constexpr uint64_t address = 0x1030; // 16 bytes before a line
			const std::vector<Piece> pieces = pieces_of(address, bytes, seed);
			std::vector<uint32_t> offsets;
			std::map<uint32_t, uint32_t> sorted;
			for (const Piece &piece : pieces) {
				offsets.push_back(piece.offset);
				sorted[piece.offset] = piece.bytes;
				CHECK((piece.offset == 0 || (address + piece.offset) % 64 == 0));
			}
			uint32_t end = 0;
			for (const auto &[offset, length] : sorted) {
				CHECK(offset == end);
				end += length;
			}
			CHECK(end == bytes);
			const auto again = pieces_of(address, bytes, seed);
			CHECK(
			    std::equal(pieces.begin(), pieces.end(), again.begin(), again.end(),
			               [](const Piece &a, const Piece &b) { return a.offset == b.offset && a.bytes == b.bytes; }));
			CHECK((pieces.size() > 1) == (bytes > 16));
			counts.insert(pieces.size());
			if (bytes == 4096)
				orders.insert(offsets);
		}
	CHECK(counts == std::set<size_t>{1, 2, 3, 4, 5, 6, 7, 8});
	CHECK(orders.size() > 100);
}

TEST_CASE("objects are refused as often as asked for")
{
	Faults faults;
	REQUIRE(faults.add("refuse mr count=2; refuse qp after=1") == "");
	CHECK(faults.refuses(FaultRule::Object::mr, 0));
	CHECK(faults.refuses(FaultRule::Object::mr, 0));
	CHECK_FALSE(faults.refuses(FaultRule::Object::mr, 0));
	CHECK_FALSE(faults.refuses(FaultRule::Object::dm, 0));
	CHECK_FALSE(faults.refuses(FaultRule::Object::qp, 0));
	CHECK(faults.refuses(FaultRule::Object::qp, 0));
}

TEST_CASE("rules are read from a file when it changes")
{
	char directory[] = "/tmp/softhca-faults.XXXXXX";
	REQUIRE(mkdtemp(directory));
	const std::string path = std::string(directory) + "/faults";
	Faults faults;
	Time now = 1;
	faults.look_at_file(path, now);
	CHECK(faults.none());
	std::ofstream(path) << "# none yet\ndrop count=1\n";
	faults.look_at_file(path, now += 1'000'000); // too soon
	CHECK(faults.none());
	faults.look_at_file(path, now += 20'000'000);
	CHECK(fates(faults, 2) == "dp");
	std::remove(path.c_str());
	faults.look_at_file(path, now += 20'000'000);
	CHECK(faults.none());
	std::remove(directory);
}
