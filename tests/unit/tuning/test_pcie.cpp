// What transactions on PCIe take, how fast a link is, and rates between readings.
#include <catch2/catch.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "transports/verbs/device/pcie.hpp"

using namespace pt2p;
using namespace pt2p::verbs;

TEST_CASE("pcie: the rate of a link")
{
	char name[] = "/tmp/pt2p-pcie-XXXXXX";
	REQUIRE(mkdtemp(name) != nullptr);
	const std::string folder = name;
	const auto rate = [&](const char *speed, const char *width) {
		std::ofstream(folder + "/current_link_speed") << speed << '\n';
		std::ofstream(folder + "/current_link_width") << width << '\n';
		return pcie_rate(folder);
	};
	CHECK(rate("8.0 GT/s PCIe", "16") == Approx(15.754e9).epsilon(1e-4));
	CHECK(rate("16 GT/s", "8") == Approx(15.754e9).epsilon(1e-4));
	CHECK(rate("5.0 GT/s PCIe", "8") == Approx(4e9));
	CHECK(rate("Unknown", "16") == 0);
	CHECK(rate("8.0 GT/s PCIe", "0") == 0);
	std::filesystem::remove_all(folder);
	CHECK(pcie_rate(folder) == 0);
}

TEST_CASE("pcie: transactions")
{
	PcieTraffic t;
	t.device_reads(2, 256); // in two pieces
	CHECK(t.from_device() == 2 * 26);
	CHECK(t.to_device() == 2 * (256 + 2 * 22));
	t = {};
	t.device_writes(3, 64);
	t.device_writes(1, 512);
	CHECK(t.from_device() == 3 * (64 + 26) + 512 + 2 * 26);
	CHECK(t.to_device() == 0);
	t = {};
	t.processor_stores(1, 64);
	t.processor_stores(1, 128);
	t.processor_stores(1, 8);
	CHECK(t.to_device() == 64 + 26 + 128 + 2 * 26 + 8 + 26);
}

TEST_CASE("pcie: rates between two readings")
{
	PcieMeter meter(16e9, 4, 5'000'000);
	PcieTraffic t;
	t.device_writes(1000, 230); // 256 bytes each
	meter.read(6'000'000, t);
	CHECK(meter.facts().from_device == Approx(256e6));
	t.device_writes(4000, 230);
	meter.read(7'000'000, t);
	CHECK(meter.facts().from_device == Approx(1024e6));
	CHECK(meter.facts().to_device == 0);
	CHECK(meter.facts().use() == Approx(4 * 1.024 / 16));
	// Two transports of one device, or a program that asks for the length of the report first.
	meter.read(7'000'100, t);
	CHECK(meter.facts().from_device == Approx(1024e6));
	// A write ring has been given back, and what was counted there is gone.
	meter.read(8'000'000, {});
	CHECK(meter.facts().from_device == 0);
	CHECK(PcieMeter(0, 4, 0).facts().use() == 0);
}
