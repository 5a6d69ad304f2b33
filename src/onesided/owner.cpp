// Operations by the owner of the memory: asking for them, and doing what is asked; wire.hpp draws the messages.
//
// Whoever asks is not trusted. The owner looks a handle up in its table and checks offset and length for each message, so
// nothing outside of registered memory is touched, also when the memory is released amid a transfer.
#include <algorithm>
#include <cstring>

#include "base/config/config.hpp"
#include "base/job/job.hpp"
#include "onesided/onesided.hpp"

namespace pt2p::onesided {

namespace {

AtomicRequest signal_of(const PutHead &head)
{
	return {static_cast<AtomicKind>(head.signal - 1), 8, head.signal_value, 0};
}

} // namespace

// ---- asking -----------------------------------------------------------------------------------------------------------

bool OneSided::ask(Operation &op)
{
	Target &t = *op.target;
	pt2p_status_t status = PT2P_OK;
	if (t.asked >= window || t.streaming || !connect(t, status))
		return false;
	Channel &c = *t.channel;
	// Before it is sent: this rank itself may be asked.
	op.asked = true;
	++t.asked;
	bool sent;
	if (op.kind == Operation::Kind::put) {
		sent = ask_put(op, c);
	} else if (op.kind == Operation::Kind::get) {
		const GetHead head{op.at->memory, op.offset, op.length};
		sent = c.try_send(id_get, op.handle, &head, sizeof head) == Outcome::done;
	} else {
		const AtomicHead head{op.at->memory,      op.offset, op.atomic.operand, op.atomic.compare,
		                      static_cast<uint32_t>(op.atomic.kind), op.atomic.width};
		sent = c.try_send(id_atomic, op.handle, &head, sizeof head) == Outcome::done;
	}
	if (!sent && t.status == PT2P_OK) {
		op.asked = false;
		--t.asked;
	}
	if (sent)
		stream(t);
	return sent;
}

bool OneSided::ask_put(Operation &op, Channel &c)
{
	PutHead head{op.at->memory, op.offset, op.length, 0, 0, 0, 0};
	// The owner sees to the signal as well, if it is the one who does those; else the signal follows the answer.
	const bool signal = op.signals && op.signal_remote->atomic_way == Way::owner;
	if (signal) {
		head.signal_memory = op.signal_remote->memory;
		head.signal_offset = op.signal_offset;
		head.signal_value = op.atomic.operand;
		head.signal = 1 + static_cast<uint64_t>(op.atomic.kind);
	}
	const bool whole = op.length <= short_put;
	unsigned char message[short_message];
	std::memcpy(message, &head, sizeof head);
	if (whole && op.length)
		std::memcpy(message + sizeof head, op.local, op.length);
	Target &t = *op.target;
	const bool signals = op.signals;
	op.signals = signals && !signal;
	t.streaming = whole ? nullptr : &op;
	if (c.try_send(id_put, op.handle, message, sizeof head + (whole ? op.length : 0)) == Outcome::done)
		return true;
	if (t.status == PT2P_OK) {
		op.signals = signals;
		t.streaming = nullptr;
	}
	return false;
}

unsigned OneSided::stream(Target &t)
{
	unsigned n = 0;
	while (Operation *op = t.streaming) {
		const size_t piece = std::min<uint64_t>(op->length - op->moved, t.channel->endpoint.max_send);
		op->moved += piece;
		if (op->moved == op->length)
			t.streaming = nullptr;
		if (t.channel->try_send(id_piece, op->handle, op->local + op->moved - piece, piece) != Outcome::done) {
			if (t.status == PT2P_OK) {
				op->moved -= piece;
				t.streaming = op;
			}
			break;
		}
		++n;
	}
	return n;
}

// The operation that an answer names, if that rank has been asked for it.
Operation *OneSided::asked(uint64_t token, const Target &t)
{
	Operation *op = operations_.find(token);
	return op && op->active && op->asked && op->target == &t && t.streaming != op ? op : nullptr;
}

const char *OneSided::on_data(Target &t, uint64_t token, const void *data, size_t length)
{
	Operation *op = asked(token, t);
	if (!op || op->kind != Operation::Kind::get || !length || length > op->length - op->moved)
		return "bytes that no get asked it for";
	std::memmove(op->local + op->moved, data, length); // this rank itself may send from there
	op->moved += length;
	if (op->moved == op->length)
		finish(*op, PT2P_OK);
	return nullptr;
}

const char *OneSided::on_result(Target &t, uint64_t token, const Result &r)
{
	Operation *op = asked(token, t);
	const auto status = static_cast<pt2p_status_t>(r.status);
	if (!op || (r.status != PT2P_OK && r.status != PT2P_ERR_MEMORY && r.status != PT2P_ERR_BOUNDS &&
	            r.status != PT2P_ERR_SYSTEM) ||
	    (r.status == PT2P_OK && op->kind == Operation::Kind::get))
		return "the answer to a one-sided operation that it was not asked for";
	op->asked = false;
	--t.asked;
	if (status == PT2P_OK && op->kind == Operation::Kind::atomic && op->result) {
		const auto half = static_cast<uint32_t>(r.value);
		if (op->atomic.width == 4)
			std::memcpy(op->result, &half, 4);
		else
			std::memcpy(op->result, &r.value, 8);
	}
	advance(*op, status);
	return nullptr;
}

// ---- being asked ------------------------------------------------------------------------------------------------------

const char *OneSided::on_message(int peer, uint8_t id, uint64_t header, const void *data, size_t length)
{
	Target &t = target(peer);
	const auto *bytes = static_cast<const unsigned char *>(data);
	// Copied: a peer may go on writing to it.
	const auto head = [&](auto &value) {
		if (length < sizeof value)
			return false;
		std::memcpy(&value, bytes, sizeof value);
		return true;
	};
	PutHead put;
	GetHead get;
	AtomicHead atomic;
	Result result;
	const bool request = id == id_put || id == id_get || id == id_atomic;
	if (request && t.owed + t.incoming.open >= window)
		return "more one-sided operations at a time than it may";
	switch (id) {
	case id_put:
		if (head(put))
			return on_put(t, header, put, bytes + sizeof put, length - sizeof put);
		break;
	case id_piece:
		return on_piece(t, header, data, length);
	case id_get:
		if (head(get) && length == sizeof get)
			return on_get(t, header, get);
		break;
	case id_atomic:
		if (head(atomic) && length == sizeof atomic)
			return on_atomic(t, header, atomic);
		break;
	case id_data:
		return on_data(t, header, data, length);
	case id_result:
		if (head(result) && length == sizeof result)
			return on_result(t, header, result);
		break;
	default:
		break;
	}
	return "a one-sided operation that does not exist or has the wrong length";
}

pt2p_status_t OneSided::examine(uint64_t memory, uint64_t offset, uint64_t length, Memory *&found)
{
	found = memories_.find(memory);
	return !found ? PT2P_ERR_MEMORY : found->holds(offset, length) ? PT2P_OK : PT2P_ERR_BOUNDS;
}

const char *OneSided::on_put(Target &t, uint64_t token, const PutHead &head, const unsigned char *data, size_t length)
{
	if (t.incoming.open)
		return "a put amid another";
	if ((length != head.length && (length || head.length <= short_put)) || head.signal > atomic_kinds - 1)
		return "a put that is not as long as it says";
	Memory *m;
	t.incoming = {true, token, head.offset, head.length, examine(head.memory, head.offset, head.length, m), head};
	if (length == head.length)
		take_piece(t, data, length);
	return nullptr;
}

const char *OneSided::on_piece(Target &t, uint64_t token, const void *data, size_t length)
{
	if (!t.incoming.open || t.incoming.token != token || !length || length > t.incoming.remaining)
		return "a piece of a put that it did not announce";
	take_piece(t, data, length);
	return nullptr;
}

void OneSided::take_piece(Target &t, const void *data, size_t length)
{
	Target::Incoming &in = t.incoming;
	if (in.status == PT2P_OK && length) {
		Memory *m;
		in.status = examine(in.head.memory, in.offset, length, m);
		if (in.status == PT2P_OK)
			std::memmove(m->at(in.offset), data, length); // this rank itself may send from there
	}
	in.offset += length;
	in.remaining -= length;
	if (in.remaining)
		return;
	in.open = false;
	if (in.status == PT2P_OK && in.head.signal) {
		execute(t, in.token, in.head.signal_memory, in.head.signal_offset, signal_of(in.head));
		return;
	}
	reporter_.add(Counter::one_sided_served);
	reply(t, in.token, in.status, 0);
}

const char *OneSided::on_get(Target &t, uint64_t token, const GetHead &head)
{
	Memory *m;
	const pt2p_status_t status = head.length ? examine(head.memory, head.offset, head.length, m) : PT2P_ERR_BOUNDS;
	reporter_.add(Counter::one_sided_served);
	if (status != PT2P_OK) {
		reply(t, token, status, 0);
		return nullptr;
	}
	Reply &r = *replies_.take();
	r = {nullptr, id_data, token, {}, head.memory, head.offset, head.length};
	t.replies.push(r);
	++t.owed;
	++owed_;
	list(t);
	return nullptr;
}

const char *OneSided::on_atomic(Target &t, uint64_t token, const AtomicHead &head)
{
	if ((head.width != 4 && head.width != 8) || head.kind >= atomic_kinds)
		return "an atomic operation that does not exist";
	execute(t, token, head.memory, head.offset,
	        {static_cast<AtomicKind>(head.kind), head.width, head.operand, head.compare});
	return nullptr;
}

// Does an atomic operation for a peer, by whichever agent the memory has, and answers.
void OneSided::execute(Target &t, uint64_t token, uint64_t memory, uint64_t offset, const AtomicRequest &a)
{
	Memory *m;
	pt2p_status_t status = examine(memory, offset, a.width, m);
	if (status == PT2P_OK && reinterpret_cast<uintptr_t>(m->at(offset)) % a.width)
		status = PT2P_ERR_BOUNDS;
	reporter_.add(Counter::one_sided_served);
	if (status != PT2P_OK || m->agent == Agent::cpu) {
		reply(t, token, status, status == PT2P_OK ? apply(a, m->at(offset)) : 0);
		return;
	}
	// Through this rank's device, as all do.
	Operation &op = *operations_.take();
	const uint64_t handle = op.handle;
	op = Operation{};
	op.handle = handle;
	op.active = op.started = op.foreign = true;
	op.target = &target(job_.rank());
	op.served = &t;
	op.token = token;
	op.kind = Operation::Kind::atomic;
	op.way = Way::transport;
	op.atomic = a;
	op.offset = offset;
	op.length = a.width;
	op.endpoint = m->nic;
	op.key = m->nic_key;
	op.device = DeviceAtomic(a, reinterpret_cast<uint64_t>(m->at(offset)));
	++t.owed;
	++owed_;
	op.target->resumed.push(op);
	list(*op.target);
}

// ---- answering --------------------------------------------------------------------------------------------------------

void OneSided::reply(Target &t, uint64_t token, pt2p_status_t status, uint64_t value)
{
	// What a device says of its own trouble is no concern of the peer's.
	if (status != PT2P_OK && status != PT2P_ERR_MEMORY && status != PT2P_ERR_BOUNDS)
		status = PT2P_ERR_SYSTEM;
	Reply &r = *replies_.take();
	r = {nullptr, id_result, token, {value, static_cast<uint32_t>(status), 0}, 0, 0, 0};
	t.replies.push(r);
	++t.owed;
	++owed_;
	list(t);
}

// Sends an answer or some of it; `over` when that was the last of it.
bool OneSided::send_reply(Target &t, Reply &r, bool &over)
{
	Channel &c = *t.channel;
	over = true;
	Memory *m = nullptr;
	if (r.id == id_data) {
		const size_t piece = std::min<uint64_t>(r.remaining, c.endpoint.max_send);
		const pt2p_status_t status = examine(r.memory, r.offset, piece, m);
		if (status == PT2P_OK) {
			if (c.try_send(id_data, r.token, m->at(r.offset), piece) != Outcome::done)
				return false;
			r.offset += piece;
			r.remaining -= piece;
			over = !r.remaining;
			return true;
		}
		r.id = id_result;
		r.result = {0, static_cast<uint32_t>(status), 0};
	}
	return c.try_send(id_result, r.token, &r.result, sizeof r.result) == Outcome::done;
}

unsigned OneSided::send_replies(Target &t)
{
	unsigned n = 0;
	pt2p_status_t status = PT2P_OK;
	if (t.replies.empty())
		return 0;
	// A target that is lost has no replies any more; what this rank lacks to reach it may be there in the next turn.
	if (!connect(t, status))
		return 0;
	while (!t.replies.empty()) {
		Reply &r = *t.replies.front();
		bool over;
		// This rank itself may be the one that asked: then it hears of it within the call.
		if (!send_reply(t, r, over) || t.status != PT2P_OK)
			break;
		++n;
		if (!over)
			continue;
		replies_.give(&t.replies.pop());
		--t.owed;
		--owed_;
	}
	return n;
}

void OneSided::drop_replies(Target &t)
{
	while (!t.replies.empty()) {
		replies_.give(&t.replies.pop());
		--t.owed;
		--owed_;
	}
}

} // namespace pt2p::onesided
