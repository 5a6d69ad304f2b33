// The choice between two alternatives, on made-up latencies.
#include <catch2/catch.hpp>

#include <random>

#include "transports/verbs/tuning/either.hpp"

using namespace pt2p::tune;

namespace {

enum class Place : uint8_t { near, far };
constexpr EitherLaw law{.every = 31};
constexpr unsigned bound = (3 * 4 + 1) * 31, gap = 3 * 4 * 31; // the bounds of either.hpp

struct Trace {
	Either<Place> either{law};
	unsigned changes = 0, sent = 0, far = 0, last_change = 0, closest = UINT32_MAX;

	template <class Latency>
	void run(unsigned count, const Latency &latency, bool in_question = true)
	{
		for (const unsigned end = sent + count; sent != end;) {
			const auto next = either.next(in_question);
			either.sent(next.sample);
			++sent;
			far += next.what == Place::far;
			if (!next.sample)
				continue;
			either.see(next.what, latency(next.what));
			if (either.judge()) {
				if (changes++)
					closest = std::min(closest, sent - last_change);
				last_change = sent;
			}
		}
	}
	void run_with(unsigned count, int64_t near_takes, int64_t far_takes)
	{
		run(count, [=](Place p) { return p == Place::near ? near_takes : far_takes; });
	}
};

} // namespace

TEST_CASE("the quicker alternative is chosen within the promised number of messages")
{
	Trace t;
	t.run_with(bound, 2000, 1000);
	CHECK(t.either.chosen() == Place::far);
	CHECK(t.changes == 1);
	CHECK(t.either.latency_of(Place::near) == 2000);
	CHECK(t.either.latency_of(Place::far) == 1000);
	// Few messages try the other one.
	const unsigned before = t.sent - t.far;
	t.run_with(31 * 4 * 100, 2000, 1000);
	CHECK(t.changes == 1);
	CHECK(t.sent - t.far - before == 100);
	// And back, just as soon.
	t.run_with(bound, 1000, 2000);
	CHECK(t.either.chosen() == Place::near);
	CHECK(t.changes == 2);
}

TEST_CASE("a difference is followed within the promised number of messages, whenever it begins")
{
	for (unsigned phase = 0; phase < 31 * 4; ++phase) {
		INFO("after " << phase);
		Trace t;
		t.run_with(1000 + phase, 1000, 2000);
		t.run_with(bound, 2000, 1000);
		CHECK(t.either.chosen() == Place::far);
	}
}

TEST_CASE("a difference within the margin changes nothing")
{
	Trace t;
	t.run_with(50'000, 1240, 1000);
	CHECK(t.changes == 0);
	t.run_with(50'000, 1000, 1000);
	CHECK(t.changes == 0);
	t.run_with(bound, 1260, 1000);
	CHECK(t.either.chosen() == Place::far);
}

TEST_CASE("an alternative that is excluded is not tried")
{
	Trace t;
	t.run(
	    10'000, [](Place p) { return p == Place::near ? 2000 : 1000; }, false);
	CHECK(t.far == 0);
	CHECK(t.changes == 0);
	CHECK(t.either.latency_of(Place::near) == 2000);
	CHECK(t.either.latency_of(Place::far) == 0);
}

TEST_CASE("a load that slows both alternatives changes nothing, however it comes and goes")
{
	for (const unsigned each : {100u, 500u, 1000u, 5000u}) {
		INFO("it changes after " << each);
		Trace t;
		for (int i = 0; i < 100; ++i)
			t.run_with(each, i % 2 ? 1000 : 20'000, i % 2 ? 900 : 18'000);
		const unsigned straddling = each < bound ? 3 : 0; // most pairs may have samples of different loads
		CHECK(t.changes <= straddling);
	}
}

TEST_CASE("with noise, the quicker alternative is still found, and the choice does not swing")
{
	for (unsigned seed = 0; seed < 50; ++seed) {
		INFO("seed " << seed);
		std::mt19937 random(seed);
		// A fifth more or less, and now and then a sample that means nothing.
		const auto noisy = [&](double middle) {
			const double factor = std::uniform_real_distribution(0.8, 1.2)(random);
			return static_cast<int64_t>(middle * (random() % 20 == 0 ? 20 : factor));
		};
		Trace t;
		t.run(20'000, [&](Place p) { return noisy(p == Place::near ? 2000 : 1000); });
		CHECK(t.far > 18'000); // of 20'000
		CHECK(t.changes <= 3);
		Trace even;
		even.run(20'000, [&](Place) { return noisy(1000); });
		CHECK(even.changes <= 8);
	}
}

TEST_CASE("whatever is observed, changes of the choice are as far apart as promised")
{
	// Samples always speak against the choice.
	Trace t;
	t.run(100'000, [&](Place p) { return p == t.either.chosen() ? 5000 : 1000; });
	CHECK(t.changes > 100);
	CHECK(t.closest >= gap);
	// Random samples.
	std::mt19937 random(1);
	Trace wild;
	wild.run(100'000, [&](Place) { return static_cast<int64_t>(random() % 3 ? 0 : random()); });
	CHECK(wild.closest >= gap);
}

TEST_CASE("a sample that cannot be taken stays due")
{
	Either<Place> either{law};
	for (unsigned i = 1; i < 31; ++i) {
		CHECK(!either.next(true).sample);
		either.sent(false);
	}
	for (int i = 0; i < 5; ++i) {
		CHECK(either.next(true).sample);
		either.sent(false);
	}
	either.sent(true);
	CHECK(!either.next(true).sample);
}
