// The choice between direct and forwarded messages, on made-up paces.
#include <catch2/catch.hpp>

#include <deque>
#include <random>

#include "route/forward/trial.hpp"

using namespace pt2p::tune;

namespace {

// One rank. `time`: how long a message takes on a path until the next one can be sent, in ns.
struct Trace {
	RouteTrial tuner;
	int64_t now = 0;
	unsigned changes = 0, sent = 0, forwarded = 0;

	template <class Time>
	void run(unsigned messages, double rate, const Time &time)
	{
		for (unsigned i = 0; i < messages; ++i) {
			const Path path = tuner.path();
			forwarded += path == Path::forwarded;
			now += time(path);
			++sent;
			changes += tuner.sent(rate, true, [this] { return now; });
		}
	}
	void run(unsigned messages, double rate, int64_t direct, int64_t forward_time)
	{
		run(messages, rate, [=](Path path) { return path == Path::direct ? direct : forward_time; });
	}
};

// Ranks tell each other their epoch as relays do, `late` rounds later: with forwarded messages, with each message while
// the tuner says so, and by an answer to a rank that does not know that the trial is over.
struct Job {
	struct Announcement {
		unsigned round;
		size_t from, to;
		uint32_t epoch;
		int16_t report;
	};
	explicit Job(size_t ranks, unsigned late_rounds, unsigned seed = 1) : late(late_rounds), random(seed), tuners(ranks)
	{
	}

	const unsigned late;
	std::mt19937 random;
	std::deque<RouteTrial> tuners;
	std::deque<Announcement> in_flight;
	int64_t now = 0;
	unsigned round = 0;

	void tell(size_t from, size_t to)
	{
		in_flight.push_back({round + late, from, to, tuners[from].epoch(), tuners[from].report()});
	}
	// `messages`: how many a rank sends in a round (at most 1) when that share of ranks sends directly.
	template <class Messages>
	void run(unsigned rounds, double rate, const Messages &messages)
	{
		const auto clock = [this] { return now; };
		for (unsigned i = 0; i < rounds; ++i, ++round, now += 1000) {
			for (; !in_flight.empty() && in_flight.front().round <= round; in_flight.pop_front()) {
				const Announcement t = in_flight.front();
				tuners[t.to].heard(t.epoch, t.report, clock);
				if (t.epoch != tuners[t.to].epoch() && !tuners[t.to].in_trial())
					tell(t.to, t.from);
			}
			size_t direct = 0;
			for (const RouteTrial &t : tuners)
				direct += t.path() == Path::direct;
			for (size_t r = 0; r < tuners.size(); ++r) {
				if (std::generate_canonical<double, 32>(random) >=
				    messages(r, static_cast<double>(direct) / static_cast<double>(tuners.size())))
					continue;
				if (tuners[r].announces() || tuners[r].path() == Path::forwarded)
					tell(r, random() % tuners.size());
				tuners[r].sent(rate, true, clock);
			}
		}
	}
	size_t count(Path path) const
	{
		size_t n = 0;
		for (const RouteTrial &t : tuners)
			n += !t.in_trial() && t.chosen() == path;
		return n;
	}
};

// The bounds of trial.hpp.
constexpr TrialLaw law;
constexpr unsigned first_comparison = 2 * law.settling + law.lead + law.timed; // messages on the other path
constexpr unsigned bound = law.first + 9000;

} // namespace

