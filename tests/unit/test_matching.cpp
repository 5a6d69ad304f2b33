// Matching against a model that keeps everything in plain lists and searches them in order.
#include <catch2/catch.hpp>

#include <algorithm>
#include <list>
#include <memory>
#include <random>
#include <vector>

#include "message/matching.hpp"

using namespace pt2p;

namespace {

struct ModelReceive {
	int id, source;
	uint64_t tag, mask;
};
struct ModelMessage {
	int id, source;
	uint64_t tag;
};

bool fits(int want, uint64_t tag, uint64_t mask, int source, uint64_t message_tag)
{
	return (want == PT2P_ANY_SOURCE || want == source) && (tag & mask) == (message_tag & mask);
}

class Model {
public:
	// The message that the receive takes, -1 when it is posted.
	int receive(ModelReceive r)
	{
		const auto m = std::find_if(messages.begin(), messages.end(), [&](const ModelMessage &x) {
			return fits(r.source, r.tag, r.mask, x.source, x.tag);
		});
		if (m == messages.end()) {
			receives.push_back(r);
			return -1;
		}
		const int id = m->id;
		messages.erase(m);
		return id;
	}
	// The receive that the message goes to, -1 when it is unexpected.
	int arrive(ModelMessage m)
	{
		const auto r = std::find_if(receives.begin(), receives.end(), [&](const ModelReceive &x) {
			return fits(x.source, x.tag, x.mask, m.source, m.tag);
		});
		if (r == receives.end()) {
			messages.push_back(m);
			return -1;
		}
		const int id = r->id;
		receives.erase(r);
		return id;
	}
	std::list<ModelReceive> receives;
	std::list<ModelMessage> messages;
};

struct Posted : PostedReceive {
	int id = 0;
};
struct Unexpected : UnexpectedMessage {
	int id = 0;
};

} // namespace

TEST_CASE("matching agrees with a naive model on random sequences")
{
	for (unsigned seed = 0; seed < 60; ++seed) {
		std::mt19937 random(seed);
		const int sources = 1 + static_cast<int>(random() % 5);
		const uint64_t tags = 1 + random() % 7;
		const unsigned wild = random() % 60; // percent
		Matcher matcher;
		Model model;
		std::vector<std::unique_ptr<Posted>> posted;
		std::vector<std::unique_ptr<Unexpected>> unexpected;
		for (int step = 0; step < 3000; ++step) {
			if (random() % 2) {
				const bool is_wild = random() % 100 < wild;
				const uint64_t masks[] = {PT2P_TAG_EXACT, PT2P_TAG_ANY, 1, 6};
				ModelReceive r{step, static_cast<int>(random() % static_cast<unsigned>(sources)), random() % tags,
				               is_wild ? masks[random() % 4] : PT2P_TAG_EXACT};
				if (is_wild && random() % 2)
					r.source = PT2P_ANY_SOURCE;
				const int expected = model.receive(r);
				UnexpectedMessage *m = matcher.find(r.source, r.tag, r.mask);
				REQUIRE((m ? static_cast<Unexpected *>(m)->id : -1) == expected);
				if (m) {
					matcher.remove(*m);
					continue;
				}
				posted.push_back(std::make_unique<Posted>());
				Posted &p = *posted.back();
				p.id = step;
				p.source = r.source;
				p.tag = r.tag;
				p.mask = r.mask;
				matcher.post(p);
			} else if (random() % 20 == 0 && !model.receives.empty()) {
				// Withdraw any posted receive.
				auto victim = model.receives.begin();
				std::advance(victim, static_cast<long>(random() % model.receives.size()));
				const int id = victim->id;
				const auto p = std::find_if(posted.begin(), posted.end(), [&](const auto &x) { return x->id == id; });
				matcher.withdraw(**p);
				model.receives.erase(victim);
			} else {
				const ModelMessage m{step, static_cast<int>(random() % static_cast<unsigned>(sources)), random() % tags};
				const int expected = model.arrive(m);
				PostedReceive *p = matcher.match(m.source, m.tag);
				REQUIRE((p ? static_cast<Posted *>(p)->id : -1) == expected);
				if (p)
					continue;
				unexpected.push_back(std::make_unique<Unexpected>());
				Unexpected &u = *unexpected.back();
				u.id = step;
				u.source = m.source;
				u.tag = m.tag;
				matcher.add(u);
			}
			REQUIRE(matcher.unexpected() == model.messages.size());
		}
		std::vector<int> left;
		matcher.for_each_unexpected([&](UnexpectedMessage &m) { left.push_back(static_cast<Unexpected &>(m).id); });
		std::vector<int> model_left;
		for (const ModelMessage &m : model.messages)
			model_left.push_back(m.id);
		CHECK(left == model_left);
	}
}

TEST_CASE("ten thousand exact receives are found wherever they are")
{
	Matcher matcher;
	std::vector<PostedReceive> posted(10000);
	for (size_t i = 0; i < posted.size(); ++i) {
		posted[i].source = static_cast<int>(i % 16);
		posted[i].tag = i * 1000003;
		posted[i].mask = PT2P_TAG_EXACT;
		matcher.post(posted[i]);
	}
	CHECK(matcher.posted_exact() == posted.size());
	for (size_t i = posted.size(); i-- > 0;)
		REQUIRE(matcher.match(static_cast<int>(i % 16), i * 1000003) == &posted[i]);
	CHECK_FALSE(matcher.any_posted());
}

TEST_CASE("of an older wild and a younger exact receive the older one wins, and the other way round")
{
	Matcher matcher;
	PostedReceive wild, exact, later;
	wild.source = PT2P_ANY_SOURCE;
	wild.mask = PT2P_TAG_ANY;
	exact.source = later.source = 3;
	exact.tag = later.tag = 9;
	exact.mask = later.mask = PT2P_TAG_EXACT;
	matcher.post(exact);
	matcher.post(wild);
	matcher.post(later);
	CHECK(matcher.match(3, 9) == &exact);
	CHECK(matcher.match(3, 9) == &wild);
	CHECK(matcher.match(3, 9) == &later);
	CHECK(matcher.match(3, 9) == nullptr);
}
