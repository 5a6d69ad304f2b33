#include "route/groups/switches.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <sstream>
#include <strings.h>
#include <utility>

#include "base/report/report.hpp"
#include "route/groups/host_names.hpp"

namespace pt2p {

namespace {

// Keys of lines of ibnetdiscover that do not tell where a host is.
constexpr const char *other_keys[] = {"vendid", "devid", "sysimgguid", "switchguid", "caguid", "rtguid"};
constexpr const char *blanks = " \t";
constexpr size_t max_hosts = 1'000'000; // a longer range is a mistake

// "key=" in front of `text`, in capital letters or not.
bool has_key(const std::string &text, const char *key)
{
	const size_t length = std::strlen(key);
	return text.size() > length && text[length] == '=' && !strncasecmp(text.c_str(), key, length);
}

// A host name ends at the first dot, where the domain begins. Numbers are addresses and stay whole.
std::string short_name(const std::string &host)
{
	return host.empty() || (host[0] >= '0' && host[0] <= '9') ? host : host.substr(0, host.find('.'));
}

} // namespace

void SwitchFile::fail(const std::string &what) const
{
	throw Error(PT2P_ERR_TUNABLE,
	            format("%s, line %d of %s: %s", tunable_.c_str(), number_, path_.c_str(), what.c_str()));
}

void SwitchFile::put(const std::string &host)
{
	if (on_.size() >= max_hosts)
		fail(format("more than %zu hosts", max_hosts));
	on_.emplace(host, switches_);
	short_.emplace(short_name(host), switches_);
}

void SwitchFile::add(const std::string &text)
{
	++number_;
	std::string line = trimmed(unfinished_ + text);
	unfinished_.clear();
	if (line.empty() || line[0] == '#')
		return;
	if (line.back() == '\\') {
		unfinished_ = line.substr(0, line.size() - 1) + ' ';
		return;
	}
	if (has_key(line, "SwitchName"))
		return read_slurm(line.substr(0, line.find('#')));
	if (line[0] == '[')
		return read_port(line);
	const std::string word = line.substr(0, line.find_first_of(blanks));
	if (word == "Switch") {
		if (line.find("\"S-") == std::string::npos)
			fail("a switch without its number, as \"S-0002c902004a0fd0\"");
		block_ = Block::of_switch;
		++switches_;
	} else if (word == "Ca" || word == "Rt") {
		block_ = Block::of_other;
	} else if (const auto heads = [&](const char *key) { return has_key(line, key); };
	           word != "Chassis" && word != "Non-Chassis" &&
	           std::none_of(std::begin(other_keys), std::end(other_keys), heads)) {
		fail(format("\"%.60s\" is neither of Slurm's topology.conf (SwitchName=s0 Nodes=n[0-5]) nor what ibnetdiscover "
		            "prints",
		            line.c_str()));
	}
}

void SwitchFile::read_slurm(const std::string &line)
{
	block_ = Block::none;
	++switches_;
	std::istringstream words(line);
	for (std::string word; words >> word;) {
		if (word.find('=') == std::string::npos)
			fail(format("\"%s\" is no key=value; a list of nodes has no blanks in it", word.c_str()));
		if (has_key(word, "Nodes"))
			each_item(word.substr(word.find('=') + 1), [&](const std::string &item) {
				if (!each_name(item, [&](const std::string &name) { put(name); }))
					fail(format("the brackets in \"%s\" make no list of hosts; write node[01-04,7]", item.c_str()));
			});
	}
}

// A port: of interest when it is a switch's and a host's adapter is connected to it.
void SwitchFile::read_port(const std::string &line)
{
	if (block_ == Block::none)
		fail("a port of nothing: a line as Switch 36 \"S-0002c902004a0fd0\" has to come before");
	const size_t comment = line.find('#'), number = line.find('"');
	if (number == std::string::npos || number > comment)
		fail("a port without what it is connected to, as \"H-0002c903000e5b1c\"");
	if (block_ != Block::of_switch || line.compare(number, 3, "\"H-") != 0)
		return;
	const size_t begin = std::min(line.find('"', comment), line.size() - 1) + 1, end = line.find('"', begin);
	if (comment == std::string::npos || end == std::string::npos)
		fail("an adapter without its description, as # \"node01 HCA-1\"");
	const std::string description = trimmed(line.substr(begin, end - begin));
	if (!description.empty())
		put(description.substr(0, description.find_first_of(blanks)));
}

std::vector<int> SwitchFile::groups(const std::vector<std::string> &hosts, std::string &warning) const
{
	std::vector<int> groups;
	int unknown = 0;
	std::string first_unknown;
	for (const std::string &host : hosts) {
		auto found = on_.find(host);
		if (found == on_.end() && (found = short_.find(short_name(host))) == short_.end()) {
			first_unknown = unknown++ ? first_unknown : host;
			groups.push_back(0); // switches are counted from 1 on
			continue;
		}
		groups.push_back(found->second);
	}
	if (!unknown)
		return groups;
	const std::string example = first_unknown.empty() ? "a host without a name" : "\"" + first_unknown + "\"";
	if (unknown == static_cast<int>(hosts.size()))
		throw Error(PT2P_ERR_TUNABLE, format("%s: %s names none of this job's hosts, as %s, on a switch",
		                                     tunable_.c_str(), path_.c_str(), example.c_str()));
	warning = format("%s: %s names no switch of %d of %zu nodes, as %s; they are one group", tunable_.c_str(),
	                 path_.c_str(), unknown, hosts.size(), example.c_str());
	return groups;
}

} // namespace pt2p
