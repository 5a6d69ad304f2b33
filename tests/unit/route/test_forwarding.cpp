// The parts of a relay by themselves, on endpoints that are made up: what a rank lacks for a while is no verdict on
// another.
#include <catch2/catch.hpp>

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/config/config.hpp"
#include "base/job/job.hpp"
#include "base/job/topology.hpp"
#include "base/report/report.hpp"
#include "route/forward/end_to_end.hpp"
#include "route/forward/forwarding.hpp"
#include "route/forward/sessions.hpp"
#include "route/groups/groups.hpp"

using namespace pt2p;

namespace {

struct Sent {
	int peer;
	uint8_t id;
	uint64_t header;
};
std::vector<Sent> sent;

Outcome record(Endpoint &endpoint, uint8_t id, uint64_t header, const void *, size_t)
{
	sent.push_back({endpoint.peer, id, header});
	return Outcome::done;
}
const TransportTable table = {"recorder", cap_send, nullptr, record, nullptr, nullptr, nullptr, nullptr};

// Cannot connect while `failure` says so.
struct Connector final : DirectConnector {
	Endpoint *try_connect(int rank, bool) override
	{
		++attempts;
		if (failure != PT2P_OK)
			throw Error(failure, "made up");
		Endpoint &e = endpoints[static_cast<size_t>(rank)];
		e.table = &table;
		e.peer = rank;
		return &e;
	}

	pt2p_status_t failure = PT2P_OK;
	unsigned attempts = 0;
	Endpoint endpoints[4];
};

struct Client final : ForwardingClient {
	void on_link_down(int neighbour) override { down.push_back(neighbour); }
	bool send_around(const Route &, const void *, size_t) override { return ++around; }
	void on_malformed(int) override { ++malformed; }

	std::vector<int> down;
	int around = 0, malformed = 0;
};

struct Above final : TransportEvents, AddressBook {
	Above() : TransportEvents(no_pacing) {}
	void on_message(int, uint8_t, uint64_t, const void *, size_t) override {}
	void on_complete(void *, pt2p_status_t, std::string_view) override {}
	void on_peer_down(int rank, pt2p_status_t, std::string_view) override { down.push_back(rank); }
	void on_refused(int rank, pt2p_status_t, std::string_view) override { refused.push_back(rank); }
	bool find_address(int, const char *, std::string &) override { return false; }

	SendPacing no_pacing;
	std::vector<int> down, refused;
};

// Rank 2 of two groups of one node with two ranks, [0 1] and [2 3]: it sends what 0 has for 3 on to 3.
struct Forwarder {
	Forwarder()
	{
		reporter.identify(LogLevel::error, 2, "test");
		forwarding.set_limit(200);
	}
	void arrives()
	{
		const unsigned char bytes[sizeof(Envelope) + 8] = {};
		forwarding.send_on(0, {0, 3}, bytes, sizeof bytes);
	}

	Config config;
	Topology topology;
	Reporter reporter;
	Above above;
	std::vector<std::unique_ptr<Job>> jobs = make_inprocess_jobs(4, config, nullptr);
	TransportEnvironment environment{config, topology, reporter, *jobs[2], above, above};
	Groups groups{{0, 0, 1, 1}, {0, 1}};
	Connector connector;
	BufferPool buffers;
	Client client;
	Forwarding forwarding{environment, groups, connector, buffers, client};
};

} // namespace

TEST_CASE("a link that cannot be connected for lack of something here is connected later")
{
	sent.clear();
	Forwarder f;
	f.connector.failure = PT2P_ERR_NO_MEMORY;
	f.arrives();
	f.arrives();
	CHECK(f.client.down.empty());
	CHECK_FALSE(f.forwarding.is_down(3));
	CHECK_FALSE(f.forwarding.idle());
	CHECK(f.forwarding.progress() == 0);
	CHECK(f.connector.attempts < 4); // not in each turn
	f.connector.failure = PT2P_OK;
	std::this_thread::sleep_for(std::chrono::milliseconds(2));
	CHECK(f.forwarding.progress() == 2);
	CHECK(f.forwarding.idle());
	REQUIRE(sent.size() == 2);
	CHECK(sent[1].peer == 3);
	CHECK(sent[1].id == id_forwarded);
	CHECK(sent[1].header == Route{0, 3}.header());
	CHECK(f.client.around == 0);
	CHECK(f.client.malformed == 0);
}

TEST_CASE("a link to a rank that cannot be reached is given up, and what waits for it goes around")
{
	sent.clear();
	Forwarder f;
	f.connector.failure = PT2P_ERR_UNREACHABLE;
	f.arrives();
	CHECK(f.client.down == std::vector<int>{3});
	CHECK(f.forwarding.is_down(3));
	f.connector.failure = PT2P_OK;
	f.forwarding.progress();
	CHECK(f.connector.attempts == 1);
	CHECK(f.forwarding.idle());
	CHECK(sent.empty()); // 3 is the destination itself
}

TEST_CASE("a send that needs a direct connection fails for lack of something here, and the next one tries again")
{
	sent.clear();
	Forwarder f;
	f.config.route = choice::route::automatic; // which begins with the direct path
	f.config.dct_initiators = 1;
	Sessions sessions(f.environment, f.groups, ConnectionBudget::unlimited, f.connector, f.forwarding, f.buffers);
	sessions.set_limit(100);
	Session &session = sessions.at(1);
	f.connector.failure = PT2P_ERR_NO_MEMORY;
	CHECK(sessions.send(session, 1, 7, "abc", 4) == Outcome::no_resource);
	sessions.progress();
	CHECK(f.above.refused == std::vector<int>{1});
	CHECK(f.above.down.empty());
	CHECK(sessions.idle());
	f.connector.failure = PT2P_OK;
	CHECK(sessions.send(session, 1, 7, "abc", 4) == Outcome::done);
	REQUIRE(sent.size() == 1);
	CHECK(sent[0].peer == 1);
	CHECK(sent[0].id == (1 | id_plain));
	// A rank that cannot be reached is lost.
	f.connector.failure = PT2P_ERR_UNREACHABLE;
	CHECK(sessions.send(sessions.at(0), 1, 7, "abc", 4) == Outcome::no_resource);
	sessions.progress();
	CHECK(f.above.down == std::vector<int>{0});
	CHECK(f.above.refused.size() == 1);
}
