// Texts about requests: why one has failed, what state it is in, and what is left at the end.
#include "message/request/explain.hpp"

#include <initializer_list>
#include <utility>
#include <vector>

#include "message/request/requests.hpp"

namespace pt2p {

namespace {

std::string source_text(int source) { return source == PT2P_ANY_SOURCE ? "any source" : format("rank %d", source); }

// How a request has ended; empty while it has not.
std::string end_text(const Request &r, const std::string &loss)
{
	if (!r.done())
		return !r.is_detached()                                             ? ""
		       : (r.special & Request::with_details) && r.details->callback ? ", with a callback"
		                                                                    : ", given up";
	if (r.status == PT2P_OK)
		return ", done but not waited for";
	return format(", failed (%s%s%s) and not waited for", pt2p_strerror(r.status), loss.empty() ? "" : ": ",
	              loss.c_str());
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

// "put of 8 bytes at offset 0 of memory of rank 3", or "call of service 7 of rank 3".
std::string operation_text(const Request &r)
{
	const auto tag = static_cast<unsigned long long>(r.tag);
	return r.is_call()
	           ? format("%s of service %llu of rank %d", r.operation, tag, r.peer)
	           : format("%s of %zu bytes at offset %llu of memory of rank %d", r.operation, r.length, tag, r.peer);
}

} // namespace

std::string request_text(const Request &r, const std::string &loss)
{
	const std::string end = end_text(r, loss);
	if (r.is_one_sided() || r.is_call())
		return operation_text(r) + end;
	const bool posted = r.state == Request::State::posted;
	if (r.is_send)
		return format("send of %zu bytes to rank %d, tag %#llx%s%s", r.length, r.peer,
		              static_cast<unsigned long long>(r.message_tag), end.c_str(),
		              !r.done() && r.awaits_answer ? ", no receive there has matched it" : "");
	return format("receive of up to %zu bytes from %s, tag %#llx mask %#llx%s%s", r.capacity(),
	              source_text(posted ? r.source : r.peer).c_str(), static_cast<unsigned long long>(r.tag),
	              static_cast<unsigned long long>(r.mask), end.c_str(),
	              r.done() ? ""
	              : posted ? ", no message has matched it"
	                       : format(", %zu of %zu bytes are here", r.received, r.expected()).c_str());
}

std::string taken_text(const UnexpectedMessage &m)
{
	return format("message of %zu bytes from rank %d, tag %#llx, taken by pt2p_mprobe and not received", m.length,
	              m.source, static_cast<unsigned long long>(m.tag));
}

void Requests::explain(const Request &r)
{
	const auto tag = static_cast<unsigned long long>(r.message_tag);
	// The request may have failed by itself, before the rank left.
	const PeerLosses::Loss *loss = losses_.find(r.peer);
	const bool lost = loss && (r.status == loss->status || r.status == PT2P_ERR_PEER_LOST);
	std::string reason = take_reason(r);
	if (!reason.empty()) {
		// the transport knew it
	} else if (lost) {
		reason = loss->reason;
	} else if (r.status == PT2P_ERR_PEER_LOST) {
		reason = "its process ended during the transfer";
	} else if (const std::string *why = losses_.why_unreached(r.peer);
	           why && !r.is_send && !r.is_one_sided() && !r.is_call()) {
		reason = "this rank cannot answer now, receive the message again later: " + *why;
	}
	if (r.is_one_sided() || r.is_call()) {
		reporter_.fail(r.status, "%s%s%s", operation_text(r).c_str(), reason.empty() ? "" : ": ", reason.c_str());
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
			reporter_.fail(r.status, "%s %zu bytes %s rank %d, tag %#llx: %s", r.is_send ? "sending" : "receiving",
			               r.length, r.is_send ? "to" : "from", r.peer, tag,
			               reason.empty()
			                   ? "the kernel, or the network device, refused to copy them (is the whole buffer "
			                     "readable, and that of the receiver writable?)"
			                   : reason.c_str());
			break;
		}
		reporter_.fail(r.status, "%s %zu bytes %s %s, tag %#llx: rank %d: %s", r.is_send ? "sending" : "receiving",
		               r.is_send ? r.length : r.capacity(), r.is_send ? "to" : "from",
		               source_text(r.is_send ? r.peer : r.source).c_str(), tag, r.peer, reason.c_str());
	}
}

std::string unfinished_text(const Requests &requests, const HandlePool<UnexpectedMessage> &messages,
                            const PeerLosses &losses, const Extensions &extensions)
{
	size_t sends = 0, receives = 0, one_sided = 0, calls = 0, collected = 0, failed = 0;
	std::string first;
	bool first_is_done = false;
	requests.for_each([&](const Request &r) {
		if (!r.active())
			return;
		const bool well = r.done() && r.status == PT2P_OK;
		++(well               ? collected
		   : r.done()         ? failed
		   : r.is_send        ? sends
		   : r.is_one_sided() ? one_sided
		   : r.is_call()      ? calls
		                      : receives);
		// A request that failed or is pending comes before one that was only not waited for.
		if (first.empty() || (first_is_done && !well)) {
			const PeerLosses::Loss *loss = r.done() ? losses.find(r.peer) : nullptr;
			first = request_text(r, loss ? loss->reason : "");
			first_is_done = well;
		}
	});
	size_t probed = 0;
	messages.for_each([&](const UnexpectedMessage &m) {
		if (m.taken && probed++ == 0 && first.empty())
			first = taken_text(m);
	});
	// Operations without a request show up there only.
	for (const Extension *e : extensions)
		if (first.empty() && e->pending())
			first = e->pending_text();
	if (first.empty())
		return {};
	const size_t open = sends + receives + one_sided + calls;
	std::string text;
	if (open)
		text =
		    list_text({{sends, "send"}, {receives, "receive"}, {one_sided, "one-sided operation"}, {calls, "call"}}) +
		    (open == 1 ? " has" : " have") + " not completed; ";
	if (failed + collected)
		text += list_text({{failed, "failed request"}, {collected, "completed request"}}) +
		        (failed + collected == 1 ? " was" : " were") + " not waited for; ";
	if (probed)
		text += counted(probed, "message") + " of pt2p_mprobe" + (probed == 1 ? " was" : " were") + " not received; ";
	return text + "first: " + first;
}

} // namespace pt2p
