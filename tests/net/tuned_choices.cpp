// Staging and doorbell batch while they are tuned. A pinned setting stays, the device sees what the tuner decides, and
// nothing is lost or reordered when that changes. Whether the decisions are good is for tests/unit.
#include <algorithm>

#include "tests/net/peer.hpp"

using namespace net;
using Catch::Matchers::Contains;
using pt2p::tune::Staging;
using pt2p::tune::StagingTuner;

namespace {

constexpr size_t length = 512, bytes = length + sizeof(pt2p::verbs::MessageHeader);

pt2p::verbs::Net &net_of(Job &job) { return *peer_of(job).net; }
StagingTuner &tuner(Job &job) { return peer_of(job).tuner->stagings.of(bytes); }

// Makes the tuner choose this, with made-up latencies.
void force(StagingTuner &t, Staging where)
{
	while (t.chosen() != where) {
		t.see(t.chosen(), 1'000'000'000);
		t.see(where, 1);
	}
}

std::string report(Job &job)
{
	std::string text(8192, 0);
	REQUIRE(pt2p_report(job.ctx[0], text.data(), text.size(), nullptr) == PT2P_OK);
	return text.c_str();
}

// Sends numbered messages from rank 0 to 1, and checks their order.
struct Numbered {
	Job &job;
	uint64_t next = 0;

	template <class Between>
	void send(unsigned count, size_t length, const Between &between)
	{
		std::vector<std::vector<uint64_t>> out(count), in(count, std::vector<uint64_t>(length / 8));
		std::vector<pt2p_request_t *> sends(count), receives(count);
		for (unsigned i = 0; i < count; ++i)
			REQUIRE(pt2p_irecv(job.ctx[1], in[i].data(), length, 0, 1, PT2P_TAG_EXACT, &receives[i]) == PT2P_OK);
		for (unsigned i = 0; i < count; ++i) {
			out[i].assign(length / 8, next++);
			REQUIRE(pt2p_isend(job.ctx[0], out[i].data(), length, 1, 1, &sends[i]) == PT2P_OK);
			between(i);
		}
		REQUIRE(pt2p_waitall(job.ctx[0], count, sends.data(), nullptr) == PT2P_OK);
		REQUIRE(pt2p_waitall(job.ctx[1], count, receives.data(), nullptr) == PT2P_OK);
		REQUIRE(in == out);
	}
};

} // namespace

TEST_CASE("staging that is pinned is not tuned")
{
	const char *transport = GENERATE("rc", "dct"), *tune = GENERATE("on", "paper");
	const bool device = GENERATE(false, true);
	Job job(transport, 2,
	        {std::string("PT2P_TUNE=") + tune, "PT2P_NET_DEVICE_MEMORY=256k",
	         device ? "PT2P_NET_STAGING=device" : "PT2P_NET_STAGING=host"});
	job.warm_up();
	force(tuner(job), device ? Staging::buffer : Staging::device_memory);
	Change from_device("dm_read_bytes"), from_host("payload_read_bytes");
	constexpr unsigned n = 500;
	send_many(job, n, length);
	CHECK(from_device() == (device ? n * bytes : 0));
	CHECK(from_host() == (device ? 0 : n * bytes));
	CHECK(tuner(job).messages(Staging::device_memory) + tuner(job).messages(Staging::buffer) == 0);
	CHECK_THAT(report(job), !Contains("chosen anew"));
}

TEST_CASE("tuned staging follows the tuner, except for messages that try the alternative")
{
	const char *transport = GENERATE("rc", "dct");
	const Staging where = GENERATE(Staging::device_memory, Staging::buffer);
	// With these limits no latency makes the queue count as saturated: it would then stage in host memory without
	// asking.
	Job job(transport, 2,
	        {"PT2P_TUNE=on", "PT2P_TUNE_RAISE_BELOW=100000000", "PT2P_TUNE_CUT_ABOVE=100000000",
	         "PT2P_NET_DEVICE_MEMORY=256k"});
	job.warm_up();
	force(tuner(job), Staging::buffer);
	force(tuner(job), where);
	constexpr unsigned n = 1250; // too few for three pairs
	Change from_device("dm_read_bytes"), from_host("payload_read_bytes");
	send_singly(job, n, length);
	const uint64_t by_device = tuner(job).messages(Staging::device_memory),
	               by_buffer = tuner(job).messages(Staging::buffer);
	CHECK(by_device + by_buffer == n);
	CHECK(from_device() == by_device * bytes);
	CHECK(from_host() == by_buffer * bytes);
	CHECK(tuner(job).chosen() == where);
	const uint64_t others = where == Staging::buffer ? by_device : by_buffer;
	CHECK(others >= 1);
	CHECK(others <= n / (251 * 4));
	CHECK(tuner(job).latency_of(Staging::device_memory) > 0);
	CHECK(tuner(job).latency_of(Staging::buffer) > 0);
	CHECK_THAT(report(job), Contains(where == Staging::buffer ? "     up to 1024 bytes from host memory: "
	                                                          : "     up to 1024 bytes by device memory: "));
	// There is no choice for lengths that do not fit into device memory, and for those that go inline.
	send_many(job, 100, 3000);
	send_many(job, 100, 8);
	CHECK_THAT(report(job), !Contains("up to 4096 bytes") && !Contains("up to 128 bytes"));
}

TEST_CASE("device memory is not tried while half of it is taken")
{
	Job job("rc", 2, {"PT2P_TUNE=on", "PT2P_NET_DEVICE_MEMORY=16k"});
	job.warm_up();
	force(tuner(job), Staging::buffer);
	auto &memory = net_of(job).memory.device_memory;
	std::vector<uint32_t> taken;
	while (memory.shortage() == pt2p::verbs::Shortage::none)
		taken.push_back(memory.take(bytes));
	Change from_device("dm_read_bytes");
	send_singly(job, 2000, length);
	CHECK(from_device() == 0);
	CHECK(job.counter(0, "net_device_memory_full") == 0);
	CHECK(tuner(job).chosen() == Staging::buffer);
	for (const uint32_t cell : taken)
		memory.give(cell);
	send_singly(job, 2000, length);
	CHECK(from_device() > 0);
}

TEST_CASE("a queue that is full stages in host memory, and one that no longer is in device memory again")
{
	const char *transport = GENERATE("rc", "dct");
	Job job(transport, 2, {"PT2P_TUNE=on", "PT2P_NET_SEND_DEPTH=16", "PT2P_NET_DEVICE_MEMORY=256k"});
	job.warm_up();
	CHECK(tuner(job).chosen() == Staging::device_memory);
	send_many(job, 100, length);
	Change from_device("dm_read_bytes"), from_host("payload_read_bytes");
	send_many(job, 1000, length);
	CHECK(from_device() == 0);
	CHECK(from_host() == 1000 * bytes);
	// On a busy machine latencies may say that the device works for others, or that host memory is quicker.
	Change last_from_device("dm_read_bytes");
	for (int tries = 0; tries < 20 && last_from_device() == 0; ++tries) {
		force(tuner(job), Staging::device_memory);
		send_singly(job, 20 * 16, length);
	}
	CHECK(last_from_device() >= bytes);
}

TEST_CASE("periods that are longer than the time between two samples of staging still end")
{
	const char *transport = GENERATE("rc", "dct");
	Job job(transport, 2,
	        {"PT2P_TUNE=paper", "PT2P_TUNE_RAISE_BELOW=100000000", "PT2P_TUNE_CUT_ABOVE=100000000", "PT2P_TUNE_STEP=32",
	         "PT2P_NET_DEVICE_MEMORY=1m", "PT2P_NET_DOORBELL_BATCH=1", "PT2P_NET_SEND_DEPTH=1024"});
	job.warm_up();
	send_many(job, 30'000, length);
	const auto period = [&](pt2p::tune::SizeClass c) { return peer_of(job).tuner->of(c).period(); };
	using pt2p::tune::SizeClass;
	CHECK(std::max(period(SizeClass::device_memory), period(SizeClass::buffer)) >= 289);
}

TEST_CASE("paper: a period that is shorter when a sample is taken still ends within the limit")
{
	const char *transport = GENERATE("rc", "dct");
	Job job(transport, 2,
	        {"PT2P_TUNE=paper", "PT2P_TUNE_RAISE_BELOW=100000000", "PT2P_TUNE_CUT_ABOVE=100000000", "PT2P_TUNE_STEP=32",
	         "PT2P_NET_DEVICE_MEMORY=256k", "PT2P_NET_DOORBELL_BATCH=1"});
	job.warm_up();
	const auto &channel = *peer_of(job).tuner;
	while (channel.of(pt2p::tune::SizeClass::inlined).period() < 65)
		send_many(job, 50, 8);
	// The period of longer messages is one. Their first sample makes it the queue's period, the second its limit. The
	// end of the long period may be far away then.
	for (int i = 0; i < 2; ++i) {
		while (!tuner(job).next(false).sample)
			tuner(job).sent(Staging::device_memory, false);
		job.exchange(0, 1, length);
		for (int turn = 0; turn < 1'000'000 && peer_of(job).in_flight; ++turn)
			job.progress();
		REQUIRE(peer_of(job).in_flight == 0); // it was signalled
	}
	CHECK(channel.of(pt2p::tune::SizeClass::device_memory).period() <= 1);
	constexpr unsigned n = 10;
	std::vector<pt2p_request_t *> sends(n), receives(n);
	uint64_t value = 0;
	const uint64_t before = job.counter(1, "messages_received");
	for (auto &r : receives)
		REQUIRE(pt2p_irecv(job.ctx[1], &value, sizeof value, 0, 1, PT2P_TAG_EXACT, &r) == PT2P_OK);
	for (auto &s : sends)
		REQUIRE(pt2p_isend(job.ctx[0], &value, sizeof value, 1, 1, &s) == PT2P_OK);
	for (int turn = 0; turn < 1'000'000 && job.counter(1, "messages_received") < before + n; ++turn)
		job.progress();
	REQUIRE(job.counter(1, "messages_received") == before + n);
	REQUIRE(pt2p_waitall(job.ctx[0], n, sends.data(), nullptr) == PT2P_OK);
	REQUIRE(pt2p_waitall(job.ctx[1], n, receives.data(), nullptr) == PT2P_OK);
}

TEST_CASE("nothing is lost or reordered while staging changes")
{
	const char *transport = GENERATE("rc", "dct"), *delivery = GENERATE("send", "write");
	Job job(transport, 2, {"PT2P_TUNE=on", "PT2P_NET_DEVICE_MEMORY=16k", std::string("PT2P_NET_DELIVERY=") + delivery});
	job.warm_up();
	Change from_device("dm_read_bytes"), from_host("payload_read_bytes");
	Numbered numbered{job};
	for (unsigned round = 0; round < 40; ++round)
		numbered.send(64, length, [&](unsigned i) {
			if (i % 8 == round % 8)
				force(tuner(job), i / 8 % 2 ? Staging::buffer : Staging::device_memory);
		});
	CHECK(from_device() > 0);
	CHECK(from_host() > 0);
	CHECK(tuner(job).changes() >= 40 * 7);
}

TEST_CASE("a doorbell batch that is pinned is not tuned", "[.exact]")
{
	const char *transport = GENERATE("rc", "dct");
	Job job(transport, 2, {"PT2P_TUNE=on", "PT2P_NET_DOORBELL_BATCH=1"});
	job.warm_up();
	CHECK(!net_of(job).tuner.batch_tuner());
	Change wqes("wqes"), rings("doorbells");
	for (int i = 0; i < 5000; ++i)
		job.exchange(0, 1);
	CHECK(rings() == wqes());
	CHECK(net_of(job).doorbells.batch() == 1);
	CHECK_THAT(report(job), !Contains("now up to"));
}

TEST_CASE("without the channel's tuner the batch is one, and with it the setting counts")
{
	const char *transport = GENERATE("rc", "dct");
	Job off(transport, 2, {"PT2P_TUNE=off"}), set(transport, 2, {"PT2P_TUNE=paper", "PT2P_NET_DOORBELL_BATCH=7"});
	off.warm_up();
	set.warm_up();
	for (Job *job : {&off, &set}) {
		CHECK(!net_of(*job).tuner.batch_tuner());
		send_many(*job, 5000, 8);
	}
	CHECK(net_of(off).doorbells.batch() == 1);
	CHECK(net_of(set).doorbells.batch() == 7);
}

TEST_CASE("a doorbell batch that is tuned stays within its bounds, and is in the report")
{
	const char *transport = GENERATE("rc", "dct"), *tune = GENERATE("on", "paper");
	Job job(transport, 2, {"PT2P_NET_DOORBELL_BATCH=0", std::string("PT2P_TUNE=") + tune});
	job.warm_up();
	REQUIRE(net_of(job).tuner.batch_tuner());
	CHECK(net_of(job).doorbells.batch() == 1);
	for (int i = 0; i < 400; ++i) {
		send_many(job, 50, 8);
		REQUIRE(net_of(job).doorbells.batch() == net_of(job).tuner.batch_tuner()->batch());
		REQUIRE(net_of(job).doorbells.batch() >= 1);
		REQUIRE(net_of(job).doorbells.batch() <= 16);
	}
	CHECK(net_of(job).tuner.batch_tuner()->trials() >= 1);
	CHECK(net_of(job).tuner.batch_tuner()->rate() > 0);
	CHECK_THAT(report(job), Contains(" per doorbell, now up to ") && Contains(" a second, "));
}

TEST_CASE("nothing is lost or reordered while the doorbell batch changes, and nothing waits for a doorbell")
{
	const char *transport = GENERATE("rc", "dct"), *direct = GENERATE("yes", "no");
	const size_t size = GENERATE(8, length);
	Job job(transport, 2, {"PT2P_NET_DOORBELL_BATCH=0", std::string("PT2P_NET_DIRECT=") + direct});
	job.warm_up();
	Numbered numbered{job};
	const uint32_t batches[] = {1, 16, 3, 64, 1, 2, 8};
	unsigned changes = 0;
	for (unsigned round = 0; round < 60; ++round)
		numbered.send(60, size, [&](unsigned i) {
			if (i % 7 == round % 7) // in the middle of a batch, too
				net_of(job).doorbells.use_batch(batches[changes++ % std::size(batches)]);
		});
	CHECK(changes > 400);
}

TEST_CASE("when the batch gets smaller, what waits for a doorbell is posted", "[.exact]")
{
	const char *transport = GENERATE("rc", "dct");
	Job job(transport, 2, {"PT2P_NET_DOORBELL_BATCH=0"});
	job.warm_up();
	job.progress();
	net_of(job).doorbells.use_batch(16);
	std::vector<pt2p_request_t *> sends(3);
	uint64_t value = 0;
	Change wqes("wqes"), rings("doorbells");
	for (size_t i = 0; i + 1 < sends.size(); ++i)
		REQUIRE(pt2p_isend(job.ctx[0], &value, sizeof value, 1, 1, &sends[i]) == PT2P_OK);
	CHECK(rings() == 0);
	net_of(job).doorbells.use_batch(1);
	CHECK(rings() == 1);
	CHECK(wqes() == 2);
	REQUIRE(pt2p_isend(job.ctx[0], &value, sizeof value, 1, 1, &sends.back()) == PT2P_OK);
	CHECK(rings() == 2);
	CHECK(wqes() == 3);
	for (size_t i = 0; i < sends.size(); ++i)
		REQUIRE(pt2p_recv(job.ctx[1], &value, sizeof value, 0, 1, PT2P_TAG_EXACT, nullptr) == PT2P_OK);
	REQUIRE(pt2p_waitall(job.ctx[0], sends.size(), sends.data(), nullptr) == PT2P_OK);
}
