// Fabrics and event queues.
#pragma once

#include <atomic>
#include <deque>
#include <vector>

#include "ofi/completion.hpp"

namespace pt2p_ofi {

struct Fabric {
	fid_fabric fid;
	std::atomic<int> users{0}; // domains and event queues
};

struct EventQueue {
	fid_eq fid;
	Fabric *fabric;
	WaitDescriptor wait;
	bool may_wait;
	Lock lock;
	struct Event {
		uint32_t number;
		std::vector<unsigned char> data;
	};
	std::deque<Event> events;
	std::deque<fi_eq_err_entry> errors;
	std::atomic<int> users{0}; // objects that are bound to it

	void push(uint32_t number, const void *data, size_t length);
	void push_error(const fi_eq_err_entry &error);
};

int open_eq(fid_fabric *fabric, fi_eq_attr *attributes, fid_eq **eq, void *context);
int try_wait_events(fid *eq);

} // namespace pt2p_ofi
