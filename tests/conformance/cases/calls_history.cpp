// A random history of calls, notices, messages and one-sided operations among all ranks. Every rank makes the whole
// history from a seed, so it knows what has to come and what its memory has to hold at the end. A failure tells the
// seed; CALL_HISTORY_SEED=... in the environment repeats it, with as many ranks.
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "tests/conformance/cases/window.hpp"

namespace conformance {
namespace {

constexpr uint32_t call_id = 50, notice_id = 51;
constexpr uint64_t first_tag = 9500, tags = 3;
constexpr size_t sums = 4; // words of each rank that all add to
constexpr uint64_t steps_of_rank = 150;
constexpr size_t max_open = 24;

struct Step {
	enum class What : uint8_t { message, call, notice, add, put } what;
	int peer;
	size_t length;   // of a message, an input, or what is put
	size_t place;    // of a sum, or of what is put, in the memory of the peer
	uint64_t number; // of a message: among those with its tag to that rank; else: among the steps of the rank
	uint64_t value;  // a tag, or what is added
};

size_t random_length(Random &random) { return random.below(5) ? random.below(300) : random.below(60000); }

struct History {
	uint64_t seed;
	std::vector<std::vector<Step>> of; // by rank
	size_t memory = sums * 8;          // of each rank, bytes

	History(uint64_t number, int size) : seed(number), of(static_cast<size_t>(size))
	{
		Random random{mix(seed)};
		std::vector<size_t> ends(of.size(), memory);
		for (size_t me = 0; me < of.size(); ++me) {
			std::vector<std::array<uint64_t, tags>> numbers(of.size());
			for (uint64_t i = 0; i < steps_of_rank; ++i) {
				const size_t peer = random.below(of.size());
				Step s{
				    static_cast<Step::What>(random.below(5)), static_cast<int>(peer), random_length(random), 0, i, 0};
				switch (s.what) {
				case Step::What::message:
					s.value = random.below(tags);
					s.number = numbers[peer][s.value]++;
					break;
				case Step::What::add:
					s.place = random.below(sums) * 8;
					s.value = random.next();
					break;
				case Step::What::put:
					s.place = ends[peer];
					ends[peer] += s.length;
					break;
				default: break;
				}
				of[me].push_back(s);
			}
		}
		for (const size_t end : ends)
			memory = std::max(memory, end);
	}
	uint64_t seed_for(int from, const Step &s) const
	{
		return seed_of(seed ^ static_cast<uint64_t>(s.what) << 8 ^ s.value << 16, from, s.peer, s.number);
	}
	static size_t reply_length(uint64_t number) { return number % 7 ? mix(number) % 200 : mix(number) % 30000; }
};

// A rank in the history.
class Actor {
public:
	Actor(Rank &rank, uint64_t seed)
	    : r_(rank), history_(seed, rank.size),
	      window_(rank, true, history_.memory, 3), random_{seed ^ mix(rank.me + 1u)},
	      served_(static_cast<size_t>(rank.size), std::vector<int>(steps_of_rank))
	{
		EXPECT_OK(r_.ctx, pt2p_service_open(r_.ctx, call_id, serve_call, this, nullptr, &services_[0]));
		EXPECT_OK(r_.ctx, pt2p_service_open(r_.ctx, notice_id, serve_notice, this, nullptr, &services_[1]));
		for (int source = 0; source < r_.size; ++source)
			for (uint64_t tag = 0; tag < tags; ++tag)
				// In a cooperative job, the others wait for their sends before this rank posts more.
				(r_.cooperative || random_.below(2) ? early_ : late_).push_back({source, tag});
	}

