#include "onesided/owner.hpp"

#include <algorithm>
#include <cstring>

#include "base/assert.hpp"

namespace pt2p::onesided {

namespace {

AtomicRequest signal_of(const PutHead &head)
{
	return {static_cast<AtomicKind>(head.signal - 1), 8, head.signal_value, 0};
}

} // namespace

const char *Owner::on_message(Target &t, uint8_t id, uint64_t token, const void *data, size_t length)
{
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
	if (id != id_piece && t.owed + t.incoming.open >= window)
		return "more one-sided operations at a time than it may";
	switch (id) {
	case id_put: return head(put) ? on_put(t, token, put, bytes + sizeof put, length - sizeof put) : wrong_message;
	case id_piece: return on_piece(t, token, data, length);
	case id_get: return head(get) && length == sizeof get ? on_get(t, token, get) : wrong_message;
	default: return head(atomic) && length == sizeof atomic ? on_atomic(t, token, atomic) : wrong_message;
	}
}

pt2p_status_t Owner::examine(uint64_t memory, uint64_t offset, uint64_t length, Memory *&found)
{
	found = memories_.find(memory);
	return !found ? PT2P_ERR_MEMORY : found->holds(offset, length) ? PT2P_OK : PT2P_ERR_BOUNDS;
}

const char *Owner::on_put(Target &t, uint64_t token, const PutHead &head, const unsigned char *data, size_t length)
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

const char *Owner::on_piece(Target &t, uint64_t token, const void *data, size_t length)
{
	if (!t.incoming.open || t.incoming.token != token || !length || length > t.incoming.remaining)
		return "a piece of a put that it did not announce";
	take_piece(t, data, length);
	return nullptr;
}

void Owner::take_piece(Target &t, const void *data, size_t length)
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

const char *Owner::on_get(Target &t, uint64_t token, const GetHead &head)
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
	owe(t);
	targets_.list(t);
	return nullptr;
}

const char *Owner::on_atomic(Target &t, uint64_t token, const AtomicHead &head)
{
	if ((head.width != 4 && head.width != 8) || head.kind >= atomic_kinds)
		return "an atomic operation that does not exist";
	execute(t, token, head.memory, head.offset,
	        {static_cast<AtomicKind>(head.kind), head.width, head.operand, head.compare});
	return nullptr;
}

// Does an atomic operation for a peer, by whichever agent the memory has, and answers.
void Owner::execute(Target &t, uint64_t token, uint64_t memory, uint64_t offset, const AtomicRequest &a)
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
	owe(t);
	if (a.kind == AtomicKind::add) {
		const AddedWord word{memory, offset, a.width};
		if (additions_.add(word, t, token, a.operand))
			add(word);
		return;
	}
	Operation &op = operations_.take(targets_.at(rank_));
	op.served.target = &t;
	op.served.token = token;
	start(op, *m, offset, a);
}

void Owner::start(Operation &op, Memory &m, uint64_t offset, const AtomicRequest &a)
{
	op.started = op.served.foreign = true;
	op.kind = Operation::Kind::atomic;
	op.path = Path::transport;
	op.atomic = a;
	op.offset = offset;
	op.length = a.width;
	op.device.endpoint = m.nic;
	op.device.key = m.nic_key;
	op.device.atomic = DeviceAtomic(a, reinterpret_cast<uint64_t>(m.at(offset)));
	op.target->resumed.push(op);
	targets_.list(*op.target);
}

// Adds up what waits for a word.
void Owner::add(const AddedWord &word)
{
	Operation &op = operations_.take(targets_.at(rank_));
	AtomicRequest sum{AtomicKind::add, word.width, 0, 0};
	op.served.additions = additions_.take(word, sum.operand);
	op.served.word = word;
	Memory *m;
	if (const pt2p_status_t status = examine(word.memory, word.offset, word.width, m); status != PT2P_OK) {
		// Released while they waited.
		on_added(op, status);
		operations_.give(op);
		return;
	}
	start(op, *m, word.offset, sum);
}

void Owner::on_added(Operation &op, pt2p_status_t status)
{
	size_t together = 0;
	op.served.additions.for_each([&](const Addition &) { ++together; });
	if (together > 1)
		reporter_.add(Counter::atomics_together, together);
	additions_.answer(op.served.additions, op.device.value, [&](Target &t, uint64_t token, uint64_t value) {
		settle(t);
		reply(t, token, status, value, together);
	});
	if (additions_.goes_on(op.served.word))
		add(op.served.word);
}

void Owner::on_served(Operation &op, pt2p_status_t status)
{
	if (!op.served.additions.empty())
		return on_added(op, status);
	if (!op.served.target)
		return;
	settle(*op.served.target);
	reply(*op.served.target, op.served.token, status, op.device.value);
}

void Owner::forget(const Target &t)
{
	const auto forgotten = [&] { settle(*targets_.find(t.rank)); };
	additions_.forget(t, forgotten);
	operations_.for_each([&](Operation &op) { // a device still works on them
		Additions::forget(op.served.additions, t, forgotten);
		if (op.served.target == &t) {
			op.served.target = nullptr;
			forgotten();
		}
	});
}

void Owner::owe(Target &t)
{
	++t.owed;
	++owed_;
}

void Owner::settle(Target &t)
{
	PT2P_ASSERT(t.owed && owed_);
	--t.owed;
	--owed_;
}

// ---- answering ------------------------------------------------------------------------------------------------------

void Owner::reply(Target &t, uint64_t token, pt2p_status_t status, uint64_t value, size_t together)
{
	// What a device says of its own trouble is no concern of the peer's.
	if (status != PT2P_OK && status != PT2P_ERR_MEMORY && status != PT2P_ERR_BOUNDS)
		status = PT2P_ERR_SYSTEM;
	Reply &r = *replies_.take();
	r = {nullptr, id_result, token, {value, static_cast<uint32_t>(status), static_cast<uint32_t>(together)}, 0, 0, 0};
	t.replies.push(r);
	owe(t);
	targets_.list(t);
}

// Sends an answer or some of it; `over` when that was the last of it.
bool Owner::send_reply(Target &t, Reply &r, bool &over)
{
	Channel &c = *t.channel;
	over = true;
	Memory *m = nullptr;
	if (r.id == id_data) {
		const size_t piece = std::min<uint64_t>(r.remaining, c.endpoint.longest_piece());
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

unsigned Owner::send_replies(Target &t)
{
	unsigned n = 0;
	pt2p_status_t status = PT2P_OK;
	if (t.replies.empty())
		return 0;
	// A target that is lost has no replies any more; what this rank lacks to reach it may be there in the next turn.
	if (!targets_.connect(t, status))
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
		settle(t);
	}
	return n;
}

void Owner::drop_replies(Target &t)
{
	while (!t.replies.empty()) {
		replies_.give(&t.replies.pop());
		settle(t);
	}
}

} // namespace pt2p::onesided
