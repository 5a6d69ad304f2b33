// What the report says of made-up channels, and what a channel remembers of its periods.
#include <catch2/catch.hpp>

#include "inspect/channel_report.hpp"

using namespace pt2p;
using namespace pt2p::tune;
using Catch::Matchers::Contains;
using Catch::Matchers::EndsWith;
using Catch::Matchers::StartsWith;

namespace {

// Short messages, tuned, within the band, many in flight, two per doorbell: nothing limits this channel.
ChannelFacts balanced()
{
	ChannelFacts f;
	KindFacts &k = f.kind(SizeClass::inlined);
	k.messages = 10'000;
	k.normal_ns = 1000;
	k.ratio = 2;
	k.period = 33;
	k.raises = 8;
	f.device_memory_max = 1088;
	f.entry_bytes = 64;
	f.fetched = 1;
	f.max_in_flight = 100;
	f.depth = 128;
	f.queue_pairs = 1;
	f.work_requests = 10'000;
	f.doorbells = 5'000;
	f.mode = Mode::on;
	return f;
}

// The same, but the device reads every message from host memory.
ChannelFacts from_host_memory(uint64_t bytes)
{
	ChannelFacts f = balanced();
	std::swap(f.kind(SizeClass::inlined), f.kind(SizeClass::buffer));
	f.kind(SizeClass::buffer).bytes = f.kind(SizeClass::buffer).messages * bytes;
	return f;
}

} // namespace

TEST_CASE("a channel that nothing limits")
{
	CHECK_THAT(what_limits({}), StartsWith("nothing: nothing has been sent"));
	CHECK_THAT(what_limits(balanced()), StartsWith("nothing: processor and device keep up") && Contains("2.00"));
}

TEST_CASE("load balance limits a channel outside of the band, whatever else is wrong")
{
	ChannelFacts f = balanced();
	f.kind(SizeClass::inlined).ratio = 3.2;
	f.kind(SizeClass::buffer) = {.messages = 9000, .bytes = 9000 * 1000};
	f.device_memory_full = 9000;
	f.waiting = 5;
	f.in_flight = f.depth;
	CHECK_THAT(what_limits(f), StartsWith("load balance: the device falls behind") && Contains("3.20, above 2.5") &&
	                               EndsWith("The window is being cut."));
	f.mode = Mode::paper;
	CHECK_THAT(what_limits(f), Contains("is being cut"));
	f.kind(SizeClass::inlined).period = 1;
	CHECK_THAT(what_limits(f),
	           Contains("cannot be shorter") && Contains("PT2P_NET_SEND_DEPTH") && Contains("PT2P_TUNE=on"));

	f = balanced();
	f.kind(SizeClass::inlined).ratio = 1.2;
	CHECK_THAT(what_limits(f), StartsWith("load balance: the device has time left") && Contains("1.20, below 1.8") &&
	                               EndsWith("The window grows as long as that is so."));
	f.mode = Mode::paper;
	CHECK_THAT(what_limits(f), Contains("The signal period of 33 grows"));
	f.mode = Mode::on;
	// The limits belong to the band.
	for (const double ratio : {1.8, 2.5}) {
		f.kind(SizeClass::inlined).ratio = ratio;
		CHECK_THAT(what_limits(f), StartsWith("nothing: "));
	}
	// They are the tuner's.
	f.band.cut_above = 2.2;
	CHECK_THAT(what_limits(f), Contains("above 2.2"));
	// A small window tolerates more.
	f.kind(SizeClass::inlined).scale = 1.5;
	CHECK_THAT(what_limits(f), StartsWith("load balance: the device has time left") && Contains("2.50, below 2.7"));
}

