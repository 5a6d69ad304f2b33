// An open device file: what the kernel keeps for one opener of /dev/infiniband/uverbsN.
//
// The file is a sparse memory file, so the mmap of the system serves it: user access regions lie at fixed offsets.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "softhca/fabric/fabric.hpp"
#include "softhca/kernel/device.hpp"
#include "softhca/kernel/device_memory.hpp"
#include "softhca/kernel/event_pipe.hpp"
#include "softhca/nic/memory.hpp"
#include "softhca/nic/qp/queue_pair.hpp"

struct ib_uverbs_ioctl_hdr;

namespace softhca {

class Nic;

// What an opener has made.
struct Objects {
	std::shared_ptr<EventPipe> async;
	std::map<int, std::shared_ptr<EventPipe>> channels; // by the user's descriptor, while that is open
	Table<Pd> pds{max_pd};
	Table<Mr> mrs{max_mr};
	Table<Dm> dms{dm_blocks};
	DeviceMemory device_memory;
	Table<Cq> cqs{max_cq};
	Table<Srq> srqs{max_srq};
	Table<Qp> qps{max_qp};
	std::vector<bool> uars = std::vector<bool>(max_uars);
	uint32_t last_key = 0;
};

class Context {
public:
	// Opens device `device` of the fabric; a descriptor, or -1 with errno.
	static int open(Nic &nic, const Fabric &fabric, unsigned device, bool close_on_exec);
	// The context behind a descriptor, or a copy of one; null when it is none of ours.
	static std::shared_ptr<Context> find(int fd);
	// Before a descriptor is closed; any descriptor.
	static void closing(int fd);

	Nic &nic() const { return nic_; }
	unsigned device() const { return device_; }
	uint16_t lid() const { return lid_of(fabric_.host(), device_); }
	uint64_t guid() const { return node_guid(fabric_.host(), device_); }
	uint64_t system_guid() const { return node_guid(fabric_.host(), 0); }
	// The command file.
	int fd() const { return fd_; }
	uint64_t inode() const { return inode_; }
	// Whether that is where this library, not the program, has mapped the file.
	bool is_own_mapping(const uint8_t *address) const { return objects.device_memory.contains(address); }
	// The kernel's side of RDMA_VERBS_IOCTL: 0 or an errno.
	int ioctl(ib_uverbs_ioctl_hdr &header);

	// What follows is called with the NIC's lock held.

	Objects objects;
	// The `length` bytes at `address` under a key of that domain, when it gives those rights.
	Memory memory(const Pd &pd, uint32_t key, uint64_t address, uint64_t length, uint32_t rights) const;
	// Tells the program of an asynchronous event; `element` is what it calls the object. False when it does not read
	// them.
	bool report(Event event, uint64_t element);
	// How many completions the program has read since the last call.
	uint64_t take_consumed();
	~Context();
	Context(const Context &) = delete;
	Context &operator=(const Context &) = delete;

	// After fork(), in the child. What the parent has opened can be used, but nothing moves in its queues.
	static void forked();

private:
	Context(Nic &nic, const Fabric &fabric, unsigned device, int fd, uint64_t inode)
	    : nic_(nic), fabric_(fabric), device_(device), fd_(fd), inode_(inode)
	{
	}

	void drop_events(int fd);

	Nic &nic_;
	const Fabric &fabric_;
	const unsigned device_;
	const int fd_; // the program's; no longer ours when it is closed
	const uint64_t inode_;
};

} // namespace softhca
