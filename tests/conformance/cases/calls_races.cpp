// Calls that end in several ways at once: cancelling, deadlines and replies race at every stage of a call, and services
// are closed while they are called. The servers count what they execute, and the statuses have to agree with that.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "tests/conformance/harness.hpp"

namespace conformance {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t slower = 5;
#else
constexpr uint64_t slower = 1;
#endif

// Ids of services. The first three differ in when a call is replied to: within progress, by pt2p_serve, or later.
enum Id : uint32_t { at_once = 30, in_lane, later, executed_calls, gather, finished, closed_lane, closed_inline };

struct InputHead {
	uint64_t number, reply_length;
};

enum class Fate : uint8_t { open, replied, cancelled, late };

// ---- the server -----------------------------------------------------------------------------------------------------

struct Server {
	Rank &r;
	std::vector<Bytes> executed; // how often: by caller, by number of call
	std::vector<std::vector<pt2p_call_t *>> gathered;
	std::mutex mutex; // handlers may run in a progress thread
	std::deque<pt2p_call_t *> kept;
	std::vector<pt2p_service_t *> services;
	pt2p_service_t *lane = nullptr;
	std::atomic<int> callers_finished{0};

	Server(Rank &rank, size_t calls)
	    : r(rank), executed(static_cast<size_t>(rank.size), Bytes(calls)), gathered(static_cast<size_t>(rank.size))
	{
	}
	pt2p_service_t *open(uint32_t id, pt2p_handler_t handler, uint32_t lanes, void *argument)
	{
		pt2p_service_options_t options = PT2P_SERVICE_OPTIONS_INIT;
		options.lanes = lanes;
		pt2p_service_t *service = nullptr;
		EXPECT_OK(r.ctx, pt2p_service_open(r.ctx, id, handler, argument, &options, &service));
		return service;
	}
	void open_for_the_case(uint32_t id, pt2p_handler_t handler, uint32_t lanes = 0)
	{
		services.push_back(open(id, handler, lanes, this));
	}
	void close()
	{
		for (pt2p_service_t *s : services)
			EXPECT_OK(r.ctx, pt2p_service_close(r.ctx, s));
	}
};

Server &of(void *argument) { return *static_cast<Server *>(argument); }

int caller_of(pt2p_context_t *ctx, pt2p_call_t *call)
{
	pt2p_call_info_t info{};
	EXPECT_OK(ctx, pt2p_call_query(ctx, call, &info));
	return info.caller;
}

// The number of a call, which is counted as executed.
InputHead execute(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, Server &s)
{
	InputHead head;
	EXPECT(length >= sizeof head);
	std::memcpy(&head, input, sizeof head);
	const int caller = caller_of(ctx, call);
	EXPECT_PAYLOAD(static_cast<const unsigned char *>(input) + sizeof head, length - sizeof head,
	               seed_of(30, caller, s.r.me, head.number));
	const unsigned char times = ++s.executed[static_cast<size_t>(caller)].at(head.number);
	EXPECT_EQ(times, 1);
	return head;
}

void reply(pt2p_context_t *ctx, pt2p_call_t *call, const InputHead &head)
{
	const Bytes data = payload(head.reply_length, ~head.number);
	EXPECT_OK(ctx, pt2p_reply(ctx, call, mix(head.number), data.data(), data.size()));
	EXPECT_STATUS(ctx, pt2p_reply(ctx, call, 0, nullptr, 0), PT2P_ERR_CALL);
}

void reply_at_once(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, void *argument)
{
	reply(ctx, call, execute(ctx, call, input, length, of(argument)));
}

void keep(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, void *argument)
{
	Server &s = of(argument);
	execute(ctx, call, input, length, s);
	const std::lock_guard<std::mutex> guard(s.mutex);
	s.kept.push_back(call);
}

// Replies to a call that was kept; false: none is. Its input is still there, also when the caller has given up.
bool reply_to_kept(Server &s)
{
	pt2p_call_t *call;
	{
		const std::lock_guard<std::mutex> guard(s.mutex);
		if (s.kept.empty())
			return false;
		call = s.kept.front();
		s.kept.pop_front();
	}
	const void *input = nullptr;
	EXPECT_OK(s.r.ctx, pt2p_call_keep(s.r.ctx, call, &input));
	InputHead head;
	std::memcpy(&head, input, sizeof head);
	reply(s.r.ctx, call, head);
	return true;
}

// How often each call of the caller was executed.
void tell_executed(pt2p_context_t *ctx, pt2p_call_t *call, const void *, size_t, void *argument)
{
	const Bytes &counts = of(argument).executed[static_cast<size_t>(caller_of(ctx, call))];
	EXPECT_OK(ctx, pt2p_reply(ctx, call, 0, counts.data(), counts.size()));
}

// Replies to as many calls of one caller as the input says, once all are here.
void wait_for_all(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, void *argument)
{
	uint64_t count;
	EXPECT_EQ(length, sizeof count);
	std::memcpy(&count, input, sizeof count);
	auto &calls = of(argument).gathered[static_cast<size_t>(caller_of(ctx, call))];
	calls.push_back(call);
	if (calls.size() < count)
		return;
	for (pt2p_call_t *c : calls)
		EXPECT_OK(ctx, pt2p_reply(ctx, c, 0, nullptr, 0));
	calls.clear();
}

void count_finished(pt2p_context_t *, pt2p_call_t *, const void *, size_t, void *argument)
{
	++of(argument).callers_finished;
}

// ---- the caller -----------------------------------------------------------------------------------------------------

struct Call {
	pt2p_request_t *request = nullptr;
	uint64_t number = 0;
	int rank = 0;
	bool cancelled = false, has_deadline = false;
	InputHead head{};
	Bytes input, reply;
};

class Caller {
public:
	Caller(Server &s, size_t calls, bool deadlines)
	    : s_(s), r_(s.r), deadlines_(deadlines), random_{mix(static_cast<uint64_t>(s.r.me * 2 + deadlines))},
	      fates_(calls, Fate::open), ranks_(calls)
	{
	}
	void race()
	{
		for (unsigned steps = 1; next_ < fates_.size() || !open_.empty(); ++steps) {
			step();
			if (steps % 64 == 0)
				std::this_thread::yield(); // where ranks share processors
		}
		for (const Call &c : ended_)
			check_untouched(c);
	}
	// What the servers have executed.
	void check_fates()
	{
		uint64_t seen[4] = {};
		for (const int rank : {r_.me, r_.right()}) {
			Bytes counts(fates_.size(), 77);
			EXPECT_OK(r_.ctx, pt2p_call(r_.ctx, rank, executed_calls, nullptr, 0, counts.data(), counts.size(), nullptr,
			                            nullptr));
			for (size_t i = 0; i < fates_.size(); ++i) {
				const bool here = ranks_[i] == rank;
				seen[static_cast<size_t>(fates_[i])] += here;
				if (fates_[i] == Fate::late && here)
					EXPECT(counts[i] <= 1);
				else
					EXPECT_EQ(counts[i], here && fates_[i] == Fate::replied);
			}
			if (r_.size == 1)
				break;
		}
		EXPECT_EQ(seen[0], 0u);
		EXPECT(seen[1] && seen[2] && (seen[3] != 0) == deadlines_);
		EXPECT(too_late_ > 0); // cancelled, and completed nevertheless
	}
	// All slots are free again: as many calls as the window allows can be at the server together.
	void check_slots()
	{
		const uint64_t count = r_.call_window;
		std::vector<pt2p_request_t *> requests(count);
		for (const int rank : {r_.me, r_.right()}) {
			for (pt2p_request_t *&request : requests)
				EXPECT_OK(r_.ctx,
				          pt2p_icall(r_.ctx, rank, gather, &count, sizeof count, nullptr, 0, nullptr, &request));
			EXPECT_OK(r_.ctx, pt2p_waitall(r_.ctx, count, requests.data(), nullptr));
		}
	}

private:
	void step()
	{
		switch (random_.below(10)) {
		case 0:
		case 1:
		case 2:
			if (next_ < fates_.size() && open_.size() < limit_)
				start();
			break;
		case 3:
		case 4:
			if (!open_.empty())
				cancel(any());
			break;
		case 5:
			EXPECT_OK(r_.ctx, pt2p_progress(r_.ctx));
			r_.poll();
			break;
		case 6:
			if (!open_.empty())
				test(random_.below(open_.size()));
			break;
		case 7: EXPECT_OK(r_.ctx, pt2p_serve(r_.ctx, s_.lane, 0, 1 + random_.below(8), 0, nullptr)); break;
		case 8: reply_to_kept(s_); break;
		default:
			// Mostly few calls, so that they are cancelled soon after the start. Sometimes more than the window.
			if (random_.below(20) == 0)
				limit_ = 1 + random_.below(random_.below(3) ? 4 : 150);
		}
	}
	Call &any() { return open_[random_.below(open_.size())]; }
	void start()
	{
		Call c;
		c.number = next_++;
		const auto id = static_cast<uint32_t>(at_once + random_.below(3));
		// In a cooperative job, nobody but this rank serves while it calls.
		c.rank = random_.below(2) || (r_.cooperative && id != at_once) ? r_.me : r_.right();
		const size_t length = sizeof c.head + (random_.below(12) ? random_.below(200) : random_.below(40000));
		c.head = {c.number, random_.below(12) ? random_.below(100) : random_.below(40000)};
		c.input.resize(length);
		std::memcpy(c.input.data(), &c.head, sizeof c.head);
		fill(c.input.data() + sizeof c.head, length - sizeof c.head, seed_of(30, r_.me, c.rank, c.number));
		c.reply.assign(c.head.reply_length + 1, 77);
		pt2p_call_options_t options = PT2P_CALL_OPTIONS_INIT;
		c.has_deadline = deadlines_ && random_.below(3);
		if (c.has_deadline)
			options.deadline = static_cast<int64_t>(1 + random_.below(random_.below(2) ? 3000 : 300000)); // ns
		ranks_[c.number] = c.rank;
		EXPECT_OK(r_.ctx, pt2p_icall(r_.ctx, c.rank, id, c.input.data(), length, c.reply.data(), c.head.reply_length,
		                             &options, &c.request));
		open_.push_back(std::move(c));
	}
	void cancel(Call &c)
	{
		EXPECT_OK(r_.ctx, pt2p_cancel(r_.ctx, c.request));
		c.cancelled = true;
	}
	void test(size_t index)
	{
		Call &c = open_[index];
		int done = 0;
		pt2p_result_t result{};
		const pt2p_request_t *const handle = c.request;
		const pt2p_status_t status = pt2p_test(r_.ctx, c.request, &done, &result);
		if (!done) {
			EXPECT_OK(r_.ctx, status);
			return;
		}
		EXPECT_EQ(int{status}, int{result.status});
		EXPECT_EQ(result.source, c.rank);
		Fate &fate = fates_[c.number];
		EXPECT(fate == Fate::open);
		switch (status) {
		case PT2P_OK:
			fate = Fate::replied;
			too_late_ += c.cancelled;
			EXPECT_EQ(result.tag, mix(c.number));
			EXPECT_EQ(result.length, c.head.reply_length);
			EXPECT_PAYLOAD(c.reply.data(), c.head.reply_length, ~c.number);
			EXPECT_EQ(c.reply.back(), 77);
			break;
		case PT2P_ERR_CANCELLED:
			fate = Fate::cancelled;
			EXPECT(c.cancelled);
			break;
		default:
			EXPECT_STATUS(r_.ctx, status, PT2P_ERR_DEADLINE);
			fate = Fate::late;
			EXPECT(c.has_deadline);
		}
		// It has ended once: nothing is known of the request any more.
		EXPECT_STATUS(r_.ctx, pt2p_test(r_.ctx, const_cast<pt2p_request_t *>(handle), &done, nullptr),
		              PT2P_ERR_REQUEST);
		// The buffers are the program's again. A late reply would be seen in them.
		std::fill(c.input.begin(), c.input.end(), 0xcc);
		std::fill(c.reply.begin(), c.reply.end(), 0xdd);
		ended_.push_back(std::move(c));
		if (ended_.size() > 64) {
			check_untouched(ended_.front());
			ended_.pop_front();
		}
		if (&c != &open_.back())
			c = std::move(open_.back());
		open_.pop_back();
	}
	static void check_untouched(const Call &c)
	{
		for (const unsigned char byte : c.reply)
			EXPECT_EQ(byte, 0xdd);
	}

