#include "base/job/open/sockets.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/report/report.hpp"

namespace pt2p::open_job {

namespace {

// The sockets of all open contexts of this process.
class OpenSockets {
public:
	// Never destroyed: contexts may be finalized by destructors of static objects.
	static OpenSockets &get()
	{
		static auto *all = new OpenSockets;
		return *all;
	}
	void add(int fd)
	{
		const std::lock_guard lock(mutex_);
		all_.push_back(fd);
	}
	// Closed under the lock, so that its number does not stand for another file when a child is forked.
	void close_one(int fd)
	{
		const std::lock_guard lock(mutex_);
		std::erase(all_, fd);
		close(fd);
	}

private:
	OpenSockets()
	{
		pthread_atfork([] { get().mutex_.lock(); }, [] { get().mutex_.unlock(); },
		               [] {
			               for (const int fd : get().all_)
				               close(fd);
			               get().all_.clear();
			               get().mutex_.unlock();
		               });
	}

	std::mutex mutex_;
	std::vector<int> all_;
};

sockaddr_un unix_name(uint16_t port, socklen_t &length)
{
	sockaddr_un name{};
	name.sun_family = AF_UNIX;
	// The name begins with a zero: it is no file, and goes with its owner.
	const int n = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "pt2p.%u", port);
	length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(n));
	return name;
}

Socket new_socket(int family) { return Socket(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)); }

} // namespace

Socket::Socket(int fd) : fd_(fd)
{
	if (fd >= 0)
		OpenSockets::get().add(fd);
}

Socket::~Socket()
{
	if (fd_ >= 0)
		OpenSockets::get().close_one(fd_);
}

// ---- addresses ------------------------------------------------------------------------------------------------------

Place::Place(const sockaddr *at, socklen_t length) : length_(std::min<socklen_t>(length, sizeof at_))
{
	std::memcpy(&at_, at, length_);
}

uint16_t Place::port() const
{
	return ntohs(family() == AF_INET6 ? reinterpret_cast<const sockaddr_in6 *>(&at_)->sin6_port
	                                  : reinterpret_cast<const sockaddr_in *>(&at_)->sin_port);
}

void Place::set_port(uint16_t port)
{
	if (family() == AF_INET6)
		reinterpret_cast<sockaddr_in6 *>(&at_)->sin6_port = htons(port);
	else
		reinterpret_cast<sockaddr_in *>(&at_)->sin_port = htons(port);
}

bool Place::same_host(const Place &other) const
{
	if (family() != other.family())
		return false;
	if (family() == AF_INET6)
		return !std::memcmp(&reinterpret_cast<const sockaddr_in6 *>(&at_)->sin6_addr,
		                    &reinterpret_cast<const sockaddr_in6 *>(&other.at_)->sin6_addr, sizeof(in6_addr));
	return reinterpret_cast<const sockaddr_in *>(&at_)->sin_addr.s_addr ==
	       reinterpret_cast<const sockaddr_in *>(&other.at_)->sin_addr.s_addr;
}

bool Place::is_loopback() const
{
	if (family() == AF_INET6)
		return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6 *>(&at_)->sin6_addr);
	return ntohl(reinterpret_cast<const sockaddr_in *>(&at_)->sin_addr.s_addr) >> 24 == 127;
}

bool Place::is_any() const
{
	if (family() == AF_INET6)
		return IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6 *>(&at_)->sin6_addr);
	return reinterpret_cast<const sockaddr_in *>(&at_)->sin_addr.s_addr == INADDR_ANY;
}

std::string Place::text() const
{
	char host[INET6_ADDRSTRLEN] = "?";
	const void *at = family() == AF_INET6
	                     ? static_cast<const void *>(&reinterpret_cast<const sockaddr_in6 *>(&at_)->sin6_addr)
	                     : static_cast<const void *>(&reinterpret_cast<const sockaddr_in *>(&at_)->sin_addr);
	inet_ntop(family(), at, host, sizeof host);
	return format(family() == AF_INET6 ? "[%s]:%u" : "%s:%u", host, port());
}

