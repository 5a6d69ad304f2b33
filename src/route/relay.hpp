// Messages that go by way of other ranks. A rank hands a small message for a far one to a neighbour (groups.hpp), whose
// progress passes it on; so it has connections to few, and a DC initiator changes its target rarely.
//
// To the layers above the relay is a transport like others, whose endpoints send only: gets, puts and atomics go through
// endpoint.direct(). To the transports below it is the layer above. It is there only when PT2P_ROUTE asks for it: messages
// that go directly to where they go pay nothing.
//
//   source ---- id_relayed(source, destination), Envelope, payload ----> neighbour ---- the same ----> ... destination
//          <--- id_credit(n) -------------------------------------------
//          <--- id_done(heard) ----------------------------------------> when leaving
//
// Once and in order: the destination confirms what it has (Envelope::confirmed, with messages that go back anyway, or with
// one of their own at a quarter of the window). The source keeps what is not confirmed, and sends it again to the
// destination itself when a neighbour is gone, or when nothing has been confirmed for PT2P_FORWARD_TIMEOUT: so neither a rank
// that dies nor one that computes without calling in stops what it was to pass on. Whatever comes twice is dropped.
//
// Bare: while nothing is forwarded, nothing is to be confirmed and no trial is held (PT2P_ROUTE=auto, or a neighbour that is
// avoided), a message goes to its destination without an envelope: id | id_bare_message.
//
// Bounded: a neighbour holds at most PT2P_FORWARD_CREDITS messages of a rank that it cannot pass on yet, whatever they wait
// for: room, credits of the next link, or on its first use that link's address and connection. Who has used its credits up
// waits until some come back.
//
// No deadlock: credits are of one link, and what comes over links between groups, inside of a group and on a node never
// shares them. Routes take these three kinds of links in that order (groups.hpp), so a message waits only for credits of a
// later kind; the last hop of a route needs none, because a destination takes what comes.
//
// Who leaves is needed by nobody any more, and nothing comes to it any more:
// 1. Each pair of ranks closes. Who leaves says goodbye to all that it has talked with and that have not said it; the answer is
//    the last that comes from there. When two goodbyes cross, both are answered. Neither these nor the answers begin anything
//    new: they go by a neighbour only where messages have gone before, and else directly, to a rank that waits for them.
// 2. Each link closes, from both sides, once all pairs have: id_done says that nothing more goes over it, and whether the same
//    has been heard from there. What has come over a link may go on over a later kind: those close after it. So a
//    neighbour is there until it has passed on what it was given, the last answers included.
// Where all leave at the same time this takes as long as a few messages do. A rank that is late is waited for no longer than
// for its answer (PT2P_FINALIZE_TIME) and leaving_timeout(), twice: what a neighbour that is gone was to pass on is sent again.
//
// Fair: while messages of others wait for a link, this rank's own get every other turn in bunches of `bunch`.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/memory/pool.hpp"
#include "route/end_to_end.hpp"
#include "transports/transport.hpp"
#include "route/way.hpp"

namespace pt2p {

class Groups;
class Relay;
class Router;

// A rank that messages are relayed to and from.
struct RelayPeer final : Endpoint {
	RelayPeer(Relay &relay, int rank, int neighbour, BufferPool &buffers, uint32_t window);
	Endpoint &direct() override;
	bool settled() const override;

	Relay &relay;
	Outbox outbox;
	Inbox inbox;
	const int next;          // the neighbour that takes its messages
	Endpoint *way = nullptr; // to itself, once it has been needed
	const bool beyond;       // it is not that neighbour itself
	bool avoided = false;    // the neighbour does not pass messages on
	bool down = false;       // nothing goes to it any more, but for a last confirmation
	bool told_bye = false;
	bool bye_unanswered = false; // the answer to that is the last that comes from it
	bool relayed = false;    // a message to or from it was forwarded
	pt2p_status_t failure = PT2P_OK; // why there is no `way`
	std::string reason;

