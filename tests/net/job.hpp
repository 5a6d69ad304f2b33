// A small job inside of this process whose ranks talk through a network transport. One thread drives all of them.
#pragma once

#include <catch2/catch.hpp>

#include <cstring>
#include <string>
#include <vector>

#include <pt2p.h>

#include "api/context.hpp"
#include "softhca/softhca.h"

namespace net {

struct Job {
	explicit Job(const std::string &transport, int size = 2, std::vector<std::string> tunables = {},
	             pt2p_inprocess_mode_t mode = PT2P_INPROCESS_COOPERATIVE)
	    : ctx(static_cast<size_t>(size))
	{
		tunables.push_back("PT2P_TRANSPORTS=self," + transport);
		std::vector<const char *> list;
		for (const std::string &t : tunables)
			list.push_back(t.c_str());
		list.push_back(nullptr);
		pt2p_options_t options = PT2P_OPTIONS_INIT;
		options.thread_level = PT2P_THREAD_SERIALIZED;
		options.tunables = list.data();
		const pt2p_status_t status = pt2p_init_inprocess(size, mode, &options, ctx.data());
		INFO(pt2p_last_error(nullptr));
		REQUIRE(status == PT2P_OK);
	}
	~Job()
	{
		for (pt2p_context_t *c : ctx)
			if (c)
				pt2p_finalize(c);
	}
	Job(const Job &) = delete;
	Job &operator=(const Job &) = delete;

	void progress() const
	{
		for (pt2p_context_t *c : ctx)
			if (c)
				pt2p_progress(c);
	}
	// Sends a message each way, so that everything is connected and warm.
	void warm_up(int a = 0, int b = 1)
	{
		exchange(a, b);
		exchange(b, a);
		// The last message of the handshake may come after these. It is polled for every 64 turns.
		for (int turn = 0; turn < 128; ++turn)
			progress();
	}
	void exchange(int from, int to, size_t length = 8)
	{
		std::vector<unsigned char> out(length, 0x5a), in(length);
		pt2p_request_t *request;
		REQUIRE(pt2p_irecv(ctx[index(to)], in.data(), length, from, 7, PT2P_TAG_EXACT, &request) == PT2P_OK);
		REQUIRE(pt2p_send(ctx[index(from)], out.data(), length, to, 7) == PT2P_OK);
		REQUIRE(pt2p_wait(ctx[index(to)], request, nullptr) == PT2P_OK);
		REQUIRE(in == out);
	}
	uint64_t counter(int rank, const char *name) const
	{
		for (int i = 0; i < pt2p_counter_count(); ++i)
			if (!std::strcmp(pt2p_counter_name(i), name)) {
				uint64_t value = 0;
				pt2p_counter_read(ctx[index(rank)], i, &value);
				return value;
			}
		FAIL("no counter " << name);
		return 0;
	}
	static size_t index(int rank) { return static_cast<size_t>(rank); }

	std::vector<pt2p_context_t *> ctx;
};

// Sends `n` messages of `length` bytes from rank 0 to 1. Each is received before the next is sent.
inline void send_singly(Job &job, unsigned n, size_t length)
{
	for (unsigned i = 0; i < n; ++i)
		job.exchange(0, 1, length);
}

// Sends from rank 0 in windows, so most messages are not sent on an idle channel. Rank 0 is driven while the receiver
// waits, as it would be in a process of its own: the tuner ignores a latency if the program looked too late.
inline void send_many(Job &job, unsigned count, size_t length, int to = 1, unsigned window = 50)
{
	std::vector<unsigned char> out(length, 1), in(length);
	std::vector<pt2p_request_t *> receives(window), sends(window);
	for (unsigned sent = 0; sent < count; sent += window) {
		for (auto &r : receives)
			REQUIRE(pt2p_irecv(job.ctx[Job::index(to)], in.data(), length, 0, 1, PT2P_TAG_EXACT, &r) == PT2P_OK);
		for (auto &s : sends)
			REQUIRE(pt2p_isend(job.ctx[0], out.data(), length, to, 1, &s) == PT2P_OK);
		REQUIRE(pt2p_waitall(job.ctx[0], window, sends.data(), nullptr) == PT2P_OK);
		for (int done = 0; !done; job.progress())
			REQUIRE(pt2p_testall(job.ctx[Job::index(to)], window, receives.data(), &done, nullptr) == PT2P_OK);
	}
}

// Fault rules. The destructor removes them.
struct Faults {
	explicit Faults(const std::string &rules)
	{
		char why[200] = "softhca is not there";
		const int result = softhca_fault ? softhca_fault(rules.c_str(), why, sizeof why) : -1;
		INFO(why);
		REQUIRE(result == 0);
	}
	~Faults() { softhca_fault("clear", nullptr, 0); }
};

// How a counter of the device changes from here on.
class Change {
public:
	explicit Change(const char *name) : name_(name), before_(read()) {}
	uint64_t operator()() const { return read() - before_; }

private:
	uint64_t read() const
	{
		uint64_t value = 0;
		REQUIRE(softhca_counter);
		REQUIRE(softhca_counter(name_, -1, 0, &value) == 0);
		return value;
	}
	const char *name_;
	uint64_t before_;
};

} // namespace net
