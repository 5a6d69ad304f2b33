#include "softhca/wire/faults.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <sys/stat.h>

namespace softhca {

namespace {

using Action = FaultRule::Action;

template <class T>
struct Named {
	std::string_view name;
	T value;
};

constexpr Named<Action> actions[] = {
    {"drop", Action::drop},      {"duplicate", Action::duplicate}, {"reorder", Action::reorder},
    {"delay", Action::delay},    {"link_down", Action::link_down}, {"tear", Action::tear},
    {"break", Action::break_qp}, {"starve", Action::starve},       {"refuse", Action::refuse},
    {"fatal", Action::fatal},
};
constexpr Named<FaultRule::Object> objects[] = {
    {"mr", FaultRule::Object::mr}, {"dm", FaultRule::Object::dm}, {"qp", FaultRule::Object::qp}};
constexpr Named<PacketKind> packet_kinds[] = {
    {"send", PacketKind::send},
    {"write", PacketKind::write},
    {"read", PacketKind::read},
    {"atomic", PacketKind::atomic},
    {"read_response", PacketKind::read_response},
    {"atomic_response", PacketKind::atomic_response},
    {"acknowledge", PacketKind::acknowledge},
    {"refuse", PacketKind::refuse},
    {"datagram", PacketKind::datagram},
    {"disconnect", PacketKind::disconnect},
};

template <class T, size_t n>
const T *find(const Named<T> (&list)[n], std::string_view name)
{
	for (const auto &entry : list)
		if (entry.name == name)
			return &entry.value;
	return nullptr;
}

template <class T, size_t n>
std::string names(const Named<T> (&list)[n])
{
	std::string text;
	for (const auto &entry : list)
		text += (text.empty() ? "" : ", ") + std::string(entry.name);
	return text;
}

bool parse(std::string_view text, uint64_t &value)
{
	const bool hex = text.starts_with("0x");
	if (hex)
		text.remove_prefix(2);
	const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, hex ? 16 : 10);
	return error == std::errc() && end == text.data() + text.size();
}

// Takes the next word off the front.
std::string_view next_word(std::string_view &text)
{
	constexpr std::string_view blank = " \t\r";
	text.remove_prefix(std::min(text.find_first_not_of(blank), text.size()));
	const std::string_view word = text.substr(0, text.find_first_of(blank));
	text.remove_prefix(word.size());
	return word;
}

// One word "name=value" of a rule. What is wrong, or nothing.
std::string parse_setting(std::string_view word, FaultRule &rule)
{
	const size_t equals = word.find('=');
	if (equals == word.npos)
		return "expected name=value, got \"" + std::string(word) + "\"";
	const std::string_view name = word.substr(0, equals), value = word.substr(equals + 1);
	if (name == "kind") {
		const PacketKind *kind = find(packet_kinds, value);
		if (!kind)
			return "no kind of packet \"" + std::string(value) + "\"; there are " + names(packet_kinds);
		rule.kind = static_cast<int>(*kind);
		return "";
	}
	if (name == "rate") {
		char *end;
		const std::string text(value);
		rule.rate = std::strtod(text.c_str(), &end);
		return *end || text.empty() || !(rule.rate >= 0 && rule.rate <= 1) ? "rate is a number from 0 to 1" : "";
	}
	uint64_t number;
	if (!parse(value, number))
		return "\"" + std::string(value) + "\" is not a number";
	constexpr Time microsecond = 1000, longest = 3'600'000'000;
	if (name == "us" && number <= longest)
		rule.time = number * microsecond;
	else if (name == "ms" && number <= longest / 1000)
		rule.time = number * 1000 * microsecond;
	else if (name == "after")
		rule.after = number;
	else if (name == "count")
		rule.count = number;
	else if (name == "seed")
		rule.seed = number;
	else if (name == "qp" && number <= psn_mask)
		rule.qp = static_cast<uint32_t>(number);
	else if (name == "to" && number <= psn_mask)
		rule.destination = static_cast<uint32_t>(number);
	else if (name == "device" && number < 8)
		rule.device = static_cast<int>(number);
	else
		return "no setting " + std::string(word) + "; there are rate, after, count, seed, kind, qp, to, device, us, ms";
	return "";
}

std::string parse_rule(std::string_view text, FaultRule &rule)
{
	const std::string_view what = next_word(text);
	const Action *action = find(actions, what);
	if (!action)
		return "no fault \"" + std::string(what) + "\"; there are " + names(actions) + " and clear";
	rule.action = *action;
	if (rule.action == Action::refuse) {
		const std::string_view which = next_word(text);
		const FaultRule::Object *object = find(objects, which);
		if (!object)
			return "refuse needs one of " + names(objects);
		rule.object = *object;
	}
	for (std::string_view word = next_word(text); !word.empty(); word = next_word(text))
		if (std::string error = parse_setting(word, rule); !error.empty())
			return error;
	if ((rule.action == Action::delay || rule.action == Action::link_down) && !rule.time)
		return std::string(what) + " needs us= or ms=";
	return "";
}

// A number that depends on all arguments (the mixing of SplitMix64).
uint64_t mix(uint64_t seed, uint64_t qp, uint64_t n)
{
	uint64_t z = seed * 0x9e3779b97f4a7c15 + qp * 0xd1b54a32d192ed03 + n * 0x8cb92ba72f3d8dd7;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

// The same from 0 to 1.
double chance(uint64_t seed, uint64_t qp, uint64_t n) { return static_cast<double>(mix(seed, qp, n) >> 11) * 0x1p-53; }

} // namespace

std::vector<Piece> pieces_of(uint64_t address, uint32_t bytes, uint64_t seed)
{
	constexpr uint64_t line = 64, most = 8;
	const uint64_t lines = (address % line + bytes + line - 1) / line;
	if (lines < 2)
		return {{0, bytes}};
	uint64_t draws = 0;
	const auto draw = [&](uint64_t below) { return mix(seed, below, ++draws) % below; };
	const uint64_t count = std::min(lines, 2 + draw(most - 1));
	std::set<uint32_t> borders{0, bytes};
	while (borders.size() <= count)
		borders.insert(static_cast<uint32_t>((1 + draw(lines - 1)) * line - address % line));
	std::vector<Piece> pieces;
	for (auto next = borders.begin(), from = next++; next != borders.end(); from = next++)
		pieces.push_back({*from, *next - *from});
	for (size_t i = pieces.size(); i > 1; --i)
		std::swap(pieces[i - 1], pieces[draw(i)]);
	return pieces;
}

std::string Faults::add(std::string_view text)
{
	std::vector<FaultRule> rules = rules_;
	while (!text.empty()) {
		const size_t end = std::min(text.find_first_of(";\n"), text.size());
		std::string_view line = text.substr(0, end);
		text.remove_prefix(std::min(end + 1, text.size()));
		line = line.substr(0, line.find('#'));
		std::string_view rest = line;
		const std::string_view first = next_word(rest);
		if (first.empty())
			continue;
		if (first == "clear") {
			rules.clear();
			continue;
		}
		FaultRule rule;
		if (std::string error = parse_rule(line, rule); !error.empty())
			return "\"" + std::string(line) + "\": " + error;
		rules.push_back(std::move(rule));
	}
	rules_ = std::move(rules);
	return "";
}

// Whether a rule applies to what it has matched just now.
bool Faults::hits(FaultRule &rule, uint32_t qp, unsigned device)
{
	if ((rule.qp && rule.qp != qp) || (rule.device >= 0 && rule.device != static_cast<int>(device)))
		return false;
	const uint64_t n = rule.seen[qp]++;
	if (n < rule.after || rule.count == 0 || chance(rule.seed, qp, n) >= rule.rate)
		return false;
	if (rule.count != UINT64_MAX)
		--rule.count;
	return true;
}

Faults::Fate Faults::packet(const Packet &packet, unsigned device, Time now, Time &delay)
{
	for (FaultRule &rule : rules_) {
		if ((rule.kind >= 0 && rule.kind != static_cast<int>(packet.kind)) ||
		    (rule.destination && rule.destination != packet.destination))
			continue;
		switch (rule.action) {
		case Action::drop:
			if (hits(rule, packet.source, device))
				return Fate::drop;
			break;
		case Action::duplicate:
			if (hits(rule, packet.source, device))
				return Fate::twice;
			break;
		case Action::reorder:
			if (hits(rule, packet.source, device))
				return Fate::after_next;
			break;
		case Action::delay:
			if (hits(rule, packet.source, device)) {
				delay = rule.time;
				return Fate::later;
			}
			break;
		case Action::link_down:
			if (now >= rule.until && hits(rule, packet.source, device))
				rule.until = now + rule.time;
			if (down(device, now))
				return Fate::drop;
			break;
		default: break;
		}
	}
	return Fate::pass;
}

bool Faults::down(unsigned device, Time now) const
{
	return std::any_of(rules_.begin(), rules_.end(), [&](const FaultRule &rule) {
		return rule.action == Action::link_down && now < rule.until &&
		       (rule.device < 0 || rule.device == static_cast<int>(device));
	});
}

Time Faults::links_until(Time now) const
{
	Time next = 0;
	for (const FaultRule &rule : rules_)
		if (rule.action == Action::link_down && now < rule.until && (!next || rule.until < next))
			next = rule.until;
	return next;
}

bool Faults::starves(uint32_t qp, unsigned device)
{
	return std::any_of(rules_.begin(), rules_.end(),
	                   [&](FaultRule &rule) { return rule.action == Action::starve && hits(rule, qp, device); });
}

std::optional<Faults::Tear> Faults::tears(uint32_t qp, uint32_t requester, unsigned device)
{
	constexpr Time pause = 10'000;
	for (FaultRule &rule : rules_)
		if (rule.action == Action::tear && (!rule.destination || rule.destination == requester) &&
		    hits(rule, qp, device))
			return Tear{mix(rule.seed, qp, rule.seen[qp]), rule.time ? rule.time : pause};
	return std::nullopt;
}

bool Faults::refuses(FaultRule::Object object, unsigned device)
{
	return std::any_of(rules_.begin(), rules_.end(), [&](FaultRule &rule) {
		return rule.action == Action::refuse && rule.object == object && hits(rule, 0, device);
	});
}

bool Faults::breaks(uint32_t qp, unsigned device)
{
	return std::any_of(rules_.begin(), rules_.end(),
	                   [&](FaultRule &rule) { return rule.action == Action::break_qp && hits(rule, qp, device); });
}

bool Faults::fatal(unsigned device)
{
	return std::any_of(rules_.begin(), rules_.end(),
	                   [&](FaultRule &rule) { return rule.action == Action::fatal && hits(rule, 0, device); });
}

void Faults::look_at_file(const std::string &path, Time now)
{
	constexpr Time interval = 10'000'000;
	if (last_look_ && now - last_look_ < interval)
		return;
	last_look_ = now;
	struct stat status;
	const int64_t changed =
	    stat(path.c_str(), &status) == 0 ? status.st_mtim.tv_sec * INT64_C(1'000'000'000) + status.st_mtim.tv_nsec : 0;
	if (changed == file_time_)
		return;
	file_time_ = changed;
	std::ifstream file(path);
	const std::string rules((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
	if (const std::string error = add("clear\n" + rules); !error.empty())
		std::fprintf(stderr, "softhca: %s: %s\n", path.c_str(), error.c_str());
}

} // namespace softhca
