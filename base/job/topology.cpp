#include "base/job/topology.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include <hwloc.h>
#include <numa.h>
#include <numaif.h>
#include <unistd.h>

#include "base/report/report.hpp"

namespace pt2p {

namespace {

struct FreeTopology {
	void operator()(hwloc_topology *t) const { hwloc_topology_destroy(t); }
};
struct FreeBitmap {
	void operator()(hwloc_bitmap_s *b) const { hwloc_bitmap_free(b); }
};
using TopologyHandle = std::unique_ptr<hwloc_topology, FreeTopology>;
using Bitmap = std::unique_ptr<hwloc_bitmap_s, FreeBitmap>;

std::string first_line(const char *path)
{
	std::ifstream file(path);
	std::string line;
	std::getline(file, line);
	return line;
}

std::string link_text(const char *path)
{
	char text[256];
	const ssize_t n = readlink(path, text, sizeof text);
	return n > 0 ? std::string(text, static_cast<size_t>(n)) : std::string("none");
}

std::string host_name()
{
	char name[256] = "";
	if (gethostname(name, sizeof name - 1) != 0 || !name[0])
		return "unknown";
	return name;
}

// Two processes share memory by opening each other's descriptors below /proc/PID/fd. That takes the same running
// kernel, one PID name space with a /proc that shows it, and the kernel's consent to ptrace reads: one user name space
// and one user. Whoever lacks a usable /proc shares with nobody.
std::string node_identity(const std::string &host)
{
	std::string id = first_line("/proc/sys/kernel/random/boot_id") + '/' + link_text("/proc/self/ns/pid") + '/' +
	                 link_text("/proc/self/ns/user") + format("/uid:%u/", static_cast<unsigned>(geteuid())) + host;
	if (link_text("/proc/self") != std::to_string(getpid()) || access("/proc/self/fd", R_OK | X_OK) != 0)
		id += format("/no-proc:%ld", static_cast<long>(getpid()));
	return id;
}

// CPUs' worth of time that the control groups above this process grant, rounded up; 0: no limit.
int quota_cpus()
{
	std::ifstream groups("/proc/self/cgroup");
	std::string line, group;
	while (std::getline(groups, line))
		if (line.rfind("0::", 0) == 0)
			group = line.substr(3);
	int least = 0;
	for (;;) {
		long long quota = 0, period = 0;
		const std::string limit = first_line(("/sys/fs/cgroup" + group + "/cpu.max").c_str());
		if (std::sscanf(limit.c_str(), "%lld %lld", &quota, &period) == 2 && quota > 0 && period > 0) {
			const long long cpus = std::min<long long>((quota + period - 1) / period, INT32_MAX);
			if (!least || cpus < least)
				least = static_cast<int>(cpus);
		}
		if (group.empty())
			return least;
		const size_t slash = group.rfind('/');
		group = slash == std::string::npos ? std::string() : group.substr(0, slash);
	}
}

std::vector<int> indices(hwloc_const_bitmap_t set)
{
	std::vector<int> list;
	if (hwloc_bitmap_weight(set) < 0)
		return list; // infinite
	for (int i = hwloc_bitmap_first(set); i >= 0; i = hwloc_bitmap_next(set, i))
		list.push_back(i);
	return list;
}

std::string size_text(uint64_t bytes)
{
	static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
	size_t unit = 0;
	double value = static_cast<double>(bytes);
	while (value >= 1024 && unit < 4) {
		value /= 1024;
		unit++;
	}
	const bool whole = value >= 100 || value == static_cast<double>(static_cast<long>(value));
	return format(whole ? "%.0f %s" : "%.1f %s", value, units[unit]);
}

std::string counted(int n, const char *singular, const char *plural)
{
	return format("%d %s", n, n == 1 ? singular : plural);
}

// The only object of a type that overlaps `set`, or null when several do.
hwloc_obj_t only_above(hwloc_topology_t t, hwloc_obj_type_t type, hwloc_const_bitmap_t set)
{
	hwloc_obj_t found = nullptr;
	const int n = std::max(0, hwloc_get_nbobjs_by_type(t, type));
	for (int i = 0; i < n; i++) {
		hwloc_obj_t object = hwloc_get_obj_by_type(t, type, static_cast<unsigned>(i));
		if (!object || !object->cpuset || !hwloc_bitmap_intersects(object->cpuset, set))
			continue;
		if (found)
			return nullptr;
		found = object;
	}
	return found;
}

int number_of(hwloc_obj_t object)
{
	return static_cast<int>(object->os_index != HWLOC_UNKNOWN_INDEX ? object->os_index : object->logical_index);
}

size_t cache_above(hwloc_topology_t t, hwloc_obj_t pu, hwloc_obj_type_t type)
{
	hwloc_obj_t cache = pu ? hwloc_get_ancestor_obj_by_type(t, type, pu) : nullptr;
	return cache && cache->attr ? static_cast<size_t>(cache->attr->cache.size) : 0;
}

class Drawing {
public:
	Drawing(hwloc_topology_t t, hwloc_const_bitmap_t mine) : t_(t), mine_(mine) {}

