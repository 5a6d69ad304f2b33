#include "ofi/address.hpp"

#include <arpa/inet.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <netdb.h>

#include "ofi/domain.hpp"
#include "ofi/endpoint.hpp"
#include "ofi/fabric.hpp"

namespace pt2p_ofi {

bool launched()
{
	int open = 0;
	fi_param_get_bool(&provider, "open", &open);
	return !open && std::getenv("PMIX_NAMESPACE");
}

uint64_t job_number()
{
	const char *name = std::getenv("PMIX_NAMESPACE");
	uint64_t number = UINT64_C(14695981039346656037); // FNV-1a
	for (; name && *name; ++name)
		number = (number ^ static_cast<unsigned char>(*name)) * UINT64_C(1099511628211);
	return number;
}

std::string text_of(const sockaddr_in &address)
{
	char host[INET_ADDRSTRLEN] = "";
	inet_ntop(AF_INET, &address.sin_addr, host, sizeof host);
	return std::string(host) + ":" + std::to_string(ntohs(address.sin_port));
}

bool parse(const char *text, sockaddr_in &address)
{
	const char *colon = std::strrchr(text, ':');
	if (!colon)
		return false;
	const std::string host(text, colon);
	const long port = std::strtol(colon + 1, nullptr, 10);
	address = {};
	address.sin_family = AF_INET;
	address.sin_port = htons(static_cast<uint16_t>(port));
	return port > 0 && port < 65536 && inet_pton(AF_INET, host.c_str(), &address.sin_addr) == 1;
}

int resolve(const char *node, const char *service, uint64_t flags, sockaddr_in &address)
{
	addrinfo hints{}, *found = nullptr;
	hints.ai_family = AF_INET;
	hints.ai_socktype = SOCK_STREAM;
	hints.ai_flags = (flags & FI_SOURCE && !node ? AI_PASSIVE : 0) | (flags & FI_NUMERICHOST ? AI_NUMERICHOST : 0);
	if (const int error = getaddrinfo(node, service, &hints, &found)) {
		PT2P_OFI_INFO(FI_LOG_AV, "%s, port %s: %s\n", node ? node : "(no host)", service ? service : "(none)",
		              gai_strerror(error));
		return -FI_ENODATA;
	}
	std::memcpy(&address, found->ai_addr, sizeof address);
	freeaddrinfo(found);
	return 0;
}

bool Av::find(fi_addr_t number, Entry &entry)
{
	const Locked locked(lock);
	if (number >= entries.size() || !entries[number].used)
		return false;
	entry = entries[number];
	return true;
}

fi_addr_t Av::id_of(const void *address)
{
	sockaddr_in wanted, internet;
	std::memcpy(&wanted, address, sizeof wanted);
	const Locked locked(lock);
	for (const Entry &entry : entries)
		if (entry.used && !std::memcmp(entry.bytes, address, address_size))
			return entry.id;
	// A peer on this host may have been inserted by a loopback address, and tells another one.
	for (const Entry &entry : entries) {
		std::memcpy(&internet, entry.bytes, sizeof internet);
		if (entry.used && internet.sin_family == AF_INET && wanted.sin_family == AF_INET &&
		    internet.sin_port == wanted.sin_port && ntohl(internet.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET)
			return entry.id;
	}
	return FI_ADDR_NOTAVAIL;
}

namespace {

// What inserting needs to report, at once or by events.
struct Insertion {
	Av &av;
	uint64_t flags;
	void *context;
	fi_addr_t *numbers;
	int inserted = 0;

	// Returns the number of the new entry.
	fi_addr_t add(const void *bytes, fi_addr_t id)
	{
		const Locked locked(av.lock);
		size_t number = 0;
		if (av.type == FI_AV_TABLE) // numbers go up from 0
			number = av.entries.size();
		else
			while (number < av.entries.size() && av.entries[number].used)
				++number;
		if (number == av.entries.size())
			av.entries.emplace_back();
		Av::Entry &entry = av.entries[number];
		std::memcpy(entry.bytes, bytes, address_size);
		entry.id = av.names_ids || (flags & FI_AV_USER_ID) ? id : number;
		entry.used = true;
		return number;
	}
	void add_at(size_t i, const void *bytes)
	{
		const fi_addr_t number = add(bytes, numbers ? numbers[i] : FI_ADDR_NOTAVAIL);
		if (numbers)
			numbers[i] = number;
		++inserted;
	}
	void fail(size_t i, int error)
	{
		if (numbers)
			numbers[i] = FI_ADDR_NOTAVAIL;
		if (av.events) {
			fi_eq_err_entry entry{};
			entry.fid = &av.fid.fid;
			entry.context = context;
			entry.data = i;
			entry.err = error;
			av.events->push_error(entry);
		} else if ((flags & FI_SYNC_ERR) && context) {
			static_cast<int *>(context)[i] = error;
		}
	}
	int finish() const
	{
		if (!av.events)
			return inserted;
		const fi_eq_entry entry{&av.fid.fid, context, static_cast<uint64_t>(inserted)};
		av.events->push(FI_AV_COMPLETE, &entry, sizeof entry);
		return 0;
	}
};

// Null: this can be an address of a peer. Else why not.
const char *complaint_of(const unsigned char *bytes)
{
	RankAddress rank;
	std::memcpy(&rank, bytes, sizeof rank);
	// Refused here rather than at the first message: Open MPI's MPI_Comm_spawn reports the one and ignores the other.
	if (rank.magic == RankAddress::expected)
		return rank.job == job_number() ? nullptr : "one of another job, which can be reached with FI_PT2P_OPEN=yes";
	sockaddr_in internet;
	std::memcpy(&internet, bytes, sizeof internet);
	return internet.sin_family == AF_INET && internet.sin_port ? nullptr : "none of this provider";
}

constexpr uint64_t insert_flags = FI_MORE | FI_SYNC_ERR | FI_AV_USER_ID;

int av_insert(fid_av *f, const void *addresses, size_t count, fi_addr_t *numbers, uint64_t flags, void *context)
{
	Av &av = *object_of<Av>(f);
	if (flags & ~insert_flags)
		return -FI_EBADFLAGS;
	if (count && !addresses)
		return -FI_EINVAL;
	return guarded([&] {
		if ((flags & FI_SYNC_ERR) && context)
			std::fill_n(static_cast<int *>(context), count, 0);
		Insertion insertion{av, flags, context, numbers};
		const auto *bytes = static_cast<const unsigned char *>(addresses);
		for (size_t i = 0; i < count; ++i, bytes += address_size) {
			if (const char *complaint = complaint_of(bytes)) {
				PT2P_OFI_WARN(FI_LOG_AV, "address %zu of %zu is %s\n", i, count, complaint);
				insertion.fail(i, FI_EINVAL);
			} else {
				insertion.add_at(i, bytes);
			}
		}
		return insertion.finish();
	});
}

int av_insertsvc(fid_av *f, const char *node, const char *service, fi_addr_t *number, uint64_t flags, void *context)
{
	sockaddr_in address;
	if (!node || !service)
		return -FI_EINVAL;
	if (const int error = resolve(node, service, 0, address))
		return error;
	return av_insert(f, &address, 1, number, flags, context);
}

// Hosts whose names end in a number, and services that are numbers, each one more than the one before.
int av_insertsym(fid_av *f, const char *node, size_t nodes, const char *service, size_t services, fi_addr_t *numbers,
                 uint64_t flags, void *context)
{
	if (!node || !service || !nodes || !services)
		return -FI_EINVAL;
	return guarded([&] {
		const std::string name(node);
		const size_t digits = name.find_last_not_of("0123456789") + 1;
		const std::string stem = name.substr(0, digits);
		const unsigned long first = std::strtoul(name.c_str() + digits, nullptr, 10);
		const unsigned long port = std::strtoul(service, nullptr, 10);
		std::vector<sockaddr_in> all;
		for (size_t n = 0; n < nodes; ++n) {
			const std::string host = digits == name.size() ? name : stem + std::to_string(first + n);
			for (size_t s = 0; s < services; ++s) {
				all.emplace_back();
				if (const int error = resolve(host.c_str(), std::to_string(port + s).c_str(), 0, all.back()))
					return error;
			}
		}
		return av_insert(f, all.data(), all.size(), numbers, flags, context);
	});
}

int av_remove(fid_av *f, fi_addr_t *numbers, size_t count, uint64_t flags)
{
	Av &av = *object_of<Av>(f);
	if (flags)
		return -FI_EINVAL;
	const Locked locked(av.lock);
	for (size_t i = 0; i < count; ++i) {
		if (numbers[i] >= av.entries.size() || !av.entries[numbers[i]].used)
			return -FI_EINVAL;
		av.entries[numbers[i]].used = false;
		for (Endpoint *endpoint : av.endpoints)
			endpoint->forget(numbers[i]);
	}
	return 0;
}

int av_lookup(fid_av *f, fi_addr_t number, void *address, size_t *length)
{
	Av::Entry entry;
	if (!object_of<Av>(f)->find(number, entry))
		return -FI_EINVAL;
	std::memcpy(address, entry.bytes, std::min(*length, address_size));
	const bool fits = *length >= address_size;
	*length = address_size;
	return fits ? 0 : -FI_ETOOSMALL;
}

const char *av_straddr(fid_av *, const void *address, char *buffer, size_t *length)
{
	RankAddress rank;
	std::memcpy(&rank, address, sizeof rank);
	sockaddr_in internet;
	std::memcpy(&internet, address, sizeof internet);
	const std::string text = rank.magic == RankAddress::expected ? "fi_pt2p://rank/" + std::to_string(rank.rank)
	                                                             : "fi_pt2p://" + text_of(internet);
	const int needed = std::snprintf(buffer, *length, "%s", text.c_str());
	*length = static_cast<size_t>(needed) + 1;
	return buffer;
}

int close_av(fid *f)
{
	Av *av = object_of<Av>(f);
	{
		const Locked locked(av->lock);
		if (!av->endpoints.empty())
			return -FI_EBUSY;
	}
	if (av->events)
		--av->events->users;
	--av->domain->users;
	delete av;
	return 0;
}

int bind_av(fid *f, fid *object, uint64_t)
{
	Av *av = object_of<Av>(f);
	if (object->fclass != FI_CLASS_EQ || av->events)
		return -FI_EINVAL;
	av->events = object_of<EventQueue>(object);
	++av->events->users;
	return 0;
}

fi_ops av_object_ops = object_ops(close_av, bind_av);
fi_ops_av av_ops = {.size = sizeof(fi_ops_av),
                    .insert = av_insert,
                    .insertsvc = av_insertsvc,
                    .insertsym = av_insertsym,
                    .remove = av_remove,
                    .lookup = av_lookup,
                    .straddr = av_straddr,
                    .av_set = not_offered};

} // namespace

int open_av(fid_domain *d, fi_av_attr *attributes, fid_av **out, void *context)
{
	if (!attributes)
		return -FI_EINVAL;
	if (attributes->name) {
		PT2P_OFI_WARN(FI_LOG_AV, "address vectors that processes share are not offered\n");
		return -FI_ENOSYS;
	}
	if (attributes->flags & ~(FI_EVENT | FI_SYMMETRIC | FI_AV_USER_ID))
		return -FI_EBADFLAGS;
	return guarded([&] {
		auto av = std::make_unique<Av>();
		av->fid.fid = {FI_CLASS_AV, context, &av_object_ops};
		av->fid.ops = &av_ops;
		av->domain = object_of<Domain>(d);
		av->names_ids = attributes->flags & FI_AV_USER_ID;
		av->type = attributes->type;
		av->entries.reserve(attributes->count);
		// Programs may insert while another thread sends.
		av->lock.enable();
		++av->domain->users;
		if (attributes->type == FI_AV_UNSPEC)
			attributes->type = FI_AV_MAP;
		*out = &av.release()->fid;
		return 0;
	});
}

} // namespace pt2p_ofi
