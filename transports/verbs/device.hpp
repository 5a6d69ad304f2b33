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
using AhOwner = std::unique_ptr<ibv_ah, Deleter<ibv_destroy_ah>>;

// Where a port is: what its peers need to send to it.
struct PortAddress {
	union ibv_gid gid;
	uint16_t lid;      // 0 on Ethernet
	uint8_t ethernet;
	uint8_t mtu;       // ibv_mtu, the largest that it takes
};

struct Device {
	// Opens the device and port that the configuration asks for, else the nearest one that is up. Null, with the reason
	// in `why_not`, when there is none; throws Error when the one that was asked for cannot be used.
	static std::unique_ptr<Device> open(const TransportEnvironment &environment, std::string &why_not);

	// How to reach a port from this one.
	ibv_ah_attr path_to(const PortAddress &peer) const;
	bool reaches(const PortAddress &peer, std::string &why_not) const;

	std::string name;  // of device and port, "mlx5_0:1"
	ContextOwner context;
	PdOwner pd;
	ibv_device_attr limits{};
	uint8_t port = 0, gid_index = 0;
	PortAddress address{};
};

// Memory of our own, on whole pages, registered for local use.
class RegisteredMemory {
public:
	// Throws Error: no memory, or the device refuses.
	RegisteredMemory(const Device &device, size_t bytes, int access, int numa_node);
	~RegisteredMemory();
	RegisteredMemory(const RegisteredMemory &) = delete;
	RegisteredMemory &operator=(const RegisteredMemory &) = delete;

	unsigned char *at(size_t offset) const { return memory_ + offset; }
	uint32_t key() const { return mr_->lkey; }

private:
	unsigned char *memory_;
	size_t bytes_;
	MrOwner mr_;
};

// "ibv_create_qp failed: Cannot allocate memory (ENOMEM)", with what usually helps.
[[noreturn]] void fail(const char *call, int error);

} // namespace pt2p::verbs
