#include "base/config/text.hpp"

#include <algorithm>
#include <cctype>

#include "base/report/report.hpp"

namespace pt2p::tunables {

std::string quoted(std::string_view text)
{
	constexpr size_t longest = 60;
	std::string out = "\"";
	for (char c : text.substr(0, longest)) {
		if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
			out += format("\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
		else
			out += c;
	}
	return out + (text.size() > longest ? "...\"" : "\"");
}

std::string_view trimmed(std::string_view text)
{
	constexpr std::string_view blanks = " \t\r\n\v\f";
	auto first = text.find_first_not_of(blanks);
	if (first == text.npos)
		return {};
	return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

std::string lowered(std::string_view text)
{
	std::string out(text);
	std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
	return out;
}

std::vector<std::string_view> words(std::string_view list)
{
	std::vector<std::string_view> out;
	for (;;) {
		auto bar = list.find('|');
		out.push_back(list.substr(0, bar));
		if (bar == list.npos)
			return out;
		list.remove_prefix(bar + 1);
	}
}

std::string_view yes_or_no(const std::string &word)
{
	if (word == "1" || word == "yes" || word == "on" || word == "true")
		return "yes";
	return word == "0" || word == "no" || word == "off" || word == "false" ? "no" : "";
}

size_t distance(std::string_view a, std::string_view b)
{
	std::vector<size_t> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
	for (size_t j = 0; j <= b.size(); ++j)
		last[j] = j;
	for (size_t i = 1; i <= a.size(); ++i) {
		now[0] = i;
		for (size_t j = 1; j <= b.size(); ++j) {
			now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				now[j] = std::min(now[j], before[j - 2] + 1);
		}
		before.swap(last);
		last.swap(now);
	}
	return last[b.size()];
}

} // namespace pt2p::tunables
