// Messages that are sent together share work requests.
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tests/net/peer.hpp"

using namespace net;

namespace {

using pt2p::verbs::NetPeer;

// As long as it lives, what a rank sends leaves together.
class Corked {
public:
	Corked(const Job &job, int rank) : engine_(*job.ctx[Job::index(rank)]->engine)
	{
		job.ctx[Job::index(rank)]->engine->sends_until_poll = 1 << 20; // no send makes progress
		engine_.cork(true);
	}
	~Corked() { engine_.cork(false); }
	Corked(const Corked &) = delete;
	Corked &operator=(const Corked &) = delete;

private:
	pt2p::ProgressClient &engine_;
};

// A stream of messages from one rank to another, each with other bytes.
struct Stream {
	Stream(Job &j, int sender = 0, int receiver = 1) : job(j), from(sender), to(receiver) {}

	void send(size_t length)
	{
		out.emplace_back(length);
		for (size_t i = 0; i < length; ++i)
			out.back()[i] = static_cast<unsigned char>(out.size() * 31 + i);
		in.emplace_back(length);
		pt2p_request_t *send, *receive;
		REQUIRE(pt2p_irecv(job.ctx[Job::index(to)], in.back().data(), length, from, 1, PT2P_TAG_EXACT, &receive) ==
		        PT2P_OK);
		REQUIRE(pt2p_isend(job.ctx[Job::index(from)], out.back().data(), length, to, 1, &send) == PT2P_OK);
		sends.push_back(send);
		receives.push_back(receive);
	}
	void finish()
	{
		REQUIRE(pt2p_waitall(job.ctx[Job::index(from)], sends.size(), sends.data(), nullptr) == PT2P_OK);
		REQUIRE(pt2p_waitall(job.ctx[Job::index(to)], receives.size(), receives.data(), nullptr) == PT2P_OK);
		CHECK(in == out);
		in.clear(), out.clear(), sends.clear(), receives.clear();
	}

	Job &job;
	const int from, to;
	std::vector<std::vector<unsigned char>> out, in;
	std::vector<pt2p_request_t *> sends, receives;
};

} // namespace

TEST_CASE("messages that are sent together share a work request", "[.exact]")
{
	const char *transport = GENERATE("rc", "dct");
	const size_t length = GENERATE(0, 8, 40, 100);
	CAPTURE(transport, length);
	Job job(transport, 2, {"PT2P_NET_DELIVERY=send", "PT2P_TUNE=off"});
	job.warm_up();
	job.progress();
	constexpr unsigned k = 20;
	Stream stream(job);
	Change wqes("wqes"), rings("doorbells");
	{
		const Corked corked(job, 0);
		for (unsigned i = 0; i < k; ++i)
			stream.send(length);
		CHECK(rings() == 0);
	}
	// One that does not go inline is written to device memory, as it may stay alone; the others go together.
	const unsigned alone = length + 16 > 64;
	CHECK(wqes() == 1 + alone);
	CHECK(rings() == 1);
	CHECK(job.counter(0, "net_bundles") == 1);
	CHECK(job.counter(0, "net_bundled") == k - alone);
	stream.finish();
}

TEST_CASE("a message that is sent alone is the same, corked or not", "[.exact]")
{
	const char *transport = GENERATE("rc", "dct");
	const size_t length = GENERATE(0, 8, 40, 100, 2000, 5000);
	CAPTURE(transport, length);
	uint64_t counted[2][6];
	for (const bool corked : {false, true}) {
		Job job(transport, 2, {"PT2P_NET_DELIVERY=send", "PT2P_TUNE=off"});
		job.warm_up();
		job.progress();
		Stream stream(job);
		Change wqes("wqes"), bytes("wqe_bytes"), inlined("inline_bytes"), rings("doorbells"),
		    reads("payload_read_bytes"), from_device("dm_read_bytes");
		for (int i = 0; i < 10; ++i) {
			std::optional<Corked> together;
			if (corked)
				together.emplace(job, 0);
			stream.send(length);
		}
		stream.finish();
		const uint64_t now[] = {wqes(), bytes(), inlined(), rings(), reads(), from_device()};
		std::copy(std::begin(now), std::end(now), counted[corked]);
		CHECK(job.counter(0, "net_bundled") == 0);
	}
	for (size_t i = 0; i < std::size(counted[0]); ++i) {
		CAPTURE(i);
		CHECK(counted[0][i] == counted[1][i]);
	}
}

