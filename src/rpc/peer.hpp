// Calls in flight, and everything about them between this rank and another.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "base/memory/fifo.hpp"
#include "base/memory/pool.hpp"
#include "base/memory/work_list.hpp"
#include "message/engine.hpp"
#include "rpc/callers.hpp"
#include "rpc/datagrams.hpp"
#include "rpc/deadlines.hpp"
#include "rpc/fetching.hpp"
#include "rpc/results.hpp"
#include "rpc/storage.hpp"
#include "rpc/windows.hpp"
#include "rpc/wire.hpp"

namespace pt2p::rpc {

struct EndpointLane;
struct Peer;
struct Service;

// How a call and its reply are delivered.
struct CallDelivery {
	uint8_t input = PT2P_DELIVERY_AUTO, reply = PT2P_DELIVERY_AUTO;

	bool automatic() const // one comparison
	{
		uint16_t both;
		std::memcpy(&both, this, sizeof both);
		return !both;
	}
	void leave_datagrams()
	{
		input = input == PT2P_DELIVERY_DATAGRAM ? uint8_t{PT2P_DELIVERY_AUTO} : input;
		reply = reply == PT2P_DELIVERY_DATAGRAM ? uint8_t{PT2P_DELIVERY_AUTO} : reply;
	}
	bool replies_by_datagram() const { return reply >= PT2P_DELIVERY_DATAGRAM; }
	bool by_datagram() const { return input == PT2P_DELIVERY_DATAGRAM || replies_by_datagram(); }
};

// What calls to a rank have unless their options say otherwise.
struct CallDefaults {
	int64_t deadline = 0; // ns; 0: none
	CallDelivery by;
};

// What few calls have: memory that they lend, and replies whose place is found when they arrive.
struct Rare {
	pt2p_window_t give{}, take{};
	void *(*room)(void *argument, size_t length) = nullptr;
	void *argument = nullptr;
	Lent *lent = nullptr;
	bool carries_give = false, carries_take = false; // and does not lend them; see windows.hpp
	bool late = false;                               // its deadline has passed
	// A reply that waits for room().
	bool gathered = false; // its bytes are in Outgoing::copy
	unsigned char *reply = nullptr;
	size_t capacity = 0;
	Reach *reach = nullptr; // of a reply that is lent

	bool lends(unsigned window) const { return lent && lent->memory[window]; }
};

// A call that this rank makes.
//
//   waiting ---> sent ---> placing ---> fetching ---> free       waiting: for a slot, or for room in the transport
//
// Placing is a reply that waits for room() or for a transfer, fetching one whose transfer is in flight. A call whose
// deadline has passed loses its request, and keeps its slot until the server agrees. One whose result is fetched by
// Fetch is `sent` until it ends.
struct Outgoing : Deadline {
	enum class State : uint8_t { free, waiting, sent, placing, fetching };

	uint64_t handle = 0; // see HandlePool
	Outgoing *next_free = nullptr;
	Outgoing *next = nullptr; // in a queue
	Peer *peer = nullptr;
	EndpointLane *via = nullptr; // all its messages go over this lane
	Caller *caller = nullptr;    // the thread that makes it; null: nobody asks
	Request *request = nullptr;  // null: nobody waits for it
	State state = State::free;
	bool notice = false;
	bool cancelled = false;        // the server has been told
	bool nested = false;           // waits for no slot of the window; see wire.hpp
	bool lossy = false;            // half of it goes by datagram: it is sent again until the reply is here
	bool counted = false;          // ... and among DatagramLane::outstanding
	uint8_t age = 0, patience = 0; // ... in ticks since it was sent; until it is sent again
	uint16_t token = Tokens::none; // ... for a reply that is a word
	uint16_t lane = 0;
	CallDelivery by;
	uint32_t service = 0;
	uint64_t number = 0; // see wire.hpp; once it is sent
	const unsigned char *input = nullptr;
	size_t length = 0, moved = 0; // of the input
	Storage copy;                 // of the input, if nobody waits for the call
	unsigned char *reply = nullptr;
	size_t capacity = 0, reply_length = 0, received = 0; // of the reply
	uint64_t word = 0;
	Rare *rare = nullptr;
	Fetch *fetch = nullptr; // its result is fetched
	bool over = false;      // it has been, and is going to be pushed as well

