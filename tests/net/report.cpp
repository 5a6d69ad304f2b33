// The report on a channel, compared with what softhca has counted.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <thread>
#include <unistd.h>

#include "tests/net/peer.hpp"
#include "tests/stderr.hpp"

using Catch::Matchers::Contains;
using net::Change;
using net::Faults;
using net::Job;
using net::send_many;
using pt2p::format;

namespace {

std::string report(Job &job, int rank = 0)
{
	pt2p_context_t *ctx = job.ctx[Job::index(rank)];
	size_t needed = 0;
	REQUIRE(pt2p_report(ctx, nullptr, 0, &needed) == PT2P_OK);
	std::string text(needed, 'x');
	REQUIRE(pt2p_report(ctx, text.data(), needed, nullptr) == PT2P_OK);
	REQUIRE(text.back() == 0);
	text.pop_back();
	return text;
}

// The number behind these words.
double number(const std::string &text, const std::string &words)
{
	const size_t at = text.find(words);
	INFO("\"" << words << "\" in\n" << text);
	REQUIRE(at != text.npos);
	return std::stod(text.substr(at + words.size()));
}

} // namespace

TEST_CASE("the report's shares and bytes are those that softhca counts")
{
	const char *transport = GENERATE("rc", "dct");
	Job job(transport, 2,
	        {"PT2P_TUNE=off", "PT2P_NET_DEVICE_MEMORY=256k", "PT2P_NET_DELIVERY=send"}); // more than can be in flight
	CHECK_THAT(report(job), Contains("libpt2p: rank 0 of 2") && !Contains("rank 0 to 1"));
	job.exchange(0, 1); // connects, which takes messages, too
	Change entries("wqes"), entry_bytes("wqe_bytes"), inline_bytes("inline_bytes"), device_bytes("dm_read_bytes"),
	    host_bytes("payload_read_bytes");
	send_many(job, 600, 8);
	send_many(job, 300, 512);
	send_many(job, 100, 3000);
	const std::string text = report(job);
	CAPTURE(text);
	CHECK_THAT(text, Contains(std::string("rank 0 to 1 by ") + transport + "\n"));
	CHECK_THAT(text, Contains("  T  1001 messages: 60.0 % inline, 30.0 % by device memory, 10.0 % from host memory\n"));
	CHECK(inline_bytes() == 600 * (8 + 16));
	CHECK(device_bytes() == 300 * (512 + 16));
	CHECK(host_bytes() == 100 * (3000 + 16));
	CHECK(number(text, "of them and ") == Approx(double(host_bytes()) / 1001).margin(0.06));
	CHECK(number(text, "by DMA; ") ==
	      Approx(double(inline_bytes() + 24) / 1001).margin(0.06)); // with that of exchange()
	CHECK(number(text, "a WQE has ") == Approx(double(entry_bytes()) / double(entries())).margin(0.06));
	CHECK_THAT(text, Contains("L  not measured; signal period 32\n"));
	CHECK_THAT(text, Contains("limit: not known: "));
	// Nothing goes in the other direction.
	CHECK_THAT(report(job, 1), !Contains("rank 1 to 0"));
}

