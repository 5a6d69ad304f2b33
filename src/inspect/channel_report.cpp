#include "inspect/channel_report.hpp"

#include <algorithm>

#include "base/report/report.hpp"

namespace pt2p {

using namespace tune;

namespace {

// The band of L/N, 1.8 to 2.5, is the paper's (section 4.1). The paper gives no figures for the following; they are
// libpt2p's.
constexpr double few_for_a_target =
    4; // work requests between two changes of target, which cost parallelism (section 4.2)
constexpr double few_of_depth = 0.75;   // with fewer work requests in flight, the depth does not limit them
constexpr double many_refused = 0.1;    // of the messages that device memory is for
constexpr double mostly = 0.5;          // of the messages
constexpr uint64_t long_payload = 4096; // bytes on average: moving them takes longer than everything else
constexpr uint32_t one_by_one = 2;      // in flight at most
constexpr double hardly_batched = 1.5;  // work requests per doorbell, messages per work request
constexpr double full_link = 0.8;       // of PCIe; not all of what it moves is counted

unsigned long long number(uint64_t n) { return n; }
double quotient(uint64_t a, uint64_t b) { return b ? static_cast<double>(a) / static_cast<double>(b) : 0; }

size_t busiest(const ChannelFacts &f)
{
	const auto less = [](const KindFacts &a, const KindFacts &b) { return a.messages < b.messages; };
	return static_cast<size_t>(std::max_element(f.kinds.begin(), f.kinds.end(), less) - f.kinds.begin());
}

std::string limited_by_load_balance(const ChannelFacts &f, const KindFacts &k, const char *name)
{
	const std::string text = format("load balance: the device falls behind: L/N of %s payload is %.2f, above %.3g. ",
	                                name, k.ratio, f.band.cut_above * k.scale);
	if (f.mode == Mode::on)
		return text + "The window is being cut.";
	return text + (k.period > 1 ? "The signal period is being cut; " : "The signal period cannot be shorter; ") +
	       "PT2P_TUNE=on, a smaller PT2P_NET_SEND_DEPTH or fewer ranks on the device let less work accumulate.";
}

std::string limited_by_device_memory(const ChannelFacts &f)
{
	return format(
	    "transmission efficiency: %s found device memory full, so the device reads them from host memory. A larger "
	    "PT2P_NET_DEVICE_MEMORY has room for more.",
	    counted(f.device_memory_full, "message").c_str());
}

std::string limited_by_host_memory(const ChannelFacts &f, double share, uint64_t bytes)
{
	const std::string text =
	    format("transmission efficiency: the device reads %.0f %% of the messages from host memory, %llu bytes "
	           "each. ",
	           100 * share, number(bytes));
	return text +
	       (f.device_memory_max
	            ? format("They are longer than PT2P_NET_DEVICE_MEMORY_MAX, %zu bytes; with 0, libpt2p measures up to "
	                     "which "
	                     "length device memory pays.",
	                     f.device_memory_max)
	            : "No device memory is used: PT2P_NET_DEVICE_MEMORY and PT2P_NET_STAGING, if the device has any.");
}

// Messages that the tuner has staged in host memory although device memory has room.
const ChannelFacts::StagingFacts *chosen_for_host(const ChannelFacts &f, uint64_t bytes)
{
	const auto holds = [&](const ChannelFacts::StagingFacts &s) { return bytes <= s.max; };
	const auto found = std::find_if(f.stagings.begin(), f.stagings.end(), holds);
	const bool chosen = bytes <= f.device_memory_max && found != f.stagings.end() && found->chosen == Staging::buffer;
	return chosen ? &*found : nullptr;
}

std::string describe(const ChannelFacts::StagingFacts &s)
{
	const char *names[] = {"by device memory", "from host memory"};
	const double ns[] = {s.device_ns, s.host_ns};
	const uint64_t messages[] = {s.by_device, s.from_host};
	const auto chosen = static_cast<size_t>(s.chosen), other = 1 - chosen;
	const auto time = [&](size_t i) { return ns[i] > 0 ? format("%.0f ns", ns[i]) : std::string("not seen yet"); };
	return format("     up to %zu bytes %s: %s, %s %s; used for %.1f %% of %s; chosen anew %s\n", s.max, names[chosen],
	              time(chosen).c_str(), names[other], time(other).c_str(),
	              100 * quotient(messages[chosen], s.by_device + s.from_host),
	              counted(s.by_device + s.from_host, "message").c_str(), counted(s.changes, "time").c_str());
}

// Over how many queue pairs large data is striped, and why.
std::string describe(const Striping &s, double rate)
{
	std::string text = format("large data over %u queue pair%s", s.in_use(), s.in_use() == 1 ? "" : "s");
	if (s.pinned())
		return text + format(", PT2P_NET_QUEUE_PAIRS is %u", s.queue_pairs());
	const Climber &c = s.climber();
	if (!c.trials())
		return text + ": too little of it in flight at a time to try others";
	return text + format("%s; %s of other numbers, of which %llu better; %.2f GB/s", c.trying() ? ", on trial" : "",
	                     counted(c.trials(), "trial").c_str(), number(c.changes()), rate * 1e-9);
}

// The cases below answer an empty text when something else limits the channel.

std::string limited_by_pcie(const PcieFacts &p)
{
	if (p.use() < full_link)
		return {};
	return format(
	    "transmission efficiency (PCIe): this rank uses some %.0f %% of what the device's link moves%s. Fewer "
	    "bytes for a message, more messages in a work request (PT2P_NET_BATCHING=bundles) or another device "
	    "(PT2P_NET_DEVICE=each) help.",
	    100 * p.use() / p.sharers, p.sharers > 1 ? format(", and %d ranks share it", p.sharers).c_str() : "");
}

// Load balance comes first: where it is bad, the other two get worse by it, and improving them does not help (section
// 4.1).
std::string limited_by_queues(const ChannelFacts &f, const KindFacts &k, const char *name, bool seen)
{
	if (seen && k.ratio > f.band.cut_above * k.scale)
		return limited_by_load_balance(f, k, name);
	if (f.waiting && f.in_flight >= f.depth)
		return format("parallelism: %s waiting for room, %u of %u work requests in flight. A larger "
		              "PT2P_NET_SEND_DEPTH lets more "
		              "be in flight.",
		              counted(f.waiting, "message").c_str(), f.in_flight, f.depth);
	if (f.shared && f.switches && quotient(f.work_requests, f.switches) < few_for_a_target)
		return format(
		    "parallelism: queue pairs change to another rank after %.1f work requests on average, and wait each "
		    "time. More PT2P_DCT_INITIATORS or PT2P_ROUTE=forward help.",
		    quotient(f.work_requests, f.switches));
	return {};
}

// Datagrams complete when the device has sent them, so L/N would say nothing of the peer.
std::string limited_without_answers(const ChannelFacts &f)
{
	if (f.max_in_flight >= f.depth)
		return format(
		    "parallelism: a queue pair for datagrams was full at times, with %u work requests in flight: the "
		    "processor posts faster than the device sends. More PT2P_UD_QUEUES let more units of the device send.",
		    f.depth);
	return format("the program: the device sends datagrams as quickly as they are posted, and never more than %u of %u "
	              "work requests were in flight in a queue pair.",
	              f.max_in_flight, f.depth);
}

std::string limited_by_payload(const ChannelFacts &f, const KindFacts &k, bool bulk)
{
	// Messages that share work requests are put together in host memory.
	if (!bulk && f.bundled >= hardly_batched)
		return {};
	const KindFacts &host = f.kind(SizeClass::buffer), &device = f.kind(SizeClass::device_memory);
	if (quotient(f.device_memory_full, f.device_memory_full + device.messages) > many_refused)
		return limited_by_device_memory(f);
	const double share = quotient(host.messages, f.messages());
	const uint64_t bytes = host.messages ? host.bytes / host.messages : 0;
	if (const auto *chosen = chosen_for_host(f, bytes); chosen && share > mostly)
		return format(
		    "nothing here: messages of %llu bytes take %.0f ns from host memory and %.0f ns by device memory. "
		    "PT2P_NET_STAGING=device stages them in device memory all the same.",
		    number(bytes), chosen->host_ns, chosen->device_ns);
	if (share > mostly && bytes <= long_payload)
		return limited_by_host_memory(f, share, bytes);
	if (share > mostly || bulk)
		return format(
		    "nothing here: payload of %llu bytes on average is so long that memory and wire determine the time.",
		    number(quotient(k.bytes, k.messages)));
	return {};
}

// The device has time left.
std::string limited_from_above(const ChannelFacts &f, const KindFacts &k, const char *name)
{
	const double below = f.band.raise_below * k.scale;
	if (f.mode == Mode::on && f.max_in_flight < few_of_depth * f.depth)
		return format(
		    "the program: the device has time left: L/N of %s payload is %.2f, below %.3g, and never more than %u of "
		    "%u work requests were in flight. The program should start more sends before it waits for one.",
		    name, k.ratio, below, f.max_in_flight, f.depth);
	if (f.max_in_flight >= f.depth)
		return format(
		    "parallelism: the device has time left: L/N of %s payload is %.2f, below %.3g. PT2P_NET_SEND_DEPTH, %u "
		    "here, limits the work requests in flight.",
		    name, k.ratio, below, f.depth);
	return format("load balance: the device has time left: L/N of %s payload is %.2f, below %.3g. %s grows as long as "
	              "that is so.",
	              name, k.ratio, below,
	              f.mode == Mode::on ? "The window" : format("The signal period of %u", k.period).c_str());
}

std::string describe_transmission(const ChannelFacts &f)
{
	const KindFacts &inlined = f.kind(SizeClass::inlined), &device = f.kind(SizeClass::device_memory),
	                &host = f.kind(SizeClass::buffer), &bulk = f.kind(SizeClass::bulk);
	const uint64_t messages = f.messages();
	const auto percent = [&](const KindFacts &k) { return 100 * quotient(k.messages, messages); };
	std::string text = format("  T  %s: %.1f %% inline, %.1f %% by device memory, %.1f %% from host memory",
	                          counted(messages, "message").c_str(), percent(f.kind(SizeClass::inlined)),
	                          percent(device), percent(host));
	if (f.bundled >= 1.05)
		text += format("; %.1f messages share a work request", f.bundled);
	if (bulk.messages)
		text +=
		    format("; %s of large transfers, %llu bytes", counted(bulk.messages, "part").c_str(), number(bulk.bytes));
	text += f.entry_bytes > 0 ? format("\n     a WQE has %.1f bytes; the device reads %.1f of them", f.entry_bytes,
	                                   f.entry_bytes * f.fetched)
	                          : "\n     how long WQEs are is not known";
	const uint64_t all = messages + bulk.messages;
	text += format(" and %.1f of payload by DMA; %.1f are inline\n", quotient(host.bytes + f.bulk_read_bytes, all),
	               quotient(inlined.bytes, all));
	for (const ChannelFacts::StagingFacts &s : f.stagings)
		text += describe(s);
	if (const PcieFacts &p = f.pcie; p.link > 0)
		text += format(
		    "     PCIe: some %.2f GB/s to the device and %.2f from it since the last report, of %.1f each way for %s\n",
		    p.to_device * 1e-9, p.from_device * 1e-9, p.link * 1e-9,
		    counted(static_cast<uint64_t>(p.sharers), "rank").c_str());
	return text;
}

std::string describe_parallelism(const ChannelFacts &f)
{
	std::string text = format("  P  %s in flight, at most %u of %u in %s; %.1f per doorbell",
	                          counted(f.in_flight, "work request").c_str(), f.max_in_flight, f.depth,
	                          f.shared ? format("each of %u queue pairs for all ranks", f.queue_pairs).c_str()
	                          : f.queue_pairs > 1 ? format("each of %u queue pairs", f.queue_pairs).c_str()
	                                              : "its queue pair",
	                          quotient(f.work_requests, f.doorbells));
	if (f.batch_tuned)
		text += format(", now up to %u (%s, %llu others tried, %llu taken)", f.batch,
		               f.batch_rate > 0 ? format("%.0f a second", f.batch_rate).c_str() : "rate not seen yet",
		               number(f.batch_trials), number(f.batch_changes));
	if (f.shared && f.acknowledged)
		text += "; " + counted(f.switches, "change") + " of target";
	text += f.waiting ? "; " + counted(f.waiting, "message") + " waiting for room\n" : "\n";
	if (f.striping)
		text += "     " + describe(*f.striping, f.striping_rate) + "\n";
	return text;
}

std::string describe_load_balance(const ChannelFacts &f)
{
	std::string tuned;
	for (size_t i = 0; i < size_classes; ++i) {
		const KindFacts &k = f.kinds[i];
		if (!k.normal_ns)
			continue;
		tuned += format("  %s  %s: N %.0f ns, %s; signal period %u, %s, %s", tuned.empty() ? "L" : " ",
		                size_class_names[i], k.normal_ns,
		                k.ratio > 0 ? format("L %.0f ns, L/N %.2f", k.ratio * k.normal_ns, k.ratio).c_str()
		                            : "L not seen yet",
		                k.period, counted(k.raises, "raise").c_str(), counted(k.cuts, "cut").c_str());
		for (const KindFacts::Change &c : k.changes)
			tuned += format("%s %u (%.1f ms, L/N %.2f)", &c == &k.changes.front() ? "; it became" : ",", c.period, c.ms,
			                c.ratio);
		tuned += "\n";
	}
	if (!f.acknowledged)
		tuned = format("  L  not measured: nobody acknowledges datagrams; signal period %u\n", f.fixed_period);
	else if (f.mode == Mode::off)
		tuned = format("  L  not measured; signal period %u\n", f.fixed_period);
	else if (tuned.empty())
		tuned = "  L  not seen yet\n";
	return tuned;
}

} // namespace

uint64_t ChannelFacts::messages() const
{
	return kind(SizeClass::inlined).messages + kind(SizeClass::device_memory).messages +
	       kind(SizeClass::buffer).messages;
}

std::string what_limits(const ChannelFacts &f)
{
	if (!f.busy())
		return "nothing: nothing has been sent.";
	const size_t most = busiest(f);
	const KindFacts &k = f.kinds[most];
	const char *name = size_class_names[most];
	const bool seen = f.mode != Mode::off && k.ratio > 0;
	if (std::string text = limited_by_pcie(f.pcie); !text.empty())
		return text;
	if (std::string text = limited_by_queues(f, k, name, seen); !text.empty())
		return text;
	if (std::string text = limited_by_payload(f, k, most == static_cast<size_t>(SizeClass::bulk)); !text.empty())
		return text;
	if (f.max_in_flight <= one_by_one)
		return format(
		    "the program: never more than %u work requests were in flight, so nothing overlaps. The program should "
		    "start several sends before it waits for one.",
		    f.max_in_flight);
	if (!f.acknowledged)
		return limited_without_answers(f);
	if (f.mode == Mode::off)
		return format(
		    "not known: load balance is not measured, the signal period is always %u. PT2P_TUNE=on measures it.",
		    f.fixed_period);
	if (!seen)
		return "not known yet: too few messages for the tuner.";
	if (k.ratio < f.band.raise_below * k.scale)
		return limited_from_above(f, k, name);
	if (!f.batch_tuned && quotient(f.work_requests, f.doorbells) < hardly_batched)
		return format("parallelism: processor and device keep up with each other, L/N of %s payload is %.2f, but each "
		              "work request "
		              "has a doorbell of its own. PT2P_NET_DOORBELL_BATCH saves doorbells and delays messages.",
		              name, k.ratio);
	return format("nothing: processor and device keep up with each other, L/N of %s payload is %.2f.", name, k.ratio);
}

std::string describe(const ChannelFacts &f)
{
	return describe_transmission(f) + describe_parallelism(f) + describe_load_balance(f) +
	       "  limit: " + what_limits(f) + "\n";
}

} // namespace pt2p
