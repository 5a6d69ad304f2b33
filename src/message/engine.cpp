#include "message/engine.hpp"

#include <algorithm>
#include <set>

#include "base/config/config.hpp"
#include "base/job/job.hpp"
#include "message/request/explain.hpp"
#include "route/forward/forwarding.hpp"

namespace pt2p {

static_assert(one_sided_range.last_id < id_forwarded && calls_range.last_id < one_sided_range.first_id);

Engine::Engine(const Config &config, Reporter &reporter, Job &job)
    : TransportEvents(*static_cast<SendPacing *>(this)), reporter_(reporter), job_(job), rank_(job.rank()),
      size_(job.size()), losses_(reporter, size_, job.open()), channels_(layers_, losses_, reporter, *this, *this),
      exposures_(layers_, details_, reporter),
      requests_(layers_, losses_, exposures_, details_, reporter, *this, rank_),
      callbacks_(layers_, requests_, reporter),
      rendezvous_(config, reporter, losses_, channels_, exposures_, requests_, *this),
      sends_(reporter, channels_, requests_, rendezvous_),
      receives_(config, reporter, rank_, losses_, channels_, requests_, rendezvous_),
      barrier_(layers_, channels_, losses_, reporter, rank_, size_), awaited_(layers_, job, losses_, *this)
{
}

Request *Engine::start_special(int source, const char *operation, size_t length, int peer, uint64_t tag)
{
	Request *r = requests_.take();
	r->start_receive(nullptr, length, source, tag, 0);
	r->state = Request::State::one_sided;
	r->peer = peer;
	r->message_tag = 0;
	r->length = length;
	r->operation = operation;
	r->exposed = false;
	return r;
}

pt2p_status_t Engine::set_delivery(int rank, pt2p_delivery_t delivery)
{
	pt2p_status_t status = PT2P_OK;
	Channel *c = channels_.reach(rank, status);
	if (!c)
		return status;
	layers_.router->set_delivery(*c, delivery);
	c->refresh();
	return PT2P_OK;
}

// ---- turns ----------------------------------------------------------------------------------------------------------

bool Engine::may_send_several() const
{
	return channels_.busy() || rendezvous_.has_work() ||
	       std::any_of(extensions_.begin(), extensions_.end(),
	                   [](const Extension *e) { return e->may_send_several(); });
}

void Engine::cork_transports(bool corked, bool bundles)
{
	for (DeviceTransport *t : layers_.router->device_transports())
		t->cork(corked, bundles);
}

unsigned Engine::drive()
{
	const bool corked = !layers_.router->device_transports().empty() && may_send_several();
	// With one thread, each message of the program is a work request of its own, also if it had to wait.
	if (corked)
		cork_transports(true, layers_.progress->locking());
	unsigned n = channels_.busy() ? channels_.drive() : 0;
	if (corked)
		cork_transports(true, true);
	for (Extension *e : extensions_)
		if (e->has_work())
			n += e->drive();
	if (rendezvous_.has_work())
		n += rendezvous_.drive();
	if (corked)
		cork_transports(false, false);
	has_work = channels_.busy() || rendezvous_.has_work();
	for (const Extension *e : extensions_)
		has_work |= e->has_work();
	return n;
}

void Engine::check()
{
	job_.check();
	// Before the transports look: the launcher knows more of a rank's end than they can see.
	RankEvent event;
	while (job_.has_events() && job_.next_event(event))
		if (is_rank(event.rank) && event.rank != rank_) {
			on_rank_event(event);
			job_.handled(event.rank);
		}
	requests_.for_each([this](const Request &r) {
		if (r.state == Request::State::posted)
			awaited_.examine(r.source);
	});
	if (job_.open())
		fail_receives_from_nobody();
	awaited_.examine_calls();
	if (job_.without_launcher() > 0)
		awaited_.examine(barrier_.awaited()); // else those that it sends tokens to can tell of it
	for (Transport *t : layers_.router->layers())
		t->check();
	for (Extension *e : extensions_)
		e->check();
	if (job_.open())
		forget_peers();
}

void Engine::forget_peers()
{
	int rank;
	bool removed;
	for (size_t position = 0; job_.next_to_forget(position, rank, removed);)
		if (forget_peer(rank, removed)) {
			job_.forgotten(rank);
			position = 0;
		}
}

// Whoever gets the number next must not be taken for this peer anywhere. False: something still refers to it.
bool Engine::forget_peer(int rank, bool drop_messages)
{
	if (!losses_.contain(rank))
		return false;
	bool named = false;
	requests_.for_each([&](const Request &r) {
		const bool under_way = r.state == Request::State::posted || r.state == Request::State::moving ||
		                       r.state == Request::State::one_sided;
		named |= under_way && (r.peer == rank || r.source == rank);
	});
	Router &router = *layers_.router;
	if (named || !receives_.may_forget(rank, drop_messages) || !router.may_forget(rank) ||
	    !std::all_of(extensions_.begin(), extensions_.end(), [rank](Extension *e) { return e->may_forget(rank); }))
		return false;
	receives_.forget(rank);
	for (Extension *e : extensions_)
		e->forget_peer(rank);
	router.forget_peer(rank);
	awaited_.forget(rank);
	losses_.forget(rank);
	return true;
}

void Engine::fail_receives_from_nobody()
{
	requests_.for_each([this](Request &r) {
		if (r.state != Request::State::posted || r.source < 0 || !job_.nobody_has(r.source))
			return;
		receives_.matcher().withdraw(r);
		r.peer = r.source;
		requests_.complete(r, PT2P_ERR_RANK, "no peer of this context has that number");
	});
}

// ---- arrivals -------------------------------------------------------------------------------------------------------

// Nothing that it calls comes back, and what it calls takes the same `this`: short messages pay for no more than they
// need.
void Engine::on_message(int peer, uint8_t id, uint64_t header, const void *data, size_t length)
{
	if (__builtin_expect(id != wire::id_eager, 0))
		return on_control(peer, id, header, data, length);
	Request *r = receives_.match_at_once(peer, header);
	if (__builtin_expect(!r || !receives_.deliver_at_once(*r, peer, header, data, length), 0))
		on_eager_otherwise(r, peer, header, data, length);
}

Request *Engine::irecv_like_others(void *buffer, size_t capacity, int source, uint64_t tag, uint64_t mask)
{
	return irecv_if(&Matcher::post_like_others, buffer, capacity, source, tag, mask);
}

void Engine::on_eager_otherwise(Request *r, int peer, uint64_t tag, const void *data, size_t length)
{
	if (r)
		receives_.deliver_otherwise(*r, data);
	else
		receives_.on_eager(peer, tag, data, length);
}

void Engine::on_datagram(int peer, uint8_t id, uint64_t header, const void *data, size_t length)
{
	Extension *e = extension_of_[ExtensionRange::block_of(id)];
	if (e && !losses_.contain(peer))
		e->on_datagram(peer, id, header, data, length);
}

void Engine::on_immediate(uint32_t word)
{
	for (Extension *e : extensions_)
		e->on_immediate(word);
}

void Engine::on_control(int peer, uint8_t id, uint64_t header, const void *data, size_t length)
{
	// As eager messages they are complete on arrival, so they count also when their sender is gone.
	if (id == wire::id_synchronous)
		return receives_.on_synchronous(peer, header, data, length);
	if (id == wire::id_with_data)
		return receives_.on_with_data(peer, header, data, length);
	if (losses_.contain(peer))
		return;
	if (Extension *e = extension_of_[ExtensionRange::block_of(id)]) {
		if (const char *wrong = e->on_message(peer, id, header, data, length))
			channels_.malformed(peer, wrong);
		return;
	}
	bool good = false;
	switch (id) {
	case wire::id_announce: good = receives_.on_announce(peer, header, data, length); break;
	case wire::id_accept:
	case wire::id_piece:
	case wire::id_finished:
	case wire::id_written: good = rendezvous_.on_control(peer, id, header, data, length); break;
	case wire::id_stop_eager:
	case wire::id_resume_eager:
		good = length == 0;
		if (good)
			on_stop_eager(peer, id == wire::id_stop_eager);
		break;
	case wire::id_barrier:
	case wire::id_barrier_failed: good = barrier_.on_control(peer, id, header, data, length); break;
	default: break;
	}
	if (!good)
		channels_.malformed(peer, "a control message that does not exist or has the wrong length");
}

void Engine::on_stop_eager(int peer, bool stop)
{
	Channel *c = channels_.find(peer);
	if (!c)
		return;
	c->stop_eager(stop);
	if (stop)
		rendezvous_.announce_queued(*c);
}

void Engine::on_complete(void *operation, pt2p_status_t status, std::string_view reason)
{
	const auto handle = reinterpret_cast<uint64_t>(operation);
	for (Extension *e : extensions_)
		if (handle & e->range.operation_bit)
			return e->on_complete(handle, status, reason);
	rendezvous_.on_complete(handle, status, reason);
}

// ---- what breaks ----------------------------------------------------------------------------------------------------

void Engine::on_peer_down(int peer, pt2p_status_t status, std::string_view reason)
{
	if (losses_.contain(peer))
		return;
	PeerLosses::Loss &loss = losses_.add(peer, status, reason);
	reporter_.log(LogLevel::info, "rank %d is gone: %s", peer, loss.reason.c_str());
	if (loss.is_loss())
		reporter_.add(Counter::peers_lost);
	if (Channel *c = channels_.find(peer))
		c->take_down();
	// Its unexpected messages stay. An eager one is complete. An announced one fails the receive that it matches, so
	// that the receive does not get a later message instead.
	const bool alone = losses_.all_others();
	requests_.for_each([&](Request &r) {
		if (r.state == Request::State::moving && r.peer == peer) {
			requests_.complete(r, status);
		} else if (r.state == Request::State::posted) {
			const bool any = r.source == PT2P_ANY_SOURCE && !job_.open();
			if (r.source != peer && !(any && (loss.is_loss() || alone)))
				return;
			receives_.matcher().withdraw(r);
			r.peer = peer;
			requests_.complete(r, any && loss.is_loss() ? PT2P_ERR_PEER_LOST : status);
			if (any)
				loss.reported = true;
		}
	});
	for (Extension *e : extensions_)
		e->on_peer_down(peer, status);
}

// Nothing that waits for this peer has left, so the peer does not know of it.
void Engine::on_refused(int peer, pt2p_status_t status, std::string_view reason)
{
	if (losses_.contain(peer))
		return;
	reporter_.log(LogLevel::info, "rank %d cannot be connected to: %.*s", peer, static_cast<int>(reason.size()),
	              reason.data());
	losses_.unreached(peer, reason);
	unsigned tokens = 0;
	if (Channel *c = channels_.find(peer)) {
		c->for_each_queued([&](const PendingSend &item) { tokens += item.id == wire::id_barrier; });
		c->drop();
	}
	requests_.for_each([&](Request &r) {
		if (r.state == Request::State::moving && r.is_send && r.peer == peer)
			requests_.complete(r, status, reason);
	});
	for (Extension *e : extensions_)
		e->on_refused(peer, status, reason);
	if (tokens)
		barrier_.on_refused(peer, status, tokens);
}

void Engine::on_rank_event(const RankEvent &event)
{
	if (!event.in_order)
		return channels_.declare_down(event.rank, PT2P_ERR_PEER_LOST, event.reason);
	// Everything that it sent had reached this rank before it ended, and is delivered; a goodbye may be the last of it.
	// There is no goodbye when the two had never met.
	constexpr int max_rounds = 10'000;
	const Callbacks::Hold none(callbacks_);
	for (int i = 0; i < max_rounds && layers_.progress->step(); ++i)
		;
	if (!losses_.contain(event.rank))
		channels_.declare_down(event.rank, PT2P_ERR_PEER_FINALIZED, event.reason);
}

// ---- the end --------------------------------------------------------------------------------------------------------

bool Engine::pending() const
{
	if (channels_.busy() || requests_.any_finished() ||
	    std::any_of(extensions_.begin(), extensions_.end(), [](const Extension *e) { return e->pending(); }))
		return true;
	bool pending = false;
	requests_.for_each([&](const Request &r) {
		// Of receives, those that are detached and have matched a message.
		pending |= (r.is_send || r.is_detached()) && r.state == Request::State::moving;
	});
	return pending;
}

std::string Engine::unfinished() const
{
	return unfinished_text(requests_, receives_.messages(), losses_, extensions_);
}

void Engine::end_detached()
{
	callbacks_.end();
	std::set<int> peers; // transports still work on buffers that callbacks give back
	requests_.for_each([&](Request &r) {
		if (!r.is_detached() || r.state == Request::State::finished)
			return;
		if (r.state != Request::State::posted) {
			peers.insert(r.peer);
			return;
		}
		receives_.matcher().withdraw(r);
		requests_.complete(r, PT2P_ERR_UNFINISHED);
	});
	for (int peer : peers)
		channels_.declare_down(peer, PT2P_ERR_UNFINISHED, "pt2p_finalize has ended what had not completed");
	while (requests_.any_finished())
		callbacks_.run();
}

} // namespace pt2p
