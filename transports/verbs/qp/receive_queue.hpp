// The shared receive queue of a rank and its buffers.
#pragma once

#include <cstdint>
#include <optional>

#include "transports/verbs/device/device.hpp"
#include "transports/verbs/mlx5/queues.hpp"

namespace pt2p {
struct Config;
}

namespace pt2p::verbs {

class ReceiveQueue {
public:
	static constexpr unsigned max_batch = 32; // buffers that are posted at a time

	// Posts all buffers. `direct`: without libibverbs. Throws Error.
	ReceiveQueue(const Device &device, const Config &config, bool direct, int numa_node);

	ibv_srq *srq() const { return srq_.get(); }
	const unsigned char *buffer(uint64_t number) const { return buffers_.at(number * buffer_bytes_); }

	// Direct: the buffer is free again; the device sees this after publish(). `number` is big endian, as in a CQE.
	void give(uint16_t number) { direct_->give(number); }
	void publish() { direct_->publish(); }
	// With libibverbs: posts up to max_batch buffers again.
	void post(const uint64_t *numbers, unsigned count);

private:
	const size_t buffer_bytes_;
	SrqOwner srq_;
	RegisteredMemory buffers_;
	std::optional<mlx5::SharedReceiveQueue> direct_; // none: with libibverbs
};

} // namespace pt2p::verbs