TEST_CASE("with few targets messages go directly, and forwarding is not tried")
{
	Trace t;
	t.run(10'000, 0.05, 3000, 1000);
	CHECK(t.tuner.chosen() == Path::direct);
	CHECK(t.tuner.trials() == 0);
	CHECK(t.forwarded == 0);
}

TEST_CASE("where changes of target are dear messages are forwarded, within the promised number of messages")
{
	Trace t;
	t.run(bound, 0.9, 4000, 1000);
	CHECK(t.tuner.chosen() == Path::forwarded);
	CHECK(t.tuner.path() == Path::forwarded);
	CHECK(t.changes == 1);
	CHECK(t.tuner.gain() == Approx(4).epsilon(0.001));
}

TEST_CASE("a short job has no trial, and no job sends more than a sixth of its messages on the slower path")
{
	Trace t;
	t.run(law.first - 1, 0.9, 3000, 6000);
	CHECK(t.forwarded == 0);
	while (t.sent < 20'000) {
		t.run(1, 0.9, 3000, 6000);
		REQUIRE(t.forwarded * 6 <= t.sent);
	}
	CHECK(t.forwarded == first_comparison);
	CHECK(t.tuner.chosen() == Path::direct);
}

TEST_CASE("in the long run, less than a hundredth of all messages try a route that is not chosen")
{
	for (const bool direct_is_better : {true, false}) {
		const auto forward_time = direct_is_better ? 6000 : 1000;
		const auto tried = [&](const Trace &t) { return direct_is_better ? t.forwarded : t.sent - t.forwarded; };
		Trace t;
		t.run(bound, 0.9, 3000, forward_time);
		const unsigned before = tried(t);
		t.run(5'000'000, 0.9, 3000, forward_time);
		CHECK(tried(t) > before);
		CHECK(tried(t) - before <= 5'000'000 / law.rest);
		CHECK(t.changes == !direct_is_better);
		// Each rest is twice as long as the one before.
		CHECK(t.tuner.trials() <= 10);
		CHECK(t.tuner.trials() >= 4);
	}
}

TEST_CASE("when changes of target get cheap, messages go directly again after the rest")
{
	Trace t;
	t.run(bound, 0.9, 6000, 3000);
	REQUIRE(t.tuner.chosen() == Path::forwarded);
	t.run(static_cast<unsigned>(t.tuner.rest()) + bound, 0.9, 1000, 3000);
	CHECK(t.tuner.chosen() == Path::direct);
	CHECK(t.changes == 2);
}

TEST_CASE("when targets no longer change, the rest is as short as one trial")
{
	Trace t;
	t.run(bound, 0.9, 6000, 3000);
	const uint64_t once = t.tuner.rest();
	t.run(static_cast<unsigned>(15 * once), 0.9, 6000, 3000); // several trials
	REQUIRE(t.tuner.chosen() == Path::forwarded);
	t.run(static_cast<unsigned>(once) + bound, 0.0, 1000, 3000);
	CHECK(t.tuner.chosen() == Path::direct);
	// And it stays so, without another trial.
	const uint32_t trials = t.tuner.trials();
	t.run(200'000, 0.0, 1000, 3000);
	CHECK(t.tuner.trials() == trials);
}

TEST_CASE("equal paths are compared once, nearly equal ones to the end of the trial, and nothing changes")
{
	for (const int64_t forward_time : {3000, 2950}) {
		Trace t;
		t.run(bound, 0.9, 3000, forward_time);
		CHECK_FALSE(t.tuner.in_trial());
		CHECK(t.tuner.chosen() == Path::direct);
		CHECK(t.forwarded ==
		      first_comparison + (forward_time < 3000 ? 2 * law.settling + law.lead + 2 * law.timed : 0));
	}
}

TEST_CASE("a path that is quicker only at first is not chosen")
{
	Trace t;
	unsigned in_a_row = 0;
	t.run(40'000, 0.9, [&](Path path) {
		in_a_row = path == Path::direct ? 0 : in_a_row + 1;
		return path == Path::direct ? 3000 : in_a_row < 1600 ? 2500 : 4000;
	});
	CHECK(t.tuner.trials() == 1);
	CHECK(t.tuner.chosen() == Path::direct);
	CHECK(t.forwarded > first_comparison);
	CHECK(t.forwarded * 8 < t.sent);
}

TEST_CASE("noise does not choose the worse path, and a trial that it has ended is repeated")
{
	for (const bool direct_is_better : {true, false}) {
		unsigned wrong = 0, retried = 0;
		for (unsigned seed = 0; seed < 200; ++seed) {
			std::mt19937 random(seed);
			Trace t;
			t.run(150'000, 0.9, [&](Path path) {
				const double mean = (path == Path::direct) == direct_is_better ? 3000 : 4000;
				const auto time = static_cast<int64_t>(std::exponential_distribution(1 / mean)(random));
				return random() % (16 * law.timed) ? time : time + 500'000;
			});
			wrong += (t.tuner.chosen() == Path::direct) != direct_is_better;
			retried += t.tuner.trials() > 1;
		}
		INFO("direct is better: " << direct_is_better << ", in " << retried << " more than one trial");
		CHECK(wrong <= 10);
	}
}

TEST_CASE("a drift affects both paths alike")
{
	for (const double drift : {-1.0, 1.0}) {
		Trace t;
		double time = 30'000;
		t.run(bound, 0.9, [&](Path) { return static_cast<int64_t>(time += drift); });
		CHECK(t.tuner.chosen() == Path::direct);
		CHECK(t.tuner.gain() == Approx(1).epsilon(0.02));
	}
}

TEST_CASE("all ranks of a job choose the same path, also those that send little")
{
	for (const unsigned late : {1u, 5u, 20u})
		for (const bool direct_is_better : {true, false})
			for (unsigned seed = 1; seed <= 20; ++seed) {
				Job job(64, late, seed);
				// The later ranks send too little to finish a trial alone.
				job.run(2 * bound, 0.9, [=](size_t rank, double direct) {
					return (direct_is_better ? 0.6 + 0.4 * direct : 1 - 0.4 * direct) * static_cast<double>(64 - rank) /
					       64;
				});
				INFO("late by " << late << ", seed " << seed);
				CHECK(job.count(direct_is_better ? Path::direct : Path::forwarded) == job.tuners.size());
				CHECK(job.tuners[0].trials() == 1);
			}
}

