// Forwarded messages that nobody would send: the relay gives up their sender, and keeps its own messages in order.
#include <catch2/catch.hpp>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "api/context.hpp"
#include "route/forward/relay.hpp"

using namespace pt2p;

namespace {

// Two groups of one node with two ranks, [0 1] and [2 3], and no network between them.
struct Ranks {
	Ranks()
	{
		const char *tunables[] = {"PT2P_TRANSPORTS=self,shm", "PT2P_RANKS_PER_NODE=2",    "PT2P_GROUPS=nodes:1",
		                          "PT2P_ROUTE=forward",       "PT2P_FINALIZE_TIME=0",     "PT2P_LOG_LEVEL=error",
		                          "PT2P_FORWARD_CREDITS=8",   "PT2P_FORWARD_TIMEOUT=1ms", nullptr};
		pt2p_options_t options = PT2P_OPTIONS_INIT;
		options.tunables = tunables;
		REQUIRE(pt2p_init_inprocess(4, PT2P_INPROCESS_COOPERATIVE, &options, ctx) == PT2P_OK);
		relay = ctx[0]->router->relay();
		REQUIRE(relay);
	}
	~Ranks()
	{
		for (pt2p_context_t *c : ctx)
			pt2p_finalize(c);
	}
	pt2p_peer_state_t state(int rank)
	{
		pt2p_peer_info_t info;
		REQUIRE(pt2p_peer_query(ctx[0], rank, &info) == PT2P_OK);
		return info.state;
	}

	pt2p_context_t *ctx[4];
	Relay *relay;
};

uint64_t route(uint32_t source, uint32_t destination) { return uint64_t{source} << 32 | destination; }

// An eager message with a tag and four bytes.
std::vector<unsigned char> eager(uint32_t number, uint64_t tag)
{
	Envelope e{};
	e.header = tag;
	e.sequence = number;
	e.id = wire::id_eager;
	std::vector<unsigned char> bytes(sizeof e + 4);
	std::memcpy(bytes.data(), &e, sizeof e);
	return bytes;
}

} // namespace

