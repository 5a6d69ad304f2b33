// Messages that a matched probe has taken out of matching: they wait for the one receive that names them.
#include "message/engine.hpp"

namespace pt2p {

UnexpectedMessage *Engine::take(int source, uint64_t tag, uint64_t mask, pt2p_result_t &result)
{
	UnexpectedMessage *m = matcher_.find(source, tag, mask);
	if (!m)
		return nullptr;
	matcher_.remove(*m);
	m->taken = true;
	result = {PT2P_OK, m->source, m->tag, m->length};
	return m;
}

// When the sender of an announced message is gone the receive says so; an eager message is whole. What this rank lacks to answer
// the sender fails the receive, and leaves the message to another one.
Request *Engine::irecv_taken(void *buffer, size_t capacity, UnexpectedMessage &m)
{
	Request *r = requests_.take();
	start_receive(*r, buffer, capacity, m.source, m.tag, PT2P_TAG_EXACT);
	const bool answered = !m.announced || can_answer(*r, m.source, m.tag, m.length);
	m.taken = !answered && !is_down(m.source);
	if (answered)
		hand_over(*r, m);
	else if (!m.taken)
		messages_.give(&m);
	return r;
}

} // namespace pt2p