	bool lends() const { return rare && rare->lent; }
};

// A call that this rank serves.
//
//   coming ---> queued ---> running ---> replied ---> ended ---> free      ended: the handler has not returned
//
// While one is settling, something waits for its transfers: the handler for the input, the reply for those that the
// handler has started, the refusal of a call that came to an end before.
struct Incoming {
	enum class State : uint8_t { free, coming, queued, running, replied, ended };

	uint64_t handle = 0; // see HandlePool; what the program knows it by
	Incoming *next_free = nullptr;
	Incoming *next = nullptr; // in a queue
	Peer *peer = nullptr;     // null: the caller takes no reply any more
	int caller = 0;
	Service *service = nullptr;
	State state = State::free;
	bool notice = false;
	bool cancelled = false; // the caller would rather not have it
	bool started = false;   // counted among those that run
	bool handling = false;  // its handler has not returned
	bool begun = false;     // part of the reply has left
	bool withheld = false;  // the input is longer than the service takes; the handler pulls it
	bool fetched = false;   // the input has been asked for
	bool settling = false;
	bool by_service = false; // the service chose reply_by
	bool late = false;       // the caller waits for transfers to end, and for nothing else
	bool fetches = false;    // the caller fetches the result
	bool asked = false;      // this rank has asked that the reply go by datagram
	uint8_t refusal = PT2P_OK;
	uint8_t reply_by = PT2P_DELIVERY_AUTO;
	CallLanes lanes{};
	uint64_t number = 0;
	int64_t deadline = 0; // of now_ns(); 0: none
	int64_t arrived = 0;  // the same, if the caller fetches the result
	Storage input;
	size_t length = 0, received = 0; // of the input
	ReplyHead reply{};
	Storage data;           // the room that the handler got for the reply; else see reply_bytes()
	size_t moved = 0;       // of the reply, bytes that have left
	Reach *reach = nullptr; // null: the caller lends nothing
	Lent *lent = nullptr;   // the reply, if the caller fetches it

	// What the handler gets.
	const void *visible() { return length && !withheld ? input.data() : nullptr; }
	unsigned char *reply_bytes() { return reach && reach->has_reply ? reach->reply.data() : data.data(); }
	bool has(Window window) const { return reach && reach->lent[window].length; }
};

// What goes to a rank over one lane of its endpoint, or waits for that.
struct EndpointLane {
	explicit EndpointLane(unsigned n) : number(n) {}

	Channel *channel = nullptr; // of the first: once it was needed
	Fifo<Outgoing> waiting;     // not notices
	Fifo<Outgoing> streams;     // calls whose input is partly sent
	Fifo<Incoming> replies;     // those that are not sent, or partly
	const unsigned number;
};

// What goes to a rank by datagram.
struct DatagramLane : EndpointLane {
	explicit DatagramLane(Channel &c) : EndpointLane(lane_number) { channel = &c; }
	static constexpr unsigned lane_number = 255; // no endpoint has so many

	// Calls of this rank.
	std::vector<uint64_t> words; // by slot: of the last reply by datagram that succeeded
	uint32_t outstanding = 0;    // calls that are sent again until they have a reply
	bool asked = false;          // replies are to go by datagram, where this rank leaves it to the library
	bool listed = false;         // in Calls::repeating_
	bool gone = false;           // that rank has said that it leaves
	// Calls of that rank.
	std::vector<DatagramSlot> slots;
	std::vector<uint16_t> unsent;             // slots whose reply waits
	uint32_t batch = 0, replies_in_batch = 0; // of Services::batch_
	bool several = false;                     // replies in the batch before, which shared a work request

