// Streams of messages from the ranks of one node to those of others: throughput with a signal period, a transport, a
// staging of the payload; or, with latency=yes, the latency of messages that are answered one at a time.
//
//   softhca --model connectx5 --devices 2 pt2p_stream senders=4 bytes=64 PT2P_TRANSPORTS=self,rc
//   PT2P_NET_SIGNAL_PERIOD=8
//
// Each of `senders` ranks of the first node sends to its counterparts on `targets` nodes in turn. The size changes
// every `hold` messages. sizes=fixed: `bytes`; smooth: from 8 to `bytes` and back, in steps of a quarter of a doubling;
// random: from 8 to `bytes`, uniform on a logarithmic scale; jump: 8 and `bytes` in turn, with a barrier before each
// jump. The last 70 % of `messages` are measured. trace: a file that PT2P_TUNE_TRACE names; prints the mean period and
// L/N of the first rank's second half. slices: a file that gets, for each slice of `slice` messages of a sender, the
// nanoseconds in which those of all senders were received.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <utility>

#include "softhca/studies/programs/pt2p_job.hpp"

namespace {

using namespace study;

struct Stream {
	size_t senders, targets, bytes, messages, hold, window;
	enum class Sizes { fixed, smooth, random, jump } sizes;
	bool latency;
	size_t slice;

