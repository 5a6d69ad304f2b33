// A key-value store under the load of YCSB. Keys are distributed over the ranks by their hash; each rank is a server of
// its share and a client of all. Requests and answers are messages; a client has a window of requests in flight.
//
// workload: a, b, c: 50, 5, 0 % updates (c: reads only). Keys are drawn as in YCSB, from a scrambled Zipf distribution
// with 0.99, or with keys=uniform uniformly. Values have `bytes`. Each request takes `work` ns of a server's processor
// (assumed), beside the messenger's calls, which the model charges. partners: the keys of a client are on so many
// ranks, which follow the rank half way round; 0: on all. traffic=incast: all keys are on the first rank, which
// only serves, and each other rank does an equal part of the operations.
#pragma once

#include <algorithm>
#include <cstring>

#include "examples/kv/ycsb.hpp"
#include "softhca/studies/programs/load.hpp"

namespace kv {

using namespace study;

// As in YCSB: ranks of 10^10 items, whose hashes are the keys.
class Keys {
public:
	Keys(uint64_t seed, bool uniform) : random_(seed), uniform_(uniform) {}

	double fraction() { return random_.fraction(); }
	uint64_t key()
	{
		if (uniform_)
			return random_();
		static const ycsb::Zipf zipf(10'000'000'000, 0.99, 26.46902820178302); // the sum of 1/i^0.99 over the items
		return ycsb::hash(zipf(random_));
	}

private:
	ycsb::Random random_;
	const bool uniform_;
};

enum class Kind : uint32_t { read, update, answer };
struct Header {
	uint64_t key;
	Kind kind;
	uint32_t slot; // of the client's window
};

// A value says which key it belongs to.
inline unsigned char value_byte(uint64_t key, size_t i)
{
	return static_cast<unsigned char>(ycsb::hash(key) >> 8 * (i % 8) | 1);
}

class Rank {
public:
	Rank(size_t me, Messenger &messenger, const Load &load, Shared &shared)
	    : mailbox_(messenger, load, sizeof(Header) + load.bytes), load_(load), shared_(shared), me_(me),
	      keys_(me_ + 1, load.uniform), started_(load.window)
	{
		for (size_t i = 0; i < load.window; ++i)
			free_.push_back(static_cast<uint32_t>(i));
	}

	void run()
	{
		mailbox_.begin();
		if (load_.connect)
			connect();
		counts_ = true;
		bool drained = false;
		while (shared_.drained < load_.ranks) {
			catch_up();
			while (has_more() && !free_.empty())
				if (!issue())
					break;
			serve_some();
			if (!drained && !has_more() && free_.size() == load_.window) {
				drained = true;
				++shared_.drained;
			}
		}
		mailbox_.end();
	}

private:
	// What the client waits for.
	struct Started {
		double when;
		uint64_t key;
		Kind kind;
	};

	// Where all ask one, each does an equal part: else those that it serves first would do nearly all.
	bool has_more() const
	{
		if (load_.incast)
			return me_ && issued_ < load_.operations / (load_.ranks - 1);
		return shared_.done < load_.operations;
	}
	// How many servers a client asks, beside itself; which they are, from 0 on.
	size_t servers() const { return load_.incast ? 1 : load_.partners ? load_.partners : load_.ranks - 1; }
	size_t server(size_t client, size_t i) const
	{
		return load_.incast ? 0 : (client + (load_.partners ? load_.ranks / 2 : 0) + 1 + i) % load_.ranks;
	}
	// Whom a client asks for a key.
	size_t owner(uint64_t key, size_t client) const
	{
		const size_t hash = ycsb::hash(key);
		return load_.incast || load_.partners ? server(client, hash % servers()) : hash % load_.ranks;
	}
	void send(size_t to, const Header &header, bool with_value)
	{
		unsigned char *buffer = mailbox_.next();
		std::memcpy(buffer, &header, sizeof header);
		for (size_t i = 0; with_value && i < load_.bytes; ++i)
			buffer[sizeof header + i] = value_byte(header.key, i);
		mailbox_.send(to, sizeof header + (with_value ? load_.bytes : 0));
	}
	void check_value(const Header &header, const unsigned char *value) const
	{
		for (size_t i = 0; i < load_.bytes; ++i)
			if (value[i] != value_byte(header.key, i))
				give_up("rank %zu: byte %zu of a value is not that of its key", me_, i);
	}
	// Asks each other rank once, a key of its own.
	void connect()
	{
		size_t asked = 0;
		for (bool all = false; shared_.connected < load_.ranks;) {
			catch_up();
			for (; asked < servers() && !free_.empty(); ++asked) {
				const size_t wanted = server(me_, asked);
				if (wanted == me_)
					continue;
				uint64_t key = keys_.key();
				while (owner(key, me_) != wanted)
					++key;
				ask(wanted, key, Kind::read);
			}
			serve_some();
			if (!all && asked == servers() && free_.size() == load_.window) {
				all = true;
				++shared_.connected;
			}
		}
	}
	void ask(size_t server, uint64_t key, Kind kind)
	{
		const uint32_t slot = free_.back();
		free_.pop_back();
		started_[slot] = {now(), key, kind};
		send(server, {key, kind, slot}, kind == Kind::update);
	}
	// False after a key of this rank's own, so that the others run.
	bool issue()
	{
		++issued_;
		const uint64_t key = keys_.key();
		const size_t server = owner(key, me_);
		const bool update = keys_.fraction() < load_.updates;
		if (server == me_) {
			compute(load_.work);
			one_done(shared_, load_, -1);
			return false;
		}
		ask(server, key, update ? Kind::update : Kind::read);
		return true;
	}
	void serve_some()
	{
		mailbox_.take_some([this](size_t from, const unsigned char *message) { serve(from, message); });
	}
	void serve(size_t from, const unsigned char *message)
	{
		Header header;
		std::memcpy(&header, message, sizeof header);
		const unsigned char *value = message + sizeof header;
		if (header.kind == Kind::answer) {
			const Started &asked = started_[header.slot];
			if (header.key != asked.key)
				give_up("rank %zu: an answer for another key", me_);
			if (asked.kind == Kind::read)
				check_value(header, value);
			if (counts_)
				one_done(shared_, load_, now() - asked.when);
			free_.push_back(header.slot);
			return;
		}
		if (owner(header.key, from) != me_)
			give_up("rank %zu: a request for another rank", me_);
		compute(load_.work);
		const bool read = header.kind == Kind::read;
		if (!read)
			check_value(header, value);
		header.kind = Kind::answer;
		send(from, header, read);
	}

	Mailbox mailbox_;
	const Load &load_;
	Shared &shared_;
	const size_t me_;
	Keys keys_;
	std::vector<Started> started_;
	std::vector<uint32_t> free_;
	bool counts_ = false; // what is done
	size_t issued_ = 0;
};

} // namespace kv
