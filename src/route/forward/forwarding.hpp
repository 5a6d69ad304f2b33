// Forwarding: links to the neighbours of this rank, the credits of each link, and the messages of other ranks that
// wait.
//
//   source ---- id_forwarded(source, destination), envelope, payload ----> neighbour ---- same ----> ... destination
//          <--- id_credit(n) ---------------------------------------------
//          <--- id_done(heard) ------------------------------------------> when leaving
//
// Bounded: a neighbour holds at most PT2P_FORWARD_CREDITS messages of a rank that it cannot send on yet, for whatever
// reason: no room, no credits of the next link, or a next link without address or connection. A rank without credits
// waits for some.
//
// No deadlock: credits belong to one link, and messages that come over links between groups, inside a group and on a
// node never share credits. Routes use these three kinds of links in that order (groups.hpp), so a message waits only
// for credits of a later kind. The last hop of a route needs no credits, because a destination takes every message.
//
// Fair: while messages of others wait for a link, the messages of this rank get every other turn, in bunches of
// `bunch`.
//
// Leaving: each link closes from both sides once all sessions are closed (sessions.hpp). id_done says that nothing more
// goes over the link, and whether the same has been heard from there. Messages of one link may go on over links of a
// later kind, so those close later. Thus a forwarder stays until it has sent on all that it was given.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/memory/fifo.hpp"
#include "base/memory/pool.hpp"
#include "route/forward/direct_connector.hpp"
#include "transports/transport.hpp"

namespace pt2p {

class Groups;

// Message ids towards the transports below. The ids of the layers above are smaller; those of the transports begin at
// 0xf0.
constexpr uint8_t id_forwarded = 0x60, id_credit = 0x61, id_done = 0x62;

// What comes with id_forwarded as its header.
struct Route {
	uint32_t source, destination;
	static Route of(uint64_t header) { return {static_cast<uint32_t>(header >> 32), static_cast<uint32_t>(header)}; }
	uint64_t header() const { return uint64_t{source} << 32 | destination; }
};

class ForwardingClient {
public:
	// Nothing goes over the link to that neighbour any more.
	virtual void on_link_down(int neighbour) = 0;
	// The next hop of another rank's message is gone: sends the message to its destination directly. False: not now.
	virtual bool send_around(const Route &route, const void *bytes, size_t length) = 0;
	// That neighbour has broken the rules.
	virtual void on_malformed(int neighbour) = 0;

protected:
	~ForwardingClient() = default;
};

class Forwarding {
public:
	// All arguments outlive it.
	Forwarding(const TransportEnvironment &environment, const Groups &groups, DirectConnector &connector,
	           BufferPool &buffers, ForwardingClient &client);
	~Forwarding();
	// Longest message to send on, envelope included, bytes.
	void set_limit(size_t bytes) { max_length_ = bytes; }

	// Sends a message of this rank, envelope included, to the next hop; false: not now, or never.
	bool send(int next_hop, const Route &route, const void *bytes, size_t length);
	// Messages from neighbours: one to send on to the next hop, credits, the end of a link.
	void send_on(int from, const Route &route, const void *data, size_t length);
	void on_credit(int from, uint64_t count, size_t length);
	void on_done(int from, uint64_t heard, size_t length);
	// A message for this rank has come over the link.
	void mark_used(int neighbour) { link(neighbour).used = true; }

	// Sends what waits; returns how many messages of other ranks left.
	unsigned progress();
	bool idle() const { return !busy_; }
	// Closes links in the order of routes; true once all are closed. For a rank that leaves.
	bool close();

	bool is_down(int neighbour) { return link(neighbour).down; }
	// Whether the neighbour knows of the link and this rank has not closed it.
	bool is_open(int neighbour) const;
	// Nothing goes over the link to that neighbour any more.
	void lose(int neighbour);

private:
	// Messages that have their turn together, of this rank or of others.
	static constexpr uint32_t bunch = 8;
	// Between two attempts to connect that fail for lack of something here, ns.
	static constexpr int64_t retry_pause = 1'000'000;

	// A message of another rank that waits for a link.
	struct HeldMessage {
		HeldMessage *next;
		Route route;
		unsigned char *bytes; // envelope and payload
		size_t length;
		int from;      // neighbour that brought it
		int64_t since; // ns
	};
	// To a neighbour.
	struct Link {
		Endpoint *endpoint = nullptr; // once it has been needed
		int64_t retry_at = 0;         // ns; no attempt to connect before
		bool down = false;
		uint32_t credits = 0; // messages that the neighbour takes now
		uint32_t held = 0;    // messages of the neighbour that wait here for other links
		uint32_t owed = 0;    // credits to return to the neighbour
		Fifo<HeldMessage> waiting;
		uint32_t own_in_row = 0; // messages of this rank since others had their turn
		bool own_waiting = false;
		// Of leaving.
		bool used = false;        // a message has crossed it: both sides know of it
		bool done_sent = false;   // the neighbour knows that nothing more goes over it
		bool answer_sent = false; // and that this rank has heard the same
		bool done_heard = false;  // nothing more comes over it
		bool answer_heard = false;
		bool closed() const { return down || !used || (answer_sent && answer_heard); }
	};

	Link &link(int neighbour);
	bool connect(int neighbour, Link &link);
	bool post(Link &link, uint8_t id, uint64_t header, const void *data, size_t length);
	bool send_held(int next_hop, Link &link, const Route &route, const void *data, size_t length);
	void count_sent_on(int from, size_t length);
	void return_credits(int neighbour, Link &link);
	unsigned flush(int neighbour, Link &link);

	const TransportEnvironment &environment_;
	const Groups &groups_;
	DirectConnector &connector_;
	BufferPool &buffers_;
	ForwardingClient &client_;
	const int rank_;
	const uint32_t credits_;
	size_t max_length_ = 0;
	Pool<HeldMessage> held_messages_;
	std::vector<std::unique_ptr<Link>> links_; // by rank
	std::vector<int> neighbours_;              // that have a link
	bool busy_ = false;                        // messages of others wait for a link, or credits are owed
};

} // namespace pt2p
