// Connections begin, carry frames, and end.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.hpp"
#include "base/job/open/connection.hpp"
#include "base/report/report.hpp"

namespace pt2p::open_job {

ConnectionManager::Connection *ConnectionManager::add_connection(Socket socket, bool dialed, Way way, uint32_t events)
{
	auto connection = std::make_unique<Connection>();
	Connection &c = *connection;
	c.socket = std::move(socket);
	c.dialed = dialed;
	c.way = way;
	c.deadline = now_ns() + handshake_time;
	c.mine.id = id_;
	c.mine.nonce = random_id();
	epoll_event event{};
	event.events = c.events = events;
	event.data.ptr = &c;
	if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, c.socket.get(), &event) != 0)
		return nullptr;
	connections_.push_back(std::move(connection));
	return &c;
}

void ConnectionManager::accept_from(const Socket &listener, Way way)
{
	for (int i = 0; i < 16; ++i) { // others have their turn
		Socket socket(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
		if (!socket) {
			if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
				// Nobody is told, and the one that waits stays where it is.
				drop_oldest(true, 0);
				std::this_thread::sleep_for(std::chrono::milliseconds(10));
			}
			return;
		}
		if (way == Way::tcp) {
			drop_oldest(false, max_half_open);
			keep_alive(socket);
		}
		uid_t user = 0;
		if (way == Way::local && (!user_of(socket, user) || user != geteuid())) {
			note_refused("a process of user %ld", static_cast<long>(user), text_of(Reason::user));
			const auto reason = static_cast<uint32_t>(Reason::user);
			const FrameHead head{sizeof reason, Frame::refusal};
			std::string bytes(reinterpret_cast<const char *>(&head), sizeof head);
			bytes.append(reinterpret_cast<const char *>(&reason), sizeof reason);
			(void)!::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
			continue;
		}
		if (Connection *c = add_connection(std::move(socket), false, way, EPOLLIN))
			c->state = Connection::State::awaits_hello;
	}
}

// Limits half-open connections, which others have made and over which no introduction has come, over TCP or `local` as
// well: those that say nothing do not keep others out.
void ConnectionManager::drop_oldest(bool local, size_t max)
{
	const auto is_half_open = [local](const auto &c) {
		return !c->closed && !c->dialed && !c->introduced() && (local || c->way == Way::tcp);
	};
	const auto half_open = static_cast<size_t>(std::count_if(connections_.begin(), connections_.end(), is_half_open));
	if (half_open <= max)
		return;
	const auto oldest = std::find_if(connections_.begin(), connections_.end(), is_half_open);
	close(**oldest, "it says nothing");
}

void ConnectionManager::note_refused(const char *whom, long number, const char *why)
{
	refused_.fetch_add(1, std::memory_order_relaxed);
	constexpr unsigned max_logged = 16; // a flood of them does not fill the disk
	if (refusals_logged_++ < max_logged)
		reporter_.log(LogLevel::warning, "%s is refused as a peer: %s", format(whom, number).c_str(), why);
}

void ConnectionManager::close(Connection &c, const std::string &reason)
{
	if (c.closed)
		return;
	c.closed = true;
	c.socket = Socket();
	if (c.slot.rank > 0)
		peers_.detach(c.slot, reason);
	// A dial that had no verdict.
	if (c.dial)
		dial_next_way(c.dial, reason);
}

