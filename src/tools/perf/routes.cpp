// SPDX-License-Identifier: BSD-3-Clause
#include "tools/perf/routes.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "tools/perf/perf.hpp"

namespace pt2p::perf {

namespace {

constexpr uint64_t tag_message = 1, tag_facts = 2;
constexpr std::array<size_t, 3> sizes{8, 200, 4096}; // bytes
constexpr int window = 16, windows = 8;              // messages of a size to a rank at a time; how often
constexpr int max_columns = 16;

unsigned char pattern(int from, int to, int number, size_t i)
{
	return static_cast<unsigned char>(31 * from + 17 * to + 7 * number + static_cast<int>(i));
}

// Sends a window of messages to one rank while another sends one to this rank.
void exchange(pt2p_context_t *ctx, int to, int from, size_t size)
{
	const int me = pt2p_rank(ctx);
	std::vector<unsigned char> out(size * window), in(size * window);
	std::vector<pt2p_request_t *> requests(size_t{2} * window);
	for (int m = 0; m < window; ++m) {
		unsigned char *data = &out[size * static_cast<size_t>(m)];
		for (size_t i = 0; i < size; ++i)
			data[i] = pattern(me, to, m, i);
		must(ctx, "pt2p_irecv",
		     pt2p_irecv(ctx, &in[size * static_cast<size_t>(m)], size, from, tag_message, PT2P_TAG_EXACT,
		                &requests[static_cast<size_t>(m)]));
	}
	for (int m = 0; m < window; ++m)
		must(ctx, "pt2p_isend",
		     pt2p_isend(ctx, &out[size * static_cast<size_t>(m)], size, to, tag_message,
		                &requests[static_cast<size_t>(window + m)]));
	must(ctx, "pt2p_waitall", pt2p_waitall(ctx, requests.size(), requests.data(), nullptr));
	for (int m = 0; m < window; ++m)
		for (size_t i = 0; i < size; ++i)
			if (in[size * static_cast<size_t>(m) + i] != pattern(from, me, m, i))
				throw Failure{"a message from rank " + std::to_string(from) + " has a wrong byte"};
}

// What rank 0 is told of each rank; a pt2p_peer_info_t of each rank follows.
struct Facts {
	uint64_t target_changes, forwarded;
};

std::string cell(const pt2p_peer_info_t &p, int rank)
{
	if (p.rank == rank)
		return ".";
	if (p.forwarder >= 0)
		return "by " + std::to_string(p.forwarder);
	return p.direct[0] ? p.direct : "-";
}

void print_matrix(const std::vector<std::vector<pt2p_peer_info_t>> &routes)
{
	const int shown = std::min(static_cast<int>(routes.size()), max_columns);
	printf("  from \\ to");
	for (int to = 0; to < shown; ++to)
		printf("%7d", to);
	printf("\n");
	for (int from = 0; from < shown; ++from) {
		printf("  %9d", from);
		for (int to = 0; to < shown; ++to)
			printf("%7s", cell(routes[static_cast<size_t>(from)][static_cast<size_t>(to)], from).c_str());
		printf("\n");
	}
	if (shown < static_cast<int>(routes.size()))
		printf("  ... and so on to rank %zu\n", routes.size() - 1);
}

// Of the pairs of different ranks: "12 by shm, 8 by rc".
std::string count_routes(const std::vector<std::vector<pt2p_peer_info_t>> &routes)
{
	std::map<std::string, int> pairs;
	for (size_t from = 0; from < routes.size(); ++from)
		for (const pt2p_peer_info_t &p : routes[from])
			if (p.rank != static_cast<int>(from))
				++pairs[p.forwarder >= 0 ? "forwarded" : p.direct[0] ? "by " + std::string(p.direct) : "not connected"];
	std::string text;
	for (const auto &[route, count] : pairs)
		text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + route;
	return text.empty() ? "none" : text;
}

void print_payload(const std::vector<std::vector<pt2p_peer_info_t>> &routes)
{
	uint64_t inlined = 0, device = 0, host = 0;
	std::map<uint32_t, int> periods; // channels with each
	for (const auto &peers : routes)
		for (const pt2p_peer_info_t &p : peers) {
			inlined += p.inlined;
			device += p.from_device_memory;
			host += p.from_host_memory;
			if (p.signal_period)
				++periods[p.signal_period];
		}
	const uint64_t all = inlined + device + host;
	if (!all) {
		printf("no message went through a network device\n");
		return;
	}
	const auto percent = [all](uint64_t n) { return 100 * static_cast<double>(n) / static_cast<double>(all); };
	printf(
	    "payload of %llu messages through devices: %.0f %% inline, %.0f %% in device memory, %.0f %% in host memory\n",
	    static_cast<unsigned long long>(all), percent(inlined), percent(device), percent(host));
	std::string text;
	for (const auto &[period, channels] : periods)
		text += (text.empty() ? "" : ", ") + std::to_string(period) + " (" + std::to_string(channels) + ")";
	printf("signal periods (channels with each): %s\n", text.c_str());
}

std::string text_of(pt2p_context_t *ctx, pt2p_status_t (*write)(pt2p_context_t *, char *, size_t, size_t *))
{
	size_t needed = 0;
	std::vector<char> text(1);
	write(ctx, text.data(), text.size(), &needed);
	text.resize(needed + 4096); // it may have grown
	must(ctx, "pt2p_report or pt2p_summary", write(ctx, text.data(), text.size(), &needed));
	return text.data();
}

// From the line that begins with `first` up to the one that begins with `end`; `end` empty: that line only.
std::string lines(const std::string &text, const std::string &first, const std::string &end)
{
	const size_t from = text.find("\n" + first);
	if (from == std::string::npos)
		return {};
	const size_t to = text.find("\n" + end, from + 1);
	return text.substr(from + 1, to == std::string::npos ? to : to - from);
}

void print(pt2p_context_t *ctx, const std::vector<std::vector<unsigned char>> &all)
{
	std::vector<std::vector<pt2p_peer_info_t>> routes;
	uint64_t target_changes = 0, forwarded = 0;
	int nodes = 0; // counted by the lowest rank of each
	for (const std::vector<unsigned char> &bytes : all) {
		Facts facts;
		std::memcpy(&facts, bytes.data(), sizeof facts);
		target_changes += facts.target_changes;
		forwarded += facts.forwarded;
		std::vector<pt2p_peer_info_t> peers(all.size());
		std::memcpy(peers.data(), bytes.data() + sizeof facts, peers.size() * sizeof peers[0]);
		const auto lowest =
		    std::find_if(peers.begin(), peers.end(), [](const pt2p_peer_info_t &p) { return p.same_node; });
		nodes += lowest - peers.begin() == static_cast<ptrdiff_t>(routes.size());
		routes.push_back(std::move(peers));
	}
	printf("libpt2p %s: %zu ranks on %d node%s, each has sent %d messages to each, and all were verified\n",
	       pt2p_version(), all.size(), nodes, nodes == 1 ? "" : "s", static_cast<int>(sizes.size()) * window * windows);
	print_matrix(routes);
	printf("pairs of ranks: %s\n", count_routes(routes).c_str());
	if (const std::string why = lines(text_of(ctx, pt2p_summary), "  routes: ", ""); !why.empty())
		printf("%s", why.c_str() + 2);
	print_payload(routes);
	printf("messages forwarded for others: %llu; changes of a DC initiator's target: %llu\n",
	       static_cast<unsigned long long>(forwarded), static_cast<unsigned long long>(target_changes));
	// The busiest channel is the first.
	if (const std::string busiest = lines(text_of(ctx, pt2p_report), "rank 0 to ", "rank 0 to "); !busiest.empty())
		printf("%s", busiest.c_str());
}

} // namespace

void show_routes(pt2p_context_t *ctx)
{
	const int me = pt2p_rank(ctx), n = pt2p_size(ctx);
	for (int w = 0; w < windows; ++w)
		for (const size_t size : sizes)
			for (int distance = 1; distance < n; ++distance)
				exchange(ctx, (me + distance) % n, (me - distance + n) % n, size);
	must(ctx, "pt2p_barrier", pt2p_barrier(ctx));
	const Facts facts{counter(ctx, "dct_switches"), counter(ctx, "forwarded")};
	std::vector<pt2p_peer_info_t> peers(static_cast<size_t>(n));
	for (int r = 0; r < n; ++r)
		must(ctx, "pt2p_peer_query", pt2p_peer_query(ctx, r, &peers[static_cast<size_t>(r)]));
	std::vector<unsigned char> mine(sizeof facts + peers.size() * sizeof peers[0]);
	std::memcpy(mine.data(), &facts, sizeof facts);
	std::memcpy(mine.data() + sizeof facts, peers.data(), peers.size() * sizeof peers[0]);
	if (me != 0) {
		must(ctx, "pt2p_send", pt2p_send(ctx, mine.data(), mine.size(), 0, tag_facts));
		return;
	}
	std::vector<std::vector<unsigned char>> all{mine};
	for (int r = 1; r < n; ++r) {
		all.emplace_back(mine.size());
		must(ctx, "pt2p_recv",
		     pt2p_recv(ctx, all.back().data(), all.back().size(), r, tag_facts, PT2P_TAG_EXACT, nullptr));
	}
	print(ctx, all);
}

} // namespace pt2p::perf