bool split_address(const std::string &text, std::string &host, uint16_t &port)
{
	const size_t colon = text.rfind(':');
	if (colon == text.npos)
		return false;
	host = text.substr(0, colon);
	if (host.size() >= 2 && host.front() == '[' && host.back() == ']')
		host = host.substr(1, host.size() - 2);
	else if (host.find_first_of(":[]") != host.npos)
		return false;
	const std::string digits = text.substr(colon + 1);
	if (digits.size() > 5 || digits.find_first_not_of("0123456789") != digits.npos)
		return false;
	const unsigned long number = std::strtoul(digits.c_str(), nullptr, 10);
	port = static_cast<uint16_t>(number);
	return number <= 65535;
}

Place resolve(const std::string &host, uint16_t port)
{
	addrinfo hints{}, *found = nullptr;
	hints.ai_family = AF_UNSPEC;
	hints.ai_socktype = SOCK_STREAM;
	if (const int error = getaddrinfo(host.c_str(), nullptr, &hints, &found); error || !found)
		throw Error(PT2P_ERR_ARGUMENT, format("there is no host \"%s\": %s", host.c_str(), gai_strerror(error)));
	const addrinfo *best = found;
	for (const addrinfo *i = found; i; i = i->ai_next)
		if (i->ai_family == AF_INET) {
			best = i;
			break;
		}
	Place place(best->ai_addr, best->ai_addrlen);
	freeaddrinfo(found);
	place.set_port(port);
	return place;
}

std::vector<Place> own_places()
{
	std::vector<Place> places;
	ifaddrs *list = nullptr;
	if (getifaddrs(&list) != 0)
		return places;
	for (const ifaddrs *i = list; i; i = i->ifa_next)
		if (i->ifa_addr && i->ifa_flags & IFF_UP) {
			if (i->ifa_addr->sa_family == AF_INET)
				places.emplace_back(i->ifa_addr, sizeof(sockaddr_in));
			else if (i->ifa_addr->sa_family == AF_INET6)
				places.emplace_back(i->ifa_addr, sizeof(sockaddr_in6));
		}
	freeifaddrs(list);
	return places;
}

bool is_here(const Place &place)
{
	if (place.is_loopback())
		return true;
	const std::vector<Place> own = own_places();
	return std::any_of(own.begin(), own.end(), [&](const Place &p) { return p.same_host(place); });
}

// ---- sockets --------------------------------------------------------------------------------------------------------

Socket bound_socket(const Place &place, bool reuse)
{
	Socket socket = new_socket(place.family());
	const int on = 1;
	if (socket && reuse)
		setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (socket && bind(socket.get(), place.get(), place.length()) != 0) {
		const int error = errno;
		socket = Socket();
		errno = error;
	}
	return socket;
}

Socket unix_socket(uint16_t port, bool listens)
{
	socklen_t length;
	const sockaddr_un name = unix_name(port, length);
	Socket socket = new_socket(AF_UNIX);
	if (socket && (bind(socket.get(), reinterpret_cast<const sockaddr *>(&name), length) != 0 ||
	               (listens && listen(socket.get(), SOMAXCONN) != 0))) {
		const int error = errno;
		socket = Socket();
		errno = error;
	}
	return socket;
}

Socket connecting_socket(const Place &place)
{
	Socket socket = new_socket(place.family());
	if (socket && connect(socket.get(), place.get(), place.length()) != 0 && errno != EINPROGRESS) {
		const int error = errno;
		socket = Socket();
		errno = error;
	}
	return socket;
}

Socket connecting_unix(uint16_t port)
{
	socklen_t length;
	const sockaddr_un name = unix_name(port, length);
	Socket socket = new_socket(AF_UNIX);
	if (socket && connect(socket.get(), reinterpret_cast<const sockaddr *>(&name), length) != 0) {
		const int error = errno;
		socket = Socket();
		errno = error;
	}
	return socket;
}

Place place_of(const Socket &socket)
{
	sockaddr_storage at{};
	socklen_t length = sizeof at;
	getsockname(socket.get(), reinterpret_cast<sockaddr *>(&at), &length);
	return {reinterpret_cast<const sockaddr *>(&at), length};
}

bool user_of(const Socket &socket, uid_t &user)
{
	ucred credentials{};
	socklen_t length = sizeof credentials;
	if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0)
		return false;
	user = credentials.uid;
	return true;
}

void keep_alive(const Socket &socket)
{
	const int on = 1, idle = 5, interval = 2, probes = 5; // seconds
	setsockopt(socket.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
	setsockopt(socket.get(), IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
	setsockopt(socket.get(), IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
	setsockopt(socket.get(), IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
	setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

} // namespace pt2p::open_job