	// Of one sender's messages to one receiver.
	bool jumps_after(size_t messages) const { return sizes == Sizes::jump && messages % hold == 0; }
	size_t receivers() const { return senders * targets; }
	// Of a sender's message.
	size_t length(size_t number) const
	{
		constexpr double min_power = 3, quarter = 0.25; // 2^3 bytes
		const double max_power = std::log2(static_cast<double>(bytes)), range = max_power - min_power;
		const auto step = static_cast<double>(number / hold);
		if (sizes == Sizes::fixed || range <= 0)
			return bytes;
		if (sizes == Sizes::jump)
			return number / hold % 2 ? bytes : size_t{1} << static_cast<size_t>(min_power);
		double power = min_power;
		if (sizes == Sizes::smooth) {
			const double at = std::fmod(step * quarter, 2 * range);
			power += at < range ? at : 2 * range - at;
		} else {
			uint64_t x = static_cast<uint64_t>(step) * 0x9e3779b97f4a7c15u + 1; // splitmix64
			x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
			x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
			power += static_cast<double>((x ^ (x >> 31)) >> 11) * 0x1p-53 * range;
		}
		return static_cast<size_t>(std::exp2(power));
	}
};

struct Shared {
	size_t first = 0, received = 0;
	double bytes = 0, since = 0, until = 0, slice = 0; // slice: when the current one began
	uint64_t cqes = 0, doorbells = 0, wqe_reads = 0;
	std::vector<double> latencies, slices;
};

void one_more(Shared &shared, const Stream &stream, size_t bytes)
{
	const size_t all = stream.messages * stream.senders;
	if (shared.received == 0 ||
	    (shared.received % stream.senders == 0 && stream.jumps_after(shared.received / stream.senders)))
		shared.slice = now();
	if (++shared.received % (stream.slice * stream.senders) == 0)
		shared.slices.push_back(now() - std::exchange(shared.slice, now()));
	if (shared.received > shared.first)
		shared.bytes += static_cast<double>(bytes);
	if (shared.received != shared.first && shared.received != all)
		return;
	(shared.received == all ? shared.until : shared.since) = now();
	shared.cqes = device_counter("cqes") - shared.cqes;
	shared.doorbells = device_counter("doorbells") - shared.doorbells;
	shared.wqe_reads = device_counter("wqe_reads") - shared.wqe_reads;
}

void send(pt2p_context_t *ctx, const Stream &stream, Shared &shared)
{
	const auto me = static_cast<size_t>(pt2p_rank(ctx));
	std::vector<unsigned char> payload(stream.bytes), answer(stream.bytes);
	std::vector<pt2p_request_t *> requests(stream.window);
	for (size_t i = 0; i < stream.messages; ++i) {
		const int to = static_cast<int>(me + stream.senders * (1 + i % stream.targets));
		pt2p_request_t *&request = requests[i % requests.size()];
		if (stream.latency) {
			const size_t bytes = stream.length(i);
			const double start = now();
			check(ctx,
			      pt2p_sendrecv(ctx, payload.data(), bytes, to, 0, answer.data(), answer.size(), to, 0, PT2P_TAG_EXACT,
			                    nullptr),
			      "ping");
			if (shared.received > shared.first)
				shared.latencies.push_back((now() - start) / 2);
			catch_up();
			continue;
		}
		if (request)
			check(ctx, pt2p_wait(ctx, request, nullptr), "send");
		check(ctx, pt2p_isend(ctx, payload.data(), stream.length(i), to, 0, &request), "send");
		catch_up();
		if (stream.jumps_after(i + 1))
			check(ctx, pt2p_barrier(ctx), "barrier");
	}
	for (pt2p_request_t *request : requests)
		if (request)
			check(ctx, pt2p_wait(ctx, request, nullptr), "send");
}

void receive(pt2p_context_t *ctx, const Stream &stream, Shared &shared)
{
	const size_t me = static_cast<size_t>(pt2p_rank(ctx)), from = me % stream.senders, place = me / stream.senders - 1;
	const size_t messages = stream.messages / stream.targets + (place < stream.messages % stream.targets);
	std::vector<pt2p_request_t *> requests(std::min(2 * stream.window, messages));
	std::vector<unsigned char> memory(requests.size() * stream.bytes);
	const auto post = [&](size_t i) {
		check(ctx,
		      pt2p_irecv(ctx, &memory[i * stream.bytes], stream.bytes, static_cast<int>(from), 0, PT2P_TAG_EXACT,
		                 &requests[i]),
		      "receive");
	};
	for (size_t i = 0; i < requests.size(); ++i)
		post(i);
	check(ctx, pt2p_barrier(ctx), "barrier");
	for (size_t i = 0; i < messages; ++i) {
		pt2p_result_t result;
		check(ctx, pt2p_wait(ctx, requests[i % requests.size()], &result), "receive");
		one_more(shared, stream, result.length);
		if (stream.latency)
			check(ctx,
			      pt2p_send(ctx, &memory[i % requests.size() * stream.bytes], result.length, static_cast<int>(from), 0),
			      "pong");
		if (i + requests.size() < messages)
			post(i % requests.size());
		catch_up();
		if (stream.jumps_after(i + 1))
			check(ctx, pt2p_barrier(ctx), "barrier");
	}
}

// A message there and back before all else. A device binds queue pairs to units in the order of their first use. So
// each stream gets a unit of its own, as long as there are enough, whatever is tuned.
void meet(pt2p_context_t *ctx, const Stream &stream)
{
	const auto me = static_cast<size_t>(pt2p_rank(ctx));
	const bool sends = me < stream.senders;
	for (size_t i = 1; i <= (sends ? stream.targets : 1); ++i) {
		const auto other = static_cast<int>(sends ? me + stream.senders * i : me % stream.senders);
		unsigned char sent = 0, received;
		check(ctx, pt2p_sendrecv(ctx, &sent, 1, other, 0, &received, 1, other, 0, PT2P_TAG_EXACT, nullptr),
		      "first message");
	}
}

// Period and L/N of a trace.
std::pair<double, double> read_trace(const std::string &path)
{
	std::ifstream file(path);
	std::vector<std::pair<double, double>> all;
	std::string line;
	for (std::getline(file, line); std::getline(file, line);) {
		std::vector<std::string> fields;
		std::stringstream stream(line);
		for (std::string field; std::getline(stream, field, ',');)
			fields.push_back(field);
		if (fields.size() == 7)
			all.emplace_back(std::stod(fields[3]), std::stod(fields[6]));
	}
	double period = 0, ratio = 0;
	const size_t half = all.size() / 2;
	for (size_t i = half; i < all.size(); ++i)
		period += all[i].first, ratio += all[i].second;
	const auto n = static_cast<double>(std::max<size_t>(all.size() - half, 1));
	return {period / n, ratio / n};
}

// The stream that the settings describe.
Stream read_stream(const Settings &settings)
{
	const std::string &sizes = settings.text("sizes");
	const Stream stream{settings.count("senders"),
	                    settings.count("targets"),
	                    settings.count("bytes"),
	                    settings.count("messages"),
	                    settings.count("hold"),
	                    settings.count("window"),
	                    sizes == "smooth"   ? Stream::Sizes::smooth
	                    : sizes == "random" ? Stream::Sizes::random
	                    : sizes == "jump"   ? Stream::Sizes::jump
	                                        : Stream::Sizes::fixed,
	                    settings.text("latency") != "no",
	                    settings.count("slice")};
	if (stream.sizes == Stream::Sizes::jump && stream.targets != 1)
		give_up("sizes=jump: all meet before each jump, which takes targets=1");
	return stream;
}

void run(const Stream &stream, const std::vector<std::string> &tunables, Shared &shared)
{
	const InprocessJob job(stream.senders + stream.receivers(), stream.senders, tunables);
	job.run([&](pt2p_context_t *ctx) {
		const bool sends = static_cast<size_t>(pt2p_rank(ctx)) < stream.senders;
		meet(ctx, stream);
		if (sends) {
			check(ctx, pt2p_barrier(ctx), "barrier");
			send(ctx, stream, shared);
		} else {
			receive(ctx, stream, shared);
		}
		check(ctx, pt2p_barrier(ctx), "barrier");
	});
}

void write_slices(const std::string &path, const Stream &stream, const Shared &shared)
{
	std::ofstream file(path);
	for (size_t i = 0; i < shared.slices.size(); ++i)
		file << (i + 1) * stream.slice << ',' << static_cast<uint64_t>(shared.slices[i]) << '\n';
}

void print(const Settings &settings, const Stream &stream, const Shared &shared, size_t measured)
{
	double latency = 0;
	for (const double one : shared.latencies)
		latency += one / static_cast<double>(shared.latencies.size());
	const double time = shared.until - shared.since, n = static_cast<double>(measured);
	const std::string &trace = settings.text("trace");
	const auto [period, ratio] = trace.empty() ? std::pair(0.0, 0.0) : read_trace(trace);
	std::printf("%s,%zu,%zu,%s,%zu,%.3f,%.1f,%.0f,%.3f,%.3f,%.3f,%.1f,%.2f\n", settings.text("name").c_str(),
	            stream.senders, stream.targets, settings.text("sizes").c_str(), stream.bytes, n / time * 1e3,
	            shared.bytes / time * 1e3, latency, static_cast<double>(shared.doorbells) / n,
	            static_cast<double>(shared.cqes) / n, static_cast<double>(shared.wqe_reads) / n, period, ratio);
}

} // namespace

int main(int argc, char **argv)
{
	const Settings settings(argc, argv,
	                        {{"senders", "1"},
	                         {"targets", "1"},
	                         {"bytes", "8"},
	                         {"sizes", "fixed"},
	                         {"hold", "64"},
	                         {"messages", "10000"},
	                         {"window", "64"},
	                         {"latency", "no"},
	                         {"name", "?"},
	                         {"trace", ""},
	                         {"slice", "250"},
	                         {"slices", ""},
	                         {"header", "no"}});
	if (settings.text("header") != "no")
		std::puts("name,senders,targets,sizes,bytes,M/s,MB/s,latency_ns,doorbells,cqes,wqe_reads,period,L/N");
	const Stream stream = read_stream(settings);
	const size_t measured = stream.messages * stream.senders * 7 / 10;
	Shared shared;
	shared.first = stream.messages * stream.senders - measured;
	run(stream, settings.tunables, shared);
	if (!settings.text("slices").empty())
		write_slices(settings.text("slices"), stream, shared);
	print(settings, stream, shared, measured);
}
