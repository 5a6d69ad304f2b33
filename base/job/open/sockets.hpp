// Sockets of open jobs, and the addresses of their contexts.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <netinet/in.h>
#include <sys/socket.h>

namespace pt2p::open_job {

// A socket that a forked child closes: peers would take a dead parent for alive as long as the child has it.
class Socket {
public:
	Socket() = default;
	explicit Socket(int fd);
	Socket(Socket &&other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
	Socket &operator=(Socket &&other) noexcept
	{
		std::swap(fd_, other.fd_);
		return *this;
	}
	~Socket();
	int get() const { return fd_; }
	explicit operator bool() const { return fd_ >= 0; }

private:
	int fd_ = -1;
};

// An IP address and a port.
class Place {
public:
	Place() = default;
	Place(const sockaddr *at, socklen_t length);

	const sockaddr *get() const { return reinterpret_cast<const sockaddr *>(&at_); }
	socklen_t length() const { return length_; }
	int family() const { return at_.ss_family; }
	uint16_t port() const;
	void set_port(uint16_t port);
	bool same_host(const Place &other) const;
	bool is_loopback() const;
	bool is_any() const;      // stands for all addresses of this host
	std::string text() const; // "10.0.0.7:7000", "[fd00::7]:7000"

private:
	sockaddr_storage at_{};
	socklen_t length_ = 0;
};

// Splits "host:port"; the host may be empty, the port as well. False: it is not written so.
bool split_address(const std::string &text, std::string &host, uint16_t &port);
// Throws Error(PT2P_ERR_ARGUMENT) that says why there is no such host.
Place resolve(const std::string &host, uint16_t port);
// Those of this host, of interfaces that are up.
std::vector<Place> own_places();
// Whether it is this host, loopback addresses included.
bool is_here(const Place &place);

// Sockets that do not block. An invalid one: errno says why.
Socket bound_socket(const Place &place, bool reuse);
Socket unix_socket(uint16_t port, bool listens); // in the abstract name space of this network
Socket connecting_socket(const Place &place);
Socket connecting_unix(uint16_t port);

// Where it is bound.
Place place_of(const Socket &socket);
// The user of the process at the other end of a Unix socket; false: the system does not say.
bool user_of(const Socket &socket, uid_t &user);
// Has a host that is gone noticed.
void keep_alive(const Socket &socket);

} // namespace pt2p::open_job