TEST_CASE("two short messages that are sent together go inline", "[.exact]")
{
	const char *transport = GENERATE("rc", "dct");
	Job job(transport, 2, {"PT2P_NET_DELIVERY=send"});
	job.warm_up();
	Stream stream(job);
	Change wqes("wqes"), reads("payload_reads");
	{
		const Corked corked(job, 0);
		stream.send(8);
		stream.send(8);
	}
	CHECK(wqes() == 1);
	stream.finish();
	CHECK(reads() == 0);
}

TEST_CASE("messages that are sent together share slots of a write ring", "[.exact]")
{
	const char *transport = GENERATE("rc", "dct");
	Job job(transport, 2, {"PT2P_NET_DELIVERY=write", "PT2P_TUNE=off"});
	job.warm_up();
	send_singly(job, 40, 8);
	REQUIRE(peer_of(job).ring.max_payload > 0);
	const uint64_t before = job.counter(0, "net_deposits");
	constexpr unsigned k = 27;
	Stream stream(job);
	Change wqes("wqes"), receives("receives");
	{
		const Corked corked(job, 0);
		for (unsigned i = 0; i < k; ++i)
			stream.send(8);
	}
	CHECK(wqes() == 3); // a slot of 256 bytes holds 9, each in 24 bytes, before the trailer
	CHECK(job.counter(0, "net_deposits") == before + k);
	stream.finish();
	CHECK(receives() == 0);
}

TEST_CASE("a bundle that is longer than a slot of the write ring is sent", "[.exact]")
{
	const char *transport = GENERATE("rc", "dct");
	Job job(transport, 2, {"PT2P_NET_DELIVERY=auto", "PT2P_TUNE=off", "PT2P_NET_STAGING=host"});
	job.warm_up();
	send_singly(job, 600, 8);
	REQUIRE(peer_of(job).ring.max_payload > 0);
	Stream stream(job);
	for (const size_t length : {8, 100, 230}) { // 230: nearly a slot alone
		const uint64_t before = job.counter(0, "net_deposits");
		Change wqes("wqes"), receives("receives");
		{
			const Corked corked(job, 0);
			for (unsigned i = 0; i < 27; ++i)
				stream.send(length);
		}
		CHECK(wqes() == 1);
		CHECK(job.counter(0, "net_deposits") == before);
		stream.finish();
		CHECK(receives() == 1);
		// The ring goes on where it was.
		send_singly(job, 5, 8);
		CHECK(job.counter(0, "net_deposits") == before + 5);
		{
			const Corked corked(job, 0);
			stream.send(8);
			stream.send(8);
		}
		CHECK(job.counter(0, "net_deposits") == before + 7);
		stream.finish();
	}
}

TEST_CASE("a bundle is as long as a buffer at most, and has 64 messages at most", "[.exact]")
{
	const char *transport = GENERATE("rc", "dct");
	Job job(transport, 2, {"PT2P_NET_DELIVERY=send", "PT2P_NET_MESSAGE_BYTES=1024", "PT2P_TUNE=off"});
	job.warm_up();
	job.progress();
	Stream stream(job);
	Change wqes("wqes");
	{
		const Corked corked(job, 0);
		for (unsigned i = 0; i < 130; ++i)
			stream.send(0);
	}
	CHECK(wqes() == 130 / 63 + 1); // 1024 bytes: a header of 16, and 63 frames of 16
	stream.finish();
	Change more("wqes");
	{
		const Corked corked(job, 0);
		for (const size_t length : {8, 480, 480, 8}) // the last does not fit any more
			stream.send(length);
	}
	CHECK(more() == 2);
	stream.finish();
}

TEST_CASE("what is posted in between ends a bundle, and order is kept", "[.exact]")
{
	const char *transport = GENERATE("rc", "dct");
	Job job(transport, 3, {"PT2P_NET_DELIVERY=send", "PT2P_TUNE=off", "PT2P_DCT_INITIATORS=1"});
	job.warm_up(0, 1);
	job.warm_up(0, 2);
	job.progress();
	Stream one(job, 0, 1), other(job, 0, 2);
	Change wqes("wqes");
	{
		const Corked corked(job, 0);
		for (int i = 0; i < 6; ++i) {
			one.send(8);
			if (!std::strcmp(transport, "rc")) // each peer has a queue of its own
				other.send(8);
		}
		one.send(4000); // alone in its buffer or with the others; it comes after them
		one.send(8);
	}
	CHECK(wqes() <= 3);
	one.finish();
	other.finish();
}

