// End-to-end reliability: whatever the routes between two ranks do, each message arrives once and in order.
#include <catch2/catch.hpp>

#include <deque>
#include <random>
#include <string>
#include <vector>

#include "route/forward/end_to_end.hpp"

using namespace pt2p;

namespace {

constexpr uint32_t window = 16;

Envelope numbered(uint32_t number)
{
	Envelope e{};
	e.sequence = number;
	e.id = 1;
	return e;
}

// A sender and a receiver; messages are strings.
struct Pair {
	BufferPool buffers;
	Outbox outbox{buffers, window};
	Inbox inbox{buffers, window};
	std::vector<std::string> delivered;

	std::string send(const std::string &text)
	{
		const Outbox::Kept &kept = outbox.add({}, text.data(), text.size());
		return {reinterpret_cast<const char *>(kept.bytes), kept.length};
	}
	Inbox::Verdict arrive(const std::string &bytes)
	{
		Envelope e;
		std::memcpy(&e, bytes.data(), sizeof e);
		const std::string text = bytes.substr(sizeof e);
		const Inbox::Verdict verdict = inbox.take(e, text.data(), text.size());
		if (verdict != Inbox::Verdict::deliver)
			return verdict;
		delivered.push_back(text);
		for (Inbox::Held held; inbox.next(held); inbox.give_back(held))
			delivered.emplace_back(reinterpret_cast<const char *>(held.payload), held.length);
		return verdict;
	}
	bool arrive_plain(const std::string &text)
	{
		if (!inbox.count_plain())
			return false;
		delivered.push_back(text);
		return true;
	}
};

} // namespace

TEST_CASE("messages that overtake each other are delivered in order")
{
	Pair p;
	std::vector<std::string> sent;
	for (int i = 0; i < 5; ++i)
		sent.push_back(p.send(std::string(static_cast<size_t>(i), 'a')));
	CHECK(p.arrive(sent[2]) == Inbox::Verdict::held);
	CHECK(p.arrive(sent[4]) == Inbox::Verdict::held);
	CHECK(p.arrive(sent[0]) == Inbox::Verdict::deliver);
	CHECK(p.delivered.size() == 1);
	CHECK(p.arrive(sent[1]) == Inbox::Verdict::deliver);
	CHECK(p.delivered.size() == 3);
	CHECK(p.arrive(sent[3]) == Inbox::Verdict::deliver);
	CHECK(p.delivered == std::vector<std::string>{"", "a", "aa", "aaa", "aaaa"});
	CHECK(p.inbox.unconfirmed() == 5);
	CHECK(p.outbox.confirm(p.inbox.confirm()));
	CHECK(p.inbox.unconfirmed() == 0);
	CHECK(p.outbox.empty());
}

TEST_CASE("duplicates are dropped, early or late")
{
	Pair p;
	const std::string first = p.send("first"), second = p.send("second");
	CHECK(p.arrive(second) == Inbox::Verdict::held);
	CHECK(p.arrive(second) == Inbox::Verdict::duplicate);
	CHECK(p.arrive(first) == Inbox::Verdict::deliver);
	CHECK(p.arrive(second) == Inbox::Verdict::duplicate);
	CHECK(p.arrive(first) == Inbox::Verdict::duplicate);
	CHECK(p.delivered == std::vector<std::string>{"first", "second"});
}

TEST_CASE("impossible numbers are refused")
{
	Pair p;
	CHECK(p.inbox.take(numbered(window), nullptr, 0) == Inbox::Verdict::impossible);
	CHECK(p.inbox.take(numbered(window - 1), nullptr, 0) == Inbox::Verdict::held);
	CHECK(p.inbox.take(numbered(0x7fffffff), nullptr, 0) == Inbox::Verdict::impossible);
	CHECK(p.inbox.take(numbered(0xffffffff), nullptr, 0) == Inbox::Verdict::duplicate);
	// Acknowledgements of what was never sent, and of what has been acknowledged.
	p.send("a"), p.send("b");
	CHECK_FALSE(p.outbox.confirm(3));
	CHECK_FALSE(p.outbox.confirm(0));
	CHECK(p.outbox.confirm(1));
	CHECK_FALSE(p.outbox.confirm(1));
	CHECK_FALSE(p.outbox.confirm(0));
	CHECK(p.outbox.first() == 1);
	CHECK(p.outbox.next() == 2);
}

TEST_CASE("the window limits what is kept, and a copy can be released")
{
	Pair p;
	for (uint32_t i = 0; i < window; ++i) {
		CHECK_FALSE(p.outbox.full());
		p.send("x");
	}
	CHECK(p.outbox.full());
	p.outbox.release(3);
	CHECK_FALSE(p.outbox.at(3).bytes);
	CHECK(p.outbox.at(4).bytes);
	CHECK(p.outbox.confirm(window - 1));
	CHECK_FALSE(p.outbox.full());
}

