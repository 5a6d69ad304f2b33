// The message engine: MPI-style two-sided messages over channels. It knows tags, ranks, order, eager and rendezvous; it
// knows nothing of how a transport moves bytes. wire.hpp draws what engines send each other.
//
// The engine holds the parts, has the short path of a message, and passes on what transports tell. Each other idea has
// a class:
//
//   Sends, Receives                    starting operations; matching
//   Rendezvous                         messages that are announced before their data moves
//   Requests, Callbacks                how operations end
//   Channels, PeerLosses, AwaitedPeers the peers: connected, lost, waited for
//   Barrier
#pragma once

#include <cstdint>
#include <string>

#include "message/barrier.hpp"
#include "message/extension.hpp"
#include "message/layers.hpp"
#include "message/peers/awaited.hpp"
#include "message/peers/channels.hpp"
#include "message/peers/losses.hpp"
#include "message/receives.hpp"
#include "message/rendezvous/rendezvous.hpp"
#include "message/request/callbacks.hpp"
#include "message/request/requests.hpp"
#include "message/sends.hpp"
#include "message/wire.hpp"
#include "progress/progress.hpp"
#include "route/route.hpp"

namespace pt2p {

struct RankEvent;

class Engine final : public SendPacing, public TransportEvents, public ChannelClient, public ProgressClient {
public:
	Engine(const Config &config, Reporter &reporter, Job &job);
	void use(Router &router, Progress &progress, pt2p_context_t *context)
	{
		layers_ = {&router, &progress};
		callbacks_.use(context);
	}
	bool is_rank(int rank) const { return static_cast<unsigned>(rank) < static_cast<unsigned>(size_); }

	// For the layers of one-sided operations and of calls.
	void extend(Extension &extension)
	{
		extensions_.push_back(&extension);
		extension_of_[extension.range.block()] = &extension;
	}
	const Extensions &extensions() const { return extensions_; }
	// Has the extensions driven in the next turn.
	void wake_extensions()
	{
		has_work = true;
		layers_.progress->nudge(); // no thread may be looking
	}
	// A request for an operation on memory of `peer`, or for a call to one of its services; Requests::complete() ends
	// it.
	Request *start_one_sided(const char *operation, size_t length, int peer, uint64_t offset)
	{
		return start_special(Request::no_source, operation, length, peer, offset);
	}
	Request *start_call(size_t length, int peer, uint32_t service)
	{
		return start_special(Request::call_source, "call", length, peer, service);
	}

	// As Sends::isend and Receives::irecv where nothing is out of the ordinary: no memory to get, no message waiting,
	// no rank lost. False, or null: nothing has happened, and the full path is needed.
	// Everything is in place before the message leaves, so that nothing has to be kept over the call.
	bool isend_at_once(const void *buffer, size_t length, int dest, uint64_t tag, pt2p_request_t **req)
	{
		Request *r = requests_.peek();
		Channel *c = layers_.router->find(dest);
		if (__builtin_expect(!r || !c || !c->free_for(length), 0))
			return false;
		r->start_send(length, dest, tag, Request::State::done);
		r->buffer = const_cast<void *>(buffer);
		*req = to_handle(r);
		requests_.take(*r);
		sends_.count_eager(length);
		if (__builtin_expect(c->send(wire::id_eager, tag, buffer, length) != Outcome::done, 0))
			sends_.queue_or_announce(*r);
		return true;
	}
	[[gnu::always_inline]] Request *irecv_at_once(void *buffer, size_t capacity, int source, uint64_t tag,
	                                              uint64_t mask)
	{
		return irecv_if(&Matcher::post_at_once, buffer, capacity, source, tag, mask);
	}
	// The same for a receive that leaves the same bits open as others. Not part of irecv_at_once: a call within it
	// would make every receive save registers.
	Request *irecv_like_others(void *buffer, size_t capacity, int source, uint64_t tag, uint64_t mask);
	// Sends a short message without a request; false when it takes one.
	bool send_at_once(const void *buffer, size_t length, int dest, uint64_t tag)
	{
		Channel *c = layers_.router->find(dest);
		if (__builtin_expect(
		        !c || !c->free_for(length) || c->send(wire::id_eager, tag, buffer, length) != Outcome::done, 0))
			return false;
		sends_.count_eager(length);
		return true;
	}
	// The same with a word beside the payload.
	bool send_at_once(uint64_t data, const void *buffer, size_t length, int dest, uint64_t tag)
	{
		constexpr size_t max = 256; // longer ones take the full path
		unsigned char staged[sizeof data + max];
		Channel *c = layers_.router->find(dest);
		if (length > max || !c || !c->free_for(sizeof data + length))
			return false;
		std::memcpy(staged, &data, sizeof data);
		if (length)
			std::memcpy(staged + sizeof data, buffer, length);
		if (c->send(wire::id_with_data, tag, staged, sizeof data + length) != Outcome::done)
			return false;
		sends_.count_eager(length);
		return true;
	}
	// As Channel::try_send, in that way if a device is between.
	Outcome send_by(Channel &channel, pt2p_delivery_t delivery, uint8_t id, uint64_t header, const void *data,
	                size_t length)
	{
		return layers_.router->send_by(channel, delivery, id, header, data, length);
	}
	// How messages to that rank are delivered from now on; connects.
	pt2p_status_t set_delivery(int rank, pt2p_delivery_t delivery);