TEST_CASE("the path that is quicker for all is chosen, although each single rank would gain by the other")
{
	// A rank that sends directly gains an eighth, and costs all others together twice that.
	Job job(64, 5);
	job.run(2 * bound, 0.9, [&](size_t rank, double direct) {
		return 0.75 + (job.tuners[rank].path() == Path::direct ? 0.125 : 0) - 0.25 * direct;
	});
	CHECK(job.count(Path::forwarded) == job.tuners.size());
}

TEST_CASE("the path that is quicker for the job is chosen, although slower for the ranks that send a little more")
{
	for (const bool direct_is_better : {true, false})
		for (unsigned seed = 1; seed <= 20; ++seed) {
			Job job(32, 10, seed);
			job.run(3 * bound, 0.9, [=](size_t rank, double direct) {
				const bool gains = (rank < 2) == direct_is_better; // by forwarding
				return (rank < 2 ? 0.8 : 0.7) * (gains ? 1.05 - 0.1 * direct : 0.95 + 0.1 * direct);
			});
			INFO("seed " << seed);
			CHECK(job.count(direct_is_better ? Path::direct : Path::forwarded) == job.tuners.size());
		}
}

TEST_CASE("where all wait for one rank, its pace decides: the pace of others follows late")
{
	constexpr size_t lag = 2000; // rounds, much longer than a step
	for (const bool direct_is_better : {true, false})
		for (unsigned seed = 1; seed <= 20; ++seed) {
			Job job(32, 5, seed);
			std::deque<double> gains(lag, 0);
			job.run(3 * bound, 0.9, [&](size_t rank, double direct) {
				const double gain = (direct_is_better ? direct : 1 - direct) / 8;
				if (rank)
					return 0.3 + 0.3 * gains.front() - 0.1 * gain;
				gains.push_back(gain);
				gains.pop_front();
				return 0.8 + gain;
			});
			INFO("seed " << seed);
			CHECK(job.count(direct_is_better ? Path::direct : Path::forwarded) == job.tuners.size());
		}
}

TEST_CASE("timing starts when nearly all messages of the job take the path of the step")
{
	for (const unsigned long_in_settling : {100u, 300u}) {
		// All but the first, which sends twice as much, settle after so many messages on the other path.
		std::vector<RouteTrial> tuners(16);
		std::vector<unsigned> on_other(tuners.size(), 0);
		unsigned most = 0;
		int64_t now = 0;
		const auto clock = [&] { return now; };
		for (unsigned round = 0; round < bound; ++round, now += 1000)
			for (size_t from = 0; from < tuners.size(); ++from) {
				RouteTrial &t = tuners[from];
				if (t.announces())
					for (RouteTrial &to : tuners)
						to.heard(t.epoch(), t.report(), clock);
				if (from && round % 2)
					continue;
				const bool other = t.path() == Path::forwarded;
				on_other[from] = other ? on_other[from] + 1 : 0;
				t.sent(0.9, !other || !from || on_other[from] > long_in_settling, clock);
				if (from)
					most = std::max(most, on_other[from]);
			}
		REQUIRE(tuners[1].trials() == 1);
		// No path is quicker, so there is one comparison. Half as many messages are timed in it as the first rank
		// sends.
		CHECK(most >= long_in_settling + (law.lead + law.timed) / 2);
		CHECK(most <= long_in_settling + (law.lead + law.timed) / 2 + 64);
	}
}

TEST_CASE("impossible epochs still end in a choice")
{
	for (unsigned seed = 1; seed <= 200; ++seed) {
		std::mt19937 random(seed);
		Trace t;
		for (int i = 0; i < 20; ++i) {
			t.run(random() % 300, 0.9, 2000, 1000);
			const auto vote = static_cast<int16_t>(random());
			t.tuner.heard(t.tuner.epoch() + (random() >> (1 + random() % 31)), vote, [&] { return t.now; });
		}
		for (unsigned left = 20 * bound; t.tuner.in_trial() && left; --left)
			t.run(1, 0.9, 2000, 1000);
		CHECK_FALSE(t.tuner.in_trial());
		// Older epochs have no effect.
		const uint32_t epoch = t.tuner.epoch();
		CHECK_FALSE(t.tuner.heard(epoch - 2, 0, [&] { return t.now; }));
		CHECK(t.tuner.epoch() == epoch);
	}
}

TEST_CASE("changes of target are counted as a pool of initiators would make them")
{
	const auto rate_of = [](size_t initiators, int targets) {
		TargetChanges changes(initiators);
		for (int i = 0; i < 1000; ++i)
			changes.sent_to(i % targets);
		return changes.rate();
	};
	CHECK(rate_of(4, 1) < 0.01);
	CHECK(rate_of(4, 4) < 0.01);
	CHECK(rate_of(4, 5) > 0.99); // in turn, the target that is needed next has lost its initiator last
	CHECK(rate_of(1, 2) > 0.99);
}