TEST_CASE("headerless messages are counted by both sides, and not acknowledged")
{
	Pair p;
	const std::string first = p.send("first");
	CHECK(p.outbox.keeps());
	CHECK(p.arrive(first) == Inbox::Verdict::deliver);
	const uint32_t late = p.inbox.expected();
	CHECK(p.outbox.confirm(p.inbox.confirm()));
	REQUIRE_FALSE(p.outbox.keeps());
	for (uint32_t i = 0; i < 3 * window; ++i) {
		p.outbox.count_plain();
		CHECK(p.arrive_plain("plain"));
	}
	CHECK(p.outbox.next() == p.inbox.expected());
	CHECK(p.outbox.empty());
	CHECK(p.inbox.unconfirmed() == 0);
	// Nobody knows that they have arrived until a later message is acknowledged.
	CHECK(p.outbox.after_plain());
	CHECK_FALSE(p.outbox.confirm(late));
	CHECK_FALSE(p.outbox.confirm(p.inbox.confirm()));
	CHECK(p.outbox.after_plain());
	CHECK(p.arrive(p.send("last")) == Inbox::Verdict::deliver);
	CHECK(p.outbox.confirm(p.inbox.confirm()));
	CHECK_FALSE(p.outbox.after_plain());
	// There is none while a message has come early.
	const std::string next = p.send("next"), early = p.send("early");
	CHECK(p.arrive(next) == Inbox::Verdict::deliver);
	p.inbox.take(numbered(p.inbox.expected() + 1), "x", 1);
	CHECK(p.arrive(early) == Inbox::Verdict::deliver);
	CHECK(p.inbox.count_plain());
	p.inbox.take(numbered(p.inbox.expected() + 1), "x", 1);
	CHECK(p.inbox.count_plain()); // then it is that message's turn
	CHECK_FALSE(p.inbox.count_plain());
}

// Two routes. The direct one keeps its order and loses nothing, and messages on it are headerless when they can be. The
// other delays messages, and dies again and again with everything that it holds. Then what is not acknowledged is sent
// again on the first, while copies may still be on the second. Acknowledgements are late, too.
TEST_CASE("nothing is lost on routes that die, delay and duplicate")
{
	struct Sure {
		bool plain;
		std::string bytes;
	};
	unsigned all_plain = 0;
	for (unsigned seed = 0; seed < 400; ++seed) {
		std::mt19937 random(seed);
		const auto chance = [&](unsigned of_hundred) { return random() % 100 < of_hundred; };
		Pair p;
		const unsigned count = 300;
		unsigned sent = 0, rounds = 0, deaths = 0;
		bool directly = false; // changes now and then
		std::deque<Sure> sure;
		std::vector<std::string> unsure;
		std::deque<uint32_t> told;
		while (p.delivered.size() < count) {
			REQUIRE(++rounds < 100000);
			directly ^= chance(3);
			if (sent < count && !p.outbox.full() && chance(60)) {
				const std::string text = std::to_string(sent++);
				if (directly && !p.outbox.keeps()) {
					p.outbox.count_plain();
					sure.push_back({true, text});
					++all_plain;
				} else if (const std::string bytes = p.send(text); !directly && !p.outbox.after_plain() && chance(50)) {
					unsure.push_back(bytes);
				} else {
					sure.push_back({false, bytes});
					p.outbox.release(p.outbox.next() - 1);
				}
			}
			if (!sure.empty() && chance(40)) {
				if (sure.front().plain)
					REQUIRE(p.arrive_plain(sure.front().bytes));
				else
					REQUIRE(p.arrive(sure.front().bytes) != Inbox::Verdict::impossible);
				sure.pop_front();
			}
			if (!unsure.empty() && chance(40)) {
				const size_t which = random() % unsure.size();
				REQUIRE(p.arrive(unsure[which]) != Inbox::Verdict::impossible);
				unsure.erase(unsure.begin() + static_cast<std::ptrdiff_t>(which));
			}
			if (chance(2) || (sent == count && sure.empty() && unsure.empty())) {
				++deaths;
				if (chance(50))
					unsure.clear();
				for (uint32_t n = p.outbox.first(); n != p.outbox.next(); ++n)
					if (const Outbox::Kept &kept = p.outbox.at(n); kept.bytes) {
						sure.push_back({false, {reinterpret_cast<const char *>(kept.bytes), kept.length}});
						p.outbox.release(n);
					}
			}
			if (chance(10))
				told.push_back(p.inbox.confirm());
			if (!told.empty() && chance(10)) {
				p.outbox.confirm(told.front());
				told.pop_front();
			}
		}
		CHECK(deaths);
		for (unsigned i = 0; i < count; ++i)
			REQUIRE(p.delivered[i] == std::to_string(i));
	}
	CHECK(all_plain > 10'000);
}
