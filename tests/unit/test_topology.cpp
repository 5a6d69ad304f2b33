// SPDX-License-Identifier: BSD-3-Clause
// The host topology: of this host, and of descriptions of other machines.
#include <catch2/catch.hpp>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <numeric>
#include <string>
#include <vector>

#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/job/topology.hpp"

using namespace pt2p;
using Catch::Matchers::Contains;

namespace {

std::string path_of(const std::string &name)
{
	const std::string tail = "tests/unit/topologies/" + name;
	if (const char *source = std::getenv("srcdir"))
		if (access((std::string(source) + '/' + tail).c_str(), R_OK) == 0)
			return std::string(source) + '/' + tail;
	const std::string here = __FILE__;
	return here.substr(0, here.rfind('/')) + "/topologies/" + name;
}

// A description in which only the CPUs of `mask` may be used, as in a control group.
std::string restricted(const std::string &name, const std::string &mask)
{
	std::ifstream file(path_of(name));
	std::string text{std::istreambuf_iterator<char>(file), {}};
	const std::string key = "allowed_cpuset=\"";
	const size_t begin = text.find(key) + key.size();
	return text.replace(begin, text.find('"', begin) - begin, mask);
}

std::vector<int> numbers(int first, int last)
{
	std::vector<int> list(static_cast<size_t>(last - first + 1));
	std::iota(list.begin(), list.end(), first);
	return list;
}

} // namespace

TEST_CASE("CPU numbers are written as ranges", "[topology]")
{
	CHECK(cpu_ranges({}) == "none");
	CHECK(cpu_ranges({3}) == "3");
	CHECK(cpu_ranges({0, 1, 2, 3}) == "0-3");
	CHECK(cpu_ranges({0, 2, 3, 8}) == "0,2-3,8");
}

TEST_CASE("two sockets with two NUMA nodes each", "[topology]")
{
	const Topology t = read_topology(path_of("two_sockets.xml"));
	CHECK(t.sockets == 2);
	CHECK(t.numa_nodes == 4);
	CHECK(t.cores == 16);
	CHECK(t.host_cpus == 16);
	CHECK(t.usable_cpus == 16);
	CHECK(t.cpus == 16);
	CHECK(t.cpu_list == numbers(0, 15));
	CHECK(t.core == -1);
	CHECK(t.socket == -1);
	CHECK(t.numa_node == -1);
	CHECK(t.l1d == 32u << 10);
	CHECK(t.l2 == 1u << 20);
	CHECK(t.l3 == 32u << 20);
	CHECK_THAT(t.text, Contains("2 sockets, 4 NUMA nodes, 16 cores, 16 CPUs, 64 GiB"));
	CHECK_THAT(t.text, Contains("  socket 1\n    NUMA node 2: 16 GiB\n"
	                            "      L3 32 MiB: 4 cores with L2 1 MiB, L1d 32 KiB; CPUs 8-11 *\n"));
	CHECK_THAT(t.text, Contains("this process may run on 16 CPUs: 0-15 (*)\n"));
}

TEST_CASE("cores of two threads", "[topology]")
{
	const Topology t = read_topology(path_of("smt.xml"));
	CHECK(t.sockets == 1);
	CHECK(t.cores == 4);
	CHECK(t.host_cpus == 8);
	CHECK(t.core == -1);
	CHECK(t.socket == 0);
	CHECK(t.numa_node == 0);
	CHECK(t.l1d == 48u << 10);
	CHECK_THAT(t.text, Contains("4 cores of 2 threads with L2 512 KiB, L1d 48 KiB; CPUs 0-7 *"));
}

TEST_CASE("a control group that leaves some CPUs", "[topology]")
{
	SECTION("one NUMA node of the second socket")
	{
		const Topology t = read_topology(restricted("two_sockets.xml", "0x0000f000"));
		CHECK(t.host_cpus == 16);
		CHECK(t.cores == 16);
		CHECK(t.usable_cpus == 4);
		CHECK(t.cpu_list == numbers(12, 15));
		CHECK(t.core == -1);
		CHECK(t.socket == 1);
		CHECK(t.numa_node == 3);
		CHECK_FALSE(oversubscribed(t, 4));
		CHECK(oversubscribed(t, 5));
		CHECK_THAT(t.text, Contains("the control group leaves 4 CPUs to the processes of this job"));
	}
	SECTION("CPUs of two NUMA nodes in one socket")
	{
		const Topology t = read_topology(restricted("two_sockets.xml", "0x00000018"));
		CHECK(t.cpu_list == numbers(3, 4));
		CHECK(t.socket == 0);
		CHECK(t.numa_node == -1);
		CHECK_THAT(t.text, Contains("CPUs 0-3 (* 3)"));
	}
	SECTION("one CPU")
	{
		const Topology t = read_topology(restricted("two_sockets.xml", "0x00000200"));
		CHECK(t.cpus == 1);
		CHECK(t.core == 9);
		CHECK(t.socket == 1);
		CHECK(t.numa_node == 2);
		CHECK_THAT(t.text, Contains("this process is bound to CPU 9 (*)"));
	}
	SECTION("both threads of one core count as bound to it")
	{
		const Topology all = read_topology(path_of("smt.xml"));
		int pairs = 0;
		for (int other = 1; other < all.host_cpus; other++) {
			char mask[32];
			std::snprintf(mask, sizeof mask, "0x%08x", 1u | 1u << other);
			const Topology t = read_topology(restricted("smt.xml", mask));
			CHECK(t.cpus == 2);
			if (t.core == 0) {
				pairs++;
				CHECK_THAT(t.text, Contains("this process is bound to one core"));
			}
		}
		CHECK(pairs == 1);
	}
}

