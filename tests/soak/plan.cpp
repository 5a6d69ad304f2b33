// SPDX-License-Identifier: BSD-3-Clause
#include "plan.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <map>

namespace soak {

namespace {

using Words = std::vector<std::string>;

// Each decision has its own random numbers, which depend on its name. So a change of one decision changes no other.
struct Dice {
	uint64_t seed;
	Random of(std::string_view name) const
	{
		uint64_t h = seed;
		for (const char c : name)
			h = mix(h ^ static_cast<unsigned char>(c));
		return {h};
	}
	bool one_in(std::string_view name, uint64_t n) const { return of(name).one_in(n); }
	template <class T>
	T choose(std::string_view name, std::initializer_list<T> values) const
	{
		return values.begin()[of(name).below(values.size())];
	}
};

struct Edges {
	const char *name;
	unsigned one_in; // how often it is set at all
	std::initializer_list<const char *> values;
};

const Edges any_edges[] = {
    {"PT2P_EAGER_MAX", 3, {"0", "1", "100", "4096", "65536", "1m"}},
    {"PT2P_RENDEZVOUS", 3, {"read", "write", "pieces"}},
    {"PT2P_UNEXPECTED_MAX", 4, {"0", "1k", "64k"}},
    {"PT2P_SPIN_TIME", 4, {"0", "1ms"}},
    {"PT2P_YIELD_TIME", 4, {"0", "5ms"}},
    {"PT2P_TIME_SLICE", 8, {"0", "3ms"}},
    {"PT2P_SLEEP", 6, {"no"}},
    {"PT2P_PROGRESS_THREAD", 3, {"yes", "no"}},
    {"PT2P_FINALIZE_TIME", 8, {"60s"}},
};
const Edges shm_edges[] = {
    {"PT2P_SHM_RING_SLOTS", 3, {"8", "9", "4096"}},
    {"PT2P_SHM_RING_BYTES", 3, {"4096", "5000", "1m"}},
    {"PT2P_SHM_BACKING", 3, {"devshm"}},
    {"PT2P_SHM_SINGLE_COPY", 3, {"no"}},
    {"PT2P_SHM_COOPERATE_MIN", 4, {"4096", "1g"}},
};
const Edges device_edges[] = {
    {"PT2P_NET_DIRECT", 4, {"no"}},
    {"PT2P_NET_MESSAGE_BYTES", 3, {"256", "1024", "65536"}},
    {"PT2P_NET_RECEIVES", 3, {"16", "17", "64"}},
    {"PT2P_NET_SEND_DEPTH", 3, {"4", "5", "16", "1024"}},
    {"PT2P_NET_SIGNAL_PERIOD", 4, {"1", "3", "8192"}},
    {"PT2P_TUNE", 3, {"off", "paper"}},
    {"PT2P_TUNE_STEP", 8, {"1", "64"}},
    {"PT2P_NET_QUEUE_PAIRS", 4, {"1", "2", "5"}},
    {"PT2P_NET_DOORBELL_BATCH", 4, {"0", "3", "64"}},
    {"PT2P_NET_BATCHING", 4, {"off", "doorbells"}},
    {"PT2P_NET_INLINE", 4, {"16", "17", "40"}},
    {"PT2P_NET_DEVICE_MEMORY", 4, {"0", "512", "1m"}},
    {"PT2P_NET_DEVICE_MEMORY_MAX", 5, {"64", "100", "8192"}},
    {"PT2P_NET_STAGING", 4, {"device", "host"}},
    {"PT2P_NET_DELIVERY", 2, {"auto", "send", "write", "read"}},
    {"PT2P_NET_RINGS", 4, {"0", "1", "3"}},
    {"PT2P_NET_RING_SLOTS", 4, {"4", "8", "512"}},
    {"PT2P_NET_RING_SLOT_BYTES", 4, {"64", "128", "1024"}},
    {"PT2P_DCT_INITIATORS", 3, {"1", "2", "16"}},
    {"PT2P_RC_CONNECTIONS", 3, {"0", "2", "6", "12"}},
    {"PT2P_REGISTRATION_CACHE", 3, {"all"}},
    {"PT2P_REGISTRATION_CACHE_BYTES", 5, {"0", "64k"}},
    {"PT2P_NET_PROBE_TIME", 6, {"10ms"}},
};
const Edges route_edges[] = {
    {"PT2P_FORWARD_MAX", 2, {"0", "100", "20000"}},
    {"PT2P_FORWARD_WINDOW", 2, {"4", "5", "8"}},
    {"PT2P_FORWARD_CREDITS", 2, {"4", "5", "8"}},
    {"PT2P_FORWARD_TIMEOUT", 3, {"1ms", "10ms"}},
};
const Edges memory_edges[] = {
    {"PT2P_ONE_SIDED", 3, {"transport", "owner"}},
    {"PT2P_ATOMICS", 3, {"cpu"}},
};

bool has(const std::vector<std::string> &words, std::string_view word)
{
	return std::find(words.begin(), words.end(), word) != words.end();
}

std::vector<std::string> split(const std::string &text, char at)
{
	std::vector<std::string> parts(1);
	for (const char c : text)
		if (c == at)
			parts.emplace_back();
		else
			parts.back() += c;
	return parts;
}

void set(std::vector<std::string> &tunables, const std::string &name, const std::string &value)
{
	std::erase_if(tunables, [&](const std::string &t) { return t.starts_with(name + "="); });
	tunables.push_back(name + "=" + value);
}

template <size_t n>
void choose_edges(Plan &p, const Dice &dice, const Edges (&list)[n])
{
	for (const Edges &e : list)
		if (dice.one_in(e.name, e.one_in))
			set(p.tunables, e.name, dice.choose(std::string(e.name) + "=", e.values));
}

void choose_faults(Plan &p, const Dice &dice, const std::vector<std::string> &without)
{
	const auto add = [&p](const std::string &rule) { p.fault += (p.fault.empty() ? "" : "; ") + rule; };
	const std::string seed = " seed=" + std::to_string(p.seed % 1000);
	const auto wire = [&](const char *name, unsigned one_in, std::initializer_list<const char *> rates) {
		if (dice.one_in(name, one_in))
			add(std::string(name) + " rate=" + dice.choose(std::string(name) + "rate", rates) + seed);
	};
	if (has(without, "fault") || !dice.one_in("faults", 2))
		return;
	wire("drop", 2, {"0.001", "0.01", "0.05"});
	wire("duplicate", 2, {"0.01", "0.1"});
	wire("reorder", 2, {"0.01", "0.1"});
	if (dice.one_in("delay", 3))
		add("delay rate=0.01" + seed + dice.choose("delayed", {" us=50", " us=1000", " ms=5"}));
	wire("starve", 4, {"0.01", "0.1"});
	if (!has(without, "break") && dice.one_in("break", 3)) {
		p.breaks = true;
		add("break rate=0.01" + seed + dice.choose("broken", {" count=1", " count=3", " after=20 count=2"}));
	}
	if (!has(without, "break") && dice.one_in("link_down", 8)) {
		p.breaks = true;
		add("link_down rate=0.01 count=1" + seed + dice.choose("link", {" ms=1", " ms=50", " ms=500"}));
	}
	if (!has(without, "refuse") && dice.one_in("refuse", 4))
		p.late_fault =
		    "refuse " + dice.choose<std::string>("refused", {"mr rate=0.5", "mr", "dm", "mr after=5 count=2"}) + seed;
	if (p.fault.find("drop") != p.fault.npos || p.breaks)
		set(p.tunables, "PT2P_NET_TIMEOUT", "8");
}

void choose_device(Plan &p, const Dice &dice, const std::vector<std::string> &without, bool shm)
{
	choose_edges(p, dice, device_edges);
	// A slot may not be longer than a message.
	if (has(p.tunables, "PT2P_NET_MESSAGE_BYTES=256"))
		std::erase(p.tunables, "PT2P_NET_RING_SLOT_BYTES=1024");
	choose_faults(p, dice, without);
	const bool routed = !has(without, "route") && p.ranks > 2 && dice.one_in("routed", 2);
	if (shm || routed)
		if (dice.one_in("pretended", 2) || routed)
			set(p.tunables, "PT2P_RANKS_PER_NODE", dice.choose("per node", {"1", "2", "3"}));
	if (routed) {
		set(p.tunables, "PT2P_ROUTE", dice.choose("route", {"direct", "forward", "forward", "auto"}));
		if (dice.one_in("groups", 2))
			set(p.tunables, "PT2P_GROUPS", dice.choose("group", {"nodes:1", "nodes:2", "auto", "nodes:3"}));
		choose_edges(p, dice, route_edges);
	}
	p.set_delivery = dice.one_in("set_delivery", 2);
	p.exact = dice.one_in("exact", 10);
}

template <class T>
bool change(const std::string &text, const char *name, T &value)
{
	const size_t equal = text.find('=');
	if (text.substr(0, equal) != name)
		return false;
	char *end;
	value = static_cast<T>(strtoll(text.c_str() + equal + 1, &end, 10));
	if (*end || equal + 1 == text.size()) {
		fprintf(stderr, "soak: \"%s\": a number is wanted\n", text.c_str());
		exit(2);
	}
	return true;
}

void apply(Plan &p, const std::string &c)
{
	if (c.starts_with("without=") || c.starts_with("mode=") || c.starts_with("ranks=") || c.starts_with("transports="))
		return; // already used
	if (c.starts_with("PT2P_")) {
		const size_t equal = c.find('=');
		std::erase_if(p.tunables, [&](const std::string &t) { return t.starts_with(c.substr(0, equal) + "="); });
		if (equal != c.npos && equal + 1 < c.size())
			p.tunables.push_back(c);
	} else if (c.starts_with("fault=")) {
		p.fault = c.substr(6);
	} else if (c.starts_with("late_fault=")) {
		p.late_fault = c.substr(11);
	} else if (!(change(c, "threads", p.threads) || change(c, "device", p.device) || change(c, "exact", p.exact) ||
	             change(c, "breaks", p.breaks) || change(c, "victim", p.victim) || change(c, "kill_us", p.kill_us) ||
	             change(c, "kill_from", p.kill_from) || change(c, "joins", p.joins) ||
	             change(c, "episodes", p.episodes) || change(c, "messages", p.messages) ||
	             change(c, "longest", p.longest) || change(c, "longest_any", p.longest_any) ||
	             change(c, "memory", p.memory) || change(c, "operations", p.operations) ||
	             change(c, "preposted", p.preposted) || change(c, "barriers", p.barriers) ||
	             change(c, "set_delivery", p.set_delivery) || change(c, "bound", p.bound))) {
		fprintf(stderr, "soak: there is nothing called \"%s\" to change\n", c.c_str());
		exit(2);
	}
}

std::string value_of(const std::vector<std::string> &changes, const std::string &name)
{
	std::string value;
	for (const std::string &c : changes)
		if (c.starts_with(name + "="))
			value = c.substr(name.size() + 1);
	return value;
}

// How many ranks and threads there are, and what starts them. Whether a rank is to be killed.
bool choose_job(Plan &p, const Dice &dice, const Words &without, const Words &changes)
{
	p.mode = dice.choose("mode", {Mode::threads, Mode::threads, Mode::cooperative, Mode::launched, Mode::launched});
	if (p.mode == Mode::launched && has(without, "launched"))
		p.mode = Mode::threads;
	if (const std::string m = value_of(changes, "mode"); !m.empty())
		p.mode = m == "threads" ? Mode::threads : m == "cooperative" ? Mode::cooperative : Mode::launched;
	p.ranks = dice.choose("ranks", {2, 2, 3, 4, 5, 6, 8});
	if (p.mode != Mode::launched && dice.one_in("alone", 20))
		p.ranks = 1;
	const bool kill = p.mode == Mode::launched && !has(without, "kill") && dice.one_in("kill", 3);
	if (kill && p.ranks < 3)
		p.ranks += 2;
	if (const std::string n = value_of(changes, "ranks"); !n.empty())
		p.ranks = std::clamp(atoi(n.c_str()), 1, 64);
	p.threads = p.mode == Mode::cooperative || dice.one_in("one thread", 2) ? 1 : dice.choose("threads", {2, 3, 4});
	if (p.ranks > 4)
		p.threads = std::min(p.threads, 2);
	return kill;
}

void choose_transports(Plan &p, const Dice &dice, const Words &without, const Words &changes)
{
	std::string transports = dice.choose("transports", {"self,shm", "self,shm", "self,rc", "self,dct", "self,rc,dct",
	                                                    "self,shm,rc", "self,shm,dct", "all", "all"});
	if (const std::string t = value_of(changes, "transports"); !t.empty())
		transports = t;
	set(p.tunables, "PT2P_TRANSPORTS", transports);
	p.device = transports == "all" || transports.ends_with("rc") || transports.ends_with("dct");
	const bool shm = transports == "all" || transports.find("shm") != transports.npos;
	choose_edges(p, dice, any_edges);
	if (shm)
		choose_edges(p, dice, shm_edges);
	if (p.device)
		choose_device(p, dice, without, shm);
}

// How much a run moves: less on softhca, and less for each rank where there are many.
void choose_load(Plan &p, const Dice &dice, const Words &without)
{
	p.episodes = 1 + static_cast<int>(dice.of("episodes").below(4));
	const unsigned lanes = static_cast<unsigned>(p.ranks * p.threads);
	p.messages = std::max(dice.choose("messages", {20u, 200u, 1000u, 4000u}) / lanes * (p.device ? 1 : 3), 3u);
	p.longest = dice.choose<size_t>("longest", {100, 9000, 70000, 300000, 3 << 20});
	p.longest_any = std::min(p.longest, dice.choose<size_t>("longest any", {100, 9000, 70000}));
	if (p.longest > 1000000)
		p.messages = std::min(p.messages, 20u);
	p.preposted = dice.one_in("preposted", 3);
	p.barriers = dice.one_in("barriers", 2);
	// Not where the device would refuse something that the second start needs.
	p.joins = p.mode == Mode::launched && p.late_fault.empty() && dice.one_in("joins", 5) ? 2 : 1;
	p.memory = !has(without, "memory") && dice.one_in("memory", 2);
	p.operations = dice.choose("operations", {5u, 50u, 300u});
	if (p.memory)
		choose_edges(p, dice, memory_edges);
}

void choose_victim(Plan &p, const Dice &dice, const Words &without)
{
	p.victim = static_cast<int>(dice.of("victim").below(static_cast<uint64_t>(p.ranks)));
	// Its death breaks DC initiators of others, with all that these have in flight.
	p.breaks |= p.device;
	p.kill_us = static_cast<unsigned>(dice.of("kill time").below(dice.choose("kill span", {1000u, 30000u, 400000u})));
	p.kill_from = has(without, "start-kill") ? 0 : dice.choose("kill from", {0, 0, 0, 1, 2});
	p.joins = 1;
	p.barriers = false;
	// Longer than a link is down: else ranks that live count as lost.
	set(p.tunables, "PT2P_NET_RECONNECT_TIME", p.fault.find("ms=500") == p.fault.npos ? "500ms" : "3s");
}

} // namespace

Plan make_plan(uint64_t seed, const std::vector<std::string> &changes)
{
	const Dice dice{seed};
	const std::vector<std::string> without = split(value_of(changes, "without"), ',');
	Plan p;
	p.seed = seed;
	p.bound = 100;
	const bool kill = choose_job(p, dice, without, changes);
	choose_transports(p, dice, without, changes);
	choose_load(p, dice, without);
	if (kill)
		choose_victim(p, dice, without);
	for (const std::string &c : changes)
		apply(p, c);
	return p;
}

uint64_t Plan::key(const Message &m) const
{
	uint64_t h = mix(seed ^ static_cast<uint64_t>(m.kind));
	for (const unsigned v :
	     {unsigned{m.source}, unsigned{m.source_thread}, unsigned{m.dest}, unsigned{m.dest_thread}, m.number})
		h = mix(h ^ v);
	return h;
}

size_t Plan::length(const Message &m) const
{
	Random r{key(m)};
	const size_t most = m.kind == Kind::any || m.kind == Kind::from ? longest_any : longest;
	const size_t usual[] = {0, 16, 128, 300, 9000, 20000, most};
	const size_t bound = std::min(most, usual[r.below(7)]);
	return r.one_in(6) ? bound : r.below(bound + 1);
}

size_t Plan::capacity(const Message &m) const
{
	Random r{mix(key(m))};
	const size_t n = length(m);
	return r.one_in(12) ? r.below(n + 1) : r.one_in(4) ? n + r.below(100) : n;
}

std::vector<std::vector<Message>> Plan::messages_of_all_episodes() const
{
	std::vector<std::vector<Message>> all(static_cast<size_t>(episodes));
	std::map<uint64_t, uint32_t> numbers; // by stream
	Random r{mix(seed ^ 4711)};
	const auto n = static_cast<uint64_t>(ranks), t = static_cast<uint64_t>(threads);
	for (auto &list : all) {
		const uint64_t favourite = r.below(n), liked = r.below(3); // who gets much of it
		for (uint64_t i = 0; i < messages * n * t; ++i) {
			Message m{};
			m.kind = static_cast<Kind>(r.below(kinds));
			m.source = static_cast<uint8_t>(r.below(n));
			m.source_thread = static_cast<uint8_t>(r.below(t));
			m.dest = static_cast<uint8_t>(liked && r.below(4) < liked ? favourite : r.below(n));
			m.dest_thread = static_cast<uint8_t>(r.below(t));
			m.number = 0;
			m.number =
			    numbers[static_cast<uint64_t>(m.source) << 32 | static_cast<uint64_t>(m.dest) << 16 | tag_of(m)]++;
			m.episode = static_cast<uint8_t>(&list - all.data());
			list.push_back(m);
		}
	}
	return all;
}

std::string Plan::text() const
{
	const char *modes[] = {"threads", "cooperative", "launched"};
	std::string s = std::string(modes[static_cast<int>(mode)]) + " ranks=" + std::to_string(ranks) +
	                " threads=" + std::to_string(threads) + " episodes=" + std::to_string(episodes) +
	                " messages=" + std::to_string(messages) + " longest=" + std::to_string(longest);
	if (memory)
		s += " operations=" + std::to_string(operations);
	if (preposted)
		s += " preposted";
	if (barriers)
		s += " barriers";
	if (set_delivery)
		s += " set_delivery";
	if (joins > 1)
		s += " joins=" + std::to_string(joins);
	if (victim >= 0)
		s += " victim=" + std::to_string(victim) + " kill_from=" + std::to_string(kill_from) +
		     " kill_us=" + std::to_string(kill_us);
	for (const std::string &t : tunables)
		s += " " + t;
	if (device)
		s += exact ? " softhca --exact" : " softhca";
	if (!fault.empty())
		s += " fault='" + fault + "'";
	if (!late_fault.empty())
		s += " late_fault='" + late_fault + "'";
	return s;
}

std::vector<std::string> Plan::command(const char *program, const std::vector<std::string> &arguments) const
{
	std::vector<std::string> c;
	if (device) {
		c.insert(c.end(), {"./softhca/softhca"});
		if (exact)
			c.insert(c.end(), {"--exact"});
		if (!fault.empty())
			c.insert(c.end(), {"--fault", fault});
	}
	if (mode == Mode::launched) {
		c.insert(c.end(), {"mpirun", "--oversubscribe", "--bind-to", "none", "-n", std::to_string(ranks)});
		if (victim >= 0)
			c.insert(c.end(), {"--enable-recovery"});
	}
	c.insert(c.end(), {program, "--rank"});
	c.insert(c.end(), arguments.begin(), arguments.end());
	return c;
}

} // namespace soak
