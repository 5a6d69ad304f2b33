#include "rpc/laws/advice.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/config/config.hpp"
#include "base/config/tunable.hpp"
#include "base/report/report.hpp"

namespace pt2p::rpc::laws {

namespace {

// The processor, ns, but for what posting costs. Sources as in device_class.hpp.
constexpr double completion = 20;     // UCX
constexpr double copied = 1 / 12.179; // a byte; UCX
// The library's own work, from the study of many callers of one server: 9.3 M/s where results are fetched, 6.2 M/s
// where replies are sent, 7.4 M/s where a ring brings calls (RESULTS.md, "Many callers" and "Sequencer").
constexpr double handled = 35;   // a message that has arrived, with its handler's dispatch
constexpr double arrival = 20;   // the first line of what the device has written
constexpr double stored = 45;    // a result left to be fetched: 7.4 M/s of a store that takes 50 ns ("HERD")
constexpr double repeated = 1.1; // READs of a result: some come too early ("HERD")
constexpr double fetched = 100;  // a result to fetch, at the caller: 3.0 M/s from 28 servers of one caller ("Advisor")
constexpr double turn_end = 150; // until a datagram leaves with others of its turn: 2.89 us instead of 2.65, 80 callers
// How many calls a turn of progress handles (Services).
constexpr double turn = 64;

// PCIe and wire, bytes and ns; K16.
constexpr double tlp = 26, completion_tlp = 22, completion_piece = 128, write_piece = 256, wqe = 64, cqe = 64;
constexpr double pcie_read = 400, pcie_write = 200, mmio = 200;
constexpr double header = 42, ack_bytes = 30, dc_header = 24, crossing = 150, mtu = 4096;
constexpr double route_header = 40;                   // that the device puts before a datagram
constexpr double context = 256, context_missed = 800; // DCTB: READ over 2240 queue pairs 20.1 M/s
constexpr double receives_read = 6;                   // receives that a read brings: UD RECV 82 M/s; K16
constexpr double stay = 64; // WRITEs and SENDs for a context that had to be read; USC's 28 Gb/s
// Of one queue pair in the device, as the library's window lets them (RESULTS.md,
// "Five protocols": no WQE is missed with 28 queue pairs, nearly all with 128, in a cache of 256).
constexpr double reads_at_once = 8, in_queue = 4;
constexpr double frame = 32; // the library's part of a message

double pieces(double bytes, double piece) { return std::max(1.0, std::ceil(bytes / piece)); }
// Of a cache that evicts at random.
double missed(double used, double places) { return used > places ? 1 - places / used : 0; }

constexpr size_t max_datagram = 4000; // of the MTU; the rest is for headers
constexpr unsigned rounds = 12;

// Bytes of a slot of the write rings that settings_of() asks for.
constexpr double slot_unit = 64;
double slot_of(const CallLoad &load)
{
	const double bytes = static_cast<double>(std::max(load.input, load.reply)) + 3 * frame;
	return std::max(std::ceil(bytes / slot_unit) * slot_unit, static_cast<double>(Config().net_ring_slot_bytes));
}

// The two ends of a request.
enum End { caller_end, server_end };

// What the requests of one device take of it, for each request.
struct DeviceUse {
	double sends = 0, serves = 0, in = 0, out = 0, wire_in = 0, wire_out = 0; // ns of units; bytes
};

// What an estimate takes from the one before.
struct Waiting {
	Limit at = Limit::latency; // where requests wait; at the units of a device, WQEs wait in its cache
	double serving = 0;        // part of the time that a server's processor works
	double to_one = 1;         // replies of a turn to one rank, whose next calls come together
};

class Estimate {
public:
	Estimate(const CallLoad &load, const DeviceClass &device, const CallWay &way, const Waiting &waiting = {})
	    : load_(load), device_(device), way_(way), wait_at_(waiting.at)
	{
		const bool all = load.shape == Shape::many_to_many;
		nodes_[caller_end] = load.shape == Shape::one_to_many ? 1 : load.nodes;
		nodes_[server_end] = load.shape == Shape::many_to_one ? 1 : load.nodes;
		ranks_[caller_end] = load.threads;
		ranks_[server_end] = load.shape == Shape::many_to_one
		                         ? std::min<double>(load.servers, static_cast<double>(load.nodes) * load.threads)
		                         : load.threads;
		pairs_ = static_cast<double>(load.threads) * load.nodes * (all ? load.nodes - 1 : 1);
		for (const End end : {caller_end, server_end}) {
			peers_[end] = pairs_ / (nodes_[end] * ranks_[end]);
			const uint32_t given = end == caller_end ? load.caller_qps : load.server_qps;
			qps_[end] = given ? given : pairs_ / nodes_[end] * (all ? 2 : 1);
			if (way.transport == TransportKind::dct)
				qps_[end] = std::min<double>(load.initiators, peers_[end]) * ranks_[end] * (all ? 2 : 1);
		}
		if (waiting.at != Limit::latency)
			fill_turn(waiting);
		way.get ? get() : call();
	}