	// Bytes that fit behind a head.
	size_t room_after(size_t head) const { return channel->endpoint.max_send - head; }
};

// Everything between this rank and another, in both directions. It is its first lane, which is most often the only one.
struct Peer : EndpointLane {
	Peer() : EndpointLane(0) {}

	int rank = 0;
	bool listed = false;       // among those that have work
	bool notices_wait = false; // in Calls::notices_
	uint16_t in_flight = 0;    // slots that are occupied; counted, as taking sizes costs every call more
	uint32_t notices_sent = 0;
	uintptr_t thread = 0; // whose calls go over the first lane, as do the replies; see Callers

	// Calls of this rank.
	std::vector<Outgoing *> slots; // as many as were needed at once so far
	std::vector<uint16_t> free_slots;
	uint64_t calls = 0; // so far

	// Calls of that rank.
	std::vector<Incoming *> served; // by slot, as many as were needed at once so far
	uint32_t notices_seen = 0, notices_reported = 0;
	uint16_t notices_window = 0;

	// The other way.
	uint16_t window = 0;        // calls, and notices, of this rank at once
	uint32_t notices_taken = 0; // so far, as far as known

	// What few peers have. Null: this one has nothing of it.
	struct Extras {
		std::unique_ptr<CallDefaults> defaults;           // null: those towards all ranks
		std::unique_ptr<FetchSource> source;              // null: results of that rank cannot be fetched
		std::unique_ptr<ResultSlots> results;             // null: it has no result slots
		std::unique_ptr<Callers> callers;                 // null: one thread calls it, or the endpoint has one lane
		std::vector<std::unique_ptr<EndpointLane>> lanes; // further ones, from 1; those that were used
		unsigned turn = 0;                                // the lane whose turn it is
		std::unique_ptr<DatagramLane> datagrams;          // null: none were exchanged, or none can be
		bool no_datagrams = false;                        // that rank cannot be reached by them
	};
	std::unique_ptr<Extras> extras;

	CallDefaults *defaults() const { return extras ? extras->defaults.get() : nullptr; }
	FetchSource *source() const { return extras ? extras->source.get() : nullptr; }
	ResultSlots *results() const { return extras ? extras->results.get() : nullptr; }
	DatagramLane *datagrams() const { return extras ? extras->datagrams.get() : nullptr; }
	Extras &make_extras()
	{
		if (!extras)
			extras = std::make_unique<Extras>();
		return *extras;
	}
	bool may_notify() const { return notices_sent - notices_taken < window; }
	bool may_start(const Outgoing &o) const { return in_flight < window || (o.nested && in_flight < max_slots); }
	bool has_work() const { return has_work(*this) || (notices_wait && may_notify()) || (extras && further_work()); }
	// Whether calls wait for further lanes.
	[[gnu::noinline]] bool further_wait() const
	{
		return (extras->datagrams && !extras->datagrams->waiting.empty()) ||
		       std::any_of(extras->lanes.begin(), extras->lanes.end(),
		                   [](const auto &lane) { return lane && !lane->waiting.empty(); });
	}