TEST_CASE("parallelism")
{
	ChannelFacts f = balanced();
	f.waiting = 7;
	CHECK_THAT(what_limits(f), StartsWith("nothing: ")); // not because of the depth
	f.in_flight = 128;
	CHECK_THAT(what_limits(f),
	           StartsWith("parallelism: 7 messages wait") && Contains("128 of 128") && Contains("PT2P_NET_SEND_DEPTH"));

	f = balanced();
	f.switches = 5'000;
	CHECK_THAT(what_limits(f), StartsWith("nothing: ")); // a connection has one target
	f.shared = true;
	CHECK_THAT(what_limits(f), StartsWith("parallelism: ") && Contains("after 2.0 work requests") &&
	                               Contains("PT2P_DCT_INITIATORS") && Contains("PT2P_ROUTE=forward"));
	f.switches = 2'500;
	CHECK_THAT(what_limits(f), StartsWith("nothing: "));

	f = balanced();
	f.kind(SizeClass::inlined).ratio = 1.2;
	f.max_in_flight = 128;
	CHECK_THAT(what_limits(f), StartsWith("parallelism: the device has time left") && Contains("PT2P_NET_SEND_DEPTH"));
	f.max_in_flight = 50; // the window is larger
	CHECK_THAT(what_limits(f), StartsWith("the program: the device has time left") && Contains("more than 50 of 128"));
	f.mode = Mode::paper; // no more than the period can be in flight
	CHECK_THAT(what_limits(f), StartsWith("load balance: the device has time left"));

	f = balanced();
	f.doorbells = f.work_requests;
	CHECK_THAT(what_limits(f), StartsWith("parallelism: ") && Contains("PT2P_NET_DOORBELL_BATCH"));
}

TEST_CASE("transmission efficiency")
{
	ChannelFacts f = from_host_memory(2000);
	CHECK_THAT(what_limits(f), StartsWith("transmission efficiency: ") && Contains("100 %") && Contains("2000 bytes") &&
	                               Contains("1088 bytes") && Contains("PT2P_NET_DEVICE_MEMORY_MAX"));
	f.device_memory_max = 0;
	CHECK_THAT(what_limits(f), Contains("No device memory is used: PT2P_NET_DEVICE_MEMORY and PT2P_NET_STAGING,"));
	CHECK_THAT(what_limits(from_host_memory(4096)), StartsWith("transmission efficiency: "));
	CHECK_THAT(what_limits(from_host_memory(4097)), StartsWith("nothing here: payload of 4097 bytes"));
	f.kind(SizeClass::inlined).messages = f.kind(SizeClass::buffer).messages; // half of them
	CHECK_THAT(what_limits(f), !StartsWith("transmission efficiency: "));

	f = balanced();
	f.kind(SizeClass::device_memory).messages = 800;
	f.kind(SizeClass::buffer) = {.messages = 200, .bytes = 200 * 500};
	f.device_memory_full = 200;
	CHECK_THAT(what_limits(f), StartsWith("transmission efficiency: 200 messages found device memory full") &&
	                               Contains("A larger PT2P_NET_DEVICE_MEMORY "));
	f.device_memory_full = 80;
	CHECK_THAT(what_limits(f), StartsWith("nothing: "));

	f = balanced();
	f.kind(SizeClass::bulk) = {.messages = 20'000, .bytes = 20'000 * 65536};
	CHECK_THAT(what_limits(f), StartsWith("nothing here: payload of 65536 bytes"));
}

TEST_CASE("the report does not advise against what the tuner has chosen")
{
	ChannelFacts f = from_host_memory(500);
	f.stagings = {{.max = 512,
	               .by_device = 80,
	               .from_host = 9'920,
	               .changes = 1,
	               .device_ns = 3000,
	               .host_ns = 2000,
	               .chosen = Staging::buffer}};
	CHECK_THAT(what_limits(f),
	           StartsWith("nothing here: messages of 500 bytes take 2000 ns from host memory and 3000 ns by "
	                      "device memory.") &&
	               Contains("PT2P_NET_STAGING=device"));
	CHECK_THAT(
	    describe(f),
	    Contains("\n     up to 512 bytes from host memory: 2000 ns, by device memory 3000 ns; used for 99.2 % of "
	             "10000 messages; chosen anew 1 time\n"));
	f.stagings[0].chosen = Staging::device_memory;
	f.stagings[0].host_ns = 0;
	CHECK_THAT(what_limits(f), StartsWith("transmission efficiency: "));
	CHECK_THAT(describe(f),
	           Contains("by device memory: 3000 ns, from host memory not seen yet; used for 0.8 % of 10000 messages;"));
	// There was no choice for messages that are too long for device memory.
	f = from_host_memory(1500);
	f.stagings = {{.max = 2048, .chosen = Staging::buffer}};
	CHECK_THAT(what_limits(f), StartsWith("transmission efficiency: "));

	f = balanced();
	f.doorbells = f.work_requests;
	f.batch_tuned = true;
	f.batch = 4;
	f.batch_rate = 1.5e6;
	f.batch_trials = 9;
	f.batch_changes = 2;
	CHECK_THAT(what_limits(f), StartsWith("nothing: "));
	CHECK_THAT(describe(f), Contains("; 1.0 per doorbell, now up to 4 (1500000 a second, 9 others tried, 2 taken)\n"));
}

