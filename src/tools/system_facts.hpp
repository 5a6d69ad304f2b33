// SPDX-License-Identifier: BSD-3-Clause
// What the transports depend on and the system decides, in words for pt2p_info; and how such facts are shown.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tools/json.hpp"

namespace pt2p {

// One line of a list of facts: a key for JSON, a label for people.
struct Fact {
	std::string key, label, value;
};

// 1536 as "1.5 KiB".
std::string bytes_text(uint64_t bytes);

// One a line, below a title, in two columns.
void print_facts(const char *title, const std::vector<Fact> &facts);
// In lines of 78 columns, four of them blank.
void print_text(std::string_view text);
// By their keys: to the object that is open, or as an object.
void add_facts(Json &json, const std::vector<Fact> &facts);
void write_facts(Json &json, const char *key, const std::vector<Fact> &facts);

// Single copy, /dev/shm, locked memory. Forks to try the first: call it before threads are started.
std::vector<Fact> system_facts();

} // namespace pt2p
