#include "softhca/counters/accounts.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <new>
#include <sys/mman.h>
#include <unistd.h>

#include "softhca/kernel/real.hpp"

namespace softhca {

namespace {

Account *map(int fd)
{
	const int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
	void *memory = real::mmap(nullptr, sizeof(Account), PROT_READ | PROT_WRITE, flags, fd, 0);
	return memory == MAP_FAILED ? nullptr : static_cast<Account *>(memory);
}

} // namespace

void Accounts::Unmap::operator()(Account *account) const { real::munmap(account, sizeof *account); }

Accounts::Accounts() : account_(map(-1))
{
	if (!account_)
		throw std::bad_alloc();
}

void Accounts::open(const std::string &path, unsigned host, unsigned devices)
{
	const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	// The part that is no hole is allocated now: a full file system must not be a SIGBUS later.
	constexpr off_t head = offsetof(Account, queue_pair);
	Account *account = nullptr;
	if (fd >= 0 && posix_fallocate(fd, 0, head) == 0 && ftruncate(fd, sizeof(Account)) == 0)
		account = map(fd);
	if (!account) {
		std::fprintf(stderr, "softhca: counters cannot be read from outside: %s: %s\n", path.c_str(),
		             std::strerror(errno));
		if (fd >= 0)
			real::close(fd);
		return;
	}
	std::memcpy(account->device, account_->device, sizeof account->device);
	account->pid = static_cast<uint32_t>(getpid());
	account->host = host;
	account->devices = devices;
	const char *name = program_invocation_short_name;
	std::memcpy(account->program, name, std::min(std::strlen(name), sizeof account->program - 1));
	__atomic_store_n(&account->magic, Account::expected_magic, __ATOMIC_RELEASE);
	account_.reset(account);
	fd_ = fd;
}

void Accounts::abandon()
{
	if (fd_ >= 0)
		real::close(fd_); // the hook of close() takes locks
	fd_ = -1;
	// At the same address: the parent's queue pairs still point there.
	real::mmap(account_.get(), sizeof(Account), PROT_READ | PROT_WRITE,
	           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

Counters &Accounts::add(unsigned index, uint32_t number, uint8_t kind, unsigned device)
{
	QpAccount &entry = account_->queue_pair[index];
	if (fd_ >= 0) {
		const auto at =
		    static_cast<off_t>(reinterpret_cast<uint8_t *>(&entry) - reinterpret_cast<uint8_t *>(account_.get()));
		if (posix_fallocate(fd_, at, sizeof entry) != 0) {
			// From here on a private copy, at the same address.
			void *here = account_.get();
			Account *copy = map(-1);
			if (copy) {
				std::memcpy(copy, here, offsetof(Account, queue_pair) + account_->queue_pairs * sizeof entry);
				mremap(copy, sizeof *copy, sizeof *copy, MREMAP_MAYMOVE | MREMAP_FIXED, here);
			}
			real::close(fd_);
			fd_ = -1;
		}
	}
	entry = {};
	entry.number = number;
	entry.kind = kind;
	entry.device = static_cast<uint8_t>(device);
	entry.live = 1;
	account_->queue_pairs = std::max(account_->queue_pairs, index + 1);
	return entry.counters;
}

} // namespace softhca
