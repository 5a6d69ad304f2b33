// Addresses of endpoints, and address vectors.
//
// An endpoint of a launched job has a rank of that job as address. Any other has an Internet address, at which its
// context answers (pt2p_open.h).
#pragma once

#include <string>
#include <vector>

#include <netinet/in.h>

#include <rdma/fi_domain.h>

#include "ofi/provider.hpp"

namespace pt2p_ofi {

struct Domain;
struct Endpoint;
struct EventQueue;

// The address of a rank of a launched job.
struct RankAddress {
	uint32_t magic;
	int32_t rank;
	uint64_t job; // differs between jobs, and between the endpoints of a rank

	static constexpr uint32_t expected = 0x70327466;
};
static_assert(sizeof(RankAddress) == sizeof(sockaddr_in), "a vector need not know which kind it has");
constexpr size_t address_size = sizeof(RankAddress);

// Whether a launcher has started this process, and its job is to be used (FI_PT2P_OPEN).
bool launched();
// What tells the job of a launched process from others.
uint64_t job_number();
// "host:port" and back. False: the text is none.
std::string text_of(const sockaddr_in &address);
bool parse(const char *text, sockaddr_in &address);

// The first Internet address of a host and a service. flags: FI_SOURCE and FI_NUMERICHOST as in fi_getinfo. 0, or a
// negative error.
int resolve(const char *node, const char *service, uint64_t flags, sockaddr_in &address);

struct Av {
	fid_av fid;
	Domain *domain;
	EventQueue *events = nullptr;
	bool names_ids; // FI_AV_USER_ID: completions name the program's ids
	fi_av_type type;
	Lock lock;
	struct Entry {
		unsigned char bytes[address_size];
		fi_addr_t id; // that completions name
		bool used;
	};
	std::vector<Entry> entries;
	std::vector<Endpoint *> endpoints;

	// Copies the entry. False: there is none with that number.
	bool find(fi_addr_t number, Entry &entry);
	// The id of the entry with this address; FI_ADDR_NOTAVAIL: there is none.
	fi_addr_t id_of(const void *address);
};

int open_av(fid_domain *domain, fi_av_attr *attributes, fid_av **av, void *context);

} // namespace pt2p_ofi
