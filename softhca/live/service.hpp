// Who calls progress() in real time: a thread, which sleeps as much as it can, and threads of the program that poll in
// vain.
//
// Somebody has to read doorbell records. A thread that did nothing else would take a core; on a machine with few cores
// it would take the core that the program needs. So the program helps: a poll that finds nothing, a post, and a request
// for an event call progress(). The thread does what the program does not, at growing intervals, and at once when
// packets come.
#pragma once

#include <atomic>
#include <cstdint>

namespace softhca {
class Nic;
}

namespace softhca::live {

class Service {
public:
	explicit Service(Nic &nic) : nic_(nic) {}

	// Starts the thread unless it runs. Called with the NIC's lock held.
	void start();
	// After fork(), in the child, which has no thread.
	void abandon() { started_ = false; }

	// Calls progress(), unless somebody else does so. True when something was done.
	bool help();
	// A thread of the program has polled and found something, or nothing. polled_in_vain() is true when it should poll
	// again.
	void found();
	bool polled_in_vain();
	// The program has asked for an event: the thread takes over.
	void going_to_sleep();

private:
	static void *run(void *service);
	[[noreturn]] void serve();

	Nic &nic_;
	std::atomic<uint64_t> empty_polls_ = 0; // so far
	std::atomic<bool> polling_ = false;     // the program polls again and again
	std::atomic<bool> deaf_ = false;        // the thread sleeps, and packets do not wake it
	bool started_ = false;
};

} // namespace softhca::live
