#include "onesided/memory.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <random>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "base/config/config.hpp"
#include "base/job/job.hpp"
#include "base/job/topology.hpp"
#include "base/report/report.hpp"
#include "route/route.hpp"

namespace pt2p::onesided {

namespace {

constexpr size_t longest_node_id = 512;
constexpr size_t huge_from = size_t{2} << 20; // bytes: from here on huge pages are tried

void set_size(int fd, size_t bytes)
{
	if (ftruncate(fd, static_cast<off_t>(bytes)) != 0)
		throw Error(PT2P_ERR_SHARED_MEMORY,
		            format("cannot give shared memory its size of %zu bytes: %s", bytes, errno_text(errno).c_str()));
}

struct File {
	FileDescriptor file;
	Mapping mapping;
};

// Reserves the pages, so that no later access finds that memory has run out. Their NUMA node is set before, as
// reserving takes them.
File make_file(FileDescriptor file, size_t bytes, int numa_node)
{
	set_size(file.get(), bytes);
	Mapping mapping(file.get(), 0, bytes);
	place_on_numa_node(mapping.memory(), bytes, numa_node);
	madvise(mapping.memory(), bytes, MADV_HUGEPAGE); // where the system lets shared memory have them
	reserve(file.get(), 0, bytes, "one-sided memory");
	return {std::move(file), std::move(mapping)};
}

// On pages that the administrator has set aside; false when there are not enough.
bool make_huge_file(size_t length, int numa_node, File &made)
{
	FileDescriptor file(memfd_create("pt2p-memory-huge", MFD_CLOEXEC | MFD_HUGETLB));
	struct stat about;
	if (!file || fstat(file.get(), &about) != 0)
		return false;
	const auto page = static_cast<size_t>(about.st_blksize);
	try {
		made = make_file(std::move(file), (length + page - 1) / page * page, numa_node);
		return true;
	} catch (const Error &) {
		return false;
	}
}

} // namespace

MemoryTable::MemoryTable(const TransportEnvironment &environment, Router &router)
    : environment_(environment), router_(router), table_(std::random_device{}())
{
}

MemoryTable::~MemoryTable()
{
	table_.for_each([this](Memory &m) {
		if (m.active)
			withdraw(m);
	});
}

Memory &MemoryTable::lend(void *address, size_t length) { return add(address, length, length, false); }

Memory &MemoryTable::add(void *address, size_t length, size_t room, bool atomics)
{
	Memory &m = *table_.take();
	m.address = static_cast<unsigned char *>(address);
	m.length = length;
	m.agent = Agent::cpu;
	try {
		const std::string refusal = expose(m, room);
		if (atomics)
			choose_agent(m, room, refusal);
	} catch (...) {
		withdraw(m);
		table_.give(&m);
		throw;
	}
	m.active = true;
	++count_;
	return m;
}

Memory &MemoryTable::allocate(size_t length)
{
	const Config &config = environment_.config;
	// Checked here: the cause is not a limit that could be raised.
	struct sysinfo host;
	if (const uint64_t most = sysinfo(&host) == 0 ? (host.totalram + host.totalswap) * host.mem_unit : UINT64_MAX;
	    length > most)
		throw Error(PT2P_ERR_LENGTH, format("%zu bytes needed, and this host has %llu bytes of memory and swap", length,
		                                    static_cast<unsigned long long>(most)));
	const int node = config.numa ? environment_.topology.numa_node : -1;
	File made;
	const bool huge =
	    length >= huge_from && config.shm_backing == choice::shm_backing::memfd && make_huge_file(length, node, made);
	if (!huge) {
		const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
		made = make_file(make_shared_file(config.shm_backing, "pt2p-memory"), (length + page - 1) / page * page, node);
	}
	struct stat about {};
	fstat(made.file.get(), &about);
	Memory &m = add(made.mapping.memory(), length, (length + 7) / 8 * 8);
	m.file = std::move(made.file);
	m.mapping = std::move(made.mapping);
	m.device = about.st_dev;
	m.inode = about.st_ino;
	return m;
}

// Why a transport has refused to expose the memory, the last one if several have; empty: none has.
std::string MemoryTable::expose(Memory &m, size_t room)
{
	std::string refusal;
	for (auto &transport : router_.transports()) {
		if (!(transport->table().capabilities & (cap_get | cap_put)))
			continue;
		std::string why_not;
		uint64_t key = 0;
		if (void *exposure = transport->expose(m.address, room, key, why_not)) {
			m.exposures.push_back({transport.get(), exposure, key});
			continue;
		}
		environment_.reporter.add(Counter::not_exposed);
		environment_.reporter.log(LogLevel::info,
		                          "%s cannot reach %zu bytes of memory by itself, peers ask for them: %s",
		                          transport->table().name, m.length, why_not.c_str());
		refusal = format("%s: %s", transport->table().name, why_not.c_str());
	}
	return refusal;
}

// The device needs a loopback to this rank, for the operations of this rank and of those of its node. It changes 64-bit
// words only, so the first and the last word must not reach into memory that belongs to somebody else.
void MemoryTable::choose_agent(Memory &m, size_t room, const std::string &refusal)
{
	const choice::atomics wanted = environment_.config.atomics;
	const bool several_nodes = environment_.job.local_size() < environment_.job.size();
	if (wanted == choice::atomics::cpu || (wanted == choice::atomics::automatic && !several_nodes))
		return;
	if ((reinterpret_cast<uintptr_t>(m.address) | room) % 8)
		return;
	for (const Memory::Exposure &e : m.exposures) {
		DeviceTransport *device = e.transport->as_device();
		Endpoint *loopback = device && device->table().capabilities & cap_atomic ? device->loopback() : nullptr;
		if (!loopback || !(loopback->capabilities & cap_atomic))
			continue;
		m.agent = Agent::nic;
		m.nic = loopback;
		m.nic_key = e.key;
		return;
	}
	if (wanted == choice::atomics::nic)
		throw Error(
		    PT2P_ERR_UNSUPPORTED,
		    format(
		        "PT2P_ATOMICS is nic, but no transport of this rank has a device that does atomic operations on this "
		        "memory%s%s",
		        refusal.empty() ? "" : ": ", refusal.c_str()));
}

void MemoryTable::withdraw(Memory &m)
{
	for (const Memory::Exposure &e : m.exposures)
		e.transport->withdraw(e.exposure);
	m.exposures.clear();
}

void MemoryTable::release(Memory &m)
{
	withdraw(m);
	if (m.mapping.memory())
		router_.forget(m.address, m.length);
	m.active = false;
	--count_;
	m.mapping = Mapping();
	m.file = FileDescriptor();
	table_.give(&m);
}

const Memory *MemoryTable::overlapping(const void *address, size_t length) const
{
	const Memory *found = nullptr;
	const auto begin = reinterpret_cast<uintptr_t>(address);
	table_.for_each([&](const Memory &m) {
		const auto at = reinterpret_cast<uintptr_t>(m.address);
		if (m.active && begin < at + m.length && at < begin + length)
			found = &m;
	});
	return found;
}

std::string MemoryTable::blob(const Memory &m, bool async_progress)
{
	if (!start_time_)
		start_time_ = process_start_time(static_cast<uint32_t>(getpid()));
	MemoryBlob b;
	b.job = std::hash<std::string>()(environment_.job.id());
	b.rank = environment_.job.rank(); // in an open job: 0, whoever imports it
	b.agent = m.agent;
	b.async_progress = async_progress;
	b.handle = m.handle;
	b.address = reinterpret_cast<uint64_t>(m.address);
	b.length = m.length;
	b.pid = static_cast<uint32_t>(getpid());
	b.start_time = start_time_;
	b.file = m.file ? m.file.get() : -1;
	b.device = m.device;
	b.inode = m.inode;
	for (const Memory::Exposure &e : m.exposures) {
		Key key{};
		std::strncpy(key.transport, e.transport->table().name, sizeof key.transport - 1);
		key.key = e.key;
		b.keys.push_back(key);
		if (m.agent == Agent::nic && e.transport->table().capabilities & cap_atomic &&
		    m.nic->table == &e.transport->table())
			std::memcpy(b.nic, key.transport, sizeof b.nic);
	}
	if (environment_.topology.node_id.size() <= longest_node_id)
		b.node_id = environment_.topology.node_id;
	return b.pack(environment_.job.secret());
}

} // namespace pt2p::onesided
