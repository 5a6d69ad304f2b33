// Processes on the same fabric that are not of the job: nothing that they send has an effect.
#include "tests/net/window.hpp"

#include <chrono>
#include <set>

#include "base/job/job.hpp"
#include "onesided/blob.hpp"
#include "tests/net/peer.hpp"
#include "transports/dct/dct.hpp"

using namespace net;
using namespace std::chrono_literals;
using pt2p::Secret;
using pt2p::verbs::Net;
using pt2p::verbs::Wireup;
using pt2p::verbs::WireupAddress;
using pt2p::verbs::WireupMessage;

namespace {

Net &net_of(const Job &job, int from, int to) { return *peer_of(job, from, to).net; }

// Progresses all ranks until one has counted so many refusals.
bool refused(const Job &job, int rank, uint64_t wanted)
{
	for (const auto end = std::chrono::steady_clock::now() + 10s; job.counter(rank, "auth_refused") < wanted;) {
		if (std::chrono::steady_clock::now() > end)
			return false;
		job.progress();
	}
	for (int i = 0; i < 200; ++i) // no more than that
		job.progress();
	return job.counter(rank, "auth_refused") == wanted;
}

WireupMessage request_of(int rank, const WireupAddress &from)
{
	WireupMessage m{};
	m.from = from;
	m.rank = rank;
	m.qp = 4711;
	m.attempt = 1;
	m.kind = WireupMessage::Kind::request;
	return m;
}

} // namespace

TEST_CASE("datagrams without the secret of a rank are refused and counted")
{
	Job job("rc", 3);
	job.warm_up(0, 1);
	Net &net = net_of(job, 0, 1);
	Wireup forger(net.device(), nullptr, -1);
	const WireupAddress to{net.device().address, net.wireup.number()}, from{net.device().address, forger.number()};
	uint64_t count = 0;
	// In the name of a rank that is connected, and of one that is not.
	for (const int rank : {1, 2})
		for (const auto kind : {WireupMessage::Kind::request, WireupMessage::Kind::accept, WireupMessage::Kind::confirm,
		                        WireupMessage::Kind::refuse, WireupMessage::Kind::part})
			for (const uint32_t attempt : {1u, 2u}) {
				WireupMessage m = request_of(rank, from);
				m.kind = kind;
				m.attempt = attempt;
				forger.send(to, m, pt2p::random_secret());
				CHECK(refused(job, 0, ++count));
			}
	// Garbage.
	std::mt19937 random(1);
	for (int i = 0; i < 50; ++i) {
		WireupMessage m;
		for (size_t at = 0; at < sizeof m; ++at)
			reinterpret_cast<unsigned char *>(&m)[at] = static_cast<unsigned char>(random());
		forger.send(to, m, pt2p::random_secret());
		CHECK(refused(job, 0, ++count));
		WireupMessage answer; // there is none; the call gives the send slots back
		CHECK(!forger.take(answer));
	}
	CHECK(!job.ctx[0]->router->find(2));
	CHECK(job.counter(0, "reconnects") == 0);
	CHECK(job.counter(0, "peers_lost") == 0);
	job.warm_up(0, 1);
	job.warm_up(0, 2);
	CHECK(job.counter(0, "auth_refused") == count);
}

TEST_CASE("a datagram that was recorded is refused")
{
	Job job("rc");
	job.warm_up();
	Net &net = net_of(job, 0, 1);
	Wireup forger(net.device(), nullptr, -1);
	const WireupAddress to{net.device().address, net.wireup.number()}, from{net.device().address, forger.number()};
	// Like the first datagram of rank 1: with number 1, and the proof of rank 0's secret, which is in rank 0's blob.
	const Secret secret = job.ctx[0]->job->secret();
	WireupMessage first = request_of(1, from);
	first.kind = WireupMessage::Kind::part;
	forger.send(to, first, secret);
	CHECK(first.number == 1);
	CHECK(refused(job, 0, 1));
	// The same datagram counts when it has not been seen before, so this test can fail.
	job.warm_up();
	CHECK(job.counter(0, "peers_lost") == 0);
	CHECK(job.counter(0, "reconnects") == 0);
}

