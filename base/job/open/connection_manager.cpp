#include "base/job/open/connection_manager.hpp"

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

// Where a context is found whose user names no host.
Place usual_place()
{
	const std::vector<Place> own = own_places();
	const auto first =
	    std::find_if(own.begin(), own.end(), [](const Place &p) { return p.family() == AF_INET && !p.is_loopback(); });
	return first != own.end() ? *first : resolve("127.0.0.1", 0);
}

} // namespace

ConnectionManager::ConnectionManager(const Config &config, Reporter &reporter, Peers &peers)
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

ConnectionManager::~ConnectionManager() { stop(); }

// The port belongs to this context over TCP and, in the name of the Unix socket, on this host.
void ConnectionManager::take_address()
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
	constexpr int max_tries = 64;
	for (int tries = 0; tries < max_tries; ++tries) {
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

void ConnectionManager::start(const std::string &blob)
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

void ConnectionManager::wake()
{
	const uint64_t one = 1;
	(void)!write(wake_.get(), &one, sizeof one);
}

int ConnectionManager::add(const std::string &address)
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
	// The thread keeps the deadline itself, unless it lacks memory.
	const auto limit = std::chrono::nanoseconds(config_.open_time) + std::chrono::seconds(5);
	if (!changed_.wait_for(lock, limit, [&] { return dial->done; }))
		throw Error(PT2P_ERR_NO_MEMORY, "the helper thread of this context does not answer");
	if (dial->rank < 0)
		throw Error(dial->status, dial->why);
	return dial->rank;
}

void ConnectionManager::disconnect(int rank)
{
	const std::lock_guard lock(mutex_);
	goodbyes_.push_back(rank);
	wake();
}

void ConnectionManager::close_connection(int rank)
{
	const std::lock_guard lock(mutex_);
	closings_.push_back(rank);
	wake();
}

void ConnectionManager::stop()
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

void ConnectionManager::finish(Dial &dial, int rank)
{
	const std::lock_guard lock(mutex_);
	if (dial.done)
		return;
	dial.rank = rank;
	dial.done = true;
	changed_.notify_all();
}

void ConnectionManager::finish(Dial &dial, pt2p_status_t status, const std::string &why)
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

void ConnectionManager::run()
{
	for (bool stopping = false; !stopping;) {
		try {
			stopping = turn();
		} catch (const std::exception &e) { // no memory; there may be some in the next turn
			reporter_.log(LogLevel::error, "the helper thread of this context: %s", e.what());
			std::this_thread::sleep_for(std::chrono::milliseconds(10));
		}
	}
	for (const auto &c : connections_)
		if (c->state == Connection::State::established)
			send(*c, Frame::goodbye, "");
		else
			settle(*c, PT2P_ERR_CONTEXT, "the context is in pt2p_finalize");
	connections_.clear();
}

// True: stop() was called.
bool ConnectionManager::turn()
{
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
	const bool stopping = take_orders();
	look_at_deadlines();
	std::erase_if(connections_, [](const auto &c) { return c->closed; });
	return stopping;
}

// True: stop() was called.
bool ConnectionManager::take_orders()
{
	for (;;) {
		std::shared_ptr<Dial> dial;
		int goodbye = -1, close_connection = -1;
		{
			const std::lock_guard lock(mutex_);
			if (!goodbyes_.empty()) {
				goodbye = goodbyes_.front();
				goodbyes_.pop_front();
			} else if (!closings_.empty()) {
				close_connection = closings_.front();
				closings_.pop_front();
			} else if (!dials_.empty()) {
				dial = dials_.front();
				dials_.pop_front();
			} else {
				return stopping_;
			}
		}
		if (goodbye >= 0)
			say_goodbye(goodbye);
		if (close_connection >= 0)
			close_after_goodbye(close_connection);
		if (dial)
			dial_next_way(dial, "");
	}
}

void ConnectionManager::say_goodbye(int rank)
{
	for (size_t i = 0; i < connections_.size(); ++i) {
		Connection &c = *connections_[i];
		if (c.closed || c.slot.rank != rank || !peers_.is_handled(c.slot))
			continue;
		if (c.state == Connection::State::said_goodbye || !c.introduced()) {
			close(c, "this context has removed it");
			continue;
		}
		send(c, Frame::goodbye, "");
		c.state = Connection::State::said_goodbye;
	}
}

void ConnectionManager::close_after_goodbye(int rank)
{
	for (size_t i = 0; i < connections_.size(); ++i)
		if (Connection &c = *connections_[i];
		    !c.closed && c.slot.rank == rank && c.state == Connection::State::said_goodbye && peers_.is_handled(c.slot))
			close(c, "it has left");
}

int ConnectionManager::time_to_deadline() const
{
	int64_t first = INT64_MAX;
	for (const auto &c : connections_)
		if (!c->introduced())
			first = std::min(first, c->deadline);
	if (first == INT64_MAX)
		return -1;
	return static_cast<int>(std::clamp<int64_t>((first - now_ns()) / 1'000'000 + 1, 0, 60'000));
}

void ConnectionManager::look_at_deadlines()
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

} // namespace pt2p::open_job