TEST_CASE("a description that cannot be read keeps the defaults", "[topology]")
{
	for (const std::string xml : {"/nonexistent/topology.xml", "<topology><nonsense", "<"}) {
		const Topology t = read_topology(xml);
		CHECK(t.sockets == 1);
		CHECK(t.host_cpus == 1);
		CHECK(t.core == -1);
		CHECK(t.cpu_list.empty());
		CHECK_FALSE(t.text.empty());
	}
}

TEST_CASE("this host", "[topology]")
{
	const Topology t = read_topology();
	char host[256] = "";
	gethostname(host, sizeof host - 1);
	CHECK(t.host == host);
	CHECK_THAT(t.node_id, Contains(host));
	CHECK(t.node_id == read_topology().node_id);
	CHECK(t.host_cpus >= sysconf(_SC_NPROCESSORS_ONLN));
	CHECK(t.cores >= 1);
	CHECK(t.cores <= t.host_cpus);
	CHECK(t.usable_cpus >= 1);
	CHECK(t.usable_cpus <= t.host_cpus);
	CHECK(static_cast<size_t>(t.cpus) == t.cpu_list.size());
	CHECK(oversubscribed(t, t.host_cpus + 1));
	CHECK_FALSE(oversubscribed(t, 1));
	cpu_set_t set;
	REQUIRE(sched_getaffinity(0, sizeof set, &set) == 0);
	CHECK(t.cpus == CPU_COUNT(&set));
	for (int cpu : t.cpu_list)
		CHECK(CPU_ISSET(static_cast<size_t>(cpu), &set));
}

TEST_CASE("a bound process knows its core", "[topology]")
{
	cpu_set_t before, one;
	REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
	size_t last = 0;
	for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &before))
			last = cpu;
	CPU_ZERO(&one);
	CPU_SET(last, &one);
	REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
	const Topology t = read_topology();
	REQUIRE(sched_setaffinity(0, sizeof before, &before) == 0);
	CHECK(t.cpus == 1);
	CHECK(t.core == static_cast<int>(last));
	CHECK(t.socket >= 0);
	CHECK(t.numa_node >= 0);
}

TEST_CASE("equal node identities mean that descriptors can be opened", "[topology]")
{
	// What node_id promises, tried on a child.
	int ready[2];
	REQUIRE(pipe(ready) == 0);
	const int segment = memfd_create("test", 0);
	REQUIRE(segment >= 0);
	const pid_t child = fork();
	REQUIRE(child >= 0);
	if (child == 0) {
		const std::string id = read_topology().node_id;
		(void)!write(ready[1], id.data(), id.size());
		pause();
		_exit(0);
	}
	char id[1024];
	const ssize_t n = read(ready[0], id, sizeof id);
	REQUIRE(n > 0);
	const bool same = std::string(id, static_cast<size_t>(n)) == read_topology().node_id;
	const std::string path = "/proc/" + std::to_string(child) + "/fd/" + std::to_string(segment);
	CHECK(same == (access(path.c_str(), R_OK | W_OK) == 0));
	kill(child, SIGKILL);
	waitpid(child, nullptr, 0);
	close(segment);
	close(ready[0]);
	close(ready[1]);
}

TEST_CASE("placement on a NUMA node never harms", "[topology]")
{
	const size_t bytes = 1 << 16;
	void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	REQUIRE(memory != MAP_FAILED);
	for (int node : {-1, 0, 1, 63, 64, 4096})
		place_on_numa_node(memory, bytes, node);
	place_on_numa_node(static_cast<char *>(memory) + 100, 200, 0);
	place_on_numa_node(nullptr, 0, 0);
	std::memset(memory, 1, bytes);
	CHECK(static_cast<char *>(memory)[bytes - 1] == 1);
	munmap(memory, bytes);
}
