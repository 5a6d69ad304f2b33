// What all loads have in common: settings, a Messenger that carries the messages (kv_load.cpp, ucx_load.cpp), and what
// is measured. A load is one rank's part: kv.hpp, rounds.hpp. traffic.hpp chooses it.
#pragma once

#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "softhca/studies/programs/study.hpp"

namespace study {

struct Load {
	size_t ranks, window, bytes, operations, receives, sends;
	bool connect;
	// Of a key-value store (kv.hpp).
	size_t partners;
	double updates, work;
	bool uniform, incast;
};

// Moves the messages of a rank. Receives and sends are known by their index.
class Messenger {
public:
	virtual ~Messenger() = default;
	// A message from anybody goes to `buffer`.
	virtual void receive(size_t place, void *buffer, size_t room) = 0;
	// Who has sent the message of this receive; nothing, after progress, if there is none yet.
	virtual std::optional<size_t> received(size_t place) = 0;
	virtual void send(size_t place, size_t to, const void *buffer, size_t bytes) = 0;
	// Whether the buffer may be used again; if not, makes progress.
	virtual bool sent(size_t place) = 0;
	virtual void barrier() = 0;
	// Cancels all receives and waits for all sends.
	virtual void finish() = 0;
};

// What all ranks share: they are fibres of one thread.
struct Shared {
	size_t connected = 0, done = 0, first = 0, drained = 0; // the first and the last count ranks
	double since = 0, until = 0;
	std::vector<uint32_t> latencies; // ns
	std::map<std::string, uint64_t> counters;
};
inline const char *const counted[] = {"doorbells",    "cqes",      "dc_connects",  "dc_switches",
                                      "packets_sent", "wqe_reads", "payload_reads"};

inline void one_done(Shared &shared, const Load &load, double latency)
{
	++shared.done;
	if (shared.done == shared.first) {
		shared.since = now();
		for (const char *name : counted)
			shared.counters[name] = device_counter(name);
	} else if (shared.done > shared.first && shared.done <= load.operations && latency >= 0) {
		shared.latencies.push_back(static_cast<uint32_t>(latency));
	}
	if (shared.done == load.operations) {
		shared.until = now();
		for (const char *name : counted)
			shared.counters[name] = device_counter(name) - shared.counters[name];
	}
}

// The buffers of a rank, in turn.
class Mailbox {
public:
	Mailbox(Messenger &messenger, const Load &load, size_t message_bytes)
	    : messenger_(messenger), receives_(load.receives), sends_(load.sends), message_bytes_(message_bytes),
	      memory_((load.receives + load.sends) * message_bytes)
	{
	}

	void begin()
	{
		for (size_t i = 0; i < receives_; ++i)
			receive(i);
		messenger_.barrier();
	}
	void end()
	{
		messenger_.finish();
		messenger_.barrier();
	}
	// Where the next message is made; progress until its place is free.
	unsigned char *next()
	{
		place_ = next_send_++ % sends_;
		while (!messenger_.sent(place_)) {
		}
		return memory_.data() + (receives_ + place_) * message_bytes_;
	}
	void send(size_t to, size_t bytes)
	{
		messenger_.send(place_, to, memory_.data() + (receives_ + place_) * message_bytes_, bytes);
	}
	// Calls use(from, bytes) for the next message, if there is one.
	template <class Use>
	bool take(const Use &use)
	{
		const size_t place = next_receive_ % receives_;
		const std::optional<size_t> from = messenger_.received(place);
		if (!from)
			return false;
		++next_receive_;
		use(*from, const_cast<const unsigned char *>(buffer(place)));
		receive(place);
		return true;
	}
	// So many at most.
	template <class Use>
	void take_some(const Use &use)
	{
		for (int n = 0; n < 16 && take(use); ++n) {
		}
	}

private:
	unsigned char *buffer(size_t i) { return memory_.data() + i * message_bytes_; }
	void receive(size_t i)
	{
		std::memset(buffer(i), 0, message_bytes_);
		messenger_.receive(i, buffer(i), message_bytes_);
	}

	Messenger &messenger_;
	const size_t receives_, sends_, message_bytes_;
	std::vector<unsigned char> memory_;
	size_t next_receive_ = 0, next_send_ = 0, place_ = 0;
};

} // namespace study
