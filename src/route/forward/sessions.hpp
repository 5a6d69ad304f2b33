// Sessions: what makes messages between this rank and another one arrive once and in order (end_to_end.hpp), whatever
// path they take.
//
// The destination confirms what it has: in Envelope::confirmed of messages that go back anyway, or in an envelope
// without a message at a quarter of the window. The source keeps what is not confirmed. It sends that again directly
// when a forwarder is gone, or when nothing has been confirmed for PT2P_FORWARD_TIMEOUT. So a forwarder that dies, or
// that computes without a call, loses and stops nothing. The destination drops duplicates.
//
// While nothing is forwarded, nothing is to be confirmed and no trial is held, a message goes to its destination as a
// plain message, without an envelope: id | id_plain.
//
// Leaving: each pair of ranks closes its session. A rank that leaves says goodbye to all that it has talked with and
// that have not said it; the answer is the last that comes from there. When two goodbyes cross, both are answered.
// Goodbyes and answers begin nothing new: they are forwarded only where messages have been forwarded before. Otherwise
// they go directly, to a rank that waits for them. A rank waits for a late one no longer than for its answer
// (PT2P_FINALIZE_TIME) and leaving_timeout().
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/memory/pool.hpp"
#include "route/forward/connection_budget.hpp"
#include "route/forward/end_to_end.hpp"
#include "route/forward/forwarding.hpp"
#include "route/forward/route_choice.hpp"
#include "transports/transport.hpp"

namespace pt2p {

class Sessions;

// Or-ed to a message id of the layers above: a plain message.
constexpr uint8_t id_plain = 0x80;

// With one rank.
struct Session final : Endpoint {
	Session(Sessions &sessions, int rank, int next_hop, bool across, BufferPool &buffers, uint32_t window);
	Endpoint &direct() override;
	bool settle() override;

	Sessions &sessions;
	Outbox outbox;
	Inbox inbox;
	const int next_hop;            // of messages that are forwarded
	const bool across;             // that rank is in another group
	uint32_t mark = 0;             // of the budget
	const bool has_forwarder;      // the next hop is not the destination
	bool avoids_forwarder = false; // the next hop does not forward
	bool forwarded = false;        // a message to or from that rank was
	bool down = false;             // nothing goes to that rank any more but a last confirmation
	bool goodbye_sent = false;
	bool goodbye_unanswered = false; // the answer is the last that comes from that rank

	// The direct endpoint, once it has been needed, or why there is none.
	Endpoint *direct_endpoint = nullptr;
	pt2p_status_t failure = PT2P_OK;
	std::string reason;

	// What has to be sent beside new messages.
	bool listed = false; // among the busy sessions
	bool confirm_due = false;
	bool confirm_directly = false; // messages seem to get lost on the other path
	bool ask = false;              // for a confirmation
	uint32_t asked = 0;            // settle(): outbox.next() when it asked last
	uint32_t resend = 0;           // number of the next message to send again; outbox.next(): none
	bool first_try = false;        // that message has not left yet
	bool first_forwarded = false;  // and is to be forwarded
	bool waits() const { return first_try && resend != outbox.next(); }
	void confirm(bool directly)
	{
		confirm_due = true;
		confirm_directly |= directly;
	}
	// An envelope has left, which confirms what has arrived.
	void has_confirmed()
	{
		inbox.confirm();
		confirm_due = confirm_directly = false;
	}
	// The other rank has confirmed something.
	void skip_confirmed()
	{
		if (static_cast<int32_t>(resend - outbox.first()) < 0)
			resend = outbox.first();
	}
	void take_down();

	// Whether confirmations come.
	struct Stall {
		uint32_t first = 0;        // the oldest message that is not confirmed
		int64_t since = 0;         // ns; 0: confirmations come
		int64_t patience = 0;      // ns
		int64_t avoided_until = 0; // ns
		uint32_t times = 0;        // that the forwarder was avoided, in a row
	} stall;
};

class Sessions final : public ForwardingClient {
public:
	// All arguments outlive it. `environment.events` is the layer above.
	// `share`: reliable connections that this rank may make to ranks of its group that have a forwarder.
	Sessions(const TransportEnvironment &environment, const Groups &groups, int64_t share, DirectConnector &connector,
	         Forwarding &forwarding, BufferPool &buffers);
	// Longest payload, bytes.
	void set_limit(size_t bytes) { max_send_ = bytes; }
	// Whether nobody makes progress when the program makes no calls.
	bool only_in_calls = false;

	// Whether messages to that rank may be forwarded.
	bool serves(int rank) const;
	// Made on first use.
	Session &at(int rank);
	const Session *find(int rank) const { return sessions_[static_cast<size_t>(rank)].get(); }
	const RouteChoice &choice() const { return choice_; }
	const ConnectionBudget &budget() const { return budget_; }
	// Whether the next small message is forwarded.
	bool forwards(const Session &session) const;

	Outcome send(Session &session, uint8_t id, uint64_t header, const void *data, size_t length);
	// Asks for a confirmation of what has been sent.
	void ask(Session &session);
	// Null: not now, or never.
	Endpoint *connect_directly(Session &session);

	// An envelope from `source`, which the neighbour `from` brought; a plain message.
	void on_envelope(int from, int source, const void *data, size_t length);
	void on_plain(int source, uint8_t id, uint64_t header, const void *data, size_t length);
	// That rank has sent what no rank would send.
	void on_malformed(int rank) override;

	// Sends what is due beside new messages; returns how many left.
	unsigned progress();
	bool idle() const { return busy_.empty(); }
	// Every few milliseconds: confirmations that are due, and those that do not come.
	void check();

	// For a rank that leaves: says goodbye; whether nothing is left to say, and nothing more comes. `late`: waits no
	// longer for ranks that do not answer.
	void say_goodbye();
	bool closed(bool late) const;
	int64_t leaving_timeout() const;

	void lose(int rank);
	void on_link_down(int neighbour) override;
	bool send_around(const Route &route, const void *bytes, size_t length) override;

private:
	Envelope envelope(const Session &session, uint8_t id, uint64_t header, uint8_t flags) const;
	bool send_plain(Session &session, uint8_t id, uint64_t header, const void *data, size_t length);
	bool send_first(Session &session);
	bool send_envelope(Session &session, bool forward, const void *bytes, size_t length);
	bool in_use(const Session &session) const;
	bool prefers_forwarder(const Session &session) const;
	void observe(Session &session, bool settled);

	void list(Session &session);
	bool drive(Session &session, unsigned &events);
	void report_failure(Session &session);
	bool resend(Session &session, unsigned &events);
	bool confirm(Session &session, unsigned &events);
	void avoid_forwarder(Session &session);
	void check_stall(Session &session, int64_t now, int64_t timeout);

	bool take(Session &session, const Envelope &envelope, const void *payload, size_t length);
	void deliver(Session &session, const Envelope &envelope, const void *payload, size_t length);

	const TransportEnvironment &environment_;
	TransportEvents &client_;
	const Groups &groups_;
	DirectConnector &connector_;
	Forwarding &forwarding_;
	BufferPool &buffers_;
	RouteChoice choice_; // for ranks of other groups; the budget: for those of its own
	ConnectionBudget budget_;
	const int rank_;
	const uint32_t window_;
	const size_t max_forwarded_; // longest payload that is forwarded, bytes
	size_t max_send_ = 0;
	std::vector<std::unique_ptr<Session>> sessions_; // by rank
	std::vector<Session *> busy_;                    // something is due
	bool leaving_ = false;
};

} // namespace pt2p
