// What the engine tells people: why a request failed, what is being waited for, and the summary.
#include <algorithm>
#include <initializer_list>
#include <span>
#include <unistd.h>
#include <utility>
#include <vector>

#include "job/job.hpp"
#include "message/engine.hpp"
#include "tune/report.hpp"

namespace pt2p {

namespace {

constexpr size_t most_lines = 16; // of a dump, for each kind of thing

std::string source_text(int source) { return source == PT2P_ANY_SOURCE ? "any source" : format("rank %d", source); }

// How a request stands that is done, or empty.
std::string end_text(const Request &r, const std::string &loss)
{
	if (!r.done())
		return !r.is_detached()                                           ? ""
		       : (r.special & Request::with_details) && r.details->callback ? ", with a callback"
		                                                                    : ", given up";
	if (r.status == PT2P_OK)
		return ", done but not waited for";
	return format(", failed (%s%s%s) and not waited for", pt2p_strerror(r.status), loss.empty() ? "" : ": ", loss.c_str());
}

// `loss`: why its peer is gone; empty: it is not.
std::string request_text(const Request &r, const std::string &loss)
{
	const std::string end = end_text(r, loss);
	if (r.is_one_sided())
		return format("%s of %zu bytes at offset %llu of memory of rank %d%s", r.operation, r.length,
		              static_cast<unsigned long long>(r.tag), r.peer, end.c_str());
	const bool posted = r.state == Request::State::posted;
	if (r.is_send)
		return format("send of %zu bytes to rank %d, tag %#llx%s%s", r.length, r.peer,
		              static_cast<unsigned long long>(r.message_tag), end.c_str(),
		              !r.done() && r.awaits_answer ? ", announced, and no receive there has matched it" : "");
	return format("receive of up to %zu bytes from %s, tag %#llx mask %#llx%s%s", r.capacity(),
	              source_text(posted ? r.source : r.peer).c_str(), static_cast<unsigned long long>(r.tag),
	              static_cast<unsigned long long>(r.mask), end.c_str(),
	              r.done()   ? ""
	              : posted   ? ", no message has matched it"
	                         : format(", %zu of %zu bytes are here", r.received, r.expected()).c_str());
}

std::string taken_text(const UnexpectedMessage &m)
{
	return format("message of %zu bytes from rank %d, tag %#llx, taken by pt2p_mprobe and not received", m.length, m.source,
	              static_cast<unsigned long long>(m.tag));
}

// "2 sends and 1 receive", without those that are not there.
std::string list_text(std::initializer_list<std::pair<size_t, const char *>> counts)
{
	std::vector<std::string> parts;
	for (const auto &[n, noun] : counts)
		if (n)
			parts.push_back(counted(n, noun));
	std::string text;
	for (size_t i = 0; i < parts.size(); ++i)
		text += (i == 0 ? "" : i + 1 == parts.size() ? " and " : ", ") + parts[i];
	return text;
}

// Shown when this rank sends, posts no receive, and messages for it wait.
constexpr const char *advice_on_sends =
    "  advice: this rank waits in a send for a receive elsewhere, while messages for it wait for a receive here. When ranks send to\n"
    "  each other first and receive afterwards, none goes on, as a send above PT2P_EAGER_MAX ends when its receive has matched it.\n"
    "  Exchange with pt2p_sendrecv, or post pt2p_irecv first, or start the send with pt2p_isend and wait for it after the receive\n";

} // namespace

void Engine::explain(const Request &r)
{
	const auto tag = static_cast<unsigned long long>(r.message_tag);
	// The request may have failed by itself, before the rank left.
	const auto loss = losses_.find(r.peer);
	const bool lost = loss != losses_.end() && (r.status == loss->second.status || r.status == PT2P_ERR_PEER_LOST);
	std::string reason;
	if (const auto known = reasons_.find(r.handle); known != reasons_.end()) {
		reason = std::move(known->second);
		reasons_.erase(known);
	} else if (lost) {
		reason = loss->second.reason;
	} else if (r.status == PT2P_ERR_PEER_LOST) {
		reason = "its process ended during the transfer";
	} else if (const auto why = unreached_.find(r.peer); why != unreached_.end() && !r.is_send && r.source != Request::no_source) {
		reason = "this rank cannot answer now, receive the message again later: " + why->second;
	}
	if (r.is_one_sided()) {
		reporter_.fail(r.status, "%s of %zu bytes at offset %llu of memory of rank %d%s%s", r.operation, r.length,
		               static_cast<unsigned long long>(r.tag), r.peer, reason.empty() ? "" : ": ", reason.c_str());
		return;
	}
	switch (r.status) {
	case PT2P_ERR_TRUNCATED:
		reporter_.fail(r.status, "the message from rank %d with tag %#llx has %zu bytes, the buffer %zu", r.peer, tag,
		               r.length, r.capacity());
		break;
	case PT2P_ERR_CANCELLED:
		reporter_.fail(r.status, "receive from %s, tag %#llx", source_text(r.source).c_str(), tag);
		break;
	default:
		if (!lost && r.status != PT2P_ERR_PEER_LOST) {
			reporter_.fail(r.status, "%s %zu bytes %s rank %d, tag %#llx: %s", r.is_send ? "sending" : "receiving", r.length,
			               r.is_send ? "to" : "from", r.peer, tag,
			               reason.empty() ? "the kernel, or the network device, refused to copy them (is the whole buffer "
			                                "readable, and that of the receiver writable?)"
			                              : reason.c_str());
			break;
		}
		reporter_.fail(r.status, "%s %zu bytes %s %s, tag %#llx: rank %d: %s", r.is_send ? "sending" : "receiving",
		               r.is_send ? r.length : r.capacity(), r.is_send ? "to" : "from",
		               source_text(r.is_send ? r.peer : r.source).c_str(), tag, r.peer, reason.c_str());
	}
}

// Sends, and what is detached and under way: receives of those, too, once a message has matched.
bool Engine::pending() const
{
	if (!busy_.empty() || first_finished_ || (extension_ && extension_->pending()))
		return true;
	bool pending = false;
	requests_.for_each([&](const Request &r) {
		pending |= (r.is_send || r.is_detached()) && r.state == Request::State::moving;
	});
	return pending;
}

std::string Engine::unfinished() const
{
	size_t sends = 0, receives = 0, one_sided = 0, collected = 0, failed = 0;
	std::string first;
	bool first_is_done = false;
	requests_.for_each([&](const Request &r) {
		if (!r.active())
			return;
		const bool well = r.done() && r.status == PT2P_OK;
		++(well ? collected : r.done() ? failed : r.is_send ? sends : r.is_one_sided() ? one_sided : receives);
		// What is amiss comes before what has only not been waited for.
		if (first.empty() || (first_is_done && !well)) {
			first = request_text(r, loss_of(r));
			first_is_done = well;
		}
	});
	size_t probed = 0;
	messages_.for_each([&](const UnexpectedMessage &m) {
		if (m.taken && probed++ == 0 && first.empty())
			first = taken_text(m);
	});
	// Operations without a request show up there only.
	if (first.empty() && extension_ && extension_->pending())
		first = extension_->pending_text();
	if (first.empty())
		return {};
	const size_t open = sends + receives + one_sided;
	std::string text;
	if (open)
		text = list_text({{sends, "send"}, {receives, "receive"}, {one_sided, "one-sided operation"}}) +
		       (open == 1 ? " has" : " have") + " not completed; ";
	if (failed + collected)
		text += list_text({{failed, "failed request"}, {collected, "completed request"}}) +
		        (failed + collected == 1 ? " was" : " were") + " not waited for; ";
	if (probed)
		text += counted(probed, "message") + " of pt2p_mprobe" + (probed == 1 ? " was" : " were") + " not received; ";
	return text + "first: " + first;
}

std::string Engine::loss_of(const Request &r) const
{
	const auto loss = losses_.find(r.peer);
	return r.done() && loss != losses_.end() ? loss->second.reason : "";
}

pt2p_peer_state_t Engine::peer_state(int rank) const
{
	const auto loss = losses_.find(rank);
	if (loss != losses_.end())
		return loss->second.status == PT2P_ERR_PEER_FINALIZED ? PT2P_PEER_FINALIZED : PT2P_PEER_LOST;
	return router_->find(rank) ? PT2P_PEER_ALIVE : PT2P_PEER_UNKNOWN;
}

void Engine::dump(const char *reason)
{
	std::string text = format("libpt2p: rank %d of %d on %s: %s\n", rank_, size_, reporter_.host().c_str(), reason);
	size_t lines = 0, more = 0;
	const auto add = [&](const std::string &line) {
		if (++lines <= most_lines)
			text += "  " + line + "\n";
		else
			++more;
	};
	bool waits_in_send = false, receives = false, unreceived = false;
	requests_.for_each([&](const Request &r) {
		if (!r.active() || r.done() || r.state == Request::State::finished)
			return;
		add(request_text(r, {}));
		waits_in_send |= r.is_send && r.awaits_answer;
		receives |= r.state == Request::State::posted;
	});
	const size_t requests = lines;
	if (extension_)
		text += extension_->pending_text();
	lines = 0;
	matcher_.for_each_unexpected([&](const UnexpectedMessage &m) {
		unreceived |= m.announced;
		add(format("unexpected: %s%zu bytes from rank %d, tag %#llx", m.announced ? "announced, " : "", m.length, m.source,
		           static_cast<unsigned long long>(m.tag)));
	});
	messages_.for_each([&](const UnexpectedMessage &m) {
		if (m.taken)
			add(taken_text(m));
	});
	for (int rank = 0; rank < size_; ++rank)
		if (const Channel *c = router_->find(rank); c && c->waiting())
			add(format("%s to rank %d, waiting for room in %s", counted(c->waiting(), "message").c_str(), rank,
			           c->endpoint.table->name));
	for (const auto &t : router_->transports())
		for (int rank = 0; rank < size_; ++rank)
			if (const std::string trouble = t->trouble(rank); !trouble.empty())
				add(format("rank %d by %s: %s", rank, t->table().name, trouble.c_str()));
	for (const auto &[rank, loss] : losses_)
		add(format("rank %d is gone: %s", rank, loss.reason.c_str()));
	if (more)
		text += format("  ... and %zu more\n", more);
	if (waits_in_send && !receives && unreceived)
		text += advice_on_sends;
	if (!requests)
		text += format("  no request is pending (barrier %llu)\n", static_cast<unsigned long long>(barrier_epoch_));
	text += channels_through_devices();
	write_to_stderr(text);
}

std::string Engine::summary() const
{
	std::string text = format("libpt2p %s: rank %d of %d on %s, %s on this node, job %s\n", pt2p_version(), rank_, size_,
	                          reporter_.host().c_str(), counted(static_cast<uint64_t>(job_.local_size()), "rank").c_str(),
	                          job_.kind());
	for (const auto &t : router_->transports()) {
		std::string peers, why;
		size_t count = 0;
		for (int rank = 0; rank < size_; ++rank) {
			const Channel *c = router_->find(rank);
			if (!c || router_->transport_of(c->endpoint) != t.get())
				continue;
			if (++count <= most_lines)
				peers += format("%s%d (%s)", peers.empty() ? "" : ", ", rank, t->describe(rank).c_str());
			if (count == 1)
				why = router_->why(rank);
		}
		if (count > most_lines)
			peers += format(" and %zu more", count - most_lines);
		text += format("  %s: %s\n", t->table().name, count ? ((count == 1 ? "rank " : "ranks ") + peers).c_str() : "usable, not used");
		if (!why.empty())
			text += format("    because: %s\n", why.c_str());
	}
	for (const auto &t : router_->transports())
		if (const Transport::Memory m = t->memory_per_peer(); m.talking)
			text += format("  memory for each rank of this node in %s: silent %zu bytes, talked with %zu bytes\n", t->table().name,
			               m.silent + Router::bytes_per_silent_peer, m.talking + sizeof(Channel));
	if (extension_)
		text += extension_->pending_text();
	for (const std::string &reason : router_->not_open())
		text += format("  %s\n", (reason.substr(0, reason.find(':')) + ": not used" + reason.substr(reason.find(':'))).c_str());
	for (size_t i = 0; i < static_cast<size_t>(Counter::count); ++i) {
		const auto counter = static_cast<Counter>(i);
		if (reporter_.read(counter))
			text += format("  %-24s %llu\n", counter_info(counter).name,
			               static_cast<unsigned long long>(reporter_.read(counter)));
	}
	return text;
}

// Numbers are known of channels through a device. Elsewhere the processors copy, and there is no queue to be long.
std::string Engine::channels_through_devices() const
{
	struct Busy {
		int rank;
		const char *transport;
		tune::ChannelFacts facts;
	};
	std::vector<Busy> all;
	for (const auto &t : router_->transports())
		for (int rank = 0; rank < size_; ++rank) {
			Busy b{rank, t->table().name, {}};
			if (!t->facts(rank, b.facts) || !b.facts.busy())
				continue;
			if (const Channel *c = router_->find(rank); c && router_->transport_of(c->endpoint) == t.get())
				b.facts.waiting = c->waiting();
			all.push_back(std::move(b));
		}
	std::stable_sort(all.begin(), all.end(),
	                 [](const Busy &a, const Busy &b) { return a.facts.messages() > b.facts.messages(); });
	std::string text;
	for (const Busy &b : std::span(all).first(std::min(all.size(), most_lines)))
		text += format("rank %d to %d by %s\n", rank_, b.rank, b.transport) + tune::describe(b.facts);
	if (all.size() > most_lines)
		text += format("... and %s with less\n", counted(all.size() - most_lines, "channel").c_str());
	return text;
}

std::string Engine::report() const
{
	std::string text = format("libpt2p: rank %d of %d on %s: its channels, see pt2p_tpl(7)\n", rank_, size_,
	                          reporter_.host().c_str());
	std::string others;
	size_t count = 0;
	for (int rank = 0; rank < size_; ++rank) {
		const Channel *c = router_->find(rank);
		tune::ChannelFacts facts;
		if (!c)
			continue;
		Transport *t = router_->transport_of(c->endpoint);
		if (t && t->facts(rank, facts))
			continue;
		if (++count <= most_lines)
			others += format("%s%d (%s, %s%s)", others.empty() ? "" : ", ", rank, c->endpoint.table->name,
			                 t ? t->describe(rank).c_str() : "",
			                 c->waiting() ? format(", %s waiting for room", counted(c->waiting(), "message").c_str()).c_str() : "");
	}
	if (count > most_lines)
		others += format(" and %zu more", count - most_lines);
	text += channels_through_devices();
	return others.empty() ? text : text + "without a device, or through other ranks: " + others + "\n";
}

} // namespace pt2p
