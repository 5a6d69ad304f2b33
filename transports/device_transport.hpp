// What only transports over a device have beside the contract.
#pragma once

#include <vector>

#include "transports/transport.hpp"

namespace pt2p {

class DeviceTransport : public Transport {
public:
	DeviceTransport *as_device() final { return this; }
	// More sends follow before cork(false): the device may hear of them together. After that, it has heard of all.
	virtual void cork(bool corked) { (void)corked; }
	// How messages to `peer`, which is connected, are to be delivered. May change endpoint.max_unasked.
	virtual void set_delivery(int peer, pt2p_delivery_t delivery) { (void)peer, (void)delivery; }
	// A way to this rank itself through its device, with cap_atomic: what a device does to a word is atomic only
	// towards what the same device does. Made on first use; null when there is none.
	virtual Endpoint *loopback() { return nullptr; }
	// The program says that it will unmap this memory, or has: nothing that is remembered of it may be used again.
	virtual void forget(void *memory, size_t length) { (void)memory, (void)length; }
	// Appends the ranks that have sent something, have not left, and that there is no endpoint to: leave() does not
	// tell them.
	virtual void unconnected_senders(std::vector<int> &ranks) { (void)ranks; }
};

} // namespace pt2p
