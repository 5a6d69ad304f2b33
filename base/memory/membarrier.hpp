// Half of a fence that is asymmetric: the side that is quick and frequent executes no fence, as the rare side makes all
// cores execute one with membarrier(2). For Dekker's handshake: each side stores, and then looks at what the other has
// stored.
#pragma once

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/memory/fence.hpp"

namespace pt2p {

class Membarrier {
public:
	// Of the threads of this process, or of all processes that have one.
	enum Scope { process, host };
	explicit Membarrier(Scope scope)
	    : command_(scope == process ? MEMBARRIER_CMD_PRIVATE_EXPEDITED : MEMBARRIER_CMD_GLOBAL_EXPEDITED),
	      works_(syscall(SYS_membarrier,
	                     scope == process ? MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED
	                                      : MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED,
	                     0, 0) == 0)
	{
	}
	// False: the kernel lacks it, and the frequent side needs a fence of its own.
	bool works() const { return works_; }
	void all_cores_fence() const
	{
		full_fence();
		if (works_)
			syscall(SYS_membarrier, command_, 0, 0);
	}

private:
	int command_;
	bool works_;
};

} // namespace pt2p
