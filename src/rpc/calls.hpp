// The caller's side: calls that this rank makes, from the start to the reply.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "rpc/peer.hpp"

namespace pt2p::rpc {

// What the program asks for.
struct CallWork {
	int rank;
	uint32_t service;
	const void *input;
	size_t length;
	void *reply = nullptr;
	size_t capacity = 0;
	uintptr_t thread = 0; // that makes it; 0: there is only one
	uint16_t lane = 0;
	int64_t deadline = 0; // ns from now on; 0: none
	CallDelivery by = {};
	// Null, or with windows or room().
	const pt2p_call_options_t *rare = nullptr;
};

class Calls {
public:
	// `fetch_bytes`: of the first READ of a result; 0: learnt.
	Calls(Engine &engine, Reporter &reporter, Peers &peers, Windows &windows, size_t fetch_bytes);

	// Null: it cannot be started, and `status` says why.
	Request *call(const CallWork &work, pt2p_status_t &status);
	// A call without a reply. The input is the caller's again on return.
	pt2p_status_t notice(const CallWork &work);
	// The program would rather not have it. A call that has not left is cancelled.
	void cancel(Request &request);

	// What the server sends. Null, or what is wrong with it.
	const char *on_short_reply(Peer &peer, uint64_t number, const void *data, size_t length);
	const char *on_reply(Peer &peer, uint64_t number, const void *data, size_t length);
	const char *on_rest(Peer &peer, uint64_t number, const void *data, size_t length);
	const char *on_pushed(Peer &peer, uint64_t number, const void *data, size_t length);
	const char *on_taken(Peer &peer, uint64_t count);
	const char *on_results(Peer &peer, uint64_t slots, const void *data, size_t length);

	// Sends what there is room for; returns how many messages went.
	unsigned drive(Peer &peer);
	// Ends calls whose deadline has passed.
	unsigned drive_deadlines();
	bool awaits_deadlines() const { return !deadlines_.empty(); }
	// Finds places for replies, and fetches those that are lent.
	unsigned drive_replies();
	bool has_replies() const { return !placing_.empty() || !fetching_.empty(); }
	// The same by datagram (datagrams.hpp).
	void on_datagram(Peer &peer, uint8_t id, uint64_t header, const void *data, size_t length);
	void on_immediate(uint32_t word);
	void on_gone(Peer &peer);
	// Sends again what has had no reply for long; to be called about every millisecond.
	void tick(int64_t now);
	void examine_silent();
	// READs results whose time has come; returns how many.
	unsigned drive_fetches();
	bool fetches() const { return !agenda_.empty(); }
	void on_read(uint64_t fetch, pt2p_status_t status);
	// This rank goes to sleep: results are to be pushed.
	void before_sleep();
	// All calls to that rank end; only those that have not left.
	void end(Peer &peer, pt2p_status_t status, std::string_view reason, bool only_waiting);

