// Waiting for what happens: by a descriptor, for some time, and for several objects.
#pragma once

#include <chrono>

#include <rdma/fi_domain.h>
#include <rdma/fi_eq.h>

#include "ofi/provider.hpp"

namespace pt2p_ofi {

// A descriptor that is readable while something waits; for objects that were opened with a wait object.
class WaitDescriptor {
public:
	WaitDescriptor() = default;
	~WaitDescriptor();
	WaitDescriptor(const WaitDescriptor &) = delete;
	WaitDescriptor &operator=(const WaitDescriptor &) = delete;
	// 0 or a negative error.
	int open();
	bool is_open() const { return fd_ >= 0; }
	// What follows is called under the owner's lock. Until the program has the descriptor, or somebody waits, nothing
	// makes a system call.
	// For the program.
	int give()
	{
		used_ = true;
		return fd_;
	}
	// Something has come.
	void signal();
	// All has been taken.
	void clear()
	{
		if (__builtin_expect(signalled_, 0))
			take_signal();
	}
	// All has been taken, and somebody is going to wait.
	void prepare()
	{
		used_ = true;
		clear();
	}
	// Without the lock. Waits until it is readable, at most `timeout` ms; negative: for ever. False: it is not.
	bool wait(int timeout) const;

private:
	void take_signal();

	int fd_ = -1;
	bool used_ = false, signalled_ = false;
};

// The rest of a time limit in ms; negative: there is none.
class TimeLeft {
public:
	explicit TimeLeft(int timeout) : timeout_(timeout), begin_(std::chrono::steady_clock::now()) {}
	int operator()() const
	{
		if (timeout_ < 0)
			return -1;
		const auto passed = std::chrono::steady_clock::now() - begin_;
		const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(passed).count();
		return ms >= timeout_ ? 0 : static_cast<int>(timeout_ - ms);
	}

private:
	int timeout_;
	std::chrono::steady_clock::time_point begin_;
};

// Whether this kind of wait object is offered; if not, the log says what is.
bool is_offered(fi_wait_obj object, fi_log_subsys subsystem);
// FI_GETWAIT and FI_GETWAITOBJ of fi_control. Under the owner's lock.
int control_wait(WaitDescriptor &wait, int command, void *argument);

int open_poll(fid_domain *domain, fi_poll_attr *attributes, fid_poll **poll);
// For fi_trywait: 0: the program may wait for the descriptor of this queue or counter; else -FI_EAGAIN.
int try_wait(fid *object);

} // namespace pt2p_ofi