	// What has to be sent beside messages: in `busy_` while there is something.
	bool listed = false;
	bool confirm_due = false;      // what has arrived here
	bool confirm_directly = false; // and not by way of others: messages seem to get lost there
	bool ask = false;              // what has arrived there
	uint32_t resend = 0;           // number of the next message to be sent again; outbox.next(): none
	bool waits = false;            // that one has not left yet, unless it is gone
	bool detour = false;           // and goes by way of the neighbour
	bool waiting() const { return waits && resend != outbox.next(); }
	void confirm(bool directly)
	{
		confirm_due = true;
		confirm_directly |= directly;
	}
	// An envelope has left that tells what has arrived here.
	void told()
	{
		inbox.tell();
		confirm_due = confirm_directly = false;
	}

	// Of check().
	uint32_t seen_first = 0;
	int64_t stuck_since = 0;    // ns; 0: it is not
	int64_t patience = 0;       // ns
	int64_t avoided_until = 0;  // ns
	uint32_t times_avoided = 0; // in a row
};

// All calls are under the lock of the context.
class Relay final : public Transport, public TransportEvents {
public:
	// `environment.events` is the layer above.
	Relay(const TransportEnvironment &environment, Router &router, const Groups &groups);
	~Relay() override;
	// Longest message that all transports below carry, bytes; to be told once they are open.
	void set_limit(size_t bytes) { max_send_ = bytes - sizeof(Envelope); }

	// Whether messages to that rank go by way of others.
	bool serves(int rank) const;
	RelayPeer &peer(int rank);
	// For pt2p_finalize: tells all that it has talked with; then, to be called until it is so, whether this rank may leave.
	void say_goodbye();
	bool part();
	// Of PT2P_ROUTE=auto.
	const tune::WayTuner &choice() const { return tuner_; }
	// Whether nobody makes progress when the program does not; to be told before anything is sent.
	bool only_in_calls = false;

	// As the layer above the transports.
	void on_message(int from, uint8_t id, uint64_t header, const void *data, size_t length) override;
	void on_complete(void *operation, pt2p_status_t status, std::string_view reason) override
	{
		client_.on_complete(operation, status, reason);
	}
	void on_peer_down(int rank, pt2p_status_t status, std::string_view reason) override;
	void on_connect_failure(int rank, pt2p_status_t status) override { client_.on_connect_failure(rank, status); }
	// Forwarded messages do not need that connection. A message that needs it tries again.
	void on_refused(int rank, pt2p_status_t status, std::string_view reason) override
	{
		if (!serves(rank))
			client_.on_refused(rank, status, reason);
	}

	// As a transport.
	const TransportTable &table() const override;
	std::string address() override { return {}; }
	bool reaches(int rank, std::string_view, std::string &) override { return serves(rank); }
	Endpoint &connect(int rank, std::string_view) override { return peer(rank); }
	void check() override;
	bool arm() override { return busy_.empty() && !links_busy_; }
	void abandon(int rank, pt2p_status_t status, const std::string &reason) override;
	std::string describe(int rank) override;
	void *expose(void *memory, size_t length, uint64_t &key, std::string &why_not) override;
	std::string trouble(int rank) override;

	// For the endpoints and the table.
	Outcome send(RelayPeer &peer, uint8_t id, uint64_t header, const void *data, size_t length);
	Endpoint *way_to(RelayPeer &peer);
	unsigned progress();

	// Message ids towards the transports below; those of the layers above are smaller.
	static constexpr uint8_t id_relayed = 0x60, id_credit = 0x61, id_done = 0x62;
	// To be or-ed to those of the layers above; the transports' own begin at 0xf0.
	static constexpr uint8_t id_bare_message = 0x80;

private:
	// Messages that have their turn together, of this rank or of others.
	static constexpr uint32_t bunch = 8;

