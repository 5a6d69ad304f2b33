// What a user of an open device owns: protection domains, memory regions, completion channels and queues.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <unistd.h>

namespace softhca {

// A pipe that stands for a kernel event file: the user reads records from one end, the device writes them to the other.
class EventPipe {
public:
	EventPipe();
	~EventPipe();
	EventPipe(const EventPipe &) = delete;
	EventPipe &operator=(const EventPipe &) = delete;

	bool ok() const { return write_fd_ >= 0; }
	// The end for the user, who closes it.
	int user_fd() const { return read_fd_; }
	// False when the user has let too many events pile up.
	bool put(const void *record, size_t bytes) { return write(write_fd_, record, bytes) == static_cast<ssize_t>(bytes); }

private:
	int read_fd_ = -1, write_fd_ = -1;
};

struct Pd {
	uint32_t number;
	unsigned users = 0; // objects made with it
};

struct Dm {
	size_t offset, length;  // bytes of the device memory
	unsigned users = 0;     // regions registered in it
};

struct Mr {
	std::shared_ptr<Pd> pd;
	std::shared_ptr<Dm> dm; // null: memory of the process
	uint64_t start, length; // in this process, or in the device memory
	uint64_t iova;          // the address that work requests use for `start`
	uint32_t access, key;   // local and remote key are the same number, as on hardware
};

struct Cq {
	uint32_t number;
	uint32_t entries;        // a power of two
	uint32_t entry_bytes;    // 64 or 128
	uint8_t *buffer;         // in this process
	uint32_t *doorbell;      // big-endian records: consumer index, arm command
	uint64_t user_handle;
	std::shared_ptr<EventPipe> channel;
	uint32_t completion_events = 0, async_events = 0; // put so far
};

// Objects by handle. Handles are reused last, so that a stale one finds nothing for long.
template <class T>
class Table {
public:
	explicit Table(uint32_t most) : most_(most) {}
	bool full() const { return objects_.size() >= most_; }
	uint32_t add(std::shared_ptr<T> object)
	{
		do
			last_ = last_ % (most_ * 2) + 1;
		while (objects_.count(last_));
		objects_[last_] = std::move(object);
		return last_;
	}
	std::shared_ptr<T> find(uint32_t handle) const
	{
		const auto found = objects_.find(handle);
		return found == objects_.end() ? nullptr : found->second;
	}
	bool remove(uint32_t handle) { return objects_.erase(handle) != 0; }

private:
	std::map<uint32_t, std::shared_ptr<T>> objects_;
	uint32_t most_, last_ = 0;
};

} // namespace softhca
