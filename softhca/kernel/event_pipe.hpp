// A pipe that stands for a kernel event file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unistd.h>

namespace softhca {

// The user reads records from one end, the device writes them to the other.
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
	bool put(const void *record, size_t bytes)
	{
		return write(write_fd_, record, bytes) == static_cast<ssize_t>(bytes);
	}
	// Removes the unread records, of `bytes` each, whose first eight bytes are `owner`, and returns how many there
	// were.
	uint32_t remove(uint64_t owner, size_t bytes);
	// Whether this descriptor may be the user's end of a pipe; notes that it is closed now. Takes no lock.
	static bool close_user_end(int fd);

private:
	int read_fd_ = -1, write_fd_ = -1;
};

} // namespace softhca