	void first_half()
	{
		post(early_);
		if (r_.cooperative)
			for (const Step &s : mine())
				if (s.what == Step::What::message)
					send(s);
	}
	void second_half()
	{
		window_.open();
		if (!r_.cooperative)
			EXPECT_OK(r_.ctx, pt2p_barrier(r_.ctx));
		for (const Step &s : mine()) {
			act(s);
			while (open_.size() >= max_open)
				wait_for_one(random_.below(open_.size()));
			if (random_.below(4) == 0 && !open_.empty())
				wait_for_one(random_.below(open_.size()));
		}
		post(late_);
		while (!open_.empty())
			wait_for_one(open_.size() - 1);
		for (Message &m : received_) {
			pt2p_result_t result{};
			EXPECT_OK(r_.ctx, pt2p_wait(r_.ctx, m.request, &result));
			EXPECT_EQ(result.length, m.step.length);
			EXPECT_EQ(result.tag, first_tag + m.step.value);
			EXPECT_PAYLOAD(m.data.data(), result.length, history_.seed_for(m.source, m.step));
		}
		for (Message &m : sent_)
			EXPECT_OK(r_.ctx, pt2p_wait(r_.ctx, m.request, nullptr));
		EXPECT_OK(r_.ctx, pt2p_flush_all(r_.ctx));
	}
	// Once all ranks have been through it.
	void check()
	{
		uint64_t expected[sums] = {}, notices = 0;
		each_step_to_me([&](int, const Step &s) {
			notices += s.what == Step::What::notice;
			if (s.what == Step::What::add)
				expected[s.place / 8] += s.value;
		});
		for (; notices_ < notices; r_.poll())
			EXPECT_OK(r_.ctx, pt2p_progress(r_.ctx));
		if (!r_.cooperative)
			EXPECT_OK(r_.ctx, pt2p_barrier(r_.ctx));
		for (size_t i = 0; i < sums; ++i)
			EXPECT_EQ(window_.word(i * 8), expected[i]);
		each_step_to_me([&](int from, const Step &s) {
			const bool served = s.what == Step::What::call || s.what == Step::What::notice;
			if (s.what == Step::What::put)
				EXPECT_PAYLOAD(window_.base + s.place, s.length, history_.seed_for(from, s));
			if (s.what != Step::What::message)
				EXPECT_EQ(served_[static_cast<size_t>(from)][s.number], served);
		});
		for (pt2p_service_t *s : services_)
			EXPECT_OK(r_.ctx, pt2p_service_close(r_.ctx, s));
		window_.close();
	}
	uint64_t seed() const { return history_.seed; }

private:
	struct Message {
		int source;
		Step step;
		Bytes data;
		pt2p_request_t *request;
	};
	// A call or a one-sided operation that has not ended.
	struct Open {
		const Step *step;
		std::unique_ptr<Bytes> data, reply;
		std::unique_ptr<uint64_t> before; // an addition
		pt2p_request_t *request;
	};
	const std::vector<Step> &mine() const { return history_.of[static_cast<size_t>(r_.me)]; }
	template <class F>
	void each_step_to_me(F &&function) const
	{
		for (int from = 0; from < r_.size; ++from)
			for (const Step &s : history_.of[static_cast<size_t>(from)])
				if (s.peer == r_.me)
					function(from, s);
	}
	void post(const std::vector<std::pair<int, uint64_t>> &channels)
	{
		for (const auto &[source, tag] : channels)
			each_step_to_me([&, from = source, t = tag](int f, const Step &s) {
				if (f != from || s.what != Step::What::message || s.value != t)
					return;
				received_.push_back({from, s, Bytes(s.length + 1), nullptr});
				Message &m = received_.back();
				EXPECT_OK(r_.ctx,
				          pt2p_irecv(r_.ctx, m.data.data(), s.length, from, first_tag + t, PT2P_TAG_EXACT, &m.request));
			});
	}
	void send(const Step &s)
	{
		sent_.push_back({r_.me, s, payload(s.length, history_.seed_for(r_.me, s)), nullptr});
		Message &m = sent_.back();
		EXPECT_OK(r_.ctx, pt2p_isend(r_.ctx, m.data.data(), s.length, s.peer, first_tag + s.value, &m.request));
	}
	void act(const Step &s)
	{
		if (s.what == Step::What::message) {
			if (!r_.cooperative)
				send(s);
			return;
		}
		auto data = std::make_unique<Bytes>(payload(s.length, history_.seed_for(r_.me, s)));
		data->insert(data->begin(), 8, 0);
		std::memcpy(data->data(), &s.number, 8);
		if (s.what == Step::What::notice) {
			EXPECT_OK(r_.ctx, pt2p_notify(r_.ctx, s.peer, notice_id, data->data(), data->size(), nullptr));
			return;
		}
		open_.push_back({&s, std::move(data), std::make_unique<Bytes>(History::reply_length(s.number) + 8),
		                 std::make_unique<uint64_t>(), nullptr});
		Open &o = open_.back();
		switch (s.what) {
		case Step::What::call:
			EXPECT_OK(r_.ctx, pt2p_icall(r_.ctx, s.peer, call_id, o.data->data(), o.data->size(), o.reply->data(),
			                             o.reply->size(), nullptr, &o.request));
			break;
		case Step::What::add:
			EXPECT_OK(r_.ctx,
			          pt2p_fetch_add64(r_.ctx, window_.at(s.peer), s.place, s.value, o.before.get(), &o.request));
			break;
		default:
			EXPECT_OK(r_.ctx, pt2p_put(r_.ctx, o.data->data() + 8, s.length, window_.at(s.peer), s.place, &o.request));
		}
	}
	void wait_for_one(size_t index)
	{
		Open o = std::move(open_[index]);
		open_.erase(open_.begin() + static_cast<ptrdiff_t>(index));
		pt2p_result_t result{};
		EXPECT_OK(r_.ctx, pt2p_wait(r_.ctx, o.request, &result));
		if (o.step->what != Step::What::call)
			return;
		EXPECT_EQ(result.tag, mix(history_.seed_for(r_.me, *o.step)));
		EXPECT_EQ(result.source, o.step->peer);
		EXPECT_EQ(result.length, History::reply_length(o.step->number));
		EXPECT_PAYLOAD(o.reply->data(), result.length, ~history_.seed_for(r_.me, *o.step));
	}
	// The step of a call, whose input is checked.
	const Step &take(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length)
	{
		pt2p_call_info_t info{};
		EXPECT_OK(ctx, pt2p_call_query(ctx, call, &info));
		uint64_t number;
		EXPECT(length >= sizeof number);
		std::memcpy(&number, input, sizeof number);
		const Step &s = history_.of[static_cast<size_t>(info.caller)].at(number);
		EXPECT_EQ(s.peer, r_.me);
		EXPECT_EQ(s.length, length - 8);
		EXPECT_PAYLOAD(static_cast<const unsigned char *>(input) + 8, s.length, history_.seed_for(info.caller, s));
		const int times = ++served_[static_cast<size_t>(info.caller)][number];
		EXPECT_EQ(times, 1);
		caller_ = info.caller;
		return s;
	}
	static void serve_call(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, void *argument);
	static void serve_notice(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, void *argument);