	std::string draw(const Topology &facts)
	{
		hwloc_obj_t root = hwloc_get_root_obj(t_);
		line(0, format("machine %s: %s, %s, %s, %s, %s", facts.host.c_str(),
		               counted(facts.sockets, "socket", "sockets").c_str(),
		               counted(facts.numa_nodes, "NUMA node", "NUMA nodes").c_str(),
		               counted(facts.cores, "core", "cores").c_str(), counted(facts.host_cpus, "CPU", "CPUs").c_str(),
		               size_text(root->total_memory).c_str()));
		const int packages = hwloc_get_nbobjs_by_type(t_, HWLOC_OBJ_PACKAGE);
		if (packages <= 0)
			place(1, root);
		for (int i = 0; i < packages; i++) {
			hwloc_obj_t package = hwloc_get_obj_by_type(t_, HWLOC_OBJ_PACKAGE, static_cast<unsigned>(i));
			const char *model = hwloc_obj_get_info_by_name(package, "CPUModel");
			line(1, format("socket %d%s%s", number_of(package), model ? ": " : "", model ? model : ""));
			place(2, package);
		}
		const std::string allowed = cpu_ranges(facts.cpu_list);
		if (facts.core >= 0 && facts.cpus == 1)
			text_ += format("this process is bound to CPU %s (*)\n", allowed.c_str());
		else if (facts.core >= 0)
			text_ += format("this process is bound to one core, CPUs %s (*)\n", allowed.c_str());
		else
			text_ += format("this process may run on %s: %s (*)\n", counted(facts.cpus, "CPU", "CPUs").c_str(),
			                allowed.c_str());
		if (facts.usable_cpus < facts.host_cpus)
			text_ += format("the control group leaves %s to the processes of this job\n",
			                counted(facts.usable_cpus, "CPU", "CPUs").c_str());
		return std::move(text_);
	}

private:
	void line(int depth, const std::string &text)
	{
		text_.append(static_cast<size_t>(depth) * 2, ' ');
		text_ += text;
		text_ += '\n';
	}

	// NUMA nodes inside `object`; memory that lies at `object` itself or above has no line of its own below it.
	void place(int depth, hwloc_obj_t object)
	{
		bool any = false;
		const int nodes = std::max(0, hwloc_get_nbobjs_by_type(t_, HWLOC_OBJ_NUMANODE));
		for (int i = 0; i < nodes; i++) {
			hwloc_obj_t node = hwloc_get_obj_by_type(t_, HWLOC_OBJ_NUMANODE, static_cast<unsigned>(i));
			if (!hwloc_bitmap_intersects(node->cpuset, object->cpuset))
				continue;
			const std::string memory = size_text(node->attr->numanode.local_memory);
			line(depth, format("NUMA node %d: %s", number_of(node), memory.c_str()));
			Bitmap here(hwloc_bitmap_alloc());
			hwloc_bitmap_and(here.get(), node->cpuset, object->cpuset);
			caches(depth + 1, here.get());
			any = true;
		}
		if (!any)
			caches(depth, object->cpuset);
	}

	// One line for the cores below each L3; without L3, one for all.
	void caches(int depth, hwloc_const_bitmap_t set)
	{
		Bitmap rest(hwloc_bitmap_dup(set));
		const int n = std::max(0, hwloc_get_nbobjs_by_type(t_, HWLOC_OBJ_L3CACHE));
		for (int i = 0; i < n; i++) {
			hwloc_obj_t l3 = hwloc_get_obj_by_type(t_, HWLOC_OBJ_L3CACHE, static_cast<unsigned>(i));
			if (!hwloc_bitmap_intersects(l3->cpuset, set))
				continue;
			Bitmap here(hwloc_bitmap_alloc());
			hwloc_bitmap_and(here.get(), l3->cpuset, set);
			cores(depth, here.get(), format("L3 %s: ", size_text(l3->attr->cache.size).c_str()));
			hwloc_bitmap_andnot(rest.get(), rest.get(), l3->cpuset);
		}
		if (!hwloc_bitmap_iszero(rest.get()))
			cores(depth, rest.get(), "");
	}