	// The first resource that is used up, and how the rate bends below that.
	Advice advice() const
	{
		Limit limit = Limit::caller;
		double max_rate = 1e9; // requests a ns
		const auto at_most = [&](double rate, Limit by) {
			if (rate < max_rate)
				max_rate = rate, limit = by;
		};
		const double callers = nodes_[caller_end] * ranks_[caller_end],
		             servers = nodes_[server_end] * ranks_[server_end];
		at_most(callers / core_[caller_end], Limit::caller);
		if (core_[server_end] > 0)
			at_most(servers / core_[server_end], Limit::server);
		if (receiving_[caller_end] > 0)
			at_most(callers / receiving_[caller_end], Limit::receiving_unit);
		if (receiving_[server_end] > 0)
			at_most(servers / receiving_[server_end], Limit::receiving_unit);
		for (const End end : {caller_end, server_end})
			if (initiator_[end] > 0)
				at_most(nodes_[end] * ranks_[end] * load_.initiators / initiator_[end], Limit::initiators);
		for (const End end : {caller_end, server_end}) {
			DeviceUse use = use_[end];
			if (load_.shape == Shape::many_to_many) { // all devices do both
				const DeviceUse &other = use_[1 - end];
				use = {use.sends + other.sends, use.serves + other.serves,   use.in + other.in,
				       use.out + other.out,     use.wire_in + other.wire_in, use.wire_out + other.wire_out};
			}
			const Limit units = end == caller_end ? Limit::caller_units : Limit::server_units;
			if (device_.serve_units > 0) {
				at_most(nodes_[end] * device_.units / use.sends, units);
				at_most(nodes_[end] * device_.serve_units / use.serves, units);
			} else {
				const double busy = std::max(1.0, std::min(device_.units, qps_[end]));
				at_most(nodes_[end] * busy / (use.sends + use.serves), units);
			}
			at_most(nodes_[end] * device_.pcie / std::max(use.in, use.out), Limit::pcie);
			at_most(nodes_[end] * device_.wire / std::max(use.wire_in, use.wire_out), Limit::wire);
		}
		double by_latency = pairs_ * load_.window / latency_;
		// Where requests wait for each other, a READ comes a quarter of its time later than the result, or has to be
		// repeated.
		if (!way_.get && way_.reply == Delivery::read)
			by_latency = pairs_ * load_.window / (latency_ + std::min(1.0, by_latency / max_rate) * read_latency() / 4);
		if (by_latency < max_rate)
			limit = Limit::latency;
		// Near both limits requests wait for each other, now and then.
		constexpr double bend = 3;
		const double rate = std::pow(std::pow(max_rate, -bend) + std::pow(by_latency, -bend), -1 / bend);
		return {.way = way_, .rate = rate * 1e9, .limit = limit, .reason = {}};
	}