TEST_CASE("messages of all lengths in bursts arrive as they were sent, also when queue pairs break")
{
	const char *transport = GENERATE("rc", "dct"), *delivery = GENERATE("send", "write", "auto");
	const bool direct = GENERATE(true, false), broken = GENERATE(false, true);
	CAPTURE(transport, delivery, direct, broken);
	Job job(transport, 2,
	        {std::string("PT2P_NET_DELIVERY=") + delivery, direct ? "PT2P_NET_DIRECT=yes" : "PT2P_NET_DIRECT=no",
	         "PT2P_NET_SEND_DEPTH=16", "PT2P_NET_RING_SLOTS=8", "PT2P_NET_TIMEOUT=8"});
	job.warm_up();
	std::mt19937 random(broken);
	Stream streams[] = {{job, 0, 1}, {job, 1, 0}};
	std::optional<Faults> faults;
	if (broken)
		faults.emplace("break rate=0.02 count=40");
	for (int burst = 0; burst < 150; ++burst) {
		for (Stream &stream : streams) {
			const Corked corked(job, stream.from);
			for (unsigned n = random() % 40; n; --n)
				stream.send(random() % 8 ? random() % 120 : random() % 9000);
		}
		job.progress();
		for (Stream &stream : streams)
			stream.finish();
	}
	CHECK(job.counter(0, "net_bundled") > 400);
	CHECK(job.counter(1, "net_bundled") > 400);
	CHECK(job.counter(0, "peers_lost") + job.counter(1, "peers_lost") == 0);
	if (broken)
		CHECK(job.counter(0, "reconnects") + job.counter(1, "reconnects") > 0);
}

TEST_CASE("bundles that overtake others wait for them, and duplicates are dropped")
{
	const char *transport = GENERATE("rc", "dct");
	Job job(transport);
	job.warm_up();
	NetPeer &peer = peer_of(job);
	const uint64_t first = peer.next_sequence;
	// As if they had been sent on several queue pairs: bundles of 3.
	for (const uint32_t place : {6u, 3u, 0u, 3u, 0u, 9u}) {
		peer.next_sequence = first + place;
		const Corked corked(job, 0);
		for (uint32_t n = place; n < place + 3; ++n)
			REQUIRE(pt2p_send(job.ctx[0], &n, sizeof n, 1, 4) == PT2P_OK);
	}
	receive_numbers(job, 12, 4);
	CHECK(job.counter(1, "net_duplicates") == 2);
	job.exchange(0, 1);
}

TEST_CASE("a malformed bundle is the end of its sender, and of nothing else")
{
	const char *transport = GENERATE("rc", "dct"), *delivery = GENERATE("send", "write");
	const int how = GENERATE(range(0, 5));
	CAPTURE(transport, delivery, how);
	Job job(transport, 3,
	        {std::string("PT2P_NET_DELIVERY=") + delivery, "PT2P_NET_RECONNECT_TIME=50ms", "PT2P_NET_TIMEOUT=8",
	         "PT2P_NET_RETRIES=1", "PT2P_FINALIZE_TIME=0"});
	job.warm_up(0, 1);
	job.warm_up(0, 2);
	job.warm_up(1, 2);
	send_singly(job, 40, 8);
	unsigned char bytes[48] = {};
	unsigned char *end = pt2p::verbs::write_frame(bytes, 1, 0, nullptr, 0);
	pt2p::verbs::write_frame(end, how == 0 ? pt2p::verbs::id_bundle : 1, 0, nullptr, 0);
	const uint32_t length = how == 1 ? 8 : how == 2 ? UINT32_MAX : 0;
	std::memcpy(bytes + 16 + 8, &length, sizeof length);
	NetPeer &peer = peer_of(job);
	pt2p::verbs::SendQueue *queue = peer.acquire();
	REQUIRE(queue);
	REQUIRE(peer.net->eager.send(*queue, peer, pt2p::verbs::id_bundle, how == 3 ? 1 : 2, bytes, how == 4 ? 40 : 32));
	for (int i = 0; i < 1000 && !job.counter(1, "peers_lost"); ++i)
		job.progress();
	CHECK(job.counter(1, "peers_lost") == 1);
	job.exchange(2, 1);
	job.exchange(1, 2);
}
