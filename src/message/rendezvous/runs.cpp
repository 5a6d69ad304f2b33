#include "message/rendezvous/runs.hpp"

#include <algorithm>

#include "base/assert.hpp"

namespace pt2p {

namespace {

constexpr unsigned max_in_flight = 16;           // gets of one message
constexpr size_t turn_bytes = 512 * 1024;        // read before others get their turn
constexpr size_t long_run = 64 * 1024;           // bytes; a get of its own, which the peer may help with
constexpr size_t max_segments = size_t{1} << 24; // of a peer's list

void *as_operation(const Request &r) { return reinterpret_cast<void *>(r.handle); }

} // namespace

bool RunReader::start(Request &r, Channel &c, const wire::Announcement &a)
{
	PT2P_ASSERT(a.exposed);
	Endpoint &e = c.endpoint.direct();
	if (r.in_segments() && !worth_runs(e, r.capacity(), r.details->count))
		return false;
	if (a.exposed > std::min<uint64_t>(a.length, max_segments)) {
		channels_.malformed(r.peer, "a list of segments that are more than its bytes");
		return true;
	}
	Details &d = requests_.details_of(r);
	d.here = {reinterpret_cast<uint64_t>(r.buffer), r.expected(), 0};
	d.there = {a.memory.address, a.length, a.memory.key};
	d.to = d.count ? SegmentCursor(d.segments(), d.count) : SegmentCursor(&d.here, 1);
	d.from = SegmentCursor(&d.there, 1);
	d.phase = Details::Phase::runs;
	r.received = 0;
	if (a.exposed > 1)
		fetch_list(r, e, a);
	advance(r);
	return true;
}

void RunReader::fetch_list(Request &r, Endpoint &e, const wire::Announcement &a)
{
	Details &d = *r.details;
	d.phase = Details::Phase::list;
	d.remote_count = a.exposed;
	requests_.details().take_buffer(d.remote, d.remote_count * sizeof(Segment));
	d.starting = true;
	++d.in_flight;
	const Outcome outcome = e.table->get(e, d.remote.memory, a.memory, d.remote.bytes, as_operation(r));
	d.starting = false;
	d.in_flight -= outcome != Outcome::in_progress;
	d.refused = outcome == Outcome::no_resource;
	if (outcome == Outcome::refused) {
		const Refusal refusal = e.refusal();
		fail(r, refusal.status, refusal.reason);
	}
}

// The peer's list is here. Null, or what is wrong with it.
const char *RunReader::take_list(Request &r)
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
void RunReader::advance(Request &r)
{
	Details &d = *r.details;
	if (d.phase == Details::Phase::list && !d.in_flight && !d.refused && d.status == PT2P_OK)
		if (const char *wrong = take_list(r))
			return channels_.malformed(r.peer, wrong);
	Channel *c = channels_.find(r.peer);
	size_t budget = turn_bytes;
	if (d.phase == Details::Phase::runs) {
		d.starting = true;
		while (d.status == PT2P_OK && !d.refused && budget && d.in_flight < max_in_flight &&
		       r.received < r.expected() && start_some(r, c->endpoint.direct(), budget))
			;
		d.starting = false;
	}
	if (d.in_flight)
		return; // their end resumes it
	if (d.status == PT2P_OK && d.refused) {
		d.phase = Details::Phase::none;
		return client_.on_runs_refused(r, *c);
	}
	if (d.status == PT2P_OK && r.received < r.expected())
		return resume(r);
	d.phase = Details::Phase::none;
	client_.on_runs_read(r, d.status);
}

// Starts one long run, or several short ones; false when the transport refuses.
bool RunReader::start_some(Request &r, Endpoint &e, size_t &budget)
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
	++d.in_flight;
	const Outcome outcome = n == 1 ? e.table->get(e, runs[0].local, runs[0].from, runs[0].length, as_operation(r))
	                               : e.table->get_runs(e, runs, n, as_operation(r));
	d.in_flight -= outcome != Outcome::in_progress;
	if (outcome == Outcome::no_resource) {
		d.from = from;
		d.to = to;
		d.refused = true;
		return false;
	}
	if (outcome == Outcome::refused) {
		const Refusal refusal = e.refusal();
		fail(r, refusal.status, refusal.reason);
		return false;
	}
	r.received += bytes;
	budget -= std::min(budget, bytes);
	return true;
}

// The first failure counts.
void RunReader::fail(Request &r, pt2p_status_t status, std::string_view reason)
{
	if (r.details->status != PT2P_OK)
		return;
	r.details->status = status;
	if (!reason.empty())
		requests_.keep_reason(r, reason);
}

void RunReader::on_complete(Request &r, pt2p_status_t status, std::string_view reason)
{
	Details &d = *r.details;
	--d.in_flight;
	if (status != PT2P_OK)
		fail(r, status, reason);
	if (!d.starting)
		resume(r);
}

// In the next turn: transports may be in the middle of something.
void RunReader::resume(Request &r)
{
	if (!r.details->listed)
		reading_.push_back(r.handle);
	r.details->listed = true;
	progress_.has_work = true;
}

unsigned RunReader::drive()
{
	std::swap(reading_, reading_now_);
	unsigned n = 0;
	for (uint64_t handle : reading_now_)
		if (Request *r = requests_.find_moving(handle); r && r->is_reading_runs()) {
			r->details->listed = false;
			advance(*r);
			++n;
		}
	reading_now_.clear();
	return n;
}

} // namespace pt2p
