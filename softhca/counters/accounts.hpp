// The file that holds the counters of a process. It is in the fabric's directory, may be read at any time, and outlives
// the process.
//
//   $SOFTHCA_FABRIC/counters.<slot>.<incarnation of the slot>
#pragma once

#include <memory>
#include <string>

#include "softhca/counters/counters.hpp"
#include "softhca/kernel/device.hpp"

namespace softhca {

struct QpAccount {
	uint32_t number; // 0: never used
	uint8_t kind;    // QpKind
	uint8_t device;
	uint8_t live; // 0: destroyed since
	uint8_t reserved;
	Counters counters;
};

struct Account {
	static constexpr uint64_t expected_magic = UINT64_C(0x34746e75636f6673); // layout 4
	uint64_t magic;
	uint32_t pid, host, devices;
	uint32_t queue_pairs; // after the last index that was ever used
	char program[32];
	Counters device[max_devices];
	QpAccount queue_pair[max_virtual_queue_pairs]; // most of it is a hole in the file
};

class Accounts {
public:
	// Counts in memory of this process until open() succeeds.
	Accounts();
	// Moves what has been counted so far into the file.
	void open(const std::string &path, unsigned host, unsigned devices);
	// After fork(), in the child: starts again from nothing.
	void abandon();

	Counters &device(unsigned device) { return account_->device[device]; }
	// A queue pair's counters, zero; for an index below max_virtual_queue_pairs.
	Counters &add(unsigned index, uint32_t number, uint8_t kind, unsigned device);
	// It has been destroyed; its counters stay until the index is used again.
	void remove(unsigned index) { account_->queue_pair[index].live = 0; }
	const Account &account() const { return *account_; }

private:
	struct Unmap {
		void operator()(Account *account) const;
	};
	std::unique_ptr<Account, Unmap> account_;
	int fd_ = -1;
};

} // namespace softhca
