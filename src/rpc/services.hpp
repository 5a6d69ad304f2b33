// The server's side: services, the calls of others that they have, and the replies.
//
// Calls to a service without lanes are handled at the end of a turn, as callbacks are. Those to one with lanes wait in
// their lane until a thread of the program serves it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.hpp"
#include "base/report/report.hpp"
#include "pt2p.h"
#include "rpc/laws/way_back.hpp"
#include "rpc/peer.hpp"

namespace pt2p::rpc {

constexpr uint32_t max_lanes = 65536;

struct Service {
	uint64_t handle = 0; // see HandlePool
	Service *next_free = nullptr;
	bool open = false; // for new calls
	uint32_t id = 0;
	pt2p_handler_t handler = nullptr;
	void *argument = nullptr;
	size_t input_max = 0;
	uint8_t reply_by = PT2P_DELIVERY_AUTO; // where the caller does not say
	struct Lane {
		Fifo<Incoming> queue;
		size_t length = 0;
	};
	std::vector<Lane> lanes; // none: handled in progress
	size_t running = 0;      // calls that were started and have not ended
	size_t users = 0;        // threads in pt2p_serve

	struct User {
		explicit User(Service &s) : service(s) { ++service.users; }
		~User() { --service.users; }
		User(const User &) = delete;
		User &operator=(const User &) = delete;
		Service &service;
	};
	bool in_use() const { return running || users; }

	Lane &lane(uint32_t n) { return lanes[n % lanes.size()]; }
};

class Services {
public:
	// `queue`: calls that may wait in a lane.
	// `header_only`: replies by datagram that are a word may go without payload.
	Services(Engine &engine, Reporter &reporter, Peers &peers, Windows &windows, Results &results, size_t queue,
	         bool header_only, pt2p_context_t *context);

	Service *find(uint64_t handle) const;
	// Null: that id is open already.
	Service *open(uint32_t id, pt2p_handler_t handler, void *argument, const pt2p_service_options_t &options);
	// Takes no more calls, and refuses those that wait. The second does so for all services.
	void refuse_all(Service &service);
	void refuse_all();
	// This rank finalizes: no result is left to be fetched.
	void leave();
	// Once none of its calls is running.
	void close(Service &service);

	// Calls the handler with a call that waits in the lane; false: none does. `call` runs a function of the program
	// without the lock.
	template <class F>
	bool serve(Service &service, uint32_t lane, const F &call)
	{
		Service::Lane &its_lane = service.lane(lane);
		Incoming *in = take_queued(its_lane.queue, &its_lane.length);
		if (!in)
			return false;
		run(*in, call);
		return true;
	}

	// A call that was started and has no reply, by the program's handle.
	Incoming *find_running(const pt2p_call_t *call) const
	{
		Incoming *in = pool_.find(reinterpret_cast<uint64_t>(call));
		return in && in->state == Incoming::State::running ? in : nullptr;
	}
	void reply(Incoming &in, uint64_t word, const void *data, size_t length);
	// Memory for the reply, which reply() then need not copy.
	void *room(Incoming &in, size_t length);
	// The caller learns that there will be no reply.
	void abandon(Incoming &in);
	// Moves bytes between the caller's memory and this rank's.
	pt2p_status_t pull(Incoming &in, Window window, void *to, size_t offset, size_t length, pt2p_request_t **req);
	pt2p_status_t push(Incoming &in, const void *from, size_t offset, size_t length, pt2p_request_t **req);

	// What callers send. Null, or what is wrong with it.
	const char *on_short_call(Peer &peer, uint64_t number, const void *data, size_t length);
	// `admitted`: it has come by datagram, for the first time.
	const char *on_call(Peer &peer, uint64_t number, bool notice, const void *data, size_t length,
	                    bool admitted = false);
	const char *on_more(Peer &peer, uint64_t number, const void *data, size_t length);
	const char *on_cancel(Peer &peer, uint64_t number, const void *data, size_t length);
	const char *on_fetched(Peer &peer, uint64_t number);
	const char *on_push_it(Peer &peer, uint64_t number);

	// The same by datagram (datagrams.hpp).
	void on_datagram(Peer &peer, uint8_t id, uint64_t header, const void *data, size_t length);
	void leave_datagrams();