	void cores(int depth, hwloc_const_bitmap_t set, const std::string &before)
	{
		struct Kind {
			size_t l2, l1d;
			unsigned threads;
			bool operator<(const Kind &o) const
			{
				return std::tie(l2, l1d, threads) < std::tie(o.l2, o.l1d, o.threads);
			}
		};
		std::map<Kind, std::pair<int, Bitmap>> kinds;
		const int n = std::max(0, hwloc_get_nbobjs_by_type(t_, HWLOC_OBJ_CORE));
		for (int i = 0; i < n; i++) {
			hwloc_obj_t core = hwloc_get_obj_by_type(t_, HWLOC_OBJ_CORE, static_cast<unsigned>(i));
			if (!hwloc_bitmap_intersects(core->cpuset, set))
				continue;
			const Kind kind{cache_above(t_, core, HWLOC_OBJ_L2CACHE), cache_above(t_, core, HWLOC_OBJ_L1CACHE),
			                static_cast<unsigned>(std::max(0, hwloc_bitmap_weight(core->cpuset)))};
			auto &[count, cpus] = kinds[kind];
			if (!cpus)
				cpus.reset(hwloc_bitmap_alloc());
			count++;
			hwloc_bitmap_or(cpus.get(), cpus.get(), core->cpuset);
		}
		if (kinds.empty())
			line(depth, before + "CPUs " + ranges(set));
		for (const auto &[kind, members] : kinds) {
			std::string text = before + counted(members.first, "core", "cores");
			if (kind.threads > 1)
				text += format(" of %u threads", kind.threads);
			if (kind.l2 || kind.l1d)
				text += format(" with L2 %s, L1d %s", size_text(kind.l2).c_str(), size_text(kind.l1d).c_str());
			text += "; CPUs " + ranges(members.second.get());
			line(depth, text);
		}
	}

	std::string ranges(hwloc_const_bitmap_t set)
	{
		Bitmap here(hwloc_bitmap_alloc());
		hwloc_bitmap_and(here.get(), set, mine_);
		std::string text = cpu_ranges(indices(set));
		if (hwloc_bitmap_isequal(here.get(), set))
			text += " *";
		else if (!hwloc_bitmap_iszero(here.get()))
			text += " (* " + cpu_ranges(indices(here.get())) + ")";
		return text;
	}

	hwloc_topology_t t_;
	hwloc_const_bitmap_t mine_;
	std::string text_;
};

// Loads this host (empty `xml`) or a description; null when hwloc refuses.
TopologyHandle load(const std::string &xml)
{
	hwloc_topology_t raw = nullptr;
	if (hwloc_topology_init(&raw) != 0)
		return nullptr;
	TopologyHandle handle(raw);
	hwloc_topology_set_flags(raw, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
	hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE);
	hwloc_topology_set_icache_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE);
	hwloc_topology_set_type_filter(raw, HWLOC_OBJ_MISC, HWLOC_TYPE_FILTER_KEEP_NONE);
	int rc = 0;
	if (!xml.empty() && xml[0] == '<')
		rc = hwloc_topology_set_xmlbuffer(raw, xml.c_str(), static_cast<int>(xml.size()) + 1);
	else if (!xml.empty())
		rc = hwloc_topology_set_xml(raw, xml.c_str());
	if (rc != 0 || hwloc_topology_load(raw) != 0)
		return nullptr;
	return handle;
}

} // namespace

std::string cpu_ranges(const std::vector<int> &cpus)
{
	std::string text;
	for (size_t i = 0; i < cpus.size();) {
		size_t last = i;
		while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1)
			last++;
		if (!text.empty())
			text += ',';
		text += std::to_string(cpus[i]);
		if (last > i)
			text += '-' + std::to_string(cpus[last]);
		i = last + 1;
	}
	return text.empty() ? "none" : text;
}

