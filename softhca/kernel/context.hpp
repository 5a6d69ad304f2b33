// An open device file: what the kernel keeps for one opener of /dev/infiniband/uverbsN.
//
// The file is a sparse memory file, so the mmap of the system serves it: user access regions lie at fixed offsets.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "softhca/kernel/device.hpp"
#include "softhca/kernel/fabric.hpp"
#include "softhca/nic/memory.hpp"
#include "softhca/nic/queue_pair.hpp"

struct ib_uverbs_ioctl_hdr;

namespace softhca {

class Attributes;

class Context {
public:
	// Opens device `device` of the fabric; a descriptor, or -1 with errno.
	static int open(const Fabric &fabric, unsigned device, bool close_on_exec);
	// The context behind a descriptor, or a copy of one; null when it is none of ours.
	static std::shared_ptr<Context> find(int fd);
	// Before a descriptor is closed; any descriptor.
	static void closing(int fd);

	unsigned device() const { return device_; }
	// The command file.
	int fd() const { return fd_; }
	uint64_t inode() const { return inode_; }
	// Whether that is where this library, not the program, has mapped the file.
	bool is_own_mapping(const uint8_t *address) const
	{
		return dm_memory_ && address >= dm_memory_ && address < dm_memory_ + max_dm_bytes;
	}
	// The kernel's side of RDMA_VERBS_IOCTL: 0 or an errno.
	int ioctl(ib_uverbs_ioctl_hdr &header);

	// What follows is called with the NIC's lock held.

	// The `length` bytes at `address` under a key of that domain, when it gives those rights.
	Memory memory(const Pd &pd, uint32_t key, uint64_t address, uint64_t length, uint32_t rights) const;
	// Tells the program of an asynchronous event; `element` is what it calls the object. False when it does not read them.
	bool report(Event event, uint64_t element);
	// How many completions the program has read since the last call.
	uint64_t take_consumed();
	~Context();
	Context(const Context &) = delete;
	Context &operator=(const Context &) = delete;

	// After fork(), in the child. What the parent has opened can be used, but nothing moves in its queues.
	static void forked();

private:
	Context(const Fabric &fabric, unsigned device, int fd, uint64_t inode)
	    : fabric_(fabric), device_(device), fd_(fd), inode_(inode)
	{
	}

	void drop_events(int fd);
	// uverbs.cpp
	int dispatch(Attributes &attributes, unsigned object, unsigned method);
	int get_context(Attributes &attributes);
	int write_clock_info() const;
	int query_port(Attributes &attributes) const;
	int alloc_async_fd(Attributes &attributes);
	int alloc_uar(Attributes &attributes);
	int destroy_uar(Attributes &attributes);
	// commands.cpp
	int invoke_write(Attributes &attributes);
	int query_device(Attributes &attributes) const;
	int alloc_pd(Attributes &attributes);
	int dealloc_pd(Attributes &attributes);
	int reg_mr(Attributes &attributes);
	int rereg_mr(Attributes &attributes);
	int dereg_mr(Attributes &attributes);
	uint32_t new_key(uint32_t handle);
	std::shared_ptr<Mr> add_mr(Mr &&region, uint32_t &handle);
	int remove_mr(uint32_t handle);
	static int check_access(uint32_t flags);
	int create_comp_channel(Attributes &attributes);
	int create_cq(Attributes &attributes, bool extended);
	int resize_cq(Attributes &attributes);
	int destroy_cq(Attributes &attributes);
	uint32_t read_events(uint64_t element, uint32_t raised);
	// srq_commands.cpp
	int create_srq(Attributes &attributes);
	int modify_srq(Attributes &attributes);
	int query_srq(Attributes &attributes);
	int destroy_srq(Attributes &attributes);
	// qp_commands.cpp
	int create_qp(Attributes &attributes, bool extended);
	int modify_qp(Attributes &attributes, bool extended);
	int query_qp(Attributes &attributes);
	int destroy_qp(Attributes &attributes);
	void remove_qp(Qp &qp);
	// device_memory.cpp
	bool map_device_memory();
	size_t find_device_memory(size_t blocks, size_t alignment) const;
	void mark_device_memory(const Dm &dm, bool used);
	int alloc_dm(Attributes &attributes);
	int free_dm(Attributes &attributes);
	int reg_dm_mr(Attributes &attributes);

	const Fabric &fabric_;
	const unsigned device_;
	const int fd_; // the program's; no longer ours when it is closed
	const uint64_t inode_;
	std::shared_ptr<EventPipe> async_;
	std::map<int, std::shared_ptr<EventPipe>> channels_; // by the user's descriptor, while that is open
	Table<Pd> pds_{max_pd};
	Table<Mr> mrs_{max_mr};
	Table<Dm> dms_{dm_blocks};
	std::vector<bool> dm_used_ = std::vector<bool>(dm_blocks);
	uint8_t *dm_memory_ = nullptr; // a mapping of our own
	Table<Cq> cqs_{max_cq};
	Table<Srq> srqs_{max_srq};
	Table<Qp> qps_{max_qp};
	std::vector<bool> uars_ = std::vector<bool>(most_uars);
	uint32_t last_key_ = 0;
};

} // namespace softhca