	Sends &sends() { return sends_; }
	Receives &receives() { return receives_; }
	const Receives &receives() const { return receives_; }
	Requests &requests() { return requests_; }
	const Requests &requests() const { return requests_; }
	Callbacks &callbacks() { return callbacks_; }
	Channels &channels() { return channels_; }
	PeerLosses &losses() { return losses_; }
	const PeerLosses &losses() const { return losses_; }
	AwaitedPeers &awaited() { return awaited_; }
	Barrier &barrier() { return barrier_; }
	const Barrier &barrier() const { return barrier_; }

	// For pt2p_finalize: whether sends, or detached operations, are under way; what is left, in words.
	bool pending() const;
	std::string unfinished() const;
	// It has given up waiting: every callback that has not been called is, and none can be asked for any more.
	void end_detached();

	// From the transports.
	void on_message(int peer, uint8_t id, uint64_t header, const void *data, size_t length) override;
	void on_datagram(int peer, uint8_t id, uint64_t header, const void *data, size_t length) override;
	void on_immediate(uint32_t word) override;
	void on_complete(void *operation, pt2p_status_t status, std::string_view reason) override;
	void on_peer_down(int peer, pt2p_status_t status, std::string_view reason) override;
	void on_connect_failure(int peer, pt2p_status_t status) override { barrier_.on_connect_failure(peer, status); }
	void on_refused(int peer, pt2p_status_t status, std::string_view reason) override;
	void on_limits_changed(int peer) override
	{
		if (Channel *c = channels_.find(peer))
			c->refresh();
	}
	// From channels and progress.
	void on_sent(void *owner) override { requests_.complete(*static_cast<Request *>(owner), PT2P_OK); }
	unsigned drive() override;
	unsigned call_back() override { return callbacks_.run(); }
	void cork(bool corked) override { cork_transports(corked, true); }
	void check() override;
	void tick(int64_t now) override
	{
		for (Extension *e : extensions_)
			e->tick(now);
	}
	void before_sleep() override
	{
		for (Extension *e : extensions_)
			e->before_sleep();
	}

private:
	// post: of the matcher, whether it has posted the receive. Null: it has not, and nothing has happened.
	[[gnu::always_inline]] Request *irecv_if(bool (Matcher::*post)(PostedReceive &), void *buffer, size_t capacity,
	                                         int source, uint64_t tag, uint64_t mask)
	{
		Request *r = requests_.peek();
		if (__builtin_expect(!r || (receives_.matcher().unexpected() | losses_.count()), 0))
			return nullptr;
		r->start_receive(buffer, capacity, source, tag, mask);
		if (__builtin_expect(!(receives_.matcher().*post)(*r), 0)) {
			r->state = Request::State::free;
			return nullptr;
		}
		requests_.take(*r);
		return r;
	}
	[[gnu::noinline]] void on_eager_otherwise(Request *request, int peer, uint64_t tag, const void *data,
	                                          size_t length);
	[[gnu::noinline]] void on_control(int peer, uint8_t id, uint64_t header, const void *data, size_t length);
	bool may_send_several() const;
	void cork_transports(bool corked, bool bundles);
	void on_stop_eager(int peer, bool stop);
	void fail_receives_from_nobody();
	void forget_peers();
	bool forget_peer(int rank, bool drop_messages);
	void on_rank_event(const RankEvent &event);
	Request *start_special(int source, const char *operation, size_t length, int peer, uint64_t tag);

	Reporter &reporter_;
	Job &job_;
	const int rank_, size_;
	Layers layers_;
	Extensions extensions_;
	Extension *extension_of_[ExtensionRange::blocks] = {}; // by block of ids

	// Each is given those before it.
	DetailsPool details_;
	PeerLosses losses_;
	Channels channels_;
	Exposures exposures_;
	Requests requests_;
	Callbacks callbacks_;
	Rendezvous rendezvous_;
	Sends sends_;
	Receives receives_;
	Barrier barrier_;
	AwaitedPeers awaited_;
};

} // namespace pt2p