	// A message of another rank that waits for a link.
	struct Waiting {
		Waiting *next;
		uint64_t route;
		unsigned char *bytes; // envelope and payload
		size_t length;
		int from;      // neighbour that brought it
		int64_t since; // ns
	};
	// To a neighbour.
	struct Link {
		Endpoint *endpoint = nullptr; // once it has been needed
		bool down = false;
		uint32_t credits = 0; // messages that it takes now to pass them on
		uint32_t held = 0;    // messages of it that wait here for other links
		uint32_t owed = 0;    // messages of it that have been passed on without its knowing
		Waiting *first = nullptr, *last = nullptr;
		uint32_t own_in_row = 0; // messages of this rank since others had their turn
		bool own_waiting = false;
		// Of leaving.
		bool used = false;          // something has gone or come over it: both sides know of it
		bool told = false;          // the neighbour, that nothing more goes over it
		bool told_answer = false;   // and that this rank has heard the same from there
		bool heard = false;         // that nothing more comes over it
		bool heard_answer = false;
		bool over() const { return down || !used || (told_answer && heard_answer); }
	};

	Link &link(int rank);
	bool open(int rank, Link &link);
	bool send_over(Link &link, uint8_t id, uint64_t header, const void *data, size_t length);
	void malformed(int rank);

	Envelope envelope(RelayPeer &peer, uint8_t id, uint64_t header, uint8_t flags) const;
	void tune(const RelayPeer &peer, bool settled);
	std::string reason_for_way() const;
	static void confirmed(RelayPeer &peer);
	bool by_neighbour(const RelayPeer &peer) const;
	bool in_use(const RelayPeer &peer) const;
	bool send_bare(RelayPeer &peer, uint8_t id, uint64_t header, const void *data, size_t length);
	bool send_first(RelayPeer &peer);
	bool send_envelope(RelayPeer &peer, bool by_neighbour, const void *bytes, size_t length);
	void list(RelayPeer &peer);
	bool serve(RelayPeer &peer, unsigned &events);
	void avoid(RelayPeer &peer);

	void bare_message(int source, uint8_t id, uint64_t header, const void *data, size_t length);
	void arrived(int from, int source, const void *data, size_t length);
	void deliver(RelayPeer &peer, const Envelope &envelope, const void *payload, size_t length);

	int64_t leaving_timeout() const;
	bool all_closed() const;
	bool close_links();
	void lose_link(int rank);
	void lose_peer(RelayPeer &peer);
	void lose(int rank);

	// relay_others.cpp
	void pass_on(int from, int to, uint64_t route, const void *data, size_t length);
	bool send_on(int next, Link &link, int to, uint64_t route, const void *data, size_t length);
	void passed_on(int from, size_t length);
	void give_credit(int rank, Link &link);
	unsigned flush(int rank, Link &link);
	bool send_around(int gone, int to, const Waiting &message);

	const TransportEnvironment environment_;
	TransportEvents &client_;
	Router &router_;
	const Groups &groups_;
	const int rank_, size_;
	const uint32_t window_, credits_;
	const size_t longest_detour_; // payload, bytes
	const bool automatic_;
	// With PT2P_ROUTE=auto.
	tune::TargetChanges changes_;
	tune::WayTuner tuner_;
	size_t max_send_ = 0;
	BufferPool buffers_;
	Pool<Waiting> waiting_;
	std::vector<std::unique_ptr<RelayPeer>> peers_; // by rank
	std::vector<std::unique_ptr<Link>> links_;      // by rank
	std::vector<int> neighbours_;                   // that have a link
	std::vector<RelayPeer *> busy_;                 // something has to be sent
	bool links_busy_ = false;                       // messages of others wait for one, or credits are due
	bool leaving_ = false;
	int64_t patient_until_ = 0; // ns, once leaving: with peers, and then with neighbours
	bool closed_ = false;       // there is nothing more to say to any peer
};

} // namespace pt2p
