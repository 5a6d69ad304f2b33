#include "onesided/asking.hpp"

#include <algorithm>
#include <cstring>

namespace pt2p::onesided {

bool Asker::ask(Operation &op)
{
	Target &t = *op.target;
	pt2p_status_t status = PT2P_OK;
	if (t.asked >= window || t.streaming || !targets_.connect(t, status))
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
		const AtomicHead head{
		    op.at->memory,  op.offset, op.atomic.operand, op.atomic.compare, static_cast<uint32_t>(op.atomic.kind),
		    op.atomic.width};
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

bool Asker::ask_put(Operation &op, Channel &c)
{
	PutHead head{op.at->memory, op.offset, op.length, 0, 0, 0, 0};
	// The owner also does the signal if it does the atomic operations on that memory. Else the signal follows its
	// answer.
	const bool signal = op.signals && op.signal_remote->atomic_path == Path::owner;
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

unsigned Asker::stream(Target &t)
{
	unsigned n = 0;
	while (Operation *op = t.streaming) {
		const size_t piece = std::min<uint64_t>(op->length - op->moved, t.channel->endpoint.longest_piece());
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
Operation *Asker::asked(uint64_t token, const Target &t)
{
	Operation *op = operations_.find(token);
	return op && op->asked && op->target == &t && t.streaming != op ? op : nullptr;
}

const char *Asker::on_data(Target &t, uint64_t token, const void *data, size_t length)
{
	Operation *op = asked(token, t);
	if (!op || op->kind != Operation::Kind::get || !length || length > op->length - op->moved)
		return "bytes that no get asked it for";
	std::memmove(op->local + op->moved, data, length); // this rank itself may send from there
	op->moved += length;
	if (op->moved == op->length)
		client_.finish(*op, PT2P_OK);
	return nullptr;
}

const char *Asker::on_result(Target &t, uint64_t token, const void *data, size_t length)
{
	Result r;
	if (length != sizeof r)
		return wrong_message;
	std::memcpy(&r, data, sizeof r); // copied: a peer may go on writing to it
	Operation *op = asked(token, t);
	const auto status = static_cast<pt2p_status_t>(r.status);
	if (!op ||
	    (r.status != PT2P_OK && r.status != PT2P_ERR_MEMORY && r.status != PT2P_ERR_BOUNDS &&
	     r.status != PT2P_ERR_SYSTEM) ||
	    (r.status == PT2P_OK && op->kind == Operation::Kind::get))
		return "the answer to a one-sided operation that it was not asked for";
	op->asked = false;
	--t.asked;
	op->together = r.together;
	if (status == PT2P_OK && op->kind == Operation::Kind::atomic)
		op->atomic.store(r.value, op->result);
	client_.advance(*op, status);
	return nullptr;
}

} // namespace pt2p::onesided
