// Text of configuration files and variables: trimmed, split, compared, and quoted for explanations.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace pt2p::tunables {

// A user's text, fit for one line of an explanation.
std::string quoted(std::string_view text);
// Without blanks around it.
std::string_view trimmed(std::string_view text);
std::string lowered(std::string_view text);
// The words of "a|b|c".
std::vector<std::string_view> words(std::string_view list);
// "yes" or "no" for any spelling of that; empty for another word.
std::string_view yes_or_no(const std::string &word);
// Edits (insert, delete, replace, swap of neighbours) that turn one word into the other.
size_t distance(std::string_view a, std::string_view b);

} // namespace pt2p::tunables