Topology read_topology(const std::string &xml)
{
	Topology facts;
	const bool live = xml.empty();
	facts.host = host_name();
	facts.node_id = node_identity(facts.host);

	TopologyHandle handle = load(xml);
	if (!handle) {
		// The one fact that placement cannot do without comes from the kernel as well.
		if (live)
			facts.host_cpus = facts.usable_cpus = static_cast<int>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
		facts.text = format("machine %s: hwloc cannot read its topology\n", facts.host.c_str());
		return facts;
	}
	hwloc_topology_t t = handle.get();

	if (!live) {
		hwloc_obj_t root = hwloc_get_root_obj(t);
		const char *name = hwloc_obj_get_info_by_name(root, "HostName");
		facts.host = name ? name : "described";
	}
	const auto count = [t](hwloc_obj_type_t type) { return std::max(1, hwloc_get_nbobjs_by_type(t, type)); };
	facts.sockets = count(HWLOC_OBJ_PACKAGE);
	facts.numa_nodes = count(HWLOC_OBJ_NUMANODE);
	facts.cores = count(HWLOC_OBJ_CORE);
	facts.host_cpus = count(HWLOC_OBJ_PU);

	hwloc_const_bitmap_t allowed = hwloc_topology_get_allowed_cpuset(t);
	facts.usable_cpus = std::clamp(hwloc_bitmap_weight(allowed), 1, facts.host_cpus);
	// Not of a machine that HWLOC_SYNTHETIC or HWLOC_XMLFILE describes.
	const bool here = live && hwloc_topology_is_thissystem(t);
	if (here)
		if (const int quota = quota_cpus(); quota > 0)
			facts.usable_cpus = std::min(facts.usable_cpus, quota);

	Bitmap mine(hwloc_bitmap_alloc());
	if (!here || hwloc_get_cpubind(t, mine.get(), HWLOC_CPUBIND_THREAD) != 0)
		hwloc_bitmap_copy(mine.get(), allowed);
	hwloc_bitmap_and(mine.get(), mine.get(), hwloc_topology_get_topology_cpuset(t));
	if (!hwloc_bitmap_iszero(mine.get())) {
		facts.cpu_list = indices(mine.get());
		facts.cpus = static_cast<int>(facts.cpu_list.size());
		hwloc_obj_t first = hwloc_get_pu_obj_by_os_index(t, static_cast<unsigned>(facts.cpu_list.front()));
		facts.l1d = cache_above(t, first, HWLOC_OBJ_L1CACHE);
		facts.l2 = cache_above(t, first, HWLOC_OBJ_L2CACHE);
		facts.l3 = cache_above(t, first, HWLOC_OBJ_L3CACHE);
		if (facts.cpus == 1 || only_above(t, HWLOC_OBJ_CORE, mine.get()))
			facts.core = facts.cpu_list.front();
		if (hwloc_obj_t package = only_above(t, HWLOC_OBJ_PACKAGE, mine.get()))
			facts.socket = number_of(package);
		if (hwloc_obj_t node = only_above(t, HWLOC_OBJ_NUMANODE, mine.get()))
			facts.numa_node = number_of(node);
	}
	facts.text = Drawing(t, mine.get()).draw(facts);
	return facts;
}

bool oversubscribed(const Topology &topology, int local_size) { return local_size > topology.usable_cpus; }

void place_on_numa_node(void *memory, size_t bytes, int node)
{
	if (node < 0 || !memory || numa_available() < 0 || numa_max_node() < 1 || node > numa_max_node())
		return;
	// Whole pages only: a page at the edge may hold other data.
	const uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
	const uintptr_t begin = (reinterpret_cast<uintptr_t>(memory) + page - 1) / page * page;
	const uintptr_t end = (reinterpret_cast<uintptr_t>(memory) + bytes) / page * page;
	if (end <= begin)
		return;
	constexpr size_t word_bits = 8 * sizeof(unsigned long);
	std::vector<unsigned long> mask(static_cast<size_t>(node) / word_bits + 1);
	mask[static_cast<size_t>(node) / word_bits] = 1ul << (static_cast<size_t>(node) % word_bits);
	// Preferred, not bound: a full node must not mean a killed rank. mbind itself and not libnuma's wrapper, which
	// prints when the kernel refuses. The kernel takes one bit less than it is told.
	const size_t bits = mask.size() * word_bits + 1;
	(void)mbind(reinterpret_cast<void *>(begin), end - begin, MPOL_PREFERRED, mask.data(), bits, 0);
}

} // namespace pt2p
