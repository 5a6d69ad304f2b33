// The helper thread of an open context: it answers those who come, dials those that are added, and holds a connection
// to each peer, whose end is the peer's. wire.hpp draws what is said.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "pt2p.h"

#include "base/job/open/peers.hpp"
#include "base/job/open/sockets.hpp"
#include "base/job/open/wire.hpp"

namespace pt2p {
struct Config;
class Reporter;
} // namespace pt2p

namespace pt2p::open_job {

class ConnectionManager {
public:
	// Takes an address. Throws Error: it cannot be had, or the secret cannot be read.
	ConnectionManager(const Config &config, Reporter &reporter, Peers &peers);
	~ConnectionManager();

	// "host:port"
	const std::string &address() const { return address_; }
	// Lets peers in; `blob` is what they get.
	void start(const std::string &blob);
	// The number of the context at that address. Waits for its answer; throws Error.
	int add(const std::string &address);
	// Says goodbye to that number.
	void disconnect(int rank);
	// Nothing goes to that number any more, which has said goodbye: closes the connection.
	void close_connection(int rank);
	// Says goodbye to all, and ends the thread.
	void stop();
	// Those that were refused since the last call.
	uint64_t take_refused() { return refused_.exchange(0, std::memory_order_relaxed); }

private:
	struct Dial;
	struct Connection;
	enum class Way { local, tcp };

	void take_address();
	void wake();
	void finish(Dial &dial, int rank);
	void finish(Dial &dial, pt2p_status_t status, const std::string &why);

	// On the thread.
	void run();
	bool turn();
	bool take_orders();
	void say_goodbye(int rank);
	void close_after_goodbye(int rank);
	int time_to_deadline() const; // ms; -1: there is none
	void look_at_deadlines();
	void accept_from(const Socket &listener, Way way);
	void drop_oldest(bool local, size_t max);
	void dial_next_way(const std::shared_ptr<Dial> &dial, const std::string &why_not_last);
	void note_refused(const char *whom, long number, const char *why);

	// Null: errno says why not.
	Connection *add_connection(Socket socket, bool dialed, Way way, uint32_t events);
	// The connection is over; `reason` is for a peer that is lost with it, or an address that cannot be added.
	void close(Connection &c, const std::string &reason);
	void on_event(Connection &c, uint32_t events);
	void receive(Connection &c);
	void send(Connection &c, Frame kind, const std::string &bytes);
	void flush(Connection &c);

	// What the longest frame of that kind has behind its head now, bytes.
	uint32_t limit_of(const Connection &c, Frame kind) const;
	void on_frame(Connection &c, Frame kind, std::string &bytes);
	void on_hello(Connection &c, const std::string &bytes);
	void on_hello_of_dialed(Connection &c);
	void introduce(Connection &c);
	void on_introduction(Connection &c, std::string &bytes);
	void on_refusal(Connection &c, const std::string &bytes);
	void refuse(Connection &c, Reason reason);
	// What the connection was dialed for has come to this.
	void settle(Connection &c, int rank);
	void settle(Connection &c, pt2p_status_t status, const std::string &why);

	const Config &config_;
	Reporter &reporter_;
	Peers &peers_;
	const Id id_;
	bool has_secret_ = false;
	Secret secret_{}; // shared
	Socket tcp_, local_;
	std::string address_, blob_;
	Socket epoll_, wake_;
	std::thread thread_;
	std::atomic<uint64_t> refused_{0};
	unsigned refusals_logged_ = 0;

	std::mutex mutex_; // of the orders, and of what a Dial has come to
	std::condition_variable changed_;
	std::deque<std::shared_ptr<Dial>> dials_;
	std::deque<int> goodbyes_, closings_;
	bool stopping_ = false;

	// The thread's own.
	std::vector<std::unique_ptr<Connection>> connections_;
};

} // namespace pt2p::open_job