TEST_CASE("PCIe limits all channels of a device together")
{
	ChannelFacts f = balanced();
	f.pcie = {.link = 16e9, .to_device = 3.5e9, .from_device = 1e9, .sharers = 3};
	CHECK_THAT(what_limits(f), StartsWith("nothing: "));
	CHECK_THAT(describe(f),
	           Contains("PCIe: some 3.50 GB/s to the device and 1.00 from it since the last report, of 16.0 "
	                    "each way for 3 ranks\n"));
	f.pcie.sharers = 4;
	CHECK_THAT(what_limits(f), StartsWith("transmission efficiency (PCIe): this rank uses some 22 %") &&
	                               Contains("4 ranks share it") && Contains("PT2P_NET_BATCHING=bundles"));
	f.pcie = {.link = 16e9, .to_device = 1e9, .from_device = 14e9, .sharers = 1};
	// Where PCIe is full, the device falls behind for that reason.
	f.kind(SizeClass::inlined).ratio = 9;
	CHECK_THAT(what_limits(f), Contains("some 88 %") && !Contains("share it"));
	f.pcie.link = 0;
	CHECK_THAT(what_limits(f), StartsWith("load balance"));
	CHECK_THAT(describe(f), !Contains("PCIe"));
}

TEST_CASE("the program, and what is not known")
{
	ChannelFacts f = balanced();
	f.max_in_flight = 2;
	CHECK_THAT(what_limits(f), StartsWith("the program: never more than 2 "));
	f.mode = Mode::off;
	CHECK_THAT(what_limits(f), StartsWith("the program: "));
	f.max_in_flight = 100;
	f.fixed_period = 32;
	CHECK_THAT(what_limits(f), StartsWith("not known: ") && Contains("always 32") && Contains("PT2P_TUNE=on"));
	f = balanced();
	f.kind(SizeClass::inlined).ratio = 0;
	CHECK_THAT(what_limits(f), StartsWith("not known yet"));
}

