// Matching against a model that keeps everything in plain lists and searches them in order.
#include <catch2/catch.hpp>

#include <algorithm>
#include <list>
#include <memory>
#include <random>
#include <vector>

#include "message/matching/matching.hpp"

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
	// Returns the message that the receive takes, or -1 when it is posted. Without `takes` it is a probe, which changes
	// nothing.
	int receive(ModelReceive r, bool takes = true)
	{
		const auto m = std::find_if(messages.begin(), messages.end(), [&](const ModelMessage &x) {
			return fits(r.source, r.tag, r.mask, x.source, x.tag);
		});
		if (m == messages.end()) {
			if (takes)
				receives.push_back(r);
			return -1;
		}
		const int id = m->id;
		if (takes)
			messages.erase(m);
		return id;
	}
	// Returns the receive that the message goes to, or -1 when it is unexpected.
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

namespace {

// The mix of a random sequence.
struct Shape {
	uint64_t steps, sources;
	uint64_t wild;     // percent of the receives
	uint64_t arrivals; // percent of the steps
	std::vector<uint64_t> tags, masks;
	uint64_t any_source = 50; // percent of the wild receives
};

// Receives, arrivals, cancelled receives and matched probes, in a random order. Each gives the same result as the
// model.
void agrees_with_the_model(const Shape &shape, std::mt19937 &random)
{
	Matcher matcher;
	Model model;
	std::vector<std::unique_ptr<Posted>> posted;
	std::vector<std::unique_ptr<Unexpected>> unexpected;
	const auto of = [&](const std::vector<uint64_t> &list) { return list[random() % list.size()]; };
	const auto some_source = [&] { return static_cast<int>(random() % shape.sources); };
	for (uint64_t step = 0; step < shape.steps; ++step) {
		const int id = static_cast<int>(step);
		if (random() % 100 < shape.arrivals) {
			const ModelMessage m{id, some_source(), of(shape.tags)};
			const int expected = model.arrive(m);
			PostedReceive *p = matcher.match(m.source, m.tag);
			REQUIRE((p ? static_cast<Posted *>(p)->id : -1) == expected);
			if (!p) {
				unexpected.push_back(std::make_unique<Unexpected>());
				Unexpected &u = *unexpected.back();
				u.id = id;
				u.source = m.source;
				u.tag = m.tag;
				matcher.add(u);
			}
		} else if (random() % 20 == 0 && !model.receives.empty()) {
			auto victim = model.receives.begin();
			std::advance(victim, static_cast<long>(random() % model.receives.size()));
			const auto p =
			    std::find_if(posted.begin(), posted.end(), [&](const auto &x) { return x->id == victim->id; });
			matcher.withdraw(**p);
			model.receives.erase(victim);
		} else {
			const bool wild = random() % 100 < shape.wild;
			ModelReceive r{id, some_source(), of(shape.tags), wild ? of(shape.masks) : PT2P_TAG_EXACT};
			if (wild && random() % 100 < shape.any_source)
				r.source = PT2P_ANY_SOURCE;
			UnexpectedMessage *m = matcher.find(r.source, r.tag, r.mask);
			REQUIRE(matcher.find(r.source, r.tag, r.mask) == m);
			const bool only_probed = random() % 10 == 0;
			const int expected = model.receive(r, !only_probed);
			REQUIRE((m ? static_cast<Unexpected *>(m)->id : -1) == expected);
			if (only_probed)
				continue;
			if (m) {
				matcher.remove(*m);
				continue;
			}
			posted.push_back(std::make_unique<Posted>());
			Posted &p = *posted.back();
			p.id = id;
			p.source = r.source;
			p.tag = r.tag;
			p.mask = r.mask;
			if (random() % 4 == 0 || (!matcher.post_at_once(p) && !matcher.post_like_others(p)))
				matcher.post(p);
		}
		REQUIRE(matcher.unexpected() == model.messages.size());
		REQUIRE(matcher.any_posted() == !model.receives.empty());
	}
	std::vector<int> left, model_left;
	matcher.for_each_unexpected([&](UnexpectedMessage &m) { left.push_back(static_cast<Unexpected &>(m).id); });
	for (const ModelMessage &m : model.messages)
		model_left.push_back(m.id);
	CHECK(left == model_left);
}

// Tags that fall into one bucket of every table when the source is 0: the hash multiplies by the inverse.
uint64_t colliding_tag(uint64_t i)
{
	constexpr uint64_t factor = UINT64_C(0x9e3779b97f4a7c15);
	uint64_t inverse = factor; // Newton's iteration doubles the right bits, beginning with three
	for (int k = 0; k < 5; ++k)
		inverse *= 2 - factor * inverse;
	return i * inverse;
}

} // namespace

