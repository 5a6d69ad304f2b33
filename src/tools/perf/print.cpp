// SPDX-License-Identifier: BSD-3-Clause
#include "tools/perf/print.hpp"

#include <algorithm>
#include <cstdio>
#include <map>

#include "tools/json.hpp"

namespace pt2p::perf {

namespace {

const char *unit(Test test)
{
	switch (test) {
	case Test::lat:
	case Test::call:
	case Test::windows: return "us";
	case Test::bw:
	case Test::bibw: return "MB/s";
	default: return "M/s";
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
bool took_turns(const Point &p) { return median(p.tight) > 5; }

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

std::string plural(size_t n, const char *one) { return std::to_string(n) + " " + one + (n == 1 ? "" : "s"); }

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
	                   (pair.alone()        ? std::string("talking to itself")
	                    : pair.one_server() ? plural(pair.pairs(), "caller") + " of rank " + std::to_string(pair.peer())
	                                        : plural(pair.pairs(), "pair"));
	return text + ", rank 0 on " + info.host + (info.oversubscribed ? ", more ranks than CPUs" : "");
}

} // namespace

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
	printf("%-8s %8s %6s %12s %12s %12s %-5s", "test", "bytes", "window", "median", "lowest", "highest", "unit");
	if (bench.baseline())
		printf(" %10s %6s %10s %6s", "bare", "ratio", "bare-pause", "ratio");
	printf("\n");
	for (const Point &p : points) {
		const auto [low, high] = std::minmax_element(p.values.begin(), p.values.end());
		const int digits = median(p.values) < 0.1 ? 6 : 3;
		printf("%-8s %8s %6zu %12.*f %12.*f %12.*f %-5s", test_name(p.test), short_size(p.size).c_str(), p.window,
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
	json.add("one_server", pair.one_server());
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

} // namespace pt2p::perf
