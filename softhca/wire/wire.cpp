#include "softhca/wire/wire.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <linux/futex.h>
#include <sched.h>
#include <stdexcept>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

namespace softhca {

namespace {

constexpr size_t ring_bytes = 512 << 10;
// A frame in the ring: its length, padded to 16, then its bytes, padded to 16, in one piece. Positions in the ring only
// grow; a position modulo the size of the ring is an offset.
constexpr size_t frame_head = 16;
constexpr uint64_t skip = UINT64_MAX; // in place of a length: the frame did not fit here and is at the ring's start
static_assert(ring_bytes >= 4 * max_frame_bytes && (ring_bytes & (ring_bytes - 1)) == 0);

// Of the state of a slot; the incarnation is above.
constexpr uint64_t occupied = 1;
// Of Inbox::sleeper; above them a count, so that no two sleeps look alike.
constexpr uint32_t asleep = 1, for_frame = 2, roused = 4, flags = asleep | for_frame | roused;

static_assert(std::atomic<uint64_t>::is_always_lock_free && sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

constexpr size_t padded(size_t n) { return (n + 15) & ~size_t{15}; }
// A position read from shared memory, made safe to be used as an offset.
constexpr uint64_t position(uint64_t p) { return p & ~uint64_t{15}; }

std::atomic_ref<uint64_t> length_at(uint8_t *ring, uint64_t at)
{
	return std::atomic_ref(*reinterpret_cast<uint64_t *>(ring + at % ring_bytes));
}

// Not through libc_hooks.cpp: its close() takes locks that a caller of the wire may hold.
void close_file(int fd) { syscall(SYS_close, fd); }

class File {
public:
	File(const std::string &path, int how) : fd_(open(path.c_str(), how | O_CLOEXEC, 0666)) {}
	~File()
	{
		if (fd_ < 0)
			return;
		flock(fd_, LOCK_UN); // a child that another thread has just forked still has the descriptor
		close_file(fd_);
	}
	File(const File &) = delete;
	File &operator=(const File &) = delete;

	bool opened() const { return fd_ >= 0; }
	bool lock(int how) const
	{
		int result;
		while ((result = flock(fd_, how)) != 0 && errno == EINTR)
			;
		return result == 0;
	}
	size_t size() const { return static_cast<size_t>(std::max<off_t>(lseek(fd_, 0, SEEK_END), 0)); }
	bool allocate(size_t bytes) const
	{
		int error;
		while ((error = posix_fallocate(fd_, 0, static_cast<off_t>(bytes))) == EINTR)
			;
		errno = error;
		return error == 0;
	}
	template <class T>
	T *map() const
	{
		void *memory = mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
		return memory == MAP_FAILED ? nullptr : static_cast<T *>(memory);
	}
	int release() { return std::exchange(fd_, -1); }

private:
	int fd_;
};

[[noreturn]] void fail(const std::string &path, size_t bytes)
{
	const int error = errno;
	std::string text = path + ": " + std::strerror(error);
	if (error == ENOSPC || error == EDQUOT)
		text += "; " + std::to_string(bytes >> 10) +
		        " KiB are needed for each process: make room there, or choose another directory (softhca --fabric)";
	else if (error == ENOENT || error == ENOTDIR || error == EACCES || error == EPERM || error == EROFS)
		text += "; the directory of the fabric must exist, and all its processes must be allowed to write there";
	throw std::runtime_error(text);
}

long futex(std::atomic<uint32_t> &word, int operation, uint32_t value, const timespec *until = nullptr)
{
	return syscall(SYS_futex, &word, operation, value, until, nullptr, FUTEX_BITSET_MATCH_ANY);
}

// Ends the sleep that `value` stands for. The word says asleep until the signal is sent: if this process is killed in
// between, the next one signals again.
void rouse(std::atomic<uint32_t> &sleeper, uint32_t value)
{
	uint32_t changed = value | roused;
	sleeper.compare_exchange_strong(value, changed);
	futex(sleeper, FUTEX_WAKE, INT_MAX);
	sleeper.compare_exchange_strong(changed, changed & ~flags);
}

} // namespace

// The file `slots`. A lock on it is held while a slot is taken.
struct Wire::Table {
	std::atomic<uint64_t> state[max_processes]; // incarnation << 1 | occupied
	uint32_t next;                              // to be tried first
};

// The file `inbox.<n>`. Words that different processes write often have cache lines of their own, in pairs for the
// prefetcher.
struct Wire::Inbox {
	uint64_t incarnation;                       // of the slot, set before the file has its name
	alignas(128) std::atomic<uint64_t> tail;    // position after the last frame
	alignas(128) std::atomic<uint64_t> head;    // up to where the owner has taken frames
	alignas(128) std::atomic<uint64_t> lock;    // the writers': 0, or incarnation and slot of the one that has it
	alignas(128) std::atomic<uint32_t> sleeper; // the owner's sleep
	alignas(4096) uint8_t ring[ring_bytes];
};

void Wire::Unmap::operator()(Table *table) const { munmap(table, sizeof *table); }
void Wire::Unmap::operator()(Inbox *inbox) const { munmap(inbox, sizeof *inbox); }

Wire::Wire(const std::string &directory)
    : directory_(std::filesystem::absolute(directory).string()), peers_(max_processes)
{
	const std::string table_path = directory_ + "/slots";
	const File table(table_path, O_RDWR | O_CREAT);
	if (!table.opened() || !table.lock(LOCK_EX) || (table.size() < sizeof(Table) && !table.allocate(sizeof(Table))))
		fail(table_path, sizeof(Inbox));
	table_.reset(table.map<Table>());
	if (!table_)
		fail(table_path, sizeof(Inbox));

	unsigned tried = 0;
	while (tried < max_processes && alive(slot_ = (table_->next + tried) % max_processes))
		++tried;
	if (tried == max_processes)
		throw std::runtime_error(directory_ + ": all " + std::to_string(max_processes) +
		                         " slots are taken: start fewer processes, or divide them among several fabrics");

	// The inbox gets its name when it is complete and locked: an unlocked inbox has a dead owner. It replaces an old
	// one; processes that have that mapped write to it in vain.
	const std::string path = directory_ + "/inbox.new";
	unlink(path.c_str()); // of a process that was killed here
	File file(path, O_RDWR | O_CREAT | O_EXCL);
	bool made = file.opened() && file.lock(LOCK_EX | LOCK_NB);
	if (made && !file.allocate(sizeof(Inbox))) {
		// Removes the inboxes of killed processes. The lock of the table keeps new owners out meanwhile.
		for (unsigned slot = 0; slot < max_processes; ++slot)
			if (!alive(slot))
				unlink(inbox_path(slot).c_str());
		made = file.allocate(sizeof(Inbox));
	}
	if (made) {
		inbox_.reset(file.map<Inbox>());
		made = inbox_ != nullptr;
	}
	const uint64_t incarnation = (state(slot_) >> 1) + 1;
	if (made) {
		inbox_->incarnation = incarnation;
		made = std::rename(path.c_str(), inbox_path(slot_).c_str()) == 0;
	}
	if (!made) {
		const int error = errno;
		unlink(path.c_str());
		errno = error;
		fail(path, sizeof(Inbox));
	}
	life_ = file.release();
	me_ = incarnation * max_processes + slot_;
	state_ = incarnation << 1 | occupied;
	table_->state[slot_] = state_;
	table_->next = slot_ + 1;
}

Wire::~Wire()
{
	if (life_ < 0)
		return; // abandoned
	// In this order: once the slot is free, the name may belong to somebody else.
	if (state(slot_) == state_)
		unlink(inbox_path(slot_).c_str());
	uint64_t expected = state_;
	table_->state[slot_].compare_exchange_strong(expected, state_ & ~occupied);
	close_file(life_);
}

void Wire::abandon()
{
	close_file(std::exchange(life_, -1));
	peers_.clear();
	inbox_.reset();
	table_.reset();
}

uint64_t Wire::state(unsigned slot) const
{
	return slot < max_processes ? table_->state[slot].load(std::memory_order_acquire) : 0;
}

uint64_t Wire::incarnation(unsigned slot) const { return state(slot) >> 1; }

std::string Wire::inbox_path(unsigned slot) const { return directory_ + "/inbox." + std::to_string(slot); }

bool Wire::alive(unsigned slot)
{
	uint64_t expected = state(slot);
	if (!(expected & occupied))
		return false;
	// An inbox exists and is locked while its owner lives. When in doubt, it lives.
	if (const File file(inbox_path(slot), O_RDONLY); file.opened() ? !file.lock(LOCK_SH | LOCK_NB) : errno != ENOENT)
		return true;
	table_->state[slot].compare_exchange_strong(expected, expected & ~occupied);
	return false;
}

Wire::Room Wire::open_inbox(unsigned slot, uint64_t state)
{
	Peer &peer = peers_[slot];
	peer = {};
	const File file(inbox_path(slot), O_RDWR);
	if (!file.opened())
		return errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == EINTR ? Room::full : Room::nobody;
	if (file.size() < sizeof(Inbox))
		return Room::nobody;
	std::unique_ptr<Inbox, Unmap> inbox(file.map<Inbox>());
	if (!inbox)
		return Room::full;
	if (inbox->incarnation != state >> 1) // of another process already
		return Room::nobody;
	peer.inbox = std::move(inbox);
	peer.state = state;
	return Room::yes;
}

// Whether the process that has written this into a lock has ended.
bool Wire::gone(uint64_t holder)
{
	const auto slot = static_cast<unsigned>(holder % max_processes);
	return holder == me_ || incarnation(slot) != holder / max_processes || !alive(slot);
}

// This is no robust mutex: the kernel knows the owner of one by its number in its PID name space, and would take it
// from a living process when another of the same number dies waiting for it. It would also follow pointers in shared
// memory.
bool Wire::lock(Inbox &inbox)
{
	constexpr unsigned yields = 100, naps = 20;
	constexpr timespec nap{0, 100000};
	for (unsigned tries = 0; tries <= yields + naps; ++tries) {
		uint64_t holder = 0;
		if (inbox.lock.compare_exchange_strong(holder, me_, std::memory_order_acquire))
			return true;
		if (tries < yields)
			sched_yield();
		else if (tries > yields)
			nanosleep(&nap, nullptr);
		else if (gone(holder) && inbox.lock.compare_exchange_strong(holder, me_, std::memory_order_acquire))
			return true; // nothing of the dead process's frame was published
	}
	return false;
}

Wire::Room Wire::begin(unsigned slot, size_t bytes, uint8_t *&frame)
{
	const uint64_t now = state(slot);
	if (!(now & occupied))
		return Room::nobody;
	Peer &peer = peers_[slot];
	if (peer.state != now)
		if (const Room room = open_inbox(slot, now); room != Room::yes)
			return room;
	Inbox &inbox = *peer.inbox;
	if (!lock(inbox))
		return Room::full;

	const uint64_t tail = position(inbox.tail.load(std::memory_order_relaxed));
	const size_t whole = frame_head + padded(bytes), before_end = ring_bytes - tail % ring_bytes;
	const size_t skipped = whole > before_end ? before_end : 0;
	sending_tail_ = tail + skipped + whole;
	if (sending_tail_ - peer.head > ring_bytes) {
		peer.head = inbox.head.load(std::memory_order_acquire);
		if (sending_tail_ - peer.head > ring_bytes) {
			inbox.lock.store(0, std::memory_order_release);
			// The inbox of a killed process stays full, and not every sender gives up by itself.
			constexpr unsigned check_every = 256;
			const bool check = ++peer.refusals % check_every == 0;
			return check && !alive(slot) ? Room::nobody : Room::full;
		}
	}
	if (skipped)
		length_at(inbox.ring, tail).store(skip, std::memory_order_relaxed);
	length_at(inbox.ring, tail + skipped).store(bytes, std::memory_order_relaxed);
	frame = inbox.ring + (tail + skipped) % ring_bytes + frame_head;
	sending_ = &inbox;
	return Room::yes;
}

void Wire::end()
{
	Inbox &inbox = *std::exchange(sending_, nullptr);
	// Sequentially consistent, as sleep() is: either this side sees the sleeper, or the sleeper sees the frame.
	inbox.tail.store(sending_tail_);
	inbox.lock.store(0, std::memory_order_release);
	if (const uint32_t sleeper = inbox.sleeper.load(); sleeper & for_frame)
		rouse(inbox.sleeper, sleeper);
}

uint64_t Wire::posted(unsigned slot) const
{
	return slot < max_processes && peers_[slot].inbox ? peers_[slot].inbox->tail.load(std::memory_order_relaxed) : 0;
}

uint64_t Wire::taken(unsigned slot) const
{
	return slot < max_processes && peers_[slot].inbox ? peers_[slot].inbox->head.load(std::memory_order_relaxed) : 0;
}

// Called in steps, so that a stream of frames does not take this cache line from the writers with each frame.
void Wire::publish_head(uint64_t head)
{
	inbox_->head.store(head, std::memory_order_release);
	published_head_ = head;
}

std::span<const uint8_t> Wire::front()
{
	const uint64_t head = head_.load(std::memory_order_relaxed);
	if (head == seen_tail_) {
		seen_tail_ = position(inbox_->tail.load(std::memory_order_acquire));
		if (head == seen_tail_) {
			// Compares with shared memory, not with what was written last: another process that overwrites it must not
			// stop this inbox for good.
			if (inbox_->head.load(std::memory_order_relaxed) != head)
				publish_head(head);
			return {};
		}
	}
	uint64_t at = head;
	uint64_t bytes = length_at(inbox_->ring, at).load(std::memory_order_relaxed);
	if (bytes == skip) {
		at += ring_bytes - at % ring_bytes;
		bytes = length_at(inbox_->ring, at).load(std::memory_order_relaxed);
	}
	if (bytes >= 1 && bytes <= max_frame_bytes) {
		const size_t offset = at % ring_bytes;
		front_bytes_ = at - head + frame_head + padded(bytes);
		if (front_bytes_ <= seen_tail_ - head && seen_tail_ - head <= ring_bytes &&
		    offset + frame_head + padded(bytes) <= ring_bytes)
			return {inbox_->ring + offset + frame_head, bytes};
	}
	front_bytes_ = 0;
	seen_tail_ = position(inbox_->tail.load(std::memory_order_acquire));
	head_.store(seen_tail_, std::memory_order_relaxed);
	publish_head(seen_tail_);
	return {};
}

void Wire::pop()
{
	const uint64_t head = head_.load(std::memory_order_relaxed) + std::exchange(front_bytes_, 0);
	head_.store(head, std::memory_order_relaxed);
	if (head - published_head_ >= ring_bytes / 4)
		publish_head(head);
}

void Wire::sleep(std::chrono::nanoseconds limit, bool for_frames)
{
	constexpr int64_t second = 1'000'000'000;
	const int64_t wanted = std::max<int64_t>(limit.count(), 0);
	timespec until;
	clock_gettime(CLOCK_MONOTONIC, &until);
	const int64_t part = until.tv_nsec + wanted % second;
	until.tv_sec += wanted / second + part / second;
	until.tv_nsec = part % second;

	std::atomic<uint32_t> &sleeper = inbox_->sleeper;
	const uint32_t value = ((sleeper.load() | flags) + 1) | asleep | (for_frames ? for_frame : 0);
	sleeper.store(value);
	while (sleeper.load() == value && !woken_.load() &&
	       !(for_frames && position(inbox_->tail.load()) != head_.load(std::memory_order_relaxed)))
		if (futex(sleeper, FUTEX_WAIT_BITSET, value, &until) != 0 && errno != EINTR)
			break;
	sleeper.store(value & ~flags);
	woken_.exchange(false);
}

void Wire::wake()
{
	woken_.store(true);
	if (const uint32_t value = inbox_->sleeper.load(); value & asleep)
		rouse(inbox_->sleeper, value);
}

} // namespace softhca
