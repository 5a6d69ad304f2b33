#include "inspect/inspector.hpp"

#include <algorithm>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/job/job.hpp"
#include "inspect/channel_report.hpp"
#include "message/engine.hpp"
#include "message/request/explain.hpp"
#include "route/forward/relay.hpp"

namespace pt2p {

namespace {

constexpr size_t max_lines = 16; // for each kind of thing

// Shown when this rank sends, posts no receive, and messages for it wait.
constexpr const char *advice_on_sends =
    "  advice: this rank waits in a send for a receive elsewhere, and messages for it wait for a receive here. A send "
    "above\n"
    "  PT2P_EAGER_MAX ends when its receive has matched it. So ranks that send to each other first and receive "
    "afterwards wait for\n"
    "  ever. Exchange with pt2p_sendrecv, or post pt2p_irecv first, or wait for the pt2p_isend after the receive\n";

} // namespace

Inspector::Inspector(const Engine &engine, const Router &router, const Job &job, const Reporter &reporter)
    : engine_(engine), router_(router), job_(job), reporter_(reporter), rank_(job.rank()), size_(job.size())
{
}

std::string Inspector::summary() const
{
	const std::string neighbours =
	    job_.open() ? "" : counted(static_cast<uint64_t>(job_.local_size()), "rank") + " on this node, ";
	std::string text = format("libpt2p %s: rank %d of %d on %s, %sjob %s\n", pt2p_version(), rank_, size_,
	                          reporter_.host().c_str(), neighbours.c_str(), job_.kind());
	if (const std::string &choice = router_.policy().choice(); !choice.empty() && !router_.device_transports().empty())
		text += "  routes: " + choice + "\n";
	for (Transport *t : router_.layers()) {
		std::string peers, why;
		size_t count = 0;
		for (int rank = 0; rank < size_; ++rank) {
			const auto by_this = [&](const Channel *c) { return c && router_.transport_of(c->endpoint) == t; };
			const bool messages = by_this(router_.find(rank));
			if (!messages && !by_this(router_.find_datagrams(rank)))
				continue;
			if (++count <= max_lines)
				peers += format("%s%d (%s)", peers.empty() ? "" : ", ", rank, t->describe(rank).c_str());
			if (messages && why.empty())
				why = router_.why(rank);
		}
		if (count > max_lines)
			peers += format(" and %zu more", count - max_lines);
		text += format("  %s: %s\n", t->table().name,
		               count ? ((count == 1 ? "rank " : "ranks ") + peers).c_str() : "usable, not used");
		if (!why.empty())
			text += format("    because: %s\n", why.c_str());
	}
	for (Transport *t : router_.layers())
		if (const Inspection::Memory m = t->memory_per_peer(); m.talking)
			text += format("  memory for each rank of this node in %s: silent %zu bytes, talked with %zu bytes\n",
			               t->table().name, m.silent + Router::bytes_per_silent_peer, m.talking + sizeof(Channel));
	for (const Extension *e : engine_.extensions())
		text += e->pending_text();
	for (const std::string &reason : router_.not_open())
		text += format("  %s\n",
		               (reason.substr(0, reason.find(':')) + ": not used" + reason.substr(reason.find(':'))).c_str());
	for (size_t i = 0; i < static_cast<size_t>(Counter::count); ++i) {
		const auto counter = static_cast<Counter>(i);
		if (reporter_.read(counter))
			text += format("  %-24s %llu\n", counter_info(counter).name,
			               static_cast<unsigned long long>(reporter_.read(counter)));
	}
	return text;
}

std::string Inspector::dump(const char *reason) const
{
	std::string text = format("libpt2p: rank %d of %d on %s: %s\n", rank_, size_, reporter_.host().c_str(), reason);
	size_t lines = 0, more = 0;
	const auto add = [&](const std::string &line) {
		if (++lines <= max_lines)
			text += "  " + line + "\n";
		else
			++more;
	};
	bool waits_in_send = false, receives = false, unreceived = false;
	engine_.requests().for_each([&](const Request &r) {
		if (!r.active() || r.done() || r.state == Request::State::finished)
			return;
		add(request_text(r, {}));
		waits_in_send |= r.is_send && r.awaits_answer;
		receives |= r.state == Request::State::posted;
	});
	const size_t requests = lines;
	for (const Extension *e : engine_.extensions())
		text += e->pending_text();
	lines = 0;
	engine_.receives().matcher().for_each_unexpected([&](const UnexpectedMessage &m) {
		unreceived |= m.announced;
		add(format("unexpected: %s%zu bytes from rank %d, tag %#llx", m.announced ? "announced, " : "", m.length,
		           m.source, static_cast<unsigned long long>(m.tag)));
	});
	engine_.receives().messages().for_each([&](const UnexpectedMessage &m) {
		if (m.taken)
			add(taken_text(m));
	});
	for (int rank = 0; rank < size_; ++rank)
		if (const Channel *c = router_.find(rank); c && c->waiting())
			add(format("%s to rank %d, waiting for room in %s", counted(c->waiting(), "message").c_str(), rank,
			           c->endpoint.table->name));
	for (Transport *t : router_.layers())
		for (int rank = 0; rank < size_; ++rank)
			if (const std::string trouble = t->trouble(rank); !trouble.empty())
				add(format("rank %d by %s: %s", rank, t->table().name, trouble.c_str()));
	for (const auto &[rank, loss] : engine_.losses().all())
		add(format("rank %d is gone: %s", rank, loss.reason.c_str()));
	if (more)
		text += format("  ... and %zu more\n", more);
	if (waits_in_send && !receives && unreceived)
		text += advice_on_sends;
	if (!requests) {
		const Barrier &barrier = engine_.barrier();
		const std::string awaited =
		    barrier.awaited() != rank_ ? format(", it waits for rank %d", barrier.awaited()) : "";
		text += format("  no request is pending (barrier %llu%s)\n", static_cast<unsigned long long>(barrier.entered()),
		               awaited.c_str());
	}
	text += channels_through_devices();
	return text;
}

void Inspector::inspect(pt2p_peer_info_t &info) const
{
	info.forwarder = -1;
	const Channel *c = router_.find(info.rank);
	if (!c)
		return;
	copy_text(info.transport, sizeof info.transport, c->endpoint.table->name);
	const Endpoint *direct = &c->endpoint;
	const Relay *relay = router_.relay();
	if (relay && router_.transport_of(*direct) == relay) {
		info.forwarder = relay->forwarder_of(info.rank);
		direct = relay->direct_endpoint(info.rank);
	}
	if (Transport *t = direct ? router_.transport_of(*direct) : nullptr) {
		copy_text(info.direct, sizeof info.direct, direct->table->name);
		const std::string text = t->describe(info.rank);
		copy_text(info.large, sizeof info.large, std::string_view(text).substr(0, text.find(',')));
	}
	uint64_t most = 0;
	for (Transport *t : router_.layers()) {
		ChannelFacts facts;
		if (!t->facts(info.rank, facts) || !facts.busy())
			continue;
		using enum tune::SizeClass;
		info.inlined += facts.kind(inlined).messages;
		info.from_device_memory += facts.kind(device_memory).messages;
		info.from_host_memory += facts.kind(buffer).messages;
		for (const KindFacts &kind : facts.kinds)
			if (kind.messages > most) {
				most = kind.messages;
				info.signal_period = kind.period ? kind.period : facts.fixed_period;
			}
	}
}

// Only channels through a device have such numbers. Elsewhere the processors copy, without a queue.
std::string Inspector::channels_through_devices() const
{
	struct Busy {
		int rank;
		const char *transport;
		ChannelFacts facts;
	};
	std::vector<Busy> all;
	for (Transport *t : router_.layers()) {
		t->read_meters();
		for (int rank = 0; rank < size_; ++rank) {
			Busy b{rank, t->table().name, {}};
			if (!t->facts(rank, b.facts) || !b.facts.busy())
				continue;
			if (const Channel *c = router_.find(rank); c && router_.transport_of(c->endpoint) == t)
				b.facts.waiting = c->waiting();
			all.push_back(std::move(b));
		}
	}
	std::stable_sort(all.begin(), all.end(),
	                 [](const Busy &a, const Busy &b) { return a.facts.messages() > b.facts.messages(); });
	std::string text;
	for (const Busy &b : std::span(all).first(std::min(all.size(), max_lines)))
		text += format("rank %d to %d by %s\n", rank_, b.rank, b.transport) + describe(b.facts);
	if (all.size() > max_lines)
		text += format("... and %s with less\n", counted(all.size() - max_lines, "channel").c_str());
	return text;
}

std::string Inspector::advice() const
{
	uint32_t part = 0;
	for (Transport *t : router_.layers())
		part = part ? part : t->device_part();
	std::string text;
	for (const Extension *e : engine_.extensions())
		text += e->advice(part, static_cast<size_t>(job_.device_sharers()));
	return text;
}

std::string Inspector::report() const
{
	std::string text =
	    format("libpt2p: rank %d of %d on %s: its channels, see pt2p_tpl(7)\n", rank_, size_, reporter_.host().c_str());
	std::string others;
	size_t count = 0;
	for (int rank = 0; rank < size_; ++rank) {
		const Channel *c = router_.find(rank);
		ChannelFacts facts;
		if (!c)
			continue;
		Transport *t = router_.transport_of(c->endpoint);
		if (t && t->facts(rank, facts))
			continue;
		if (++count <= max_lines)
			others += format(
			    "%s%d (%s, %s%s)", others.empty() ? "" : ", ", rank, c->endpoint.table->name,
			    t ? t->describe(rank).c_str() : "",
			    c->waiting() ? format(", %s waiting for room", counted(c->waiting(), "message").c_str()).c_str() : "");
	}
	if (count > max_lines)
		others += format(" and %zu more", count - max_lines);
	text += channels_through_devices() + advice();
	return others.empty() ? text : text + "without a device, or through other ranks: " + others + "\n";
}

} // namespace pt2p
