// The memory in which payload is staged: buffers, cells of device memory, and words for the results of atomics.
#pragma once

#include "transports/verbs/device/buffers.hpp"

namespace pt2p::verbs {

class SendMemory {
public:
	static constexpr uint32_t results = 1024;

	// `buffers` of `buffer_bytes` each; at most `device_bytes` of device memory, for messages of up to
	// `max_device_message` bytes. Throws Error.
	SendMemory(const Device &device, uint32_t buffers, size_t buffer_bytes, size_t device_bytes,
	           size_t max_device_message, int numa_node)
	    : device_memory(device, device_bytes, max_device_message, why_no_device_memory), buffer_bytes_(buffer_bytes),
	      buffer_count_(buffers), buffers_(device, buffers * buffer_bytes, IBV_ACCESS_LOCAL_WRITE, numa_node),
	      results_(device, results * sizeof(uint64_t), IBV_ACCESS_LOCAL_WRITE, numa_node)
	{
		free_buffers_.fill(buffers);
		free_results_.fill(results);
	}

	std::string why_no_device_memory;
	DeviceMemory device_memory;

	uint32_t take_buffer() { return free_buffers_.take(); }
	void give_buffer(uint32_t place) { free_buffers_.give(place); }
	size_t free_buffers() const { return free_buffers_.count(); }
	uint32_t buffer_count() const { return buffer_count_; }
	size_t buffer_bytes() const { return buffer_bytes_; }
	Shortage shortage_of_buffers() const
	{
		return shortage_at(1 - static_cast<double>(free_buffers_.count()) / buffer_count_);
	}
	unsigned char *buffer(uint32_t place) const { return buffers_.at(place * buffer_bytes_); }
	uint32_t buffer_key() const { return buffers_.key(); }

	uint32_t take_result() { return free_results_.take(); }
	void give_result(uint32_t place) { free_results_.give(place); }
	size_t free_results() const { return free_results_.count(); }
	uint64_t *result(uint32_t place) const
	{
		return reinterpret_cast<uint64_t *>(results_.at(place * sizeof(uint64_t)));
	}
	uint32_t result_key() const { return results_.key(); }

private:
	const size_t buffer_bytes_;
	const uint32_t buffer_count_;
	RegisteredMemory buffers_, results_;
	FreeList free_buffers_, free_results_;
};

} // namespace pt2p::verbs
