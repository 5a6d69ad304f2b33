// What only transports over a device have, in addition to the contract.
#pragma once

#include <vector>

#include "transports/transport.hpp"

namespace pt2p {

class DeviceTransport : public Transport {
public:
	DeviceTransport *as_device() final { return this; }
	// After cork(true), the device may see sends together; after cork(false), it has seen all. `bundles`: messages to
	// one peer may also share work requests.
	virtual void cork(bool corked, bool bundles = false) { (void)corked, (void)bundles; }
	// How messages to `peer`, which is connected, are delivered. May change endpoint.max_unasked.
	virtual void set_delivery(int peer, pt2p_delivery_t delivery) { (void)peer, (void)delivery; }
	// Sends one message in that way, whatever set_delivery() says.
	virtual Outcome send_by(Endpoint &endpoint, pt2p_delivery_t delivery, uint8_t id, uint64_t header, const void *data,
	                        size_t length)
	{
		(void)delivery;
		return endpoint.table->send(endpoint, id, header, data, length);
	}
	// How many messages of `peer` this rank has read from its write ring; the layer above tells the peer, which passes
	// it to on_consumed(). After report_consumed() the device does.
	virtual uint32_t consumed(int peer) { return (void)peer, 0; }
	virtual void report_consumed(int peer) { (void)peer; }
	virtual void on_consumed(int peer, uint32_t consumed) { (void)peer, (void)consumed; }
	// An endpoint to this rank itself through its device, with cap_atomic, because atomics of a device are atomic only
	// towards those of the same device. Made on first use; null: there is none.
	virtual Endpoint *loopback() { return nullptr; }
	// The program unmaps this memory, or has done so: cached registrations of it must not be used again.
	virtual void forget(void *memory, size_t length) { (void)memory, (void)length; }
	// Appends the ranks that have sent something, have not left, and have no endpoint here. leave() does not tell them.
	virtual void unconnected_senders(std::vector<int> &ranks) { (void)ranks; }
};

} // namespace pt2p