	Rank &r_;
	const History history_;
	Window window_;
	Random random_;
	std::vector<std::vector<int>> served_; // how often: by caller, by step
	std::array<pt2p_service_t *, 2> services_{};
	std::vector<std::pair<int, uint64_t>> early_, late_; // sources and tags whose receives are posted so
	std::vector<Message> received_, sent_;
	std::vector<Open> open_;
	std::atomic<uint64_t> notices_{0}; // handlers may run in a progress thread
	int caller_ = 0;
};

// Runs what may fail, and adds the seed to the explanation.
template <class F>
void with_seed(uint64_t seed, F &&function)
try {
	function();
} catch (const Failure &e) {
	throw Failure(e.what() + std::string(", CALL_HISTORY_SEED=") + std::to_string(seed));
}

void Actor::serve_call(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, void *argument)
{
	auto &a = *static_cast<Actor *>(argument);
	with_seed(a.seed(), [&] {
		const Step &s = a.take(ctx, call, input, length);
		EXPECT(s.what == Step::What::call);
		const uint64_t seed = a.history_.seed_for(a.caller_, s);
		const Bytes data = payload(History::reply_length(s.number), ~seed);
		EXPECT_OK(ctx, pt2p_reply(ctx, call, mix(seed), data.data(), data.size()));
	});
}

void Actor::serve_notice(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, void *argument)
{
	auto &a = *static_cast<Actor *>(argument);
	with_seed(a.seed(), [&] {
		EXPECT(a.take(ctx, call, input, length).what == Step::What::notice);
		++a.notices_;
		// A long notice is a call whose reply nobody waits for.
		pt2p_call_info_t info{};
		EXPECT_OK(ctx, pt2p_call_query(ctx, call, &info));
		if (!info.notice)
			EXPECT_OK(ctx, pt2p_reply(ctx, call, 0, nullptr, 0));
	});
}

Finish history(Rank &r)
{
	const char *wanted = getenv("CALL_HISTORY_SEED");
	// Another history for each kind of job.
	const uint64_t seed = wanted ? strtoull(wanted, nullptr, 0)
	                             : static_cast<uint64_t>(r.size) * 100 + static_cast<uint64_t>(r.transport[0]);
	std::shared_ptr<Actor> actor;
	with_seed(seed, [&] {
		actor = std::make_shared<Actor>(r, seed);
		actor->first_half();
	});
	r.last = [actor] { with_seed(actor->seed(), [&] { actor->check(); }); };
	return [actor] { with_seed(actor->seed(), [&] { actor->second_half(); }); };
}

} // namespace

void add_call_history_cases(std::vector<Case> &cases) { cases.push_back({"call_history", true, history}); }

} // namespace conformance
