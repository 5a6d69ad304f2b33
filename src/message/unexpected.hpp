// Messages that arrived before their receive, and the budget for their bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "message/matching/matching.hpp"
#include "message/peers/channels.hpp"

namespace pt2p {

class UnexpectedMessages {
public:
	UnexpectedMessages(const Config &config, Reporter &reporter, int rank, Channels &channels, Matcher &matcher,
	                   BufferPool &buffers);
	~UnexpectedMessages();
	UnexpectedMessages(const UnexpectedMessages &) = delete;
	UnexpectedMessages &operator=(const UnexpectedMessages &) = delete;

	// A new one, which is not in matching yet.
	UnexpectedMessage &make(int peer, uint64_t tag, size_t length);
	// Copies the payload of a new one and puts it into matching. Asks its sender to announce what follows when too much
	// waits.
	void keep(UnexpectedMessage &message, const void *data);
	// Puts an announced one, which has no payload, into matching.
	void keep_announced(UnexpectedMessage &message);
	// Frees one that is out of matching and has no payload.
	void give(UnexpectedMessage &message) { messages_.give(&message); }
	// Gives back the payload of a message that has been received. give() and allow_eager() follow.
	void give_payload(UnexpectedMessage &message);
	// Lets the senders send eagerly again once enough of what waited has been received.
	void allow_eager();
	// Takes one out of matching and frees it.
	void drop(UnexpectedMessage &message);

	// That peer is down, and need not be told that it may send eagerly again.
	void forget(int peer) { std::erase(stopped_, peer); }

	const HandlePool<UnexpectedMessage> &all() const { return messages_; }

private:
	[[gnu::noinline, gnu::cold]] void stop_eager(int peer);
	[[gnu::noinline, gnu::cold]] void resume_eager();

	const Config &config_;
	Reporter &reporter_;
	const int rank_;
	Channels &channels_;
	Matcher &matcher_;
	BufferPool &buffers_;
	HandlePool<UnexpectedMessage> messages_;
	size_t bytes_ = 0;
	std::vector<int> stopped_; // peers that were told to announce only
};

} // namespace pt2p
