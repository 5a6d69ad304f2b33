// What the callers of this rank could do better (laws/advice.hpp), by what is known while the job runs.
#include <algorithm>
#include <string_view>

#include "rpc/laws/advice.hpp"
#include "rpc/rpc.hpp"

namespace pt2p::rpc {

namespace {

using namespace laws;

// Who has called this rank, and whom it has called.
struct Partners {
	size_t callers = 0, by_dct = 0, by_rc = 0, called = 0, window = 1;
};

Partners partners_of(const Peers &peers)
{
	Partners p;
	peers.for_each([&](const Peer &peer) {
		p.called += !peer.slots.empty();
		const size_t slots = peer.served.empty() ? peer.served.capacity() : peer.served.size(); // empty: it has left
		if (!slots)
			return;
		++p.callers;
		p.window = std::max(p.window, slots);
		const std::string_view by = peer.channel ? peer.channel->endpoint.table->name : "";
		p.by_rc += by == "rc";
		p.by_dct += by == "dct";
	});
	return p;
}

std::string line_of(const Advice &a, const char *now, const std::string &settings)
{
	return format("    %s, by estimate %.2f M/s%s: %s%s\n", text_of(a.way).c_str(), a.rate / 1e6, now, a.reason.c_str(),
	              settings.c_str());
}

} // namespace

std::string Rpc::advice(uint32_t device_part, size_t local_ranks) const
{
	const DeviceClass *device = class_of_part(device_part);
	const Services::Sample &sample = services_.sample();
	const Partners p = partners_of(peers_);
	if (!device || !sample.calls || 2 * (p.by_rc + p.by_dct) <= p.callers)
		return {};
	CallLoad load;
	load.nodes = static_cast<uint32_t>(p.callers);
	load.window = static_cast<uint32_t>(p.window);
	load.input = sample.input / sample.calls;
	load.reply = sample.reply / sample.calls;
	load.server_qps = static_cast<uint32_t>(p.callers * local_ranks);
	if (wrong_load(load))
		return {};
	const TransportKind transport = p.by_dct > p.by_rc ? TransportKind::dct : TransportKind::rc;
	const CallWay now{.transport = transport,
	                  .reply = services_.leaves_results()              ? Delivery::read
	                           : 2 * sample.by_datagram > sample.calls ? Delivery::datagram
	                                                                   : Delivery::send};
	// A READ needs a program that knows where the bytes lie.
	const std::vector<Advice> all = advise(load, *device);
	const auto best = std::find_if(all.begin(), all.end(), [](const Advice &a) { return !a.way.get; });
	const auto current = std::find_if(all.begin(), all.end(), [&](const Advice &a) { return a.way == now; });
	std::string text = format(
	    "  advice: %s this rank by %s, up to %zu at a time each, and it calls %zu; input %zu bytes, reply %zu "
	    "bytes; devices as %s\n",
	    (counted(p.callers, "rank") + (p.callers == 1 ? " calls" : " call")).c_str(),
	    transport == TransportKind::dct ? "dct" : "rc", p.window, p.called, load.input, load.reply, device->name);
	if (best == all.end() || current == all.end())
		return text;
	if (best->way == now)
		return text + line_of(*best, ", as now", "");
	return text + line_of(*best, "", "; " + settings_of(best->way, load)) + line_of(*current, ", now", "");
}

} // namespace pt2p::rpc
