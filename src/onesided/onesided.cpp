#include "onesided/onesided.hpp"

#include <algorithm>
#include <cstring>
#include <random>

#include "base/clock.hpp"
#include "base/config/config.hpp"
#include "base/job/job.hpp"
#include "base/memory/fence.hpp"

namespace pt2p::onesided {

namespace {

constexpr uint32_t calls_between_polls = 16; // lets answers in while the program only starts operations
constexpr size_t max_lines = 16;             // of a report

void *as_operation(const Operation &op) { return reinterpret_cast<void *>(op.handle | one_sided_range.operation_bit); }

// Does an operation with the processor on the memory at `there`; `w` is a Work or an Operation.
template <class W>
void carry_out(const W &w, unsigned char *there)
{
	const bool put = w.kind == Operation::Kind::put;
	if (w.kind == Operation::Kind::atomic)
		w.atomic.store(apply(w.atomic, there), w.result);
	else if (w.length)
		std::memmove(put ? there : w.local, put ? w.local : there, w.length);
}

Path path_of(const Remote &r, Operation::Kind kind)
{
	return kind == Operation::Kind::put ? r.put_path : kind == Operation::Kind::get ? r.get_path : r.atomic_path;
}

} // namespace

OneSided::OneSided(const TransportEnvironment &environment, Engine &engine, Router &router, Progress &progress)
    : Extension(one_sided_range), environment_(environment), config_(environment.config),
      reporter_(environment.reporter), job_(environment.job), engine_(engine), router_(router), progress_(progress),
      memories_(environment, router), remotes_(std::random_device{}()), targets_(engine),
      asker_(operations_, targets_, *this), owner_(reporter_, job_.rank(), memories_, operations_, targets_),
      normal_(environment, router), since_ticks_(now_ticks()), since_ns_(now_ns())
{
	engine_.extend(*this);
}

// ---- turns and messages ---------------------------------------------------------------------------------------------

const char *OneSided::on_message(int peer, uint8_t id, uint64_t header, const void *data, size_t length)
{
	Target &t = targets_.at(peer);
	switch (id) {
	case id_put:
	case id_piece:
	case id_get:
	case id_atomic: return owner_.on_message(t, id, header, data, length);
	case id_data: return asker_.on_data(t, header, data, length);
	case id_result: return asker_.on_result(t, header, data, length);
	default: return wrong_message;
	}
}

unsigned OneSided::drive()
{
	return targets_.drive([this](Target &t) { return drive(t); });
}

unsigned OneSided::drive(Target &t)
{
	unsigned n = owner_.send_replies(t) + asker_.stream(t);
	while (!t.resumed.empty()) {
		Operation &op = t.resumed.pop();
		if (!issue(op)) {
			if (t.status == PT2P_OK) // else it has been ended
				t.resumed.push_front(op);
			break;
		}
		++n;
	}
	return n + start_waiting(t);
}

unsigned OneSided::start_waiting(Target &t)
{
	unsigned n = 0;
	while (!t.waiting.empty()) {
		Operation &op = *t.waiting.front();
		if (op.fenced && t.started)
			break;
		// Before it is issued: when issue() returns, the operation may be over and its object reused.
		t.waiting.pop();
		op.started = true;
		if (op.timed)
			op.issued = now_ticks();
		++t.started;
		if (issue(op)) {
			++n;
			continue;
		}
		if (t.status == PT2P_OK) {
			op.started = false;
			--t.started;
			t.waiting.push_front(op);
		}
		break;
	}
	return n;
}

void OneSided::on_refused(int peer, pt2p_status_t status, std::string_view reason)
{
	end_operations(peer, status, reason);
	targets_.at(peer).status = PT2P_OK;
}

bool OneSided::may_forget(int peer)
{
	const Target *t = targets_.find(peer);
	if (!t)
		return true;
	bool used = t->listed || t->pending || t->started || t->owed || t->has_work();
	operations_.for_each([&](const Operation &op) { used |= op.target == t || op.served.target == t; });
	return !used;
}

// Memory that was imported from it is still its own.
void OneSided::forget_peer(int peer)
{
	targets_.retire(peer, [this](const Target &target) {
		bool used = false;
		remotes_.for_each([&](const Remote &r) { used |= r.active && r.target == &target; });
		return used;
	});
}

// Ends all operations with that peer; no more can be started.
void OneSided::end_operations(int peer, pt2p_status_t status, std::string_view reason)
{
	Target *const found = targets_.find(peer);
	if (!found)
		return;
	Target &t = *found;
	t.status = status;
	t.waiting.clear();
	// Operations that this rank's own device does for others end as well: the device is lost, the others are not.
	while (!t.resumed.empty())
		if (Operation &op = t.resumed.pop(); op.served.foreign)
			finish(op, PT2P_ERR_SYSTEM);
	t.streaming = nullptr;
	t.incoming = {};
	owner_.drop_replies(t);
	owner_.forget(t);
	operations_.for_each([&](Operation &op) {
		if (op.target == &t && !op.served.foreign)
			finish(op, status, reason);
	});
}

// ---- starting -------------------------------------------------------------------------------------------------------

pt2p_status_t OneSided::submit(const Work &w, pt2p_request_t **req)
{
	const pt2p_status_t status = start(w, req);
	if (status == PT2P_OK && ++calls_ % calls_between_polls == 0) {
		const Callbacks::Hold none(engine_.callbacks()); // within a call that starts something
		progress_.poll();
	}
	return status;
}

pt2p_status_t OneSided::start(const Work &w, pt2p_request_t **req)
{
	Target &t = *w.remote->target;
	const pt2p_status_t status = examine(w);
	if (status != PT2P_OK)
		return status;
	Request *request = req ? engine_.start_one_sided(w.name, w.length, t.rank, w.offset) : nullptr;
	if (req)
		*req = to_handle(request);
	if (at_once(w, t)) {
		if (request)
			engine_.requests().complete(*request, PT2P_OK);
		return PT2P_OK;
	}
	Operation &op = make_operation(w, request);
	reporter_.add(op.path == Path::direct      ? Counter::one_sided_direct
	              : op.path == Path::transport ? Counter::one_sided_transport
	                                           : Counter::one_sided_by_owner);
	t.waiting.push(op);
	drive(t);
	if (t.has_work())
		targets_.list(t);
	return PT2P_OK;
}

// Whether it can be started; the failure has been recorded.
pt2p_status_t OneSided::examine(const Work &w)
{
	const Target &t = *w.remote->target;
	if (t.status != PT2P_OK) {
		std::string reason;
		engine_.losses().status_of(t.rank, reason);
		return reporter_.fail(t.status, "%s on memory of rank %d: %s", w.name, t.rank, reason.c_str());
	}
	for (Remote *r : {w.remote, w.signal}) {
		if (!r)
			continue;
		if (t.rank == job_.rank() && !memories_.find(r->memory))
			return reporter_.fail(PT2P_ERR_MEMORY, "%s: this rank has released the memory", w.name);
		const pt2p_status_t status = choose_paths(*r);
		if (status != PT2P_OK)
			return status;
	}
	return PT2P_OK;
}

Operation &OneSided::make_operation(const Work &w, Request *request)
{
	Target &t = *w.remote->target;
	Operation &op = operations_.take(t);
	op.request = request;
	op.name = w.name;
	op.remote = op.at = w.remote;
	op.signal_remote = w.signal;
	op.kind = w.kind;
	op.offset = w.offset;
	op.length = w.length;
	op.local = static_cast<unsigned char *>(w.local);
	op.atomic = w.atomic;
	op.signal_offset = w.signal_offset;
	op.signals = w.signal != nullptr;
	op.result = w.result;
	op.path = path_of(*w.remote, w.kind);
	op.device.endpoint = w.remote->endpoint;
	op.device.key = w.remote->key;
	if (op.kind == Operation::Kind::atomic) {
		set_up_atomic(op, *w.remote, w.offset);
		choose_way(op);
	}
	op.fenced = std::exchange(t.fence, false);
	++w.remote->pending;
	if (w.signal)
		++w.signal->pending;
	++t.pending;
	++pending_;
	return op;
}

// Finishes within the call what the processor can do, if nothing is before it, and what moves no bytes.
bool OneSided::at_once(const Work &w, Target &t)
{
	if (w.kind == Operation::Kind::atomic || w.signal)
		reporter_.add(Counter::atomics);
	if (w.kind != Operation::Kind::atomic)
		reporter_.add(w.kind == Operation::Kind::put ? Counter::put_bytes : Counter::get_bytes, w.length);
	if (w.kind != Operation::Kind::atomic && !w.length && !w.signal)
		return true;
	if (path_of(*w.remote, w.kind) != Path::direct || (w.signal && w.signal->atomic_path != Path::direct) ||
	    !t.waiting.empty() || (t.fence && t.started))
		return false;
	if (t.fence)
		full_fence();
	t.fence = false;
	carry_out(w, w.remote->base + w.offset);
	if (w.signal)
		apply(w.atomic, w.signal->base + w.signal_offset);
	reporter_.add(Counter::one_sided_direct);
	return true;
}

void OneSided::set_up_atomic(Operation &op, Remote &r, uint64_t offset)
{
	op.kind = Operation::Kind::atomic;
	op.at = &r;
	op.path = r.atomic_path;
	op.offset = offset;
	op.length = op.atomic.width;
	op.device.endpoint = r.atomic_endpoint;
	op.device.key = r.atomic_key;
	op.device.atomic = DeviceAtomic(op.atomic, r.address + offset);
}

// Additions may go by the owner, where that has shown to be quicker.
void OneSided::choose_way(Operation &op)
{
	if (op.atomic.kind != AtomicKind::add || op.path != Path::transport)
		return;
	constexpr uint64_t timed = 64; // of these, one, for advice
	op.timed = ++op.at->additions % timed == 0 || op.at->may_ask;
	if (!op.at->may_ask)
		return;
	if (!normal_.additions)
		measure_normal();
	if (op.at->atomic_way.asks())
		op.path = Path::owner;
}

// Adds 0 to a word of this rank by its device. Nobody waits for it.
void OneSided::measure_normal()
{
	++normal_.additions;
	try {
		if (!normal_.memory)
			normal_.memory = &normal_.table.add(&normal_.word, sizeof normal_.word);
		if (normal_.memory->agent != Agent::nic)
			return;
		Operation &op = operations_.take(targets_.at(job_.rank()));
		op.timed = normal_.under_way = true;
		op.issued = now_ticks();
		owner_.start(op, *normal_.memory, 0, {});
	} catch (const Error &e) {
		reporter_.log(LogLevel::info, "the latency of this rank's device is not known: %s", e.what());
	}
}

// Of an addition that has been done.
void OneSided::learn_way(Operation &op, pt2p_status_t status)
{
	const int64_t latency = now_ticks() - op.issued;
	const bool normal = op.served.foreign;
	if (normal)
		normal_.under_way = false;
	if (status != PT2P_OK)
		return;
	if (normal && normal_.additions == 1)
		measure_normal(); // the first one has connected the loopback
	else if (normal)
		normal_.latency = latency;
	else if (op.path == Path::owner)
		op.at->atomic_way.by_owner(latency, op.together);
	if (normal || op.path == Path::owner)
		return;
	int64_t &mean = op.at->addition_latency;
	mean = mean ? mean + (latency - mean) / 8 : latency;
	if (op.at->may_ask)
		op.at->atomic_way.by_device(latency, normal_.latency = std::min(normal_.latency, latency));
}

bool OneSided::issue(Operation &op)
{
	switch (op.path) {
	case Path::direct: do_direct(op); return true;
	case Path::transport: return issue_by_transport(op);
	default: return asker_.ask(op);
	}
}

void OneSided::do_direct(Operation &op)
{
	if (op.fenced)
		full_fence();
	carry_out(op, op.at->base + op.offset);
	advance(op, PT2P_OK);
}

bool OneSided::issue_by_transport(Operation &op)
{
	if (!op.length) { // nothing but a signal
		advance(op, PT2P_OK);
		return true;
	}
	Endpoint &e = *op.device.endpoint;
	for (;;) {
		Outcome outcome;
		switch (op.kind) {
		case Operation::Kind::put:
			outcome =
			    e.table->put(e, op.local, {op.at->address + op.offset, op.device.key}, op.length, as_operation(op));
			break;
		case Operation::Kind::get:
			outcome =
			    e.table->get(e, op.local, {op.at->address + op.offset, op.device.key}, op.length, as_operation(op));
			break;
		default:
			outcome = e.table->atomic(e, op.device.atomic.operation(), {op.device.atomic.word(), op.device.key},
			                          op.device.atomic.operand(), op.device.atomic.compare(), &op.device.word,
			                          as_operation(op));
		}
		if (outcome == Outcome::no_resource)
			return false;
		if (outcome == Outcome::refused) {
			const Refusal refusal = e.refusal();
			finish(op, refusal.status, refusal.reason);
			return true;
		}
		if (outcome == Outcome::in_progress)
			return true; // it may be over already
		if (finish_step(op)) {
			advance(op, PT2P_OK);
			return true;
		}
	}
}

// A transport has done a step of an operation; false when the operation takes another one.
bool OneSided::finish_step(Operation &op)
{
	if (op.kind != Operation::Kind::atomic)
		return true;
	if (!op.device.atomic.finished(op.device.word, op.device.value)) {
		reporter_.add(Counter::atomic_repeats);
		return false;
	}
	op.atomic.store(op.device.value, op.result);
	return true;
}

void OneSided::on_complete(uint64_t operation, pt2p_status_t status, std::string_view reason)
{
	Operation *op = operations_.find(operation & ~range.operation_bit);
	if (!op || op->path != Path::transport)
		return;
	if (status == PT2P_OK && !finish_step(*op)) {
		op->target->resumed.push(*op);
		targets_.list(*op->target);
	} else {
		advance(*op, status, reason);
	}
}

// After the payload of a put its signal follows. Any other operation is over.
void OneSided::advance(Operation &op, pt2p_status_t status, std::string_view reason)
{
	if (status != PT2P_OK || !op.signals) {
		finish(op, status, reason);
		return;
	}
	op.signals = false;
	set_up_atomic(op, *op.signal_remote, op.signal_offset);
	op.target->resumed.push(op);
	targets_.list(*op.target);
}

void OneSided::finish(Operation &op, pt2p_status_t status, std::string_view why)
{
	Target &t = *op.target;
	if (op.timed)
		learn_way(op, status);
	if (op.served.foreign) {
		owner_.on_served(op, status);
	} else {
		t.started -= op.started;
		t.asked -= op.asked;
		--t.pending;
		--pending_;
		--op.remote->pending;
		if (op.signal_remote)
			--op.signal_remote->pending;
		if (op.request)
			engine_.requests().complete(*op.request, status, why);
		else if (status != PT2P_OK)
			keep_failure(op, status, why);
	}
	operations_.give(op);
}

// Keeps the failure of an operation without a request, for flush(). The first counts, but the loss of the rank counts
// more than any other failure.
void OneSided::keep_failure(const Operation &op, pt2p_status_t status, std::string_view why)
{
	Target &t = *op.target;
	if (t.failure == PT2P_ERR_PEER_LOST || (t.failure != PT2P_OK && status != PT2P_ERR_PEER_LOST))
		return;
	std::string reason(why);
	if (reason.empty())
		engine_.losses().status_of(t.rank, reason);
	if (reason.empty() && status == PT2P_ERR_PEER_LOST)
		reason = "its process ended during the transfer";
	t.failure = status;
	t.failure_text = format("%s of %llu bytes at offset %llu of memory of rank %d%s%s", op.name,
	                        static_cast<unsigned long long>(op.length), static_cast<unsigned long long>(op.offset),
	                        t.rank, reason.empty() ? "" : ": ", reason.c_str());
}

// ---- order and end --------------------------------------------------------------------------------------------------

// Reports a loss each time: each thread has to learn that nothing it waits for will be done there.
pt2p_status_t OneSided::report_failure(Target &t)
{
	const pt2p_status_t status = t.failure;
	if (status != PT2P_ERR_PEER_LOST)
		t.failure = PT2P_OK;
	return status == PT2P_OK ? status : reporter_.fail(status, "%s", t.failure_text.c_str());
}

pt2p_status_t OneSided::flush(int rank)
{
	Target *const t = targets_.find(rank);
	if (!t)
		return PT2P_OK;
	if (t->pending)
		progress_.wait([&] { return !t->pending; });
	else
		progress_.poll(); // lets in news of lost ranks, also where nobody waits
	return report_failure(*t);
}

pt2p_status_t OneSided::flush_all()
{
	if (pending_)
		progress_.wait([this] { return !pending_; });
	pt2p_status_t first = PT2P_OK;
	targets_.for_each([&](Target &t) {
		if (first == PT2P_OK)
			first = report_failure(t);
		else if (t.failure != PT2P_ERR_PEER_LOST)
			t.failure = PT2P_OK;
	});
	return first;
}

void OneSided::fence(int rank)
{
	if (Target *t = targets_.find(rank))
		t->fence = true;
}

std::string OneSided::pending_text() const
{
	std::string text;
	size_t lines = 0;
	targets_.for_each([&](const Target &t) {
		if (t.pending && ++lines <= max_lines)
			text += format("  %s on memory of rank %d not done: %zu in flight, %u of them not answered by that rank\n",
			               counted(t.pending, "one-sided operation").c_str(), t.rank, t.started, t.asked);
		if (t.owed && ++lines <= max_lines)
			text += format("  %s of rank %d not answered\n", counted(t.owed, "one-sided operation").c_str(), t.rank);
	});
	return text;
}

} // namespace pt2p::onesided