	double qps(End end) const { return qps_[end]; }
	double peers(End end) const { return peers_[end]; }
	bool switches() const { return initiator_[caller_end] > 0 || initiator_[server_end] > 0; }
	double core(End end) const { return core_[end]; }
	double latency() const { return latency_; }
	// At that rate, requests a second.
	Waiting waiting(Limit at, double rate) const
	{
		const double serving = rate * 1e-9 * core_[server_end] / (nodes_[server_end] * ranks_[server_end]);
		return {.at = at, .serving = std::min(serving, 1.0), .to_one = to_one_};
	}

private:
	// What a turn of a server finds. Of the calls under way, half wait for a server that always works, and as many as
	// in a queue with random arrivals for one that works for a part of the time; half of those that come together stay
	// so. A turn takes some at random, and its replies leave together: those to one rank with one doorbell, and as many
	// in a work request as there is room for.
	void fill_turn(const Waiting &before)
	{
		const double callers = peers_[server_end], under_way = callers * load_.window;
		const double serving = before.at == Limit::initiators ? 1 : before.serving, batch = (1 + before.to_one) / 2;
		const double queue = serving < 1 ? serving / (1 - serving) * batch : under_way;
		found_ = std::clamp(std::min(queue, under_way / 2), 1.0, turn);
		const double distinct = callers * (1 - std::pow(1 - 1 / callers, std::max(1.0, found_ / batch)));
		to_one_ = std::clamp<double>(found_ / distinct, 1, load_.window);
		const double room = way_.reply == Delivery::write      ? slot_of(load_)
		                    : way_.reply == Delivery::datagram ? static_cast<double>(max_datagram)
		                                                       : static_cast<double>(load_.message_bytes);
		const double fit = std::floor(room / (static_cast<double>(load_.reply) + frame));
		together_[server_end] = std::min(to_one_, std::max(1.0, fit));
	}
	// With the address of the target, a WQE has a WQEBB more.
	double wqe_bytes(bool datagram) const { return datagram || way_.transport == TransportKind::dct ? 2 * wqe : wqe; }
	double post() const { return device_.encoded + device_.doorbell; }
	double request() const { return device_.request + (way_.transport == TransportKind::dct ? device_.dc_request : 0); }
	double message_latency(double bytes) const
	{
		const double inlined = 200; // bytes that go with the WQE
		return post() + mmio + request() + 2 * device_.latency + crossing + bytes / device_.wire + device_.serve +
		       (bytes > inlined ? pcie_read : 0) + pcie_write + handled + arrival + completion + bytes * copied;
	}
	// Of one read from host memory while a unit waits.
	double read_while_busy(double bytes) const { return (pcie_read + bytes / device_.pcie) / device_.overlap; }

	// What a message needs of the requester's contexts and WQEs, of one device with so many queue pairs.
	double messages_caches(End end) const
	{
		const double waiting = std::max(1.0, load_.window / together_[end]); // of a queue pair
		const double miss = missed(qps_[end], device_.requesters), in_stay = std::min(stay, 1 + (waiting - 1) / 2);
		const double outstanding = pairs_ / nodes_[end] * std::min(waiting / 2, in_queue); // half of them wait here
		const bool waits = wait_at_ == (end == caller_end ? Limit::caller_units : Limit::server_units);
		const double wqe_miss = waits && outstanding > device_.wqe_cache ? 1 : 0; // it evicts the oldest: all or none
		return miss * read_while_busy(context) / in_stay +
		       wqe_miss * read_while_busy(wqe) *
		           (miss / in_stay + (1 - miss) / std::min(device_.wqe_burst, std::min(waiting, in_queue)) +
		            (device_.wqe_kept ? 1 : 0));
	}
	double gets_caches(End end) const
	{
		const double window = load_.window;
		const double posted = pairs_ / nodes_[end] * std::min(window, reads_at_once);
		const double queues = pairs_ / nodes_[end];
		const double misses = missed(qps_[end], device_.requesters) * (1 + 1 / window);
		// Units take the queue pairs in turn: with more of these than WQEs have places, none is there for the response.
		const double wqes =
		    (posted > device_.wqe_cache ? 1 : 0) + (std::min(queues, posted) > device_.wqe_cache ? 1 : 0);
		return misses * read_while_busy(context) + wqes * read_while_busy(wqe);
	}

	// A change of an initiator's target, as a share of the requests of a rank that follow each other. Returns how
	// often.
	double changes(End end, double follow)
	{
		if (way_.transport != TransportKind::dct || peers_[end] <= load_.initiators)
			return 0;
		const double share = (1 - load_.initiators / peers_[end]) / follow;
		const double round = 4 * device_.latency + 2 * crossing + pcie_write + mmio;
		initiator_[end] += share * (device_.dc_switch + round);
		const End other = end == caller_end ? server_end : caller_end;
		use_[end].sends += share * (device_.request + device_.acknowledged);
		use_[other].serves += share * (device_.serve + device_.respond);
		core_[end] += share * (completion + completion); // of each message, before its initiator is given away
		return share;
	}
	void connections(End end)
	{
		const double used = way_.transport == TransportKind::dct ? pairs_ / nodes_[end] : qps_[end];
		use_[end].serves += missed(used, device_.responders) * (pcie_read + context_missed);
	}