	bool connected(const EndpointLane &lane)
	{
		return !lane.number || lane.number == DatagramLane::lane_number || further_lane(lane.number);
	}
	// The further lane with this number; null: it is not connected now.
	EndpointLane *further_lane(unsigned number);
	// Each lane, another one first each time.
	template <class F>
	void for_each_lane(F &&function)
	{
		const size_t further = extras ? extras->lanes.size() : 0;
		if (DatagramLane *lane = datagrams())
			function(*lane);
		if (!further)
			return function(*this);
		const unsigned first = extras->turn++;
		for (size_t i = 0; i <= further; ++i) {
			const size_t at = (first + i) % (further + 1);
			EndpointLane *lane = at ? extras->lanes[at - 1].get() : this;
			if (lane)
				function(*lane);
		}
	}

private:
	bool has_work(const EndpointLane &lane) const
	{
		return !lane.streams.empty() || !lane.replies.empty() ||
		       (!lane.waiting.empty() && may_start(*lane.waiting.front()));
	}
	[[gnu::noinline]] bool further_work() const
	{
		return (extras->datagrams && (has_work(*extras->datagrams) || !extras->datagrams->unsent.empty())) ||
		       std::any_of(extras->lanes.begin(), extras->lanes.end(),
		                   [this](const auto &lane) { return lane && has_work(*lane); });
	}
};

inline EndpointLane *Peer::further_lane(unsigned wanted)
{
	Channel *further = channel ? channel->lane(wanted) : nullptr;
	if (!further)
		return nullptr;
	std::vector<std::unique_ptr<EndpointLane>> &lanes = make_extras().lanes;
	if (lanes.size() < wanted)
		lanes.resize(wanted);
	std::unique_ptr<EndpointLane> &lane = lanes[wanted - 1];
	if (!lane)
		lane = std::make_unique<EndpointLane>(wanted);
	lane->channel = further;
	return lane.get();
}

// The peers, and how frames get to them.
class Peers {
public:
	// `size`: ranks of the job.
	// `lanes`: of an endpoint, for calls; 0: as they are needed.
	Peers(Engine &engine, int size, uint32_t window, const CallDefaults &defaults, unsigned lanes)
	    : engine_(engine), size_(static_cast<size_t>(size)), window_(window), lanes_(lanes), defaults_(defaults)
	{
	}

	// Of calls to a rank.
	const CallDefaults &defaults_of(int rank) const
	{
		const Peer *peer = find(rank);
		return __builtin_expect(peer && peer->defaults(), 0) ? *peer->defaults() : defaults_;
	}
	// Of calls to all ranks that have none of their own.
	CallDefaults &defaults() { return defaults_; }

