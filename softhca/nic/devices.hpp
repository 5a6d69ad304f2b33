// The state of the devices of this process: who has them open, which have failed, whose links are down.
#pragma once

#include <vector>

#include "softhca/kernel/device.hpp"
#include "softhca/kernel/objects.hpp"
#include "softhca/time/clock.hpp"
#include "softhca/wire/faults.hpp"

namespace softhca {

class Context;

class Devices {
public:
	void add(Context &context) { contexts_.push_back(&context); }
	void remove(Context &context) { std::erase(contexts_, &context); }
	const std::vector<Context *> &contexts() const { return contexts_; }

	// The device stops working for good. False when it has failed before.
	bool fail(unsigned device);
	bool failed(unsigned device) const { return failed_[device]; }
	// Takes links down or gives them back, as the rules say, and raises the events. When the next link comes back; 0:
	// none is down.
	Time update_links(const Faults &faults, Time now);
	bool link_down(unsigned device) const { return down_[device]; }

private:
	void report(unsigned device, Event event, uint64_t element);

	std::vector<Context *> contexts_;
	bool failed_[max_devices] = {}, down_[max_devices] = {}, any_down_ = false;
};

} // namespace softhca
