// SPDX-License-Identifier: BSD-3-Clause
// pt2p_perf: latency, bandwidth and message rate between ranks. Uses the public interface alone.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <map>

#include "tools/json.hpp"
#include "tools/pt2p_perf.hpp"

namespace pt2p::perf {

double median(std::vector<double> values)
{
	if (values.empty())
		return 0;
	std::sort(values.begin(), values.end());
	const size_t n = values.size();
	return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

namespace {

// Between the leading ranks, and from rank 0 to idle ones; the pairs' own tags are below.
constexpr uint64_t kTagLine = 100, kTagAgree = 101, kTagFigures = 102, kTagOver = 103, kTagPlace = 104;

constexpr int kRepetitions = 51;

struct Point {
	Test test = Test::lat;
	size_t size = 0;
	size_t window = 0;
	std::vector<double> values; // one for each repetition
	// With a baseline, in step with the values:
	std::vector<double> tight, pausing, ratio_tight, ratio_pausing;
};

const char *unit(Test test)
{
	switch (test) {
	case Test::lat: return "us";
	case Test::rate: return "M/s";
	default: return "MB/s";
	}
}

std::string short_size(size_t size)
{
	const char *suffix = "";
	for (const char *next : {"k", "m", "g"}) {
		if (size < 1024 || size % 1024)
			break;
		size /= 1024;
		suffix = next;
	}
	return std::to_string(size) + suffix;
}

// No cache line takes so long: the two sides cannot have run at the same time.
bool took_turns(const Point &p)
{
	return median(p.tight) > 5;
}

std::vector<size_t> sizes_for(Test test, const Options &options)
{
	if (!options.sizes.empty())
		return options.sizes;
	switch (test) {
	case Test::lat: return {8, 1024, 4096, 65536, 1048576};
	case Test::rate: return {8};
	default: return {65536, 1048576};
	}
}

// Runs the points with the other leading ranks in step.
class Bench {
public:
	Bench(Pair &pair, const Options &options) : pair_(pair), options_(options)
	{
		if (options.baseline || options.demo) {
			no_baseline_ = pair.prepare_handoff();
			baseline_ = no_baseline_.empty();
		}
	}

	bool baseline() const { return baseline_; }
	const std::string &no_baseline() const { return no_baseline_; }

	Point measure(Test test, size_t size)
	{
		Point p;
		p.test = test;
		p.size = size;
		p.window = test == Test::lat ? 1 : pair_.usable_window(size, options_.window);
		const bool beside = baseline_ && test == Test::lat;
		double first = 0;
		const double target = options_.time / kRepetitions / (beside ? 2 : 1);
		const uint64_t iterations = agree(calibrate(p, target, first));
		const int affordable =
		    static_cast<int>(std::clamp(2 * options_.time / std::max(first, 1e-9), 5.0, double{kRepetitions}));
		const int repetitions = options_.repetitions ? options_.repetitions : static_cast<int>(agree(affordable));
		const uint64_t trips = beside ? agree(calibrate_handoff(target / 2)) : 0;
		for (int r = 0; r < repetitions; ++r) {
			line_up();
			const double value = figure(p, iterations, pair_.burst(test, size, p.window, iterations));
			p.values.push_back(value);
			if (!beside)
				continue;
			// The order turns round each time, so that neither follows the messages more often.
			double bare[2];
			for (int k : {r % 2, 1 - r % 2}) {
				line_up();
				bare[k] = pair_.handoff_burst(k == 1, trips) / static_cast<double>(trips) / 2 * 1e6;
			}
			p.tight.push_back(bare[0]);
			p.pausing.push_back(bare[1]);
		}
		combine(p);
		for (size_t r = 0; r < p.tight.size(); ++r) {
			p.ratio_tight.push_back(p.values[r] / p.tight[r]);
			p.ratio_pausing.push_back(p.values[r] / p.pausing[r]);
		}
		return p;
	}

private:
	double figure(const Point &p, uint64_t iterations, double seconds) const
	{
		const double n = static_cast<double>(iterations);
		const double bytes = static_cast<double>(p.size) * static_cast<double>(p.window) * n;
		switch (p.test) {
		case Test::lat: return seconds / n * 1e6 / (pair_.alone() ? 1 : 2);
		case Test::bw: return bytes / seconds / 1e6;
		case Test::bibw: return bytes * (pair_.alone() ? 1 : 2) / seconds / 1e6;
		default: return static_cast<double>(p.window) * n / seconds / 1e6;
		}
	}

	// How many iterations take about `target` seconds; finding out warms everything up.
	uint64_t calibrate(const Point &p, double target, double &seconds)
	{
		if (options_.iterations) {
			seconds = pair_.burst(p.test, p.size, p.window, std::max<uint64_t>(1, options_.iterations / 10));
			return options_.iterations;
		}
		return search(target, seconds, [&](uint64_t n) { return pair_.burst(p.test, p.size, p.window, n); });
	}

	uint64_t calibrate_handoff(double target)
	{
		double seconds = 0;
		return search(target, seconds, [&](uint64_t n) { return pair_.handoff_burst(false, n); });
	}

	template <class F>
	static uint64_t search(double target, double &seconds, F &&run)
	{
		uint64_t n = 1;
		run(n);
		for (int tries = 0; tries < 40; ++tries) {
			seconds = run(n);
			const double wanted = target / std::max(seconds, 1e-9);
			if (wanted < 1.5)
				break;
			n = static_cast<uint64_t>(std::ceil(static_cast<double>(n) * std::min(wanted, 10.0)));
		}
		return n;
	}

	pt2p_context_t *ctx() const { return pair_.ctx(); }

	void line_up()
	{
		if (pair_.pairs() < 2)
			return;
		agree(0);
	}

	// Every leader gets rank 0's value, and nobody goes on before all have come.
	uint64_t agree(uint64_t value)
	{
		if (pair_.rank() != 0) {
			must(ctx(), "pt2p_send", pt2p_send(ctx(), nullptr, 0, 0, kTagLine));
			must(ctx(), "pt2p_recv", pt2p_recv(ctx(), &value, sizeof value, 0, kTagAgree, PT2P_TAG_EXACT, nullptr));
			return value;
		}
		for (int r = 1; r < pair_.pairs(); ++r)
			must(ctx(), "pt2p_recv", pt2p_recv(ctx(), nullptr, 0, r, kTagLine, PT2P_TAG_EXACT, nullptr));
		for (int r = 1; r < pair_.pairs(); ++r)
			must(ctx(), "pt2p_send", pt2p_send(ctx(), &value, sizeof value, r, kTagAgree));
		return value;
	}

	// At rank 0: the mean latency of the pairs, the sum of their bandwidths and rates.
	void combine(Point &p)
	{
		for (std::vector<double> *list : {&p.values, &p.tight, &p.pausing}) {
			if (list->empty())
				continue;
			const size_t bytes = list->size() * sizeof(double);
			if (pair_.rank() != 0) {
				must(ctx(), "pt2p_send", pt2p_send(ctx(), list->data(), bytes, 0, kTagFigures));
				continue;
			}
			std::vector<double> theirs(list->size());
			for (int r = 1; r < pair_.pairs(); ++r) {
				must(ctx(), "pt2p_recv",
				     pt2p_recv(ctx(), theirs.data(), bytes, r, kTagFigures, PT2P_TAG_EXACT, nullptr));
				for (size_t i = 0; i < theirs.size(); ++i)
					(*list)[i] += theirs[i];
			}
			if (p.test == Test::lat)
				for (double &value : *list)
					value /= pair_.pairs();
		}
	}

	Pair &pair_;
	const Options &options_;
	bool baseline_ = false;
	std::string no_baseline_;
};

// Ranks without a partner wait politely: they must not take a core from those that measure.
void sit_out(pt2p_context_t *ctx)
{
	pt2p_request_t *request = nullptr;
	must(ctx, "pt2p_irecv", pt2p_irecv(ctx, nullptr, 0, 0, kTagOver, PT2P_TAG_EXACT, &request));
	for (int done = 0; !done;) {
		const timespec nap = {0, 5000000};
		nanosleep(&nap, nullptr);
		must(ctx, "pt2p_test", pt2p_test(ctx, request, &done, nullptr));
	}
}

// "0-3,7"
std::string ranges(const std::vector<int> &ranks)
{
	std::string text;
	for (size_t i = 0; i < ranks.size();) {
		size_t j = i;
		while (j + 1 < ranks.size() && ranks[j + 1] == ranks[j] + 1)
			++j;
		text += (text.empty() ? "" : ",") + std::to_string(ranks[i]) + (j > i ? "-" + std::to_string(ranks[j]) : "");
		i = j + 1;
	}
	return text;
}

std::string plural(size_t n, const char *one)
{
	return std::to_string(n) + " " + one + (n == 1 ? "" : "s");
}

// How rank 0's messages travel: "shm, large messages single-copy" for each kind, with the ranks.
std::map<std::string, std::vector<int>> ways(pt2p_context_t *ctx)
{
	std::map<std::string, std::vector<int>> found;
	for (int r = 0; r < pt2p_size(ctx); ++r) {
		pt2p_peer_info_t peer;
		must(ctx, "pt2p_peer_query", pt2p_peer_query(ctx, r, &peer));
		if (peer.transport[0] == 0)
			continue;
		std::string way = peer.transport;
		if (peer.large[0])
			way += std::string(", large messages ") + peer.large;
		found[way].push_back(r);
	}
	return found;
}

std::string headline(const Pair &pair, const pt2p_info_t &info)
{
	std::string text = std::string("libpt2p ") + pt2p_version() + ": " + plural(pair.size(), "rank") + ", " +
	                   (pair.alone() ? std::string("talking to itself") : plural(pair.pairs(), "pair"));
	return text + ", rank 0 on " + info.host + (info.oversubscribed ? ", more ranks than CPUs" : "");
}

void print_table(Pair &pair, const Options &options, const std::vector<Point> &points, const Bench &bench)
{
	pt2p_info_t info;
	must(pair.ctx(), "pt2p_query", pt2p_query(pair.ctx(), &info));
	printf("# %s\n", headline(pair, info).c_str());
	for (const auto &[way, ranks] : ways(pair.ctx()))
		printf("# rank 0 to %s: %s\n", ranges(ranks).c_str(), way.c_str());
	if (options.check)
		printf("# every payload was verified; the verification is part of the times\n");
	if (options.baseline && !bench.baseline())
		printf("# no bare hand-off: %s\n", bench.no_baseline().c_str());
	printf("%-5s %8s %6s %12s %12s %12s %-5s", "test", "bytes", "window", "median", "lowest", "highest", "unit");
	if (bench.baseline())
		printf(" %10s %6s %10s %6s", "bare", "ratio", "bare-pause", "ratio");
	printf("\n");
	for (const Point &p : points) {
		const auto [low, high] = std::minmax_element(p.values.begin(), p.values.end());
		const int digits = median(p.values) < 0.1 ? 6 : 3;
		printf("%-5s %8s %6zu %12.*f %12.*f %12.*f %-5s", test_name(p.test), short_size(p.size).c_str(), p.window,
		       digits, median(p.values), digits, *low, digits, *high, unit(p.test));
		if (!p.tight.empty())
			printf(" %10.3f %6.2f %10.3f %6.2f", median(p.tight), median(p.ratio_tight), median(p.pausing),
			       median(p.ratio_pausing));
		printf("\n");
	}
	const bool by_turns = std::any_of(points.begin(), points.end(), [](const Point &p) { return took_turns(p); });
	if (by_turns)
		printf("# bare hand-offs this slow mean that the two ranks took turns on one CPU\n");
	if (bench.baseline())
		printf("# bare: hand-off of 8 bytes in a cache line between the two ranks, polled in a tight loop, and with\n"
		       "# pauses between polls; ratio: median over the repetitions of latency / bare\n");
}

void print_json(Pair &pair, const Options &options, const std::vector<Point> &points, const Bench &bench)
{
	pt2p_info_t info;
	must(pair.ctx(), "pt2p_query", pt2p_query(pair.ctx(), &info));
	Json json;
	json.open(nullptr, '{');
	json.add("version", pt2p_version());
	json.number("ranks", pair.size());
	json.number("pairs", pair.pairs());
	json.add("host", info.host);
	json.add("oversubscribed", info.oversubscribed != 0);
	json.add("checked", options.check);
	if (options.baseline && !bench.baseline())
		json.add("no_baseline", bench.no_baseline());
	json.open("ways", '[');
	for (const auto &[way, ranks] : ways(pair.ctx())) {
		json.open(nullptr, '{');
		json.add("ranks", ranges(ranks));
		json.add("way", way);
		json.close('}');
	}
	json.close(']');
	json.open("points", '[');
	for (const Point &p : points) {
		const auto [low, high] = std::minmax_element(p.values.begin(), p.values.end());
		json.open(nullptr, '{');
		json.add("test", test_name(p.test));
		json.number("bytes", static_cast<double>(p.size));
		json.number("window", static_cast<double>(p.window));
		json.add("unit", unit(p.test));
		json.number("repetitions", static_cast<double>(p.values.size()));
		json.number("median", median(p.values));
		json.number("lowest", *low);
		json.number("highest", *high);
		if (!p.tight.empty()) {
			json.number("bare", median(p.tight));
			json.number("ratio", median(p.ratio_tight));
			json.number("bare_pause", median(p.pausing));
			json.number("ratio_pause", median(p.ratio_pausing));
		}
		json.close('}');
	}
	json.close(']');
	json.close('}');
	printf("%s\n", json.text().c_str());
}

void print_demo(Pair &pair, Bench &bench)
{
	std::map<std::string, std::vector<int>> hosts;
	std::map<int, int> cores;
	pt2p_context_t *ctx = pair.ctx();
	pt2p_info_t info;
	must(ctx, "pt2p_query", pt2p_query(ctx, &info));
	hosts[info.host].push_back(0);
	cores[0] = info.core;
	for (int r = 1; r < pair.size(); ++r) {
		pt2p_info_t theirs;
		must(ctx, "pt2p_recv", pt2p_recv(ctx, &theirs, sizeof theirs, r, kTagPlace, PT2P_TAG_EXACT, nullptr));
		hosts[theirs.host].push_back(r);
		cores[r] = theirs.core;
	}
	const Point lat = bench.measure(Test::lat, 8);
	const Point rate = bench.measure(Test::rate, 8);
	const Point medium = bench.measure(Test::bw, 65536);
	const Point large = bench.measure(Test::bw, 1048576);

	printf("libpt2p %s, %s on %s\n", pt2p_version(), plural(pair.size(), "rank").c_str(),
	       plural(hosts.size(), "host").c_str());
	for (const auto &[host, ranks] : hosts) {
		printf("  %-22s ranks %s", host.c_str(), ranges(ranks).c_str());
		if (ranks.size() <= 8 && std::all_of(ranks.begin(), ranks.end(), [&](int r) { return cores[r] >= 0; })) {
			printf(", on cores");
			for (int r : ranks)
				printf(" %d", cores[r]);
		}
		printf("%s\n", info.oversubscribed && host == info.host ? ", more ranks than CPUs" : "");
	}
	for (const auto &[way, ranks] : ways(ctx))
		printf("  %-22s %s\n", ("rank 0 to " + ranges(ranks)).c_str(), way.c_str());
	if (pair.alone())
		printf("  rank 0 talks to itself: start it with mpirun -n 2 to see two processes\n");
	else if (pair.pairs() > 1)
		printf("  %s at the same time; rates and bandwidths are their sums\n", plural(pair.pairs(), "pair").c_str());
	printf("  %-22s %9.3f us", "latency, 8 bytes", median(lat.values));
	if (bench.baseline())
		printf("   bare hand-off %.3f us, ratio %.2f (polled with pauses %.3f us, %.2f)", median(lat.tight),
		       median(lat.ratio_tight), median(lat.pausing), median(lat.ratio_pausing));
	else
		printf("   no bare hand-off: %s", bench.no_baseline().c_str());
	printf("\n  %-22s %9.2f million/s   window 64\n", "messages, 8 bytes", median(rate.values));
	printf("  %-22s %9.2f GB/s\n", "bandwidth, 64 KiB", median(medium.values) / 1e3);
	printf("  %-22s %9.2f GB/s\n", "bandwidth, 1 MiB", median(large.values) / 1e3);
}

// The part of a leading rank.
void lead(Pair &pair, const Options &options)
{
	Bench bench(pair, options);
	if (options.demo) {
		if (pair.rank() == 0) {
			print_demo(pair, bench);
		} else {
			bench.measure(Test::lat, 8);
			bench.measure(Test::rate, 8);
			bench.measure(Test::bw, 65536);
			bench.measure(Test::bw, 1048576);
		}
	} else {
		std::vector<Point> points;
		for (Test test : options.tests)
			for (size_t size : sizes_for(test, options))
				points.push_back(bench.measure(test, size));
		if (pair.rank() == 0)
			options.json ? print_json(pair, options, points, bench) : print_table(pair, options, points, bench);
	}
	pair.dismiss();
	if (pair.rank() == 0)
		for (int r = 2 * pair.pairs(); r < pair.size(); ++r)
			must(pair.ctx(), "pt2p_send", pt2p_send(pair.ctx(), nullptr, 0, r, kTagOver));
}

int run(pt2p_context_t *ctx, const Options &options)
{
	try {
		Pair pair(ctx, options);
		if (options.demo && pair.rank() != 0) {
			pt2p_info_t info;
			must(ctx, "pt2p_query", pt2p_query(ctx, &info));
			must(ctx, "pt2p_send", pt2p_send(ctx, &info, sizeof info, 0, kTagPlace));
		}
		if (pair.idle())
			sit_out(ctx);
		else if (pair.leads())
			lead(pair, options);
		else
			pair.serve();
		return 0;
	} catch (const Failure &failure) {
		fprintf(stderr, "pt2p_perf: rank %d: %s\n", pt2p_rank(ctx), failure.text.c_str());
	} catch (const std::exception &e) {
		fprintf(stderr, "pt2p_perf: rank %d: %s\n", pt2p_rank(ctx), e.what());
	}
	return 1;
}

int draw(const std::string &trace)
{
	try {
		fputs(drawing(trace).c_str(), stdout);
		if (fflush(stdout) == 0 && !ferror(stdout))
			return 0;
		fprintf(stderr, "pt2p_perf: the output could not be written\n");
	} catch (const Failure &failure) {
		fprintf(stderr, "pt2p_perf: %s\n", failure.text.c_str());
	}
	return 1;
}

// Whether this rank has sent anything by a transport that is tuned.
bool uses_device(pt2p_context_t *ctx)
{
	uint64_t messages = 0;
	for (int i = 0; i < pt2p_counter_count(); ++i) {
		const std::string name = pt2p_counter_name(i);
		uint64_t value = 0;
		if (name == "rc_messages" || name == "dct_messages")
			must(ctx, "pt2p_counter_read", pt2p_counter_read(ctx, i, &value));
		messages += value;
	}
	return messages > 0;
}

} // namespace

} // namespace pt2p::perf

using namespace pt2p::perf;

int main(int argc, char **argv)
{
	Options options;
	const std::string wrong = parse_options(argc, argv, options);
	// Launched many times over, only rank 0 has to say so.
	const bool only_text = !wrong.empty() || options.help;
	if (!only_text && !options.draw.empty())
		return draw(options.draw);
	if (!options.trace.empty()) {
		setenv("PT2P_TUNE_TRACE", options.trace.c_str(), 1);
		setenv("PT2P_TUNE", "free", 0);
	}
	pt2p_context_t *ctx = nullptr;
	const pt2p_status_t joined = pt2p_init(nullptr, &ctx);
	if (only_text) {
		if (ctx == nullptr || pt2p_rank(ctx) == 0) {
			if (!wrong.empty())
				fprintf(stderr, "pt2p_perf: %s\n", wrong.c_str());
			fputs(usage_text(), wrong.empty() ? stdout : stderr);
		}
		if (ctx)
			pt2p_finalize(ctx);
		return wrong.empty() ? 0 : 2;
	}
	if (joined != PT2P_OK) {
		fprintf(stderr, "pt2p_perf: %s: %s\n", pt2p_strerror(joined), pt2p_last_error(nullptr));
		return 1;
	}
	if (run(ctx, options) != 0)
		pt2p_abort(ctx, 1, "pt2p_perf failed");
	if (!options.trace.empty() && pt2p_rank(ctx) == 0 && !uses_device(ctx))
		fprintf(stderr, "pt2p_perf: --tune-trace: nothing went through a network device, so there is nothing to observe\n");
	const bool lost_output = fflush(stdout) != 0 || ferror(stdout);
	const pt2p_status_t left = pt2p_finalize(ctx);
	if (left != PT2P_OK)
		fprintf(stderr, "pt2p_perf: %s\n", pt2p_last_error(nullptr));
	if (lost_output)
		fprintf(stderr, "pt2p_perf: the output could not be written\n");
	return left == PT2P_OK && !lost_output ? 0 : 1;
}