TEST_CASE("matching agrees with a naive model on random sequences")
{
	const std::vector<uint64_t> few_masks = {PT2P_TAG_EXACT, PT2P_TAG_ANY, 1, 6};
	std::vector<uint64_t> small_tags, wide_tags, colliding, many_masks = few_masks;
	for (uint64_t i = 0; i < 7; ++i)
		small_tags.push_back(i);
	for (uint64_t i = 0; i < 300; ++i)
		wide_tags.push_back((i % 20) << 40 | (i % 15) << 8 | i % 3);
	for (uint64_t i = 0; i < 40; ++i)
		colliding.push_back(colliding_tag(i));
	for (unsigned i = 0; i < 30; ++i) // more than get a table or an index
		many_masks.push_back(~(UINT64_C(1) << 2 * i) & ~(i % 3 ? UINT64_C(0xff00) : UINT64_C(0)));
	for (unsigned seed = 0; seed < 60; ++seed) {
		std::mt19937 random(seed);
		Shape shape{3000, 1 + random() % 5, random() % 100, 50, small_tags, few_masks};
		shape.tags.resize(1 + random() % 7);
		INFO("seed " << seed);
		agrees_with_the_model(shape, random);
		shape.masks = many_masks;
		agrees_with_the_model(shape, random);
		shape.sources = seed % 3 + 1;
		shape.tags = seed % 2 ? colliding : wide_tags;
		shape.arrivals = 44 + seed % 13; // one side or the other grows
		agrees_with_the_model(shape, random);
		shape.masks =
		    seed % 2 ? few_masks : std::vector<uint64_t>{PT2P_TAG_EXACT, ~UINT64_C(0xff), UINT64_C(0xff) << 40};
		shape.arrivals = 52;
		agrees_with_the_model(shape, random);
		// One pattern, and few receives that differ.
		shape.wild = 90 + seed % 11;
		shape.any_source = seed % 2 ? 0 : 100;
		shape.masks = {~UINT64_C(6)};
		shape.arrivals = 48;
		agrees_with_the_model(shape, random);
	}
}

namespace {

constexpr size_t many = 10000;

PostedReceive wanting(int source, uint64_t tag, uint64_t mask)
{
	PostedReceive r;
	r.source = source;
	r.tag = tag;
	r.mask = mask;
	return r;
}

// The low field ignored, the high field ignored, and the whole tag: what layers above use.
constexpr uint64_t low_ignored = ~UINT64_C(0xffffff), high_ignored = UINT64_C(0xffffffff);
uint64_t two_fields(size_t i) { return static_cast<uint64_t>(i) << 32 | (i * 7919 % many); }

} // namespace

TEST_CASE("the comparisons of a message do not grow with the number of wildcard receives")
{
	struct {
		const char *what;
		int source;
		uint64_t mask;
	} const kinds[] = {{"any source, exact tag", PT2P_ANY_SOURCE, PT2P_TAG_EXACT},
	                   {"any source, one field", PT2P_ANY_SOURCE, low_ignored},
	                   {"any source, the other field", PT2P_ANY_SOURCE, high_ignored},
	                   {"a source, one field", 3, low_ignored}};
	for (const auto &kind : kinds) {
		INFO(kind.what);
		Matcher matcher;
		std::vector<PostedReceive> posted;
		for (size_t i = 0; i < many; ++i)
			posted.push_back(wanting(kind.source, two_fields(i), kind.mask));
		for (PostedReceive &r : posted)
			matcher.post(r);
		for (size_t i = many; i-- > 0;) // the last one first: a list would be searched to its end
			REQUIRE(matcher.match(3, two_fields(i)) == &posted[i]);
		CHECK_FALSE(matcher.any_posted());
		CHECK(matcher.compared() < 5 * many);
	}
}

TEST_CASE("several patterns and exact receives together cost a few comparisons each")
{
	Matcher matcher;
	std::vector<PostedReceive> posted;
	for (size_t i = 0; i < many; ++i)
		switch (i % 4) {
		case 0: posted.push_back(wanting(PT2P_ANY_SOURCE, two_fields(i), PT2P_TAG_EXACT)); break;
		case 1: posted.push_back(wanting(5, two_fields(i), low_ignored)); break;
		case 2: posted.push_back(wanting(PT2P_ANY_SOURCE, two_fields(i), high_ignored)); break;
		default: posted.push_back(wanting(5, two_fields(i), PT2P_TAG_EXACT));
		}
	for (PostedReceive &r : posted)
		matcher.post(r);
	for (size_t i = many; i-- > 0;)
		REQUIRE(matcher.match(5, two_fields(i)) == &posted[i]);
	CHECK_FALSE(matcher.any_posted());
	CHECK(matcher.compared() < 12 * many);
}

TEST_CASE("the comparisons of a wildcard receive do not grow with the number of unexpected messages")
{
	Matcher matcher;
	std::vector<UnexpectedMessage> messages(many);
	for (int again = 0; again < 2; ++again) { // the second time with other patterns
		for (size_t i = 0; i < many; ++i) {
			messages[i].source = static_cast<int>(i % 3);
			messages[i].tag = two_fields(i);
			matcher.add(messages[i]);
		}
		for (size_t i = many; i-- > 0;) {
			const uint64_t tag = two_fields(i), mask = again ? high_ignored : i % 2 ? low_ignored : PT2P_TAG_EXACT;
			REQUIRE(matcher.find(PT2P_ANY_SOURCE, tag, mask) == &messages[i]);
			REQUIRE(matcher.find(messages[i].source, tag, mask) == &messages[i]);
			REQUIRE(matcher.find(7, tag, mask) == nullptr);
			matcher.remove(messages[i]);
		}
		CHECK(matcher.unexpected() == 0);
	}
	// For each: three searches with a few comparisons, and a place in each of at most four indexes.
	CHECK(matcher.compared() < 40 * many);
}

TEST_CASE("programs without wildcard receives compare nothing for them")
{
	Matcher matcher;
	std::vector<PostedReceive> posted(many);
	std::vector<UnexpectedMessage> messages(many);
	for (size_t i = 0; i < many; ++i) {
		posted[i] = wanting(1, i, PT2P_TAG_EXACT);
		matcher.post(posted[i]);
		messages[i].source = 2;
		messages[i].tag = i;
		matcher.add(messages[i]);
	}
	for (size_t i = 0; i < many; ++i) {
		REQUIRE(matcher.match(1, i) == &posted[i]);
		REQUIRE(matcher.find(2, i, PT2P_TAG_EXACT) == &messages[i]);
		matcher.remove(messages[i]);
	}
	CHECK(matcher.compared() == 0);
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

TEST_CASE("of a wildcard and an exact receive the older one wins")
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