	// Sends what there is room for; returns how many messages went.
	unsigned drive(Peer &peer);
	// Goes on with calls whose transfers have ended.
	unsigned drive_transfers();
	bool has_transfers() const { return !settling_.empty(); }
	// Handles calls to services without lanes.
	unsigned drive_handlers();
	bool has_calls() const { return !ready_.empty(); }
	bool has_several_calls() const { return has_calls() && ready_.front()->next; }
	// That rank takes no replies any more.
	void end(Peer &peer);

	size_t pending() const { return pending_; }
	// Of a few calls, so many bytes; for advice. No calls: none was looked at.
	struct Sample {
		uint64_t calls = 0, input = 0, reply = 0;
		uint64_t by_datagram = 0; // of the calls, those that were replied to so
	};
	const Sample &sample() const { return sample_; }
	bool leaves_results() const // for most calls
	{
		return 2 * reporter_.read(Counter::results_stored) > reporter_.read(Counter::calls_served);
	}
	// All calls of others.
	template <class F>
	void for_each_call(F &&function) const
	{
		pool_.for_each([&](Incoming &in) {
			if (in.state != Incoming::State::free)
				function(in);
		});
	}

private:
	template <class F>
	void run(Incoming &in, const F &call)
	{
		Service &service = *in.service;
		in.state = Incoming::State::running;
		in.started = in.handling = true;
		++service.running;
		reporter_.add(Counter::calls_served);
		call([&] {
			service.handler(context_, reinterpret_cast<pt2p_call_t *>(in.handle), in.visible(), in.length,
			                service.argument);
		});
		in.handling = false;
		if (in.notice && in.state == Incoming::State::running)
			forget(in);
		else if (in.state == Incoming::State::ended)
			release(in);
	}
	static Incoming *served_in(const Peer &peer, uint32_t slot)
	{
		return slot < peer.served.size() ? peer.served[slot] : nullptr;
	}
	[[gnu::always_inline]] inline Incoming &make(Peer &peer, uint64_t number);
	bool may_come(const Peer &peer, uint64_t number)
	{
		return slot_of(number) < max_slots && (!served_in(peer, slot_of(number)) || was_fetched(peer, number));
	}
	[[gnu::noinline]] bool was_fetched(const Peer &peer, uint64_t number);
	[[gnu::always_inline]] inline void enter(Incoming &in);
	[[gnu::always_inline]] inline void take_input(Incoming &in, uint32_t service, const unsigned char *bytes);
	Service *service_of(uint32_t id)
	{
		return __builtin_expect(last_ && last_->id == id, 1) ? last_ : find_service(id);
	}
	[[gnu::noinline]] Service *find_service(uint32_t id)
	{
		const auto found = by_id_.find(id);
		return last_ = found == by_id_.end() ? nullptr : found->second;
	}
	// The next call of a queue that is to be started; null: there is none.
	Incoming *take_queued(Fifo<Incoming> &queue, size_t *length)
	{
		while (!queue.empty()) {
			Incoming &in = queue.pop();
			if (length)
				--*length;
			if (__builtin_expect(!in.deadline || now_ns() < in.deadline, 1))
				return &in;
			refuse(in, PT2P_ERR_DEADLINE);
		}
		return nullptr;
	}
	[[gnu::always_inline]] inline void queue(Incoming &in);
	void unqueue(Incoming &in);
	void stop(Incoming &in, pt2p_status_t status);
	void settle_later(Incoming &in);
	void settle(Incoming &in);
	static size_t length_of_windows(unsigned windows, const unsigned char *bytes, size_t length, Carried &carried);
	const unsigned char *note_windows(Incoming &in, unsigned windows, const unsigned char *bytes,
	                                  const Carried &carried);
	void fetch_input(Incoming &in);
	bool send_pushed(Channel &channel, Incoming &in);
	// The lane for the reply, once there is a channel. Only the first has a write ring.
	static EndpointLane &lane_for(const Incoming &in)
	{
		const bool goes_back = __builtin_expect(in.lanes.back != 0, 0) && in.reply_by != PT2P_DELIVERY_WRITE;
		EndpointLane *further = goes_back ? in.peer->further_lane(in.lanes.back) : nullptr;
		return further ? *further : *in.peer;
	}
	[[gnu::always_inline]] inline const char *take_short_call(Peer &peer, uint64_t number, const void *data,
	                                                          size_t length, pt2p_delivery_t reply_by);
	void on_short_datagram(Peer &peer, uint64_t number, const void *data, size_t length);
	bool admit(Peer &peer, DatagramLane &lane, uint64_t header);
	void repeat_reply(DatagramLane &lane, uint32_t slot, uint32_t call);
	bool fits_datagrams(const Incoming &in);
	bool reply_by_datagram(Incoming &in, const void *data);
	bool send_stored(DatagramLane &lane, const DatagramSlot &slot, uint64_t number, int64_t difference);
	unsigned drive_datagrams(Peer &peer);
	unsigned drive(Peer &peer, EndpointLane &lane);
	void fall_back(EndpointLane &lane, Peer &peer);
	[[gnu::noinline]] bool leave_result(Incoming &in, const void *data);
	laws::Ways ways_of(const Incoming &in);
	void choose(laws::Ways can, laws::Way took);
	void push_result(Peer &peer, uint64_t number);
	[[gnu::always_inline]] inline bool send_at_once(Incoming &in, const void *data);
	[[gnu::noinline]] void send_reply(Incoming &in, const void *data);
	void keep_reply(Incoming &in, const void *data);
	void give_slot_back(Incoming &in);
	void refuse(Incoming &in, pt2p_status_t status);
	void reply_without_data(Incoming &in, pt2p_status_t status);
	bool send_some(Channel &channel, Incoming &in);
	void forget(Incoming &in);
	void release(Incoming &in);
	void take_notice(Peer &peer);