	// Made when it is first asked for.
	Peer &at(int rank)
	{
		Peer *peer = find(rank);
		return __builtin_expect(peer != nullptr, 1) ? *peer : make(rank);
	}
	uint32_t window() const { return window_; }
	unsigned lanes() const { return lanes_; }
	// Peer::thread before a call.
	uintptr_t any_thread() const { return lanes_ > 1 ? Callers::all_examined : 0; }
	// So many can be reached by datagram, as far as it was tried.
	size_t with_datagrams() const { return with_datagrams_; }
	// A peer that is down gets forgotten, as its rank will be somebody else; may_forget: nothing refers to it any more.
	bool may_forget(int rank) const
	{
		const Peer *p = find(rank);
		return !p || (!p->listed && !p->notices_wait && !p->in_flight && !p->results() &&
		              !(p->datagrams() && (p->datagrams()->listed || p->datagrams()->outstanding)) &&
		              std::all_of(p->served.begin(), p->served.end(), [](const Incoming *in) { return !in; }));
	}
	void forget(int rank)
	{
		if (Peer *p = find(rank)) {
			with_datagrams_ -= p->datagrams() != nullptr;
			peers_[static_cast<size_t>(rank)].reset();
		}
	}
	// Null: nothing was exchanged with it yet.
	Peer *find(int rank) const { return peers_.empty() ? nullptr : peers_[static_cast<size_t>(rank)].get(); }
	template <class F>
	void for_each(F &&function) const
	{
		for (const auto &peer : peers_)
			if (peer)
				function(*peer);
	}
	// Gives it a channel if it has none; false: it cannot be reached, and `status` says why.
	bool connect(Peer &peer, pt2p_status_t &status)
	{
		if (!peer.channel || peer.channel->down())
			peer.channel = engine_.channels().reach(peer.rank, status);
		return peer.channel != nullptr;
	}
	// The way to it by datagram, made when it is first asked for; null: there is none.
	DatagramLane *datagrams(Peer &peer)
	{
		DatagramLane *lane = peer.datagrams();
		return __builtin_expect(lane != nullptr, 1) ? lane : make_datagrams(peer);
	}
	// Bytes that follow a head in one message.
	static size_t room_after(const Channel &channel, size_t head)
	{
		return std::min(channel.endpoint.longest_piece(), longest_frame) - head;
	}
	// The same where what follows cannot be divided: such a message waits until a short ring is empty.
	static size_t whole_after(const Channel &channel, size_t head)
	{
		return std::min(channel.endpoint.max_send, longest_frame) - head;
	}
	// Sends a head and what follows it in one message, in one of the ways; false: there is no room now.
	bool send_by(Channel &channel, pt2p_delivery_t delivery, uint8_t id, uint64_t header, const void *head,
	             size_t head_length, const void *data, size_t length)
	{
		if (delivery == PT2P_DELIVERY_AUTO)
			return send(channel, id, header, head, head_length, data, length);
		unsigned char *const frame = large_frame();
		std::memcpy(frame, head, head_length);
		if (length)
			std::memcpy(frame + head_length, data, length);
		return engine_.send_by(channel, delivery, id, header, frame, head_length + length) == Outcome::done;
	}
	// The same, in any way.
	template <class Head>
	[[gnu::always_inline]] bool send(Channel &channel, uint8_t id, uint64_t header, const Head &head, const void *data,
	                                 size_t length)
	{
		return send(channel, id, header, &head, sizeof head, data, length);
	}
	[[gnu::always_inline]] bool send(Channel &channel, uint8_t id, uint64_t header, const void *head,
	                                 size_t head_length, const void *data, size_t length)
	{
		unsigned char few[256];
		unsigned char *const frame = __builtin_expect(head_length + length > sizeof few, 0) ? large_frame() : few;
		std::memcpy(frame, head, head_length);
		if (length)
			std::memcpy(frame + head_length, data, length);
		return channel.try_send(id, header, frame, head_length + length) == Outcome::done;
	}

	// It has work.
	void list(Peer &peer)
	{
		busy_.add(peer);
		engine_.wake_extensions();
	}
	bool busy() const { return !busy_.empty(); }
	template <class F>
	unsigned drive(F &&function)
	{
		return busy_.drive(function);
	}

private:
	static constexpr size_t longest_frame = 16384; // bytes

	[[gnu::noinline]] DatagramLane *make_datagrams(Peer &peer)
	{
		Peer::Extras &extras = peer.make_extras();
		if (extras.no_datagrams)
			return nullptr;
		try {
			if (Channel *channel = engine_.channels().router().datagrams(peer.rank))
				extras.datagrams = std::make_unique<DatagramLane>(*channel);
		} catch (const Error &) {
			return nullptr; // the connection, which is used instead, says why
		}
		extras.no_datagrams = !extras.datagrams;
		with_datagrams_ += !extras.no_datagrams;
		return extras.datagrams.get();
	}
	[[gnu::noinline]] Peer &make(int rank)
	{
		peers_.resize(size_); // a job without calls pays nothing for its ranks
		std::unique_ptr<Peer> &peer = peers_[static_cast<size_t>(rank)];
		peer = std::make_unique<Peer>();
		peer->rank = rank;
		peer->window = static_cast<uint16_t>(window_);
		peer->thread = any_thread();
		return *peer;
	}
	[[gnu::noinline]] unsigned char *large_frame()
	{
		frame_.resize(longest_frame);
		return frame_.data();
	}

	Engine &engine_;
	const size_t size_;
	const uint32_t window_;
	const unsigned lanes_;
	CallDefaults defaults_;
	std::vector<std::unique_ptr<Peer>> peers_; // by rank
	WorkList<Peer> busy_;
	std::vector<unsigned char> frame_;
	size_t with_datagrams_ = 0;
};

} // namespace pt2p::rpc
