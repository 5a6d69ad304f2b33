#include "softhca/nic/devices.hpp"

#include "softhca/kernel/context.hpp"

namespace softhca {

void Devices::report(unsigned device, Event event, uint64_t element)
{
	for (Context *context : contexts_)
		if (context->device() == device)
			context->report(event, element);
}

bool Devices::fail(unsigned device)
{
	if (failed_[device])
		return false;
	failed_[device] = true;
	report(device, Event::device_fatal, 0);
	return true;
}

Time Devices::update_links(const Faults &faults, Time now)
{
	const Time until = faults.links_until(now);
	if (!until && !any_down_)
		return 0;
	any_down_ = false;
	for (unsigned device = 0; device < max_devices; ++device) {
		const bool down = faults.down(device, now);
		any_down_ |= down;
		if (down == down_[device])
			continue;
		down_[device] = down;
		constexpr uint64_t port = 1;
		report(device, down ? Event::port_error : Event::port_active, port);
	}
	return until;
}

} // namespace softhca