	Engine &engine_;
	Reporter &reporter_;
	Peers &peers_;
	Windows &windows_;
	Results &results_;
	bool leaving_ = false;
	laws::WayBack way_; // of calls that leave it to the library
	// Calls until the law sees one; 0: it sees each, or callers are to fetch.
	int64_t quiet_ = static_cast<int64_t>(way_.due());
	Sample sample_;
	const size_t queue_;
	const bool header_only_;
	uint32_t batch_ = 0; // of handlers, whose replies leave together
	pt2p_context_t *const context_;
	HandlePool<Service> services_;
	std::unordered_map<uint32_t, Service *> by_id_; // those that are open
	Service *last_ = nullptr;                       // of these, the one that was called last
	HandlePool<Incoming> pool_;
	BufferPool buffers_;
	Fifo<Incoming> ready_;
	Fifo<Incoming> settling_;
	size_t pending_ = 0;
};

inline Incoming &Services::make(Peer &peer, uint64_t number)
{
	Incoming &in = *pool_.take();
	in.peer = &peer;
	in.caller = peer.rank;
	in.service = nullptr;
	in.state = Incoming::State::coming;
	in.notice = in.cancelled = in.handling = false;
	in.withheld = in.late = in.fetched = in.fetches = in.asked = false;
	in.refusal = PT2P_OK;
	in.reply_by = PT2P_DELIVERY_AUTO;
	in.lanes = {};
	in.number = number;
	in.deadline = 0;
	in.length = in.received = in.moved = 0;
	in.reply = {};
	++pending_;
	return in;
}

// It occupies its slot.
inline void Services::enter(Incoming &in)
{
	Peer &peer = *in.peer;
	const uint32_t slot = slot_of(in.number);
	if (__builtin_expect(slot >= peer.served.size(), 0))
		peer.served.resize(slot + size_t{1});
	peer.served[slot] = &in;
}

// It can be started.
inline void Services::queue(Incoming &in)
{
	Service &s = *in.service;
	if (s.lanes.empty()) {
		ready_.push(in);
	} else {
		Service::Lane &lane = s.lane(in.lanes.service);
		if (lane.length >= queue_)
			return refuse(in, PT2P_ERR_BUSY);
		lane.queue.push(in);
		++lane.length;
	}
	in.state = Incoming::State::queued;
	engine_.wake_extensions();
}

} // namespace pt2p::rpc