	Server &s_;
	Rank &r_;
	const bool deadlines_;
	Random random_;
	uint64_t next_ = 0;
	size_t limit_ = 4;
	uint64_t too_late_ = 0;
	std::vector<Call> open_;
	std::deque<Call> ended_;
	std::vector<Fate> fates_;
	std::vector<int> ranks_;
};

// All ranks have done what is before it. In a cooperative job all first halves have.
void meet(const Rank &r)
{
	if (!r.cooperative)
		EXPECT_OK(r.ctx, pt2p_barrier(r.ctx));
}

uint64_t calls_of_a_rank(const Rank &r) { return (strcmp(r.transport, "shm") ? 2000 : 10000) / slower; }

Finish race(Rank &r, bool deadlines)
{
	const size_t count = calls_of_a_rank(r);
	auto s = std::make_shared<Server>(r, count);
	s->open_for_the_case(at_once, reply_at_once);
	s->open_for_the_case(in_lane, reply_at_once, 1);
	s->lane = s->services.back();
	s->open_for_the_case(later, keep);
	s->open_for_the_case(executed_calls, tell_executed);
	s->open_for_the_case(gather, wait_for_all);
	s->open_for_the_case(finished, count_finished);
	r.last = [s] { s->close(); };
	return [&r, s, count, deadlines] {
		meet(r);
		Caller caller(*s, count, deadlines);
		caller.race();
		EXPECT_OK(r.ctx, pt2p_notify(r.ctx, r.right(), finished, nullptr, 0, nullptr));
		while (!r.cooperative && !s->callers_finished) {
			EXPECT_OK(r.ctx, pt2p_serve(r.ctx, s->lane, 0, 8, 0, nullptr));
			reply_to_kept(*s);
			std::this_thread::yield();
		}
		// Calls that a caller has given up may have been kept.
		while (reply_to_kept(*s))
			;
		meet(r);
		caller.check_fates();
		caller.check_slots();
		meet(r);
	};
}

Finish cancel_races(Rank &r) { return race(r, false); }
Finish deadline_races(Rank &r) { return race(r, true); }

// ---- closing --------------------------------------------------------------------------------------------------------

// One opening of a service.
struct Opening {
	Server &server;
	std::vector<uint64_t> &executed; // by caller
	std::atomic<bool> closed{false};