TEST_CASE("a datagram that was recorded on its way to another rank is refused")
{
	Job job("rc", 3);
	job.warm_up(0, 1);
	job.warm_up(2, 1);
	Net &net = net_of(job, 2, 1);
	Wireup forger(net.device(), nullptr, -1);
	const WireupAddress to{net.device().address, net.wireup.number()}, from{net.device().address, forger.number()};
	// Like rank 1's answer to a rank that has asked it for a connection: with the proof of its own secret, which both
	// others know.
	WireupMessage message = request_of(1, from);
	message.kind = WireupMessage::Kind::part;
	for (int i = 0; i < 20; ++i)
		forger.send({net.device().address, forger.number()}, message, job.ctx[1]->job->secret()); // a high number
	CHECK(message.to == 0);
	forger.send(to, message, job.ctx[1]->job->secret());
	CHECK(refused(job, 2, 1));
	job.warm_up(2, 1);
	CHECK(job.counter(2, "peers_lost") == 0);
	CHECK(job.counter(2, "reconnects") == 0);
}

TEST_CASE("a DC message with another key than that of the address has no effect")
{
	Job job("dct", 2), others("dct", 2, {"PT2P_NET_TIMEOUT=8", "PT2P_NET_RETRIES=1", "PT2P_NET_RECONNECT_TIME=300ms"});
	job.warm_up();
	std::set<uint64_t> keys; // nobody can guess them
	for (const Job *one : {&job, &others})
		for (const int rank : {0, 1}) {
			pt2p::dct::Address about;
			const std::string text = pt2p::address_part(one->ctx[0]->job->lookup(rank), "dct");
			REQUIRE(text.size() > sizeof about);
			std::memcpy(&about, text.data(), sizeof about);
			keys.insert(about.key);
		}
	CHECK(keys.size() == 4);
	Bytes in(1000);
	pt2p_request_t *receive;
	REQUIRE(pt2p_irecv(job.ctx[0], in.data(), in.size(), PT2P_ANY_SOURCE, 0, 0, &receive) == PT2P_OK);
	// The others know all of the address but the key.
	const std::string blob = job.ctx[1]->job->lookup(0);
	std::string part = pt2p::address_part(blob, "dct");
	pt2p::dct::Address address;
	REQUIRE(part.size() > sizeof address); // it is followed by what all network transports add
	std::memcpy(&address, part.data(), sizeof address);
	address.key ^= 1;
	std::memcpy(part.data(), &address, sizeof address);
	const pt2p::verbs::NetPeer *target = nullptr;
	for (auto &t : others.ctx[1]->router->transports())
		if (!std::strcmp(t->table().name, "dct")) {
			pt2p::Endpoint &e = t->connect(0, part);
			CHECK(e.table->send(e, pt2p::wire::id_eager, 5, "a forger", 8) == pt2p::Outcome::done);
			target = static_cast<const pt2p::verbs::NetPeer *>(&e);
		}
	REQUIRE(target);
	for (const auto end = std::chrono::steady_clock::now() + 10s;
	     !target->down && std::chrono::steady_clock::now() < end;) {
		others.progress();
		job.progress();
	}
	CHECK(target->down); // the device of rank 0 has refused it
	int found = 0;
	CHECK(pt2p_test(job.ctx[0], receive, &found, nullptr) == PT2P_OK);
	CHECK(!found);
	REQUIRE(pt2p_send(job.ctx[1], "member", 6, 0, 9) == PT2P_OK);
	pt2p_result_t result;
	REQUIRE(pt2p_wait(job.ctx[0], receive, &result) == PT2P_OK);
	CHECK(result.source == 1);
	CHECK(result.length == 6);
	job.warm_up();
	CHECK(job.counter(0, "peers_lost") == 0);
}

TEST_CASE("an export with a changed bit, or of another job, is refused where memory is reached through a device")
{
	const char *transport = GENERATE("rc", "dct");
	Job job(transport, 2, apart()), others(transport, 2, apart());
	job.warm_up();
	Window w(job, 1, 4096);
	char bytes[PT2P_EXPORT_MAX];
	size_t length = 0;
	pt2p_remote_t *remote;
	REQUIRE(pt2p_memory_export(job.ctx[1], w.memory, bytes, sizeof bytes, &length) == PT2P_OK);
	for (size_t bit = 0; bit < 8 * length; ++bit) {
		std::string bad(bytes, length);
		bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ 1 << bit % 8);
		INFO("bit " << bit % 8 << " of byte " << bit / 8);
		REQUIRE(pt2p_memory_import(job.ctx[0], 1, bad.data(), length, &remote) == PT2P_ERR_ARGUMENT);
	}
	CHECK(pt2p_memory_import(others.ctx[0], 1, bytes, length, &remote) == PT2P_ERR_ARGUMENT);
	REQUIRE(pt2p_memory_import(job.ctx[0], 1, bytes, length, &remote) == PT2P_OK);
	job.warm_up();
}
