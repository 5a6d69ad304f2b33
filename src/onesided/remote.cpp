// Memory of other ranks: import, and the choice of paths.
#include <cstring>
#include <functional>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.hpp"
#include "base/config/config.hpp"
#include "base/job/job.hpp"
#include "base/job/topology.hpp"
#include "onesided/onesided.hpp"

namespace pt2p::onesided {

namespace {

// A file is mapped again even if its owner is in this process, so that the mapping outlives the owner's release as it
// does between processes. Not with ThreadSanitizer: it knows addresses and not pages, so it does not see in one mapping
// an order that is made through the other.
#ifdef __SANITIZE_THREAD__
constexpr bool map_within_process = false;
#else
constexpr bool map_within_process = true;
#endif

// The file behind a peer's memory, mapped; throws Error.
Mapping map_file(const MemoryBlob &b, int rank)
{
	const FileDescriptor file = open_file_of(b.pid, b.start_time, b.file, 0);
	struct stat about {};
	// The descriptor may stand for another file by now.
	if (fstat(file.get(), &about) != 0 || about.st_dev != b.device || about.st_ino != b.inode ||
	    static_cast<uint64_t>(about.st_size) < b.length)
		throw Error(PT2P_ERR_MEMORY, format("rank %d, the owner, has released the memory", rank));
	return Mapping(file.get(), 0, static_cast<size_t>(about.st_size));
}

const Key *key_of(const Remote &r, const char *transport)
{
	for (const Key &key : r.keys)
		if (!std::strcmp(key.transport, transport))
			return &key;
	return nullptr;
}

} // namespace

Remote &OneSided::make_remote(int rank)
{
	Remote &r = *remotes_.take();
	const uint64_t handle = r.handle;
	r = Remote{};
	r.handle = handle;
	r.active = true;
	r.rank = rank;
	r.target = &targets_.at(rank);
	return r;
}

LentMemory OneSided::describe(const Memory &m, Endpoint &endpoint) const
{
	LentMemory lent{m.handle, reinterpret_cast<uint64_t>(m.address), m.length, {}};
	const char *name = endpoint.direct().table->name;
	for (const Memory::Exposure &e : m.exposures)
		if (!std::strcmp(e.transport->table().name, name)) {
			std::strncpy(lent.key.transport, name, sizeof lent.key.transport - 1);
			lent.key.key = e.key;
		}
	return lent;
}

// The owner has named it in a call, or in a reply, so it needs no proof.
Remote &OneSided::import(int rank, const LentMemory &lent)
{
	Remote &r = make_remote(rank);
	r.memory = lent.memory;
	r.address = lent.address;
	r.length = lent.length;
	if (rank == job_.rank())
		r.base = reinterpret_cast<unsigned char *>(lent.address);
	else if (lent.key.transport[0] && !lent.key.transport[sizeof lent.key.transport - 1])
		r.keys.push_back(lent.key);
	return r;
}

void OneSided::forget(Remote &r)
{
	PT2P_ASSERT(!r.pending);
	r.active = false;
	remotes_.give(&r);
}

Remote &OneSided::import(int rank, std::string_view bytes)
{
	MemoryBlob b;
	if (!MemoryBlob::unpack(bytes, b))
		throw Error(PT2P_ERR_ARGUMENT,
		            format("these %zu bytes are not what pt2p_memory_export of this version gives", bytes.size()));
	if (b.job != std::hash<std::string>()(job_.id()))
		throw Error(PT2P_ERR_ARGUMENT, format("rank %d exported the memory in another job", b.rank));
	if (b.rank != job_.own_rank_of(rank))
		throw Error(PT2P_ERR_ARGUMENT, format("the memory belongs to rank %d, not to rank %d", b.rank, rank));
	const bool own = rank == job_.rank();
	if (!MemoryBlob::genuine(bytes, own ? job_.secret() : secret_in(job_.lookup(rank)))) {
		reporter_.add(Counter::auth_refused);
		throw Error(PT2P_ERR_ARGUMENT,
		            format("these %zu bytes are not what rank %d exported: they were damaged on the way, or made "
		                   "by somebody else",
		                   bytes.size(), rank));
	}
	if (own && !memories_.find(b.handle))
		throw Error(PT2P_ERR_MEMORY, "this rank, the owner, has released the memory");
	unsigned char *base = nullptr;
	Mapping mapping;
	if (config_.one_sided == choice::one_sided::automatic && job_.local_index(rank) >= 0 && !b.node_id.empty() &&
	    b.node_id == environment_.topology.node_id) {
		const auto pid = static_cast<uint32_t>(getpid());
		const bool same_process = own || (b.pid == pid && b.start_time == process_start_time(pid));
		if (own || (same_process && (b.file < 0 || !map_within_process))) {
			base = reinterpret_cast<unsigned char *>(b.address);
		} else if (b.file >= 0) {
			try {
				mapping = map_file(b, rank);
				base = static_cast<unsigned char *>(mapping.memory());
			} catch (const Error &e) {
				if (e.status() == PT2P_ERR_MEMORY)
					throw;
				reporter_.log(LogLevel::info, "memory of rank %d is not mapped: %s", rank, e.what());
			}
		}
	}
	Remote &r = make_remote(rank);
	r.memory = b.handle;
	r.address = b.address;
	r.length = b.length;
	r.agent = b.agent;
	r.async_progress = b.async_progress;
	r.nic = b.nic;
	r.keys = std::move(b.keys);
	r.base = base;
	r.mapping = std::move(mapping);
	return r;
}

void OneSided::release(Remote &remote)
{
	const uint64_t handle = remote.handle;
	if (remote.pending)
		progress_.wait([&] { return !remote.pending; });
	Remote *r = find_remote(handle); // another thread may have released it, too
	if (!r)
		return;
	r->active = false;
	if (r->mapping.memory()) // the program may have used it as a buffer
		router_.forget(r->base, r->length);
	r->mapping = Mapping();
	remotes_.give(r);
}

void OneSided::gone(void *address, size_t length) { router_.forget(address, length); }

// Data and atomic operations separately: processors and a device are not atomic towards each other, but both move
// bytes.
pt2p_status_t OneSided::choose_paths(Remote &r)
{
	if (r.paths_known)
		return PT2P_OK;
	const bool own = r.rank == job_.rank(), ask = config_.one_sided == choice::one_sided::owner;
	const bool processor = r.base || (own && !ask); // of this rank
	if (r.base)
		r.put_path = r.get_path = Path::direct;
	if (processor && r.agent == Agent::cpu)
		r.atomic_path = Path::direct;
	if (!r.base || r.atomic_path != Path::direct) {
		pt2p_status_t status = PT2P_OK;
		if (!targets_.connect(*r.target, status))
			return status;
		Endpoint &e = r.target->channel->endpoint.direct();
		const Key *key = ask ? nullptr : key_of(r, e.table->name);
		if (!r.base && key) {
			r.endpoint = &e;
			r.key = key->key;
			r.put_path = e.capabilities & cap_put ? Path::transport : Path::owner;
			r.get_path = e.capabilities & cap_get ? Path::transport : Path::owner;
		}
		if (r.agent == Agent::nic && key && r.nic == e.table->name && e.capabilities & cap_atomic) {
			r.atomic_path = Path::transport;
			r.atomic_endpoint = &e;
			r.atomic_key = key->key;
			r.may_ask = r.async_progress && config_.atomics == choice::atomics::automatic && !own;
		}
		if (const Memory *m = own && !ask && r.agent == Agent::nic ? memories_.find(r.memory) : nullptr) {
			r.atomic_path = Path::transport;
			r.atomic_endpoint = m->nic;
			r.atomic_key = m->nic_key;
		}
	}
	if (own && !r.base && r.atomic_path == Path::direct)
		r.base = reinterpret_cast<unsigned char *>(r.address); // for the words alone
	r.paths_known = true;
	return PT2P_OK;
}

} // namespace pt2p::onesided
