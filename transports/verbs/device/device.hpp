// An open port of an RDMA device, and owners for libibverbs objects.
#pragma once

#include <cstdint>
#include <infiniband/verbs.h>
#include <memory>
#include <string>

#include "transports/transport.hpp"

namespace pt2p::verbs {

// Frees with a function of libibverbs.
template <auto function>
struct Deleter {
	template <class T>
	void operator()(T *thing) const
	{
		function(thing);
	}
};
using ContextOwner = std::unique_ptr<ibv_context, Deleter<ibv_close_device>>;
using PdOwner = std::unique_ptr<ibv_pd, Deleter<ibv_dealloc_pd>>;
using MrOwner = std::unique_ptr<ibv_mr, Deleter<ibv_dereg_mr>>;
using CqOwner = std::unique_ptr<ibv_cq, Deleter<ibv_destroy_cq>>;
using SrqOwner = std::unique_ptr<ibv_srq, Deleter<ibv_destroy_srq>>;
using QpOwner = std::unique_ptr<ibv_qp, Deleter<ibv_destroy_qp>>;
using ChannelOwner = std::unique_ptr<ibv_comp_channel, Deleter<ibv_destroy_comp_channel>>;
// The same for functions that exist only in the header.
struct InlineDeleter {
	void operator()(ibv_td *td) const { ibv_dealloc_td(td); }
	void operator()(ibv_dm *dm) const { ibv_free_dm(dm); }
	void operator()(ibv_cq_ex *cq) const { ibv_destroy_cq(ibv_cq_ex_to_cq(cq)); }
};
using ThreadDomainOwner = std::unique_ptr<ibv_td, InlineDeleter>;
using DmOwner = std::unique_ptr<ibv_dm, InlineDeleter>;
using CqExOwner = std::unique_ptr<ibv_cq_ex, InlineDeleter>;
using AhOwner = std::unique_ptr<ibv_ah, Deleter<ibv_destroy_ah>>;

// Bytes that the device puts before each datagram that it receives: the route it came by (GRH).
constexpr uint32_t route_header = 40;

// The address of a port.
struct PortAddress {
	union ibv_gid gid;
	uint16_t lid; // 0 on Ethernet
	uint8_t ethernet;
	uint8_t mtu; // ibv_mtu; the largest that the port takes
};

struct Device {
	// Opens the device and port that the configuration asks for, else the nearest one that is up. Null: there is none,
	// `why_not` says why. Throws Error if the one that the configuration asks for cannot be used.
	static std::unique_ptr<Device> open(const TransportEnvironment &environment, std::string &why_not);

	// The path to another port.
	ibv_ah_attr path_to(const PortAddress &peer) const;
	bool reaches(const PortAddress &peer, std::string &why_not) const;

	std::string name; // device and port: "mlx5_0:1"
	ContextOwner context;
	PdOwner pd;
	// For queue pairs and completion queues. It tells the driver that one thread at a time uses them; the driver then
	// takes no locks and shares no doorbell page. Is `pd` itself if the driver does not support this.
	ibv_pd *domain = nullptr;
	ibv_device_attr limits{};
	uint64_t device_memory = 0;                    // bytes that can be allocated
	bool extended_poll = false;                    // completion queues are read field by field, which is cheaper
	bool writes_in_order = false;                  // surely: the bytes of a packet, in ascending order
	uint8_t reads_accepted = 1, reads_started = 1; // concurrent READs and atomics, as responder and as requester
	uint8_t port = 0, gid_index = 0;
	int sharers = 1; // ranks of this node that have this device, as far as is known
	PortAddress address{};

	// Fills in what follows from `context` and `pd`.
	void complete();

private:
	ThreadDomainOwner thread_domain_;
	PdOwner parent_domain_;
};

// Registered memory of the library, in whole pages.
class RegisteredMemory {
public:
	// Throws Error: no memory, or the device refuses.
	RegisteredMemory(const Device &device, size_t bytes, int access, int numa_node);
	~RegisteredMemory();
	RegisteredMemory(const RegisteredMemory &) = delete;
	RegisteredMemory &operator=(const RegisteredMemory &) = delete;

	unsigned char *at(size_t offset) const { return memory_ + offset; }
	uint32_t key() const { return mr_->lkey; }
	uint32_t remote_key() const { return mr_->rkey; }

private:
	unsigned char *memory_;
	size_t bytes_;
	MrOwner mr_;
};

// How a queue pair gets ready.
struct BringUp {
	enum class Role : uint8_t { connection, initiator, target, datagrams };
	Role role;
	PortAddress port{};                       // connection: of the other end; target: its own
	uint32_t number = 0;                      // connection: queue pair at the other end
	uint32_t first_here = 0, first_there = 0; // connection: first packet sequence numbers
	int64_t timeout = 0, retries = 0;         // connection, initiator; in the units of the tunables
	uint32_t q_key = 0;                       // datagrams
};
// Makes a new or reset queue pair ready to receive and, unless it is a target, to send. Returns an errno; 0: done.
int bring_up(const Device &device, ibv_qp *qp, const BringUp &how);
// To RESET or ERR. Returns an errno; 0: done.
int set_state(ibv_qp *qp, ibv_qp_state state);

// The cause of a failed one-sided operation, by the status of its work request.
const char *cause_of(ibv_wc_status status);

// "ibv_create_qp failed: Cannot allocate memory (ENOMEM)", with advice.
std::string failure(const char *call, int error);
// Throws Error with that text.
[[noreturn]] void fail(const char *call, int error);
// The same for a queue whose length a tunable sets. `limit` is the device's limit in the unit of the tunable; queues of
// wide work requests have a lower one.
[[noreturn]] void fail_queue(const Device &device, const char *call, int error, const char *tunable, int64_t value,
                             int limit);
// Throws Error if the device needs its memory locked, and this process may not lock `bytes` more.
void check_lock_limit(const Device &device, uint64_t bytes);

} // namespace pt2p::verbs
