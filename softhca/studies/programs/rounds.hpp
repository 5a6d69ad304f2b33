// Exchanges in rounds, as solvers and graph engines have them: in each round a rank sends a message of `bytes` to each
// of its partners, and gets one from as many. A round begins when all messages of the round `window` before it are
// there: with a window of 1, nobody goes on before he has heard of all his neighbours.
//
//   halo       the six neighbours in a torus of three dimensions, as even as the number of ranks allows; consecutive
//   ranks
//              are neighbours in the first
//   alltoall   all others, beginning with the next rank
//   sparse     four ranks at distances that are drawn at random, the same for all
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <string>

#include "softhca/studies/programs/load.hpp"

namespace rounds {

using namespace study;

// The lengths of a torus of that many ranks.
inline std::array<size_t, 3> torus(size_t ranks)
{
	std::array<size_t, 3> best{ranks, 1, 1};
	for (size_t x = 1; x * x * x <= ranks; ++x)
		for (size_t y = x; ranks % x == 0 && x * y * y <= ranks; ++y)
			if (ranks / x % y == 0 && ranks / x / y < best[0])
				best = {ranks / x / y, y, x};
	return best;
}

// Whom a rank sends to in each round. As many send to it.
inline std::vector<size_t> partners(const std::string &pattern, size_t me, size_t ranks)
{
	std::vector<size_t> all;
	if (pattern == "halo") {
		size_t step = 1, at = me;
		for (const size_t length : torus(ranks)) {
			const size_t here = at % length;
			for (const size_t there : {(here + 1) % length, (here + length - 1) % length})
				if (there != here)
					all.push_back(me + there * step - here * step);
			at /= length;
			step *= length;
		}
	} else if (pattern == "alltoall") {
		for (size_t distance = 1; distance < ranks; ++distance)
			all.push_back((me + distance) % ranks);
	} else if (pattern == "sparse") {
		std::mt19937 random(1);
		std::vector<size_t> distances(ranks - 1);
		for (size_t i = 0; i < distances.size(); ++i)
			distances[i] = i + 1;
		for (size_t i = 0; i < std::min<size_t>(4, distances.size()); ++i) {
			std::swap(distances[i], distances[i + random() % (distances.size() - i)]);
			all.push_back((me + distances[i]) % ranks);
		}
	} else {
		give_up("no traffic %s", pattern.c_str());
	}
	return all;
}

struct Header {
	uint32_t round, source;
};

class Rank {
public:
	Rank(const std::string &pattern, size_t me, Messenger &messenger, const Load &load, Shared &shared)
	    : load_(load), shared_(shared), me_(me), bytes_(std::max(load.bytes, sizeof(Header))),
	      partners_(partners(pattern, me, load.ranks)), rounds_(load.operations / (load.ranks * partners_.size()) + 1),
	      mailbox_(messenger, load, bytes_), arrived_(rounds_), begun_(rounds_)
	{
	}

	void run()
	{
		mailbox_.begin();
		for (size_t round = 0; round < rounds_; ++round) {
			while (complete_ + load_.window <= round)
				take_some();
			begun_[round] = now();
			for (const size_t partner : partners_) {
				Header header{static_cast<uint32_t>(round), static_cast<uint32_t>(me_)};
				unsigned char *message = mailbox_.next();
				std::memset(message, static_cast<int>(round % 251), bytes_);
				std::memcpy(message, &header, sizeof header);
				mailbox_.send(partner, bytes_);
			}
			take_some();
		}
		while (complete_ < rounds_)
			take_some();
		for (++shared_.drained; shared_.drained < load_.ranks;)
			take_some();
		mailbox_.end();
	}

private:
	void take_some()
	{
		catch_up();
		mailbox_.take_some([this](size_t from, const unsigned char *message) { take(from, message); });
	}
	void take(size_t from, const unsigned char *message)
	{
		Header header;
		std::memcpy(&header, message, sizeof header);
		if (header.source != from || header.round < complete_ || header.round >= rounds_)
			give_up("rank %zu: a message of rank %zu in round %u, while round %zu is going on", me_, from, header.round,
			        complete_);
		for (size_t i = sizeof header; i < bytes_; ++i)
			if (message[i] != header.round % 251)
				give_up("rank %zu: byte %zu of a message is not that of its round", me_, i);
		++arrived_[header.round];
		const double begun = begun_[header.round];
		one_done(shared_, load_, begun ? now() - begun : 0); // 0: it was there before this rank had begun
		while (complete_ < rounds_ && arrived_[complete_] == partners_.size())
			++complete_;
	}

	const Load &load_;
	Shared &shared_;
	const size_t me_, bytes_;
	const std::vector<size_t> partners_;
	const size_t rounds_;
	Mailbox mailbox_;
	size_t complete_ = 0;         // rounds of which all messages are there
	std::vector<size_t> arrived_; // messages, by round
	std::vector<double> begun_;   // when, by round
};

} // namespace rounds
