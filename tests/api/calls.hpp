// What the tests of calls share: jobs whose ranks are driven one turn at a time, services and calls that count.
#pragma once

#include "tests/api/job.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

namespace calls_test {

struct CallJob {
	explicit CallJob(int size, std::vector<const char *> tunables = {}) : contexts(static_cast<size_t>(size))
	{
		tunables.push_back(nullptr);
		pt2p_options_t options = PT2P_OPTIONS_INIT;
		options.tunables = tunables.data();
		const pt2p_status_t status = pt2p_init_inprocess(size, PT2P_INPROCESS_COOPERATIVE, &options, contexts.data());
		INFO(pt2p_last_error(nullptr));
		REQUIRE(status == PT2P_OK);
	}
	~CallJob()
	{
		for (pt2p_context_t *c : contexts)
			if (c)
				CHECK(pt2p_finalize(c) == PT2P_OK);
	}
	// A turn of each rank.
	void turn()
	{
		for (pt2p_context_t *c : contexts)
			if (c)
				turns_well &= pt2p_progress(c) == PT2P_OK;
	}
	pt2p_context_t *operator[](size_t i) const { return contexts[i]; }
	std::vector<pt2p_context_t *> contexts;
	bool turns_well = true;
};

// What a service has seen.
struct Served {
	std::vector<uint64_t> numbers; // of its calls, in the order of their start
	std::vector<pt2p_call_t *> kept;
};

inline uint64_t number_in(const void *input, size_t length)
{
	uint64_t number = 0;
	std::memcpy(&number, input, std::min(length, sizeof number));
	return number;
}

inline void give_up(pt2p_context_t *ctx, pt2p_call_t *call, const void *, size_t, void *)
{
	CHECK(pt2p_call_abandon(ctx, call) == PT2P_OK);
}

inline void reply_at_once(pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, void *argument)
{
	auto &s = *static_cast<Served *>(argument);
	s.numbers.push_back(number_in(input, length));
	pt2p_reply(ctx, call, s.numbers.back(), nullptr, 0); // no error is expected of one to a notice
}

inline void keep(pt2p_context_t *, pt2p_call_t *call, const void *input, size_t length, void *argument)
{
	auto &s = *static_cast<Served *>(argument);
	s.numbers.push_back(number_in(input, length));
	s.kept.push_back(call);
}

inline pt2p_service_t *open(pt2p_context_t *ctx, uint32_t id, pt2p_handler_t handler, void *argument,
                            uint32_t lanes = 0, size_t input_max = 1000)
{
	pt2p_service_options_t options = PT2P_SERVICE_OPTIONS_INIT;
	options.lanes = lanes;
	options.input_max = input_max;
	pt2p_service_t *service = nullptr;
	REQUIRE(pt2p_service_open(ctx, id, handler, argument, &options, &service) == PT2P_OK);
	return service;
}

// A call with a number as input.
struct Call {
	uint64_t number = 0;
	pt2p_request_t *request = nullptr;
	int ended = 0; // how often
	pt2p_status_t status = PT2P_OK;

	void start(pt2p_context_t *ctx, int rank, uint32_t service, uint16_t lane = 0, int64_t deadline = 0,
	           size_t length = sizeof(uint64_t))
	{
		pt2p_call_options_t options = PT2P_CALL_OPTIONS_INIT;
		options.lane = lane;
		options.deadline = deadline;
		options.argument = this;
		options.done = [](pt2p_context_t *, const pt2p_result_t *result, void *argument) {
			auto &c = *static_cast<Call *>(argument);
			++c.ended;
			c.status = static_cast<pt2p_status_t>(result->status);
		};
		static const char longer[2000] = {};
		const void *input = length > sizeof number ? static_cast<const void *>(longer) : &number;
		REQUIRE(pt2p_icall(ctx, rank, service, input, length, nullptr, 0, &options, nullptr) == PT2P_OK);
	}
};

constexpr int64_t ms = 1'000'000;

inline void sleep_ms(int n) { std::this_thread::sleep_for(std::chrono::milliseconds(n)); }

inline uint64_t counter(const pt2p_context_t *ctx, const char *name)
{
	for (int i = 0; i < pt2p_counter_count(); ++i)
		if (!strcmp(pt2p_counter_name(i), name)) {
			uint64_t value = 0;
			CHECK(pt2p_counter_read(const_cast<pt2p_context_t *>(ctx), i, &value) == PT2P_OK);
			return value;
		}
	FAIL("no counter " << name);
	return 0;
}

} // namespace calls_test