	// How many calls and notices wait here.
	size_t waiting(Peer &peer) const;
	size_t pending() const { return pending_; }
	// Of these, those without a request.
	size_t unawaited() const;

private:
	[[gnu::always_inline]] inline Outgoing &make(const CallWork &work, Peer &peer);
	[[gnu::noinline]] Request *call_lossy(const CallWork &work, Peer &peer, pt2p_status_t &status);
	// Whether the result may be fetched, and the caller or the service wants that.
	static bool wants_fetch(const Outgoing &o)
	{
		const FetchSource *source = o.peer->source();
		return __builtin_expect(source != nullptr, 0) && source->usable &&
		       (o.by.reply == PT2P_DELIVERY_READ || (!o.by.reply && source->asks(o.service)));
	}
	[[gnu::noinline]] void prepare_fetch(Outgoing &o);
	[[gnu::noinline]] void begin_fetch(Outgoing &o);
	void read(Fetch &f);
	void look_later(Fetch &f, int64_t due);
	void examine(Fetch &f);
	void miss(Fetch &f);
	void take_result(Fetch &f, const ResultHead &head);
	void push_it(Outgoing &o, bool look);
	[[gnu::noinline]] bool end_looks(Outgoing &o);
	void give(Fetch &f);
	[[gnu::noinline]] const char *unknown(Peer &peer, uint8_t id, uint64_t number, const void *data, size_t length);
	[[gnu::noinline]] CallDelivery datagram_way(Peer &peer, const CallWork &work);
	[[gnu::noinline]] void on_asked(Peer &peer, bool by_datagram);
	bool goes_as_asked(Outgoing &o);
	bool usable(const DatagramLane &lane, int rank) const;
	bool send_lossy(Outgoing &o);
	[[gnu::noinline]] void end_lossy(Outgoing &o);
	void repeat(Outgoing &o);
	[[gnu::noinline]] void choose_path(Outgoing &o, uintptr_t thread);
	void choose_lane(Outgoing &o, uintptr_t thread);
	unsigned drive(Peer &peer, EndpointLane &lane);
	static void fall_back(EndpointLane &lane, Peer &peer);
	[[gnu::noinline]] void add_deadline(Outgoing &o, int64_t span);
	[[gnu::noinline]] void add_rare(Outgoing &o, const CallWork &work);
	[[gnu::always_inline]] inline void start_or_queue(Outgoing &o);
	[[gnu::noinline]] void wait_for_slot(Outgoing &o);
	[[gnu::always_inline]] inline bool start(Outgoing &o);
	[[gnu::noinline]] bool start_notice(Outgoing &o);
	// What a lane sees of an input or reply: longer ones are lent, and move beside it.
	static size_t bytes_of_messages(size_t length) { return length < lent_from ? length : sizeof(LentMemory); }
	void queue_notice(Outgoing &o);
	unsigned drive_notices(Peer &peer);
	void unqueue_notice(Outgoing &o);
	void end_notices(Peer &peer);
	static CallHead head_of(const Outgoing &o);
	bool lend(Outgoing &o);
	[[gnu::noinline]] bool send_call(Outgoing &o);
	bool stream(Outgoing &o);
	Outgoing *find(const Peer &peer, uint64_t number) const;
	[[gnu::always_inline]] inline void begin_reply(Outgoing &o, const void *bytes, size_t length);
	[[gnu::always_inline]] inline void take_bytes(Outgoing &o, const void *data, size_t length);
	static bool place_pushed(Outgoing &o, size_t offset, const unsigned char *bytes, size_t length);
	[[gnu::noinline]] void place_later(Outgoing &o);
	[[gnu::noinline]] void gather(Outgoing &o);
	bool place(Outgoing &o);
	void end_fetch(Outgoing &o, pt2p_status_t status);
	[[gnu::always_inline]] inline void complete(Outgoing &o, pt2p_status_t status, std::string_view reason = {});
	[[gnu::always_inline]] inline void free_slot(Outgoing &o);
	[[gnu::always_inline]] inline void free_slot(Peer &peer, uint16_t slot);
	void forget(Outgoing &o);
	[[gnu::always_inline]] inline void forget_at_once(Outgoing &o);
	[[gnu::noinline]] void forget_rare(Outgoing &o);
	void give_up(Outgoing &o);

	Engine &engine_;
	Reporter &reporter_;
	Peers &peers_;
	Windows &windows_;
	const size_t fetch_bytes_;
	HandlePool<Outgoing> pool_;
	Pool<Rare> rares_;
	Fifo<Outgoing> placing_, fetching_;
	std::map<int, Fifo<Outgoing>> notices_; // that wait, by rank; an entry stays once it is there
	BufferPool buffers_;
	Deadlines deadlines_;
	HandlePool<Fetch> fetches_;
	Agenda agenda_;
	size_t in_fetch_ = 0;                             // objects of fetches_
	static constexpr int64_t tick_period = 1'000'000; // ns
	static constexpr uint32_t calls_unchecked = 64;
	std::unique_ptr<Tokens> tokens_; // null: no call by datagram was made
	std::vector<Peer *> repeating_;  // with calls that may have to be sent again
	std::vector<int> silent_;        // ranks that have not replied for long
	uint32_t lossy_calls_ = 0;
	int64_t last_tick_ = 0;
	size_t pending_ = 0;
};

// The program gets its request back.
inline void Calls::complete(Outgoing &o, pt2p_status_t status, std::string_view reason)
{
	deadlines_.remove(o);
	if (__builtin_expect(o.rare != nullptr, 0))
		windows_.take_back(o.rare->lent);
	if (!o.request)
		return;
	Request &r = *o.request;
	o.request = nullptr;
	r.message_tag = o.word;
	r.length = o.reply_length;
	if (__builtin_expect(!reason.empty(), 0))
		engine_.requests().keep_reason(r, reason);
	engine_.requests().complete(r, status);
}

inline void Calls::free_slot(Outgoing &o)
{
	Peer &peer = *o.peer;
	const auto slot = static_cast<uint16_t>(slot_of(o.number));
	peer.slots[slot] = nullptr;
	if (__builtin_expect(o.fetch != nullptr, 0) && !end_looks(o))
		return; // once its READ has ended
	if (__builtin_expect(peer.extras != nullptr, 0)) {
		if (o.caller)
			o.caller->bytes += bytes_of_messages(o.reply_length);
		if (o.lossy)
			end_lossy(o);
	}
	free_slot(peer, slot);
}

inline void Calls::free_slot(Peer &peer, uint16_t slot)
{
	--peer.in_flight;
	peer.free_slots.push_back(slot);
	if (__builtin_expect(!peer.waiting.empty() || (peer.extras && peer.further_wait()), 0))
		peers_.list(peer);
}

} // namespace pt2p::rpc
