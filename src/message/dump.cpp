// What the engine tells people: why a request failed, what is being waited for, and the summary.
#include <algorithm>
#include <span>
#include <unistd.h>
#include <vector>

#include "job/job.hpp"
#include "message/engine.hpp"
#include "tune/report.hpp"

namespace pt2p {

namespace {

constexpr size_t most_lines = 16; // of a dump, for each kind of thing

std::string source_text(int source) { return source == PT2P_ANY_SOURCE ? "any source" : format("rank %d", source); }

std::string request_text(const Request &r)
{
	if (r.is_one_sided())
		return format("%s of %zu bytes at offset %llu of memory of rank %d%s", r.operation, r.length,
		              static_cast<unsigned long long>(r.tag), r.peer, r.done() ? ", done but not waited for" : "");
	const bool posted = r.state == Request::State::posted;
	if (r.is_send)
		return format("send of %zu bytes to rank %d, tag %#llx%s", r.length, r.peer,
		              static_cast<unsigned long long>(r.message_tag), r.done() ? ", done but not waited for" : "");
	return format("receive of up to %zu bytes from %s, tag %#llx mask %#llx%s", r.capacity,
	              source_text(posted ? r.source : r.peer).c_str(), static_cast<unsigned long long>(r.tag),
	              static_cast<unsigned long long>(r.mask),
	              r.done()   ? ", done but not waited for"
	              : posted   ? ", no message has matched it"
	                         : format(", %zu of %zu bytes are here", r.received, r.expected()).c_str());
}

} // namespace

void Engine::explain(const Request &r)
{
	const auto tag = static_cast<unsigned long long>(r.message_tag);
	const auto loss = losses_.find(r.peer);
	if (r.is_one_sided()) {
		reporter_.fail(r.status, "%s of %zu bytes at offset %llu of memory of rank %d%s%s", r.operation, r.length,
		               static_cast<unsigned long long>(r.tag), r.peer, loss != losses_.end() ? ": " : "",
		               loss != losses_.end()             ? loss->second.reason.c_str()
		               : r.status == PT2P_ERR_PEER_LOST ? ": its process ended during the transfer"
		                                                 : "");
		return;
	}
	switch (r.status) {
	case PT2P_ERR_TRUNCATED:
		reporter_.fail(r.status, "the message from rank %d with tag %#llx has %zu bytes, the buffer %zu", r.peer, tag,
		               r.length, r.capacity);
		break;
	case PT2P_ERR_CANCELLED:
		reporter_.fail(r.status, "receive from %s, tag %#llx", source_text(r.source).c_str(), tag);
		break;
	default:
		if (const auto why = unreached_.find(r.peer); why != unreached_.end() && loss == losses_.end()) {
			reporter_.fail(r.status, "a message with tag %#llx cannot be fetched for now, receive it again: rank %d: %s", tag,
			               r.peer, why->second.c_str());
			break;
		}
		if (r.status == PT2P_ERR_SYSTEM && loss == losses_.end()) {
			reporter_.fail(r.status, "%s %zu bytes %s rank %d, tag %#llx: the kernel, or the network device, refused to copy "
			               "them (is the whole buffer readable and writable?)", r.is_send ? "sending" : "receiving",
			               r.length, r.is_send ? "to" : "from", r.peer, tag);
			break;
		}
		reporter_.fail(r.status, "%s %zu bytes %s %s, tag %#llx: rank %d: %s", r.is_send ? "sending" : "receiving",
		               r.is_send ? r.length : r.capacity, r.is_send ? "to" : "from",
		               source_text(r.is_send ? r.peer : r.source).c_str(), tag, r.peer,
		               loss != losses_.end() ? loss->second.reason.c_str() : "its process ended during the transfer");
	}
}

bool Engine::sends_pending() const
{
	if (!busy_.empty() || (extension_ && extension_->pending()))
		return true;
	bool pending = false;
	requests_.for_each([&](const Request &r) { pending |= r.is_send && r.state == Request::State::moving; });
	return pending;
}

std::string Engine::unfinished() const
{
	size_t sends = 0, receives = 0, one_sided = 0, collected = 0;
	std::string first;
	requests_.for_each([&](const Request &r) {
		if (!r.active())
			return;
		++(r.done() ? collected : r.is_send ? sends : r.is_one_sided() ? one_sided : receives);
		if (first.empty())
			first = request_text(r);
	});
	// Operations without a request show up there only.
	if (first.empty() && extension_ && extension_->pending())
		first = extension_->pending_text();
	if (first.empty())
		return {};
	return format("%zu sends and %zu receives have not completed, %zu completed requests were not waited for%s; first: %s",
	              sends, receives, collected,
	              one_sided ? format(", %zu one-sided operations have not completed", one_sided).c_str() : "", first.c_str());
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
	requests_.for_each([&](const Request &r) {
		if (r.active() && !r.done())
			add(request_text(r));
	});
	const size_t requests = lines;
	if (extension_)
		text += extension_->pending_text();
	lines = 0;
	matcher_.for_each_unexpected([&](const UnexpectedMessage &m) {
		add(format("unexpected: %s%zu bytes from rank %d, tag %#llx", m.announced ? "announced, " : "", m.length, m.source,
		           static_cast<unsigned long long>(m.tag)));
	});
	for (int rank = 0; rank < size_; ++rank)
		if (const Channel *c = router_->find(rank); c && c->waiting())
			add(format("%zu messages to rank %d wait for room in %s", c->waiting(), rank, c->endpoint.table->name));
	for (const auto &t : router_->transports())
		for (int rank = 0; rank < size_; ++rank)
			if (const std::string trouble = t->trouble(rank); !trouble.empty())
				add(format("rank %d by %s: %s", rank, t->table().name, trouble.c_str()));
	for (const auto &[rank, loss] : losses_)
		add(format("rank %d is gone: %s", rank, loss.reason.c_str()));
	if (more)
		text += format("  ... and %zu more\n", more);
	if (!requests)
		text += format("  no request is pending (barrier %llu)\n", static_cast<unsigned long long>(barrier_epoch_));
	text += channels_through_devices();
	// One write: the lines of different ranks stay apart.
	const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
	(void)written;
}

std::string Engine::summary() const
{
	std::string text = format("libpt2p %s: rank %d of %d on %s, %d ranks on this node, job %s\n", pt2p_version(), rank_,
	                          size_, reporter_.host().c_str(), job_.local_size(), job_.kind());
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
		text += format("  %s: %s\n", t->table().name, count ? ("ranks " + peers).c_str() : "usable, not used");
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
		text += format("... and %zu channels with less\n", all.size() - most_lines);
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
			                 c->waiting() ? format(", %zu messages wait for room", c->waiting()).c_str() : "");
	}
	if (count > most_lines)
		others += format(" and %zu more", count - most_lines);
	text += channels_through_devices();
	return others.empty() ? text : text + "without a device, or through other ranks: " + others + "\n";
}

} // namespace pt2p