	void message(End from, Delivery by, double payload)
	{
		const End to = from == caller_end ? server_end : caller_end;
		const double bytes = payload + frame;
		DeviceUse &here = use_[from], &there = use_[to];
		const bool datagram = by == Delivery::datagram, receive = by != Delivery::write;
		const double n = together_[from];
		// Processors. Replies of one turn to one rank share a doorbell, datagrams whoever they are for.
		const double rung_together = from == caller_end ? 1 : datagram ? std::min(found_, turn / 2) : to_one_;
		core_[from] += device_.encoded / n + device_.doorbell / rung_together + payload * copied;
		core_[to] += handled + (arrival + (receive ? completion : 0)) / n + (from == server_end ? payload * copied : 0);
		// Units.
		here.sends += datagram ? device_.datagram / n
		                       : (device_.request + device_.acknowledged + messages_caches(from) +
		                          (way_.transport == TransportKind::dct ? device_.dc_request : 0)) /
		                             n;
		const double receives = receive ? (pcie_read / receives_read) : 0;
		const double served = (device_.serve + (datagram ? 0 : device_.respond) + receives) / n +
		                      device_.piece * (pieces(bytes, write_piece) - 1);
		there.serves += served;
		if (datagram)
			receiving_[to] += served;
		else {
			connections(to);
			changes(from, n);
		}
		// PCIe and wire.
		here.in += bytes + (wqe_bytes(datagram) + 2 * tlp) / n + completion_tlp * pieces(bytes, completion_piece);
		here.out += tlp;
		there.out +=
		    bytes + (datagram ? route_header : 0) + tlp * pieces(bytes, write_piece) + (receive ? cqe + tlp : 0) / n;
		here.wire_out +=
		    bytes + (header + (way_.transport == TransportKind::dct ? dc_header : 0)) * pieces(bytes, mtu) / n;
		there.wire_in = here.wire_out;
		if (!datagram) {
			there.wire_out += ack_bytes / n;
			here.wire_in += ack_bytes / n;
		}
	}
	// A READ of the reply's bytes by the caller; `times`: of a result some are repeated.
	void read(double bytes, double times)
	{
		DeviceUse &here = use_[caller_end], &there = use_[server_end];
		core_[caller_end] += times * (post() + completion);
		here.sends += times * (device_.request + device_.response * pieces(bytes, mtu) +
		                       device_.piece * (pieces(bytes, write_piece) - 1) + gets_caches(caller_end) +
		                       (way_.transport == TransportKind::dct ? device_.dc_request : 0));
		there.serves += times * (device_.serve + device_.respond * pieces(bytes, mtu));
		connections(server_end);
		changes(caller_end, 1);
		here.in += times * (wqe_bytes(false) + 2 * tlp);
		here.out += times * (bytes + tlp * pieces(bytes, write_piece) + cqe + tlp);
		there.in += times * (bytes + completion_tlp * pieces(bytes, completion_piece));
		there.out += times * tlp;
		there.wire_out += times * (bytes + header * pieces(bytes, mtu));
		here.wire_in += times * (bytes + header * pieces(bytes, mtu));
		here.wire_out += times * header;
		there.wire_in += times * header;
	}
	void get()
	{
		read(static_cast<double>(load_.reply), 1);
		core_[server_end] = 0;
		latency_ = read_latency();
	}
	double read_latency() const
	{
		const double bytes = static_cast<double>(load_.reply);
		return post() + mmio + request() + 4 * device_.latency + 2 * crossing + device_.serve + pcie_read +
		       bytes / device_.wire + device_.response + pcie_write + completion;
	}
	void call()
	{
		const double input = static_cast<double>(load_.input), reply = static_cast<double>(load_.reply);
		core_[server_end] += load_.handler;
		message(caller_end, way_.input, input);
		latency_ = message_latency(input) + load_.handler;
		if (way_.reply == Delivery::read) {
			read(reply + frame, repeated);
			core_[server_end] += stored + reply * copied;
			core_[caller_end] += fetched + reply * copied;
			latency_ += read_latency() / 2 + pcie_read + fetched;
		} else {
			message(server_end, way_.reply, reply);
			latency_ += message_latency(reply) + (way_.reply == Delivery::datagram ? turn_end : 0);
		}
	}

