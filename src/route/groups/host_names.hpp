// How nodes are written in lists: numbers, names, and ranges of both.
#pragma once

#include <functional>
#include <string>

namespace pt2p {

// Without blanks around it.
std::string trimmed(const std::string &text);

// Decimal digits that make an int, and nothing else.
bool read_number(const std::string &text, int &number);
// "3" or "0-3".
bool read_range(const std::string &text, int &first, int &last);

// Calls `see` with each item of a list. Items are separated by commas or blanks outside of brackets; a bracket that is
// not closed reaches to the end.
void each_item(const std::string &list, const std::function<void(const std::string &)> &see);
// Calls `see` with each name that the brackets in `name` stand for; false: they are malformed. Names come one by one,
// so `see` may end a range that is far too long.
bool each_name(const std::string &name, const std::function<void(const std::string &)> &see);

} // namespace pt2p