TEST_CASE("the report counts WQEs and inline bytes for each channel, whatever queue pairs they share")
{
	const char *transport = GENERATE("rc", "dct");
	Job job(transport, 3, {"PT2P_NET_DELIVERY=send"});
	Change entries("wqes"), entry_bytes("wqe_bytes"), inline_bytes("inline_bytes");
	// Below, at and above the length that takes the short path. So many that those of connecting do not show.
	constexpr size_t lengths[] = {8, 28, 29, 48};
	double entry[3] = {}, inlined[3] = {};
	for (const int to : {1, 2}) {
		const uint64_t had = entries(), bytes = entry_bytes(), payload = inline_bytes();
		for (size_t i = 0; i < 3; ++i)
			send_many(job, 10'000, lengths[i + Job::index(to) - 1], to);
		entry[to] = double(entry_bytes() - bytes) / double(entries() - had);
		inlined[to] = double(inline_bytes() - payload) / 30'000;
	}
	CHECK(inlined[2] - inlined[1] > 10);
	if (*transport == 'd')
		CHECK(entry[2] - entry[1] > 10);
	for (const int to : {1, 2}) {
		const std::string all = report(job),
		                  text = all.substr(std::min(all.find(format("rank 0 to %d", to)), all.size()));
		CAPTURE(text);
		CHECK(number(text, "a WQE has ") == Approx(entry[to]).margin(0.2));
		CHECK(number(text, "by DMA; ") == Approx(inlined[to]).margin(0.2));
	}
}

TEST_CASE("the report counts what is in flight, and what a broken queue pair posts again")
{
	const char *transport = GENERATE("rc", "dct");
	Job job(transport);
	job.warm_up();
	std::vector<unsigned char> out(20), in(20);
	std::vector<pt2p_request_t *> sends(10), receives(10);
	const auto post = [&] {
		for (size_t i = 0; i < sends.size(); ++i) {
			REQUIRE(pt2p_irecv(job.ctx[1], in.data(), in.size(), 0, 1, PT2P_TAG_EXACT, &receives[i]) == PT2P_OK);
			REQUIRE(pt2p_isend(job.ctx[0], out.data(), out.size(), 1, 1, &sends[i]) == PT2P_OK);
		}
	};
	const auto wait = [&] {
		REQUIRE(pt2p_waitall(job.ctx[0], sends.size(), sends.data(), nullptr) == PT2P_OK);
		REQUIRE(pt2p_waitall(job.ctx[1], receives.size(), receives.data(), nullptr) == PT2P_OK);
	};
	post();
	CHECK(number(report(job), "by DMA; ") == Approx((24. + 10 * 36) / 11).margin(0.06)); // with that of warm_up()
	wait();
	{
		Faults faults("break count=1");
		post();
		wait();
	}
	CHECK(number(report(job), "by DMA; ") == Approx((24. + 20 * 36) / 21).margin(0.06));
	CHECK(job.counter(0, "reconnects") > 0);
}

TEST_CASE("what PCIe carries is judged by the lengths that messages have now")
{
	Job job("rc", 2, {"PT2P_NET_DELIVERY=write"});
	job.warm_up();
	send_many(job, 40000, 8);
	report(job, 1);
	send_many(job, 50, 200);
	std::this_thread::sleep_for(std::chrono::milliseconds(20));
	report(job, 1);
	const pt2p::PcieFacts pcie = net::peer_of(job, 1, 0).net->pcie();
	CHECK(pcie.from_device > 50 * 200 / 60.0); // in less than a minute
	CHECK(pcie.from_device < 50 * 4000 / 0.02);
}

TEST_CASE("the report says that device memory is full")
{
	Job job("rc", 2, {"PT2P_TUNE=off", "PT2P_NET_DEVICE_MEMORY=8k"});
	Change device_bytes("dm_read_bytes"), host_bytes("payload_read_bytes");
	send_many(job, 10'000, 512); // so many that those of connecting do not show
	const std::string text = report(job);
	CAPTURE(text);
	CHECK(number(text, "inline, ") == Approx(100. * double(device_bytes()) / (10'000 * 528)).margin(0.06));
	CHECK(number(text, "by device memory, ") == Approx(100. * double(host_bytes()) / (10'000 * 528)).margin(0.06));
	CHECK(number(text, "limit: transmission efficiency: ") == Approx(double(host_bytes()) / 528).margin(5));
	CHECK_THAT(text, Contains(" messages found device memory full"));
}

TEST_CASE("the report counts doorbells", "[.exact]")
{
	const char *transport = GENERATE("rc", "dct");
	const std::string batch = GENERATE("1", "5");
	Job job(transport, 2, {"PT2P_NET_DOORBELL_BATCH=" + batch, "PT2P_NET_DELIVERY=send"});
	Change entries("wqes"), doorbells("doorbells"), read("wqe_read_bytes"), all("wqe_bytes");
	send_many(job, 10'000, 40); // so many that those of connecting do not show
	const std::string text = report(job);
	CAPTURE(text);
	CHECK(number(text, " queue pair" + std::string(*transport == 'd' ? "s for all ranks; " : "; ")) ==
	      Approx(double(entries()) / double(doorbells())).margin(0.1));
	const double share = number(text, "; the device reads ") / number(text, "a WQE has ");
	CHECK(share == Approx(double(read()) / double(all())).margin(0.05));
	CHECK((share > 0.5) == (batch != "1"));
}

TEST_CASE("the report of a tuned channel has L, N and the period, now and before")
{
	const char *transport = GENERATE("rc", "dct");
	Job job(transport, 2,
	        {"PT2P_TUNE=paper", "PT2P_TUNE_RAISE_BELOW=100000000", "PT2P_TUNE_CUT_ABOVE=100000000", "PT2P_TUNE_STEP=32",
	         "PT2P_NET_STAGING=device"});
	job.warm_up();
	send_many(job, 30'000, 8);
	send_many(job, 3'000, 512);
	const std::string text = report(job);
	CAPTURE(text);
	CHECK(number(text, "L  inline: N ") > 0);
	CHECK(number(text, " ns, L ") > 0);
	CHECK(number(text, " ns, L/N ") >= 0); // N may include what the device does when it starts
	// The device's queue may have room for less than PT2P_NET_SEND_DEPTH.
	const double depth = number(text.substr(text.find("at most ")), " of ");
	CHECK(depth <= 128);
	CHECK(number(text, "; signal period ") == depth);
	CHECK_THAT(text, Contains(format(", %.0f raises, 0 cuts; it became 33 (", std::ceil((depth - 1) / 32))) &&
	                     Contains("), 65 ("));
	CHECK_THAT(text, Contains("\n     device memory: N "));
	CHECK(number(text, "in flight, at most ") >= 50);
	CHECK_THAT(text, Contains("limit: ") && !Contains("not known"));
}

TEST_CASE("the report of a large message")
{
	Job job("rc");
	job.exchange(0, 1, 1 << 20);
	// The receiver reads it.
	CHECK_THAT(report(job, 1), Contains("1 part of large transfers, 1048576 bytes\n"));
	CHECK_THAT(report(job, 0), !Contains(" large transfers"));
}

TEST_CASE("with libibverbs, the length of WQEs is not known")
{
	Job job("rc", 2, {"PT2P_NET_DIRECT=0", "PT2P_NET_DELIVERY=send"});
	send_many(job, 1000, 8);
	CHECK_THAT(report(job),
	           Contains("  T  1000 messages: 100.0 % inline") && Contains("how long WQEs are is not known"));
}

TEST_CASE("a dump ends with the channels")
{
	Job job("rc");
	job.warm_up();
	pt2p_status_t status = PT2P_ERR_ARGUMENT;
	const std::string text = stderr_of([&] { status = pt2p_dump(job.ctx[0]); });
	CHECK(status == PT2P_OK);
	CHECK_THAT(text, Contains("no request is pending") && Contains("\nrank 0 to 1 by rc\n  T  1 message"));
}

TEST_CASE("a program that polls is told once that a peer does not answer")
{
	const bool told = GENERATE(true, false);
	Job job("rc", 2, {told ? "PT2P_STALL_TIME=50ms" : "PT2P_STALL_TIME=0"});
	const uint64_t out = 7;
	uint64_t in = 0;
	pt2p_request_t *request = nullptr;
	REQUIRE(pt2p_isend(job.ctx[0], &out, sizeof out, 1, 1, &request) == PT2P_OK);
	const std::string text = stderr_of([&] {
		const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
		while (std::chrono::steady_clock::now() < end)
			pt2p_progress(job.ctx[0]); // rank 1 makes no call
	});
	CAPTURE(text);
	const size_t first = text.find("rank 1 has not answered a request for a connection for ");
	CHECK((first != text.npos) == told);
	CHECK(text.find("rank 1 has not answered", first + 1) == text.npos);
	// It is no error.
	REQUIRE(pt2p_recv(job.ctx[1], &in, sizeof in, 0, 1, PT2P_TAG_EXACT, nullptr) == PT2P_OK);
	CHECK(pt2p_wait(job.ctx[0], request, nullptr) == PT2P_OK);
	CHECK(in == out);
}

TEST_CASE("a report that is too long is cut")
{
	Job job("rc");
	job.warm_up();
	const std::string text = report(job);
	std::string small(100, 'x');
	size_t needed = 0;
	REQUIRE(pt2p_report(job.ctx[0], small.data(), 60, &needed) == PT2P_OK);
	CHECK(needed == text.size() + 1);
	CHECK(small.compare(0, 60, text.substr(0, 59) + '\0') == 0);
	CHECK(small.substr(60) == std::string(40, 'x'));
}

TEST_CASE("a trace has a line for each observation")
{
	char path[] = "/tmp/pt2p_trace_XXXXXX";
	const int fd = mkstemp(path);
	REQUIRE(fd >= 0);
	close(fd);
	const std::string other = std::string(path) + ".1";
	{
		Job job("rc", 2, {"PT2P_TUNE=on", "PT2P_NET_STAGING=device", std::string("PT2P_TUNE_TRACE=") + path});
		job.warm_up();
		send_many(job, 3'000, 8);
		send_many(job, 40'000, 512); // few are observed
	}
	std::ifstream file(path);
	std::string line;
	REQUIRE(std::getline(file, line));
	CHECK(line == "time_ns,peer,kind,period,N_ns,L_ns,ratio");
	double before = 0;
	size_t inlined = 0, on_device = 0;
	while (std::getline(file, line)) {
		CAPTURE(line);
		CHECK(std::count(line.begin(), line.end(), ',') == 6);
		const double time = std::stod(line);
		CHECK(time >= before);
		before = time;
		CHECK_THAT(line, Contains(",1,"));
		inlined += line.find(",inline,") != line.npos;
		on_device += line.find(",device memory,") != line.npos;
	}
	CHECK(inlined > 2);
	CHECK(on_device > 0); // fewer are observed where each takes longer
	CHECK(std::ifstream(other).good());
	std::remove(path);
	std::remove(other.c_str());
}

TEST_CASE("the report of a server that was called often has advice for its callers")
{
	const char *transport = GENERATE("rc", "dct");
	Job job(transport, 2);
	pt2p_service_t *service = nullptr;
	REQUIRE(pt2p_service_open(
	            job.ctx[1], 1,
	            [](pt2p_context_t *ctx, pt2p_call_t *call, const void *input, size_t length, void *) {
		            pt2p_reply(ctx, call, 0, input, length / 2);
	            },
	            nullptr, nullptr, &service) == PT2P_OK);
	CHECK_THAT(report(job, 1), !Contains("advice: "));
	const unsigned char out[24] = {};
	unsigned char in[24];
	constexpr unsigned calls = 5000; // the server looks at one of 4096
	for (unsigned i = 0; i < calls; ++i) {
		pt2p_request_t *request = nullptr;
		REQUIRE(pt2p_icall(job.ctx[0], 1, 1, out, sizeof out, in, sizeof in, nullptr, &request) == PT2P_OK);
		int done = 0;
		while (!done) {
			REQUIRE(pt2p_progress(job.ctx[1]) == PT2P_OK);
			REQUIRE(pt2p_test(job.ctx[0], request, &done, nullptr) == PT2P_OK);
		}
	}
	const std::string text = report(job, 1);
	CHECK_THAT(text, Contains(format(
	                     "  advice: 1 rank calls this rank by %s, up to 1 at a time each, and it calls 0; input 24 "
	                     "bytes, reply 12 bytes; devices as connectx5\n    ",
	                     transport)));
	CHECK_THAT(text, Contains("by estimate "));
	// Only servers have it.
	CHECK_THAT(report(job), !Contains("advice: "));
	REQUIRE(pt2p_service_close(job.ctx[1], service) == PT2P_OK);
}
