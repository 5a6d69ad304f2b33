// Messages whose data is in several places.
//
//   eager        packed into one buffer and sent as any other; the receiver copies from the message into its segments
//   rendezvous   ANNOUNCE(tag, length, memory) -->      memory: the bytes, or a list of segments with addresses and keys
//                                                       the receiver reads that list, and then run by run: a run is
//                                                       contiguous on both sides
//                                  <-- FINISHED
//                or                <-- ACCEPT(length)   where runs are not worth it, or cannot be read
//                PIECE, PIECE, ... -->                  taken from the segments as there is room, see Gather
//
// Several gets are under way; short runs are read many at once where the transport can. What is read within a turn is bounded.
#include <algorithm>
#include <cstring>

#include "message/engine.hpp"

namespace pt2p {

namespace {

constexpr unsigned max_in_flight = 16;       // gets of one message
constexpr size_t turn_bytes = 512 * 1024;    // read before others get their turn
constexpr size_t long_run = 64 * 1024;       // bytes; a get of its own, which the peer may help with
constexpr size_t min_run = 4096;             // bytes on average; shorter ones are quicker to pack than to find and to check
constexpr size_t max_runs_registered = 1024; // segments
constexpr size_t max_segments = size_t{1} << 24; // of a peer's list

bool worth_runs(const Endpoint &e, size_t length, size_t count)
{
	return length / count >= min_run && (e.table->get_runs || count <= max_runs_registered);
}

} // namespace

// Empty segments are left out, and neighbours that touch become one.
void Engine::copy_list(Details &d, const pt2p_iovec_t *segments, size_t count)
{
	take_buffer(d.list, count * sizeof(Segment));
	auto *list = static_cast<Segment *>(d.list.memory);
	size_t n = 0;
	for (size_t i = 0; i < count; ++i) {
		const auto address = reinterpret_cast<uint64_t>(segments[i].base);
		if (!segments[i].length)
			continue;
		if (n && list[n - 1].address + list[n - 1].length == address)
			list[n - 1].length += segments[i].length;
		else
			list[n++] = {address, segments[i].length, 0};
	}
	d.count = n;
}

Request *Engine::isend(const pt2p_iovec_t *segments, size_t count, size_t length, int dest, uint64_t tag,
                       pt2p_status_t &status)
{
	Channel *c = channel(dest, status);
	if (!c)
		return nullptr;
	if (!length)
		return isend(nullptr, 0, dest, tag, status);
	if (length <= std::min(c->eager_limit(), BufferPool::largest_kept)) {
		auto *packed = static_cast<unsigned char *>(buffers_.take(length));
		for (size_t i = 0, at = 0; i < count; at += segments[i++].length)
			if (segments[i].length)
				std::memcpy(packed + at, segments[i].base, segments[i].length);
		Request *r = isend(packed, length, dest, tag, status);
		if (r && !r->done())
			details_of(*r).packed = {packed, length};
		else
			buffers_.give(packed, length);
		return r;
	}
	Details *d = take_details();
	copy_list(*d, segments, count);
	if (d->count == 1) {
		unsigned char *base = d->segments()->base();
		give_details(d);
		return isend(base, length, dest, tag, status);
	}
	Request *r = requests_.take();
	start_send(*r, length, dest, tag, Request::State::moving);
	r->buffer = nullptr;
	r->details = d;
	r->make_special(Request::with_details);
	announce(*r, *c);
	return r;
}

Request *Engine::irecv(const pt2p_iovec_t *segments, size_t count, size_t capacity, int source, uint64_t tag, uint64_t mask,
                       pt2p_status_t &status)
{
	if (!capacity)
		return irecv(nullptr, 0, source, tag, mask, status);
	Details *d = take_details();
	copy_list(*d, segments, count);
	if (d->count == 1) {
		unsigned char *base = d->segments()->base();
		give_details(d);
		return irecv(base, capacity, source, tag, mask, status);
	}
	Request *r = irecv(nullptr, capacity, source, tag, mask, status, d);
	if (!r)
		give_details(d);
	return r;
}

// Lets the peer read the segments of a send, and the list of them; how many they are, or 0.
uint64_t Engine::expose_list(Request &r, Channel &c, RemoteMemory &memory)
{
	Details &d = *r.details;
	Endpoint &e = c.endpoint.direct();
	if (!(e.capabilities & cap_get) || !worth_runs(e, r.length, d.count))
		return 0;
	Transport &t = *router_->transport_of(e);
	take_buffer(d.exposures, (d.count + 1) * sizeof(void *));
	auto **exposures = static_cast<void **>(d.exposures.memory);
	auto *list = static_cast<Segment *>(d.list.memory);
	std::string why_not;
	for (size_t i = 0; i <= d.count; ++i) {
		exposures[i] = i < d.count ? t.expose(list[i].base(), list[i].length, list[i].key, why_not)
		                           : t.expose(list, d.count * sizeof *list, memory.key, why_not);
		if (exposures[i])
			continue;
		reporter_.add(Counter::not_exposed);
		reporter_.log(LogLevel::debug, "a message of %zu bytes goes in pieces: %s", r.length, why_not.c_str());
		while (i)
			t.withdraw(exposures[--i]);
		give_buffer(d.exposures);
		return 0;
	}
	memory.address = reinterpret_cast<uint64_t>(list);
	r.exposure = nullptr;
	r.exposed = true;
	return d.count;
}

// Reads an announced message run by run; false when that is not worth it.
bool Engine::fetch_runs(Request &r, Channel &c, const Announcement &a)
{
	Endpoint &e = c.endpoint.direct();
	if (r.in_segments() && !worth_runs(e, r.capacity(), r.details->count))
		return false;
	if (a.exposed > std::min<uint64_t>(a.length, max_segments)) {
		malformed(r.peer, "a list of segments that are more than its bytes");
		return true;
	}
	Details &d = details_of(r);
	d.here = {reinterpret_cast<uint64_t>(r.buffer), r.expected(), 0};
	d.there = {a.memory.address, a.length, a.memory.key};
	d.to = d.count ? SegmentCursor(d.segments(), d.count) : SegmentCursor(&d.here, 1);
	d.from = SegmentCursor(&d.there, 1);
	d.phase = Details::Phase::runs;
	r.received = 0;
	if (a.exposed > 1) {
		d.phase = Details::Phase::list;
		d.remote_count = a.exposed;
		take_buffer(d.remote, d.remote_count * sizeof(Segment));
		d.starting = true;
		++d.in_flight;
		const Outcome outcome =
		    e.table->get(e, d.remote.memory, a.memory, d.remote.bytes, reinterpret_cast<void *>(r.handle));
		d.starting = false;
		d.in_flight -= outcome != Outcome::in_progress;
		d.refused = outcome == Outcome::no_resource;
		if (outcome == Outcome::refused)
			fail_runs(r, e.refusal());
	}
	start_runs(r);
	return true;
}

// The peer's list is here. Null, or what is wrong with it.
const char *Engine::take_list(Request &r)
{
	Details &d = *r.details;
	const auto *list = static_cast<const Segment *>(d.remote.memory);
	uint64_t left = r.length;
	for (size_t i = 0; i < d.remote_count; ++i) {
		if (!list[i].length || list[i].length > left)
			return "a list of segments that does not fit its message";
		left -= list[i].length;
	}
	if (left)
		return "a list of segments that does not fit its message";
	d.from = SegmentCursor(list, d.remote_count);
	d.phase = Details::Phase::runs;
	return nullptr;
}

// Starts some more of the runs, or ends the message when all are over.
void Engine::start_runs(Request &r)
{
	Details &d = *r.details;
	if (d.phase == Details::Phase::list && !d.in_flight && !d.refused && d.status == PT2P_OK)
		if (const char *wrong = take_list(r))
			return malformed(r.peer, wrong);
	Channel *c = router_->find(r.peer);
	size_t budget = turn_bytes;
	if (d.phase == Details::Phase::runs) {
		d.starting = true;
		while (d.status == PT2P_OK && !d.refused && budget && d.in_flight < max_in_flight && r.received < r.expected() &&
		       start_some(r, c->endpoint.direct(), budget))
			;
		d.starting = false;
	}
	if (d.in_flight)
		return; // they resume it
	if (d.status == PT2P_OK && d.refused) {
		d.phase = Details::Phase::none;
		return accept(r, *c, false);
	}
	if (d.status == PT2P_OK && r.received < r.expected())
		return resume_runs(r);
	d.phase = Details::Phase::none;
	finish_fetch(r, d.status);
}

// Starts one long run, or several short ones; false when the transport refuses.
bool Engine::start_some(Request &r, Endpoint &e, size_t &budget)
{
	Details &d = *r.details;
	Run runs[TransportTable::max_runs];
	const size_t at_once = e.table->get_runs ? TransportTable::max_runs : 1;
	size_t n = 0, bytes = 0;
	const SegmentCursor from = d.from, to = d.to;
	while (n < at_once && bytes < budget && r.received + bytes < r.expected()) {
		const size_t run = std::min({d.from.run(), d.to.run(), r.expected() - r.received - bytes});
		if (n && run >= long_run)
			break;
		runs[n++] = {d.to.base(), {d.from.address(), d.from.key()}, run};
		d.from.advance(run);
		d.to.advance(run);
		bytes += run;
		if (run >= long_run)
			break;
	}
	void *operation = reinterpret_cast<void *>(r.handle);
	++d.in_flight;
	const Outcome outcome = n == 1 ? e.table->get(e, runs[0].local, runs[0].from, runs[0].length, operation)
	                               : e.table->get_runs(e, runs, n, operation);
	d.in_flight -= outcome != Outcome::in_progress;
	if (outcome == Outcome::no_resource) {
		d.from = from;
		d.to = to;
		d.refused = true;
		return false;
	}
	if (outcome == Outcome::refused) {
		fail_runs(r, e.refusal());
		return false;
	}
	r.received += bytes;
	budget -= std::min(budget, bytes);
	return true;
}

void Engine::fail_runs(Request &r, const Refusal &why)
{
	if (r.details->status != PT2P_OK)
		return;
	r.details->status = why.status;
	if (!why.reason.empty())
		reasons_[r.handle] = why.reason;
}

// A get of it is over.
void Engine::on_run(Request &r, pt2p_status_t status, std::string_view reason)
{
	Details &d = *r.details;
	--d.in_flight;
	if (status != PT2P_OK)
		fail_runs(r, {status, std::string(reason)});
	if (!d.starting)
		resume_runs(r);
}

// In the next turn: transports may be in the middle of something.
void Engine::resume_runs(Request &r)
{
	if (!r.details->listed)
		reading_.push_back(r.handle);
	r.details->listed = true;
	has_work = true;
}

unsigned Engine::drive_runs()
{
	std::swap(reading_, reading_now_);
	unsigned n = 0;
	for (uint64_t handle : reading_now_)
		if (Request *r = requests_.find(handle); r && r->state == Request::State::moving && r->is_reading_runs()) {
			r->details->listed = false;
			start_runs(*r);
			++n;
		}
	reading_now_.clear();
	return n;
}

void Engine::stream_segments(Request &r, Channel &c, uint64_t token, size_t length)
{
	Details &d = *r.details;
	take_buffer(d.bounce, std::min({length, c.endpoint.max_send, BufferPool::largest_kept}));
	d.gather = {SegmentCursor(d.segments(), d.count), static_cast<unsigned char *>(d.bounce.memory), d.bounce.bytes};
	c.stream(id_piece, token, d.gather, length, &r);
	list(c);
}

} // namespace pt2p
