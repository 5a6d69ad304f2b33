// How many PCIe transactions a transfer takes.
#include <catch2/catch.hpp>

#include "softhca/counters/counters.hpp"

using namespace softhca;

TEST_CASE("a transfer of no bytes takes no transaction")
{
	CHECK(pcie_reads(0x1000, 0) == 0);
	CHECK(pcie_writes(0x1000, 0) == 0);
}

TEST_CASE("reads ask for up to 512 bytes and do not cross a multiple of that")
{
	CHECK(pcie_reads(0x1000, 1) == 1);
	CHECK(pcie_reads(0x1000, 512) == 1);
	CHECK(pcie_reads(0x1000, 513) == 2);
	CHECK(pcie_reads(0x11ff, 1) == 1);
	CHECK(pcie_reads(0x11ff, 2) == 2);
	CHECK(pcie_reads(0x1100, 512) == 2);
	CHECK(pcie_reads(0x1000, 4096) == 8);
	CHECK(pcie_reads(0x1ff8, 4096) == 9);
}

TEST_CASE("writes bring up to 256 bytes and do not cross a multiple of that")
{
	CHECK(pcie_writes(0x1000, 1) == 1);
	CHECK(pcie_writes(0x1000, 256) == 1);
	CHECK(pcie_writes(0x1000, 257) == 2);
	CHECK(pcie_writes(0x10ff, 2) == 2);
	CHECK(pcie_writes(0x1080, 256) == 2);
	CHECK(pcie_writes(0x1000, 4096) == 16);
	CHECK(pcie_writes(0x1ffc, 8) == 2); // a 4 KiB boundary is one of them
}

TEST_CASE("counters count, and take back")
{
	Counters counters{};
	counters.add(Counter::wqe_reads, 3);
	counters.add(Counter::wqe_reads, -uint64_t{1});
	CHECK(counters.get(Counter::wqe_reads) == 2);
	CHECK(counters.get(Counter::cqes) == 0);
}
