#include "base/job/open/greeter.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <system_error>

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.hpp"
#include "base/config/config.hpp"
#include "base/job/open/connection.hpp"
#include "base/report/report.hpp"

namespace pt2p::open_job {

namespace {

Id random_id()
{
	const Secret random = random_secret();
	return {{random.words[0], random.words[1]}};
}

// Where a context is found whose user names no host.
Place usual_place()
{
	const std::vector<Place> own = own_places();
	const auto first =
	    std::find_if(own.begin(), own.end(), [](const Place &p) { return p.family() == AF_INET && !p.is_loopback(); });
	return first != own.end() ? *first : resolve("127.0.0.1", 0);
}

} // namespace

Greeter::Greeter(const Config &config, Reporter &reporter, Peers &peers)
    : config_(config), reporter_(reporter), peers_(peers), id_(random_id())
{
	has_secret_ = !config.open_secret.empty();
	if (has_secret_)
		secret_ = read_shared_secret(config.open_secret);
	else if (config.open_sockets == choice::open_sockets::tcp)
		throw Error(PT2P_ERR_TUNABLE,
		            "PT2P_OPEN_SOCKETS is tcp, which takes a secret: name a file in PT2P_OPEN_SECRET");
	take_address();
	epoll_ = Socket(epoll_create1(EPOLL_CLOEXEC));
	wake_ = Socket(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (!epoll_ || !wake_)
		throw Error(PT2P_ERR_SYSTEM, format("the helper thread of an open context: %s", errno_text(errno).c_str()));
}

Greeter::~Greeter() { stop(); }

// The port belongs to this context over TCP and, in the name of the Unix socket, on this host.
void Greeter::take_address()
{
	std::string host;
	uint16_t port = 0;
	if (!config_.open_listen.empty() && !split_address(config_.open_listen, host, port))
		throw Error(PT2P_ERR_TUNABLE, format("PT2P_OPEN_LISTEN is \"%s\", which is not written as host:port",
		                                     config_.open_listen.c_str()));
	Place place;
	try {
		place = host.empty() ? usual_place() : resolve(host, port);
	} catch (const Error &e) {
		throw Error(PT2P_ERR_TUNABLE, format("PT2P_OPEN_LISTEN: %s", e.what()));
	}
	constexpr int most_tries = 64;
	for (int tries = 0; tries < most_tries; ++tries) {
		place.set_port(port);
		tcp_ = bound_socket(place, port != 0);
		const bool bound = static_cast<bool>(tcp_) && (!has_secret_ || listen(tcp_.get(), SOMAXCONN) == 0);
		if (bound) {
			const Place taken = place_of(tcp_);
			local_ = unix_socket(taken.port(), config_.open_sockets != choice::open_sockets::tcp);
			if (local_) {
				Place shown = taken.is_any() ? usual_place() : taken;
				shown.set_port(taken.port());
				address_ = shown.text();
				return;
			}
		}
		if (port || errno != EADDRINUSE)
			throw Error(PT2P_ERR_TUNABLE,
			            format("PT2P_OPEN_LISTEN: the address %s cannot be had: %s%s", place.text().c_str(),
			                   errno_text(errno).c_str(),
			                   errno == EADDRINUSE ? "; choose another port, or 0 for a free one" : ""));
	}
	throw Error(PT2P_ERR_SYSTEM, "no free port is found for the address of this context");
}

void Greeter::start(const std::string &blob)
{
	blob_ = blob;
	const auto listen_to = [this](const Socket &socket) {
		epoll_event event{};
		event.events = EPOLLIN;
		event.data.ptr = const_cast<Socket *>(&socket);
		if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket.get(), &event) != 0)
			throw Error(PT2P_ERR_SYSTEM, format("epoll_ctl: %s", errno_text(errno).c_str()));
	};
	listen_to(wake_);
	if (has_secret_)
		listen_to(tcp_);
	if (config_.open_sockets != choice::open_sockets::tcp)
		listen_to(local_);
	// Signals are for the program's threads.
	sigset_t all, old;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	try {
		thread_ = std::thread([this] { run(); });
	} catch (const std::system_error &e) {
		pthread_sigmask(SIG_SETMASK, &old, nullptr);
		throw Error(PT2P_ERR_SYSTEM, format("the helper thread of an open context: %s", e.what()));
	}
	pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

// ---- orders of the context's threads --------------------------------------------------------------------------------

void Greeter::wake()
{
	const uint64_t one = 1;
	(void)!write(wake_.get(), &one, sizeof one);
}

int Greeter::add(const std::string &address)
{
	std::string host;
	uint16_t port = 0;
	if (!split_address(address, host, port) || host.empty() || !port)
		throw Error(
		    PT2P_ERR_ARGUMENT,
		    format("the address is \"%s\", which is not written as host:port, as in 10.0.0.7:7000", address.c_str()));
	auto dial = std::make_shared<Dial>();
	dial->address = address;
	dial->place = resolve(host, port);
	const bool here = is_here(dial->place);
	if (here && config_.open_sockets != choice::open_sockets::tcp)
		dial->ways.push_back(Way::local);
	if (has_secret_)
		dial->ways.push_back(Way::tcp);
	if (dial->ways.empty())
		throw Error(
		    PT2P_ERR_UNREACHABLE,
		    format("%s is another host, whose contexts are reached with a shared secret only: name the same file "
		           "in PT2P_OPEN_SECRET on both",
		           address.c_str()));
	dial->deadline = now_ns() + config_.open_time;
	std::unique_lock lock(mutex_);
	if (stopping_ || !thread_.joinable())
		throw Error(PT2P_ERR_CONTEXT, "the context is in pt2p_finalize");
	dials_.push_back(dial);
	wake();
	changed_.wait(lock, [&] { return dial->done; });
	if (dial->rank < 0)
		throw Error(dial->status, dial->why);
	return dial->rank;
}

void Greeter::part(int rank)
{
	const std::lock_guard lock(mutex_);
	partings_.push_back(rank);
	wake();
}

void Greeter::hang_up(int rank)
{
	const std::lock_guard lock(mutex_);
	hang_ups_.push_back(rank);
	wake();
}

void Greeter::stop()
{
	{
		const std::lock_guard lock(mutex_);
		stopping_ = true;
		wake();
	}
	if (thread_.joinable())
		thread_.join();
	tcp_ = Socket();
	local_ = Socket();
}

void Greeter::finish(Dial &dial, int rank)
{
	const std::lock_guard lock(mutex_);
	if (dial.done)
		return;
	dial.rank = rank;
	dial.done = true;
	changed_.notify_all();
}

void Greeter::finish(Dial &dial, pt2p_status_t status, const std::string &why)
{
	const std::lock_guard lock(mutex_);
	if (dial.done)
		return;
	dial.status = status;
	dial.why = why;
	dial.done = true;
	changed_.notify_all();
}

// ---- the thread -----------------------------------------------------------------------------------------------------

void Greeter::run()
{
	for (bool stopping = false; !stopping;) {
		epoll_event events[64];
		const int n = epoll_wait(epoll_.get(), events, 64, time_to_deadline());
		for (int i = 0; i < n; ++i) {
			void *what = events[i].data.ptr;
			if (what == &wake_) {
				uint64_t count;
				(void)!read(wake_.get(), &count, sizeof count);
			} else if (what == &tcp_) {
				accept_from(tcp_, Way::tcp);
			} else if (what == &local_) {
				accept_from(local_, Way::local);
			} else if (auto &c = *static_cast<Connection *>(what); !c.closed) {
				on_event(c, events[i].events);
			}
		}
		stopping = take_orders();
		look_at_deadlines();
		std::erase_if(connections_, [](const auto &c) { return c->closed; });
	}
	for (const auto &c : connections_)
		if (c->state == Connection::State::established)
			send(*c, Frame::goodbye, "");
		else
			settle(*c, PT2P_ERR_CONTEXT, "the context is in pt2p_finalize");
	connections_.clear();
}

// True: stop() was called.
bool Greeter::take_orders()
{
	for (;;) {
		std::shared_ptr<Dial> dial;
		int parting = -1, hang_up = -1;
		{
			const std::lock_guard lock(mutex_);
			if (!partings_.empty()) {
				parting = partings_.front();
				partings_.pop_front();
			} else if (!hang_ups_.empty()) {
				hang_up = hang_ups_.front();
				hang_ups_.pop_front();
			} else if (!dials_.empty()) {
				dial = dials_.front();
				dials_.pop_front();
			} else {
				return stopping_;
			}
		}
		if (parting >= 0)
			say_goodbye(parting);
		if (hang_up >= 0)
			close_parted(hang_up);
		if (dial)
			dial_next_way(dial, "");
	}
}

void Greeter::say_goodbye(int rank)
{
	for (size_t i = 0; i < connections_.size(); ++i) {
		Connection &c = *connections_[i];
		if (c.closed || c.seat.rank != rank || !peers_.is_handled(c.seat))
			continue;
		if (c.state == Connection::State::parted || !c.introduced()) {
			close(c, "this context has removed it");
			continue;
		}
		send(c, Frame::goodbye, "");
		c.state = Connection::State::parted;
	}
}

void Greeter::close_parted(int rank)
{
	for (size_t i = 0; i < connections_.size(); ++i)
		if (Connection &c = *connections_[i];
		    !c.closed && c.seat.rank == rank && c.state == Connection::State::parted && peers_.is_handled(c.seat))
			close(c, "it has left");
}

int Greeter::time_to_deadline() const
{
	int64_t first = INT64_MAX;
	for (const auto &c : connections_)
		if (!c->introduced())
			first = std::min(first, c->deadline);
	if (first == INT64_MAX)
		return -1;
	return static_cast<int>(std::clamp<int64_t>((first - now_ns()) / 1'000'000 + 1, 0, 60'000));
}

void Greeter::look_at_deadlines()
{
	const int64_t now = now_ns();
	for (size_t i = 0; i < connections_.size(); ++i) { // a dial that fails over one way adds another
		Connection &c = *connections_[i];
		if (c.closed || c.introduced() || now < c.deadline)
			continue;
		if (c.dial)
			settle(
			    c, PT2P_ERR_UNREACHABLE,
			    format("%s does not answer within %.3g s (PT2P_OPEN_TIME): its process may be stopped, or a firewall "
			           "between",
			           c.dial->address.c_str(), static_cast<double>(config_.open_time) * 1e-9));
		close(c, "no answer");
	}
}

// ---- connections ----------------------------------------------------------------------------------------------------

Greeter::Connection *Greeter::add_connection(Socket socket, bool dialed, Way way, uint32_t events)
{
	auto connection = std::make_unique<Connection>();
	Connection &c = *connection;
	c.socket = std::move(socket);
	c.dialed = dialed;
	c.way = way;
	c.deadline = now_ns() + greeting_time;
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

void Greeter::accept_from(const Socket &listener, Way way)
{
	for (int i = 0; i < 16; ++i) { // others have their turn
		Socket socket(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
		if (!socket) {
			if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
				// Nobody is told, and the one that waits stays where it is.
				drop_oldest(0);
				std::this_thread::sleep_for(std::chrono::milliseconds(10));
			}
			return;
		}
		drop_oldest(max_strangers);
		if (way == Way::tcp)
			keep_alive(socket);
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

// Makes sure that no more than `most` connections of others are still to introduce themselves: who says nothing does
// not keep those out who do.
void Greeter::drop_oldest(size_t most)
{
	const auto stranger = [](const auto &c) { return !c->closed && !c->dialed && !c->introduced(); };
	const auto strangers = static_cast<size_t>(std::count_if(connections_.begin(), connections_.end(), stranger));
	if (strangers <= most)
		return;
	const auto oldest = std::find_if(connections_.begin(), connections_.end(), stranger);
	close(**oldest, "it says nothing");
}

void Greeter::note_refused(const char *whom, long number, const char *why)
{
	refused_.fetch_add(1, std::memory_order_relaxed);
	constexpr unsigned most_logged = 16; // a flood of them does not fill the disk
	if (refusals_logged_++ < most_logged)
		reporter_.log(LogLevel::warning, "%s is refused as a peer: %s", format(whom, number).c_str(), why);
}

void Greeter::close(Connection &c, const std::string &reason)
{
	if (c.closed)
		return;
	c.closed = true;
	c.socket = Socket();
	if (c.seat.rank > 0)
		peers_.detach(c.seat, reason);
	// A dial that had no verdict.
	if (c.dial)
		dial_next_way(c.dial, reason);
}

void Greeter::dial_next_way(const std::shared_ptr<Dial> &dial, const std::string &why_not_last)
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

void Greeter::on_event(Connection &c, uint32_t events)
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

void Greeter::send(Connection &c, Frame kind, const std::string &bytes)
{
	if (c.closed)
		return;
	const FrameHead head{static_cast<uint32_t>(bytes.size()), kind};
	c.out.append(reinterpret_cast<const char *>(&head), sizeof head);
	c.out += bytes;
	flush(c);
}

void Greeter::flush(Connection &c)
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

// Reads no more than a frame needs, so that a stranger takes no memory.
void Greeter::receive(Connection &c)
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