	CallLoad load_;
	DeviceClass device_;
	CallWay way_;
	Limit wait_at_;
	// For each end: nodes, ranks of each, and of each rank those that it talks with; queue pairs of a device.
	std::array<double, 2> nodes_{}, ranks_{}, peers_{}, qps_{};
	double pairs_ = 0;
	std::array<double, 2> together_{1, 1}; // messages that a work request carries. Calls are posted one by one
	double found_ = 1, to_one_ = 1;        // calls that a turn of a server finds, and those of one rank
	// ns of a request: a rank's processor, its receiving unit, its initiators.
	std::array<double, 2> core_{}, receiving_{}, initiator_{};
	std::array<DeviceUse, 2> use_{};
	double latency_ = 0; // ns
};

const char *const transports[] = {"rc", "dct"};
const char *const deliveries[] = {"send", "write", "read", "datagram"};
const char *name_of(TransportKind transport) { return transports[static_cast<size_t>(transport)]; }
const char *name_of(Delivery by) { return deliveries[static_cast<size_t>(by)]; }

// What speaks for the way, or against it.
std::string character(const CallWay &way, const Estimate &e, const CallLoad &load, const DeviceClass &device)
{
	const double callers = e.peers(server_end), servers = e.peers(caller_end);
	if (way.get && e.switches())
		return format("each READ changes the target of a DC initiator, as a rank asks %.0f others", servers);
	if (way.get)
		return "a READ takes nothing of the server's processor";
	if (way.transport == TransportKind::dct) {
		if (way.reply == Delivery::read && callers > load.initiators)
			return format(
			    "%.0f callers of a rank by dct: each reply would change the target of an initiator, so they fetch",
			    callers);
		if (e.switches())
			return format("%.0f callers of a rank by dct: each reply changes the target of one of %u initiators",
			              std::max(callers, servers), load.initiators);
	}
	if (way.input == Delivery::datagram || way.reply == Delivery::datagram)
		return "datagrams need no context for each peer, and those of a turn share a doorbell";
	const End end = e.qps(caller_end) > e.qps(server_end) ? caller_end : server_end;
	if (way.transport == TransportKind::rc && e.qps(end) > device.requesters)
		return format("%.0f queue pairs of the %s's device are more than the %.0f contexts that it holds", e.qps(end),
		              end == caller_end ? "caller" : "server", device.requesters);
	if (way.reply == Delivery::read)
		return "a result that is fetched saves the server the post of a reply";
	if (way.input == Delivery::write)
		return "rings save the device a receive for each message";
	return way.transport == TransportKind::rc ? "each peer has a queue pair that the device holds"
	                                          : "few targets share the initiators";
}

std::string limit_text(const Advice &advice, const Estimate &e, const CallLoad &load)
{
	switch (advice.limit) {
	case Limit::latency:
		return format("%u under way of a rank to another, and each takes %.1f us, limits it", load.window,
		              e.latency() / 1e3);
	case Limit::caller: return format("the caller's processor limits it, %.0f ns each", e.core(caller_end));
	case Limit::server: return format("the server's processor limits it, %.0f ns each", e.core(server_end));
	case Limit::caller_units: return "the units of the caller's device limit it";
	case Limit::server_units: return "the units of the server's device limit it";
	case Limit::receiving_unit: return "the one unit that receives a rank's datagrams limits it";
	case Limit::initiators: return "the DC initiators limit it";
	case Limit::pcie: return "PCIe limits it";
	case Limit::wire: break;
	}
	return "the wire limits it";
}

} // namespace

const char *wrong_load(const CallLoad &load)
{
	constexpr uint32_t many = 1u << 20;
	constexpr size_t long_message = 1u << 30;
	const bool all = load.shape == Shape::many_to_many;
	if (load.nodes < 1u + all || load.nodes > many)
		return all ? "m: at least 2 nodes ask each other" : "m: 1 to 1048576";
	if (!load.threads || load.threads > many || !load.servers || load.servers > many)
		return "threads and servers: 1 to 1048576";
	if (!load.window || load.window > many || !load.initiators || load.initiators > many)
		return "window and initiators: 1 to 1048576";
	if (load.input > long_message || load.reply > long_message)
		return "bytes: at most 1 GiB";
	if (load.message_bytes < 256)
		return "a message has 256 bytes at least";
	if (!(load.handler >= 0 && load.handler <= 1e12))
		return "handler: 0 to 1000 s";
	return nullptr;
}

std::vector<Advice> advise(const CallLoad &load, const DeviceClass &device)
{
	using enum Delivery;
	constexpr CallWay ways[] = {
	    {.get = true, .transport = TransportKind::rc},
	    {.transport = TransportKind::rc,
	     .input = write,
	     .reply = write}, // before send: of two as quick, the one that needs no receive
	    {.transport = TransportKind::rc, .input = send, .reply = send},
	    {.transport = TransportKind::rc, .input = send, .reply = read},
	    {.transport = TransportKind::rc, .input = send, .reply = datagram},
	    {.transport = TransportKind::rc, .input = datagram, .reply = datagram},
	    {.get = true, .transport = TransportKind::dct},
	    {.transport = TransportKind::dct, .input = send, .reply = send},
	    {.transport = TransportKind::dct, .input = send, .reply = read},
	};
	std::vector<Advice> all;
	for (const CallWay &way : ways) {
		const bool by_datagram = !way.get && way.reply == datagram;
		if ((way.transport == TransportKind::dct && !device.dc) ||
		    (by_datagram && std::max(load.input, load.reply) > max_datagram))
			continue;
		Estimate estimate(load, device, way);
		Advice one = estimate.advice();
		if (one.limit != Limit::latency) {
			// The more calls a turn finds, the less they cost, and the less a server has to work: until both agree.
			const Limit limit = one.limit;
			Waiting waiting = estimate.waiting(limit, one.rate);
			for (unsigned i = 0; i < rounds; ++i) {
				estimate = Estimate(load, device, way, waiting);
				one = estimate.advice();
				const Waiting next = estimate.waiting(limit, one.rate);
				waiting = {limit, (waiting.serving + next.serving) / 2, next.to_one};
			}
		}
		one.reason = character(way, estimate, load, device) + "; " + limit_text(one, estimate, load);
		all.push_back(std::move(one));
	}
	std::stable_sort(all.begin(), all.end(), [](const Advice &a, const Advice &b) { return a.rate > b.rate; });
	return all;
}

Contention contention_of(double taken, const DeviceClass &device)
{
	CallLoad load;
	load.input = load.reply = sizeof(uint64_t);
	const CallWay one{.get = true};
	const double alone = Estimate(load, device, one).latency();
	load.nodes =
	    static_cast<uint32_t>(std::clamp(taken / pcie_read, 1.0, 4096.0)); // it holds the word while it reads it
	double calls = 0;
	for (const Advice &a : advise(load, device))
		if (!a.way.get)
			calls = std::max(calls, a.rate);
	return {
	    .alone_ns = alone, .waiting = static_cast<double>(load.nodes), .max_rate = 1e9 / pcie_read, .call_rate = calls};
}

std::string text_of(const CallWay &way)
{
	if (way.get)
		return format("%s read", name_of(way.transport));
	return format("%s %s/%s", name_of(way.transport), name_of(way.input), name_of(way.reply));
}

std::string settings_of(const CallWay &way, const CallLoad &load)
{
	const bool datagrams = !way.get && (way.input == Delivery::datagram || way.reply == Delivery::datagram);
	std::string text = format("PT2P_TRANSPORTS=self,shm,%s%s", name_of(way.transport), datagrams ? ",ud" : "");
	if (way.get)
		return text;
	text += format(" PT2P_CALL_INPUT_BY=%s PT2P_CALL_REPLY_BY=%s", name_of(way.input), name_of(way.reply));
	const size_t callers = size_t{load.nodes} * load.threads;
	const size_t peers = load.shape == Shape::many_to_one ? (callers + load.servers - 1) / load.servers : load.nodes;
	const Config built_in;
	const auto at_most = [](size_t wanted, const char *tunable) {
		return std::min(wanted, static_cast<size_t>(tunables::find(tunable)->maximum));
	};
	if (way.input == Delivery::write) {
		const size_t rings = load.shape == Shape::many_to_one ? callers : peers * load.threads;
		if (rings > static_cast<size_t>(built_in.net_rings))
			text += format(" PT2P_NET_RINGS=%zu", at_most(rings, "PT2P_NET_RINGS"));
		const auto slot = static_cast<size_t>(slot_of(load));
		if (slot > static_cast<size_t>(built_in.net_ring_slot_bytes) && slot <= load.message_bytes)
			text += format(" PT2P_NET_RING_SLOT_BYTES=%zu", slot);
	} else if (const auto receives = static_cast<size_t>(built_in.net_receives); peers * load.window > receives) {
		text += format(" PT2P_NET_RECEIVES=%zu", at_most(peers * load.window + receives, "PT2P_NET_RECEIVES"));
	}
	return text;
}

} // namespace pt2p::rpc::laws
