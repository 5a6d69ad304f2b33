// The host as hwloc sees it: where this process runs and what it shares.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace pt2p {

struct Topology {
	std::string host;    // host name
	std::string node_id; // equal for processes that can share memory: boot, PID and user name spaces, user, host name
	int sockets = 1;
	int numa_nodes = 1;
	int cores = 1;       // physical cores of the machine
	int host_cpus = 1;   // logical CPUs online
	int usable_cpus = 1; // of those, what the control group (cpuset and quota) leaves to the processes of this job
	int cpus = 1;        // logical CPUs that this process may run on
	int core = -1;       // the core it is bound to (OS index of its first CPU); -1 when it may run on several cores
	int socket = -1;     // of those CPUs, -1 when several
	int numa_node = -1;  // of those CPUs (OS index), -1 when several
	std::vector<int> cpu_list;      // OS indices of the CPUs it may run on
	size_t l1d = 0, l2 = 0, l3 = 0; // bytes of the caches above the first of those CPUs; 0: none
	std::string text; // a readable drawing of machine, sockets, NUMA nodes, caches and cores for pt2p_info
};

// Reads the topology of this host, or of an hwloc XML description when `xml` is not empty (tests): a file name, or the
// description itself when it starts with '<'. Of a description, this process may run on all CPUs that it allows. Never
// throws for a missing piece: fields keep their defaults.
Topology read_topology(const std::string &xml = {});

// Whether `local_size` ranks on this host are more than its CPUs: waiting then yields at once.
bool oversubscribed(const Topology &topology, int local_size);

// CPU numbers as people write them: "0-3,8"; "none" for an empty list.
std::string cpu_ranges(const std::vector<int> &cpus);

// Places [memory, memory+bytes) on a NUMA node before it is first touched; does nothing when `node` is negative, the
// machine has one node, or the kernel refuses.
void place_on_numa_node(void *memory, size_t bytes, int node);

} // namespace pt2p