TEST_CASE("forwarded messages are delivered in order, and impossible ones are refused")
{
	Ranks job;
	std::vector<uint64_t> tags;
	const auto receive = [&](uint64_t tag) {
		uint32_t value;
		pt2p_result_t result{};
		int there = 0;
		pt2p_iprobe(job.ctx[0], 3, tag, PT2P_TAG_EXACT, &there, nullptr);
		return there && pt2p_recv(job.ctx[0], &value, sizeof value, 3, tag, PT2P_TAG_EXACT, &result) == PT2P_OK;
	};
	const auto arrives = [&](const std::vector<unsigned char> &m) {
		job.relay->on_message(1, id_forwarded, route(3, 0), m.data(), m.size());
	};
	arrives(eager(1, 11));
	CHECK_FALSE(receive(11));
	arrives(eager(0, 10));
	CHECK(receive(10));
	CHECK(receive(11));
	arrives(eager(1, 11)); // again
	CHECK_FALSE(receive(11));
	CHECK(job.state(3) != PT2P_PEER_LOST);
	// Beyond any window.
	arrives(eager(100'000, 12));
	CHECK(job.state(3) == PT2P_PEER_LOST);
	CHECK(job.state(1) != PT2P_PEER_LOST);
}

TEST_CASE("a neighbour that breaks the rules of the relay is given up")
{
	const auto m = eager(0, 1);
	const auto lost_by = [&](uint8_t id, uint64_t header, const void *data, size_t length) {
		Ranks job;
		job.relay->on_message(1, id, header, data, length);
		return job.state(1) == PT2P_PEER_LOST;
	};
	CHECK(lost_by(id_forwarded, route(3, 4), m.data(), m.size()));             // no such rank
	CHECK(lost_by(id_forwarded, route(UINT32_MAX, 0), m.data(), m.size()));    // no such source
	CHECK(lost_by(id_forwarded, route(0, 3), m.data(), m.size()));             // from this rank itself
	CHECK(lost_by(id_forwarded, route(3, 0), m.data(), sizeof(Envelope) - 1)); // too short
	CHECK(lost_by(id_forwarded, route(1, 2), m.data(), m.size()));             // across after a hop on the node
	CHECK(lost_by(id_credit, 1, nullptr, 0));                                  // more than it has taken
	CHECK(lost_by(id_done, 2, nullptr, 0));                                    // neither yes nor no
	CHECK(lost_by(id_done, 0, m.data(), 1));
	CHECK_FALSE(lost_by(id_done, 1, nullptr, 0));
	CHECK(lost_by(id_done + 1, 0, nullptr, 0));
	CHECK_FALSE(lost_by(id_forwarded, route(3, 0), m.data(), m.size()));
}

TEST_CASE("a headerless message has the next number, and comes from no rank whose messages are not numbered")
{
	constexpr uint8_t plain = id_plain | wire::id_eager;
	{
		Ranks job;
		Session &session = job.relay->session(3);
		job.relay->on_message(3, plain, 7, "abc", 4);
		const auto m = eager(1, 7);
		job.relay->on_message(2, id_forwarded, route(3, 0), m.data(), m.size());
		job.relay->on_message(3, plain, 7, "abc", 4);
		CHECK(session.inbox.expected() == 3);
		CHECK(session.inbox.unconfirmed() == 0);
		CHECK(job.state(3) != PT2P_PEER_LOST);
		for (int i = 0; i < 3; ++i) {
			unsigned char buffer[4];
			pt2p_request_t *receive;
			int done = 0;
			REQUIRE(pt2p_irecv(job.ctx[0], buffer, sizeof buffer, 3, 7, PT2P_TAG_EXACT, &receive) == PT2P_OK);
			REQUIRE(pt2p_test(job.ctx[0], receive, &done, nullptr) == PT2P_OK);
			CHECK(done);
		}
	}
	const auto lost_by = [](int from, uint8_t id, int times) {
		Ranks job;
		const auto early = eager(1, 7);
		job.relay->on_message(2, id_forwarded, route(3, 0), early.data(), early.size());
		for (int i = 0; i < times; ++i)
			job.relay->on_message(from, id, 7, "abc", 4);
		return job.state(from) == PT2P_PEER_LOST;
	};
	CHECK_FALSE(lost_by(3, plain, 1));
	CHECK(lost_by(3, plain, 2)); // it would be the one that has come early
	CHECK(lost_by(1, plain, 1)); // on this node
	CHECK(lost_by(3, id_plain | id_forwarded, 1));
	CHECK(lost_by(3, id_plain | id_credit, 1));
}

TEST_CASE("garbage does no harm to the relay")
{
	std::mt19937 random(11);
	for (int round = 0; round < 150; ++round) {
		Ranks job;
		char buffer[64];
		pt2p_request_t *posted;
		REQUIRE(pt2p_irecv(job.ctx[0], buffer, sizeof buffer, PT2P_ANY_SOURCE, 0, 0, &posted) == PT2P_OK);
		for (int i = 0; i < 60; ++i) {
			std::vector<unsigned char> bytes(random() % 8 ? sizeof(Envelope) + random() % 80 : random() % 30);
			for (unsigned char &b : bytes)
				b = static_cast<unsigned char>(random());
			// Most look right, else only the first check would be tested.
			if (bytes.size() >= sizeof(Envelope) && random() % 8) {
				Envelope e{random() % 4,
				           static_cast<uint32_t>(random() % 70),
				           static_cast<uint32_t>(random() % 3),
				           static_cast<uint8_t>(random() % 4 ? random() % 11 : random()),
				           static_cast<uint8_t>(random() % 4),
				           static_cast<int16_t>(random()),
				           static_cast<uint32_t>(random())};
				std::memcpy(bytes.data(), &e, sizeof e);
			}
			const int from = static_cast<int>(random() % 3) + 1;
			const uint8_t plain = id_plain | static_cast<uint8_t>(random() % 4 ? +wire::id_eager : random());
			const uint8_t id = random() % 8 ? id_forwarded : random() % 2 ? plain : id_credit;
			job.relay->on_message(from, id, route(static_cast<uint32_t>(random() % 5), random() % 4 ? 0 : random() % 5),
			                      bytes.data(), id == id_credit ? 0 : bytes.size());
			if (random() % 4 == 0)
				pt2p_progress(job.ctx[0]);
			if (random() % 16 == 0)
				job.relay->check();
		}
		pt2p_cancel(job.ctx[0], posted);
		int done = 0;
		pt2p_test(job.ctx[0], posted, &done, nullptr);
		CHECK(done);
	}
}
