// Receives: matching them with what arrives, and with messages that arrived before them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "message/matching/matching.hpp"
#include "message/rendezvous/rendezvous.hpp"
#include "message/request/requests.hpp"
#include "message/unexpected.hpp"

namespace pt2p {

class Receives {
public:
	Receives(const Config &config, Reporter &reporter, int rank, PeerLosses &losses, Channels &channels,
	         Requests &requests, Rendezvous &rendezvous)
	    : reporter_(reporter), losses_(losses), channels_(channels), requests_(requests), rendezvous_(rendezvous),
	      unexpected_(config, reporter, rank, channels, matcher_, requests.details().buffers())
	{
	}

	// Start a receive. Arguments have been checked. Null when it could not be started: `status` says why and the
	// explanation has been recorded.
	Request *irecv(void *buffer, size_t capacity, int source, uint64_t tag, uint64_t mask, pt2p_status_t &status)
	{
		return irecv(buffer, capacity, source, tag, mask, status, nullptr);
	}
	// Into segments, `capacity` bytes altogether.
	Request *irecv(const pt2p_iovec_t *segments, size_t count, size_t capacity, int source, uint64_t tag, uint64_t mask,
	               pt2p_status_t &status);
	// Only while it is posted; afterwards it does nothing.
	void cancel(Request &request);

	bool find_unexpected(int source, uint64_t tag, uint64_t mask, pt2p_result_t &result);
	// Takes the oldest such message out of matching: only irecv_taken can receive it. Null: there is none.
	UnexpectedMessage *take(int source, uint64_t tag, uint64_t mask, pt2p_result_t &result);
	UnexpectedMessage *find_taken(uint64_t handle) const
	{
		UnexpectedMessage *m = unexpected_.all().find(handle);
		return m && m->taken ? m : nullptr;
	}
	// Messages of a peer that is down, whose rank will be somebody else. They stand in the way unless they are dropped;
	// one that a matched probe has taken does always.
	bool may_forget(int peer, bool drop_messages) const;
	void forget(int peer);
	Request *irecv_taken(void *buffer, size_t capacity, UnexpectedMessage &message);

	// The two steps by which an eager message is received; inline, as short messages must pay for no more than they
	// need. The first: the receive that the message belongs to; null: there is none, or it takes a closer look.
	[[gnu::always_inline]] Request *match_at_once(int peer, uint64_t tag)
	{
		if (__builtin_expect(matcher_.any_wild(), 0))
			return nullptr;
		return static_cast<Request *>(matcher_.match_exact(peer, tag));
	}
	// The second. False: it takes more than a copy. The copy comes last, so that nothing has to be kept over it.
	[[gnu::always_inline]] bool deliver_at_once(Request &r, int peer, uint64_t tag, const void *data, size_t length)
	{
		r.peer = peer;
		r.message_tag = tag;
		r.length = length;
		reporter_.add(Counter::messages_received);
		if (__builtin_expect(static_cast<int64_t>(length) > r.room, 0))
			return false;
		reporter_.add(Counter::bytes_received, length);
		r.state = Request::State::done;
		copy(r.buffer, data, length);
		return true;
	}
	// After deliver_at_once has returned false.
	[[gnu::noinline]] void deliver_otherwise(Request &request, const void *data);
	// After match_at_once has returned null.
	void on_eager(int peer, uint64_t tag, const void *data, size_t length);
	void on_synchronous(int peer, uint64_t tag, const void *data, size_t length);
	void on_with_data(int peer, uint64_t tag, const void *data, size_t length);
	// False: it does not carry what such a message must.
	bool on_announce(int peer, uint64_t tag, const void *data, size_t length);

	Matcher &matcher() { return matcher_; }
	const Matcher &matcher() const { return matcher_; }
	const HandlePool<UnexpectedMessage> &messages() const { return unexpected_.all(); }

private:
	[[gnu::always_inline]] static void copy(void *to, const void *data, size_t length)
	{
		if (length == 8)
			std::memcpy(to, data, 8);
		else if (length)
			std::memcpy(to, data, length);
	}
	void deliver(Request &r, int peer, uint64_t tag, const void *data, size_t length)
	{
		if (!deliver_at_once(r, peer, tag, data, length))
			deliver_otherwise(r, data);
	}
	Request *irecv(void *buffer, size_t capacity, int source, uint64_t tag, uint64_t mask, pt2p_status_t &status,
	               Details *details);
	[[gnu::noinline]] void take_unexpected(Request &request, UnexpectedMessage &message);
	void receive(Request &request, UnexpectedMessage &message);
	bool take_word(int peer, uint64_t &word, const void *&data, size_t &length);
	static pt2p_result_t result_of(const UnexpectedMessage &m)
	{
		return {PT2P_OK, m.source, m.tag, m.length, m.data, m.has_data};
	}
	static void give_data(Request &r, uint64_t data)
	{
		r.data = data;
		r.of_message |= Request::with_data;
	}

	Reporter &reporter_;
	PeerLosses &losses_;
	Channels &channels_;
	Requests &requests_;
	Rendezvous &rendezvous_;
	Matcher matcher_;
	UnexpectedMessages unexpected_;
};

} // namespace pt2p