TEST_CASE("the whole report in lines")
{
	ChannelFacts f = balanced();
	f.kind(SizeClass::inlined).bytes = 240'000;
	f.kind(SizeClass::inlined).changes = {{1.5, 5, 1.1}, {2.5, 33, 1.2}};
	f.kind(SizeClass::buffer) = {.messages = 10'000, .bytes = 10'000'000};
	f.kind(SizeClass::bulk) = {.messages = 20'000, .bytes = 2'000'000};
	f.bulk_read_bytes = 10'000'000;
	const std::string text = describe(f);
	CAPTURE(text);
	CHECK_THAT(
	    text,
	    Contains("  T  20000 messages: 50.0 % inline, 0.0 % by device memory, 50.0 % from host memory; 20000 parts of "
	             "large transfers, 2000000 bytes\n"));
	CHECK_THAT(
	    text,
	    Contains("a WQE has 64.0 bytes; the device reads 64.0 of them and 500.0 of payload by DMA; 6.0 are inline\n"));
	CHECK_THAT(text,
	           Contains("  P  0 work requests in flight, at most 100 of 128 in its queue pair; 2.0 per doorbell\n"));
	CHECK_THAT(
	    text,
	    Contains(
	        "  L  inline: N 1000 ns, L 2000 ns, L/N 2.00; signal period 33, 8 raises, 0 cuts; it became 5 (1.5 ms, "
	        "L/N 1.10), 33 (2.5 ms, L/N 1.20)\n"));
	CHECK_THAT(text, Contains("\n  limit: " + what_limits(f) + "\n"));
	f.entry_bytes = 0;
	f.shared = true;
	f.queue_pairs = 4;
	f.mode = Mode::off;
	f.kinds[0].normal_ns = 0;
	CHECK_THAT(describe(f), Contains("how long WQEs are is not known") &&
	                            Contains("each of 4 queue pairs for all ranks") &&
	                            Contains("  L  not measured; signal period 0\n"));
}

TEST_CASE("messages that share work requests are in host memory for that reason, which limits nothing")
{
	ChannelFacts f = from_host_memory(30);
	CHECK_THAT(what_limits(f), StartsWith("transmission efficiency: "));
	CHECK_THAT(describe(f), !Contains("share a work request"));
	f.bundled = 2.8;
	CHECK_THAT(what_limits(f), StartsWith("nothing: processor and device keep up"));
	CHECK_THAT(describe(f), Contains("100.0 % from host memory; 2.8 messages share a work request\n"));
}

TEST_CASE("nobody acknowledges datagrams, so only a full queue says that the device is slow")
{
	ChannelFacts f = balanced();
	f.acknowledged = false;
	f.kinds[0].normal_ns = f.kinds[0].ratio = 0;
	CHECK_THAT(what_limits(f), StartsWith("the program: ") && Contains("more than 100 of 128"));
	CHECK_THAT(describe(f), Contains("  L  not measured: nobody acknowledges datagrams; signal period 0\n"));
	f.max_in_flight = f.depth;
	CHECK_THAT(what_limits(f),
	           StartsWith("parallelism: ") && Contains("128 work requests") && Contains("PT2P_UD_QUEUES"));
	f.max_in_flight = 2;
	CHECK_THAT(what_limits(f), StartsWith("the program: never more than 2"));
	f.pcie = {.link = 1e9, .from_device = 9e8};
	CHECK_THAT(what_limits(f), StartsWith("transmission efficiency (PCIe)"));
}

TEST_CASE("a channel remembers the last changes of each period")
{
	ChannelTuner tuner;
	ClassHistory &history = tuner.of(SizeClass::buffer);
	int64_t now = 0;
	for (uint32_t period = 1; period <= 21; ++period)
		for (int times = 0; times < 3; ++times)
			history.note(++now, 1.5, period, 1.25);
	history.note(++now, 3, 20, 1);
	CHECK(history.raises() == 20);
	CHECK(history.cuts() == 1);
	CHECK(history.period() == 20);
	CHECK(history.ratio() == 3);
	std::vector<uint32_t> periods;
	int64_t before = 0;
	history.for_each_change([&](const ClassHistory::Change &change) {
		periods.push_back(change.period);
		CHECK(change.ratio == (change.period == 20 && periods.size() == 8 ? 3.f : 1.5f));
		CHECK(change.when > before);
		before = change.when;
	});
	CHECK(periods == std::vector<uint32_t>{15, 16, 17, 18, 19, 20, 21, 20});
	tuner.of(SizeClass::inlined).for_each_change([](const ClassHistory::Change &) { FAIL("another kind"); });
}

TEST_CASE("the report tells over how many queue pairs large data goes, and why")
{
	ChannelFacts f = balanced();
	CHECK_THAT(describe(f), !Contains("large data") && Contains(" in its queue pair;"));
	Striping pinned(3, 8);
	pinned.uses(2); // the third is not there yet
	f.striping = &pinned;
	f.queue_pairs = 2;
	CHECK_THAT(describe(f), Contains("\n     large data over 2 queue pairs, PT2P_NET_QUEUE_PAIRS is 3\n") &&
	                            Contains(" in each of 2 queue pairs;"));
	Striping tuned(0, 4);
	tuned.uses(1);
	f.striping = &tuned;
	CHECK_THAT(describe(f),
	           Contains("\n     large data over 1 queue pair: too little of it in flight at a time to try others\n"));
	int64_t now = 0;
	while (tuned.climber().changes() < 2) {
		tuned.uses(tuned.queue_pairs());
		while (tuned.under_way() < 10) {
			tuned.begins(1000);
			tuned.posted(1000);
		}
		tuned.completed(1000, now += 1000 / tuned.queue_pairs());
	}
	f.striping_rate = 12.345e9;
	CHECK_THAT(describe(f),
	           Contains("\n     large data over 4 queue pairs; 2 trials of other numbers, of which 2 better; "
	                    "12.35 GB/s\n") ||
	               Contains("12.34 GB/s\n"));
}
