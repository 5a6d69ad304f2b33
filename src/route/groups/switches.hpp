// Groups of nodes by the switches of a fabric: nodes on the same leaf switch form a group.
//
// There are two descriptions of a fabric. They need no privileges to read once an administrator has saved them:
//
//   topology.conf of Slurm            SwitchName=leaf1 Nodes=node[01-18]
//                                     SwitchName=spine Switches=leaf[1-4]
//
//   what ibnetdiscover prints         Switch  36 "S-0002c902004a0fd0"  # "leaf1" enhanced port 0 lid 4 lmc 0
//                                     [1]  "H-0002c903000e5b1c"[1](2c903000e5b1d)  # "node01 HCA-1" lid 10 4xQDR
//                                     [2]  "S-0002c902004b7a10"[3]  # "spine" lid 3 4xQDR
//
// There the first word of an adapter's description names the host. A host on several switches, as with several
// adapters, belongs to the one that the file names first: hosts that share all their switches share a group.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace pt2p {

class SwitchFile {
public:
	// For explanations: "PT2P_GROUPS" and the file's name.
	SwitchFile(std::string tunable, std::string path) : tunable_(std::move(tunable)), path_(std::move(path)) {}

	// Reads the next line. Throws Error(PT2P_ERR_TUNABLE).
	void add(const std::string &line);
	// The group of each node by the name of its host; after the last line. Nodes that the file does not name form one
	// more group, and `warning` says so. Throws Error(PT2P_ERR_TUNABLE) when the file names none of them.
	std::vector<int> groups(const std::vector<std::string> &hosts, std::string &warning) const;

private:
	void read_slurm(const std::string &line);
	void read_port(const std::string &line);
	void put(const std::string &host);
	[[noreturn]] void fail(const std::string &what) const;

	const std::string tunable_, path_;
	int number_ = 0;         // of the line
	std::string unfinished_; // lines that end with a backslash
	enum class Block : uint8_t { none, of_switch, of_other } block_ = Block::none;
	int switches_ = 0;                 // so far; the last is the current one
	std::map<std::string, int> on_;    // the switch of each host
	std::map<std::string, int> short_; // the same by names up to the first dot
};

} // namespace pt2p
