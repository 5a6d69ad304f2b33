// A port of an RDMA device, opened, and owners for what is made on it. Shared by all transports over verbs.
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
// The same for functions that exist in the header only.
struct InlineDeleter {
	void operator()(ibv_td *td) const { ibv_dealloc_td(td); }
	void operator()(ibv_dm *dm) const { ibv_free_dm(dm); }
	void operator()(ibv_cq_ex *cq) const { ibv_destroy_cq(ibv_cq_ex_to_cq(cq)); }
};
using ThreadDomainOwner = std::unique_ptr<ibv_td, InlineDeleter>;
using DmOwner = std::unique_ptr<ibv_dm, InlineDeleter>;
using CqExOwner = std::unique_ptr<ibv_cq_ex, InlineDeleter>;
using AhOwner = std::unique_ptr<ibv_ah, Deleter<ibv_destroy_ah>>;

// Where a port is: what its peers need to send to it.
struct PortAddress {
	union ibv_gid gid;
	uint16_t lid; // 0 on Ethernet
	uint8_t ethernet;
	uint8_t mtu; // ibv_mtu, the largest that it takes
};

struct Device {
	// Opens the device and port that the configuration asks for, else the nearest one that is up. Null, with the reason
	// in `why_not`, when there is none; throws Error when the one that was asked for cannot be used.
	static std::unique_ptr<Device> open(const TransportEnvironment &environment, std::string &why_not);

	// How to reach a port from this one.
	ibv_ah_attr path_to(const PortAddress &peer) const;
	bool reaches(const PortAddress &peer, std::string &why_not) const;

	std::string name; // of device and port, "mlx5_0:1"
	ContextOwner context;
	PdOwner pd;
	// For queue pairs and completion queues: tells the driver that one thread at a time uses them, so that it takes no
	// locks and shares no doorbell page. `pd` itself where there is no such thing.
	ibv_pd *domain = nullptr;
	ibv_device_attr limits{};
	uint64_t device_memory = 0;                    // bytes on the device that can be allocated
	bool extended_poll = false;                    // its completion queues are read one field at a time: cheaper
	uint8_t reads_accepted = 1, reads_started = 1; // READs and atomics at a time, as responder and as requester
	uint8_t port = 0, gid_index = 0;
	PortAddress address{};

	// Fills `domain` and `device_memory`.
	void complete();

private:
	ThreadDomainOwner thread_domain_;
	PdOwner parent_domain_;
};

// Memory of our own, on whole pages, registered.
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

// How a queue pair is made ready.
struct BringUp {
	enum class Role : uint8_t { connection, initiator, target };
	Role role;
	PortAddress port{};                       // connection: the other end's; target: its own
	uint32_t number = 0;                      // connection: of the queue pair at the other end
	uint32_t first_here = 0, first_there = 0; // connection: packets are counted from there
	int64_t timeout = 0, retries = 0;         // who sends; as the configuration counts them
};
// Makes a queue pair that is new, or has been reset, ready to receive and, unless it is a target, to send. Returns an
// errno, 0: done.
int bring_up(const Device &device, ibv_qp *qp, const BringUp &how);
// To RESET or ERR. Returns an errno, 0: done.
int set_state(ibv_qp *qp, ibv_qp_state state);

// Why a one-sided operation whose work request completes with this status has failed.
const char *cause_of(ibv_wc_status status);

// "ibv_create_qp failed: Cannot allocate memory (ENOMEM)", with what usually helps.
std::string failure(const char *call, int error);
// Throws Error with that.
[[noreturn]] void fail(const char *call, int error);
// The same of a queue whose length is what a tunable says. `limit`: the device's, in what the tunable counts; queues of
// wide work requests end earlier.
[[noreturn]] void fail_queue(const Device &device, const char *call, int error, const char *tunable, int64_t value,
                             int limit);
// Throws Error when so many bytes, to be registered now, are more than may be locked, and the device needs them locked.
void check_lock_limit(const Device &device, uint64_t bytes);

} // namespace pt2p::verbs