	Opening(Server &s, std::vector<uint64_t> &counts) : server(s), executed(counts) {}
};

void count_call(pt2p_context_t *ctx, pt2p_call_t *call, const void *, size_t, void *argument)
{
	auto &opening = *static_cast<Opening *>(argument);
	EXPECT(!opening.closed);
	{
		const auto caller = static_cast<size_t>(caller_of(ctx, call));
		const std::lock_guard<std::mutex> guard(opening.server.mutex);
		++opening.executed[caller];
	}
	EXPECT_OK(ctx, pt2p_reply(ctx, call, 0, nullptr, 0));
}

void tell_count(pt2p_context_t *ctx, pt2p_call_t *call, const void *, size_t, void *argument)
{
	const auto &executed = *static_cast<std::vector<uint64_t> *>(argument);
	EXPECT_OK(ctx, pt2p_reply(ctx, call, executed[static_cast<size_t>(caller_of(ctx, call))], nullptr, 0));
}

// Each rank calls all ranks, while all close their services and open them again. A call is executed, or finds none.
Finish closing(Rank &r)
{
	auto s = std::make_shared<Server>(r, 0);
	auto executed = std::make_shared<std::vector<uint64_t>>(static_cast<size_t>(r.size));
	s->open_for_the_case(finished, count_finished);
	s->services.push_back(s->open(executed_calls, tell_count, 0, executed.get()));
	r.last = [s, executed] { s->close(); };
	return [&r, s, executed] {
		std::deque<Opening> openings;
		pt2p_service_t *lane = nullptr, *within = nullptr;
		const auto open = [&] {
			openings.emplace_back(*s, *executed);
			lane = s->open(closed_lane, count_call, 1, &openings.back());
			within = s->open(closed_inline, count_call, 0, &openings.back());
			pt2p_service_t *twice = nullptr;
			EXPECT_STATUS(r.ctx, pt2p_service_open(r.ctx, closed_lane, count_call, nullptr, nullptr, &twice),
			              PT2P_ERR_ARGUMENT);
		};
		const auto close = [&] {
			EXPECT_OK(r.ctx, pt2p_service_close(r.ctx, lane));
			EXPECT_OK(r.ctx, pt2p_service_close(r.ctx, within));
			openings.back().closed = true;
			EXPECT_STATUS(r.ctx, pt2p_service_close(r.ctx, lane), PT2P_ERR_ARGUMENT);
			EXPECT_STATUS(r.ctx, pt2p_serve(r.ctx, lane, 0, 1, 0, nullptr), PT2P_ERR_ARGUMENT);
		};
		open();
		meet(r);
		Random random{static_cast<uint64_t>(r.me)};
		const uint64_t rounds = 20, calls = 30 / slower;
		static constexpr uint64_t input = 7;
		std::vector<uint64_t> replied(static_cast<size_t>(r.size));
		std::vector<std::pair<pt2p_request_t *, size_t>> requests;
		uint64_t refused = 0;
		const auto collect = [&](const std::pair<pt2p_request_t *, size_t> &q) {
			int done = 0;
			const pt2p_status_t status = pt2p_test(r.ctx, q.first, &done, nullptr);
			if (done && status == PT2P_ERR_NO_SERVICE)
				++refused;
			else
				EXPECT_OK(r.ctx, status);
			replied[q.second] += done && status == PT2P_OK;
			return done != 0;
		};
		for (uint64_t round = 0; round < rounds; ++round) {
			for (uint64_t i = 0; i < calls; ++i) {
				const size_t rank = random.below(static_cast<uint64_t>(r.size));
				requests.push_back({nullptr, rank});
				EXPECT_OK(r.ctx,
				          pt2p_icall(r.ctx, static_cast<int>(rank), random.below(2) ? closed_lane : closed_inline,
				                     &input, sizeof input, nullptr, 0, nullptr, &requests.back().first));
				if (random.below(3) == 0)
					EXPECT_OK(r.ctx, pt2p_serve(r.ctx, lane, 0, 2, 0, nullptr));
			}
			close();
			EXPECT_OK(r.ctx, pt2p_progress(r.ctx));
			open();
			std::erase_if(requests, collect);
		}
		for (; !requests.empty(); std::this_thread::yield()) {
			EXPECT_OK(r.ctx, pt2p_serve(r.ctx, lane, 0, 8, 0, nullptr));
			std::erase_if(requests, collect);
		}
		for (int rank = 0; rank < r.size; ++rank)
			EXPECT_OK(r.ctx, pt2p_notify(r.ctx, rank, finished, nullptr, 0, nullptr));
		for (; s->callers_finished < r.size; std::this_thread::yield())
			EXPECT_OK(r.ctx, pt2p_serve(r.ctx, lane, 0, 8, 0, nullptr));
		EXPECT(refused > 0);
		for (int rank = 0; rank < r.size; ++rank) {
			pt2p_result_t result{};
			EXPECT_OK(r.ctx, pt2p_call(r.ctx, rank, executed_calls, nullptr, 0, nullptr, 0, nullptr, &result));
			EXPECT_EQ(result.tag, replied[static_cast<size_t>(rank)]);
		}
		close();
		meet(r);
	};
}

} // namespace

void add_call_race_cases(std::vector<Case> &cases)
{
	cases.insert(cases.end(), {
	                              {"call_cancel_races", true, cancel_races},
	                              {"call_deadline_races", true, deadline_races},
	                              {"call_closing", false, closing},
	                          });
}

} // namespace conformance
