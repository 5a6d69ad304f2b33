#include "message/engine.hpp"

#include <algorithm>
#include <cstring>
#include <random>

#include "base/config/config.hpp"
#include "base/job/job.hpp"

namespace pt2p {

Engine::Engine(const Config &config, Reporter &reporter, Job &job)
    : TransportEvents(*static_cast<SendPacing *>(this)), config_(config), reporter_(reporter), job_(job),
      rank_(job.rank()), size_(job.size()), requests_(std::random_device{}()),
      messages_(std::random_device{}()), barrier_from_(rank_)
{
}

Engine::~Engine()
{
	matcher_.for_each_unexpected([this](UnexpectedMessage &m) { drop_unexpected(m); });
	messages_.for_each([this](UnexpectedMessage &m) {
		if (m.taken && m.payload)
			buffers_.give(m.payload, m.length);
	});
	requests_.for_each([this](Request &r) {
		if (r.special & Request::with_details)
			give_details(r.details);
	});
}

namespace {

// Whether messages may be missing: a rank that has finalized, or cannot be reached at all, sent what it had to send. One whose
// address the launcher does not give any more may not have begun.
bool is_loss(pt2p_status_t status)
{
	return status == PT2P_ERR_PEER_LOST || status == PT2P_ERR_PROTOCOL || status == PT2P_ERR_EXCHANGE;
}

} // namespace

// ---- channels ---------------------------------------------------------------------------------------------------------

Channel *Engine::connect(int rank, pt2p_status_t &status)
{
	const auto loss = losses_.find(rank);
	if (loss != losses_.end()) {
		status = reporter_.fail(loss->second.status, "rank %d: %s", rank, loss->second.reason.c_str());
		return nullptr;
	}
	try {
		Channel &c = router_->connect(rank);
		unreached_.erase(rank);
		return &c;
	} catch (const Error &e) {
		status = e.status();
		// Gone when this rank first looked for it. Anything else may be otherwise in the next call.
		if (status == PT2P_ERR_PEER_LOST || status == PT2P_ERR_PEER_FINALIZED)
			on_peer_down(rank, status, e.what());
		else
			unreached_[rank] = e.what();
		reporter_.fail(status, "rank %d: %s", rank, e.what());
	}
	return nullptr;
}

pt2p_status_t Engine::set_delivery(int rank, pt2p_delivery_t delivery)
{
	pt2p_status_t status = PT2P_OK;
	Channel *c = channel(rank, status);
	if (!c)
		return status;
	router_->set_delivery(*c, delivery);
	c->refresh();
	return PT2P_OK;
}

void Engine::list(Channel &c)
{
	if (!c.listed) {
		c.listed = true;
		busy_.push_back(&c);
	}
	has_work = true;
}

void Engine::control(Channel &c, Id id, uint64_t header, const void *data, size_t length)
{
	if (c.send_control(id, header, data, length))
		list(c);
}

unsigned Engine::drive()
{
	unsigned n = 0;
	for (DeviceTransport *t : router_->device_transports())
		t->cork(true);
	for (size_t i = 0; i < busy_.size();) {
		Channel &c = *busy_[i];
		n += c.drive();
		if (c.has_work()) {
			++i;
			continue;
		}
		c.listed = false;
		busy_[i] = busy_.back();
		busy_.pop_back();
	}
	if (extension_ && extension_->has_work())
		n += extension_->drive();
	if (!reading_.empty())
		n += drive_runs();
	for (DeviceTransport *t : router_->device_transports())
		t->cork(false);
	if (!finished_.empty())
		n += free_finished();
	has_work = !busy_.empty() || (extension_ && extension_->has_work()) || !reading_.empty() || !finished_.empty();
	return n;
}

void Engine::on_sent(void *owner) { complete(*static_cast<Request *>(owner), PT2P_OK); }

// ---- starting operations ----------------------------------------------------------------------------------------------

Request *Engine::isend(const void *buffer, size_t length, int dest, uint64_t tag, pt2p_status_t &status)
{
	Channel *c = channel(dest, status);
	if (!c)
		return nullptr;
	Request *r = requests_.take();
	// Everything is in place before the first byte goes out: a message to this rank itself comes back within the call.
	start_send(*r, length, dest, tag, Request::State::moving);
	r->buffer = const_cast<void *>(buffer);
	if (length > c->eager_limit()) {
		announce(*r, *c);
		return r;
	}
	count_eager(length);
	if (c->try_send(id_eager, tag, buffer, length) == Outcome::done)
		r->state = Request::State::done;
	else
		queue_eager(*r);
	return r;
}

// A message that there is no room for yet.
void Engine::queue_eager(Request &r)
{
	Channel &c = *router_->find(r.peer);
	r.state = Request::State::moving;
	reporter_.add(Counter::queued_sends);
	c.queue(id_eager, r.message_tag, r.buffer, r.length, &r);
	list(c);
}

Request *Engine::irecv(void *buffer, size_t capacity, int source, uint64_t tag, uint64_t mask, pt2p_status_t &status,
                       Details *details)
{
	UnexpectedMessage *m = matcher_.find(source, tag, mask);
	if (!m && !losses_.empty()) {
		status = source_status(source);
		if (status != PT2P_OK)
			return nullptr;
	}
	Request *r = requests_.take();
	start_receive(*r, buffer, capacity, source, tag, mask);
	if (details) {
		r->make_special(Request::with_details);
		r->details = details;
	}
	if (m)
		take_unexpected(*r, *m);
	else
		matcher_.post(*r);
	return r;
}

bool Engine::find_unexpected(int source, uint64_t tag, uint64_t mask, pt2p_result_t &result)
{
	const UnexpectedMessage *m = matcher_.find(source, tag, mask);
	if (m)
		result = {PT2P_OK, m->source, m->tag, m->length};
	return m != nullptr;
}

// Of a receive; one from any source is told of a loss once.
pt2p_status_t Engine::source_status(int source)
{
	if (source == PT2P_ANY_SOURCE)
		for (auto &[rank, loss] : losses_)
			if (is_loss(loss.status) && !loss.reported) {
				loss.reported = true;
				return any_source_lost(rank, loss);
			}
	return awaited_status(source, losses_counted_);
}

pt2p_status_t Engine::awaited_status(int source, unsigned since)
{
	if (losses_.empty())
		return PT2P_OK;
	if (source != PT2P_ANY_SOURCE) {
		const auto loss = losses_.find(source);
		if (loss == losses_.end())
			return PT2P_OK;
		return reporter_.fail(loss->second.status, "receive from rank %d: %s", source, loss->second.reason.c_str());
	}
	for (const auto &[rank, loss] : losses_)
		if (loss.number == since + 1) {
			losses_told_ = std::max(losses_told_, loss.number);
			return any_source_lost(rank, loss);
		}
	if (static_cast<int>(losses_.size()) == size_ - 1)
		return reporter_.fail(PT2P_ERR_PEER_FINALIZED, "receive from any source: every other rank has left the job");
	return PT2P_OK;
}

pt2p_status_t Engine::any_source_lost(int peer, const Loss &loss)
{
	return reporter_.fail(PT2P_ERR_PEER_LOST, "receive from any source: rank %d was lost: %s", peer, loss.reason.c_str());
}

Request *Engine::start_one_sided(const char *operation, size_t length, int peer, uint64_t offset)
{
	Request *r = requests_.take();
	start_receive(*r, nullptr, length, Request::no_source, offset, 0);
	r->state = Request::State::one_sided;
	r->peer = peer;
	r->message_tag = 0;
	r->length = length;
	r->operation = operation;
	r->exposed = false;
	return r;
}

pt2p_status_t Engine::loss_of(int rank, std::string &reason) const
{
	const auto loss = losses_.find(rank);
	if (loss == losses_.end())
		return PT2P_OK;
	reason = loss->second.reason;
	return loss->second.status;
}

// After connect() has failed.
std::string Engine::why_unreached(int rank) const
{
	std::string reason;
	if (loss_of(rank, reason) == PT2P_OK)
		if (const auto why = unreached_.find(rank); why != unreached_.end())
			reason = why->second;
	return reason;
}

void Engine::cancel(Request &r)
{
	if (r.state != Request::State::posted)
		return;
	matcher_.withdraw(r);
	complete(r, PT2P_ERR_CANCELLED);
}

// ---- arrivals ---------------------------------------------------------------------------------------------------------

// The copy comes last, so that nothing has to be kept over it.
inline void Engine::deliver(Request &r, int peer, uint64_t tag, const void *data, size_t length)
{
	r.peer = peer;
	r.message_tag = tag;
	r.length = length;
	reporter_.add(Counter::messages_received);
	if (__builtin_expect(static_cast<int64_t>(length) > r.room, 0)) {
		deliver_otherwise(r, data);
		return;
	}
	reporter_.add(Counter::bytes_received, length);
	r.state = Request::State::done;
	if (length == 8)
		std::memcpy(r.buffer, data, 8);
	else if (length)
		std::memcpy(r.buffer, data, length);
}

// A message that is too long, comes into segments, or is one that nobody waits for.
void Engine::deliver_otherwise(Request &r, const void *data)
{
	const size_t bytes = r.expected();
	reporter_.add(Counter::truncated, r.length > bytes);
	reporter_.add(Counter::bytes_received, bytes);
	if (r.in_segments())
		SegmentCursor(r.details->segments(), r.details->count).copy_from(data, bytes);
	else if (bytes)
		std::memcpy(r.buffer, data, bytes);
	complete(r, r.length > bytes ? PT2P_ERR_TRUNCATED : PT2P_OK);
}

// Nothing that it calls comes back: short messages pay for no more than they need.
void Engine::on_message(int peer, uint8_t id, uint64_t header, const void *data, size_t length)
{
	if (__builtin_expect(id != id_eager, 0))
		return on_control(peer, id, header, data, length);
	if (__builtin_expect(matcher_.any_wild(), 0))
		return on_eager(peer, header, data, length);
	PostedReceive *posted = matcher_.match_exact(peer, header);
	if (__builtin_expect(!posted, 0))
		return keep_eager(peer, header, data, length);
	deliver(static_cast<Request &>(*posted), peer, header, data, length);
}

void Engine::on_eager(int peer, uint64_t tag, const void *data, size_t length)
{
	if (PostedReceive *posted = matcher_.match(peer, tag))
		deliver(static_cast<Request &>(*posted), peer, tag, data, length);
	else
		keep_eager(peer, tag, data, length);
}

// The sender's token stands before the payload.
void Engine::on_synchronous(int peer, uint64_t tag, const void *data, size_t length)
{
	uint64_t token;
	if (length < sizeof token)
		return malformed(peer, "a synchronous message without a token");
	std::memcpy(&token, data, sizeof token);
	const void *payload = static_cast<const unsigned char *>(data) + sizeof token;
	length -= sizeof token;
	if (PostedReceive *posted = matcher_.match(peer, tag)) {
		deliver(static_cast<Request &>(*posted), peer, tag, payload, length);
		acknowledge(peer, token);
		return;
	}
	UnexpectedMessage &m = make_unexpected(peer, tag, length);
	m.synchronous = true;
	m.token = token;
	keep(m, payload);
}

void Engine::on_control(int peer, uint8_t id, uint64_t header, const void *data, size_t length)
{
	// Whole when it is here, as an eager one: also from a rank that is gone.
	if (id == id_synchronous)
		return on_synchronous(peer, header, data, length);
	if (is_down(peer))
		return;
	// Copied: the payload may be unaligned, and a peer may go on writing to it.
	const auto body = [&](auto &value) {
		if (length != sizeof value)
			return false;
		std::memcpy(&value, data, sizeof value);
		return true;
	};
	Announcement announcement;
	Acceptance acceptance;
	uint32_t status;
	uint64_t epoch;
	switch (id) {
	case id_announce:
		if (body(announcement) && announcement.length <= PTRDIFF_MAX)
			return on_announce(peer, header, announcement);
		break;
	case id_accept:
		if (body(acceptance))
			return on_accept(peer, header, acceptance);
		break;
	case id_piece:
		return on_piece(peer, header, data, length);
	case id_finished:
		if (body(status))
			return on_finished(peer, header, status);
		break;
	case id_written:
		if (body(status))
			return on_written(peer, header, status);
		break;
	case id_stop_eager:
	case id_resume_eager:
		if (length == 0) {
			if (Channel *c = router_->find(peer)) {
				c->stop_eager(id == id_stop_eager);
				if (id == id_stop_eager)
					announce_queued(*c);
			}
			return;
		}
		break;
	case id_barrier:
		if (length == 0)
			return on_barrier(peer, header);
		break;
	case id_barrier_failed:
		if (body(epoch))
			return on_barrier_failed(peer, header, epoch);
		break;
	default:
		if (extension_ && id >= Extension::first_id && id <= Extension::last_id) {
			if (const char *wrong = extension_->on_message(peer, id, header, data, length))
				malformed(peer, wrong);
			return;
		}
		break;
	}
	malformed(peer, "a control message that does not exist or has the wrong length");
}

UnexpectedMessage &Engine::make_unexpected(int peer, uint64_t tag, size_t length)
{
	UnexpectedMessage &m = *messages_.take();
	m.source = peer;
	m.tag = tag;
	m.length = length;
	m.payload = nullptr;
	m.announced = m.synchronous = m.taken = false;
	return m;
}

void Engine::keep_eager(int peer, uint64_t tag, const void *data, size_t length)
{
	keep(make_unexpected(peer, tag, length), data);
}

void Engine::keep(UnexpectedMessage &m, const void *data)
{
	if (m.length) {
		m.payload = buffers_.take(m.length);
		std::memcpy(m.payload, data, m.length);
	}
	matcher_.add(m);
	reporter_.add(Counter::unexpected);
	unexpected_bytes_ += m.length;
	reporter_.peak(Counter::unexpected_bytes_peak, unexpected_bytes_);
	if (__builtin_expect(unexpected_bytes_ > config_.unexpected_max, 0))
		stop_eager(m.source);
}

void Engine::take_unexpected(Request &r, UnexpectedMessage &m)
{
	const bool fails = m.announced && !can_answer(r, m.source, m.tag, m.length);
	if (fails && !is_down(m.source))
		return; // for want of something here: the message waits for another receive
	if (fails)
		return drop_unexpected(m);
	matcher_.remove(m);
	hand_over(r, m);
}

// Gives a receive its message, which is out of matching, and frees the message.
void Engine::hand_over(Request &r, UnexpectedMessage &m)
{
	if (m.announced) {
		const Announcement a{m.length, m.token, m.memory, m.exposed};
		const int source = m.source;
		messages_.give(&m);
		fetch(r, source, a);
		return;
	}
	deliver(r, m.source, m.tag, m.payload, m.length);
	if (m.payload)
		buffers_.give(m.payload, m.length);
	unexpected_bytes_ -= m.length;
	if (__builtin_expect(m.synchronous, 0))
		acknowledge(m.source, m.token);
	messages_.give(&m);
	if (__builtin_expect(!eager_refused_.empty(), 0) && unexpected_bytes_ <= config_.unexpected_max / 2)
		resume_eager();
}

void Engine::drop_unexpected(UnexpectedMessage &m)
{
	matcher_.remove(m);
	if (m.payload) {
		buffers_.give(m.payload, m.length);
		unexpected_bytes_ -= m.length;
	}
	messages_.give(&m);
}

void Engine::stop_eager(int peer)
{
	pt2p_status_t status = PT2P_OK;
	Channel *c = channel(peer, status);
	if (!c || c->eager_refused || peer == rank_)
		return;
	c->eager_refused = true;
	eager_refused_.push_back(peer);
	reporter_.add(Counter::eager_stopped);
	// Ahead of what waits here: two ranks that flood each other must both be heard.
	if (c->send_urgent(id_stop_eager, 0))
		list(*c);
}

void Engine::resume_eager()
{
	for (int peer : eager_refused_) {
		Channel *c = router_->find(peer);
		c->eager_refused = false;
		if (!c->down() && c->send_urgent(id_resume_eager, 0))
			list(*c);
	}
	eager_refused_.clear();
}

// ---- what breaks ------------------------------------------------------------------------------------------------------

Request *Engine::named(uint64_t token, int peer, bool is_send)
{
	Request *r = requests_.find(token);
	return r && r->state == Request::State::moving && r->is_send == is_send && r->peer == peer ? r : nullptr;
}

void Engine::malformed(int peer, const char *what)
{
	declare_down(peer, PT2P_ERR_PROTOCOL, format("it sent %s", what));
}

void Engine::declare_down(int peer, pt2p_status_t status, const std::string &reason)
{
	// The transports first: what they still move for this peer ends before its buffers go back to the caller.
	for (Transport *t : router_->layers())
		t->abandon(peer, status, reason);
	on_peer_down(peer, status, reason);
}

void Engine::on_peer_down(int peer, pt2p_status_t status, std::string_view reason)
{
	if (is_down(peer))
		return;
	Loss &loss = losses_[peer] = {status, std::string(reason), false, is_loss(status) ? ++losses_counted_ : 0};
	reporter_.log(LogLevel::info, "rank %d is gone: %s", peer, loss.reason.c_str());
	if (is_loss(status))
		reporter_.add(Counter::peers_lost);
	if (Channel *c = router_->find(peer))
		c->take_down();
	// Its unexpected messages stay: an eager one is whole, and an announced one fails the receive that it matches, so that no
	// later message is received in its place.
	const bool alone = static_cast<int>(losses_.size()) == size_ - 1;
	requests_.for_each([&](Request &r) {
		if (r.state == Request::State::moving && r.peer == peer) {
			complete(r, status);
		} else if (r.state == Request::State::posted) {
			const bool any = r.source == PT2P_ANY_SOURCE;
			if (r.source != peer && !(any && (is_loss(status) || alone)))
				return;
			matcher_.withdraw(r);
			r.peer = peer;
			complete(r, any && is_loss(status) ? PT2P_ERR_PEER_LOST : status);
			if (any)
				loss.reported = true;
		}
	});
	if (extension_)
		extension_->on_peer_down(peer, status);
}

// Nothing of what waits has left, so the peer knows of none of it.
void Engine::on_refused(int peer, pt2p_status_t status, std::string_view reason)
{
	if (is_down(peer))
		return;
	reporter_.log(LogLevel::info, "rank %d cannot be connected to: %.*s", peer, static_cast<int>(reason.size()), reason.data());
	unreached_[peer] = reason;
	unsigned tokens = 0;
	if (Channel *c = router_->find(peer)) {
		c->for_each_queued([&](const PendingSend &item) { tokens += item.id == id_barrier; });
		c->drop();
	}
	requests_.for_each([&](Request &r) {
		if (r.state == Request::State::moving && r.is_send && r.peer == peer)
			complete(r, status, reason);
	});
	if (extension_)
		extension_->on_refused(peer, status, reason);
	if (tokens)
		barrier_refused(peer, status, tokens);
}

void Engine::on_rank_event(const RankEvent &event)
{
	if (!event.in_order)
		return declare_down(event.rank, PT2P_ERR_PEER_LOST, event.reason);
	// What it has sent was with this rank before it ended, and counts; its goodbye may be at the end of that. It said none
	// when the two had never met.
	constexpr int most_rounds = 10'000;
	const NoCallbacks none(*this);
	for (int i = 0; i < most_rounds && progress_->step(); ++i)
		;
	if (!is_down(event.rank))
		declare_down(event.rank, PT2P_ERR_PEER_FINALIZED, event.reason);
}

// Who waits for a rank that no transport reaches would wait for ever; sends find out when they connect.
void Engine::examine_sources()
{
	requests_.for_each([this](Request &r) {
		if (r.state == Request::State::posted)
			examine(r.source);
	});
	for (const int source : std::vector<int>(awaited_))
		examine(source);
	if (job_.without_launcher() > 0)
		examine(barrier_from_); // else those whom it tells can tell of it
}

// Without the launcher nobody tells of a rank that is gone but its silence, which a transport hears when it is connected.
void Engine::examine(int source)
{
	const bool alone = job_.without_launcher() > 0;
	if (source == PT2P_ANY_SOURCE) {
		for (int rank = 0; alone && rank < size_; ++rank)
			examine(rank);
		return;
	}
	if (!is_rank(source) || source == rank_ || is_down(source) || router_->find(source) ||
	    (!examined_.insert(source).second && !alone))
		return;
	std::string blob, reasons;
	try {
		if (!job_.try_lookup(source, blob))
			examined_.erase(source); // not started yet: look again
		else if (!router_->reachable(source, blob, reasons))
			on_peer_down(source, PT2P_ERR_UNREACHABLE, reasons);
		else if (alone)
			router_->connect(source);
	} catch (const Error &e) {
		if (is_of_peer(e.status()))
			on_peer_down(source, e.status(), e.what());
		else
			examined_.erase(source); // what this rank lacks is no verdict
	}
}

void Engine::check()
{
	job_.check();
	// Before the transports look: what the launcher knows of a rank's end is more than they can see.
	RankEvent event;
	while (job_.has_events() && job_.next_event(event))
		if (is_rank(event.rank) && event.rank != rank_)
			on_rank_event(event);
	examine_sources();
	for (Transport *t : router_->layers())
		t->check();
}

} // namespace pt2p