void ConnectionManager::dial_next_way(const std::shared_ptr<Dial> &dial, const std::string &why_not_last)
{
	if (!why_not_last.empty())
		dial->why_not += (dial->why_not.empty() ? "" : "; ") + why_not_last;
	while (dial->next < dial->ways.size()) {
		const Way way = dial->ways[dial->next++];
		const char *over = way == Way::local ? "the socket of this host" : "TCP";
		Socket socket = way == Way::local ? connecting_unix(dial->place.port()) : connecting_socket(dial->place);
		if (!socket) {
			dial->why_not += format("%sover %s: %s", dial->why_not.empty() ? "" : "; ", over,
			                        errno == ECONNREFUSED ? "nobody listens" : errno_text(errno).c_str());
			continue;
		}
		uid_t user = 0;
		if (way == Way::local && (!user_of(socket, user) || user != geteuid())) {
			note_refused("a process of user %ld that listens", static_cast<long>(user), text_of(Reason::user));
			dial->refused = true;
			dial->why_not += format("%sover %s: it belongs to another user, %ld", dial->why_not.empty() ? "" : "; ",
			                        over, static_cast<long>(user));
			continue;
		}
		if (way == Way::tcp)
			keep_alive(socket);
		// Once it can be written to it is connected.
		Connection *c = add_connection(std::move(socket), true, way, EPOLLOUT);
		if (!c) {
			dial->why_not += format("over %s: %s", over, errno_text(errno).c_str());
			continue;
		}
		c->state = Connection::State::connects;
		c->dial = dial;
		c->deadline = dial->deadline;
		return;
	}
	const bool tried_tcp = std::find(dial->ways.begin(), dial->ways.end(), Way::tcp) != dial->ways.end();
	finish(*dial, dial->refused ? PT2P_ERR_REFUSED : PT2P_ERR_UNREACHABLE,
	       format("%s: %s%s", dial->address.c_str(), dial->why_not.c_str(),
	              tried_tcp || dial->refused
	                  ? ""
	                  : "; a context in another container takes the same PT2P_OPEN_SECRET on both "
	                    "sides"));
}

void ConnectionManager::on_event(Connection &c, uint32_t events)
{
	if (c.state == Connection::State::connects) {
		int error = 0;
		socklen_t length = sizeof error;
		getsockopt(c.socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
		if (error)
			return close(c, format("over TCP: %s", error == ECONNREFUSED
			                                           ? "nobody listens, or without a secret (PT2P_OPEN_SECRET)"
			                                           : errno_text(error).c_str()));
		c.state = Connection::State::awaits_hello;
		c.mine.proves = c.way == Way::tcp;
		send(c, Frame::hello, std::string(reinterpret_cast<const char *>(&c.mine), sizeof c.mine));
	}
	if (events & EPOLLOUT)
		flush(c);
	if (!c.closed && events & (EPOLLIN | EPOLLHUP | EPOLLERR))
		receive(c);
}

void ConnectionManager::send(Connection &c, Frame kind, const std::string &bytes)
{
	if (c.closed)
		return;
	const FrameHead head{static_cast<uint32_t>(bytes.size()), kind};
	c.out.append(reinterpret_cast<const char *>(&head), sizeof head);
	c.out += bytes;
	flush(c);
}

void ConnectionManager::flush(Connection &c)
{
	while (!c.out.empty()) {
		const ssize_t n = ::send(c.socket.get(), c.out.data(), c.out.size(), MSG_NOSIGNAL);
		if (n <= 0)
			break; // if it is broken, reading tells
		c.out.erase(0, static_cast<size_t>(n));
	}
	epoll_event event{};
	event.events = EPOLLIN | (c.out.empty() ? 0u : EPOLLOUT);
	event.data.ptr = &c;
	if (event.events != c.events && epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, c.socket.get(), &event) == 0)
		c.events = event.events;
}

// Reads no more than a frame needs, so that a half-open connection takes no memory.
void ConnectionManager::receive(Connection &c)
{
	while (!c.closed) {
		FrameHead head{};
		size_t wanted = sizeof head;
		if (c.in.size() >= sizeof head) {
			std::memcpy(&head, c.in.data(), sizeof head);
			if (head.bytes > limit_of(c, head.kind))
				return close(c, c.state == Connection::State::established
				                    ? "it sent what no peer sends"
				                    : "what answers there is no context of libpt2p");
			wanted += head.bytes;
		}
		if (c.in.size() == wanted) { // a whole frame
			std::string bytes = c.in.substr(sizeof head);
			c.in.clear();
			on_frame(c, head.kind, bytes);
			continue;
		}
		char buffer[4096];
		const ssize_t n = recv(c.socket.get(), buffer, std::min(wanted - c.in.size(), sizeof buffer), 0);
		if (n > 0) {
			c.in.append(buffer, static_cast<size_t>(n));
			continue;
		}
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return;
		const std::string how = n == 0 || errno == ECONNRESET ? "" : ": " + errno_text(errno);
		if (c.state == Connection::State::established)
			return close(
			    c, (c.way == Way::local ? "its process has ended" : "its process has ended, or the network between") +
			           how);
		return close(c, "it has closed the connection" + how);
	}
}

} // namespace pt2p::open_job
